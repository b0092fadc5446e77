"""`ItemLists`: the uncollected items of a world, with work per item that comes or goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crawl_env.compiled import compiled, inlined
from crawl_env.content.items import MOST_STORED, check_stored
from crawl_env.content.process import Feed, Published
from crawl_env.numerics import FloatArray, IntArray, Written

_ROOM, _SPACIOUS = 64, 3  # items at first; places for each item after a new copy
_ALL = 2**62  # items, more than a list can have
# Columns of an item, which lie side by side in memory: its age in steps at the step at which it
# came, and that step; its utility, cell and number; the place of the one that came before in its
# cell. Whole numbers up to 2^53 are exact.
_AGE, _AT, _UTILITY, _CELL, _NUMBER, _BEFORE = range(6)
# Columns of a list: the place of the item that came last, the number of items, and how many of the
# latest ones there can be.
_LAST, _LENGTH, _MOST = range(3)


class ItemLists(Written):
    """The uncollected items of B·N cells, a linked list for each cell.

    A step takes time for the items that come, and a crawl for those that it collects; what waits
    takes none, but for `value`, `uncollected` and copies. Items are written one behind the other;
    where there is no more room, those that have been collected or displaced, or have faded, are
    left out of a new copy.

    Arguments:
        feed: the arrivals, whose `survival` gives the fraction of utility left.
        size: B·N.
        capacity: (B·N,) number of latest items that a source shows, or None for all.
    """

    def __init__(self, feed: Feed, size: int, capacity: FloatArray | None = None) -> None:
        self.feed = feed
        self._clock = 0.0  # steps
        self._everything = np.arange(size)
        self._lists = np.zeros((size, 3), dtype=np.intp)
        self._lists[:, _MOST] = _ALL if capacity is None else np.minimum(capacity, _ALL)
        self._is_limited = capacity is not None
        self._used, self._columns = 0, np.empty((_ROOM, 6))

    def empty(self, cells: IntArray) -> None:
        """Remove all items of the given cells."""
        self._lists[cells, _LENGTH] = 0

    def advance(self) -> None:
        """Advance by one step: the age of every item grows by 1."""
        self._clock += 1.0

    def add(self, batches: Sequence[Published]) -> None:
        """Add items, with cells numbered env·N + source; with capacities from oldest to newest."""
        if self._is_limited:
            items = Published.concatenate(batches)
            batches = [items.only(np.argsort(-items.age, kind="stable"))]
        number = sum(items.cell.size for items in batches)
        if self._used + number > len(self._columns):
            self._make_room(number)
        for items in batches:
            _add(*items, self._clock, self._used, self._lists, self._columns)
            self._used += items.cell.size

    def value(self) -> FloatArray:
        """Return the uncollected utility, (B·N,)."""
        items, survival = self._all()
        present = items.utility * survival
        return np.bincount(items.cell, present, len(self._lists)).astype(np.float64)

    def items(self, cells: IntArray) -> tuple[Published, FloatArray]:
        """Return the items of the given cells that have utility left, and that utility; one cell
        after the other, and in each in the order in which they were added."""
        items = Published.empty(_count(cells, self._lists))
        _read(cells, self._clock, self._lists, self._columns, *items)
        survival = self.feed.survival(items)
        present = items.utility * survival
        if survival.all():
            return items, present
        which = survival > 0
        return items.only(which), present[which]

    def uncollected(self) -> tuple[FloatArray, FloatArray]:
        """Return the number of items with utility left and the sum of their ages in steps, (B·N,)
        each."""
        items, survival = self._all()
        alive, size = items.only(survival > 0), len(self._lists)
        number = np.bincount(alive.cell, minlength=size).astype(np.float64)
        return number, np.bincount(alive.cell, alive.age, size).astype(np.float64)

    def get_state(self) -> Published:
        """Return a copy of the items."""
        items, survival = self._all()
        # Items without utility still occupy a place until newer items displace them.
        return items.only((survival > 0) | (self._lists[items.cell, _MOST] < _ALL))

    def set_state(self, state: Any) -> None:
        """Restore a state returned by `get_state`, which may be a list of its columns."""
        self._lists[:, _LENGTH] = 0
        self.add([Published.copied(state)])

    def _all(self) -> tuple[Published, FloatArray]:
        """Return all items, in the order in which they were added, and the fractions of their
        utility that are left."""
        items = Published.empty(_count(self._everything, self._lists))
        _read_all(self._used, self._clock, self._lists, self._columns, *items)
        return items, self.feed.survival(items)

    def _make_room(self, number: int) -> None:
        """Make room for so many items, and for more."""
        items = self.get_state()
        self._used = items.cell.size
        check_stored(self._used + number, self.feed)
        room = min(_SPACIOUS * (self._used + number), MOST_STORED)
        self._columns = np.empty((max(_ROOM, room), 6))
        self._lists[:, _LENGTH] = 0
        _add(*items, self._clock, 0, self._lists, self._columns)


@inlined
def _older(age: float, steps: float) -> float:
    """Return an age to which 1 is added `steps` times, with the rounding of each addition.

    Rounding occurs only where the sum passes a power of two: numbers in between are added at once.
    """
    edge = 1.0
    while steps > 0.0:
        age += 1.0
        steps -= 1.0
        if steps == 0.0:  # as in every step in which all are read
            return age
        while edge <= age:
            edge *= 2.0
        exact = min(steps, np.floor(edge - age))
        age += exact
        steps -= exact
    return age


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
        here = cell[j]
        columns[place, _BEFORE] = lists[here, _LAST]
        lists[here, _LAST] = place
        lists[here, _LENGTH] = min(lists[here, _LENGTH] + 1, lists[here, _MOST])
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
        for _ in range(lists[cells[i], _LENGTH]):
            j -= 1
            cell[j], number[j] = cells[i], int(columns[place, _NUMBER])
            age[j] = _older(columns[place, _AGE], clock - columns[place, _AT])
            utility[j] = columns[place, _UTILITY]
            place = int(columns[place, _BEFORE])


@compiled
def _read_all(
    used: int,
    clock: float,
    lists: IntArray,
    columns: FloatArray,
    cell: IntArray,
    age: FloatArray,
    utility: FloatArray,
    number: IntArray,
) -> None:
    """Copy all items: of each cell the latest ones, as many as its list has. Their ages are written
    back, since the fewer steps ago they were written, the faster they are computed."""
    j, counts = cell.size, np.zeros(len(lists), np.intp)
    for place in range(used - 1, -1, -1):
        here = int(columns[place, _CELL])
        if counts[here] == lists[here, _LENGTH]:
            continue
        counts[here] += 1
        j -= 1
        columns[place, _AGE] = _older(columns[place, _AGE], clock - columns[place, _AT])
        columns[place, _AT] = clock
        cell[j], number[j] = here, int(columns[place, _NUMBER])
        age[j], utility[j] = columns[place, _AGE], columns[place, _UTILITY]
