"""A queue of sources that are due at any price, served as they came."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crawl_env.compiled import compiled

QUEUED = 3  # mark of a source that waits in a queue, see `agenda`
_LEAST = 64  # rows


class Queue:
    """Rows of sources in the order in which they came.

    A source that no longer has the mark `QUEUED` has left the queue, and is skipped. If it comes
    again before that is noticed, it has its old place.
    """

    def __init__(self) -> None:
        self._rows = np.empty(0, np.int32)
        self._start = self._stop = 0

    @property
    def rows(self) -> NDArray[np.int32]:
        """Those in the queue, the first first; some may have left it, or be there twice."""
        return self._rows[self._start : self._stop]

    def enter(self, rows: NDArray[np.int32], marks: NDArray[np.uint8]) -> None:
        """Add sources at the end."""
        if not len(rows):
            return
        if self._stop + len(rows) > len(self._rows):
            waiting = self.rows[marks[self.rows] == QUEUED]
            _, first = np.unique(waiting, return_index=True)
            waiting = waiting[np.sort(first)]
            self._rows = np.empty(_LEAST + 2 * (len(waiting) + len(rows)), np.int32)
            self._rows[: len(waiting)] = waiting
            self._start, self._stop = 0, len(waiting)
        self._rows[self._stop : self._stop + len(rows)] = rows
        self._stop += len(rows)

    def drop(self, number: int) -> None:
        """Remove the first ones."""
        self._start += number


@compiled
def heads(
    rows: NDArray[np.int32], marks: NDArray[np.uint8], limit: int
) -> tuple[NDArray[np.int32], int]:
    """Return the first sources of a queue, and how many rows before them can be dropped.

    Those between them that have left the queue are moved to the front.
    """
    found = np.empty(min(limit, len(rows)), np.int32)
    number, seen = 0, 0
    while seen < len(rows) and number < len(found):
        if marks[rows[seen]] == QUEUED:
            found[number] = rows[seen]
            number += 1
        seen += 1
    for k in range(number):
        rows[seen - number + k] = found[k]
    return found[:number], seen - number
