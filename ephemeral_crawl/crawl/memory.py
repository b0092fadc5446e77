"""What the crawler remembers of each feed: which items are known, and what makes the next request
conditional. A SQLite file of bounded size beside the scheduler's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from ephemeral_crawl.live.errors import StoreLocked
from ephemeral_crawl.live.journal import PATIENCE
from ephemeral_crawl.live.journal.sqlite import is_new

KEPT = 8000  # identities of items, up to two each, of a feed; those longest out of it go first
_APPLICATION = 0x4570436D


class Remembered(NamedTuple):
    """What is remembered of a feed."""

    etag: str = ""
    modified: str = ""
    digest: bytes = b""  # of the last document
    pause: float = 0.0  # seconds for which the feed asked not to be fetched again
    title: str = ""


class Memory:
    """A small table of the items that are known, by feed.

    Arguments:
        path: of the file, which is made if it does not exist, or ":memory:".

    Raises:
        ValueError: the file is something else.
        TimeoutError: another process changes it for 30 s, or as `set_patience` says; also later, by
            all methods that change something. Nothing is changed then.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        if path != ":memory:":
            is_new(Path(path))
        self._name, self._patience = str(path), PATIENCE
        self._db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
        try:
            with self._changing():
                self._prepare()
        except StoreLocked:
            self._db.close()
            raise
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise ValueError(f"{path} is not a file of known items: {error}") from error
        except ValueError:
            self._db.close()
            raise ValueError(
                f"{path} is a SQLite file, but not one of known items; name another"
            ) from None

    def _prepare(self) -> None:
        self._db.execute("PRAGMA trusted_schema = OFF")
        objects = self._db.execute("SELECT type, name FROM sqlite_master").fetchall()
        ((application,),) = self._db.execute("PRAGMA application_id").fetchall()
        if objects:
            others = [name for kind, name in objects if kind not in ("table", "index")]
            if application != _APPLICATION or others:
                raise ValueError
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute(f"PRAGMA application_id = {_APPLICATION}")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS feed (number INTEGER PRIMARY KEY, source TEXT UNIQUE, "
            "etag TEXT, modified TEXT, digest BLOB, pause REAL, title TEXT) STRICT"
        )
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS known (feed INTEGER, item INTEGER, shown INTEGER, "
            "PRIMARY KEY (feed, item)) STRICT, WITHOUT ROWID"
        )
        self._db.execute("CREATE TABLE IF NOT EXISTS page (source TEXT PRIMARY KEY) STRICT")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS slowed (host TEXT PRIMARY KEY, own REAL, asked REAL) STRICT"
        )

    @classmethod
    def beside(cls, store: Path) -> Memory:
        """Return the table beside the store of a scheduler."""
        return cls(store.with_name(store.name + ".items"))

    def set_patience(self, patience: float) -> None:
        """Wait for other processes for so many seconds at most."""
        self._patience = patience
        self._db.execute(f"PRAGMA busy_timeout = {1000.0 * patience:.0f}")

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Return a context in which this is changed."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            raise StoreLocked(self._name, self._patience) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Return a context in which all is changed, or nothing."""
        with self._changing(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            yield

    def of(self, source: str) -> Remembered:
        """Return what is remembered of a feed."""
        row = self._db.execute(
            "SELECT etag, modified, digest, pause, title FROM feed WHERE source = ?", (source,)
        ).fetchone()
        return Remembered(*row) if row else Remembered()

    def add_pages(self, sources: Iterable[str]) -> None:
        """Remember that sources are pages, unless they give a feed."""
        with self._transaction():
            self._db.executemany(
                "INSERT INTO page VALUES (?) ON CONFLICT DO NOTHING",
                [(source,) for source in sources],
            )

    def is_page(self, source: str) -> bool:
        """Return whether a source is a page that never gave a feed."""
        found = self._db.execute("SELECT 1 FROM page WHERE source = ?", (source,)).fetchone()
        return found is not None and not self.of(source).digest

    def own_limit(self, host: str, present: float) -> float:
        """Return the limit that a host has apart from what robots.txt asks for, seconds.

        Arguments:
            present: its limit; if it is not the one that was noted, others have set it since.
        """
        found = self._db.execute(
            "SELECT own FROM slowed WHERE host = ? AND asked = ?", (host, present)
        ).fetchone()
        return float(found[0]) if found else present

    def note_limit(self, host: str, own: float, asked: float) -> None:
        """Note which limit a host has, and which it has apart from what robots.txt asks for."""
        with self._transaction():
            self._db.execute("DELETE FROM slowed WHERE host = ?", (host,))
            if asked > own:
                self._db.execute("INSERT INTO slowed VALUES (?, ?, ?)", (host, own, asked))

    def names(self) -> set[str]:
        """Return the names of all feeds and pages."""
        found = self._db.execute("SELECT source FROM feed UNION SELECT source FROM page")
        return {name for (name,) in found}

    def titles(self) -> dict[str, str]:
        """Return the titles of all feeds."""
        return dict(self._db.execute("SELECT source, title FROM feed").fetchall())

    def unknown(self, source: str, items: Iterable[int]) -> set[int]:
        """Return which items of a feed are not known."""
        known = self._db.execute(
            "SELECT item FROM known JOIN feed ON number = feed WHERE source = ?", (source,)
        ).fetchall()
        return set(items) - {item for (item,) in known}

    def remember(self, source: str, feed: Remembered, items: Iterable[int] | None) -> None:
        """Store what the next request needs, and the items that the feed shows; None: as before."""
        with self._transaction():
            (number,) = self._db.execute(
                "INSERT INTO feed (source, etag, modified, digest, pause, title) "
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (source) DO UPDATE SET "
                "etag = excluded.etag, modified = excluded.modified, digest = excluded.digest, "
                "pause = excluded.pause, title = excluded.title RETURNING number",
                (source, *feed),
            ).fetchone()
            if items is None:
                return
            (last,) = self._db.execute(
                "SELECT coalesce(max(shown), 0) FROM known WHERE feed = ?", (number,)
            ).fetchone()
            self._db.executemany(
                "INSERT INTO known VALUES (?, ?, ?) "
                "ON CONFLICT (feed, item) DO UPDATE SET shown = excluded.shown",
                [(number, item, last + 1) for item in items],
            )
            self._db.execute(
                "DELETE FROM known WHERE feed = ?1 AND item IN (SELECT item FROM known "
                "WHERE feed = ?1 ORDER BY shown DESC LIMIT -1 OFFSET ?2)",
                (number, KEPT),
            )

    def rename(self, source: str, name: str) -> None:
        """Change the name of a feed; what is remembered of another of that name is forgotten."""
        with self._transaction():
            self._forget(name)
            self._db.execute("DELETE FROM page WHERE source = ?", (source,))
            self._db.execute("UPDATE feed SET source = ? WHERE source = ?", (name, source))

    def forget(self, source: str) -> None:
        """Forget a feed."""
        with self._transaction():
            self._forget(source)

    def _forget(self, source: str) -> None:
        self._db.execute(
            "DELETE FROM known WHERE feed IN (SELECT number FROM feed WHERE source = ?)", (source,)
        )
        self._db.execute("DELETE FROM feed WHERE source = ?", (source,))
        self._db.execute("DELETE FROM page WHERE source = ?", (source,))

    def close(self) -> None:
        """Close the file."""
        self._db.close()
