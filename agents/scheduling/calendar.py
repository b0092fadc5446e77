"""A timing wheel: which sources are due in which step.

Every source is in one bucket. The next 2048 steps have a bucket each; later ones share buckets of
256 steps, still later ones of 2¹⁹ steps, whose sources move to finer buckets in time. The last
bucket holds the sources that never become due. A bucket is a list of chunks of 31 sources, so that
its sources are read in sequence, and 4.13 bytes a source suffice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.scheduling.age_index import signed
from crawl_env.compiled import compiled

CHUNK = 32  # numbers in a chunk: the next chunk (0: none), and the sources
FULL = CHUNK - 1  # sources in a chunk
BATCH = 8 * FULL  # sources that are filed at a time; vector instructions take eight at once
_NEAR_BITS, _MIDDLE_BITS, _FAR_BITS = 11, 8, 19
_NEAR = 1 << _NEAR_BITS  # buckets of one step; also the number of buckets of 256
_FAR = 1 << (32 - _FAR_BITS)
_AHEAD = (_NEAR >> _MIDDLE_BITS) - 1  # buckets of 256 steps between now and the one that moves
NEVER_DUE = 2 * _NEAR + _FAR  # the last bucket
BUCKETS = NEVER_DUE + 1
LATEST = 2**32 - 1  # what becomes due in this step or later never does
# Positions in `Calendar.counters`.
FREE, USED, DETACHED, DETACHED_FILL, DETACHED_BUCKET, ENTRIES = range(6)


class Calendar(NamedTuple):
    """The arrays of a timing wheel. Chunks are numbered from 1."""

    chunks: NDArray[np.uint32]  # (C, CHUNK)
    head: NDArray[np.uint32]  # (BUCKETS,) first chunk, the only one that may be partly filled
    fill: NDArray[np.uint8]  # (BUCKETS,) number of sources in the first chunk
    counters: NDArray[np.int64]  # (6,) free and used chunks, the detached list, entries

    @staticmethod
    def empty(entries: int) -> Calendar:
        """Return a calendar without entries, with room for `entries` of them."""
        return Calendar(
            np.empty((chunks_for(entries), CHUNK), np.uint32),
            np.zeros(BUCKETS, np.uint32),
            np.zeros(BUCKETS, np.uint8),
            np.zeros(6, np.int64),
        )

    def with_room(self, more: int) -> Calendar:
        """Return the calendar with room for so many more entries."""
        needed = chunks_for(int(self.counters[ENTRIES]) + more)
        if needed <= len(self.chunks):
            return self
        chunks = np.empty((needed + needed // 8, CHUNK), np.uint32)
        chunks[: len(self.chunks)] = self.chunks
        return self._replace(chunks=chunks)


def chunks_for(entries: int) -> int:
    """Return how many chunks hold so many entries, however they are spread over the buckets."""
    return -(-entries // FULL) + min(entries, BUCKETS) + 2


@compiled
def put(calendar: Calendar, i: int, due: int, now: int) -> None:
    """Enter source i as due in step `due` > `now`; never, from `LATEST` on."""
    if due >= LATEST:
        bucket = NEVER_DUE
    elif due - now < _NEAR:
        bucket = due & (_NEAR - 1)
    elif (due >> _MIDDLE_BITS) - (now >> _MIDDLE_BITS) < _NEAR:
        bucket = _NEAR + ((due >> _MIDDLE_BITS) & (_NEAR - 1))
    else:
        bucket = 2 * _NEAR + (due >> _FAR_BITS)
    chunk, fill = signed(calendar.head[bucket]), signed(calendar.fill[bucket])
    if chunk == 0 or fill == FULL:
        counters = calendar.counters
        new = signed(counters[FREE])
        if new:
            counters[FREE] = calendar.chunks[new - 1, 0]
        else:
            counters[USED] += 1
            new = signed(counters[USED])
        calendar.chunks[new - 1, 0] = chunk
        calendar.head[bucket] = new
        chunk, fill = new, 0
    calendar.chunks[chunk - 1, 1 + fill] = i
    calendar.fill[bucket] = fill + 1
    calendar.counters[ENTRIES] += 1


@compiled
def detach(calendar: Calendar, bucket: int) -> None:
    """Remove the list of a bucket, which `next_chunk` then returns chunk by chunk."""
    calendar.counters[DETACHED] = calendar.head[bucket]
    calendar.counters[DETACHED_FILL] = calendar.fill[bucket]
    calendar.counters[DETACHED_BUCKET] = bucket
    calendar.head[bucket] = 0
    calendar.fill[bucket] = 0


@compiled
def next_chunk(calendar: Calendar) -> tuple[int, int]:
    """Return the next detached chunk and its number of sources; there must be one.

    The caller reads it, and then calls `release`.
    """
    counters = calendar.counters
    chunk, fill = signed(counters[DETACHED]), signed(counters[DETACHED_FILL])
    counters[DETACHED] = calendar.chunks[chunk - 1, 0]
    counters[DETACHED_FILL] = FULL
    counters[ENTRIES] -= fill
    return chunk, fill


@compiled
def is_detached(calendar: Calendar, due: int) -> bool:
    """Return whether an entry due in this step may be in the list that was detached last."""
    bucket = calendar.counters[DETACHED_BUCKET]
    if bucket < _NEAR:
        return due & (_NEAR - 1) == bucket
    if bucket < 2 * _NEAR:
        return (due >> _MIDDLE_BITS) & (_NEAR - 1) == bucket - _NEAR
    if bucket < NEVER_DUE:
        return due >> _FAR_BITS == bucket - 2 * _NEAR
    return due == LATEST


@compiled
def release(calendar: Calendar, chunk: int) -> None:
    """Make a chunk free."""
    calendar.chunks[chunk - 1, 0] = calendar.counters[FREE]
    calendar.counters[FREE] = chunk


@compiled
def coarse_bucket(now: int, which: int) -> int:
    """Return the bucket whose sources move to finer buckets in step `now`, or −1.

    which: 0 for buckets of 2¹⁹ steps, 1 for those of 256, in this order.
    """
    if which == 0 and now & ((1 << _FAR_BITS) - 1) == 0:
        return 2 * _NEAR + (now >> _FAR_BITS)
    if which == 1 and now & ((1 << _MIDDLE_BITS) - 1) == 0:
        return _NEAR + (((now >> _MIDDLE_BITS) + _AHEAD) & (_NEAR - 1))
    return -1


@compiled
def bucket_of_step(now: int) -> int:
    """Return the bucket of the sources due in step `now`."""
    return now & (_NEAR - 1)


@compiled
def bucket_in_order(now: int, place: int) -> int:
    """Return the bucket at a place in the order of due steps after `now`, 0 ≤ place < BUCKETS."""
    if place < _NEAR:
        return (now + 1 + place) & (_NEAR - 1)
    if place < 2 * _NEAR:
        return _NEAR + (((now >> _MIDDLE_BITS) + place - _NEAR) & (_NEAR - 1))
    return place
