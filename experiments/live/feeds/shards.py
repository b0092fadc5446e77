"""The reference crawl by several schedulers, whose budgets follow their prices.

    python -m experiments.live.feeds.shards --shards 4 8 --seeds 0 1 2 3

prints what they collect ÷ what one scheduler does with the same feeds and budget, with equal
budgets that stay and with the balancer, and by which fraction a price differs from their mean at
most: on the third day, and in the hours after a shock at its end, when a quarter of the shards
loses half of its budget to the others.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np

from ephemeral_crawl.live import Lease, Scheduler
from ephemeral_crawl.shards.balancer import Balancer, quote_of, rate_of
from ephemeral_crawl.shards.owner import owner_of
from experiments.live.feeds.failing import DAYS, PER_HOUR
from experiments.live.feeds.simulated import simulate
from experiments.live.feeds.warp import START
from experiments.live.feeds.world import DAY, HOUR, MINUTE, fleet

EVERY = 15 * MINUTE  # between two rounds of the balancer
SHOCK = 3.0 * DAY


class Shards:
    """Schedulers of one fleet, used as `simulate` uses one.

    Arguments:
        per_hour: budget of all.
        number: of shards, which have equal budgets at first.
        balanced: whether the balancer moves the budgets.
        shock: time at which the budgets are disturbed, seconds from the start.
    """

    def __init__(self, per_hour: float, number: int, balanced: bool, shock: float = np.inf) -> None:
        self._budget, self._number, self._shock = per_hour, number, shock
        self._balancer = Balancer(per_hour, number) if balanced else None
        self._next = START + EVERY
        self.shards: list[Scheduler] = []
        self.apart: dict[float, float] = {}  # largest |price ÷ mean − 1|, by time
        self.most = 0.0  # largest sum of the budgets

    def start(self, clock: Callable[[], float]) -> Self:
        """Make the schedulers, and return all this."""
        budget = rate_of(self._budget / self._number)
        self._clock = clock
        self.shards = [
            Scheduler(":memory:", budget=budget, clock=clock) for _ in range(self._number)
        ]
        return self

    def add_many(self, sources: Iterable[Mapping[str, Any]]) -> None:
        for source in sources:
            self._of(source["source"]).add_many([source])

    def limit_host(self, host: str, interval: float) -> None:
        self._of(host).limit_host(host, interval)

    def lease(self, limit: int, timeout: str) -> list[Lease]:
        """Lease from each shard in turn."""
        self._follow()
        found: list[Lease] = []
        for k, shard in enumerate(self.shards):
            leases = shard.lease(limit - len(found), timeout) if len(found) < limit else []
            found += [replace(lease, id=lease.id * self._number + k) for lease in leases]
        return found

    def next_due(self) -> float | None:
        """Return when the first of them has something to lease."""
        times = [due for shard in self.shards if (due := shard.next_due()) is not None]
        return min([*times, self._next])

    def report(self, lease: int, *arguments: Any, **named: Any) -> None:
        number, k = divmod(lease, self._number)
        self.shards[k].report(number, *arguments, **named)

    def failed(self, lease: int, **named: Any) -> None:
        number, k = divmod(lease, self._number)
        self.shards[k].failed(number, **named)

    def signal(self, source: str, kind: str) -> None:
        self._of(source).signal(source, kind)

    def pause(self, source: str) -> None:
        self._of(source).pause(source)

    def resume(self, source: str) -> None:
        self._of(source).resume(source)

    def rename(self, source: str, name: str) -> None:
        self._of(source).rename(source, name)

    def _of(self, source: str) -> Scheduler:
        return self.shards[owner_of(source, self._number)]

    def _follow(self) -> None:
        """Move the budgets, if it is time."""
        while self._clock() >= self._next:
            self._next += EVERY
            if START + self._shock < self._next:
                self._disturb()
            quotes = [quote_of(shard.status()) for shard in self.shards]
            prices = np.array([quote.price for quote in quotes])
            self.apart[self._clock() - START] = float(np.abs(prices / prices.mean() - 1).max())
            if self._balancer is not None:
                lowered = self._balancer.lower(quotes)
                self._tell(lowered)
                self._balancer.acknowledge(lowered)
                self._tell(self._balancer.rise())
            self.most = max(self.most, sum(x.status().budget for x in self.shards))

    def _disturb(self) -> None:
        """Give half of the budgets of a quarter of the shards to the others."""
        self._shock = np.inf
        few = max(self._number // 4, 1)
        budgets = [x.status().budget for x in self.shards]
        taken = 0.5 * sum(budgets[:few])
        left = [0.5 * b if k < few else b for k, b in enumerate(budgets)]
        left = [b if k < few else b + taken / (self._number - few) for k, b in enumerate(left)]
        self._tell(dict(enumerate(left)))

    def _tell(self, budgets: Mapping[int, float]) -> None:
        for k, budget in budgets.items():
            self.shards[k].configure(budget=rate_of(budget))


def main() -> None:
    """Print what shards collect."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shards", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--dead", type=int, default=67)
    given = parser.parse_args()
    hours = (0, 1, 2, 4)  # after the shock
    print("seed shards  budgets    value  apart on day 3  apart after 0, 1, 2, 4 h  most")
    for seed in given.seeds:
        one = fleet(seed, given.dead, days=DAYS)
        simulate(one, PER_HOUR)
        for number, balanced in itertools.product(given.shards, (False, True)):
            world = fleet(seed, given.dead, days=DAYS)
            shards = Shards(PER_HOUR, number, balanced, SHOCK)
            simulate(world, PER_HOUR, make=shards.start)
            apart = shards.apart
            before = [x for time, x in apart.items() if SHOCK - DAY < time < SHOCK]
            after = [min((t, x) for t, x in apart.items() if t >= SHOCK + h * HOUR) for h in hours]
            print(
                f"{seed:4} {number:6}  {'balanced' if balanced else 'equal':8} "
                f"{world.collected / one.collected:.4f}  {np.mean(before):14.3f}  "
                f"{' '.join(f'{x:.3f}' for _, x in after):24}  {shards.most:.9f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
