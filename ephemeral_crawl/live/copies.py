"""A copy of rows that is made while others change them, so that nobody waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCK = 64  # rows that are copied at once before one of them changes
_PART = 128  # blocks in a part


class Copy:
    """The rows of a table as they are when this is made.

    They are copied as `parts` is read, by any thread, and those that change until then before that,
    by `keep`.

    >>> table = np.arange(3)
    >>> copy = Copy(table)
    >>> copy.keep(np.array([1]))
    >>> table[1] = 7
    >>> np.frombuffer(b"".join(copy.parts()), table.dtype).tolist()
    [0, 1, 2]
    """

    def __init__(self, table: NDArray[Any]) -> None:
        self._table = table
        self._copied = np.zeros(-(-len(table) // _BLOCK), np.bool_)  # of each block
        self._kept: dict[int, NDArray[Any]] = {}  # blocks that were copied and not read yet
        self._lock = Lock()

    def keep(self, rows: NDArray[Any]) -> None:
        """Copy rows that are about to change; those of none in the table are ignored."""
        blocks = rows[(rows >= 0) & (rows < len(self._table))] // _BLOCK
        with self._lock:
            for block in set(blocks[~self._copied[blocks]].tolist()):
                self._kept[block] = self._table[block * _BLOCK : (block + 1) * _BLOCK].copy()
            self._copied[blocks] = True

    def parts(self) -> Iterator[bytes]:
        """Return the rows as bytes, part by part; once."""
        for first in range(0, len(self._copied), _PART):
            with self._lock:
                part = self._table[first * _BLOCK : (first + _PART) * _BLOCK].copy()
                self._copied[first : first + _PART] = True
                for block in range(first, first + _PART):
                    if block in self._kept:
                        kept, at = self._kept.pop(block), (block - first) * _BLOCK
                        part[at : at + len(kept)] = kept
            yield part.tobytes()
