"""One source crawled again and again at the same age: what a cycle brings, lasts, and is worth.

A crawl that fails is repeated as soon as crawl_delay allows. With p the failure rate, q = 1 − p, d
the delay and x_k the mean content at age k, a source first tried at age k brings
G_k = Σ_j q p^j x_{k+jd} in L_k = k + d p/q epochs and 1/q crawls. Without failures these are x_k, k
and 1. x is concave in k, so the charge λ at which trying at age k or k + 1 are equally good, which
is the Whittle index at age k, increases with k: λC = q [G_k − L_k (G_{k+1} − G_k)]. All this
holds for every law of decay, since interest never grows.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crawl_env.content.decay import EXPONENTIAL, Decay, ExponentialDecay
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray, break_even, remainder

_FILLED = 45.0  # time constants after which a source is at its ceiling, to rounding
_LEAST = 1e-17  # probability of failing so often in a row that no more need be counted
_CELLS = 2**16  # summed over at a time


class Cycle:
    """Cycles of every source of a fleet (N,), or of a batch of fleets (B, N).

    Raises:
        ValueError: some source has a capacity, and decay is not exponential.
    """

    def __init__(self, sources: Sources, decay: Decay = EXPONENTIAL) -> None:
        self.sources, self._decay = sources, decay
        plain = isinstance(decay, ExponentialDecay)
        if sources.is_capped and not plain:
            raise ValueError(
                f"the fleet has capacities and its interest decays as {decay!r}; what the last few "
                "items hold on average is known for exponential decay only"
            )
        self._closed = plain and not sources.is_capped  # whether Theorem 1 holds
        self.success = 1.0 - sources.failure_rate  # q
        self._retries = sources.delay * sources.failure_rate / self.success  # d p / q, epochs

    def length(self, age: FloatArray) -> FloatArray:
        """Return L, epochs, the shape of `age`."""
        return age + self._retries if self.sources.fails else age

    def crawls(self, age: FloatArray) -> FloatArray:
        """Return how many crawls are tried per epoch, 1/(qL); infinite at L = 0."""
        with np.errstate(divide="ignore"):
            return 1.0 / (self.success * self.length(age))

    def mean(self, age: FloatArray) -> FloatArray:
        """Return x, utility, the shape of `age`: u*∫_0^{μT·age} R where no capacity holds."""
        if isinstance(self._decay, ExponentialDecay):
            return self.sources.content_at(age)
        grown = self._decay.integrated_survival(self.sources.decay_per_epoch * age)
        return self.sources.ceiling * grown

    def content(self, age: FloatArray) -> FloatArray:
        """Return G, utility, the shape of `age`."""
        sources = self.sources
        if not sources.fails:
            return self.mean(age)
        if self._closed:
            # 1 − a α^k, a = q/(1 − pα^d), without its cancellation where little decays.
            lost = self.success * -np.expm1(-sources.decay_per_epoch * age)
            missed = sources.failure_rate * -np.expm1(-sources.decay_per_epoch * sources.delay)
            return sources.ceiling * (lost + missed) / (self.success + missed)
        return self._expected(age)

    def charge(self, age: FloatArray) -> FloatArray:
        """Return the Whittle index at `age` ≥ 1, utility / budget unit, the shape of `age`."""
        sources = self.sources
        if self._closed:
            share = -np.expm1(-sources.decay_per_epoch * age)
            return self.charge_within(age, share) * (sources.ceiling / sources.cost)
        content = self.content(age)
        gain = self.content(age + 1.0) - content
        charge = self.success * (content - self.length(age) * gain) / sources.cost
        return np.clip(charge, 0.0, self.success * content / sources.cost)

    def reaches(self, price: FloatArray, age: FloatArray, where: NDArray[np.bool_]) -> Any:
        """Return whether the index at `age` reaches the price, flat, at some of the cells."""
        sources = self.sources
        if not self._closed or sources.fails:
            return (self.charge(age) >= price)[where]
        decay = sources.decay_per_epoch[where]
        k = age[where]
        share = break_even(
            k, -np.expm1(-decay * k), decay, sources.loss[where], sources.curvature[where]
        )
        worth = sources.ceiling[where] / sources.cost[where]
        return share * worth >= np.broadcast_to(price, where.shape)[where]

    def charge_within(self, epochs: FloatArray, share: FloatArray) -> FloatArray:
        """Return the index as a share of u*/C where y = `share` < 1 of u* waits.

        `epochs` is η, after which an emptied source holds as much. For exponential decay and
        sources without capacity:
        q {a·[1 − α^η − η(1−α)(1−y)] + (dp/q) a(1−α)y + (a/q) p [d g(m) − g(dm)]} with
        a = q/(1 − pα^d) and g of `numerics.remainder`; the bracket alone, Theorem 1, where p = 0.
        """
        sources = self.sources
        decay, loss, curvature = sources.decay_per_epoch, sources.loss, sources.curvature
        theorem = break_even(epochs, share, decay, loss, curvature)
        if not sources.fails:
            return theorem
        bend = sources.failure_rate * (sources.delay * curvature - remainder(sources.delay * decay))
        retried = self._retries * loss * share + bend / self.success
        return np.maximum(self.success * self._kept * (theorem + retried), 0.0)

    @cached_property
    def _kept(self) -> FloatArray:
        """a = q/(1 − pα^d): E α^(epochs spent on retries)."""
        sources = self.sources
        return self.success / (1.0 - sources.failure_rate * sources.retention**sources.delay)

    def _expected(self, age: FloatArray) -> FloatArray:
        """Return G as the sum that it is, where it has no closed form."""
        sources = self.sources
        shape = np.broadcast_shapes(np.shape(age), self.success.shape)
        total = np.zeros(shape)
        most = int(np.ceil(np.log(_LEAST) / np.log(sources.failure_rate.max())))
        # Where so many retries have filled the source to its ceiling, the rest is one number.
        filled = (max(_FILLED, self._decay.end) / (sources.decay_per_epoch * sources.delay)).max()
        most = int(min(most, np.ceil(min(filled, 1e9)))) + 1
        some = max(1, _CELLS // total.size)
        for first in range(0, most, some):
            attempt = np.arange(first, min(first + some, most)).reshape(-1, *(1,) * total.ndim)
            odds = self.success * sources.failure_rate**attempt
            total += (odds * self.mean(age + attempt * sources.delay)).sum(axis=0)
        return total + sources.failure_rate**most * self.mean(np.full(shape, np.inf))
