"""Rates that jump: Gamma–Poisson that starts anew when the counts contradict it."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np

from agents.adaptive.counts import GammaPoisson, check_prior
from agents.adaptive.evidence import WEAK, Evidence, Posterior, State
from crawl_env.numerics import FloatArray


@dataclass(frozen=True)
class Drifting:
    """Gamma–Poisson with a two-sided CUSUM on its own predictions.

    Each crawl compares two predictions of its count, negative binomial both: by the posterior
    (A, B), and by the same with all rates κ times as large,

        S ← max(0, S + n ln κ − (A + n) ln((B + κτ)/(B + τ))),

    one S for κ = `factor` and one for 1/κ. For B → ∞ that is Page's CUSUM n ln κ − Λ(κ − 1)τ; at
    first, when little is known, it expects surprises. An S above h = ln(2/`false_alarms`) is an
    alarm: the posterior is then the prior with this one crawl.

    While the rate does not change, e^S grows by a factor of mean 1 for rates drawn from the prior,
    so that alarms come at most once in e^h crawls and side on average over such rates (Lorden).

    Arguments:
        factor: κ > 1, the change to look for.
        false_alarms: per crawl, in (0, 1): the bound on their rate.
        prior: shape and rate before any crawl.

    Raises:
        ValueError: an argument is out of range.
    """

    factor: float = 3.0
    false_alarms: float = 1e-3
    prior: Posterior = WEAK
    counts = True

    def __post_init__(self) -> None:
        check_prior(self.prior)
        if not self.factor > 1:
            raise ValueError(f"factor is {self.factor}; a change is by a factor above 1")
        if not 0 < self.false_alarms < 1:
            raise ValueError(f"false_alarms is {self.false_alarms}; it is a share of the crawls")

    def begin(self, shape: tuple[int, ...]) -> State:
        return tuple(np.zeros(shape) for _ in range(4))

    def update(self, state: State, evidence: Evidence) -> State:
        count, exposure, rise, fall = state
        shape, rate = self.prior.shape + count, self.prior.rate + exposure
        told = evidence.crawled
        risen = _reflected(rise, shape, rate, evidence, self.factor)
        fallen = _reflected(fall, shape, rate, evidence, 1.0 / self.factor)
        alarm = told & (np.maximum(risen, fallen) > log(2.0 / self.false_alarms))
        return (
            np.where(alarm, 0.0, count) + evidence.items,
            np.where(alarm, 0.0, exposure) + evidence.gap,
            np.where(alarm, 0.0, risen),
            np.where(alarm, 0.0, fallen),
        )

    def posterior(self, state: State) -> Posterior:
        return GammaPoisson(self.prior).posterior(state[:2])


def _reflected(
    sum_: FloatArray, shape: FloatArray, rate: FloatArray, evidence: Evidence, factor: float
) -> FloatArray:
    """Return the CUSUM after an epoch; what was not crawled adds ln 1 = 0."""
    n, gap = evidence.items, evidence.gap
    # The share that the gap has of all the time: the logarithm is exact for the smallest.
    odds = np.log1p((factor - 1.0) * gap / (rate + gap))
    return np.maximum(0.0, sum_ + n * log(factor) - (shape + n) * odds)
