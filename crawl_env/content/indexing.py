"""`IndexQueue`: the items that wait to be indexed, in the order in which the engine takes them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from crawl_env.compiled import compiled
from crawl_env.content.draws import Stream, poisson, stream
from crawl_env.content.engine import Engine
from crawl_env.content.process import Feed, Published
from crawl_env.numerics import BoolArray, FloatArray, IntArray
from crawl_env.rng import beside

_RUN = 16  # items that are sorted by insertion
# What is missing from a whole item because of rounding.
_ROUNDING = 1e-9


class Ledger(NamedTuple):
    """What became of the items of the last step, (B, 2) each: number of items, utility.

    collected + the backlog before = refused + indexed + lost + decayed + backlog. An item counts
    with its utility at that time. What waiting items lose by ageing has decayed; the number counts
    those without any utility left, which leave the queue.
    """

    collected: FloatArray  # by the crawls
    refused: FloatArray  # of those: worth less than the threshold
    indexed: FloatArray
    lost: FloatArray  # for lack of a place to wait
    decayed: FloatArray  # while waiting
    backlog: FloatArray  # waiting at the end of the step


_COLLECTED, _REFUSED, _INDEXED, _LOST, _DECAYED, _BACKLOG = range(len(Ledger._fields))


class IndexQueue:
    """The queues of B environments in front of their indexing engines.

    A step is `index`, then `advance`.

    Arguments:
        engine: the engine, of which every environment has one.
        num_envs: B.
        n: N, the number of sources.
    """

    def __init__(self, engine: Engine, num_envs: int, n: int) -> None:
        self.engine, self._n = engine, n
        self._capacity = np.inf if engine.capacity is None else float(engine.capacity)
        self._items = Published.concatenate([])  # of one environment after the other
        self._present = np.empty(0)  # (W,) their utility now
        self._size = np.zeros(num_envs, dtype=np.intp)  # number of items that wait
        self._credit = np.zeros(num_envs)  # fractions of items that have been indexed
        self._ledger = np.zeros((len(Ledger._fields), num_envs, 2))
        self._stream: Stream = np.zeros(2, dtype=np.uint64)

    @property
    def ledger(self) -> Ledger:
        """What became of the items of the last step."""
        return Ledger(*self._ledger.copy())

    @property
    def backlog(self) -> FloatArray:
        """Number of items that wait, (B,)."""
        return self._size.astype(np.float64)

    def seed(self, rng: np.random.Generator) -> None:
        """Begin the random stream of the engine that belongs to the seed of a generator."""
        self._stream = stream(beside(rng, "engine"))

    def start(self, envs: IntArray) -> None:
        """Empty the queues of the environments `envs` (b,)."""
        begun = np.zeros(self._size.size, dtype=bool)
        begun[envs] = True
        stay = ~begun[self._items.cell // self._n]
        self._items, self._present = self._items.only(stay), self._present[stay]
        self._size[envs] = 0
        self._credit[envs] = 0.0
        self._ledger[:, envs] = 0.0

    def index(self, items: Published, present: FloatArray, collected: FloatArray) -> FloatArray:
        """Let the items of crawls join the queues, and index what the engines can.

        Arguments:
            items: those collected.
            present: (n,) their utility now; items without any are left out.
            collected: (B,) its sum, or what equals it up to rounding.

        Returns:
            The utility indexed, (B,): exactly `collected` where all of the items, and no others,
            are indexed.
        """
        ledger, engine = self._ledger, self.engine
        order = np.argsort(items.cell, kind="stable")
        _newest_first(items.cell, items.age, order)
        if not present.all():
            order = order[present[order] > 0]
        items, present = items.only(order), present[order]
        together = Published.concatenate([self._items, items])
        worth = np.concatenate([self._present, present])
        kept = np.empty(worth.size, dtype=np.intp)
        number = _index(
            together.cell // self._n,
            worth,
            -worth,
            self._items.cell.size,
            self._size,
            self._credit,
            collected,
            engine.rate,
            self._capacity,
            engine.threshold,
            engine.discipline == "value",
            engine.service == "poisson",
            self._stream,
            kept,
            ledger,
        )
        self._items, self._present = together.only(kept[:number]), worth[kept[:number]]
        reward: FloatArray = ledger[_INDEXED, :, 1].copy()
        return reward

    def advance(self, feed: Feed) -> None:
        """Let a step pass, in which the utility of the waiting items decays."""
        ledger, before = self._ledger, self._present
        items = self._items._replace(age=self._items.age + 1.0)
        self._present = items.utility * feed.survival(items)
        ledger[_DECAYED:] = 0.0
        stay = np.empty(before.size, dtype=bool)
        _age(items.cell // self._n, before, self._present, self._size, stay, ledger)
        self._items = items
        if not stay.all():
            self._items, self._present = items.only(stay), self._present[stay]

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the state."""
        return {
            "items": Published.copied(self._items),
            "present": self._present.copy(),
            "credit": self._credit.copy(),
            "ledger": self._ledger.copy(),
            "stream": self._stream.copy(),
        }

    def set_state(self, state: Any) -> None:
        """Restore a state returned by `get_state`, in which arrays may be lists."""
        self._items = Published.copied(state["items"])
        self._present = np.array(state["present"], dtype=np.float64)
        self._size[...] = np.bincount(self._items.cell // self._n, minlength=self._size.size)
        self._credit[...] = state["credit"]
        self._ledger[...] = state["ledger"]
        self._stream = np.array(state["stream"], dtype=np.uint64)


@compiled
def _sort(key: FloatArray, numbers: IntArray, start: int, stop: int, spare: IntArray) -> None:
    """Sort numbers[start:stop] by their keys, ascending and stably; `spare` is as long as
    `numbers`. (numpy's sort takes numba seconds to compile.)"""
    for low in range(start, stop, _RUN):  # each run by insertion; then pairs of runs are merged
        for j in range(low + 1, min(low + _RUN, stop)):
            number, place = numbers[j], j
            while place > low and key[numbers[place - 1]] > key[number]:
                numbers[place] = numbers[place - 1]
                place -= 1
            numbers[place] = number
    width = _RUN
    while width < stop - start:
        for low in range(start, stop - width, 2 * width):
            middle, high = low + width, min(low + 2 * width, stop)
            for j in range(low, middle):
                spare[j] = numbers[j]
            i, j, place = low, middle, low
            while i < middle and j < high:
                if key[numbers[j]] < key[spare[i]]:
                    numbers[place] = numbers[j]
                    j += 1
                else:
                    numbers[place] = spare[i]
                    i += 1
                place += 1
            while i < middle:
                numbers[place] = spare[i]
                i += 1
                place += 1
        width *= 2


@compiled
def _newest_first(cell: IntArray, age: FloatArray, order: IntArray) -> None:
    """Sort numbers of items that are in order of their cells by the age in each cell, stably."""
    spare, start = np.empty_like(order), 0
    for stop in range(1, order.size + 1):
        if stop == order.size or cell[order[stop]] != cell[order[start]]:
            _sort(age, order, start, stop, spare)
            start = stop


@compiled
def _index(
    env: IntArray,
    worth: FloatArray,
    key: FloatArray,
    waiting: int,
    size: IntArray,
    credit: FloatArray,
    collected: FloatArray,
    rate: float,
    capacity: float,
    threshold: float,
    by_value: bool,
    random: bool,
    state: Stream,
    kept: IntArray,
    ledger: FloatArray,
) -> int:
    """Write the numbers of the items that wait after a step to `kept`, and return their number.

    Arguments:
        env, worth: (n,) environment and utility of the items: first those that wait, then new ones,
            each one environment after the other.
        key: (n,), by which "value" sorts the items.
        waiting: number of the former.
        size: (B,) how many of them each environment has; set to what waits afterwards.
        credit: (B,) fractions of items that have been indexed; changed.
        kept: (n,), written.
        ledger: (6, B, 2), as `Ledger`; all but the last two are written.
    """
    line, spare = np.empty(worth.size, np.intp), np.empty(worth.size, np.intp)
    old, new, number = 0, waiting, 0
    for e in range(size.size):
        for entry in range(_DECAYED):
            ledger[entry, e, 0] = ledger[entry, e, 1] = 0.0
        n = 0
        for _ in range(size[e]):
            line[n] = old
            old += 1
            n += 1
        waited, found, refused = n, 0, 0.0
        while new < worth.size and env[new] == e:
            found += 1
            if worth[new] < threshold:
                ledger[_REFUSED, e, 0] += 1.0
                refused += worth[new]
            else:
                line[n] = new
                n += 1
            new += 1
        ledger[_REFUSED, e, 1] = refused
        ledger[_COLLECTED, e, 0], ledger[_COLLECTED, e, 1] = found, collected[e]
        places = rate
        if random and rate < np.inf:
            places = poisson(state, rate)
        elif not random:
            credit[e] += rate
            places = np.floor(credit[e] + _ROUNDING)
            credit[e] = credit[e] - places if n > places else 0.0
        served = n if n <= places else int(places)
        if by_value and served < n:
            _sort(key, line, 0, n, spare)
        total = 0.0
        if served == n and n == waited + found:  # all that was collected is indexed
            total = collected[e]
            for j in range(waited):
                total += worth[line[j]]
        else:
            for j in range(served):
                total += worth[line[j]]
        ledger[_INDEXED, e, 0], ledger[_INDEXED, e, 1] = served, total
        stay = n - served if n - served <= capacity else int(capacity)
        for j in range(served, served + stay):
            kept[number] = line[j]
            number += 1
        size[e] = stay
        lost = 0.0
        for j in range(served + stay, n):
            lost += worth[line[j]]
        ledger[_LOST, e, 0], ledger[_LOST, e, 1] = n - served - stay, lost
    return number


@compiled
def _age(
    env: IntArray,
    before: FloatArray,
    after: FloatArray,
    size: IntArray,
    stay: BoolArray,
    ledger: FloatArray,
) -> None:
    """Account for what waiting items of utility `before` have lost, and mark those that stay."""
    for j in range(env.size):
        e = env[j]
        ledger[_DECAYED, e, 1] += before[j] - after[j]
        ledger[_BACKLOG, e, 1] += after[j]
        stay[j] = after[j] > 0.0
        if not stay[j]:
            ledger[_DECAYED, e, 0] += 1.0
            size[e] -= 1
    for e in range(size.size):
        ledger[_BACKLOG, e, 0] = size[e]
