"""Rates from "changed or not": whether a crawl brought anything new, not how much.

Cho & Garcia-Molina (ACM TOIT 2003). A gap τ leaves nothing new with probability e^{−Λτ}. Gaps are
whole epochs: a source's are kept as a histogram over `NODES`, so that memory does not grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.adaptive.counts import check_prior, check_retention
from agents.adaptive.evidence import LEAST_SHAPE, WEAK, Evidence, Posterior, State
from crawl_env.numerics import FloatArray

# Gaps, in epochs: each up to 8, then four to the octave. One between two nodes is split between
# them so that the mean stays; one beyond the last counts as the last.
NODES: FloatArray = np.r_[1.0:8.0, 2.0 ** np.arange(3.0, 10.25, 0.25)]  # (K,)
_STEPS = 30  # of Newton: it is monotone, and quadratic long before
_CLOSE = 1e-4  # the last step, as a share of the root; what is left is of the order of its square
_NEAR = 1e-3  # below, x/(e^x − 1) goes on along its tangent
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

    Where rates drift, the sums are multiplied by ρ^gap at each crawl, and meanwhile the posterior's
    shape and rate by ρ^elapsed towards the prior.

    Arguments:
        method: one of `METHODS`.
        period: T, the unit in which gaps are whole.
        prior: of "bayes"; of the others, what is said before the first crawl.
        retention: ρ in (0, 1], per unit of time; 1 forgets nothing.

    Raises:
        ValueError: an argument is out of range.
    """

    method: str = "bayes"
    period: float = 1.0
    prior: Posterior = WEAK
    retention: float = 1.0
    counts = False

    def __post_init__(self) -> None:
        check_prior(self.prior)
        check_retention(self.retention)
        if self.method not in METHODS:
            raise ValueError(f"method is {self.method!r}; use one of {', '.join(METHODS)}")
        if not self.period > 0:
            raise ValueError(f"period is {self.period}; it must be a positive time")

    def begin(self, shape: tuple[int, ...]) -> State:
        histogram = np.zeros((*shape, len(NODES)), dtype=np.float32)
        # Crawls, those that found something new, the time of the others, the time of all.
        sums = (np.zeros(shape) for _ in range(4))
        law = (np.broadcast_to(np.asarray(x, float), shape).copy() for x in self.prior)
        return histogram, *sums, *law

    def update(self, state: State, evidence: Evidence) -> State:
        histogram, *sums, shape, rate = (array.copy() for array in state)
        shape, rate = self._faded(shape, rate, evidence.elapsed)
        told = np.flatnonzero(np.broadcast_to(evidence.crawled, shape.shape))
        if told.size:
            gap = _at(evidence.gap, told, shape.shape)
            new = _at(evidence.changed, told, shape.shape)
            kept = self.retention**gap
            gap = gap / self.period
            table = histogram.reshape(-1, len(NODES))
            rows = table[told] * kept[:, None].astype(np.float32)
            # Moments need all gaps, the likelihoods those that ended in something new.
            _spread(rows, gap, np.where(new | (self.method == "moments"), 1.0, 0.0))
            table[told] = rows
            more = np.ones_like(gap), new, np.where(new, 0.0, gap), gap
            for array, x in zip(sums, more, strict=True):
                _flat(array)[told] = kept * _flat(array)[told] + x
            start = _flat(shape)[told] / _flat(rate)[told] * self.period
            prior = Posterior(*(_at(x, told, shape.shape) for x in self.prior))
            law = self._solve(_Gaps.of(rows), [_flat(array)[told] for array in sums], start, prior)
            _flat(shape)[told], _flat(rate)[told] = law.shape, law.rate * self.period
        return histogram, *sums, shape, rate

    def _faded(
        self, shape: FloatArray, rate: FloatArray, elapsed: float
    ) -> tuple[FloatArray, FloatArray]:
        if self.retention == 1:
            return shape, rate
        kept, prior = self.retention**elapsed, self.prior
        return prior.shape + kept * (shape - prior.shape), prior.rate + kept * (rate - prior.rate)

    def posterior(self, state: State) -> Posterior:
        return Posterior(state[-2], state[-1])

    def _solve(
        self, gaps: _Gaps, sums: list[FloatArray], start: FloatArray, prior: Posterior
    ) -> Posterior:
        """Return the law of ΛT from the sums of a state; all (M,). `start`: the mean before."""
        crawls, changes, idle, time = sums
        mean_gap, one = time / crawls, np.ones_like(crawls)
        if self.method == "bayes":
            return changed_posterior(gaps, idle + prior.rate / self.period, prior.shape, start)
        if self.method == "moments":
            return moment_posterior(gaps.joined(mean_gap, 2 * one), changes + 1.0, start)
        return changed_posterior(gaps.joined(mean_gap, one), idle + mean_gap, 0.0, start)


class _Gaps(NamedTuple):
    """What histograms (M, K) hold: few of their entries are not 0."""

    row: NDArray[np.intp]  # (E,) in 0 … M − 1
    gap: FloatArray  # (E,) epochs
    weight: FloatArray  # (E,) how many gaps
    rows: int  # M

    @staticmethod
    def of(histogram: NDArray[np.floating]) -> _Gaps:
        held = np.flatnonzero(histogram)
        row, node = np.divmod(held, len(NODES))
        weight = histogram.reshape(-1)[held].astype(np.float64)
        return _Gaps(row, NODES[node], weight, len(histogram))

    def joined(self, gap: FloatArray, weight: FloatArray) -> _Gaps:
        """Return these and one gap more in every row, (M,)."""
        each = np.arange(self.rows, dtype=np.intp)
        return _Gaps(
            np.concatenate((self.row, each)),
            np.concatenate((self.gap, gap)),
            np.concatenate((self.weight, weight)),
            self.rows,
        )

    def total(self, term: FloatArray) -> FloatArray:
        """Return Σ m·term of every row, (M,)."""
        return np.bincount(self.row, self.weight * term, self.rows).astype(np.float64, copy=False)


def changed_posterior(
    changed: _Gaps, idle: FloatArray, shape: float | FloatArray, start: FloatArray
) -> Posterior:
    """Return the Gamma law at the root Λ of a + Σ m Λτ/(e^{Λτ} − 1) = ΛU, (M,), 1 / epoch.

    Arguments:
        changed: the gaps τ that ended in something new.
        idle: U > 0, (M,), the time of the others, and b of the prior.
        shape: a ≥ 0 of the prior; 0 for maximum likelihood, with error from the curvature in Λ.
        start: where the root is looked for first.
    """
    gap = changed.gap
    # Σ mx/(e^x − 1) lies between Σ m(1 − x/2) and Σ m: so does the root.
    number, time = changed.total(np.ones_like(gap)), changed.total(gap)
    least, most = (shape + number) / (idle + 0.5 * time), (shape + number) / idle
    root = np.clip(start, least, most)
    for _ in range(_STEPS):
        value, slope = _waiting(root[changed.row] * gap)
        score = shape + changed.total(value) - root * idle
        step = score / (idle - changed.total(slope * gap))
        # The score is convex: from the left the step falls short, from the right it goes too far.
        root = np.maximum(root + step, least)
        if (np.abs(step) <= _CLOSE * root).all():
            break
    x = root[changed.row] * gap
    value, slope = _waiting(x)
    curved = root * idle - changed.total(slope * x)  # −d/d ln Λ of the score
    if np.all(np.asarray(shape) == 0):  # in Λ: the score's own terms, Σ m x/(e^x − 1), drop out
        curved = changed.total(value * (value + x))  # x²e^x/(e^x − 1)²
    curved = np.maximum(curved, LEAST_SHAPE)
    return Posterior(curved, curved / root)


def moment_posterior(crawled: _Gaps, changes: FloatArray, start: FloatArray) -> Posterior:
    """Return the Gamma law at the root Λ of Σ m(1 − e^{−Λτ}) = Σ z, (M,), 1 / epoch.

    Its error is that of Σ z, Σ m e^{−Λτ}(1 − e^{−Λτ}), over the slope Σ mτe^{−Λτ}.

    Arguments:
        crawled: all gaps τ.
        changes: Σ z, (M,), above 0 and below Σ m.
        start: where the root is looked for first.
    """
    gap = crawled.gap
    least = changes / crawled.total(gap)  # as 1 − e^{−x} ≤ x; and concave: Newton climbs from here
    root = np.maximum(start, least)
    for _ in range(_STEPS):
        none = np.exp(-root[crawled.row] * gap)
        step = (changes - crawled.total(1.0 - none)) / np.maximum(crawled.total(none * gap), _TINY)
        # From the right, where it is flat, a step may go too far, but never beyond the bound.
        root = np.maximum(root + step, least)
        if (np.abs(step) <= _CLOSE * root).all():
            break
    none = np.exp(-root[crawled.row] * gap)
    variance = crawled.total(none * (1.0 - none))
    error = np.sqrt(variance) / np.maximum(crawled.total(none * gap), _TINY)
    return Posterior.matched(root, error)


def _waiting(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return x/(e^x − 1) and its derivative, for x > 0."""
    safe = np.maximum(x, _NEAR)
    left = np.exp(-safe)
    gone = 1.0 - left
    value = safe * left / gone + 0.5 * (safe - x)
    return value, left * (gone - safe) / (gone * gone)


def _at(array: NDArray[Any], cells: NDArray[np.intp], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the numbers of some cells, by their flat places in the shape."""
    return np.broadcast_to(array, shape).reshape(-1)[cells]


def _flat(array: FloatArray) -> FloatArray:
    return array.reshape(-1)


def _spread(histogram: NDArray[np.floating], gap: FloatArray, weight: FloatArray) -> None:
    """Add each row's gap, (M,), to its histogram (M, K), between the nearest two nodes."""
    inside = np.clip(gap, NODES[0], NODES[-1])
    left = np.clip(np.searchsorted(NODES, inside, side="right") - 1, 0, len(NODES) - 2)
    upper = (inside - NODES[left]) / (NODES[left + 1] - NODES[left])
    rows = np.arange(gap.size)
    histogram[rows, left] += weight * (1.0 - upper)
    histogram[rows, left + 1] += weight * upper
