"""The fleet at a glance: what is due and why, what fails or waits, what the budget buys."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crawl_env.compiled import compiled
from ephemeral_crawl.live import explanation, price
from ephemeral_crawl.live.columns import EXISTS, NO_HOST, PAUSED, Sources
from ephemeral_crawl.live.learning import Shared, belief
from ephemeral_crawl.live.state import State

BUDGETS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)  # ÷ the present one


@dataclass(frozen=True)
class Next:
    """A source that is due, or will be."""

    source: str
    due_at: float  # seconds since 1970
    reason: str
    value: float  # expected worth that a fetch would collect now
    index: float


@dataclass(frozen=True)
class Failing:
    """A source whose last fetch failed."""

    source: str
    failures: int  # consecutive
    again_at: float  # seconds since 1970
    reason: str  # why the last one did; "" if it is not known


@dataclass(frozen=True)
class Wait:
    """A host that accepts no fetch at present."""

    host: str
    sources: int
    until: float  # seconds since 1970


@dataclass(frozen=True)
class Overview:
    """The fleet at a glance."""

    due: list[Next]  # best first
    soon: list[Next]  # of those that are not due, in order of time
    failing: list[Failing]  # those that failed most often first
    hosts: list[Wait]  # those that wait longest first
    hosts_waiting: int  # of which `hosts` may be a part
    budgets: list[float]  # budget units per hour, ascending; the present one is among them
    collects: list[float]  # worth per hour that each collects, as far as is known
    published: float  # worth per hour that is published


@compiled
def worth_rate(
    sources: Sources,
    shared: Shared,
    which: NDArray[np.int64],
    price_: float,
    rotation: float,
    host_interval: NDArray[np.float64],
) -> tuple[float, float]:
    """Return the worth per second that some sources collect at a price, and publish.

    A source that is fetched every τ collects Λξ̄ (1 − e^−μτ)/(μτ). Sources of a host that accepts
    fewer fetches than that share them in proportion, which is how their costs are counted, too.
    """
    total, published = 0.0, 0.0
    fetches = np.zeros(len(host_interval))
    worths = np.zeros(len(host_interval))
    for k in range(len(which)):
        i = which[k]
        known = belief(sources, shared, i)
        ceiling, _ = price.planned(known, 0.0)
        published += ceiling * known.decay
        interval = max(price.interval_at(sources, shared, i, price_, rotation), 1.0)
        if interval == np.inf:
            continue
        worth = -ceiling * math.expm1(-known.decay * interval) / interval
        host = sources.host[i]
        if host != NO_HOST and host_interval[host] > 0.0:
            fetches[host] += 1.0 / interval
            worths[host] += worth
        else:
            total += worth
    for host in range(len(host_interval)):
        if fetches[host] > 0.0:
            total += worths[host] * min(1.0, 1.0 / (host_interval[host] * fetches[host]))
    return total, published


def overview(state: State, limit: int, now: float, offset: float) -> Overview:
    """Return the fleet at a glance.

    Arguments:
        limit: largest length of each list of sources or hosts.
        now: the scheduler's time.
        offset: what it adds to the clock's.
    """
    sources = state.sources
    value = state.price_at(now)
    limited = _limited(state)
    opens = np.array([state.host_open_at(host) for host in limited])
    shut, opens = limited[opens > now], opens[opens > now]
    keys = price.all_keys(sources, state.shared, state.rows, value, state.rotation, now)
    host = sources.host[: state.rows]
    due = np.flatnonzero((keys <= now) & ~np.isin(host, shut)).astype(np.int32)
    index = price.indices(sources, state.shared, due, now)
    later = np.where(keys > now, keys, math.inf)
    soon = _first(later, limit)
    fails = np.where(sources.marks[: state.rows] & EXISTS, sources.failures[: state.rows], 0)
    of_host = np.bincount(host[keys < math.inf] + 1, minlength=len(state.host_names) + 1)
    budgets, collects, published = _worths(state)
    return Overview(
        due=_nexts(state, due[_first(-index, limit)].tolist(), now, offset),
        soon=sorted(
            _nexts(state, soon[later[soon] < math.inf].tolist(), now, offset),
            key=lambda found: found.due_at,
        ),
        failing=[
            Failing(
                _name(state, i),
                int(fails[i]),
                max(float(sources.blocked[i]), now) - offset,
                (state.reasons.of(i) or (0.0, ""))[1],
            )
            for i in _first(-fails.astype(float), limit)
            if fails[i] > 0
        ],
        hosts=[
            Wait(state.host_names[shut[k]], int(of_host[shut[k] + 1]), float(opens[k]) - offset)
            for k in _first(-opens, limit)
        ],
        hosts_waiting=len(shut),
        budgets=budgets,
        collects=collects,
        published=published,
    )


def _first(key: NDArray[np.float64], limit: int) -> NDArray[np.int64]:
    """Return the positions of the smallest keys, in order."""
    if len(key) > limit:
        part = np.argpartition(key, limit - 1)[:limit]
        return part[np.argsort(key[part], kind="stable")]
    return np.argsort(key, kind="stable")


def _limited(state: State) -> NDArray[np.int64]:
    """Return the hosts that may accept no fetch at times."""
    number = len(state.host_names)
    hosts = state.hosts
    return np.flatnonzero((hosts.interval[:number] > 0.0) | (hosts.blocked[:number] > 0.0))


def _name(state: State, i: int) -> str:
    name = state.names[i]
    assert name is not None
    return name


def _nexts(state: State, rows: list[int], now: float, offset: float) -> list[Next]:
    found = []
    for i in rows:
        at, reason = explanation.next_due(state, i, now)
        found.append(
            Next(
                source=_name(state, i),
                due_at=at - offset,
                reason=reason,
                value=price.value_now(state.sources, state.shared, i, now),
                index=price.index_now(state.sources, state.shared, i, now),
            )
        )
    return found


def _worths(state: State) -> tuple[list[float], list[float], float]:
    """Return budgets, the worth that each collects, and that published, per hour."""
    which = state.existing()
    budgets = [3600.0 * state.settings.budget * factor for factor in BUDGETS]
    if not len(which):
        return budgets, [0.0] * len(budgets), 0.0
    running = (state.sources.marks[: state.rows] & (EXISTS | PAUSED)) == EXISTS
    part = len(which) / int(running.sum())
    collects, published, guess = [], 0.0, state.market
    wanted = price.demand(state.sources, state.shared, which)
    for factor in BUDGETS:
        rotation = state.rotation / factor
        guess = price.market_price(
            wanted, state.settings.budget * factor * part, rotation, state.hosts.interval, guess
        )
        worth, published = worth_rate(
            state.sources, state.shared, which, guess, rotation, state.hosts.interval
        )
        collects.append(3600.0 * worth / part)
    return budgets, collects, 3600.0 * published / part
