"""Index policies for arrivals whose rates have a known daily cycle, of any phase at each source."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.policies.base import (
    SLACK,
    Agent,
    Environment,
    ObservationView,
    State,
    graded,
    needs,
    needs_parameters,
)
from agents.theory.arm import PerFleet
from agents.theory.closed_form import ClosedForm
from agents.theory.index import whittle_index
from agents.theory.multiplier import BudgetMultiplier, payable
from agents.theory.periodic import (
    PeriodicRelaxation,
    cycle_of,
    daily_inflow,
    periodic_gains,
    periodic_relaxation,
)
from agents.theory.renewal import simplified
from crawl_env import Sources
from crawl_env.numerics import FloatArray


class _Plan(NamedTuple):
    """The inflow of a fleet at each time of day and its relaxed problem."""

    inflow: FloatArray  # (N, D)
    relaxed: PeriodicRelaxation


class WhittlePeriodic(Agent):
    """The Whittle index at the rates of the coming step, where rates have a known daily cycle.

    Theorem 1 holds for constant rates. This policy uses it with the rate Λ(t) of the coming step
    in place of the mean, and with the mean content given all rates so far, which it computes from
    `age` and the number of steps since the start of the episode. Where content is observed, or
    announced by signals, the observed value or belief is used. Without a cycle, or where rates
    change in a way that is not known beforehand, it selects as `Whittle` does.

    The recurrent state has the steps since the start and the mean content.

    Raises:
        ValueError: `age` is not observed, or fleets are drawn at reset and their parameters are not
            observed.

    >>> from agents import evaluate
    >>> from crawl_env import Arrivals
    >>> from crawl_env.content.rates import DailyCycle
    >>> cycle = DailyCycle(amplitude=0.9, day=12, phase=[0, 3, 6, 9])
    >>> task = {"budget": 1, "arrivals": Arrivals(rate=cycle), "observed": False}
    >>> for agent in ("whittle", "whittle-periodic"):
    ...     print(round(float(evaluate(agent, task, steps=1200, seeds=3).reward.mean())))
    260
    283
    """

    name = "whittle-periodic"
    features = ("age",)

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        needs(self.task, self.name, "age")
        needs_parameters(self.task, self.name)
        self._cycle = cycle_of(self.task)
        self._multiplier: BudgetMultiplier | None = None
        if self.task.budget_rule == "average":
            self._multiplier = BudgetMultiplier(self.task, whittle_index)

    def begin(self, view: ObservationView) -> State:
        content = np.broadcast_to(view.sources.content_at(view["age"]), (view.batch, self.task.n))
        return np.full(view.batch, -1.0), content

    def decide(self, view: ObservationView, state: State) -> tuple[NDArray[Any], State]:
        before, content = state
        sources = view.sources
        time = before + 1.0
        factor = self._factor(before, sources)
        plain = simplified(sources)
        expected = plain.retention * content * (view["age"] > 1) + plain.inflow * factor
        content = np.where(before[:, None] < 0, content, expected)
        is_informed = np.zeros(self.task.n, dtype=bool)
        if view.shows("value"):
            is_informed = self.task.observed | (sources.recall > 0)
        elif view.shows_pings:
            is_informed = sources.recall > 0
        value = np.where(is_informed, view.value, content) if is_informed.any() else content
        return self.graded_at(value, time, sources), (time, content)

    def graded_at(self, value: FloatArray, time: FloatArray, sources: Sources) -> NDArray[Any]:
        """Return the priorities, (B, N), of contents (B, N) at steps since the start, (B,)."""
        ceiling = sources.ceiling * self._factor(time, sources)
        cost, decay = (
            np.broadcast_to(x, ceiling.shape) for x in (sources.cost, sources.decay_per_step)
        )
        failures = (sources.failure_rate, sources.delay) if sources.fails else ()
        index = ClosedForm(ceiling, cost, decay, *failures).index(value)
        multiplier = None if self._multiplier is None else self._multiplier(sources)
        return graded(index, multiplier)

    def _factor(self, time: FloatArray, sources: Sources) -> FloatArray:
        """Return the rates of the steps that begin at `time`, (B,), relative to Λ, (B, N)."""
        shape = (time.size, self.task.n)
        if self._cycle is None:
            return np.ones(shape)
        start = self._cycle.start(shape, sources.period, self.rng)
        return self._cycle.factor(start + time[:, None], sources.period)


class LagrangianPeriodic(WhittlePeriodic):
    """The gain of a crawl at the optimal multipliers, by a dynamic program over the time of day.

    `Lagrangian` for rates that have a known daily cycle: at the multipliers of
    `agents.theory.periodic`, one for each step of a day, every source has its best times of day,
    and the sources are crawled for which a crawl now is worth most over one later, per unit of
    cost. Making it takes half a second for 60 sources and a day of 24 steps, and needs SciPy.
    Contents are those of `WhittlePeriodic`. Crawl delays and hosts do not enter the gains.

    Raises:
        ValueError: a day is no whole number of steps; or as for `WhittlePeriodic`.
    """

    name = "lagrangian-periodic"

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        self._plan_of = PerFleet(self._plan)
        if self.task.draw is None:
            self._plan_of(self.task.sources)

    def graded_at(self, value: FloatArray, time: FloatArray, sources: Sources) -> NDArray[Any]:
        if sources.arrival_rate.ndim == 1:
            return self._graded(value, time, sources, self._plan_of(sources))
        priority = np.empty(value.shape, dtype=np.float32)
        for b in range(len(value)):
            fleet, row = sources.fleet(b), slice(b, b + 1)
            priority[row] = self._graded(value[row], time[row], fleet, self._plan_of(fleet, b))
        return priority

    def _graded(
        self, value: FloatArray, time: FloatArray, sources: Sources, plan: _Plan
    ) -> NDArray[Any]:
        inflow, relaxed = plan
        plain = simplified(sources)
        price, gains = relaxed.multiplier, np.empty(value.shape)
        day, value = time.astype(np.intp) % inflow.shape[1], np.ascontiguousarray(value)
        rates = inflow, plain.retention, plain.decay_per_step
        columns = price, plain.cost, relaxed.rate, relaxed.potential
        periodic_gains(value, day, *rates, *columns, gains)
        excess = gains / plain.cost
        scale = float(price.mean()) or float((plain.ceiling / plain.cost).max()) or 1.0
        excess += SLACK * price[day][:, None]
        return (excess / (np.abs(excess) + scale)).astype(np.float32)

    def _plan(self, sources: Sources) -> _Plan:
        fleet, budget = payable(sources, self.task)
        inflow = daily_inflow(self.task, fleet)
        if inflow is None:
            assert self._cycle is not None
            raise ValueError(
                f"agent {self.name!r} plans for each step of a day, and a day of "
                f"{self._cycle.day:g} is no whole number of periods of {sources.period:g}; use "
                "whittle-periodic, or another period"
            )
        return _Plan(inflow, periodic_relaxation(fleet, inflow, budget))
