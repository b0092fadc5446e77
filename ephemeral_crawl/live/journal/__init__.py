"""The journal: every change of a scheduler, in order, in a database or nowhere.

A change is acknowledged once its event has been committed. The state is the last snapshot with the
events since then applied to it, so that nothing acknowledged is lost when a process is killed, and
several processes that share a database have the same state: each applies what the others appended.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from crawl_env.errors import shown
from ephemeral_crawl.live.journal.base import PATIENCE, Event, Journal, NoJournal
from ephemeral_crawl.live.journal.sqlite import SqliteJournal
from ephemeral_crawl.live.reasons import redacted

__all__ = [
    "PATIENCE",
    "Event",
    "Journal",
    "NoJournal",
    "file_of",
    "is_connection_string",
    "open_journal",
    "store_named",
    "stores_of_shards",
]

_FILE = "sqlite:///"
_SERVERS = ("postgresql://", "postgres://")
_LIBPQ_REFUSED = (  # without it, since it may hold a password
    "a connection string of libpq, host=… dbname=…, does not name a store; write "
    "postgresql://user@host/database instead"
)
_LIBPQ = re.compile(r"\s*(host|hostaddr|port|dbname|user|password|passfile|service)\s*=")


def is_connection_string(name: str) -> bool:
    """Return whether a name is a connection string of libpq: "host=… dbname=…"."""
    return _LIBPQ.match(name) is not None


def store_named(name: str) -> str | Path:
    """Return a store, as `open_journal` takes it, by its name as the argument of a command: that of
    a file, if there is no colon in it.

    Raises:
        ValueError: it is a connection string of libpq.
    """
    if is_connection_string(name):
        raise ValueError(_LIBPQ_REFUSED)
    return name if ":" in name else Path(name)


def stores_of_shards(names: Sequence[str]) -> list[str | Path]:
    """Return stores, as `open_journal` takes them, by their names as arguments of a command.

    Raises:
        ValueError: there is none, of several one is in memory, or two are the same.
    """
    if not names:
        raise ValueError("no store was given; name the store of each shard")
    if len(names) > 1 and ":memory:" in names:
        raise ValueError("a shard in memory would be lost at once; name a file or a database")
    places, seen = [store_named(name) for name in names], dict[object, str]()
    for name, place in zip(names, places, strict=True):
        file = file_of(place)
        key = place if file is None else os.path.realpath(file)
        if key in seen:
            raise ValueError(
                f"{redacted(seen[key])} and {redacted(name)} are one store; give each shard a "
                "store of its own"
            )
        seen[key] = name
    return places


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
) -> Journal:
    """Return the journal for ":memory:", "sqlite:///file.db", the path of a SQLite file, or
    "postgresql://host/database".

    Arguments:
        patience: seconds for which it waits for another process that changes the store.
        new: called with the name of a store before it is made, which an error prevents.
    """
    if store == ":memory:":
        return NoJournal()
    if (file := file_of(store)) is not None:
        if "\0" in str(file):
            raise ValueError(f"store is {shown(store)}; a path has no NUL characters")
        if isinstance(store, str) and "?" in store:  # as other programs take it
            raise ValueError(
                f"store is {shown(store)}; the address of a file has no options: leave out what "
                "follows the ?, or give a pathlib.Path if it is part of the name"
            )
        return SqliteJournal(file, full=full, patience=patience, new=new)
    if isinstance(store, str) and store.startswith(_SERVERS):
        from ephemeral_crawl.live.journal.postgres import PostgresJournal  # an optional dependency

        return PostgresJournal(store, patience=patience, new=new)
    if isinstance(store, str) and is_connection_string(store):
        raise ValueError(_LIBPQ_REFUSED)
    raise ValueError(
        f"store is {redacted(shown(store))}; give ':memory:', 'sqlite:///crawl.db', "
        "'sqlite:////var/crawl.db', a pathlib.Path or 'postgresql://user@host/database'"
    )
