"""Whittle index policies where crawls that find nothing are cheaper, and where sources can be
looked at."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.policies.base import Environment, ObservationView, State, graded, needs
from agents.policies.index import Whittle
from agents.policies.knapsack import best_first
from agents.theory.arm import PerFleet
from agents.theory.checks import conditional_arm, is_saved, look_arm
from agents.theory.multiplier import BudgetMultiplier
from agents.theory.task_bound import task_bound
from crawl_env import Sources, task_of
from crawl_env.numerics import FloatArray


class WhittleConditional(Whittle):
    """`Whittle` where crawls that find nothing cost less: the index with the expected cost at the
    age, of `agents.theory.checks`.

    It is `Whittle` at observed sources, where it is known whether there is something, and where all
    crawls cost the same: without `unchanged_cost`, or where the budget of a step covers no crawl
    after one that found nothing.

    Raises:
        ValueError: crawls that find nothing cost less, and `age` is not observed; or as for
            `Whittle`.
    """

    name = "whittle-conditional"
    features = ("age",)

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        self._arm_of = PerFleet(partial(conditional_arm, task_of(env)))
        super().__init__(env, seed=seed)
        if self._is_cheaper:
            needs(self.task, self.name, "age")

    @property
    def _is_cheaper(self) -> bool:
        return self.task.unchanged_cost is not None and not self.task.observed.all()

    def index_now(self, view: ObservationView) -> FloatArray:
        index = super().index_now(view)
        if not self._is_cheaper:
            return index
        index_of_check = self._arm_of(view.sources).index_at_age(view["age"])
        is_cheaper = is_saved(self.task, view.sources) & ~self.task.observed
        return np.where(is_cheaper, index_of_check, index)

    def _budget_multiplier(self) -> BudgetMultiplier:
        if not self._is_cheaper or self.task.observed.any():
            return super()._budget_multiplier()
        return _OfBound(self.task, self.index)


class WhittleLooks(Whittle):
    """`Whittle` for crawls, and for looks the index of a look that is followed by a crawl if it
    shows something, of `agents.theory.checks`.

    Both are utility per budget unit. As `WhittleKnapsack` does, it takes the affordable crawls and
    looks of the largest total worth, so that a crawl is not lost for a few looks. With a budget on
    average they are ranked together. Without looks (no `look_cost`) it is `Whittle`.

    Raises:
        ValueError: there are looks, and `value` or `seen` is not observed, or there are crawl
            delays as well, and `available` is not; or as for `Whittle`.
    """

    name = "whittle-looks"
    features = ("value", "seen", "available")

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        self._looks = PerFleet(partial(look_arm, task_of(env)))
        super().__init__(env, seed=seed)
        if self.task.look_cost is not None:
            needs(self.task, self.name, "value")
            needs(self.task, self.name, "seen")
            if self.task.sources.is_delayed:
                needs(self.task, self.name, "available")

    def decide(self, view: ObservationView, state: State) -> tuple[NDArray[Any], State]:
        if self.task.look_cost is None:
            return super().decide(view, state)
        look = self._looks(view.sources).index_at_age(view["seen"] + 1.0)
        look = np.where(self.task.observed, 0.0, look)
        both = np.concatenate([self.index_now(view), look], axis=-1)
        multiplier = None if self._multiplier is None else self._multiplier(view.sources)
        priority = graded(both, multiplier)
        if self.task.budget_rule == "step":
            cost = np.empty((2, *look.shape))
            cost[0], cost[1] = view.sources.cost, self.task.look_cost
            cost = np.concatenate(cost, axis=-1)
            priority = best_first(self.task, view, priority, cost)
        return priority.reshape(view.batch, 2, self.task.n), state

    def _budget_multiplier(self) -> BudgetMultiplier:
        if self.task.look_cost is None:
            return super()._budget_multiplier()
        return _OfBound(self.task, self.index)


class _OfBound(BudgetMultiplier):
    """λ* of the relaxed bound, which takes the cost of what finds nothing into account."""

    def _find(self, sources: Sources) -> FloatArray:
        return np.atleast_1d(task_bound(self._task, sources).multiplier)
