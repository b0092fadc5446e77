"""The timing wheel: every source comes up in the very step in which it is due."""

import numpy as np
import pytest

from agents.scheduling.calendar import (
    DETACHED,
    ENTRIES,
    LATEST,
    Calendar,
    bucket_of_step,
    coarse_bucket,
    detach,
    next_chunk,
    put,
    release,
)


def detached(calendar, bucket):
    """Remove the sources of a bucket, and return them."""
    detach(calendar, bucket)
    found = []
    while calendar.counters[DETACHED]:
        chunk, fill = next_chunk(calendar)
        found += calendar.chunks[chunk - 1, 1 : fill + 1].tolist()
        release(calendar, chunk)
    return found


@pytest.mark.parametrize("start", [0, 255, 524_287, 10_000_001])
@pytest.mark.parametrize("furthest", [300, 530_000, 1_600_000])
def test_sources_come_up_when_they_are_due(start, furthest):
    rng = np.random.default_rng(start + furthest)
    due = start + rng.integers(1, furthest, 400, endpoint=True)
    due[:4] = start + np.minimum([1, 2050, 2**19 + 1, furthest], furthest)
    calendar = Calendar.empty(2 * len(due))
    for i, step in enumerate(due):
        put(calendar, i, int(step), start)
    put(calendar, len(due), LATEST + 1, start)  # never
    moves = np.arange(start - start % 256 + 256, start + furthest + 1, 256)
    for now in np.unique([*due, *moves]).tolist():
        for which in (0, 1):
            if (bucket := coarse_bucket(now, which)) >= 0:
                for i in detached(calendar, bucket):
                    assert due[i] >= now, "it came up too late"
                    put(calendar, i, int(due[i]), now)
        assert (
            sorted(detached(calendar, bucket_of_step(now))) == np.flatnonzero(due == now).tolist()
        )
    assert calendar.counters[ENTRIES] == 1  # that which is never due
