"""Crawl rates for freshness: three objectives of web crawlers under one budget.

Changes come as a Poisson process of rate Δ = Λ to a page of importance m, C is the cost of a crawl
and λ the Lagrange multiplier of the budget. All rates maximise Σ m × (a mean over time), or
minimise it, under Σ C ρ = M/T.

**Periodic crawls** (Cho & Garcia-Molina 2003). The copy is fresh for the fraction (ρ/Δ)(1 −
e^(−Δ/ρ)) of the time. The optimal rates solve (m/Δ)[1 − (1 + Δ/ρ) e^(−Δ/ρ)] = λC: they are the
static frequencies (Lefortier et al. 2013) of the fleet `as_ephemeral`.

**Crawls at random times** (Azar et al. 2018). If crawls are a Poisson process, too, the copy is
fresh with probability ρ/(ρ + Δ), that of the last event's being a crawl. The optimal rates are

    ρ = max(0, √(mΔ/(λC)) − Δ).

**Harmonic staleness** (Kolobov et al. 2019, LambdaCrawl). The cost of n changes since the crawl is
H(n) = 1 + 1/2 + … + 1/n. At random times n is geometric, and E H(n) = ln(1 + Δ/ρ), so that

    ρ = (√(Δ² + 4mΔ/(λC)) − Δ)/2.

If every change is told to the crawler, it is crawled with a probability π at once; n is geometric,
too, E H(n) = −ln π, and π = min(1, m/(λCΔ)), at a rate of πΔ. No rate is 0 unless m or Δ is.

The papers of Azar et al. and of Kolobov et al. could not be read for this package. Their formulas
are those of the code that the authors of the latter have published (microsoft/
Optimal-Freshness-Crawl-Scheduling), and were derived anew; one multiplier for both kinds of sources
takes the place of the search for a split of the budget there.

References:
    Cho & Garcia-Molina (2003), Effective page refresh policies for web crawlers, ACM TODS 28(4).
    Azar, Horvitz, Lubetzky, Peres & Shahaf (2018), Tractable near-optimal policies for crawling,
    PNAS 115(32).
    Kolobov, Peres, Lu & Horvitz (2019), Staying up to date with online content changes using
    reinforcement learning for scheduling, NeurIPS.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from agents.theory.frequencies import rates_within, static_frequencies
from agents.theory.freshness import as_ephemeral, importance
from crawl_env import Sources
from crawl_env.errors import check_positive
from crawl_env.numerics import FloatArray

__all__ = [
    "freshness_at",
    "harmonic_rates",
    "harmonic_staleness",
    "periodic_rates",
    "randomized_rates",
]


def periodic_rates(sources: Sources, budget: float, weight: str = "flow") -> FloatArray:
    """Return the crawls per unit of time, (N,) or (B, N), that keep most copies fresh if each
    source is crawled at equal intervals (Cho & Garcia-Molina 2003).

    A source is crawled once per step at most, or as often as its crawl delay allows, here and in
    the functions below.

    Raises:
        ValueError: the budget is not positive, or the weight is unknown.

    >>> five = Sources([1.0, 2.0, 3.0, 4.0, 5.0], 1.0, 1.0, period=0.1)  # changes a day
    >>> periodic_rates(five, budget=0.5, weight="equal").round(2)
    array([1.15, 1.36, 1.35, 1.14, 0.  ])
    """
    return static_frequencies(as_ephemeral(sources, weight), budget)


def randomized_rates(sources: Sources, budget: float, weight: str = "flow") -> FloatArray:
    """Return the crawls per unit of time, (N,) or (B, N), that keep most copies fresh if crawls
    come at random times (Azar et al. 2018).

    Raises:
        ValueError: the budget is not positive, or the weight is unknown.

    >>> five = Sources([1.0, 2.0, 3.0, 4.0, 5.0], 1.0, 1.0, period=0.1)
    >>> randomized_rates(five, budget=0.5, weight="equal").round(2)
    array([1.39, 1.37, 1.13, 0.77, 0.34])
    """
    per_step, worth, cost = _per_step(sources, budget, weight)
    with np.errstate(divide="ignore", invalid="ignore"):
        enough = np.where(worth > 0, worth / (per_step * cost), 0.0)

    def rate(multiplier: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            root = np.sqrt(worth * per_step / cost) / np.sqrt(multiplier)
        return np.where(worth > 0, np.maximum(root - per_step, 0.0), 0.0)

    return _within(rate, sources, worth, cost, enough.max(axis=-1, keepdims=True), budget)


def harmonic_rates(
    sources: Sources,
    budget: float,
    weight: str = "flow",
    told: ArrayLike = False,
) -> FloatArray:
    """Return the crawls per unit of time, (N,) or (B, N), of least harmonic staleness (LambdaCrawl,
    Kolobov et al. 2019).

    Arguments:
        sources: the fleet, or a batch.
        budget: M, budget units per step.
        weight: the importance, see `importance`.
        told: whether every change of a source is told to the crawler, (N,); its rate divided by Λ
            is the probability of a crawl at a change.

    Raises:
        ValueError: the budget is not positive, or the weight is unknown.

    >>> three = Sources([1.0, 1.0, 4.0], 1.0, 1.0)
    >>> harmonic_rates(three, budget=1, weight="equal", told=[False, True, True]).round(4)
    array([0.2808, 0.3596, 0.3596])
    """
    per_step, worth, cost = _per_step(sources, budget, weight)
    is_told = np.broadcast_to(np.asarray(told, dtype=bool), per_step.shape)

    def rate(multiplier: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            limit = worth / (multiplier * cost)  # of which neither rate is more
            random = 2.0 * limit / (1.0 + np.sqrt(1.0 + 4.0 * limit / per_step))
        random = np.where(np.isfinite(random), random, np.inf)
        return np.where(worth > 0, np.where(is_told, np.minimum(limit, per_step), random), 0.0)

    enough = worth.sum(axis=-1, keepdims=True) / budget
    return _within(rate, sources, worth, cost, enough, budget)


def freshness_at(change_rate: ArrayLike, rate: ArrayLike, periodic: bool = True) -> FloatArray:
    """Return the fraction of time in which a copy is fresh, if it is crawled at a rate.

    Arguments:
        change_rate: Δ > 0, changes / time.
        rate: ρ ≥ 0, crawls / time.
        periodic: whether the intervals between crawls are equal; else crawls come at random times.

    >>> freshness_at(1.0, [0.0, 1.0]).round(4), freshness_at(1.0, [0.0, 1.0], periodic=False)
    (array([0.    , 0.6321]), array([0. , 0.5]))
    """
    change, crawl = np.broadcast_arrays(change_rate, rate)
    if not periodic:
        return np.asarray(crawl / (crawl + change))
    with np.errstate(divide="ignore"):
        changes = change / crawl  # per crawl
    return np.asarray(-np.expm1(-changes) / changes)


def harmonic_staleness(
    change_rate: ArrayLike, rate: ArrayLike, told: ArrayLike = False
) -> FloatArray:
    """Return the mean harmonic cost E H(n) of the n changes since the last crawl.

    Arguments:
        change_rate: Δ > 0, changes / time.
        rate: ρ > 0, crawls / time: at random times, or, if changes are `told`, at changes that are
            drawn with probability ρ/Δ ≤ 1.

    >>> harmonic_staleness(2.0, [1.0, 2.0], told=[False, True]).round(4)
    array([1.0986, 0.    ])
    """
    change, crawl, is_told = np.broadcast_arrays(change_rate, rate, told)
    return np.where(is_told, np.log(change / crawl), np.log1p(change / crawl))


def _per_step(
    sources: Sources, budget: float, weight: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return changes per step, m and the cost of a crawl that succeeds; m is 0 where Δ is."""
    check_positive("budget", budget, "budget units / step")
    live = sources.arrival_rate > 0
    worth = np.where(live, importance(sources, weight), 0.0)
    return sources.arrival_rate * sources.period, worth, sources.cost / (1.0 - sources.failure_rate)


def _within(
    rate: Callable[[FloatArray], FloatArray],
    sources: Sources,
    worth: FloatArray,
    cost: FloatArray,
    enough: FloatArray,
    budget: float,
) -> FloatArray:
    """Return crawls per unit of time that spend the budget, at most one each `delay` steps."""
    most = (worth > 0) / sources.delay

    def limited(multiplier: FloatArray) -> FloatArray:
        return np.minimum(rate(multiplier), most)

    return rates_within(limited, most, enough, cost, budget) / sources.period
