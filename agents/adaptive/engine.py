"""The agent that estimates its sources in front of an indexing engine."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from agents.adaptive.base import NUMBER, Memory
from agents.adaptive.policies import SelfTuning, TuningState
from agents.inference.rates import Estimator
from agents.policies.base import Environment, ObservationView, State, needs, needs_all
from agents.policies.engine import WhittleEngine
from crawl_env import Sources, Task
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.numerics import FloatArray, IntArray

_FIRST = 10  # rounds of exploration, after which the index is made for the first time
_FACTOR = 3.0  # of the number of steps after which it is made again


class QueuePlan(NamedTuple):
    """The state of planning, `Memory.plan`, of `AdaptiveEngine` in front of an engine."""

    tuning: State  # of `SelfTuning`
    due: FloatArray  # (B, 1) steps after which the index is made for new estimates
    fleet: FloatArray  # (B, N, 4) the estimates it was made for; NaN before the first time
    phase: IntArray  # (B,) what a deterministic engine has left over, as in `WhittleEngine`


class AdaptiveEngine(SelfTuning):
    """Certainty equivalence in front of an indexing engine: `WhittleEngine`, told the estimates.

    It estimates Λ, ξ̄ and μ as `SelfTuning` does, and in the first ten rounds crawls as that does,
    too, which ignores the engine and sees every source several times. (A round is the number of
    steps in which the budget covers every source once.) Then it makes the index of `WhittleEngine`
    for the posterior means, and again after three, nine, … times as many steps. Between these times
    the index stays, since making it takes some seconds for a hundred sources. Sources that the
    index leaves out are hardly crawled, and what is wrongly believed of them stays: the index is
    made rarely, and late, because early estimates leave out more good ones. Where the engine takes
    hardly anything from what the estimates promise, it goes on as `SelfTuning`.

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
        self._shown = None if self.task.engine is None else self._task_of_estimates()
        self._policies: dict[int, WhittleEngine] = {}  # by row of the batch: each has its tables

    def _task_of_estimates(self) -> Task:
        """Return the task in which `WhittleEngine` acts: fleets are observed, and nothing else is
        but age and backlog."""
        task = self.task
        needs_all(task, self.name, "age", "backlog")
        needs(task, self.name, *NUMBER)
        if task.observed.any() or task.sources.is_signalled or task.sources.fails:
            raise ValueError(
                f"agent {self.name!r} ranks sources by age and backlog alone, and in this "
                "environment content is observed, sources send signals, or crawls can fail; use "
                f"{SelfTuning.name!r}, which ignores the engine"
            )
        example = Sources(np.ones(task.n), 1.0, 1.0, period=task.sources.period)
        return Task(
            lambda rng: example,
            task.budget,
            budget_rule=task.budget_rule,
            arrivals="poisson-items",
            observed=False,
            engine=task.engine,
            features=("age", "backlog", *PARAMETERS),
        )

    def begin(self, view: ObservationView) -> Memory:
        memory = super().begin(view)
        if self._shown is None:
            return memory
        due = np.full((view.batch, 1), float(_FIRST * self.known.round))
        unknown = np.full((*memory.age.shape, len(PARAMETERS)), np.nan)
        return memory._replace(plan=QueuePlan(memory.plan, due, unknown, np.full(view.batch, -1)))

    def decide(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        if self._shown is None:
            return super().decide(view, state)
        memory = Memory(*state)
        before = QueuePlan(*memory.plan)
        priority, learnt = super().decide(view, memory._replace(plan=before.tuning))
        memory = Memory(*learnt)
        due, fleet, phase = before.due, before.fleet, before.phase.copy()
        now = (memory.clock >= due) & self.has_unit(memory.plan)
        if now.any():
            due = np.where(now, due * _FACTOR, due)
            fleet = np.where(now[..., None], self._estimates(view, memory), fleet)
        seen = np.concatenate([memory.age[..., None], view["backlog"][..., None], fleet], axis=-1)
        for row in np.flatnonzero(~np.isnan(fleet).any(axis=(1, 2))).tolist():
            if row not in self._policies:
                self._policies[row] = WhittleEngine(self._shown)
            told = ObservationView(seen[row : row + 1], self._shown)
            ranked, (onward,) = self._policies[row].decide(told, (phase[row : row + 1],))
            phase[row] = onward[0]
            if self._policies[row].heeds(told.sources.fleet(0)):
                priority[row] = ranked[0]
        return priority, memory._replace(plan=QueuePlan(memory.plan, due, fleet, phase))

    def _estimates(self, view: ObservationView, memory: Memory) -> FloatArray:
        """Return the posterior means of `PARAMETERS`, (B, N, 4)."""
        shape = memory.age.shape
        content = TuningState(*memory.plan).content
        utility, decay = self._content.estimate(content, np.arange(memory.age.size))
        rate = self.estimator.posterior(memory.rates).mean
        known = rate, utility.reshape(shape), decay.reshape(shape), self._parameter(view, "cost")
        return np.stack([np.broadcast_to(array, shape) for array in known], axis=-1)
