"""The rank of a source among those that are due, and the reason why it is."""

from __future__ import annotations

import math

import numpy as np

from crawl_env.compiled import compiled
from ephemeral_crawl.live import price
from ephemeral_crawl.live.columns import NEVER, Sources
from ephemeral_crawl.live.learning import Shared

NEW, CEILING, ROTATION, SIGNAL, INDEX = range(5)  # reasons
PATIENCE = 1.5  # rotations after which a source comes before those that were fetched since
_FIRST = 1e30  # by which its rank is multiplied
_LATE = 1e13  # seconds


@compiled
def rank_of(
    sources: Sources, shared: Shared, i: int, asked: float, rotation: float, now: float
) -> tuple[float, float, int]:
    """Return index, rank and reason of source i, which can be fetched.

    The rank is the index, or the price that is asked for if it is higher and others ask for a
    fetch; past the maximum interval it is minus the time at which it passed, or the index if the
    source was not fetched yet.
    """
    index = price.index_now(sources, shared, i, now)
    since, rank = now - sources.fetched[i], index
    reason = SIGNAL if sources.pending[i] > 0.0 else INDEX
    if sources.fetched[i] == NEVER:
        rank, reason = _in_turn(index, asked, now - sources.pinged[i], rotation), NEW
    elif since >= price.turn(sources, shared, i, rotation):
        rank = _in_turn(index, asked, since, rotation)
        if index < asked:
            reason = ROTATION
    if since >= sources.longest[i] and sources.longest[i] < np.inf:
        reason, rank = CEILING, index
        if sources.fetched[i] != NEVER:
            rank = -(sources.fetched[i] + np.float64(sources.longest[i]))
    return index, rank, reason


@compiled
def _in_turn(index: float, asked: float, since: float, rotation: float) -> float:
    """Return the rank of a source that was not fetched for its turn, or that is new."""
    rank = max(index, asked)
    return _FIRST * since / rotation * rank if since >= PATIENCE * rotation else rank


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
