"""What waits at each source: the recursion X ← αX·[not crawled] + U, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crawl_env.content.arrivals import Arrivals, Deterministic
from crawl_env.content.cells import Cells, Stream, cells_of
from crawl_env.content.item_store import SUMS, Feed, Ledger
from crawl_env.content.rates import Varying
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray

IntArray = NDArray[np.intp]

# Age of a source never crawled ("full" start). Finite, so that a network can be fed with it;
# the mean content at this age is the ceiling for every μT above 4e-8.
NEVER = 1e9

# Cells advanced at a time. A block's value, retention and inflow together stay in a core's cache,
# so that large fleets pass through memory once an epoch.
BLOCK = 2**15


class World:
    """B rows (independent environments) of N sources each, in epochs.

    Arguments:
        sources: one fleet (N,) shared by all rows, or a batch (B, N) of one fleet a row.
        arrivals: what is published.
        rows: B.
        count: also count the items waiting.
        believe: also follow the belief, the conditional mean of `value` given the crawls; needed
            only where arrivals are random and some source is unobserved.
        itemise: follow items one by one even where a recursion would do, and sum up what crawls
            find in `harvested`.

    Attributes:
        value: (B, N) utility waiting.
        items: (B, N) number of items published since the last crawl that are still there, or None.
        age: (B, N) epochs since the last crawl; 1 at the epoch after one, ≥ 1e9 if never.
        crawled_at: (B, N) epoch of the last crawl on the world's clock: the older, the smaller.
        tried_at: (B, N) the same of the last attempt, which may have failed.
        belief: (B, N) mean of `value` as the crawler knows it.
        rate: (B, N) items / time, the rate of the coming epoch; the fleet's `arrival_rate` where
            this is constant or arrivals are recorded.
        harvested: (5, B, N) of the items worth something that the last epoch's crawls found, the
            `ledger.SUMS`, ages in epochs; or None.

    An epoch is `crawl`, which collects, then `advance`, which brings what is new.

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
        arrivals: Arrivals,
        rows: int = 1,
        count: bool = False,
        believe: bool = False,
        itemise: bool = False,
    ) -> None:
        self.arrivals = arrivals
        self._clock = 0.0
        self.shape = (rows, len(sources))
        # An age is kept as the epoch of the last crawl, so that growing older costs nothing.
        self.crawled_at = np.zeros(self.shape)
        self.value = np.zeros(self.shape)
        self.items = np.zeros(self.shape) if count else None
        self._belief = np.zeros(self.shape) if believe and not arrivals.deterministic else None
        self._varying = arrivals if isinstance(arrivals, Varying) else None
        self._rate_state = np.zeros(self.shape if self._varying else (0, 0))
        self.harvested = np.zeros((len(SUMS), *self.shape)) if itemise else None
        self._ledger = self._new_ledger(sources, itemise)
        self.tried_at = np.zeros(self.shape) if sources.fails else self.crawled_at
        self.set_sources(sources)

    @property
    def age(self) -> FloatArray:
        return self._clock - self.crawled_at

    @property
    def belief(self) -> FloatArray:
        return self.value if self._belief is None else self._belief

    @property
    def rate(self) -> FloatArray:
        rate = np.broadcast_to(self.sources.arrival_rate, self.shape)
        if self._varying is None:
            return rate.copy()
        return rate * self._varying.factor(self._rate_state, self.sources.period)

    @property
    def available(self) -> NDArray[np.bool_] | None:
        """Which sources may be crawled now, (B, N); None where all may at all times."""
        if not self.sources.is_delayed:
            return None
        delay = self.sources.delay
        return np.asarray((self.waited >= delay) | (delay == 1))

    @property
    def keeps_items(self) -> bool:
        """Whether what waits follows from single items, or from ages, and not from a recursion."""
        return self._ledger is not None or self.sources.is_capped

    def waiting(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the number of items that are still worth something and the sum of their ages in
        epochs, (B, N) each; None where they are not followed one by one."""
        if self._ledger is None:
            return None
        number, ages = self._ledger.waiting()
        return number.reshape(self.shape), ages.reshape(self.shape)

    @property
    def waited(self) -> FloatArray:
        """Epochs since the last attempt, (B, N)."""
        return self._clock - self.tried_at

    def set_sources(self, sources: Sources) -> None:
        """Let other sources publish from the next epoch on: (N,) for all rows, or (B, N)."""
        if sources.arrival_rate.shape not in (self.shape[1:], self.shape):
            raise ValueError(
                f"sources have shape {sources.arrival_rate.shape}; this world of {self.shape[0]} "
                f"rows takes {self.shape[1:]}, shared by all rows, or {self.shape}"
            )
        self.sources = sources
        if self._ledger is not None:
            self._ledger.change_feed(self._feed(sources))
        self._flat_crawled_at = self.crawled_at.reshape(-1)
        self._flat_value = self.value.reshape(-1)
        self._blocks = list(self._plan(sources))

    def __getstate__(self) -> dict[str, Any]:
        derived = ("_flat_crawled_at", "_flat_value", "_blocks")
        return {name: value for name, value in vars(self).items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # The blocks are views of the state, which copies and pickles would tear from it.
        vars(self).update(state)
        self.set_sources(self.sources)

    def start(
        self,
        age: FloatArray,
        rng: np.random.Generator,
        rows: NDArray[np.bool_] | slice = slice(None),
        value: FloatArray | None = None,
    ) -> None:
        """Set the rows to sources last crawled `age` epochs ago, shape (rows, N).

        Content of that age is drawn, and the belief is its mean; a `value` given replaces both.
        """
        if self._varying is not None:
            self._rate_state[rows] = self._varying.start(age.shape, self.sources.period, rng)
        if self.harvested is not None:
            self.harvested[:, rows] = 0.0
        cells = self._cells_of(rows)
        epochs = np.where(age >= NEVER, np.inf, age)
        if self._ledger is None:
            drawn, items = self.arrivals.content(cells, epochs.ravel(), self.items is not None, rng)
        else:
            numbers = np.arange(self.value.size).reshape(self.shape)[rows]
            which = np.arange(self.shape[0])[rows]
            drawn, items = self._ledger.start(numbers.ravel(), epochs.ravel(), which, rng)
        self.value[rows] = drawn.reshape(age.shape) if value is None else value
        self.crawled_at[rows] = self.tried_at[rows] = self._clock - age
        if self.items is not None:
            self.items[rows] = items.reshape(age.shape)
        if self._belief is not None:
            mean = cells.mean_content(epochs.ravel()).reshape(age.shape)
            self._belief[rows] = mean if value is None else value
        self._hold_capacity()

    def crawl(self, picked: IntArray, failed: NDArray[np.bool_] | None = None) -> FloatArray:
        """Empty the picked cells (row·N + source, any shape); return what they held.

        A crawl that `failed`, of the shape of `picked`, brings 0 and leaves the cell as it is.
        """
        collected: FloatArray = self._flat_value.take(picked)
        if self.sources.fails:
            self.tried_at.reshape(-1)[picked] = self._clock
        if failed is not None:
            collected = np.where(failed, 0.0, collected)
            picked = picked[~failed]
        self._flat_value[picked] = 0.0
        self._flat_crawled_at[picked] = self._clock
        if self._belief is not None:
            self._belief.reshape(-1)[picked] = 0.0
        if self.items is not None:
            self.items.reshape(-1)[picked] = 0.0
        if self._ledger is not None:
            if self.harvested is not None:
                found = self._ledger.sums(picked.ravel())
                self.harvested[...] = found.reshape(self.harvested.shape)
            self._ledger.empty(picked)
        return collected

    def advance(self, rng: np.random.Generator) -> None:
        """Let one epoch pass: what waits decays, then new content is added."""
        self._clock += 1.0
        for value, items, belief, retention, mean, stream in self._blocks:
            if stream is not None:
                np.multiply(value, retention, value)
                stream(value, items, rng)
            if belief is not None:
                np.multiply(belief, retention, belief)
                mean(belief, None, rng)
        if self._ledger is not None:
            new = self._ledger.advance(rng)
            self.value[...] = self._ledger.value().reshape(self.shape)
            if self.items is not None:
                self.items += new.reshape(self.shape)
        self._hold_capacity()

    def _hold_capacity(self) -> None:
        """Where only the last items stay, the mean follows no recursion: it is had from the age."""
        if not self.sources.is_capped:
            return
        if self.items is not None:
            np.minimum(self.items, self.sources.capacity, out=self.items)
        mean = self.value if self.arrivals.deterministic else self._belief
        if mean is None:
            return
        capped = np.isfinite(np.broadcast_to(self.sources.capacity, self.shape))
        content = self.sources.content_at(np.where(self.age >= NEVER, np.inf, self.age))
        np.copyto(mean, content, where=capped)

    def get_state(self) -> dict[str, Any]:
        """Return a copy of all that changes with time."""
        state: dict[str, Any] = {
            "value": self.value.copy(),
            "age": self.age,
            "waited": self.waited,
            "items": None if self.items is None else self.items.copy(),
            "belief": None if self._belief is None else self._belief.copy(),
        }
        if self._varying is not None:
            state["rate"] = self._rate_state.copy()
        if self.harvested is not None:
            state["harvested"] = self.harvested.copy()
        if self._ledger is not None:
            state["ledger"] = self._ledger.get_state()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Return to a state of `get_state`."""
        self.value[...] = state["value"]
        self.crawled_at[...] = self._clock - state["age"]
        self.tried_at[...] = self._clock - state["waited"]
        if self.items is not None:
            self.items[...] = state["items"]
        if self._belief is not None:
            self._belief[...] = state["belief"]
        if self._varying is not None:
            self._rate_state[...] = state["rate"]
        if self.harvested is not None:
            self.harvested[...] = state["harvested"]
        if self._ledger is not None:
            self._ledger.set_state(state["ledger"])

    def _cells_of(self, rows: NDArray[np.bool_] | slice) -> Cells:
        def flat(parameter: FloatArray) -> FloatArray:
            return np.ravel(np.broadcast_to(parameter, self.shape)[rows])

        return cells_of(self.sources, flat)

    def _new_ledger(self, sources: Sources, itemise: bool) -> Ledger | None:
        """Return a ledger where items must be followed one by one, else None."""
        capped = sources.is_capped and not self.arrivals.deterministic
        if not (getattr(self.arrivals, "itemised", False) or capped or itemise):
            return None
        capacity = np.broadcast_to(sources.capacity, self.shape).ravel() if capped else None
        return Ledger(self._feed(sources), self.crawled_at.size, capacity)

    def _feed(self, sources: Sources) -> Feed:
        if self._varying is not None:
            return self._varying.feed(sources, self.shape[0], self._rate_state.reshape(-1))
        if not hasattr(self.arrivals, "feed"):
            raise ValueError(
                f"capacities, and features such as harvest_age, need single items, and "
                f"{self.arrivals!r} has no `feed` of them; use arrivals='poisson', a Trace, or see "
                "crawl_env.Arrivals"
            )
        feed: Feed = self.arrivals.feed(sources, self.shape[0])
        return feed

    def _stream(self, part: Cells, here: slice) -> Stream:
        count = self.items is not None
        if self._varying is not None:
            return self._varying.stream(part, count, self._rate_state.reshape(-1)[here])
        return self.arrivals.stream(part, count)

    def _plan(
        self, sources: Sources
    ) -> Iterator[
        tuple[FloatArray, FloatArray | None, FloatArray | None, FloatArray, Stream, Stream | None]
    ]:
        """Yield the blocks of cells with their parameters, as flat views of the state.

        Small fleets are repeated to fill a block, so that many rows advance in one call.
        """
        rows, n = self.shape
        shared = sources.arrival_rate.ndim == 1
        repeat = max(1, min(rows, BLOCK // n)) if shared else 1
        cells = cells_of(sources, lambda p: np.tile(p, repeat) if repeat > 1 else p.ravel())
        width = cells.items.size if shared and n <= BLOCK else BLOCK
        streams: dict[tuple[int, int, int], tuple[FloatArray, Stream | None, Stream]] = {}
        for here in _stretches(rows * n, n if shared and n > BLOCK else rows * n, width):
            first = here.start % cells.items.size
            # Where rates vary, every block has a state, and so a stream, of its own.
            key = (first, here.stop - here.start, here.start if self._varying else 0)
            if key not in streams:
                part = cells[first : first + key[1]]
                streams[key] = (
                    np.exp(-part.decay),
                    None if self._ledger is not None else self._stream(part, here),
                    Deterministic().stream(part, False),
                )
            retention, stream, mean = streams[key]
            items = None if self.items is None else self.items.reshape(-1)[here]
            belief = None if self._belief is None else self._belief.reshape(-1)[here]
            yield self._flat_value[here], items, belief, retention, mean, stream


def _stretches(total: int, line: int, width: int) -> Iterator[slice]:
    """Cut [0, total) into stretches of at most `width` that do not cross multiples of `line`."""
    for start in range(0, total, line):
        stop = min(start + line, total)
        for first in range(start, stop, width):
            yield slice(first, min(first + width, stop))
