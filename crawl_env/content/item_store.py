"""What waits at each source, item by item: for decay that no recursion follows, and for sources
that show only their last few items."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from crawl_env.numerics import FloatArray

IntArray = NDArray[np.intp]


SUMS = ("number", "age", "age_squared", "log", "age_log")  # of a cell's items, see `Ledger.sums`


class Published(NamedTuple):
    """n items, in any order."""

    cell: IntArray  # (n,) row·N + source
    age: FloatArray  # (n,) epochs
    utility: FloatArray  # (n,) when published
    number: IntArray  # (n,) which item of a log it is; 0 where there is none

    def only(self, which: Any) -> Published:
        """Return some of the items, by indices or a mask, in that order."""
        return Published(self.cell[which], self.age[which], self.utility[which], self.number[which])

    def joined(self, other: Published) -> Published:
        """Return these items followed by others."""
        return Published(
            np.concatenate((self.cell, other.cell)),
            np.concatenate((self.age, other.age)),
            np.concatenate((self.utility, other.utility)),
            np.concatenate((self.number, other.number)),
        )


class Feed(Protocol):
    """Where the items of a world's cells come from, and how they decay."""

    def start(
        self, cells: IntArray, epochs: FloatArray, rows: IntArray, rng: np.random.Generator
    ) -> Published:
        """Return the items of the last `epochs` (n,) epochs of some cells, whose rows start anew;
        infinity: all that are worth anything."""

    def advance(self, rng: np.random.Generator) -> Published:
        """Return the items of the epoch that has passed, in all rows."""

    def share(self, items: Published) -> FloatArray:
        """Return what is left of the items' utility, (n,); 0 for ever once it is 0."""

    def get_state(self) -> Any:
        """Return a copy of what changes with time, or None."""

    def set_state(self, state: Any) -> None:
        """Return to a state of `get_state`."""


class Ledger:
    """The items waiting at B×N cells, oldest first where capacities hold.

    Arguments:
        feed: of items.
        cells: B·N.
        capacity: (B·N,) items that a cell shows, the last ones; or None for all.
    """

    def __init__(self, feed: Feed, cells: int, capacity: FloatArray | None) -> None:
        self.feed = feed
        self._cells, self._capacity = cells, capacity
        self._items = _none()
        self._left = np.empty(0)  # (n,) share of each item's utility

    def start(
        self, cells: IntArray, epochs: FloatArray, rows: IntArray, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Fill cells anew; return the utility and the number of items in them, (n,) each."""
        self.empty(cells)
        new = self.feed.start(cells, epochs, rows, rng)
        count = np.bincount(new.cell, minlength=self._cells)[cells].astype(float)
        self._add(new)
        if self._capacity is not None:
            count = np.minimum(count, self._capacity[cells])
        return self.value()[cells], np.where(np.isinf(epochs), 0.0, count)

    def change_feed(self, feed: Feed) -> None:
        """Take items from another feed from now on, which goes on where the last one stands."""
        feed.set_state(self.feed.get_state())
        self.feed = feed

    def empty(self, cells: IntArray) -> None:
        """Remove all items of some cells."""
        if self._items.cell.size:
            gone = np.zeros(self._cells, dtype=bool)
            gone[cells] = True
            self._keep(~gone[self._items.cell])

    def advance(self, rng: np.random.Generator) -> FloatArray:
        """Let an epoch pass; return the number of items that it brought, (B·N,)."""
        self._items = self._items._replace(age=self._items.age + 1.0)
        new = self.feed.advance(rng)
        self._add(new)
        return np.bincount(new.cell, minlength=self._cells).astype(np.float64)

    def value(self) -> FloatArray:
        """Return the utility waiting, (B·N,)."""
        worth = self._items.utility * self._left
        return np.bincount(self._items.cell, worth, self._cells).astype(np.float64)

    def waiting(self) -> tuple[FloatArray, FloatArray]:
        """Return how many items are worth something, and the sum of their ages, (B·N,) each."""
        alive = self._items.only(self._left > 0)
        number = np.bincount(alive.cell, minlength=self._cells).astype(np.float64)
        return number, np.bincount(alive.cell, alive.age, self._cells).astype(np.float64)

    def sums(self, cells: IntArray) -> FloatArray:
        """Return the number of the items in some cells that are worth something, and the sums of
        their ages a in epochs, of a², ln w and a ln w, w being what they are worth now, (5, B·N);
        0 in other cells."""
        asked = np.zeros(self._cells, dtype=bool)
        asked[cells] = True
        worth = self._items.utility * self._left
        which = asked[self._items.cell] & (worth > 0)
        cell, age, log = self._items.cell[which], self._items.age[which], np.log(worth[which])
        terms = (np.ones_like(age), age, age * age, log, age * log)
        return np.stack([np.bincount(cell, term, self._cells) for term in terms])

    def get_state(self) -> dict[str, Any]:
        """Return a copy of all that changes with time."""
        return {"items": deepcopy(self._items), "feed": self.feed.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Return to a state of `get_state`."""
        # Plain columns where the state comes from a file.
        self._items = Published(*deepcopy(tuple(state["items"])))
        self.feed.set_state(state["feed"])
        self._left = self.feed.share(self._items)

    def _add(self, new: Published) -> None:
        self._items = self._items.joined(new)
        if self._capacity is not None:
            self._items = self._items.only(np.argsort(-self._items.age, kind="stable"))
        self._left = self.feed.share(self._items)
        self._drop()

    def _drop(self) -> None:
        """Forget what is worth nothing, and what a cell has no room for."""
        if self._capacity is None:
            self._keep(self._left > 0)
            return
        # Worthless items still take a place, so here they stay until newer ones push them out.
        capacity = self._capacity[self._items.cell]
        newer = _rank_from_last(self._items.cell)
        self._keep((newer < capacity) & ((self._left > 0) | np.isfinite(capacity)))

    def _keep(self, which: NDArray[np.bool_]) -> None:
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


def _none() -> Published:
    nowhere = np.empty(0, dtype=np.intp)
    return Published(nowhere, np.empty(0), np.empty(0), nowhere)
