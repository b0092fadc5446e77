"""Bursts: items that bring more items, a Hawkes process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crawl_env.content.cells import Cells, Stream
from crawl_env.content.poisson import OneByOne
from crawl_env.content.rates import Varying, within
from crawl_env.content.utility import Law, positive
from crawl_env.numerics import FloatArray


@dataclass(frozen=True)
class Bursts(Varying):
    """Self-exciting arrivals: λ(t) = (1 − n)Λ + Σ_k nβ exp(−β(t − t_k)) over the items before t.

    An item brings n further ones on average, after times exponential with rate β, and these bring
    more. The mean rate is Λ; over long times the variance of counts is 1/(1 − n)² times their mean.
    Moments within an epoch are exact, and so is the law for any period. An episode starts with
    λ = Λ, its mean, so that E λ = Λ at all times; the law is stationary after some multiples of
    1/(β(1 − n)).

    Hawkes (1971), Spectra of some self-exciting and mutually exciting point processes. Items are
    always simulated one by one.

    Arguments:
        branching: n, at least 0 and below 1.
        decay: β > 0, 1 / time.
    """

    branching: float = 0.5
    decay: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        within("branching", self.branching, 0.0, 1.0)
        if self.branching == 1:
            raise ValueError("branching is 1; it must be below 1, or bursts would never end")
        positive("decay", self.decay)

    def start(self, shape: tuple[int, int], period: float, rng: np.random.Generator) -> FloatArray:
        """The state is the excitation λ/Λ − (1 − n)."""
        return np.full(shape, float(self.branching))

    def factor(self, state: FloatArray, period: float) -> FloatArray:
        """Return λ/Λ at this moment; within the epoch it changes."""
        return np.asarray(1.0 - self.branching + state)

    def step(self, state: FloatArray, period: float, rng: np.random.Generator) -> None:
        """Do nothing: drawing the items of an epoch has changed the state."""

    def items(self, cells: Cells, state: FloatArray) -> OneByOne:
        assert not isinstance(self.poisson.law, str)  # resolved by Poisson
        return _Clusters(cells, self.poisson.law, self.branching, self.decay, state)

    def _epoch(self, cells: Cells, count: bool, state: FloatArray) -> Stream:
        return self.items(cells, state)


class _Clusters(OneByOne):
    """The items of one epoch, generation by generation; drawing them changes `state`."""

    def __init__(
        self, cells: Cells, law: Law, branching: float, decay: float, state: FloatArray
    ) -> None:
        super().__init__(cells, np.ones_like(cells.items), law)
        self._branching, self._beta, self._state = branching, decay * cells.period, state

    def drawn(
        self, rng: np.random.Generator
    ) -> Iterator[tuple[NDArray[np.intp], FloatArray, FloatArray]]:
        cells, beta, state = self._cells, self._beta, self._state
        everywhere = np.arange(cells.items.size)
        alone = np.repeat(everywhere, rng.poisson(cells.items * (1.0 - self._branching)))
        brought = cells.items * state * (-np.expm1(-beta) / beta)
        heirs = np.repeat(everywhere, rng.poisson(brought))
        where = np.concatenate((alone, heirs))
        # Time left in the epoch, which at its end is the age.
        left = np.concatenate((rng.random(alone.size), self._later(np.ones(heirs.size), rng)))
        generations = [(where, left)]
        while where.size:
            children = rng.poisson(self._branching * -np.expm1(-beta * left))
            where = np.repeat(where, children)
            left = self._later(np.repeat(left, children), rng)
            generations.append((where, left))
        where, age = (np.concatenate(column) for column in zip(*generations, strict=True))
        excited = np.bincount(where, np.exp(-beta * age), everywhere.size)
        state *= np.exp(-beta)
        state += self._branching * beta * excited / np.where(cells.items > 0, cells.items, 1.0)
        yield where, age, self._law.sample(rng, where.size) * cells.mean_utility[where]

    def _later(self, left: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return what is left after an exponential delay of rate β that is shorter than `left`."""
        passed = -np.log1p(rng.random(left.size) * np.expm1(-self._beta * left)) / self._beta
        return np.maximum(left - passed, 0.0)
