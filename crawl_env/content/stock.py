"""Uncollected utility and the number of items at all cells, and how arrivals change them."""

from __future__ import annotations

from typing import Any

import numpy as np

from crawl_env.content.cells import Published
from crawl_env.content.item_store import ItemStore
from crawl_env.content.process import Feed
from crawl_env.numerics import FloatArray, IntArray


class Stock:
    """Uncollected utility that follows the recursion X ← αX + U.

    Arguments:
        feed: what arrives.
        shape: (B, N).
        count: whether to count items also.

    Attributes:
        value: (B, N) uncollected utility.
        count: (B, N) number of items published since the last crawl, or None.
    """

    def __init__(self, feed: Feed, shape: tuple[int, int], count: bool = False) -> None:
        self.value = np.zeros(shape)
        self.count = np.zeros(shape) if count else None
        self.change_feed(feed)

    def change_feed(self, feed: Feed) -> None:
        """Let content arrive from another feed from now on."""
        self._feed = feed
        self._flat = self.value.reshape(-1)
        self._flat_count = None if self.count is None else self.count.reshape(-1)
        self._blocks = [
            (self._flat[here], self._count_of(here), block.cells.retention, block.add)
            for here, block in feed.blocks
        ]

    def _count_of(self, cells: slice) -> FloatArray | None:
        return None if self._flat_count is None else self._flat_count[cells]

    def start(self, envs: IntArray, steps: FloatArray, rng: np.random.Generator) -> None:
        """Replace the content of some environments, (b,), by that of the last `steps`, (b, N)."""
        past = self._feed.past(envs, steps.ravel())
        value, count = np.zeros(steps.size), np.zeros(steps.size)
        past.add(value, count, rng)
        self._set(envs, steps, value, count)

    def _set(self, envs: IntArray, steps: FloatArray, value: FloatArray, count: FloatArray) -> None:
        self.value[envs] = value.reshape(steps.shape)
        if self.count is not None:
            # The stationary distribution has infinitely many items, so they count from now on.
            self.count[envs] = np.where(np.isinf(steps), 0.0, count.reshape(steps.shape))

    def advance(self, rng: np.random.Generator) -> None:
        """Let one step pass: content decays, then new content arrives."""
        for value, count, retention, add in self._blocks:
            np.multiply(value, retention, value)
            add(value, count, rng)

    def empty(self, cells: IntArray) -> None:
        """Remove the content of some cells, env·N + source."""
        self._flat[cells] = 0.0
        if self._flat_count is not None:
            self._flat_count[cells] = 0.0

    def get_state(self) -> dict[str, Any]:
        """Return a copy of all that changes with time, but for the feed's state."""
        return {
            "value": self.value.copy(),
            "items": None if self.count is None else self.count.copy(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Return to a state of `get_state`."""
        self.value[...] = state["value"]
        if self.count is not None:
            self.count[...] = state["items"]

    def __getstate__(self) -> dict[str, Any]:
        views = ("_flat", "_flat_count", "_blocks")
        return {name: value for name, value in vars(self).items() if name not in views}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.change_feed(self._feed)


class ItemStock(Stock):
    """Content whose single items are stored.

    Arguments:
        feed: what arrives; it draws single items.
        shape: (B, N).
        count: whether to count items also.
        capacity: (B·N,) the number of last items that a source shows; or None for all.
        recursive: whether the value follows the recursion, as it can under exponential decay
            without capacities; it is then the same, to the last bit, as without stored items.
    """

    def __init__(
        self,
        feed: Feed,
        shape: tuple[int, int],
        count: bool,
        capacity: FloatArray | None,
        recursive: bool,
    ) -> None:
        self.store = ItemStore(feed, shape[0] * shape[1], capacity)
        self._capacity, self._recursive = capacity, recursive
        super().__init__(feed, shape, count)

    def change_feed(self, feed: Feed) -> None:
        super().change_feed(feed)
        self.store.feed = feed

    def start(self, envs: IntArray, steps: FloatArray, rng: np.random.Generator) -> None:
        past, cells = self._feed.past(envs, steps.ravel()), self._numbers(envs)
        self.store.empty(cells)
        value, count = np.zeros(steps.size), np.zeros(steps.size)
        for items in past.draw(rng):
            past.cells.collect(items, value, count)
            self.store.append(items._replace(cell=cells[items.cell]))
        self.store.settle()
        if not self._recursive:
            value = self.store.value()[cells]
        if self._capacity is not None:
            count = np.minimum(count, self._capacity[cells])
        self._set(envs, steps, value, count)

    def _numbers(self, envs: IntArray) -> IntArray:
        return np.arange(self.value.size).reshape(self.value.shape)[envs].ravel()

    def advance(self, rng: np.random.Generator) -> None:
        self.store.advance()
        for here, block in self._feed.blocks:
            value, count = self._flat[here], self._count_of(here)
            np.multiply(value, block.cells.retention, value)
            for items in block.draw(rng):
                block.cells.collect(items, value, count)
                self.store.append(_numbered(items, here))
        self.store.settle()
        if not self._recursive:
            self._flat[...] = self.store.value()
        if self._flat_count is not None and self._capacity is not None:
            np.minimum(self._flat_count, self._capacity, out=self._flat_count)

    def empty(self, cells: IntArray) -> None:
        super().empty(cells)
        self.store.empty(cells)

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "store": self.store.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self.store.set_state(state["store"])


def _numbered(items: Published, here: slice) -> Published:
    """Return the items of a block with the numbers that their cells have in the world."""
    return items if here.start == 0 else items._replace(cell=items.cell + here.start)
