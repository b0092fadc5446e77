"""Arrival processes: random items, drawn singly or as totals per step, and their mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from crawl_env.content.items import ItemSampler, PoissonTimes, past_items
from crawl_env.content.parts import is_known, make_part
from crawl_env.content.process import ArrivalProcess, Block, Cells, Feed
from crawl_env.content.rates import (
    Constant,
    DailyCycle,
    Drift,
    Hawkes,
    Jumps,
    RateModel,
    Regimes,
    check_model,
)
from crawl_env.content.totals import FADED, ExponentialTotals
from crawl_env.content.utility import (
    Decay,
    Distribution,
    Exponential,
    ExponentialDecay,
    make_decay,
    make_distribution,
)
from crawl_env.errors import check_choice
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray, IntArray

TILE = 512  # cells of mean content that are advanced in one loop

RATES: dict[str, type[RateModel]] = {
    "constant": Constant,
    "drift": Drift,
    "jumps": Jumps,
    "cycle": DailyCycle,
    "hawkes": Hawkes,
    "regimes": Regimes,
}
SAMPLERS = ("total", "items")


@dataclass(frozen=True, init=False)
class Arrivals(ArrivalProcess):
    """Items arrive as a Poisson process, whose rate may change, or as a Hawkes process.

    One step adds the utility U = Σ ξ_n R(μ·age_n), summed over its items. At a constant rate and
    under exponential decay, E[U] = u and Var[U] = Λ E[ξ²](1 − α²)/(2μ).

    Arguments:
        rate: model of how Λ changes with time: "constant", "drift", "jumps", "cycle", "hawkes" or
            "regimes", or a `crawl_env.content.rates.RateModel` such as `Drift(0.1)`.
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
        check_choice("sampler", sampler, SAMPLERS)
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
        parallel = self.rate.parallel and is_known(self.utility)
        if self.items or not isinstance(self.utility, Exponential):
            times = self.rate.times(cells, state)
            return ItemSampler(cells, self.utility, times, parallel=parallel)
        if self.rate.constant:
            return ExponentialTotals(cells)
        return _VaryingTotals(cells, self.rate, state, parallel=parallel)

    def past(self, cells: Cells, steps: FloatArray) -> Block:
        if self.items:
            return past_items(cells, self.utility, steps, self.decay.end)
        if isinstance(self.utility, Exponential):
            return ExponentialTotals(cells, steps)
        window = np.minimum(steps, FADED / cells.decay)
        return ItemSampler(cells, self.utility, PoissonTimes(cells.items, window))

    def start(self, shape: tuple[int, int], period: float, rng: np.random.Generator) -> FloatArray:
        return self.rate.start(shape, period, rng)

    def factor(self, state: FloatArray, period: float) -> FloatArray:
        return self.rate.factor(state, period)

    def bind(self, sources: Sources, num_envs: int) -> Feed:
        kind = _TopicFeed if self.rate.common else Feed
        return kind(self, sources, num_envs)


class _TopicFeed(Feed):
    """Arrivals at rates that the sources of a topic share."""

    _arrivals: Arrivals

    def start(self, envs: IntArray, rng: np.random.Generator) -> None:
        of_topic, first = self._topics
        shape = (envs.size, first.size)
        states = self._arrivals.start(shape, self._sources.period, rng)
        self._state[envs] = states[:, of_topic]

    def advance(self, rng: np.random.Generator) -> None:
        of_topic, first = self._topics
        state = self._state[:, first].reshape(-1)
        self._arrivals.rate.step(state, self._sources.period, rng)
        self._state[...] = state.reshape(-1, first.size)[:, of_topic]

    @cached_property
    def _topics(self) -> tuple[IntArray, IntArray]:
        """The topic of each source, (N,), and the first source of each topic, (G,)."""
        of_topic = self._sources.topic_of
        return of_topic, np.unique(of_topic, return_index=True)[1]


class _VaryingTotals(ExponentialTotals):
    """Totals of one step at rates that change from step to step."""

    def __init__(self, cells: Cells, rate: RateModel, state: FloatArray, parallel: bool) -> None:
        super().__init__(cells)
        self._rate, self._state, self.parallel = rate, state, parallel

    def add(self, value: FloatArray, count: FloatArray | None, rng: np.random.Generator) -> None:
        now = self._rate.now(self.cells, self._state)
        self.add_at(now.items, value, rng)
        if not self._rate.common:
            self._rate.step(self._state, now.period, rng)


@dataclass(frozen=True)
class Deterministic(ArrivalProcess):
    """Every step adds exactly the mean: u utility and ΛT items, eq. (2) of the paper."""

    random = False

    def block(self, cells: Cells, state: FloatArray) -> Block:
        return _Mean(cells, cells.mean_content(1.0), cells.items)

    def past(self, cells: Cells, steps: FloatArray) -> Block:
        finite = np.where(np.isfinite(steps), steps, 0.0)
        return _Mean(cells, cells.mean_content(steps), cells.items * finite)

    def bind(self, sources: Sources, num_envs: int) -> Feed:
        if type(self).block is Deterministic.block:
            return MeanFeed(self, sources, num_envs)
        return super().bind(sources, num_envs)  # of a subclass with other content


class MeanFeed(Feed):
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
        model: RateModel = make_part("rate", rate, RATES)
        return model
    raise ValueError(
        f"rate is {rate!r}; give one of {', '.join(RATES)}, or a rate model such as "
        "crawl_env.Drift(0.1)"
    )
