"""Hosts that several sources share, with a limit on crawls per step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crawl_env.fleet.sources import Sources


class Hosts:
    """The hosts of a fleet, each of which is crawled at most `per_host` times per step.

    Arguments:
        host_of: (N,) number of the host of each source.
        per_host: crawls per step and host.
    """

    def __init__(self, host_of: NDArray[np.intp], per_host: int) -> None:
        self.host_of, self.per_host = host_of, per_host

    @staticmethod
    def of(sources: Sources, per_host: int) -> Hosts | None:
        """Return the hosts of a fleet, or None if none has more than `per_host` sources."""
        host_of = sources.host_of
        if host_of is None or np.bincount(host_of).max() <= per_host:
            return None
        return Hosts(host_of, per_host)

    def have_room(
        self, chosen: NDArray[np.bool_], order: NDArray[np.intp], more: int = 0
    ) -> NDArray[np.bool_]:
        """Return which sources their host still admits after the chosen ones before them.

        Arguments:
            chosen: (B, N), in the order of crawling.
            order: (B, N), the numbers of the sources in that order.
            more: how many beside the chosen ones must be admitted; 0: count a source with itself.
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
