"""Tables of statistics of which few rows change per step, as arrays that are never changed.

States belong to the caller, so that an update returns new arrays. To copy a wide table of a large
fleet in every step would take longer than all the rest. Instead the rows that changed since the
last copy are kept apart, sorted by source, and written into a new table when they are many. States
in between share the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crawl_env.compiled import compiled
from crawl_env.numerics import FloatArray, IntArray

Table = NDArray[np.float32]
Arrays = tuple[NDArray[Any], ...]
_FEW = 2**12  # sources up to which the whole table is copied
_APART = 48  # most rows that are kept apart, as a multiple of the square root of N


class Rows:
    """A table of zeros, (..., N, W) float32, as pure functions of a state.

    Arguments:
        width: W.
    """

    def __init__(self, width: int) -> None:
        self.width = width

    def begin(self, shape: tuple[int, ...]) -> Arrays:
        """Return the table for sources (..., N) and, unless these are few, the rows kept apart:
        their number, (..., 1), their sources in ascending order, (..., L), and the rows, (..., L,
        W)."""
        *batch, n = shape
        table = np.zeros((*shape, self.width), dtype=np.float32)
        if n <= _FEW:
            return (table,)
        length = min(n, _APART * isqrt(n))
        rows = np.zeros((*batch, length, self.width), dtype=np.float32)
        return table, np.zeros((*batch, 1)), np.zeros((*batch, length)), rows

    def at(self, state: Arrays, cells: IntArray) -> Table:
        """Return the rows at ascending flat positions in (..., N), (K, W), in a new array."""
        found: Table = state[0].reshape(-1, self.width)[cells]
        n = state[0].shape[-2]
        for i, here, number, sources, rows in self._fleets(state, cells):
            _look_up(cells[here] - i * n, number, sources, rows, found[here])
        return found

    def whole(self, state: Arrays) -> Table:
        """Return the table, (..., N, W); not to be changed."""
        if len(state) == 1 or not state[1].any():
            return state[0]
        table: Table = state[0].copy()
        n, flat = table.shape[-2], table.reshape(-1, self.width)
        for i, _, number, sources, rows in self._fleets(state, np.empty(0, dtype=np.intp)):
            flat[sources[:number].astype(np.intp) + i * n] = rows[:number]
        return table

    def replaced(self, state: Arrays, cells: IntArray, rows: Table) -> Arrays:
        """Return a state in which the rows at ascending flat positions are `rows`, (K, W)."""
        if len(state) > 1:
            apart = tuple(np.zeros_like(array) for array in state[1:])
            if self._merge(state, apart, cells, rows):
                return state[0], *apart
            state = self.whole(state), *(np.zeros_like(array) for array in apart)
        table = state[0].copy()
        table.reshape(-1, self.width)[cells] = rows
        return table, *state[1:]

    def _merge(self, state: Arrays, apart: Arrays, cells: IntArray, rows: Table) -> bool:
        """Fill in all that is kept apart with these rows; return False if it is too much."""
        n = state[0].shape[-2]
        for i, here, number, sources, old in self._fleets(state, cells):
            to = [array.reshape(-1, *array.shape[state[1].ndim - 1 :])[i] for array in apart]
            after = _merge(number, sources, old, cells[here] - i * n, rows[here], to[1], to[2])
            if after < 0:
                return False
            to[0][0] = after
        return True

    def _fleets(
        self, state: Arrays, cells: IntArray
    ) -> Iterator[tuple[int, slice, int, FloatArray, Table]]:
        """Yield each fleet's number, the part of the cells that belongs to it, and the number, the
        sources and the rows of what is kept apart."""
        if len(state) > 1:
            table, number, sources, rows = state
            ends = np.searchsorted(cells, np.arange(number.size + 1) * table.shape[-2]).tolist()
            for i, held in enumerate(number.reshape(-1).tolist()):
                here = slice(ends[i], ends[i + 1])
                known = sources.reshape(number.size, -1)[i]
                yield i, here, int(held), known, rows.reshape(number.size, *rows.shape[-2:])[i]


@compiled
def _look_up(wanted: IntArray, number: int, sources: FloatArray, rows: Table, found: Table) -> None:
    """Copy the rows of the wanted sources; both lists are ascending."""
    j = 0
    for i in range(wanted.size):
        while j < number and sources[j] < wanted[i]:
            j += 1
        if j < number and sources[j] == wanted[i]:
            found[i] = rows[j]


@compiled
def _merge(
    number: int,
    sources: FloatArray,
    rows: Table,
    new: IntArray,
    new_rows: Table,
    to_sources: FloatArray,
    to_rows: Table,
) -> int:
    """Merge two ascending lists, of which the new one prevails; return the length, or −1 if there
    is no room."""
    i = j = length = 0
    while i < number or j < new.size:
        if length == to_sources.size:
            return -1
        if j == new.size or (i < number and sources[i] < new[j]):
            to_sources[length] = sources[i]
            to_rows[length] = rows[i]
            i += 1
        else:
            if i < number and sources[i] == new[j]:
                i += 1
            to_sources[length] = new[j]
            to_rows[length] = new_rows[j]
            j += 1
        length += 1
    return length
