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

from ephemeral_crawl.live.causes import LEARNT
from ephemeral_crawl.live.columns import HOST, NO_HOST, SOURCE, new_hosts
from ephemeral_crawl.live.copies import Copy
from ephemeral_crawl.live.counts import Counts
from ephemeral_crawl.live.fitting import Totals, unfitted
from ephemeral_crawl.live.learning import Shared
from ephemeral_crawl.live.names import NameTable
from ephemeral_crawl.live.reasons import Reasons
from ephemeral_crawl.live.settings import Settings
from ephemeral_crawl.live.state import State
from ephemeral_crawl.live.tags import Tags

_PLAIN = (
    *("free", "kinds", "last_lease", "cost"),
    *("offset", "balance", "correction", "changes"),
)
# Columns that rows of earlier versions lack: those before version 4, and before version 6.
_OF_TAGS = ("tag", "importance", "factor", "stretch")
_LATER = (("tried", "down", *_OF_TAGS), _OF_TAGS, ())
_HOST = np.dtype([(name, HOST[name]) for name in HOST.names or () if name != "within"])
_ROWS = [
    np.dtype([(name, SOURCE[name]) for name in SOURCE.names or () if name not in later])
    for later in _LATER
]
_PART = 1 << 20  # bytes
_SHARED = Shared._fields[:-2]  # numbers
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
        "settings": state.settings.as_dict(),
        "rows": state.rows,
        "host_names": b"".join(state.host_names.lines()).decode(),
        "time": state.time if state.time > -math.inf else None,
        "leases": [(lease, *entry) for lease, entry in state.leases.items()],
        "totals": state.totals.sums.tolist(),
        "kind_pings": state.kind_pings.tolist(),
        "run": state.run.tolist(),
        "precision": state.shared.precision.tolist(),
        "counts": asdict(Counts(*state.counts.tolist())),
        "reasons": state.reasons.rows(),
        "renamed": state.reasons.renamed_rows(),
        "tags": state.tags.as_rows(),
        "paused_hosts": state.paused_hosts,
        "shared": {name: getattr(state.shared, name) for name in _SHARED},
    }
    text = json.dumps(header, allow_nan=False).encode()
    hosts = state.hosts_table[: len(state.host_names)][list(_HOST.names or ())].astype(_HOST)
    return _parts(text, state.copied(), hosts.tobytes(), state.names.lines())


def _parts(header: bytes, sources: Copy, hosts: bytes, names: Iterator[bytes]) -> Iterator[bytes]:
    yield len(header).to_bytes(8, "little") + header
    yield from sources.parts()
    for start in range(0, len(hosts), _PART):
        yield hosts[start : start + _PART]
    yield from names


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
    # Files of earlier versions do not say when a lease began.
    state.leases = {
        int(lease): (int(i), float(end), float(begin[0]) if begin else 0.0)
        for lease, i, end, *begin in header["leases"]
    }
    state.totals = Totals(header["totals"])
    state.kind_pings = np.array(header["kind_pings"], dtype=np.float64).reshape(-1, 2)
    state.run = np.array(header.get("run", [0.0, 0.0]), dtype=np.float64)
    if state.run.shape != (2,):
        raise ValueError("the number of failures is damaged")
    counts = Counts.from_dict(header.get("counts", {}))  # files of earlier versions: none
    state.counts = np.array(astuple(counts))
    state.host_names = _host_names(header["host_names"])
    rows, hosts = int(header["rows"]), len(state.host_names)
    state.reasons = Reasons.of_rows(header.get("reasons", []), header.get("renamed", []), rows)
    start = 8 + size
    version = ("answering" in header["shared"]) + ("tags" in header)
    kind = _ROWS[version]
    end = start + rows * kind.itemsize
    last = end + hosts * _HOST.itemsize
    view = memoryview(data)  # its parts are not copied
    stored = _table(view[end:last], _HOST, hosts)
    host_table = new_hosts(hosts)
    for name in _HOST.names or ():
        host_table[name] = stored[name]
    state.set_tables(_table(view[start:end], kind, rows), host_table)
    if kind != SOURCE:
        state.set_tables(_present(state.table, state.time), host_table)
    state.names = NameTable.of_lines(view[last:])
    if len(state.names) != rows:
        raise ValueError(f"{rows} rows have {len(state.names)} names")
    unnamed = [i for i in sorted(state.free) if not 0 <= i < rows or state.names[i] is not None]
    if unnamed or len(set(state.free)) != rows - state.names.number:
        raise ValueError("free rows have names, or others have none")
    if state.host_names.number != hosts:
        raise ValueError("a host has no name")
    state.find_domains()
    if rows and not (state.sources.host.min() >= NO_HOST and state.sources.host.max() < hosts):
        raise ValueError("a source refers to a host that does not exist")
    if rows and not state.sources.cause.max() < len(LEARNT):
        raise ValueError("a source failed of something that is not known")
    state.tags = Tags.of_rows(header.get("tags", []))
    if rows and not state.sources.tag.max() < len(state.tags.names):
        raise ValueError("a source refers to a tag that does not exist")
    if rows and not state.sources.importance[state.sources.marks > 0].min(initial=1.0) > 0.0:
        raise ValueError("the weight of a source is not above 0")
    state.paused_hosts = [int(k) for k in header.get("paused_hosts", [])]
    if not all(0 <= k < hosts for k in state.paused_hosts):
        raise ValueError("a host that does not exist is paused")
    state.use_tags()
    if any(not 0 <= i < rows for i, *_ in state.leases.values()):
        raise ValueError("a lease refers to a source that does not exist")
    if len(state.kinds) != len(state.kind_pings) or (
        rows and state.sources.kind.max() >= max(len(state.kinds), 1)
    ):
        raise ValueError("a source refers to a signal that does not exist")
    precision = np.array(header["precision"], dtype=np.float64)
    if precision.shape != (max(len(state.kinds), 1),):
        raise ValueError("the precisions of signals are damaged")
    state.count()
    # Of files of earlier versions, until the next fit.
    assumed = unfitted(0.0)._asdict() | {"market": header.get("market", 1.0)}
    shared = assumed | header["shared"]
    known = {name: float(shared[name]) for name in _SHARED}
    state.shared = Shared(**known, precision=precision, hosts=state.hosts_table)
    return state


def _host_names(stored: object) -> NameTable:
    """Return the names of hosts, from lines or, in files of earlier versions, a list."""
    if isinstance(stored, str):
        return NameTable.of_lines(stored.encode())
    if not isinstance(stored, list):
        raise ValueError(f"host_names is {stored!r}")
    names = NameTable()
    names.give(range(len(stored)), stored)
    return names


def _table(data: memoryview, kind: np.dtype[Any], rows: int) -> NDArray[Any]:
    """Return rows that are stored, checked."""
    if len(data) != rows * kind.itemsize:
        raise ValueError(f"{rows} rows have {len(data)} bytes")
    table: NDArray[Any] = np.frombuffer(data, kind).copy()
    for name in kind.names or ():
        if table[name].dtype.kind == "f" and np.isnan(table[name]).any():
            raise ValueError("a number is NaN")
    return table


def _present(earlier: NDArray[Any], time: float) -> NDArray[Any]:
    """Return rows of an earlier version as those of this one: where it is not known since when
    sources fail, since now."""
    table: NDArray[Any] = np.zeros(len(earlier), SOURCE)
    for name in earlier.dtype.names or ():
        table[name] = earlier[name]
    if "tried" not in (earlier.dtype.names or ()):
        table["tried"] = np.where(table["failures"] > 0, time, 0.0)
    table["importance"] = 1.0
    return table


def _refuse(name: str) -> float:
    raise ValueError(f"a number is {name}")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"a number is {text[:20]}")
    return value
