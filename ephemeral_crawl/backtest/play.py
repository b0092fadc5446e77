"""Plays a scheduler or a rule on a recorded log: every fetch finds what was published by then."""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.theory.closed_form import continuous_age_index
from crawl_env import ItemLog, PingLog
from crawl_env.log.clock import HOURS
from ephemeral_crawl.backtest.rules import HOUR, RULES
from ephemeral_crawl.core.runner import Job, Result, result_of
from ephemeral_crawl.live import Scheduler

SCHEDULER, KNOWN = "scheduler", "rates known"
WITHOUT = "scheduler without pings"
AS_IT_IS = "as it is: "  # and the name of a rule
_EPOCH = 1_000_000_000.0  # seconds since 1970, of the start of a log without dates
_LEASES = 8  # at a time
_ASKED = 30.0  # per hour: how often the scheduler is asked if the budget is small

Floats = NDArray[np.float64]


class Feeds:
    """The items of a log as feeds that are fetched, on a clock in seconds.

    Arguments:
        log: the items.
        start: position in the log's span, between 0 and 1, from which on fetches are made; items
            before are what the first fetch of a feed lists, and are worth nothing any more.
        half_life: time in which the worth of an item halves, seconds.
        listed: number of the newest items that a feed lists; 0 if it lists all.
        length: seconds that are played, at most.
        block: seconds in which what is collected is added up.
        pings: what the feeds announced; None: nothing.
    """

    def __init__(
        self,
        log: ItemLog,
        *,
        start: float,
        half_life: float,
        listed: int = 0,
        length: float = math.inf,
        block: float = 7 * 24 * HOUR,
        pings: PingLog | None = None,
    ) -> None:
        second = HOURS[log.unit] * HOUR
        self.span = (log.end - log.start) * second
        self.start = start * self.span
        self.end = min(self.span, self.start + length)
        self.decay = math.log(2.0) / half_life
        self.listed, self.block = listed, block
        self.published: list[Floats] = []
        self.worth: list[Floats] = []
        for rows in log.by_source():
            self.published.append((log.published[rows] - log.start) * second)
            self.worth.append(np.asarray(log.utility[rows], dtype=np.float64))
        self.pings: list[tuple[float, int]] = []  # time and feed
        if pings is not None:
            part = pings.select(log.names)
            times = (part.time - log.start) * second
            live = times >= self.start
            self.pings = list(zip(times[live].tolist(), part.source[live].tolist(), strict=True))
        self.reset()

    def reset(self) -> None:
        """Forget all fetches."""
        n = len(self.published)
        self.seen = np.zeros(n, np.int64)  # items published by the last fetch
        self.fetched = np.full(n, -math.inf)
        self.fetches = np.zeros(n, np.int64)
        self.blocks = max(1, round((self.end - self.start) / self.block))
        self.collected = np.zeros(self.blocks)
        self.fetched_worth = 0.0  # worth when published
        self.delay = 0.0  # of it: worth × seconds

    @property
    def total(self) -> float:
        """Return the worth of all items that are published while fetches are made."""
        live = (
            float(worth[(time >= self.start) & (time < self.end)].sum())
            for time, worth in zip(self.published, self.worth, strict=True)
        )
        return sum(live)

    def fetch(self, i: int, now: float) -> tuple[Floats, Floats]:
        """Fetch feed i: collect what is new, and return when it was published and its worth."""
        time, worth = self.published[i], self.worth[i]
        first, last = int(self.seen[i]), int(np.searchsorted(time, now, "right"))
        if self.listed:
            first = max(first, last - self.listed)
        self.seen[i], self.fetched[i] = last, now
        self.fetches[i] += 1
        times, worths = time[first:last], worth[first:last]
        live = times >= self.start
        if live.any():
            age = now - times[live]
            part = min(
                int((now - self.start) / (self.end - self.start) * self.blocks), self.blocks - 1
            )
            self.collected[part] += float((worths[live] * np.exp(-self.decay * age)).sum())
            self.fetched_worth += float(worths[live].sum())
            self.delay += float((worths[live] * age).sum())
        return times, worths

    def moments(self, per_hour: float) -> Floats:
        """Return the times of fetches at equal distances, (n,) seconds."""
        number = int((self.end - self.start) * per_hour / HOUR)
        return self.start + np.asarray(HOUR / per_hour * np.arange(number), dtype=np.float64)


class PlayRun(NamedTuple):
    """What a policy collected."""

    collected: Floats  # (W,) worth, by block
    fetches: Floats  # (N,)
    fetched_worth: float  # of what was fetched, when it was published
    delay: float  # seconds from publication to fetch, mean over that worth; NaN if none


def played(feeds: Feeds, name: str, per_hour: float) -> PlayRun:
    """Play a policy from the start.

    Arguments:
        name: `SCHEDULER`, `WITHOUT`, `KNOWN`, the name of a rule, or that of a rule with its own
            intervals, after `AS_IT_IS`, which spends what it wants.
    """
    feeds.reset()
    if name in (SCHEDULER, WITHOUT):
        by_scheduler(feeds, per_hour, feeds.pings if name == SCHEDULER else [])
    elif name == KNOWN:
        by_index(feeds, per_hour)
    elif name.startswith(AS_IT_IS):
        by_intervals(feeds, name.removeprefix(AS_IT_IS))
    else:
        by_rule(feeds, per_hour, name)
    delay = feeds.delay / feeds.fetched_worth if feeds.fetched_worth else math.nan
    return PlayRun(feeds.collected, feeds.fetches.astype(float), feeds.fetched_worth, delay)


def by_scheduler(feeds: Feeds, per_hour: float, pings: list[tuple[float, int]]) -> None:
    """The live scheduler, which knows nothing but the pings and what its own fetches have found."""
    now, position = feeds.start, 0
    scheduler = Scheduler(
        ":memory:",
        budget=f"{per_hour:.9f}/h",
        half_life=math.log(2.0) / feeds.decay,
        clock=lambda: _EPOCH + now,
    )
    if per_hour > 1.0:  # nothing is saved up, or it would have an hour's fetches more than others
        scheduler.add("saved", cost=per_hour - 1.0)
        scheduler.failed("saved")
        scheduler.remove("saved")
    scheduler.add_many({"source": str(i), "min_interval": 0.0} for i in range(len(feeds.published)))
    polls = max(per_hour, min(4.0 * per_hour, _ASKED))  # since it may wait for a better moment
    for moment in feeds.moments(polls).tolist():
        now, first = moment, position
        while position < len(pings) and pings[position][0] <= now:
            position += 1
        scheduler.signal_many(
            {"source": str(i), "at": _EPOCH + time} for time, i in pings[first:position]
        )
        for lease in scheduler.lease(limit=_LEASES):
            time, worth = feeds.fetch(int(lease.source), now)
            items = zip((_EPOCH + time).tolist(), worth.tolist(), strict=True)
            scheduler.report(lease.id, list(items))


def by_rule(feeds: Feeds, per_hour: float, name: str) -> None:
    """A rule in use: whenever a fetch can be paid for, the feed for which the largest part of its
    interval has passed, which is as if all intervals were stretched or shrunk to the budget."""
    rules = [RULES[name]() for _ in feeds.published]
    interval = np.ones(len(rules))
    for now in feeds.moments(per_hour).tolist():
        i = int(((now - feeds.fetched) / interval).argmax())
        time, _ = feeds.fetch(i, now)
        interval[i] = rules[i].after(now, time.tolist())


def by_intervals(feeds: Feeds, name: str) -> None:
    """A rule in use with its own intervals, whatever it spends."""
    rules = [RULES[name]() for _ in feeds.published]
    due = [(feeds.start, i) for i in range(len(rules))]
    while due[0][0] < feeds.end:
        now, i = due[0]
        time, _ = feeds.fetch(i, now)
        heapq.heapreplace(due, (now + rules[i].after(now, time.tolist()), i))


def by_index(feeds: Feeds, per_hour: float) -> None:
    """The Whittle index in continuous time, with each feed's mean rate and worth in the time that
    is played: what the scheduler would do if it knew them."""
    length = feeds.end - feeds.start
    full = np.array(
        [
            worth[(time >= feeds.start) & (time < feeds.end)].sum() / length / feeds.decay
            for time, worth in zip(feeds.published, feeds.worth, strict=True)
        ]
    )
    for now in feeds.moments(per_hour).tolist():
        z = feeds.decay * (now - np.maximum(feeds.fetched, feeds.start - 1e9))
        i = int((full * continuous_age_index(z)).argmax())
        feeds.fetch(i, now)


def work(log: ItemLog, pings: PingLog | None, job: Job) -> Result:
    """Play a job, for the runner."""
    feeds = Feeds(log, **job["feeds"], pings=pings)
    return result_of(played(feeds, job["policy"], job["per_hour"]))
