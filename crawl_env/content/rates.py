"""Models of how the arrival rate changes with time: constant, drifting, jumping, periodic, in
regimes that the sources of a topic share, or excited by earlier items.

The `arrival_rate` Λ of a source is its mean rate under every model. Planners, beliefs and bounds
use the mean; only `World.rate` has the current rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from crawl_env.content.items import PoissonTimes, Times, check_drawable
from crawl_env.content.parts import is_known
from crawl_env.content.process import Cells
from crawl_env.content.utility import Distribution, make_distribution
from crawl_env.errors import (
    check_array,
    check_non_negative,
    check_positive,
    check_within,
    shown,
)
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray, IntArray

__all__ = ["Constant", "DailyCycle", "Drift", "Hawkes", "Jumps", "RateModel", "Regimes"]


class RateModel:
    """Base class of rate models: the rate is Λ·factor. Agents plan with Λ as the mean rate, so that
    the mean of the factor should be 1.

    A subclass implements `start`, `factor` and `step`. Its state, one number per cell, does not
    depend on what is crawled. Content published before an episode arrived at the rate Λ.

    >>> class Halving(RateModel):
    ...     "The rate halves in every step."
    ...     def start(self, shape, period, rng):
    ...         return np.ones(shape)
    ...     def factor(self, state, period):
    ...         return state
    ...     def step(self, state, period, rng):
    ...         state /= 2
    >>> from crawl_env import Arrivals, CrawlEnv
    >>> env = CrawlEnv(sources="table1", arrivals=Arrivals(rate=Halving()))
    >>> _ = env.reset(seed=0), env.step(np.zeros(4))
    >>> env.world.rate
    array([[125., 125., 125., 125.]])
    """

    constant = False  # whether the factor is always 1, so that there is no state
    draws_items = False  # whether items must be drawn singly
    common = False  # whether the sources of a topic (`Sources.topics`) share the factor

    @property
    def parallel(self) -> bool:
        """Whether several threads may use the model at the same time."""
        return is_known(self)

    def start(self, shape: tuple[int, int], period: float, rng: np.random.Generator) -> FloatArray:
        """Return the state at the start of an episode, (b, N), or of so many topics if the factor
        is `common`."""
        raise NotImplementedError(self._lacks("start(shape, period, rng)"))

    def factor(self, state: FloatArray, period: float) -> FloatArray:
        """Return the rate of the next step relative to Λ, in the shape of `state`."""
        raise NotImplementedError(self._lacks("factor(state, period)"))

    def step(self, state: FloatArray, period: float, rng: np.random.Generator) -> None:
        """Change the state (n,), in place, to that of the next step."""
        raise NotImplementedError(self._lacks("step(state, period, rng)"))

    def _lacks(self, method: str) -> str:
        return f"{type(self).__name__} must implement {method}"

    def now(self, cells: Cells, state: FloatArray) -> Cells:
        """Return the cells with their rates in the next step."""
        return replace(cells, items=cells.items * self.factor(state, cells.period))

    def times(self, cells: Cells, state: FloatArray) -> Times:
        """Return a function that draws the arrival times of one step at cells of this state, (n,),
        and then advances the state to the next step."""

        def draw(rng: np.random.Generator) -> Iterator[tuple[IntArray, FloatArray]]:
            yield from PoissonTimes(self.now(cells, state).items, np.ones_like(cells.items))(rng)
            if not self.common:
                self.step(state, cells.period, rng)

        return draw


@dataclass(frozen=True)
class Constant(RateModel):
    """The rate is Λ at all times."""

    constant = True

    def times(self, cells: Cells, state: FloatArray) -> Times:
        return PoissonTimes(cells.items, np.ones_like(cells.items))


@dataclass(frozen=True)
class Drift(RateModel):
    """The logarithm of the factor f is an AR(1) process: ln f ← (1 − ρ) ln f + σZ − b in every
    step, with Z standard normal.

    With reversion ρ > 0 it is stationary: ln f has variance s² = σ²/(ρ(2 − ρ)), autocorrelation
    (1 − ρ)^k at lag k, and b = ρs²/2, so that f is lognormal with mean 1; episodes start from that
    distribution. With ρ = 0 it is a random walk from f = 1, and b = σ²/2 keeps its mean at 1;
    after t steps half of the sources then publish less than exp(−tσ²/2)Λ, so that most of them are
    silent in the long run.

    Arguments:
        sigma: σ, standard deviation of the increments of ln f, ≥ 0.
        reversion: ρ, rate of mean reversion per step, in [0, 1].
    """

    sigma: float = 0.1
    reversion: float = 0.01

    def __post_init__(self) -> None:
        check_non_negative("sigma", self.sigma)
        check_within("reversion", self.reversion, 0.0, 1.0)

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
        """s², the stationary variance; defined for ρ > 0."""
        return self.sigma**2 / (self.reversion * (2.0 - self.reversion))


@dataclass(frozen=True)
class Jumps(RateModel):
    """Regime changes: each source redraws its factor at the times of its own Poisson process.

    A jump takes effect at the end of its step. Episodes start from the distribution of the factor,
    so that the process is stationary; its autocorrelation at lag t is exp(−rate·t).

    Arguments:
        rate: jumps / time at each source, ≥ 0.
        distribution: distribution of the factor, with mean 1: "constant", "exponential",
            "lognormal" or "gamma", or a `crawl_env.content.utility.Distribution`.
    """

    rate: float = 0.01
    distribution: str | Mapping[str, Any] | Distribution = "gamma"

    def __post_init__(self) -> None:
        check_non_negative("rate", self.rate, "jumps / time")
        object.__setattr__(self, "distribution", make_distribution(self.distribution))

    @property
    def parallel(self) -> bool:
        return super().parallel and is_known(self.distribution)

    def start(self, shape: tuple[int, int], period: float, rng: np.random.Generator) -> FloatArray:
        return self._sample(rng, shape[0] * shape[1]).reshape(shape)

    def factor(self, state: FloatArray, period: float) -> FloatArray:
        return state

    def step(self, state: FloatArray, period: float, rng: np.random.Generator) -> None:
        jumps = rng.random(state.shape) < -np.expm1(-self.rate * period)
        state[jumps] = self._sample(rng, int(jumps.sum()))

    def _sample(self, rng: np.random.Generator, n: int) -> FloatArray:
        assert not isinstance(self.distribution, (str, Mapping))  # resolved in __post_init__
        return self.distribution.sample(rng, n)


@dataclass(frozen=True)
class DailyCycle(RateModel):
    """Periodic rates: Λ(t) = Λ·(1 + amplitude·cos(2π(t − phase)/day)), or a daily profile.

    The rate of a step is the mean of Λ(t) over it, so that the number of items has the exact
    distribution; their times within a step are uniform. Every episode begins at t = 0.

    Arguments:
        amplitude: relative amplitude, in [0, 1]; ignored if a profile is given.
        day: length of the cycle, time.
        phase: time at which the rate is highest (with a profile: at which its day begins); a scalar
            or one value per source.
        profile: rates in parts of the day of equal length, for example 24; only their ratios
            matter.

    >>> cycle = DailyCycle(day=4, profile=[1, 1, 0, 6])
    >>> cycle.factor(np.arange(6.0), period=1.0)
    array([0.5, 0.5, 0. , 3. , 0.5, 0.5])
    """

    amplitude: float = 0.5
    day: float = 24.0
    phase: float | Sequence[float] = 0.0
    profile: Sequence[float] | None = None

    def __post_init__(self) -> None:
        check_within("amplitude", self.amplitude, 0.0, 1.0)
        check_positive("day", self.day, "time")
        shape = (None,) * np.ndim(self.phase)
        phase = check_array("phase", self.phase, shape[:1], unit="time").tolist()
        object.__setattr__(self, "phase", tuple(phase) if shape else phase)
        if self.profile is None:
            return
        profile = check_array("profile", self.profile, (None,), low=0.0, element="part")
        if not profile.sum() > 0:
            raise ValueError("profile has no positive rate; at least one part of the day needs one")
        mean = profile.mean()
        if abs(mean - 1.0) > 1e-12:  # dividing by a rounded 1 again would change the last digits
            profile = profile / mean
        object.__setattr__(self, "profile", tuple(profile.tolist()))

    def start(self, shape: tuple[int, int], period: float, rng: np.random.Generator) -> FloatArray:
        """Return the time since `phase`, in steps, (b, N)."""
        if np.ndim(self.phase) and np.shape(self.phase) != shape[1:]:
            raise ValueError(
                f"phase has {np.size(self.phase)} values for {shape[1]} sources; give a scalar, or "
                "one value per source"
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
        """Return the integral of the profile from 0 to `days`."""
        whole = np.floor(days)
        return np.asarray(whole + np.interp(days - whole, *self._cumulated))

    @cached_property
    def _cumulated(self) -> tuple[FloatArray, FloatArray]:
        parts = np.cumsum(np.concatenate(([0.0], self.profile or ())))
        return np.linspace(0.0, 1.0, parts.size), parts / parts[-1]


@dataclass(frozen=True)
class Regimes(RateModel):
    """Hidden regimes: every topic is hot or cold, and all its sources publish more or less alike.

    The regime of a topic (`Sources.topics`) is a Markov chain, which changes at the end of a step
    with probability `switch`, independently of other topics. With a ratio r, the factor is
    2r/(1 + r) while the topic is hot and 2/(1 + r) while it is cold. Episodes start hot or cold
    with equal probability, so that the process is stationary with mean 1; its autocorrelation at
    lag k is (1 − 2·switch)^k.

    Arguments:
        ratio: r, the rate of a hot topic relative to that of a cold one, ≥ 1.
        switch: probability that a topic changes its regime in a step, in [0, 1].

    >>> Regimes(ratio=9).factor(np.array([0.0, 1.0]), period=1.0)
    array([0.2, 1.8])
    """

    ratio: float = 9.0
    switch: float = 0.01

    common = True

    def __post_init__(self) -> None:
        check_within("ratio", self.ratio, 1.0, np.inf, open_high=True)
        check_within("switch", self.switch, 0.0, 1.0)

    @property
    def factors(self) -> FloatArray:
        """The factors of a cold and of a hot topic, (2,)."""
        return np.array([2.0, 2.0 * self.ratio]) / (1.0 + self.ratio)

    def start(self, shape: tuple[int, int], period: float, rng: np.random.Generator) -> FloatArray:
        """Return whether each topic is hot, 0 or 1, (b, G)."""
        return (rng.random(shape) < 0.5).astype(np.float64)

    def factor(self, state: FloatArray, period: float) -> FloatArray:
        cold, hot = self.factors
        return np.where(state > 0, hot, cold)

    def step(self, state: FloatArray, period: float, rng: np.random.Generator) -> None:
        changed = rng.random(state.shape) < self.switch
        state[changed] = 1.0 - state[changed]


@dataclass(frozen=True)
class Hawkes(RateModel):
    """Self-exciting arrivals: λ(t) = (1 − n)Λ + Σ_k nβ exp(−β(t − t_k)) over the items before t.

    Each item excites n further items on average, after exponentially distributed times of rate β,
    and these excite more. The mean rate is Λ; over long times the variance of counts is 1/(1 − n)²
    times their mean. Arrival times within a step are exact, and so is their distribution for any
    period. An episode starts with λ = Λ, so that E λ = Λ at all times; the process is stationary
    after a few multiples of 1/(β(1 − n)). Items are always drawn singly.

    Hawkes (1971), Spectra of some self-exciting and mutually exciting point processes.

    Arguments:
        branching: n, the branching ratio, at least 0 and below 1.
        kernel_rate: β, the decay rate of the excitation, 1 / time, > 0.
    """

    branching: float = 0.5
    kernel_rate: float = 1.0

    draws_items = True

    def __post_init__(self) -> None:
        # With n = 1 every item would excite infinitely many.
        check_within("branching", self.branching, 0.0, 1.0, open_high=True)
        check_positive("kernel_rate", self.kernel_rate, "1 / time")

    def start(self, shape: tuple[int, int], period: float, rng: np.random.Generator) -> FloatArray:
        """Return the excitation λ/Λ − (1 − n), (b, N)."""
        return np.full(shape, float(self.branching))

    def factor(self, state: FloatArray, period: float) -> FloatArray:
        """Return λ/Λ at the start of the step; it changes within the step."""
        return np.asarray(1.0 - self.branching + state)

    def step(self, state: FloatArray, period: float, rng: np.random.Generator) -> None:
        """Do nothing: drawing the items of a step already changes the state."""

    def times(self, cells: Cells, state: FloatArray) -> Times:
        check_drawable(float(cells.items.sum()))
        beta, everywhere = self.kernel_rate * cells.period, np.arange(cells.items.size)

        def draw(rng: np.random.Generator) -> Iterator[tuple[IntArray, FloatArray]]:
            """Draw one generation of items after the other."""
            alone = np.repeat(everywhere, rng.poisson(cells.items * (1.0 - self.branching)))
            mean_heirs = cells.items * state * (-np.expm1(-beta) / beta)
            heirs = np.repeat(everywhere, rng.poisson(mean_heirs))
            where = np.concatenate((alone, heirs))
            # Time left in the step, which is the item's age at the end of the step.
            time_left = rng.random(alone.size)
            time_left = np.concatenate((time_left, _later(np.ones(heirs.size), beta, rng)))
            generations = [(where, time_left)]
            while where.size:
                children = rng.poisson(self.branching * -np.expm1(-beta * time_left))
                where = np.repeat(where, children)
                time_left = _later(np.repeat(time_left, children), beta, rng)
                generations.append((where, time_left))
            where, age = (np.concatenate(column) for column in zip(*generations, strict=True))
            brought = np.bincount(where, np.exp(-beta * age), everywhere.size)
            items = np.where(cells.items > 0, cells.items, 1.0)
            np.multiply(state, np.exp(-beta), out=state)
            np.add(state, self.branching * beta * brought / items, out=state)
            yield where, age

        return draw


def _later(time_left: FloatArray, beta: float, rng: np.random.Generator) -> FloatArray:
    """Return the time left after an exponential delay of rate β, below `time_left`."""
    delay = -np.log1p(rng.random(time_left.size) * np.expm1(-beta * time_left)) / beta
    return np.maximum(time_left - delay, 0.0)


def check_model(model: RateModel, sources: Sources) -> None:
    """Raise ValueError if a rate model of one's own breaks the interface of `RateModel` in its
    first two steps at these sources."""
    if model.constant or is_known(model):
        return
    name, rng = type(model).__name__, np.random.default_rng(0)
    shape, period = (1, len(sources)), sources.period
    state = model.start(shape, period, rng)
    if not isinstance(state, np.ndarray) or state.dtype.kind != "f":
        raise ValueError(
            f"{name}.start returned {shown(state)}; return an array of floats of the given shape"
        )
    check_array(f"the state that {name}.start returned", state, shape)
    state = state.reshape(-1).copy()
    for _ in range(2):
        check_array(
            f"the factor that {name}.factor returned", model.factor(state, period), state.shape, 0.0
        )
        if model.step(state, period, rng) is not None:  # type: ignore[func-returns-value]
            raise ValueError(
                f"{name}.step returned something; it must change `state` in place, as state *= … "
                "or state[...] = … do, and return nothing"
            )
