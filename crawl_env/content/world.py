"""`World`: the state of all sources (uncollected utility, age, belief) and its dynamics."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crawl_env.compiled import compiled
from crawl_env.content.arrivals import Deterministic, MeanFeed
from crawl_env.content.belief import PingBelief
from crawl_env.content.engine import Engine
from crawl_env.content.indexing import IndexQueue
from crawl_env.content.process import ArrivalProcess, Published, require_items
from crawl_env.content.stock import ItemStock, MeanStock, Stock, sums_of
from crawl_env.content.stories import Stories, StoryStock
from crawl_env.fleet.sources import Sources
from crawl_env.log.ping_log import PingLog
from crawl_env.numerics import BoolArray, FloatArray, IntArray, Written

# Age of a source never crawled (start="full"). It is finite, as an input of networks must be; the
# mean content at this age equals the ceiling for every μT above 4e-8.
NEVER = 1e9
# Names of the sums over the items of a cell; see `sums_of`.
SUMS = ("number", "age", "age_squared", "log", "age_log")


class World(Written):
    """State of B independent environments of N sources. A cell is one source of one environment.

    Arguments:
        sources: one fleet (N,) shared by all environments, or a batch (B, N) of one fleet each.
        arrivals: the arrival process.
        num_envs: B.
        count: whether to count the uncollected items.
        track_belief: whether to update the belief; needed only if arrivals are random and some
            source is unobserved. If sources send signals, pings are drawn for it.
        store_items: whether to store single items, and to sum over those that crawls collect in
            `harvested`.
        show_pings: whether to draw pings and keep `pings_aged`.
        log: recorded pings, on the clock of recorded arrivals; None: pings are simulated.
        engine: the indexing engine of each environment, or None.
        looks: whether sources are looked at.

    None of the last seven changes what arrives.

    Attributes:
        value: (B, N) uncollected utility.
        items: (B, N) number of items published since the last crawl that the source still shows, or
            None.
        age: (B, N) steps since the last crawl; 1 at the step after one, ≥ 1e9 if never crawled.
        crawled_at: (B, N) step of the last crawl, on the world's clock; `flat_crawled_at`, (B·N,),
            is a view of it.
        tried_at: (B, N) step of the last attempt, successful or not, on the world's clock.
        seen_at: (B, N) step of the last crawl or look, on the world's clock.
        belief: (B, N) posterior mean of `value` given the crawls and the pings.
        pings: (B, N) number of pings in the last step, or None if none are drawn.
        pings_aged: (B, N) sum, over the pings since the last crawl, of the expected fraction of
            utility that is left if the ping is true (`PingBelief`), or None.
        rate: (B, N) items / time, the arrival rate of the next step; equal to the fleet's
            `arrival_rate` if this is constant or arrivals are recorded.
        harvested: (5, B, N) the sums `SUMS` over the items with utility left that the crawls of the
            last step collected, ages in steps; or None.
        queue: the items that wait to be indexed, or None without an engine.

    A step is `crawl`, which collects content, then, with an engine, `index`, then `advance`, in
    which content decays and new content arrives.

    Raises:
        ValueError: single items are needed and `arrivals` does not draw them, or there would be too
            many false pings.

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
        show_pings: bool = False,
        log: PingLog | None = None,
        engine: Engine | None = None,
        looks: bool = False,
    ) -> None:
        self.arrivals = arrivals
        self.shape = (num_envs, len(sources))
        self._clock = 0.0
        # The step of the last crawl is stored instead of the age, so that ages need no update.
        self.crawled_at = np.zeros(self.shape)
        self.tried_at = np.zeros(self.shape) if sources.fails else self.crawled_at
        self.seen_at = np.zeros(self.shape) if looks else self.crawled_at
        self.harvested = np.zeros((len(SUMS), *self.shape)) if store_items else None
        self._listens = sources.is_signalled and (track_belief or show_pings)
        self.queue = None if engine is None else IndexQueue(engine, *self.shape)
        self._collected = Published.concatenate([]), np.empty(0)  # by the crawls of this step
        self._bind(sources)
        self._stock = self._new_stock(count, store_items)
        self._belief = self._stock
        self._pings: PingBelief | None = None
        if self._listens:
            self._belief = self._pings = PingBelief(sources, self._stock, log, show_pings)
        elif track_belief and arrivals.random:
            self._belief = MeanStock(Deterministic().bind(sources, num_envs), self.shape)
        self._seeded_by: np.random.Generator | None = None
        self._show_pings = show_pings
        self._share()

    def _share(self) -> None:
        """Set the attributes that are arrays of the parts, or views."""
        self.value, self.items = self._stock.value, self._stock.count
        self.belief = self._belief.value
        pings = self._pings if self._show_pings else None
        self.pings_aged = None if pings is None else pings.aged
        self.flat_crawled_at = self.crawled_at.reshape(-1)

    def __getstate__(self) -> dict[str, Any]:
        shared = ("value", "items", "belief", "pings_aged", "flat_crawled_at")
        state = {name: value for name, value in vars(self).items() if name not in shared}
        for name in ("tried_at", "seen_at"):
            if state[name] is self.crawled_at:
                del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Copying and pickling turn views, and joblib all references, into separate arrays.
        super().__setstate__(state)
        for name in ("tried_at", "seen_at"):
            vars(self).setdefault(name, self.crawled_at)
        self._share()

    def _bind(self, sources: Sources) -> None:
        if sources.arrival_rate.shape not in (self.shape[1:], self.shape):
            raise ValueError(
                f"sources have shape {sources.arrival_rate.shape}; this world of {self.shape[0]} "
                f"environments needs {self.shape[1:]}, shared by all, or {self.shape}"
            )
        self.sources = sources
        self._feed = self.arrivals.bind(sources, self.shape[0])
        # The mean of sources with a finite capacity, which announced items add to.
        silent = sources.silent if self._listens else sources
        self._capped = silent.capped_content if sources.is_capped else None

    def _new_stock(self, count: bool, store_items: bool) -> Stock:
        capped = self.sources.is_capped and self.arrivals.random
        if count and self.arrivals.random:
            require_items(self.arrivals, "items are to be counted")
        if store_items:
            require_items(self.arrivals, "features such as harvest_age sum over items")
        if self.queue is not None:
            require_items(self.arrivals, "an indexing engine takes one item after the other")
        if capped:
            require_items(self.arrivals, "some sources have a finite capacity")
        if self._listens:
            require_items(self.arrivals, "some sources send signals, which announce items")
        if isinstance(self.arrivals, Stories):
            return StoryStock(self._feed, self.shape, count)
        if isinstance(self._feed, MeanFeed):
            return MeanStock(self._feed, self.shape, count)
        stored = capped or store_items or self.queue is not None
        if not stored and self.arrivals.exponential:
            return Stock(self._feed, self.shape, count, self._listens)
        capacity = np.broadcast_to(self.sources.capacity, self.shape).ravel() if capped else None
        recursive = self.arrivals.exponential and not capped
        return ItemStock(self._feed, self.shape, count, capacity, recursive)

    @property
    def age(self) -> FloatArray:
        """Steps since the last successful crawl, (B, N); 1e9 for sources never crawled."""
        return self._clock - self.crawled_at

    @property
    def seen(self) -> FloatArray:
        """Steps since the last crawl or look that showed the content, (B, N)."""
        return self._clock - np.maximum(self.seen_at, self.crawled_at)

    @property
    def pings(self) -> FloatArray | None:
        """Numbers of pings in the last step, (B, N); None without signals."""
        return None if self._pings is None else self._pings.pings

    @property
    def known(self) -> FloatArray:
        """Number of items of the last crawl of each source whose stories had been paid, (B, N)."""
        return self._stock.known if isinstance(self._stock, StoryStock) else np.zeros(self.shape)

    @property
    def rate(self) -> FloatArray:
        """The current arrival rates, (B, N) items / time, which agents are not told."""
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
        return isinstance(self._stock, (ItemStock, StoryStock)) or self.sources.is_capped

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
        if self._pings is not None:
            self._pings.change_sources(sources)
        elif self._belief is not self._stock:
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
        both. Pings and engines have random streams of their own, which a new `rng` begins anew;
        see `seed_beside`.
        """
        if rng is not self._seeded_by:
            self.seed_beside(rng)
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
        if self.queue is not None:
            self.queue.start(numbers)
        self.crawled_at[envs] = self.tried_at[envs] = self.seen_at[envs] = self._clock - age
        self._hold_capacity()

    def seed_beside(self, rng: np.random.Generator) -> None:
        """Begin the random streams of pings and engines that belong to the seed of a generator."""
        if self._pings is None and self.queue is None:
            return
        self._seeded_by = rng
        if self._pings is not None:
            self._pings.seed(rng)
        if self.queue is not None:
            self.queue.seed(rng)

    def look(self, cells: IntArray) -> FloatArray:
        """Return the uncollected utility of the cells, (K,), which the belief becomes; nothing is
        collected."""
        values: FloatArray = self.value.take(cells)
        self.seen_at.reshape(-1)[cells] = self._clock
        if self._belief is not self._stock:
            self._belief.flat[cells] = values
        return values

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
        if isinstance(self._stock, ItemStock):
            self._take_items(picked.ravel(), self._stock)
        if isinstance(self._stock, StoryStock):
            payments = self._stock.crawl(picked.ravel())
            collected[... if failed is None else ~failed] = payments.reshape(picked.shape)
        self.flat_crawled_at[picked] = self._clock
        self._stock.empty(picked)
        if self._belief is not self._stock:
            self._belief.empty(picked)
        return collected

    def _take_items(self, picked: IntArray, stock: ItemStock) -> None:
        """Sum over the items that are about to be collected, and keep them for the engines."""
        if self.harvested is None and self.queue is None:
            return
        self._collected = stock.store.items(picked)
        if self.harvested is not None:
            sums = sums_of(*self._collected, self.value.size)
            self.harvested[...] = sums.reshape(self.harvested.shape)

    def index(self, collected: FloatArray) -> FloatArray:
        """Return the utility that the engines index in this step, (B,), of the items that wait and
        those of the last `crawl`, whose utility in each environment is `collected`, (B,)."""
        assert self.queue is not None
        return self.queue.index(*self._collected, collected)

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
        if self._feed.advance is not None:
            self._feed.advance(rng)
        if self._belief is not self._stock:
            self._belief.advance(rng)
        if self._capped is not None:
            self._hold_capacity()
        if self.queue is not None:
            self.queue.advance(self._feed)

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
        if self._pings is not None:  # of the silent items, beside those announced
            content = content + self._pings.announced(which)
        finite = np.isfinite(self.sources.capacity[..., which])
        self.belief[:, which] = np.where(finite, content, self.belief[:, which])

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the time-dependent state."""
        queue = {} if self.queue is None else {"queue": self.queue.get_state()}
        return {
            **self._stock.get_state(),
            **queue,
            "age": self.age,
            "steps_since_attempt": self.steps_since_attempt,
            "seen": self.seen,
            "belief": self.belief.copy(),
            "pings": None if self._pings is None else self._pings.get_state(),
            "feed": self._feed.get_state(),
            "harvested": None if self.harvested is None else self.harvested.copy(),
        }

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise ValueError unless a state has all that this world needs to continue from it."""
        parts = {
            "items": self._stock.count,
            "store": isinstance(self._stock, ItemStock) or None,
            "stories": isinstance(self._stock, StoryStock) or None,
            "pings": self._pings,
            "harvested": self.harvested,
            "queue": self.queue,
        }
        lacks = any(part is not None and state.get(name) is None for name, part in parts.items())
        feed = self._feed.get_state()
        if lacks or (feed.size > 0 and feed.shape != state["feed"].shape):
            raise ValueError(
                "the state is of an environment with other arrivals, features or options; restore "
                "it in one of the same task, which gym.make(env.spec) makes"
            )

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state returned by `get_state`."""
        self._stock.set_state(state)
        self.crawled_at[...] = self._clock - state["age"]
        self.tried_at[...] = self._clock - state["steps_since_attempt"]
        if self.seen_at is not self.crawled_at:
            self.seen_at[...] = self._clock - state["seen"]
        self.belief[...] = state["belief"]
        if self._pings is not None:
            self._pings.set_state(state["pings"])
        self._feed.set_state(state["feed"])
        if self.harvested is not None:
            self.harvested[...] = state["harvested"]
        if self.queue is not None:
            self.queue.set_state(state["queue"])


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
            content = value[cell]
            total += content
            utility[j] = content
            value[cell] = 0.0
            crawled_at[cell] = clock
            if collected.size > 0:
                crawled[cell] = True
                collected[cell] = content
        reward[env] = total
    for start in range(0, value.size, flow.shape[1]):
        for i in range(min(flow.shape[1], value.size - start)):
            cell = np.uintp(start + i)
            value[cell] = value[cell] * flow[0, i] + flow[1, i]
            shown[cell] = value[cell]
