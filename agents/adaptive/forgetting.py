"""Rates that change, nobody knows how fast: the fleet's counts tell how much to forget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.adaptive.counts import GammaPoisson, check_prior, check_retention
from agents.adaptive.evidence import WEAK, Evidence, Posterior, State
from agents.adaptive.special import log_gamma
from crawl_env.numerics import FloatArray

RETENTIONS = (1.0, 0.999, 0.99, 0.97, 0.9)  # over one epoch


@dataclass(frozen=True)
class Forgetting:
    """Gamma–Poisson with that retention ρ by which the counts so far were foretold best.

    The sources are learnt with each ρ side by side. Before a crawl of gap τ, a posterior (A, B)
    foretells its count n by the negative binomial law,

        ln P(n) = ln Γ(A + n) − ln Γ(A) + A ln(B/(B + τ)) + n ln(τ/(B + τ)) − ln n!,

    and the ρ with the largest sum over all crawls of the fleet is used, row by row: the predictive
    likelihood of West & Harrison's discount factors.

    Arguments:
        retentions: values of ρ to choose from, each in (0, 1], per unit of time.
        prior: shape and rate before any crawl.

    Raises:
        ValueError: no retention is given; one of them, or the prior, is out of range.
    """

    retentions: tuple[float, ...] = RETENTIONS
    prior: Posterior = WEAK
    counts = True

    def __post_init__(self) -> None:
        if not self.retentions:
            raise ValueError("retentions is empty; give at least one, such as 1.0")
        for retention in self.retentions:
            check_retention(retention)
        check_prior(self.prior)

    def begin(self, shape: tuple[int, ...]) -> State:
        """Return likelihoods, (..., K), and counts and time for each ρ, (..., K, N)."""
        *batch, n = shape
        width = len(self.retentions)
        return np.zeros((*batch, width)), *self._each().begin((*batch, width, n))

    def update(self, state: State, evidence: Evidence) -> State:
        each, (likelihood, *known) = self._each(), state
        faded = each.faded(tuple(known), evidence.elapsed)
        foretold = _log_likelihood(each.posterior(faded), evidence)
        count, exposure = faded
        return (
            likelihood + foretold,
            count + evidence.items[..., None, :],
            exposure + evidence.gap[..., None, :],
        )

    def posterior(self, state: State) -> Posterior:
        best = self.best(state)[..., None, None]
        known = (np.take_along_axis(array, best, axis=-2)[..., 0, :] for array in state[1:])
        return GammaPoisson(self.prior).posterior(tuple(known))

    def best(self, state: State) -> NDArray[np.intp]:
        """Return the place of the chosen ρ among `retentions`, (...,)."""
        return np.asarray(state[0].argmax(axis=-1))

    def _each(self) -> GammaPoisson:
        return GammaPoisson(self.prior, np.array(self.retentions, dtype=np.float64)[:, None])


def _log_likelihood(law: Posterior, evidence: Evidence) -> FloatArray:
    """Return Σ ln P(n) + ln n! over the crawls of a fleet, (..., K), under laws (..., K, N)."""
    *batch, width, n = law.shape.shape
    crawled = np.broadcast_to(evidence.crawled, (*batch, n)).reshape(-1, n)
    row, source = np.nonzero(crawled)
    shape, rate = (x.reshape(-1, width, n)[row, :, source] for x in law)
    items, gap = (
        np.broadcast_to(x, (*batch, n)).reshape(-1, n)[row, source][:, None]
        for x in (evidence.items, evidence.gap)
    )
    total = np.zeros((crawled.shape[0], width))
    known = -np.log1p(gap / rate)  # ln B/(B + τ)
    new = -np.log1p(rate / gap)  # ln τ/(B + τ)
    np.add.at(total, row, log_gamma(shape + items) - log_gamma(shape) + shape * known + items * new)
    return total.reshape(*batch, width)
