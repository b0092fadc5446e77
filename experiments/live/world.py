"""Feeds whose items lose half of their worth in three hours, and what their servers answer.

Independent of the package: arrivals, answers and what is collected are computed here. Everything
depends on the seed and the time alone, so that all crawlers meet the same world.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ephemeral_crawl.live.reasons import Kind

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
DECAY = math.log(2.0) / (3.0 * HOUR)
SHOWN = 20  # items in a feed
SHARED = 3  # hosts of half of the feeds
FAILS = 0.125  # chance that a request to a busy or broken server fails
PATIENCE = 30.0  # seconds after which a crawler gives up a server that does not answer


class Nature(Enum):
    """What is particular about a feed's server."""

    PLAIN = "plain"
    BUSY = "429 with Retry-After, one request in eight"
    BROKEN = "503, 500 or no answer, one request in eight"
    MOVED = "moves for good, once"
    AWAY = "redirects for now"
    SLOW = "takes 5 to 25 s"
    GONE = "is gone (410) from some time on"
    SILENT = "publishes nothing from some time on"
    BORN = "is empty until some time"
    DEAD = "never answers"
    LAPSED = "dies, and recovers after a tenth to three tenths of the time"
    RESTLESS = "does not answer for some hours, once a day"


SIXTY = {
    Nature.BUSY: 4,
    Nature.BROKEN: 5,
    Nature.MOVED: 4,
    Nature.AWAY: 3,
    Nature.SLOW: 4,
    Nature.GONE: 3,
    Nature.SILENT: 3,
    Nature.BORN: 5,
}


FAILING = {Nature.BUSY: 10, Nature.BROKEN: 20, Nature.RESTLESS: 20, Nature.LAPSED: 60}


@dataclass(frozen=True)
class Answer:
    """What a server answers at some time."""

    status: int | None  # 200 stands for 304, too; None: there is no answer
    delay: float = 0.0  # seconds
    retry_after: float = 0.0  # seconds
    moved: bool = False  # to its second address
    kind: Kind = "http"  # of a failure


_DNS, _REFUSED = Answer(None, kind="dns"), Answer(None, kind="connection")
_TIMEOUT = Answer(None, delay=PATIENCE, kind="timeout")
# What dead feeds answer, and what part of them.
_DEATHS = {
    _DNS: 0.3,
    Answer(404): 0.25,
    _TIMEOUT: 0.12,
    Answer(403): 0.1,
    _REFUSED: 0.1,
    Answer(503): 0.08,
    Answer(410): 0.05,
}
_LAPSES = (_DNS, _REFUSED, _TIMEOUT, Answer(404), Answer(403), Answer(502))
_OUTAGES = (_REFUSED, _TIMEOUT, Answer(503), Answer(500))


class Outage(NamedTuple):
    """A time in which a feed does not answer with a document."""

    start: float  # seconds
    end: float
    answer: Answer


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
    outages: tuple[Outage, ...] = ()
    shown: int = 0  # number of items that were collected or lost

    @property
    def moves(self) -> bool:
        """Whether it moves for good."""
        return self.nature is Nature.MOVED

    def outage(self, now: float) -> Outage | None:
        """Return the outage that there is at a time, if any."""
        return next((o for o in self.outages if o.start <= now < o.end), None)

    def answer(self, now: float) -> Answer:
        """Return what the server answers to a request."""
        if outage := self.outage(now):
            return outage.answer
        chance, other = np.random.default_rng([self.seed, int(now / MINUTE)]).random(2)
        if self.nature is Nature.BUSY and chance < FAILS:
            return Answer(429, retry_after=float(np.round(600 + 3000 * other)))
        if self.nature is Nature.BROKEN and chance < FAILS:
            return _TIMEOUT if other < 0.2 else Answer(503 if other < 0.6 else 500)
        if self.nature is Nature.SLOW:
            return Answer(200, delay=5.0 + 20.0 * other)
        has_moved = self.nature is Nature.MOVED and now >= self.moment
        return Answer(200, moved=has_moved or self.nature is Nature.AWAY)

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
        living: number of feeds of which not all is lost from the beginning.
        dead: number of those that never answer, besides.
        natures: number of the living feeds of each nature; all others are plain.
        median, spread: of the lognormal rates, items per hour and σ of the logarithm.
        worths: σ of the logarithm of the mean worth of the items.
    """

    seed: int
    days: float = 14.0
    shared_hosts: bool = False
    recall: float = 0.8
    precision: float = 0.5
    living: int = 60
    dead: int = 0
    natures: Mapping[Nature, int] = field(default_factory=lambda: SIXTY)
    median: float = 0.15
    spread: float = 1.3
    worths: float = 0.8
    feeds: list[Feed] = field(default_factory=list)
    pings: list[tuple[float, int]] = field(default_factory=list)  # time and feed, ascending
    log: list[tuple[float, int]] = field(default_factory=list)  # time and feed of each request
    gains: NDArray[np.float64] = field(init=False)  # worth that was collected, by day

    def __post_init__(self) -> None:
        self.gains = np.zeros(math.ceil(self.days))
        rng = np.random.default_rng([self.seed, 17])
        natures = [nature for nature, n in self.natures.items() for _ in range(n)]
        natures += [Nature.PLAIN] * (self.living - len(natures))
        order = rng.permutation(self.living)
        rates = np.exp(rng.normal(math.log(self.median), self.spread, self.living)) / HOUR
        means = np.exp(rng.normal(0.0, self.worths, self.living))
        for i, own in enumerate(rng.spawn(self.living)):
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
            host = i % SHARED if self.shared_hosts and i < self.living // 2 else None
            # A host that asks to be left alone would silence the others on it.
            if host is not None and nature in (Nature.BUSY, Nature.GONE):
                nature = Nature.PLAIN if nature is Nature.BUSY else Nature.SILENT
            conditional, atom = own.random() < 0.7, bool(own.random() < 0.5)
            seed, outages = int(own.integers(1 << 62)), self._outages(nature, moment, own)
            if nature is Nature.LAPSED:
                there = (time < moment) | (time >= outages[0].end)
                time, worth = time[there], worth[there]
            feed = Feed(
                *(float(rates[i]), float(means[i]), nature, moment, time, worth),
                *(seed, bool(conditional), atom, host, outages),
            )
            self.feeds.append(feed)
            true = time[(time > 0.0) & (own.random(len(time)) < self.recall)]
            false = rates[i] * self.recall * (1 - self.precision) / self.precision * self.end
            times = [*true, *own.uniform(0.0, self.end, own.poisson(false))]
            self.pings += [(float(t), i) for t in times]
        if self.dead:
            self._add_dead()
        self.pings.sort()

    def _outages(
        self, nature: Nature, moment: float, rng: np.random.Generator
    ) -> tuple[Outage, ...]:
        if nature is Nature.GONE:
            return (Outage(moment, math.inf, Answer(410)),)
        if nature is Nature.LAPSED:
            end = moment + rng.uniform(0.1, 0.3) * self.end
            return (Outage(moment, end, _LAPSES[rng.integers(len(_LAPSES))]),)
        if nature is Nature.RESTLESS:
            starts = rng.uniform(0.0, self.end, rng.poisson(self.days)).tolist()
            answer = _OUTAGES[rng.integers(len(_OUTAGES))]
            return tuple(Outage(t, t + rng.uniform(1.0, 6.0) * HOUR, answer) for t in starts)
        return ()

    def _add_dead(self) -> None:
        """Add the feeds that never answer, among the others, which stay as they are."""
        rng = np.random.default_rng([self.seed, 18])
        answers, none = list(_DEATHS), np.zeros(0)
        for k in rng.choice(len(answers), self.dead, p=list(_DEATHS.values())).tolist():
            outage = Outage(-math.inf, math.inf, answers[k])
            self.feeds.append(
                Feed(0.0, 1.0, Nature.DEAD, 0.0, none, none, 0, False, False, None, (outage,))
            )
        order = rng.permutation(self.number)
        self.feeds = [self.feeds[i] for i in order]
        place = np.argsort(order)
        self.pings = [(time, int(place[i])) for time, i in self.pings]

    @property
    def number(self) -> int:
        """Number of feeds."""
        return self.living + self.dead

    @property
    def end(self) -> float:
        """Length of the crawl, seconds."""
        return self.days * DAY

    def ask(self, i: int, now: float) -> Answer:
        """Return the answer of a feed to a request."""
        self.log.append((now, i))
        return self.feeds[i].answer(now)

    def show(self, i: int, now: float) -> None:
        """Count what a feed shows as collected; what it no longer shows is lost."""
        feed = self.feeds[i]
        span = feed.listed(now)
        first = max(span.start, feed.shown)
        time, worth = feed.time[first : span.stop], feed.worth[first : span.stop]
        live = time >= 0.0
        day = min(int(now // DAY), len(self.gains) - 1)
        self.gains[day] += float((worth[live] * np.exp(-DECAY * (now - time[live]))).sum())
        feed.shown = max(feed.shown, span.stop)

    @property
    def published(self) -> NDArray[np.float64]:
        """Worth of the items of each day at their publication."""
        edges = [*(DAY * np.arange(len(self.gains))), self.end]
        time = np.concatenate([feed.time for feed in self.feeds])
        worth = np.concatenate([feed.worth for feed in self.feeds])
        return np.histogram(time, edges, weights=worth)[0]

    @property
    def collected(self) -> float:
        """Worth that was collected."""
        return float(self.gains.sum())

    @property
    def fraction(self) -> float:
        """Fraction of all worth that was collected."""
        return self.collected / float(self.published.sum())

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.log)

    @property
    def vain(self) -> int:
        """Number of requests to feeds that were dead, or in an outage."""
        return sum(self.feeds[i].outage(time) is not None for time, i in self.log)


def fleet(seed: int, dead: int = 0, failing: bool = False, days: float = 4.0) -> World:
    """Return a world of two hundred living feeds, with items of equal mean worth.

    Arguments:
        dead: number of those that never answer, besides.
        failing: whether more than half of the living fail at times: sixty die and recover, twenty
            have outages of hours, twenty fail and ten are busy at one request in eight.
    """
    return World(
        seed,
        days=days,
        living=200,
        dead=dead,
        natures=FAILING if failing else {},
        median=0.3,
        spread=1.2,
        worths=0.0,
    )
