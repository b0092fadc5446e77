"""The estimators of the study: those of `agents.inference`, and one that restarts when a test finds
that a rate has changed, which the documentation does not recommend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Any, ClassVar

import numpy as np

from agents.inference import ESTIMATORS as LIBRARY
from agents.inference import CrawlOutcome, Estimator, Posterior, State, made
from agents.inference.rates import WEAK, check_prior, conjugate
from crawl_env.errors import check_within
from crawl_env.numerics import FloatArray, IntArray


@dataclass(frozen=True)
class Drifting:
    """Gamma–Poisson with a two-sided CUSUM on its own predictions, which restarts a source.

    Each crawl compares two predictions of its count, both negative binomial: by the posterior
    (A, B), and by the same with all rates κ times as large,

        S ← max(0, S + n ln κ − (A + n) ln((B + κτ)/(B + τ))),

    one S for κ = `factor` and one for 1/κ. For B → ∞ this is Page's CUSUM n ln κ − Λ(κ − 1)τ. An S
    above h = ln(2/`false_alarms`) is an alarm: the posterior becomes the prior with this one crawl.

    While the rate does not change, e^S grows by a factor of mean 1 for rates drawn from the prior,
    so that alarms occur at most once in e^h crawls and side on average over such rates (Lorden).

    Arguments:
        factor: κ > 1, the change to detect.
        false_alarms: in (0, 1), the bound on their rate per crawl.
        prior: shape and rate before any crawl.

    Raises:
        ValueError: an argument is out of range.
    """

    factor: float = 3.0
    false_alarms: float = 1e-3
    prior: Posterior = WEAK
    counts: ClassVar[bool] = True
    signed: ClassVar[tuple[int, ...]] = ()

    def __post_init__(self) -> None:
        check_prior(self.prior)
        check_within("factor", self.factor, 1.0, open_low=True)
        check_within("false_alarms", self.false_alarms, 0.0, 1.0, open_low=True, open_high=True)

    def begin(self, shape: tuple[int, ...]) -> State:
        return tuple(np.zeros(shape) for _ in range(4))

    def update(self, state: State, outcome: CrawlOutcome) -> State:
        count, exposure, rise, fall = state
        shape, rate = self.prior.shape + count, self.prior.rate + exposure
        risen = _cusum(rise, shape, rate, outcome, self.factor)
        fallen = _cusum(fall, shape, rate, outcome, 1.0 / self.factor)
        alarm = outcome.crawled & (np.maximum(risen, fallen) > log(2.0 / self.false_alarms))
        return (
            np.where(alarm, 0.0, count) + outcome.items,
            np.where(alarm, 0.0, exposure) + outcome.gap,
            np.where(alarm, 0.0, risen),
            np.where(alarm, 0.0, fallen),
        )

    def posterior(self, state: State, cells: IntArray | None = None) -> Posterior:
        return conjugate(self.prior, state[0], state[1], cells)


def _cusum(
    sum_: FloatArray, shape: FloatArray, rate: FloatArray, outcome: CrawlOutcome, factor: float
) -> FloatArray:
    """Return the CUSUM after a step; a source that was not crawled adds ln 1 = 0."""
    n, gap = outcome.items, outcome.gap
    odds = np.log1p((factor - 1.0) * gap / (rate + gap))
    return np.maximum(0.0, sum_ + n * log(factor) - (shape + n) * odds)


ESTIMATORS: dict[str, Callable[..., Estimator]] = {
    **LIBRARY,
    "drifting": lambda period, prior, factor=3.0, false_alarms=1e-3: Drifting(
        factor, false_alarms, prior
    ),
}


def make_estimator(
    estimator: str | Estimator,
    period: float = 1.0,
    prior: Posterior | None = None,
    **options: Any,
) -> Estimator:
    """Return an estimator of the library or of this study by name, as
    `agents.inference.make_estimator`.

    >>> make_estimator("drifting", factor=2.0).factor
    2.0
    """
    return made(ESTIMATORS, estimator, period, prior, options)
