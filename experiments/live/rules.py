"""Rules that a crawler may follow: an oracle's, and those of feed readers in use; without HTTP.
And what no crawler can exceed.

Each fetches the feed that is most urgent at every moment that the budget gives, of those that it
may fetch. They honour Retry-After and the limits of hosts, and give up a feed that is gone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from agents.theory.closed_form import continuous_age_index, continuous_ages_reaching
from ephemeral_crawl.backtest.rules import RULES as IN_USE
from experiments.live.world import DAY, DECAY, FAILS, HOUR, Nature, World

Floats = NDArray[np.float64]


class Follower(ABC):
    """Says which feed of a world is most urgent."""

    def __init__(self, world: World) -> None:
        self.feeds = world.feeds

    @abstractmethod
    def urgency(self, now: float) -> Floats:
        """Return how urgent each feed is."""

    @abstractmethod
    def asked(self, i: int, now: float, published: Floats | None, status: int | None) -> None:
        """Note that a feed was asked for.

        Arguments:
            published: times of the items that it showed for the first time; None: the request
                failed.
            status: of the answer; None: there was none.
        """


class Oracle(Follower):
    """Whittle's index in continuous time, of the true rates and worths at every moment; feeds in
    an outage are worth nothing.

    Arguments:
        pings: whether it is told of pings, of which it knows recall and precision.
    """

    def __init__(self, world: World, pings: bool = False) -> None:
        super().__init__(world)
        self._full = np.array([feed.rate * feed.mean for feed in world.feeds]) / DECAY
        self._mean = np.array([feed.mean for feed in world.feeds])
        endings, born = (Nature.GONE, Nature.SILENT), Nature.BORN
        self._start = np.array([f.moment if f.nature is born else -1e12 for f in world.feeds])
        self._end = np.array([f.moment if f.nature in endings else math.inf for f in world.feeds])
        self._fetched_at = np.full(world.number, -1e12)
        self._silent = 1.0 - world.recall if pings else 1.0  # share of the items
        self._precision = world.precision
        self._pings = world.pings[::-1] if pings else []
        self._true = np.zeros(world.number)  # Σ e^(−μ·age) of the pings since the last fetch
        self._now = 0.0

    def urgency(self, now: float) -> Floats:
        self._true *= math.exp(-DECAY * (now - self._now))
        self._now = now
        while self._pings and self._pings[-1][0] <= now:
            time, i = self._pings.pop()
            if self._start[i] <= time < self._end[i]:
                self._true[i] += math.exp(-DECAY * (now - time))
        full = np.where((self._start <= now) & (now < self._end), self._full, 0.0)
        since = now - np.maximum(self._fetched_at, self._start)
        x = self._silent * full * -np.expm1(-DECAY * np.maximum(since, 0.0))
        x += self._precision * self._mean * self._true
        share = np.minimum(x / np.where(full > 0.0, full, 1.0), 1.0 - 1e-12)
        index = np.where(x < full, full * continuous_age_index(-np.log1p(-share)), x)
        there = [feed.outage(now) is None for feed in self.feeds]
        return np.where((full > 0.0) & there, index, 0.0)

    def asked(self, i: int, now: float, published: Floats | None, status: int | None) -> None:
        if published is not None:
            self._fetched_at[i], self._true[i] = now, 0.0


class Intervals(Follower):
    """A rule in use: the feed for which the largest part of its interval has passed, as if all
    intervals were stretched or shrunk to the budget."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world)
        self._rules = [IN_USE[name]() for _ in world.feeds]
        self._last = np.full(world.number, -math.inf)
        self._interval = np.full(world.number, DAY)

    def urgency(self, now: float) -> Floats:
        given_up = np.isinf(self._interval)
        return np.where(given_up, -math.inf, (now - self._last) / self._interval)

    def asked(self, i: int, now: float, published: Floats | None, status: int | None) -> None:
        self._last[i] = now
        if published is None:
            self._interval[i] = self._rules[i].after_error(now, status)
        else:
            self._interval[i] = self._rules[i].after(now, published.tolist())


def follow(
    world: World, per_hour: float, rule: Callable[[World], Follower], per_host: float = 0.0
) -> float:
    """Return the fraction of all worth that a rule collects.

    Arguments:
        per_host: least time between two fetches of a shared host, seconds.
    """
    follower = rule(world)
    open_at = np.zeros(world.number)
    hosts = np.array([-1 if feed.host is None else feed.host for feed in world.feeds])
    for now in np.arange(0.0, world.end, HOUR / per_hour).tolist():
        score = np.where(open_at <= now, follower.urgency(now), -math.inf)
        i = int(score.argmax())
        if score[i] == -math.inf:
            continue
        answer = world.ask(i, now)
        times = None
        if answer.status == 200:
            feed, at = world.feeds[i], now + answer.delay
            span = feed.listed(at)
            times = feed.time[max(span.start, feed.shown) : span.stop]
            world.show(i, at)
        elif answer.status == 410:
            open_at[i] = math.inf
        elif answer.retry_after:
            open_at[i] = now + answer.retry_after
        follower.asked(i, now, times, answer.status)
        if per_host and hosts[i] >= 0:
            together = hosts == hosts[i]
            open_at[together] = np.maximum(open_at[together], now + per_host)
    return world.fraction


RULES: dict[str, Callable[[World], Follower]] = {
    "oracle": Oracle,
    **{name: partial(Intervals, name=name) for name in IN_USE},
}


_HIGHEST = 1e3  # price of a request


def bound(world: World, per_hour: float, per_host: float = 0.0) -> float:
    """Return what no crawler that learns nothing but what it fetches can exceed, however much it
    knows: the largest expected worth collected ÷ expected worth published.

    A feed of rate Λ and mean worth ξ̄ that is fetched f times per second collects at most
    u f (1 − e^(−μ/f)) per second, with u = Λξ̄/μ, since that is concave in f. The bound is the
    largest sum of these for which fetches cost the budget, and those of each host not more than it
    accepts, on average over the whole time: two relaxed constraints, each with a price (as in
    `agents.theory.relaxation`). A server that fails one time in eight takes 8/7 requests a fetch.

    Arguments:
        per_host: least time between two fetches of a shared host, seconds.
    """
    feeds, end = world.feeds, world.end
    full = np.array([feed.rate * feed.mean for feed in feeds]) / DECAY
    time = np.array([_lives(feed.nature, feed.moment, end) for feed in feeds])
    success = np.array([1 - FAILS if f.nature in _FAILING else 1.0 for f in feeds])
    host = np.array([-1 if feed.host is None else feed.host for feed in feeds])

    def requests(price: np.ndarray) -> np.ndarray:
        """Requests to each feed, at a price of each."""
        share = price / (success * full)
        age = continuous_ages_reaching(share, np.ones_like(share))
        return DECAY / np.maximum(age, 1e-9) / success * time

    def prices(price: float) -> np.ndarray:
        """Price of a request to each feed, with that of its host."""
        costs = np.full(len(feeds), price)
        for k in set(host[host >= 0].tolist()) if per_host else ():
            here = host == k

            def excess(more: float, here: np.ndarray = here) -> float:
                return float(requests(costs + more)[here].sum()) - end / per_host

            if excess(0.0) > 0.0:
                costs[here] += brentq(excess, 0.0, _HIGHEST, xtol=1e-6)
        return costs

    def overspend(price: float) -> float:
        return float(requests(prices(price)).sum()) - per_hour * end / HOUR

    least = 1e-6
    value = brentq(overspend, least, _HIGHEST, xtol=1e-6) if overspend(least) > 0.0 else least
    fetches = requests(prices(value)) * success / time
    gap = 1.0 / np.maximum(fetches, 1e-12)
    collected = full * -np.expm1(-DECAY * gap) / gap * time
    return float(collected.sum() / (full * DECAY * time).sum())


_FAILING = (Nature.BUSY, Nature.BROKEN)


def _lives(nature: Nature, moment: float, end: float) -> float:
    """Return how long a feed publishes, seconds."""
    if nature is Nature.BORN:
        return end - moment
    return moment if nature in (Nature.GONE, Nature.SILENT) else end
