"""Rates from "changed or not" in two or three numbers a source, and where these go wrong.

Avrachenkov, Patil & Thoppe (arXiv 2009.08142) estimate Λ on the way: the law of large numbers
(LLN) and stochastic approximation (SA). Both need gaps that are exponential, of a known rate p.
Gaps of an index policy are nearly periodic; there both are inconsistent (every two epochs, at
Λ = .5 an epoch, by +72 %), and `agents.adaptive.changed` is to be used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.adaptive.counts import check_prior
from agents.adaptive.evidence import MOST, WEAK, Evidence, Posterior, State
from crawl_env.numerics import FloatArray

METHODS = ("lln", "sa", "naive")


@dataclass(frozen=True)
class Streaming:
    """LLN, SA, or the naive estimator, for contrast.

    With z = 1 where something was new, k the number of crawls and p the rate of crawls:

    - "lln": p Σz/(k + 1 − Σz);
    - "sa": y ← y + η[z(y + p) − y], η = (k + 1)^−¾, from y = 0;
    - "naive": Σz/Στ, which tends to pΛ/(p + Λ): too low, however many crawls.

    Where crawls are drawn independently in every epoch, gaps are geometric, not exponential, and
    the limit of the first two is (e^{ΛT} − 1)/T; given `period`, ln(1 + yT)/T is returned.

    Arguments:
        method: one of `METHODS`.
        crawl_rate: p, 1 / time; None for the rate seen so far, k/Στ, which errs less: gaps that
            happened to be long bring more.
        period: T of geometric gaps; 0 for exponential ones.
        prior: what is said before the first crawl.

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
    counts = False

    def __post_init__(self) -> None:
        check_prior(self.prior)
        if self.method not in METHODS:
            raise ValueError(f"method is {self.method!r}; use one of {', '.join(METHODS)}")
        if self.crawl_rate is not None and not self.crawl_rate > 0:
            raise ValueError(f"crawl_rate is {self.crawl_rate}; it must be positive, or None")
        if not self.period >= 0:
            raise ValueError(f"period is {self.period}; it must be a time, or 0")

    def begin(self, shape: tuple[int, ...]) -> State:
        return tuple(np.zeros(shape) for _ in range(5))

    def update(self, state: State, evidence: Evidence) -> State:
        crawls, changes, time, y, variance = state
        crawls, changes = crawls + evidence.crawled, changes + evidence.changed
        time = time + evidence.gap
        step = np.where(evidence.crawled, (crawls + 1.0) ** -0.75, 0.0)
        p = self._crawl_rate(crawls, time)
        idle = p / (y + p)  # 1 − q
        kept = (1.0 - step * idle) ** 2 * variance
        variance = kept + (step * (y + p)) ** 2 * idle * (1.0 - idle)
        y = y + step * (evidence.changed * (y + p) - y)
        return crawls, changes, time, y, variance

    def posterior(self, state: State) -> Posterior:
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
        # An estimate of 0 is no law; half an item in all the time is as little as can be said.
        law = Posterior.matched(np.maximum(mean, 0.5 / np.maximum(time, 1.0 / MOST)), error)
        none = crawls == 0
        return Posterior(
            np.where(none, self.prior.shape, law.shape), np.where(none, self.prior.rate, law.rate)
        )

    def _crawl_rate(self, crawls: FloatArray, time: FloatArray) -> FloatArray:
        if self.crawl_rate is not None:
            return np.full(crawls.shape, self.crawl_rate)
        return np.where(crawls > 0, crawls / np.maximum(time, 1.0 / MOST), 1.0)
