"""`FleetScheduler`: which sources to crawl, at a cost per crawl and not per source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.scheduling import age_index
from agents.scheduling import candidates as pool
from agents.scheduling.age_index import NEVER, Parameters
from agents.scheduling.calendar import Calendar
from agents.scheduling.candidates import Candidates, Crawls
from crawl_env.errors import check_choice, check_positive, check_range, check_whole
from crawl_env.numerics import BoolArray, FloatArray, IntArray
from crawl_env.simulation.selection import TOLERANCE

POLICIES = {
    "whittle": age_index.WHITTLE,
    "myopic": age_index.MYOPIC,
    "static": age_index.STATIC,
    "oldest-first": age_index.AGE,
}
STARTS = ("fresh", "empty", "full", "random")
_SAMPLE = 2**16  # sources whose indices estimate those of the fleet
_FEW = 8  # sources of the sample, at least, that are at the new level
_LEAST_ROOM = 1024  # candidates
_BISECTIONS = 40  # of the multiplier of "static"
_BLOCK = 2**20  # sources set at a time
_LAST_STEP = 2**32 - 2 * NEVER
_NO_MASK = np.zeros(0, dtype=bool)


class Columns(Protocol):
    """The parameters of a fleet, as `crawl_env.fleet` has them; arrays may be memory-mapped."""

    @property
    def arrival_rate(self) -> NDArray[Any]: ...
    @property
    def mean_utility(self) -> NDArray[Any]: ...
    @property
    def decay_rate(self) -> NDArray[Any]: ...
    @property
    def cost(self) -> NDArray[Any] | None: ...
    @property
    def period(self) -> float: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Offers:
    """Keys of candidates, best first, (K,) each.

    The best candidate is that of largest index, then of earliest crawl, then of lowest number.
    """

    index: FloatArray
    crawled_at: NDArray[np.uint32]
    source: NDArray[np.uint32]


class FleetScheduler:
    """Selects the sources to crawl in every step, at a cost that does not depend on their number.

    The index of a source that is not observed rises from crawl to crawl and depends on its age
    alone. A calendar has the step in which every source will reach a level, slightly below the
    index of the last source that is crawled. In each step, the sources that are due join the
    candidates, whose indices are computed, and the best of them are crawled. Selections are exactly
    those of the same policy that computes all N indices in every step: the budget's worth of
    sources of largest index, ties going to the source crawled longer ago, then to the lower number.

    Arguments:
        columns: the fleet's parameters, a `FleetColumns` or `Sources` of N < 2³² sources.
        budget: M, number of crawls per step if all cost the same, else budget units.
        policy: "whittle", "myopic", "static" (constant frequencies: the sources whose interval has
            passed by the largest factor) or "oldest-first" (round robin).
        start: when the sources were crawled last: "fresh" (1 step ago), "empty" (now), "full"
            (never), "random" (1 … N/M steps ago, drawn with the seed), or the ages, (N,) steps,
            where 10⁹ or more means never.
        seed: seed of the random draws.

    Attributes:
        steps: number of steps made.
        ages: (K,) steps since the previous crawl of the sources of the last step; 10⁹ or more
            for never.
        price: least index of the sources of the last step, utility / budget unit, the Lagrange
            multiplier of the budget; NaN before the first step.

    Memory beyond the columns: 8.2 bytes a source, and 32 bytes a candidate.

    Raises:
        ValueError: an argument is out of range.

    >>> from crawl_env import Sources
    >>> scheduler = FleetScheduler(Sources.preset("table1"), budget=2)
    >>> [scheduler.step().tolist() for _ in range(4)]
    [[0, 1], [0, 1], [0, 2], [0, 1]]
    """

    def __init__(
        self,
        columns: Columns,
        budget: float,
        policy: str = "whittle",
        *,
        start: str | ArrayLike = "fresh",
        seed: int = 0,
    ) -> None:
        self.n = len(columns)
        if not 0 < self.n < 2**32 - 1:
            raise ValueError(f"the fleet has {self.n} sources; it must have from 1 to 2**32 − 2")
        self.budget = check_positive("budget", budget, "budget units / step")
        self.policy = check_choice("policy", policy, POLICIES)
        self._rng = np.random.default_rng(check_whole("seed", seed, 0))
        self._parameters = _parameters_of(columns, POLICIES[policy])
        self.steps = 0
        self.price = np.nan
        self.ages: NDArray[np.uint32] = np.zeros(0, np.uint32)
        cost = self._parameters.cost
        unit = float(cost.flat[0]) if cost.size else 1.0
        if cost.size and cost.min() != cost.max():
            raise ValueError("the costs of the sources differ; the scheduler needs equal costs")
        self._number = int(min(self.budget * (1 + TOLERANCE) / unit, self.n))
        self._sample = _sampled(self.n, self._rng)
        if self.policy == "static":
            self._parameters = self._parameters._replace(multiplier=self._static_multiplier())
        crawled_at = np.empty(self.n, np.uint32)
        self._crawls = Crawls(crawled_at, np.zeros(0, np.uint32))
        self._set_ages(start)
        self._file_all()

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"FleetScheduler({self.n} sources, budget={self.budget:g}, {self.policy!r})"

    # ----------------------------------------------------------------------------- stepping

    def step(self) -> IntArray:
        """Return the sources crawled in this step, ascending (K,), and go on to the next step."""
        self._prepare(self._number)
        return self._take(self._number)

    def offers(self, k: int) -> Offers:
        """Return the keys of the k best sources, best first; fewer if fewer may be crawled.

        A fleet that is split over several schedulers, each with a part of the sources, is crawled
        exactly as by one: the best of all offers are crawled, by `take` of each scheduler.

        Raises:
            ValueError: k is not a whole number, or negative.
        """
        k = min(check_whole("k", k, 0), self.n)
        self._prepare(k)
        chosen = np.flatnonzero(self._best(k))
        offered = self._candidates
        index, crawled_at = offered.gamma[chosen], offered.crawled_at[chosen]
        source = offered.source[chosen]
        order = np.lexsort((source, crawled_at, -index))
        return Offers(index[order], crawled_at[order], source[order])

    def take(self, n: int) -> IntArray:
        """Crawl the n best of the sources last offered, and go on to the next step.

        Returns the sources crawled, ascending (n,).

        Raises:
            ValueError: n is not a whole number, or fewer sources were offered in this step.
        """
        n = check_whole("n", n, 0)
        if n > self._offered:
            raise ValueError(
                f"n is {n}, and {self._offered} sources were offered in this step; call "
                f"offers({n}) before"
            )
        return self._take(n)

    # ------------------------------------------------------------------------------ reports

    def report(self, *, failed: ArrayLike | None = None) -> None:
        """Report the results of the crawls of the last step, before the next step.

        Arguments:
            failed: (K,) whether each crawl failed: the content of the source stays and its age goes
                on counting.

        Raises:
            ValueError: an array does not have one element per crawl of the last step, or a step was
                prepared since.
        """
        if failed is not None:
            mask = np.array(failed, dtype=bool)
            if mask.shape != (len(self._picks),):
                raise ValueError(
                    f"failed has shape {mask.shape}; give one element for each of the "
                    f"{len(self._picks)} crawls of the last step, before the next step begins"
                )
            self._failed = mask

    # ------------------------------------------------------------------------- construction

    def _static_multiplier(self) -> float:
        """Return the multiplier at which the best constant frequencies spend the budget, judging by
        the sample; 0 if the budget covers all sources at their highest frequencies."""
        budget = self.budget * len(self._sample) / self.n

        def spends(multiplier: float) -> float:
            parameters = self._parameters._replace(multiplier=multiplier)
            return float(pool.spent_by_frequencies(parameters, self._sample))

        if spends(0.0) <= budget:
            return 0.0
        high = 1.0
        while spends(high) > budget:
            high *= 2.0
        low = high
        while spends(low) <= budget:
            low /= 2.0
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if spends(middle) > budget else (low, middle)
        return high

    def _set_ages(self, start: str | ArrayLike) -> None:
        crawled_at = self._crawls.crawled_at
        if isinstance(start, str):
            check_choice("start", start, STARTS)
            if start == "random":
                longest = int(min(np.ceil(self.n / self.budget), NEVER - 1))
                for first in range(0, self.n, _BLOCK):
                    part = crawled_at[first : first + _BLOCK]
                    part[:] = NEVER - self._rng.integers(1, longest + 1, len(part))
            else:
                crawled_at[:] = {"fresh": NEVER - 1, "empty": NEVER, "full": 0}[start]
            return
        ages = np.asarray(start)
        if ages.shape != (self.n,) or ages.dtype.kind not in "iuf":
            raise ValueError(
                f"start has shape {ages.shape} and dtype {ages.dtype}; give one of "
                f"{', '.join(STARTS)}, or the ages of the {self.n} sources in steps"
            )
        for first in range(0, self.n, _BLOCK):
            given = ages[first : first + _BLOCK].astype(np.float64)
            check_range("age", given, low=0.0, finite=False, whole=True)
            crawled_at[first : first + _BLOCK] = NEVER - np.minimum(given, NEVER)

    def _file_all(self) -> None:
        """Enter all sources into a new calendar."""
        self._calendar = Calendar.empty(self.n)
        self._candidates = Candidates.empty(min(_LEAST_ROOM, self.n + 64))
        self._picks = Candidates.empty(0)
        self._failed = _NO_MASK
        self._prepared = False
        self._offered = 0
        self._reserve = 0.0
        self._demand = self._number
        self._level = self._level_for(self._target())
        first = 0
        while first < self.n:
            self._make_room()
            first = pool.file_range(*self._arrays, first, self.n, self._now, self._level)

    # ----------------------------------------------------------------------------- the step

    @property
    def _now(self) -> int:
        """The step on the scheduler's clock, on which 0 is the crawl of a source never crawled."""
        return NEVER + self.steps

    @property
    def _arrays(self) -> tuple[Parameters, Crawls, Calendar, Candidates]:
        return self._parameters, self._crawls, self._calendar, self._candidates

    def _prepare(self, demand: int) -> None:
        """Make the `demand` best sources candidates, with their indices."""
        self._demand = demand
        if not self._prepared:
            self._settle()
            pool.set_index(self._parameters, self._candidates, 0, self._now)
            for turn in range(3):
                pool.detach_of_step(self._calendar, self._now, turn)
                while not pool.file_detached(*self._arrays, self._now, self._level):
                    self._make_room()
            self._prepared = True
        self._supply(demand)
        self._offered = min(demand, len(self._candidates))

    def _settle(self) -> None:
        """File the sources crawled in the last step."""
        number = len(self._picks)
        if number:
            self._room_for(number)
            picks, failed = self._picks, self._failed
            pool.file_picks(*self._arrays, picks, failed, False, self._now, self._level)
            self._failed = _NO_MASK

    def _supply(self, demand: int) -> None:
        """Lower the level until `demand` candidates reach it, or raise it if they are many."""
        while self._level > 0 and self._at_level() < demand:
            self._lower()
        if len(self._candidates) > self._limit():
            self._raise()
        self._reserve *= 1.0 - 1.0 / (2.0 + self.n / max(demand, 1))

    def _at_level(self) -> int:
        index = self._candidates.gamma[: len(self._candidates)]
        return int(np.count_nonzero(index >= self._level))

    def _take(self, n: int) -> IntArray:
        """Crawl the n best candidates."""
        chosen = self._best(n)
        number = int(np.count_nonzero(chosen))
        if len(self._picks.source) < number:
            self._picks = Candidates.empty(number)
        picks = self._picks
        if number:
            self.price = float(self._candidates.gamma[: len(chosen)][chosen].min())
        pool.remove(self._candidates, chosen, picks)
        _sort(picks)
        self.ages = (self._now - picks.crawled_at[:number].astype(np.int64)).astype(np.uint32)
        pool.mark_tried(self._crawls, picks, self._now)
        self.steps += 1
        if self.steps >= _LAST_STEP:
            raise OverflowError(f"the scheduler has made {_LAST_STEP} steps, the most that it can")
        self._prepared, self._offered = False, 0
        return picks.source[:number].astype(np.intp)

    def _best(self, k: int) -> BoolArray:
        """Return which candidates are the k best."""
        count = len(self._candidates)
        index = self._candidates.gamma[:count]
        if k >= count:
            return np.ones(count, dtype=bool)
        if k == 0:
            return np.zeros(count, dtype=bool)
        threshold = np.partition(index, count - k)[count - k]
        chosen = index >= threshold
        extra = int(np.count_nonzero(chosen)) - k
        if extra:
            tied = np.flatnonzero(index == threshold)
            key = self._candidates.crawled_at[tied].astype(np.uint64) << np.uint64(32)
            key |= self._candidates.source[tied]
            left = len(tied) - extra
            chosen[tied[key >= np.partition(key, left)[left]]] = False
        return chosen

    # ---------------------------------------------------------------------------- the level

    def _target(self) -> int:
        """The number of candidates wanted."""
        return int(2 * self._demand + self._reserve) + 1

    def _limit(self) -> int:
        """The number of candidates above which the coldest are put back."""
        return 2 * self._target() + _LEAST_ROOM

    def _level_for(self, target: int) -> float:
        """Return the level that about `target` sources reach now, judging by a sample."""
        if target >= self.n:
            return 0.0
        index = pool.indices_of(self._parameters, self._crawls, self._sample, self._now)
        place = int(np.ceil(target / self.n * len(index)))
        place = min(max(place, min(_FEW, len(index))), len(index))
        return float(np.partition(index, len(index) - place)[len(index) - place])

    def _lower(self) -> None:
        """Lower the level, and make candidates of all sources that reach the new one."""
        wanted = self._target()
        lower = self._level_for(wanted)
        while not lower < self._level:
            wanted *= 2
            lower = self._level_for(wanted)
        self._level = lower
        self._reserve = min(
            max(2 * self._reserve, self._demand), np.sqrt(8.0 * self.n * self._demand)
        )
        while not pool.sweep(*self._arrays, self._now, self._level):
            self._make_room()

    def _raise(self) -> None:
        """Raise the level, and return the coldest candidates to the calendar."""
        count, kept = len(self._candidates), self._target()
        index = self._candidates.gamma[:count]
        level = float(np.partition(index, count - kept)[count - kept])
        if level > self._level:
            self._level = level
            pool.file_again(*self._arrays, self._now, level)
            self._reserve /= 2.0

    def _make_room(self) -> None:
        """Make room for more candidates."""
        if len(self._candidates) > self._limit():
            self._raise()
        if len(self._candidates) * 2 > len(self._candidates.source):
            self._room_for(len(self._candidates.source))

    def _room_for(self, number: int) -> None:
        """Make room for so many more candidates."""
        needed = len(self._candidates) + number
        if needed > len(self._candidates.source):
            self._candidates = self._candidates.with_room(needed + needed // 4)


def _parameters_of(columns: Columns, kind: int) -> Parameters:
    """Return the columns that the index needs."""
    rate = np.asarray(columns.arrival_rate)
    none = np.zeros(0, rate.dtype)
    cost = _varying(columns.cost, 1.0, rate.dtype)
    failure_rate = _varying(getattr(columns, "failure_rate", None), 0.0, rate.dtype)
    delay = _varying(getattr(columns, "delay", None), 1.0, np.dtype(np.uint32))
    return Parameters(
        rate,
        np.asarray(columns.mean_utility),
        np.asarray(columns.decay_rate),
        none if cost is None else cost,
        none if failure_rate is None else failure_rate,
        np.zeros(0, np.uint32) if delay is None else delay,
        kind,
        float(columns.period),
        0.0,
    )


def _varying(column: Any, default: float, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return an optional column in this type, or None if it holds nothing but the default."""
    if column is None:
        return None
    array = np.asarray(column)
    if array.min() == default == array.max():
        return None
    return array.astype(dtype, copy=False)


def _sampled(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the numbers of some sources, ascending; of all in a small fleet."""
    if n <= _SAMPLE:
        return np.arange(n)
    return np.sort(rng.integers(n, size=_SAMPLE))


def _sort(picks: Candidates) -> None:
    """Sort picks by source."""
    count = len(picks)
    key = picks.source[:count].astype(np.uint64) << np.uint64(32)
    key |= np.arange(count, dtype=np.uint64)
    key.sort()
    order = (key & np.uint64(2**32 - 1)).astype(np.intp)
    for array in picks.columns:
        array[:count] = array[:count][order]
