"""Rules that crawlers in use follow. They know no model, only what their own crawls harvested.

Each source has an interval and is due when that has passed since its last crawl. The source that
has been due for longest is crawled first; what a hard budget leaves goes to the oldest of the
others, and under `budget_rule="average"` nothing is crawled before it is due. The programs count
seconds, minutes and days; here a step takes the place of an hour, and all constants are in steps:
subclass to set others.

Both rules are round robin, and earn what `oldest-first` earns, wherever most crawls bring something
new: the interval of every source then falls to the shortest, all sources are always due, and the
one due for longest is the oldest. So it is in 19 of the 23 tasks of the benchmark (to .01 %), in
which a source publishes 5 to 1,000 items between two visits or arrivals are deterministic: it is
the tasks that make them equal, not units of time or limits of the intervals. With Miniflux's own
least interval, five minutes, the rewards are the same to all digits; with Nutch's own constants,
which begin at 30 days, they are at most .5 % lower. Where a source publishes less than an item
between two visits, they differ: on sparse random fleets Nutch's rule earns 14 % and Miniflux's 3 %
more than round robin.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agents.policies.base import Agent, Environment, ObservationView, State, needs
from crawl_env.numerics import FloatArray

_LEAST = 1e-12  # items expected: none, but no division by zero


class Rule(Agent):
    """Crawls what is due first; subclasses give `learn` and `interval`.

    Its recurrent state holds the steps since each source's last crawl, and one number that sums up
    what the source's crawls harvested. All sources are due at first.

    Raises:
        ValueError: the environment does not show `crawled`, or neither `items` nor `harvest`.
    """

    features = ("crawled", "harvest")
    shortest = 1.0  # steps, the least interval
    longest = 24.0  # steps, the greatest
    first = 24.0  # steps, the interval to begin with

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        task = self.task
        needs(task, self.name, "crawled")
        needs(task, self.name, "items", "harvest")

    def learn(
        self,
        known: FloatArray,
        since: FloatArray,
        crawled: NDArray[np.bool_],
        brought: NDArray[np.bool_],
        items: FloatArray | None,
    ) -> FloatArray:
        """Return what is known of each source after a step; all (B, N).

        Arguments:
            known: what this returned last; `initial` at first.
            since: steps between the crawls of the last step and those before.
            crawled: whether a source was crawled in the last step.
            brought: whether that crawl harvested something new.
            items: how many items that was, or None where this is not shown.
        """
        raise NotImplementedError

    def interval(self, known: FloatArray) -> FloatArray:
        """Return the steps between crawls, (B, N)."""
        raise NotImplementedError

    def initial(self) -> float:
        """Return what is known of every source at the beginning."""
        raise NotImplementedError

    def begin(self, view: ObservationView) -> State:
        shape = (view.batch, self.task.n)
        return np.full(shape, self.first - 1.0), np.full(shape, self.initial())

    def decide(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        age, known = state
        crawled = view["crawled"] > 0
        items = view["items"] if view.shows("items") else None
        brought = (view["harvest"] if items is None else items) > 0
        known = self.learn(known, age, crawled, brought, items)
        age = np.where(crawled, 1.0, age + 1.0)
        overdue = age - self.interval(known)
        # What is not due has no place in the rules; by date it would be the last crawled again.
        early = -1.0 / (1.0 + age)
        return np.where(overdue >= 0, overdue / (1.0 + np.abs(overdue)), early), (age, known)


class Nutch(Rule):
    """Apache Nutch's AdaptiveFetchSchedule: the interval × .8 after a crawl that found something
    new and × 1.4 after one that did not (`dec_rate` .2 and `inc_rate` .4 of nutch-default.xml).

    Nutch's intervals begin at 30 days and lie between a minute and a year; here they begin at a day
    and lie between an hour and 30 days, so that a run of some thousand steps shows how they adapt.
    The shift towards the time of the last change is left out, as with `sync_delta=false`. Among
    the pages that are due Nutch prefers those of higher link score; there is none here.
    """

    name = "nutch"
    longest = 720.0
    shorter, longer = 0.8, 1.4

    def initial(self) -> float:
        return self.first

    def learn(
        self,
        known: FloatArray,
        since: FloatArray,
        crawled: NDArray[np.bool_],
        brought: NDArray[np.bool_],
        items: FloatArray | None,
    ) -> FloatArray:
        changed = known * np.where(brought, self.shorter, self.longer)
        return np.where(crawled, np.clip(changed, self.shortest, self.longest), known)

    def interval(self, known: FloatArray) -> FloatArray:
        return known


class Miniflux(Rule):
    """Miniflux's scheduler by entry frequency: the interval is a week divided by the number of
    entries of the last week, at most a day (`SCHEDULER_ENTRY_FREQUENCY_MAX_INTERVAL`).

    The program's least interval is five minutes, here a step. The week is replaced by an
    exponential average of the same mean age, so that one number a source is enough. The program
    reads the dates of entries; where items are not shown, a crawl that found something counts as
    many as are expected given that there was one, n/(1 − e^−n) with n expected at the rate so far.
    """

    name = "miniflux"
    week = 168.0  # steps

    def initial(self) -> float:
        return self.week / self.first

    def learn(
        self,
        known: FloatArray,
        since: FloatArray,
        crawled: NDArray[np.bool_],
        brought: NDArray[np.bool_],
        items: FloatArray | None,
    ) -> FloatArray:
        if items is None:
            expected = np.maximum(known / self.week * np.maximum(since, 1.0), _LEAST)
            items = np.where(brought, expected / -np.expm1(-expected), 0.0)
        return known * (1.0 - 1.0 / self.week) + items

    def interval(self, known: FloatArray) -> FloatArray:
        return np.clip(self.week / np.maximum(known, _LEAST), self.shortest, self.longest)
