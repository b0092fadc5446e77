"""Arrival processes: random items, drawn singly or as totals per step, and their mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from crawl_env.content.hawkes import Hawkes
from crawl_env.content.parts import make_part
from crawl_env.content.process import ArrivalProcess, Block, CellFeed, Cells, Published
from crawl_env.content.rates import (
    Constant,
    DailyCycle,
    Drift,
    Jumps,
    PoissonTimes,
    RateModel,
    Times,
    check_model,
)
from crawl_env.content.utility import (
    Decay,
    Distribution,
    Exponential,
    ExponentialDecay,
    make_decay,
    make_distribution,
)
from crawl_env.errors import unknown
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray

FADED = 37.0  # time constants after which less than e^−37 of an item's utility is left
TILE = 512  # cells of mean content that are advanced in one loop
AT_ONCE = 2.0  # expected items per step above which drawing their total is the cheaper way


class ItemSampler(Block):
    """Content drawn item by item: first the arrival times, then the initial utilities."""

    def __init__(self, cells: Cells, utility: Distribution, times: Times) -> None:
        super().__init__(cells)
        self._utility, self._times = utility, times

    def draw(self, rng: np.random.Generator) -> Iterator[Published]:
        for where, age in self._times(rng):
            utility = self._utility.sample(rng, where.size)
            utility *= self.cells.mean_utility[where]
            yield Published(where, age, utility, np.zeros_like(where))


class TotalSampler(Block):
    """Content of the last `window` (n,) steps, drawn as one total per cell.

    If ξ is exponential and a cell publishes more than `AT_ONCE` items, the total is drawn in
    constant time; otherwise it is the sum of single items.
    """

    def __init__(self, cells: Cells, utility: Distribution, window: FloatArray) -> None:
        super().__init__(cells)
        at_once = np.zeros(cells.items.shape, dtype=bool)
        if isinstance(utility, Exponential):
            at_once = _drawn_at_once(cells, window)
        self._none, self._all = not at_once.any(), bool(at_once.all())
        self._where, self._rest = np.flatnonzero(at_once), np.flatnonzero(~at_once)
        if not self._all:
            rest, time = (cells, window) if self._none else (cells[self._rest], window[self._rest])
            self._items = ItemSampler(rest, utility, PoissonTimes(rest, time))
        if not self._none:
            dense = cells if self._all else cells[self._where]
            aged = dense.decay * window[self._where]
            self._shape, self._odds = dense.items / dense.decay, np.expm1(aged)
            self._scale = np.exp(-aged) * dense.mean_utility

    def add(self, value: FloatArray, count: FloatArray | None, rng: np.random.Generator) -> None:
        if self._none:
            self._items.add(value, None, rng)
            return
        drawn = _gamma_ou(self._shape, self._odds, self._scale, rng)
        if self._all:
            value += drawn
            return
        value[self._where] += drawn
        rest = np.zeros(self._rest.size)
        self._items.add(rest, None, rng)
        value[self._rest] += rest


class PastTotals(Block):
    """Content of the last `steps` (n,) steps before an episode, drawn as one total per cell."""

    def __init__(self, cells: Cells, utility: Distribution, steps: FloatArray) -> None:
        super().__init__(cells)
        faded = FADED / cells.decay
        if isinstance(utility, Exponential):
            # After 30 time constants the content is stationary to within e^−30.
            old = np.isinf(steps) | (cells.decay * steps > 30.0)
            window = np.minimum(np.where(old, 0.0, steps), faded)
        else:
            old = np.zeros(steps.shape, dtype=bool)
            window = np.minimum(steps, faded)
        self._stationary = old & (cells.items > 0)
        self._recent = TotalSampler(cells, utility, window)

    def add(self, value: FloatArray, count: FloatArray | None, rng: np.random.Generator) -> None:
        old = self._stationary
        shape = self.cells.items[old] / self.cells.decay[old]
        value[old] = rng.standard_gamma(shape) * self.cells.mean_utility[old]
        self._recent.add(value, None, rng)


def past_items(cells: Cells, utility: Distribution, steps: FloatArray, end: float) -> ItemSampler:
    """Return the items of the last `steps` (n,) steps that may still have utility.

    These are the items younger than `end` time constants, without those that later items have
    displaced with near certainty.
    """
    window = np.where(np.isinf(steps), end / cells.decay, steps)
    if cells.capacity is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            displaced = (cells.capacity + 9 * np.sqrt(cells.capacity) + 40) / cells.items
        window = np.minimum(window, displaced)
    window = np.where(cells.items > 0, window, 0.0)
    return ItemSampler(cells, utility, PoissonTimes(cells, window))


def _drawn_at_once(cells: Cells, window: FloatArray) -> NDArray[np.bool_]:
    aged = cells.decay * window
    few_enough = cells.items * np.expm1(np.minimum(aged, 30.0)) / cells.decay < 1e15
    return (cells.items * window > AT_ONCE) & (aged <= 30.0) & few_enough


def _gamma_ou(
    shape: FloatArray, odds: FloatArray, scale: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draw U for exponential ξ, the innovation of a gamma Ornstein–Uhlenbeck process.

    B ~ NegativeBinomial(Λ/μ, α), itself a Poisson mixture, then U | B ~ Gamma(B, αξ̄). B is not
    the number of items. `odds` is (1 − α)/α, `scale` is αξ̄.
    """
    batches = rng.poisson(rng.standard_gamma(shape) * odds)
    return rng.standard_gamma(batches) * scale


RATES: dict[str, type[RateModel]] = {
    "constant": Constant,
    "drift": Drift,
    "jumps": Jumps,
    "cycle": DailyCycle,
    "hawkes": Hawkes,
}
SAMPLERS = ("total", "items")


@dataclass(frozen=True, init=False)
class Arrivals(ArrivalProcess):
    """Items arrive as a Poisson process, whose rate may change, or as a Hawkes process.

    One step adds the utility U = Σ ξ_n R(μ·age_n), summed over its items. At a constant rate and
    under exponential decay, E[U] = u and Var[U] = Λ E[ξ²](1 − α²)/(2μ).

    Arguments:
        rate: model of how Λ changes with time: "constant", "drift", "jumps", "cycle" or "hawkes",
            or a `crawl_env.content.rates.RateModel` such as `Drift(0.1)`.
        utility: distribution of ξ: "constant", "exponential", "lognormal" or "gamma", or a
            `crawl_env.content.utility.Distribution`.
        decay: decay function of an item's utility: "exponential", "stretched" or "lomax", or a
            `crawl_env.content.utility.Decay`. Beliefs and agents assume exponential decay.
        sampler: "total" draws one number per source and step, in constant time if ξ is exponential
            and there are many items. "items" draws every item, which finite capacities and the
            features that count items require. The two differ in the sample path, not in
            distribution. Hawkes rates and non-exponential decay always draw items.

    A dictionary of the name and the parameters stands for an object, as in
    `rate={"name": "drift", "sigma": 0.2}`, so that arrivals can be written in JSON.

    Raises:
        ValueError: a name is unknown, or an object has the wrong type.

    >>> Arrivals(rate=Drift(0.2), utility="lognormal", decay="lomax").sampler
    'items'
    """

    rate: RateModel
    utility: Distribution
    decay: Decay
    sampler: Literal["total", "items"]

    def __init__(
        self,
        *,
        rate: str | Mapping[str, Any] | RateModel = "constant",
        utility: str | Mapping[str, Any] | Distribution = "exponential",
        decay: str | Mapping[str, Any] | Decay = "exponential",
        sampler: Literal["total", "items"] = "total",
    ) -> None:
        if sampler not in SAMPLERS:
            raise unknown("sampler", sampler, SAMPLERS)
        model, function = _make_rate(rate), make_decay(decay)
        if model.draws_items or not isinstance(function, ExponentialDecay):
            sampler = "items"
        for name, value in (
            ("rate", model),
            ("utility", make_distribution(utility)),
            ("decay", function),
            ("sampler", sampler),
        ):
            object.__setattr__(self, name, value)

    @property
    def items(self) -> bool:  # type: ignore[override]
        return self.sampler == "items"

    @property
    def exponential(self) -> bool:  # type: ignore[override]
        return isinstance(self.decay, ExponentialDecay)

    @property
    def stateful(self) -> bool:  # type: ignore[override]
        return not self.rate.constant

    def check(self, sources: Sources) -> None:
        check_model(self.rate, sources)
        super().check(sources)

    def model(self, items: bool) -> Arrivals:
        return Arrivals(
            rate=self.rate,
            utility=self.utility,
            decay=self.decay,
            sampler="items" if items else "total",
        )

    def block(self, cells: Cells, state: FloatArray) -> Block:
        if self.items:
            return ItemSampler(cells, self.utility, self.rate.times(cells, state))
        if self.rate.constant:
            return TotalSampler(cells, self.utility, np.ones_like(cells.items))
        return _VaryingTotals(cells, self, state)

    def past(self, cells: Cells, steps: FloatArray) -> Block:
        if self.items:
            return past_items(cells, self.utility, steps, self.decay.end)
        return PastTotals(cells, self.utility, steps)

    def start(self, shape: tuple[int, int], period: float, rng: np.random.Generator) -> FloatArray:
        return self.rate.start(shape, period, rng)

    def factor(self, state: FloatArray, period: float) -> FloatArray:
        return self.rate.factor(state, period)


class _VaryingTotals(Block):
    """Totals of one step at rates that change from step to step."""

    def __init__(self, cells: Cells, arrivals: Arrivals, state: FloatArray) -> None:
        super().__init__(cells)
        self._arrivals, self._state = arrivals, state

    def add(self, value: FloatArray, count: FloatArray | None, rng: np.random.Generator) -> None:
        rate, cells = self._arrivals.rate, self.cells
        now = rate.now(cells, self._state)
        TotalSampler(now, self._arrivals.utility, np.ones_like(now.items)).add(value, count, rng)
        rate.step(self._state, cells.period, rng)


@dataclass(frozen=True)
class Deterministic(ArrivalProcess):
    """Every step adds exactly the mean: u utility and ΛT items, eq. (2) of the paper."""

    random = False

    def block(self, cells: Cells, state: FloatArray) -> Block:
        return _Mean(cells, cells.mean_content(1.0), cells.items)

    def past(self, cells: Cells, steps: FloatArray) -> Block:
        finite = np.where(np.isfinite(steps), steps, 0.0)
        return _Mean(cells, cells.mean_content(steps), cells.items * finite)

    def bind(self, sources: Sources, num_envs: int) -> MeanFeed:
        return MeanFeed(self, sources, num_envs)


class MeanFeed(CellFeed):
    """The mean content of every step.

    Attributes:
        flow: (2, W) fraction of utility that a step leaves, and utility that it adds. Cell c has
            the entry c mod W: the parameters of small fleets are repeated, so that they can be
            applied to many environments in one loop.
        items: (W,) items that a step adds.
    """

    def __init__(self, arrivals: ArrivalProcess, sources: Sources, num_envs: int) -> None:
        super().__init__(arrivals, sources, num_envs)
        shared = sources.arrival_rate.ndim == 1
        repeat = max(1, min(num_envs, TILE // len(sources))) if shared else 1
        cells = Cells.of(sources, lambda p: np.tile(p, repeat) if repeat > 1 else p.ravel())
        self.flow = np.stack([cells.retention, cells.mean_content(1.0)])
        self.items = cells.items


class _Mean(Block):
    def __init__(self, cells: Cells, inflow: FloatArray, items: FloatArray) -> None:
        super().__init__(cells)
        self._inflow, self._items = inflow, items

    def add(self, value: FloatArray, count: FloatArray | None, rng: np.random.Generator) -> None:
        np.add(value, self._inflow, value)
        if count is not None:
            count += self._items


def _make_rate(rate: str | Mapping[str, Any] | RateModel) -> RateModel:
    if isinstance(rate, RateModel):
        return rate
    if isinstance(rate, (str, Mapping)):
        made: RateModel = make_part("rate", rate, RATES)
        return made
    raise ValueError(
        f"rate is {rate!r}; give one of {', '.join(RATES)}, or a rate model such as "
        "crawl_env.Drift(0.1)"
    )
