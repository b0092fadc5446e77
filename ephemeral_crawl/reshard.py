"""`ephemeral-crawl reshard`: divides the sources of shards anew among their stores."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from crawl_env.errors import counted
from ephemeral_crawl.core.program import Command

if TYPE_CHECKING:
    from ephemeral_crawl.live import Scheduler


@dataclass(kw_only=True)
class Reshard(Command):
    """Moves each source to the store of its shard, with what was learnt about it: from one store to
    several, or from some to more.

    Stop the servers and crawlers first. If the command is interrupted, start it again: no source is
    lost, and it continues. At the end, the budgets are divided by the number of sources. They add
    up to what they did before, or to less if the command is killed just then: compare what it
    prints. Budgets of tags and pauses are moved, too. A budget by the hour is refused.
    """

    stores: Annotated[tuple[str, ...], tyro.conf.arg(metavar="STORE")]
    """Stores of all shards, in their order: a.db or sqlite:///a.db, or
    postgresql://user@host/database?schema=name. Stores that do not exist are created, with the
    settings of the first."""

    def run(self) -> None:
        from ephemeral_crawl.live import Scheduler
        from ephemeral_crawl.live.errors import NewStore
        from ephemeral_crawl.live.journal import stores_of_shards
        from ephemeral_crawl.live.reasons import redacted
        from ephemeral_crawl.shards.balancer import NEW
        from ephemeral_crawl.shards.owner import budget_of, divide_anew, share_tags

        places = stores_of_shards(self.stores)
        with ExitStack() as stack:
            stores = [stack.enter_context(Scheduler(places[0]))]
            _refuse_hours(self.stores[0], stores[0])
            settings = {**stores[0].settings(), "budget": NEW, "burst": None}
            for name, place in zip(self.stores[1:], places[1:], strict=True):
                try:
                    store = Scheduler(place)
                except NewStore:
                    store = Scheduler(place, **settings)
                stores.append(stack.enter_context(store))
                _refuse_hours(name, store)
            print(f"a budget of {budget_of(stores):g}/h is divided")
            number = sum(divide_anew(stores))
            share_tags(stores)
            print(f"{counted(number, 'source')} moved")
            for name, store in zip(self.stores, stores, strict=True):
                status = store.status()
                sources = counted(status.sources, "source")
                print(f"{redacted(name)}: {sources}, budget {status.budget:g}/h")


def _refuse_hours(name: str, store: Scheduler) -> None:
    """Raise ValueError if the budget of a store follows the clock, which would be lost."""
    from ephemeral_crawl.live.reasons import redacted
    from ephemeral_crawl.live.settings import hours_of

    if hours_of(budget := store.settings()["budget"]):
        raise ValueError(
            f"the budget of {redacted(name)} is {budget}, which follows the clock; stores are "
            "divided with a rate: set one for each first, by `ephemeral-crawl store --budget`, and "
            "give `balance --budget` the hours again"
        )
