"""Pictures of a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments import plots
from experiments.tune.search import Trial
from experiments.tune.spaces import Choice, Range, Space

_COLUMNS = 4
_TRIAL, _DEFAULT, _BEST = plots.PALETTE[6], plots.PALETTE[4], plots.PALETTE[0]


def history(trials: Sequence[Trial], default: Trial, best: Trial) -> Any:
    """Return the values of the trials in turn, and the best so far."""
    figure, axes = plots.new(width=8, height=3.2)
    numbers = [trial.number for trial in trials]
    values = [trial.outcome.value for trial in trials]
    axes.plot(numbers, np.maximum.accumulate(values), color="#888", lw=1, label="best so far")
    axes.scatter(numbers, values, color=_TRIAL, s=22, zorder=2)
    _marked(axes, default.number, default, "defaults", _DEFAULT)
    _marked(axes, best.number, best, "best", _BEST)
    axes.set(xlabel="trial", ylabel="value (IQM of scores)", ylim=_limits(values))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def slices(trials: Sequence[Trial], space: Space, default: Trial, best: Trial) -> Any:
    """Return the values of all trials against each setting by itself."""
    rows = -(-len(space) // _COLUMNS)
    figure, grid = plots.new(rows, _COLUMNS, width=11, height=2.6, squeeze=False, sharey=True)
    values = [trial.outcome.value for trial in trials]
    for axes, (name, within) in zip(grid.flat, space.items(), strict=False):

        def place(trial: Trial, name: str = name, within: Any = within) -> float:
            value = trial.settings[name]
            return float(value if isinstance(within, Range) else within.values.index(value))

        axes.scatter([place(trial) for trial in trials], values, color=_TRIAL, s=18)
        _marked(axes, place(default), default, "defaults", _DEFAULT)
        _marked(axes, place(best), best, "best", _BEST)
        axes.set(xlabel=name, ylim=_limits(values))
        if isinstance(within, Choice):
            labels, unit = _labels(within)
            axes.set_xticks(range(len(labels)), labels)
            axes.set(xlim=(-0.5, len(labels) - 0.5), xlabel=f"{name}{unit}")
        elif within.log:
            axes.set_xscale("log")
            ticks = np.geomspace(within.low, within.high, 3)
            axes.set_xticks(ticks, [f"{float(f'{tick:.2g}'):g}" for tick in ticks])
            axes.set_xticks([], minor=True)
    for axes in grid.flat[len(space) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("value")
    grid.flat[0].legend(fontsize=8, loc="lower left")
    return figure


def _marked(axes: Any, x: float, trial: Trial, label: str, colour: str) -> None:
    axes.scatter([x], [trial.outcome.value], color=colour, s=60, marker="D", label=label, zorder=3)


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """Return limits that show the better three quarters of the trials, and not the failures."""
    low, high = float(np.percentile(values, 25)), max(values)
    room = max(high - low, 1e-3)
    return max(min(values), low - room) - 0.1 * room, high + 0.15 * room


def _labels(within: Choice) -> tuple[list[str], str]:
    """Return labels for the values, and what they say: of tuples, how long they are."""
    if all(isinstance(value, tuple) for value in within.values):
        return [str(len(value)) for value in within.values], ", how many"
    return [str(value) for value in within.values], ""
