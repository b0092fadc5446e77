"""The agent that estimates its sources in front of an indexing engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from agents.adaptive.base import NUMBER, Memory, task_of_estimates
from agents.adaptive.policies import SelfTuning, TuningState
from agents.inference.rates import Estimator
from agents.policies.base import Environment, ObservationView, State, needs, needs_all
from agents.policies.engine import WhittleEngine
from crawl_env import Task
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.numerics import FloatArray, IntArray

_FIRST = 10  # rounds of exploration, after which the index is made for the first time
_FACTOR = 3.0  # of the number of steps after which it is made again


class QueuePlan(NamedTuple):
    """The state of `EstimatedQueue`."""

    due: FloatArray  # (B, 1) steps after which the index is made for new estimates
    fleet: FloatArray  # (B, N, 4) the estimates it was made for; NaN before the first time
    phase: IntArray  # (B,) what a deterministic engine has left over, as in `WhittleEngine`


class QueueMemory(NamedTuple):
    """The state of planning, `Memory.plan`, of `AdaptiveEngine` in front of an engine."""

    tuning: State  # of `SelfTuning`
    queue: QueuePlan


class EstimatedQueue:
    """`WhittleEngine` in the hands of an agent that estimates its sources.

    The index of `WhittleEngine` is made for the estimates after the first ten rounds, and again
    after three, nine, … times as many steps. (A round is the number of steps in which the budget
    covers every source once.) Between these times it stays, since making it takes some seconds for
    a hundred sources. Sources that the index leaves out are hardly crawled, and what is wrongly
    believed of them stays: the index is made rarely, and late, because early estimates leave out
    more good ones. Before the first time, and where the engine takes hardly anything from what the
    estimates promise, the agent's own priorities stand.

    Arguments:
        task: has an engine. Crawl delays and hosts do not enter the index.
    """

    def __init__(self, task: Task) -> None:
        self._task = task_of_estimates(task, "poisson-items", ("age", "backlog"))
        self._policies: dict[int, WhittleEngine] = {}  # by row of the batch: each has its tables

    @staticmethod
    def hides(task: Task) -> bool:
        """Return whether a task shows of its sources nothing but what crawls found, as the index by
        age and backlog assumes."""
        return not (task.observed.any() or task.sources.is_signalled or task.sources.fails)

    def begin(self, batch: int, tour: float) -> QueuePlan:
        """Return the state before the first step; `tour` is the length of a round, steps."""
        blank = np.full((batch, self._task.n, len(PARAMETERS)), np.nan)
        return QueuePlan(np.full((batch, 1), _FIRST * tour), blank, np.full(batch, -1))

    def decide(
        self,
        plan: QueuePlan,
        clock: FloatArray,
        age: FloatArray,
        backlog: FloatArray,
        estimates: Callable[[], FloatArray],
        priority: FloatArray,
    ) -> tuple[FloatArray, QueuePlan]:
        """Return the priorities, (B, N), and the state after a step.

        Arguments:
            clock: (B, 1) steps, this one included; NaN where nothing can be estimated yet.
            age: (B, N) steps.
            backlog: (B, N), as observed.
            estimates: called where the index is due; returns the `PARAMETERS`, (B, N, 4).
            priority: (B, N) of the agent itself.
        """
        due, fleet, phase, out = plan.due, plan.fleet, plan.phase.copy(), priority.copy()
        now = clock >= due
        if now.any():
            due = np.where(now, due * _FACTOR, due)
            fleet = np.where(now[..., None], estimates(), fleet)
        columns = np.concatenate([age[..., None], backlog[..., None], fleet], axis=-1)
        for row in np.flatnonzero(~np.isnan(fleet).any(axis=(1, 2))).tolist():
            if row not in self._policies:
                self._policies[row] = WhittleEngine(self._task)
            view = ObservationView(columns[row : row + 1], self._task)
            row_priority, (onward,) = self._policies[row].decide(view, (phase[row : row + 1],))
            phase[row] = onward[0]
            if self._policies[row].heeds(view.sources.fleet(0)):
                out[row] = row_priority[0]
        return out, QueuePlan(due, fleet, phase)


class AdaptiveEngine(SelfTuning):
    """Certainty equivalence in front of an indexing engine: `WhittleEngine`, told the estimates.

    It estimates Λ, ξ̄ and μ as `SelfTuning` does, and crawls as that does in the first ten rounds,
    which ignores the engine and sees every source several times. Then the posterior means are
    handed to an `EstimatedQueue`.

    The engine itself is known. Crawl delays and hosts do not enter the index. Without an engine, it
    is `SelfTuning`.

    Arguments:
        env, seed, estimator: see `Adaptive`.

    Raises:
        ValueError: as for `SelfTuning`; or there is an engine, and the features lack `age`,
            `backlog` or the number of items, or content is observed, sources send signals, or
            crawls can fail.
    """

    name = "adaptive-engine"

    @classmethod
    def features_in(cls, task: Task) -> tuple[str, ...]:
        heeded = () if task.engine is None else ("items", "backlog")
        return (*super().features_in(task), *heeded)

    def __init__(
        self,
        env: Environment,
        *,
        seed: int | None = None,
        estimator: Estimator | str | None = None,
    ) -> None:
        super().__init__(env, seed=seed, estimator=estimator)
        self._queue = None if self.task.engine is None else self._make_queue()

    def _make_queue(self) -> EstimatedQueue:
        task = self.task
        needs_all(task, self.name, "age", "backlog")
        needs(task, self.name, *NUMBER)
        if not EstimatedQueue.hides(task):
            raise ValueError(
                f"agent {self.name!r} ranks sources by age and backlog alone, and in this "
                "environment content is observed, sources send signals, or crawls can fail; use "
                f"{SelfTuning.name!r}, which ignores the engine"
            )
        return EstimatedQueue(task)

    def begin(self, view: ObservationView) -> Memory:
        memory = super().begin(view)
        if self._queue is None:
            return memory
        queue = self._queue.begin(view.batch, self.known.round)
        return memory._replace(plan=QueueMemory(memory.plan, queue))

    def decide(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        if self._queue is None:
            return super().decide(view, state)
        memory = Memory(*state)
        before = QueueMemory(*memory.plan)
        priority, after = super().decide(view, memory._replace(plan=before.tuning))
        memory = Memory(*after)
        clock = np.where(self.has_unit(memory.plan), memory.clock, np.nan)
        priority, queue = self._queue.decide(
            QueuePlan(*before.queue), clock, memory.age, view["backlog"],
            lambda: self._estimates(view, memory), priority,
        )  # fmt: skip
        return priority, memory._replace(plan=QueueMemory(memory.plan, queue))

    def _estimates(self, view: ObservationView, memory: Memory) -> FloatArray:
        """Return the posterior means of `PARAMETERS`, (B, N, 4)."""
        shape = memory.age.shape
        content = TuningState(*memory.plan).content
        utility, decay = self._content.estimate(content, np.arange(memory.age.size))
        rate = self.estimator.posterior(memory.rates).mean
        columns = rate, utility.reshape(shape), decay.reshape(shape), self._parameter(view, "cost")
        return np.stack([np.broadcast_to(array, shape) for array in columns], axis=-1)
