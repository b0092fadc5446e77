"""`PingBelief`: the mean of the uncollected utility, given the crawls and the pings.

A ping is true with probability p, independently of all others: thinning and superposition split the
items of a source into announced and silent ones, and its pings into true and false ones, all of
which are independent Poisson processes. The mean of the uncollected utility, given the pings and
the times of the crawls, is therefore the mean of the silent items plus a term for each ping. With
r, p and d the recall, precision and mean delay of the signals, τ the time since the crawl, k the
rate μ + 1/d, and a the age of a ping, it is

    (1 − r) Λξ̄ (1 − e^{−μτ})/μ + rΛξ̄ (1 − e^{−kτ})/k + pξ̄ Σ e^{−μa} (1 − e^{−k(τ − a)})/(1 + μd).

The second term is the mean of the items whose pings are on the way. Without a delay it is 0, and
the last factor is 1. Of what crawls bring nothing is used but that it is gone: where signals come
with a delay, the number of items found also tells something of the pings on the way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crawl_env.compiled import compiled, inlined
from crawl_env.content.arrivals import Deterministic
from crawl_env.content.pings import Pings, RecordedPings, SimulatedPings
from crawl_env.content.process import BLOCK
from crawl_env.content.stock import MeanStock, Stock
from crawl_env.content.trace import TraceFeed
from crawl_env.fleet.sources import Sources
from crawl_env.log.ping_log import PingLog
from crawl_env.numerics import FloatArray, IntArray


class PingBelief(MeanStock):
    """The belief at the sources of a world that send signals, or do not.

    Rates are taken as constant and decay as exponential, whatever the arrivals are.

    Arguments:
        sources: the fleet, (N,), or a batch (B, N).
        stock: the content, whose items are announced.
        log: recorded pings, or None to simulate them.
        show: whether to keep `aged`.

    Attributes:
        value: (B, N) the belief.
        aged: (B, N) sum, over the pings since the crawl, of the expected fraction of utility that
            is left if the ping is true: e^{−μa} without a delay. Or None.
    """

    def __init__(
        self, sources: Sources, stock: Stock, log: PingLog | None = None, show: bool = False
    ) -> None:
        shape = stock.value.shape
        self._stock, self._log = stock, log
        self.aged = np.zeros(shape) if show or sources.is_capped else None
        delayed = bool((sources.signal_delay > 0).any())
        # (B, N) mean content of the items whose pings are on the way, and steps since the crawl.
        self._late = np.zeros(shape if delayed else (0, 0))
        self._since = np.zeros_like(self._late)
        self._last_pings: list[Pings] = []  # of the last step, or before the episode
        self._feed_of_pings: SimulatedPings | RecordedPings | None = None
        super().__init__(self._bound(sources), shape)

    def change_sources(self, sources: Sources) -> None:
        """Replace the publishing sources from the next step on."""
        self.change_feed(self._bound(sources))

    def _bound(self, sources: Sources) -> Any:
        """Compute what depends on the sources; return the mean feed of the silent items."""
        num_envs, _ = shape = self._stock.value.shape
        pings: SimulatedPings | RecordedPings
        if self._log is None:
            pings = SimulatedPings(sources, shape)
        else:
            feed = self._stock.feed
            assert isinstance(feed, TraceFeed)  # the task checks that pings are recorded with items
            pings = RecordedPings(self._log, feed)
        if self._feed_of_pings is not None:
            pings.set_state(self._feed_of_pings.get_state())
        self._feed_of_pings = pings
        # Parameters of the cells, (N,) or (B·N,), per step.
        self._decay = np.ravel(sources.decay_per_step)
        self._retention = np.exp(-self._decay)
        self._worth = np.ravel(sources.precision * sources.mean_utility)
        delay = np.ravel(sources.signal_delay) / sources.period
        with np.errstate(divide="ignore", over="ignore"):
            late_rate = np.minimum(self._decay + 1.0 / delay, _MOST_LATE_RATE)
        self._late_rate = np.where(delay > 0, late_rate, 0.0)  # k, or 0: no delay
        self._share = 1.0 / (1.0 + self._decay * delay)
        # Repeated for small fleets, as the blocks are in which false pings come in any order.
        shared = sources.arrival_rate.ndim == 1
        repeat = max(1, min(num_envs, BLOCK // len(sources))) if shared else 1
        self._law = (
            np.tile(self._worth, repeat),
            np.tile(self._decay, repeat),
            np.tile(self._late_rate, repeat),
            np.tile(self._share, repeat),
        )
        announced = np.ravel(sources.recall * sources.arrival_rate * sources.mean_utility)
        with np.errstate(divide="ignore", invalid="ignore"):
            late = announced * sources.period / self._late_rate
        self._most_late = np.where(delay > 0, late, 0.0)  # that of a source never crawled
        retention = np.exp(-self._late_rate)
        # What a step leaves, and adds.
        self._late_flow = retention, self._most_late * (1.0 - retention)
        return Deterministic().bind(sources.silent, num_envs)

    def seed(self, rng: np.random.Generator) -> None:
        """Begin the random stream of the pings that belongs to the seed of `rng`."""
        assert self._feed_of_pings is not None
        self._feed_of_pings.seed(rng)

    def start(self, envs: IntArray, steps: FloatArray, rng: np.random.Generator) -> None:
        super().start(envs, steps, rng)
        if self._late.size:
            cells = self._numbers(envs) % self._late_rate.size
            late_rate = self._late_rate[cells]
            rate = np.where(late_rate > 0, late_rate, 1.0)  # 0 × inf would be NaN
            fraction = -np.expm1(-rate * steps.ravel())
            self._late[envs] = (self._most_late[cells] * fraction).reshape(steps.shape)
            self._since[envs] = steps
            self.value[envs] += self._late[envs]
        if self.aged is not None:
            self.aged[envs] = 0.0
        assert self._feed_of_pings is not None
        pings = self._feed_of_pings.start(envs, steps, self._stock.published)
        self._receive(pings)
        begun = np.zeros(self.value.shape[0], dtype=bool)
        begun[envs] = True
        other = (old.only(~begun[old.cell // self.value.shape[1]]) for old in self._last_pings)
        self._last_pings = [*other, *pings]

    def advance(self, rng: np.random.Generator) -> None:
        if self._late.size:
            late = self._late.reshape(-1), self._since.reshape(-1)
            inflow = self.flow[1, : self._retention.size]  # which repeats small fleets
            _advance_late(self.flat, *late, self._retention, inflow, *self._late_flow)
        else:
            super().advance(rng)
        if self.aged is not None:
            _fade(self.aged.reshape(-1), self._retention)
        assert self._feed_of_pings is not None
        self._last_pings = self._feed_of_pings.advance(self._stock.published)
        self._receive(self._last_pings)

    @property
    def pings(self) -> FloatArray:
        """The number of pings in the last step, (B, N)."""
        number = np.zeros(self.flat.size)
        for cell, age in self._last_pings:
            number += np.bincount(cell[age <= 1.0], minlength=number.size)
        return number.reshape(self.value.shape)

    def _receive(self, batches: list[Pings]) -> None:
        aged = _NOTHING if self.aged is None else self.aged.reshape(-1)
        flat = self.flat, self._since.reshape(-1), aged
        for pings in batches:
            _receive(*pings, *self._law, *flat)

    def announced(self, which: IntArray) -> FloatArray:
        """Return the part of the belief that is not of silent items at some sources, (B, n)."""
        assert self.aged is not None
        worth = np.broadcast_to(self._worth.reshape(-1, self.value.shape[1]), self.value.shape)
        late = self._late[:, which] if self._late.size else 0.0
        return np.asarray(worth[:, which] * self.aged[:, which] + late)

    def empty(self, cells: IntArray) -> None:
        super().empty(cells)
        for content in (self.aged, self._late, self._since):
            if content is not None and content.size:
                content.reshape(-1)[cells] = 0.0

    def get_state(self) -> dict[str, Any]:
        assert self._feed_of_pings is not None
        arrays = {name: getattr(self, name) for name in _STATE}
        copies = {name: None if x is None else x.copy() for name, x in arrays.items()}
        pings = Pings.concatenate(self._last_pings)
        return {**copies, "heard": pings, "feed": self._feed_of_pings.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        assert self._feed_of_pings is not None
        for name in _STATE:
            if getattr(self, name) is not None:
                getattr(self, name)[...] = state[name]
        self._last_pings = [Pings.concatenate([Pings(*state["heard"])])]
        self._feed_of_pings.set_state(state["feed"])


_STATE = ("value", "aged", "_late", "_since")
_MOST_LATE_RATE = 1e290  # of k, whose product with every age is finite
_NOTHING = np.zeros(0)


@compiled
def _advance_late(
    value: FloatArray,
    late: FloatArray,
    since: FloatArray,
    retention: FloatArray,
    inflow: FloatArray,
    late_retention: FloatArray,
    late_inflow: FloatArray,
) -> None:
    """Advance flat values, of which `late` is the part whose pings are on the way."""
    for start in range(0, value.size, retention.size):
        for i in range(retention.size):
            cell = np.uintp(start + i)
            rest = (value[cell] - late[cell]) * retention[i] + inflow[i]
            late[cell] = late[cell] * late_retention[i] + late_inflow[i]
            since[cell] += 1.0
            value[cell] = rest + late[cell]


@compiled
def _fade(aged: FloatArray, retention: FloatArray) -> None:
    for start in range(0, aged.size, retention.size):
        for i in range(retention.size):
            aged[np.uintp(start + i)] *= retention[i]


@compiled
def _receive(
    cell: IntArray,
    age: FloatArray,
    worth: FloatArray,
    decay: FloatArray,
    late_rate: FloatArray,
    share: FloatArray,
    value: FloatArray,
    since: FloatArray,
    aged: FloatArray,
) -> None:
    """Add pings to flat values, and to `aged` if it is not empty."""
    fraction, late = np.empty(_TILE), np.empty(_TILE)
    place, first = np.empty(_TILE, dtype=np.uintp), 0  # unsigned, since none counts from the end
    for start in range(0, cell.size, _TILE):
        cells, ages = cell[start : start + _TILE], age[start : start + _TILE]
        for j in range(cells.size):
            i = cells[j] - first
            if i < 0 or i >= decay.size:
                first = cells[j] - cells[j] % decay.size
                i = cells[j] - first
            place[j] = i
        for j in range(cells.size):
            fraction[j] = decay[place[j]] * ages[j]
        for j in range(cells.size):  # a loop of its own, which is compiled to vector instructions
            fraction[j] = _faded(fraction[j])
        if since.size > 0:
            for j in range(cells.size):
                k, steps = late_rate[place[j]], since[np.uintp(cells[j])] - ages[j]
                late[j] = k * steps if k > 0.0 else 0.0  # steps may be infinite
            for j in range(cells.size):
                late[j] = 1.0 - _faded(late[j])
            for j in range(cells.size):
                if late_rate[place[j]] > 0.0:
                    fraction[j] *= late[j] * share[place[j]]
        for j in range(cells.size):
            value[np.uintp(cells[j])] += worth[place[j]] * fraction[j]
        if aged.size > 0:
            for j in range(cells.size):
                aged[np.uintp(cells[j])] += fraction[j]


_TILE = 1024  # pings received at a time, so that temporary arrays stay in the cache
_PARTS = 32  # of 1, at which e^{−x} is tabulated
_MOST = 750.0  # e^{−x} is 0 beyond
_EXPONENTIALS = np.exp(-np.arange(_MOST * _PARTS + 1) / _PARTS)


@inlined
def _faded(x: float) -> float:
    """Return e^{−x} for x ≥ 0, to 3 × 10⁻¹⁶, in a sixth of the time of `math.exp` in a loop: the
    entry nearest to x in a table, times a Taylor polynomial."""
    nearest = np.int64(min(x, _MOST) * _PARTS + 0.5)
    y = nearest * (1.0 / _PARTS) - min(x, _MOST)
    tail = 1 / 24 + y * (1 / 120 + y * (1 / 720))
    return _EXPONENTIALS[nearest] * (1.0 + y * (1.0 + y * (0.5 + y * (1 / 6 + y * tail))))
