"""The scheduler in numbers, and the estimates of all sources, without the reasons."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crawl_env.compiled import compiled
from crawl_env.numerics import BoolArray, FloatArray, IntArray
from ephemeral_crawl.live import learning, life, outcomes, price
from ephemeral_crawl.live.columns import EXISTS, LOOKS, NEVER, NO_HOST, STOPPED, Sources
from ephemeral_crawl.live.explanation import cause_of_failure
from ephemeral_crawl.live.learning import Shared
from ephemeral_crawl.live.reporting import Counts
from ephemeral_crawl.live.state import State
from ephemeral_crawl.live.tags import TagStatus

_COUNTED = 16_384  # largest number of sources of which those that are due are counted


@dataclass(frozen=True)
class Status:
    """The scheduler in numbers."""

    sources: int
    paused: int
    new: int  # not tried yet
    failing: int  # of which the last fetch failed
    leased: int
    due: int  # that may be fetched, and whose index has reached the price; estimated if very many
    price: float  # worth per budget unit
    balance: float  # budget units that can be spent now
    budget: float  # budget units per hour
    counts: Counts  # since the scheduler was made


def status(state: State, now: float) -> Status:
    """Return the scheduler in numbers, which takes no longer in large fleets."""
    value, numbers = state.price_at(now), state.numbers_of.tolist()
    step = state.rows // _COUNTED + 1
    return Status(
        sources=len(state),
        paused=numbers[outcomes.PAUSED],
        new=numbers[outcomes.NEW],
        failing=numbers[outcomes.FAILING],
        leased=sum([end > now for _, end, _ in state.leases.values()]),
        due=min(step * _due(state.table, state.shared, state.rows, step, value, now), len(state)),
        price=value,
        balance=state.balance_at(now),
        budget=round(3600.0 * state.settings.budget, 12),
        counts=Counts(*state.counts.tolist()),
    )


def tags(state: State, now: float) -> list[TagStatus]:
    """Return the tags in numbers, if there are any."""
    if not state.tagged:
        return []
    table = state.table[: state.rows]
    number = np.bincount(table["tag"][(table["marks"] & EXISTS) != 0])
    budget, value = state.settings.budget, state.price_at(now)
    bounds = state.tags.bounds(budget)
    return [
        TagStatus(
            tag=name or "",
            sources=int(number[k]) if k < len(number) else 0,
            paused=bool(row["paused"]),
            least=round(3600.0 * float(bounds[0][k]), 9) or None,
            most=round(3600.0 * most, 9) if most < math.inf else None,
            # Attempts at sources that fail are limited by the budgets alone.
            spends=3600.0 * min(float(row["spends"]), most, budget) if state.tags.bounded else None,
            spent=float(row["spent"]),
            price=value * float(row["factor"]),
            multiplier=value * (float(row["factor"]) - 1.0) if state.tags.binds(k) else 0.0,
            binds=state.tags.binds(k),
            least_set=texts[0],
            most_set=texts[1],
            least_part=float(row["least_part"]),
            most_part=float(row["most_part"]),
        )
        for k, (name, row) in enumerate(zip(state.tags.names, state.tags.table, strict=True))
        if name is not None or k == 0
        for texts, most in ((state.tags.bound_texts(k), float(bounds[1][k])),)
    ]


@compiled
def _due(sources: Sources, shared: Shared, rows: int, step: int, value: float, now: float) -> int:
    """Return how many of every so many-th row are of sources that are due at a price."""
    number = 0
    for i in range(0, rows, step):
        host = sources.host[i]
        may_be_leased = price.floored(sources, shared, i, -np.inf, np.inf) <= now and (
            host == NO_HOST or shared.hosts.blocked[host] <= now
        )
        if may_be_leased and price.index_now(sources, shared, i, now) >= value:
            number += 1
    return number


class Outline(NamedTuple):
    """The estimates of N sources: columns with the names and units of `Explanation`."""

    source: list[str]
    cause: list[str]
    rate: FloatArray  # (N,)
    worth: FloatArray  # (N,)
    half_life: FloatArray  # (N,)
    answering_soon: FloatArray  # (N,)
    dead: FloatArray  # (N,)
    interval: FloatArray  # (N,), infinite if there is none
    cost: FloatArray  # (N,) budget units of a fetch, as declared
    failures: IntArray  # (N,)
    fetched: BoolArray  # (N,), whether it ever was
    passed_over: BoolArray  # (N,), whether its last lease came to nothing for a known reason
    paused: BoolArray  # (N,)
    announces: BoolArray  # (N,)


def outline(state: State, now: float) -> Outline:
    """Return the estimates of all sources."""
    rows = np.flatnonzero(state.table["marks"][: state.rows] & EXISTS)
    table, names = state.table[rows], state.names[:]
    marks, failures = table["marks"], table["failures"].astype(np.int64)
    value = state.price_at(now)
    rate, worth, half_life, answering_soon, dead, interval = _columns(
        state.table, state.shared, rows, value, state.rotation, now
    )
    return Outline(
        source=[names[i] or "" for i in rows.tolist()],
        cause=[
            cause_of_failure(state, i) if failed else ""
            for i, failed in zip(rows.tolist(), failures.tolist(), strict=True)
        ],
        rate=rate,
        worth=worth,
        half_life=half_life,
        answering_soon=answering_soon,
        dead=dead,
        interval=interval,
        cost=table["cost"].astype(np.float64),
        failures=failures,
        fetched=table["fetched"] != NEVER,
        passed_over=np.isin(rows, list(state.reasons.failures)),
        paused=(marks & STOPPED) != 0,
        announces=(marks & LOOKS) != 0,
    )


@compiled
def _columns(
    sources: Sources,
    shared: Shared,
    rows: NDArray[Any],
    value: float,
    rotation: float,
    now: float,
) -> FloatArray:
    """Return the columns from `rate` to `interval`, (6, N)."""
    columns = np.empty((6, len(rows)))
    for k in range(len(rows)):
        i = rows[k]
        estimate = learning.belief(sources, shared, i)
        columns[0, k] = 3600.0 * (estimate.silent + estimate.precision * estimate.ping_rate)
        columns[1, k] = estimate.worth / sources.importance[i]
        columns[2, k] = math.log(2.0) / estimate.decay
        columns[3, k] = life.answering_soon(sources, shared, i, now)
        columns[4, k] = life.dead(sources, shared, i)
        columns[5, k] = price.interval_at(sources, shared, i, value, rotation)
    return columns
