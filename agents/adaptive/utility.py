"""Mean utility ξ̄ and decay μ from the items that were harvested: their ages and utilities.

An item of age s is worth ξe^{−μs}: ln utility falls with age by the slope −μ. Six sums a source
are enough for ordinary least squares, and for a common μ of sources with few items.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.errors import unknown
from crawl_env.numerics import FloatArray

EULER = 0.5772156649015329
NOISES = ("exponential", "lognormal", "constant")

_MOST = 1e9  # age; the logarithm of a utility is less by itself
_STEEPEST = 1e6  # 1 / time
_LEAST = 1e-12  # variance of ln ξ: none, but no division by zero


class ItemSums(NamedTuple):
    """Sums over a source's items, (..., N) each, with y = ln utility and s = age."""

    number: FloatArray
    age: FloatArray
    age2: FloatArray
    log: FloatArray
    log2: FloatArray
    age_log: FloatArray

    @staticmethod
    def empty(shape: tuple[int, ...]) -> ItemSums:
        return ItemSums(*(np.zeros(shape) for _ in range(6)))

    def add(self, source: ArrayLike, age: ArrayLike, utility: ArrayLike) -> ItemSums:
        """Return the sums with some items more, (K,) each; left out are those without a logarithm.

        Arguments:
            source: the flat number of each item's cell.
            age, utility: when it was collected.
        """
        cell = np.asarray(source, dtype=np.intp)
        s, w = (np.asarray(x, dtype=np.float64) for x in (age, utility))
        told = (w > 0) & np.isfinite(w) & (s >= 0) & (s < _MOST)
        cell, s, y = cell[told], s[told], np.log(w[told])
        terms = (np.ones_like(s), s, s * s, y, y * y, s * y)
        size, shape = self.number.size, self.number.shape
        new = (np.bincount(cell, term, size).reshape(shape) for term in terms)
        return ItemSums(*(old + more for old, more in zip(self, new, strict=True)))


class UtilityFit(NamedTuple):
    """Estimates with standard errors, (..., N); infinite errors where nothing is known."""

    decay_rate: FloatArray  # 1 / time
    decay_error: FloatArray
    mean_utility: FloatArray
    utility_error: FloatArray


def fit_utility(sums: ItemSums, noise: str = "exponential", shrink: bool = True) -> UtilityFit:
    """Return ξ̄ and μ of every source.

    μ is minus the slope of ln utility on age, with error σ/√S, S the spread Σ(s − s̄)² of the ages
    and σ² the variance of ln ξ. Shrunken, it is drawn towards the fleet's mean slope m weighted by
    S, by the weight v/(v + σ²/S), where v is the variance of the true slopes over the fleet:
    sources with few items have the fleet's μ. v is estimated by DerSimonian & Laird's moments,
    but is at least their standard error where all slopes are one, so that a fleet that tells
    little of v is not taken to be all alike.

    ln ξ̄ = mean ln utility + μ·mean age + c, where c = ln E ξ − E ln ξ makes up for the logarithm:
    Euler's γ = .5772 if ξ is exponential (σ² = π²/6), σ²/2 if lognormal (σ² from the residuals of
    the whole fleet), 0 if constant.

    Arguments:
        noise: the law of ξ, one of `NOISES`.
        shrink: whether slopes are drawn together, over the last axis.

    Raises:
        ValueError: an unknown law.
    """
    if noise not in NOISES:
        raise unknown("noise", noise, NOISES)
    n = np.maximum(sums.number, 1.0)
    spread = np.maximum(sums.age2 - sums.age**2 / n, 0.0)
    spread = np.where(spread > 1e-9 * sums.age2, spread, 0.0)  # else rounding
    cross = sums.age_log - sums.age * sums.log / n
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(spread > 0, np.clip(-cross / spread, -_STEEPEST, _STEEPEST), 0.0)
    variance = np.pi**2 / 6 if noise == "exponential" else _variance(sums, n, spread, cross)
    with np.errstate(divide="ignore"):
        error2 = np.where(spread > 0, variance / spread, np.inf)
    if shrink:
        slope, error2 = _shrunken(slope, error2, spread)
    slope = np.maximum(slope, 0.0)  # interest does not grow
    mean_age = sums.age / n
    makes_up = {"exponential": EULER, "lognormal": 0.5 * variance, "constant": 0.0}[noise]
    log_utility = sums.log / n + slope * mean_age + makes_up
    mean = np.exp(np.clip(log_utility, -600.0, 600.0))
    with np.errstate(invalid="ignore"):
        log_error2 = variance / n + np.where(mean_age > 0, (mean_age * np.sqrt(error2)) ** 2, 0.0)
        known = sums.number > 0
        error = np.where(known, mean * np.sqrt(log_error2), np.inf)
    return UtilityFit(slope, np.sqrt(error2), np.where(known, mean, 0.0), error)


def _variance(sums: ItemSums, n: FloatArray, spread: FloatArray, cross: FloatArray) -> FloatArray:
    """Return the variance of ln ξ, (..., 1), from the residuals of all sources."""
    explained = np.where(spread > 0, cross**2 / np.where(spread > 0, spread, 1.0), 0.0)
    residual = np.maximum(sums.log2 - sums.log**2 / n - explained, 0.0)
    freedom = np.maximum(sums.number - 1.0 - (spread > 0), 0.0)
    total = freedom.sum(axis=-1, keepdims=True)
    pooled = residual.sum(axis=-1, keepdims=True) / np.maximum(total, 1.0)
    return np.where(total > 0, np.maximum(pooled, _LEAST), 1.0)


def _shrunken(
    slope: FloatArray, error2: FloatArray, spread: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return slopes drawn towards the fleet's, and the squares of their errors."""
    known = spread > 0
    weight = np.where(known, 1.0 / np.where(known, error2, 1.0), 0.0)
    total = weight.sum(axis=-1, keepdims=True)
    some = np.maximum(total, 1e-300)
    mean = (weight * slope).sum(axis=-1, keepdims=True) / some
    excess = (weight * (slope - mean) ** 2).sum(axis=-1, keepdims=True)
    freedom = np.maximum(known.sum(axis=-1, keepdims=True) - 1.0, 0.0)
    room = total - (weight**2).sum(axis=-1, keepdims=True) / some
    found = np.maximum(excess - freedom, np.sqrt(2.0 * freedom))
    between = np.where(room > 0, found / np.where(room > 0, room, 1.0), 0.0)
    own2 = np.where(known, error2, 1.0)
    share = np.where(known, between / (between + own2), 0.0)
    drawn = np.where(known, mean + share * (slope - mean), mean)
    of_mean = np.where(total > 0, 1.0 / some, np.inf)
    error2 = np.where(known, share * own2, between) + (1.0 - share) ** 2 * of_mean
    return drawn, error2
