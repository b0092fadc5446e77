"""Intervals for what was measured: the bootstrap, with runs kept paired, and the score.

Means, not interquartile means: what is asked of a fixed policy is its expected reward, and its runs
have no failed trainings among them that a mean would have to be protected from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.numerics import FloatArray


def number(x: float) -> str:
    """Return a number with five digits, large ones with commas between thousands.

    >>> number(126280.4), number(337.774)
    ('126,280', '337.77')
    """
    return f"{x:,.0f}" if abs(x) >= 1e4 else f"{x:.5g}"


class Estimate(NamedTuple):
    """A statistic with its 95 % interval; low = high = mean where nothing was random."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        if np.isnan(self.mean):
            return "n/a"
        if self.high - self.low <= 1e-9 * abs(self.mean):
            return number(self.mean)
        return f"{number(self.mean)} [{number(self.low)}, {number(self.high)}]"


UNKNOWN = Estimate(np.nan, np.nan, np.nan)


def bootstrap(
    statistic: Callable[..., FloatArray], *samples: ArrayLike, resamples: int = 2000, seed: int = 0
) -> Estimate:
    """Return a statistic of paired samples, each (S,), with its 95 % percentile interval.

    `statistic` maps arrays (..., S) to (...). Run s of every sample is drawn together, so that
    what the runs share, their arrivals, cancels in differences and ratios.

    >>> bootstrap(lambda x: x.mean(-1), [2.0, 2.0, 2.0])
    Estimate(mean=2.0, low=2.0, high=2.0)
    """
    columns = [np.asarray(sample, dtype=np.float64) for sample in samples]
    n = columns[0].size
    if n == 0 or any(column.shape != (n,) for column in columns):
        shapes = ", ".join(str(column.shape) for column in columns)
        raise ValueError(f"samples have shapes {shapes}; give one number a run, at least one run")
    draws = np.random.default_rng(seed).integers(0, n, (resamples, n))
    values = statistic(*(column[draws] for column in columns))
    low, high = np.percentile(values, [2.5, 97.5])
    return Estimate(float(statistic(*columns)), float(low), float(high))


def _mean(x: FloatArray) -> FloatArray:
    return x.mean(axis=-1)


def mean(sample: ArrayLike) -> Estimate:
    """Return the mean of runs (S,) with its interval."""
    return bootstrap(_mean, sample)


def difference(agent: ArrayLike, other: ArrayLike) -> Estimate:
    """Return the mean paired difference agent − other of runs (S,) with its interval."""
    return bootstrap(lambda a, b: _mean(a - b), agent, other)


def ratio(agent: ArrayLike, other: ArrayLike) -> Estimate:
    """Return the mean of runs (S,) as a share of another's mean, paired, with its interval."""
    return bootstrap(lambda a, b: _mean(a) / _mean(b), agent, other)


def score(agent: ArrayLike, random: ArrayLike, reference: ArrayLike) -> Estimate:
    """Return (agent − random)/(reference − random) of mean rewards, runs (S,) paired.

    Shares of the reference flatter every agent, since drawing at random already earns most of
    it; this is 0 for random and 1 for the reference. `UNKNOWN` where reference and random
    cannot be told apart.
    """
    gap = difference(reference, random)
    if gap.low <= 1e-9 * abs(float(np.mean(np.asarray(reference)))):
        return UNKNOWN

    def ratio(a: FloatArray, r: FloatArray, w: FloatArray) -> FloatArray:
        floor = r.mean(axis=-1)
        return (a.mean(axis=-1) - floor) / (w.mean(axis=-1) - floor)

    return bootstrap(ratio, agent, random, reference)
