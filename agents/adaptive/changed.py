"""Rates from "changed or not": whether a crawl brought anything new, not how much.

Cho & Garcia-Molina (ACM TOIT 2003). A gap τ leaves nothing new with probability e^{−Λτ}. Gaps are
whole epochs: a source's are kept as a histogram over `NODES`, so that memory does not grow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.adaptive.counts import check_prior
from agents.adaptive.evidence import LEAST_SHAPE, WEAK, Evidence, Posterior, State
from crawl_env.numerics import FloatArray

# Gaps, in epochs: each up to 8, then four to the octave. One between two nodes is split between
# them so that the mean stays; one beyond the last counts as the last.
NODES: FloatArray = np.r_[1.0:8.0, 2.0 ** np.arange(3.0, 10.25, 0.25)]  # (K,)
_STEPS = 30  # of Newton: it is monotone, and quadratic long before
_TINY = 1e-300

METHODS = ("bayes", "likelihood", "moments")


@dataclass(frozen=True)
class Changed:
    """Estimates Λ from the gaps after which something was new, and those after which nothing was.

    With z = 1 where something was new, and sums over crawls, Λ is the root of

    - "bayes": a + Σ_{z=1} Λτ/(e^{Λτ} − 1) = Λ(b + Σ_{z=0} τ), the mode of ln Λ under the Gamma
      prior (a, b);
    - "likelihood": the same with a = b = 0;
    - "moments": Σ (1 − e^{−Λτ}) = Σ z.

    The last two know no prior; instead they are told of one changed and one unchanged crawl more,
    after the mean gap, without which the root would be 0 or infinite where all crawls were alike.
    The posterior is the Gamma law with this mean and, from the curvature of the likelihood in ln Λ
    ("bayes") or in Λ, or from the variance of Σ z ("moments"), this standard error.

    Only what was just crawled is estimated anew, by Newton's method, which is monotone from the
    left of the root. A gap off the nodes moves the estimate by at most 1.5 % up to Λτ = 4.

    Arguments:
        method: one of `METHODS`.
        period: T, the unit in which gaps are whole.
        prior: of "bayes"; of the others, what is said before the first crawl.

    Raises:
        ValueError: an argument is out of range.
    """

    method: str = "bayes"
    period: float = 1.0
    prior: Posterior = WEAK
    counts = False

    def __post_init__(self) -> None:
        check_prior(self.prior)
        if self.method not in METHODS:
            raise ValueError(f"method is {self.method!r}; use one of {', '.join(METHODS)}")
        if not self.period > 0:
            raise ValueError(f"period is {self.period}; it must be a positive time")

    def begin(self, shape: tuple[int, ...]) -> State:
        histogram = np.zeros((*shape, len(NODES)), dtype=np.float32)
        sums = (np.zeros(shape) for _ in range(3))  # crawls, changed crawls, time as `_sum_of` says
        law = (np.full(shape, float(x)) for x in self.prior)
        return histogram, *sums, np.zeros(shape), *law

    def update(self, state: State, evidence: Evidence) -> State:
        histogram, crawls, changes, idle, time, shape, rate = (array.copy() for array in state)
        told = np.broadcast_to(evidence.crawled, crawls.shape)
        gap = np.broadcast_to(evidence.gap / self.period, crawls.shape)[told]
        new = np.broadcast_to(evidence.changed, crawls.shape)[told]
        if not gap.size:
            return state
        crawls[told] += 1
        changes[told] += new
        idle[told] += np.where(new, 0.0, gap)
        time[told] += gap
        rows = histogram[told]
        # Moments need all gaps, the likelihoods those that ended in something new.
        weight = np.where(new | (self.method == "moments"), 1.0, 0.0)
        _spread(rows, gap, weight)
        histogram[told] = rows
        known = rows, crawls[told], changes[told], idle[told], time[told]
        law = self._solve(*known, shape[told] / rate[told] * self.period)
        shape[told], rate[told] = law.shape, law.rate * self.period
        return histogram, crawls, changes, idle, time, shape, rate

    def posterior(self, state: State) -> Posterior:
        return Posterior(state[-2], state[-1])

    def _solve(
        self,
        histogram: FloatArray,
        crawls: FloatArray,
        changes: FloatArray,
        idle: FloatArray,
        time: FloatArray,
        start: FloatArray,
    ) -> Posterior:
        """Return the law of ΛT; all (M,), the histogram (M, K). `start`: the mean before."""
        weights, mean_gap = histogram.astype(np.float64), time / crawls
        if self.method == "bayes":
            rate = self.prior.rate / self.period
            return changed_posterior(weights, idle + rate, self.prior.shape, start)
        one = np.ones_like(crawls)
        if self.method == "moments":
            _spread(weights, mean_gap, 2 * one)
            return moment_posterior(weights, changes + 1.0)
        _spread(weights, mean_gap, one)
        return changed_posterior(weights, idle + mean_gap, 0.0, start)


def changed_posterior(
    changed: FloatArray,
    idle: FloatArray,
    shape: float | FloatArray,
    start: FloatArray | float = 0.0,
) -> Posterior:
    """Return the Gamma law at the root Λ of a + Σ m Λτ/(e^{Λτ} − 1) = ΛU, (M,), 1 / epoch.

    Arguments:
        changed: m, how many gaps of every node ended in something new, (M, K).
        idle: U > 0, (M,), the time of the others, and b of the prior.
        shape: a ≥ 0 of the prior; 0 for maximum likelihood, with error from the curvature in Λ.
        start: where the root is looked for first.
    """
    # Σ mx/(e^x − 1) lies between Σ m(1 − x/2) and Σ m: so does the root.
    number, total = changed.sum(axis=-1), changed @ NODES
    least, most = (shape + number) / (idle + 0.5 * total), (shape + number) / idle
    root = np.clip(start, least, most)
    for _ in range(_STEPS):
        value, slope = _waiting(root[:, None] * NODES)
        score = shape + (changed * value).sum(axis=-1) - root * idle
        step = score / (idle - (changed * slope) @ NODES)
        # The score is convex: from the left the step falls short, from the right it goes too far.
        root = np.maximum(root + step, least)
        if (np.abs(step) <= 1e-9 * root).all():
            break
    x = root[:, None] * NODES
    value, slope = _waiting(x)
    curved = root * idle - (changed * slope * x).sum(axis=-1)  # −d/d ln Λ of the score
    if np.all(np.asarray(shape) == 0):  # in Λ: the score's own terms, Σ m x/(e^x − 1), drop out
        curved = (changed * x * x * np.exp(-x) / np.maximum(np.expm1(-x) ** 2, _TINY)).sum(axis=-1)
    curved = np.maximum(curved, LEAST_SHAPE)
    return Posterior(curved, curved / root)


def moment_posterior(crawled: FloatArray, changes: FloatArray) -> Posterior:
    """Return the Gamma law at the root Λ of Σ m(1 − e^{−Λτ}) = Σ z, (M,), 1 / epoch.

    Its error is that of Σ z, Σ m e^{−Λτ}(1 − e^{−Λτ}), over the slope Σ mτe^{−Λτ}.

    Arguments:
        crawled: m, how many gaps of every node, (M, K).
        changes: Σ z, (M,), above 0 and below Σ m.
    """
    root = changes / (crawled @ NODES)  # 1 − e^{−x} ≤ x, and concave: Newton climbs from here
    for _ in range(_STEPS):
        quiet = crawled * np.exp(-root[:, None] * NODES)
        missing = changes - (crawled - quiet).sum(axis=-1)
        step = missing / np.maximum(quiet @ NODES, _TINY)
        root = root + np.maximum(step, 0.0)
        if (step <= 1e-12 * root).all():
            break
    none = np.exp(-root[:, None] * NODES)
    variance = (crawled * none * (1.0 - none)).sum(axis=-1)
    error = np.sqrt(variance) / np.maximum((crawled * none) @ NODES, _TINY)
    return Posterior.matched(root, error)


def _waiting(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return x/(e^x − 1) and its derivative, for x > 0."""
    near = x < 1e-3
    safe = np.where(near, 1.0, x)
    left = np.exp(-safe)
    value = np.where(near, 1.0 - 0.5 * x, safe * left / (1.0 - left))
    slope = left * (1.0 - left - safe) / (1.0 - left) ** 2
    return value, np.where(near, -0.5 + x / 6.0, slope)


def _spread(histogram: NDArray[np.floating], gap: FloatArray, weight: FloatArray) -> None:
    """Add each row's gap, (M,), to its histogram (M, K), between the nearest two nodes."""
    inside = np.clip(gap, NODES[0], NODES[-1])
    left = np.clip(np.searchsorted(NODES, inside, side="right") - 1, 0, len(NODES) - 2)
    upper = (inside - NODES[left]) / (NODES[left + 1] - NODES[left])
    rows = np.arange(gap.size)
    histogram[rows, left] += weight * (1.0 - upper)
    histogram[rows, left + 1] += weight * upper
