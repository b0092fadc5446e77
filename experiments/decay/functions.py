"""The decay functions that are tried, and the exponentials that would be fitted to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from crawl_env import Sources
from crawl_env.content.utility import DECAYS, Decay
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.fit.decay import exponential_rate

Named = tuple[str, tuple[float, ...]]  # a name in `DECAYS` and its parameters; JSON

EXPONENTIAL: Named = ("exponential", ())
STRETCHED: tuple[Named, ...] = tuple(("stretched", (beta,)) for beta in (0.8, 0.6, 0.5, 0.4))
LOMAX: tuple[Named, ...] = tuple(("lomax", (k,)) for k in (8.0, 4.0, 3.0, 2.0, 1.5))
FUNCTIONS = (EXPONENTIAL, *STRETCHED, *LOMAX)

# The exponential is fitted over this many mean lives, which is about 24 hours on the recorded front
# page, and at as many ages as in `ephemeral-crawl fit`.
WINDOW, _AGES = 5.0, 49
_SYMBOL = {"stretched": "β", "lomax": "k"}


def decay_function(named: Named) -> Decay:
    """Return the decay function of a name and its parameters."""
    return DECAYS[named[0]](*named[1])


def label(named: Named) -> str:
    """Return the name of a decay function with its parameter.

    >>> label(("lomax", (1.5,)))
    'Lomax, k = 1.5'
    """
    name, parameters = named
    if not parameters:
        return name
    shown = "Lomax" if name == "lomax" else name
    return f"{shown}, {_SYMBOL[name]} = {parameters[0]:g}"


def fitted_rate(decay: Decay, window: float = WINDOW) -> float:
    """Return the rate of the exponential nearest to a survival function by least squares over a
    window of z, as `ephemeral-crawl fit` finds it from many items; 1 is the rate with the right
    mean life."""
    z = np.linspace(0.0, window, _AGES)
    return float(exponential_rate(z, decay.survival(z)))


def fitted(sources: Sources, decay: Decay) -> Sources:
    """Return the fleet with fitted decay rates; arrival rates and utilities are right."""
    rate = sources.decay_rate * fitted_rate(decay)
    return Sources(**{**sources.__getstate__(), "decay_rate": rate})


def describe(report: Report) -> None:
    report.heading("The decay functions")
    report.paragraph(
        "All decay functions have the same mean life 1/μ, so that the mean content of a source "
        "that is never crawled, u* = Λξ̄/μ, is the same under each; they differ in how fast "
        "interest decays early and late. Fitted rate: the rate of the exponential nearest to the "
        f"decay function over {WINDOW:g} mean lives (least squares, as `ephemeral-crawl fit`), in "
        "units of μ. It follows the fast decay at the beginning and misses the slow decay later: "
        "with a fitted rate of r·μ, u* is underestimated by the factor r."
    )
    rows = []
    for named in FUNCTIONS:
        decay = decay_function(named)
        rows.append(
            [
                label(named),
                f"{_half_life(decay):.2f}",
                *(f"{1 - float(decay.integrated_survival(z)):.1%}" for z in (1.0, 3.0, 10.0, 30.0)),
                f"{fitted_rate(decay):.2f}",
            ]
        )
    later = [f"utility left after {z} mean lives" for z in (1, 3, 10, 30)]
    columns = ["decay function", "half-life", *later, "fitted rate / μ"]
    report.table("The decay functions; mean life = 1", columns, rows)
    report.figure(
        _curves(),
        "Fraction of an item's utility that is left, by age; the area under each curve is 1.",
    )


def _half_life(decay: Decay) -> float:
    z = np.linspace(0.0, 1.0, 10_001)
    return float(np.interp(0.5, decay.survival(z)[::-1], z[::-1]))


def _curves() -> Any:
    figure, axes = plots.new(1, 2, width=11, height=3.8, sharey=True)
    z: FloatArray = np.linspace(0.0, 8.0, 400)
    for axis, family in zip(axes, (STRETCHED, LOMAX), strict=True):
        axis.plot(z, decay_function(EXPONENTIAL).survival(z), color=plots.INK, label="exponential")
        for i, named in enumerate(family):
            axis.plot(
                z, decay_function(named).survival(z), color=plots.PALETTE[i], label=label(named)
            )
        axis.set(yscale="log", ylim=(1e-3, 1), xlabel="age in mean lives")
        axis.legend()
    axes[0].set_ylabel("fraction left")
    return figure
