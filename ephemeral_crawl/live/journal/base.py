"""What a journal is, and what journals in SQL databases have in common."""

from __future__ import annotations

import itertools
import json
import logging
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

from crawl_env.errors import shown
from ephemeral_crawl.live.errors import DamagedStore

Event = dict[str, Any]

VERSION = 7  # of the tables, and of what is in them
HISTORY = 10_000  # events before the last snapshot
PATIENCE = 30.0  # seconds to wait for another process, or for the database
_BATCH = 1000  # events in a transaction
RESTORE = "Put a copy in its place, if there is one, and check the disk"
_LOG = logging.getLogger(__name__)
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class Journal(ABC):
    """Where the events of a scheduler are stored."""

    name: str  # of the store, for messages; without a password

    @abstractmethod
    def exclusive(self) -> AbstractContextManager[None]:
        """Return a context in which no other process changes the journal; it commits at its end,
        and changes nothing if it is left by an exception.

        Raises:
            StoreLocked: another process changes it for longer than one is willing to wait.
        """

    @abstractmethod
    def since(self, number: int) -> list[tuple[int, Event]] | None:
        """Return the numbers and events after a number; None if some of them were removed."""

    @abstractmethod
    def append(self, number: int, event: Event) -> None:
        """Add an event, in an exclusive context; its number is that of the last one plus 1."""

    @abstractmethod
    def snapshot(self) -> tuple[int, bytes] | None:
        """Return the last snapshot and the number of the last event in it."""

    @abstractmethod
    def write_snapshot(self, number: int, parts: Iterable[bytes]) -> None:
        """Store a snapshot, unless there is a later one, and remove the one before.

        It is called outside of exclusive contexts, from any thread, and lets others write between
        the parts. If it does not come to its end, the snapshot before remains.
        """

    @abstractmethod
    def begin_with(self, number: int, parts: Iterable[bytes]) -> None:
        """Store the snapshot of another journal, in one transaction.

        Raises:
            ValueError: there is something in this one.
        """

    @abstractmethod
    def place(self) -> object:
        """Return a key that is equal for journals in the same place, however that is named."""

    @abstractmethod
    def disconnect(self) -> None:
        """Close the connection, which a child must not inherit; the next use makes a new one."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection for good."""


_NOTHING = nullcontext()


class NoJournal(Journal):
    """Stores nothing, for a scheduler in memory."""

    name = ":memory:"

    def __init__(self) -> None:
        self._number = 0

    def exclusive(self) -> AbstractContextManager[None]:
        return _NOTHING

    def since(self, number: int) -> list[tuple[int, Event]] | None:
        return [] if number == self._number else None

    def append(self, number: int, event: Event) -> None:
        self._number = number

    def snapshot(self) -> tuple[int, bytes] | None:
        return None

    def write_snapshot(self, number: int, parts: Iterable[bytes]) -> None:
        pass

    def begin_with(self, number: int, parts: Iterable[bytes]) -> None:
        raise ValueError("a copy in memory would be lost at once; give a file or a database")

    def place(self) -> object:
        return self

    def disconnect(self) -> None:
        pass

    def close(self) -> None:
        pass


class SqlJournal(Journal):
    """A journal in two tables of a database: one row per event, and the parts of the snapshot.

    Each row has a checksum, so that bytes that a disk, a program or a person has changed are found
    when they are read.
    """

    _last: tuple[int, int | None] = 0, None  # event read or written, and its checksum

    @abstractmethod
    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement, whose parameters are written as ?, and return the rows it gives."""

    def since(self, number: int) -> list[tuple[int, Event]] | None:
        rows = self.rows(
            "SELECT number, CASE WHEN number > ? THEN event END, checksum FROM journal "
            "WHERE number >= ? ORDER BY number",
            [number, number],
        )
        is_other = False
        if rows and rows[0][0] == number:
            (_, _, checksum), *rows = rows
            is_other = self._last[0] == number and self._last[1] != checksum
        elif number and not rows:  # as in a copy, which begins with a snapshot
            ((snapshot_number,),) = self.rows("SELECT max(number) FROM snapshot WHERE last = 1")
            is_other = snapshot_number != number
        if is_other:
            _LOG.warning(
                "%s is in another state than before, as where a backup was put back or a replica "
                "took over; what was stored since then is lost",
                self.name,
            )
            return None
        if rows and rows[0][0] != number + 1:
            return None
        events = [
            (row[0], self._decode(after, *row)) for after, row in enumerate(rows, start=number)
        ]
        if rows:
            self._last = rows[-1][0], rows[-1][2]
        return events

    def append(self, number: int, event: Event) -> None:
        text = _encode(event)
        self._last = number, _checksum(number, 0, text.encode())
        self.rows(
            "INSERT INTO journal (number, event, checksum) VALUES (?, ?, ?)",
            [number, text, self._last[1]],
        )

    def snapshot(self) -> tuple[int, bytes] | None:
        self._last = 0, None  # everything is read anew
        rows = self.rows(
            "SELECT number, part, last, state, checksum FROM snapshot "
            "WHERE number = (SELECT max(number) FROM snapshot WHERE last = 1) ORDER BY part"
        )
        for k, (number, part, last, state, checksum) in enumerate(rows, 1):
            whole = part == k and bool(last) == (k == len(rows)) and isinstance(state, bytes)
            if not whole or checksum != _checksum(number, part, state):
                raise DamagedStore(
                    f"{self.name}: its stored state is damaged: part {part} of snapshot {number} "
                    f"is not what was written. {RESTORE}"
                )
        return (rows[0][0], b"".join(row[3] for row in rows)) if rows else None

    def write_snapshot(self, number: int, parts: Iterable[bytes]) -> None:
        journal = self.again()
        journal._last = self._last
        try:
            journal._write_snapshot(number, parts)
        finally:
            journal.close()

    def begin_with(self, number: int, parts: Iterable[bytes]) -> None:
        with self.exclusive():
            if self.rows("SELECT 1 FROM journal UNION SELECT 1 FROM snapshot WHERE last = 1"):
                raise ValueError("there is a scheduler in the store; give another")
            self.rows("DELETE FROM snapshot")
            part = 0
            for part, state in enumerate(parts, 1):
                self._write_part(number, part, state)
            self.rows("UPDATE snapshot SET last = 1 WHERE part = ?", [part])

    def _write_snapshot(self, number: int, parts: Iterable[bytes]) -> None:
        # Not while another process makes its snapshot valid, which must not be deleted.
        with self.exclusive():
            ((newest,),) = self.rows("SELECT max(number) FROM snapshot WHERE last = 1")
            if newest is not None and newest >= number:
                return
            if self._last[0] == number and not self.rows(
                "SELECT 1 FROM journal WHERE number = ? AND checksum = ?", self._last
            ):
                return  # the store has gone back since
            # Only snapshots that nobody has finished, whose writers have died, or give up below.
            self.rows("DELETE FROM snapshot WHERE number <> ?", [-1 if newest is None else newest])
        part, state = 0, b""
        for following in itertools.chain(parts, [None]):
            if following is not None:
                if part:
                    self._write_part(number, part, state)
                part, state = part + 1, following
        with self.exclusive():
            ((count,),) = self.rows(
                "SELECT count(*) FROM snapshot WHERE number = ? AND part < ?", [number, part]
            )
            if count != part - 1:
                return
            self._write_part(number, part, state, last=True)
        # Some at a time, so that nobody waits long.
        for row in self.rows("SELECT number, part FROM snapshot WHERE number < ?", [number]):
            self.rows("DELETE FROM snapshot WHERE number = ? AND part = ?", row)
        ((oldest,),) = self.rows("SELECT min(number) FROM journal")
        for first in range(oldest or number, number - HISTORY + 1, _BATCH):
            end = min(first + _BATCH - 1, number - HISTORY)
            with self.exclusive():
                self.rows("DELETE FROM journal WHERE number <= ?", [end])

    def _write_part(self, number: int, part: int, state: bytes, last: bool = False) -> None:
        # Of a snapshot that two processes write, the parts are the same.
        self.rows(
            "INSERT INTO snapshot (number, part, last, state, checksum) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT DO NOTHING",
            [number, part, int(last), state, _checksum(number, part, state)],
        )

    @abstractmethod
    def again(self) -> Self:
        """Return the same journal with a connection of its own."""

    def check_writable(self) -> None:
        """Raise OSError if nothing can be written: of a file or a server that is read-only,
        transactions without a change do not tell."""
        self.rows("DELETE FROM journal WHERE number < 0")

    def check_version(self, version: int) -> None:
        """Raise ValueError if the tables are not of the version that this program reads."""
        if version != VERSION:
            raise ValueError(
                f"{self.name} has version {version} of the tables and this program has {VERSION}; "
                "use the program that wrote it. To change to this one, write the sources to a file "
                "with that program's `ephemeral-crawl sources --write sources.csv`, and add them "
                "to a new store"
            )

    def _decode(self, after: int, number: int, text: object, checksum: int | None) -> Event:
        """Return an event, the first one after number `after`, if it is as it was written."""
        try:
            if number != after + 1:
                raise ValueError(f"it follows event {after}, and those between are missing")
            if not isinstance(text, str):  # in a damaged file, a number for example
                raise ValueError(f"it is {shown(text)}")
            if checksum != _checksum(number, 0, text.encode()):
                raise ValueError("it is not what was written")
            event = json.loads(text, parse_constant=_refuse)
            if not isinstance(event, dict):
                raise ValueError(f"it is {shown(event)}")
            if not all(math.isfinite(event[name]) for name in ("time", "offset")):
                raise ValueError("a time is infinite")
        except (KeyError, TypeError, ValueError, RecursionError, OverflowError) as error:
            raise DamagedStore(
                f"{self.name}: event {number} is damaged: {error}. {RESTORE}"
            ) from error
        return event


def _checksum(number: int, part: int, content: bytes) -> int:
    """Return the CRC-32 of a row and of its place."""
    return zlib.crc32(content, zlib.crc32(b"%d/%d" % (number, part)))


def _refuse(name: str) -> float:
    raise ValueError(f"a number is {name}")
