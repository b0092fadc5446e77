"""`IndexQueue`: the items that wait to be indexed, in the order in which the engine takes them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from crawl_env.compiled import compiled, inlined
from crawl_env.content.draws import Stream, poisson, stream
from crawl_env.content.engine import Engine
from crawl_env.content.process import Feed, Published
from crawl_env.numerics import FloatArray, IntArray, Written
from crawl_env.rng import beside

_RUN = 16  # items that are sorted by insertion
_FEW = 64  # items for which there is room at first
# What is missing from a whole item because of rounding.
_ROUNDING = 1e-9
# Columns of an item; those of one item lie side by side in memory.
_AGE, _UTILITY, _PRESENT = range(3)  # steps, when published, now
_CELL, _NUMBER = range(2)


class Ledger(NamedTuple):
    """The outcomes of the items of the last step, (B, 2) each: number of items, utility.

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


class IndexQueue(Written):
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
        self._size = np.zeros(num_envs, dtype=np.intp)  # number of items that wait
        # The W items of one environment after the other, in the first W of the columns; what waits
        # after a step is written to the spare ones.
        self._total = 0
        self._columns, self._spare = _room(_FEW), _room(_FEW)
        self._credit = np.zeros(num_envs)  # fractions of items that have been indexed
        self._ledger = np.zeros((len(Ledger._fields), num_envs, 2))
        self._stream: Stream = np.zeros(2, dtype=np.uint64)

    @property
    def ledger(self) -> Ledger:
        """The outcomes of the items of the last step."""
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
        if self._total:
            begun = np.zeros(self._size.size, dtype=bool)
            begun[envs] = True
            items, present = self._waiting()
            stay = ~begun[items.cell // self._n]
            self._set_waiting(items.only(stay), present[stay])
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
        engine, most = self.engine, self._total + present.size
        if len(self._spare[0]) < most:
            self._spare = _room(2 * most)
        self._total = _index(
            (*items,),  # as a plain tuple, which numba recognises faster than a named one
            present,
            collected,
            self._total,
            self._columns,
            self._spare,
            self._n,
            self._size,
            self._credit,
            engine.rate,
            self._capacity,
            engine.threshold,
            engine.discipline == "value",
            engine.service == "poisson",
            self._stream,
            self._ledger,
        )
        self._columns, self._spare = self._spare, self._columns
        reward: FloatArray = self._ledger[_INDEXED, :, 1].copy()
        return reward

    def advance(self, feed: Feed) -> None:
        """Let a step pass, in which the utility of the waiting items decays."""
        real, whole = self._columns
        real[: self._total, _AGE] += 1.0
        survival = feed.survival(self._waiting()[0]) if self._total else np.empty(0)
        self._total = _decay(survival, real, whole, self._n, self._size, self._ledger)

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the state."""
        items, present = self._waiting()
        return {
            "items": Published.copied(items),
            "present": present.copy(),
            "credit": self._credit.copy(),
            "ledger": self._ledger.copy(),
            "stream": self._stream.copy(),
        }

    def set_state(self, state: Any) -> None:
        """Restore a state returned by `get_state`, in which arrays may be lists."""
        self._set_waiting(Published.copied(state["items"]), np.array(state["present"]))
        cell = self._waiting()[0].cell
        self._size[...] = np.bincount(cell // self._n, minlength=self._size.size)
        self._credit[...] = state["credit"]
        self._ledger[...] = state["ledger"]
        self._stream = np.array(state["stream"], dtype=np.uint64)

    def _waiting(self) -> tuple[Published, FloatArray]:
        """Return the items that wait and their utility now, as views."""
        real, whole = self._columns[0][: self._total], self._columns[1][: self._total]
        items = Published(whole[:, _CELL], real[:, _AGE], real[:, _UTILITY], whole[:, _NUMBER])
        return items, real[:, _PRESENT]

    def _set_waiting(self, items: Published, present: FloatArray) -> None:
        self._total = items.cell.size
        self._columns = real, whole = _room(max(self._total, _FEW))
        real[: self._total] = np.stack([items.age, items.utility, present], axis=1)
        whole[: self._total] = np.stack([items.cell, items.number], axis=1)


def _room(items: int) -> tuple[FloatArray, IntArray]:
    """Return columns for so many items."""
    return np.empty((items, 3)), np.empty((items, 2), dtype=np.intp)


@inlined
def _after(a: float, b: float, backwards: bool) -> bool:
    """Return whether a key a comes after a key b that was given later."""
    return a > b or (backwards and a == b)


@compiled
def _sort(
    key: FloatArray, numbers: IntArray, start: int, stop: int, spare: IntArray, backwards: bool
) -> None:
    """Sort numbers[start:stop] by their keys, ascending; those of equal keys stay in their order,
    or, if `backwards`, are reversed. It takes little time if little is out of order.

    `spare` is as long as `numbers`. (numpy's sort takes numba seconds to compile.)
    """
    for low in range(start, stop, _RUN):  # each run by insertion; then pairs of runs are merged
        for j in range(low + 1, min(low + _RUN, stop)):
            number, place = numbers[j], j
            while place > low and _after(key[numbers[place - 1]], key[number], backwards):
                numbers[place] = numbers[place - 1]
                place -= 1
            numbers[place] = number
    width = _RUN
    while width < stop - start:
        for low in range(start, stop - width, 2 * width):
            middle, high = low + width, min(low + 2 * width, stop)
            if not _after(key[numbers[middle - 1]], key[numbers[middle]], backwards):
                continue
            for j in range(low, middle):
                spare[j] = numbers[j]
            i, j, place = low, middle, low
            while i < middle and j < high:
                if _after(key[spare[i]], key[numbers[j]], backwards):
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
def _in_turn(cell: IntArray, age: FloatArray, present: FloatArray) -> IntArray:
    """Return the numbers of the items that have utility in the order in which they join: by their
    cells, in each by the age."""
    order, spare, n = np.empty(cell.size, np.intp), np.empty(cell.size, np.intp), 0
    for j in range(cell.size):
        if present[j] > 0.0:
            order[n] = j
            n += 1
    order = order[:n]
    _sort(cell.astype(np.float64), order, 0, n, spare, False)
    start = 0
    for stop in range(1, n + 1):
        if stop == n or cell[order[stop]] != cell[order[start]]:
            # Later items mostly are the newer ones.
            low, high = start, stop - 1
            while low < high:
                order[low], order[high] = order[high], order[low]
                low += 1
                high -= 1
            _sort(age, order, start, stop, spare, True)
            start = stop
    return order


@compiled
def _index(
    items: tuple[IntArray, FloatArray, FloatArray, IntArray],
    present: FloatArray,
    collected: FloatArray,
    waiting: int,
    columns: tuple[FloatArray, IntArray],
    into: tuple[FloatArray, IntArray],
    n: int,
    size: IntArray,
    credit: FloatArray,
    rate: float,
    capacity: float,
    threshold: float,
    by_value: bool,
    random: bool,
    state: Stream,
    ledger: FloatArray,
) -> int:
    """Write the items that wait after a step, and return their number.

    Arguments:
        items, present, collected: the new items, as in `IndexQueue.index`.
        waiting: W, the number of the items that have waited.
        columns: (≥ W, 3), (≥ W, 2) those of these, one environment after the other.
        into: written; for all of the items.
        n: N.
        size: (B,) how many of them each environment has; set to what waits afterwards.
        credit: (B,) fractions of items that have been indexed; changed.
        ledger: (6, B, 2), as `Ledger`; all but the last two are written.
    """
    (real, whole), (into_real, into_whole) = columns, into
    cell, age, utility, number = items
    order = _in_turn(cell, age, present)
    # The worth of those that have waited, then of the new ones in turn, and its negative.
    most = waiting + order.size
    worth, key = np.empty(most), np.empty(most if by_value else 0)
    for j in range(waiting):
        worth[j] = real[j, _PRESENT]
    for j in range(order.size):
        worth[waiting + j] = present[order[j]]
    if by_value:
        for j in range(most):
            key[j] = -worth[j]
    line, spare = np.empty(most, np.intp), np.empty(most if by_value else 0, np.intp)
    old, new, out = 0, waiting, 0
    for e in range(size.size):
        for entry in range(_DECAYED):
            ledger[entry, e, 0] = ledger[entry, e, 1] = 0.0
        k = 0
        for _ in range(size[e]):
            line[k] = old
            old += 1
            k += 1
        backlog, count, refused, last = k, 0, 0.0, (e + 1) * n
        while new < most and cell[order[new - waiting]] < last:
            count += 1
            if worth[new] < threshold:
                ledger[_REFUSED, e, 0] += 1.0
                refused += worth[new]
            else:
                line[k] = new
                k += 1
            new += 1
        ledger[_REFUSED, e, 1] = refused
        ledger[_COLLECTED, e, 0], ledger[_COLLECTED, e, 1] = count, collected[e]
        places = rate
        if random and rate < np.inf:
            places = poisson(state, rate)
        elif not random:
            credit[e] += rate
            places = np.floor(credit[e] + _ROUNDING)
            credit[e] = credit[e] - places if k > places else 0.0
        served = k if k <= places else int(places)
        if by_value and served < k:
            _sort(key, line, 0, k, spare, False)
        total = 0.0
        if served == k and k == backlog + count:  # all that was collected is indexed
            total = collected[e]
            for j in range(backlog):
                total += worth[line[j]]
        else:
            for j in range(served):
                total += worth[line[j]]
        ledger[_INDEXED, e, 0], ledger[_INDEXED, e, 1] = served, total
        stay = k - served if k - served <= capacity else int(capacity)
        for j in range(served, served + stay):
            i = line[j]
            if i < waiting:
                for column in range(3):
                    into_real[out, column] = real[i, column]
                for column in range(2):
                    into_whole[out, column] = whole[i, column]
            else:
                i = order[i - waiting]
                into_real[out, _AGE], into_real[out, _UTILITY] = age[i], utility[i]
                into_real[out, _PRESENT] = present[i]
                into_whole[out, _CELL], into_whole[out, _NUMBER] = cell[i], number[i]
            out += 1
        size[e] = stay
        loss = 0.0
        for j in range(served + stay, k):
            loss += worth[line[j]]
        ledger[_LOST, e, 0], ledger[_LOST, e, 1] = k - served - stay, loss
    return out


@compiled
def _decay(
    rest: FloatArray, real: FloatArray, whole: IntArray, n: int, size: IntArray, ledger: FloatArray
) -> int:
    """Let waiting items decay to the fractions `rest` of their utility, (W,), remove those of which
    nothing is left, write the last two rows of the ledger, and return the number of the others."""
    for e in range(size.size):
        for entry in range(_DECAYED, _BACKLOG + 1):
            ledger[entry, e, 0] = ledger[entry, e, 1] = 0.0
    out = 0
    for j in range(rest.size):
        e, after = whole[j, _CELL] // n, real[j, _UTILITY] * rest[j]
        ledger[_DECAYED, e, 1] += real[j, _PRESENT] - after
        ledger[_BACKLOG, e, 1] += after
        if after > 0.0:
            if out < j:
                real[out, _AGE], real[out, _UTILITY] = real[j, _AGE], real[j, _UTILITY]
                whole[out, _CELL], whole[out, _NUMBER] = whole[j, _CELL], whole[j, _NUMBER]
            real[out, _PRESENT] = after
            out += 1
        else:
            ledger[_DECAYED, e, 0] += 1.0
            size[e] -= 1
    for e in range(size.size):
        ledger[_BACKLOG, e, 0] = size[e]
    return out
