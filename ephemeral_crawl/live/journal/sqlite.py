"""A journal in a SQLite file."""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

from ephemeral_crawl.live.journal.base import PATIENCE, VERSION, SqlJournal

APPLICATION = 0x4570436C  # "EpCl", which marks the file as one of these
_HEAD = b"SQLite format 3\0"
_OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
_STEPS = [  # from each version of the tables to the next
    [
        "CREATE TABLE journal (number INTEGER PRIMARY KEY, event TEXT NOT NULL) STRICT",
        "CREATE TABLE snapshot (part INTEGER PRIMARY KEY, number INTEGER NOT NULL, "
        "state BLOB NOT NULL) STRICT",
        f"PRAGMA application_id = {APPLICATION}",
    ],
    [
        "ALTER TABLE snapshot RENAME TO older",
        "CREATE TABLE snapshot (number INTEGER NOT NULL, part INTEGER NOT NULL, "
        "last INTEGER NOT NULL, state BLOB NOT NULL, PRIMARY KEY (number, part)) STRICT",
        "INSERT INTO snapshot SELECT number, part, part = (SELECT max(part) FROM older), state "
        "FROM older",
        "DROP TABLE older",
    ],
    [],  # names of hosts are a text in snapshots, instead of a list
]


class SqliteJournal(SqlJournal):
    """A journal in a SQLite file with a write-ahead log.

    Commits survive that the process is killed. With `full`, they also survive a power failure, at
    the price of a write to the disk per commit.

    Arguments:
        new: called with the name of the file before it is made.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the file is not one of a scheduler, or of a later version.
    """

    def __init__(
        self, path: Path, *, full: bool = False, new: Callable[[str], object] = lambda name: None
    ) -> None:
        if not path.parent.is_dir():
            raise FileNotFoundError(f"the folder {path.parent} does not exist; make it first")
        if path.is_dir():
            raise ValueError(f"{path} is a folder; give the name of a file")
        self.name, self._path, self._full, self._closed = str(path), path, full, False
        if is_new(path):
            new(self.name)
        try:
            self._open()
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
            self._path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
        )
        self._process = os.getpid()
        self._connection.execute("PRAGMA trusted_schema = OFF")
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if self._full else 'NORMAL'}")

    def _use(self) -> sqlite3.Connection:
        """Return the connection, a new one after a fork: SQLite's do not survive it."""
        if self._closed:
            raise ValueError(f"the scheduler of {self.name} is closed; open it again")
        if self._process != os.getpid():
            self._forked = self._connection  # closing it would release the parent's locks
            self._open()
        return self._connection

    def _prepare(self) -> None:
        objects = self.rows(_OBJECTS)
        if not objects:
            self.rows("PRAGMA journal_mode = WAL")
        elif self._check(objects) == VERSION:
            return
        with self.exclusive():
            objects = self.rows(_OBJECTS)  # another process may have made them since
            self.migrate(self._check(objects) if objects else 0, _STEPS)
            self.rows(f"PRAGMA user_version = {VERSION}")

    def _check(self, objects: Sequence[tuple[Any, ...]]) -> int:
        """Return the version; refuse files whose tables are not exactly those of that version:
        those of others could have triggers, views or computed columns."""
        ((application,),) = self.rows("PRAGMA application_id")
        ((version,),) = self.rows("PRAGMA user_version")
        known = 0 < version <= VERSION
        if application != APPLICATION or (known and list(objects) != _tables(version)):
            raise ValueError(
                f"{self.name} is a SQLite file, but not one of a scheduler; give the name of a new "
                "file"
            )
        return int(version)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        connection = self._use()
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            raise TimeoutError(
                f"{self.name} is locked by another process for more than {PATIENCE:g} s; nothing "
                "was changed. Try again"
            ) from error
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._use().execute(statement, parameters).fetchall()

    def again(self) -> Self:
        return type(self)(self._path, full=self._full)

    def close(self) -> None:
        self._closed = True
        if self._process == os.getpid():
            self._connection.close()


def is_new(path: Path) -> bool:
    """Return whether there is no SQLite file yet: none at all, or an empty one.

    Raises:
        ValueError: the file is another.
    """
    try:
        with path.open("rb") as file:
            head = file.read(len(_HEAD))
    except FileNotFoundError:
        return True
    if head and head != _HEAD:  # SQLite takes one of a few bytes for a new one
        raise ValueError(f"{path} is not a database of SQLite; give the name of a new file")
    return not head


def _tables(version: int) -> list[tuple[Any, ...]]:
    """Return what a file of a version consists of."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in itertools.chain(*_STEPS[:version]):
            connection.execute(statement)
        return connection.execute(_OBJECTS).fetchall()
