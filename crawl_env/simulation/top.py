"""The k best cells of each environment, in linear time.

Cells are flat indices, environment · N + source. They are taken in decreasing priority; ties go to
the source crawled longer ago, then to the lower number. This is a total order, so every cell has
one place in it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from crawl_env.compiled import compiled
from crawl_env.numerics import FloatArray, IntArray

Priority = NDArray[np.floating]

SMALL = 128  # N·k up to which insertion is faster
ROWS = 64  # environments of small fleets whose cells are compared together
CHUNK = 64  # cells that are compared with a threshold together; loops of 32 are not vectorised
SETS = 64  # least number of sets of cells whose maxima give a threshold


@compiled
def precedes(priority: Priority, crawled_at: Priority, i: int, j: int) -> bool:
    """Return whether cell i is taken before cell j."""
    a, b = np.uintp(i), np.uintp(j)  # unsigned indices are not checked for being negative
    if priority[a] != priority[b]:
        return priority[a] > priority[b]
    if crawled_at[a] != crawled_at[b]:
        return crawled_at[a] < crawled_at[b]
    return i < j


@compiled
def partition(
    priority: Priority, crawled_at: Priority, cells: IntArray, start: int, stop: int, seed: int
) -> int:
    """Rearrange cells[start:stop] around one of them; return its position.

    Cells before the position precede the one at the position, and cells behind follow it. The
    pivot is the median of three cells at pseudo-random positions, so that no order of priorities
    makes the partitions uneven again and again.
    """
    size = stop - start
    seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
    a = start + seed % size
    b = start + (seed >> 5) % size
    c = start + (seed >> 10) % size
    if precedes(priority, crawled_at, cells[b], cells[a]):
        a, b = b, a
    if precedes(priority, crawled_at, cells[c], cells[b]):
        b = a if precedes(priority, crawled_at, cells[c], cells[a]) else c
    pivot = cells[b]
    cells[b] = cells[stop - 1]
    place = start
    for i in range(start, stop - 1):  # without branches, which the processor could not predict
        cell = cells[i]
        cells[i] = cells[place]
        cells[place] = cell
        place += precedes(priority, crawled_at, cell, pivot)
    cells[stop - 1] = cells[place]
    cells[place] = pivot
    return place


@compiled
def _kth(priority: Priority, crawled_at: Priority, cells: IntArray, size: int, k: int) -> int:
    """Return the k-th cell in order among cells[:size], which are rearranged."""
    start, stop, seed = 0, size, size
    while True:
        place = partition(priority, crawled_at, cells, start, stop, seed)
        if place == k - 1:
            return cells[place]
        if place < k:
            start = place + 1
        else:
            stop = place
        seed += place


@compiled
def _some_reach(priority: Priority, start: int, threshold: float) -> bool:
    """Return whether some of the CHUNK priorities from `start` are not below the threshold, which
    holds for NaN too."""
    reach = np.uint32(0)  # no wider than a float32, as vector instructions need it
    for i in range(CHUNK):  # unsigned indices are not checked for being negative
        reach = np.uint32(reach + (not priority[np.uintp(start + i)] < threshold))
    return bool(reach > 0)


@compiled
def _lower_bound(
    priority: Priority,
    crawled_at: FloatArray,
    start: int,
    stop: int,
    k: int,
    highest: Priority,
    numbers: IntArray,
) -> float:
    """Return a lower bound of the k-th largest of priority[start:stop], without NaN.

    It is the k-th largest of the maxima of more than k disjoint sets of cells: so many cells at
    least are not below it, and few more if there are many sets. `crawled_at` breaks ties, on which
    the bound does not depend. The last two arguments are memory for one number of each set.
    """
    for j in range(highest.size):
        highest[j] = -np.inf
    for first in range(start, stop, highest.size):
        for j in range(min(highest.size, stop - first)):
            x = priority[np.uintp(first + j)]
            highest[j] = x if x > highest[j] else highest[j]
    if k > 1:
        for j in range(numbers.size):
            numbers[j] = j
        return highest[_kth(highest, crawled_at, numbers, numbers.size, k)]
    bound = highest[0]
    for j in range(1, highest.size):
        bound = max(bound, highest[j])
    return bound


@compiled
def _top_by_threshold(
    priority: Priority,
    crawled_at: FloatArray,
    start: int,
    stop: int,
    k: int,
    threshold: float,
    candidates: IntArray,
) -> bool:
    """Write the k best of the cells start … stop − 1 to found[:k], ascending by number.

    `candidates` has room for all of the cells and one more. At least k priorities are not below the
    threshold. Return False if a priority is NaN.
    """
    size, i = 0, start
    while i < stop:
        end = min(i + CHUNK, stop)
        # The last cells are compared together with some before them.
        if end - start < CHUNK or _some_reach(priority, end - CHUNK, threshold):
            for cell in range(i, end):
                x = priority[np.uintp(cell)]
                if x != x:
                    return False
                candidates[np.uintp(size)] = cell
                size += x >= threshold
        i = end
    if size == k:
        return True
    cells = np.empty(size, np.intp)
    for i in range(size):
        cells[i] = candidates[i]
    worst = _kth(priority, crawled_at, cells, size, k)
    size = 0
    for i in range(cells.size):
        cell = candidates[i]
        candidates[size] = cell
        size += not precedes(priority, crawled_at, worst, cell)
    return True


@compiled
def top_of_large(
    priority: Priority, crawled_at: FloatArray, n: int, k: int, best: IntArray
) -> bool:
    """Write the k best cells of each environment to `best` (B·k,), ascending.

    Return False, without a full result, if a priority is NaN.

    Arguments:
        priority, crawled_at: (B·N,).
        n: N, the number of sources.
        k: at most N.
        best: (B·k,), written.
    """
    sets = max(SETS, 4 * k)
    candidates, numbers = np.empty(n + 1, np.intp), np.empty(sets, np.intp)
    highest = np.full(sets, -np.inf, priority.dtype)  # comparisons of one type are twice as fast
    threshold = highest[0]
    for row in range(priority.size // n):
        start, stop = row * n, (row + 1) * n
        if n > 2 * sets:
            threshold = _lower_bound(priority, crawled_at, start, stop, k, highest, numbers)
        if not _top_by_threshold(priority, crawled_at, start, stop, k, threshold, candidates):
            return False
        for j in range(k):
            best[row * k + j] = candidates[j]
    return True


@compiled
def top_of_small(
    priority: Priority, crawled_at: FloatArray, n: int, k: int, best: IntArray
) -> bool:
    """Do the same as `top_of_large` by inserting one source after the other; faster if N·k is small
    and there is one environment."""
    at = 0
    for first in range(0, priority.size, n):
        size = 0
        for cell in range(first, first + n):
            if priority[np.uintp(cell)] != priority[np.uintp(cell)]:
                return False
            place = at + size
            if size < k:
                size += 1
            elif precedes(priority, crawled_at, cell, best[place - 1]):
                place -= 1
            else:
                continue
            while place > at and precedes(priority, crawled_at, cell, best[place - 1]):
                best[place] = best[place - 1]
                place -= 1
            best[place] = cell
        for j in range(at + 1, at + k):  # in order of number
            cell, place = best[j], j
            while place > at and best[place - 1] > cell:
                best[place] = best[place - 1]
                place -= 1
            best[place] = cell
        at += k
    return True


@compiled
def top_of_many_small(
    priority: Priority, crawled_at: FloatArray, n: int, k: int, best: IntArray
) -> bool:
    """Do the same as `top_of_large`, faster if N·k is small and there are many environments.

    The best so far are kept in order in slots for their priority, `crawled_at` and source. Every
    source is inserted by a comparison with one slot after the other, in many environments at a
    time.
    """
    rows = priority.size // n
    width = min(ROWS, rows)
    slots = np.empty((3, k + 1, width))
    for first in range(0, rows, width):
        size = min(width, rows - first)
        for j in range(k):
            for r in range(size):
                slots[0, j, r], slots[1, j, r], slots[2, j, r] = -np.inf, np.inf, n
        for i in range(n):
            missing = 0
            for r in range(size):
                cell = np.uintp((first + r) * n + i)
                slots[0, k, r], slots[1, k, r], slots[2, k, r] = priority[cell], crawled_at[cell], i
                missing += priority[cell] != priority[cell]
            if missing > 0:
                return False
            for j in range(k):
                for r in range(size):
                    p, c, s = slots[0, k, r], slots[1, k, r], slots[2, k, r]
                    q, d, t = slots[0, j, r], slots[1, j, r], slots[2, j, r]
                    swap = (p > q) | ((p == q) & ((c < d) | ((c == d) & (s < t))))
                    slots[0, j, r], slots[0, k, r] = (p, q) if swap else (q, p)
                    slots[1, j, r], slots[1, k, r] = (c, d) if swap else (d, c)
                    slots[2, j, r], slots[2, k, r] = (s, t) if swap else (t, s)
        for end in range(k - 1, 0, -1):
            for j in range(end):
                for r in range(size):
                    s, t = slots[2, j, r], slots[2, j + 1, r]
                    slots[2, j, r], slots[2, j + 1, r] = min(s, t), max(s, t)
        for j in range(k):
            for r in range(size):
                best[np.uintp((first + r) * k + j)] = (first + r) * n + int(slots[2, j, r])
    return True


def top_kernel(rows: int, n: int, k: int) -> Callable[..., bool]:
    """Return the fastest of the functions above for B = `rows`."""
    if n * k > SMALL:
        return top_of_large
    return top_of_small if rows == 1 else top_of_many_small
