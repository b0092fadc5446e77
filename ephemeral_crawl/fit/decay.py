"""Decay rates from recorded curves: least squares, bootstrap errors, and other shapes of decay."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from tqdm import tqdm

from agents.inference.shrinkage import Estimates, shrunk
from crawl_env import ItemLog
from crawl_env.errors import check_choice
from crawl_env.log.clock import HOURS
from crawl_env.numerics import FloatArray
from ephemeral_crawl.live.arguments import seconds

WINDOW = 24.0  # hours: the ages to which decay is fitted by default
NEEDED = 10  # curves below which a source's own decay is not looked at
RESAMPLES = 500
_GRID = np.geomspace(1e-3, 1e3, 241)  # decay rate × window


class Decay(NamedTuple):
    """Decay of N sources and of the fleet, at G ages."""

    ages: FloatArray  # (G,) time
    curves: FloatArray  # (N, G) remaining fraction of utility; 0 where there are no curves
    counts: NDArray[np.intp]  # (N,) items with a curve
    rate: Estimates  # μ, 1 / time
    misfit: FloatArray  # (N,) root mean square distance of the curve from its exponential
    p: FloatArray  # (N,) chance of such a misfit if the decay is exponential; NaN if not tested
    fleet: FloatArray  # (G,) the curve of all items
    fleet_rate: float  # 1 / time
    fleet_error: float
    shapes: dict[str, tuple[FloatArray, float]]  # other shapes: fitted curve (G,), rms
    stretch: tuple[float, float]  # β of exp(−(μ·age)^β) with its standard error; 1 is exponential


def declared(curves: Path | None, half_life: str, unit: str) -> float | None:
    """Return the decay rate of all sources that options declare, 1 / unit of time; None if it is
    to be fitted to curves.

    Arguments:
        half_life: time in which the utility of an item halves, such as "3h"; "" with curves.

    Raises:
        ValueError: not exactly one of both is given, or the half-life or the unit is invalid.

    >>> declared(None, "3h", "day")
    5.545177444479562
    """
    if (curves is None) == (half_life == ""):
        raise ValueError(
            f"{'neither' if curves is None else 'both'} of --half-life and --curves given; give "
            "either the half-life of all items, such as 3h, or a table of their recorded decay"
        )
    if curves is not None:
        return None
    hours = seconds("--half-life", half_life, 1.0) / 3600.0
    return math.log(2.0) * HOURS[check_choice("unit", unit, HOURS)] / hours


def measure(log: ItemLog, window: float = 0.0, seed: int = 0) -> Decay:
    """Fit μ to the utility-weighted remaining fraction of every source, and of the fleet.

    Errors, and the test of the exponential, are from a bootstrap over items, stratified by source.
    A source's rate is drawn towards the fleet's on a logarithmic scale; one with fewer than
    `NEEDED` curves has the fleet's.

    Raises:
        ValueError: no item with utility has a curve.
    """
    assert log.curves is not None
    rng = np.random.default_rng(seed)
    ages = np.linspace(0.0, window or WINDOW / HOURS[log.unit], 49)
    recorded = log.curves.recorded & (log.utility > 0)
    if not recorded.any():
        raise ValueError("no item with utility has a curve; give --half-life instead of --curves")
    n = len(log.names)
    curves, misfit = np.zeros((n, ages.size)), np.zeros(n)
    own_rate, error, p = np.ones(n), np.full(n, np.inf), np.full(n, np.nan)
    counts = np.bincount(log.source[recorded], minlength=n)
    whole, weight = np.zeros((RESAMPLES + 1, ages.size)), np.zeros((RESAMPLES + 1, 1))
    # Shown on a terminal alone.
    bar = tqdm(log.by_source(), "decay", unit="source", leave=False, disable=None)
    for i, items in enumerate(bar):
        rows = items[recorded[items]]
        if not rows.size:
            continue
        sums, weights = _bootstrap(
            log.curves.remaining_at(rows[:, None], ages), log.utility[rows], rng
        )
        whole, weight = whole + sums, weight + weights
        samples = sums / weights
        sample_rates = exponential_rate(ages, samples)
        curves[i], own_rate[i] = samples[0], sample_rates[0]
        off = samples - np.exp(-sample_rates[:, None] * ages)
        misfit[i] = np.sqrt((off[0] ** 2).mean())
        if counts[i] >= NEEDED:
            few = log.utility[rows].sum() ** 2 / (log.utility[rows] ** 2).sum()  # that count
            error[i] = np.log(sample_rates[1:]).std(ddof=1) * np.sqrt(few / max(few - 1, 1))
            noise = ((off[1:] - off[0]) ** 2).mean(axis=1)
            p[i] = (1 + (noise >= misfit[i] ** 2).sum()) / (RESAMPLES + 1)
    fleet = whole / weight
    fleet_rates = exponential_rate(ages, fleet)
    if not np.isfinite(error).any():
        own_rate[:], error[:] = fleet_rates[0], np.inf
        constant = np.full(n, fleet_rates[0])
        spread = np.full(n, fleet_rates[1:].std(ddof=1))
        rate = Estimates(constant, error, constant, spread, float(fleet_rates[0]), 0.0)
    else:
        rate = _exp(shrunk(np.log(own_rate), error))
    stretches = [stretched(ages, curve)[1] for curve in fleet[:101:2]]
    shapes = {"exponential": np.exp(-fleet_rates[0] * ages)}
    shapes["stretched exponential"] = stretched(ages, fleet[0])[2]
    shapes["Lomax (power law)"] = lomax(ages, fleet[0])[2]
    return Decay(
        ages,
        curves,
        counts,
        rate,
        misfit,
        p,
        fleet[0],
        float(fleet_rates[0]),
        float(fleet_rates[1:].std(ddof=1)),
        {name: (c, float(np.sqrt(((c - fleet[0]) ** 2).mean()))) for name, c in shapes.items()},
        (stretches[0], float(np.std(stretches[1:], ddof=1))),
    )


def exponential_rate(ages: FloatArray, fractions: FloatArray) -> FloatArray:
    """Return μ (…) of the exponentials exp(−μ·age) nearest to curves (…, G), by least squares.

    >>> float(exponential_rate(np.arange(9.0), np.exp(-0.3 * np.arange(9.0))).round(6))
    0.3
    """
    grid = _GRID / ages[-1]
    candidates = np.exp(-np.multiply.outer(grid, ages))
    loss = (candidates**2).sum(axis=1) - 2 * np.einsum("...g,cg->...c", fractions, candidates)
    log_rate = np.log(grid[np.argmin(loss, axis=-1)])
    for _ in range(8):  # Gauss–Newton on the logarithm, from the nearest of the grid
        curve = np.exp(-np.exp(log_rate)[..., None] * ages)
        slope = -np.exp(log_rate)[..., None] * ages * curve
        step = (slope * (fractions - curve)).sum(axis=-1) / ((slope**2).sum(axis=-1) + 1e-300)
        log_rate = np.clip(log_rate + np.clip(step, -0.1, 0.1), *np.log(grid[[0, -1]]))
    return np.asarray(np.exp(log_rate))


def stretched(ages: FloatArray, fractions: FloatArray) -> tuple[float, float, FloatArray]:
    """Fit exp(−(μ·age)^β); return μ, β and the fitted curve (G,)."""
    return _two_parameters(
        lambda rate, beta: np.exp(-((rate * ages) ** beta)), ages, fractions, 1.0
    )


def lomax(ages: FloatArray, fractions: FloatArray) -> tuple[float, float, FloatArray]:
    """Fit (1 + μ·age/k)^−k, asymptotically a power law; return μ, k and the fitted curve (G,)."""
    return _two_parameters(lambda rate, k: (1 + rate * ages / k) ** -k, ages, fractions, 3.0)


def _two_parameters(
    shape: Callable[[float, float], FloatArray],
    ages: FloatArray,
    fractions: FloatArray,
    second: float,
) -> tuple[float, float, FloatArray]:
    start = np.log([float(exponential_rate(ages, fractions)), second])
    bounds = (start - 7, start + 7)
    best = least_squares(lambda x: shape(*np.exp(x)) - fractions, start, bounds=bounds)
    rate, parameter = np.exp(best.x)
    return float(rate), float(parameter), shape(rate, parameter)


def _bootstrap(
    fraction: FloatArray, utility: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return Σ ξ·fraction (1 + resamples, G) and Σ ξ (…, 1): of the items, then of their resamples.

    einsum adds in an order of its own: the last digits of a product of matrices depend on the
    number of threads that BLAS uses.
    """
    n = utility.size
    sums, weights = [np.einsum("i,ig->g", utility, fraction)], [utility.sum()]
    at_once = max(1, int(1e7) // n)
    for first in range(0, RESAMPLES, at_once):
        times = rng.multinomial(n, np.full(n, 1 / n), min(at_once, RESAMPLES - first)) * utility
        sums.extend(np.einsum("ri,ig->rg", times, fraction))
        weights.extend(times.sum(axis=1))
    return np.array(sums), np.array(weights)[:, None]


def _exp(logs: Estimates) -> Estimates:
    """Return the estimates of a quantity, given those of its logarithm."""
    value = np.exp(logs.value)
    raw = np.exp(logs.raw)
    mean = float(np.exp(logs.mean))
    return Estimates(raw, raw * logs.raw_error, value, value * logs.error, mean, mean * logs.spread)
