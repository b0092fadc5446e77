"""When to look at which source again: times in a heap, and in another those due, best first.

A source is in the heap of times with the time at which it becomes due at a price, its *key*. Prices
change all the time, and keys are not computed anew each time: the agenda knows the highest price
that a key was computed for. As long as the index that is asked for is at least that, whoever
reaches it has a key that has passed. If it falls by more than a tolerance and too few are due, all
keys are computed anew, some at each call. So no call does work that grows with the fleet.

Sources whose keys have passed are also in the heap of those due, by their rank when they were last
looked at, and are looked at again when their index has risen by a fifth. If far more are due than
are asked for, keys are at a price just below the index of the best. So the best come first, however
many are due, and those that will not be leased soon are hardly looked at.

Sources that are due and whose host accepts one fetch at a time leave both heaps for the queue of
the host (`queues`), and are compared when it accepts one.

All this follows from the state and is not part of it: it says which sources to look at, and not
what they are worth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.scheduling.age_index import whole
from crawl_env.compiled import compiled
from ephemeral_crawl.live import heap as heaps
from ephemeral_crawl.live import hosts as doors
from ephemeral_crawl.live import life, price
from ephemeral_crawl.live.columns import NEVER, NO_HOST, Hosts, Sources
from ephemeral_crawl.live.heap import Heap
from ephemeral_crawl.live.learning import Shared
from ephemeral_crawl.live.queues import LONG, HostQueues
from ephemeral_crawl.live.rank import CEILING, OVERDUE, order_of, rank_of

if TYPE_CHECKING:
    from ephemeral_crawl.live.state import State

Rows = NDArray[np.int32]

EXACT = 1024  # sources up to which every key is at a price that is asked for
LOOKED_AT = 128  # sources in queues that are compared at a time, at least
BELOW, ABOVE = 0.05, 0.02  # logarithm of price asked for ÷ price of keys, in small, large fleets
TOLERANCE = 0.1  # logarithm by which keys of large fleets can be at a higher price
_BEST = 16  # sources due that are compared at a time, besides twice as many as are asked for
_MOST = 128  # sources whose times have come that are looked at, besides 8 for each asked for
_LEAST_STEP, _MOST_STEP = 1.2, 2.0  # factor by which an index rises until it is looked at again
_PART = 1 / 16  # of sources that are due from which on keys are at a higher price
_NEAR = 0.75  # this price ÷ index of the best
_SLICES = (64, 1024)  # keys that are computed anew at a time, in case of need
_ROUNDS = 8  # largest number of times that both heaps are looked at in a call
_MOST_ROUNDS = 64  # if there are tags, many of whose sources may wait for a budget of their own


class Ranked(NamedTuple):
    """Sources that are looked at, (K,) each."""

    row: Rows
    gain: NDArray[np.float64]  # the index
    rank: NDArray[np.float64]  # see `rank_of`
    reason: NDArray[np.uint8]


class Agenda:
    """Which sources to look at, at a time."""

    def __init__(self) -> None:
        none = np.empty(0)
        self.times = Heap.of(none, 0)  # when to look at sources, but for those in queues
        self.due = Heap.of(none, 0)  # sources that are due, by `order_of`
        self.queues = HostQueues()
        self.price = math.nan  # highest price that a key was computed for; NaN: there are none
        self.level = math.nan  # index that the best have; others are looked at less
        self.stale = False  # whether estimates have changed for which keys were computed
        self._next = 0  # row whose key is computed anew next
        self._left = 0  # rows whose keys are to be computed anew
        self._urgent = False  # whether these are at too high a price, rather than stale

    def floor(self, asked: float) -> float:
        """Return the index down to which all sources that have it are found among those due."""
        return max(asked, self.price * math.exp(-TOLERANCE))

    def prepare(self, state: State, asked: float, now: float) -> None:
        """Make keys for a price that is asked for, where there are none that serve."""
        if not self.price > 0.0:
            self.price, room = self._aim(state, asked), len(state.table)
            self.level = asked
            times, orders = _start(
                state.table, state.hosts_table, state.shared, state.rows, self.price, asked,
                state.rotation, now,
            )  # fmt: skip
            self.times, self.due = Heap.of(times, room), Heap.of(orders, room)
            self.queues = HostQueues(room)
        elif state.rows <= EXACT and (self.price > asked or self.stale):
            self.price, self.stale = min(self.price, self._aim(state, asked)), False
            self._renew(state, state.rows, asked, now)

    def _aim(self, state: State, asked: float) -> float:
        """Return the price for new keys."""
        return asked * math.exp(-BELOW if state.rows <= EXACT else ABOVE)

    def rekey(self, state: State, rows: Rows, now: float) -> None:
        """Compute keys of sources that have changed."""
        if not self.price > 0.0:
            return
        if len(self.queues.waits) < len(state.table):
            room = len(state.table)
            self.queues.grow(room)
            self.times, self.due = self.times.with_rows(room), self.due.with_rows(room)
        _rekey(
            state.table, state.shared, self.times, self.due, self.queues.waits, rows, self.price,
            state.rotation, now,
        )  # fmt: skip

    def _renew(self, state: State, number: int, asked: float, now: float) -> None:
        """Compute the next keys anew."""
        number = min(number, state.rows)
        _renew(
            state.table, state.shared, self.times, self.due, self.queues.waits, self._next, number,
            state.rows, self.price, asked, self.level, state.rotation, now,
        )  # fmt: skip
        self._next = (self._next + number) % max(state.rows, 1)
        self._left = max(self._left - number, 0)

    def candidates(self, state: State, asked: float, limit: int, now: float) -> Rows:
        """Return sources that may be due and whose hosts accept a fetch: the best, and those in
        the queues of hosts."""
        most, best, queued = _MOST + 8 * limit, _BEST + 2 * limit, max(LOOKED_AT, 4 * limit)
        opens = state.tags.opens(state.time, state.settings.budget)
        exact = state.rows <= EXACT
        if exact:
            most = best = queued = state.rows + 1
        for _ in range(_MOST_ROUNDS if state.tags else _ROUNDS):
            rows, limited, hosts, more, level = _candidates(
                state.table, state.hosts_table, state.shared, self.times, self.due, most, best,
                self.price, asked, self.level, state.rotation, opens, now,
            )  # fmt: skip
            self.level = max(level, asked)
            for i, host in zip(limited.tolist(), hosts.tolist(), strict=True):
                again = self.queues.add(
                    state.hosts_table, i, host, math.inf if exact else LONG, now
                )
                heaps.move(self.times, i, again)
            if len(rows) == best or not more:
                break
        of_hosts, closed = self.queues.of_open_hosts(state.table, state.hosts_table, queued, now)
        self.rekey(state, closed, now)
        return np.concatenate([rows, *of_hosts]) if of_hosts else rows

    def limits_changed(self, state: State, limited: Iterable[int]) -> None:
        """Look anew at the sources that wait for hosts whose limits have changed."""
        rows = self.queues.dissolve(state.table, state.hosts_table, limited)
        self.rekey(state, rows, state.time)

    def lower(self, state: State, asked: float, limit: int, attempt: int, now: float) -> bool:
        """Compute some keys anew, where fewer than `limit` are due, if their price is too high or
        estimates have changed; return whether there were any to compute."""
        if state.rows <= EXACT:
            return False
        if self.price > asked * math.exp(TOLERANCE):
            lower = min(_NEAR * self.level, self.price * math.exp(-TOLERANCE))
            self.price = max(lower, self._aim(state, asked))
            self._left, self._urgent = state.rows, True
        elif self.stale and not self._left:
            self._left, self.stale, self._urgent = state.rows, False, False
        number = min(self._left, max(_SLICES[attempt if self._urgent else 0], 32 * limit))
        self._renew(state, number, asked, now)
        return number > 0

    def settle(
        self, state: State, looked: Ranked, chosen: NDArray[np.int64], asked: float, now: float
    ) -> None:
        """Learn from a choice how sources rank, and which are not due.

        Arguments:
            chosen: places of those in `looked` that were chosen.
            asked: the price that was asked for.
        """
        number = max(_SLICES[0], 32 * len(chosen)) if self._left and self._urgent else 0
        self._renew(state, max(number, 2 * len(chosen)), asked, now)
        self.price = max(self.price, self._aim(state, asked))
        if self.due.size[0] > max(_PART * state.rows, EXACT):  # the others need not be compared
            self.price = max(self.price, _NEAR * self.level)
        _settle(
            state.table, state.shared, self.times, self.due, self.queues.waits, looked, chosen,
            self.price, asked, state.rotation, now,
        )  # fmt: skip


@compiled
def _looked_at(
    sources: Sources,
    shared: Shared,
    i: int,
    value: float,
    asked: float,
    level: float,
    rotation: float,
    now: float,
) -> tuple[float, float]:
    """Return when to look at source i again, and its place among those due, infinite if it is not,
    if its host accepts any number of fetches."""
    free = price.floored(sources, shared, i, -np.inf, np.inf) <= now
    index, rank, reason = rank_of(sources, shared, i, asked, rotation, now)
    if not (free and (index >= value or reason == CEILING)):
        key = price.key_of(sources, shared, i, value, rotation, now)
        if key > now:
            return key, np.inf
    start = life.tried_at(sources, i)
    if start == NEVER:
        start, again = sources.pinged[i], np.inf
    else:
        step = min(max(np.sqrt(level / index), _LEAST_STEP), _MOST_STEP)
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
    sources: Sources,
    hosts: Hosts,
    shared: Shared,
    rows: int,
    value: float,
    asked: float,
    rotation: float,
    now: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return when to look at each source, and the places of those due; those of limited hosts are
    to be looked at."""
    times, orders = np.empty(rows), np.full(rows, np.inf)
    for i in range(rows):
        limit, until = doors.limit_of(hosts, sources.host[i])
        if limit == NO_HOST and until <= now:
            times[i], orders[i] = _looked_at(sources, shared, i, value, asked, asked, rotation, now)
        else:
            times[i] = price.key_of(sources, shared, i, value, rotation, now)
    return times, orders


@compiled
def _candidates(
    sources: Sources,
    hosts: Hosts,
    shared: Shared,
    times: Heap,
    due: Heap,
    most: int,
    best: int,
    value: float,
    asked: float,
    level: float,
    rotation: float,
    opens: NDArray[np.float64],
    now: float,
) -> tuple[Rows, Rows, Rows, bool, float]:
    """Look at sources whose time has come, at most `most`, and find the best of those due.

    Returns:
        The best, at most `best`; sources that leave the heaps, since their hosts are limited, and
        the hosts or domains for which they wait; whether others are to be looked at; and the index
        of the last of the best, 0 if these are all or it is due at any price. Sources of hosts that
        have no limit and asked to be left alone wait until then, and those of tags until `opens`.
    """
    limited, limits = np.empty(most, np.int32), np.empty(most, np.int32)
    number, looked = 0, 0
    while looked < most and times.size[0] > 0 and times.key[times.order[0]] <= now:
        i = whole(times.order[0])
        limit, until = doors.limit_of(hosts, sources.host[i])
        until = max(until, opens[sources.tag[i]])
        again, order = until, np.inf
        if until <= now and limit != NO_HOST:
            again = price.floored(sources, shared, i, -np.inf, np.inf)
            if again <= now:
                limited[number], limits[number] = i, limit
                number += 1
                again = np.inf
        elif until <= now:
            again, order = _looked_at(sources, shared, i, value, asked, level, rotation, now)
        heaps.move(times, i, again)
        heaps.move(due, i, order)
        looked += 1
    rows = heaps.first(due, best)
    level = 0.0
    if len(rows) == best:
        index, rank, reason = rank_of(sources, shared, whole(rows[-1]), asked, rotation, now)
        level = index if rank == index and reason != CEILING else 0.0
    free, more = 0, looked == most
    for k in range(len(rows)):
        i = whole(rows[k])
        limit, until = doors.limit_of(hosts, sources.host[i])
        until = max(until, opens[sources.tag[i]])
        if limit == NO_HOST and until <= now:
            rows[free] = i
            free += 1
        else:  # it has come to be limited or closed
            heaps.move(due, i, np.inf)
            heaps.move(times, i, now)
            more = True
    return rows[:free], limited[:number], limits[:number], more, level


@compiled
def _rekey(
    sources: Sources,
    shared: Shared,
    times: Heap,
    due: Heap,
    waits: NDArray[np.uint8],
    rows: Rows,
    value: float,
    rotation: float,
    now: float,
) -> None:
    for k in range(len(rows)):
        i = whole(rows[k])
        waits[i] = 0
        heaps.move(due, i, np.inf)
        key = sources.blocked[i]  # early enough
        if key <= now:
            key = price.key_of(sources, shared, i, value, rotation, now)
        heaps.move(times, i, key)


@compiled
def _renew(
    sources: Sources,
    shared: Shared,
    times: Heap,
    due: Heap,
    waits: NDArray[np.uint8],
    start: int,
    number: int,
    rows: int,
    value: float,
    asked: float,
    level: float,
    rotation: float,
    now: float,
) -> None:
    """Compute the keys of some rows, cyclically from one on, except of those in queues."""
    for k in range(number):
        i = whole((start + k) % rows)
        if waits[i] != 0:
            continue
        if due.place[i] >= 0:
            again, order = _looked_at(sources, shared, i, value, asked, level, rotation, now)
            heaps.move(due, i, order)
        else:
            again = price.key_of(sources, shared, i, value, rotation, now)
        if again != times.key[i]:
            heaps.move(times, i, again)


@compiled
def _settle(
    sources: Sources,
    shared: Shared,
    times: Heap,
    due: Heap,
    waits: NDArray[np.uint8],
    looked: Ranked,
    chosen: NDArray[np.int64],
    value: float,
    asked: float,
    rotation: float,
    now: float,
) -> None:
    """Note the ranks of those that were looked at and not chosen, and compute new keys of those
    that are not due."""
    taken = np.zeros(len(looked.row), np.bool_)
    for k in range(len(chosen)):
        taken[chosen[k]] = True
    for k in range(len(looked.row)):
        i = whole(looked.row[k])
        if taken[k] or due.place[i] < 0:
            continue
        order = order_of(looked.rank[k], looked.reason[k])
        if looked.gain[k] < value and looked.rank[k] < asked and looked.reason[k] != CEILING:
            order = np.inf
            heaps.move(times, i, price.key_of(sources, shared, i, value, rotation, now))
        heaps.move(due, i, order)
