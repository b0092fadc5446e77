"""Queues of sources that are due and wait until their host accepts a fetch.

A host that accepts one fetch at a time has a queue, whose sources are compared with each other when
the host accepts a fetch. If the queue is long, a further source gets a slot instead: a time at
which it may join the queue. A host within a domain that accepts one fetch at a time waits for the
domain, together with its queue. Sources of hosts without a limit of their own are in the queue of
the domain itself.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from crawl_env.compiled import compiled
from ephemeral_crawl.live import hosts as doors
from ephemeral_crawl.live.columns import NO_HOST, Hosts, Sources

Rows = NDArray[np.int32]

LONG = 128  # length of a queue from which on further sources get a slot
_QUEUED, _SLOT = 1, 2  # in `waits`


class HostQueues:
    """The queues of limited hosts.

    Arguments:
        rows: number of rows of sources.
    """

    def __init__(self, rows: int = 0) -> None:
        self.waits = np.zeros(rows, np.uint8)  # whether each source is in a queue or has a slot
        self.of_host: dict[int, list[int]] = {}  # of each host; those that do not wait have left it
        self.openings: list[tuple[float, int]] = []  # heap of when hosts accept the next fetch
        self._inside: dict[int, deque[int]] = {}  # hosts that wait for each domain to accept one
        self._slots: dict[int, float] = {}  # last slot of each host

    def grow(self, rows: int) -> None:
        """Make room for more rows of sources."""
        waits = np.zeros(rows, np.uint8)
        waits[: len(self.waits)] = self.waits
        self.waits = waits

    def add(self, hosts: Hosts, i: int, host: int, longest: float, now: float) -> float:
        """Add a source to the queue of a host, or give it a slot if this is not shorter than
        `longest`; return the time of its slot, infinite if it has none."""
        queue = self.of_host.setdefault(host, [])
        if len(queue) >= longest:
            # Not from the end of a lease on, which may be reported long before.
            interval, blocked = hosts[["interval", "blocked"]][host].item()
            slot: float = max(self._slots.get(host, 0.0), blocked, now) + interval
            self._slots[host] = slot
            self.waits[i] = _SLOT
            return slot
        if not queue:
            self._open(hosts, host)
        queue.append(i)
        self.waits[i] = _QUEUED
        return math.inf

    def _open(self, hosts: Hosts, host: int, earliest: float = -math.inf) -> None:
        heappush(self.openings, (max(doors.opening(hosts, host), earliest), host))

    def of_open_hosts(
        self, sources: Sources, hosts: Hosts, most: int, now: float
    ) -> tuple[list[Rows], Rows]:
        """Return the queues of hosts that accept a fetch together with their domains, of about
        `most` sources in total, and the sources that left them since their own host is closed."""
        queues: list[Rows] = []
        closed_rows: list[Rows] = [np.empty(0, np.int32)]

        def visit(host: int) -> int:
            """Add the queue of an open host, and those of hosts that wait for it, the first to
            come first; return how many sources there are: at most about `most`, besides its own."""
            seen.add(host)
            queue, closed = self._queue(sources, hosts, host, now)
            queues.append(queue)
            closed_rows.append(closed)
            number, inside = 0, self._inside.get(host, deque())
            while inside and number < most:
                inner = inside.popleft()
                if doors.opening(hosts, inner) > now:
                    self._open(hosts, inner)
                elif inner not in seen:
                    number += visit(inner)
            if not inside:
                self._inside.pop(host, None)
            return number + len(queue)

        number, seen = 0, set[int]()
        while self.openings and self.openings[0][0] <= now and number < most:
            _, host = heappop(self.openings)
            if host in seen or not (host in self.of_host or host in self._inside):
                continue
            closed_host = doors.closed(hosts, host, now)
            if closed_host == host:
                self._open(hosts, host)
            elif closed_host != NO_HOST:
                self._wait_for(hosts, closed_host, host)
            else:
                number += visit(host)
        for host in seen:
            if host in self.of_host or host in self._inside:
                self._open(hosts, host, now)
        return queues, np.concatenate(closed_rows)

    def _queue(self, sources: Sources, hosts: Hosts, host: int, now: float) -> tuple[Rows, Rows]:
        """Return the sources in the queue of a host that accepts a fetch: those that can be
        fetched, and those that leave it, since their own hosts are closed."""
        rows = np.unique(np.array(self.of_host.get(host, ()), dtype=np.int32))
        rows, closed = _of_queue(sources, hosts, rows[self.waits[rows] == _QUEUED], host, now)
        if len(rows):
            self.of_host[host][:] = rows.tolist()
        else:
            self.of_host.pop(host, None)
        return rows, closed

    def _wait_for(self, hosts: Hosts, domain: int, host: int) -> None:
        """Make a host wait until a domain accepts a fetch."""
        if domain not in self._inside:
            self._inside[domain] = deque()
            self._open(hosts, domain)
        self._inside[domain].append(host)

    def reopen(self, hosts: Hosts, host: int) -> None:
        """Consider a host and its domains again, which may accept a fetch earlier than expected."""
        for link in doors.chain(hosts, host):
            if link in self.of_host or link in self._inside:
                self._open(hosts, link)

    def dissolve(self, sources: Sources, hosts: Hosts, limited: Iterable[int]) -> Rows:
        """Remove the queues of hosts whose limits have changed, and those of their domains; return
        the sources that were in them or had a slot."""
        changed, gone = np.zeros(len(hosts), np.bool_), np.zeros(len(hosts), np.bool_)
        parts: list[Rows] = []
        for host in limited:
            changed[host] = True
            for link in doors.chain(hosts, host):
                gone[link] |= self._slots.pop(link, None) is not None
                rows = np.array(self.of_host.pop(link, ()), dtype=np.int32)
                parts.append(rows[self.waits[rows] == _QUEUED])
                for inner in self._inside.pop(link, ()):
                    self._open(hosts, inner)
        if gone.any():
            rows = np.flatnonzero(self.waits == _SLOT).astype(np.int32)
            parts.append(_with_slots(sources, hosts, rows, changed, gone))
        return np.concatenate(parts) if parts else np.empty(0, np.int32)


@compiled
def _of_queue(
    sources: Sources, hosts: Hosts, rows: Rows, queue: int, now: float
) -> tuple[Rows, Rows]:
    """Return which rows are still in the queue of a host: those that can be fetched, and those
    whose own hosts are closed."""
    here, free = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    for k in range(len(rows)):
        host = sources.host[rows[k]]
        here[k] = doors.limited(hosts, host) == queue
        free[k] = doors.closed(hosts, host, now) == NO_HOST
    return rows[here & free], rows[here & ~free]


@compiled
def _with_slots(
    sources: Sources,
    hosts: Hosts,
    rows: Rows,
    changed: NDArray[np.bool_],
    gone: NDArray[np.bool_],
) -> Rows:
    """Return the rows whose slots are for queues that are gone.

    Arguments:
        changed: (H,) whether the limit of a host has changed, so that they were for another queue.
        gone: (H,) whether the queue of a host is gone.
    """
    is_slot = np.zeros(len(rows), np.bool_)
    for k in range(len(rows)):
        host = sources.host[rows[k]]
        while host != NO_HOST and not gone[host]:
            if hosts.interval[host] > 0.0 and not changed[host]:
                break
            host = hosts.within[host]
        is_slot[k] = host != NO_HOST and gone[host]
    return rows[is_slot]
