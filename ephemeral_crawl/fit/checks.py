"""Tests of the assumptions of the model, for every source of a log.

Each returns a statistic (N,) and its p-value (N,) under the assumption; NaN if a source has too few
items. The tests are specific: gaps are adjusted for the daily cycle, and bursts do not count as
drift or cycle. Sources are tested over their lives, where these are given. `failing` controls the
false discovery rate over the sources. Memory and time depend on the number of items, not on the
time that the log covers.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm
from tqdm import tqdm

from crawl_env import ItemLog
from crawl_env.log.clock import HOURS
from crawl_env.numerics import FloatArray, distinct
from ephemeral_crawl.fit.lives import Lives, throughout

NEEDED = 10  # items below which a source is not tested
LEVEL = 0.05
_FEW, _MANY = 999, 19_999  # simulations: at first, and if these are inconclusive


class Check(NamedTuple):
    """A test statistic and its p-value for each of N sources."""

    statistic: FloatArray  # (N,)
    p: FloatArray  # (N,)


def day(log: ItemLog) -> float:
    """Return the length of a day in the log's unit of time."""
    return 24.0 / HOURS[log.unit]


def failing(p: FloatArray) -> NDArray[np.bool_]:
    """Return which tests reject at a false discovery rate of `LEVEL` (Benjamini and Hochberg
    1995). NaN means not tested, and is not rejected.

    >>> failing(np.array([0.01, 0.04, 0.02, 0.5, np.nan]))
    array([ True, False,  True, False, False])
    """
    places = np.flatnonzero(~np.isnan(p))
    order = places[np.argsort(p[places])]
    below = p[order] <= LEVEL * np.arange(1, order.size + 1) / max(order.size, 1)
    fails = np.zeros(p.size, dtype=bool)
    if below.any():
        fails[order[: np.flatnonzero(below)[-1] + 1]] = True
    return fails


def dispersion(log: ItemLog, seed: int = 0, alive: Lives | None = None) -> Check:
    """Fano factor of the daily counts, variance / mean: 1 for a Poisson process, above for bursts.

    Given their number n, items of a Poisson process fall on the days independently; p is from
    simulations of that, two-sided.
    """
    rng = np.random.default_rng(seed)
    alive = alive or throughout(log)
    days = (alive.span / day(log) + 1e-9).astype(np.intp)  # the last day may be cut short
    fano, p = _nothing(log), _nothing(log)
    day_of = np.floor((log.published - alive.start[log.source]) / day(log)).astype(np.intp)
    whole = alive.inner & (day_of < days[log.source])
    # Shown on a terminal alone.
    bar = tqdm(log.by_source(), "dispersion", unit="source", leave=False, disable=None)
    for i, items in enumerate(bar):
        counts = np.unique(day_of[items[whole[items]]], return_counts=True)[1]
        n, squares = int(counts.sum()), int((counts**2).sum())
        if n >= NEEDED and days[i] > 1:
            variance = (squares - n**2 / days[i]) / (days[i] - 1)
            fano[i] = variance / (n / days[i])
            p[i] = _dispersion_p(squares, n, int(days[i]), rng)
    return Check(fano, p)


def _dispersion_p(squares: int, n: int, days: int, rng: np.random.Generator) -> float:
    mean = n + n * (n - 1) / days
    if n > 20 * days:  # many items a day: the classical approximation is right
        index = (days / n) * squares - n
        return float(2 * min(chi2.sf(index, days - 1), chi2.cdf(index, days - 1)))
    p = 1.0
    for size in (_FEW, _MANY):
        samples = _squares(n, days, size, rng)
        extreme = (samples >= squares) if squares > mean else (samples <= squares)
        p = min(1.0, 2 * (1 + int(extreme.sum())) / (size + 1))
        if p > LEVEL:
            break
    return p


def _squares(n: int, days: int, size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return Σ counts² over the days of `size` simulations of n items."""
    few = days > 4 * n  # items: they are sorted, so that memory does not depend on the days
    parts, at_once = [], max(1, int(2e5) // (n if few else n + days))  # what a cache holds
    for first in range(0, size, at_once):
        batch = min(at_once, size - first)
        day_of = rng.integers(0, days, (batch, n))
        if few:
            day_of.sort(axis=1)
            place = np.arange(n)
            begins = np.diff(day_of, axis=1, prepend=-1) > 0
            before = place - np.maximum.accumulate(np.where(begins, place, 0), axis=1)
            parts.append((2 * before + 1).sum(axis=1))  # the first c odd numbers add up to c²
        else:
            cell = day_of + np.arange(batch)[:, None] * days
            counts = np.bincount(cell.ravel(), minlength=batch * days).reshape(batch, days)
            parts.append(np.einsum("ij,ij->i", counts, counts))
    return np.concatenate(parts)


def resolution(log: ItemLog) -> float:
    """Return how finely time was recorded: 0, or about the time between two snapshots.

    Where more than one item in twenty shares its moment with another, the log comes from looking
    now and then; the lower quartile of the steps between moments is about one look.
    """
    moments = distinct(log.published)
    if len(moments) > 0.95 * len(log) or len(moments) < 2:
        return 0.0
    return float(np.quantile(np.diff(moments), 0.25))


def operational_times(log: ItemLog, seed: int = 0) -> FloatArray:
    """Return the times (n,) as the fleet's own clock shows them, in days: it runs fast in the busy
    hours and slow in the quiet ones, so that the fleet's daily cycle is taken out. Moments that
    were recorded coarsely are spread over the time since the look before."""
    rng = np.random.default_rng(seed)
    exact = log.published - resolution(log) * rng.random(len(log))
    whole = np.floor(exact / day(log))
    hours = (exact / day(log) - whole) * 24
    profile = np.bincount(hours.astype(np.intp) % 24, minlength=24) + 1.0
    fraction = np.concatenate(([0.0], np.cumsum(profile) / profile.sum()))
    return whole + np.interp(hours, np.arange(25), fraction)


def scaled_gaps(times: FloatArray) -> FloatArray:
    """Return the gaps between times over their mean, sorted."""
    gaps = np.sort(np.diff(np.sort(times)))
    return gaps / gaps.mean() if gaps.size and gaps.mean() > 0 else np.zeros(0)


def gaps(log: ItemLog, seed: int = 0) -> Check:
    """Kolmogorov–Smirnov distance of the gaps between items from the exponential distribution with
    their mean, once the fleet's daily cycle is taken out (`operational_times`).

    The mean being estimated, p is Lilliefors' (1969): from simulations, with Stephens' (1974)
    correction for the number of gaps.
    """
    times = operational_times(log, seed)
    distance, p = _nothing(log), _nothing(log)
    for i, items in enumerate(log.by_source()):
        sample = scaled_gaps(times[items])
        if sample.size >= NEEDED - 1:
            distance[i] = _distance(sample)
            p[i] = _lilliefors_p(_stephens(distance[i], sample.size))
    return Check(distance, p)


def _distance(sample: FloatArray) -> float:
    """Return the distance of sorted gaps of mean 1, (…, n), from the exponential distribution."""
    n = sample.shape[-1]
    cdf, steps = -np.expm1(-sample), np.arange(n + 1) / n
    return np.maximum(steps[1:] - cdf, cdf - steps[:-1]).max(axis=-1)


def _stephens(distance: float | FloatArray, n: int) -> float | FloatArray:
    return (distance - 0.2 / n) * (np.sqrt(n) + 0.26 + 0.5 / np.sqrt(n))


@cache
def _null() -> FloatArray:
    draws = np.sort(np.random.default_rng(0).standard_exponential((_MANY, 100)), axis=1)
    return np.sort(_stephens(_distance(draws / draws.mean(axis=1, keepdims=True)), 100))


def _lilliefors_p(statistic: float | FloatArray) -> float:
    larger = _MANY - int(np.searchsorted(_null(), statistic))
    return (1 + larger) / (_MANY + 1)


def drift(log: ItemLog, bunching: FloatArray | float = 1.0, alive: Lives | None = None) -> Check:
    """Items in the second half of the time over those in the first, and Laplace's test of a trend:
    under a constant rate, the mean of n times is normal around the middle.

    bunching: (N,) variance / mean of counts; items in bursts speak for as many fewer.
    """
    alive = alive or throughout(log)
    source, n = log.source[alive.inner], alive.counts(log)
    place = (log.published[alive.inner] - alive.start[source]) / alive.span[source]
    late = np.bincount(source, place >= 0.5, len(n))
    mean = np.bincount(source, place, len(n)) / np.maximum(n, 1)
    p = 2 * norm.sf(np.abs(mean - 0.5) * np.sqrt(12 * n / np.fmax(bunching, 1.0)))
    return _check(n, (late + 0.5) / (n - late + 0.5), p)


def cycle(log: ItemLog, bunching: FloatArray | float = 1.0) -> Check:
    """Strength 0 … 1 of the daily cycle, and Rayleigh's test of it: the length of the mean of the
    items' directions on the clock (p by Zar's formula).

    bunching: (N,) variance / mean of counts; items in bursts speak for as many fewer.
    """
    n = log.counts
    angle = 2 * np.pi / day(log) * log.published
    east, north = (np.bincount(log.source, x, len(n)) for x in (np.cos(angle), np.sin(angle)))
    length = np.hypot(east, north) / np.maximum(n, 1)
    m = n / np.fmax(bunching, 1.0)
    p = np.exp(np.sqrt(1 + 4 * m + 4 * m**2 * (1 - length**2)) - (1 + 2 * m))
    return _check(n, length, np.minimum(p, 1.0))


def busiest_over_quietest(
    log: ItemLog, bins: int, days: int = 1
) -> tuple[FloatArray, float, float]:
    """Return the fleet's items per bin (bins,) of a cycle of so many days, the ratio of the largest
    to the smallest, and its standard error by a bootstrap over whole cycles."""
    length = days * day(log)
    turn = np.floor(log.published / length).astype(np.intp)
    place = np.floor((log.published / length - turn) * bins).astype(np.intp) % bins
    cycles = int(turn.max() - turn.min()) + 1
    row = np.unique(turn, return_inverse=True)[1]  # of the cycles with items
    table = np.bincount(row * bins + place, minlength=(row.max() + 1) * bins).reshape(-1, bins)
    chances = np.full(len(table), 1 / cycles)
    if len(table) < cycles:
        chances = np.append(chances, 1 - chances.sum())
    rng = np.random.default_rng(0)
    times = rng.multinomial(cycles, chances, 500)[:, : len(table)] @ table
    ratios = times.max(axis=1) / np.maximum(times.min(axis=1), 1)
    counts = table.sum(axis=0)
    return counts, float(counts.max() / max(counts.min(), 1)), float(ratios.std(ddof=1))


def _check(n: NDArray[np.intp], statistic: FloatArray, p: FloatArray) -> Check:
    enough = n >= NEEDED
    return Check(np.where(enough, statistic, np.nan), np.where(enough, p, np.nan))


def _nothing(log: ItemLog) -> FloatArray:
    return np.full(len(log.names), np.nan)
