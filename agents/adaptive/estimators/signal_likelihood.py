"""Likelihood of one crawl given the precision p of the pings, and the silent rate Λ_s after it.

Before the crawl, Λ_s ~ Gamma(a, b) given p. Each function returns the logarithm of the probability
of what was found in the gap τ, in which n pings came, and mean and variance of Λ_s given that.
"""

from __future__ import annotations

from math import lgamma

import numpy as np

from crawl_env.compiled import inlined

_LARGE, _LOG_LARGE = 1e200, float(np.log(1e200))
_RARE = 1e-9  # probability of anything new below which it is a single item
_TINY = 1e-300


@inlined
def after_count(
    a: float, b: float, gap: float, n: float, p: float, k: float
) -> tuple[float, float, float]:
    """Return the log-probability of k items and n pings, and mean and variance of Λ_s after them,
    given p and Λ_s ~ Gamma(a, b): the sum over the numbers of true pings."""
    odds, grown = p / (1.0 - p), (b + gap) / gap
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
        term *= (n - true) / (true + 1.0) * odds * (silent / (a + silent - 1.0)) * grown
        true += 1.0
        if term > _LARGE:
            term, total = term / _LARGE, total / _LARGE
            first, second = first / _LARGE, second / _LARGE
            log += _LOG_LARGE
    log += n * np.log1p(-p) + lgamma(a + k) - lgamma(a) - lgamma(k + 1.0)
    log += a * np.log(b / (b + gap)) - k * np.log(grown)
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
    left = of_pings * spread / variance
    log = -0.5 * (surprise * surprise / variance + np.log(variance))
    return log, (a + expected) / (b + gap), (a + expected + left) / (b + gap) ** 2


@inlined
def after_change(
    a: float, b: float, gap: float, n: float, p: float, changed: bool
) -> tuple[float, float, float]:
    """Return the log-probability that anything is new, or nothing, after n pings, and mean and
    variance of Λ_s after that, given p and Λ_s ~ Gamma(a, b)."""
    log = n * np.log1p(-p) - a * np.log1p(gap / b)  # nothing is new
    mean, variance = a / (b + gap), a / (b + gap) ** 2
    if not changed:
        return log, mean, variance
    nothing = np.exp(log)
    something = max(-np.expm1(log), _TINY)
    if something < _RARE:  # one item in no time; the differences below would be mere rounding
        return np.log(something), (a + 1.0) / (b + gap), (a + 1.0) / (b + gap) ** 2
    before, square = a / b, a * (a + 1.0) / (b * b)
    of_both = (before - nothing * mean) / something
    squares = (square - nothing * (variance + mean * mean)) / something
    spread = max(squares - of_both * of_both, 0.5 * of_both / (b + gap))
    return np.log(something), of_both, spread
