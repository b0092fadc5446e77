"""Replays the second part of a log: every policy on the same items, measured at every step.

The live scheduler is one of them: it decides step by step, and learns from its own crawls.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.evaluation.rollout import Rollout, with_features
from agents.policies.base import ObservationView, Policy, State
from agents.policies.static import Scheduled
from agents.registry import make
from crawl_env import CrawlVectorEnv, ItemLog, PingLog, Signals, Sources, Task, Trace
from crawl_env.compiled import compiled
from crawl_env.log.clock import HOURS
from crawl_env.numerics import BoolArray, FloatArray, IntArray
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.runner import Job, Result, result_of
from ephemeral_crawl.live import Lesson, Scheduler

_EPOCH = 1_000_000_000.0  # seconds since 1970 at the beginning of a replay
_NO_ITEMS = np.empty(0, dtype=np.intp)


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
        times = _EPOCH + (log.published - log.start) * unit
        of_source = dict(zip(log.names, log.by_source(), strict=True))
        which = [of_source.get(name, _NO_ITEMS) for name in fleet.names]
        self._items = [(times[own], log.utility[own]) for own in which]
        self._next = np.array([np.searchsorted(t, self._now) for t, _ in self._items])
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
        places = [int(lease.source) for lease in leases]
        self._scheduler.record(
            {"lease": lease.id, "items": self._new_items(i)}
            for lease, i in zip(leases, places, strict=True)
        )
        self._now += self._length
        priority = np.full((1, len(self._items)), -1.0, dtype=np.float32)
        priority[0, places] = 1.0
        return priority, None

    def _announce(self, pings: NDArray[np.float64]) -> None:
        """Signal the pings of the last step, (N,)."""
        sources = np.repeat(np.arange(len(pings)), pings.astype(np.intp))
        at = max(self._now - 0.5 * self._length, self._begin)
        self._scheduler.signal_many({"source": str(i), "at": at} for i in sources)

    def _new_items(self, i: int) -> list[tuple[float, float]]:
        """Return when the items that a crawl finds now were published, and their worths."""
        times, worths = self._items[i]
        first, last = self._next[i], np.searchsorted(times, self._now)
        self._next[i] = last
        return list(zip(times[first:last].tolist(), worths[first:last].tolist(), strict=True))


SCHEDULER = "scheduler"  # the live scheduler, which starts from the fleet and goes on learning


class Replay(NamedTuple):
    """The S runs of a policy over H steps, of which run s starts s steps late, and means over them.

    The starts differ because deterministic schedules may be synchronised with the hours of the day
    by chance.
    """

    reward: FloatArray  # (S, H) utility collected in each step
    frequency: FloatArray  # (N,) crawls per step
    cost: float  # budget units per step
    never: float  # sources without a successful crawl
    fetched: float  # items
    delay: float  # time from publication to collection, mean over the items; NaN if none

    def __repr__(self) -> str:
        return f"Replay(reward {self.total:.6g} in {self.reward.shape[-1]} steps)"

    @property
    def total(self) -> float:
        """Return the utility collected."""
        return float(self.reward.sum(axis=-1).mean())


def work(trace: Trace, job: Job, pings: PingLog | None = None) -> Result:
    """Run the replays of a job's agent; with recorded pings, if the job has signals."""
    if "by source" in job:
        return work_by_source(trace, job, pings)
    with warnings.catch_warnings():  # the command has shown them once for all jobs
        warnings.simplefilter("ignore")
        return result_of(play(rollout_of(job, trace, pings), trace, job["steps"]))


def work_by_source(trace: Trace, job: Job, pings: PingLog | None = None) -> Result:
    """Return the utility that a job's agent collects from each source, per step in each of W equal
    parts of the time, which are as long as a block or somewhat longer, (W, N); mean over the
    runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rollout = rollout_of(job, trace, pings)
    _begin(rollout)
    env, steps = rollout.env, job["steps"]
    runs, n = env.world.shape
    parts = max(1, steps // job["block"])
    when = np.arange(steps)[:, None] + np.arange(runs)
    length = np.bincount(when[when < steps] * parts // steps, minlength=parts)
    total = np.zeros((parts, n))
    for step in range(steps):
        rollout.step()
        picked, value = env.harvest.picked, env.harvest.value
        at = step + picked // n
        inside = at < steps
        places = at[inside] * parts // steps, picked[inside] % n
        np.add.at(total, places, value[inside])
    return {"collected": (total / length[:, None]).tolist()}


def rollout_of(job: Job, trace: Trace, pings: PingLog | None = None) -> Rollout:
    """Return a job's agent in environments that replay a trace, one for each of its runs."""
    name = job["agent"]
    arguments = {**evaluation.arguments_of(job), "arrivals": trace}
    if pings is not None and arguments["sources"].is_signalled:
        arguments["signals"] = Signals(log=pings)
    if name == SCHEDULER:
        arguments["features"] = LiveScheduler.features_of(arguments["sources"])
    elif "rates" not in job:
        name, arguments = with_features(name, arguments)

    runs, seed = job["runs"], job["seed"]

    def agent(env: CrawlVectorEnv) -> Policy:
        if "rates" in job:
            return Scheduled(env, job["rates"])
        if name == SCHEDULER:
            return OnePerRun([LiveScheduler(env.task, trace.log, run) for run in range(runs)])
        return make(name, env, seed=seed)

    return Rollout(agent, arguments, runs, seed)


class OnePerRun(Policy):
    """Several agents of one task, the first of which acts in the first run, and so on; for agents
    that cannot act in several runs at once, or that are not the same in all of them."""

    def __init__(self, agents: Sequence[Policy]) -> None:
        self.task = agents[0].task
        self._agents = agents

    def predict(
        self,
        observation: ArrayLike,
        state: State | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], State | None]:
        runs = range(len(self._agents))
        states: Any = [None] * len(runs) if state is None else state
        answers = [
            self._agents[run].predict(
                np.asarray(observation)[run : run + 1],
                states[run],
                None if episode_start is None else episode_start[run : run + 1],
                deterministic,
            )
            for run in runs
        ]
        new_states: Any = tuple(after for _, after in answers)
        return np.concatenate([action for action, _ in answers]), new_states


def play(rollout: Rollout, trace: Trace, steps: int) -> Replay:
    """Replay a trace from its beginning, with the crawls of a rollout.

    Run s starts at step s and ends with the others, after step H − 1. The sources are crawled at 0,
    T, …, (H − 1)T: items that are published in a step can be collected from the next step on, and
    those of the last step not at all.
    """
    env = rollout.env
    runs = env.num_envs
    _begin(rollout)
    tally, reward = _Tally(trace.log, env.world.sources, runs, steps), np.zeros((runs, steps))
    for step in range(steps):
        rewards = rollout.step()
        for run in range(min(runs, steps - step)):
            reward[run, step + run] = rewards[run]
        picked, _, _, failed = env.harvest
        tally.count(picked, failed, step)
    return tally.read(reward)


def _begin(rollout: Rollout) -> None:
    """Let run s of a rollout start at step s of the trace."""
    state = rollout.env.get_state()
    state["world"]["feed"] = np.arange(rollout.env.num_envs)
    rollout.restart(state)


class _Tally:
    """Counts the crawls and their costs, the items that they collect, and the time since their
    publication, of runs that start one step after each other."""

    def __init__(self, log: ItemLog, sources: Sources, runs: int, steps: int) -> None:
        place = {name: i for i, name in enumerate(sources.names)}
        source = np.array([place.get(name, 0) for name in log.names], dtype=np.intp)[log.source]
        when = (log.published - log.start) / sources.period
        # The step from whose beginning on an item can be collected.
        available = np.minimum(when.astype(np.intp) + 1, steps + 1)
        stride, n = steps + 2, len(sources)
        order = np.argsort(source * stride + available, kind="stable")
        line = (source * stride + available)[order]
        self._available = available[order]
        self._when = np.concatenate(([0.0], np.cumsum(when[order])))
        self._end = np.searchsorted(line, np.arange(1, n + 1) * stride)
        # The first item of each source that has not been collected; the items that were published
        # before a run starts are left out.
        start = np.arange(n) * stride + np.arange(1, runs + 1)[:, None]
        self._next = np.searchsorted(line, start)
        self._cost = np.broadcast_to(sources.cost, n).astype(np.float64)
        self._capacity = np.broadcast_to(sources.capacity, n).astype(np.float64)
        self._period, self._steps = sources.period, steps
        self._crawls, self._visited = np.zeros((runs, n)), np.zeros((runs, n), dtype=bool)
        self._sums = np.zeros((runs, 3))  # cost, items, and their delays in steps

    def count(self, picked: IntArray, failed: BoolArray | None, step: int) -> None:
        """Count the crawls of some cells, (K,), in a step; run s has made s steps more."""
        _count(
            picked,
            np.zeros(picked.shape, dtype=bool) if failed is None else failed,
            step,
            self._steps,
            self._available,
            self._when,
            self._end,
            self._next,
            self._cost,
            self._capacity,
            self._crawls,
            self._visited,
            self._sums,
        )

    def read(self, reward: FloatArray) -> Replay:
        """Return all that was counted, and the rewards."""
        runs = len(self._sums)
        length = self._steps - np.arange(runs)
        cost, items, delay = self._sums.T
        with np.errstate(invalid="ignore"):
            delay = delay * self._period / items  # NaN if no item was collected
        return Replay(
            reward,
            (self._crawls / length[:, None]).mean(axis=0),
            float((cost / length).mean()),
            float(np.count_nonzero(~self._visited)) / runs,
            float(items.mean()),
            float(delay.mean()),
        )


@compiled
def _count(
    picked: IntArray,
    failed: BoolArray,
    step: int,
    steps: int,
    available: IntArray,
    when: FloatArray,
    end: IntArray,
    first: IntArray,
    cost: FloatArray,
    capacity: FloatArray,
    crawls: FloatArray,
    visited: BoolArray,
    sums: FloatArray,
) -> None:
    """Count the crawls of cells, in place; see `_Tally`.

    Arguments:
        available: (n,) step from which on each item can be collected, by source, then by step.
        when: (n + 1,) sums of the steps at which the items before were published.
        end: (N,) number of the item after the last one of each source.
        first: (S, N) the first item that was not collected.
        crawls, visited: (S, N) number of attempts; whether one succeeded.
        sums: (S, 3) cost, items, delay.
    """
    n = cost.size
    for i in range(picked.size):
        run, source = picked[i] // n, picked[i] % n
        now = step + run
        if now >= steps:
            continue
        crawls[run, source] += 1.0
        sums[run, 0] += cost[source]
        if failed[i]:
            continue
        visited[run, source] = True
        start = until = first[run, source]
        while until < end[source] and available[until] <= now:
            until += 1
        first[run, source] = until
        if until - start > capacity[source]:
            start = until - int(capacity[source])
        sums[run, 1] += until - start
        sums[run, 2] += (until - start) * now - (when[until] - when[start])
