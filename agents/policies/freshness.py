"""Policies of web freshness: crawlers that keep copies of pages up to date.

They were made for another objective (`agents.theory.freshness`), take every item as a change of its
source, and know nothing of decay. They are the state of the art of scheduling crawls, and baselines
here: what they collect of ephemeral content says what the right objective is worth.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.policies.base import (
    Agent,
    Environment,
    ObservationView,
    State,
    graded,
    needs,
    needs_parameters,
)
from agents.policies.static import Static
from agents.theory.arm import PerFleet
from agents.theory.freshness import FreshnessArm, importance
from agents.theory.freshness_rates import harmonic_rates, randomized_rates
from agents.theory.multiplier import spendable
from crawl_env import Sources, task_of
from crawl_env.content.world import NEVER
from crawl_env.numerics import FloatArray, IntArray

_TINY = np.finfo(float).tiny


class Freshness(Agent):
    """Crawls the sources of largest freshness index: at every step the budget goes to the copies
    that have most probably become stale, weighted by importance and change rate.

    With signals it is the policy of Busa-Fekete et al. (2025), whose state is the time and the
    number of pings since a source's last crawl; without, that of Cho & Garcia-Molina (2003) as an
    index. Delays of signals are not taken into account. Under both budget rules all of the budget
    is spent as soon as it is there, as the authors intend.

    The recurrent state has the number of pings since the last crawl.

    Arguments:
        env: an environment, a vector environment, or a `Task`.
        weight: the importance of a source, see `agents.theory.freshness.importance`.
        seed: unused.

    Raises:
        ValueError: `age` is not observed, or there are signals and `pings` is not; fleets are drawn
            at reset and their parameters are not observed; or the weight is unknown.
    """

    name = "freshness"
    features = ("age", "pings")

    def __init__(self, env: Environment, *, weight: str = "flow", seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        task = self.task
        needs(task, self.name, "age")
        if task.sources.is_signalled:
            needs(task, self.name, "pings")
        needs_parameters(task, self.name)
        importance(task.sources, weight)  # refuses unknown names
        self._arm = PerFleet(partial(FreshnessArm.of, weight=weight))

    def begin(self, view: ObservationView) -> State:
        return (np.zeros((view.batch, self.task.n)),)

    def decide(self, view: ObservationView, state: State) -> tuple[NDArray[Any], State]:
        sources, age = view.sources, view["age"]
        pings = np.where(age == 1, 0.0, state[0])
        if view.shows("pings"):
            pings += view["pings"]
        time = np.where(age < NEVER, age * sources.period, np.inf)
        return graded(self._arm(sources).index(time, pings), None), (pings,)


class FreshnessStatic(Static):
    """Crawls every source at the rate that is optimal for freshness under crawls at random times
    (Azar et al. 2018), evenly, in the way of `Static`.

    Sources that change often compared with their importance are not crawled. Signals are ignored,
    and limits of hosts are left to the environment.

    Arguments:
        env: an environment, a vector environment, or a `Task`.
        weight: the importance of a source, see `agents.theory.freshness.importance`.
        seed: unused.

    Raises:
        ValueError: fleets are drawn at reset and their parameters are not observed; or the weight
            is unknown.
    """

    name = "freshness-static"

    def __init__(self, env: Environment, *, weight: str = "flow", seed: int | None = None) -> None:
        self._weight = weight
        super().__init__(env, seed=seed)

    def _rates(self, sources: Sources) -> FloatArray:
        fleet, budget = spendable(sources, self.task)
        return self._optimal(fleet, budget) * sources.period

    def _optimal(self, sources: Sources, budget: float) -> FloatArray:
        """Return crawls per unit of time, (N,) or (B, N)."""
        return randomized_rates(sources, budget, self._weight)


class LambdaCrawl(FreshnessStatic):
    """LambdaCrawl (Kolobov et al. 2019): the rates of least harmonic staleness.

    A source that tells every change, by signals of recall and precision 1 without delay, is crawled
    at once after each change with a probability of its own; one that does not, at a rate of its
    own. The paper's crawls are drawn at random. Here the same frequencies are kept evenly, which is
    better for every objective: rates in the way of `Static`, and a probability π as credit, of
    which every ping earns π and a crawl takes 1. Signals of lower quality are ignored, since the
    paper has no model of them.

    The recurrent state is that of `Static`, with the credit of the pings and whether a crawl of the
    source is due.

    Raises:
        ValueError: as for `FreshnessStatic`; or some source tells every change, and `pings` or
            `crawled` is not observed.
    """

    name = "lambda-crawl"
    features = ("crawled", "pings")

    def __init__(self, env: Environment, *, weight: str = "flow", seed: int | None = None) -> None:
        task = task_of(env)
        fleet = task.sources
        exact = (fleet.recall == 1) & (fleet.precision == 1) & (fleet.signal_delay == 0)
        self._is_told = exact & ~task.observed
        super().__init__(env, weight=weight, seed=seed)
        if self._is_told.any():
            needs(task, self.name, "pings")
            needs(task, self.name, "crawled")

    def _optimal(self, sources: Sources, budget: float) -> FloatArray:
        return harmonic_rates(sources, budget, self._weight, self._is_told)

    def _in_order(self, lateness: FloatArray) -> IntArray:
        """Sources that tell every change are crawled by their pings instead: they come last."""
        if self._is_told.any():
            lateness = np.where(self._is_told, np.inf, lateness)
        return super()._in_order(lateness)

    def begin(self, view: ObservationView) -> State:
        state = super().begin(view)
        if not self._is_told.any():
            return state
        credit = state[1][..., self._is_told]
        return (*state, credit, np.zeros(credit.shape))

    def decide(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        if not self._is_told.any():
            return super().decide(view, state)
        is_told = self._is_told
        *own, credit, waits = state
        priority, after = super().decide(view, tuple(own))
        crawled, pings = view["crawled"][..., is_told] > 0, view["pings"][..., is_told]
        per_step = np.broadcast_to(view.sources.arrival_rate * view.sources.period, priority.shape)
        # The probability of a crawl at a change; what never changes has no pings.
        chance = after[0][..., is_told] / np.maximum(per_step[..., is_told], _TINY)
        # Changes that were due together took one crawl.
        credit = np.where(crawled & (waits > 0), credit % 1.0 - 1.0, credit)
        credit = credit + np.minimum(chance, 1.0) * pings
        waits = np.where(crawled, 0.0, waits)
        waits = waits + ((waits > 0) | ((pings > 0) & (credit >= 0)))
        idle = 0.0 if self.task.budget_rule == "step" else -1.0
        priority = np.where(priority > 0, 0.5 * priority, priority)
        priority[..., is_told] = np.where(waits > 0, 1.0 - 0.5 / (1.0 + waits), idle)
        return priority, (*after, credit, waits)
