"""Rules that a crawler may follow: an oracle's, Miniflux's and round robin; without HTTP.

Each fetches the feed that is most urgent at every moment that the budget gives, of those that it
may fetch. They honour Retry-After and the limits of hosts, and give up a feed that is gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from experiments.live.feeds.world import DAY, DECAY, HOUR, Feed, World

Urgency = Callable[[list[Feed], float], NDArray[np.float64]]


def follow(world: World, per_hour: float, urgency: Urgency, per_host: float = 0.0) -> float:
    """Return the fraction of all worth that a rule collects.

    Arguments:
        urgency: of each feed, −∞ if it must not be fetched.
        per_host: least time between two fetches of a shared host, seconds.
    """
    blocked = np.zeros(world.number)
    hosts = np.full(world.number, -1)
    for i, feed in enumerate(world.feeds):
        if feed.host is not None:
            hosts[i] = feed.host
    for now in np.arange(0.0, world.end, HOUR / per_hour).tolist():
        score = np.where(blocked <= now, urgency(world.feeds, now), -math.inf)
        i = int(score.argmax())
        if score[i] == -math.inf:
            continue
        answer = world.ask(i, now)
        if answer.status == 200:
            world.show(i, now + answer.delay)
        elif answer.status == 410:
            blocked[i] = math.inf
        elif answer.retry_after:
            blocked[i] = now + answer.retry_after
        if per_host and hosts[i] >= 0:
            together = hosts == hosts[i]
            blocked[together] = np.maximum(blocked[together], now + per_host)
    return world.fraction


def oracle(feeds: list[Feed], now: float) -> NDArray[np.float64]:
    """Whittle's index in continuous time, of the true rates and worths at every moment."""
    full = np.array([feed.rate_at(now) * feed.mean for feed in feeds]) / DECAY
    since = np.array([_since(feed, now) for feed in feeds])
    z = DECAY * np.minimum(since, 1e9)
    return full * (1.0 - np.exp(-z) * (1.0 + z))


def _since(feed: Feed, now: float) -> float:
    """Return the time in which items that are unknown were published."""
    since = now - feed.known
    if feed.rate_at(now) > 0.0 and feed.rate_at(-math.inf) == 0.0:
        since = min(since, now - feed.moment)
    return since


def round_robin(feeds: list[Feed], now: float) -> NDArray[np.float64]:
    """Always the feed that was not asked for longest."""
    return np.array([-feed.asked for feed in feeds], dtype=np.float64)


def miniflux(feeds: list[Feed], now: float) -> NDArray[np.float64]:
    """By how much a feed is overdue: Miniflux's interval is a week ÷ the entries of the last week
    that the last fetch showed, between 5 minutes and a day."""
    late = np.empty(len(feeds))
    for i, feed in enumerate(feeds):
        if feed.known == -math.inf:
            late[i] = 1e9 - feed.asked * DAY
            continue
        listed = feed.time[feed.listed(feed.known)]
        entries = int((listed > feed.known - 7 * DAY).sum())
        interval = min(max(7 * DAY / max(entries, 1e-9), 300.0), DAY)
        late[i] = now - feed.known - interval
    return late


RULES: dict[str, Urgency] = {"oracle": oracle, "miniflux": miniflux, "round robin": round_robin}
