"""Sixty feeds whose items lose half of their worth in three hours, and crawlers that fetch them.

Independent of the package: arrivals and what a fetch finds are computed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from ephemeral_crawl.live import Scheduler

HOUR, DAY = 3600.0, 86_400.0
START = 1_700_000_000.0
SHOWN = 20  # items in a feed


class Clock:
    """A clock that is set by hand, in seconds since `START`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return START + self.now


class World:
    """Poisson feeds of lognormal rates and mean worths, exponential worths.

    Arguments:
        changing: fraction of the feeds that fall silent, and fraction that wake up, at some time.
        recall, precision: of the pings.
    """

    def __init__(
        self,
        seed: int,
        *,
        feeds: int = 60,
        days: float = 14.0,
        changing: float = 0.0,
        recall: float = 0.0,
        precision: float = 1.0,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.feeds, self.end, self.decay = feeds, days * DAY, math.log(2.0) / (3 * HOUR)
        self.rate = np.exp(rng.normal(math.log(0.15), 1.3, feeds)) / HOUR
        self.worth = np.exp(rng.normal(0.0, 0.8, feeds))
        self.items, self.pings = [], []
        for i, own in enumerate(rng.spawn(feeds)):
            before = max(1.5 * SHOWN / self.rate[i], 3 * DAY)
            number = own.poisson(self.rate[i] * (before + self.end))
            time = np.sort(own.uniform(-before, self.end, number))
            worth = own.exponential(self.worth[i], number)
            fate, moment = own.uniform(), own.uniform(0.2, 0.8) * self.end
            if fate < 2 * changing:
                alive = time < moment if fate < changing else time > moment
                time, worth = time[alive], worth[alive]
            self.items.append((time, worth))
            true = time[own.random(len(time)) < recall]
            false = self.rate[i] * recall * (1 - precision) / precision * self.end
            false_pings = own.uniform(0, self.end, own.poisson(false))
            self.pings += [(t, i) for t in [*true[true > 0], *false_pings]]
        self.pings.sort()
        self.total = sum(worth[time >= 0].sum() for time, worth in self.items)
        self.gains = np.zeros(feeds)  # worth collected of each
        self.last = np.full(feeds, -math.inf)

    def fetch(self, i: int, now: float) -> list[tuple[float, float]]:
        """Collect what is new, and return it: time of publication and worth."""
        time, worth = self.items[i]
        new = (time > self.last[i]) & (time <= now)
        live = new & (time >= 0)
        self.gains[i] += float((worth[live] * np.exp(-self.decay * (now - time[live]))).sum())
        items = [(START + t, w) for t, w in zip(time[new], worth[new], strict=True)]
        first, self.last[i] = self.last[i] == -math.inf, now
        return items[-SHOWN:] if first else items

    @property
    def collected(self) -> float:
        return float(self.gains.sum())

    @property
    def fraction(self) -> float:
        return self.collected / self.total

    def times(self, per_hour: float) -> Iterable[float]:
        return np.arange(0.0, self.end, HOUR / per_hour).tolist()


def crawl(
    world: World, per_hour: float, store: object = ":memory:", hosts: int = 0, **settings: object
) -> float:
    """Return the fraction of all worth that the scheduler collects.

    Arguments:
        hosts: number of hosts, to which feeds belong in turn; 0: to none.
    """
    clock = Clock()
    scheduler = Scheduler(store, budget=f"{per_hour:g}/h", clock=clock, **settings)
    host = [f"host {i % hosts}" if hosts else None for i in range(world.feeds)]
    scheduler.add_many({"source": str(i), "host": host[i]} for i in range(world.feeds))
    pings = list(reversed(world.pings))
    for clock.now in world.times(per_hour):
        now = clock.now
        while pings and pings[-1][0] <= now:
            clock.now, i = pings.pop()
            scheduler.signal(str(i), "websub")
        clock.now = now
        for lease in scheduler.lease(limit=4):
            scheduler.report(lease.id, world.fetch(int(lease.source), now))
    return world.fraction


def by_rule(world: World, per_hour: float, urgency: Callable[[float], np.ndarray]) -> float:
    """Return the fraction collected by fetching the most urgent feed at every moment."""
    for now in world.times(per_hour):
        world.fetch(int(urgency(now).argmax()), now)
    return world.fraction


def oracle(world: World, per_hour: float) -> float:
    """The Whittle index in continuous time with known parameters."""
    full = world.rate * world.worth / world.decay

    def index(now: float) -> np.ndarray:
        z = world.decay * np.minimum(now - world.last, 1e9)
        return full * (1.0 - np.exp(-z) * (1.0 + z))

    return by_rule(world, per_hour, index)


def round_robin(world: World, per_hour: float) -> float:
    return by_rule(world, per_hour, lambda now: now - world.last)


def miniflux(world: World, per_hour: float) -> float:
    """A week divided by the number of entries of the last week, 5 minutes to a day; the most
    overdue first."""
    interval = np.full(world.feeds, DAY)

    def overdue(now: float) -> np.ndarray:
        late = np.minimum(now - world.last, 1e9) - interval
        i = int(late.argmax())
        time = world.items[i][0]
        entries = int(((time > now - 7 * DAY) & (time <= now)).sum())
        interval[i] = min(max(7 * DAY / max(entries, 1e-9), 300.0), DAY)
        return late

    return by_rule(world, per_hour, overdue)
