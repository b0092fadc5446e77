"""Which of the sources that are due come first, why they are due, and when the next one is."""

from __future__ import annotations

import math
from heapq import heapify, heappop
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.scheduling.age_index import signed
from agents.theory.price import first_near
from crawl_env.compiled import compiled
from ephemeral_crawl.live import hosts as doors
from ephemeral_crawl.live import life, price
from ephemeral_crawl.live.columns import NEVER, NO_HOST, Hosts, Sources
from ephemeral_crawl.live.learning import Shared
from ephemeral_crawl.live.tags import NOTHING_LEFT

if TYPE_CHECKING:
    from ephemeral_crawl.live.state import State

Rows = NDArray[np.int32]

NEW, CEILING, ROTATION, SIGNAL, INDEX, RETRY = range(6)  # reasons
OVERDUE = 1.5  # rotations after which a source comes before those that were fetched since
_FIRST = 1e30  # by which its rank is multiplied
_LATE = 1e13  # seconds
_ROUNDING = 1e-9
_AGAIN = 1.0  # seconds to which the next time is determined
_HORIZON = 3.2e9  # seconds
_LOOKS = 20_000  # at sources, one second after the other, in search of the next time
_OVERHEAD = 20  # sources that can be looked at in the time that it takes to begin


@compiled
def rank_of(
    sources: Sources, shared: Shared, i: int, threshold: float, rotation: float, now: float
) -> tuple[float, float, int]:
    """Return index, rank and reason of source i, which can be fetched.

    The rank is the index, or if it is higher and the source is new or its exploration interval has
    passed, the price that is asked for, and more the longer it waits; past the maximum interval it
    is minus the time at which it passed, or the index if the source was not tried yet.
    """
    index = price.index_now(sources, shared, i, now)
    interval = price.exploration_interval(sources, shared, i, rotation)
    attempt = life.tried_at(sources, i)
    rotation = price.rotation_of(sources, i, rotation)
    since, rank = now - attempt, index
    reason = SIGNAL if sources.pending[i] > 0.0 else INDEX
    if attempt == NEVER:
        rank = _exploration_rank(index, threshold, now - sources.pinged[i], interval, rotation)
        reason = NEW
    elif since >= interval:
        rank = _exploration_rank(index, threshold, since, interval, rotation)
        if index < threshold:
            reason = ROTATION
    if sources.failures[i] > 0:
        reason = RETRY
    longest = price.longest_interval(sources, shared, i)
    if since >= longest and longest < np.inf:
        reason, rank = CEILING, index
        if attempt != NEVER:
            rank = -(attempt + longest)
    return index, rank, reason


@compiled
def _exploration_rank(
    index: float, least: float, since: float, interval: float, rotation: float
) -> float:
    """Return the rank of a source that is new, or was not tried for its exploration interval: what
    is lost until it is tried grows with the time."""
    rank = max(index, least * max(since / interval, 1.0))
    return _FIRST * since / rotation * rank if since >= OVERDUE * rotation else rank


@compiled
def order_of(rank: float, reason: int) -> float:
    """Return a number by which sources are in order: past their maximum intervals, of higher rank.

    >>> ranks = [(1.7, CEILING), (-1.7e9, CEILING), (-1.8e9, CEILING), (0.2, NEW), (0.1, INDEX)]
    >>> [order_of(*rank) for rank in ranks] == sorted(order_of(*rank) for rank in ranks)
    True
    """
    if reason == CEILING and rank < 0.0:
        return -_LATE - rank
    order = -math.log(max(rank, 1e-300))
    return -10.0 * _LATE + 1e3 * order if reason == CEILING else order


class Ranking(NamedTuple):
    """The sources that are compared, (K,) each."""

    row: Rows
    gain: NDArray[np.float64]  # the index
    rank: NDArray[np.float64]  # see `rank_of`
    reason: NDArray[np.uint8]


@compiled
def ranks(
    sources: Sources, shared: Shared, rows: Rows, threshold: float, rotation: float, now: float
) -> Ranking:
    """Return index, rank and reason of sources."""
    index, rank = np.empty(len(rows)), np.empty(len(rows))
    reason = np.empty(len(rows), np.uint8)
    for k in range(len(rows)):
        i = signed(rows[k])
        index[k], rank[k], reason[k] = rank_of(sources, shared, i, threshold, rotation, now)
    return Ranking(rows, index, rank, reason)


class Purse(NamedTuple):
    """The budget units that can be spent at present."""

    balance: float
    burst: float  # the most that can be saved up
    room: NDArray[np.float64]  # (T,) that may be spent on sources of each tag


@compiled
def pick(
    sources: Sources, hosts: Hosts, ranking: Ranking, threshold: float, purse: Purse, limit: int
) -> NDArray[np.int64]:
    """Return the places of the sources to fetch, in order: one for each limited host and domain,
    as long as the budget lasts. First come those past their maximum interval, of equal ones those
    of higher rank, of equal ones those of a lower row."""
    candidates = [
        (ranking.reason[k] != CEILING, -ranking.rank[k], ranking.row[k], k)
        for k in range(len(ranking.row))
        if ranking.reason[k] == CEILING or ranking.rank[k] >= threshold
    ]
    heapify(candidates)
    places = np.empty(min(limit, len(candidates)), np.int64)
    busy = [NO_HOST]  # limited hosts and domains
    balance, room = purse.balance, purse.room.copy()
    number = 0
    while len(candidates) > 0 and number < limit:
        _, _, i, k = candidates[0]
        cost = np.float64(sources.cost[i])
        # What costs more than a full bucket holds is fetched when the bucket is full.
        if balance < min(cost, purse.burst) - _ROUNDING:
            break
        heappop(candidates)
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
        places[number] = k
        number += 1
    return places[:number]


def next_time(state: State, now: float) -> float:
    """Return when a lease next returns something, to a second, if nothing else happens.

    It can be earlier, but not later: in fleets of more than `agenda.EXACT` sources it is the time
    at which the first source comes into view; and where the budget suffices for a source that is
    due, but not for a dearer one that comes first, each following second is looked at, up to 900
    in small fleets and 19 in those of `agenda.EXACT` sources.
    """
    if len(state.agenda.choose(state, 1, now).row):
        return now
    if not state.agenda.is_exact(state):
        return max(_first_in_view(state), now)
    s, all_rows = state.settings, np.arange(state.rows, dtype=np.int32)
    cheapest = min(float(state.table["cost"][all_rows].min(initial=math.inf)), s.burst) - _ROUNDING
    delay = (cheapest - state.balance_at(now)) / s.budget
    rows, most = all_rows, state.accepted_at(now)

    def anything(wait: float) -> bool:
        """Return whether any source is due and paid for after a time, in whole seconds. If so, no
        others than those that are due then are due before.

        The price that is asked for may rise before it falls, and is never below the lower of what
        it is at the beginning and at the end.
        """
        nonlocal rows
        then = now + math.ceil(wait)
        _, cost, due = _due_at(state, rows, min(most, state.accepted_at(then)), then)
        if pays := _pays(state, cost, then):
            rows = due
        return pays

    least = min(max(delay, _AGAIN), _HORIZON)
    low, high = first_near(anything, least, least, _HORIZON, distance=_AGAIN)
    if not low < _HORIZON:
        return math.inf
    then = now + math.ceil(high)
    for _ in range(_LOOKS // (_OVERHEAD + state.rows)):
        cost, _, _ = _due_at(state, all_rows, state.accepted_at(then), then)
        if _pays(state, cost, then):
            break
        then += 1.0
    return then


def _first_in_view(state: State) -> float:
    s, heap = state.settings, state.agenda.times
    credit_time = state.time - min(state.balance, 0.0) / s.budget
    opening = state.agenda.queues.openings[0][0] if state.agenda.queues.openings else math.inf
    first = float(heap.key[heap.order[0]]) if heap.size[0] else math.inf
    return max(min(first, opening), credit_time)


def _pays(state: State, cost: float, now: float) -> bool:
    """Return whether the budget suffices for a cost at a time, infinite if nothing is due."""
    balance = state.balance_at(now)
    return (
        cost < math.inf and balance > 0.0 and balance >= min(cost, state.settings.burst) - _ROUNDING
    )


def _due_at(state: State, rows: Rows, threshold: float, now: float) -> tuple[float, float, Rows]:
    """Return what the first of the sources that are due at a time costs, what the cheapest one
    does, both infinite if there are none, and these sources."""
    opens = state.tags_open()
    return _due(state.table, state.shared, rows, threshold, state.rotation, opens, now)


@compiled
def _due(
    sources: Sources,
    shared: Shared,
    rows: Rows,
    threshold: float,
    rotation: float,
    opens: NDArray[np.float64],
    now: float,
) -> tuple[float, float, Rows]:
    best, first, least, ceiling = -np.inf, np.inf, np.inf, False
    due, number = np.empty(len(rows), np.int32), 0
    for k in range(len(rows)):
        i = signed(rows[k])
        if price.floored(sources, shared, i, -np.inf, rotation) > now:
            continue
        if max(doors.accepts_at(shared.hosts, sources.host[i]), opens[sources.tag[i]]) > now:
            continue
        _, rank, reason = rank_of(sources, shared, i, threshold, rotation, now)
        if reason != CEILING and rank < threshold:
            continue
        due[number] = rows[k]
        number += 1
        cost = np.float64(sources.cost[i])
        least = min(least, cost)
        if (reason == CEILING, rank) > (ceiling, best):
            best, first, ceiling = rank, cost, reason == CEILING
    return first, least, due[:number]
