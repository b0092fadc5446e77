"""Content that is drawn when a source is crawled: work per crawl, not per source and step.

Items arrive as a Poisson process of constant rate and decay exponentially. Time is divided into
blocks of 2^k steps, where k depends on the arrival rate alone, such that a block of a source has
about `PER_BLOCK` items. All items of a block are drawn from a stream of random numbers that is
determined by (seed, source, block). So the items of an interval of steps are the same whichever
policy asks for them, and in whatever order; those of two adjacent intervals are the items of both.

A total that is drawn at once, as in the dense world, could not be divided between two intervals.
Blocks of one step are never divided: where items of exponential utility decay slowly, their number
and total are drawn at once.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crawl_env.compiled import compiled, inlined
from crawl_env.content.draws import (
    Stream,
    exponential,
    gamma,
    gamma_from_one,
    normal,
    poisson,
    uniform,
)
from crawl_env.content.totals import FADED
from crawl_env.content.utility import (
    Distribution,
    EqualUtilities,
    Exponential,
    Gamma,
    Lognormal,
    make_distribution,
)
from crawl_env.errors import check_whole, shown
from crawl_env.fleet.columns import FleetColumns
from crawl_env.numerics import BoolArray, FloatArray

Steps = NDArray[np.int64]

NEVER = np.iinfo(np.int64).min  # as the step of the last crawl: never crawled
PER_BLOCK = 8.0  # expected items of a block, at most, unless a step has more
SLOW = 1.0  # decay per step up to which the total of a step is drawn at once

_CONSTANT, _EXPONENTIAL, _LOGNORMAL, _GAMMA = range(4)
_LONGEST = 30  # a block has at most so many doublings of a step
_ITEMS, _FAILURES = 0, 1  # what a stream is for

_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_MULTIPLY_0, _MULTIPLY_2 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_BUMP_0, _BUMP_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


class CrawlHarvest(NamedTuple):
    """The harvest of crawls."""

    items: NDArray[np.int64]  # (K,) number of new items
    utility: FloatArray  # (K,) their utility at the time of the crawl


class OnDemandContent:
    """The content of a fleet, drawn where and when it is crawled.

    In law it is that of a `World` with `Arrivals(utility=…)`.

    Arguments:
        columns: the fleet.
        utility: the distribution of ξ: "constant", "exponential", "lognormal" or "gamma", or an
            object of one of these kinds, such as `Lognormal(0.5)`.
        seed: of all content and failures.

    Raises:
        ValueError: `utility` is none of these, or the seed is not a whole number from 0 to 2^63.

    >>> content = OnDemandContent(FleetColumns([5.0, 0.5], 1.0, 0.1), seed=1)
    >>> both = content.crawl([0, 1], since=[3, 3], now=10)
    >>> first, second = content.crawl([0, 1], [3, 3], 6), content.crawl([0, 1], [6, 6], 10)
    >>> both.items == first.items + second.items
    array([ True,  True])
    """

    def __init__(
        self,
        columns: FleetColumns,
        utility: str | Distribution = "exponential",
        seed: int = 0,
    ) -> None:
        self.columns, self.seed = columns, check_whole("seed", seed, 0)
        self.utility = make_distribution(utility)
        self._law = _law_of(self.utility)

    def crawl(self, sources: ArrayLike, since: ArrayLike, now: int) -> CrawlHarvest:
        """Return the harvest of crawls at step `now`.

        Arguments:
            sources: their numbers, (K,).
            since: the step of the last crawl of each, (K,), below `now`, or `NEVER`; content of
                the steps since + 1, …, now is collected. A source never crawled has the items of
                the last 37 time constants; older ones have no utility.
            now: the step.

        Raises:
            ValueError: there is no such source, a step is not a whole number, or the last crawl is
                not before `now`.
        """
        which, columns = self._numbers(sources), self.columns
        last, now = np.asarray(since), _step_of(now)
        if last.shape != which.shape or (last.size and last.dtype.kind not in "iu"):
            raise ValueError(
                f"since has shape {last.shape} and dtype {last.dtype}; give one step for each of "
                f"the {which.size} sources"
            )
        if last.size and last.max() >= now:
            raise ValueError(f"since reaches {last.max()}; it must be before the crawls, at {now}")
        # Gathered first, so that the reads of memory overlap.
        rate = columns.arrival_rate[which] * np.float64(columns.period)
        decay = columns.decay_rate[which] * np.float64(columns.period)
        worth = columns.mean_utility[which].astype(np.float64)
        steps = last.astype(np.int64)
        harvest = CrawlHarvest(np.empty(which.size, np.int64), np.empty(which.size))
        _collect(which, steps, now, rate, decay, worth, self.seed, *self._law, *harvest)
        return harvest

    def fails(self, sources: ArrayLike, now: int) -> BoolArray:
        """Return whether a crawl of each source at step `now` fails, (K,).

        Raises:
            ValueError: there is no such source, or `now` is not a whole number.
        """
        which, rates = self._numbers(sources), self.columns.failure_rate
        failures = np.zeros(which.size, dtype=np.bool_)
        if rates is not None:
            _draw_failures(which, _step_of(now), rates[which], self.seed, failures)
        return failures

    def _numbers(self, sources: ArrayLike) -> NDArray[np.intp]:
        """Return the numbers of sources, (K,), of which there are such sources."""
        which, n = np.asarray(sources), len(self.columns)
        if which.ndim != 1 or (which.size and which.dtype.kind not in "iu"):
            raise ValueError(
                f"sources has shape {which.shape} and dtype {which.dtype}; give the numbers of "
                "sources, (K,)"
            )
        if which.size and not (which.min() >= 0 and which.max() < n):
            raise ValueError(
                f"sources reach from {which.min()} to {which.max()}; they are numbered from 0 to "
                f"{n - 1}"
            )
        return which.astype(np.intp)


def _step_of(now: object) -> int:
    """Return the number of a step."""
    if not isinstance(now, Integral) or not abs(int(now)) < 2**62:
        raise ValueError(f"now is {shown(now)}; it must be a whole number of steps")
    return int(now)


def _law_of(utility: Distribution) -> tuple[int, float]:
    """Return the number of a law, and its parameter."""
    if isinstance(utility, EqualUtilities):
        return _CONSTANT, 0.0
    if isinstance(utility, Exponential):
        return _EXPONENTIAL, 0.0
    if isinstance(utility, Lognormal):
        return _LOGNORMAL, utility.sigma
    if isinstance(utility, Gamma):
        return _GAMMA, utility.shape
    raise ValueError(
        f"the distribution of utility is {utility!r}; content on demand has constant, exponential, "
        "lognormal and gamma utility"
    )


@compiled
def philox(
    c0: np.uint64, c1: np.uint64, c2: np.uint64, c3: np.uint64, key: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Return Philox4x32-10 of a counter of four 32-bit words and a key of 64 bits: four words.

    Salmon, Moraes, Dror & Shaw (2011), Parallel random numbers: as easy as 1, 2, 3.
    """
    k0, k1 = key & _LOW, key >> _HALF
    for _ in range(10):
        p, q = _MULTIPLY_0 * c0, _MULTIPLY_2 * c2
        c0, c1, c2, c3 = (q >> _HALF) ^ c1 ^ k0, q & _LOW, (p >> _HALF) ^ c3 ^ k1, p & _LOW
        k0, k1 = (k0 + _BUMP_0) & _LOW, (k1 + _BUMP_1) & _LOW
    return c0, c1, c2, c3


@inlined
def _begin(state: Stream, seed: int, source: int, place: int, purpose: int) -> None:
    """Set a stream to its beginning; `place` is the number of a block or step."""
    number = np.int64(place).view(np.uint64)
    high = (np.uint64(source) >> _HALF) | (np.uint64(purpose) << np.uint64(16))
    a, b, c, d = philox(
        np.uint64(source) & _LOW, high & _LOW, number & _LOW, number >> _HALF, np.uint64(seed)
    )
    state[0], state[1] = (a << _HALF) | b, (c << _HALF) | d


@inlined
def _worth(state: Stream, law: int, parameter: float) -> float:
    """Draw ξ / ξ̄."""
    if law == _EXPONENTIAL:
        return exponential(state)
    if law == _LOGNORMAL:
        return math.exp(parameter * normal(state) - 0.5 * parameter * parameter)
    if law == _GAMMA:
        return gamma(state, parameter) / parameter
    return 1.0


@compiled
def doublings(rate: float) -> int:
    """Return k: a block of a source that publishes `rate` items per step has 2^k steps."""
    if rate * 2.0**_LONGEST <= PER_BLOCK:
        return _LONGEST
    return max(0, math.frexp(PER_BLOCK / rate)[1] - 1)


@inlined
def _total_of_step(state: Stream, rate: float, decay: float, loss: float) -> tuple[float, float]:
    """Draw the number of items of a step, and their total utility at its end in units of αξ̄, where
    ξ is exponential; given ΛT, μT and 1 − α.

    As in `crawl_env.content.totals.ExponentialTotals`, the total is Gamma(B). B is a sum over the
    items, each of which counts j times with probability (1 − α)^j/(jμT). Those that count once and
    those that count more often are independent of each other.
    """
    once = rate * (loss / decay)
    number, others = poisson(state, once), poisson(state, max(rate - once, 0.0))
    batches = number
    for _ in range(int(others)):
        j, u, p = 2.0, uniform(state) * (decay - loss), 0.5 * loss * loss
        while u >= p and p > 1e-20:
            u -= p
            p *= loss * j / (j + 1.0)
            j += 1.0
        batches += j
    return number + others, gamma_from_one(state, batches) if batches > 0.0 else 0.0


@compiled
def _collect(
    sources: NDArray[np.intp],
    since: Steps,
    now: int,
    rate: FloatArray,  # ΛT, items / step
    decay: FloatArray,  # μT
    mean: FloatArray,  # ξ̄
    seed: int,
    law: int,
    parameter: float,
    items: NDArray[np.int64],
    utility: FloatArray,
) -> None:
    state = np.empty(2, np.uint64)
    for j in range(sources.size):
        lifetime = FADED / decay[j]
        last = int(since[j])
        if last == NEVER:
            last = now - int(min(math.ceil(lifetime), 2.0**40))
        k = doublings(rate[j])
        steps, length = 1 << k, 2.0**k
        at_once = k == 0 and law == _EXPONENTIAL and decay[j] <= SLOW
        loss = -math.expm1(-decay[j])
        count, total = 0, 0.0
        for block in range(last >> k, ((now - 1) >> k) + 1 if rate[j] > 0.0 else last >> k):
            _begin(state, seed, sources[j], block, _ITEMS)
            if at_once:
                number, worth = _total_of_step(state, rate[j], decay[j], loss)
                count += int(number)
                total = (total + worth) * (1.0 - loss)
                continue
            n = int(poisson(state, rate[j] * length))
            start = float(last - block * steps)  # of the interval, in steps from the block's begin
            end = float(now - block * steps)
            if start <= 0.0 and end - length > lifetime:  # counted only: it has no utility any more
                count += n
                continue
            for _ in range(n):
                time = length * uniform(state)
                worth = _worth(state, law, parameter)
                if start < time <= end:
                    count += 1
                    total += worth * math.exp(-decay[j] * (end - time))
        items[j], utility[j] = count, total * mean[j]


@compiled
def _draw_failures(
    sources: NDArray[np.intp], now: int, rate: NDArray[np.float32], seed: int, failures: BoolArray
) -> None:
    state = np.empty(2, np.uint64)
    for j in range(sources.size):
        _begin(state, seed, sources[j], now, _FAILURES)
        failures[j] = uniform(state) < rate[j]
