"""`World`: the state of all sources (uncollected utility, age, belief) and its dynamics."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crawl_env.compiled import compiled
from crawl_env.content.arrivals import Deterministic, MeanFeed
from crawl_env.content.process import (
    ArrivalProcess,
    Feed,
    Published,
    generators,
    require_items,
)
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import BoolArray, FloatArray, IntArray
from crawl_env.threads import each

# Age of a source never crawled (start="full"). It is finite, as an input of networks must be; the
# mean content at this age equals the ceiling for every μT above 4e-8.
NEVER = 1e9
# Names of the sums over the items of a cell; see `ItemStore.sums`.
SUMS = ("number", "age", "age_squared", "log", "age_log")


class World:
    """State of B independent environments of N sources. A cell is one source of one environment.

    Arguments:
        sources: one fleet (N,) shared by all environments, or a batch (B, N) of one fleet each.
        arrivals: the arrival process.
        num_envs: B.
        count: whether to count the uncollected items.
        track_belief: whether to update the belief; needed only if arrivals are random and some
            source is unobserved.
        store_items: whether to store single items, and to sum over those that crawls collect in
            `harvested`.

    None of the last three changes what arrives.

    Attributes:
        value: (B, N) uncollected utility.
        items: (B, N) number of items published since the last crawl that the source still shows, or
            None.
        age: (B, N) steps since the last crawl; 1 at the step after one, ≥ 1e9 if never crawled.
        crawled_at: (B, N) step of the last crawl, on the world's clock; `flat_crawled_at`, (B·N,),
            is a view of it.
        tried_at: (B, N) step of the last attempt, successful or not, on the world's clock.
        belief: (B, N) posterior mean of `value` given the crawls.
        rate: (B, N) items / time, the arrival rate of the next step; equal to the fleet's
            `arrival_rate` if this is constant or arrivals are recorded.
        harvested: (5, B, N) the sums `SUMS` over the items with utility left that the crawls of the
            last step collected, ages in steps; or None.

    A step is `crawl`, which collects content, followed by `advance`, in which content decays and
    new content arrives.

    Raises:
        ValueError: single items are needed and `arrivals` does not draw them.

    >>> world = World(Sources.preset("table1"), Deterministic())
    >>> rng = np.random.default_rng(0)
    >>> world.start(np.ones((1, 4)), rng)
    >>> world.crawl(np.array([[0]])).round(3)
    array([[179.791]])
    >>> world.advance(rng)
    >>> world.value.round(3), world.age
    (array([[179.791, 251.707,  53.815,  32.662]]), array([[1., 2., 2., 2.]]))
    """

    def __init__(
        self,
        sources: Sources,
        arrivals: ArrivalProcess,
        num_envs: int = 1,
        count: bool = False,
        track_belief: bool = False,
        store_items: bool = False,
    ) -> None:
        self.arrivals = arrivals
        self.shape = (num_envs, len(sources))
        self._clock = 0.0
        # The step of the last crawl is stored instead of the age, so that ages need no update.
        self.crawled_at = np.zeros(self.shape)
        self.tried_at = np.zeros(self.shape) if sources.fails else self.crawled_at
        self.harvested = np.zeros((len(SUMS), *self.shape)) if store_items else None
        self._bind(sources)
        self._stock = self._new_stock(count, store_items)
        self._belief = self._stock
        if track_belief and arrivals.random:
            self._belief = MeanStock(Deterministic().bind(sources, num_envs), self.shape)
        self.value, self.items = self._stock.value, self._stock.count
        self.belief = self._belief.value
        self.flat_crawled_at = self.crawled_at.reshape(-1)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Copying and pickling turn views into separate arrays.
        vars(self).update(state)
        self.flat_crawled_at = self.crawled_at.reshape(-1)

    def _bind(self, sources: Sources) -> None:
        if sources.arrival_rate.shape not in (self.shape[1:], self.shape):
            raise ValueError(
                f"sources have shape {sources.arrival_rate.shape}; this world of {self.shape[0]} "
                f"environments needs {self.shape[1:]}, shared by all, or {self.shape}"
            )
        self.sources = sources
        self._feed = self.arrivals.bind(sources, self.shape[0])
        self._capped = sources.capped_content if sources.is_capped else None

    def _new_stock(self, count: bool, store_items: bool) -> Stock:
        capped = self.sources.is_capped and self.arrivals.random
        if count and self.arrivals.random:
            require_items(self.arrivals, "items are to be counted")
        if store_items:
            require_items(self.arrivals, "features such as harvest_age sum over items")
        if capped:
            require_items(self.arrivals, "some sources have a finite capacity")
        if isinstance(self._feed, MeanFeed):
            return MeanStock(self._feed, self.shape, count)
        if not (capped or store_items or not self.arrivals.exponential):
            return Stock(self._feed, self.shape, count)
        capacity = np.broadcast_to(self.sources.capacity, self.shape).ravel() if capped else None
        recursive = self.arrivals.exponential and not capped
        return ItemStock(self._feed, self.shape, count, capacity, recursive)

    @property
    def age(self) -> FloatArray:
        return self._clock - self.crawled_at

    @property
    def rate(self) -> FloatArray:
        return self._feed.rate()

    @property
    def available(self) -> NDArray[np.bool_] | None:
        """Which sources may be crawled now, (B, N); None if all may be crawled at all times."""
        if not self.sources.is_delayed:
            return None
        delay = self.sources.delay
        return np.asarray((self.steps_since_attempt >= delay) | (delay == 1))

    @property
    def steps_since_attempt(self) -> FloatArray:
        """Steps since the last attempt, (B, N)."""
        return self._clock - self.tried_at

    @property
    def keeps_items(self) -> bool:
        """Whether the content consists of stored items or is determined by the ages, so that its
        value cannot be set."""
        return isinstance(self._stock, ItemStock) or self.sources.is_capped

    def uncollected_items(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the number of uncollected items with utility left and the sum of their ages in
        steps, (B, N) each; None if items are not stored."""
        if not isinstance(self._stock, ItemStock):
            return None
        number, ages = self._stock.store.uncollected()
        return number.reshape(self.shape), ages.reshape(self.shape)

    def set_sources(self, sources: Sources) -> None:
        """Replace the publishing sources from the next step on, by (N,) for all or (B, N)."""
        state = self._feed.get_state()
        self._bind(sources)
        self._feed.set_state(state)
        self._stock.change_feed(self._feed)
        if self._belief is not self._stock:
            self._belief.change_feed(Deterministic().bind(sources, self.shape[0]))

    def start(
        self,
        age: FloatArray,
        rng: np.random.Generator,
        envs: NDArray[np.bool_] | slice = slice(None),
        value: FloatArray | None = None,
    ) -> None:
        """Begin an episode of the environments `envs`, with sources last crawled `age` (b, N) steps
        ago.

        Content of that age is drawn, and the belief is its mean; if `value` is given, it replaces
        both.
        """
        numbers = np.arange(self.shape[0])[envs]
        self._feed.start(numbers, rng)
        steps = np.where(age >= NEVER, np.inf, age)
        self._stock.start(numbers, steps, rng)
        if self._belief is not self._stock:
            self._belief.start(numbers, steps, rng)
        if value is not None:
            self.value[envs] = self.belief[envs] = value
        if self.harvested is not None:
            self.harvested[:, envs] = 0.0
        self.crawled_at[envs] = self.tried_at[envs] = self._clock - age
        self._hold_capacity()

    def crawl(self, picked: IntArray, failed: NDArray[np.bool_] | None = None) -> FloatArray:
        """Empty the picked cells (env·N + source, any shape) and return the utility collected.

        A crawl that `failed`, a mask of the shape of `picked`, collects 0 and leaves the cell
        unchanged.
        """
        collected: FloatArray = self.value.take(picked)
        if self.sources.fails:
            self.tried_at.reshape(-1)[picked] = self._clock
        if failed is not None:
            collected = np.where(failed, 0.0, collected)
            picked = picked[~failed]
        if self.harvested is not None and isinstance(self._stock, ItemStock):
            sums = self._stock.store.sums(picked.ravel())
            self.harvested[...] = sums.reshape(self.harvested.shape)
        self.flat_crawled_at[picked] = self._clock
        self._stock.empty(picked)
        if self._belief is not self._stock:
            self._belief.empty(picked)
        return collected

    @property
    def is_mean(self) -> bool:
        """Whether `step` can be used: the value of every source is its mean, and nothing else is
        known of the content."""
        return (
            isinstance(self._stock, MeanStock)
            and self._stock.count is None
            and not self.sources.fails
            and self._capped is None
        )

    def step(
        self,
        picked: IntArray,
        utility: FloatArray,
        reward: FloatArray,
        shown: NDArray[np.float32],
        crawled: BoolArray,
        collected: FloatArray,
    ) -> None:
        """Do what `crawl` and `advance` do in one call, if `is_mean`.

        Arguments:
            picked: (B·k,) the cells to crawl, ascending, k in each environment.
            utility: (B·k,), set to the utility collected of each.
            reward: (B,), set to its sum in each environment.
            shown: (B·N,), set to the value after the step.
            crawled, collected: (B·N,), set to true and to the utility at the picked cells; or
                both empty.
        """
        stock, clock = self._stock, self._clock
        assert isinstance(stock, MeanStock)
        self._clock = clock + 1.0
        _step(
            picked,
            clock,
            stock.flat,
            self.flat_crawled_at,
            stock.flow,
            utility,
            reward,
            shown,
            crawled,
            collected,
        )

    def advance(self, rng: np.random.Generator) -> None:
        """Advance by one step: content decays, then new content arrives."""
        self._clock += 1.0
        self._stock.advance(rng)
        if self._belief is not self._stock:
            self._belief.advance(rng)
        if self._capped is not None:
            self._hold_capacity()

    def _hold_capacity(self) -> None:
        """Set the mean content of sources with a finite capacity, which is a function of the age
        and obeys no recursion."""
        if self._capped is None:
            return
        if self.items is not None:
            np.minimum(self.items, self.sources.capacity, out=self.items)
        if self.arrivals.random and self._belief is self._stock:
            return
        which, mean = self._capped
        age = self.age[:, which]
        content = mean(np.where(age >= NEVER, np.inf, age))
        finite = np.isfinite(self.sources.capacity[..., which])
        self.belief[:, which] = np.where(finite, content, self.belief[:, which])

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the time-dependent state."""
        return {
            **self._stock.get_state(),
            "age": self.age,
            "steps_since_attempt": self.steps_since_attempt,
            "belief": self.belief.copy(),
            "feed": self._feed.get_state(),
            "harvested": None if self.harvested is None else self.harvested.copy(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state returned by `get_state`."""
        self._stock.set_state(state)
        self.crawled_at[...] = self._clock - state["age"]
        self.tried_at[...] = self._clock - state["steps_since_attempt"]
        self.belief[...] = state["belief"]
        self._feed.set_state(state["feed"])
        if self.harvested is not None:
            self.harvested[...] = state["harvested"]


class Stock:
    """Uncollected utility that obeys the recursion X ← αX + U.

    Arguments:
        feed: the arrivals.
        shape: (B, N).
        count: whether to count items too.

    Attributes:
        value: (B, N) uncollected utility.
        count: (B, N) number of items published since the last crawl, or None.
    """

    def __init__(self, feed: Feed, shape: tuple[int, int], count: bool = False) -> None:
        self.value = np.zeros(shape)
        self.count = np.zeros(shape) if count else None
        self.change_feed(feed)

    def change_feed(self, feed: Feed) -> None:
        """Replace the feed from which content arrives."""
        self._feed = feed
        self.flat = self.value.reshape(-1)
        self._flat_count = None if self.count is None else self.count.reshape(-1)
        self._blocks = [
            (self.flat[here], self._count_of(here), block.cells.retention, block.add)
            for here, block in feed.blocks
        ]

    def _count_of(self, cells: slice) -> FloatArray | None:
        return None if self._flat_count is None else self._flat_count[cells]

    def start(self, envs: IntArray, steps: FloatArray, rng: np.random.Generator) -> None:
        """Replace the content of the environments `envs` (b,) by that of `steps` (b, N) steps."""
        past = self._feed.past(envs, steps.ravel())
        value, count = np.zeros(steps.size), np.zeros(steps.size)
        past.add(value, count, rng)
        self._set(envs, steps, value, count)

    def _set(self, envs: IntArray, steps: FloatArray, value: FloatArray, count: FloatArray) -> None:
        self.value[envs] = value.reshape(steps.shape)
        if self.count is not None:
            # The stationary distribution has infinitely many items: count from the start instead.
            self.count[envs] = np.where(np.isinf(steps), 0.0, count.reshape(steps.shape))

    def advance(self, rng: np.random.Generator) -> None:
        """Advance by one step: content decays, then new content arrives."""
        own = generators(self._feed.blocks, rng)
        if own[0] is rng:
            for i in range(len(own)):
                self._advance_block(i, rng)
        else:
            each(lambda i: self._advance_block(i, own[i]), len(own))

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
        views = ("flat", "_flat_count", "_blocks")
        return {name: value for name, value in vars(self).items() if name not in views}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.change_feed(self._feed)


class MeanStock(Stock):
    """Content that is its mean."""

    def change_feed(self, feed: Feed) -> None:
        assert isinstance(feed, MeanFeed)
        self._feed = feed
        self.flat = self.value.reshape(-1)
        self._flat_count = None if self.count is None else self.count.reshape(-1)
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


@compiled
def _step(
    picked: IntArray,
    clock: float,
    value: FloatArray,
    crawled_at: FloatArray,
    flow: FloatArray,
    utility: FloatArray,
    reward: FloatArray,
    shown: NDArray[np.float32],
    crawled: BoolArray,
    collected: FloatArray,
) -> None:
    """Do what `World.step` does to flat arrays."""
    k = picked.size // reward.size
    for env in range(reward.size):
        total = 0.0
        for j in range(env * k, (env + 1) * k):
            cell = np.uintp(picked[j])
            found = value[cell]
            total += found
            utility[j] = found
            value[cell] = 0.0
            crawled_at[cell] = clock
            if collected.size > 0:
                crawled[cell] = True
                collected[cell] = found
        reward[env] = total
    for start in range(0, value.size, flow.shape[1]):
        for i in range(min(flow.shape[1], value.size - start)):
            cell = np.uintp(start + i)
            value[cell] = value[cell] * flow[0, i] + flow[1, i]
            shown[cell] = value[cell]


class ItemStock(Stock):
    """Content whose items are stored singly.

    Arguments:
        feed: the arrivals; it must draw single items.
        shape: (B, N).
        count: whether to count items too.
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
        blocks = self._feed.blocks
        for (here, block), own in zip(blocks, generators(blocks, rng), strict=True):
            value, count = self.flat[here], self._count_of(here)
            np.multiply(value, block.cells.retention, value)
            for items in block.draw(own):
                block.cells.collect(items, value, count)
                self.store.append(_numbered(items, here))
        self.store.settle()
        if not self._recursive:
            self.flat[...] = self.store.value()
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
    """Return the items of a block with their cells numbered as in the world."""
    return items if here.start == 0 else items._replace(cell=items.cell + here.start)


class ItemStore:
    """The uncollected items at B·N cells; with capacities, sorted from oldest to newest.

    Arguments:
        feed: the arrivals, whose `survival` gives the fraction of utility left.
        size: B·N.
        capacity: (B·N,) number of latest items that a source shows, or None for all.
    """

    def __init__(self, feed: Feed, size: int, capacity: FloatArray | None) -> None:
        self.feed = feed
        self._size, self._capacity = size, capacity
        self._new: list[Published] = []
        self._items = Published.concatenate([])
        self._left = np.empty(0)  # (n,) surviving fraction of each item's utility

    def empty(self, cells: IntArray) -> None:
        """Remove all items of the given cells."""
        if self._items.cell.size:
            gone = np.zeros(self._size, dtype=bool)
            gone[cells] = True
            self._keep(~gone[self._items.cell])

    def advance(self) -> None:
        """Advance by one step: the age of every item grows by 1."""
        self._items = self._items._replace(age=self._items.age + 1.0)

    def append(self, items: Published) -> None:
        """Queue new items, with cells numbered env·N + source, until `settle` adds them."""
        self._new.append(items)

    def settle(self) -> None:
        """Add the queued items; drop those without utility and those beyond the capacity."""
        self._items = Published.concatenate([self._items, *self._new])
        self._new = []
        if self._capacity is not None:
            self._items = self._items.only(np.argsort(-self._items.age, kind="stable"))
        self._left = self.feed.survival(self._items)
        if self._capacity is None:
            self._keep(self._left > 0)
            return
        # Items without utility still occupy a place until newer items displace them.
        capacity = self._capacity[self._items.cell]
        newer = _rank_from_last(self._items.cell)
        self._keep((newer < capacity) & ((self._left > 0) | np.isfinite(capacity)))

    def value(self) -> FloatArray:
        """Return the uncollected utility, (B·N,)."""
        present = self._items.utility * self._left
        return np.bincount(self._items.cell, present, self._size).astype(np.float64)

    def uncollected(self) -> tuple[FloatArray, FloatArray]:
        """Return the number of items with utility left and the sum of their ages in steps, (B·N,)
        each."""
        alive = self._items.only(self._left > 0)
        number = np.bincount(alive.cell, minlength=self._size).astype(np.float64)
        return number, np.bincount(alive.cell, alive.age, self._size).astype(np.float64)

    def sums(self, cells: IntArray) -> FloatArray:
        """Return sums over the items of the given cells that have utility left, (5, B·N).

        The sums are those of 1, a, a², ln w and a ln w, where a is the age in steps and w the
        current utility; they are 0 at other cells.
        """
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
        """Restore a state returned by `get_state`, which may be a list of its columns."""
        self._items = Published(*deepcopy(tuple(state)))
        self._left = self.feed.survival(self._items)

    def _keep(self, which: Any) -> None:
        if not which.all():
            self._items = self._items.only(which)
            self._left = self._left[which]


def _rank_from_last(cell: IntArray) -> IntArray:
    """Return, for each entry, the number of later entries of the same cell, (n,)."""
    backwards = cell[::-1]
    order = np.argsort(backwards, kind="stable")
    here = backwards[order]
    begins = np.flatnonzero(np.diff(here, prepend=-1))
    rank = np.empty_like(cell)
    rank[order] = np.arange(cell.size) - np.repeat(begins, np.diff(begins, append=cell.size))
    return rank[::-1]
