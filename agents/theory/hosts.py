"""Lagrange multipliers of hosts that several sources share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crawl_env.fleet.hosts import Hosts
from crawl_env.numerics import FloatArray

Bracket = tuple[FloatArray, FloatArray]
Crawls = Callable[[FloatArray, Bracket | None], tuple[FloatArray, FloatArray]]


class HostMultipliers:
    """The multipliers ν_h at which each host takes no more crawls than it may."""

    def __init__(self, hosts: Hosts) -> None:
        self.host_of, self.per_host = hosts.host_of, hosts.per_host
        # Sources in order of their hosts, and where each host begins: sums are then cheap.
        self._order = np.argsort(self.host_of, kind="stable")
        self._first = np.flatnonzero(np.diff(self.host_of[self._order], prepend=-1))

    def surcharge(self, crawls: Crawls, most: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ν of each source's host, the least at which it takes all crawls, and the crawls.

        Crawls per epoch jump where an interval changes; at ν they are mixed from both sides of the
        jump, so that the host is used up. Both (..., N).

        Arguments:
            crawls: crawls per epoch of each source under a surcharge, (..., N), and the intervals
                between them, given intervals between which these lie or None.
            most: surcharge at which each source is left alone, (..., N).
        """
        high = self._per_source(np.maximum.reduceat(most[..., self._order], self._first, axis=-1))
        low = np.zeros_like(high)
        at_low, shortest = crawls(low, None)
        at_high, longest = crawls(high, None)
        free = self._total(at_low) <= self.per_host * (1 + 1e-12)
        unlimited = at_low
        for _ in range(48):
            middle = 0.5 * (low + high)
            found, interval = crawls(middle, (shortest - 1.0, longest))
            fits = self._total(found) <= self.per_host
            high, low = np.where(fits, middle, high), np.where(fits, low, middle)
            at_high, at_low = np.where(fits, found, at_high), np.where(fits, at_low, found)
            longest = np.where(fits, interval, longest)
            shortest = np.where(fits, shortest, interval)
        above, below = self._total(at_low), self._total(at_high)
        weight = (self.per_host - below) / np.where(above > below, above - below, 1.0)
        mixed = np.clip(weight, 0.0, 1.0) * (at_low - at_high) + at_high
        return np.where(free, 0.0, high), np.where(free, unlimited, mixed)

    def paid(self, surcharge: FloatArray) -> FloatArray:
        """Return Σ_h ν_h · per_host, (...), of a surcharge (..., N)."""
        one_each = surcharge[..., self._order[self._first]]
        return self.per_host * one_each.sum(axis=-1)

    def _total(self, crawls: FloatArray) -> FloatArray:
        """Return the sum over each source's host, (..., N)."""
        return self._per_source(np.add.reduceat(crawls[..., self._order], self._first, axis=-1))

    def _per_source(self, of_host: FloatArray) -> FloatArray:
        return of_host[..., self.host_of]
