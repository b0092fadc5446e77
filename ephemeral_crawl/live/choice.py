"""Which of the sources that are due come first, and when the next one is due."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.scheduling.age_index import whole
from crawl_env.compiled import compiled
from ephemeral_crawl.live import hosts as doors
from ephemeral_crawl.live import price
from ephemeral_crawl.live.columns import NO_HOST, Hosts, Sources
from ephemeral_crawl.live.learning import Shared
from ephemeral_crawl.live.rank import CEILING, rank_of
from ephemeral_crawl.live.tags import NOTHING_LEFT

if TYPE_CHECKING:
    from ephemeral_crawl.live.state import State

Rows = NDArray[np.int32]

_ROUNDING = 1e-9
_AGAIN = 1.0  # seconds to which the next time is determined
_HORIZON = 3.2e9  # seconds


class Ranked(NamedTuple):
    """The sources that are compared, (K,) each."""

    row: Rows
    gain: NDArray[np.float64]  # the index
    rank: NDArray[np.float64]  # see `rank_of`
    reason: NDArray[np.uint8]


@compiled
def ranks(
    sources: Sources, shared: Shared, rows: Rows, asked: float, rotation: float, now: float
) -> Ranked:
    """Return index, rank and reason of sources."""
    index, rank = np.empty(len(rows)), np.empty(len(rows))
    reason = np.empty(len(rows), np.uint8)
    for k in range(len(rows)):
        i = whole(rows[k])
        index[k], rank[k], reason[k] = rank_of(sources, shared, i, asked, rotation, now)
    return Ranked(rows, index, rank, reason)


@compiled
def pick(
    sources: Sources,
    hosts: Hosts,
    looked: Ranked,
    asked: float,
    balance: float,
    burst: float,
    room: NDArray[np.float64],
    limit: int,
) -> NDArray[np.int64]:
    """Return the places of the sources to fetch, in order: one for each limited host and domain,
    as long as the budget lasts."""
    waiting, size = np.empty(len(looked.row), np.int64), 0  # a heap of places, the best first
    for k in range(len(looked.row)):
        if looked.reason[k] == CEILING or looked.rank[k] >= asked:
            waiting[size] = k
            size += 1
    for at in range(size // 2 - 1, -1, -1):
        _sink(looked, waiting, at, size)
    chosen = np.empty(min(limit, size), np.int64)
    busy = [NO_HOST]  # limited hosts and domains
    number = 0
    while size > 0 and number < limit:
        k = waiting[0]
        i = looked.row[k]
        cost = np.float64(sources.cost[i])
        # What costs more than a full bucket holds is fetched when the bucket is full.
        if balance < min(cost, burst) - _ROUNDING:
            break
        size -= 1
        waiting[0] = waiting[size]
        _sink(looked, waiting, 0, size)
        if not room[sources.tag[i]] > NOTHING_LEFT:
            continue
        first = host = doors.limited(hosts, sources.host[i])
        while host != NO_HOST and host not in busy:
            host = doors.limited(hosts, hosts.within[host])
        if host != NO_HOST:
            continue
        while first != NO_HOST:
            busy.append(first)
            first = doors.limited(hosts, hosts.within[first])
        balance -= cost
        room[sources.tag[i]] -= cost
        chosen[number] = k
        number += 1
    return chosen[:number]


@compiled
def _sink(looked: Ranked, waiting: NDArray[np.int64], at: int, size: int) -> None:
    """Move a place down in a heap until it comes before those below it."""
    k = waiting[at]
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and _comes_before(looked, waiting[below + 1], waiting[below]):
            below += 1
        if not _comes_before(looked, waiting[below], k):
            break
        waiting[at] = waiting[below]
        at = below
    if size > 0:
        waiting[at] = k


@compiled
def _comes_before(looked: Ranked, k: int, other: int) -> bool:
    """Return whether a source is fetched before another: past its maximum interval, of higher rank,
    of a lower row."""
    late, other_late = looked.reason[k] == CEILING, looked.reason[other] == CEILING
    if late != other_late:
        return late
    if looked.rank[k] != looked.rank[other]:
        return looked.rank[k] > looked.rank[other]
    return looked.row[k] < looked.row[other]


def next_time(state: State, now: float) -> float:
    """Return when a lease next returns something, to a second, if nothing else happens.

    In fleets of more than `agenda.EXACT` sources it is the time at which the first source comes
    into view, which can be earlier.
    """
    if len(state.agenda.choose(state, 1, now).row):
        return now
    if not state.agenda.is_exact(state):
        return max(_first_in_view(state), now)
    step = _AGAIN
    while not _anything(state, now + step):
        step *= 2.0
        if step > _HORIZON:
            return math.inf
    low, high = 0.5 * step if step > _AGAIN else 0.0, step
    while high - low > _AGAIN:
        middle = 0.5 * (low + high)
        if _anything(state, now + middle):
            high = middle
        else:
            low = middle
    return now + high


def _first_in_view(state: State) -> float:
    s, heap = state.settings, state.agenda.times
    paid = state.time - min(state.balance, 0.0) / s.budget
    opening = state.agenda.queues.openings[0][0] if state.agenda.queues.openings else math.inf
    first = float(heap.key[heap.order[0]]) if heap.size[0] else math.inf
    return max(min(first, opening), paid)


def _anything(state: State, now: float) -> bool:
    """Return whether a source can be leased at a time."""
    return anything(
        state.table,
        state.hosts_table,
        state.shared,
        state.rows,
        state.accepted_at(now),
        state.balance_at(now),
        state.settings.burst,
        state.rotation,
        state.tags_open(),
        now,
    )


@compiled
def anything(
    sources: Sources,
    hosts: Hosts,
    shared: Shared,
    rows: int,
    asked: float,
    balance: float,
    burst: float,
    rotation: float,
    opens: NDArray[np.float64],
    now: float,
) -> bool:
    """Return whether the first of all sources that are due can be leased at a time."""
    best, best_cost, ceiling = -np.inf, 0.0, False
    for i in range(rows):
        if price.floored(sources, shared, i, -np.inf, rotation) > now:
            continue
        if max(doors.accepts_at(hosts, sources.host[i]), opens[sources.tag[i]]) > now:
            continue
        _, rank, reason = rank_of(sources, shared, i, asked, rotation, now)
        if (reason == CEILING, rank) > (ceiling, best):
            best, best_cost, ceiling = rank, np.float64(sources.cost[i]), reason == CEILING
    if balance <= 0.0 or balance < min(best_cost, burst) - _ROUNDING:
        return False
    return ceiling or best >= asked
