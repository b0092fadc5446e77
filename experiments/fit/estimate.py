"""Rates and mean utilities of sources from a log, with errors, drawn towards the fleet's.

A source with few items says little about itself; the fleet says what sources are like. Both
estimates here are weighted means of the two, the weights estimated from the log (empirical Bayes).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from crawl_env.numerics import FloatArray

_NO_SPREAD = 1e9  # shape of the prior beyond which all sources count as equal


class Estimates(NamedTuple):
    """One parameter of N sources."""

    raw: FloatArray  # (N,) from the source's own items alone
    raw_error: FloatArray  # (N,) its standard error; infinity where there are no items
    value: FloatArray  # (N,) drawn towards the fleet
    error: FloatArray  # (N,) its standard error, the fleet's spread taken into account
    mean: float  # of the fleet
    spread: float  # standard deviation between sources


def rates(counts: NDArray[np.intp], span: float) -> Estimates:
    """Estimate Λ (items / time) from the number of items in a span of time.

    Counts are Poisson, rates between sources Gamma(a, b); then counts are negative binomial, whose
    likelihood is maximal at a/b = the mean rate, and a is found numerically (Robbins 1956; Efron
    and Morris 1973). The estimate is the posterior mean (n + a)/(span + b); its error is the
    posterior's standard deviation. Errors take items as independent of each other: where items
    come in bursts they are too small.

    >>> few = rates(np.array([0, 2, 40]), span=10.0)
    >>> few.raw, few.value.round(2)
    (array([0. , 0.2, 4. ]), array([0.03, 0.22, 3.95]))
    """
    mean = float(counts.mean()) / span
    if not mean:
        raise ValueError("the log has no items; there is nothing to fit")
    shape = _shape(counts)
    total = np.asarray(counts + shape, dtype=np.float64)
    exposure = span + shape / mean
    own_error = np.where(counts > 0, np.sqrt(np.maximum(counts, 1.0)) / span, np.inf)
    return Estimates(
        counts / span,
        own_error,
        total / exposure,
        np.sqrt(total) / exposure,
        mean,
        float(mean / np.sqrt(shape)),
    )


def _shape(counts: NDArray[np.intp]) -> float:
    """Return the shape a of the gamma prior by maximum marginal likelihood."""
    mean = counts.mean()

    def loss(log_shape: float) -> float:
        a = np.exp(log_shape)
        chance = np.log1p(mean / a)
        terms = gammaln(counts + a) - gammaln(a) - a * chance + counts * (np.log(mean / a) - chance)
        return -float(terms.sum())

    if len(counts) == 1 or counts.var() <= mean:  # no more spread than Poisson counts have
        return _NO_SPREAD if len(counts) > 1 else 1e-9
    return float(np.exp(minimize_scalar(loss, bounds=(-12.0, 20.0), method="bounded").x))


def utilities(source: NDArray[np.intp], utility: FloatArray, n_sources: int) -> Estimates:
    """Estimate ξ̄ (utility) of every source: credibility means (Bühlmann and Straub 1970).

    The estimate is Z · own mean + (1 − Z) · fleet's mean with Z = n/(n + k), k = E Var(ξ) / Var ξ̄,
    the best linear one whatever the law of ξ; items worth nothing count. Votes have heavy tails,
    under which a source's own standard deviation says little: errors use one relative deviation
    Var(ξ)/ξ̄² for the whole fleet.

    >>> worth = utilities(np.array([0, 0, 0, 1]), np.array([1.0, 2, 3, 9]), 2)
    >>> worth.raw, bool(worth.value[1] < 9)
    (array([2., 9.]), True)
    """
    counts = np.bincount(source, minlength=n_sources)
    sums = np.bincount(source, utility, n_sources)
    active = np.maximum(counts, 1)
    own = sums / active
    deviations = np.bincount(source, (utility - own[source]) ** 2, n_sources)
    n, degrees = counts.sum(), int((counts[counts > 0] - 1).sum())
    overall = float(utility.mean())
    if not degrees:  # one item a source: nothing tells sources and items apart
        within, between = float(utility.var(ddof=1)) if n > 1 else 0.0, 0.0
    else:
        within = float(deviations.sum()) / degrees
        sources = int((counts > 0).sum())
        scale = n - float((counts**2).sum()) / n
        apart = float((counts * (own - overall) ** 2).sum()) - (sources - 1) * within
        between = max(apart / scale, 0.0) if scale > 0 else 0.0
    trust = _credibility(counts, within, between)
    mean = float((trust * own).sum() / trust.sum()) if trust.any() else overall
    value = trust * own + (1 - trust) * mean
    relative = within / (mean**2 + between) if mean else 0.0
    spread = np.sqrt(relative / active)
    error = np.sqrt((trust * spread * value) ** 2 + (1 - trust) ** 2 * between)
    if not between:  # all equal: what is not known is the fleet's mean
        error = np.maximum(error, np.sqrt(within / n))
    own_error = np.where(counts > 0, spread * value, np.inf)
    return Estimates(own, own_error, value, error, mean, float(np.sqrt(between)))


def _credibility(counts: NDArray[np.intp], within: float, between: float) -> FloatArray:
    if not within:
        return (counts > 0).astype(np.float64)
    return counts * between / (counts * between + within)


def shrunk(own: FloatArray, own_error: FloatArray) -> Estimates:
    """Draw estimates with known normal errors towards their mean; an infinite error is "unknown".

    The spread between sources is that of maximum marginal likelihood.

    >>> shrunk(np.array([1.0, 3.0, 0.0]), np.array([0.1, 0.1, np.inf])).value.round(2)
    array([1.01, 2.99, 2.  ])
    """
    known = np.isfinite(own_error)
    x, noise = own[known], own_error[known] ** 2

    def centre(between: float) -> float:
        return float(np.average(x, weights=1 / (noise + between + 1e-300)))

    def loss(log_between: float) -> float:
        total = noise + np.exp(log_between)
        return float((np.log(total) + (x - centre(np.exp(log_between))) ** 2 / total).sum())

    between = 0.0
    if len(x) > 1 and x.var():
        low, high = np.log(x.var()) - 16, np.log(x.var()) + 2
        found = minimize_scalar(loss, bounds=(low, high), method="bounded").x
        between = float(np.exp(found)) if found > low + 0.01 else 0.0
    mean = centre(between)
    weight = np.zeros(len(own))
    weight[known] = between / (noise + between) if between else noise == 0
    value = np.where(known, weight * own + (1 - weight) * mean, mean)
    of_mean = 1 / (1 / (noise + between + 1e-300)).sum()
    error = np.sqrt(weight * np.where(known, own_error, 0) ** 2 + (1 - weight) ** 2 * of_mean)
    error = np.where(known, error, np.sqrt(between + of_mean))
    return Estimates(own, own_error, value, error, mean, float(np.sqrt(between)))
