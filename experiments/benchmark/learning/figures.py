"""Figures of the learning agents."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agents.evaluation import aggregate
from agents.evaluation.aggregate import interquartile_mean
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core import plots
from experiments.benchmark.learning.leaderboard import short_of
from experiments.benchmark.learning.scores import FAILED, Table

_LEVELS = np.linspace(0.5, 1.05, 221)
_MARKS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999)  # ticks of the score axis
_LEAST = -0.2  # scores below are drawn there
_ACROSS = 3  # panels side by side


def runs(table: Table, tasks: Sequence[str]) -> Any:
    """Return the score of every run, by agent, with the IQM and the limit below which a run has
    failed."""
    agents = table.among(tasks)
    figure, axes = plots.new(width=9, height=0.7 + 0.24 * len(agents))
    chance = np.random.default_rng(0)
    for i, agent in enumerate(agents):
        scores = np.concatenate(table.scores(agent, tasks))
        place = i + chance.uniform(-0.28, 0.28, scores.size)
        colour = plots.colour(agent)
        inside = scores >= _LEAST
        axes.plot(scores[inside], place[inside], ".", ms=4, alpha=0.5, color=colour)
        axes.plot(0 * scores[~inside] + _LEAST, place[~inside], "<", ms=4, color=colour)
        iqm = table.iqm(agent, tasks).mean
        axes.plot([iqm, iqm], [i - 0.42, i + 0.42], color=plots.INK, lw=2)
    axes.axvline(FAILED, color=plots.RED, lw=1, ls="--")
    axes.axvline(1, color=plots.FAINT, lw=1)
    axes.set_yticks(range(len(agents)), agents)
    axes.set(xlabel="score: 0 random, 1 Whittle", xlim=(_LEAST - 0.03, 1.08))
    axes.set_ylim(len(agents) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    return figure


def profiles(table: Table, tasks: Sequence[str]) -> Any:
    """Return the performance profiles of the agents trained on all of the tasks."""
    figure, axes = plots.new(width=8, height=4)
    for agent in full(table, tasks):
        above = aggregate.profile(table.scores(agent, tasks), _LEVELS)
        axes.plot(_LEVELS, above, label=agent, markevery=20, ms=4, **plots.style(agent))
    axes.axvline(1, color=plots.FAINT, lw=1)
    axes.set(xlabel="score τ", ylabel="fraction of runs with score above τ", ylim=(-0.02, 1.02))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return figure


STEPS, SECONDS = 1, 2  # columns of the evaluations during a training


def curves(table: Table, tasks: Sequence[str], over: int) -> Any:
    """Return the score of each task against source steps or seconds, on a scale of
    −ln(1 − score); scores above 0.999 are clipped.

    Arguments:
        tasks: those that were evaluated during a training; see `evaluated`.
    """
    across = min(_ACROSS, len(tasks))
    down = ceil(len(tasks) / across)
    figure, axes = plots.new(
        down, across, width=4 * across + 3, height=3, squeeze=False, sharey=True
    )
    shown = {}
    for axis, task in zip(axes.flat, tasks, strict=False):
        for agent in table.among([task]):
            points = np.array([run.curve for run in table.runs[agent][task] if run.curve])
            if not points.size:
                continue
            score = points[..., 3]
            middle = interquartile_mean(score.T)
            low, high = np.percentile(score, [25, 75], axis=0)
            x = np.maximum(np.median(points[..., over], axis=0), 1e-3)
            style = plots.style(agent)
            (line,) = axis.plot(x, _spread(middle), label=agent, lw=1.3, ms=3.5, **style)
            axis.fill_between(
                x,
                _spread(low),
                _spread(high),
                color=style["color"],
                alpha=0.1,
                lw=0,
                label=f"_{agent}",
            )
            shown[agent] = line
        axis.set(xscale="log", ylim=(-0.1, _spread(0.9995)))
        axis.set_title(short_of(task), size=9)
        axis.set_yticks(_spread(_MARKS), [f"{mark:g}" for mark in _MARKS])
    for axis in axes.flat[len(tasks) :]:
        axis.set_axis_off()
    for axis in axes[:, 0]:
        axis.set_ylabel("score")
    for axis in axes.flat[max(0, len(tasks) - across) : len(tasks)]:
        axis.set_xlabel({STEPS: "source steps", SECONDS: "core-seconds"}[over])
    order = [agent for agent in table.among(tasks) if agent in shown]
    figure.legend([shown[agent] for agent in order], order, loc="outside right upper", fontsize=8)
    return figure


def evaluated(table: Table, tasks: Sequence[str]) -> list[str]:
    """Return the tasks that were evaluated during a training; the others have no curve."""
    return [
        task
        for task in tasks
        if any(run.curve for agent in table.among([task]) for run in table.runs[agent][task])
    ]


def compared(table: Table, tasks: Sequence[str]) -> list[str]:
    """Return those of the tasks on which several agents can be compared: the set on which the
    largest number of runs was made by agents trained on all of it; empty where no two agents were
    trained on the same tasks."""
    sets = [[task for task in tasks if task in table.runs[name]] for name in table.among(tasks)]
    several = [found for found in sets if len(full(table, found)) > 1]
    return max(several, key=lambda found: len(found) * len(full(table, found)), default=[])


def _spread(score: ArrayLike) -> FloatArray:
    """Return −ln(1 − score), which resolves scores close to 1."""
    return -np.log(1 - np.clip(score, -0.1, 0.999))


def improvements(table: Table, tasks: Sequence[str]) -> Any:
    """Return the probabilities that a run of the row's agent scores above one of the column's."""
    agents = full(table, tasks)
    chance = np.full((len(agents), len(agents)), np.nan)
    for i, one in enumerate(agents):
        for j, other in enumerate(agents):
            if i != j:
                both = table.scores(one, tasks), table.scores(other, tasks)
                chance[i, j] = aggregate.improvement(*both, resamples=1).mean
    figure, axes = plots.new(width=2.5 + 0.7 * len(agents), height=1.6 + 0.42 * len(agents))
    axes.imshow(chance, vmin=0, vmax=1, cmap="RdBu", aspect="auto")
    for i, j in zip(*np.nonzero(~np.isnan(chance)), strict=True):
        dark = abs(chance[i, j] - 0.5) > 0.35
        colour = plots.ON_DARK if dark else plots.ON_LIGHT
        axes.text(j, i, f"{chance[i, j]:.2f}", ha="center", va="center", size=8, color=colour)
    axes.set_xticks(range(len(agents)), agents, rotation=40, ha="right")
    axes.set_yticks(range(len(agents)), agents)
    axes.grid(visible=False)
    return figure


def full(table: Table, tasks: Sequence[str]) -> list[str]:
    """Return the agents trained on all of the tasks, best first."""
    return [name for name in table.among(tasks) if set(tasks) <= set(table.runs[name])]
