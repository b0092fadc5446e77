"""A binary heap of sources by a key, from which any source can be moved or removed."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.scheduling.age_index import signed
from crawl_env.compiled import compiled


class Heap(NamedTuple):
    """The arrays of a heap of at most R sources."""

    key: NDArray[np.float64]  # (R,) of each source; infinite: it is not in the heap
    order: NDArray[np.int32]  # (R,) sources; the first `size` form the heap
    place: NDArray[np.int32]  # (R,) place of each source in `order`, −1: not in the heap
    size: NDArray[np.int64]  # (1,)

    @staticmethod
    def of(keys: NDArray[np.float64], rows: int) -> Heap:
        """Return a heap of sources with these keys, with room for `rows`."""
        heap = Heap(
            np.full(rows, np.inf),
            np.zeros(rows, np.int32),
            np.full(rows, -1, np.int32),
            np.zeros(1, np.int64),
        )
        finite = np.flatnonzero(keys < np.inf)
        order = finite[np.argsort(keys[finite], kind="stable")]
        heap.key[: len(keys)] = keys
        heap.order[: len(order)] = order  # sorted, therefore a heap
        heap.place[order] = np.arange(len(order))
        heap.size[0] = len(order)
        return heap

    def with_rows(self, rows: int) -> Heap:
        """Return the heap with room for more sources."""
        larger = Heap.of(np.empty(0), rows)
        larger.key[: len(self.key)] = self.key
        larger.order[: len(self.order)] = self.order
        larger.place[: len(self.place)] = self.place
        larger.size[:] = self.size
        return larger


@compiled
def move(heap: Heap, i: int, key: float) -> None:
    """Enter source i with this key, or change its key; an infinite key removes it."""
    key_of, order, place, size = heap
    at = signed(place[i])
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
        at = signed(size[0])
        order[at] = i
        place[i] = at
        size[0] += 1
    _settle(heap, at)


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
def first(heap: Heap, most: int) -> NDArray[np.int32]:
    """Return the sources with the least keys, at most `most`, in order; they stay.

    All of them are in no particular order.
    """
    key_of, order, _, size = heap
    number = min(most, signed(size[0]))
    if number == size[0]:
        return order[:number].copy()
    sources = np.empty(number, np.int32)
    frontier = [(key_of[order[0]], 0)]
    for k in range(number):
        _, at = heappop(frontier)
        sources[k] = order[at]
        for below in range(2 * at + 1, min(2 * at + 3, signed(size[0]))):
            heappush(frontier, (key_of[order[below]], below))
    return sources
