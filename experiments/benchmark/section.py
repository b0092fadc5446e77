"""The section of the report on learning agents; its figures can be read on a page of 400 pixels."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import Any

import numpy as np

from agents.evaluation import aggregate
from agents.evaluation.aggregate import interquartile_mean
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from experiments.benchmark import scoreboard
from experiments.benchmark.entrants import Suite
from experiments.benchmark.scoreboard import (
    group_of,
    idle,
    information_sets,
    short_of,
)
from experiments.benchmark.scores import Row, ScoreTable

_COLUMNS = 9  # of a heat map
_HOW = (
    "Every learner is trained on every task that it can play, for the same number of source steps "
    "(an environment step consists of N), which it never exceeds: an update that would is not "
    "made. (NeurWIN trains in a simulator of single sources; its steps are those of the "
    "simulator.) Its settings are those of the best of so many trials of tuning on fleets that "
    "occur nowhere else; trial 0 has the defaults, and the rule by which the others differ is the "
    "same for all (`Entrant.trial`). Each run is a training with its own seed. At intermediate "
    "points and at the end, the frozen policy is evaluated without exploration, after a warm-up, "
    "on the same arrivals for all agents. A run fails if it is not clearly above the best policy "
    "that learns nothing: random, fixed, oldest-first or myopic, whichever is best on this task "
    "and fleet; clearly means by the paired 95 % interval over the arrivals of the evaluation. "
    "(myopic knows the parameters, which some of the learners do not.) Nobody is ranked by tasks "
    "on which Whittle itself is not clearly above that policy. Intervals of the IQM: 95 %, "
    "stratified bootstrap, from 5 runs on. Area: mean score while the budget is spent, with equal "
    "weight for equal factors, from 2 % of the budget. Index error: Σ|learnt − true|/Σ true over "
    "the sources and steps of a rollout, for agents that learn Whittle indices."
)


def write(report: Report, tables: dict[int, ScoreTable], suite: Suite) -> None:
    """Add headings, tables and figures of all learners."""
    report.heading("Learning agents")
    with report.details("How learners are trained and compared, and what counts as failed"):
        report.paragraph(_HOW)
    most = max(tables, key=lambda budget: (tables[budget].number, budget))
    for budget, table in sorted(tables.items(), reverse=True):
        _budget(report, table, beside=budget == most)
    report.heading("Agents above their bound")
    report.paragraph(_bounds(tables))
    report.heading("What is left to run")
    report.paragraph(_left(tables, suite))


def _budget(report: Report, table: ScoreTable, beside: bool) -> None:
    report.heading(f"Learning with {table.budget:,} source steps")
    report.paragraph(scoreboard.answer(table))
    in_groups = [task for _, tasks in scoreboard.groups(table) for task in tasks]
    for i, some in enumerate(batched(in_groups, _COLUMNS)):
        report.figure(
            heat_map(table, some),
            f"{_where(some)}. Scores (IQM over runs). Blue: part of the way from the best policy "
            "that learns nothing (first row) to Whittle; red: below it; no colour: the task leaves "
            "no room. Lines divide what agents know.",
            name=f"scores-{table.budget}-{i + 1}" if beside else None,
        )
    tasks = table.ranked
    report.table(
        f"All agents on the {len(tasks)} tasks that leave room for learning, by what they know",
        scoreboard.AGGREGATES,
        scoreboard.aggregates(table, tasks),
    )
    with report.details("Learning curves"):
        report.figure(
            curves(table, tasks),
            "Score while learning, each agent over the others: IQM and interquartile range over "
            "the runs of all its tasks.",
        )
    with report.details("Performance profiles, and who is better than whom"):
        report.figure(
            profiles(table, tasks),
            "Fraction of the runs above each score, each agent over the others. Further to the "
            "right is better.",
        )
        for information, agents in scoreboard.information_sets(table, tasks):
            if len(agents) > 1 and (same := table.full(agents, tasks)):
                report.figure(
                    improvements(table, agents, same),
                    f"{information}: probability that a run of the row's agent scores higher than "
                    f"one of the column's, mean over {len(same)} tasks.",
                )
    with report.details("Samples, time and settings"):
        report.table(
            "Medians over runs, and the settings",
            scoreboard.COSTS,
            scoreboard.costs(table),
        )


def _where(tasks: Sequence[str]) -> str:
    """Return the groups of some tasks."""
    return "; ".join(dict.fromkeys(scoreboard.group_of(task) for task in tasks))


def source(rows: Sequence[Row]) -> str:
    """Return the provenance of the Markdown table in one line."""
    runs = sum(row["protocol"] == "" for row in rows)
    trials = sum(row["protocol"] == "tuning" for row in rows)
    dates, machines = (sorted({row[name] for row in rows}) for name in ("date", "machine"))
    return (
        f"{runs:,} results, after {trials:,} trials of tuning, "
        f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}, {' and '.join(machines)}. All are "
        "in `runs.csv.gz`, with the command and the commit of each."
    )


def batched(tasks: Sequence[str], most: int) -> Iterator[Sequence[str]]:
    """Yield the tasks in parts of at most so many.

    >>> list(batched(["a", "b", "c"], 2))
    [['a', 'b'], ['c']]
    """
    for start in range(0, len(tasks), most):
        yield tasks[start : start + most]


def _left(tables: dict[int, ScoreTable], suite: Suite) -> str:
    tests = sum(len(training.tests) for training in suite.trainings)
    parts = []
    for budget in sorted({*suite.budgets, *tables}):
        runs = tables[budget].runs if budget in tables else {}
        fewest = min((len(some) for tasks in runs.values() for some in tasks.values()), default=0)
        parts.append(
            f"{len(runs)} learners with {budget:,} source steps (at least {fewest} of {suite.runs} "
            "runs of each task)"
        )
    return (
        f"The suite has {tests} tasks. Recorded are {', '.join(parts)}. The same command without "
        "options runs what is missing."
    )


def _bounds(tables: dict[int, ScoreTable]) -> str:
    excesses = sorted(x for table in tables.values() for x in scoreboard.above_bound(table))[::-1]
    if not excesses:
        return "None: no agent's mean over its runs exceeds the bound for its observations."
    fraction, agent, task = excesses[0]
    return (
        f"The bound holds for the long-run expected reward; a measured mean may exceed it by "
        f"chance or because of content at the start. {len(excesses)} means over runs do so, by at "
        f"most {fraction - 1:.3%} ({agent}, {task})."
    )


_WIDTH = 4.4  # inches
_ACROSS = 3  # panels side by side
_LEAST = -0.2  # scores below are drawn there
_DARKEST = 0.1  # of score below the best policy that learns nothing, where Whittle is less above it


def heat_map(table: ScoreTable, tasks: Sequence[str]) -> Any:
    """Return the interquartile means of the scores of all agents on some tasks, by information set.

    The colour is what was learnt: the part of the way from the best policy that learns nothing to
    Whittle, blue; red is as far below that policy, and no less than a tenth of score at its
    darkest. Tasks without room have no colour.
    """
    sets = information_sets(table, tasks)
    names = ["best idle policy", *(agent for _, agents in sets for agent in agents)]
    score, colour = np.full((2, len(names), len(tasks)), np.nan)
    for j, task in enumerate(tasks):
        _, least = idle(table, task)
        score[0, j], colour[0, j] = least, 0.0
        for i, agent in enumerate(names[1:], 1):
            if task in table.runs[agent]:
                score[i, j] = table.interquartile_mean(agent, [task])
                above = score[i, j] - least
                learnt = above / max(1 - least, 1e-6 if above > 0 else _DARKEST)
                colour[i, j] = learnt if task in table.ranked else 0.0
    figure, axes = plots.new(width=_WIDTH, height=1.9 + 0.21 * len(names))
    plots.cells(axes, colour, score, (-1, 1))
    several = len({group_of(task) for task in tasks}) > 1
    groups = [re.split("[,:;]", group_of(task))[0] if several else "" for task in tasks]
    labels = [
        textwrap.fill(f"{group}: {short_of(task)}" if group else short_of(task), 24)
        for group, task in zip(groups, tasks, strict=True)
    ]
    axes.set_xticks(range(len(tasks)), labels, rotation=90, size=7)
    axes.set_yticks(range(len(names)), names, size=8)
    place = 0.5
    for _, agents in [("", []), *sets]:
        axes.axhline(place + len(agents), color=plots.INK, lw=1)
        place += len(agents)
    return figure


def curves(table: ScoreTable, tasks: Sequence[str]) -> Any:
    """Return the learning curve of every agent in a panel of its own, over those of the others:
    the interquartile mean and range of the scores of all runs on some tasks."""
    grid = np.geomspace(0.02, 1, 60) * table.budget
    scores = {}
    for agent in table.agents(tasks):
        runs = [run.curve for of_task in table.of(agent, tasks) for run in of_task if run.curve]
        if runs:
            scores[agent] = np.array([_held(run, grid) for run in runs])

    def draw(axis: Any, agent: str, style: dict[str, Any], main: bool) -> None:
        axis.plot(grid, interquartile_mean(scores[agent].T), **style)
        if main:
            low, high = np.percentile(scores[agent], [25, 75], axis=0)
            axis.fill_between(grid, low, high, color=style["color"], alpha=0.2, lw=0)

    figure = _panels(list(scores), draw, f"share of {table.budget:,} source steps", "score")
    for axis in figure.axes:
        axis.set_xscale("log")
        axis.set_xticks([table.budget / 10, table.budget], ["1/10", "1"])
        axis.minorticks_off()
        axis.set_ylim(_LEAST, 1.1)
    return figure


def profiles(table: ScoreTable, tasks: Sequence[str]) -> Any:
    """Return the performance profile of every agent in a panel of its own, over the others'."""
    levels = np.linspace(_LEAST, 1.1, 131)

    def draw(axis: Any, agent: str, style: dict[str, Any], main: bool) -> None:
        axis.plot(levels, aggregate.profile(table.scores(agent, tasks), levels), **style)

    return _panels(table.agents(tasks), draw, "score τ", "runs above τ")


def improvements(table: ScoreTable, agents: Sequence[str], tasks: Sequence[str]) -> Any:
    """Return the probabilities that a run of the row's agent scores above one of the column's."""
    chance = np.full((len(agents), len(agents)), np.nan)
    for i, one in enumerate(agents):
        for j, other in enumerate(agents):
            if i != j:
                both = table.scores(one, tasks), table.scores(other, tasks)
                chance[i, j] = aggregate.improvement(*both)
    figure, axes = plots.new(width=_WIDTH, height=1.3 + 0.24 * len(agents))
    plots.cells(axes, chance, chance, (0, 1))
    axes.set_xticks(range(len(agents)), agents, rotation=90, size=8)
    axes.set_yticks(range(len(agents)), agents, size=8)
    return figure


def _panels(
    agents: Sequence[str],
    draw: Callable[[Any, str, dict[str, Any], bool], None],
    across: str,
    up: str,
) -> Any:
    """Return small figures side by side: each agent in colour over all others in grey."""
    rows = ceil(len(agents) / _ACROSS)
    axes: Any
    figure, axes = plots.new(
        rows, _ACROSS, width=_WIDTH, height=1.15, squeeze=False, sharex=True, sharey=True
    )
    for axis, agent in zip(axes.flat, agents, strict=False):
        for other in agents:
            draw(axis, other, {"color": plots.FAINT, "lw": 0.5, "alpha": 0.5}, False)
        draw(axis, agent, {"color": plots.BLUE, "lw": 1.8}, True)
        axis.set_title(agent, size=8, pad=2)
        axis.tick_params(labelsize=7)
    for axis in axes.flat[len(agents) :]:
        axis.set_axis_off()
    figure.supxlabel(across, size=8)
    figure.supylabel(up, size=8)
    return figure


def _held(curve: Sequence[Any], grid: FloatArray) -> FloatArray:
    """Return the score of the last evaluation at each number of source steps."""
    steps = np.array([point.source_steps for point in curve])
    scores = np.array([point.score for point in curve])
    return np.asarray(scores[np.maximum(np.searchsorted(steps, grid, side="right") - 1, 0)])
