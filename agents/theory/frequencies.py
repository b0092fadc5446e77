"""The best constant frequencies of crawls (Lefortier et al., CIKM 2013, the paper's LOSS)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from agents.theory.closed_form import continuous_ages_reaching
from agents.theory.price import CLOSE, first_where, near_level
from agents.theory.renewal import simplified
from crawl_env import Sources
from crawl_env.errors import check_array, check_positive
from crawl_env.numerics import FloatArray

_SAMPLE = 4096  # sources of which the multiplier is found first
_ROUGH = 1e-2  # fraction of λ to which that of the sample is bounded

__all__ = ["rates_within", "static_frequencies", "static_reward"]


def static_frequencies(sources: Sources, budget: float) -> FloatArray:
    """Return the best constant frequencies f, (N,) or (B, N), crawls per unit of time.

    They maximise `static_reward` under Σ C_i f_i ≤ M/T and f_i ≤ 1/(d_i T), where d_i is the delay
    in steps. The marginal value per cost at the interval I = 1/f, the continuous-time Whittle index
    at age I, is then the same, λ, at all sources that are crawled less often than their delay
    allows: u*[1 − (1 + μI)e^{−μI}]/C = λ. The budget is met to rounding.
    Failures and capacities count as in `agents.theory.renewal.simplified`; shared hosts do not.

    Raises:
        ValueError: budget is not positive and finite.

    References:
        Lefortier, Ostroumova, Samosvat & Serdyukov (2013), Timely crawling of high-quality
        ephemeral new content, CIKM.

    >>> static_frequencies(Sources.preset("table1"), 2).round(4)
    array([1.    , 0.6302, 0.2589, 0.111 ])
    """
    check_positive("budget", budget, "budget units / step")
    sources = simplified(sources)
    full, m = sources.ceiling / sources.cost, sources.decay_per_step
    most = (full > 0) / sources.delay  # crawls per step

    def rate(multiplier: FloatArray, some: slice = slice(None)) -> FloatArray:
        return np.minimum(_rate(multiplier, full[..., some], m[..., some]), most[..., some])

    def spent_by_sample(multiplier: FloatArray) -> FloatArray:
        return (sources.cost[..., sample] * rate(multiplier, sample)).sum(axis=-1, keepdims=True)

    none_from, guess = full.max(axis=-1, keepdims=True), np.zeros(())
    sample = slice(None, None, len(sources) // _SAMPLE)
    if len(sources) > _SAMPLE:
        part = most[..., sample].shape[-1] / len(sources)
        low, high = near_level(spent_by_sample, budget * part, none_from, tolerance=_ROUGH)
        guess = np.sqrt(low * high)
    return rates_within(rate, most, none_from, sources.cost, budget, guess) / sources.period


def rates_within(
    rate: Callable[[FloatArray], FloatArray],
    most: FloatArray,
    enough: FloatArray,
    cost: FloatArray,
    budget: float,
    guess: FloatArray | float = 0.0,
) -> FloatArray:
    """Return the rates of crawls at the multiplier at which they spend the budget, (..., N).

    Arguments:
        rate: the crawls per step, (..., N), at multipliers (..., 1); it never increases.
        most: the largest rates, (..., N), which are kept if the budget covers them.
        enough: a multiplier, (..., 1), at which the budget suffices.
        cost: budget units per crawl, (..., N).
        budget: M, budget units per step.
        guess: a multiplier near the one sought, (..., 1); 0: none.
    """

    def spending(rate: FloatArray) -> FloatArray:
        return np.asarray((cost * rate).sum(axis=-1, keepdims=True))

    is_covered = spending(most) <= budget
    if is_covered.all():
        return most
    bounds = near_level(lambda price: spending(rate(price)), budget, enough, guess)
    low, high = first_where(
        lambda price: spending(rate(price)) <= budget, enough, tolerance=CLOSE, bounds=bounds
    )
    # Between the bounds the rates are linear in λ to rounding. Where λ meets some u*/C to rounding,
    # as it does when decay is fast, they jump: there any split is best, and this one spends the
    # budget.
    few, many = rate(high), rate(low)
    missing, step = budget - spending(few), spending(many) - spending(few)
    part = np.clip(np.divide(missing, step, out=np.ones_like(step), where=step > missing), 0.0, 1.0)
    best = np.minimum(few + (many - few) * part, most)
    return np.where(is_covered, most, best)


def static_reward(sources: Sources, frequency: ArrayLike) -> float | FloatArray:
    """Return T·Σ u* f (1 − e^{−μ/f}), utility / step: crawls at equal intervals 1/f.

    Capacities count as in `agents.theory.renewal.simplified`; f counts the crawls that succeed.
    Intervals that are no whole number of steps cannot be kept, so a schedule earns less; the
    relaxed bound, which no schedule exceeds, may be below this.

    Arguments:
        frequency: f ≥ 0, crawls per unit of time: (N,), (B, N), or a number for all sources.

    Raises:
        ValueError: a frequency is negative or not finite, or the number of sources differs.

    >>> fleet = Sources.preset("table1")
    >>> round(static_reward(fleet, static_frequencies(fleet, 2)), 2)
    340.3
    """
    sources = simplified(sources)
    rate = check_array("frequency", frequency, None, 0.0, unit="crawls / time")
    if rate.ndim and rate.shape[-1] != len(sources):
        raise ValueError(f"frequency has shape {rate.shape} for {len(sources)} sources")
    with np.errstate(divide="ignore", over="ignore"):
        interval = 1.0 / rate
    reward = sources.ceiling * -np.expm1(-sources.decay_rate * interval)
    total = sources.period * (rate * reward).sum(axis=-1)
    return float(total) if np.ndim(total) == 0 else total


def _rate(multiplier: FloatArray, full: FloatArray, m: FloatArray) -> FloatArray:
    """Return crawls per step at which the marginal value per cost is the multiplier."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(m / continuous_ages_reaching(multiplier, full))
