"""Single items at all cells: their number, their ages and their utility."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

from crawl_env.content.cells import Published
from crawl_env.content.process import Feed
from crawl_env.numerics import FloatArray, IntArray

# Sums over the items of a cell, see `ItemStore.sums`.
SUMS = ("number", "age", "age_squared", "log", "age_log")


class ItemStore:
    """The uncollected items at B·N cells, oldest first where capacities hold.

    Arguments:
        feed: tells how much of the items' utility is left.
        size: B·N.
        capacity: (B·N,) the number of last items that a source shows; or None for all.
    """

    def __init__(self, feed: Feed, size: int, capacity: FloatArray | None) -> None:
        self.feed = feed
        self._size, self._capacity = size, capacity
        self._new: list[Published] = []
        self._items = Published.concatenate([])
        self._left = np.empty(0)  # (n,) surviving fraction of each item's utility

    def empty(self, cells: IntArray) -> None:
        """Remove all items of some cells."""
        if self._items.cell.size:
            gone = np.zeros(self._size, dtype=bool)
            gone[cells] = True
            self._keep(~gone[self._items.cell])

    def advance(self) -> None:
        """Let one step pass: all items grow older by one step."""
        self._items = self._items._replace(age=self._items.age + 1.0)

    def append(self, items: Published) -> None:
        """Take up new items, their cells numbered env·N + source; `settle` puts them in place."""
        self._new.append(items)

    def settle(self) -> None:
        """Put new items in place; drop what is worthless and what a source has no room for."""
        self._items = Published.concatenate([self._items, *self._new])
        self._new = []
        if self._capacity is not None:
            self._items = self._items.only(np.argsort(-self._items.age, kind="stable"))
        self._left = self.feed.survival(self._items)
        if self._capacity is None:
            self._keep(self._left > 0)
            return
        # Worthless items still take a place, so here they stay until newer ones displace them.
        capacity = self._capacity[self._items.cell]
        newer = _rank_from_last(self._items.cell)
        self._keep((newer < capacity) & ((self._left > 0) | np.isfinite(capacity)))

    def value(self) -> FloatArray:
        """Return the uncollected utility, (B·N,)."""
        present = self._items.utility * self._left
        return np.bincount(self._items.cell, present, self._size).astype(np.float64)

    def uncollected(self) -> tuple[FloatArray, FloatArray]:
        """Return the number of items with any utility left, and the sum of their ages in steps,
        (B·N,) each."""
        alive = self._items.only(self._left > 0)
        number = np.bincount(alive.cell, minlength=self._size).astype(np.float64)
        return number, np.bincount(alive.cell, alive.age, self._size).astype(np.float64)

    def sums(self, cells: IntArray) -> FloatArray:
        """Return the number of the items of some cells with any utility left, and the sums of their
        ages a in steps, of a², ln w and a ln w, w being their present utility, (5, B·N); 0 at other
        cells."""
        asked = np.zeros(self._size, dtype=bool)
        asked[cells] = True
        present = self._items.utility * self._left
        which = asked[self._items.cell] & (present > 0)
        cell, age, log = self._items.cell[which], self._items.age[which], np.log(present[which])
        terms = (np.ones_like(age), age, age * age, log, age * log)
        return np.stack([np.bincount(cell, term, self._size) for term in terms])

    def get_state(self) -> Published:
        """Return a copy of the items."""
        return deepcopy(self._items)

    def set_state(self, state: Any) -> None:
        """Return to a state of `get_state`; a list of its columns will do."""
        self._items = Published(*deepcopy(tuple(state)))
        self._left = self.feed.survival(self._items)

    def _keep(self, which: Any) -> None:
        if not which.all():
            self._items = self._items.only(which)
            self._left = self._left[which]


def _rank_from_last(cell: IntArray) -> IntArray:
    """Return how many later entries each entry of its cell has, (n,)."""
    backwards = cell[::-1]
    order = np.argsort(backwards, kind="stable")
    here = backwards[order]
    begins = np.flatnonzero(np.diff(here, prepend=-1))
    rank = np.empty_like(cell)
    rank[order] = np.arange(cell.size) - np.repeat(begins, np.diff(begins, append=cell.size))
    return rank[::-1]
