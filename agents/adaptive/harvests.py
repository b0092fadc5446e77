"""Mean utility ξ̄ and decay μ from what crawls brought: its number of items, its utility, its gap.

Where single items are not told apart, the gaps tell the decay: n items after a gap τ are worth
nξ̄φ(μτ) on average, φ(z) = (1 − e^{−z})/z, and the longer the gap, the less each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.adaptive.evidence import Evidence, State
from crawl_env.numerics import FloatArray

DECAYS = np.geomspace(0.01, 2.0, 12)  # (J,) μT that are thought possible

DISPERSION = 1.5  # variance of an item's utility ÷ its squared mean, ξ exponential and μτ of 1 to 2
_MOST = 1e30  # utility that one crawl can bring
_TINY = 1e-300
_EVERY = 16  # epochs between two steps of the fit of the fleet's decays
_PSEUDO = 2.0  # items, worth what the fleet's are, that every source is said to have brought


@dataclass(frozen=True)
class Harvests:
    """Learns ξ̄ and μ of every source of a fleet, (B, N), with what the fleet has in common.

    μT is one of `DECAYS`, and for each of these ξ̄ has the estimate Σ(h/φ)/Σn, h the utility of a
    crawl. How well they fit is the quasi-likelihood exp(−[Σn ln(ξ̄φ) + Σn]/d) of utilities whose
    variance is d times their squared mean, d = 1.5. The share of sources with each decay is fitted
    to the fleet (empirical Bayes: expectation–maximisation, one step every 16 epochs, with one
    source more whose decay is any): where a source's own gaps say little, it has the fleet's.

    Arguments:
        period: T.
    """

    period: float = 1.0

    def begin(self, shape: tuple[int, int]) -> State:
        rows = shape[0]
        share = np.full((rows, len(DECAYS)), 1.0 / len(DECAYS))
        grid = (np.zeros((*shape, len(DECAYS))) for _ in range(2))
        return np.zeros((rows, 1)), share, np.zeros(shape), *grid

    def update(self, state: State, evidence: Evidence, utility: FloatArray) -> State:
        """Return what is known after an epoch whose crawls brought `utility`, (B, N)."""
        time, share, number, worth, faded = state
        with np.errstate(invalid="ignore"):
            told = (evidence.items > 0) & (utility >= 0) & (utility < _MOST)
        number, worth, faded = number.copy(), worth.copy(), faded.copy()
        n = evidence.items[told]
        z = DECAYS * (evidence.gap[told] / self.period)[:, None]
        kept = -np.expm1(-z) / z  # φ
        number[told] += n
        worth[told] += utility[told][:, None] / kept
        faded[told] += n[:, None] * np.log(kept)
        time = time + 1.0
        due = (time % _EVERY == 0)[:, 0]
        if due.any():
            share = share.copy()
            share[due] = self._fitted(share[due], number[due], worth[due], faded[due])
        return time, share, number, worth, faded

    def believed(self, state: State, cells: NDArray[np.bool_]) -> tuple[FloatArray, ...]:
        """Return, for K chosen cells of (B, N), what is believed of ξ̄ and μ.

        Returns:
            weight: (K, J) probability of each of `DECAYS`.
            items: (K,) how many items ξ̄ was estimated from, the fleet's included.
            utility: (K, J) the estimate of ξ̄ if that is the decay.
        """
        _, share, number, worth, faded = state
        row = np.nonzero(cells)[0]
        n = number[cells]
        total, all_worth = number.sum(axis=1, keepdims=True), worth.sum(axis=1)
        typical = np.where(total > 0, all_worth / np.maximum(total, _TINY), 1.0)  # (B, J)
        items = n + _PSEUDO
        utility = (worth[cells] + _PSEUDO * typical[row]) / items[:, None]
        return _weights(share[row], n, worth[cells], faded[cells]), items, utility

    def _fitted(
        self, share: FloatArray, number: FloatArray, worth: FloatArray, faded: FloatArray
    ) -> FloatArray:
        weight = _weights(share[:, None, :], number, worth, faded)
        heard = (number > 0)[..., None]
        total = (weight * heard).sum(axis=1) + 1.0 / len(DECAYS)
        return total / total.sum(axis=-1, keepdims=True)


def from_utility(
    evidence: Evidence, utility: FloatArray, mean_utility: FloatArray, decay_rate: FloatArray
) -> Evidence:
    """Return evidence of items made of what crawls brought, (..., N), where ξ̄ and μ are known.

    With z = μτ a crawl brings h of mean Λ(ξ̄/μ)(1 − e^{−z}), whose error is that of a count over
    the time e = τ tanh(z/2)/z if ξ is exponential: it counts as Λ̂e items in the time e, Λ̂ the rate
    at which h would be the mean. That is unbiased, and as precise as h.

    >>> crawl = Evidence.of(2.0)
    >>> told = from_utility(crawl, np.array(3.0), np.array(1.0), np.array(0.1))
    >>> round(float(told.items / told.gap), 3)
    1.655
    """
    with np.errstate(invalid="ignore"):
        told = evidence.crawled & (utility >= 0) & (utility < _MOST) & (mean_utility > 0)
    z = np.where(told, decay_rate * evidence.gap, 1.0)
    exposure = evidence.gap * np.tanh(0.5 * z) / z
    mean = mean_utility / decay_rate * -np.expm1(-z)
    rate = np.where(told, utility, 0.0) / np.where(told, mean, 1.0)
    return Evidence.of(exposure, rate * exposure, told, told & (utility > 0), evidence.elapsed)


def _weights(
    share: FloatArray, number: FloatArray, worth: FloatArray, faded: FloatArray
) -> FloatArray:
    """Return the probability of each decay, (..., J), from sums (...,) and (..., J)."""
    n = number[..., None]
    misfit = n * np.log(np.maximum(worth, _TINY) / np.maximum(n, _TINY)) + faded
    score = np.where(n > 0, -misfit / DISPERSION, 0.0) + np.log(share)
    weight = np.exp(score - score.max(axis=-1, keepdims=True))
    return weight / weight.sum(axis=-1, keepdims=True)
