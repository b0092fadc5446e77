"""Replays the second part of a log: every policy on the same items, measured at every step."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from agents.adaptive.live import live_agent
from agents.adaptive.policies import Adaptive
from agents.evaluation.rollout import AgentLike, Rollout
from agents.policies.index import WhittleExact
from crawl_env import CrawlVectorEnv, ItemLog, Sources, Trace
from crawl_env.numerics import FloatArray, IntArray
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.replay.split import Split

REFITTED = "whittle-refitted"  # a reference: fitted to the replayed part itself
LIVE = "live-crawl"  # the agent of `LiveCrawl`, which starts from the fleet and goes on learning


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


def entrants(agents: Iterable[str], split: Split, observed: bool) -> tuple[str, ...]:
    """Return the policies and references to replay.

    The exact index is left out, since it needs a distribution of the arrivals; `LiveCrawl` is left
    out of fleets and observations that it does not model.
    """
    fleet = split.fleet
    limits = fleet.is_delayed or fleet.is_capped or fleet.fails or bool(fleet.hosts)
    left_out = {WhittleExact.name} | ({LIVE} if observed or limits else set())
    peers = [name for name in agents if name not in left_out]
    found = evaluation.entrants(peers, {"arrivals": "trace", "observed": observed})
    return found if split.refitted is None else (*found, REFITTED)


def work(trace: Trace, job: Job) -> Result:
    """Run one replay of a job's agent, which starts `late` steps after the trace."""
    log, period = trace.log, job["arguments"]["sources"]["period"]
    rest = Trace(log.covering(log.start + job["late"] * period, None), random_start=False)
    with warnings.catch_warnings():  # the command has shown them once for all jobs
        warnings.simplefilter("ignore")
        replay = play(rollout_of(job, rest), rest, job["steps"] - job["late"])
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in replay._asdict().items()
    }


def rollout_of(job: Job, trace: Trace) -> Rollout:
    """Return a job's agent in an environment that replays a trace."""
    arguments = {**evaluation.arguments_of(job), "arrivals": trace}
    return Rollout(_agent_of(job), arguments, 1, job["seed"])


def _agent_of(job: Job) -> AgentLike:
    if job["agent"] != LIVE:
        return evaluation.agent_of(job)

    def deployed(env: CrawlVectorEnv) -> Adaptive:
        return live_agent(env.task, env.task.sources, seed=job["seed"])

    return deployed


def joined(results: Sequence[Result], steps: int) -> Replay:
    """Return the runs of a policy as one; the reward before a run starts is zero."""
    reward = np.zeros((len(results), steps))
    for row, result in zip(reward, results, strict=True):
        (measured,) = result["reward"]
        row[steps - len(measured) :] = measured
    others = [name for name in Replay._fields if name != "reward"]
    means = {name: np.mean([result[name] for result in results], axis=0) for name in others}
    return Replay(reward, **means)


def play(rollout: Rollout, trace: Trace, steps: int) -> Replay:
    """Replay the trace once from its beginning, with the crawls of a rollout.

    The sources are crawled at 0, T, …, (H − 1)T: items that are published in a step can be
    collected from the next step on, and those of the last step not at all.
    """
    world = rollout.env.world
    sources, (batch, n) = world.sources, world.shape
    collected = _Collected(trace.log, sources, batch, steps)
    reward, crawls, cost = np.zeros((batch, steps)), np.zeros(n), 0.0
    visited = np.zeros(batch * n, dtype=bool)
    for step in range(steps):
        reward[:, step] = rollout.step()
        picked, _, _, failed = rollout.env.harvest
        crawls += np.bincount(picked % n, minlength=n)
        cost += float(sources.cost[picked % n].sum())
        if failed is not None:
            picked = picked[~failed]
        visited[picked] = True
        collected.count(picked, step)
    return Replay(
        reward,
        crawls / steps / batch,
        cost / steps / batch,
        float(np.count_nonzero(~visited)) / batch,
        collected.items / batch,
        collected.delay,
    )


class _Collected:
    """Counts the items that crawls collect, and the time since their publication."""

    def __init__(self, log: ItemLog, sources: Sources, batch: int, steps: int) -> None:
        place = {name: i for i, name in enumerate(sources.names)}
        source = np.array([place.get(name, 0) for name in log.names], dtype=np.intp)[log.source]
        when = (log.published - log.start) / sources.period
        self._stride, self._n = steps + 2, len(sources)
        # The step from whose beginning on an item can be collected.
        available = np.minimum(when.astype(np.intp) + 1, steps + 1)
        line = source * self._stride + available  # sorts by source, then by step
        order = np.argsort(line, kind="stable")
        self._line = line[order]
        self._when = np.concatenate(([0.0], np.cumsum(when[order])))
        first = np.searchsorted(self._line, np.arange(self._n) * self._stride)
        self._next = np.tile(first, batch)  # index in `_line` of each cell's first item
        self._capacity, self._period = sources.capacity, sources.period
        self.items, self._delay = 0.0, 0.0

    def count(self, picked: IntArray, step: int) -> None:
        """Count the items that crawls of the cells `picked` collect at the beginning of a step."""
        source = picked % self._n
        until = np.searchsorted(self._line, source * self._stride + step, side="right")
        first = np.maximum(self._next[picked], until - self._capacity[source])
        first = np.minimum(first, until).astype(np.intp)
        self._next[picked] = until
        items = until - first
        self.items += float(items.sum())
        self._delay += float((items * step - (self._when[until] - self._when[first])).sum())

    @property
    def delay(self) -> float:
        """Return the mean time from publication to collection; NaN if no item was collected."""
        return self._delay * self._period / self.items if self.items else float("nan")
