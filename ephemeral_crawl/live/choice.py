"""Which sources a lease gives: those that are due, best first, within budget and politeness."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ephemeral_crawl.live import heap as heaps
from ephemeral_crawl.live import price
from ephemeral_crawl.live.columns import NEVER, NO_HOST
from ephemeral_crawl.live.state import State

Rows = NDArray[np.int32]

_ROUNDING = 1e-9
_FEW = 256  # candidates that are looked at one by one
_STALE = 0.005  # time constants of the decay after which a ranking is made again
_AGAIN = 1.0  # seconds to which the next time is determined


class Choice(NamedTuple):
    """A source that is due."""

    row: int
    gain: float  # its index
    reason: str  # "new", "ceiling", "rotation", "signal" or "index"


def choose(state: State, limit: int, now: float) -> list[Choice]:
    """Return the sources to fetch now, at most `limit`.

    First come the sources whose maximum interval has passed, then all others in decreasing order of
    their index, as long as it is at least the price. Sources that are new, or that were not fetched
    for a whole rotation, count as if their index were at least the price.
    """
    balance = state.balance_at(now)
    if not balance > 0.0:
        return []
    state.update_keys(now)
    rows = _candidates(state, limit, now)
    if not len(rows):
        return []
    sources, accepted = state.sources, state.accepted_at(now)
    index, rank, late, new = _ranks(state, rows, accepted, now)
    order = np.lexsort((rows, -rank, ~late))
    chosen: list[Choice] = []
    busy: set[int] = set()
    burst = state.settings.burst
    for k in order:
        i = int(rows[k])
        if len(chosen) == limit or not (late[k] or rank[k] >= accepted):
            break
        cost = float(sources.cost[i])
        # What costs more than a full bucket holds is fetched when the bucket is full.
        if balance < min(cost, burst) - _ROUNDING:
            break
        host = int(sources.host[i])
        if host != NO_HOST and state.hosts.interval[host] > 0.0:
            if host in busy:
                continue
            busy.add(host)
        balance -= cost
        reason = (
            "ceiling" if late[k] else
            "new" if new[k] else
            "signal" if index[k] >= accepted and sources.pending[i] > 0.0 else
            "index" if index[k] >= accepted else
            "rotation"
        )  # fmt: skip
        chosen.append(Choice(i, float(index[k]), reason))
    return chosen


def _ranks(
    state: State, rows: Rows, accepted: float, now: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return index and rank of sources, and whether their ceiling has passed and they are new."""
    sources = state.sources
    index = price.indices(sources, state.shared, rows, now)
    since = now - sources.fetched[rows]
    new = sources.fetched[rows] == NEVER
    late = ~new & (since >= sources.longest[rows])
    turn = ~new & (since >= state.rotation)
    return index, np.where(new | turn, np.maximum(index, accepted), index), late, new


def _candidates(state: State, limit: int, now: float) -> Rows:
    """Return the sources among which to choose, whose hosts accept a fetch.

    Where there are many, they are ranked now and then, and only the first of the ranking, and those
    that have become candidates since, are looked at.
    """
    fresh = heaps.due(state.heap, now)
    stale = abs(now - state.ranked_at) > _STALE / state.shared.decay
    if len(fresh) > _FEW + len(state.ranking) // 4 or (stale and len(state.ranking)):
        rows = np.concatenate([state.ranking[state.ranked[state.ranking]], fresh])
        _, rank, late, _ = _ranks(state, rows, state.accepted_at(now), now)
        state.rank(rows[np.lexsort((rows, -rank, ~late))], now)
        fresh = fresh[:0]
    fresh = _with_open_host(state, fresh, now)
    if not len(state.ranking):
        return fresh
    # The ranking is cut where all before is no longer valid, and read until there are enough.
    enough, start, found = 2 * limit + _FEW, 0, [fresh]
    valid = state.ranked[state.ranking]
    state.ranking = state.ranking[int(valid.argmax()) if valid.any() else len(valid) :]
    number = 0
    while number < enough and start < len(state.ranking):
        part = state.ranking[start : start + enough]
        part = _with_open_host(state, part[state.ranked[part]], now)
        found.append(part)
        start, number = start + enough, number + len(part)
    return np.concatenate(found)


def _with_open_host(state: State, rows: Rows, now: float) -> Rows:
    """Return the sources whose host accepts a fetch; the others are moved to when it does."""
    if not len(state.host_names) or not len(rows):
        return rows
    hosts = state.hosts
    limited = hosts.interval > 0.0
    last = np.where(limited, np.maximum(hosts.fetched + hosts.interval, hosts.held), -math.inf)
    opens = np.maximum(last, hosts.blocked)
    host = state.sources.host[rows]
    until = np.where(host == NO_HOST, -math.inf, opens[np.maximum(host, 0)])
    shut = until > now
    for i, at, time in zip(
        rows[shut].tolist(), host[shut].tolist(), until[shut].tolist(), strict=True
    ):
        heaps.move(state.heap, i, time)
        state.ranked[i] = False
        state.waiting.setdefault(at, set()).add(i)
    return rows[~shut]


def next_time(state: State, now: float) -> float:
    """Return when `choose` next returns something, to a second, if nothing else happens."""
    if choose(state, 1, now):
        return now
    step = _AGAIN
    while not choose(state, 1, now + step):
        step *= 2.0
        if step > 3.2e9:
            return math.inf
    low, high = 0.5 * step if step > _AGAIN else 0.0, step
    while high - low > _AGAIN:
        middle = 0.5 * (low + high)
        if choose(state, 1, now + middle):
            high = middle
        else:
            low = middle
    return now + high
