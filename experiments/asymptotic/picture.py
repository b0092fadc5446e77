"""The gaps against the number of copies, on logarithmic axes, with their signs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from crawl_env.numerics import FloatArray
from ephemeral_crawl.core import plots
from experiments.asymptotic.rate import NOTHING

_STYLES = {
    "whittle, equal ages": (plots.BLUE, ":"),
    "whittle, budget on average": (plots.GREEN, "-"),
    "whittle, Poisson, not observed": (plots.GREY, "--"),
}


def curves(found: Mapping[str, Mapping[str, Mapping[int, FloatArray]]]) -> object:
    """Draw one panel per fleet: filled where the gap is positive, hollow where it is negative."""
    figure, axes = plots.new(2, 3, width=13, height=4, sharex=True, sharey=True)
    for axis, (fleet, lines) in zip(axes.flat, found.items(), strict=False):
        for label, gaps in lines.items():
            k = np.array(list(gaps))
            mean = np.array([gap.mean() for gap in gaps.values()])
            size = np.maximum(np.abs(mean), NOTHING)
            colour, dashes = _STYLES.get(label, (plots.colour(label), "-"))
            axis.plot(k, size, dashes, color=colour, lw=1.2, label=label)
            above = mean > NOTHING
            axis.plot(k[above], size[above], "o", color=colour, ms=4, label=f"_{label}")
            axis.plot(k[~above], size[~above], "o", mfc="w", color=colour, ms=5, label=f"_{label}")
        axis.set(xscale="log", yscale="log", title=fleet, ylim=(0.4 * NOTHING, 0.6))
    for axis in axes[:, 0]:
        axis.set_ylabel("|gap|, fraction of the bound")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    last = axes.flat[-1]
    last.axis("off")
    last.legend(handles, labels, loc="upper left")
    last.text(
        0.02, 0.12, f"filled: below the bound\nhollow: on it (drawn at {NOTHING:g}) or above",
        transform=last.transAxes,
    )  # fmt: skip
    for axis in (*axes[1, :2], axes[0, 2]):
        axis.set_xlabel("k, copies of fleet and budget")
        axis.tick_params(labelbottom=True)
    return figure
