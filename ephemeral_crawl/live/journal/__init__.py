"""The journal: every change of a scheduler, in order, in a database or nowhere.

A change is acknowledged once its event has been committed. The state is the last snapshot with the
events since then applied to it, so that nothing acknowledged is lost when a process is killed, and
several processes that share a database have the same state: each applies what the others appended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from crawl_env.errors import shown
from ephemeral_crawl.live.journal.base import PATIENCE, Event, Journal, NoJournal, readable
from ephemeral_crawl.live.journal.sqlite import SqliteJournal
from ephemeral_crawl.live.reasons import redacted

__all__ = [
    "PATIENCE",
    "Event",
    "Journal",
    "NoJournal",
    "file_of",
    "open_journal",
    "store_named",
    "stores_of_shards",
]

_FILE = "sqlite:///"
_SERVERS = ("postgresql://", "postgres://")


def store_named(name: str) -> str | Path:
    """Return a store, as `open_journal` takes it, by the name that a command was given: that of a
    file, if there is no colon in it."""
    return name if ":" in name else Path(name)


def stores_of_shards(names: Sequence[str]) -> list[str | Path]:
    """Return stores, as `open_journal` takes them, by the names that a command was given.

    Raises:
        ValueError: there is none, or of several one is in memory.
    """
    if not names:
        raise ValueError("no store was given; name the store of each shard")
    if len(names) > 1 and ":memory:" in names:
        raise ValueError("a shard in memory would be lost at once; name a file or a database")
    return [store_named(name) for name in names]


def file_of(store: object) -> Path | None:
    """Return the file of a store, as `open_journal` takes it; None of one that is no file.

    >>> str(file_of("sqlite:///crawl.db")), str(file_of(Path("a:b.db"))), file_of(":memory:")
    ('crawl.db', 'a:b.db', None)
    """
    if isinstance(store, os.PathLike):
        return Path(store)
    if isinstance(store, str) and store.startswith(_FILE) and len(store) > len(_FILE):
        return Path(store.removeprefix(_FILE))
    return None


def open_journal(
    store: object,
    *,
    full: bool,
    patience: float = PATIENCE,
    new: Callable[[str], object] = lambda name: None,
    check: Callable[[Journal], object] = readable,
) -> Journal:
    """Return the journal for ":memory:", "sqlite:///file.db", the path of a SQLite file, or
    "postgresql://host/database".

    Arguments:
        patience: seconds for which it waits for another process that changes the store.
        new: called with the name of a store before it is made, which an error prevents.
        check: called with a journal of an earlier version before it is changed, which an error
            prevents.
    """
    if store == ":memory:":
        return NoJournal()
    if (file := file_of(store)) is not None:
        if "\0" in str(file):
            raise ValueError(f"store is {shown(store)}; a path has no NUL characters")
        return SqliteJournal(file, full=full, patience=patience, new=new, check=check)
    if isinstance(store, str) and store.startswith(_SERVERS):
        from ephemeral_crawl.live.journal.postgres import PostgresJournal  # an optional dependency

        return PostgresJournal(store, patience=patience, new=new, check=check)
    raise ValueError(
        f"store is {redacted(shown(store))}; give ':memory:', 'sqlite:///crawl.db', "
        "'sqlite:////var/crawl.db', a pathlib.Path or 'postgresql://user@host/database'"
    )
