"""Hawkes processes: arrivals in which items excite further items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from crawl_env.content.items import Times, check_drawable
from crawl_env.content.process import Cells
from crawl_env.content.rates import RateModel
from crawl_env.errors import check_positive, check_within
from crawl_env.numerics import FloatArray, IntArray


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

        def drawn(rng: np.random.Generator) -> Iterator[tuple[IntArray, FloatArray]]:
            """Draw one generation of items after the other."""
            alone = np.repeat(everywhere, rng.poisson(cells.items * (1.0 - self.branching)))
            excited = cells.items * state * (-np.expm1(-beta) / beta)
            heirs = np.repeat(everywhere, rng.poisson(excited))
            where = np.concatenate((alone, heirs))
            # Time left in the step, which is the item's age at the end of the step.
            left = rng.random(alone.size)
            left = np.concatenate((left, _later(np.ones(heirs.size), beta, rng)))
            generations = [(where, left)]
            while where.size:
                children = rng.poisson(self.branching * -np.expm1(-beta * left))
                where = np.repeat(where, children)
                left = _later(np.repeat(left, children), beta, rng)
                generations.append((where, left))
            where, age = (np.concatenate(column) for column in zip(*generations, strict=True))
            brought = np.bincount(where, np.exp(-beta * age), everywhere.size)
            items = np.where(cells.items > 0, cells.items, 1.0)
            np.multiply(state, np.exp(-beta), out=state)
            np.add(state, self.branching * beta * brought / items, out=state)
            yield where, age

        return drawn


def _later(left: FloatArray, beta: float, rng: np.random.Generator) -> FloatArray:
    """Return the time left after an exponential delay of rate β, given that it is below `left`."""
    passed = -np.log1p(rng.random(left.size) * np.expm1(-beta * left)) / beta
    return np.maximum(left - passed, 0.0)
