"""`ephemeral-crawl sources`: imports, exports and removes the sources of a scheduler's store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from crawl_env.errors import counted, shown
from ephemeral_crawl.core.program import Command

if TYPE_CHECKING:
    from ephemeral_crawl.crawl.exchange import ImportReport
    from ephemeral_crawl.crawl.stores import Stores
    from ephemeral_crawl.live import Scheduler


@dataclass(kw_only=True)
class ManageSources(Command):
    """Imports sources into the store of a live scheduler, exports them, and removes them.

    The suffix of a file tells its format. `.opml` and `.xml` are subscriptions of a feed reader.
    `.csv` is a table of sources with the columns source, host, cost, min_interval, max_interval,
    half_life, tag, weight and paused, of which only the first is required.
    """

    store: Annotated[tuple[str, ...], tyro.conf.arg(metavar="STORE")] = ("crawl.db",)
    """Store of the scheduler: crawl.db or sqlite:///crawl.db, or postgresql://user@host/database;
    or the stores of all shards, in their order. A store that does not exist is created, and needs
    --budget."""
    budget: str | None = None
    """Fetches per time, such as 20/h; not for shards."""
    half_life: str | None = None
    """Time in which the worth of an item halves, such as 3h, which is the default."""
    remove: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SOURCE")] = ()
    """Sources to remove, with all that was learnt about them."""
    add: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FILE")] = ()
    """OPML or CSV files of sources to add."""
    sitemap: Annotated[tuple[str, ...], tyro.conf.arg(metavar="URL")] = ()
    """Sitemaps, or indexes of sitemaps, whose pages are added."""
    tag: str | None = None
    """Tag of the new sources of these files and sitemaps, such as a section or a customer. A tag
    may have a budget of its own (`ephemeral-crawl store --tag`)."""
    allow_private: bool = False
    """Also fetch sitemaps from addresses that are not public: loopback and private networks."""
    items: Path | None = None
    """Log of items, as for `fit`. Its sources are added, and start from the rates in the log."""
    fleet: Path | None = None
    """Fleet that `fit` wrote. Its sources are added, and start from its rates and worths."""
    per_host: str = "0s"
    """Least time between two fetches of the hosts (registered domains) of these sources, such as
    10s; by default as it is set, or none."""
    write: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FILE")] = field(default=())
    """OPML or CSV files to write all sources to."""

    def run(self) -> None:
        from ephemeral_crawl.crawl import exchange
        from ephemeral_crawl.crawl.memory import Memory
        from ephemeral_crawl.crawl.stores import Stores, make_store
        from ephemeral_crawl.crawl.waiting import telling
        from ephemeral_crawl.live import Scheduler
        from ephemeral_crawl.live.errors import NewStore
        from ephemeral_crawl.live.journal import stores_of_shards
        from ephemeral_crawl.live.reasons import redacted
        from ephemeral_crawl.shards.owner import owner_of

        for path in (*self.add, *self.write):
            _ = exchange.kind_of(path)
        if len(self.store) > 1 and self.budget:
            raise ValueError("--budget is of one store; `balance` divides the budget of shards")
        file, done = self._file(), None
        if file is not None and self.budget:
            done = make_store(file, self._changes, budget=self.budget, half_life=self.half_life)
        with ExitStack() as stack:
            stores: list[Scheduler] = []
            for name, place in zip(self.store, stores_of_shards(self.store), strict=True):
                try:
                    with telling("opening the store", partial(print, file=sys.stderr)):
                        store = Scheduler(place, budget=self.budget, half_life=self.half_life)
                except NewStore:
                    if len(self.store) == 1:
                        raise
                    raise ValueError(
                        f"{redacted(name)} is new: start the server of each shard first, with "
                        "--budget"
                    ) from None
                stores.append(stack.enter_context(store))
            scheduler: Scheduler | Stores = stores[0]
            if len(stores) > 1:
                scheduler = Stores(stores, lambda name: owner_of(name, len(stores)))
            for place, report in self._changes(scheduler) if done is None else done:
                if report.pages and file is not None:
                    with closing(Memory.beside(file)) as memory:
                        memory.add_pages(report.pages)
                print(f"{place}: {report}")
            for path in self.write:
                if exchange.kind_of(path) == "opml":
                    number = exchange.export_opml(scheduler, path, self._titles())
                else:
                    number = exchange.export_csv(scheduler, path)
                print(f"{path}: {counted(number, 'source')}")
            for name, store in zip(self.store, stores, strict=True):
                print(f"{redacted(name)}: {counted(len(store), 'source')}")

    def _changes(self, scheduler: Scheduler | Stores) -> Iterator[tuple[Path | str, ImportReport]]:
        """Remove sources, and add those of files and sitemaps; return each of these, and what was
        done."""
        from ephemeral_crawl.crawl import exchange

        with scheduler.together():
            for source in dict.fromkeys(_name_in(scheduler, name) for name in self.remove):
                scheduler.remove(source)
        for path in self.add:
            of = exchange.IMPORTS[exchange.kind_of(path)]
            yield path, of(scheduler, path, per_host=self.per_host, tag=self.tag)
        if self.fleet:
            yield self.fleet, exchange.import_fleet(scheduler, self.fleet, per_host=self.per_host)
        if self.items:
            yield self.items, exchange.import_log(scheduler, self.items, per_host=self.per_host)
        for address in self.sitemap:
            yield address, asyncio.run(self._import(scheduler, address))

    def _file(self) -> Path | None:
        """Return the file of the store, if `crawl` can crawl it."""
        from ephemeral_crawl.live.journal import file_of, store_named

        return file_of(store_named(self.store[0])) if len(self.store) == 1 else None

    def _titles(self) -> dict[str, str]:
        from ephemeral_crawl.crawl.memory import titles_beside

        file = self._file()
        return {} if file is None else titles_beside(file)

    async def _import(self, scheduler: Scheduler | Stores, address: str) -> ImportReport:
        from ephemeral_crawl.crawl.client import Client
        from ephemeral_crawl.crawl.exchange import import_sitemap
        from ephemeral_crawl.crawl.sitemaps import MOST_BYTES

        async with Client(most_bytes=MOST_BYTES, allow_private=self.allow_private) as client:
            return await import_sitemap(
                scheduler, address, client, per_host=self.per_host, tag=self.tag
            )


def _name_in(scheduler: Scheduler | Stores, name: str) -> str:
    """Return the name under which a store has a source that is to be removed."""
    from ephemeral_crawl.crawl.urls import source_of

    for source in (name, source_of(name)[0]):  # as it was given, or as files of sources are read
        if source in scheduler:
            return source
    raise ValueError(f"there is no source {shown(name)} to remove; --write FILE.csv lists all")
