"""Tables of the learning agents: scores and costs by group of tasks, best agents, and summary."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import methodcaller

import numpy as np

from agents.evaluation.statistics import number
from ephemeral_crawl.core.tables import markdown, plain
from experiments.benchmark.learning.entrants import FULL, QUICK, Entrant
from experiments.benchmark.learning.plan import BASELINES, SEPARATOR
from experiments.benchmark.learning.scores import FAILED, LEVELS, Run, Spread, Table, spread

ALL = (*FULL, *QUICK)


def group_of(task: str) -> str:
    return task.partition(SEPARATOR)[0]


def short_of(task: str) -> str:
    return task.partition(SEPARATOR)[2]


def groups(table: Table) -> list[tuple[str, list[str]]]:
    """Return the tasks by group, in the order of the records."""
    first = {group: i for i, group in reversed(list(enumerate(map(group_of, table.tasks))))}
    tasks = sorted(table.tasks, key=lambda task: first[group_of(task)])
    return [(group, list(members)) for group, members in groupby(tasks, key=group_of)]


# -------------------------------------------------------------------------------- columns of tables


@dataclass(frozen=True)
class Line:
    """What an agent, or a baseline, did on those of some tasks on which it was trained."""

    table: Table
    agent: str
    tasks: Sequence[str]

    @property
    def is_baseline(self) -> bool:
        return self.agent in BASELINES and self.agent not in self.table.runs

    @cached_property
    def by_task(self) -> dict[str, list[Run]]:
        found = (self.table.baselines if self.is_baseline else self.table.runs)[self.agent]
        return {task: found[task] for task in self.tasks if task in found}

    @cached_property
    def runs(self) -> list[Run]:
        return [run for of_task in self.by_task.values() for run in of_task]

    @cached_property
    def spread(self) -> Spread:
        return spread(np.array([run.score for run in self.runs]))

    @property
    def trained(self) -> str:
        return "" if self.is_baseline else f"{len(self.by_task)} of {len(self.tasks)}"

    @property
    def per_task(self) -> str:
        counts = sorted({len(runs) for runs in self.by_task.values()})
        return "" if self.is_baseline else " or ".join(map(str, counts))

    @property
    def iqm(self) -> str:
        return "" if self.is_baseline else plain(self.table.iqm(self.agent, self.by_task))

    @property
    def worst(self) -> str:
        if self.is_baseline:
            found = self.by_task.values()
            scores = [float(np.mean([run.score for run in runs])) for runs in found]
        else:
            scores = [self.table.iqm(self.agent, [task]).mean for task in self.by_task]
        return f"{min(scores):.3f}"

    @property
    def of_bound(self) -> str:
        """The fraction of the bound, mean over runs and then over the tasks that have one."""
        means = [float(np.mean([run.fraction for run in x])) for x in self.by_task.values()]
        known = [mean for mean in means if not np.isnan(mean)]
        return f"{np.mean(known):.2%}" if known else "n/a"

    @property
    def index_error(self) -> str:
        errors = [run.index_error for run in self.runs if not np.isnan(run.index_error)]
        return f"{np.median(errors):.2f}" if errors else ""

    @property
    def observes(self) -> str:
        return "all parameters" if self.is_baseline else observations(self.table, self.agent)

    def middle(self, column: str) -> str:
        """Return the median of a column of the runs."""
        return _rounded(float(np.median([getattr(run, column) for run in self.runs])))

    def to(self, level: float) -> str:
        """Return the medians over evaluated runs of the source steps and of the seconds to a score;
        "–" where fewer than half of the runs reached it, and "" where no run was evaluated."""
        reached = [run.reached(level) for run in self.runs if run.curve]
        if not reached:
            return ""
        half = (len(reached) - 1) // 2
        steps = sorted(np.inf if point is None else point.source_steps for point in reached)[half]
        seconds = sorted(np.inf if point is None else point.seconds for point in reached)[half]
        return f"{_rounded(steps)}, {seconds:.2g}" if np.isfinite(steps) else "–"


_SCORES: dict[str, Callable[[Line], object]] = {
    "score, IQM": lambda line: line.iqm,
    "mean": lambda line: f"{line.spread.mean:.3f}",
    "minimum": lambda line: f"{line.spread.minimum:.3f}",
    "failed runs": lambda line: _share(line.spread.failed),
}
_AGENT: dict[str, Callable[[Line], object]] = {
    "agent": lambda line: f"({line.agent})" if line.is_baseline else line.agent,
    "tasks": lambda line: line.trained,
}
OVERVIEW = {
    **_AGENT,
    "runs": lambda line: len(line.runs),
    **_SCORES,
    "shared parameters": lambda line: "yes" if shares_parameters(line.agent) else "no",
}
SCORES = {
    **_AGENT,
    "observes": lambda line: line.observes,
    "runs per task": lambda line: line.per_task,
    **_SCORES,
    "IQM, worst task": lambda line: line.worst,
    "fraction of bound": lambda line: line.of_bound,
    "index error": lambda line: line.index_error,
}
COSTS = {
    **_AGENT,
    "environment steps": lambda line: line.middle("env_steps"),
    "source steps": lambda line: line.middle("source_steps"),
    "core-seconds": lambda line: line.middle("seconds"),
    **{f"source steps, s to score {level:.2f}": methodcaller("to", level) for level in LEVELS},
}
BEST = {
    "task": lambda line: short_of(line.tasks[0]),
    "best agent": lambda line: line.agent,
    **_SCORES,
    "fraction of bound": lambda line: line.of_bound,
    "bound": lambda line: line.runs[0].bound,
    "runs": lambda line: len(line.runs),
    "source steps": lambda line: line.middle("source_steps"),
}


def rows(columns: dict[str, Callable[[Line], object]], lines: Sequence[Line]) -> list[list[object]]:
    """Return the cells of some columns."""
    return [[cell(line) for cell in columns.values()] for line in lines]


def lines(table: Table, tasks: Sequence[str], baselines: bool = False) -> list[Line]:
    """Return the lines of the agents, best first, and perhaps those of the baselines."""
    agents = [*table.among(tasks), *(BASELINES if baselines else ())]
    return [Line(table, agent, tasks) for agent in agents]


def best(table: Table, tasks: Sequence[str]) -> list[Line]:
    """Return the line of the best agent of each task."""
    found = []
    for task in tasks:
        agents = [name for name, runs in table.runs.items() if task in runs]
        first = max(agents, key=lambda name: table.iqm(name, [task]).mean)
        found.append(Line(table, first, [task]))
    return found


# ---------------------------------------------------------------------------------------- sentences


def answer(table: Table) -> str:
    """Return how reliable the agents are, in one sentence."""
    agents = table.among(table.tasks)
    failed = {name: table.spread(name, table.tasks).failed for name in agents}
    failing = sorted((name for name in agents if failed[name]), key=lambda name: -failed[name])
    first = agents[0]
    shares = ", ".join(f"{name} {_share(failed[name])}" for name in failing)
    return (
        f"{len(agents) - len(failing)} of {len(agents)} learning agents never fail: each of their "
        f"runs scores at least {FAILED:g}, where 0 is the random policy and 1 is Whittle, which "
        "knows all parameters"
        + (f"; the others fail in this share of their runs: {shares}" if shares else "")
        + f". {first} learns the most tasks, {len(table.runs[first])} of {len(table.tasks)} "
        f"(IQM {table.iqm(first, table.tasks).mean:.3f})."
    )


def above_bound(table: Table) -> list[tuple[float, str, str]]:
    """Return (mean fraction of the bound, agent, task) where this mean over runs exceeds 1, largest
    first."""
    fractions = [
        (float(np.mean([run.fraction for run in runs])), agent, task)
        for agent, by_task in table.runs.items()
        for task, runs in by_task.items()
    ]
    return sorted((found for found in fractions if found[0] > 1), reverse=True)


def observations(table: Table, agent: str) -> str:
    """Return what an agent observes besides the rewards of its crawls, and its prior knowledge."""
    features = set(table.features[agent].split())
    names = {"age": "ages", "value": "values", "arrival_rate": "parameters"}
    prior = _entrant(agent).kind.prior_knowledge
    shown = ", ".join(words for name, words in names.items() if name in features)
    return shown + (f" ({prior} is given)" if prior else "")


def shares_parameters(agent: str) -> bool:
    """Whether all sources share one set of parameters."""
    entrant = _entrant(agent)
    settings = entrant.kind.Settings(**entrant.settings)
    return entrant.kind.shared_parameters or getattr(settings, "network", "") == "equivariant"


def _entrant(name: str) -> Entrant:
    return next(entrant for entrant in ALL if entrant.name == name)


# ------------------------------------------------------------------------------------------ summary

CELLS = (
    "Scores of the runs: 0 is the random policy, 1 Whittle, which knows all parameters. IQM / mean "
    f"/ minimum; then the share of failed runs (score below {FAILED:g}) if any failed, and the "
    "number of tasks if not all of the column's were trained."
)


def summary(table: Table, source: str) -> str:
    """Return the leaderboard in Markdown: scores by agent and group of tasks, and the source."""
    parts = groups(table)
    everything = [task for _, tasks in parts for task in tasks]
    heads = [f"{re.split('[:;]', group)[0]} ({len(tasks)})" for group, tasks in parts]
    shown = [
        ["agent", *heads, "runs per task", "observes", "shared parameters"],
        ["---", *["---:"] * len(parts), "---:", "---", "---"],
    ]
    for line in lines(table, everything):
        cells = [_summarised(Line(table, line.agent, tasks)) for _, tasks in parts]
        shared = "yes" * shares_parameters(line.agent)
        shown.append([line.agent, *cells, line.per_task, line.observes, shared])
    return f"{markdown(shown)}\n{CELLS}\n\n{source}\n"


def _summarised(line: Line) -> str:
    if not line.by_task:
        return ""
    iqm = line.table.iqm(line.agent, line.by_task).mean
    cell = f"{iqm:.3f} / {line.spread.mean:.3f} / {line.spread.minimum:.2f}"
    if line.spread.failed:
        cell += f", {_share(line.spread.failed)} failed"
    return cell + f" ({len(line.by_task)})" * (len(line.by_task) < len(line.tasks))


def _share(x: float) -> str:
    """Return a share in whole per cent, but never 0 % of what happened.

    >>> _share(0.0), _share(0.002), _share(0.25)
    ('0 %', '0.2 %', '25 %')
    """
    return f"{100 * x:.1f} %" if 0 < x < 0.01 else f"{100 * x:.0f} %"


def _rounded(x: float) -> str:
    """Return a number with two digits: 36k rather than 35,840.

    >>> _rounded(35840), _rounded(3.14), _rounded(1.2e6)
    ('36k', '3.1', '1.2M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if x >= size:
            return f"{float(f'{x / size:.2g}'):g}{letter}"
    return number(float(f"{x:.2g}"))
