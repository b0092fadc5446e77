"""Tables of the learning agents, and what they show in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from agents.evaluation import aggregate
from agents.evaluation.statistics import number
from ephemeral_crawl.core.evaluation import markdown, plain
from experiments.benchmark.plan import IDLE, SEPARATOR
from experiments.benchmark.scores import ScoreTable


def group_of(task: str) -> str:
    return task.partition(SEPARATOR)[0]


def short_of(task: str) -> str:
    return task.partition(SEPARATOR)[2]


def groups(table: ScoreTable) -> list[tuple[str, list[str]]]:
    """Return the tasks by group, in the order of the records."""
    first = {group: i for i, group in reversed(list(enumerate(map(group_of, table.tasks))))}
    tasks = sorted(table.tasks, key=lambda task: first[group_of(task)])
    return [(group, list(members)) for group, members in groupby(tasks, key=group_of)]


def information_sets(table: ScoreTable, tasks: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the agents trained on any of the tasks by what they know and observe, best first."""
    agents = table.agents(tasks)
    sets = dict.fromkeys(table.information[agent] for agent in agents)
    return [(one, [a for a in agents if table.information[a] == one]) for one in sets]


@dataclass(frozen=True)
class Line:
    """What an agent did on those of some tasks on which it was trained."""

    table: ScoreTable
    agent: str
    tasks: Sequence[str]

    @property
    def shown(self) -> list[str]:
        return [task for task in self.tasks if task in self.table.runs[self.agent]]

    @property
    def iqm(self) -> str:
        return plain(self.table.iqm(self.agent, self.shown))

    @property
    def mean(self) -> str:
        return f"{np.mean([x.mean() for x in self.table.scores(self.agent, self.shown)]):.3f}"

    @property
    def worst(self) -> str:
        return f"{aggregate.worst(self.table.scores(self.agent, self.shown)):.2f}"

    @property
    def failed(self) -> str:
        return share(self.table.failed(self.agent, self.shown))

    @property
    def above(self) -> str:
        """On how many of its tasks the mean over runs is clearly above the best policy that learns
        nothing."""
        clear = [self.table.gain(self.agent, task).low > 0 for task in self.shown]
        return f"{sum(clear)} of {len(clear)}"

    @property
    def area(self) -> str:
        tasks = self.table.of(self.agent, self.shown)
        areas = [
            np.mean([run.area(self.table.budget) for run in runs if run.curve])
            for runs in tasks
            if any(run.curve for run in runs)
        ]
        return f"{np.mean(areas):.3f}" if areas else ""

    @property
    def runs(self) -> int:
        return sum(len(runs) for runs in self.table.of(self.agent, self.shown))

    def median(self, column: str) -> float:
        runs = [run for task in self.table.of(self.agent, self.shown) for run in task]
        return float(np.nanmedian([getattr(run, column) for run in runs]))

    @property
    def index_error(self) -> str:
        runs = [run for task in self.table.of(self.agent, self.shown) for run in task]
        errors = [run.index_error for run in runs if not np.isnan(run.index_error)]
        return f"{np.median(errors):.2f}" if errors else ""


AGGREGATES = (
    *("agent", "knows and observes", "IQM", "mean", "worst tenth", "failed runs"),
    *("tasks above", "area", "runs"),
)
COSTS = ("agent", "source steps", "core-seconds", "index error", "trial", "settings")


def aggregates(table: ScoreTable, tasks: Sequence[str]) -> list[list[object]]:
    """Return the rows of the table `AGGREGATES`, by information set, best first."""
    return [
        [
            *(agent, information, line.iqm, line.mean, line.worst, line.failed),
            *(line.above, line.area, line.runs),
        ]
        for information, agents in information_sets(table, tasks)
        for agent in agents
        for line in [Line(table, agent, tasks)]
    ]


def costs(table: ScoreTable) -> list[list[object]]:
    """Return the rows of the table `COSTS`."""
    rows: list[list[object]] = []
    for agent in table.agents(table.tasks):
        line = Line(table, agent, table.tasks)
        cost = number(line.median("source_steps")), f"{line.median('seconds'):.2g}"
        settings = table.settings[agent]
        rows.append([agent, *cost, line.index_error, table.trials[agent], settings])
    return rows


def idle(table: ScoreTable, task: str) -> tuple[str, float]:
    """Return the policy that is best without learning, and its mean score."""
    scores = {name: float(table.scores(name, [task])[0].mean()) for name in IDLE}
    best = max(scores, key=lambda name: scores[name])
    return best, scores[best]


def answer(table: ScoreTable) -> str:
    """Return who learns more than nothing, in two sentences."""
    tasks = table.ranked
    if not tasks:
        return "No task leaves room between Whittle and the best policy that learns nothing."
    agents = table.agents(tasks)
    failures = {agent: table.failed(agent, tasks) for agent in agents}
    safe = [agent for agent in agents if failures[agent] == 0]
    often = [agent for agent in agents if failures[agent] >= 0.5]
    return (
        f"With {table.budget:,} source steps on each of {len(tasks)} tasks, "
        f"{_listed(safe) or 'no learning agent'} {'are' if len(safe) > 1 else 'is'} clearly above "
        "the best policy that learns nothing in every run"
        + (
            f"; {_listed(often)} {'are' if len(often) > 1 else 'is'} not in half of their runs or "
            "more"
            if often
            else ""
        )
        + "."
    )


def above_bound(table: ScoreTable) -> list[tuple[float, str, str]]:
    """Return (mean fraction of the bound, agent, task) where this mean over runs exceeds 1, largest
    first."""
    fractions = [
        (float(np.mean([run.fraction for run in runs])), agent, task)
        for agent, by_task in table.runs.items()
        for task, runs in by_task.items()
    ]
    return sorted((row for row in fractions if row[0] > 1), reverse=True)


HOW = (
    "Score: 0 is the random policy, 1 Whittle, which knows all parameters. IQM: interquartile "
    "mean over the runs of all tasks, which have equal weight. Failed runs: those that are not "
    "clearly above the best policy that learns nothing (random, fixed, oldest-first or myopic) on "
    "the same arrivals. "
    "Tasks above: those where the mean over runs is, by the paired 95 % interval. Worst tenth: "
    "mean of the worst tenth of the runs. Area: under the learning curve."
)


def summary(tables: dict[int, ScoreTable], source: str) -> str:
    """Return the scoreboards of all budgets in Markdown, and the source."""
    parts = []
    for budget, table in sorted(tables.items()):
        lines = [list(AGGREGATES), ["---", "---", *["---:"] * (len(AGGREGATES) - 2)]]
        lines += [[str(cell) for cell in row] for row in aggregates(table, table.ranked)]
        parts.append(f"**{budget:,} source steps**{_without_room(table)}.\n\n{markdown(lines)}")
    return "\n".join([*parts, f"{HOW}\n\n{source}\n"])


def _without_room(table: ScoreTable) -> str:
    """Return how many tasks rank the agents, and by name those that do not."""
    listing = [
        f"{group.partition(',')[0]}: {'; '.join(map(short_of, excluded))}"
        for group, members in groups(table)
        if (excluded := [task for task in members if task not in table.ranked])
    ]
    count = f"{len(table.ranked)} of {len(table.tasks)} tasks"
    return f", {count}" + f"; the others leave no room ({'; '.join(listing)})" * bool(listing)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def share(x: float) -> str:
    """Return a share in whole per cent, but never 0 % of what happened.

    >>> share(0.0), share(0.002), share(0.25)
    ('0 %', '0.2 %', '25 %')
    """
    if np.isnan(x):
        return "n/a"
    return f"{100 * x:.1f} %" if 0 < x < 0.01 else f"{100 * x:.0f} %"
