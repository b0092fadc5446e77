"""The working set: what the scheduler keeps in memory for each source, in columns.

A source is a row, `number`, whose columns are in `Sources`; its name is in `state.names`. Rows of
removed sources are used again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

MEMORIES = 3  # number of memories, see `learning`
NO_HOST = -1
NEVER = -np.inf  # time of the last fetch of a source that was not fetched yet
# Bits of `Sources.flags`.
EXISTS, PAUSED = 1, 2


def copy_rows(old: tuple[Any, ...], new: tuple[Any, ...]) -> None:
    """Copy columns into the first rows of longer ones."""
    for short, long in zip(old, new, strict=True):
        long[: len(short)] = short


class Sources(NamedTuple):
    """Columns of the sources, (R,) each. Times are seconds since 1970, by the scheduler's clock."""

    fetched: Float64  # time of the last fetch, or NEVER
    blocked: Float64  # time before which it must not be fetched: lease, failure, floor
    pinged: Float64  # time to which `shot` refers
    lease: NDArray[np.int64]  # number of its lease, 0 if it has none
    host: NDArray[np.int32]  # row of its host, or NO_HOST
    cost: Float32  # budget units
    shortest: Float32  # least time between two fetches, seconds
    longest: Float32  # largest time between two fetches, seconds, or infinite
    half_life: Float32  # its own, seconds; 0: that of the fleet
    items: Float32  # (R, 3) number of items found, discounted with each memory
    exposure: Float32  # (R, 3) seconds in which they were published, likewise
    weight: Float32  # (R, 3) logarithm of the weight of each memory
    worth: Float32  # total worth of items found
    worth_items: Float32  # number of items that this is the worth of, in items worth all of theirs
    pings: Float32  # number of pings that were followed by a fetch, discounted
    true_pings: Float32  # number of these that announced an item, in expectation
    pinged_for: Float32  # seconds in which they came, discounted; 0: never pinged
    pending: Float32  # number of pings since the last fetch
    shot: Float32  # Σ e^(−μ·age) over these
    kind: NDArray[np.uint8]  # kind of its last ping
    failures: NDArray[np.uint8]  # consecutive failures
    flags: NDArray[np.uint8]

    @staticmethod
    def empty(rows: int = 0) -> Sources:
        """Return columns of zeros."""
        return Sources(*(np.zeros((rows, *shape), kind) for kind, shape in LAYOUT))

    def with_rows(self, rows: int) -> Sources:
        """Return the columns with so many rows, the new ones zero."""
        larger = Sources.empty(rows)
        copy_rows(self, larger)
        return larger


_WIDE = ("items", "exposure", "weight")
_KINDS = {"lease": "<i8", "host": "<i4", "kind": "u1", "failures": "u1", "flags": "u1"}
_KINDS |= dict.fromkeys(("fetched", "blocked", "pinged"), "<f8")
# Type and further axes of each column.
LAYOUT = tuple(
    (np.dtype(_KINDS.get(name, "<f4")), (MEMORIES,) if name in _WIDE else ())
    for name in Sources._fields
)


class Hosts(NamedTuple):
    """Columns of the hosts, (H,) each."""

    interval: Float64  # least time between the starts of two fetches, seconds; 0: no limit
    fetched: Float64  # time of the last fetch, or NEVER
    held: Float64  # until when a lease that was not reported keeps others out
    blocked: Float64  # until when it asked to be left alone
    lease: NDArray[np.int64]  # number of the last lease
    factor: Float64  # mean rate of its sources ÷ mean rate of the fleet, shrunk to 1

    @staticmethod
    def empty(rows: int = 0) -> Hosts:
        """Return columns of hosts that were not fetched yet."""
        hosts = Hosts(*(np.zeros(rows, kind) for kind in HOST_LAYOUT))
        hosts.fetched[:] = NEVER
        hosts.factor[:] = 1.0
        return hosts

    def with_rows(self, rows: int) -> Hosts:
        """Return the columns with so many rows."""
        larger = Hosts.empty(rows)
        copy_rows(self, larger)
        return larger


HOST_LAYOUT = tuple(np.dtype("<i8" if name == "lease" else "<f8") for name in Hosts._fields)
