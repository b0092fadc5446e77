"""Poisson arrivals whose rate changes with time: it drifts, jumps or cycles.

Of every source the fleet's `arrival_rate` Λ remains the mean rate, which is what planners, beliefs
and bounds go on from; only `World.rate` tells the rate of the moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crawl_env.content.cells import Cells, Stream
from crawl_env.content.poisson import OneByOne, Poisson, PoissonFeed
from crawl_env.content.utility import Law, make_law, positive
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray

__all__ = ["DailyCycle", "Drift", "Jumps", "Varying"]


@dataclass(frozen=True)
class Varying:
    """Poisson arrivals at rate Λ·factor, the factor having mean 1 and being constant in an epoch.

    A subclass says by `start`, `factor` and `step` how it changes. Its state, one number a source
    and environment, is kept by the world; it does not depend on what is crawled. What waits at the
    start of an episode came at the rate Λ.

    Arguments:
        poisson: the laws of utility and of decay.
    """

    poisson: Poisson = field(default_factory=Poisson, kw_only=True)
    deterministic: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.poisson, Poisson):
            raise ValueError(
                f"poisson is {self.poisson!r}; give a crawl_env.Poisson, as in "
                f"{type(self).__name__}(poisson=Poisson('lognormal'))"
            )

    def start(self, shape: tuple[int, int], period: float, rng: np.random.Generator) -> FloatArray:
        """Return the state at the start of an episode, (rows, N)."""
        raise NotImplementedError

    def factor(self, state: FloatArray, period: float) -> FloatArray:
        """Return the rate of the coming epoch as a share of Λ, the shape of `state`."""
        raise NotImplementedError

    def step(self, state: FloatArray, period: float, rng: np.random.Generator) -> None:
        """Let an epoch pass: change `state`, any shape, in place."""
        raise NotImplementedError

    @property
    def itemised(self) -> bool:
        return self.poisson.itemised

    def stream(self, cells: Cells, count: bool, state: FloatArray) -> Stream:
        """As in `crawl_env.Arrivals`, for cells of the given state, (n,), which it changes."""

        def add(value: FloatArray, items: FloatArray | None, rng: np.random.Generator) -> None:
            self._epoch(cells, count, state)(value, items, rng)
            self.step(state, cells.period, rng)

        return add

    def content(
        self, cells: Cells, epochs: FloatArray, count: bool, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        return self.poisson.content(cells, epochs, count, rng)

    def feed(self, sources: Sources, rows: int, state: FloatArray) -> PoissonFeed:
        """As in `crawl_env.Arrivals`, for cells of the given state, (rows·N,), which it changes."""
        feed = self.poisson.feed(sources, rows)
        feed.epoch = partial(self._drawn, feed.cells, state)
        return feed

    def items(self, cells: Cells, state: FloatArray) -> OneByOne:
        """Return the stream that draws every item of the coming epoch."""
        return self.poisson.items(self._now(cells, state))

    def _epoch(self, cells: Cells, count: bool, state: FloatArray) -> Stream:
        if count:
            return self.items(cells, state)
        return self.poisson.stream(self._now(cells, state), count)

    def _drawn(self, cells: Cells, state: FloatArray, rng: np.random.Generator) -> Iterator[Any]:
        yield from self.items(cells, state).drawn(rng)
        self.step(state, cells.period, rng)

    def _now(self, cells: Cells, state: FloatArray) -> Cells:
        return replace(cells, items=cells.items * self.factor(state, cells.period))


@dataclass(frozen=True)
class Drift(Varying):
    """ln Λ walks: ln f ← (1 − ρ) ln f + σZ − b at every epoch, Z standard normal.

    With reversion ρ > 0 it is stationary: ln f has variance s² = σ²/(ρ(2 − ρ)), autocorrelation
    (1 − ρ)^k after k epochs, and b = ρs²/2, so that f is lognormal with mean 1; episodes start
    from that law. With ρ = 0 it is a random walk from f = 1, and b = σ²/2 keeps its mean at 1; but
    half of the sources then publish less than exp(−tσ²/2)Λ after t epochs, so that in the long run
    most fall silent.

    Arguments:
        sigma: σ ≥ 0, standard deviation of what an epoch adds to ln Λ.
        reversion: ρ, from 0 to 1.
    """

    sigma: float = 0.1
    reversion: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        within("sigma", self.sigma, 0.0, np.inf)
        within("reversion", self.reversion, 0.0, 1.0)

    def start(self, shape: tuple[int, int], period: float, rng: np.random.Generator) -> FloatArray:
        if not self.reversion:
            return np.zeros(shape)
        return rng.normal(-0.5 * self._variance, np.sqrt(self._variance), shape)

    def factor(self, state: FloatArray, period: float) -> FloatArray:
        return np.exp(state)

    def step(self, state: FloatArray, period: float, rng: np.random.Generator) -> None:
        fall = 0.5 * (self.reversion * self._variance if self.reversion else self.sigma**2)
        state *= 1.0 - self.reversion
        state += rng.normal(-fall, self.sigma, state.shape)

    @property
    def _variance(self) -> float:
        """s², where there is reversion."""
        return self.sigma**2 / (self.reversion * (2.0 - self.reversion))


@dataclass(frozen=True)
class Jumps(Varying):
    """Regimes: each source draws its factor anew at the times of a Poisson process of its own.

    A jump takes effect at the end of its epoch. Episodes start from the law of the factor, so
    that it is stationary; its autocorrelation after time t is exp(−rate·t).

    Arguments:
        rate: jumps / time of each source, ≥ 0.
        law: of the factor, with mean 1: by name (constant, exponential, lognormal, gamma) or as a
            `crawl_env.content.utility.Law`.
    """

    rate: float = 0.01
    law: str | Law = "gamma"

    def __post_init__(self) -> None:
        super().__post_init__()
        within("rate", self.rate, 0.0, np.inf)
        object.__setattr__(self, "law", make_law(self.law))

    def start(self, shape: tuple[int, int], period: float, rng: np.random.Generator) -> FloatArray:
        return self._sample(rng, shape[0] * shape[1]).reshape(shape)

    def factor(self, state: FloatArray, period: float) -> FloatArray:
        return state

    def step(self, state: FloatArray, period: float, rng: np.random.Generator) -> None:
        jumps = rng.random(state.shape) < -np.expm1(-self.rate * period)
        state[jumps] = self._sample(rng, int(jumps.sum()))

    def _sample(self, rng: np.random.Generator, n: int) -> FloatArray:
        assert not isinstance(self.law, str)  # resolved in __post_init__
        return self.law.sample(rng, n)


@dataclass(frozen=True)
class DailyCycle(Varying):
    """Λ(t) = Λ·(1 + amplitude·cos(2π(t − phase)/day)), or a profile of the day.

    The rate of an epoch is the mean of Λ(t) over it, so that numbers of items are exact, and only
    their moments within an epoch are not. Every episode begins at t = 0.

    Arguments:
        amplitude: from 0 to 1; without meaning where a profile is given.
        day: length of the cycle, time.
        phase: when the rate is highest (a profile: when its day begins), time; one number, or one
            for each source.
        profile: rates in parts of the day of equal length, of which only ratios count; e.g. 24.

    >>> cycle = DailyCycle(day=4, profile=[1, 1, 0, 6])
    >>> cycle.factor(np.arange(6.0), period=1.0)
    array([0.5, 0.5, 0. , 3. , 0.5, 0.5])
    """

    amplitude: float = 0.5
    day: float = 24.0
    phase: float | Sequence[float] = 0.0
    profile: Sequence[float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        within("amplitude", self.amplitude, 0.0, 1.0)
        positive("day", self.day)
        phase = _numbers("phase", self.phase)
        object.__setattr__(
            self, "phase", tuple(phase.tolist()) if np.ndim(self.phase) else phase.item()
        )
        if self.profile is None:
            return
        profile = _numbers("profile", self.profile)
        if profile.min() < 0 or profile.sum() == 0:
            raise ValueError("profile holds rates: none may be negative, and one must be positive")
        object.__setattr__(self, "profile", tuple((profile / profile.mean()).tolist()))

    def start(self, shape: tuple[int, int], period: float, rng: np.random.Generator) -> FloatArray:
        """The state is the time since `phase`, in epochs."""
        if np.ndim(self.phase) and np.shape(self.phase) != shape[1:]:
            raise ValueError(
                f"phase has {np.size(self.phase)} values and the fleet {shape[1]} sources; give "
                "one for all, or one for each"
            )
        return np.broadcast_to(-np.asarray(self.phase) / period, shape).copy()

    def factor(self, state: FloatArray, period: float) -> FloatArray:
        width = period / self.day
        begin = state * width
        if self.profile is None:
            middle = np.cos(2 * np.pi * (begin + 0.5 * width))
            return np.asarray(1.0 + self.amplitude * np.sinc(width) * middle)
        return np.maximum((self._until(begin + width) - self._until(begin)) / width, 0.0)

    def step(self, state: FloatArray, period: float, rng: np.random.Generator) -> None:
        state += 1.0

    def _until(self, days: FloatArray) -> FloatArray:
        """Return the integral of the profile from 0."""
        whole = np.floor(days)
        return np.asarray(whole + np.interp(days - whole, *self._cumulated))

    @cached_property
    def _cumulated(self) -> tuple[FloatArray, FloatArray]:
        parts = np.cumsum(np.concatenate(([0.0], self.profile or ())))
        return np.linspace(0.0, 1.0, parts.size), parts / parts[-1]


def within(name: str, number: object, low: float, high: float) -> None:
    if not (
        isinstance(number, Real) and np.isfinite(float(number)) and low <= float(number) <= high
    ):
        limits = f"between {low:g} and {high:g}" if np.isfinite(high) else "zero or positive"
        raise ValueError(f"{name} is {number!r}; it must be finite and {limits}")


def _numbers(name: str, given: object) -> NDArray[np.float64]:
    """Return one finite number or a list of them as (n,)."""
    try:
        array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.size == 0 or array.ndim > 1 or not np.isfinite(array).all():
        raise ValueError(f"{name} is {given!r}; it must hold finite numbers")
    return array.reshape(-1)
