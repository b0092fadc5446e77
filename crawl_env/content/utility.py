"""Utility of items: its distribution at publication, and its decay with age."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import exp, expm1, log, sqrt
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.content.parts import is_known, make_part
from crawl_env.errors import check_array, check_positive, check_within
from crawl_env.numerics import FloatArray

__all__ = [
    "DECAYS",
    "UTILITIES",
    "Decay",
    "Distribution",
    "EqualUtilities",
    "Exponential",
    "ExponentialDecay",
    "Gamma",
    "Lognormal",
    "LomaxDecay",
    "StretchedDecay",
]


class Distribution(Protocol):
    """A distribution on [0, ∞) with mean 1; ξ is ξ̄ times a draw."""

    @property
    def second_moment(self) -> float:
        """E[ξ²] / ξ̄²."""

    def sample(self, rng: np.random.Generator, n: int) -> FloatArray:
        """Return n independent draws, (n,)."""


@dataclass(frozen=True)
class EqualUtilities:
    """ξ = ξ̄."""

    second_moment: float = field(default=1.0, init=False)

    def sample(self, rng: np.random.Generator, n: int) -> FloatArray:
        return np.ones(n)


@dataclass(frozen=True)
class Exponential:
    """ξ exponential, for which the total of a step can be drawn in constant time."""

    second_moment: float = field(default=2.0, init=False)

    def sample(self, rng: np.random.Generator, n: int) -> FloatArray:
        return rng.standard_exponential(n)


@dataclass(frozen=True)
class Lognormal:
    """ξ lognormal; σ = 1.2 is typical of the votes on a news page."""

    sigma: float = 1.2

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)

    @property
    def second_moment(self) -> float:
        return exp(self.sigma**2)

    def sample(self, rng: np.random.Generator, n: int) -> FloatArray:
        return rng.lognormal(-0.5 * self.sigma**2, self.sigma, n)


@dataclass(frozen=True)
class Gamma:
    """ξ gamma with the given shape; shape 1 is the exponential."""

    shape: float = 2.0

    def __post_init__(self) -> None:
        check_positive("shape", self.shape)

    @property
    def second_moment(self) -> float:
        return 1.0 + 1.0 / self.shape

    def sample(self, rng: np.random.Generator, n: int) -> FloatArray:
        return rng.standard_gamma(self.shape, n) / self.shape


UTILITIES: dict[str, type[Distribution]] = {
    "constant": EqualUtilities,
    "exponential": Exponential,
    "lognormal": Lognormal,
    "gamma": Gamma,
}


def make_distribution(distribution: str | Mapping[str, Any] | Distribution) -> Distribution:
    """Return a distribution by `make_part`; objects are checked and returned unchanged.

    Raises:
        ValueError: a name is unknown, or an object has not what `Distribution` describes. A mean
            of draws that is far from 1 is a warning only.
    """
    if not isinstance(distribution, (str, Mapping)):
        attributes = ("sample", "second_moment")
        if isinstance(distribution, type) or not all(hasattr(distribution, w) for w in attributes):
            raise ValueError(
                f"the distribution is {distribution!r}; give one of {', '.join(UTILITIES)}, or an "
                "object with `sample` and `second_moment` as in "
                "crawl_env.content.utility.Distribution"
            )
        if not is_known(distribution):
            _check_distribution(distribution)
        return distribution
    part: Distribution = make_part("distribution of utility", distribution, UTILITIES)
    return part


def _check_distribution(distribution: Distribution) -> None:
    name = type(distribution).__name__
    square = check_within(f"{name}.second_moment", distribution.second_moment, 1.0)
    draws = check_array(
        f"a draw of {name}.sample(rng, {_DRAWS})",
        distribution.sample(np.random.default_rng(0), _DRAWS),
        (_DRAWS,),
        0.0,
        element="draw",
    )
    error = sqrt((square - 1.0) / _DRAWS)
    if abs(draws.mean() - 1.0) > 0.01 + 6.0 * error:
        warnings.warn(
            f"{_DRAWS:,} draws of {name}.sample have the mean {draws.mean():.3g}; it must be 1, "
            "since the draws are multiplied by mean_utility: divide them by their mean",
            stacklevel=4,
        )


_DRAWS = 4096  # of a distribution of one's own, for its check
_FADED = 9 * log(10)  # the stretched exponential is cut off where exp(−_FADED) is left


class Decay(Protocol):
    """A decay function R(z) of z = μ·age with R(0) = 1 and ∫ R = 1."""

    @property
    def end(self) -> float:
        """z from which an item has no utility left."""

    def survival(self, z: FloatArray) -> FloatArray:
        """Return R(z), the fraction of utility that is left, any shape; 0 from `end` on."""

    def integrated_survival(self, z: ArrayLike) -> FloatArray:
        """Return ∫_0^z R, any shape: the mean content of a source as a fraction of u*."""


@dataclass(frozen=True)
class ExponentialDecay:
    """R = exp(−z), the decay of the model; 0 from z = 37 on, where less than 1e-16 is left."""

    end: float = field(default=37.0, init=False)

    def survival(self, z: FloatArray) -> FloatArray:
        fraction = np.asarray(np.exp(-z))
        fraction[z >= self.end] = 0.0
        return fraction

    def integrated_survival(self, z: ArrayLike) -> FloatArray:
        return np.asarray(-np.expm1(-np.asarray(z, dtype=np.float64)))


@dataclass(frozen=True)
class StretchedDecay:
    """R = exp(−(cz)^β), 0 < β ≤ 1: fast at first, slow later; β = 1 is the exponential. R is 0
    once less than 1e-9 is left.

    >>> StretchedDecay(0.5).survival(np.array([0.0, 0.5, 5.0])).round(4)
    array([1.    , 0.3679, 0.0423])
    """

    beta: float = 0.5

    def __post_init__(self) -> None:
        check_within("beta", self.beta, 0.0, 1.0, open_low=True)

    @cached_property
    def end(self) -> float:
        return float(1e9 / self._series(np.asarray(_FADED)))

    def survival(self, z: FloatArray) -> FloatArray:
        return np.where(z < self.end, np.exp(-self._hazard(z)), 0.0)

    def integrated_survival(self, z: ArrayLike) -> FloatArray:
        until = np.minimum(np.asarray(z, dtype=np.float64), self.end)
        w = self._hazard(until)
        return np.asarray(until * np.exp(-w) * self._series(w))

    def _hazard(self, z: ArrayLike) -> FloatArray:
        """Return w = (cz)^β, where c makes R, cut off at `end`, integrate to 1."""
        return np.asarray(_FADED * (np.asarray(z) / self.end) ** self.beta)

    def _series(self, w: FloatArray) -> FloatArray:
        """Return Σ_n w^n/((a+1)…(a+n)), a = 1/β, with which ∫_0^z R = z e^−w Σ. This series of the
        incomplete gamma function has positive terms only, so that there is no cancellation."""
        term, n = np.ones_like(w), 0
        total = term.copy()
        while term.max(initial=0.0) > 1e-17:
            n += 1
            term *= w / (1 / self.beta + n)
            total += term
        return total


@dataclass(frozen=True)
class LomaxDecay:
    """R = (1 + z/s)^−k, k > 1, a power law; R is 0 once less than 1e-4 is left.

    >>> LomaxDecay(2.0).survival(np.array([0.0, 1.0, 10.0])).round(4)
    array([1.    , 0.2525, 0.0084])
    """

    k: float = 2.0

    def __post_init__(self) -> None:
        # With k ≤ 1 the utility of an item would have an infinite integral.
        check_within("k", self.k, 1.0, open_low=True)

    @cached_property
    def end(self) -> float:
        return self._scale * expm1(self._reach)

    def survival(self, z: FloatArray) -> FloatArray:
        return np.where(z < self.end, np.exp(-self.k * np.log1p(z / self._scale)), 0.0)

    def integrated_survival(self, z: ArrayLike) -> FloatArray:
        until = np.minimum(np.asarray(z, dtype=np.float64), self.end)
        waned = np.expm1((1 - self.k) * np.log1p(until / self._scale))
        return np.asarray(waned / expm1((1 - self.k) * self._reach))

    @property
    def _reach(self) -> float:
        """ln(1 + end/s)."""
        return 4 * log(10) / self.k

    @cached_property
    def _scale(self) -> float:
        """s, chosen so that R, cut off at `end`, integrates to 1."""
        return (1 - self.k) / expm1((1 - self.k) * self._reach)


EXPONENTIAL = ExponentialDecay()

DECAYS: dict[str, type[Decay]] = {
    "exponential": ExponentialDecay,
    "stretched": StretchedDecay,
    "lomax": LomaxDecay,
}


def make_decay(decay: str | Mapping[str, Any] | Decay) -> Decay:
    """Return a decay function by `make_part`; objects are checked and returned unchanged.

    Raises:
        ValueError: a name is unknown, or an object has not what `Decay` describes.
    """
    if not isinstance(decay, (str, Mapping)):
        attributes = ("survival", "integrated_survival", "end")
        if isinstance(decay, type) or not all(hasattr(decay, name) for name in attributes):
            raise ValueError(
                f"decay is {decay!r}; give one of {', '.join(DECAYS)}, or an object with "
                "`survival`, `integrated_survival` and `end` as in crawl_env.content.utility.Decay"
            )
        if not is_known(decay):
            _check_decay(decay)
        return decay
    function: Decay = make_part("decay", decay, DECAYS)
    return function


def _check_decay(decay: Decay) -> None:
    name, end = type(decay).__name__, check_positive("end", decay.end)
    z = np.array([0.0, 0.5 * end, end])
    survival = check_array(f"what {name}.survival returned", decay.survival(z), (3,), 0.0, 1.0)
    total = check_array(f"what {name}.integrated_survival returned", decay.integrated_survival(end))
    for what, number, target in (
        ("survival(0)", survival[0], 1.0),
        ("survival(end)", survival[2], 0.0),
        ("integrated_survival(end)", float(total), 1.0),
    ):
        if abs(number - target) > 1e-3:
            raise ValueError(
                f"{name}.{what} is {number:g}; it must be {target:g}, since decay_rate alone says "
                "how fast utility decays"
            )
