"""What sitemaps bring that are polled within the budget, at intervals that are learnt or fixed.

The sixty feeds of the reference crawl are those of four sites of fifteen, each of which has a
sitemap that says when a feed was changed. Two of them are careful; the others leave most changes
out and change most dates for nothing. Without sockets; nothing is known at first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ephemeral_crawl.core.runner import Job, Result
from experiments.core.data import Case, Column, Data, Table, mean
from experiments.core.study import Part
from experiments.live.feeds import BUDGETS, ratios
from experiments.live.simulated import simulate
from experiments.live.world import HOUR, MINUTE, World

SEEDS, SITES, DAYS = 4, 4, 7.0
# Fraction of the items that get the feed another date, and fraction of such dates behind which
# there is an item, of the sites in turn.
QUALITIES = ((0.9, 0.8), (0.3, 0.1))
COSTS = (0.1, 1.0)  # budget units of a fetch of a sitemap; one of a feed costs 1
NEVER, LEARNT = "never", "learnt"
EVERY = {"every 15 min": 15.0 * MINUTE, "every hour": HOUR, "every 3 h": 3.0 * HOUR}
POLLED = (NEVER, LEARNT, *EVERY)
_ALSO_DEAR = (LEARNT, "every 3 h")  # which are crawled with the second cost, too


@dataclass
class Sitemap:
    """The sitemap of a site: which of its feeds were changed, and when.

    Arguments:
        cost: budget units of a fetch.
        every: seconds between two fetches; 0: as often as the scheduler says.
    """

    time: NDArray[np.float64]  # (C,) of changes, seconds, ascending
    feed: NDArray[np.int64]  # (C,)
    cost: float
    every: float
    fetched: float = -1.0  # when it was last, seconds; negative: never

    def fetch(self, now: float) -> list[tuple[float, int]]:
        """Return the date of each feed that was changed since the last fetch; none the first
        time."""
        since = (self.time > self.fetched) & (self.time <= now) & (self.fetched >= 0.0)
        last = dict(zip(self.feed[since].tolist(), self.time[since].tolist(), strict=True))
        self.fetched = now
        return [(time, feed) for feed, time in last.items()]


def sitemaps_of(world: World, cost: float, every: float) -> list[Sitemap]:
    """Return the sitemaps of the sites of a world."""
    rng, sitemaps = np.random.default_rng([world.seed, 19]), []
    for k in range(SITES):
        recall, precision = QUALITIES[k % len(QUALITIES)]
        changes: list[tuple[float, int]] = []
        for i in range(k, world.number, SITES):
            time = world.feeds[i].time
            true = time[(time > 0.0) & (rng.random(len(time)) < recall)]
            false = world.feeds[i].rate * recall * (1.0 - precision) / precision * world.end
            others = rng.uniform(0.0, world.end, rng.poisson(false))
            changes += [(time, i) for time in [*true.tolist(), *others.tolist()]]
        changes.sort()
        times, feeds = (np.array(column) for column in zip(*changes, strict=True))
        sitemaps.append(Sitemap(times, feeds, cost, every))
    return sitemaps


def jobs(
    study: Any = None,
    seeds: Sequence[int] = range(SEEDS),
    budgets: Sequence[float] = BUDGETS,
    days: float = DAYS,
) -> list[Job]:
    """Return a job for each cost of a sitemap, seed, budget and rule by which they are polled, each
    of which gives a row."""
    return [
        {
            "columns": {"cost": cost, "seed": seed, "budget": budget, "polled": polled},
            "days": days,
        }
        for cost in COSTS
        for seed in seeds
        for budget in budgets
        for polled in POLLED
        if cost == COSTS[0] or polled in _ALSO_DEAR
    ]


def work(job: Job) -> Result:
    """Return the fraction of all worth that is collected, and that of the budget that goes to
    sitemaps: to those of careful sites, and to the others."""
    cost, seed, budget, polled = job["columns"].values()
    world = World(seed, days=job["days"])
    maps = [] if polled == NEVER else sitemaps_of(world, cost, EVERY.get(polled, 0.0))
    simulate(world, budget, sitemaps=maps)
    looks = np.zeros(len(QUALITIES))
    for _, i in world.log:
        if i < 0:  # a sitemap
            looks[(-i - 1) % len(QUALITIES)] += cost
    careful, careless = (looks / (budget * world.end / HOUR)).tolist()
    return {"fraction": world.fraction, "careful": careful, "careless": careless}


def _gain(data: Data, case: Case) -> str:
    """Return by what more is collected than without sitemaps: mean and standard error."""
    gains = ratios(data, case, polled=NEVER, cost=str(COSTS[0])) - 1.0
    error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else np.nan
    return f"{gains.mean():+.1%} ± {error:.1%}"


def claim(data: Data) -> str:
    """Return what sitemaps bring."""
    gains = ", ".join(
        f"{_gain(data, {**case, 'polled': LEARNT}).partition(' ')[0]} at {case['budget']}"
        for case in data.cases("cost", "budget", polled=LEARNT, cost=str(COSTS[0]))
    )
    return (
        "Sitemaps whose fetches cost a tenth of those of feeds, and are polled within the budget "
        f"as often as is learnt, bring {gains} fetches an hour."
    )


_CASE = {"cost": "cost of a fetch", "budget": "budget / h", "polled": "sitemaps are fetched"}

PART = Part(
    jobs=jobs,
    work=work,
    file="sitemaps.csv",
    heading="Sitemaps",
    content=(
        Table(
            "Fraction of all worth collected in seven days, against crawls without sitemaps, "
            "and the part of the budget that goes to sitemaps: means over seeds",
            _CASE,
            (
                Column("collected", mean("fraction"), ".3f"),
                Column("against never", _gain, str),
                Column("of the budget: careful sites", mean("careful"), ".1%"),
                Column("others", mean("careless"), ".1%"),
            ),
        ),
        "Sixty feeds on four sites, each of which has a sitemap, which is a source of the "
        "scheduler. Careful sites give a feed another date for .9 of its items, and .8 of such "
        "dates have an item behind them; the others for .3, and .1 of them have. Which, is not "
        "known to the scheduler. Fixed intervals are minimum and maximum intervals of the "
        "sitemaps; where these alone take the budget, hardly any feed is fetched.",
    ),
    claim=claim,
)
