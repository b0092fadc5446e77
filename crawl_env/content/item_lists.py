"""`ItemLists`: the uncollected items of a world, with work per item that comes or goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crawl_env.compiled import compiled, inlined
from crawl_env.content.process import Feed, Published
from crawl_env.numerics import FloatArray, IntArray

_NONE = -1  # no item
_ROOM, _SPACIOUS = 64, 3  # items at first; places for each item after a new copy
# Columns of an item, which lie side by side in memory: its age in steps at the step at which it
# came, and that step; its utility, cell and number; the place of the one that came before in its
# cell. Whole numbers up to 2^53 are exact.
_AGE, _AT, _UTILITY, _CELL, _NUMBER, _BEFORE = range(6)
# Columns of a list: the places of the items that came last and first, and their number.
_LAST, _FIRST, _LENGTH = range(3)


class ItemLists:
    """The uncollected items of B·N cells, a linked list for each cell.

    A step takes time for the items that come, and a crawl for those that it collects; what waits
    takes none. Items are written one behind the other; where there is no more room, those that have
    been collected or have faded are left out of a new copy. `crawl_env.content.stock.ItemStore`
    does the same by work on all items, which capacities and decay functions other than the
    exponential need.

    Arguments:
        feed: the arrivals, whose `survival` gives the fraction of utility left.
        size: B·N.
    """

    def __init__(self, feed: Feed, size: int) -> None:
        self.feed = feed
        self._clock = 0.0  # steps
        self._lists = np.empty((size, 3), dtype=np.intp)
        _empty(np.arange(size), self._lists)
        self._used, self._columns = 0, np.empty((_ROOM, 6))

    def empty(self, cells: IntArray) -> None:
        """Remove all items of the given cells."""
        _empty(cells, self._lists)

    def advance(self) -> None:
        """Advance by one step: the age of every item grows by 1."""
        self._clock += 1.0

    def add(self, batches: Sequence[Published]) -> None:
        """Add items, with cells numbered env·N + source."""
        number = sum(items.cell.size for items in batches)
        if self._used + number > len(self._columns):
            self._make_room(number)
        for items in batches:
            _add(*items, self._clock, self._used, self._lists, self._columns)
            self._used += items.cell.size

    def items(self, cells: IntArray) -> tuple[Published, FloatArray]:
        """Return the items of the given cells that have utility left, and that utility; one cell
        after the other, and in each in the order in which they came."""
        found = Published.empty(_count(cells, self._lists))
        _read(cells, self._clock, self._lists, self._columns, *found)
        left = self.feed.survival(found)
        present = found.utility * left
        if left.all():
            return found, present
        which = left > 0
        return found.only(which), present[which]

    def uncollected(self) -> tuple[FloatArray, FloatArray]:
        """Return the number of items with utility left and the sum of their ages in steps, (B·N,)
        each."""
        found, _ = self.items(np.arange(len(self._lists)))
        number = np.bincount(found.cell, minlength=len(self._lists)).astype(np.float64)
        return number, np.bincount(found.cell, found.age, len(self._lists)).astype(np.float64)

    def get_state(self) -> Published:
        """Return a copy of the items."""
        return self.items(np.arange(len(self._lists)))[0]

    def set_state(self, state: Any) -> None:
        """Restore a state returned by `get_state`, which may be a list of its columns."""
        self.empty(np.arange(len(self._lists)))
        self.add([Published.copied(state)])

    def _make_room(self, number: int) -> None:
        """Make room for so many items, and for more."""
        columns, lists = self._columns[: self._used], self._lists
        age = np.empty(self._used)
        _grow_old(columns, self._clock, age)
        cell, item = (columns[:, which].astype(np.intp) for which in (_CELL, _NUMBER))
        left = self.feed.survival(Published(cell, age, columns[:, _UTILITY], item))
        kept = int(lists[:, _LENGTH].sum())
        self._columns = np.empty((max(_ROOM, _SPACIOUS * (kept + number)), 6))
        self._lists = np.empty_like(lists)
        _empty(np.arange(len(lists)), self._lists)
        self._used = _copy(left, lists, columns, self._lists, self._columns)


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
def _grow_old(columns: FloatArray, clock: float, out: FloatArray) -> None:
    for i in range(out.size):
        out[i] = _older(columns[i, _AGE], clock - columns[i, _AT])


@inlined
def _append(place: int, here: int, lists: IntArray, columns: FloatArray) -> None:
    """Append the item at a place to the list of its cell."""
    columns[place, _BEFORE] = lists[here, _LAST]
    lists[here, _LAST] = place
    if lists[here, _LENGTH] == 0:
        lists[here, _FIRST] = place
    lists[here, _LENGTH] += 1


@compiled
def _add(
    cell: IntArray,
    age: FloatArray,
    utility: FloatArray,
    number: IntArray,
    clock: float,
    place: int,
    lists: IntArray,
    columns: FloatArray,
) -> None:
    """Add items, for which there is room from `place` on."""
    for j in range(cell.size):
        columns[place, _AGE], columns[place, _AT] = age[j], clock
        columns[place, _UTILITY] = utility[j]
        columns[place, _CELL], columns[place, _NUMBER] = cell[j], number[j]
        _append(place, cell[j], lists, columns)
        place += 1


@compiled
def _count(cells: IntArray, lists: IntArray) -> int:
    n = 0
    for cell in cells:
        n += lists[cell, _LENGTH]
    return n


@compiled
def _read(
    cells: IntArray,
    clock: float,
    lists: IntArray,
    columns: FloatArray,
    cell: IntArray,
    age: FloatArray,
    utility: FloatArray,
    number: IntArray,
) -> None:
    """Copy the items of some cells; a list is linked from what came last, so it is read
    backwards."""
    j = cell.size
    for i in range(cells.size - 1, -1, -1):
        place = lists[cells[i], _LAST]
        while place != _NONE:
            j -= 1
            cell[j], number[j] = cells[i], int(columns[place, _NUMBER])
            age[j] = _older(columns[place, _AGE], clock - columns[place, _AT])
            utility[j] = columns[place, _UTILITY]
            place = int(columns[place, _BEFORE])


@compiled
def _empty(cells: IntArray, lists: IntArray) -> None:
    for cell in cells:
        lists[cell, _LAST] = lists[cell, _FIRST] = _NONE
        lists[cell, _LENGTH] = 0


@compiled
def _copy(
    left: FloatArray,
    lists: IntArray,
    columns: FloatArray,
    into_lists: IntArray,
    into_columns: FloatArray,
) -> int:
    """Copy the items that are neither collected nor faded, in their order, and return their
    number."""
    out = 0
    for place in range(left.size):
        here = int(columns[place, _CELL])
        first = lists[here, _FIRST]  # of a cell, what is collected comes before what is not
        if first != _NONE and place >= first and left[place] > 0.0:
            for column in range(_BEFORE):
                into_columns[out, column] = columns[place, column]
            _append(out, here, into_lists, into_columns)
            out += 1
    return out
