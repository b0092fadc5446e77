"""Small SQLite files beside the store of a scheduler, and the one of what the crawler remembers of
each feed: which items are known, and what makes the next request conditional.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from ephemeral_crawl.live.errors import DamagedStore
from ephemeral_crawl.live.journal import PATIENCE
from ephemeral_crawl.live.journal.sqlite import is_new, unusable

_OBJECTS = "SELECT type, name, sql FROM sqlite_master"
ITEMS, HUBS = ".items", ".hubs"  # ends of the names of files beside a store


class FileBeside:
    """A small SQLite file, which several processes may use.

    Arguments:
        path: of the file, which is made if it does not exist, or ":memory:".
        content: what it is a file of, for messages.
        tables: statements that make its tables.
        patience: seconds for which it waits for another process that changes the file.

    Raises:
        ValueError: the file is something else, or damaged.
        OSError: it cannot be used.
        StoreLocked: another process changes it; also later, by all methods. Nothing is changed
            then.
    """

    def __init__(
        self, path: str | PathLike[str], content: str, tables: Sequence[str], patience: float
    ) -> None:
        if path != ":memory:":
            is_new(Path(path))
        self._name, self._patience = str(path), patience
        self._db = sqlite3.connect(
            path, timeout=patience, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(content, tables)
        except sqlite3.DatabaseError as error:
            self.close()
            reason = unusable(self._name, error, patience)
            if isinstance(reason, DamagedStore):
                reason = ValueError(
                    f"{path} is not a file of {content}: {error}. If it was one, it is damaged: "
                    "delete it, and it is made anew"
                )
            raise reason from error
        except BaseException:
            self.close()
            raise

    def _prepare(self, content: str, tables: Sequence[str]) -> None:
        self.rows("PRAGMA trusted_schema = OFF")
        with closing(sqlite3.connect(":memory:")) as ours:
            for statement in tables:
                ours.execute(statement)
            # Those of others could have triggers or views.
            if not set(self.rows(_OBJECTS)) <= {*ours.execute(_OBJECTS)}:
                raise ValueError(
                    f"{self._name} is a SQLite file, but not one of {content}; name another"
                )
        self.rows("PRAGMA journal_mode = WAL")
        self.rows("PRAGMA synchronous = NORMAL")
        with self.transaction():
            for statement in tables:
                self._db.execute(statement)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Return a context in which other processes are waited for, and errors say what to do."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            reason = unusable(self._name, error, self._patience)
            if isinstance(reason, DamagedStore):  # which would count as what is wrong with a feed
                raise
            raise reason from error

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


# Identities of items, up to two each, of a feed; those longest out of it go first.
MOST_IDENTITIES = 8000
_TABLES = (
    "PRAGMA application_id = 0x4570436D",  # "EpCm"
    "CREATE TABLE IF NOT EXISTS feed (number INTEGER PRIMARY KEY, source TEXT UNIQUE, "
    "etag TEXT, modified TEXT, digest BLOB, pause REAL, title TEXT) STRICT",
    "CREATE TABLE IF NOT EXISTS known (feed INTEGER, item INTEGER, shown INTEGER, "
    "PRIMARY KEY (feed, item)) STRICT, WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS page (source TEXT PRIMARY KEY) STRICT",
    "CREATE TABLE IF NOT EXISTS slowed (host TEXT PRIMARY KEY, own REAL, asked REAL) STRICT",
    "CREATE TABLE IF NOT EXISTS delay (site TEXT PRIMARY KEY, host TEXT, seconds REAL) STRICT",
)


def titles_beside(store: Path) -> dict[str, str]:
    """Return the titles of the feeds of a store by their URLs, as far as `crawl` has fetched them.

    Nothing is made where there is no table beside the store.
    """
    if not beside(store, ITEMS).exists():
        return {}
    with closing(Memory.beside(store)) as memory:
        return memory.titles()


def beside(store: Path, end: str) -> Path:
    """Return the path of a file beside a store, whose name ends with `end`. Of a link, it is beside
    the file that the link leads to: the store is the same under all its names."""
    return Path(os.path.realpath(store) + end)


class FeedState(NamedTuple):
    """The state of a feed after its last fetch."""

    etag: str = ""
    modified: str = ""
    digest: bytes = b""  # of the last document
    pause: float = 0.0  # seconds for which the feed asked not to be fetched again
    title: str = ""


class Memory(FileBeside):
    """A small table of the items that are known, by feed.

    Arguments:
        path: of the file, which is made if it does not exist, or ":memory:".
        patience: seconds for which it waits for another process that changes the file.

    Raises:
        ValueError: the file is something else.
        TimeoutError: another process changes it; also later, by all methods that change something.
            Nothing is changed then.
    """

    def __init__(self, path: str | PathLike[str], patience: float = PATIENCE) -> None:
        super().__init__(path, "known items", _TABLES, patience)

    @classmethod
    def beside(cls, store: Path, patience: float = PATIENCE) -> Memory:
        """Return the table beside the store of a scheduler."""
        return cls(beside(store, ITEMS), patience)

    def of(self, source: str) -> FeedState:
        """Return the stored state of a feed."""
        rows = self.rows(
            "SELECT etag, modified, digest, pause, title FROM feed WHERE source = ?", (source,)
        )
        return FeedState(*rows[0]) if rows else FeedState()

    def add_pages(self, sources: Iterable[str]) -> None:
        """Remember that sources are pages, unless they give a feed."""
        with self.transaction():
            self._db.executemany(
                "INSERT INTO page VALUES (?) ON CONFLICT DO NOTHING",
                [(source,) for source in sources],
            )

    def is_page(self, source: str) -> bool:
        """Return whether a source is a page that never gave a feed."""
        rows = self.rows("SELECT 1 FROM page WHERE source = ?", (source,))
        return bool(rows) and not self.of(source).digest

    def note_delay(self, site: str, host: str, delay: float) -> float:
        """Note the time between two fetches that the robots.txt of a site asks for, seconds; return
        the longest that one of the sites of its host asks for."""
        delays = dict(self.rows("SELECT site, seconds FROM delay WHERE host = ?", (host,)))
        if delays.get(site, 0.0) != delay:
            with self.transaction():
                self._db.execute("DELETE FROM delay WHERE site = ?", (site,))
                if delay > 0.0:
                    self._db.execute("INSERT INTO delay VALUES (?, ?, ?)", (site, host, delay))
        return max((delays | {site: delay}).values())

    def keep_delays(self, sites: Iterable[str]) -> None:
        """Forget what the robots.txt of all other sites asks for."""
        others = {site for (site,) in self.rows("SELECT site FROM delay")}.difference(sites)
        with self.transaction():
            self._db.executemany("DELETE FROM delay WHERE site = ?", [(site,) for site in others])

    def own_limit(self, host: str, present: float) -> float:
        """Return the limit that a host has apart from what robots.txt asks for, seconds.

        Arguments:
            present: its limit; if it is not the one that was noted, others have set it since.
        """
        rows = self.rows("SELECT own FROM slowed WHERE host = ? AND asked = ?", (host, present))
        return float(rows[0][0]) if rows else present

    def note_limit(self, host: str, own: float, delay: float) -> None:
        """Note which limit a host has, and which it has apart from what robots.txt asks for."""
        with self.transaction():
            self._db.execute("DELETE FROM slowed WHERE host = ?", (host,))
            if delay > own:
                self._db.execute("INSERT INTO slowed VALUES (?, ?, ?)", (host, own, delay))

    def names(self) -> set[str]:
        """Return the names of all feeds and pages."""
        return {
            name for (name,) in self.rows("SELECT source FROM feed UNION SELECT source FROM page")
        }

    def titles(self) -> dict[str, str]:
        """Return the titles of all feeds."""
        return dict(self.rows("SELECT source, title FROM feed"))

    def unknown(self, source: str, items: Iterable[int]) -> set[int]:
        """Return which items of a feed are not known."""
        rows = self.rows(
            "SELECT item FROM known JOIN feed ON number = feed WHERE source = ?", (source,)
        )
        return set(items) - {item for (item,) in rows}

    def remember(self, source: str, feed: FeedState, items: Iterable[int] | None) -> None:
        """Store what the next request needs, and the items that the feed shows; None: as before."""
        with self.transaction():
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
                (number, MOST_IDENTITIES),
            )

    def rename(self, source: str, name: str) -> None:
        """Change the name of a feed; another of that name is forgotten."""
        with self.transaction():
            self._forget(name)
            self._db.execute("DELETE FROM page WHERE source = ?", (source,))
            self._db.execute("UPDATE feed SET source = ? WHERE source = ?", (name, source))

    def forget(self, source: str) -> None:
        """Forget a feed."""
        with self.transaction():
            self._forget(source)

    def _forget(self, source: str) -> None:
        self._db.execute(
            "DELETE FROM known WHERE feed IN (SELECT number FROM feed WHERE source = ?)", (source,)
        )
        self._db.execute("DELETE FROM feed WHERE source = ?", (source,))
        self._db.execute("DELETE FROM page WHERE source = ?", (source,))
