"""Rates that change, nobody knows how fast: the fleet's counts tell how much to forget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.adaptive.counts import GammaPoisson, check_prior, check_retention
from agents.adaptive.evidence import WEAK, Evidence, Posterior, State
from crawl_env.numerics import FloatArray

RETENTIONS = (1.0, 0.999, 0.99, 0.97, 0.9)  # over one epoch
_LEAST = 1e-12  # of a misfit: none, but a logarithm


@dataclass(frozen=True)
class Forgetting:
    """Gamma–Poisson with that retention ρ by which the counts so far were foretold best.

    The sources are learnt with each ρ side by side. Before a crawl of gap τ, a posterior (A, B)
    foretells its count n with the mean m = Aτ/B and the variance v = m(1 + τ/B). The ρ with the
    largest normal likelihood of all the fleet's counts is used, row by row, with variances φv where
    φ is the one that fits this ρ best:

        −½(K ln φ + Σ ln v), φ = Σ (n − m)²/v / K, over K crawls.

    Without φ, or with the exact law of counts, items that come in clusters would be taken for rates
    that change: forgetting makes v larger, as clusters make errors. (Discount factors compared by
    what they foretell: West & Harrison; the score: Dawid & Sebastiani.)

    All crawls count, however long ago: after a long calm it takes as much unrest to change ρ.

    Arguments:
        retentions: values of ρ to choose from, each in (0, 1], per unit of time.
        prior: shape and rate before any crawl, for all sources or (N,) of each.

    Raises:
        ValueError: no retention is given; one of them, or the prior, is out of range.
    """

    retentions: tuple[float, ...] = RETENTIONS
    prior: Posterior = WEAK
    counts = True

    def __post_init__(self) -> None:
        if not len(self.retentions):
            raise ValueError("retentions is empty; give at least one, such as 1.0")
        for retention in self.retentions:
            check_retention(retention)
        check_prior(self.prior, most=1)

    def begin(self, shape: tuple[int, ...]) -> State:
        """Return the number of crawls, (..., 1), Σ (n − m)²/v and Σ ln v for each ρ, (..., K), and
        counts and time for each, (..., K, N)."""
        *batch, n = shape
        width = len(self.retentions)
        sums = (np.zeros((*batch, k)) for k in (1, width, width))
        return *sums, *self._each().begin((*batch, width, n))

    def update(self, state: State, evidence: Evidence) -> State:
        each, (crawls, misfit, spread, *known) = self._each(), state
        faded = each.faded(tuple(known), evidence.elapsed)
        number, off, wide = _foretold(each.posterior(faded), evidence)
        count, exposure = faded
        return (
            crawls + number,
            misfit + off,
            spread + wide,
            count + evidence.items[..., None, :],
            exposure + evidence.gap[..., None, :],
        )

    def posterior(self, state: State) -> Posterior:
        best = self.best(state)[..., None, None]
        known = (np.take_along_axis(array, best, axis=-2)[..., 0, :] for array in state[3:])
        return GammaPoisson(self.prior).posterior(tuple(known))

    def best(self, state: State) -> NDArray[np.intp]:
        """Return the place of the chosen ρ among `retentions`, (...,)."""
        crawls, misfit, spread = state[:3]
        dispersion = np.maximum(misfit / np.maximum(crawls, 1.0), _LEAST)
        return np.asarray((-crawls * np.log(dispersion) - spread).argmax(axis=-1))

    def _each(self) -> GammaPoisson:
        return GammaPoisson(self.prior, np.array(self.retentions, dtype=np.float64)[:, None])


def _foretold(law: Posterior, evidence: Evidence) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the number of crawls, (..., 1), and of their counts under laws (..., K, N) the sums of
    (n − m)²/v and of ln v, (..., K)."""
    *batch, width, n = law.shape.shape
    crawled = np.broadcast_to(evidence.crawled, (*batch, n)).reshape(-1, n)
    row, source = np.nonzero(crawled)
    shape, rate = (x.reshape(-1, width, n)[row, :, source] for x in law)
    items, gap = (
        np.broadcast_to(x, (*batch, n)).reshape(-1, n)[row, source][:, None]
        for x in (evidence.items, evidence.gap)
    )
    mean = np.maximum(shape * gap / rate, _LEAST)
    variance = mean * (1.0 + gap / rate)
    misfit, spread = (np.zeros((crawled.shape[0], width)) for _ in range(2))
    np.add.at(misfit, row, (items - mean) ** 2 / variance)
    np.add.at(spread, row, np.log(variance))
    number = crawled.sum(axis=-1, keepdims=True, dtype=np.float64)
    return number.reshape(*batch, 1), misfit.reshape(*batch, width), spread.reshape(*batch, width)
