"""Rules that crawlers in use follow. They know no model, only what their own crawls brought.

Each source has an interval and is due when that has passed since its last crawl. What is due first
is crawled first; what a hard budget has left goes to the oldest of the others, and under
`budget_rule="average"` nothing is crawled before it is due. The programs count minutes and days;
here an epoch takes the place of an hour, and all constants are in epochs: subclass to set others.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agents.policies.base import Agent, Environment, ObservationView, State, needs
from crawl_env.numerics import FloatArray

_LEAST = 1e-12  # items expected: none, but no division by zero


class Rule(Agent):
    """Crawls what is due first; subclasses give `learn` and `interval`.

    It remembers the epochs since each source's last crawl, and one number that sums up what the
    source's crawls brought. All sources are due at first.

    Raises:
        ValueError: the environment does not show `crawled`, or neither `items` nor `harvest`.
    """

    features = ("crawled", "harvest")
    shortest = 1.0  # epochs, the least interval
    longest = 24.0  # epochs, the greatest
    first = 24.0  # epochs, the one to begin with

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
        """Return what is known after an epoch; all (B, N).

        Arguments:
            known: what this returned last; `initial` at first.
            since: epochs that the last epoch's crawls came after those before.
            crawled: what they were; `brought`: whether they brought something new.
            items: how many items that was, or None where this is not shown.
        """
        raise NotImplementedError

    def interval(self, known: FloatArray) -> FloatArray:
        """Return the epochs between crawls, (B, N)."""
        raise NotImplementedError

    def initial(self) -> float:
        """Return what is known at the beginning, of every source."""
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
    """Apache Nutch's AdaptiveFetchSchedule: the interval × .8 after a crawl that brought something
    new, × 1.4 after one that did not, the program's default rates.

    Its pages begin at 30 days, between a minute and a year; here sources begin at a day, between
    an hour and 30 days. Its shift towards the time of the last change (`sync_delta`) is left out:
    that time is not known here.
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
    """Miniflux's scheduler by entry frequency: the interval is a week ÷ the week's entries, at
    most a day.

    The program's least interval is five minutes, here an epoch. The week is forgotten
    exponentially, so that one number a source is enough. The program reads dates; where items are
    not shown, a crawl that brought something counts as many as are expected given that there was
    one, n/(1 − e^−n) where n are expected at the rate known so far.
    """

    name = "miniflux"
    week = 168.0  # epochs

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
