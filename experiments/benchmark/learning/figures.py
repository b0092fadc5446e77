"""Figures of the learning agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agents.evaluation import aggregate
from agents.evaluation.aggregate import interquartile_mean
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core import plots
from experiments.benchmark.learning.leaderboard import short_of
from experiments.benchmark.learning.scores import Table

_LEVELS = np.linspace(0.5, 1.05, 221)
_STYLES = ("-", "--", ":", "-.")
_MARKS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999)  # ticks of the score axis


def _style(table: Table, agent: str) -> dict[str, Any]:
    """Return colour and line style, the same for an agent in all figures."""
    i = list(table.runs).index(agent)
    return {
        "color": plots.PALETTE[i % len(plots.PALETTE)],
        "ls": _STYLES[i // len(plots.PALETTE) % len(_STYLES)],
    }


def profiles(table: Table, tasks: Sequence[str]) -> Any:
    """Return the performance profiles of the agents trained on all of the tasks."""
    figure, axes = plots.new(width=8, height=4)
    for agent in _full(table, tasks):
        above = aggregate.profile(table.scores(agent, tasks), _LEVELS)
        axes.plot(_LEVELS, above, label=agent, **_style(table, agent))
    axes.axvline(1, color="#888", lw=1)
    axes.set(xlabel="score τ", ylabel="fraction of runs with score above τ", ylim=(-0.02, 1.02))
    _legend(axes)
    return figure


def curves(table: Table, tasks: Sequence[str]) -> Any:
    """Return, for each task, the score against source steps and against seconds, on a scale of
    −ln(1 − score); scores above 0.999 are clipped."""
    figure, axes = plots.new(len(tasks), 2, width=11, height=3.2, squeeze=False, sharey=True)
    for row, task in zip(axes, tasks, strict=True):
        for agent in table.among([task]):
            points = np.array([run.curve for run in table.runs[agent][task] if run.curve])
            if not points.size:
                continue
            score = points[..., 3]
            middle = interquartile_mean(score.T)
            low, high = np.percentile(score, [25, 75], axis=0)
            for axis, column in zip(row, (1, 2), strict=True):
                x = np.maximum(np.median(points[..., column], axis=0), 1e-3)
                style = _style(table, agent)
                axis.plot(x, _spread(middle), label=agent, lw=1.4, **style)
                axis.fill_between(
                    x, _spread(low), _spread(high), color=style["color"], alpha=0.1, lw=0
                )
        for axis, label in zip(row, ("source steps", "core-seconds"), strict=True):
            axis.set(xscale="log", xlabel=label, ylim=(-0.1, _spread(0.9995)))
            axis.set_yticks(_spread(_MARKS), [f"{mark:g}" for mark in _MARKS])
        row[0].set(ylabel="score", title=short_of(task))
        _legend(row[1])
    return figure


def _spread(score: ArrayLike) -> FloatArray:
    """Return −ln(1 − score), which resolves scores close to 1."""
    return -np.log(1 - np.clip(score, -0.1, 0.999))


def improvements(table: Table, tasks: Sequence[str]) -> Any:
    """Return the probabilities that a run of the row's agent scores above one of the column's."""
    agents = _full(table, tasks)
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
        colour = "w" if dark else "#222"
        axes.text(j, i, f"{chance[i, j]:.2f}", ha="center", va="center", size=8, color=colour)
    axes.set_xticks(range(len(agents)), agents, rotation=40, ha="right")
    axes.set_yticks(range(len(agents)), agents)
    axes.grid(visible=False)
    return figure


def _full(table: Table, tasks: Sequence[str]) -> list[str]:
    """Return the agents trained on all of the tasks, best first."""
    return [name for name in table.among(tasks) if set(tasks) <= set(table.runs[name])]


def _legend(axes: Any) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
