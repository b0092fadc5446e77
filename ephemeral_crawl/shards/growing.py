"""Stores of shards among which the sources are divided anew, such as when there are more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.shards.balancer import rate_of
from ephemeral_crawl.shards.owner import owner_of

_AT_ONCE = 1000  # sources in a transaction


def share_tags(stores: Sequence[Scheduler]) -> None:
    """Give the tags of the first store the same budgets in all stores, as parts of the budget,
    unless a store has budgets of its own for a tag."""
    budget = stores[0].status().budget

    def part(bound: float | None) -> str | None:
        return None if bound is None else f"{min(100.0 * bound / budget, 100.0):.9g}%"

    for tag in stores[0].tags():
        if tag.least is None and tag.most is None:
            continue
        for store in stores:
            known = [found for found in store.tags() if found.tag == tag.tag]
            if store is stores[0] or all(x.least is None and x.most is None for x in known):
                store.limit_tag(tag.tag, least=part(tag.least), most=part(tag.most))


def divide_anew(stores: Sequence[Scheduler]) -> Iterator[int]:
    """Move every source to the shard that it belongs to, with what was learnt; yield how many were
    moved, now and then.

    A source is added where it belongs before it is removed where it was, so that nothing is lost if
    this is stopped; when it is started again it goes on. The budgets are divided in proportion to
    the sources at the end, without ever adding up to more than before.
    """
    for i, store in enumerate(stores):
        homes: dict[int, list[str]] = {}
        for name in store.sources():
            if (home := owner_of(name, len(stores))) != i:
                homes.setdefault(home, []).append(name)
        for home, names in homes.items():
            for start in range(0, len(names), _AT_ONCE):
                batch = names[start : start + _AT_ONCE]
                new = [name for name in batch if name not in stores[home]]
                if new:
                    stores[home].adopt(store.export(new))
                with store.together():
                    for name in batch:
                        store.remove(name)
                yield len(batch)
    total = sum(store.status().budget for store in stores)
    parts = [len(store) + 1 for store in stores]
    budgets = [total * part / sum(parts) for part in parts]
    changes = [
        (budget - store.status().budget, k)
        for k, (store, budget) in enumerate(zip(stores, budgets, strict=True))
    ]
    for _, k in sorted(changes):  # those that lose first
        stores[k].configure(budget=rate_of(budgets[k]))
