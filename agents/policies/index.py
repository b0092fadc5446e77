"""Index policies: every source has an index, and those with the largest are crawled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from agents.theory.renewal import ClosedFormArm, renewal_arm, simplified
from agents.theory.task_bound import task_bound
from crawl_env import Arrivals, Sources
from crawl_env.numerics import FloatArray
from crawl_env.simulation.selection import Hosts


class IndexAgent(Agent):
    """Crawls the sources with the largest index; subclasses implement `index`.

    The index γ ≥ 0 is mapped to the priority e/(e + c) with e = γ − λ, which is strictly
    increasing, so that only rounding to float32 can change the order. The scale c is the largest e,
    so that rounding never changes e by more than 10⁻⁷ of itself. λ is 0, or the Lagrange multiplier
    λ* under `budget_rule="average"`: sources of smaller index, of priority e/λ, are not crawled.

    λ* of a constant fleet is computed when the agent is made, which takes some seconds if random
    content is observed. A subclass must set the attributes that `index` uses before it calls
    `super().__init__`.

    Raises:
        ValueError: neither value nor age is observed, or fleets are drawn at reset and their
            parameters are not observed; an index is negative or not finite.
    """

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        task = self.task
        needs(task, self.name, "value", "age")
        needs_parameters(task, self.name)
        self._multiplier: BudgetMultiplier | None = None
        if task.budget_rule == "average":
            self._multiplier = self._budget_multiplier()
            if task.draw is None:
                self._multiplier(task.sources)

    def index(self, value: FloatArray, sources: Sources) -> FloatArray:
        """Return the index of each source, (B, N) utility / budget unit.

        Arguments:
            value: the uncollected utility if it is observed, else the belief, (B, N).
            sources: the fleet, (N,), or (B, N) if it is drawn at reset.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement index(value, sources)")

    def index_at_age(self, age: FloatArray, sources: Sources) -> FloatArray:
        """Return the index of each source `age` steps after a crawl, (B, N) utility / budget unit;
        by default, that of the belief."""
        return self.index(sources.content_at(age), sources)

    def index_now(self, view: ObservationView) -> FloatArray:
        """Return the index of each source that the observations show, (B, N); by default, that of
        its value or of its age."""
        if view.shows("value") or view.shows_pings:
            return self.index(view.value, view.sources)
        return self.index_at_age(view["age"], view.sources)

    def priority(self, view: ObservationView) -> NDArray[Any]:
        return self.ranked(view, np.asarray(self.index_now(view), dtype=np.float64))

    def ranked(self, view: ObservationView, index: FloatArray) -> NDArray[Any]:
        """Return the priorities of sources with these indices, (B, N)."""
        sources = view.sources
        if index.shape != (view.batch, self.task.n):
            raise ValueError(
                f"{type(self).__name__}.index returned an index of shape {index.shape}; it must "
                f"return one number for each source, {(view.batch, self.task.n)}"
            )
        multiplier = None if self._multiplier is None else self._multiplier(sources)
        try:
            return graded(index, multiplier)
        except ValueError:
            wrong = np.argwhere(~(np.isfinite(index) & (index >= 0)))[0]
            source = sources.label(int(wrong[-1]))
            value = view["value"][tuple(wrong)] if view.shows("value") else 0.0
            if not 0 <= value < np.inf:
                raise ValueError(
                    f"the observation has {value} as value of source {source}; uncollected utility "
                    "is finite and not negative. Remove wrappers that change observations"
                ) from None
            raise ValueError(
                f"{type(self).__name__}.index returned {index[tuple(wrong)]} for source {source}; "
                "an index must be finite and not negative. For scores of any sign, subclass Agent "
                "and return priorities in [−1, 1]"
            ) from None

    def _budget_multiplier(self) -> BudgetMultiplier:
        return BudgetMultiplier(self.task, self.index)


class Whittle(IndexAgent):
    """The Whittle index policy (Avrachenkov & Borkar 2015), the reference of all comparisons.

    Sources are ranked by the average-reward index of their uncollected utility if it is observed,
    else of the belief, which pings raise where sources send signals. If `age` is observed and
    `value` is not, the belief is computed from the known parameters, and from `pings_aged` if this
    is observed. The index is that of `arm(sources)`, which subclasses may override.

    >>> from crawl_env import CrawlEnv
    >>> env = CrawlEnv(budget=2)
    >>> observation, _ = env.reset(seed=0)
    >>> action, _ = Whittle(env).predict(observation)
    >>> action.argsort()[::-1]  # the sources, largest index first
    array([0, 1, 2, 3])
    """

    name = "whittle"

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        self._arms = PerFleet(self.arm)
        super().__init__(env, seed=seed)

    def arm(self, sources: Sources) -> SingleArm:
        """Return the arms whose index is used: those of unobserved sources."""
        return renewal_arm(sources)

    def index(self, value: FloatArray, sources: Sources) -> FloatArray:
        return self._arms(sources).index(value)

    def index_at_age(self, age: FloatArray, sources: Sources) -> FloatArray:
        arm = self._arms(sources)
        if isinstance(arm, ClosedFormArm):  # exact, and faster than by way of the belief
            return arm.index_at_age(age)
        return super().index_at_age(age, sources)


class Myopic(IndexAgent):
    """Ranks sources by the utility that a crawl collects now, per unit of cost."""

    name = "myopic"

    def index(self, value: FloatArray, sources: Sources) -> FloatArray:
        return myopic_index(value, sources)


class WhittleExact(Whittle):
    """`Whittle` with the exact index of sources whose Poisson arrivals are observed or signalled.

    Theorem 1 is exact for deterministic arrivals and for a belief that depends on the age alone,
    and is used there. It is also used for other arrivals, for which no exact index is known. The
    index of each distinct source that is observed or sends signals is computed when it first
    occurs, in some milliseconds. Failures enter as higher costs, capacities as in
    `agents.theory.renewal.simplified`, and delayed signals as in `agents.theory.arm.at_once`.

    Raises:
        ValueError: as for other index agents, or there are too many distinct sources.
    """

    name = "whittle-exact"

    def arm(self, sources: Sources) -> SingleArm:
        return arm_of(self.task, sources) if self._is_solved else super().arm(sources)

    def _budget_multiplier(self) -> BudgetMultiplier:
        kind = _ExactMultiplier if self._is_solved else BudgetMultiplier
        return kind(self.task, self.index)

    @property
    def _is_solved(self) -> bool:
        return information(self.task).is_informed and isinstance(self.task.arrivals, Arrivals)


class _ExactMultiplier(BudgetMultiplier):
    """λ* of the exact relaxation, which ignores hosts and delays, of crawls and of signals; with
    these it is simulated."""

    def _find(self, sources: Sources) -> FloatArray:
        late = sources.is_delayed or bool((sources.recall * sources.signal_delay).any())
        if late or Hosts.of(sources, self._task.per_host) is not None:
            return super()._find(sources)
        return np.atleast_1d(task_bound(self._task, simplified(sources)).multiplier)
