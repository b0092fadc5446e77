"""The journal: every change of a scheduler, in order, in a database or nowhere.

A change is acknowledged once its event has been committed. The state is the last snapshot with the
events since then applied to it, so that nothing acknowledged is lost when a process is killed, and
several processes that share a database have the same state: each applies what the others appended.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from crawl_env.errors import shown
from ephemeral_crawl.live.journal.base import Event, Journal, NoJournal, readable
from ephemeral_crawl.live.journal.sqlite import SqliteJournal
from ephemeral_crawl.live.reasons import redacted

__all__ = ["Event", "Journal", "NoJournal", "open_journal", "store_named"]

_SERVERS = ("postgresql://", "postgres://")


def store_named(name: str) -> str | Path:
    """Return a store, as `open_journal` takes it, by the name that a command was given: that of a
    file, if there is no colon in it."""
    return name if ":" in name else Path(name)


def open_journal(
    store: object,
    *,
    full: bool,
    new: Callable[[str], object] = lambda name: None,
    check: Callable[[Journal], object] = readable,
) -> Journal:
    """Return the journal for ":memory:", "sqlite:///file.db", the path of a SQLite file, or
    "postgresql://host/database".

    Arguments:
        new: called with the name of a store before it is made, which an error prevents.
        check: called with a journal of an earlier version before it is changed, which an error
            prevents.
    """
    if isinstance(store, os.PathLike):
        return SqliteJournal(Path(store), full=full, new=new, check=check)
    if store == ":memory:":
        return NoJournal()
    if isinstance(store, str) and store.startswith("sqlite:///") and len(store) > 10:
        if "\0" in store:
            raise ValueError(f"store is {shown(store)}; a path has no NUL characters")
        return SqliteJournal(
            Path(store.removeprefix("sqlite:///")), full=full, new=new, check=check
        )
    if isinstance(store, str) and store.startswith(_SERVERS):
        from ephemeral_crawl.live.journal.postgres import PostgresJournal  # an optional dependency

        return PostgresJournal(store, new=new, check=check)
    raise ValueError(
        f"store is {redacted(shown(store))}; give ':memory:', 'sqlite:///crawl.db', "
        "'sqlite:////var/crawl.db', a pathlib.Path or 'postgresql://user@host/database'"
    )
