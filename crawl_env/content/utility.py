"""Distributions of the initial utility ξ of an item, with mean one; a source scales them by ξ̄."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp
from typing import Protocol

import numpy as np

from crawl_env.errors import check_positive, unknown
from crawl_env.numerics import FloatArray


class Distribution(Protocol):
    """A distribution on [0, ∞) with mean 1."""

    @property
    def second_moment(self) -> float:
        """E[ξ²] / ξ̄²."""

    def sample(self, rng: np.random.Generator, n: int) -> FloatArray:
        """Return n independent draws, (n,)."""


@dataclass(frozen=True)
class Constant:
    """ξ = ξ̄."""

    second_moment: float = field(default=1.0, init=False)

    def sample(self, rng: np.random.Generator, n: int) -> FloatArray:
        return np.ones(n)


@dataclass(frozen=True)
class Exponential:
    """ξ exponential: the total of a step can then be drawn at once."""

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
    "constant": Constant,
    "exponential": Exponential,
    "lognormal": Lognormal,
    "gamma": Gamma,
}


def make_distribution(distribution: str | Distribution) -> Distribution:
    """Return a distribution by name, with its default parameter, or the object given."""
    if not isinstance(distribution, str):
        if isinstance(distribution, type) or not hasattr(distribution, "sample"):
            raise ValueError(
                f"the distribution is {distribution!r}; give one of {', '.join(UTILITIES)}, or an "
                "object with `sample` as in crawl_env.content.utility.Distribution"
            )
        return distribution
    if distribution not in UTILITIES:
        raise unknown("distribution of utility", distribution, UTILITIES)
    return UTILITIES[distribution]()
