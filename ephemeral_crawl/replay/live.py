"""The live scheduler in a replay: it decides step by step, and learns from its own crawls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.policies.base import ObservationView, Policy, State
from crawl_env import ItemLog, Sources, Task
from crawl_env.log.clock import HOURS
from ephemeral_crawl.live import Lesson, Scheduler

_EPOCH = 1_000_000_000.0  # seconds since 1970 at the beginning of a replay


class LiveScheduler(Policy):
    """`ephemeral_crawl.live.Scheduler` in one environment that replays a log.

    It starts from the rates, mean utilities and half-lives of the fleet, as `ephemeral-crawl crawl
    --fleet` does, or, if it is not `taught`, from the half-lives alone; and it is told that all
    sources were just crawled. Of each crawl it is told when the items were published and what they
    were worth then; pings reach it in the middle of the step before, on average.

    Its budget is a token bucket that holds the budget of a step, so that it never spends more in
    one; the environment's has to hold on average, or it would crawl others with what is left.

    Arguments:
        task: of the environment, without hosts, delays and failures.
        log: the items of the sources of the fleet.
        start: step at which the run starts.
        taught: whether it knows the rates and mean utilities of the fleet beforehand.
    """

    def __init__(self, task: Task, log: ItemLog, start: int = 0, *, taught: bool = True) -> None:
        self.task, fleet = task, task.sources
        unit = 3600.0 * HOURS[log.unit]
        self._length = fleet.period * unit
        self._now = self._begin = _EPOCH + start * self._length
        place = {name: i for i, name in enumerate(fleet.names)}
        source = np.array([place[name] for name in log.names], dtype=np.intp)[log.source]
        times = _EPOCH + (log.published - log.start) * unit
        self._items = [(times[source == i], log.utility[source == i]) for i in range(len(fleet))]
        self._next = np.array([np.searchsorted(own, self._now) for own, _ in self._items])
        self._scheduler = Scheduler(
            ":memory:",
            budget=f"{3600.0 * task.budget / self._length:.12g}/h",
            burst=max(task.budget, float(fleet.cost.max())),
            clock=lambda: self._now,
        )
        self._scheduler.add_many(
            {
                "source": str(i),
                "cost": float(fleet.cost[i]),
                "min_interval": 0.0,
                "half_life": math.log(2.0) / float(fleet.decay_rate[i]) * unit,
            }
            for i in range(len(fleet))
        )
        per_hour = fleet.arrival_rate / HOURS[log.unit]
        self._scheduler.teach(
            Lesson.of_rate(str(i), float(per_hour[i]), float(fleet.mean_utility[i]))
            for i in range(len(fleet) if taught else 0)
        )
        self._scheduler.record({"source": str(i)} for i in range(len(fleet)))

    @staticmethod
    def features_of(fleet: Sources) -> tuple[str, ...]:
        """Return the features that it is shown; what its crawls find, it reads from the log."""
        return ("pings",) if fleet.is_signalled else ("age",)

    def predict(
        self,
        observation: ArrayLike,
        state: State | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], State | None]:
        """Return 1 for the sources that are leased, and −1 for the others, (1, N)."""
        view = ObservationView(observation, self.task)
        if self.task.sources.is_signalled:
            self._announce(view["pings"][0])
        leases = self._scheduler.lease(limit=len(self._items))
        chosen = [int(lease.source) for lease in leases]
        self._scheduler.record(
            {"lease": lease.id, "items": self._found(i)}
            for lease, i in zip(leases, chosen, strict=True)
        )
        self._now += self._length
        priority = np.full((1, len(self._items)), -1.0, dtype=np.float32)
        priority[0, chosen] = 1.0
        return priority, None

    def _announce(self, heard: NDArray[np.float64]) -> None:
        """Signal the pings of the last step, (N,)."""
        which = np.repeat(np.arange(len(heard)), heard.astype(np.intp))
        at = max(self._now - 0.5 * self._length, self._begin)
        self._scheduler.signal_many({"source": str(i), "at": at} for i in which)

    def _found(self, i: int) -> list[tuple[float, float]]:
        """Return when the items that a crawl finds now were published, and their worths."""
        times, worths = self._items[i]
        first, last = self._next[i], np.searchsorted(times, self._now)
        self._next[i] = last
        return list(zip(times[first:last].tolist(), worths[first:last].tolist(), strict=True))
