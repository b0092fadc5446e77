"""Stocks: the uncollected utility of the cells of a world, by recursion or item by item."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np

from crawl_env.compiled import compiled
from crawl_env.content.arrivals import MeanFeed
from crawl_env.content.item_lists import ItemLists
from crawl_env.content.items import check_stored
from crawl_env.content.process import Block, Feed, Published
from crawl_env.numerics import FloatArray, IntArray, Written
from crawl_env.threads import each

Add = Callable[[FloatArray, FloatArray | None, np.random.Generator], None]


class Stock(Written):
    """Uncollected utility that obeys the recursion X ← αX + U.

    Arguments:
        feed: the arrivals.
        shape: (B, N).
        count: whether to count items too.
        announce: whether to keep the items that arrived last, which requires that they are drawn
            singly.

    Attributes:
        feed: the feed from which content arrives.
        value: (B, N) uncollected utility.
        count: (B, N) number of items published since the last crawl, or None.
        published: the items that arrived in the last step, or at the last `start`, if announced.
    """

    def __init__(
        self, feed: Feed, shape: tuple[int, int], count: bool = False, announce: bool = False
    ) -> None:
        self.value = np.zeros(shape)
        self.count = np.zeros(shape) if count else None
        self.published: list[Published] = []
        self._announce, self._kept = announce, 0
        self.change_feed(feed)

    def change_feed(self, feed: Feed) -> None:
        """Replace the feed from which content arrives."""
        self.feed = feed
        self.flat = self.value.reshape(-1)
        self._flat_count = None if self.count is None else self.count.reshape(-1)
        self._prepare(feed)

    def _prepare(self, feed: Feed) -> None:
        """Compute what a step needs of the feed."""
        self._new_items: list[list[Published]] = [[] for _ in feed.blocks]
        self._blocks: list[tuple[FloatArray, FloatArray | None, FloatArray, Add]] = []
        for i, (here, block) in enumerate(feed.blocks):
            add = self._noting(i, here, block) if self._announce else block.add
            count = None if self._flat_count is None else self._flat_count[here]
            self._blocks.append((self.flat[here], count, block.cells.retention, add))
        several = len(self._blocks) > 1
        self._parallel = several and all(block.parallel for _, block in feed.blocks)

    def _noting(self, i: int, here: slice, block: Block) -> Add:
        """Return a function that does what `block.add` does and keeps the items in `_new_items`."""

        def add(value: FloatArray, count: FloatArray | None, rng: np.random.Generator) -> None:
            batches = []
            for items in block.draw(rng):
                self._keep(items)
                block.cells.collect(items, value, count)
                if here.start:  # cells are numbered as in the world
                    items = items._replace(cell=items.cell + here.start)
                batches.append(items)
            self._new_items[i] = batches

        return add

    def _keep(self, items: Published) -> None:
        """Count the items that are kept of a step or a start; there must not be too many."""
        self._kept += items.cell.size
        check_stored(self._kept, self.feed)

    def start(self, envs: IntArray, steps: FloatArray, rng: np.random.Generator) -> None:
        """Replace the content of the environments `envs` (b,) by that of `steps` (b, N) steps."""
        past = self.feed.past(envs, steps.ravel())
        value, count = np.zeros(steps.size), np.zeros(steps.size)
        if self._announce:
            cells, self.published = self._numbers(envs), []
            self._kept = 0
            for items in past.draw(rng):
                self._keep(items)
                past.cells.collect(items, value, count)
                self.published.append(items._replace(cell=cells[items.cell]))
        else:
            past.add(value, count, rng)
        self.value[envs] = value.reshape(steps.shape)
        if self.count is not None:
            # The stationary distribution has infinitely many items: count from the start instead.
            self.count[envs] = np.where(np.isinf(steps), 0.0, count.reshape(steps.shape))

    def _numbers(self, envs: IntArray) -> IntArray:
        """Return the numbers of the cells of some environments."""
        return np.arange(self.value.size).reshape(self.value.shape)[envs].ravel()

    def advance(self, rng: np.random.Generator) -> None:
        """Advance by one step: content decays, then new content arrives."""
        self._kept = 0
        if self._parallel:  # each block with a generator of its own
            words = rng.bit_generator.random_raw(2 * len(self._blocks)).reshape(-1, 2)
            own = [np.random.Generator(np.random.PCG64(pair)) for pair in words]
            each(lambda i: self._advance_block(i, own[i]), len(own))
        else:
            for i in range(len(self._blocks)):
                self._advance_block(i, rng)
        if self._announce:
            self.published = list(chain.from_iterable(self._new_items))

    def _advance_block(self, i: int, rng: np.random.Generator) -> None:
        value, count, retention, add = self._blocks[i]
        np.multiply(value, retention, value)
        add(value, count, rng)

    def empty(self, cells: IntArray) -> None:
        """Remove the content of the cells env·N + source."""
        self.flat[cells] = 0.0
        if self._flat_count is not None:
            self._flat_count[cells] = 0.0

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the time-dependent state, without that of the feed."""
        return {
            "value": self.value.copy(),
            "items": None if self.count is None else self.count.copy(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state returned by `get_state`."""
        self.value[...] = state["value"]
        if self.count is not None:
            self.count[...] = state["items"]

    def __getstate__(self) -> dict[str, Any]:
        views = ("flat", "_flat_count", "_blocks", "_drawn")
        return {name: value for name, value in vars(self).items() if name not in views}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.change_feed(self.feed)


class MeanStock(Stock):
    """Content that is its mean."""

    def _prepare(self, feed: Feed) -> None:
        assert isinstance(feed, MeanFeed)
        self.flow, self._items = feed.flow, feed.items

    def advance(self, rng: np.random.Generator) -> None:
        _advance(self.flat, self.flow)
        if self._flat_count is not None:
            rows = self._flat_count.size // self._items.size * self._items.size
            self._flat_count[:rows].reshape(-1, self._items.size)[...] += self._items
            self._flat_count[rows:] += self._items[: self._flat_count.size - rows]


@compiled
def _advance(value: FloatArray, flow: FloatArray) -> None:
    """Let flat values decay and add the inflow; see `MeanFeed` for `flow`."""
    for start in range(0, value.size, flow.shape[1]):
        for i in range(min(flow.shape[1], value.size - start)):
            cell = np.uintp(start + i)
            value[cell] = value[cell] * flow[0, i] + flow[1, i]


class ItemStock(Stock):
    """Content whose items are stored singly, and announced.

    Arguments:
        feed: the arrivals; it must draw single items.
        shape: (B, N).
        count: as in `Stock`.
        capacity: (B·N,) number of latest items that a source shows, or None for all.
        recursive: whether the value is computed by the recursion, which requires exponential decay
            and no capacities; it is then bit for bit the same as without stored items.
    """

    def __init__(
        self,
        feed: Feed,
        shape: tuple[int, int],
        count: bool,
        capacity: FloatArray | None,
        recursive: bool,
    ) -> None:
        self.store = ItemLists(feed, shape[0] * shape[1], capacity)
        self._capacity, self._recursive = capacity, recursive
        super().__init__(feed, shape, count, announce=True)

    def change_feed(self, feed: Feed) -> None:
        super().change_feed(feed)
        self.store.feed = feed

    def start(self, envs: IntArray, steps: FloatArray, rng: np.random.Generator) -> None:
        super().start(envs, steps, rng)
        cells = self._numbers(envs)
        self.store.empty(cells)
        self._store(cells)

    def advance(self, rng: np.random.Generator) -> None:
        super().advance(rng)
        self.store.advance()
        self._store(slice(None))

    def _store(self, cells: IntArray | slice) -> None:
        """Store the items that have arrived at some cells, and compute what depends on them."""
        self.store.add(self.published)
        if not self._recursive:
            self.flat[cells] = self.store.value()[cells]
        if self._flat_count is not None and self._capacity is not None:
            self._flat_count[cells] = np.minimum(self._flat_count[cells], self._capacity[cells])

    def empty(self, cells: IntArray) -> None:
        super().empty(cells)
        self.store.empty(cells)

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "store": self.store.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self.store.set_state(state["store"])


def sums_of(items: Published, present: FloatArray, size: int) -> FloatArray:
    """Return sums over items of utility `present` (n,) at cells numbered below `size`, (5, size).

    The sums are those of 1, a, a², ln w and a ln w, where a is the age in steps and w the current
    utility, over the items with w > 0.
    """
    which = present > 0
    cell, age, log = items.cell[which], items.age[which], np.log(present[which])
    terms = (np.ones_like(age), age, age * age, log, age * log)
    return np.stack([np.bincount(cell, term, size) for term in terms])
