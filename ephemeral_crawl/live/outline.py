"""What is known about all sources, without the reasons."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crawl_env.compiled import compiled
from crawl_env.numerics import BoolArray, FloatArray, IntArray
from ephemeral_crawl.live import learning, life, price
from ephemeral_crawl.live.columns import EXISTS, LOOKS, NEVER, STOPPED, Sources
from ephemeral_crawl.live.explanation import cause_of_failure
from ephemeral_crawl.live.learning import Shared
from ephemeral_crawl.live.state import State


class Outline(NamedTuple):
    """What is known about N sources: columns with the names and units of `Explanation`."""

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
    """Return what is known about all sources."""
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
    found = np.empty((6, len(rows)))
    for k in range(len(rows)):
        i = rows[k]
        known = learning.belief(sources, shared, i)
        found[0, k] = 3600.0 * (known.silent + known.precision * known.ping_rate)
        found[1, k] = known.worth / sources.importance[i]
        found[2, k] = math.log(2.0) / known.decay
        found[3, k] = life.answering_soon(sources, shared, i, now)
        found[4, k] = life.dead(sources, shared, i)
        found[5, k] = price.interval_at(sources, shared, i, value, rotation)
    return found
