"""Tables of the learning agents: scores and costs by group of tasks, best agents, and summary."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np

from agents.evaluation.statistics import number
from ephemeral_crawl.core.report import Row
from ephemeral_crawl.core.tables import markdown, plain
from experiments.benchmark.learning.entrants import FULL, QUICK, Entrant
from experiments.benchmark.learning.plan import BASELINES, SEPARATOR
from experiments.benchmark.learning.scores import FAILED, LEVELS, Run, Spread, Table, spread

ALL = (*FULL, *QUICK)

SCORE_COLUMNS = (
    "agent",
    "observes",
    "tasks",
    "runs per task",
    "score, IQM",
    "mean",
    "minimum",
    "failed runs",
    "IQM, worst task",
    "fraction of bound",
    "index error",
)
COST_COLUMNS = (
    "agent",
    "tasks",
    "environment steps",
    "source steps",
    "core-seconds",
    *(f"source steps, s to score {level:.2f}" for level in LEVELS),
)
BEST_COLUMNS = (
    "task",
    "best agent",
    "score, IQM",
    "mean",
    "minimum",
    "failed runs",
    "fraction of bound",
    "bound",
    "runs",
    "source steps",
)


def group_of(task: str) -> str:
    return task.partition(SEPARATOR)[0]


def short_of(task: str) -> str:
    return task.partition(SEPARATOR)[2]


def groups(table: Table) -> list[tuple[str, list[str]]]:
    """Return the tasks by group, in the order of the records."""
    return [(group, list(tasks)) for group, tasks in groupby(sorted_tasks(table), key=group_of)]


def sorted_tasks(table: Table) -> list[str]:
    first = {group: i for i, group in reversed(list(enumerate(map(group_of, table.tasks))))}
    return sorted(table.tasks, key=lambda task: first[group_of(task)])


def score_rows(table: Table, tasks: Sequence[str]) -> list[Row]:
    """Return the scores of every agent, and of the baselines for comparison."""
    found = [_score_row(table, agent, tasks) for agent in table.among(tasks)]
    for name in BASELINES:
        by_task = [table.baselines[name][task] for task in tasks]
        scores = [np.array([run.score for run in runs]) for runs in by_task]
        worst = min(float(of_task.mean()) for of_task in scores)
        together = spread(np.concatenate(scores))
        cells = [f"({name})", "all parameters", "", "", f"{together.mean:.3f}", *_spread(together)]
        found.append([*cells, f"{worst:.3f}", _percent(by_task), ""])
    return found


def _score_row(table: Table, agent: str, tasks: Sequence[str]) -> Row:
    learnt, runs = _learnt(table, agent, tasks)
    by_task = [table.runs[agent][task] for task in learnt]
    errors = [run.index_error for run in runs if not np.isnan(run.index_error)]
    return [
        agent,
        observations(table, agent),
        f"{len(learnt)} of {len(tasks)}",
        " or ".join(map(str, sorted({len(runs) for runs in by_task}))),
        plain(table.iqm(agent, learnt)),
        *_spread(table.spread(agent, learnt)),
        f"{min(table.iqm(agent, [task]).mean for task in learnt):.3f}",
        _percent(by_task),
        f"{np.median(errors):.2f}" if errors else "",
    ]


def cost_rows(table: Table, tasks: Sequence[str]) -> list[Row]:
    """Return the steps and seconds of every agent, medians over its runs."""
    found: list[Row] = []
    for agent in table.among(tasks):
        learnt, runs = _learnt(table, agent, tasks)
        spent = (
            _middle(runs, lambda run: run.env_steps),
            _middle(runs, lambda run: run.source_steps),
            _middle(runs, lambda run: run.seconds),
        )
        part = f"{len(learnt)} of {len(tasks)}"
        found.append([agent, part, *spent, *(_to(runs, level) for level in LEVELS)])
    return found


def _learnt(table: Table, agent: str, tasks: Sequence[str]) -> tuple[list[str], list[Run]]:
    """Return the tasks on which an agent was trained, and its runs on them."""
    learnt = [task for task in tasks if task in table.runs[agent]]
    return learnt, [run for task in learnt for run in table.runs[agent][task]]


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


def overview(table: Table) -> list[Row]:
    """Return the scores of every agent over all tasks on which it was trained."""
    found: list[Row] = []
    for agent in table.among(table.tasks):
        learnt, runs = _learnt(table, agent, table.tasks)
        scores = plain(table.iqm(agent, learnt)), *_spread(table.spread(agent, learnt))
        cells = f"{len(learnt)} of {len(table.tasks)}", len(runs), *scores
        found.append([agent, *cells, "yes" if shares_parameters(agent) else "no"])
    return found


OVERVIEW_COLUMNS = (
    "agent",
    "tasks",
    "runs",
    "score, IQM",
    "mean",
    "minimum",
    "failed runs",
    "shared parameters",
)


def _spread(found: Spread) -> list[str]:
    return [f"{found.mean:.3f}", f"{found.minimum:.3f}", _share(found.failed)]


def _share(x: float) -> str:
    """Return a share in whole per cent, but never 0 % of what happened.

    >>> _share(0.0), _share(0.002), _share(0.25)
    ('0 %', '0.2 %', '25 %')
    """
    return f"{100 * x:.1f} %" if 0 < x < 0.01 else f"{100 * x:.0f} %"


def best(table: Table, tasks: Sequence[str]) -> list[Row]:
    """Return the best agent of each task."""
    found: list[Row] = []
    for task in tasks:
        agents = [name for name, runs in table.runs.items() if task in runs]
        first = max(agents, key=lambda name: table.iqm(name, [task]).mean)
        runs = table.runs[first][task]
        scores = plain(table.iqm(first, [task])), *_spread(table.spread(first, [task]))
        cells = [first, *scores, _percent([runs]), runs[0].bound, len(runs)]
        found.append([short_of(task), *cells, _middle(runs, lambda run: run.source_steps)])
    return found


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
    parts = ["ages"] if "age" in features else []
    parts += ["values"] if "value" in features else []
    parts += ["parameters"] if "arrival_rate" in features else []
    prior = _entrant(agent).kind.prior_knowledge
    return ", ".join(parts) + (f" ({prior} is given)" if prior else "")


def summary(table: Table, source: str) -> str:
    """Return the leaderboard in Markdown: scores by agent and group of tasks, and the source."""
    parts = groups(table)
    everything = [task for _, tasks in parts for task in tasks]
    names = [re.split("[:;]", group)[0] for group, _ in parts]
    head = ["agent", *(f"{n} ({len(t)})" for n, (_, t) in zip(names, parts, strict=True))]
    lines = [
        [*head, "runs per task", "observes", "shared parameters"],
        ["---", *["---:"] * len(parts)],
    ]
    lines[1] += ["---:", "---", "---"]
    for agent in table.among(everything):
        cells = []
        for _, tasks in parts:
            learnt = [task for task in tasks if task in table.runs[agent]]
            cells.append(_summarised(table, agent, learnt, len(tasks)) if learnt else "")
        runs = " or ".join(map(str, sorted({len(r) for r in table.runs[agent].values()})))
        lines.append(
            [agent, *cells, runs, observations(table, agent), "yes" * shares_parameters(agent)]
        )
    return f"{markdown(lines)}\n{_CELLS}\n\n{source}\n"


_CELLS = (
    "Scores of the runs: 0 is the random policy, 1 Whittle, which knows all parameters. IQM / mean "
    f"/ minimum; then the share of failed runs (score below {FAILED:g}) if any failed, and the "
    "number of tasks if not all of the column's were trained."
)


def _summarised(table: Table, agent: str, learnt: Sequence[str], tasks: int) -> str:
    found = table.spread(agent, learnt)
    cell = f"{table.iqm(agent, learnt).mean:.3f} / {found.mean:.3f} / {found.minimum:.2f}"
    if found.failed:
        cell += f", {_share(found.failed)} failed"
    return cell + f" ({len(learnt)})" * (len(learnt) < tasks)


def shares_parameters(agent: str) -> bool:
    """Whether all sources share one set of parameters."""
    entrant = _entrant(agent)
    settings = entrant.kind.Settings(**entrant.settings)
    return entrant.kind.shared_parameters or getattr(settings, "network", "") == "equivariant"


def _entrant(name: str) -> Entrant:
    return next(entrant for entrant in ALL if entrant.name == name)


def _percent(by_task: Sequence[Sequence[Run]]) -> str:
    """Return the fraction of the bound, mean over runs and then over the tasks that have one."""
    means = [float(np.mean([run.fraction for run in runs])) for runs in by_task]
    known = [mean for mean in means if not np.isnan(mean)]
    return f"{np.mean(known):.2%}" if known else "n/a"


def _middle(runs: Sequence[Run], of: Callable[[Run], float]) -> str:
    return _rounded(float(np.median([of(run) for run in runs])))


def _to(runs: Sequence[Run], level: float) -> str:
    """Return the medians over evaluated runs of the source steps and of the seconds to a score; "–"
    where fewer than half of the runs reached it, and "" where no run was evaluated."""
    reached = [run.reached(level) for run in runs if run.curve]
    if not reached:
        return ""
    half = (len(reached) - 1) // 2
    steps = sorted(np.inf if point is None else point.source_steps for point in reached)[half]
    seconds = sorted(np.inf if point is None else point.seconds for point in reached)[half]
    return f"{_rounded(steps)}, {seconds:.2g}" if np.isfinite(steps) else "–"


def _rounded(x: float) -> str:
    """Return a number with two digits: 36k rather than 35,840.

    >>> _rounded(35840), _rounded(3.14), _rounded(1.2e6)
    ('36k', '3.1', '1.2M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if x >= size:
            return f"{float(f'{x / size:.2g}'):g}{letter}"
    return number(float(f"{x:.2g}"))
