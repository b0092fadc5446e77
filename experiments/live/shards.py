"""What several schedulers collect of two hundred feeds, each of its own, and what one does.

The budgets stay equal, or follow the prices. At the end of the third day there is a shock: a
quarter of the shards loses half of its budget to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from crawl_env.numerics import FloatArray
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.live import Lease, Scheduler
from ephemeral_crawl.shards.balancer import Balancer, quote_of, rate_of
from ephemeral_crawl.shards.owner import owner_of
from experiments.core.data import Case, Cell, Column, Data, Table, mean
from experiments.core.study import Part
from experiments.live.failing import DAYS, PER_HOUR
from experiments.live.over_http import START
from experiments.live.simulated import simulate
from experiments.live.world import DAY, HOUR, MINUTE, fleet

EVERY = 15 * MINUTE  # between two rounds of the balancer
SHOCK = 3.0 * DAY
SEEDS, DEAD = 4, 67  # feeds that are dead, beside the two hundred
HOURS = (0, 1, 2, 4)  # after the shock
ONE, EQUAL, BALANCED = "one scheduler", "equal", "balanced"


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
        together: list[Lease] = []
        for k, shard in enumerate(self.shards):
            leases = shard.lease(limit - len(together), timeout) if len(together) < limit else []
            together += [replace(lease, id=lease.id * self._number + k) for lease in leases]
        return together

    def next_due(self) -> float | None:
        """Return when the first of them has something to lease."""
        times = [due for shard in self.shards if (due := shard.next_due()) is not None]
        return min([*times, self._next])

    def report(self, lease: int, *arguments: Any, **keywords: Any) -> None:
        number, k = divmod(lease, self._number)
        self.shards[k].report(number, *arguments, **keywords)

    def failed(self, lease: int, **keywords: Any) -> None:
        number, k = divmod(lease, self._number)
        self.shards[k].failed(number, **keywords)

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
                cuts = self._balancer.lower(quotes)
                self._tell(cuts)
                self._balancer.acknowledge(cuts)
                self._tell(self._balancer.rise())
            self.most = max(self.most, sum(x.status().budget for x in self.shards))

    def _disturb(self) -> None:
        """Give half of the budgets of a quarter of the shards to the others."""
        self._shock = np.inf
        few = max(self._number // 4, 1)
        budgets = [x.status().budget for x in self.shards]
        amount = 0.5 * sum(budgets[:few])
        shares = [0.5 * b if k < few else b for k, b in enumerate(budgets)]
        shares = [b if k < few else b + amount / (self._number - few) for k, b in enumerate(shares)]
        self._tell(dict(enumerate(shares)))

    def _tell(self, budgets: Mapping[int, float]) -> None:
        for k, budget in budgets.items():
            self.shards[k].configure(budget=rate_of(budget))


def jobs(
    study: Any = None, seeds: Sequence[int] = range(SEEDS), numbers: Sequence[int] = (4, 8)
) -> list[Job]:
    """Return a job for each seed, number of shards and kind of budgets, each of which gives a row;
    one scheduler comes first."""
    cases = [(1, ONE), *((number, kind) for number in numbers for kind in (EQUAL, BALANCED))]
    return [
        {"columns": {"seed": seed, "shards": number, "budgets": kind}, "days": DAYS}
        for seed in seeds
        for number, kind in cases
    ]


def work(job: Job) -> Result:
    """Return the worth that is collected, the largest sum of the budgets, and by which fraction a
    price differs from their mean at most: on the day before the shock, on average over time, and
    when prices are first read some hours after it."""
    case = job["columns"]
    world = fleet(case["seed"], DEAD, days=job["days"])
    shock = SHOCK if case["shards"] > 1 else np.inf
    shards = Shards(PER_HOUR, case["shards"], case["budgets"] == BALANCED, shock)
    simulate(world, PER_HOUR, make=shards.start)
    apart = np.array(list(shards.apart.values()))
    time = np.array(list(shards.apart))
    after = {f"hour {h}": float(apart[time >= SHOCK + h * HOUR][0]) for h in HOURS}
    before = float(apart[(time > SHOCK - DAY) & (time < SHOCK)].mean())
    return {"collected": world.collected, "most": shards.most, "before": before, **after}


def value(statistic: Callable[[FloatArray], float]) -> Cell:
    """Return the cell of a statistic, over seeds, of what shards collect ÷ what one scheduler
    does."""

    def cell(data: Data, case: Case) -> float:
        one = data.numbers("collected", budgets=ONE)
        return float(statistic(data.numbers("collected", **case) / one))

    return cell


def largest(column: str) -> Cell:
    """Return the cell of the largest number in a column, over seeds."""
    return lambda data, case: float(data.numbers(column, **case).max())


def claim(data: Data) -> str:
    """Return what shards collect."""
    shares = " and ".join(
        f"{value(np.mean)(data, case):.1%} with {case['shards']}"
        for case in data.cases("shards", "budgets", budgets=BALANCED)
    )
    return (
        f"Shards whose budgets follow their prices collect, of what one scheduler does, {shares}."
    )


PART = Part(
    jobs=jobs,
    work=work,
    file="shards.csv",
    heading="Shards",
    content=(
        Table(
            "What shards collect ÷ what one scheduler does with the same feeds and budget, and by "
            "which fraction a price differs from their mean at most",
            {"shards": "shards", "budgets": "budgets"},
            (
                Column("collected, mean", value(np.mean), ".1%"),
                Column("least", value(np.min), ".1%"),
                Column("apart before", mean("before"), ".1%"),
                *(Column(f"{h} h after a shock", largest(f"hour {h}"), ".1%") for h in HOURS),
            ),
        ),
        f"Two hundred living feeds and {DEAD} dead ones, {PER_HOUR:g} fetches an hour, {DAYS} "
        f"days, {SEEDS} seeds. The feeds are divided by a hash of their domains. Prices are read "
        f"every {EVERY / MINUTE:g} minutes; apart before is the mean over the third day, the rest "
        "are the largest of the seeds. The shock, after three days, takes half of the budget of a "
        "quarter of the shards and gives it to the others; there is none where there is one "
        "scheduler.",
    ),
    claim=claim,
)
