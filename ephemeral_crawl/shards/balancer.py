"""The budgets of shards: what each gets of the whole, and in which order that changes.

A fleet whose sources are divided among schedulers collects what one scheduler would if all of them
have the same price λ, the worth that one more budget unit collects. Nothing here talks to anybody:
`ephemeral_crawl.serve.servers` passes the answers of the shards in, and the new budgets on to them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from agents.theory.price import first_near
from crawl_env.errors import check_within, counted, shown
from crawl_env.numerics import FloatArray
from ephemeral_crawl.live import Status
from ephemeral_crawl.live.arguments import per_second, rate_text
from ephemeral_crawl.live.settings import (
    Hours,
    budget_at,
    check_burst,
    hours_of,
    hours_text,
    zone_of,
)

NEW = "0.001/h"  # budget of a store that is new, until the balancer gives it one
_MOST_MOVE = 4.0  # largest factor by which a shard's budget changes in a round
_SMALLEST = 4e-6  # budget units per hour: a scheduler has at least 1e-9 per second
# What a shard gets at least, of a part of the budget in proportion to its sources: to look after
# them, and if all are new. Before they were tried, its price says what is expected of most of them,
# and nothing of the few that are worth most.
_LOOKED_AFTER, _NEW = 0.05, 0.5
_ROUNDING = 1e-9  # of a budget, as a fraction
_NEGLIGIBLE = 1e-12  # fraction of a price


class Quote(NamedTuple):
    """The budget, price and sources of a shard, as it reports them."""

    budget: float  # that it has, budget units per hour
    price: float  # worth that one more budget unit collects
    sources: int  # that are not paused
    new: int  # of these, not tried yet


def quote_of(status: Status) -> Quote:
    """Return the quote in the status of a scheduler."""
    return Quote(status.budget, status.price, status.sources - status.paused, status.new)


def rate_of(budget: float) -> str:
    """Return a budget, in units per hour, as a scheduler takes it.

    >>> rate_of(12.5)
    '12.5/h'
    """
    return rate_text(budget / 3600.0)


def divide(
    total: float,
    budgets: FloatArray,
    prices: FloatArray,
    least: FloatArray,
    most: FloatArray,
) -> FloatArray:
    """Return the budgets at which the prices of shards are expected to agree, (S,).

    Where sources are fetched often, at intervals τ far below the time constant 1/μ of their decay,
    the index is γ ≈ u*(μτ)²/(2C): at a price λ the fetches cost a budget that goes with λ^−½. Where
    they are fetched rarely it falls faster with λ. So the price λ* is the one at which Σ B(λ/λ*)^½
    is the total: of the first it is right at once, and of the others right after some rounds,
    without overshooting. No budget changes by more than a factor of 4, whatever a shard says.

    Arguments:
        total: budget units per hour, at least the sum of `least`.
        budgets, prices: B > 0 and λ ≥ 0 of the shards at present, (S,).
        least, most: bounds on their budgets, (S,); where `most` is below what there is to spend,
            the rest is not spent.

    >>> divide(30.0, np.array([15.0, 15.0]), np.array([4.0, 1.0]), np.zeros(2), np.full(2, 30.0))
    array([20., 10.])
    """
    # Relative to the highest; one that is smaller by far says no more than none.
    prices = prices / prices.max() if prices.max() > 0.0 else np.ones_like(prices)
    prices = np.where(prices > _NEGLIGIBLE, prices, 0.0)
    before = budgets * (total / budgets.sum())
    floor = np.clip(before / _MOST_MOVE, least, most)
    above = floor.sum() - least.sum()
    if above > 0.0:  # what the bounds leave may not suffice for small steps
        floor = least + (floor - least) * min((total - least.sum()) / above, 1.0)
    ceiling = np.minimum(np.maximum(_MOST_MOVE * before, floor), most)

    def at(price: float) -> FloatArray:
        return np.clip(before * np.sqrt(prices / price), floor, ceiling)

    _, price = first_near(
        lambda price: float(at(price).sum()) <= total, 1.0, _NEGLIGIBLE / _MOST_MOVE**2
    )
    return at(price)


class Balancer:
    """Divides a budget among shards, round by round, so that their prices agree.

    A round has three parts, so that the budgets never add up to more than the whole, also while
    they move: `lower` says which budgets fall; `acknowledge` takes in which shards confirmed it;
    `rise` gives to others what is free by then. A shard that does not answer keeps the most that it
    may have received, and no more. If the shards had more at the beginning, they are lowered first.
    Where most sources are new, a shard gets at least half of what it would in proportion to their
    number, and where none is a twentieth.

    Arguments:
        total: budget units per hour, which may be changed between rounds.
        shards: S.
        least, most: bounds on the budget of each, budget units per hour; by default none.

    Raises:
        ValueError: the bounds leave nothing to divide.

    >>> balancer = Balancer(30.0, 2)
    >>> balancer.lower([Quote(20.0, 1.0, 60, 0), Quote(10.0, 16.0, 40, 0)])
    {0: 10.0, 1: 10.0}
    >>> balancer.rise()  # nothing is free before it is confirmed
    {}
    >>> balancer.acknowledge({0: 10.0, 1: 10.0})
    >>> balancer.rise()
    {1: 20.0}
    """

    def __init__(
        self, total: float, shards: int, least: float = 0.0, most: float | None = None
    ) -> None:
        self.total = check_within("budget", total, _SMALLEST, math.inf, unit="budget units / h")
        most = math.inf if most is None else most
        if not (0.0 <= least <= most) or least * shards > total or most < _SMALLEST:
            raise ValueError(
                f"the least budget of a shard is {shown(least)} and the most {shown(most)} an "
                f"hour, of {shown(total)} for {counted(shards, 'shard')}; give a least one that "
                "all of them can have, and that is not above the most"
            )
        self._least, self._most = np.full(shards, least), np.full(shards, most)
        self._hours: Hours = ()
        self._zone = "UTC"
        self._burst: float | None = None  # of all; None: that of an hour of each
        # The most that each may have been told, budget units per hour; infinite: not known.
        self.budgets = np.full(shards, math.inf)
        self._aims = self._reports = self.budgets
        self._untold = set(range(shards))  # which may still have the budget of another balancer

    @staticmethod
    def of(
        budget: object,
        zone: object,
        now: float,
        shards: int,
        least: float = 0.0,
        most: float | None = None,
        burst: float | None = None,
    ) -> Balancer:
        """Return a balancer of a rate or a table of hours, and a burst; see `set_budget`."""
        rates = [rate for _, rate in hours_of(budget)] or [per_second("budget", budget)]
        balancer = Balancer(3600.0 * max(rates), shards, least, most)
        balancer.set_budget(budget, zone, now, burst)
        return balancer

    def set_budget(
        self, budget: object, zone: object, now: float, burst: float | None = None
    ) -> None:
        """Divide another budget from the next round on: a rate, or a table of hours in a time zone.

        Arguments:
            budget: None: the present one.
            zone: None: UTC.
            now: seconds since 1970.
            burst: budget units that all shards together can spend at once, which they share in
                proportion to their budgets; None: each has the default one of its budget.

        Raises:
            ValueError: it is neither, there is no such zone, or the burst is out of range.

        >>> balancer = Balancer(30.0, 2)
        >>> balancer.set_budget("08:00 40/h, 22:00 10/h", "UTC", now=0.0)
        >>> balancer.total, balancer.arguments(5.0)
        (10.0, {'budget': '08:00 20/h, 22:00 5/h', 'zone': 'UTC'})
        >>> balancer.set_budget("20/h", None, now=0.0, burst=6.0)
        >>> balancer.arguments(10.0)
        {'budget': '10/h', 'burst': 3.0}
        """
        burst = None if burst is None else check_burst(burst)
        if budget is not None:
            zone_of(zone := "UTC" if zone is None else zone)
            hours = hours_of(budget)
            rate = budget_at(hours, str(zone), now)[0] if hours else per_second("budget", budget)
            self.total, self._hours, self._zone = 3600.0 * rate, hours, str(zone)
        self._burst = burst
        self._untold = set(range(len(self.budgets)))

    def follow(self, now: float) -> None:
        """Divide the budget of another hour if one has begun, as the shards do by themselves: each
        has its part of every hour."""
        if self._hours:
            total = 3600.0 * budget_at(self._hours, self._zone, now)[0]
            self.budgets = self.budgets * (total / self.total)
            self.total = total

    def arguments(self, budget: float) -> dict[str, Any]:
        """Return the arguments of `Scheduler.configure` for the budget of a shard, units per
        hour."""
        part = budget / self.total
        burst = {} if self._burst is None else {"burst": part * self._burst}
        if not self._hours:
            return {"budget": rate_of(budget), **burst}
        hours = tuple((start, max(part * rate, _SMALLEST / 3600.0)) for start, rate in self._hours)
        return {"budget": hours_text(hours), "zone": self._zone, **burst}

    def lower(self, quotes: Sequence[Quote | None]) -> dict[int, float]:
        """Begin a round; return the new budgets of the shards that get less, and in the first round
        those of all, so that no shard keeps a budget from another balancer.

        Arguments:
            quotes: of each shard, (S,); None: it does not answer. Until each has answered
                once, nothing changes.
        """
        self._aims = self.budgets.copy()
        self._reports = np.array([math.inf if quote is None else quote.budget for quote in quotes])
        answering = np.array([quote is not None for quote in quotes])
        for i, quote in enumerate(quotes):
            if quote is not None:
                is_known = self.budgets[i] < math.inf
                self.budgets[i] = max(self.budgets[i], quote.budget) if is_known else quote.budget
        if np.isinf(self.budgets).any() or not answering.any():
            return {}
        rest = max(self.total - float(self.budgets[~answering].sum()), 0.0)
        table = np.array([quote for quote in quotes if quote is not None])
        budgets, prices, sources, new = np.maximum(table, [_SMALLEST, 0.0, 0.0, 0.0]).T
        per_source = rest / max(float(sources.sum()), 1.0)
        least = per_source * (_LOOKED_AFTER * sources + _NEW * np.minimum(new, sources))
        least = np.clip(least, self._least[answering], self._most[answering])
        least = least * min(rest / max(float(least.sum()), _SMALLEST), 1.0)
        prices = np.where(sources > 0, prices, 0.0)
        aims = divide(rest, budgets, prices, least, self._most[answering]) if rest else least
        self._aims[answering] = np.maximum(aims, _SMALLEST)
        changed = self._aims < self.budgets
        changed[[i for i in self._untold if answering[i]]] = True
        lower = np.minimum(self._aims, self.budgets)
        return {int(i): float(lower[i]) for i in np.flatnonzero(changed)}

    def acknowledge(self, budgets: Mapping[int, float]) -> None:
        """Record the budgets that shards have confirmed."""
        for i, budget in budgets.items():
            self.budgets[i] = budget
        self._untold -= budgets.keys()

    def rise(self) -> dict[int, float]:
        """Return the new budgets of the shards that get more, and of those that have not received
        theirs before. They count as given at once: who does not confirm it may have received it."""
        free = self.total - float(self.budgets.sum())
        if free > 0.0:
            gaps = np.maximum(self._aims - self.budgets, 0.0)
            self.budgets = self.budgets + gaps * min(free / max(float(gaps.sum()), _SMALLEST), 1.0)
        late = self._reports < (1.0 - _ROUNDING) * self.budgets
        if free < -_ROUNDING * self.total:  # some have more than there is, and did not confirm less
            return {}
        return {int(i): float(self.budgets[i]) for i in np.flatnonzero(late)}
