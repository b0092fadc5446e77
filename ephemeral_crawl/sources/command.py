"""`ephemeral-crawl sources`: imports sources into the store of a scheduler, and exports them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ephemeral_crawl.core.base import Command

if TYPE_CHECKING:
    from ephemeral_crawl.crawl.exchange import Imported
    from ephemeral_crawl.live import Scheduler


@dataclass(kw_only=True)
class ManageSources(Command):
    """Imports sources into the store of a live scheduler, and exports them.

    Files are told by their names: `.opml` or `.xml` are subscriptions of a feed reader; `.csv` is a
    table of sources with the columns source, host, cost, min_interval, max_interval, half_life,
    tag, weight and paused, of which all but the first may be missing.
    """

    store: Path = Path("crawl.db")
    """File of the scheduler; it is made if it does not exist, which needs --budget."""
    budget: str | None = None
    """Fetches per time, such as 20/h."""
    half_life: str | None = None
    """Time in which the worth of an item halves, such as 3h, which is the default."""
    add: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FILE")] = ()
    """OPML or CSV files of sources to add."""
    sitemap: Annotated[tuple[str, ...], tyro.conf.arg(metavar="URL")] = ()
    """Sitemaps, or indexes of sitemaps, whose pages are added."""
    allow_private: bool = False
    """Also fetch sitemaps from addresses that are not public: loopback and private networks."""
    items: Path | None = None
    """Log of items, as for `fit`: its sources are added, and start from the rates that it shows."""
    fleet: Path | None = None
    """Fleet that `fit` wrote: its sources are added, and start from its rates and worths."""
    per_host: str = "0s"
    """Least time between two fetches of a host (registered domain), such as 10s."""
    write: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FILE")] = field(default=())
    """OPML or CSV files to write all sources to."""

    def run(self) -> None:
        from ephemeral_crawl.crawl import exchange
        from ephemeral_crawl.live import Scheduler

        for path in (*self.add, *self.write):
            _ = exchange.kind_of(path)
        with Scheduler(self.store, budget=self.budget, half_life=self.half_life) as scheduler:
            for path in self.add:
                of = (
                    exchange.import_csv if exchange.kind_of(path) == "csv" else exchange.import_opml
                )
                print(f"{path}: {of(scheduler, path, per_host=self.per_host)}")
            for address in self.sitemap:
                print(f"{address}: {asyncio.run(self._import(scheduler, address))}")
            if self.fleet:
                done = exchange.import_fleet(scheduler, self.fleet, per_host=self.per_host)
                print(f"{self.fleet}: {done}")
            if self.items:
                done = exchange.import_log(scheduler, self.items, per_host=self.per_host)
                print(f"{self.items}: {done}")
            for path in self.write:
                to = (
                    exchange.export_csv if exchange.kind_of(path) == "csv" else exchange.export_opml
                )
                print(f"{path}: {to(scheduler, path):,} sources")
            print(f"{self.store}: {len(scheduler):,} sources")

    async def _import(self, scheduler: Scheduler, address: str) -> Imported:
        from ephemeral_crawl.crawl.client import Client
        from ephemeral_crawl.crawl.exchange import import_sitemap
        from ephemeral_crawl.crawl.sitemaps import MOST_BYTES

        async with Client(most_bytes=MOST_BYTES, allow_private=self.allow_private) as client:
            return await import_sitemap(scheduler, address, client, per_host=self.per_host)
