"""The state of all sources (uncollected utility, age, belief), and how it changes in a step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crawl_env.content.arrivals import ArrivalProcess, Deterministic
from crawl_env.content.item_store import SUMS
from crawl_env.content.process import require_items
from crawl_env.content.stock import ItemStock, Stock
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray, IntArray

__all__ = ["NEVER", "IntArray", "World"]

# Age of a source never crawled ("full" start). Finite, so that a network can be fed with it;
# the mean content at this age is the ceiling for every μT above 4e-8.
NEVER = 1e9


class World:
    """B independent environments of N sources each. A cell is one source of one environment.

    Arguments:
        sources: one fleet (N,) shared by all environments, or a batch (B, N) of one fleet each.
        arrivals: how content is published.
        num_envs: B.
        count: also count the uncollected items.
        believe: also follow the belief; needed only where arrivals are random and some source is
            unobserved.
        itemise: also store single items, and sum up the items that crawls find in `harvested`.

    None of these changes what arrives.

    Attributes:
        value: (B, N) uncollected utility.
        items: (B, N) number of items published since the last crawl that the source still shows, or
            None.
        age: (B, N) steps since the last crawl; 1 at the step after one, ≥ 1e9 if never.
        crawled_at: (B, N) step of the last crawl on the world's clock: the older, the smaller.
        tried_at: (B, N) the same of the last attempt, which may have failed.
        belief: (B, N) posterior mean of `value` given the crawls.
        rate: (B, N) items / time, the rate of the coming step; the fleet's `arrival_rate` where
            this is constant or arrivals are recorded.
        harvested: (5, B, N) sums over the items with any utility left that the last step's crawls
            found: the `item_store.SUMS`, ages in steps; or None.

    A step is `crawl`, which collects content, then `advance`, in which content decays and arrives.

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
        believe: bool = False,
        itemise: bool = False,
    ) -> None:
        self.arrivals = arrivals
        self.shape = (num_envs, len(sources))
        self._clock = 0.0
        # An age is kept as the step of the last crawl, so that growing older costs nothing.
        self.crawled_at = np.zeros(self.shape)
        self.tried_at = np.zeros(self.shape) if sources.fails else self.crawled_at
        self.harvested = np.zeros((len(SUMS), *self.shape)) if itemise else None
        self._bind(sources)
        self._stock = self._new_stock(count, itemise)
        self._belief = self._stock
        if believe and arrivals.random:
            self._belief = Stock(Deterministic().bind(sources, num_envs), self.shape)
        self.value, self.items = self._stock.value, self._stock.count
        self.belief = self._belief.value
        self._flat_crawled_at = self.crawled_at.reshape(-1)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Copies and pickles tear views from what they show.
        vars(self).update(state)
        self._flat_crawled_at = self.crawled_at.reshape(-1)

    def _bind(self, sources: Sources) -> None:
        if sources.arrival_rate.shape not in (self.shape[1:], self.shape):
            raise ValueError(
                f"sources have shape {sources.arrival_rate.shape}; this world of {self.shape[0]} "
                f"environments takes {self.shape[1:]}, shared by all, or {self.shape}"
            )
        self.sources = sources
        self._feed = self.arrivals.bind(sources, self.shape[0])

    def _new_stock(self, count: bool, itemise: bool) -> Stock:
        capped = self.sources.is_capped and self.arrivals.random
        if count and self.arrivals.random:
            require_items(self.arrivals, "items are to be counted")
        if itemise:
            require_items(self.arrivals, "features such as harvest_age sum over items")
        if capped:
            require_items(self.arrivals, "some sources have a finite capacity")
        if not (capped or itemise or not self.arrivals.exponential):
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
        """Which sources may be crawled now, (B, N); None where all may at all times."""
        if not self.sources.is_delayed:
            return None
        delay = self.sources.delay
        return np.asarray((self.waited >= delay) | (delay == 1))

    @property
    def waited(self) -> FloatArray:
        """Steps since the last attempt, (B, N)."""
        return self._clock - self.tried_at

    @property
    def keeps_items(self) -> bool:
        """Whether the content consists of stored items, or follows from ages, so that its value
        cannot be set."""
        return isinstance(self._stock, ItemStock) or self.sources.is_capped

    def uncollected_items(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the number of uncollected items with any utility left and the sum of their ages
        in steps, (B, N) each; None where items are not stored."""
        if not isinstance(self._stock, ItemStock):
            return None
        number, ages = self._stock.store.uncollected()
        return number.reshape(self.shape), ages.reshape(self.shape)

    def set_sources(self, sources: Sources) -> None:
        """Let other sources publish from the next step on: (N,) for all, or (B, N)."""
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
        """Begin an episode of some environments with sources last crawled `age` (b, N) steps ago.

        Content of that age is drawn, and the belief is its mean; a `value` given replaces both.
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
        """Empty the picked cells (env·N + source, any shape); return the utility collected.

        A crawl that `failed`, of the shape of `picked`, brings 0 and leaves the cell as it is.
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
        self._flat_crawled_at[picked] = self._clock
        self._stock.empty(picked)
        if self._belief is not self._stock:
            self._belief.empty(picked)
        return collected

    def advance(self, rng: np.random.Generator) -> None:
        """Let one step pass: content decays, then new content arrives."""
        self._clock += 1.0
        self._stock.advance(rng)
        if self._belief is not self._stock:
            self._belief.advance(rng)
        if self.sources.is_capped:
            self._hold_capacity()

    def _hold_capacity(self) -> None:
        """Set the mean content of sources that show only their last items: it follows no recursion,
        but from the age."""
        if not self.sources.is_capped:
            return
        if self.items is not None:
            np.minimum(self.items, self.sources.capacity, out=self.items)
        if self.arrivals.random and self._belief is self._stock:
            return
        capped = np.isfinite(np.broadcast_to(self.sources.capacity, self.shape))
        content = self.sources.content_at(np.where(self.age >= NEVER, np.inf, self.age))
        np.copyto(self.belief, content, where=capped)

    def get_state(self) -> dict[str, Any]:
        """Return a copy of all that changes with time."""
        return {
            **self._stock.get_state(),
            "age": self.age,
            "waited": self.waited,
            "belief": self.belief.copy(),
            "feed": self._feed.get_state(),
            "harvested": None if self.harvested is None else self.harvested.copy(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Return to a state of `get_state`."""
        self._stock.set_state(state)
        self.crawled_at[...] = self._clock - state["age"]
        self.tried_at[...] = self._clock - state["waited"]
        self.belief[...] = state["belief"]
        self._feed.set_state(state["feed"])
        if self.harvested is not None:
            self.harvested[...] = state["harvested"]
