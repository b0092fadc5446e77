"""The budgets of tags whose sources are on several shards: which part each shard gets.

A minimum and a maximum that are parts of the budget hold on each shard, and so on all of them
together. Of those that are rates each shard gets a part, which follows the price of the tag there
as its budget follows that of the shard: fetches of the tag are worth most where its prices agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ephemeral_crawl.live import TagStatus
from ephemeral_crawl.shards.balancer import Balancer, Quote

_NAMES = ("least", "most")
Bounds = tuple[str | None, str | None]  # least and most, as `Scheduler.limit_tag` takes them


class TagQuote(NamedTuple):
    """A tag on a shard."""

    status: TagStatus
    new: float  # of its sources, about, that were not tried yet


def is_rate(bound: object) -> bool:
    """Return whether a budget of a tag is a rate, rather than a part of the budget."""
    return isinstance(bound, str) and not bound.strip().endswith("%")


def together(tag_lists: Sequence[Sequence[TagStatus]]) -> list[TagStatus]:
    """Return the tags of several shards as one scheduler would: sums, and prices by what is spent.

    Arguments:
        tag_lists: the tags of each shard.
    """
    names = list(dict.fromkeys(tag.tag for tags in tag_lists for tag in tags))
    return [
        _together([tag for tags in tag_lists for tag in tags if tag.tag == name]) for name in names
    ]


def _together(tags: Sequence[TagStatus]) -> TagStatus:
    def total(name: str) -> Any:
        values = [getattr(tag, name) for tag in tags]
        return None if None in values else sum(values)

    spends = total("spends")
    weights = [(tag.spends or 0.0) / spends if spends else 1.0 / len(tags) for tag in tags]

    def mean(name: str) -> float:
        return math.fsum(w * getattr(tag, name) for w, tag in zip(weights, tags, strict=True))

    sums = {name: total(name) for name in ("sources", "least", "most", "spends", "spent")}
    binds = {tag.binds for tag in tags}
    return replace(
        tags[0],
        **sums,
        paused=all(tag.paused for tag in tags),
        price=mean("price"),
        multiplier=mean("multiplier"),
        binds=next((name for name in ("most", "least") if name in binds), ""),
        least_part=min(total("least_part"), 1.0),
        most_part=min(total("most_part"), 1.0),
    )


class TagBudgets:
    """Divides the minimum and the maximum of a tag among shards, round by round.

    A round has the parts of one of `Balancer`: the parts of the rates never add up to more than the
    whole, also while they move.

    Arguments:
        tag: its name.
        shards: S.

    Attributes:
        given: the minimum and the maximum of all shards, which may be changed between rounds.
    """

    def __init__(self, tag: str, shards: int) -> None:
        self.tag = tag
        self.bounds: Bounds = (None, None)
        self._balancers = {name: Balancer(1.0, shards) for name in _NAMES}
        self._reductions: dict[str, dict[int, float]] = {}

    def lower(self, quotes: Sequence[TagQuote | None]) -> dict[int, dict[str, Any]]:
        """Begin a round; return the arguments of `Scheduler.limit_tag` for the shards that get less
        of something, and for those that have other bounds.

        Arguments:
            quotes: of each shard, (S,); None: it does not answer.
        """
        changed = {
            k
            for k, quote in enumerate(quotes)
            if quote is not None and (quote.status.least_set, quote.status.most_set) != self.bounds
        }
        self._reductions = {}
        for name, bound in zip(_NAMES, self.bounds, strict=True):
            if is_rate(bound):
                parts = [quote and _part_of(quote, name) for quote in quotes]
                self._reductions[name] = self._balancers[name].lower(parts)
        changed = changed.union(*self._reductions.values())
        return {k: self._arguments(k, self._reductions) for k in sorted(changed)}

    def acknowledge(self, confirmed: Mapping[int, Any]) -> None:
        """Record which shards have confirmed what `lower` has returned."""
        for name, parts in self._reductions.items():
            reductions = {k: part for k, part in parts.items() if k in confirmed}
            self._balancers[name].acknowledge(reductions)

    def rise(self) -> dict[int, dict[str, Any]]:
        """Return the arguments of `Scheduler.limit_tag` for shards that get more of something."""
        parts = {name: self._balancers[name].rise() for name in self._reductions}
        return {k: self._arguments(k, parts) for k in sorted(set().union(*parts.values()))}

    def _arguments(self, shard: int, parts: Mapping[str, Mapping[int, float]]) -> dict[str, Any]:
        """Return the arguments of `Scheduler.limit_tag` for a shard, with the parts that it has
        where there are no others here."""
        arguments: dict[str, Any] = {"tag": self.tag, **dict(zip(_NAMES, self.bounds, strict=True))}
        for name in self._reductions:
            part = min(float(self._balancers[name].budgets[shard]), 1.0)
            arguments[f"{name}_part"] = parts[name].get(shard, part)
        return arguments


def _part_of(quote: TagQuote, name: str) -> Quote:
    status = quote.status
    return Quote(getattr(status, f"{name}_part"), status.price, status.sources, round(quote.new))
