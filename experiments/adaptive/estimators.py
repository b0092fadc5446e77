"""The estimators that the study compares, beside those of `agents.inference`.

The documentation recommends none of these: a sliding window, a test for changes, two other methods
for "changed or not", and three that are inconsistent where crawls are regular.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.inference import ESTIMATORS as LIBRARY
from agents.inference import Changed, CrawlOutcome, Estimator, Posterior, State, made
from agents.inference.changed import NODES, changed_posterior
from agents.inference.rates import WEAK, check_prior, conjugate
from crawl_env.errors import check_choice, check_non_negative, check_positive, check_within
from crawl_env.numerics import FloatArray, IntArray

_STEPS = 30  # of Newton's method
_CLOSE = 1e-4  # its last step, relative to the root
_TINY = 1e-300
_NO_TIME = 1e-100

STREAMING = ("lln", "sa", "naive")


@dataclass(frozen=True)
class Windowed:
    """Gamma–Poisson on the last `length` to 2·`length` units of time.

    Every source has two buckets, of which the older is emptied when the newer is full, so that the
    state does not grow with the window.

    Arguments:
        length: time that a bucket covers.
        prior: shape and rate without crawls.

    Raises:
        ValueError: prior or length is out of range.
    """

    length: float
    prior: Posterior = WEAK
    counts: ClassVar[bool] = True
    signed: ClassVar[tuple[int, ...]] = ()

    def __post_init__(self) -> None:
        check_prior(self.prior)
        check_positive("length", self.length)

    def begin(self, shape: tuple[int, ...]) -> State:
        return tuple(np.zeros(shape) for _ in range(5))  # old and new count, exposure; time

    def update(self, state: State, outcome: CrawlOutcome) -> State:
        old_count, old_exposure, count, exposure, time = state
        full = time >= self.length
        return (
            np.where(full, count, old_count),
            np.where(full, exposure, old_exposure),
            np.where(full, 0.0, count) + outcome.items,
            np.where(full, 0.0, exposure) + outcome.gap,
            np.where(full, 0.0, time) + outcome.elapsed,
        )

    def posterior(self, state: State, cells: IntArray | None = None) -> Posterior:
        old_count, old_exposure, count, exposure, _ = state
        return conjugate(self.prior, old_count + count, old_exposure + exposure, cells)


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


class ChangedLikelihood(Changed):
    """Maximum likelihood from "changed or not": the root of `Changed` with a = b = 0.

    It has no prior but before the first crawl. Instead one changed and one unchanged crawl are
    added, after the mean gap, without which the root would be 0 or infinite where all crawls agree.
    The standard error is that of the curvature of the likelihood in Λ.
    """

    def solve(
        self,
        histogram: NDArray[np.float32],
        sums: list[FloatArray],
        start: FloatArray,
        prior: Posterior,
    ) -> Posterior:
        crawls, _, idle, time = sums
        mean_gap = time / crawls
        return changed_posterior(histogram, idle + mean_gap, 0.0, start, mean_gap)


class ChangedMoments(Changed):
    """The root of Σ (1 − e^{−Λτ}) = Σ z, with the same two added crawls as `ChangedLikelihood`.

    The standard error follows from the variance of Σ z.
    """

    all_gaps: ClassVar[bool] = True

    def solve(
        self,
        histogram: NDArray[np.float32],
        sums: list[FloatArray],
        start: FloatArray,
        prior: Posterior,
    ) -> Posterior:
        crawls, changes, _, time = sums
        gaps = Gaps.of(histogram).joined(time / crawls, 2 * np.ones_like(crawls))
        return moment_posterior(gaps, changes + 1.0, start)


class Gaps(NamedTuple):
    """The nonzero entries of histograms (M, K)."""

    row: NDArray[np.intp]  # (E,) in 0 … M − 1
    gap: FloatArray  # (E,) steps
    weight: FloatArray  # (E,) number of gaps
    rows: int  # M

    @staticmethod
    def of(histogram: NDArray[np.floating]) -> Gaps:
        held = np.flatnonzero(histogram)
        row, node = np.divmod(held, len(NODES))
        weight = histogram.reshape(-1)[held].astype(np.float64)
        return Gaps(row, NODES[node], weight, len(histogram))

    def joined(self, gap: FloatArray, weight: FloatArray) -> Gaps:
        """Return these gaps and one more per row, (M,)."""
        each = np.arange(self.rows, dtype=np.intp)
        return Gaps(
            np.concatenate((self.row, each)),
            np.concatenate((self.gap, gap)),
            np.concatenate((self.weight, weight)),
            self.rows,
        )

    def total(self, term: FloatArray) -> FloatArray:
        """Return Σ weight·term for every row, (M,)."""
        return np.bincount(self.row, self.weight * term, self.rows).astype(np.float64, copy=False)


def moment_posterior(crawled: Gaps, changes: FloatArray, start: FloatArray) -> Posterior:
    """Return the Gamma distribution at the root Λ of Σ m(1 − e^{−Λτ}) = Σ z, (M,), 1 / step.

    Its error is that of Σ z, Σ m e^{−Λτ}(1 − e^{−Λτ}), over the slope Σ mτe^{−Λτ}.

    Arguments:
        crawled: all gaps τ.
        changes: Σ z, (M,), above 0 and below Σ m.
        start: where the search begins.
    """
    gap = crawled.gap
    least = changes / crawled.total(gap)  # since 1 − e^{−x} ≤ x; concave: Newton rises from here
    root = np.maximum(start, least)
    for _ in range(_STEPS):
        none = np.exp(-root[crawled.row] * gap)
        step = (changes - crawled.total(1.0 - none)) / np.maximum(crawled.total(none * gap), _TINY)
        # From the right, where it is flat, a step may overshoot, but never beyond the bound.
        root = np.maximum(root + step, least)
        if (np.abs(step) <= _CLOSE * root).all():
            break
    none = np.exp(-root[crawled.row] * gap)
    variance = crawled.total(none * (1.0 - none))
    error = np.sqrt(variance) / np.maximum(crawled.total(none * gap), _TINY)
    return Posterior.matched(root, error)


@dataclass(frozen=True)
class Streaming:
    """Estimators of Avrachenkov, Patil & Thoppe (arXiv 2009.08142): the law of large numbers and
    stochastic approximation; and the naive estimator, for contrast.

    With z = 1 where something was new, k the number of crawls and p the rate of crawls:

    - "lln": p Σz/(k + 1 − Σz);
    - "sa": y ← y + η[z(y + p) − y], η = (k + 1)^−¾, from y = 0;
    - "naive": Σz/Στ, which tends to pΛ/(p + Λ): too low, however many crawls.

    The first two need exponential gaps of a known rate p. The gaps of an index policy are nearly
    periodic, and there both are inconsistent: with a crawl every two steps, at Λ = .5 per step, by
    +72 %. Where crawls are drawn independently in every step, gaps are geometric, not exponential,
    and their limit is (e^{ΛT} − 1)/T; given `period`, ln(1 + yT)/T is returned.

    Arguments:
        method: one of `STREAMING`.
        crawl_rate: p, 1 / time; None for the rate observed so far, k/Στ, which errs less: gaps that
            happened to be long have more items.
        period: T of geometric gaps; 0 for exponential ones.
        prior: before the first crawl.

    Standard errors hold for exponential gaps: with q = Λ/(p + Λ), the limit of z̄, the variances are
    p²[q/(1−q)³ − q²/(1−q)²]/k for "lln" and p²[q(1−q)(1−2q) + q²]/k for "naive" (without their
    last parts, q² and 2q, if p is known), and v ← (1 − η(1−q))²v + η²(y + p)²q(1−q) for "sa".

    Raises:
        ValueError: an argument is out of range.
    """

    method: str = "lln"
    crawl_rate: float | None = None
    period: float = 0.0
    prior: Posterior = WEAK
    counts: ClassVar[bool] = False
    signed: ClassVar[tuple[int, ...]] = ()

    def __post_init__(self) -> None:
        check_prior(self.prior)
        check_choice("method", self.method, STREAMING)
        if self.crawl_rate is not None:
            check_positive("crawl_rate", self.crawl_rate)
        check_non_negative("period", self.period)

    def begin(self, shape: tuple[int, ...]) -> State:
        return tuple(np.zeros(shape) for _ in range(5))

    def update(self, state: State, outcome: CrawlOutcome) -> State:
        crawls, changes, time, y, variance = state
        crawls, changes = crawls + outcome.crawled, changes + outcome.changed
        time = time + outcome.gap
        step = np.where(outcome.crawled, (crawls + 1.0) ** -0.75, 0.0)
        p = self._crawl_rate(crawls, time)
        idle = p / (y + p)  # 1 − q
        kept = (1.0 - step * idle) ** 2 * variance
        variance = kept + (step * (y + p)) ** 2 * idle * (1.0 - idle)
        y = y + step * (outcome.changed * (y + p) - y)
        return crawls, changes, time, y, variance

    def posterior(self, state: State, cells: IntArray | None = None) -> Posterior:
        crawls, changes, time, y, variance = state
        k, p = np.maximum(crawls, 1.0), self._crawl_rate(crawls, time)
        # Half a crawl of either kind, so that no error is 0.
        q = (changes + 0.5) / (k + 1.0)
        free = float(self.crawl_rate is None)
        if self.method == "naive":
            mean = p * changes / k
            spread = p * p * (q * (1.0 - q) * (1.0 - 2.0 * q * free) + q * q * free) / k
        elif self.method == "lln":
            mean = p * changes / (k + 1.0 - changes)
            spread = p * p * (q / (1.0 - q) ** 3 - free * (q / (1.0 - q)) ** 2) / k
        else:
            mean, spread = y, variance + (p / (k + 1.0)) ** 2
        error = np.sqrt(spread)
        if self.method != "naive" and self.period > 0:
            error = error / (1.0 + mean * self.period)
            mean = np.log1p(mean * self.period) / self.period
        # A Gamma distribution has no mean of 0: half an item in all the time is the least.
        matched = Posterior.matched(np.maximum(mean, 0.5 / np.maximum(time, _NO_TIME)), error)
        none = crawls == 0
        posterior = Posterior(
            np.where(none, self.prior.shape, matched.shape),
            np.where(none, self.prior.rate, matched.rate),
        )
        return posterior if cells is None else posterior.at(cells, crawls.shape)

    def _crawl_rate(self, crawls: FloatArray, time: FloatArray) -> FloatArray:
        if self.crawl_rate is not None:
            return np.full(crawls.shape, self.crawl_rate)
        return np.where(crawls > 0, crawls / np.maximum(time, _NO_TIME), 1.0)


ESTIMATORS: dict[str, Callable[..., Estimator]] = {
    **LIBRARY,
    "window": lambda period, prior, length=None: Windowed(
        50.0 * period if length is None else length, prior
    ),
    "drifting": lambda period, prior, factor=3.0, false_alarms=1e-3: Drifting(
        factor, false_alarms, prior
    ),
    "changed-likelihood": lambda period, prior, retention=1.0: ChangedLikelihood(
        prior, retention, period
    ),
    "changed-moments": lambda period, prior, retention=1.0: ChangedMoments(
        prior, retention, period
    ),
    "lln": lambda period, prior: Streaming("lln", period=period, prior=prior),
    "sa": lambda period, prior: Streaming("sa", period=period, prior=prior),
    "naive": lambda period, prior: Streaming("naive", prior=prior),
}


def make_estimator(
    estimator: str | Estimator,
    period: float = 1.0,
    prior: Posterior | None = None,
    **options: Any,
) -> Estimator:
    """Return an estimator of the library or of this study by name, as
    `agents.inference.make_estimator`.

    >>> make_estimator("window", period=2.0).length
    100.0
    """
    return made(ESTIMATORS, estimator, period, prior, options)
