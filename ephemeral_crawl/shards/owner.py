"""Which shard a source belongs to: that of its registered domain, so a host is on one shard; and
the stores among which sources are divided anew, such as when there are more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import lru_cache

from ephemeral_crawl.crawl.urls import host_of
from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.live.scheduler import check_apart
from ephemeral_crawl.shards.balancer import NEW, rate_of


def domain_of(name: str) -> str:
    """Return the registered domain of a URL, or of the name of a host; of any other name itself.

    >>> [domain_of(name) for name in ("https://a.example.org/feed", "*.example.org", "front page")]
    ['example.org', 'example.org', 'front page']
    """
    if "://" in name:
        return host_of(name)
    try:
        domain = host_of(f"//{name}")
    except ValueError:
        return name
    return domain if "." in domain else name


@lru_cache(1 << 16)
def shard_of(domain: str, shards: int) -> int:
    """Return the number of the shard that a domain belongs to, from 0.

    Each shard has a score for each domain, a hash of both, and the highest score counts (rendezvous
    hashing, Thaler & Ravishankar 1998). So with more shards those domains alone move that belong to
    a new one: of n to 2n shards half of them.

    Arguments:
        shards: their number, from 1.

    >>> [shard_of(domain, 4) for domain in ("example.org", "example.com", "example.net")]
    [2, 1, 1]
    """
    text = domain.encode("utf-8", "surrogatepass")

    def score(k: int) -> bytes:
        return hashlib.blake2b(text, digest_size=8, salt=k.to_bytes(16, "little")).digest()

    return max(range(shards), key=score)


def owner_of(source: str, shards: int) -> int:
    """Return the number of the shard that a source, or a host, belongs to."""
    return shard_of(domain_of(source), shards)


_AT_ONCE = 1000  # sources in a transaction
_NONE = 1e-3  # for which a store without sources of a tag counts: it has a part until it has some


def share_tags(stores: Sequence[Scheduler]) -> None:
    """Give all stores the budgets that tags have in the first store that has some: of rates a part
    each, in proportion to the sources of the tag. Pause the tags that are paused in one of them."""
    tags_of_stores = [{tag.tag: tag for tag in store.tags()} for store in stores]
    for name in dict.fromkeys(name for tags in tags_of_stores for name in tags if name):
        statuses = [tags[name] for tags in tags_of_stores if name in tags]
        if any(tag.paused for tag in statuses):
            for store in stores:
                store.pause(tag=name)
        bounds = next((tag for tag in statuses if tag.least_set or tag.most_set), None)
        if bounds is None:
            continue
        sources = [tags[name].sources + _NONE if name in tags else _NONE for tags in tags_of_stores]
        for store, number in zip(stores, sources, strict=True):
            part = number / sum(sources)
            store.limit_tag(
                name,
                least=bounds.least_set,
                most=bounds.most_set,
                least_part=part,
                most_part=part,
            )


def budget_of(stores: Sequence[Scheduler]) -> float:
    """Return the budget of all stores together, in units per hour. That of a new store does not
    count, since it stands for none (`NEW`)."""
    budgets = [store.status().budget for store in stores]
    return sum(budget for budget in budgets if f"{budget:g}/h" != NEW) or sum(budgets)


def divide_anew(stores: Sequence[Scheduler]) -> Iterator[int]:
    """Move every source to the shard that it belongs to, with its estimates, and the limits and
    pauses of hosts without sources; yield how many sources were moved, now and then.

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
                with stores[home].together():  # in which its database is not asked for each name
                    new = [name for name in batch if name not in stores[home]]
                    if new:
                        stores[home].adopt(store.export(new))
                with store.together():
                    for name in batch:
                        store.remove(name)
                yield len(batch)
    _move_hosts(stores)
    total = budget_of(stores)
    parts = [len(store) + 1 for store in stores]
    budgets = [total * part / sum(parts) for part in parts]
    changes = [
        (budget - store.status().budget, k)
        for k, (store, budget) in enumerate(zip(stores, budgets, strict=True))
    ]
    with ExitStack() as stack:  # all are set, or none, but for a kill between their commits
        for _, k in sorted(changes, reverse=True):  # those that lose are the first to be committed
            stack.enter_context(stores[k].together())
        for store, budget in zip(stores, budgets, strict=True):
            store.configure(budget=rate_of(budget))


def _move_hosts(stores: Sequence[Scheduler]) -> None:
    """Move the limits and the pauses of hosts without sources to the shards that the hosts belong
    to."""
    for i, store in enumerate(stores):
        for host in store.paused_hosts():
            if not store.count(host=host) and (home := owner_of(host, len(stores))) != i:
                stores[home].pause(host=host)
                store.resume(host=host)
        homes: dict[int, dict[str, float]] = {}
        for host, interval in store.unused_limits().items():
            if (home := owner_of(host, len(stores))) != i:
                homes.setdefault(home, {})[host] = interval
        for home, limits in homes.items():
            with stores[home].together():
                longer = {x: max(limit, stores[home].host_limit(x)) for x, limit in limits.items()}
                stores[home].limit_hosts(longer)
            store.limit_hosts(dict.fromkeys(limits, 0.0))
