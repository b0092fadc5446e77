"""A binary heap of sources by due time, from which any source can be moved or removed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.scheduling.age_index import whole
from crawl_env.compiled import compiled
from ephemeral_crawl.live.columns import copy_rows


class Heap(NamedTuple):
    """The arrays of a heap of at most R sources."""

    key: NDArray[np.float64]  # (R,) due time of each source
    order: NDArray[np.int32]  # (R,) sources; the first `size` form the heap
    place: NDArray[np.int32]  # (R,) place of each source in `order`, −1: not in the heap
    size: NDArray[np.int64]  # (1,)

    @staticmethod
    def empty(rows: int) -> Heap:
        """Return a heap without sources."""
        return Heap(
            np.full(rows, np.inf),
            np.zeros(rows, np.int32),
            np.full(rows, -1, np.int32),
            np.zeros(1, np.int64),
        )

    def with_rows(self, rows: int) -> Heap:
        """Return the heap with room for more sources."""
        larger = Heap.empty(rows)
        copy_rows(self, larger)
        return larger


@compiled
def move(heap: Heap, i: int, key: float) -> None:
    """Enter source i with this key, or change its key; an infinite key removes it."""
    key_of, order, place, size = heap
    at = whole(place[i])
    key_of[i] = key
    if key == np.inf:
        if at >= 0:
            size[0] -= 1
            last = order[size[0]]
            place[i] = -1
            if last != i:
                order[at] = last
                place[last] = at
                _settle(heap, at)
        return
    if at < 0:
        at = whole(size[0])
        order[at] = i
        place[i] = at
        size[0] += 1
    _settle(heap, at)


@compiled
def remove(heap: Heap, sources: NDArray[np.int32]) -> None:
    """Remove some sources."""
    for k in range(len(sources)):
        move(heap, sources[k], np.inf)


@compiled
def _settle(heap: Heap, at: int) -> None:
    """Move the source at a place up or down until the heap is in order."""
    key_of, order, place, size = heap
    i = order[at]
    key = key_of[i]
    while at > 0:
        above = (at - 1) >> 1
        j = order[above]
        if key_of[j] <= key:
            break
        order[at] = j
        place[j] = at
        at = above
    while True:
        below = 2 * at + 1
        if below >= size[0]:
            break
        if below + 1 < size[0] and key_of[order[below + 1]] < key_of[order[below]]:
            below += 1
        j = order[below]
        if key_of[j] >= key:
            break
        order[at] = j
        place[j] = at
        at = below
    order[at] = i
    place[i] = at


@compiled
def due(heap: Heap, now: float) -> NDArray[np.int32]:
    """Return the sources whose key is at most `now`, in no particular order; they stay."""
    key_of, order, _, size = heap
    found = np.empty(16, np.int32)
    places = np.empty(16, np.int64)
    number, number_of_places = 0, 0
    if size[0] > 0:
        places[0] = 0
        number_of_places = 1
    while number_of_places > 0:
        number_of_places -= 1
        at = whole(places[number_of_places])
        if key_of[order[at]] > now:
            continue
        if number == len(found):
            larger = np.empty(2 * number, np.int32)
            larger[:number] = found
            found = larger
        found[number] = order[at]
        number += 1
        if number_of_places + 2 > len(places):
            more = np.empty(2 * len(places), np.int64)
            more[:number_of_places] = places[:number_of_places]
            places = more
        for below in range(2 * at + 1, min(2 * at + 3, size[0])):
            places[number_of_places] = below
            number_of_places += 1
    return found[:number]
