"""Policies for items that pay at a deadline: an index that heeds it, and an assignment."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.policies.base import Environment, ObservationView, graded, needs
from agents.policies.index import Whittle
from agents.theory.arm import PerFleet
from agents.theory.multiplier import BudgetMultiplier, Index
from agents.theory.renewal import RenewalArm, renewal_arm, simplified
from crawl_env import Deadline, Sources, Task, task_of
from crawl_env.extras import missing
from crawl_env.numerics import FloatArray
from crawl_env.simulation.selection import whole_budget


class WhittleDeadline(Whittle):
    """`Whittle` × e^{−μTl}, l the steps until the deadline: the index of what will be left then.

    Without a deadline it is `Whittle`.

    Raises:
        ValueError: there is a deadline, and `steps_left` is not observed; or as for `Whittle`.
    """

    name = "whittle-deadline"
    features = ("steps_left",)

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        payoff = task_of(env).payoff
        self._steps = payoff.steps if isinstance(payoff, Deadline) else 1  # D
        super().__init__(env, seed=seed)
        if self._steps > 1:
            needs(self.task, self.name, "steps_left")

    def index_now(self, view: ObservationView) -> FloatArray:
        index = super().index_now(view)
        if self._steps == 1:
            return index
        return index * np.exp(-view.sources.decay_per_step * view["steps_left"])


class DeadlineAssignment(WhittleDeadline):
    """Assigns sources to the remaining steps of the batch, so that the batch is worth most.

    Since items are worth the same at the deadline whenever they are collected, a source needs one
    crawl per batch, and the benefit of having it l steps before the last is α^l γ(x): γ is the
    Whittle index of the source if its steps were batches (it counts what the next batches lose), x
    the content expected then. The assignment of largest total benefit, at most M sources for each
    step, is found anew in every step, by `scipy.optimize.linear_sum_assignment`; the sources of the
    present step are crawled. In the long run this is close to the bound,
    `agents.theory.deadline.deadline_bound`. Without a deadline it is `Whittle`.

    Under `budget_rule="average"` all sources are assigned to the last step, for which the budget is
    saved; those of γ ≥ λ* are crawled then.

    Raises:
        ImportError: SciPy is not installed.
        ValueError: with a deadline and a budget for every step, costs differ; or as for
            `WhittleDeadline`.
    """

    name = "deadline-assignment"

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        self._batch_of = PerFleet(self._batch)
        super().__init__(env, seed=seed)
        if self._steps > 1 and self._multiplier is None:
            self._room(self.task.sources)
            try:
                from scipy.optimize import linear_sum_assignment
            except ImportError as error:
                raise ImportError(missing("scipy", f"agent {self.name!r}")) from error
            self._assign = linear_sum_assignment

    def priority(self, view: ObservationView) -> NDArray[Any]:
        if self._steps == 1:
            return super().priority(view)
        if self._multiplier is not None:
            index = self._batch_of(view.sources).index(view.value)
            priority = graded(index, self._multiplier(view.sources))
            return np.where(view["steps_left"] == 0, priority, np.float32(-1.0))
        room = self._room(view.sources)
        out = graded(self.index_now(view), None) / 2  # of those not assigned to this step
        for b, remaining in enumerate(view["steps_left"][:, 0].astype(int)):
            alone = view.sources.fleet(b) if self.task.draw is not None else view.sources
            benefit = self._benefit(view.value[b], alone, remaining)
            source, place = self._assign(np.repeat(benefit.T, room, axis=1), maximize=True)
            out[b, source[place < room]] += 0.5
        return out

    def _budget_multiplier(self) -> BudgetMultiplier:
        return _BatchMultiplier(self.task, lambda x, batch: _arm(batch).index(x), self._steps)

    def _benefit(self, value: FloatArray, sources: Sources, remaining: int) -> FloatArray:
        """Return the benefit of a crawl in this step and in each of those `remaining`,
        (1 + remaining, N)."""
        ahead = np.arange(remaining + 1.0)[:, None]
        content = sources.content_at(ahead) + value * np.exp(-sources.decay_per_step * ahead)
        survival = np.exp(-sources.decay_per_step * (remaining - ahead))
        return survival * self._batch_of(sources).index(content)

    def _batch(self, sources: Sources) -> RenewalArm:
        """Return the arms of the sources if their steps were batches."""
        return _arm(sources.replaced(period=sources.period * self._steps))

    def _room(self, sources: Sources) -> int:
        """Return how many sources the budget of a step covers."""
        room = whole_budget(sources.cost, self.task.budget)
        if room is None:
            raise ValueError(
                f"agent {self.name!r} assigns sources of equal cost to steps, and the costs of "
                f"this fleet differ. Use {WhittleDeadline.name!r}"
            )
        return room


class _BatchMultiplier(BudgetMultiplier):
    """λ* of a fleet whose steps are batches, and of D times the budget."""

    def __init__(self, task: Task, index: Index, steps: int) -> None:
        with warnings.catch_warnings():  # of a budget that covers all sources
            warnings.simplefilter("ignore")
            super().__init__(task.replaced(budget=task.budget * steps, payoff=None), index)
        self._steps = steps

    def _find(self, sources: Sources) -> FloatArray:
        return super()._find(sources.replaced(period=sources.period * self._steps))


def _arm(sources: Sources) -> RenewalArm:
    return renewal_arm(simplified(sources))
