"""The tables of the learners: of each group of tasks, of each task's best, and the summary."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np

from agents.evaluation.statistics import number
from experiments.benchmark.learning.entrants import FULL, QUICK, Entrant
from experiments.benchmark.learning.plan import BASELINES, SEPARATOR
from experiments.benchmark.learning.scores import LEVELS, Run, Table
from experiments.core.report import Row
from experiments.core.tables import markdown, plain

ALL = (*FULL, *QUICK)

SCORE_COLUMNS = (
    "agent",
    "is shown",
    "tasks",
    "runs a task",
    "score, IQM",
    "worst task",
    "share of bound",
    "index error",
)
COST_COLUMNS = (
    "agent",
    "tasks",
    "environment steps",
    "source steps",
    "core-seconds",
    *(f"to {level:.2f}: steps, s" for level in LEVELS),
)
BEST_COLUMNS = (
    "task",
    "best agent",
    "score, IQM",
    "share of bound",
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
    """Return what every agent reached, and the baselines for comparison."""
    found = [_score_row(table, agent, tasks) for agent in table.among(tasks)]
    for name in BASELINES:
        by_task = [table.baselines[name][task] for task in tasks]
        scores = [float(np.mean([run.score for run in runs])) for runs in by_task]
        cells = ["all parameters", "", "", f"{np.mean(scores):.3f}", f"{min(scores):.3f}"]
        found.append([f"({name})", *cells, _percent(by_task), ""])
    return found


def _score_row(table: Table, agent: str, tasks: Sequence[str]) -> Row:
    learnt, runs = _learnt(table, agent, tasks)
    by_task = [table.runs[agent][task] for task in learnt]
    errors = [run.index_error for run in runs if not np.isnan(run.index_error)]
    return [
        agent,
        is_shown(table, agent),
        f"{len(learnt)} of {len(tasks)}",
        " or ".join(map(str, sorted({len(runs) for runs in by_task}))),
        plain(table.iqm(agent, learnt)),
        f"{min(table.iqm(agent, [task]).mean for task in learnt):.3f}",
        _percent(by_task),
        f"{np.median(errors):.2f}" if errors else "",
    ]


def cost_rows(table: Table, tasks: Sequence[str]) -> list[Row]:
    """Return what every agent needed, medians over its runs."""
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
    """Return those of the tasks that an agent learnt, and its runs on them."""
    learnt = [task for task in tasks if task in table.runs[agent]]
    return learnt, [run for task in learnt for run in table.runs[agent][task]]


def best(table: Table, tasks: Sequence[str]) -> list[Row]:
    """Return the best agent of each task."""
    found: list[Row] = []
    for task in tasks:
        agents = [name for name, runs in table.runs.items() if task in runs]
        first = max(agents, key=lambda name: table.iqm(name, [task]).mean)
        runs = table.runs[first][task]
        cells = [first, plain(table.iqm(first, [task])), _percent([runs]), runs[0].bound, len(runs)]
        found.append([short_of(task), *cells, _middle(runs, lambda run: run.source_steps)])
    return found


def above_bound(table: Table) -> list[tuple[float, str, str]]:
    """Return (mean share, agent, task) where runs are on average above the bound of what the
    agent sees, on tasks that have one; largest first."""
    shares = [
        (float(np.mean([run.share for run in runs])), agent, task)
        for agent, by_task in table.runs.items()
        for task, runs in by_task.items()
    ]
    return sorted((found for found in shares if found[0] > 1), reverse=True)


def is_shown(table: Table, agent: str) -> str:
    """Return in words what an agent observes, besides the harvests of its crawls."""
    features = set(table.features[agent].split())
    parts = ["ages"] if "age" in features else []
    parts += ["values"] if "value" in features else []
    parts += ["parameters"] if "arrival_rate" in features else []
    parts += [_entrant(agent).kind.prior_knowledge]
    return ", ".join(filter(None, parts))


def summary(table: Table, source: str) -> str:
    """Return the leaderboard as Markdown: agents by groups of tasks, IQM scores; and its source."""
    parts = groups(table)
    everything = [task for _, tasks in parts for task in tasks]
    names = [re.split("[:;]", group)[0] for group, _ in parts]
    head = ["agent", *(f"{n} ({len(t)})" for n, (_, t) in zip(names, parts, strict=True))]
    lines = [[*head, "runs a task", "is shown", "shares"], ["---", *["---:"] * len(parts)]]
    lines[1] += ["---:", "---", "---"]
    for agent in table.among(everything):
        cells = []
        for _, tasks in parts:
            learnt = [task for task in tasks if task in table.runs[agent]]
            few = f" ({len(learnt)})" if len(learnt) < len(tasks) else ""
            cells.append(f"{table.iqm(agent, learnt).mean:.3f}{few}" if learnt else "")
        runs = " or ".join(map(str, sorted({len(r) for r in table.runs[agent].values()})))
        lines.append([agent, *cells, runs, is_shown(table, agent), "yes" * shares(agent)])
    return f"{markdown(lines)}\n{source}\n"


def shares(agent: str) -> bool:
    """Whether all sources share one set of parameters."""
    entrant = _entrant(agent)
    settings = entrant.kind.Settings(**entrant.settings)
    return entrant.kind.shared_parameters or getattr(settings, "network", "") == "equivariant"


def _entrant(name: str) -> Entrant:
    return next(entrant for entrant in ALL if entrant.name == name)


def _percent(by_task: Sequence[Sequence[Run]]) -> str:
    """Return the mean share of the bound over runs, and then over the tasks that have one."""
    means = [float(np.mean([run.share for run in runs])) for runs in by_task]
    known = [mean for mean in means if not np.isnan(mean)]
    return f"{np.mean(known):.2%}" if known else "n/a"


def _middle(runs: Sequence[Run], of: Callable[[Run], float]) -> str:
    return _rounded(float(np.median([of(run) for run in runs])))


def _to(runs: Sequence[Run], level: float) -> str:
    """Return the source steps and seconds after which half of the evaluated runs got there, each by
    itself; – where fewer did, and nothing where there are none."""
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
