"""Stores of shards among which the sources are divided anew, such as when there are more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.live.scheduler import check_apart
from ephemeral_crawl.shards.balancer import rate_of
from ephemeral_crawl.shards.owner import owner_of

_AT_ONCE = 1000  # sources in a transaction
_NONE = 1e-3  # for which a store without sources of a tag counts: it has a part until it has some


def share_tags(stores: Sequence[Scheduler]) -> None:
    """Give all stores the budgets that tags have in the first store that has some: of rates a part
    each, in proportion to the sources of the tag."""
    each = [{tag.tag: tag for tag in store.tags()} for store in stores]
    for name in dict.fromkeys(name for tags in each for name in tags if name):
        found = [tags[name] for tags in each if name in tags]
        given = next((tag for tag in found if tag.least_set or tag.most_set), None)
        if given is None:
            continue
        sources = [tags[name].sources + _NONE if name in tags else _NONE for tags in each]
        for store, number in zip(stores, sources, strict=True):
            part = number / sum(sources)
            store.limit_tag(
                name,
                least=given.least_set,
                most=given.most_set,
                least_part=part,
                most_part=part,
            )


def divide_anew(stores: Sequence[Scheduler]) -> Iterator[int]:
    """Move every source to the shard that it belongs to, with what was learnt; yield how many were
    moved, now and then.

    A source is added where it belongs before it is removed where it was, so that nothing is lost if
    this is stopped; when it is started again it goes on. The budgets are divided in proportion to
    the sources at the end, without ever adding up to more than before.

    Raises:
        ValueError: two stores are the same, of which all that is moved would be lost.
    """
    check_apart(stores)
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
