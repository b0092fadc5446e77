"""The names of sources, or of hosts: one array of bytes, and a hash table of rows.

That takes a third of the memory of a list and a dictionary of strings.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from agents.scheduling.age_index import whole
from crawl_env.compiled import compiled

_EMPTY, _REMOVED = -1, -2  # slots without a row
_LEAST = 64
_LONGEST = 2**15 - 1  # bytes of a name
_CHUNK = 10_000  # names that are read at a time
_MIX, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)

Number = TypeVar("Number", bound=np.generic)
Bytes = NDArray[np.uint8]
Rows = NDArray[np.int64]


class _Table(NamedTuple):
    text: Bytes  # UTF-8
    start: NDArray[np.int64]  # (R,) where the name of each row begins
    size: NDArray[np.int16]  # (R,) its bytes; 0: the row has none
    slots: NDArray[np.int32]  # (S,) rows, by the hash of their names; S is a power of two
    secret: NDArray[np.uint64]  # (1,) so that nobody can give names of the same hash


class NameTable:
    """The name of each row, None if it has none, and the row of each name.

    >>> names = NameTable()
    >>> names.give([0, 1], ["a", "b"])
    >>> names[1], names.row("a"), names.row("c"), "b" in names
    ('b', 0, -1, True)
    >>> names.take(0)
    >>> list(names), names.number
    ([None, 'b'], 1)
    """

    def __init__(self) -> None:
        self._table = _Table(
            np.empty(0, np.uint8),
            np.empty(0, np.int64),
            np.empty(0, np.int16),
            np.full(_LEAST, _EMPTY, np.int32),
            np.array([secrets.randbits(64)], dtype=np.uint64),
        )
        self._rows = self._filled = 0  # rows; slots that are not empty
        self._used = self._unused = 0  # bytes of text, and those of names that were taken away
        self.number = 0  # of names

    @staticmethod
    def of_lines(lines: bytes | memoryview) -> NameTable:
        """Return the names that `lines` has given.

        Raises:
            ValueError: a name appears twice or is too long, or the bytes are not UTF-8.
        """
        str(lines, "utf-8")
        names = NameTable()
        names._load(lines)
        return names

    def _load(self, lines: bytes | memoryview) -> None:
        text = np.frombuffer(lines, np.uint8).copy()
        ends = np.flatnonzero(text == ord("\n"))
        if len(text) and (not len(ends) or ends[-1] != len(text) - 1):
            raise ValueError("the last name is cut off")
        start = np.concatenate([[0], ends + 1])[:-1]
        if (ends - start).max(initial=0) > _LONGEST:
            raise ValueError("a name is too long")
        size = (ends - start).astype(np.int16)
        self._table = self._table._replace(text=text, start=start, size=size)
        self._rows, self._used, self._unused = len(ends), len(text), 0
        self.number = int(np.count_nonzero(size))
        self._index()

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> str | None:
        if not 0 <= row < self._rows:
            raise IndexError(f"there is no row {row}")
        return self.of(np.array([row], dtype=np.int32))[0]

    def __iter__(self) -> Iterator[str | None]:
        return self.following(0)

    def following(self, first: int) -> Iterator[str | None]:
        """Return the names of the rows from one on."""
        for start in range(first, self._rows, _CHUNK):
            stop = min(start + _CHUNK, self._rows)
            yield from self.of(np.arange(start, stop, dtype=np.int32))

    def of(self, rows: NDArray[np.int32]) -> list[str | None]:
        """Return the names of some rows."""
        lines = _lines(self._table, rows).tobytes().decode().split("\n")
        return [name or None for name in lines[:-1]]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.row(name) >= 0

    def row(self, name: str) -> int:
        """Return the row of a name, −1 if there is none: as `rows`, faster for one."""
        text = bytearray(name.encode("utf-8", "surrogatepass"))
        return int(_find(self._table, np.frombuffer(text, np.uint8), np.array([len(text)]))[0])

    def rows(self, names: Sequence[str]) -> Rows:
        """Return the row of each name, −1 if there is none; any strings may be asked for."""
        found: Rows = _find(self._table, *_encoded(names, "surrogatepass"))
        return found

    def give(self, rows: Sequence[int] | Rows, names: Sequence[str]) -> None:
        """Give rows their names. They have none so far; new rows follow the last one.

        Raises:
            ValueError: a name is empty or too long, or there already.
        """
        text, ends = _encoded(names)
        which = np.array(rows, dtype=np.int64)
        sizes = np.diff(ends, prepend=0)
        if len(which) and not (sizes.min() > 0 and sizes.max() <= _LONGEST):
            raise ValueError("a name is empty or too long")
        self._rows = max(self._rows, int(which.max(initial=-1)) + 1)
        table = self._table
        self._table = table = table._replace(
            text=_with_room(table.text, self._used + len(text)),
            start=_with_room(table.start, self._rows),
            size=_with_room(table.size, self._rows),
        )
        table.text[self._used : self._used + len(text)] = text
        table.start[which] = self._used + ends - sizes
        table.size[which] = sizes
        self._used += len(text)
        self.number += len(which)
        if 4 * (self._filled + len(which)) > 3 * len(table.slots):
            self._index()
        else:
            self._enter(which)

    def take(self, row: int) -> None:
        """Take the name of a row away."""
        self._unused += int(self._table.size[row])
        _remove(self._table, row)
        self.number -= 1
        if self._unused > max(self._used // 2, _CHUNK):
            self._load(b"".join(self.lines()))

    def lines(self) -> Iterator[bytes]:
        """Return all names, each ended by a line feed, part by part; none is an empty line.

        Names may change while the parts are read: where they are is copied before this returns,
        and texts are only added to.
        """
        table, rows = self._table, self._rows
        copied = table._replace(start=table.start[:rows].copy(), size=table.size[:rows].copy())
        return (
            _lines(copied, np.arange(start, min(start + _CHUNK, rows), dtype=np.int32)).tobytes()
            for start in range(0, rows, _CHUNK)
        )

    def _index(self) -> None:
        """Make the hash table anew, with room for more names."""
        rows = np.flatnonzero(self._table.size[: self._rows])
        room = max(_LEAST, 1 << (3 * len(rows) // 2).bit_length())
        self._table = self._table._replace(slots=np.full(room, _EMPTY, np.int32))
        self._filled = 0
        self._enter(rows)

    def _enter(self, rows: Rows) -> None:
        self._filled += len(rows)
        if not _insert(self._table, rows):
            raise ValueError("a name appears twice")


def _encoded(names: Sequence[str], errors: str = "strict") -> tuple[Bytes, Rows]:
    """Return names as bytes, and where each ends."""
    encoded = [name.encode("utf-8", errors) for name in names]
    ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    return np.frombuffer(bytearray().join(encoded), np.uint8), ends


def _with_room(array: NDArray[Number], size: int) -> NDArray[Number]:
    """Return an array with room for so many numbers, which has what it holds."""
    if size <= len(array):
        return array
    larger = np.zeros(size + size // 4, array.dtype)
    larger[: len(array)] = array
    return larger


@compiled
def _slot(table: _Table, text: Bytes, start: int, size: int) -> int:
    """Return the slot of a name, or minus 1 minus the first one in which it could be."""
    found = table.secret[0]
    for k in range(start, start + size):
        found = (found ^ np.uint64(text[k])) * _MIX
        found ^= found >> _SHIFT
    last = len(table.slots) - 1
    at = whole(found & np.uint64(last))
    while True:
        row = table.slots[at]
        if row == _EMPTY:
            return -1 - at
        if row >= 0 and table.size[row] == size:
            begin, same = table.start[row], 0
            while same < size and table.text[begin + same] == text[start + same]:
                same += 1
            if same == size:
                return at
        at = (at + 1) & last


@compiled
def _find(table: _Table, text: Bytes, ends: Rows) -> Rows:
    """Return the rows of names, which end at these places in a text; −1 of those without."""
    found, start = np.empty(len(ends), np.int64), 0
    for k in range(len(ends)):
        slot = _slot(table, text, start, ends[k] - start)
        found[k] = table.slots[slot] if slot >= 0 else -1
        start = ends[k]
    return found


@compiled
def _insert(table: _Table, rows: Rows) -> bool:
    """Enter rows in the hash table; return whether no name was there before."""
    for k in range(len(rows)):
        row = rows[k]
        slot = _slot(table, table.text, table.start[row], whole(table.size[row]))
        if slot >= 0:
            return False
        table.slots[-1 - slot] = row
    return True


@compiled
def _remove(table: _Table, row: int) -> None:
    """Remove a row from the hash table, and its name."""
    slot = _slot(table, table.text, table.start[row], whole(table.size[row]))
    table.slots[slot] = _REMOVED
    table.size[row] = 0


@compiled
def _lines(table: _Table, rows: NDArray[np.int32]) -> Bytes:
    """Return the names of some rows, each ended by a line feed."""
    total = len(rows)
    for k in range(len(rows)):
        total += table.size[rows[k]]
    lines, at = np.empty(total, np.uint8), 0
    for k in range(len(rows)):
        begin = table.start[rows[k]]
        for place in range(begin, begin + table.size[rows[k]]):
            lines[at] = table.text[place]
            at += 1
        lines[at] = 10
        at += 1
    return lines
