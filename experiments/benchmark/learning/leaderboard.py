"""The tables of the learners: of each group of tasks, of each task's best, and the summary."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np

from agents.learning import LEARNERS
from agents.statistics import number
from experiments.benchmark.learning.runs import BASELINES, SEPARATOR
from experiments.benchmark.learning.scores import LEVELS, Run, Table
from experiments.report import Row
from experiments.tables import plain

SCORE_COLUMNS = (
    "agent",
    "tasks",
    "runs a task",
    "score, IQM",
    "worst task",
    "share of bound",
    "index error",
)
COST_COLUMNS = (
    "agent",
    "crawl epochs",
    "source-epochs",
    "core-seconds",
    *(f"source-epochs, seconds to {level:.2f}" for level in LEVELS),
)
BEST_COLUMNS = ("task", "best agent", "score, IQM", "share of bound", "runs", "source-epochs")


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
        runs = [run for task in tasks for run in table.baselines[name].get(task, [])]
        score = float(np.mean([run.score for run in runs]))
        found.append([f"({name})", "", "", f"{score:.3f}", "", _percent(runs), ""])
    return found


def _score_row(table: Table, agent: str, tasks: Sequence[str]) -> Row:
    learnt, runs = _learnt(table, agent, tasks)
    errors = [run.index_error for run in runs if not np.isnan(run.index_error)]
    return [
        agent,
        f"{len(learnt)} of {len(tasks)}",
        "–".join(sorted({str(len(table.runs[agent][task])) for task in learnt})),
        plain(table.iqm(agent, learnt)),
        f"{min(table.iqm(agent, [task]).mean for task in learnt):.3f}",
        _percent(runs),
        f"{np.median(errors):.2f}" if errors else "",
    ]


def cost_rows(table: Table, tasks: Sequence[str]) -> list[Row]:
    """Return what every agent needed, medians over its runs."""
    found: list[Row] = []
    for agent in table.among(tasks):
        _, runs = _learnt(table, agent, tasks)
        spent = (
            _middle(runs, lambda run: run.crawl_epochs),
            _middle(runs, lambda run: run.source_epochs),
            _middle(runs, lambda run: run.seconds),
        )
        found.append([agent, *spent, *(_to(runs, level) for level in LEVELS)])
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
        cells = [first, plain(table.iqm(first, [task])), _percent(runs), len(runs)]
        found.append([short_of(task), *cells, _middle(runs, lambda run: run.source_epochs)])
    return found


def above_bound(table: Table) -> list[tuple[float, str, str]]:
    """Return (mean share, agent, task) where runs are on average above their task's bound."""
    shares = [
        (float(np.mean([run.share for run in runs])), agent, task)
        for agent, by_task in table.runs.items()
        for task, runs in by_task.items()
    ]
    return sorted((found for found in shares if found[0] > 1), reverse=True)


def summary(table: Table) -> str:
    """Return the leaderboard as Markdown: agents by groups of tasks, IQM scores."""
    parts = groups(table)
    everything = [task for _, tasks in parts for task in tasks]
    names = [re.split("[:;]", group)[0] for group, _ in parts]
    head = ["agent", *(f"{n} ({len(t)})" for n, (_, t) in zip(names, parts, strict=True)), "shares"]
    lines = [head, ["---", *["---:"] * len(parts), "---"]]
    for agent in table.among(everything):
        cells = []
        for _, tasks in parts:
            learnt = [task for task in tasks if task in table.runs[agent]]
            few = f" ({len(learnt)})" if len(learnt) < len(tasks) else ""
            cells.append(f"{table.iqm(agent, learnt).mean:.3f}{few}" if learnt else "")
        lines.append([agent, *cells, "yes" if shares(agent) else ""])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def shares(agent: str) -> bool:
    """Whether what one source teaches the agent is used for all."""
    kind = LEARNERS.get(agent.partition(",")[0])
    return "equivariant" in agent or bool(kind and kind.shares)


def _percent(runs: Sequence[Run]) -> str:
    share = float(np.mean([run.share for run in runs]))
    return "n/a" if np.isnan(share) else f"{share:.2%}"


def _middle(runs: Sequence[Run], of: Callable[[Run], float]) -> str:
    return _rounded(float(np.median([of(run) for run in runs])))


def _to(runs: Sequence[Run], level: float) -> str:
    """Return the medians of source-epochs and seconds, as long as half of the runs get there."""
    reached = [run.reached(level) for run in runs]
    epochs, seconds = (float(np.median([r[i] for r in reached])) for i in (1, 2))
    return f"{_rounded(epochs)}, {seconds:.2g}" if np.isfinite(epochs) else "–"


def _rounded(x: float) -> str:
    """Return a number with two digits: 36k rather than 35,840.

    >>> _rounded(35840), _rounded(3.14), _rounded(1.2e6)
    ('36k', '3.1', '1.2M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if x >= size:
            return f"{float(f'{x / size:.2g}'):g}{letter}"
    return number(float(f"{x:.2g}"))
