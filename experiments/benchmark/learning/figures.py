"""Figures of the learning agents, which can be read on a page of 400 pixels."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

import numpy as np

from agents.evaluation import aggregate
from agents.evaluation.aggregate import interquartile_mean
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core import plots
from experiments.benchmark.learning.scoreboard import (
    group_of,
    idle,
    information_sets,
    short_of,
)
from experiments.benchmark.learning.scores import ScoreTable

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
    found = {}
    for agent in table.agents(tasks):
        runs = [run.curve for of_task in table.of(agent, tasks) for run in of_task if run.curve]
        if runs:
            found[agent] = np.array([_held(run, grid) for run in runs])

    def draw(axis: Any, agent: str, style: dict[str, Any], main: bool) -> None:
        axis.plot(grid, interquartile_mean(found[agent].T), **style)
        if main:
            low, high = np.percentile(found[agent], [25, 75], axis=0)
            axis.fill_between(grid, low, high, color=style["color"], alpha=0.2, lw=0)

    figure = _panels(list(found), draw, f"share of {table.budget:,} source steps", "score")
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
                chance[i, j] = aggregate.improvement(*both, resamples=1).mean
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
