"""When to look at which source again: due times in a heap, and lines in front of limited hosts.

A source is in the heap with the time at which it becomes due at a price, its *key*. Prices change
all the time, and keys are not computed anew each time: the agenda knows the highest price that a
key was computed for. As long as the index that is asked for is at least that, whoever reaches it
has a key that has passed. If it rises, sources whose keys have passed too early are found out when
they are looked at, and wait for a new key; if it falls by more than a tolerance, all keys are
computed anew, some at each call, at a price that a sample says enough sources reach. So no call
does work that grows with the fleet.

Sources that are due at any price, since they are new or their rotation or maximum interval has
passed, and that are not leased at once, wait in a queue and are served as they came. Meanwhile,
their key is the time at which their index reaches the price.

Sources that are due and whose host accepts one fetch at a time leave the heap and stand in line in
front of it, and are compared when it accepts one. If the line is long, they get a ticket, the time
at which they may join it. A host in a domain that accepts one fetch at a time waits with its line
in front of the domain; sources of hosts without a limit stand in line in front of the domain.

All this follows from the state and is not part of it: it says which sources to look at, and not
what they are worth.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.scheduling.age_index import whole
from crawl_env.compiled import compiled
from ephemeral_crawl.live import heap as heaps
from ephemeral_crawl.live import hosts as doors
from ephemeral_crawl.live import price
from ephemeral_crawl.live.columns import NO_HOST, Hosts, Sources
from ephemeral_crawl.live.heap import Heap
from ephemeral_crawl.live.learning import Shared
from ephemeral_crawl.live.queue import QUEUED, Queue, heads

if TYPE_CHECKING:
    from ephemeral_crawl.live.state import State

Rows = NDArray[np.int32]

EXACT = 1024  # sources up to which every key is at a price that is asked for
LOOKED_AT = 128  # sources that are compared at a time, at least
BELOW, ABOVE = 0.05, 0.02  # logarithm of price asked for ÷ price of keys, in small, large fleets
TOLERANCE = 0.1  # logarithm by which keys of large fleets can be at a higher price
_MOST = 4096  # sources that are looked at, where far more are due than are asked for
_SLICE, _STALE = 1024, 64  # keys that are computed anew at a time: at too high a price; stale
_SAMPLE = 1024  # sources whose indices tell how far a price falls
_PART = 1 / 16  # of the sources, whose indices then reach it
_LINE = 128  # sources in line in front of a host
_ROUNDS = 8  # largest number of times that the heap is looked at in a call
_IN_LINE, _TICKET = 1, 2  # marks, besides `QUEUED`
_SEEN = QUEUED + 1  # during a call
NEW, CEILING, ROTATION, SIGNAL, INDEX = range(5)  # reasons


class Ranked(NamedTuple):
    """Sources that are looked at, (K,) each."""

    row: Rows
    gain: NDArray[np.float64]  # the index
    # The index, or the price if it is higher and others ask for a fetch; past the maximum interval,
    # minus the time at which it passed, or the index if the source was not fetched yet.
    rank: NDArray[np.float64]
    reason: NDArray[np.uint8]


class Agenda:
    """Which sources to look at, at a time."""

    def __init__(self) -> None:
        self.heap = Heap.empty(0)
        self.marks = np.zeros(0, np.uint8)  # (R,) where a source waits, besides the heap
        self.price = math.nan  # highest price that a key was computed for; NaN: there are none
        self.stale = False  # whether estimates have changed for which keys were computed
        self.look = LOOKED_AT  # sources to look at next time
        self._next = 0  # row whose key is computed anew next
        self._left = 0  # rows whose keys are to be computed anew
        self._urgent = False  # whether these are at too high a price, rather than stale
        self._lines: dict[int, list[int]] = {}  # of each host; those not marked have left it
        self._opening: list[tuple[float, int]] = []  # heap of when hosts accept the next fetch
        self._inside: dict[int, deque[int]] = {}  # hosts that wait for each domain to accept one
        self._tickets: dict[int, float] = {}  # last ticket of each host
        self._late = Queue()  # of sources past their maximum intervals
        self._others = Queue()  # of others that are due at any price

    def floor(self, state: State, asked: float) -> float:
        """Return the index down to which all sources that have it are found among those due."""
        if state.rows <= EXACT:
            return asked
        return max(asked, self.price * math.exp(-TOLERANCE))

    def prepare(self, state: State, asked: float, now: float) -> None:
        """Make keys for a price that is asked for, where there are none that serve."""
        small = state.rows <= EXACT
        if not self.price > 0.0 or len(self.marks) < state.rows:
            self._build(state, self._aim(state, asked), now)
        elif small and (self.price > asked or self.stale):
            self.price, self.stale = min(self.price, self._aim(state, asked)), False
            self._renew(state, state.rows, now)

    def _aim(self, state: State, asked: float) -> float:
        """Return the price for new keys."""
        return asked * math.exp(-BELOW if state.rows <= EXACT else ABOVE)

    def _build(self, state: State, value: float, now: float) -> None:
        rows, room = state.rows, len(state.table)
        which = np.arange(rows, dtype=np.int32)
        keys = price.keys(state.table, state.shared, which, value, state.rotation, now)
        self.__init__()  # type: ignore[misc]
        self.price, self.heap, self.marks = value, Heap.empty(room), np.zeros(room, np.uint8)
        order = np.argsort(keys, kind="stable")
        order = order[: int(np.isfinite(keys).sum())]
        self.heap.key[:rows] = keys
        self.heap.order[: len(order)] = order  # sorted, therefore a heap
        self.heap.place[order] = np.arange(len(order))
        self.heap.size[0] = len(order)

    def rekey(self, state: State, rows: Rows, now: float) -> None:
        """Compute keys of sources that have changed."""
        if not self.price > 0.0:
            return
        if len(self.marks) < len(state.table):
            room = len(state.table)
            marks = np.zeros(room, np.uint8)
            marks[: len(self.marks)] = self.marks
            self.marks, self.heap = marks, self.heap.with_rows(room)
        _rekey(
            state.table, state.shared, self.heap, self.marks, rows, self.price, state.rotation, now
        )

    def _renew(self, state: State, number: int, now: float) -> None:
        """Compute the next keys anew."""
        number = min(number, state.rows)
        _renew(
            state.table, state.shared, self.heap, self.marks, self._next, number, state.rows,
            self.price, state.rotation, now,
        )  # fmt: skip
        self._next = (self._next + number) % max(state.rows, 1)
        self._left = max(self._left - number, 0)

    def candidates(self, state: State, most: int, limit: int, now: float) -> tuple[Rows, bool]:
        """Return sources that may be due and whose hosts accept a fetch, and whether there may be
        more."""
        for _ in range(_ROUNDS):
            late, others = self._late.rows, self._others.rows
            rows, standing, lines, found, of_heap, gone = _candidates(
                state.table, state.hosts_table, self.heap, self.marks, late, others, most, limit,
                now,
            )  # fmt: skip
            self._late.drop(gone[0])
            self._others.drop(gone[1])
            for i, host in zip(standing.tolist(), lines.tolist(), strict=True):
                self._stand_in_line(state, i, host, now)
            more = found == most
            if 2 * of_heap >= most or not more:
                break
        of_hosts = self._of_open_hosts(state, most, now)
        return np.concatenate([rows, *of_hosts]) if of_hosts else rows, more

    def _stand_in_line(self, state: State, i: int, host: int, now: float) -> None:
        """Let a source stand in line in front of a host, or give it a ticket."""
        opens = doors.opening(state.hosts_table, host)
        line = self._lines.get(host)
        if line is None:
            line = self._lines[host] = []
        if len(line) >= _LINE and state.rows > EXACT:
            # Not from the end of a lease on, which may be reported long before.
            interval, blocked = state.hosts_table[["interval", "blocked"]][host].item()
            ticket = max(self._tickets.get(host, 0.0), blocked, now) + interval
            self._tickets[host] = ticket
            self.marks[i] = _TICKET
            heaps.move(self.heap, i, ticket)
            return
        if not line:
            heappush(self._opening, (opens, host))
        line.append(i)
        self.marks[i] = _IN_LINE
        heaps.move(self.heap, i, math.inf)

    def _of_open_hosts(self, state: State, most: int, now: float) -> list[Rows]:
        """Return the lines of hosts that accept a fetch, as do their domains."""
        found: list[Rows] = []
        hosts, number, seen = state.hosts_table, 0, set[int]()
        while self._opening and self._opening[0][0] <= now and number < most:
            _, host = heappop(self._opening)
            if host in seen or not (host in self._lines or host in self._inside):
                continue
            shut = doors.closed(hosts, host, now)
            if shut == host:
                heappush(self._opening, (doors.opening(hosts, host), host))
            elif shut != NO_HOST:
                self._wait_for(state, shut, host)
            else:
                number += self._enter(state, host, most, now, found, seen)
        for host in seen:
            if host in self._lines or host in self._inside:
                heappush(self._opening, (max(doors.opening(hosts, host), now), host))
        return found

    def _enter(
        self, state: State, host: int, most: int, now: float, found: list[Rows], seen: set[int]
    ) -> int:
        """Find the line of a host that accepts a fetch, and those of hosts that wait for it; return
        how many sources there are: at most about `most`, of these hosts those that wait longest."""
        seen.add(host)
        rows = self._line(state, host, now)
        found.append(rows)
        number, waiting = 0, self._inside.get(host, deque())
        while waiting and number < most:
            inner = waiting.popleft()
            opens = doors.opening(state.hosts_table, inner)
            if opens > now:
                heappush(self._opening, (opens, inner))
            elif inner not in seen:
                number += self._enter(state, inner, most, now, found, seen)
        if not waiting:
            self._inside.pop(host, None)
        return number + len(rows)

    def _wait_for(self, state: State, domain: int, host: int) -> None:
        """Let a host wait until a domain accepts a fetch."""
        if domain not in self._inside:
            self._inside[domain] = deque()
            heappush(self._opening, (doors.opening(state.hosts_table, domain), domain))
        self._inside[domain].append(host)

    def _line(self, state: State, host: int, now: float) -> Rows:
        """Return who stands in line in front of a host that accepts a fetch."""
        rows = np.unique(np.array(self._lines.get(host, ()), dtype=np.int32))
        rows = rows[self.marks[rows] == _IN_LINE]
        rows, shut = _of_line(state.table, state.hosts_table, rows, host, now)
        self.rekey(state, shut, now)
        if len(rows):
            self._lines[host][:] = rows.tolist()
        else:
            self._lines.pop(host, None)
        return rows

    @property
    def has_lines(self) -> bool:
        """Whether sources stand in line in front of a host."""
        return bool(self._lines)

    def next_opening(self) -> float:
        """Return when the first host accepts a fetch in front of which sources stand in line."""
        return self._opening[0][0] if self._opening else math.inf

    def open(self, state: State, host: int) -> None:
        """Note that a host and its domains may accept a fetch earlier than it seemed."""
        hosts = state.hosts_table
        for each in doors.chain(hosts, host):
            if each in self._lines or each in self._inside:
                heappush(self._opening, (doors.opening(hosts, each), each))

    def dissolve(self, state: State, limited: Collection[int]) -> None:
        """Send all who stand in line in front of hosts whose limits have changed, or of their
        domains, or have a ticket for such a line, back to the heap."""
        hosts = state.hosts_table
        changed, gone = np.zeros(len(hosts), np.bool_), np.zeros(len(hosts), np.bool_)
        for host in limited:
            changed[host] = True
            for each in doors.chain(hosts, host):
                gone[each] |= self._tickets.pop(each, None) is not None
                rows = np.array(self._lines.pop(each, []), dtype=np.int32)
                self.rekey(state, rows[self.marks[rows] == _IN_LINE], state.time)
                for inner in self._inside.pop(each, ()):
                    heappush(self._opening, (doors.opening(hosts, inner), inner))
        if gone.any():
            rows = np.flatnonzero(self.marks == _TICKET).astype(np.int32)
            rows = _with_tickets(state.table, hosts, rows, changed, gone)
            self.rekey(state, rows, state.time)

    def lower(self, state: State, asked: float, limit: int, now: float) -> bool:
        """Compute some keys anew at a lower price, if fewer than `limit` were found that are near
        to the highest price of keys; return whether there were any to compute."""
        if state.rows <= EXACT:
            return False
        high = self.price > asked * math.exp(TOLERANCE)
        if (high and not (self._left and self._urgent)) or (self.stale and not self._left):
            if high:
                reached = min(self._reached(state, limit, now), self.price * math.exp(-TOLERANCE))
                self.price = max(reached, self._aim(state, asked))
            self._left, self.stale, self._urgent = state.rows, False, high
        number = min(self._left, max(_SLICE if self._urgent else _STALE, 8 * limit))
        self._renew(state, number, now)
        return number > 0

    def _reached(self, state: State, limit: int, now: float) -> float:
        """Return a price that the indices of a part of the sources reach, as a sample says."""
        step = -(-state.rows // _SAMPLE)
        index = _free_indices(state.table, state.shared, state.rows, step, now)
        number = math.ceil(max(_PART, 4 * limit / state.rows) * state.rows / step)
        return float(np.partition(index, -number)[-number]) if number <= len(index) else 0.0

    def settle(
        self,
        state: State,
        looked: Ranked,
        chosen: NDArray[np.int64],
        limit: int,
        asked: float,
        more: bool,
        now: float,
    ) -> None:
        """Learn from a choice which sources to look at next.

        Arguments:
            chosen: places of those in `looked` that were chosen.
            limit: how many were wanted.
            asked: the price that was asked for.
            more: whether there may be others that are due.
        """
        self._renew(state, 2 * len(chosen), now)
        aim = self._aim(state, asked)
        if state.rows <= EXACT:
            if aim > self.price:
                self.price = aim
                self.rekey(state, looked.row[looked.rank < asked], now)
            return
        value, least = aim, asked
        enough = LOOKED_AT // 2 + 2 * limit
        if more and len(looked.row) > enough:
            # Too many are due. Only the best of these are looked at again before their index has
            # risen, so that others come into view.
            value = max(aim, self.price, float(np.partition(looked.gain, -enough)[-enough]))
            least = value if value > aim else asked
        self.price = max(self.price, value)
        late, others, useful = _postpone(
            state.table, state.shared, self.heap, self.marks, looked, chosen, least, value,
            state.rotation, now,
        )  # fmt: skip
        self._late.enter(late, self.marks)
        self._others.enter(others, self.marks)
        self.look = min(2 * self.look, _MOST) if more and useful else max(self.look // 2, LOOKED_AT)


@compiled
def _rekey(
    sources: Sources,
    shared: Shared,
    heap: Heap,
    marks: NDArray[np.uint8],
    rows: Rows,
    value: float,
    rotation: float,
    now: float,
) -> None:
    for k in range(len(rows)):
        i = whole(rows[k])
        marks[i] = 0
        heaps.move(heap, i, price.key_of(sources, shared, i, value, rotation, now))


@compiled
def _of_line(
    sources: Sources, hosts: Hosts, rows: Rows, line: int, now: float
) -> tuple[Rows, Rows]:
    """Return the rows that stand in a line: those that may leave it, and those whose hosts asked to
    be left alone."""
    here, free = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    for k in range(len(rows)):
        host = sources.host[rows[k]]
        here[k] = doors.limited(hosts, host) == line
        free[k] = doors.closed(hosts, host, now) == NO_HOST
    return rows[here & free], rows[here & ~free]


@compiled
def _with_tickets(
    sources: Sources,
    hosts: Hosts,
    rows: Rows,
    changed: NDArray[np.bool_],
    gone: NDArray[np.bool_],
) -> Rows:
    """Return the rows whose tickets are for lines that are gone.

    Arguments:
        changed: (H,) whether the limit of a host has changed, so that they stood in another line.
        gone: (H,) whether the line of a host is.
    """
    found = np.zeros(len(rows), np.bool_)
    for k in range(len(rows)):
        host = sources.host[rows[k]]
        while host != NO_HOST and not gone[host]:
            if hosts.interval[host] > 0.0 and not changed[host]:
                break
            host = hosts.within[host]
        found[k] = host != NO_HOST and gone[host]
    return rows[found]


@compiled
def _postpone(
    sources: Sources,
    shared: Shared,
    heap: Heap,
    marks: NDArray[np.uint8],
    looked: Ranked,
    chosen: NDArray[np.int64],
    least: float,
    value: float,
    rotation: float,
    now: float,
) -> tuple[Rows, Rows, bool]:
    """Compute new keys of those that were looked at and not chosen and whose index is below
    `least`, or whose maximum interval has passed.

    Those that are due at any price have the key of their index, and are returned if they do not
    wait in a queue yet: those past their maximum intervals, and others. Also return whether most of
    the new keys are later than now.
    """
    late, others = np.empty(len(looked.row), np.int32), np.empty(len(looked.row), np.int32)
    first, second, number, later = 0, 0, 0, 0
    taken = np.zeros(len(looked.row), np.bool_)
    for k in range(len(chosen)):
        taken[chosen[k]] = True
    for k in range(len(looked.row)):
        past = looked.reason[k] == CEILING
        if taken[k] or not (past or looked.gain[k] < least):
            continue
        i = whole(looked.row[k])
        key = price.key_of(sources, shared, i, value, rotation, now)
        if key <= now and price.index_now(sources, shared, i, now) < value:
            key = price.key_by_index(sources, shared, i, value, now)
            if marks[i] != QUEUED:
                marks[i] = QUEUED
                if past:
                    late[first] = i
                    first += 1
                else:
                    others[second] = i
                    second += 1
        else:
            marks[i] = 0
        heaps.move(heap, i, key)
        number += 1
        if key > now:
            later += 1
    return late[:first], others[:second], 2 * later > number


@compiled
def _renew(
    sources: Sources,
    shared: Shared,
    heap: Heap,
    marks: NDArray[np.uint8],
    start: int,
    number: int,
    rows: int,
    value: float,
    rotation: float,
    now: float,
) -> None:
    """Compute the keys of some rows, cyclically from one on, except of those that stand in line."""
    for k in range(number):
        i = whole((start + k) % rows)
        if marks[i] == 0:
            key = price.key_of(sources, shared, i, value, rotation, now)
        elif marks[i] == QUEUED:
            key = price.key_by_index(sources, shared, i, value, now)
        else:
            continue
        if key != heap.key[i]:
            heaps.move(heap, i, key)


@compiled
def _free_indices(
    sources: Sources, shared: Shared, rows: int, step: int, now: float
) -> NDArray[np.float64]:
    """Return the indices of every so many-th source, of those that can be fetched."""
    found, number = np.empty(rows // step + 1), 0
    for i in range(0, rows, step):
        if price.floored(sources, shared, i, -np.inf, np.inf) <= now:
            found[number] = price.index_now(sources, shared, i, now)
            number += 1
    return found[:number]


@compiled
def _candidates(
    sources: Sources,
    hosts: Hosts,
    heap: Heap,
    marks: NDArray[np.uint8],
    late: Rows,
    others: Rows,
    most: int,
    limit: int,
    now: float,
) -> tuple[Rows, Rows, Rows, int, int, tuple[int, int]]:
    """Return sources that may be due, each once: from the heap at most `most`, and the first
    `limit` of both queues.

    Returns:
        Those whose hosts accept any number of fetches now; those of limited hosts, and the hosts or
        domains in front of which they stand; how many were found in the heap, and how many of these
        are among the first; and how many at the beginning of each queue have left it. Sources of
        hosts that have no limit and asked to be left alone wait in the heap until then.
    """
    of_late, gone_late = heads(late, marks, limit)
    of_others, gone_others = heads(others, marks, limit)
    of_heap = heaps.due(heap, now, most)
    room = len(of_late) + len(of_others) + len(of_heap)
    free, limited = np.empty(room, np.int32), np.empty(room, np.int32)
    lines = np.empty(room, np.int32)
    number, others_number, of_heap_number = 0, 0, 0
    for part, rows in enumerate((of_heap, of_late, of_others)):
        for k in range(len(rows)):
            i = whole(rows[k])
            if part > 0 and marks[i] != QUEUED:  # seen before, or sent away
                continue
            host = sources.host[i]
            line = doors.limited(hosts, host)
            until = -np.inf
            while host != line:
                until = max(until, hosts.blocked[host])
                host = hosts.within[host]
            if until > now:
                marks[i] = 0
                heaps.move(heap, i, until)
                continue
            if line != NO_HOST:
                limited[others_number], lines[others_number] = i, line
                others_number += 1
            else:
                free[number] = i
                number += 1
            if marks[i] == QUEUED:
                marks[i] = _SEEN
        if part == 0:
            of_heap_number = number
    for rows in (free[:number], limited[:others_number]):
        for k in range(len(rows)):
            if marks[rows[k]] == _SEEN:
                marks[rows[k]] = QUEUED
    return (
        free[:number],
        limited[:others_number],
        lines[:others_number],
        len(of_heap),
        of_heap_number,
        (gone_late, gone_others),
    )
