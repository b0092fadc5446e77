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
_MOST = 1e25  # utility that one crawl can bring: what is summed of it fits into single precision
_TINY = 1e-37
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
    features = ("harvest",)

    def begin(self, shape: tuple[int, int]) -> State:
        rows, width = shape[0], len(DECAYS)
        share, total = np.full((rows, width), 1.0 / width), np.zeros((rows, width))
        grid = (np.zeros((*shape, width), dtype=np.float32) for _ in range(2))
        return np.zeros((rows, 1)), share, total, np.zeros(shape), *grid

    def update(self, state: State, evidence: Evidence, utility: FloatArray) -> State:
        """Return what is known after an epoch whose crawls brought `utility`, (B, N)."""
        time, share, total, number, worth, faded = (array.copy() for array in state)
        with np.errstate(invalid="ignore"):
            told = (evidence.items > 0) & (utility >= 0) & (utility < _MOST)
        cells = np.flatnonzero(told)
        if cells.size:
            n = evidence.items.reshape(-1)[cells]
            # Many crawls, and few gaps that differ.
            gap, which = np.unique(evidence.gap.reshape(-1)[cells], return_inverse=True)
            z = DECAYS * (gap / self.period)[:, None]
            kept = -np.expm1(-z) / z  # φ
            unfaded = utility.reshape(-1)[cells, None] / kept[which]
            number.reshape(-1)[cells] += n
            _rows(worth)[cells] += unfaded.astype(np.float32)
            _rows(faded)[cells] += (n[:, None] * np.log(kept)[which]).astype(np.float32)
            rows = cells // number.shape[1]
            first = np.flatnonzero(np.diff(rows, prepend=-1))
            total[rows[first]] += np.add.reduceat(unfaded, first, axis=0)
        time += 1.0
        due = (time % _EVERY == 0)[:, 0]
        if due.any():
            share[due] = self._fitted(share[due], number[due], worth[due], faded[due])
        return time, share, total, number, worth, faded

    def estimate(self, state: State, cells: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return the means of ξ̄ and μ, for cells (K,) by their flat places in (B, N)."""
        weight = self.decays(state, cells)
        mean = (weight * self.utility(state, cells)).sum(axis=0)
        return mean, DECAYS @ weight / self.period

    def decays(self, state: State, cells: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return the probability of each of `DECAYS`, (J, K), for cells as in `estimate`."""
        _, share, _, number, worth, faded = state
        log_share = _logarithm(share.T)[:, cells // number.shape[1]]
        n = number.reshape(-1)[cells].astype(np.float32)
        return _weights(log_share, n, *(_rows(x)[cells].T.copy() for x in (worth, faded)))

    def utility(self, state: State, cells: NDArray[np.intp]) -> FloatArray:
        """Return the estimate of ξ̄ for each of `DECAYS`, (J, K), for cells as in `estimate`; the
        fleet's counts as `_PSEUDO` items."""
        _, _, total, number, worth, _ = state
        heard = number.sum(axis=1, keepdims=True)
        typical = np.where(heard > 0, total / np.maximum(heard, _TINY), 1.0)  # (B, J)
        items = number.reshape(-1)[cells] + _PSEUDO
        own = _rows(worth)[cells] + _PSEUDO * typical[cells // number.shape[1]]
        return np.asarray((own / items[:, None]).T)

    def _fitted(
        self,
        share: FloatArray,
        number: FloatArray,
        worth: NDArray[np.float32],
        faded: NDArray[np.float32],
    ) -> FloatArray:
        log_share = _logarithm(share.T)[..., None]
        n = number.astype(np.float32)
        weight = _weights(log_share, n, *(np.moveaxis(x, -1, 0).copy() for x in (worth, faded)))
        total = (weight * (n > 0)).sum(axis=-1, dtype=np.float64).T + 1.0 / len(DECAYS)
        return np.asarray(total / total.sum(axis=-1, keepdims=True))


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


def _rows(grid: NDArray[np.float32]) -> NDArray[np.float32]:
    return grid.reshape(-1, len(DECAYS))


def _logarithm(share: FloatArray) -> NDArray[np.float32]:
    return np.log(share).astype(np.float32)


def _weights(
    log_share: NDArray[np.float32],
    number: NDArray[np.float32],
    worth: NDArray[np.float32],
    faded: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Return the probability of each decay, (J, ...), from sums (...,) and (J, ...)."""
    score = np.maximum(worth, _TINY)
    np.log(score, out=score)
    score -= np.log(np.maximum(number, np.float32(1.0)))  # of the quotient, which can be 0
    score *= number
    score += faded
    score *= -1.0 / DISPERSION
    score += log_share
    score -= score.max(axis=0)
    weight = np.exp(score, out=score)
    weight /= weight.sum(axis=0)
    return weight
