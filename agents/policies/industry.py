"""Scheduling rules of existing crawlers, which use only the harvests of their own crawls.

Each source has an interval and is due when that has passed since its last crawl. The source that
has been due for longest is crawled first. Under `budget_rule="step"` the remaining budget is spent
on the oldest of the other sources; under "average" nothing is crawled before it is due. The
original programs count seconds, minutes and days; here a step corresponds to an hour, and all
constants are in steps: subclass to change them.

If most crawls find something new, both rules reduce to round robin and earn the same as
`oldest-first`: the interval of every source falls to the shortest, all sources are always due, and
the one due for longest is the oldest. This is the case in 19 of the 23 tasks of the benchmark (to
.01 %), in which a source publishes 5 to 1,000 items between two visits or arrivals are
deterministic. The cause is the tasks, not the units of time or the limits of the intervals: with
Miniflux's own shortest interval, five minutes, the rewards are identical; with Nutch's own
constants, which start at 30 days, they are at most .5 % lower. If a source publishes less than an
item between two visits, the rules differ: on sparse random fleets Nutch's rule earns 14 % and
Miniflux's 3 % more than round robin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from agents.policies.base import Agent, Environment, ObservationView, State, needs
from crawl_env.numerics import BoolArray, FloatArray

_LEAST = 1e-12  # lower bound of expected items, to avoid divisions by zero


class LastCrawls(NamedTuple):
    """What the crawls of the last step found, (B, N) each."""

    crawled: BoolArray  # whether a source was crawled
    since: FloatArray  # steps between that crawl and the one before
    is_new: BoolArray  # whether it collected something new
    items: FloatArray | None  # number of new items; None: it is not observed


class Intervals(NamedTuple):
    """The recurrent state of a rule, (B, N) each."""

    age: FloatArray  # steps since the last crawl
    summary: FloatArray  # summary of the harvests of each source


class Rule(Agent):
    """Crawls the sources that are due first; subclasses implement `update` and `interval`.

    The recurrent state has the steps since each source's last crawl, and one number that
    summarises the harvests of the source. All sources are due at first.

    Raises:
        ValueError: `crawled` is not observed, or neither `items` nor `harvest` is.
    """

    features = ("crawled", "harvest")
    shortest = 1.0  # steps, the shortest interval
    longest = 24.0  # steps, the longest interval
    first = 24.0  # steps, the initial interval

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        task = self.task
        needs(task, self.name, "crawled")
        needs(task, self.name, "items", "harvest")

    def update(self, summary: FloatArray, crawls: LastCrawls) -> FloatArray:
        """Return the summary of each source after a step, (B, N), given the previous one, which is
        `initial` at first, and what was crawled."""
        raise NotImplementedError

    def interval(self, summary: FloatArray) -> FloatArray:
        """Return the steps between crawls, (B, N)."""
        raise NotImplementedError

    def initial(self) -> float:
        """Return the initial summary of every source."""
        raise NotImplementedError

    def begin(self, view: ObservationView) -> State:
        shape = (view.batch, self.task.n)
        return Intervals(np.full(shape, self.first - 1.0), np.full(shape, self.initial()))

    def decide(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        age, summary = state
        crawled = view["crawled"] > 0
        items = view["items"] if view.shows("items") else None
        is_new = (view["harvest"] if items is None else items) > 0
        summary = self.update(summary, LastCrawls(crawled, age, is_new, items))
        age = np.where(crawled, 1.0, age + 1.0)
        overdue = age - self.interval(summary)
        # The rules do not order sources that are not due: order these by age.
        early = -1.0 / (1.0 + age)
        priority = np.where(overdue >= 0, overdue / (1.0 + np.abs(overdue)), early)
        return priority, Intervals(age, summary)


class Nutch(Rule):
    """Apache Nutch's AdaptiveFetchSchedule: the interval is multiplied by .8 after a crawl that
    found something new, else by 1.4 (`dec_rate` .2 and `inc_rate` .4 of nutch-default.xml).

    Nutch's intervals start at 30 days and lie between a minute and a year. Here they start at a day
    and lie between an hour and 30 days, so that a run of some thousand steps shows how they adapt.
    The shift towards the time of the last change is omitted, as with `sync_delta=false`. Among
    the pages that are due Nutch prefers those of higher link score, which does not exist here.
    """

    name = "nutch"
    longest = 720.0
    shorter, longer = 0.8, 1.4

    def initial(self) -> float:
        return self.first

    def update(self, summary: FloatArray, crawls: LastCrawls) -> FloatArray:
        interval = summary * np.where(crawls.is_new, self.shorter, self.longer)
        return np.where(crawls.crawled, np.clip(interval, self.shortest, self.longest), summary)

    def interval(self, summary: FloatArray) -> FloatArray:
        return summary


class Miniflux(Rule):
    """Miniflux's scheduler by entry frequency: the interval is a week divided by the number of
    entries of the last week, at most a day (`SCHEDULER_ENTRY_FREQUENCY_MAX_INTERVAL`).

    The program's shortest interval is five minutes, here a step. The week is replaced by an
    exponential average of the same mean age, so that one number per source is sufficient. The
    program reads the dates of entries; if items are not observed, a crawl that found something
    counts as the expected number given at least one, n/(1 − e^−n), with n expected at the rate so
    far.
    """

    name = "miniflux"
    week = 168.0  # steps

    def initial(self) -> float:
        return self.week / self.first

    def update(self, summary: FloatArray, crawls: LastCrawls) -> FloatArray:
        items = crawls.items
        if items is None:
            expected = np.maximum(summary / self.week * np.maximum(crawls.since, 1.0), _LEAST)
            items = np.where(crawls.is_new, expected / -np.expm1(-expected), 0.0)
        return summary * (1.0 - 1.0 / self.week) + items

    def interval(self, summary: FloatArray) -> FloatArray:
        return np.clip(self.week / np.maximum(summary, _LEAST), self.shortest, self.longest)
