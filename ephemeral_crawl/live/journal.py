"""The journal: every change of a scheduler, in order, in a SQLite file or nowhere.

A change is acknowledged once its event has been committed. The state is the last snapshot with the
events since then applied to it, so that nothing acknowledged is lost when a process is killed, and
several processes that share a file have the same state: each applies what the others appended.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from crawl_env.errors import shown

APPLICATION = 0x4570436C  # "EpCl", which marks the file as one of these
VERSION = 1  # of the schema
KEPT = 100_000  # events before the last snapshot
_PART = 1 << 26  # bytes of a snapshot in one row
_PATIENCE = 30.0  # seconds to wait for another process
_TABLES = {"journal", "snapshot"}


class Journal(Protocol):
    """Where the events of a scheduler are stored."""

    def exclusive(self) -> Any:
        """Return a context in which no other process changes the journal; it commits at its end,
        and changes nothing if it is left by an exception."""
        ...

    def since(self, number: int) -> list[tuple[int, dict[str, Any]]] | None:
        """Return the numbers and events after a number; None if some of them were removed."""
        ...

    def append(self, event: dict[str, Any]) -> int:
        """Add an event, in an exclusive context, and return its number."""
        ...

    def snapshot(self) -> tuple[int, bytes] | None:
        """Return the last snapshot and the number of the last event in it."""
        ...

    def write_snapshot(self, number: int, data: bytes) -> None:
        """Replace the snapshot, in an exclusive context."""
        ...

    def close(self) -> None: ...


class NoJournal:
    """Stores nothing, for a scheduler in memory."""

    def __init__(self) -> None:
        self._number = 0

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        yield

    def since(self, number: int) -> list[tuple[int, dict[str, Any]]] | None:
        return [] if number == self._number else None

    def append(self, event: dict[str, Any]) -> int:
        self._number += 1
        return self._number

    def snapshot(self) -> tuple[int, bytes] | None:
        return None

    def write_snapshot(self, number: int, data: bytes) -> None:
        pass

    def close(self) -> None:
        pass


class SqliteJournal:
    """A journal in a SQLite file with a write-ahead log.

    Commits survive that the process is killed. With `full`, they also survive a power failure, at
    the price of a write to the disk per commit.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the file is not one of a scheduler, or of a later version.
    """

    def __init__(self, path: Path, *, full: bool = False) -> None:
        if not path.parent.is_dir():
            raise FileNotFoundError(f"the folder {path.parent} does not exist; make it first")
        if path.is_dir():
            raise ValueError(f"{path} is a folder; give the name of a file")
        self.path, self._full, self._closed = path, full, False
        self._open()
        try:
            self._prepare()
        except sqlite3.DatabaseError as error:
            self.close()
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise
            raise ValueError(f"{path} is not a database of a scheduler: {error}") from error
        except ValueError:
            self.close()
            raise

    def _open(self) -> None:
        self._connection = sqlite3.connect(
            self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
        )
        self._process = os.getpid()

    def _use(self) -> sqlite3.Connection:
        """Return the connection, a new one after a fork: SQLite's do not survive it."""
        if self._closed:
            raise ValueError(f"the scheduler of {self.path} is closed; open it again")
        if self._process != os.getpid():
            self._forked = self._connection  # closing it would release the parent's locks
            self._open()
            self._set_up(self._connection)
        return self._connection

    def _set_up(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._full else 'NORMAL'}")

    def _prepare(self) -> None:
        connection = self._connection
        self._set_up(connection)
        objects = connection.execute("SELECT type, name FROM sqlite_master").fetchall()
        if objects:
            self._check(connection, objects)
            return
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                connection.execute(
                    "CREATE TABLE journal (number INTEGER PRIMARY KEY, event TEXT NOT NULL) STRICT"
                )
                connection.execute(
                    "CREATE TABLE snapshot (part INTEGER PRIMARY KEY, number INTEGER NOT NULL, "
                    "state BLOB NOT NULL) STRICT"
                )
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    def _check(self, connection: sqlite3.Connection, objects: list[tuple[str, str]]) -> None:
        """Refuse files of others, and those with triggers, views or further tables."""
        ((application,),) = connection.execute("PRAGMA application_id").fetchall()
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        others = [name for kind, name in objects if kind != "table" or name not in _TABLES]
        if application != APPLICATION or others:
            raise ValueError(
                f"{self.path} is a SQLite file, but not one of a scheduler; give the name of a new "
                "file"
            )
        if version != VERSION:
            raise ValueError(
                f"{self.path} has version {version} of the schema and this program has {VERSION}; "
                "use the program that wrote it"
            )

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        connection = self._use()
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            raise TimeoutError(
                f"{self.path} is locked by another process for more than {_PATIENCE:g} s; nothing "
                "was changed. Try again"
            ) from error
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def since(self, number: int) -> list[tuple[int, dict[str, Any]]] | None:
        rows = (
            self._use()
            .execute(
                "SELECT number, event FROM journal WHERE number > ? ORDER BY number", (number,)
            )
            .fetchall()
        )
        if rows and rows[0][0] != number + 1:
            return None
        return [(at, self._event(at, text)) for at, text in rows]

    def _event(self, number: int, text: str) -> dict[str, Any]:
        try:
            event = json.loads(text, parse_constant=_refuse)
            if not isinstance(event, dict):
                raise ValueError(f"it is {shown(event)}")
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{self.path}: event {number} is damaged: {error}") from error
        return event

    def append(self, event: dict[str, Any]) -> int:
        text = json.dumps(event, allow_nan=False, separators=(",", ":"))
        cursor = self._connection.execute("INSERT INTO journal (event) VALUES (?)", (text,))
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def snapshot(self) -> tuple[int, bytes] | None:
        rows = self._use().execute("SELECT number, state FROM snapshot ORDER BY part").fetchall()
        if not rows:
            return None
        if len({number for number, _ in rows}) > 1:
            raise ValueError(f"{self.path}: the snapshot is damaged: its parts do not fit together")
        return rows[0][0], b"".join(part for _, part in rows)

    def write_snapshot(self, number: int, data: bytes) -> None:
        connection = self._connection
        connection.execute("DELETE FROM snapshot")
        for start in range(0, len(data), _PART):
            connection.execute(
                "INSERT INTO snapshot (number, state) VALUES (?, ?)",
                (number, data[start : start + _PART]),
            )
        connection.execute("DELETE FROM journal WHERE number <= ?", (number - KEPT,))

    def close(self) -> None:
        self._closed = True
        if self._process == os.getpid():
            self._connection.close()


def _refuse(name: str) -> float:
    raise ValueError(f"a number is {name}")


def open_journal(store: object, *, full: bool) -> Journal:
    """Return the journal for ":memory:", "sqlite:///file.db" or the path of a SQLite file."""
    if isinstance(store, os.PathLike):
        return SqliteJournal(Path(store), full=full)
    if store == ":memory:":
        return NoJournal()
    if isinstance(store, str) and store.startswith("sqlite:///") and len(store) > 10:
        if "\0" in store:
            raise ValueError(f"store is {shown(store)}; a path has no NUL characters")
        return SqliteJournal(Path(store.removeprefix("sqlite:///")), full=full)
    raise ValueError(
        f"store is {shown(store)}; give ':memory:', 'sqlite:///crawl.db', "
        "'sqlite:////var/crawl.db' or a pathlib.Path"
    )
