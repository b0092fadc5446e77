"""Which sources to examine, and which of them a lease gives.

A source waits in a heap, ordered by the time at which it becomes due at a price; this time is its
*key*. The price changes all the time, and the keys are not recomputed each time. The agenda
remembers the highest price at which a key was computed: as long as the requested index is at least
that price, the key of every source that reaches it has passed. If the requested index falls by more
than a tolerance, and too few sources are due, all keys are recomputed, a few at each call. So no
call does work that grows with the fleet.

Sources whose keys have passed are also in a second heap, ordered by their rank when they were last
examined. A source is examined again when its index has risen by a fifth. If far more sources are
due than are asked for, keys are computed at a price just below the index of the best ones: the best
sources still come first, and those that will not be leased soon are hardly examined.

Sources that are due and whose host accepts one fetch at a time leave both heaps for the queue of
their host (`queues`), and are compared when it accepts a fetch.

All of this is derived from the state and is not stored: it determines which sources are examined,
and not what they are worth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.scheduling.age_index import signed
from crawl_env.compiled import compiled
from ephemeral_crawl.live import heap as heaps
from ephemeral_crawl.live import hosts as doors
from ephemeral_crawl.live import life, price
from ephemeral_crawl.live.choice import (
    CEILING,
    INDEX,
    NEW,
    OVERDUE,
    RETRY,
    ROTATION,
    SIGNAL,
    Purse,
    Ranking,
    order_of,
    pick,
    rank_of,
    ranks,
)
from ephemeral_crawl.live.columns import FLOORED, NEVER, NO_HOST, Hosts, Sources
from ephemeral_crawl.live.heap import Heap
from ephemeral_crawl.live.learning import Shared
from ephemeral_crawl.live.queues import LONG, HostQueues

if TYPE_CHECKING:
    from ephemeral_crawl.live.state import Event, Moment, State

Rows = NDArray[np.int32]

EXACT = 1024  # largest fleet in which all keys follow each requested price
LOOKED_AT = 128  # least number of sources in queues that are compared in a call
BELOW, ABOVE = 0.05, 0.02  # logarithm of price asked for ÷ price of keys, in small, large fleets
TOLERANCE = 0.1  # logarithm by which keys of large fleets can be at a higher price
_BEST = 16  # sources that are due and compared in a call, besides twice the limit
_MOST = 128  # sources with passed keys that are examined in a call, besides 8 times the limit
_LEAST_STEP, _MOST_STEP = 1.2, 2.0  # factor by which an index rises until it is examined again
_PART = 1 / 16  # of sources that are due from which on keys are at a higher price
_NEAR = 0.75  # this price ÷ index of the best
_SLICES = (64, 1024)  # keys that are recomputed in a call, where they are needed
_LOOKS = 2  # further attempts if too few sources are due
_ROUNDS = 8  # largest number of passes over both heaps in a call
_MOST_ROUNDS = 64  # if there are tags, many of whose sources may wait for a budget of their own


_REASONS = {
    NEW: "not fetched yet",
    CEILING: "its maximum interval has passed",
    ROTATION: "not fetched for a whole rotation",
    SIGNAL: "pinged: its index has reached the price",
    INDEX: "its index has reached the price",
    RETRY: "it failed, and may answer again",
}


@dataclass(slots=True)
class Lease:
    """The right to fetch a source, until it expires."""

    id: int
    source: str
    value: float  # expected worth that the fetch collects
    index: float  # what it is worth per budget unit, compared with waiting
    price: float  # which the index has reached
    reason: str
    expires: float  # seconds since 1970


class Choice(NamedTuple):
    """The sources to fetch, in order, (K,) each."""

    row: Rows
    value: NDArray[np.float64]  # expected worth that a fetch collects
    gain: NDArray[np.float64]  # the index
    reason: NDArray[np.uint8]


class Heaps(NamedTuple):
    """Where sources wait until they are examined."""

    times: Heap  # when to examine each source that is not in a queue
    due: Heap  # sources that are due, by `order_of`
    waits: NDArray[np.uint8]  # (R,) see `HostQueues`; 0: the source is in no queue


class Examination(NamedTuple):
    """At which prices sources are examined, and when."""

    value: float  # price that keys are computed for
    threshold: float  # index that a source needs to be leased
    level: float  # index of the best sources; others are examined less often
    rotation: float  # largest time between two fetches, seconds
    now: float


_NONE = Choice(
    np.empty(0, np.int32), np.empty(0, np.float64), np.empty(0, np.float64), np.empty(0, np.uint8)
)


class Agenda:
    """The sources to examine next, in two heaps and the queues of hosts."""

    def __init__(self) -> None:
        none = np.empty(0)
        self.times = Heap.of(none, 0)  # when to examine each source that is not in a queue
        self.due = Heap.of(none, 0)  # sources that are due, by `order_of`
        self.queues = HostQueues()
        self.price = math.nan  # highest price that a key was computed for; NaN: there are none
        self.level = math.nan  # index of the best sources; others are examined less often
        self.stale = False  # whether estimates have changed for which keys were computed
        self._next = 0  # row whose key is recomputed next
        self._remaining = 0  # number of rows whose keys are still to be recomputed
        self._urgent = False  # whether these are at too high a price, rather than stale

    def choose(self, state: State, limit: int, now: float) -> Choice:
        """Return the sources to fetch now, at most `limit`.

        First come the sources that have a maximum interval and were not fetched yet, in decreasing
        order of their index, then those whose maximum interval has passed, in the order in which it
        has, then all others in decreasing order of their index, as long as it is at least the
        price. Sources that are new, or that were not tried for their turn, count as if their index
        were at least the price, and the more the longer they wait. Where others are preferred to
        them for long, as on a host that accepts fewer fetches than its best sources are worth, they
        come before all others one and a half rotations after the last attempt, or after they were
        added, and the sooner the longer they wait.

        In fleets of at most `EXACT` sources that is so exactly. In larger ones a source can be late
        until its index is above the price by `TOLERANCE`, and come after others whose index is
        lower, by up to a quarter. If suddenly far more are due than are asked for, as after an
        outage, some hundred of them are looked at in each call, and the best of those that were are
        given; when a store is opened, all are.
        """
        balance, threshold = state.balance_at(now), state.accepted_at(now)
        if not balance > 0.0:
            return _NONE
        at = Examination(self.price, threshold, self.level, state.rotation, now)
        self.prepare(state, at)
        for attempt in range(_LOOKS + 1):
            rows = self.candidates(state, limit, at)
            purse = Purse(balance, state.settings.burst, state.room_at(now))
            ranking, near, places, values = _compare(
                state.table, state.shared, rows, self.floor(threshold), purse, limit, at
            )
            if near >= limit or attempt == _LOOKS:
                break
            if not self.lower(state, limit, attempt, at):
                break
        self.settle(state, ranking, places, at)
        return Choice(ranking.row[places], values, ranking.gain[places], ranking.reason[places])

    def is_exact(self, state: State) -> bool:
        """Return whether the fleet is so small that all keys follow each requested price."""
        return state.rows <= EXACT

    @property
    def _heaps(self) -> Heaps:
        return Heaps(self.times, self.due, self.queues.waits)

    def _present(self, at: Examination) -> Examination:
        """Return an examination with the present price of keys, and index of the best."""
        return at._replace(value=self.price, level=self.level)

    def floor(self, threshold: float) -> float:
        """Return the least index from which on every source is certain to be in the heap of
        sources that are due."""
        return max(threshold, self.price * math.exp(-TOLERANCE))

    def prepare(self, state: State, at: Examination) -> None:
        """Compute the keys for a requested price, unless the present ones can be used."""
        if not self.price > 0.0:
            self.price, room = self._aim(state, at.threshold), len(state.table)
            self.level = at.threshold
            times, orders = _start(state.table, state.shared, state.rows, self._present(at))
            self.times, self.due = Heap.of(times, room), Heap.of(orders, room)
            self.queues = HostQueues(room)
        elif self.is_exact(state) and (self.price > at.threshold or self.stale):
            self.price, self.stale = min(self.price, self._aim(state, at.threshold)), False
            self._renew(state, state.rows, at)

    def _aim(self, state: State, threshold: float) -> float:
        """Return the price at which new keys are computed."""
        return threshold * math.exp(-BELOW if self.is_exact(state) else ABOVE)

    def rekey(self, state: State, rows: Rows, now: float) -> None:
        """Recompute the keys of sources that have changed."""
        if not self.price > 0.0:
            return
        if len(self.queues.waits) < len(state.table):
            room = len(state.table)
            self.queues.grow(room)
            self.times, self.due = self.times.with_rows(room), self.due.with_rows(room)
        _rekey(state.table, state.shared, self._heaps, rows, self.price, state.rotation, now)

    def _renew(self, state: State, number: int, at: Examination) -> None:
        """Recompute the keys of the next rows in turn."""
        rows, heaps = state.rows, self._heaps
        number = min(number, rows)
        _renew(state.table, state.shared, heaps, self._next, number, rows, self._present(at))
        self._next = (self._next + number) % max(rows, 1)
        self._remaining = max(self._remaining - number, 0)

    def candidates(self, state: State, limit: int, at: Examination) -> Rows:
        """Return sources that may be due and whose hosts accept a fetch: the best, and those in
        the queues of hosts."""
        most, best, most_queued = _MOST + 8 * limit, _BEST + 2 * limit, max(LOOKED_AT, 4 * limit)
        opens, exact = state.tags_open(), self.is_exact(state)
        if exact:
            most = best = most_queued = state.rows + 1
        for _ in range(_MOST_ROUNDS if state.tagged else _ROUNDS):
            rows, queue_rows, queue_hosts, more, level = _candidates(
                state.table, state.shared, self._heaps, most, best, opens, self._present(at)
            )
            self.level = max(level, at.threshold)
            for i, host in zip(queue_rows.tolist(), queue_hosts.tolist(), strict=True):
                slot = self.queues.add(
                    state.shared.hosts, i, host, math.inf if exact else LONG, at.now
                )
                heaps.move(self.times, i, slot)
            if len(rows) == best or not more:
                break
        if not self.queues.openings:
            return rows
        queues, closed_rows = self.queues.of_open_hosts(
            state.table, state.shared.hosts, most_queued, at.now
        )
        self.rekey(state, closed_rows, at.now)
        return np.concatenate([rows, *queues]) if queues else rows

    def limits_changed(self, state: State, limited: Iterable[int]) -> None:
        """Examine the sources again that wait for hosts whose limits have changed."""
        rows = self.queues.dissolve(state.table, state.shared.hosts, limited)
        self.rekey(state, rows, state.time)

    def lower(self, state: State, limit: int, attempt: int, at: Examination) -> bool:
        """Recompute some keys when fewer than `limit` sources are due, if their price is too high
        or estimates have changed; return whether there were any to recompute."""
        if self.is_exact(state):
            return False
        if self.price > at.threshold * math.exp(TOLERANCE):
            lower = min(_NEAR * self.level, self.price * math.exp(-TOLERANCE))
            self.price = max(lower, self._aim(state, at.threshold))
            self._remaining, self._urgent = state.rows, True
        elif self.stale and not self._remaining:
            self._remaining, self.stale, self._urgent = state.rows, False, False
        number = min(self._remaining, max(_SLICES[attempt if self._urgent else 0], 32 * limit))
        self._renew(state, number, at)
        return number > 0

    def settle(
        self, state: State, ranking: Ranking, places: NDArray[np.int64], at: Examination
    ) -> None:
        """Update the heaps after a choice: with the ranks of sources, and those that are not due.

        Arguments:
            places: of the chosen sources in `ranking`.
        """
        number = max(_SLICES[0], 32 * len(places)) if self._remaining and self._urgent else 0
        self._renew(state, max(number, 2 * len(places)), at)
        self.price = max(self.price, self._aim(state, at.threshold))
        if self.due.size[0] > max(_PART * state.rows, EXACT):  # the others need not be compared
            self.price = max(self.price, _NEAR * self.level)
        _settle(state.table, state.shared, self._heaps, ranking, places, self._present(at))


def lease_event(
    state: State, moment: Moment, limit: int, timeout: float
) -> tuple[Event | None, list[Lease]]:
    """Return the leases to give now, and the event that records them.

    Arguments:
        limit: largest number of leases.
        timeout: seconds until they expire.
    """
    now = moment.time
    choice = state.agenda.choose(state, limit, now)
    if not len(choice.row):
        return None, []
    rows = choice.row.tolist()
    first = max(state.last_lease, state.least_lease) + 1
    end, threshold = now + timeout, state.accepted_at(now)
    expires = end - moment.offset
    columns = zip(
        [state.names[i] for i in rows],
        choice.value.tolist(),
        choice.gain.tolist(),
        choice.reason.tolist(),
        strict=True,
    )
    leases = [
        Lease(number, name or "", value, index, threshold, _REASONS[reason], expires)
        for number, (name, value, index, reason) in enumerate(columns, first)
    ]
    if state.tagged:  # at whose prices they are due
        for lease, factor in zip(leases, state.table["factor"][choice.row].tolist(), strict=True):
            lease.index, lease.price = lease.index * factor, threshold * factor
    return {"kind": "lease", "first": first, "rows": rows, "end": end}, leases


@compiled
def give(sources: Sources, hosts: Hosts, rows: NDArray[np.int32], first: int, end: float) -> float:
    """Lease sources until `end`, numbered from `first`, and return their total cost."""
    total = 0.0
    for k in range(len(rows)):
        i = signed(rows[k])
        sources.lease[i] = first + k
        sources.marks[i] &= 0xFF ^ FLOORED
        # If it is never reported, it may have been fetched at the end.
        sources.blocked[i] = max(sources.blocked[i], end + np.float64(sources.shortest[i]))
        total += np.float64(sources.cost[i])
        host = sources.host[i]
        while host != NO_HOST:
            hosts.lease[host] = first + k
            hosts.held[host] = end + hosts.interval[host]
            host = hosts.within[host]
    return total


@compiled
def _compare(
    sources: Sources,
    shared: Shared,
    rows: Rows,
    floor: float,
    purse: Purse,
    limit: int,
    at: Examination,
) -> tuple[Ranking, int, NDArray[np.int64], NDArray[np.float64]]:
    """Return the ranks of sources, how many reach `floor`, the places of those to fetch, in
    order, and what these would collect."""
    ranking = ranks(sources, shared, rows, at.threshold, at.rotation, at.now)
    near = 0
    for k in range(len(rows)):
        if ranking.reason[k] == CEILING or ranking.rank[k] >= floor:
            near += 1
    places = pick(sources, shared.hosts, ranking, at.threshold, purse, limit)
    values = np.empty(len(places))
    for k in range(len(places)):
        i = signed(rows[places[k]])
        values[k] = price.value_now(sources, shared, i, at.now)
        if life.tried_at(sources, i) == NEVER:
            ranking.reason[places[k]] = NEW
    return ranking, near, places, values


@compiled
def _examine(sources: Sources, shared: Shared, i: int, at: Examination) -> tuple[float, float]:
    """Return when to examine source i again, and its position in the order of sources that are due
    (infinite if it is not due), given that its host accepts any number of fetches."""
    now, rotation = at.now, at.rotation
    free = price.floored(sources, shared, i, -np.inf, np.inf) <= now
    index, rank, reason = rank_of(sources, shared, i, at.threshold, rotation, now)
    if not (free and (index >= at.value or reason == CEILING)):
        key = price.key_of(sources, shared, i, at.value, rotation, now)
        if key > now:
            return key, np.inf
    start = life.tried_at(sources, i)
    if start == NEVER:
        start, again = sources.pinged[i], np.inf
    else:
        step = min(max(np.sqrt(at.level / index), _LEAST_STEP), _MOST_STEP)
        again = price.due_at(sources, shared, i, step * index, now)
    interval = price.exploration_interval(sources, shared, i, rotation)
    longest, longer = (
        price.longest_interval(sources, shared, i),
        _LEAST_STEP * max(now - start, interval),
    )
    late = OVERDUE * price.rotation_of(sources, i, rotation)
    for after in (longest, interval, longer, late):
        if start + after > now:
            again = min(again, start + after)
    return again if again > now else np.inf, order_of(rank, reason)


@compiled
def _start(
    sources: Sources, shared: Shared, rows: int, at: Examination
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return when to look at each source, and the places of those due; those of limited hosts are
    to be looked at."""
    times, orders = np.empty(rows), np.full(rows, np.inf)
    for i in range(rows):
        limit, until = doors.limit_of(shared.hosts, sources.host[i])
        if limit == NO_HOST and until <= at.now:
            times[i], orders[i] = _examine(sources, shared, i, at)
        else:
            times[i] = price.key_of(sources, shared, i, at.value, at.rotation, at.now)
    return times, orders


@compiled
def _candidates(
    sources: Sources,
    shared: Shared,
    where: Heaps,
    most: int,
    best: int,
    opens: NDArray[np.float64],
    at: Examination,
) -> tuple[Rows, Rows, Rows, bool, float]:
    """Look at sources whose time has come, at most `most`, and find the best of those due.

    Returns:
        The best, at most `best`; sources that leave the heaps, since their hosts are limited, and
        the hosts or domains for which they wait; whether others are to be looked at; and the index
        of the last of the best, 0 if these are all or it is due at any price. Sources of hosts that
        have no limit and asked to be left alone wait until then, and those of tags until `opens`.
    """
    times, due, hosts, now = where.times, where.due, shared.hosts, at.now
    queue_rows, queue_hosts = np.empty(most, np.int32), np.empty(most, np.int32)
    queue_length, looks = 0, 0
    while looks < most and times.size[0] > 0 and times.key[times.order[0]] <= now:
        i = signed(times.order[0])
        limit, until = doors.limit_of(hosts, sources.host[i])
        until = max(until, opens[sources.tag[i]])
        again, order = until, np.inf
        if until <= now and limit != NO_HOST:
            again = price.floored(sources, shared, i, -np.inf, np.inf)
            if again <= now:
                queue_rows[queue_length], queue_hosts[queue_length] = i, limit
                queue_length += 1
                again = np.inf
        elif until <= now:
            again, order = _examine(sources, shared, i, at)
        heaps.move(times, i, again)
        heaps.move(due, i, order)
        looks += 1
    rows = heaps.first(due, best)
    level = 0.0
    if len(rows) == best:
        last = signed(rows[-1])
        index, rank, reason = rank_of(sources, shared, last, at.threshold, at.rotation, now)
        level = index if rank == index and reason != CEILING else 0.0
    free, more = 0, looks == most
    for k in range(len(rows)):
        i = signed(rows[k])
        limit, until = doors.limit_of(hosts, sources.host[i])
        until = max(until, opens[sources.tag[i]])
        if limit == NO_HOST and until <= now:
            rows[free] = i
            free += 1
        else:  # it has come to be limited or closed
            heaps.move(due, i, np.inf)
            heaps.move(times, i, now)
            more = True
    return rows[:free], queue_rows[:queue_length], queue_hosts[:queue_length], more, level


@compiled
def _rekey(
    sources: Sources,
    shared: Shared,
    where: Heaps,
    rows: Rows,
    value: float,
    rotation: float,
    now: float,
) -> None:
    for k in range(len(rows)):
        i = signed(rows[k])
        where.waits[i] = 0
        heaps.move(where.due, i, np.inf)
        key = sources.blocked[i]  # early enough
        if key <= now:
            key = price.key_of(sources, shared, i, value, rotation, now)
        heaps.move(where.times, i, key)


@compiled
def _renew(
    sources: Sources,
    shared: Shared,
    where: Heaps,
    start: int,
    number: int,
    rows: int,
    at: Examination,
) -> None:
    """Recompute the keys of a number of rows, cyclically from `start`, except of rows in queues."""
    times, due, waits = where
    for k in range(number):
        i = signed((start + k) % rows)
        if waits[i] != 0:
            continue
        if due.place[i] >= 0:
            again, order = _examine(sources, shared, i, at)
            heaps.move(due, i, order)
        else:
            again = price.key_of(sources, shared, i, at.value, at.rotation, at.now)
        if again != times.key[i]:
            heaps.move(times, i, again)


@compiled
def _settle(
    sources: Sources,
    shared: Shared,
    where: Heaps,
    ranking: Ranking,
    places: NDArray[np.int64],
    at: Examination,
) -> None:
    """Store the ranks of sources that were examined and not chosen, and recompute the keys of those
    that are not due."""
    is_chosen = np.zeros(len(ranking.row), np.bool_)
    for k in range(len(places)):
        is_chosen[places[k]] = True
    for k in range(len(ranking.row)):
        i = signed(ranking.row[k])
        if is_chosen[k] or where.due.place[i] < 0:
            continue
        order = order_of(ranking.rank[k], ranking.reason[k])
        below = ranking.gain[k] < at.value and ranking.rank[k] < at.threshold
        if below and ranking.reason[k] != CEILING:
            order = np.inf
            key = price.key_of(sources, shared, i, at.value, at.rotation, at.now)
            heaps.move(where.times, i, key)
        heaps.move(where.due, i, order)
