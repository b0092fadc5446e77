"""Sources that share a host, which may be crawled only so often in an epoch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray

Bracket = tuple[FloatArray, FloatArray]
Crawls = Callable[[FloatArray, Bracket | None], tuple[FloatArray, FloatArray]]


class Hosts:
    """The hosts of a fleet, of which each takes `per_host` crawls an epoch.

    Arguments:
        host_of: (N,) number of each source's host.
        per_host: crawls per epoch and host.
    """

    def __init__(self, host_of: NDArray[np.intp], per_host: int) -> None:
        self.host_of, self.per_host = host_of, per_host
        # Sources in order of their hosts, and where each host begins: sums are then cheap.
        self._order = np.argsort(host_of, kind="stable")
        self._first = np.flatnonzero(np.diff(host_of[self._order], prepend=-1))

    @staticmethod
    def of(sources: Sources, per_host: int) -> Hosts | None:
        """Return the hosts of a fleet, or None where no host is asked for more than it takes."""
        host_of = sources.host_of
        if host_of is None or np.bincount(host_of).max() <= per_host:
            return None
        return Hosts(host_of, per_host)

    def have_room(
        self, chosen: NDArray[np.bool_], order: NDArray[np.intp], more: int = 0
    ) -> NDArray[np.bool_]:
        """Return which sources find room if the chosen ones of their host came before them.

        Arguments:
            chosen: (B, N), in the order of crawling.
            order: (B, N), the sources' numbers in that order.
            more: how many beside the chosen ones must find room; 0: count a source with itself.
        """
        host = self.host_of[order]
        by_host = np.argsort(host, axis=-1, kind="stable")
        here = np.take_along_axis(chosen, by_host, axis=-1)
        count = np.cumsum(here, axis=-1)
        sorted_host = np.take_along_axis(host, by_host, axis=-1)
        begins = np.diff(sorted_host, axis=-1, prepend=-1) != 0
        before = np.maximum.accumulate(np.where(begins, count - here, 0), axis=-1)
        room = np.empty_like(chosen)
        np.put_along_axis(room, by_host, count - before + more <= self.per_host, axis=-1)
        return room

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
