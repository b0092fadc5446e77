"""Small SQLite files beside the store of a scheduler."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from ephemeral_crawl.live.errors import DamagedStore, StoreLocked
from ephemeral_crawl.live.journal.sqlite import is_new, unusable

_OBJECTS = "SELECT type, name, sql FROM sqlite_master"


class FileBeside:
    """A small SQLite file, which several processes may use.

    Arguments:
        path: of the file, which is made if it does not exist, or ":memory:".
        what: what it is a file of, for messages.
        tables: statements that make its tables.
        patience: seconds for which it waits for another process that changes the file.

    Raises:
        ValueError: the file is something else, or damaged.
        OSError: it cannot be used.
        StoreLocked: another process changes it; also later, by all methods. Nothing is changed
            then.
    """

    def __init__(
        self, path: str | PathLike[str], what: str, tables: Sequence[str], patience: float
    ) -> None:
        if path != ":memory:":
            is_new(Path(path))
        self._name, self._patience = str(path), patience
        self._db = sqlite3.connect(
            path, timeout=patience, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(what, tables)
        except sqlite3.DatabaseError as error:
            self.close()
            reason = unusable(self._name, error, patience)
            if isinstance(reason, DamagedStore):
                reason = ValueError(
                    f"{path} is not a file of {what}: {error}. If it was one, it is damaged: "
                    "delete it, and it is made anew"
                )
            raise reason from error
        except BaseException:
            self.close()
            raise

    def _prepare(self, what: str, tables: Sequence[str]) -> None:
        self.rows("PRAGMA trusted_schema = OFF")
        with closing(sqlite3.connect(":memory:")) as ours:
            for statement in tables:
                ours.execute(statement)
            # Those of others could have triggers or views.
            if not set(self.rows(_OBJECTS)) <= {*ours.execute(_OBJECTS)}:
                raise ValueError(
                    f"{self._name} is a SQLite file, but not one of {what}; name another"
                )
        self.rows("PRAGMA journal_mode = WAL")
        self.rows("PRAGMA synchronous = NORMAL")
        with self.transaction():
            for statement in tables:
                self._db.execute(statement)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Return a context in which other processes are waited for."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            raise StoreLocked(self._name, self._patience) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Return a context in which all is changed, or nothing."""
        with self._waiting(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            yield

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement, and return the rows that it gives."""
        with self._waiting():
            return self._db.execute(statement, parameters).fetchall()

    def close(self) -> None:
        """Close the file."""
        self._db.close()
