"""Rates from the number of new items: Gamma–Poisson, with ways to forget what has changed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.adaptive.evidence import WEAK, Evidence, Posterior, State
from crawl_env.numerics import FloatArray


@dataclass(frozen=True)
class GammaPoisson:
    """The conjugate posterior: n items after a gap τ make shape += n, rate += τ.

    Where rates drift, both are multiplied by ρ^elapsed towards the prior. The memory is then of
    1/(1 − ρ) units of time, and a source that is not crawled becomes uncertain again.

    Arguments:
        prior: shape and rate before any crawl.
        retention: ρ in (0, 1], per unit of time; 1 forgets nothing, and the order of the crawls
            does not matter. Several broadcast with (..., N).

    Raises:
        ValueError: prior or retention is out of range.

    >>> learner = GammaPoisson()
    >>> state = learner.update(learner.begin((2,)), Evidence.of([10, 10], [3, 0]))
    >>> learner.posterior(state).mean.round(3)
    array([0.35, 0.05])
    """

    prior: Posterior = WEAK
    retention: float | FloatArray = 1.0
    counts = True

    def __post_init__(self) -> None:
        check_prior(self.prior)
        check_retention(self.retention)

    def begin(self, shape: tuple[int, ...]) -> State:
        return np.zeros(shape), np.zeros(shape)

    def update(self, state: State, evidence: Evidence) -> State:
        count, exposure = self.faded(state, evidence.elapsed)
        return count + evidence.items, exposure + evidence.gap

    def faded(self, state: State, elapsed: float) -> State:
        """Return what is left of a state after some time."""
        if np.all(np.equal(self.retention, 1.0)):
            return state
        kept = self.retention**elapsed
        return tuple(kept * array for array in state)

    def posterior(self, state: State) -> Posterior:
        count, exposure = state
        return Posterior(self.prior.shape + count, self.prior.rate + exposure)


@dataclass(frozen=True)
class Windowed:
    """Gamma–Poisson on the last `length` to 2·`length` units of time; what is older is dropped.

    Two buckets a source, of which the older is emptied when the newer is full: memory that does
    not grow with the window.

    Arguments:
        length: time that a bucket lasts.
        prior: shape and rate without crawls.

    Raises:
        ValueError: prior or length is out of range.
    """

    length: float
    prior: Posterior = WEAK
    counts = True

    def __post_init__(self) -> None:
        check_prior(self.prior)
        if not self.length > 0:
            raise ValueError(f"length is {self.length}; a window lasts a positive time")

    def begin(self, shape: tuple[int, ...]) -> State:
        return tuple(np.zeros(shape) for _ in range(5))  # old and new count, exposure; time

    def update(self, state: State, evidence: Evidence) -> State:
        old_count, old_exposure, count, exposure, time = state
        full = time >= self.length
        old_count = np.where(full, count, old_count)
        old_exposure = np.where(full, exposure, old_exposure)
        count = np.where(full, 0.0, count) + evidence.items
        exposure = np.where(full, 0.0, exposure) + evidence.gap
        return (
            old_count,
            old_exposure,
            count,
            exposure,
            np.where(full, 0.0, time) + evidence.elapsed,
        )

    def posterior(self, state: State) -> Posterior:
        old_count, old_exposure, count, exposure, _ = state
        return Posterior(
            self.prior.shape + old_count + count, self.prior.rate + old_exposure + exposure
        )


def check_prior(prior: Posterior, most: int = 2) -> None:
    """Raise ValueError unless shape and rate of a prior are positive and finite, with `most` axes
    at most."""
    if not isinstance(prior, Posterior):
        raise ValueError(f"prior is {prior!r}; give a Posterior(shape, rate)")
    if max(np.ndim(prior.shape), np.ndim(prior.rate)) > most:
        raise ValueError("the prior has too many axes; give two numbers, or one of each per source")
    for name, value in (("shape", prior.shape), ("rate", prior.rate)):
        if not (np.all(np.isfinite(value)) and np.all(np.asarray(value) > 0)):
            raise ValueError(f"the prior's {name} is {value}; it must be positive and finite")


def check_retention(retention: float | FloatArray) -> None:
    """Raise ValueError unless it is a share of what is known, above 0."""
    kept = np.asarray(retention, dtype=np.float64)
    if not np.all((kept > 0) & (kept <= 1)):
        raise ValueError(
            f"retention is {kept}; it must be above 0 and at most 1, the share of what is "
            "known that is kept over one unit of time"
        )
