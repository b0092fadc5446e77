"""The laws of decay that are tried, and the exponentials that would be fitted to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from crawl_env import Sources
from crawl_env.content.utility import DECAYS, Decay
from crawl_env.numerics import FloatArray
from experiments.core import plots
from experiments.core.report import Report
from experiments.fit.decay import exponential_rate

Named = tuple[str, tuple[float, ...]]  # a law of `DECAYS` and its parameter; JSON

EXPONENTIAL: Named = ("exponential", ())
STRETCHED: tuple[Named, ...] = tuple(("stretched", (beta,)) for beta in (0.8, 0.6, 0.5, 0.4))
LOMAX: tuple[Named, ...] = tuple(("lomax", (k,)) for k in (8.0, 4.0, 3.0, 2.0, 1.5))
LAWS = (EXPONENTIAL, *STRETCHED, *LOMAX)

# Mean lives over which the exponential is fitted: about what the 24 hours of `experiments fit` are
# on the recorded front page, and on as many ages.
WINDOW, _AGES = 5.0, 49
_SYMBOL = {"stretched": "β", "lomax": "k"}


def law(named: Named) -> Decay:
    return DECAYS[named[0]](*named[1])


def label(named: Named) -> str:
    """Return a law's name with its parameter.

    >>> label(("lomax", (1.5,)))
    'Lomax, k = 1.5'
    """
    name, parameters = named
    if not parameters:
        return name
    shown = "Lomax" if name == "lomax" else name
    return f"{shown}, {_SYMBOL[name]} = {parameters[0]:g}"


def fitted_rate(decay: Decay, window: float = WINDOW) -> float:
    """Return the rate of the exponential nearest to a law's share by least squares over a window
    of z, as `experiments fit` finds it from many items; 1 is the rate with the right mean life."""
    z = np.linspace(0.0, window, _AGES)
    return float(exponential_rate(z, decay.survival(z)))


def fitted(sources: Sources, decay: Decay) -> Sources:
    """Return the fleet as it is after fitting decay rates: arrivals and utilities are right."""
    rate = sources.decay_rate * fitted_rate(decay)
    return Sources(**{**sources.__getstate__(), "decay_rate": rate})


def describe(report: Report) -> None:
    report.heading("The laws of decay")
    report.paragraph(
        "All have the same mean life 1/μ, so that a source never crawled holds the same u* = Λξ̄/μ "
        "under each; what differs is how early and how late interest is spent. Fitted rate: of "
        f"the exponential nearest to the curve over {WINDOW:g} mean lives (least squares, as "
        "`experiments fit`), in units of μ. It follows the fast beginning, and misses what comes "
        "late: a fitted crawler thinks that u* is 1/rate of what it is."
    )
    rows = []
    for named in LAWS:
        decay = law(named)
        rows.append(
            [
                label(named),
                f"{_half_life(decay):.2f}",
                *(f"{1 - float(decay.integrated_survival(z)):.1%}" for z in (1.0, 3.0, 10.0, 30.0)),
                f"{fitted_rate(decay):.2f}",
            ]
        )
    later = [f"utility after {z} mean lives" for z in (1, 3, 10, 30)]
    report.table("The laws; mean life = 1", ["law", "half-life", *later, "fitted rate / μ"], rows)
    report.figure(_curves(), "Share of an item's utility that is left; all areas are 1.")


def _half_life(decay: Decay) -> float:
    z = np.linspace(0.0, 1.0, 10_001)
    return float(np.interp(0.5, decay.survival(z)[::-1], z[::-1]))


def _curves() -> Any:
    figure, axes = plots.new(1, 2, width=11, height=3.8, sharey=True)
    z: FloatArray = np.linspace(0.0, 8.0, 400)
    for axis, family in zip(axes, (STRETCHED, LOMAX), strict=True):
        axis.plot(z, law(EXPONENTIAL).survival(z), color="k", label="exponential")
        for i, named in enumerate(family):
            axis.plot(z, law(named).survival(z), color=plots.PALETTE[i], label=label(named))
        axis.set(yscale="log", ylim=(1e-3, 1), xlabel="age in mean lives")
        axis.legend()
    axes[0].set_ylabel("share left")
    return figure
