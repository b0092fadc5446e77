"""`ItemLists`: the uncollected items of a world, with work per item that comes or goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crawl_env.compiled import compiled, inlined
from crawl_env.content.process import Feed, Published
from crawl_env.numerics import FloatArray, IntArray

_NONE = -1  # no item
_ROOM = 64  # items at first
# Rows of the columns of an item.
_AGE, _AT, _UTILITY = range(3)  # its age in steps at the step at which it came, and that step
_CELL, _NUMBER, _NEXT = range(3)  # the last: the place of the item of the cell that came before


class ItemLists:
    """The uncollected items of B·N cells, a linked list for each cell.

    A step takes time for the items that come, and a crawl for those that it collects; what waits
    takes none. `crawl_env.content.stock.ItemStore` does the same by work on all items, which
    capacities and decay functions other than the exponential need.

    Arguments:
        feed: the arrivals, whose `survival` gives the fraction of utility left.
        size: B·N.
    """

    def __init__(self, feed: Feed, size: int) -> None:
        self.feed = feed
        self._clock = 0.0  # steps
        self._last = np.full(size, _NONE)  # (B·N,) place of the item of each cell that came last
        self._real, self._whole = np.zeros((3, 0)), np.zeros((3, 0), dtype=np.intp)
        self._free = np.array([_NONE, 0])  # the first free place, and the number of free ones
        self._make_room(_ROOM)

    def empty(self, cells: IntArray) -> None:
        """Remove all items of the given cells."""
        _empty(cells, self._last, self._whole, self._free)

    def advance(self) -> None:
        """Advance by one step: the age of every item grows by 1."""
        self._clock += 1.0

    def add(self, batches: Sequence[Published]) -> None:
        """Add items, with cells numbered env·N + source."""
        number = sum(items.cell.size for items in batches)
        if number > self._free[1]:
            self._remove_faded()
            room = self._whole.shape[1]
            used = room - int(self._free[1])
            if used + number > room // 2:
                self._make_room(2 * (used + number) - room)
        for items in batches:
            _add(*items, self._clock, self._last, self._real, self._whole, self._free)

    def items(self, cells: IntArray) -> tuple[Published, FloatArray]:
        """Return the items of the given cells that have utility left, and that utility; one cell
        after the other, and in each in the order in which they came."""
        n = _count(cells, self._last, self._whole)
        found = Published(
            np.empty(n, dtype=np.intp), np.empty(n), np.empty(n), np.empty(n, dtype=np.intp)
        )
        _read(cells, self._clock, self._last, self._real, self._whole, *found)
        left = self.feed.survival(found)
        present, which = found.utility * left, left > 0
        return (found, present) if which.all() else (found.only(which), present[which])

    def uncollected(self) -> tuple[FloatArray, FloatArray]:
        """Return the number of items with utility left and the sum of their ages in steps, (B·N,)
        each."""
        found, _ = self.items(np.arange(self._last.size))
        number = np.bincount(found.cell, minlength=self._last.size).astype(np.float64)
        return number, np.bincount(found.cell, found.age, self._last.size).astype(np.float64)

    def get_state(self) -> Published:
        """Return a copy of the items."""
        return self.items(np.arange(self._last.size))[0]

    def set_state(self, state: Any) -> None:
        """Restore a state returned by `get_state`, which may be a list of its columns."""
        self.empty(np.arange(self._last.size))
        self.add([Published.copied(state)])

    def _remove_faded(self) -> None:
        real, whole = self._real, self._whole
        age = np.empty(real.shape[1])
        _grow_old(real[_AGE], self._clock - real[_AT], age)
        left = self.feed.survival(Published(whole[_CELL], age, real[_UTILITY], whole[_NUMBER]))
        _remove(left, self._last, whole, self._free)

    def _make_room(self, more: int) -> None:
        """Add `more` places."""
        old = self._whole.shape[1]
        self._real = np.concatenate([self._real, np.zeros((3, more))], axis=1)
        self._whole = np.concatenate([self._whole, np.zeros((3, more), dtype=np.intp)], axis=1)
        self._whole[_NEXT, old:] = np.arange(old + 1, old + more + 1)
        self._whole[_NEXT, -1] = self._free[0]
        self._free[...] = old, self._free[1] + more


@inlined
def _older(age: float, steps: float) -> float:
    """Return what adding 1 to an age `steps` times gives, with the rounding of each addition.

    Rounding occurs only where the sum passes a power of two: numbers in between are added at once.
    """
    edge = 1.0
    while steps > 0.0:
        age += 1.0
        steps -= 1.0
        while edge <= age:
            edge *= 2.0
        exact = min(steps, np.floor(edge - age))
        age += exact
        steps -= exact
    return age


@compiled
def _grow_old(age: FloatArray, steps: FloatArray, out: FloatArray) -> None:
    for i in range(age.size):
        out[i] = _older(age[i], steps[i])


@compiled
def _add(
    cell: IntArray,
    age: FloatArray,
    utility: FloatArray,
    number: IntArray,
    clock: float,
    last: IntArray,
    real: FloatArray,
    whole: IntArray,
    free: IntArray,
) -> None:
    """Add items, for which there is room."""
    for j in range(cell.size):
        place, here = free[0], cell[j]
        free[0] = whole[_NEXT, place]
        real[_AGE, place], real[_AT, place], real[_UTILITY, place] = age[j], clock, utility[j]
        whole[_CELL, place], whole[_NUMBER, place] = here, number[j]
        whole[_NEXT, place] = last[here]
        last[here] = place
    free[1] -= cell.size


@compiled
def _count(cells: IntArray, last: IntArray, whole: IntArray) -> int:
    n = 0
    for cell in cells:
        place = last[cell]
        while place != _NONE:
            n += 1
            place = whole[_NEXT, place]
    return n


@compiled
def _read(
    cells: IntArray,
    clock: float,
    last: IntArray,
    real: FloatArray,
    whole: IntArray,
    cell: IntArray,
    age: FloatArray,
    utility: FloatArray,
    number: IntArray,
) -> None:
    """Copy the items of some cells; a list begins with what came last, so it is read backwards."""
    j = cell.size
    for i in range(cells.size - 1, -1, -1):
        place = last[cells[i]]
        while place != _NONE:
            j -= 1
            cell[j], number[j] = cells[i], whole[_NUMBER, place]
            age[j] = _older(real[_AGE, place], clock - real[_AT, place])
            utility[j] = real[_UTILITY, place]
            place = whole[_NEXT, place]


@compiled
def _empty(cells: IntArray, last: IntArray, whole: IntArray, free: IntArray) -> None:
    for cell in cells:
        place = last[cell]
        while place != _NONE:
            before = whole[_NEXT, place]
            whole[_NEXT, place] = free[0]
            free[0] = place
            free[1] += 1
            place = before
        last[cell] = _NONE


@compiled
def _remove(left: FloatArray, last: IntArray, whole: IntArray, free: IntArray) -> None:
    """Remove the items of which nothing is left."""
    for cell in range(last.size):
        later, place = _NONE, last[cell]
        while place != _NONE:
            before = whole[_NEXT, place]
            if left[place] > 0.0:
                later = place
            else:
                if later == _NONE:
                    last[cell] = before
                else:
                    whole[_NEXT, later] = before
                whole[_NEXT, place] = free[0]
                free[0] = place
                free[1] += 1
            place = before
