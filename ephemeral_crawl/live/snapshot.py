"""A state as bytes: a header of JSON, and the columns one after another.

Nothing but numbers and names is stored, and what is read is checked, so that a damaged or foreign
file is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, astuple
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ephemeral_crawl.live.columns import HOST, NO_HOST, SOURCE, Copy, new_hosts
from ephemeral_crawl.live.errors import DamagedStore
from ephemeral_crawl.live.fitting import Totals
from ephemeral_crawl.live.learning import KIND_SUMS, Shared
from ephemeral_crawl.live.names import NameTable
from ephemeral_crawl.live.reasons import LEARNT, Reasons
from ephemeral_crawl.live.reporting import Counts
from ephemeral_crawl.live.settings import Settings
from ephemeral_crawl.live.state import State
from ephemeral_crawl.live.tags import Tags

_PLAIN = (
    *("kinds", "last_lease", "cost"),
    *("offset", "balance", "correction", "changes"),
)
_HOST = np.dtype([(name, HOST[name]) for name in HOST.names or () if name != "within"])  # derived
_PART = 1 << 20  # bytes
_SHARED = Shared._fields[:-3]  # numbers
_DAMAGED = (
    *(KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError),
    RecursionError,
)


def to_bytes(state: State) -> bytes:
    """Return a state as bytes, without what is derived from it."""
    return b"".join(parts(state))


def parts(state: State) -> Iterator[bytes]:
    """Return a state as bytes, part by part.

    The state may change while the parts are read, by any thread.
    """
    header = {name: getattr(state, name) for name in _PLAIN}
    header |= {
        "free": state.names.free,
        # Rows of hosts and tags that there may be, and those that are free.
        "host_rows": [state.host_names.room, state.host_names.free],
        "tag_rows": [state.tags.names.room, state.tags.names.free],
        "settings": state.settings.as_dict(),
        "rows": state.rows,
        "host_names": b"".join(state.host_names.lines()).decode(),
        "time": state.time if state.time > -math.inf else None,
        "leases": [(lease, *entry) for lease, entry in state.leases.items()],
        "totals": state.totals.sums.tolist(),
        "kind_pings": state.kind_pings.tolist(),
        "run": state.run.tolist(),
        "precision": state.shared.precision.tolist(),
        "fresh": state.shared.fresh.tolist(),
        "counts": asdict(Counts(*state.counts.tolist())),
        "reasons": state.reasons.rows(),
        "renamed": state.reasons.renamed_rows(),
        "tags": state.tags.as_rows(),
        "paused_hosts": state.paused_hosts,
        "shared": {name: getattr(state.shared, name) for name in _SHARED},
        "columns": SOURCE.names,
        "host_columns": _HOST.names,
    }
    text = json.dumps(header, allow_nan=False).encode()
    hosts = state.shared.hosts[: len(state.host_names)][list(_HOST.names or ())].astype(_HOST)
    return _parts(text, state.copy_rows(), hosts.tobytes(), state.names.lines())


def _parts(header: bytes, sources: Copy, hosts: bytes, names: Iterator[bytes]) -> Iterator[bytes]:
    yield len(header).to_bytes(8, "little") + header
    yield from sources.parts()
    for start in range(0, len(hosts), _PART):
        yield hosts[start : start + _PART]
    yield from names


def from_bytes(data: bytes) -> State:
    """Return the state.

    Raises:
        DamagedStore: the bytes are not those of a state.
    """
    try:
        return _state(data)
    except _DAMAGED as error:
        raise DamagedStore(f"its stored state cannot be read: {error}") from error


def _state(data: bytes) -> State:
    size = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(
        data[8 : 8 + size], parse_constant=_refuse, parse_float=_finite
    )
    state = State()
    for name in _PLAIN:
        value = header[name]
        if type(value) is not type(getattr(state, name)):
            raise ValueError(f"{name} is {value!r}")
        setattr(state, name, value)
    state.settings = Settings.from_dict(header["settings"])
    state.time = -math.inf if header["time"] is None else float(header["time"])
    state.leases = {
        int(lease): (int(i), float(end), float(begin)) for lease, i, end, begin in header["leases"]
    }
    state.totals = Totals(header["totals"])
    state.kind_pings = _numbers(header["kind_pings"], len(state.kinds), KIND_SUMS)
    state.run = _numbers(header["run"], 2)
    state.counts = np.array(astuple(Counts.from_dict(header["counts"])))
    state.host_names = NameTable.of_lines(header["host_names"].encode())
    rows, hosts = int(header["rows"]), len(state.host_names)
    state.reasons = Reasons.of_rows(header["reasons"], header["renamed"], rows)
    start = 8 + size
    columns = header["columns"], header["host_columns"]
    if columns != (list(SOURCE.names or ()), list(_HOST.names or ())):
        raise ValueError("the columns are not those that this program knows")
    end = start + rows * SOURCE.itemsize
    last = end + hosts * _HOST.itemsize
    view = memoryview(data)  # its parts are not copied
    host_table, host_rows = new_hosts(hosts), _table(view[end:last], _HOST, hosts)
    for name in _HOST.names or ():
        host_table[name] = host_rows[name]
    state.set_sources(_table(view[start:end], SOURCE, rows))
    state.shared = state.shared._replace(hosts=host_table)
    state.names = NameTable.of_lines(view[last:])
    if len(state.names) != rows:
        raise ValueError(f"{rows} rows have {len(state.names)} names")
    state.names.set_free(header["free"])
    _set_rows(state.host_names, header["host_rows"])
    state.find_domains()
    if rows and not (state.sources.host.min() >= NO_HOST and state.sources.host.max() < hosts):
        raise ValueError("a source refers to a host that does not exist")
    if rows and not state.sources.cause.max() < len(LEARNT):
        raise ValueError("a source failed of something that is not known")
    state.tags = Tags.of_rows(header["tags"])
    _set_rows(state.tags.names, header["tag_rows"], 1)
    if rows and not state.sources.tag.max() < len(state.tags.names):
        raise ValueError("a source refers to a tag that does not exist")
    if rows and not state.sources.importance[state.sources.marks > 0].min(initial=1.0) > 0.0:
        raise ValueError("the weight of a source is not above 0")
    state.paused_hosts = [int(k) for k in header["paused_hosts"]]
    if not all(0 <= k < hosts for k in state.paused_hosts):
        raise ValueError("a host that does not exist is paused")
    state.use_tags()
    if any(not 0 <= i < rows for i, *_ in state.leases.values()):
        raise ValueError("a lease refers to a source that does not exist")
    if rows and state.sources.kind.max() >= max(len(state.kinds), 1):
        raise ValueError("a source refers to a signal that does not exist")
    state.count()
    kinds = max(len(state.kinds), 1)
    precision, fresh = _numbers(header["precision"], kinds), _numbers(header["fresh"], kinds)
    numbers = {name: float(header["shared"][name]) for name in _SHARED}
    state.shared = Shared(**numbers, precision=precision, fresh=fresh, hosts=host_table)
    return state


def _set_rows(names: NameTable, entry: list[Any], reserved: int = 0) -> None:
    """Set which rows of hosts or tags are free."""
    room, free = entry
    names.room = max(int(room), names.room)
    names.set_free(free, reserved)


def _table(data: memoryview, kind: np.dtype[Any], rows: int) -> NDArray[Any]:
    """Return rows that are stored, checked."""
    if len(data) != rows * kind.itemsize:
        raise ValueError(f"{rows} rows have {len(data)} bytes")
    table: NDArray[Any] = np.frombuffer(data, kind).copy()
    for name in kind.names or ():
        if table[name].dtype.kind == "f" and np.isnan(table[name]).any():
            raise ValueError("a number is NaN")
    return table


def _numbers(values: object, *shape: int) -> NDArray[np.float64]:
    """Return numbers that are stored, checked."""
    numbers = np.array(values, dtype=np.float64).reshape(-1, *shape[1:])
    if numbers.shape != shape:
        raise ValueError(f"there are {len(numbers)} rows of numbers instead of {shape[0]}")
    return numbers


def _refuse(name: str) -> float:
    raise ValueError(f"a number is {name}")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"a number is {text[:20]}")
    return value
