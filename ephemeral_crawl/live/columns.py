"""The working set: what the scheduler keeps in memory for each source and each host.

A source is a row, whose name is in `State.names`; rows of removed sources are used again. Rows are
records, since what is done with a source needs most of it, and a record is two lines of cache.
Kernels take the plain arrays; `record_view` makes the columns attributes in Python, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

MEMORIES = 3  # number of memories, see `learning`
NO_HOST = -1
NEVER = -np.inf  # time of the last fetch of a source that was not fetched yet
# Bits of `marks`. FLOORED: `blocked` outlasts the lease, since it was set by another's report.
# LOOKS: it announces what others have, and its items are pings, see `looks`.
EXISTS, PAUSED, FLOORED, HOST_PAUSED, TAG_PAUSED, LOOKS = 1, 2, 4, 8, 16, 32
STOPPED = PAUSED | HOST_PAUSED | TAG_PAUSED  # any of which keeps a source from being leased

# Times are seconds since 1970, by the scheduler's clock.
SOURCE = np.dtype(
    [
        ("fetched", "<f8"),  # time of the last fetch, or NEVER
        ("blocked", "<f8"),  # time before which it must not be fetched: lease, failure, floor
        ("pinged", "<f8"),  # time to which `shot` refers; until its first fetch, when it was added
        ("lease", "<i8"),  # number of its lease, 0 if it has none
        ("tried", "<f8"),  # time of the last attempt that failed
        ("host", "<i4"),  # row of its host, or NO_HOST
        ("cost", "<f4"),  # budget units, what a lease is charged: the mean, if costs are reported
        ("hit", "<f4"),  # of a fetch that finds items, as reported; 0 if none was
        ("vain", "<f4"),  # of one that finds nothing, likewise
        ("shortest", "<f4"),  # least time between two fetches, seconds
        ("longest", "<f4"),  # largest time between two fetches, seconds, or infinite
        ("half_life", "<f4"),  # its own, seconds; 0: that of the fleet
        ("tag", "<u2"),  # number of its tag, 0 if it has none
        ("importance", "<f4"),  # by which the worth of its items is multiplied
        ("factor", "<f4"),  # by which the price of its tag differs; derived from the tag
        ("stretch", "<f4"),  # by which the rotation of its tag is longer; derived likewise
        ("items", "<f4", (MEMORIES,)),  # number of items found, discounted with each memory
        ("exposure", "<f4", (MEMORIES,)),  # seconds in which they were published, likewise
        ("weight", "<f4", (MEMORIES,)),  # logarithm of the weight of each memory
        ("worth", "<f4"),  # total worth of items found
        ("worth_items", "<f4"),  # number of items that this is the worth of, in items worth theirs
        ("pings", "<f4"),  # number of pings that were followed by a fetch, discounted
        ("true_pings", "<f4"),  # number of these that announced an item, in expectation
        ("pinged_for", "<f4"),  # seconds in which they came, discounted; 0: never pinged
        ("pending", "<f4"),  # number of pings since the last fetch
        ("shot", "<f4"),  # Σ e^(−μ·age) over these
        ("down", "<f4"),  # seconds from the first to the last of consecutive failures
        ("kind", "u1"),  # kind of its last ping
        ("failures", "u1"),  # consecutive failures
        ("marks", "u1"),
        ("cause", "u1"),  # of the last failure, place in `reasons.LEARNT`
    ]
)
HOST = np.dtype(
    [
        ("interval", "<f8"),  # least time between the starts of two fetches, seconds; 0: no limit
        ("fetched", "<f8"),  # time of the last fetch, or NEVER
        ("held", "<f8"),  # until when a lease that was not reported keeps others out
        ("blocked", "<f8"),  # until when it asked to be left alone
        ("lease", "<i8"),  # number of the last lease; −k if k were out when the host was limited
        ("factor", "<f8"),  # mean rate of its sources ÷ mean rate of the fleet, shrunk to 1
        ("trust", "<f8"),  # precision of its sources' pings ÷ that of their kinds, shrunk to 1
        ("within", "<i8"),  # row of the domain that it is in, or NO_HOST; derived from the names
    ]
)
# Arrays of the types above, (R,) and (H,). In kernels their columns are attributes, which mypy does
# not know.
Sources = Any
Hosts = Any


def new_sources(rows: int = 0) -> Sources:
    """Return rows of zeros, of weight 1, at the price of the budget."""
    sources = np.zeros(rows, SOURCE)
    sources["importance"] = sources["factor"] = sources["stretch"] = 1.0
    return sources


def new_hosts(rows: int = 0) -> Hosts:
    """Return hosts that were not fetched yet."""
    hosts = np.zeros(rows, HOST)
    hosts["fetched"] = NEVER
    hosts["factor"] = hosts["trust"] = 1.0
    hosts["within"] = NO_HOST
    return hosts


def with_rows(table: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return the same rows with room for so many, and zeros behind them.

    What has never been written takes no memory.
    """
    if rows <= len(table):
        return table
    larger = np.zeros(max(64, rows + rows // 2), table.dtype)
    larger[: len(table)] = table
    return larger


def record_view(table: NDArray[Any]) -> np.recarray[Any, Any]:
    """Return the same rows with their columns as attributes."""
    view: np.recarray[Any, Any] = table.view(np.recarray)
    return view


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
        self._is_copied = np.zeros(-(-len(table) // _BLOCK), np.bool_)  # of each block
        self._blocks: dict[int, NDArray[Any]] = {}  # blocks that were copied and not read yet
        self._lock = Lock()

    def keep(self, rows: NDArray[Any]) -> None:
        """Copy rows that are about to change; those of none in the table are ignored."""
        blocks = rows[(rows >= 0) & (rows < len(self._table))] // _BLOCK
        with self._lock:
            for block in set(blocks[~self._is_copied[blocks]].tolist()):
                self._blocks[block] = self._table[block * _BLOCK : (block + 1) * _BLOCK].copy()
            self._is_copied[blocks] = True

    def parts(self) -> Iterator[bytes]:
        """Return the rows as bytes, part by part; once."""
        for first in range(0, len(self._is_copied), _PART):
            with self._lock:
                part = self._table[first * _BLOCK : (first + _PART) * _BLOCK].copy()
                self._is_copied[first : first + _PART] = True
                for block in range(first, first + _PART):
                    if block in self._blocks:
                        rows, at = self._blocks.pop(block), (block - first) * _BLOCK
                        part[at : at + len(rows)] = rows
            yield part.tobytes()
