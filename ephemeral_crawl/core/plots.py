"""The style of all figures."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

# The palette of Okabe and Ito, which colour-blind readers can distinguish.
COLOURS = {
    "whittle": "#0072B2",
    "whittle-exact": "#56B4E9",
    "myopic": "#E69F00",
    "oldest-first": "#009E73",
    "random": "#999999",
    "fixed": "#D55E00",
    "lagrangian": "#56B4E9",
    "static": "#CC79A7",
    "nutch": "#8C6D31",
    "miniflux": "#C7B42C",
    "adaptive-certainty": "#7B5EA7",
    "adaptive-optimism": "#B79AD6",
    "adaptive-thompson": "#4B2E83",
    "adaptive-self-tuning": "#D4BFEA",
    "bound": "#000000",
}
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#999999")

plt.rcParams.update(
    {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "font.size": 10,
        "axes.titlesize": 11,
        "legend.frameon": False,
        "figure.constrained_layout.use": True,
    }
)


def colour(agent: str, i: int = 0) -> str:
    return COLOURS.get(agent, PALETTE[i % len(PALETTE)])


def new(rows: int = 1, columns: int = 1, width: float = 8.0, height: float = 3.2, **k: Any) -> Any:
    """Return a figure and its axes."""
    return plt.subplots(rows, columns, figsize=(width, height * rows), **k)
