"""How interest in an item falls with its age, in units of z = μ·age.

Each law R has R(0) = 1 and ∫ R dz = 1, so that a source never crawled holds u* = Λξ̄/μ under every
one of them: laws of one μ differ in shape alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gamma, log
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.errors import unknown
from crawl_env.laws import positive
from crawl_env.numerics import FloatArray


class Decay(Protocol):
    """A law of decay."""

    @property
    def end(self) -> float:
        """z from which an item counts as worth nothing."""

    def share(self, z: FloatArray) -> FloatArray:
        """Return R(z), the share of an item's utility that is left, any shape; 0 from `end` on."""

    def total(self, z: ArrayLike) -> FloatArray:
        """Return ∫_0^z R, any shape: what waits at a source, as a share of u*."""


@dataclass(frozen=True)
class ExponentialDecay:
    """R = exp(−z), the model's law; 0 from z = 37 on, where less than 1e-16 is left."""

    end: float = field(default=37.0, init=False)

    def share(self, z: FloatArray) -> FloatArray:
        return np.where(z < self.end, np.exp(-z), 0.0)

    def total(self, z: ArrayLike) -> FloatArray:
        return np.asarray(-np.expm1(-np.asarray(z, dtype=np.float64)))


@dataclass(frozen=True)
class StretchedDecay:
    """R = exp(−(cz)^β), c = Γ(1 + 1/β), 0 < β ≤ 1: fast at first, slow later; β = 1 is the
    exponential. 0 from where less than 1e-9 is left.

    >>> StretchedDecay(0.5).share(np.array([0.0, 0.5, 5.0])).round(4)
    array([1.    , 0.3679, 0.0423])
    """

    beta: float = 0.5

    def __post_init__(self) -> None:
        positive("beta", self.beta)
        if self.beta > 1:
            raise ValueError(f"beta is {self.beta!r}; it must be at most 1, the exponential")

    @property
    def end(self) -> float:
        return (9 * log(10)) ** (1 / self.beta) / gamma(1 + 1 / self.beta)

    def share(self, z: FloatArray) -> FloatArray:
        return np.where(z < self.end, np.exp(-self._hazard(z)), 0.0)

    def total(self, z: ArrayLike) -> FloatArray:
        # With w = (cz)^β it is ∫_0^w e^−v v^(1/β−1) dv / Γ(1/β): Gauss–Legendre on short pieces.
        edges = np.linspace(0.0, self._hazard(np.float64(self.end)), 65)
        nodes, weights = np.polynomial.legendre.leggauss(12)
        power = 1 / self.beta - 1
        w = self._hazard(np.minimum(np.asarray(z, dtype=np.float64), self.end))[..., None]
        width = np.clip(w - edges[:-1], 0.0, np.diff(edges))
        v = edges[:-1, None] + width[..., None] * (nodes + 1) / 2
        pieces = (np.exp(-v) * v**power) @ weights * width / 2
        return np.asarray(pieces.sum(axis=-1) / gamma(1 / self.beta))

    def _hazard(self, z: ArrayLike) -> FloatArray:
        return np.asarray((np.asarray(z) * gamma(1 + 1 / self.beta)) ** self.beta)


@dataclass(frozen=True)
class LomaxDecay:
    """R = (1 + z/s)^−k, k > 1, a power law; 0 from where less than 1e-4 is left.

    >>> LomaxDecay(2.0).share(np.array([0.0, 1.0, 10.0])).round(4)
    array([1.    , 0.2525, 0.0084])
    """

    k: float = 2.0

    def __post_init__(self) -> None:
        positive("k", self.k)
        if self.k <= 1:
            raise ValueError(f"k is {self.k!r}; it must be above 1, or interest would never end")

    @property
    def end(self) -> float:
        return self._scale * (self._stretch - 1)

    def share(self, z: FloatArray) -> FloatArray:
        return np.where(z < self.end, (1 + z / self._scale) ** -self.k, 0.0)

    def total(self, z: ArrayLike) -> FloatArray:
        until = np.minimum(np.asarray(z, dtype=np.float64), self.end)
        return np.asarray(
            self._scale / (self.k - 1) * (1 - (1 + until / self._scale) ** (1 - self.k))
        )

    @property
    def _stretch(self) -> float:
        """1 + end/s."""
        return float(1e4 ** (1 / self.k))

    @property
    def _scale(self) -> float:
        """s, such that the law cut off at `end` integrates to 1."""
        return (self.k - 1) / (1 - self._stretch ** (1 - self.k))


DECAYS: dict[str, type[Decay]] = {
    "exponential": ExponentialDecay,
    "stretched": StretchedDecay,
    "lomax": LomaxDecay,
}


def make_decay(decay: str | Decay) -> Decay:
    """Return a law of decay by name, with its default parameter, or the object given."""
    if not isinstance(decay, str):
        if isinstance(decay, type) or not hasattr(decay, "share"):
            raise ValueError(
                f"decay is {decay!r}; give one of {', '.join(DECAYS)}, or an object with `share`, "
                "`total` and `end` as in crawl_env.decays.Decay"
            )
        return decay
    if decay not in DECAYS:
        raise unknown("law of decay", decay, DECAYS)
    return DECAYS[decay]()
