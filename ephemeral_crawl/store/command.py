"""`ephemeral-crawl store`: checks, upgrades, configures and copies the store of a scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ephemeral_crawl.core.base import Command

if TYPE_CHECKING:
    from ephemeral_crawl.live import Scheduler


@dataclass(kw_only=True)
class ManageStore(Command):
    """Checks the store of a live scheduler, brings it to the present version, changes its settings,
    and copies it: as a backup, to restore one, or from a file to a database.

    It can be used while crawlers and servers use the store, which notice new settings at their next
    lease. A store that is damaged, or was made by a later version, is refused with the reason.
    """

    store: Annotated[str, tyro.conf.arg(metavar="STORE")] = "sqlite:///crawl.db"
    """A store that exists: crawl.db or sqlite:///crawl.db, or postgresql://user@host/database."""
    budget: Annotated[str | None, tyro.conf.arg(metavar="RATE")] = None
    """What may be fetched from now on, such as 20/h."""
    burst: float | None = None
    """Budget units that can be spent at once; with a new budget, by default those of an hour."""
    explore: float | None = None
    """Fraction of the budget for visits in rotation."""
    copy_to: Annotated[str | None, tyro.conf.arg(metavar="STORE")] = None
    """A new store to copy everything to, which is opened once as a check."""

    def run(self) -> None:
        from ephemeral_crawl.live import Scheduler

        given = {"budget": self.budget, "burst": self.burst, "explore": self.explore}
        given = {name: value for name, value in given.items() if value is not None}
        with Scheduler(_existing(self.store)) as scheduler:
            if given:
                scheduler.configure(**given)  # type: ignore[arg-type]
            print(f"{self.store}: {_summary(scheduler)}")
            if self.copy_to is not None:
                scheduler.copy(_place(self.copy_to))
                with Scheduler(_place(self.copy_to)) as copy:
                    print(f"{self.copy_to}: {_summary(copy)}")


def _place(store: str) -> str | Path:
    return store if ":" in store else Path(store)


def _existing(store: str) -> str | Path:
    """Return a store as `Scheduler` takes it.

    Raises:
        ValueError: it is a file that does not exist, or in memory only.
    """
    place = _place(store)
    file = Path(str(place).removeprefix("sqlite:///"))
    if store == ":memory:" or (not store.startswith("postgres") and not file.exists()):
        raise ValueError(
            f"there is no store {store}; name one that exists. `ephemeral-crawl serve` and `crawl` "
            "make new ones"
        )
    return place


def _summary(scheduler: Scheduler) -> str:
    found = scheduler.status()
    return (
        f"{found.sources:,} sources ({found.paused:,} paused, {found.failing:,} failing), budget "
        f"{found.budget:g}/h, {found.counts.fetched:,.0f} fetches reported"
    )
