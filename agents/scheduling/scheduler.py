"""`FleetScheduler`: which sources to crawl, at a cost per crawl and not per source."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.scheduling import age_index
from agents.scheduling import candidates as pool
from agents.scheduling.age_index import NEVER, Columns, Parameters, parameters_of
from agents.scheduling.calendar import BATCH, ENTRIES, Calendar
from agents.scheduling.candidates import Candidates, Crawls
from agents.scheduling.signals import Signals, receive
from agents.theory.price import first_near
from crawl_env.errors import (
    as_array,
    brief,
    check_choice,
    check_non_negative,
    check_positive,
    check_range,
    check_whole,
    shown,
)
from crawl_env.files.arrays import Array, blamed, check_arrays, read_archive
from crawl_env.files.atomic import atomic_file
from crawl_env.numerics import BoolArray, FloatArray, IntArray
from crawl_env.simulation.selection import BALANCE_TOLERANCE, TOLERANCE

POLICIES = {
    "whittle": age_index.WHITTLE,
    "myopic": age_index.MYOPIC,
    "static": age_index.STATIC,
    "oldest-first": age_index.AGE,
}
BUDGET_RULES = ("step", "average")
STARTS = ("fresh", "empty", "full", "random")
_SAMPLE = 2**16  # sources whose indices estimate those of the fleet
_FEW = 8  # sources of the sample, at least, that are at the new level
_LEAST_ROOM = 1024  # candidates
_MOST_ENTRIES = 1.5  # in the calendar, per source: if costs differ, a source can have several
_TOLERANCE = 2.0**-40  # of multipliers
_BLOCK = 2**20  # sources set at a time
_LAST_STEP = 2**32 - 2 * NEVER
_NO_MASK = np.zeros(0, dtype=bool)
_NO_STEPS = np.zeros(0, np.uint32)
_STEPS = Array(np.int64, (), 0, _LAST_STEP - 1)
_LATER = "later"  # start of a scheduler whose state is set next
# What arguments raise that are none of a scheduler.
_DAMAGED = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)


# Signals that no step has looked at yet: sources, expected utility, steps, (K,) each.
Received = tuple[NDArray[np.uint32], FloatArray, NDArray[np.int64]]


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
    those of the same policy that computes all N indices in every step, as the environments select:
    the sources of largest index within the budget, ties going to the source crawled longer ago,
    then to the lower number; crawl delays and the limits of hosts are kept.

    Arguments:
        columns: the fleet's parameters, a `FleetColumns` or `Sources` of N < 2³² sources.
        budget: M, budget units / step.
        policy: "whittle", "myopic", "static" (constant frequencies: the sources whose interval has
            passed by the largest factor) or "oldest-first" (round robin).
        start: when the sources were crawled last: "fresh" (1 step ago), "empty" (now), "full"
            (never), "random" (1 … N/M steps ago, drawn with the seed), or the ages, (N,) steps,
            where 10⁹ or more means never.
        budget_rule: "step", or "average" for a token bucket: sources whose index reaches the
            multiplier are crawled while the balance is positive.
        multiplier: λ, utility / budget unit, under the rule "average"; default: that at which the
            crawls cost M per step on average, judging by 65,536 sources.
        per_host: limit of the crawls of one host in one step; default: none.
        seed: seed of the random draws.

    Attributes:
        steps: number of steps made.
        ages: (K,) steps since the previous crawl of the sources of the last step; 10⁹ or more
            for never.
        price: least index of the sources of the last step, utility / budget unit, the Lagrange
            multiplier of the budget; NaN before the first step.
        balance: budget units that can be spent now, under the rule "average".

    Memory beyond the columns: 8.2 bytes a source (8 more if costs differ, and 4 for the last
    attempt, if crawls fail and there are delays), and 40 bytes a candidate. The time per crawl
    grows with the candidates, of which there are about twice as many as crawls; there are more if
    hosts admit fewer sources than the budget, since sources that are held up by their host remain
    candidates: in the extreme all N.

    Raises:
        ValueError: an argument is out of range.

    >>> from crawl_env import Sources
    >>> from crawl_env.fleet.columns import FleetColumns
    >>> fleet = FleetColumns.of(Sources.preset("table1"))
    >>> scheduler = FleetScheduler(fleet, budget=2)
    >>> [scheduler.step().tolist() for _ in range(4)]
    [[0, 1], [0, 1], [0, 2], [0, 1]]
    """

    policies: ClassVar[Mapping[str, int]] = POLICIES
    _crawls: Crawls
    _received: list[Received]

    def __init__(
        self,
        columns: Columns,
        budget: float,
        policy: str = "whittle",
        *,
        start: str | ArrayLike = "fresh",
        budget_rule: str = "step",
        multiplier: float | None = None,
        per_host: int | None = None,
        seed: int = 0,
    ) -> None:
        check_columns(columns)
        self.n = len(columns)
        if not 0 < self.n < 2**32 - 1:
            raise ValueError(f"the fleet has {self.n} sources; it must have from 1 to 2**32 − 2")
        self.budget = check_positive("budget", budget, "budget units / step")
        self.policy = check_choice("policy", policy, self.policies)
        self.budget_rule = check_choice("budget_rule", budget_rule, BUDGET_RULES)
        self._seed = check_whole("seed", seed, 0)
        self._rng = np.random.default_rng(self._seed)
        self._draw_seed = int(self._rng.integers(2**63))
        self._sample = _sampled(self.n, self._rng)
        self._parameters = self._bind(columns)
        self._host, self._per_host = self._hosts_of(columns, per_host)
        self._set_budget(multiplier)
        self.steps = 0
        self.price = np.nan
        self.ages: NDArray[np.uint32] = np.zeros(0, np.uint32)
        if isinstance(start, str) and start == _LATER:
            return
        crawled_at = np.empty(self.n, np.uint32)
        self._set_ages(crawled_at, start)
        self._begin(crawled_at, crawled_at.copy() if self._keeps_attempts else _NO_STEPS)
        self._file_all(_NO_STEPS, None)

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n} sources, budget={self.budget:g}, {self.policy!r})"

    # ----------------------------------------------------------------------------- stepping

    def step(self) -> IntArray:
        """Return the sources crawled in this step, ascending (K,), and go on to the next step."""
        if self._is_plain:
            self._prepare(self._number)
            return self._take(self._best(self._number))
        if self.budget_rule == "average":
            empty = self.budget * BALANCE_TOLERANCE
            most = np.ceil(max((self.balance + empty) / self._least_cost, 0.0))
            self._prepare(int(min(most, 2 * self._number + 1, self.n)))
        else:
            self._prepare(self._number)
        mask = self._choose()
        picks = self._take(mask)
        if self.budget_rule == "average":
            cost = self._parameters.cost
            spending = float(cost[picks].sum(dtype=np.float64)) if cost.size else float(len(picks))
            self.balance += self.budget - spending
        return picks

    def offers(self, k: int) -> Offers:
        """Return the keys of the k best sources, best first; fewer if fewer may be crawled.

        A fleet that is split over several schedulers, each with a part of the sources, is crawled
        exactly as by one: the best of all offers are crawled, by `take` of each scheduler.

        Raises:
            ValueError: k is not a whole number, or negative; costs differ, hosts are limited or the
                budget is a token bucket.
        """
        if not self._is_plain:
            raise ValueError(
                "offers are known for equal costs, budget_rule='step' and hosts without limits; "
                "use step()"
            )
        k = min(check_whole("k", k, 0), self.n)
        self._prepare(k)
        places = np.flatnonzero(self._best(k))
        candidates = self._candidates
        index, crawled_at = candidates.gamma[places], candidates.crawled_at[places]
        source = candidates.source[places]
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
        if not self._prepared:
            self._prepare(0)
        return self._take(self._best(n))

    def report(self, *, failed: ArrayLike | None = None) -> None:
        """Report the results of the crawls of the last step, before the next step.

        Arguments:
            failed: (K,) whether each crawl failed: the content of the source stays and its age goes
                on counting.

        Raises:
            ValueError: there is not one boolean per crawl of the last step, or a step was prepared
                since.
        """
        if failed is not None:
            array = self._per_crawl("failed", failed)
            if array.size and array.dtype != bool:
                raise ValueError(
                    f"failed has dtype {array.dtype}; give True for each crawl that failed and "
                    "False for the others"
                )
            self._failed = array.astype(bool)

    def signal(self, sources: ArrayLike, utility: ArrayLike) -> None:
        """Take note of signals, such as pings of feeds, that items were published at some sources.

        A signal adds expected utility to the belief x of its source, as of the coming step (after
        `offers`, of the step that follows): x = u*(1 − α^k) + e α^s, where e is added s steps ago.
        The index is that of x until a crawl succeeds, which removes e. "whittle" uses Theorem 1
        there, "myopic" x/C; "static" and "oldest-first" depend on the age alone and ignore signals.

        Arguments:
            sources: numbers of the sources, (K,); a source may have several signals.
            utility: expected utility that each adds, (K,) or one number: for pings of precision p,
                p ξ̄. Items that no ping announces are those of `arrival_rate`.

        Memory: 20 bytes a source from the first signal on, of which 16 are taken where there are
        signals.

        Raises:
            ValueError: there is no such source, or a utility is negative or not finite.

        >>> from crawl_env import Sources
        >>> from crawl_env.fleet.columns import FleetColumns
        >>> scheduler = FleetScheduler(FleetColumns.of(Sources.preset("table1")), budget=1)
        >>> scheduler.signal([3], 900.0)
        >>> scheduler.step().tolist(), scheduler.step().tolist()
        ([3], [0])
        """
        which = as_array("sources", sources).reshape(-1)
        check_range("sources", which, 0, self.n - 1, whole=True, element="signal")
        amounts = as_array("utility", utility)
        check_range("utility", amounts, 0.0, unit="utility", element="signal")
        if amounts.shape not in ((), which.shape):
            raise ValueError(
                f"utility has shape {amounts.shape}; give one number, or one for each of the "
                f"{len(which)} signals"
            )
        if which.size and self._parameters.kind in (age_index.WHITTLE, age_index.MYOPIC):
            step = np.full(which.shape, self._now + self._prepared, np.int64)
            amounts = amounts if amounts.shape else amounts.repeat(which.size)
            self._received.append((which.astype(np.uint32), amounts, step))

    def _per_crawl(self, name: str, values: ArrayLike) -> NDArray[Any]:
        array = np.asarray(values)
        if array.shape != (len(self._picks),):
            raise ValueError(
                f"{name} has shape {array.shape}; give one element for each of the "
                f"{len(self._picks)} crawls of the last step, before the next step begins"
            )
        return array

    # ------------------------------------------------------------------------------- state

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the state, from which `set_state` continues with the same selections:
        arrays and numbers, 4 bytes a source or more.

        >>> from crawl_env import Sources
        >>> from crawl_env.fleet.columns import FleetColumns
        >>> fleet = FleetColumns.of(Sources.preset("table1"))
        >>> first, second = (FleetScheduler(fleet, budget=2) for _ in range(2))
        >>> _ = first.step(), first.step()
        >>> second.set_state(first.get_state())
        >>> bool((first.step() == second.step()).all()), second.steps
        (True, 3)
        """
        return {name: np.copy(value) for name, value in self._state().items()}

    def _state(self) -> dict[str, Any]:
        """Return the state with the scheduler's own arrays, which change with its steps."""
        number = len(self._picks)
        return {
            "crawled_at": self._crawls.crawled_at,
            "tried_at": self._crawls.tried_at,
            "steps": self.steps,
            "price": self.price,
            "balance": self.balance,
            "picked": self._picks.source[:number].copy(),
            "previous": self._picks.crawled_at[:number].copy(),
            "failed": self._failed,
            **self._signals(),
        }

    def _signals(self) -> dict[str, NDArray[Any]]:
        """Return the signals: those since the last crawls, and those not looked at yet."""
        signals = self._crawls.signals
        (which,) = np.nonzero(signals.utility)  # flatnonzero would copy it, since it is strided
        source, utility, step = _joined(self._received)
        return {
            "signalled": np.stack([which, signals.at[which].astype(np.int64)], axis=1),
            "expected": signals.utility[which],
            "received": source,
            "received_utility": utility,
            "received_at": step,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state returned by `get_state` of a scheduler of the same fleet.

        Raises:
            ValueError: the state belongs to another fleet, or is none; this scheduler is as before.
        """
        with blamed("the state", "give one that get_state of the same scheduler and fleet made"):
            arrays = self._checked(state)
        self._continue({name: array.copy() for name, array in arrays.items()})

    def _checked(self, state: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Return the arrays of a state in their types."""
        steps = check_arrays(state, {"steps": _STEPS})["steps"]
        return check_arrays(state, self._declared(int(steps)), N=self.n)

    def _declared(self, steps: int) -> dict[str, Array]:
        """Return the types and ranges of the arrays of a state after so many steps."""
        n, now = self.n, NEVER + steps
        step, source = np.uint32, Array(np.uint32, ("K",), 0, n - 1)
        utility = Array(np.float64, ("R",), 0.0)
        return {
            "steps": _STEPS,
            "price": Array(np.float64, (), 0.0, or_nan=True),
            "balance": Array(np.float64),
            "crawled_at": Array(step, ("N",), 0, now),
            "tried_at": Array(step, ("N",) if self._keeps_attempts else (0,), 0, now),
            "picked": source._replace(ascending=True),
            "previous": Array(step, ("K",), 0, now - 1),
            "failed": Array(bool, ("K",), or_empty=True),
            # A signal that comes after `offers` counts from the step that follows.
            "signalled": Array(np.int64, ("S", 2), (0, NEVER), (n - 1, now + 1), unique=True),
            "expected": utility._replace(shape=("S",)),
            "received": source._replace(shape=("R",)),
            "received_utility": utility,
            "received_at": Array(np.int64, ("R",), NEVER, now + 1),
        }

    def _continue(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that has been checked, whose arrays become the scheduler's own."""
        self.steps = int(state["steps"])
        self.price, self.balance = float(state["price"]), float(state["balance"])
        sources, previous = state["picked"], state["previous"]
        self.ages = (self._now - 1 - previous.astype(np.int64)).astype(np.uint32)
        self._begin(state["crawled_at"], state["tried_at"])
        source, at = state["signalled"].T
        if len(source):
            self._crawls = self._crawls._replace(signals=Signals.empty(self.n))
            self._crawls.signals.utility[source] = state["expected"]
            self._crawls.signals.at[source] = at
        self._file_all(sources, None)
        self._received = [(state["received"], state["received_utility"], state["received_at"])]
        self._picks = Candidates.empty(len(sources))
        self._picks.source[:], self._picks.crawled_at[:] = sources, previous
        self._picks.counters[0] = len(sources)
        self._failed = state["failed"]
        age_index.read_scales(self._parameters, sources, self._picks.scale, self._picks.decay)

    def save(self, path: str | PathLike[str]) -> None:
        """Save the scheduler's arguments and state to a file, without the columns.

        The file is a NumPy archive (.npz) without pickled objects, written completely or not at
        all.
        """
        arguments = json.dumps(self._arguments())
        with atomic_file(path) as new, open(new, "wb") as file:
            np.savez(file, arguments=np.array(arguments), **self._state())

    @classmethod
    def load(cls, path: str | PathLike[str], columns: Columns) -> Self:
        """Return the scheduler that was saved to a file.

        Arguments:
            columns: the fleet that the scheduler was made for.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file holds no scheduler of this class, or that of another fleet.
        """
        check_columns(columns)
        remedy = f"give the file that a {cls.__name__} of this fleet saved, or save it again"
        arrays = read_archive(path)
        with blamed(path, remedy):
            text = check_arrays(arrays, {"arguments": Array(np.str_)})["arguments"]
            try:
                arguments = json.loads(str(text))
                if arguments.pop("class") != cls.__name__:
                    raise ValueError("its class is another")
                scheduler = cls._restored(columns, arguments, _LATER)
            except _DAMAGED as error:
                raise ValueError(
                    f"arguments are not those of a {cls.__name__} ({brief(error)})"
                ) from None
            scheduler._continue(scheduler._checked(arrays))
        return scheduler

    @classmethod
    def _restored(cls, columns: Columns, arguments: dict[str, Any], start: str) -> Self:
        return cls(columns, **arguments, start=start)

    def _arguments(self) -> dict[str, Any]:
        return {
            "class": type(self).__name__,
            "budget": self.budget,
            "policy": self.policy,
            "budget_rule": self.budget_rule,
            "multiplier": self._floor if self.budget_rule == "average" else None,
            "per_host": self._per_host if self._host.size else None,
            "seed": self._seed,
        }

    # ------------------------------------------------------------------------- construction

    def _bind(self, columns: Columns) -> Parameters:
        """Return the columns that the index needs."""
        parameters = parameters_of(columns, self.policies[self.policy])
        if self.policy == "static":
            return parameters._replace(multiplier=self._static_multiplier(parameters))
        return parameters

    def _static_multiplier(self, parameters: Parameters) -> float:
        """Return the multiplier at which the best constant frequencies spend the budget."""

        def spends(multiplier: float) -> float:
            at = parameters._replace(multiplier=multiplier)
            return float(pool.spent_by_frequencies(at, self._sample))

        return _multiplier(spends, self.budget * len(self._sample) / self.n)

    def _hosts_of(self, columns: Columns, per_host: int | None) -> tuple[NDArray[np.int32], int]:
        """Return the host of each source and the limit; no hosts if they limit nothing."""
        host = getattr(columns, "host", None)
        if host is None:
            host = getattr(columns, "host_of", None)
        if per_host is None:
            return np.zeros(0, np.int32), 0
        limit = check_whole("per_host", per_host, what="crawls / step")
        if host is None:
            return np.zeros(0, np.int32), limit
        numbers = np.asarray(host).astype(np.int32, copy=False)
        self._on_host = np.zeros(int(numbers.max()) + 1, np.uint32)
        return numbers, limit

    def _set_budget(self, multiplier: float | None) -> None:
        """Prepare the selection under the budget."""
        cost = self._parameters.cost
        least, most = (float(cost.min()), float(cost.max())) if cost.size else (1.0, 1.0)
        self._least_cost, equal = least, least == most
        mean = least if equal else float(cost[self._sample].mean(dtype=np.float64))
        self._number = max(int(min(self.budget * (1 + TOLERANCE) / mean, self.n)), 0)
        self._by_cost: NDArray[np.uint32] = _NO_STEPS
        self.balance, self._floor = self.budget, 0.0
        on_average = self.budget_rule == "average"
        if on_average:
            if multiplier is None:
                budget = self.budget * len(self._sample) / self.n
                parameters, sample = self._parameters, self._sample
                multiplier = _multiplier(
                    lambda level: pool.crawls_at_multiplier(parameters, sample, level), budget
                )
            self._floor = check_non_negative("multiplier", multiplier, "utility / budget unit")
        elif multiplier is not None:
            raise ValueError("a multiplier is used under budget_rule='average' only; leave it out")
        self._is_plain = equal and not on_average and not self._host.size
        self._is_unequal = not equal and not on_average
        self._number = max(self._number, 0 if self._is_plain else 1)

    @property
    def _keeps_attempts(self) -> bool:
        return bool(self._parameters.delay.size)

    def _set_ages(self, crawled_at: NDArray[np.uint32], start: str | ArrayLike) -> None:
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
            part_ages = ages[first : first + _BLOCK].astype(np.float64)
            check_range("age", part_ages, low=0.0, finite=False, whole=True)
            crawled_at[first : first + _BLOCK] = NEVER - np.minimum(part_ages, NEVER)

    def _begin(self, crawled_at: NDArray[np.uint32], tried_at: NDArray[np.uint32]) -> None:
        """Set when the sources were crawled and tried last."""
        signals = Signals.empty(0)
        self._crawls = Crawls(crawled_at, tried_at, _NO_STEPS, 0, self._draw_seed, signals)
        self._received = []

    def _file_all(self, skipped: NDArray[np.uint32], level: float | None) -> None:
        """Enter all sources but `skipped` into a new calendar, at this level or a new one."""
        self._calendar = Calendar.empty(self.n)
        self._candidates = Candidates.empty(min(_LEAST_ROOM, self.n + BATCH))
        self._picks = Candidates.empty(0)
        self._failed = _NO_MASK
        self._prepared = False
        self._offered = 0
        self._demand = self._number
        self._reserve = 0.25 * self._most_reserve
        if level is None:
            level = max(self._level_for(self._target()), self._floor)
        self._level = level
        if self._is_unequal or self._crawls.signals.at.size:
            due = np.full(self.n, pool.UNFILED, np.uint32)
            self._crawls = self._crawls._replace(due=due)
        for first in range(0, self.n, _BLOCK):
            part = np.arange(first, min(first + _BLOCK, self.n), dtype=np.uint32)
            low, high = np.searchsorted(skipped, [first, first + _BLOCK])
            self._file(np.delete(part, skipped[low:high].astype(np.int64) - first))

    def _file(self, sources: NDArray[np.uint32]) -> None:
        """Make the sources candidates, or enter them into the calendar."""
        place = 0
        while place < len(sources):
            self._make_room()
            place = pool.file_sources(*self._arrays, sources, place, self._now, self._level)

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
        if not self._prepared:
            self._settle()
        self._demand = demand
        if not self._prepared:
            if self._crawls.turns:
                pool.draw_candidates(self._parameters, self._crawls, self._candidates, self._now)
            signalled = self._receive()
            pool.set_index(self._parameters, self._crawls, self._candidates, 0, self._now)
            for turn in range(3):
                pool.detach_of_step(self._calendar, self._now, turn)
                while not pool.file_detached(*self._arrays, self._now, self._level):
                    self._make_room()
            self._file(signalled)
            self._prepared = True
        self._supply(demand)
        self._offered = min(demand, len(self._candidates))

    def _settle(self) -> None:
        """File the sources crawled in the last step."""
        if int(self._calendar.counters[ENTRIES]) > _MOST_ENTRIES * self.n + _LEAST_ROOM:
            self._continue(self._state())  # files every source once
        number = len(self._picks)
        if number:
            self._room_for(number)
            self._calendar = self._calendar.with_room(number)
            picks, failed = self._picks, self._failed
            changed = bool(self._parameters.items.size)
            pool.file_picks(*self._arrays, picks, failed, changed, self._now, self._level)
            self._failed = _NO_MASK

    def _receive(self) -> NDArray[np.uint32]:
        """Add the signals to what is expected; return the sources to be filed again.

        Sources that no age brings to the level keep their entries: they would become due never, and
        a source is filed again only to become due earlier.
        """
        source, utility, step = _joined(self._received)
        self._received = []
        if not len(source):
            return source
        first = not self._crawls.signals.at.size
        if first:
            self._crawls = self._crawls._replace(signals=Signals.empty(self.n))
        least = self._level * (1.0 - 2.0 * pool.GUARD)
        signals = self._crawls.signals
        reaching = receive(self._parameters, signals, source, utility, step, least)
        if first:
            self._file_all(_NO_STEPS, self._level)
        self._calendar = self._calendar.with_room(len(reaching))
        return reaching

    def _supply(self, demand: int) -> None:
        """Lower the level until `demand` candidates reach it, or raise it if they are many."""
        while self._level > self._floor and self._at_level() < demand:
            self._lower()
        if len(self._candidates) > self._limit():
            self._raise()
        # A large reserve costs about as much, until it is gone, as filing all sources once.
        self._reserve *= 1.0 - 1.0 / (2.0 + self.n / max(demand, self._reserve / 4.0, 1.0))

    def _at_level(self) -> int:
        gamma = self._candidates.gamma[: len(self._candidates)]
        return int(np.count_nonzero(gamma >= self._level))

    def _take(self, mask: BoolArray) -> IntArray:
        """Crawl the chosen candidates, and go on to the next step."""
        number = int(np.count_nonzero(mask))
        if len(self._picks.source) < number:
            self._picks = Candidates.empty(number)
        picks = self._picks
        if number:
            self.price = float(self._candidates.gamma[: len(mask)][mask].min())
        pool.remove(self._candidates, mask, picks)
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
        gamma = self._candidates.gamma[:count]
        if k >= count:
            return np.ones(count, dtype=bool)
        if k == 0:
            return np.zeros(count, dtype=bool)
        threshold = np.partition(gamma, count - k)[count - k]
        mask = gamma >= threshold
        extra = int(np.count_nonzero(mask)) - k
        if extra:
            tied = np.flatnonzero(gamma == threshold)
            key = self._candidates.crawled_at[tied].astype(np.uint64) << np.uint64(32)
            key |= self._candidates.source[tied]
            number = len(tied) - extra
            mask[tied[key >= np.partition(key, number)[number]]] = False
        return mask

    # ------------------------------------------------------- unequal costs, hosts, balances

    def _choose(self) -> BoolArray:
        """Return which candidates are crawled, one after the other in decreasing index.

        Candidates below the level come after all that reach it. If they could be chosen, so could
        be sources that are no candidates: the level is lowered. Where costs differ, few sources may
        be cheap enough for what is left of the budget, wherever they are; these become candidates.
        """
        on_balance = self.budget_rule == "average"
        slack = self.budget * (BALANCE_TOLERANCE if on_balance else TOLERANCE)
        while True:
            mask, rest = self._choose_in_order(slack, on_balance)
            fits = rest > slack if on_balance else rest + slack >= self._least_cost
            if not fits or self._level <= self._floor:
                return mask
            if self._is_unequal and self._join_cheap(rest + slack):
                return self._choose_in_order(slack, on_balance, whole=True)[0]
            self._demand = min(2 * self._demand, self.n)
            self._lower()

    def _choose_in_order(
        self, slack: float, on_balance: bool, whole: bool = False
    ) -> tuple[BoolArray, float]:
        """Return which candidates are chosen, and the rest of the budget.

        whole: whether candidates below the level may be chosen, too.
        """
        count = len(self._candidates)
        candidates = self._candidates
        gamma, source = candidates.gamma[:count], candidates.source[:count]
        least = self._floor if whole else max(self._level, self._floor)
        which = np.flatnonzero(gamma >= least)
        order = which[np.lexsort((source[which], candidates.crawled_at[which], -gamma[which]))]
        mask = np.zeros(count, dtype=bool)
        on_host = self._on_host if self._host.size else _NO_STEPS
        budget = self.balance if on_balance else self.budget
        rest = pool.choose_in_order(
            self._parameters,
            source,
            order,
            budget,
            slack,
            on_balance,
            self._host,
            self._per_host,
            on_host,
            mask,
        )
        if self._host.size:
            hosts = self._host[source[mask]]
            on_host[hosts[hosts >= 0]] = 0
        return mask, rest

    def _join_cheap(self, most: float) -> bool:
        """Make candidates of all sources that cost at most so much, if these are few."""
        cost = self._parameters.cost
        if not self._by_cost.size:
            self._by_cost = np.argsort(cost, kind="stable").astype(np.uint32)
        number = int(np.searchsorted(cost, most, side="right", sorter=self._by_cost))
        if number > 2 * self._limit():
            return False
        cheap = np.sort(self._by_cost[:number])
        self._room_for(number)
        pool.join(self._parameters, self._crawls, self._candidates, cheap, self._now)
        return True

    # ---------------------------------------------------------------------------- the level

    def _target(self) -> int:
        """The number of candidates wanted."""
        return int(2 * self._demand + self._reserve) + 1

    def _limit(self) -> int:
        """The number of candidates above which the coldest are put back."""
        return 2 * self._target() + _LEAST_ROOM

    @property
    def _most_reserve(self) -> float:
        """The largest number of candidates beyond those wanted in a steady state.

        Where the level keeps falling, as after a start with sources never crawled, it balances the
        cost of examining candidates and of filing all sources anew. Memory bounds it, too.
        """
        balanced = np.sqrt(8.0 * self.n * self._demand)
        return float(min(balanced, max(self.n / 64.0, self._demand)))

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
        target = self._target()
        lower = self._level_for(target)
        while not lower < self._level:
            target *= 2
            lower = self._level_for(target)
        self._level = max(lower, self._floor)
        self._reserve = min(max(2 * self._reserve, self._demand), self._most_reserve)
        while not pool.sweep(*self._arrays, self._now, self._level):
            self._make_room()

    def _raise(self) -> None:
        """Raise the level, and return the coldest candidates to the calendar."""
        count, target = len(self._candidates), self._target()
        gamma = self._candidates.gamma[:count]
        level = float(np.partition(gamma, count - target)[count - target])
        if level > self._level:
            self._level = level
            self._calendar = self._calendar.with_room(count)
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
        size = len(self._candidates) + number
        if size > len(self._candidates.source):
            self._candidates = self._candidates.with_room(size + size // 4)


def check_columns(columns: object) -> None:
    """Raise ValueError unless these are the columns of one fleet, all of which count."""
    names = ("arrival_rate", "mean_utility", "decay_rate", "period")
    if not all(hasattr(columns, name) for name in names):
        raise ValueError(f"columns is {shown(columns)}; give a FleetColumns, or Sources")
    if np.ndim(getattr(columns, "arrival_rate", 0.0)) != 1:
        raise ValueError("columns are a batch of fleets; give one of them, `sources.fleet(b)`")
    if getattr(columns, "is_capped", False):
        raise ValueError(
            "some sources have a finite capacity, which this scheduler does not know; leave it "
            "out, or use agents.Whittle"
        )


def _joined(received: list[Received]) -> Received:
    """Return the signals of several calls as those of one."""
    if not received:
        return np.zeros(0, np.uint32), np.zeros(0), np.zeros(0, np.int64)
    source, utility, step = (np.concatenate(arrays) for arrays in zip(*received, strict=True))
    return source, utility, step


def _multiplier(spends: Callable[[float], float], budget: float) -> float:
    """Return the smallest multiplier at which at most the budget is spent, but for its rounding."""
    if spends(0.0) <= budget:
        return 0.0
    return first_near(lambda level: spends(level) <= budget, 1.0, tolerance=_TOLERANCE)[1]


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
