"""A state as bytes: a header of JSON, and the columns one after another.

Nothing but numbers and names is stored, and what is read is checked, so that a damaged or foreign
file is refused.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ephemeral_crawl.live.columns import HOST_LAYOUT, LAYOUT, Hosts, Sources
from ephemeral_crawl.live.counts import Counts
from ephemeral_crawl.live.fitting import Totals, precisions
from ephemeral_crawl.live.heap import Heap
from ephemeral_crawl.live.learning import Shared
from ephemeral_crawl.live.settings import Settings
from ephemeral_crawl.live.state import State

_PLAIN = (
    *("names", "free", "host_names", "kinds", "kind_pings", "last_lease", "cost"),
    *("offset", "balance", "market", "correction", "changes"),
)
_SHARED = Shared._fields[:-2]  # the last two are derived
_DAMAGED = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)


def to_bytes(state: State) -> bytes:
    """Return a state as bytes, without the heap."""
    header = {name: getattr(state, name) for name in _PLAIN}
    header |= {
        "settings": state.settings.as_dict(),
        "time": state.time if state.time > -math.inf else None,
        "leases": [(lease, *entry) for lease, entry in state.leases.items()],
        "totals": asdict(state.totals),
        "counts": asdict(state.counts),
        "shared": {name: getattr(state.shared, name) for name in _SHARED},
    }
    text = json.dumps(header, allow_nan=False).encode()
    rows, hosts = state.rows, len(state.host_names)
    parts = [len(text).to_bytes(8, "little"), text]
    parts += [column[:rows].tobytes() for column in state.sources]
    parts += [column[:hosts].tobytes() for column in state.hosts]
    return b"".join(parts)


def from_bytes(data: bytes) -> State:
    """Return the state.

    Raises:
        ValueError: the bytes are not those of a state.
    """
    try:
        return _state(data)
    except _DAMAGED as error:
        raise ValueError(f"the stored state is damaged: {error}") from error


def _state(data: bytes) -> State:
    size = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + size], parse_constant=_refuse)
    state = State()
    for name in _PLAIN:
        value = header[name]
        if type(value) is not type(getattr(state, name)):
            raise ValueError(f"{name} is {value!r}")
        setattr(state, name, value)
    state.settings = Settings.from_dict(header["settings"])
    state.time = -math.inf if header["time"] is None else float(header["time"])
    state.leases = {int(lease): (int(i), float(end)) for lease, i, end in header["leases"]}
    state.totals = Totals(**{name: float(x) for name, x in header["totals"].items()})
    state.counts = Counts.from_dict(header.get("counts", {}))  # files of earlier versions: none
    state.numbers = {str(name): i for i, name in enumerate(state.names) if name is not None}
    state.host_numbers = {str(name): i for i, name in enumerate(state.host_names)}
    rows, hosts = state.rows, len(state.host_names)
    if len(state.numbers) + len(state.free) != rows or len(state.host_numbers) != hosts:
        raise ValueError("names appear twice")
    start = 8 + size
    columns = []
    layout = [(kind, (rows, *shape)) for kind, shape in LAYOUT]
    layout += [(kind, (hosts,)) for kind in HOST_LAYOUT]
    for kind, shape in layout:
        number = math.prod(shape)
        columns.append(_column(data, kind, number, start).reshape(shape))
        start += number * kind.itemsize
    if start != len(data):
        raise ValueError(f"it has {len(data)} bytes instead of {start}")
    state.sources = Sources(*columns[: len(LAYOUT)])
    state.hosts = Hosts(*columns[len(LAYOUT) :])
    for which, limit in ((state.sources.host, hosts), (state.sources.kind, 256)):
        if rows and not (which.min() >= -1 and which.max() < limit):
            raise ValueError("a source refers to a host that does not exist")
    if any(not 0 <= i < rows for i, _ in state.leases.values()):
        raise ValueError("a lease refers to a source that does not exist")
    if rows and state.sources.kind.max() >= max(len(state.kinds), 1):
        raise ValueError("a source refers to a signal that does not exist")
    state.heap, state.ranked = Heap.empty(rows), np.zeros(rows, np.bool_)
    known = {name: float(header["shared"][name]) for name in _SHARED}
    state.shared = Shared(
        **known, precision=precisions(state.kind_pings), factor=state.hosts.factor
    )
    return state


def _column(data: bytes, kind: np.dtype[Any], number: int, start: int) -> NDArray[Any]:
    column: NDArray[Any] = np.frombuffer(data, kind, number, start).copy()
    if kind.kind == "f" and np.isnan(column).any():
        raise ValueError("a number is NaN")
    return column


def _refuse(name: str) -> float:
    raise ValueError(f"a number is {name}")
