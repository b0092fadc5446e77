"""Sixty feeds whose items lose half of their worth in three hours, and what their servers answer.

Independent of the package: arrivals, answers and what is collected are computed here. Everything
depends on the seed and on how often a feed was asked before, so that crawlers meet the same world.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

HOUR, DAY = 3600.0, 86_400.0
DECAY = math.log(2.0) / (3.0 * HOUR)
SHOWN = 20  # items in a feed
SHARED = 3  # hosts of half of the feeds
FAILS = 0.125  # chance that a request to a busy or broken server fails
_MEDIAN, _SPREAD, _WORTHS = 0.15, 1.3, 0.8  # items per hour; σ of the logarithms


class Nature(Enum):
    """What is particular about a feed's server."""

    PLAIN = "plain"
    BUSY = "429 with Retry-After, one request in eight"
    BROKEN = "503 or 500, one request in eight"
    MOVED = "moves for good, once"
    AWAY = "redirects for now"
    SLOW = "takes 5 to 25 s"
    GONE = "is gone (410) from some time on"
    SILENT = "publishes nothing from some time on"
    BORN = "is empty until some time"


_NUMBERS = {
    Nature.BUSY: 4,
    Nature.BROKEN: 5,
    Nature.MOVED: 4,
    Nature.AWAY: 3,
    Nature.SLOW: 4,
    Nature.GONE: 3,
    Nature.SILENT: 3,
    Nature.BORN: 5,
}


@dataclass(frozen=True)
class Answer:
    """What a server answers at some time."""

    status: int  # 200 stands for 304, too
    delay: float = 0.0  # seconds
    retry_after: float = 0.0  # seconds
    moved: bool = False  # to its second address


@dataclass
class Feed:
    """A feed: its items, and its server."""

    rate: float  # items per second
    mean: float  # worth of an item
    nature: Nature
    moment: float  # at which it moves, is gone, falls silent or is born
    time: NDArray[np.float64]  # of its items, ascending
    worth: NDArray[np.float64]
    seed: int
    conditional: bool  # whether it answers 304
    atom: bool
    host: int | None  # which of the shared hosts it is on
    asked: int = 0
    known: float = -math.inf  # time of the last fetch that showed what there was
    shown: int = 0  # number of items that were collected or lost

    def rate_at(self, now: float) -> float:
        """Return the true rate at a time, as only an oracle knows it."""
        if self.nature is Nature.BORN:
            return self.rate if now >= self.moment else 0.0
        ends = self.nature in (Nature.GONE, Nature.SILENT)
        return 0.0 if ends and now >= self.moment else self.rate

    @property
    def moves(self) -> bool:
        """Whether it moves for good."""
        return self.nature is Nature.MOVED

    def answer(self, now: float) -> Answer:
        """Return what the server answers to one more request."""
        self.asked += 1
        chance, other = np.random.default_rng([self.seed, self.asked]).random(2)
        if self.nature is Nature.GONE and now >= self.moment:
            return Answer(410)
        if self.nature is Nature.BUSY and chance < FAILS:
            return Answer(429, retry_after=float(np.round(600 + 3000 * other)))
        if self.nature is Nature.BROKEN and chance < FAILS:
            return Answer(503 if other < 0.5 else 500)
        if self.nature is Nature.SLOW:
            return Answer(200, delay=5.0 + 20.0 * other)
        moved = self.nature is Nature.MOVED and now >= self.moment
        return Answer(200, moved=moved or self.nature is Nature.AWAY)

    def listed(self, now: float) -> slice:
        """Return which items the feed shows."""
        end = int(np.searchsorted(self.time, now, side="right"))
        return slice(max(end - SHOWN, 0), end)


@dataclass
class World:
    """The feeds, and what a crawler has collected from them.

    Arguments:
        shared_hosts: whether half of the feeds are on three hosts.
        recall, precision: of the pings.
    """

    seed: int
    days: float = 14.0
    shared_hosts: bool = False
    recall: float = 0.8
    precision: float = 0.5
    number: int = 60
    feeds: list[Feed] = field(default_factory=list)
    pings: list[tuple[float, int]] = field(default_factory=list)  # time and feed, ascending
    collected: float = 0.0
    requests: int = 0
    log: list[tuple[float, int]] = field(default_factory=list)  # time and feed of each request

    def __post_init__(self) -> None:
        rng = np.random.default_rng([self.seed, 17])
        natures = [nature for nature, n in _NUMBERS.items() for _ in range(n)]
        natures += [Nature.PLAIN] * (self.number - len(natures))
        order = rng.permutation(self.number)
        rates = np.exp(rng.normal(math.log(_MEDIAN), _SPREAD, self.number)) / HOUR
        means = np.exp(rng.normal(0.0, _WORTHS, self.number))
        for i, own in enumerate(rng.spawn(self.number)):
            before = max(1.5 * SHOWN / rates[i], 3.0 * DAY)
            n = own.poisson(rates[i] * (before + self.end))
            # Feeds state seconds.
            time = np.sort(np.floor(own.uniform(-before, self.end, n)))
            worth = np.maximum(np.round(own.exponential(means[i], n), 6), 1e-6)
            nature, moment = natures[order[i]], own.uniform(0.2, 0.7) * self.end
            if nature in (Nature.GONE, Nature.SILENT):
                time, worth = time[time < moment], worth[time < moment]
            elif nature is Nature.BORN:
                time, worth = time[time >= moment], worth[time >= moment]
            host = i % SHARED if self.shared_hosts and i < self.number // 2 else None
            # A host that asks to be left alone would silence the others on it.
            if host is not None and nature in (Nature.BUSY, Nature.GONE):
                nature = Nature.PLAIN if nature is Nature.BUSY else Nature.SILENT
            conditional, atom = own.random() < 0.7, bool(own.random() < 0.5)
            feed = Feed(
                *(float(rates[i]), float(means[i]), nature, moment, time, worth),
                *(int(own.integers(1 << 62)), bool(conditional), atom, host),
            )
            self.feeds.append(feed)
            true = time[(time > 0.0) & (own.random(len(time)) < self.recall)]
            false = rates[i] * self.recall * (1 - self.precision) / self.precision * self.end
            times = [*true, *own.uniform(0.0, self.end, own.poisson(false))]
            self.pings += [(float(t), i) for t in times]
        self.pings.sort()

    @property
    def end(self) -> float:
        """Length of the crawl, seconds."""
        return self.days * DAY

    def ask(self, i: int, now: float) -> Answer:
        """Return the answer of a feed to a request."""
        self.requests += 1
        self.log.append((now, i))
        return self.feeds[i].answer(now)

    def show(self, i: int, now: float) -> None:
        """Count what a feed shows as collected; what it no longer shows is lost."""
        feed = self.feeds[i]
        seen = feed.listed(now)
        first = max(seen.start, feed.shown)
        time, worth = feed.time[first : seen.stop], feed.worth[first : seen.stop]
        live = time >= 0.0
        self.collected += float((worth[live] * np.exp(-DECAY * (now - time[live]))).sum())
        feed.shown, feed.known = max(feed.shown, seen.stop), now

    @property
    def total(self) -> float:
        """Worth of all items of the crawl at their publication."""
        return sum(float(f.worth[(f.time >= 0) & (f.time < self.end)].sum()) for f in self.feeds)

    @property
    def fraction(self) -> float:
        """Fraction of all worth that was collected."""
        return self.collected / self.total
