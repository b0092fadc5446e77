"""Index policies: each source has an index, and those with the largest are crawled."""

from __future__ import annotations

import numpy as np

from agents.policies.base import (
    Agent,
    Environment,
    ObservationView,
    graded,
    needs,
    needs_parameters,
)
from agents.theory.arm import PerFleet, SingleArm, arm_of, information
from agents.theory.index import myopic_index
from agents.theory.multiplier import BudgetMultiplier
from agents.theory.renewal import renewal_arm, simplified
from agents.theory.task_bound import task_bound
from crawl_env import Arrivals, Sources
from crawl_env.numerics import FloatArray
from crawl_env.simulation.selection import Hosts


class IndexAgent(Agent):
    """Crawls the sources with the largest index; subclasses give `index`.

    The index γ ≥ 0 is mapped to the priority e/(|e| + c) with e = γ − λ, which is strictly
    increasing, so that only rounding to float32 can change the order. The scale c is the e of the
    M-th source, so that the resolution is greatest where the ranking decides. λ is 0, or the
    Lagrange multiplier λ* under `budget_rule="average"`: sources of smaller index are not crawled.

    λ* of a constant fleet is found when the agent is made, which takes some seconds where random
    content is observed. A subclass that sets attributes for `index` sets them before it calls
    `super().__init__`.

    Raises:
        ValueError: the environment shows neither value nor age, or hides parameters of fleets
            that it draws anew; an index is negative or not finite.
    """

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        task = self.task
        needs(task, self.name, "value", "age")
        needs_parameters(task, self.name)
        self._affordable = task.budget / float(task.sources.cost.mean())
        self._multiplier: BudgetMultiplier | None = None
        if task.budget_rule == "average":
            self._multiplier = self._budget_multiplier()
            if task.draw is None:
                self._multiplier(task.sources)

    def index(self, value: FloatArray, sources: Sources) -> FloatArray:
        """Return the index of each source, (B, N) utility / budget unit.

        Arguments:
            value: the uncollected utility, observed or believed, (B, N).
            sources: the fleet, (N,), or (B, N) where the environment draws it anew.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement index(value, sources)")

    def priority(self, view: ObservationView) -> FloatArray:
        index = np.asarray(self.index(view.value, view.sources))
        if index.shape != view.value.shape:
            raise ValueError(
                f"agent {self.name!r} returned an index of shape {index.shape}; `index` must "
                f"return one number for each source, {view.value.shape}"
            )
        if not (index.min() >= 0 and np.isfinite(index.max())):
            wrong = np.argwhere(~(np.isfinite(index) & (index >= 0)))[0]
            raise ValueError(
                f"agent {self.name!r} gave source {wrong[-1] + 1} the index {index[tuple(wrong)]}; "
                "an index must be finite and not negative. For scores of any sign, subclass Agent "
                "and return priorities in [−1, 1]"
            )
        multiplier = None if self._multiplier is None else self._multiplier(view.sources)
        return graded(index, multiplier, self._affordable)

    def _budget_multiplier(self) -> BudgetMultiplier:
        return BudgetMultiplier(self.task, self.index)


class Whittle(IndexAgent):
    """The Whittle index policy (Avrachenkov & Borkar 2015): the baseline to beat.

    It ranks sources by the average-reward index of their uncollected utility where this is
    observed, else of its belief. Where only `age` is shown, it computes the belief from the known
    parameters. The index is that of an arm, `arm(sources)`, which subclasses may replace.

    >>> from crawl_env import CrawlEnv
    >>> env = CrawlEnv(budget=2)
    >>> observation, _ = env.reset(seed=0)
    >>> action, _ = Whittle(env).predict(observation)
    >>> action.argsort()[::-1]  # the sources, largest index first
    array([0, 1, 2, 3])
    """

    name = "whittle"

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        self._arm_of = PerFleet(self.arm)  # tables are made anew where the parameters differ
        self._sources: Sources | None = None
        super().__init__(env, seed=seed)

    def arm(self, sources: Sources) -> SingleArm:
        """Return the arms whose index is used: those of sources that are not observed."""
        return renewal_arm(sources)

    def index(self, value: FloatArray, sources: Sources) -> FloatArray:
        if sources is not self._sources:
            self._arm, self._sources = self._arm_of(sources), sources
        return self._arm.index(value)


class Myopic(IndexAgent):
    """Ranks sources by what a crawl collects now, for each unit of cost."""

    name = "myopic"

    def index(self, value: FloatArray, sources: Sources) -> FloatArray:
        return myopic_index(value, sources)


class WhittleExact(Whittle):
    """As `Whittle`, with the exact index of sources whose Poisson arrivals are observed.

    Theorem 1 is exact for the belief and for deterministic arrivals, and is used there. It is also
    used for arrivals of other kinds, for which no exact index is known. Each different observed
    source takes some milliseconds to solve when the agent first meets it. Failures count as higher
    costs, and capacities as in `agents.theory.renewal.simplified`.

    Raises:
        ValueError: as for other index agents, or there are too many different sources to solve.
    """

    name = "whittle-exact"

    def arm(self, sources: Sources) -> SingleArm:
        return arm_of(self.task, sources) if self._is_solved else super().arm(sources)

    def _budget_multiplier(self) -> BudgetMultiplier:
        kind = _ExactMultiplier if self._is_solved else BudgetMultiplier
        return kind(self.task, self.index)

    @property
    def _is_solved(self) -> bool:
        return information(self.task).is_random and isinstance(self.task.arrivals, Arrivals)


class _ExactMultiplier(BudgetMultiplier):
    """λ* of the exact relaxation, which ignores delays and hosts; with these, it is simulated."""

    def _find(self, sources: Sources) -> FloatArray:
        if sources.is_delayed or Hosts.of(sources, self._task.per_host) is not None:
            return super()._find(sources)
        return np.atleast_1d(task_bound(self._task, simplified(sources)).multiplier)
