"""The relaxed bound of fleets in columns, by compiled passes over them."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.scheduling.age_index import (
    NEVER,
    WHITTLE,
    Parameters,
    cost_of,
    failures_of,
    parameters_of,
    scale_of,
)
from agents.theory.closed_form import ages_reaching, decayed, retried_age_reaching, retries
from agents.theory.price import Tangent, least_dual
from crawl_env.compiled import compiled
from crawl_env.errors import check_non_negative, check_positive, check_whole
from crawl_env.fleet.columns import CHUNK, FleetColumns
from crawl_env.numerics import FloatArray

__all__ = ["ColumnsRelaxation", "columns_relaxation", "stationary_ages"]

GAP = 1e-10  # between the bound and what it cannot be below, as a fraction
SAMPLE = 20_000  # sources with which the search begins
_BLOCK = 1024  # sources whose intervals are computed at a time


class ColumnsRelaxation(NamedTuple):
    """The Lagrangian relaxation of a fleet under a budget."""

    bound: float  # utility / step
    multiplier: float  # λ*, utility / budget unit
    spent: float  # budget units / step that the best intervals at λ* cost


def columns_relaxation(
    columns: FleetColumns, budget: float, gap: float = GAP, sample: int = SAMPLE
) -> ColumnsRelaxation:
    """Minimise λM + Σ_i max_k max(0, (G_ik − λC_i/q_i)/L_ik) over λ ≥ 0.

    This is `agents.theory.relaxation` for large fleets: the bound differs from its minimum by at
    most the fraction `gap`, and limits per host are left out, without which it is a bound, too.
    Where λ is optimal on an interval, the multiplier is some number in it. The search begins with
    the multiplier of a sample, and makes four to six passes over the columns, which may be mapped.

    Arguments:
        columns: the fleet.
        budget: M, budget units per step.
        gap: largest distance from the minimum, as a fraction of it.
        sample: number of sources of the sample, evenly spaced.

    Raises:
        ValueError: the budget, gap or sample is not positive and finite.

    >>> from crawl_env import Sources
    >>> columns_relaxation(FleetColumns.of(Sources.preset("table1")), 2).bound.__round__(4)
    338.0539
    """
    check_positive("budget", budget, "budget units / step")
    check_positive("gap", gap)
    parameters = parameters_of(columns, WHITTLE)
    guess = sample_multiplier(columns, budget, sample)
    return _minimum(parameters, budget, guess, gap)


def sample_multiplier(columns: FleetColumns, budget: float, sample: int = SAMPLE) -> float:
    """Return the multiplier λ* of a sample of evenly spaced sources under its part of the budget.

    Its relative error is about 1/√sample where sources differ by their own sizes.
    """
    check_positive("budget", budget, "budget units / step")
    n, sample = len(columns), check_whole("sample", sample, what="sources")
    if n <= 2 * sample:
        return 0.0
    some = parameters_of(columns, WHITTLE, slice(0, n, n // sample))
    part = budget * some.arrival_rate.size / n
    return _minimum(some, part, 0.0, 1e-6).multiplier


def best_ages(columns: FleetColumns, multiplier: float, part: slice) -> FloatArray:
    """Return the age at which each source of a contiguous part of the fleet is best crawled under a
    multiplier, (n,) steps: the smallest that its delay allows at which the Whittle index reaches
    λ; infinity if it never does.

    Without failures, this is the interval between crawls.

    >>> from crawl_env import Sources
    >>> best_ages(FleetColumns.of(Sources.preset("table1")), 43.7, slice(0, 4))
    array([1., 2., 3., 7.])
    """
    check_non_negative("multiplier", multiplier, "utility / budget unit")
    start, stop, _ = part.indices(len(columns))
    ages = np.empty(max(stop - start, 0))
    if ages.size:
        _each_age(parameters_of(columns, WHITTLE, part), multiplier, ages)
    return ages


def stationary_ages(columns: FleetColumns, multiplier: float, seed: int = 0) -> NDArray[np.uint32]:
    """Return random ages, (N,) steps, as in a fleet crawled for long when its index reaches λ: from
    1 to `best_ages`, equally likely; `NEVER` where that is infinite.

    It takes 4 bytes a source. Failures are ignored.

    Raises:
        ValueError: the multiplier is negative or not finite, or the seed is not a whole number.
    """
    check_whole("seed", seed, 0)
    ages = np.empty(len(columns), np.uint32)
    for number, part in enumerate(columns.chunks()):
        best = best_ages(columns, multiplier, part)
        rng = np.random.default_rng([seed, number])
        ages[part] = np.minimum(np.floor(rng.random(best.size) * best) + 1.0, NEVER)
    return ages


def _minimum(parameters: Parameters, budget: float, guess: float, gap: float) -> ColumnsRelaxation:
    n = parameters.arrival_rate.size

    def dual(multiplier: float) -> Tangent:
        """Return D = λM + Σ_i max_k max(0, (G_k − λC/q)/L_k)."""
        net = spending = 0.0
        for start in range(0, n, CHUNK):
            more, cost = _summed(parameters, multiplier, start, min(start + CHUNK, n))
            net, spending = net + more, spending + cost
        return Tangent(multiplier, net, spending, budget)

    best = least_dual(dual, budget, partial(_largest, parameters), guess, gap)
    return ColumnsRelaxation(best.value, best.multiplier, best.spending)


@compiled
def _summed(
    parameters: Parameters, multiplier: float, start: int, stop: int
) -> tuple[float, float]:
    """Return Σ max_k max(0, (G_k − λC/q)/L_k) over some sources, and what they spend per step."""
    net, spending = 0.0, 0.0
    full, decay, ages = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    for first in range(start, stop, _BLOCK):
        size = min(_BLOCK, stop - first)
        _fill(parameters, first, full[:size], decay[:size])
        _best_ages(parameters, multiplier, first, full[:size], decay[:size], ages[:size])
        for j in range(size):
            i = first + j
            fail, delay = failures_of(parameters, i)
            if not ages[j] < np.inf:  # no crawl is worth its cost
                continue
            success = 1.0 - fail
            # Per cost: G/C and the expected number of crawls, 1/q, in L steps.
            aged = decay[j] * ages[j]
            content = aged * (1.0 - decayed(aged)[1])
            if fail > 0.0:
                retry_loss = fail * -math.expm1(-decay[j] * delay)
                content = (success * content + retry_loss) / (success + retry_loss)
            crawls = cost_of(parameters, i) / (success * ages[j] + delay * fail)
            net += max(success * full[j] * content - multiplier, 0.0) * crawls
            spending += crawls
    return net, spending


@compiled
def _best_ages(
    parameters: Parameters,
    multiplier: float,
    first: int,
    full: FloatArray,
    decay: FloatArray,
    ages: FloatArray,
) -> None:
    """Set the smallest ages that the delays allow at which the index reaches λ, or infinity."""
    ages[:] = multiplier
    ages_reaching(ages, decay, full, np.empty((3, full.size)))
    for j in range(full.size):
        i = first + j
        fail, delay = failures_of(parameters, i)
        if fail > 0.0:
            failing, curvature = retries(fail, delay, decay[j]), decayed(decay[j])[1]
            ages[j] = retried_age_reaching(multiplier, decay[j], curvature, full[j], failing)
        # At u*/C itself no crawl is worth its cost.
        ages[j] = max(ages[j], delay) if multiplier < (1.0 - fail) * full[j] else np.inf


@compiled
def _each_age(parameters: Parameters, multiplier: float, out: FloatArray) -> None:
    full, decay = np.empty(_BLOCK), np.empty(_BLOCK)
    for first in range(0, out.size, _BLOCK):
        size = min(_BLOCK, out.size - first)
        part = out[first : first + size]
        _fill(parameters, first, full[:size], decay[:size])
        _best_ages(parameters, multiplier, first, full[:size], decay[:size], part)


@compiled
def _fill(parameters: Parameters, first: int, full: FloatArray, decay: FloatArray) -> None:
    """Set u*/C and μT of the sources from one on."""
    for j in range(full.size):
        rate = np.float64(parameters.arrival_rate[first + j])
        loss = np.float64(parameters.decay_rate[first + j])
        full[j] = rate * np.float64(parameters.mean_utility[first + j]) / loss
        decay[j] = loss * parameters.period
    if parameters.cost.size:
        for j in range(full.size):
            full[j] /= np.float64(parameters.cost[first + j])


@compiled
def _largest(parameters: Parameters) -> float:
    """Return the multiplier from which on nothing is crawled, the largest q u*/C."""
    top = 0.0
    for i in range(parameters.arrival_rate.size):
        top = max(top, (1.0 - failures_of(parameters, i)[0]) * scale_of(parameters, i))
    return top
