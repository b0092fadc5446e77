"""The rank of a source among those that are due, and the reason why it is."""

from __future__ import annotations

import math

import numpy as np

from crawl_env.compiled import compiled
from ephemeral_crawl.live import life, price
from ephemeral_crawl.live.columns import NEVER, Sources
from ephemeral_crawl.live.learning import Shared

NEW, CEILING, ROTATION, SIGNAL, INDEX, RETRY = range(6)  # reasons
OVERDUE = 1.5  # rotations after which a source comes before those that were fetched since
_FIRST = 1e30  # by which its rank is multiplied
_LATE = 1e13  # seconds


@compiled
def rank_of(
    sources: Sources, shared: Shared, i: int, asked: float, rotation: float, now: float
) -> tuple[float, float, int]:
    """Return index, rank and reason of source i, which can be fetched.

    The rank is the index, or if it is higher and the source is new or its exploration interval has
    passed, the price that is asked for, and more the longer it waits; past the maximum interval it
    is minus the time at which it passed, or the index if the source was not tried yet.
    """
    index = price.index_now(sources, shared, i, now)
    interval = price.exploration_interval(sources, shared, i, rotation)
    tried = life.tried_at(sources, i)
    rotation = price.rotation_of(sources, i, rotation)
    since, rank = now - tried, index
    reason = SIGNAL if sources.pending[i] > 0.0 else INDEX
    if tried == NEVER:
        rank = _explored(index, asked, now - sources.pinged[i], interval, rotation)
        reason = NEW
    elif since >= interval:
        rank = _explored(index, asked, since, interval, rotation)
        if index < asked:
            reason = ROTATION
    if sources.failures[i] > 0:
        reason = RETRY
    longest = price.longest_interval(sources, shared, i)
    if since >= longest and longest < np.inf:
        reason, rank = CEILING, index
        if tried != NEVER:
            rank = -(tried + longest)
    return index, rank, reason


@compiled
def _explored(index: float, asked: float, since: float, interval: float, rotation: float) -> float:
    """Return the rank of a source that is new, or was not tried for its exploration interval: what
    is lost until it is tried grows with the time."""
    rank = max(index, asked * max(since / interval, 1.0))
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
