"""The prior that the fleet itself suggests: empirical Bayes for Gamma–Poisson."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.adaptive.counts import check_prior
from agents.adaptive.evidence import WEAK, Evidence, Posterior, State
from crawl_env.numerics import FloatArray

_SHIFT = 6  # arguments of digamma are moved beyond it, where its series is exact to 1e-10
_LARGEST = 1e6  # shape of a prior: all sources alike
_EVERY = 16  # updates between two steps, once it has run for as many


def fit_prior(
    count: FloatArray, exposure: FloatArray, start: Posterior, weak: Posterior, steps: int = 1
) -> Posterior:
    """Return a Gamma prior (..., 1) for sources that brought `count` items in `exposure` (..., N).

    It climbs the marginal likelihood Π NB(n; a, b/(b + τ)) by expectation–maximisation: with
    E Λ = (a+n)/(b+τ) and E ln Λ = ψ(a+n) − ln(b+τ), the new (a, b) is the Gamma law with the
    means of these over the fleet.

    One source more is added, whose rate has a law of the weak prior's shape about the fleet's mean,
    (Σn + a₀)/(Στ + b₀). As a conjugate prior of (a, b) it does not move the mean, and keeps both
    finite and positive for one source, for sources all alike, and for no items at all.

    Arguments:
        start: where to climb from, (..., 1).
        weak: a₀, b₀.
        steps: of the climb; each gains.
    """
    n = count.shape[-1]
    shape, rate = (np.asarray(x, dtype=np.float64) for x in start)
    number = count.sum(axis=-1, keepdims=True) + weak.shape
    middle = number / (exposure.sum(axis=-1, keepdims=True) + weak.rate)
    log_middle = np.log(middle) + float(digamma(np.asarray(weak.shape)) - np.log(weak.shape))
    for _ in range(steps):
        above, below = shape + count, rate + exposure
        mean = (above / below).sum(axis=-1, keepdims=True) + middle
        log_mean = (digamma(above) - np.log(below)).sum(axis=-1, keepdims=True) + log_middle
        mean, log_mean = mean / (n + 1), log_mean / (n + 1)
        shape = _gamma_shape(np.log(mean) - log_mean)
        rate = shape / mean
    return Posterior(shape, rate)


def digamma(x: FloatArray) -> FloatArray:
    """Return ψ(x), any shape, x > 0, to 1e-10 (Abramowitz & Stegun 6.3.5, 6.3.18).

    >>> float(digamma(np.array(1.0)).round(10))
    -0.5772156649
    """
    y = np.array(x, dtype=np.float64)
    low = np.zeros_like(y)
    for i in range(_SHIFT):
        low += 1.0 / (y + i)
    y += _SHIFT
    w = 1.0 / (y * y)
    series = w * (1 / 12 - w * (1 / 120 - w * (1 / 252 - w * (1 / 240 - w / 132))))
    return np.log(y) - 0.5 / y - series - low


def _gamma_shape(spread: FloatArray) -> FloatArray:
    """Return the root a of ln a − ψ(a) = spread ≥ 0: Minka's start, two of his Newton steps."""
    s = np.maximum(spread, 0.5 / _LARGEST)
    a = (3.0 - s + np.sqrt((s - 3.0) ** 2 + 24.0 * s)) / (12.0 * s)
    for _ in range(2):
        h = 1e-4 * a
        slope = 1.0 / a - (digamma(a + h) - digamma(a - h)) / (2 * h)
        a = 1.0 / (1.0 / a + (np.log(a) - digamma(a) - s) / (a * a * slope))
    return np.clip(a, 1.0 / _LARGEST, _LARGEST)


@dataclass(frozen=True)
class FleetPrior:
    """Gamma–Poisson whose prior is fitted to the fleet as it goes, row by row of the batch.

    Every update of the first `_EVERY`, then one in as many, takes a step of `fit_prior`.

    Arguments:
        prior: the one to begin with, for all sources; one more source is said to have its shape
            ever after.

    Raises:
        ValueError: the prior is out of range, or has a law of its own for every source.
    """

    prior: Posterior = WEAK
    counts = True

    def __post_init__(self) -> None:
        check_prior(self.prior)
        if np.ndim(self.prior.shape) or np.ndim(self.prior.rate):
            raise ValueError(
                "the prior has a shape or rate of its own for every source, and here the fleet is "
                "given one for all; give two numbers, or use the estimator 'gamma-poisson'"
            )

    def begin(self, shape: tuple[int, ...]) -> State:
        one = (*shape[:-1], 1)
        prior = (np.full(one, float(x)) for x in self.prior)
        return np.zeros(shape), np.zeros(shape), *prior, np.zeros(one)

    def update(self, state: State, evidence: Evidence) -> State:
        count, exposure, shape, rate, time = state
        count, exposure, time = count + evidence.items, exposure + evidence.gap, time + 1
        due = (time <= _EVERY) | (time % _EVERY == 0)
        if due.any():
            better = fit_prior(count, exposure, Posterior(shape, rate), self.prior)
            shape = np.where(due, better.shape, shape)
            rate = np.where(due, better.rate, rate)
        return count, exposure, shape, rate, time

    def posterior(self, state: State) -> Posterior:
        count, exposure, shape, rate, _ = state
        return Posterior(shape + count, rate + exposure)
