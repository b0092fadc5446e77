"""The names of sources, hosts or tags: one for each row, and the row of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

_LONGEST = 2**15 - 1  # bytes of a name
_CHUNK = 10_000  # names that are encoded at a time
_ROOM = 64  # rows from which on those are looked for whose names are not used any more


class NameTable(list[str | None]):
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
        super().__init__()
        self._rows: dict[str, int] = {}
        self.number = 0  # of names
        self.free: list[int] = []  # rows that are used again, the last one first
        self.room = _ROOM  # rows that there may be before `free_unused` is to be called again

    @staticmethod
    def of_lines(lines: bytes | memoryview) -> NameTable:
        """Return the names that `lines` has given.

        Raises:
            ValueError: a name appears twice or is too long, or the bytes are not UTF-8.
        """
        *texts, rest = str(lines, "utf-8").split("\n")
        if rest:
            raise ValueError("the last name is cut off")
        names = NameTable()
        names.extend([None] * len(texts))
        rows = [row for row, text in enumerate(texts) if text]
        names.give(rows, [texts[row] for row in rows])
        return names

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._rows

    def row(self, name: str) -> int:
        """Return the row of a name, −1 if there is none."""
        return self._rows.get(name, -1)

    def rows(self, names: Iterable[str]) -> list[int]:
        """Return the row of each name, −1 if there is none."""
        row_of = self._rows
        return [row_of.get(name, -1) for name in names]

    def give(self, rows: Sequence[int], names: Sequence[str]) -> None:
        """Give rows their names. They have none so far; new rows follow the last one.

        Raises:
            ValueError: a name is empty or too long, or there already.
        """
        if not all(0 < len(name.encode()) <= _LONGEST for name in names):
            raise ValueError("a name is empty or too long")
        new = dict(zip(names, rows, strict=True))
        if len(new) < len(names) or not self._rows.keys().isdisjoint(new):
            raise ValueError("a name appears twice")
        self._rows |= new
        self.number += len(new)
        self.extend([None] * (max(rows, default=-1) + 1 - len(self)))
        for name, row in new.items():
            self[row] = name

    def is_full(self, number: int, most: float = math.inf) -> bool:
        """Return whether so many new names need more rows than there is room for, or than `most`,
        so that `free_unused` is to be called before they are added."""
        more = number - len(self.free)
        return more > 0 and len(self) + more > min(self.room, most)

    def free_unused(self, rows: Sequence[int]) -> None:
        """Remove the names of rows that nothing uses any more, and mark these rows as free.

        Afterwards there is room for twice as many names as remain, so that the search for unused
        rows takes time in proportion to the number of names that are added.
        """
        for row in rows:
            self.take(row)
        self.free += reversed(rows)  # the first is used first
        self.room = max(2 * self.number, _ROOM)

    def set_free(self, rows: list[int], reserved: int = 0) -> None:
        """Mark rows as free.

        Arguments:
            reserved: number of rows, the first ones, that never have names.

        Raises:
            ValueError: these are not the rows that have no names.
        """
        in_use = [row for row in rows if not (reserved <= row < len(self) and self[row] is None)]
        if in_use or len(set(rows)) < len(rows) or len(rows) != len(self) - reserved - self.number:
            raise ValueError("free rows have names, or others have none")
        self.free = rows

    def add(self, names: Sequence[str]) -> list[int]:
        """Give new names rows, those that are free first, and return them."""
        again = min(len(self.free), len(names))
        rows = [self.free.pop() for _ in range(again)]
        rows += range(len(self), len(self) + len(names) - again)
        self.give(rows, names)
        return rows

    def take(self, row: int) -> None:
        """Remove the name of a row."""
        name = self[row]
        assert name is not None
        del self._rows[name]
        self[row] = None
        self.number -= 1

    def lines(self) -> Iterator[bytes]:
        """Return all names, each ended by a line feed, part by part; none is an empty line.

        Names may change while the parts are read: they are copied before this returns.
        """
        names = self[:]
        return (
            "".join(f"{name or ''}\n" for name in names[start : start + _CHUNK]).encode()
            for start in range(0, len(names), _CHUNK)
        )
