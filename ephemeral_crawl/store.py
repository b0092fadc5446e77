"""`ephemeral-crawl store`: checks, configures and copies the store of a scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from crawl_env.errors import counted, shown
from ephemeral_crawl.core.program import Command

if TYPE_CHECKING:
    from ephemeral_crawl.live import Scheduler

_SHOWN = 20  # tags


@dataclass(kw_only=True)
class ManageStore(Command):
    """Checks the store of a live scheduler, changes its settings, and copies it: to make or restore
    a backup, or to move from a file to a database.

    It can be used while crawlers and servers use the store, which notice new settings at their next
    lease. A store that is damaged, or was made by another version, is refused with the reason.
    """

    store: Annotated[str, tyro.conf.arg(metavar="STORE")] = "sqlite:///crawl.db"
    """A store that exists: crawl.db or sqlite:///crawl.db, or postgresql://user@host/database."""
    budget: Annotated[str | None, tyro.conf.arg(metavar="RATE")] = None
    """What may be fetched from now on, such as 20/h, or by the hour: "08:00 40/h, 22:00 10/h"."""
    zone: Annotated[str | None, tyro.conf.arg(metavar="ZONE")] = None
    """Time zone of a budget by the hour, such as Europe/Paris; by default UTC."""
    burst: float | None = None
    """Budget units that can be spent at once; with a new budget, by default the budget of an
    hour."""
    explore: float | None = None
    """Fraction of the budget for exploratory fetches."""
    tag: str | None = None
    """Tag of sources whose budget is set to --least and --most, or removed without them."""
    least: Annotated[str | None, tyro.conf.arg(metavar="RATE")] = None
    """Minimum for the sources of the tag, if they can spend it: a rate, such as 5/h, or 10% of the
    budget."""
    most: Annotated[str | None, tyro.conf.arg(metavar="RATE")] = None
    """Maximum for the sources of the tag, likewise."""
    pause: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KIND:NAME")] = ()
    """What is not fetched until --resume: tag:news, host:example.org, host:*.example.org, or
    source:https://example.org/feed."""
    resume: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KIND:NAME")] = ()
    """What is fetched again; a host, or all hosts of a domain, also if its server asked to be left
    alone (`Retry-After`)."""
    changes: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """CSV or JSON lines of sources, with the settings that change: host, cost, min_interval,
    max_interval, half_life, tag, weight, paused. If one is refused, nothing is changed, nor by
    other options."""
    copy_to: Annotated[str | None, tyro.conf.arg(metavar="STORE")] = None
    """A new store to which everything is copied; it is opened once as a check."""

    def run(self) -> None:
        from ephemeral_crawl.crawl.exchange import read_changes
        from ephemeral_crawl.live import Scheduler
        from ephemeral_crawl.live.journal import store_named
        from ephemeral_crawl.live.reasons import redacted

        settings = {"budget": self.budget, "burst": self.burst, "explore": self.explore}
        settings |= {"zone": self.zone}
        if self.tag is None and (self.least or self.most):
            raise ValueError("give --tag, whose budget --least and --most are")
        pauses = [(True, *_kind_and_name(x)) for x in self.pause]
        pauses += [(False, *_kind_and_name(x)) for x in self.resume]
        settings = {name: value for name, value in settings.items() if value is not None}
        with _existing(self.store) as scheduler:
            change = None if self.changes is None else read_changes(scheduler, self.changes)
            with scheduler.together():
                if settings:
                    scheduler.configure(**settings)  # type: ignore[arg-type]
                number = 0 if change is None else change()
                if self.tag is not None:
                    scheduler.limit_tag(self.tag, least=self.least, most=self.most)
                for stop, kind, name in pauses:
                    (scheduler.pause if stop else scheduler.resume)(**{kind: name})
            if self.changes is not None:
                print(f"{self.changes}: {counted(number, 'source')} changed")
            if self.tag is not None:
                _warn_of_nobody(scheduler, "tag", self.tag)
            for _, kind, name in pauses:
                _warn_of_nobody(scheduler, kind, name)
            print(f"{redacted(self.store)}: {_summary(scheduler)}")
            for tag in scheduler.tags():
                print(f"  {tag}")
            if self.copy_to is not None:
                scheduler.copy(store_named(self.copy_to))
                with Scheduler(store_named(self.copy_to)) as copy:
                    print(f"{redacted(self.copy_to)}: {_summary(copy)}")


def _kind_and_name(text: str) -> tuple[str, str]:
    """Return which kind of thing is named, and its name."""
    kind, colon, name = text.partition(":")
    if not colon or kind not in ("source", "host", "tag"):
        raise ValueError(f"{shown(text)} is no KIND:NAME; write tag:news or host:example.org")
    return kind, name


def _warn_of_nobody(scheduler: Scheduler, kind: str, name: str) -> None:
    """Say so if what was set for a host or a tag concerns no source, as after a misspelling."""
    if kind == "source" or scheduler.count(**{kind: name}):
        return
    tags = [tag.tag for tag in scheduler.tags() if tag.tag and tag.sources]
    text = f" Tags with sources: {', '.join(tags[:_SHOWN]) or 'none'}." if kind == "tag" else ""
    print(
        f"There is no source {'of the' if kind == 'tag' else 'at the'} {kind} {shown(name)}: what "
        f"was set holds for those that will be added, if it is not misspelt.{text}"
    )


def _existing(store: str) -> Scheduler:
    """Open a store.

    Raises:
        ValueError: there is none, or an empty one, as a start on a full disk leaves.
    """
    from ephemeral_crawl.live import Scheduler
    from ephemeral_crawl.live.errors import NewStore
    from ephemeral_crawl.live.journal import store_named
    from ephemeral_crawl.live.reasons import redacted

    try:
        return Scheduler(store_named(store))
    except NewStore:
        raise ValueError(
            f"there is no store {redacted(store)}; name one that exists. `ephemeral-crawl serve` "
            "and `crawl` make new ones"
        ) from None


def _summary(scheduler: Scheduler) -> str:
    now = scheduler.status()
    fetches, failed = now.counts.fetched + now.counts.failed, now.counts.failed
    reported = "no fetch reported yet"
    if fetches:
        reported = f"{counted(fetches, 'fetch', 'fetches')} reported"
        reported += f", of which {failed:,.0f} failed" if failed else ""
    return (
        f"{counted(now.sources, 'source')} ({now.paused:,} paused, {now.failing:,} failing), "
        f"budget {now.budget:g}/h, {reported}"
    )
