"""The error of Theorem 1 at a source that is observed under Poisson arrivals."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from agents import whittle_index
from agents.theory.observed import solve_arm
from crawl_env import Sources
from crawl_env.content.utility import Constant, Distribution, Exponential, Lognormal
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import Rows

UTILITIES: dict[str, Distribution] = {
    "constant ξ": Constant(),
    "exponential ξ": Exponential(),
    "lognormal ξ, σ = 1.2": Lognormal(1.2),
}
ITEMS = (0.01, 0.05, 0.2, 1.0, 5.0, 25.0, 100.0, 250.0, 1000.0, 5000.0)  # ΛT
DECAYS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # μT
SHOWN = 0.2  # the μT of the table and of the curves
# States are compared up to those that a source without crawls reaches in so many mean steps.
_REACHED = 1000.0


class Gap(NamedTuple):
    """The indices of one source in the states it reaches, in units of u*."""

    state: FloatArray
    closed: FloatArray
    exact: FloatArray

    @property
    def worst(self) -> int:
        return int(np.abs(self.closed - self.exact).argmax())

    @property
    def largest(self) -> float:
        """Closed form minus exact index where they differ most."""
        return float((self.closed - self.exact)[self.worst])

    @property
    def place(self) -> float:
        return float(self.state[self.worst])


def gap(items: float, decay: float, utility: Distribution) -> Gap:
    arm, source = solve_arm(items, decay, utility), Sources(items, 1.0, decay)
    reached = arm.steps <= _REACHED
    state, ceiling = arm.state[reached], source.ceiling[0]
    closed = whittle_index(state[:, None], source)[:, 0]
    return Gap(state / ceiling, closed / ceiling, arm.break_even[reached] / ceiling)


def measure() -> list[dict[str, Any]]:
    """Return the largest difference for each kind of source, and where it is."""
    return [
        {
            "utility": name,
            "items": items,
            "decay": decay,
            "difference": repr(one.largest),
            "at": repr(one.place),
        }
        for name, utility in UTILITIES.items()
        for items in ITEMS
        for decay in DECAYS
        for one in (gap(items, decay, utility),)
    ]


def write(report: Report, rows: Rows) -> None:
    """Add table and pictures of the differences."""
    found = {
        (row["utility"], float(row["items"]), float(row["decay"])): (
            float(row["difference"]),
            float(row["at"]),
        )
        for row in rows
    }
    report.heading("The error of Theorem 1")
    report.figure(_maps(found), "Largest difference between Theorem 1 and the exact index, / u*.")
    report.figure(
        _curves(),
        f"Index of a source with exponential ξ and μT = {SHOWN:g} against its uncollected utility; "
        "dashed: Theorem 1, the same for every ΛT.",
    )
    table = [
        [f"{i:g}", *("{:+.3f} at {:.3g}".format(*found[name, i, SHOWN]) for name in UTILITIES)]
        for i in ITEMS
    ]
    report.table(
        f"Largest difference / u*, at which x / u*; μT = {SHOWN:g}", ["ΛT", *UTILITIES], table
    )
    with report.details("How this is computed"):
        report.paragraph(
            "Under random arrivals the content of a source that is observed does not increase "
            "steadily between crawls. Its exact index solves V(x) + β = max(λC + E V(αx + U), "
            "x + E V(U)), here on a grid (error below .011 u*, below .003 u* from μT = .2 on). "
            "Differences are closed form minus exact index, in states that a source without "
            f"crawls reaches within {_REACHED:g} steps."
        )


def _maps(found: dict[tuple[str, float, float], tuple[float, float]]) -> object:
    figure, axes = plots.new(1, len(UTILITIES), width=12, height=4.2, sharey=True)
    for axis, name in zip(axes, UTILITIES, strict=True):
        table = np.array([[found[name, i, d][0] for d in DECAYS] for i in ITEMS])
        picture = axis.imshow(table, cmap="RdBu_r", vmin=-0.7, vmax=0.7, aspect="auto")
        for (row, column), value in np.ndenumerate(table):
            dark = plots.ON_DARK if abs(value) > 0.45 else plots.ON_LIGHT
            text = f"{value:+.2f}"
            axis.text(column, row, text, ha="center", va="center", size=7, color=dark)
        axis.set_xticks(range(len(DECAYS)), [f"{d:g}" for d in DECAYS])
        axis.set_yticks(range(len(ITEMS)), [f"{i:g}" for i in ITEMS])
        axis.set(title=name, xlabel="μT")
        axis.grid(visible=False)
    axes[0].set_ylabel("items per step, ΛT")
    figure.colorbar(picture, ax=axes, label="Theorem 1 − exact index, / u*", shrink=0.8)
    return figure


def _curves() -> object:
    figure, axis = plots.new(width=7, height=4)
    for i, items in enumerate((0.05, 1.0, 5.0, 25.0, 250.0)):
        one = gap(items, SHOWN, Exponential())
        shown = one.state <= 2
        axis.plot(
            one.state[shown], one.exact[shown], color=plots.PALETTE[i], label=f"ΛT = {items:g}"
        )
    x = np.linspace(0.0, 2.0, 400)
    source = Sources(SHOWN, 1.0, SHOWN)  # u* = 1
    axis.plot(
        x, whittle_index(x[:, None], source)[:, 0], "--", color=plots.INK, lw=1, label="Theorem 1"
    )
    axis.set(xlabel="x / u*", ylabel="index, C γ / u*")
    axis.legend()
    return figure
