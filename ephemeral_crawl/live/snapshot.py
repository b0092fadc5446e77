"""A state as bytes: a header of JSON, and the columns one after another.

Nothing but numbers and names is stored, and what is read is checked, so that a damaged or foreign
file is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ephemeral_crawl.live.causes import LEARNT
from ephemeral_crawl.live.columns import HOST, NO_HOST, SOURCE, new_hosts, new_sources
from ephemeral_crawl.live.copies import Copy
from ephemeral_crawl.live.counts import Counts
from ephemeral_crawl.live.errors import DamagedStore
from ephemeral_crawl.live.fitting import Totals, unfitted
from ephemeral_crawl.live.learning import KIND_SUMS, Shared
from ephemeral_crawl.live.names import NameTable
from ephemeral_crawl.live.reasons import Reasons
from ephemeral_crawl.live.settings import Settings
from ephemeral_crawl.live.state import State
from ephemeral_crawl.live.tags import Tags

_PLAIN = (
    *("kinds", "last_lease", "cost"),
    *("offset", "balance", "correction", "changes"),
)
# Columns that rows do not have in files which do not name theirs: those before version 4, those
# before version 6, and others; and columns that hosts do not have.
_OF_TAGS = ("tag", "importance", "factor", "stretch")
_OF_COSTS = ("hit", "vain")
_LATER = (("tried", "down", *_OF_TAGS, *_OF_COSTS), (*_OF_TAGS, *_OF_COSTS), _OF_COSTS)
_LATER_HOST = ("trust",)
_HOST = tuple(name for name in HOST.names or () if name != "within")  # which is derived
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
        "host_columns": _HOST,
    }
    text = json.dumps(header, allow_nan=False).encode()
    hosts = state.shared.hosts[: len(state.host_names)][list(_HOST)].astype(_columns(HOST, _HOST))
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
    # Files of earlier versions do not say when a lease began.
    state.leases = {
        int(lease): (int(i), float(end), float(begin[0]) if begin else 0.0)
        for lease, i, end, *begin in header["leases"]
    }
    state.totals = Totals(header["totals"])
    state.kind_pings = _kind_pings(header["kind_pings"], len(state.kinds))
    state.run = np.array(header.get("run", [0.0, 0.0]), dtype=np.float64)
    if state.run.shape != (2,):
        raise ValueError("the number of failures is damaged")
    counts = Counts.from_dict(header.get("counts", {}))  # files of earlier versions: none
    state.counts = np.array(astuple(counts))
    state.host_names = _host_names(header["host_names"])
    rows, hosts = int(header["rows"]), len(state.host_names)
    state.reasons = Reasons.of_rows(header.get("reasons", []), header.get("renamed", []), rows)
    start = 8 + size
    later = _LATER[("answering" in header["shared"]) + ("tags" in header)]
    usual = [name for name in SOURCE.names or () if name not in later]
    kind = _columns(SOURCE, header.get("columns", usual))
    usual = [name for name in _HOST if name not in _LATER_HOST]
    host_kind = _columns(HOST, header.get("host_columns", usual))
    end = start + rows * kind.itemsize
    last = end + hosts * host_kind.itemsize
    view = memoryview(data)  # its parts are not copied
    host_table = _present(_table(view[end:last], host_kind, hosts), new_hosts(hosts))
    table = _table(view[start:end], kind, rows)
    if kind != SOURCE:
        table = _present(table, new_sources(rows))
        if "tried" in later:  # sources that fail have done so since now
            table["tried"] = np.where(table["failures"] > 0, state.time, 0.0)
        if "importance" in later:
            table["importance"] = 1.0
    state.set_sources(table)
    state.shared = state.shared._replace(hosts=host_table)
    state.names = NameTable.of_lines(view[last:])
    if len(state.names) != rows:
        raise ValueError(f"{rows} rows have {len(state.names)} names")
    state.names.set_free(header["free"])
    _set_rows(state.host_names, header.get("host_rows"))
    state.find_domains()
    if rows and not (state.sources.host.min() >= NO_HOST and state.sources.host.max() < hosts):
        raise ValueError("a source refers to a host that does not exist")
    if rows and not state.sources.cause.max() < len(LEARNT):
        raise ValueError("a source failed of something that is not known")
    state.tags = Tags.of_rows(header.get("tags", []))
    _set_rows(state.tags.names, header.get("tag_rows"), 1)
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
    if rows and state.sources.kind.max() >= max(len(state.kinds), 1):
        raise ValueError("a source refers to a signal that does not exist")
    precision = np.array(header["precision"], dtype=np.float64)
    fresh = np.array(header.get("fresh", np.ones(len(precision))), dtype=np.float64)
    if not precision.shape == fresh.shape == (max(len(state.kinds), 1),):
        raise ValueError("the precisions of signals are damaged")
    state.count()
    # Of files of earlier versions, until the next fit.
    assumed = unfitted(0.0)._asdict() | {"market": header.get("market", 1.0)}
    shared = assumed | header["shared"]
    known = {name: float(shared[name]) for name in _SHARED}
    state.shared = Shared(**known, precision=precision, fresh=fresh, hosts=host_table)
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


def _set_rows(names: NameTable, stored: list[Any] | None, reserved: int = 0) -> None:
    """Set which rows of hosts or tags are free: none in files of earlier versions."""
    room, free = (2 * names.number, []) if stored is None else stored
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


def _present(stored: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """Return new rows with the columns that are stored."""
    for name in stored.dtype.names or ():
        new[name] = stored[name]
    return new


def _columns(kind: np.dtype[Any], names: Sequence[str]) -> np.dtype[Any]:
    """Return the type of rows that have some of the columns."""
    return np.dtype([(name, kind[name]) for name in names])


def _kind_pings(stored: list[list[float]], kinds: int) -> NDArray[np.float64]:
    """Return sums over the pings of each kind; files of earlier versions have two of them."""
    sums = np.zeros((kinds, KIND_SUMS))
    if len(stored) != kinds:
        raise ValueError("a source refers to a signal that does not exist")
    for k, row in enumerate(stored):
        sums[k, : len(row)] = row
    return sums


def _refuse(name: str) -> float:
    raise ValueError(f"a number is {name}")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"a number is {text[:20]}")
    return value
