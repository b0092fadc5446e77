"""Playing back the rest of a log: every policy on the same items, measured step by step."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from agents.evaluation.rollout import Rollout
from agents.policies.index import WhittleExact
from crawl_env import ItemLog, Sources, Task, Trace
from crawl_env.numerics import FloatArray, IntArray
from experiments.core import evaluation
from experiments.core.runner import Job, Result

REFITTED = "whittle-refitted"  # a reference: fitted to the very part that is played back


class Played(NamedTuple):
    """One policy's S runs of H steps, of which run s starts s steps late; and means over them.

    Schedules without chance in them may lock to the hours of the day: which hours these are is
    luck, and starting at other hours shows how much of it.
    """

    reward: FloatArray  # (S, H) utility collected in each step
    frequency: FloatArray  # (N,) crawls per step
    cost: float  # budget units per step
    never: float  # sources not once crawled with success
    fetched: float  # items
    delay: float  # time from publication to collection, mean over the items; NaN if none

    def __repr__(self) -> str:
        return f"Played(reward {self.total:.6g} in {self.reward.shape[-1]} steps)"

    @property
    def total(self) -> float:
        """Return the utility collected."""
        return float(self.reward.sum(axis=-1).mean())


def players(agents: Iterable[str], observed: bool, refitted: bool) -> tuple[str, ...]:
    """Return whom to play: the agents, and references.

    Not the exact index: it is that of a law of arrivals, and a log has none.
    """
    peers = [name for name in agents if name != WhittleExact.name]
    found = evaluation.entrants(peers, {"arrivals": "trace", "observed": observed})
    return (*found, REFITTED) if refitted else found


def task(job: Job, trace: Trace) -> Task:
    """Return the task of a job, which is refused where it is none."""
    return Task(**{**evaluation.arguments_of(job), "arrivals": trace})


def work(trace: Trace, job: Job) -> Result:
    """Play one run of a job's agent, which starts `late` steps after the trace."""
    log, period = trace.log, job["arguments"]["sources"]["period"]
    rest = Trace(log.covering(log.start + job["late"] * period, None), random_start=False)
    with warnings.catch_warnings():  # the command has shown them once, for all its units
        warnings.simplefilter("ignore")
        arguments = {**evaluation.arguments_of(job), "arrivals": rest}
        rollout = Rollout(job["agent"], arguments, 1, job["seed"])
        played = play(rollout, rest, job["steps"] - job["late"])
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in played._asdict().items()
    }


def joined(results: Sequence[Result], steps: int) -> Played:
    """Return the runs of a policy side by side, nothing collected before they start."""
    reward = np.zeros((len(results), steps))
    for row, result in zip(reward, results, strict=True):
        (measured,) = result["reward"]
        row[steps - len(measured) :] = measured
    others = [name for name in Played._fields if name != "reward"]
    means = {name: np.mean([result[name] for result in results], axis=0) for name in others}
    return Played(reward, **means)


def digest(log: ItemLog) -> str:
    """Return a hash of all that a log says, so that what was kept of another is not taken up."""
    found = hashlib.sha256(repr((log.names, log.start, log.end, log.unit)).encode())
    arrays = [log.source, log.published, log.utility]
    if log.curves is not None:
        arrays += [log.curves.first, log.curves.age, log.curves.remaining]
    for array in arrays:
        found.update(array.tobytes())
    return found.hexdigest()[:24]


def play(rollout: Rollout, trace: Trace, steps: int) -> Played:
    """Let a rollout crawl the trace from its beginning, once.

    The sources are crawled at 0, T, …, (H − 1)T: what is published in a step can be collected
    from the next one on, and what is published in the last one not at all.
    """
    world = rollout.env.world
    sources, (rows, n) = world.sources, world.shape
    brought = _Brought(trace.log, sources, rows, steps)
    reward, crawls, cost = np.zeros((rows, steps)), np.zeros(n), 0.0
    visited = np.zeros(rows * n, dtype=bool)
    for step in range(steps):
        reward[:, step] = rollout.step()
        picked, _, _, failed = rollout.env.harvest
        crawls += np.bincount(picked % n, minlength=n)
        cost += float(sources.cost[picked % n].sum())
        if failed is not None:
            picked = picked[~failed]
        visited[picked] = True
        brought.count(picked, step)
    return Played(
        reward,
        crawls / steps / rows,
        cost / steps / rows,
        float(np.count_nonzero(~visited)) / rows,
        brought.items / rows,
        brought.delay,
    )


class _Brought:
    """Counts the items that crawls bring, and the time since each was published."""

    def __init__(self, log: ItemLog, sources: Sources, rows: int, steps: int) -> None:
        place = {name: i for i, name in enumerate(sources.names)}
        source = np.array([place.get(name, 0) for name in log.names], dtype=np.intp)[log.source]
        when = (log.published - log.start) / sources.period
        self._stride, self._n = steps + 2, len(sources)
        seen = np.minimum(when.astype(np.intp) + 1, steps + 1)  # step at whose beginning
        line = source * self._stride + seen  # of one source after the other
        order = np.argsort(line, kind="stable")
        self._line = line[order]
        self._when = np.concatenate(([0.0], np.cumsum(when[order])))
        first = np.searchsorted(self._line, np.arange(self._n) * self._stride)
        self._next = np.tile(first, rows)  # of each cell, on the line
        self._capacity, self._period = sources.capacity, sources.period
        self.items, self._delay = 0.0, 0.0

    def count(self, picked: IntArray, step: int) -> None:
        """Count what crawls of the cells `picked` bring at the beginning of a step."""
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
        """Return the mean time from publication to collection; NaN where nothing was collected."""
        return self._delay * self._period / self.items if self.items else float("nan")
