"""Likelihood of one crawl given the precision p of the pings, and the silent rate Λ_s after it; and
the odds of changes.

Before the crawl, Λ_s ~ Gamma(a, b) given p. The functions `after_…` return the logarithm of the
probability of what was found in the gap τ, in which n pings came, and mean and variance of Λ_s
given that.
"""

from __future__ import annotations

from math import lgamma

import numpy as np

from crawl_env.compiled import inlined
from crawl_env.numerics import FloatArray

_LARGE, _LOG_LARGE = 1e200, float(np.log(1e200))
_SHORTEST = 1e-20  # of gaps, relative to b; shorter ones say as much of Λ_s and p
_TINY = 1e-300
_MOST_RATIO = 100.0  # of the odds by one crawl, so that no single outlier decides
LEAST = -600.0  # logarithm of odds
_CLEAR = 4.0  # odds from which pings are believed to have ceased


@inlined
def after_count(
    a: float, b: float, gap: float, n: float, p: float, k: float
) -> tuple[float, float, float]:
    """Return the log-probability of k items and n pings, and mean and variance of Λ_s after them,
    given p and Λ_s ~ Gamma(a, b): the sum over the numbers of true pings."""
    gap = max(gap, _SHORTEST * b)
    odds, growth = p / (1.0 - p), (b + gap) / gap
    term, log = 1.0, 0.0
    total, first, second = 0.0, 0.0, 0.0
    true = 0.0
    while True:
        silent = k - true
        total += term
        first += term * silent
        second += term * silent * silent
        if true >= min(k, n):
            break
        term *= (n - true) / (true + 1.0) * odds * (silent / (a + silent - 1.0)) * growth
        true += 1.0
        if term > _LARGE:
            term, total = term / _LARGE, total / _LARGE
            first, second = first / _LARGE, second / _LARGE
            log += _LOG_LARGE
    log += n * np.log1p(-p) + lgamma(a + k) - lgamma(a) - lgamma(k + 1.0)
    log -= a * np.log1p(gap / b) + k * np.log(growth)
    mean = first / total
    spread = max(second / total - mean * mean, 0.0)
    return log + np.log(total), (a + mean) / (b + gap), (a + mean + spread) / (b + gap) ** 2


@inlined
def after_large_count(
    a: float, b: float, gap: float, n: float, p: float, k: float
) -> tuple[float, float, float]:
    """Return the same with a normal approximation of both terms of the count."""
    of_pings, silent = n * p * (1.0 - p), a * gap / b
    # The noise of the silent items: at the rate that the count implies if the prior is weak.
    noise = (a + max(k - n * p, 0.0)) / (b + gap) * gap
    spread = noise + silent * gap / b
    surprise = k - n * p - silent
    variance = of_pings + spread
    expected = silent + spread / variance * surprise
    expected = min(max(expected, max(k - n, 0.0)), k)
    remaining = of_pings * spread / variance
    log = -0.5 * (surprise * surprise / variance + np.log(variance))
    return log, (a + expected) / (b + gap), (a + expected + remaining) / (b + gap) ** 2


@inlined
def after_change(
    a: float, b: float, gap: float, n: float, p: float, changed: bool
) -> tuple[float, float, float]:
    """Return the log-probability that anything is new, or nothing, after n pings, and mean and
    variance of Λ_s after that, given p and Λ_s ~ Gamma(a, b)."""
    nothing = n * np.log1p(-p) - a * np.log1p(gap / b)  # log-probability
    mean, variance = a / (b + gap), a / (b + gap) ** 2
    if not changed:
        return nothing, mean, variance
    something, longer = -np.expm1(nothing), gap / b
    log = np.log(max(something, _TINY))
    # Λ_s is larger by a factor 1 + m; without any pings m tends to 1/a as the gap vanishes.
    m = longer / something if something > _TINY else 1.0 / a
    spread = 1.0 + m * (2.0 + longer) - a * m * m * np.exp(nothing)
    return log, mean * (1.0 + m), variance * spread


# -- changes: see `pings` -----------------------------------------------------------------------


@inlined
def share(
    cell: int, row: int, changed: float, likelihood: FloatArray, fraction: FloatArray
) -> None:
    """Replace the precision of a source, with the probability `changed`, by one of Beta(½, ½)."""
    most, total = -np.inf, 0.0
    for j in range(likelihood.shape[1]):
        most = max(most, likelihood[cell, j])
    for j in range(likelihood.shape[1]):
        likelihood[cell, j] = np.exp(likelihood[cell, j] - most)
        total += fraction[row, j] * likelihood[cell, j]
    part = changed / likelihood.shape[1]
    for j in range(likelihood.shape[1]):
        weight = (1.0 - changed) * likelihood[cell, j] / total + part / fraction[row, j]
        likelihood[cell, j] = np.log(max(weight, _TINY))


@inlined
def compare(logs: FloatArray, chance: FloatArray, odds: FloatArray) -> None:
    """Update the odds of a fleet, (J,), by one crawl.

    Arguments:
        logs: (J,) logarithms of the likelihood given each precision.
        chance: (J,) probabilities of the precisions before the crawl.
    """
    most, expected = -np.inf, 0.0
    for j in range(logs.size):
        most = max(most, logs[j])
    for j in range(logs.size):
        expected += chance[j] * np.exp(logs[j] - most)
    for j in range(logs.size):
        ratio = min(np.exp(logs[j] - most) / max(expected, _TINY), _MOST_RATIO)
        odds[j] = max(odds[j] + np.log(max(ratio, _TINY)), LEAST)


@inlined
def has_ceased(rate: float, silence: float, hazard: float) -> bool:
    expected = rate * silence
    return expected > 1.0 and hazard * np.expm1(min(expected, 600.0)) > _CLEAR * rate
