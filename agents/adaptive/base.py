"""The base class of the agents that estimate the parameters of the sources while they crawl."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.inference import make_estimator
from agents.inference.answers import Answers
from agents.inference.content import from_utility
from agents.inference.pings import Quality, SignalQuality
from agents.inference.rates import (
    MOST_ITEMS,
    CrawlOutcome,
    Estimator,
    Posterior,
    copy_to_change,
)
from agents.policies.base import (
    Agent,
    Environment,
    ObservationView,
    State,
    graded,
    margin,
    needs,
)
from agents.theory.closed_form import age_index, decayed, remainder_ratio, theorem_1
from crawl_env import NEVER, ArrivalProcess, Sources, Task
from crawl_env.compiled import compiled
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.numerics import BoolArray, FloatArray, IntArray

NUMBER = ("items", "harvest_number")  # features with the number of items of a crawl
_COUNTED = (*NUMBER, "harvest")  # features with this number, or the utility that implies it
_REVEALED = ("changed", *_COUNTED)  # features that indicate whether a crawl found anything
LEAST = 1e-12  # lower bound of items / step and of decay / step, to avoid divisions by zero


def task_of_estimates(
    task: Task, arrivals: str | ArrivalProcess, features: tuple[str, ...]
) -> Task:
    """Return the task that a policy sees which is told estimates of the sources: its features, and
    `PARAMETERS` after them. Content is not observed."""
    fleet = task.sources
    sources = Sources(
        np.ones(task.n), 1.0, 1.0, fleet.cost, period=fleet.period, topics=fleet.topics
    )
    return Task(
        lambda rng: sources,
        task.budget,
        budget_rule=task.budget_rule,
        arrivals=arrivals,
        observed=False,
        engine=task.engine,
        features=(*features, *PARAMETERS),
    )


@dataclass(frozen=True, eq=False)
class KnownParameters:
    """The known part of a task, the only part of it that these agents use."""

    period: float  # T
    budget: float  # M, budget units / step
    average: bool  # whether the budget is a token bucket
    observed: NDArray[np.bool_]  # (N,) whether the value of a source is observed
    parameters: Mapping[str, FloatArray]  # (N,) each: the known parameters of a constant fleet
    cost: FloatArray  # (N,) budget units / crawl; if fleets are drawn at reset, of an example

    @staticmethod
    def of(task: Task, parameters: Sequence[str]) -> KnownParameters:
        """Return the known part of a task, including these parameters of its fleet."""
        fleet, average = task.sources, task.budget_rule == "average"
        constant = parameters if task.draw is None else ()
        known = {name: getattr(fleet, name) for name in constant}
        return KnownParameters(fleet.period, task.budget, average, task.observed, known, fleet.cost)

    @cached_property
    def affordable(self) -> float:
        """The number of sources of mean cost that the budget of one step covers."""
        return float(self.budget / self.cost.mean())

    @cached_property
    def round(self) -> int:
        """The number of steps in which the budget covers every source once, at least 1."""
        return max(1, int(np.ceil(self.cost.sum() / self.budget)))


class UnitArms:
    """Sources of arrival rate 1: the index at rate Λ is Λ times theirs.

    Arguments:
        mean_utility: (N,) or (B, N) utility.
        decay_rate: of the same shape, 1 / time.
        cost: (N,) or (B, N) budget units.
        period: T.
    """

    def __init__(
        self, mean_utility: FloatArray, decay_rate: FloatArray, cost: FloatArray, period: float
    ) -> None:
        self.mean_utility, self.decay_rate = mean_utility, decay_rate
        self._cost, self._period = cost, period

    @cached_property
    def _table(self) -> FloatArray:
        """u* at rate 1, cost, μT, g(μT)/μT, and u*/C, (5, N) or (5, B·N)."""
        decay, ceiling = self.decay_rate * self._period, self.mean_utility / self.decay_rate
        rows = (ceiling, self._cost, decay, remainder_ratio(decay), ceiling / self._cost)
        return np.array([np.broadcast_to(row, decay.shape).reshape(-1) for row in rows])

    def index_at_age(self, rate: FloatArray, age: FloatArray) -> FloatArray:
        """Return the Whittle index at rates, (B, N), and whole ages, (B, N)."""
        out = np.empty(age.shape)
        _index_at_age(rate.reshape(-1), age.reshape(-1), self._table, out.reshape(-1))
        return out

    def index_at_age_once(self, rate: FloatArray, age: FloatArray) -> FloatArray:
        """Return the same of arms, (B, N), whose index is needed only once."""
        out = np.empty(age.shape)
        cost = np.broadcast_to(self._cost, age.shape)
        for row in range(len(out)):
            arms = self.mean_utility[row], self.decay_rate[row], cost[row]
            _index_of_new_arms(rate[row], age[row], *arms, self._period, out[row])
        return out

    def index_at(
        self, rate: FloatArray, age: FloatArray, value: FloatArray, observed: BoolArray
    ) -> FloatArray:
        """Return the Whittle index at rates, (B, N), of the value if a source is `observed`, (N,),
        and otherwise of the mean content at its age; both (B, N)."""
        out, table = np.empty(age.shape), self._table
        is_observed = np.zeros(table.shape[1])
        is_observed.reshape(-1, observed.size)[:] = observed
        flat = [array.reshape(-1) for array in (rate, age, value, out)]
        _index_at_content(flat[0], flat[1], flat[2], is_observed, table, flat[3])
        return out

    @property
    def decay_per_step(self) -> FloatArray:
        """μT, (N,) or (B·N,)."""
        row: FloatArray = self._table[2]
        return row

    def belief(
        self, quality: Quality, age: FloatArray, number: FloatArray, aged: FloatArray
    ) -> FloatArray:
        """Return the expected content, (B, N) utility, given the pings since the last crawl.

        Arguments:
            quality: of the signals, (B, N).
            age: (B, N) steps.
            number: of the pings, (B, N); negative if they are not known.
            aged: their sum discounted by age, (B, N).
        """
        out = np.empty(age.shape)
        arrays = np.array((*quality, age, number, aged)).reshape(6, -1)
        _belief(arrays, self._table, self._period, out.reshape(-1))
        return out


class Pings(NamedTuple):
    """The pings since the last crawl of each source, (B, N)."""

    number: FloatArray  # −1 if it is not known
    aged: FloatArray  # their sum discounted by age

    @classmethod
    def none(cls, age: FloatArray) -> Pings:
        """Return those before the first step, at ages (B, N): known of what was just crawled."""
        return cls(np.where(age > 0, -1.0, 0.0), np.zeros(age.shape))

    def counting(self, arrived: FloatArray, decay: FloatArray, crawled: BoolArray) -> Pings:
        """Return the pings after a step.

        Arguments:
            arrived: (B, N), as of `arrived_pings`.
            decay: μT, of one fleet, (N,), or of all, (B, N) or (B·N,).
            crawled: (B, N), whether a source was crawled in the last step.
        """
        after = Pings(self.number.copy(), self.aged.copy())
        number, aged = (array.reshape(-1) for array in after)
        _count_pings(arrived.reshape(-1), decay.reshape(-1), crawled.reshape(-1), number, aged)
        return after


def arrived_pings(view: ObservationView) -> FloatArray:
    """Return the number of pings in the last step, (B, N); impossible numbers count as 0."""
    pings = view["pings"]
    return np.where((pings >= 0) & (pings < MOST_ITEMS), pings, 0.0)


class RateDraws(NamedTuple):
    """Arrival rates drawn from their posteriors, (B, N) items / time."""

    rate: FloatArray


class Memory(NamedTuple):
    """The recurrent state of an adaptive agent."""

    clock: FloatArray  # (B, 1) steps
    multiplier: FloatArray  # (B, 1) λ, utility / budget unit; NaN before the first update
    age: FloatArray  # (B, N) steps since the last crawl
    pings: Pings | tuple[()]  # () if they are not used
    plan: State  # of `plan`
    rates: State  # of the estimator of the arrival rates
    answers: Answers | tuple[()]  # () if failures are not observed


class PlanningModel(NamedTuple):
    """The fleet whose index an agent uses in one step."""

    rate: FloatArray  # (B, N) items / time
    arms: UnitArms
    state: State  # of `plan`, for the next step
    quality: Quality | None = None  # of the signals, (B, N), if the agent learns it


class Adaptive(Agent):
    """Base class of the adaptive agents; a subclass implements `plan`.

    The arrival rates Λ are estimated; μ and ξ̄ are known, except in `SelfTuning`. Sources of finite
    capacity are treated like all others. Where crawls can fail and `failed` is among the features,
    the index is multiplied by the probability that the source answers (`agents.inference.answers`),
    since a successful crawl costs C/q on average; without it, sources that fail seem old and full.

    If there are signals and `pings` is among the features, the quality of the signals is learnt,
    too: the silent rate Λ_s, the precision p and the ping rate g of every source (`SignalQuality`),
    of which only the pings and the results of crawls tell. The index is that of Theorem 1 at the
    belief

        x = Λ_s ξ̄ (1 − e^{−μτ})/μ + p ξ̄ Σ e^{−μ·age}

    a time τ after the crawl, with the sum over the pings since then, and with Λ = Λ_s + pg. The age
    of a ping is known up to a step, over which the exponential is averaged. Before the first crawl
    of a source that was not crawled just before the start, its pings are not known, and
    x = Λξ̄(1 − e^{−μτ})/μ. The mean delay of signals is not estimated; see `SignalQuality`.

    Under `budget_rule="average"` the Lagrange multiplier λ is learnt, too: it increases if the
    sources whose index exceeds it cost more than M, and decreases otherwise, with decreasing step
    sizes (stochastic approximation).

    Arguments:
        env: an environment, a vector environment, or a `Task`.
        seed: seed of the random draws.
        estimator: estimator of the arrival rates: an object, or one of
            `agents.inference.ESTIMATORS`. Estimators that count use the number of items if it is
            among the features, and otherwise the number inferred from the harvest
            (`from_utility`). Default "signals" if there are signals and `pings` is among the
            features; otherwise "gamma-poisson", or "changed" if `changed` is the only feature. All
            others than "signals" ignore pings.

    Raises:
        ValueError: the features lack `crawled`, or the results of crawls (`items` or `harvest`;
            `changed` suffices for estimators that do not count); or fleets are drawn at reset and
            the features lack their parameters.
    """

    features: tuple[str, ...] = ("age", "crawled", "harvest")
    _where_signalled: ClassVar[tuple[str, ...]] = ("items", "pings")  # features in addition
    parameters: ClassVar[tuple[str, ...]] = ("mean_utility", "decay_rate", "cost")  # known ones

    @classmethod
    def features_in(cls, task: Task) -> tuple[str, ...]:
        signalled = cls._where_signalled if task.sources.is_signalled else ()
        return (*cls.features, *signalled, *(("failed",) * task.sources.fails))

    def __init__(
        self,
        env: Environment,
        *,
        seed: int | None = None,
        estimator: Estimator | str | None = None,
    ) -> None:
        super().__init__(env, seed=seed)
        task = self.task
        needs(task, self.name, "crawled")
        needs(task, self.name, *_REVEALED)
        for name in self.parameters if task.draw is not None else ():
            needs(task, self.name, name)
        self.known = KnownParameters.of(task, self.parameters)
        self.estimator = self._estimator(estimator or self._default)
        if isinstance(self.estimator, SignalQuality) and self.estimator.counts:
            needs(task, f"{self.name} with counts", *NUMBER)
        elif self.estimator.counts:
            needs(task, self.name, *_COUNTED)
        self._arms: UnitArms | None = None

    @property
    def _default(self) -> str:
        """The name of the estimator that is used if none is given."""
        if self.task.sources.is_signalled and "pings" in self.task.features:
            return "signals"
        return "gamma-poisson" if set(_COUNTED) & set(self.task.features) else "changed"

    def _estimator(self, estimator: Estimator | str) -> Estimator:
        if estimator != "signals":
            return make_estimator(estimator, self.known.period)
        counts = bool(set(NUMBER) & set(self.task.features))
        return make_estimator(estimator, self.known.period, counts=counts)

    def plan(
        self, view: ObservationView, rates: State, fresh: IntArray, state: State
    ) -> PlanningModel:
        """Return the fleet whose index is used in this step.

        Arguments:
            rates: state of the estimator of the arrival rates.
            fresh: (K,), flat positions in (B, N) of the sources whose model may be redrawn: those
                crawled in the last step, and every source once per round, in which the budget
                covers each source once.
            state: the state returned by `begin_plan`, `update_plan` or the previous `plan`.
        """
        raise NotImplementedError

    def begin_plan(self, shape: tuple[int, int]) -> State:
        """Return the state of `plan` at the first step, for (B, N) sources."""
        return ()

    def update_plan(self, view: ObservationView, outcome: CrawlOutcome, state: State) -> State:
        """Return the state of `plan` after the outcome of a step."""
        return state

    def posterior(self, state: State | None) -> Posterior:
        """Return the posterior of the arrival rates.

        Arguments:
            state: as returned by `predict`, for (B, N) rates; None for the prior, (N,) or scalar.
        """
        if state is None:
            return self.estimator.posterior(self.estimator.begin((self.task.n,)))
        return self.estimator.posterior(Memory(*state).rates)

    def quality(self, state: State | None) -> Quality:
        """Return the posterior means of the quality of the signals.

        Arguments:
            state: as for `posterior`.

        Raises:
            ValueError: the estimator does not use signals.
        """
        estimator = self.estimator
        if not isinstance(estimator, SignalQuality):
            raise ValueError(
                f"agent {self.name!r} has the estimator {type(estimator).__name__}, which ignores "
                "signals; add pings to `features`, and give estimator='signals' or none"
            )
        if state is None:
            return estimator.quality(estimator.begin((self.task.n,)))
        return estimator.quality(Memory(*state).rates)

    def begin(self, view: ObservationView) -> Memory:
        shape = (view.batch, self.task.n)
        age = (view["age"] if view.shows("age") else np.ones(shape)) - 1.0
        uses_pings = isinstance(self.estimator, SignalQuality) and view.shows("pings")
        return Memory(
            clock=np.zeros((view.batch, 1)),
            multiplier=np.full((view.batch, 1), np.nan),
            age=age,
            pings=Pings.none(age) if uses_pings else (),
            plan=self.begin_plan(shape),
            rates=self.estimator.begin(shape),
            answers=Answers.none(shape) if view.shows("failed") else (),
        )

    def decide(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        memory = Memory(*state)
        crawled, age = crawled_and_age(view, memory.age)
        outcome = self._outcome(view, np.flatnonzero(crawled), memory)
        rates = self.estimator.update(memory.rates, outcome)
        plan = self.update_plan(view, outcome, memory.plan)
        fresh = crawled.copy()
        for row, now in enumerate(memory.clock[:, 0].tolist()):  # the others' turn to be fresh
            first, every = (now % self.known.round, self.known.round) if now else (0, 1)
            fresh[row, int(first) :: every] = True
        model = self.plan(view, rates, np.flatnonzero(fresh), plan)
        pings = memory.pings
        if pings:
            decay = model.arms.decay_per_step
            pings = Pings(*pings).counting(arrived_pings(view), decay, crawled)
        index = self._index(view, age, model, pings)
        answers = memory.answers and memory.answers.counting(crawled, view["failed"])
        if answers:
            index = index * answers.probability()
        level, multiplier = None, memory.multiplier
        if self.known.average:
            cost = self._parameter(view, "cost")
            level, multiplier = next_multiplier(index, cost, self.known, multiplier, memory.clock)
            multiplier = np.where(self.has_unit(model.state), multiplier, np.nan)
        after = Memory(memory.clock + 1.0, multiplier, age, pings, model.state, rates, answers)
        return graded(index, level), after

    def has_unit(self, state: State) -> NDArray[np.bool_] | bool:
        """Return whether the unit of utility is known, (B, 1), given the state of `plan`.

        The multiplier has this unit, and is not updated before.
        """
        return True

    def _outcome(self, view: ObservationView, cells: IntArray, memory: Memory) -> CrawlOutcome:
        """Return the outcome of the last step's crawls of some cells, (K,), given the state before
        them."""
        before = memory.age.reshape(-1)[cells]
        has_gap = before < NEVER  # a first crawl has no known gap
        if not has_gap.all():
            cells, before = cells[has_gap], before[has_gap]
        name = next((name for name in NUMBER if view.shows(name)), None)
        changed = self._at(view, next(n for n in _REVEALED if view.shows(n)), cells) > 0
        items = np.zeros(cells.size) if name is None else self._at(view, name, cells)
        period = self.known.period
        signals: tuple[FloatArray, ...] = ()
        if memory.pings:
            signals = memory.pings[0].reshape(-1)[cells], arrived_pings(view)
        gaps = before * period
        outcome = CrawlOutcome.at(memory.age.shape, cells, gaps, items, changed, period, *signals)
        if name is None and self.estimator.counts:
            return self._inferred(view, outcome)
        return outcome

    def _at(self, view: ObservationView, feature: str, cells: IntArray) -> FloatArray:
        """Return a feature of some sources, (K,), given by their flat positions in (B, N)."""
        return view.column(feature)[cells].astype(np.float64)

    def _inferred(self, view: ObservationView, outcome: CrawlOutcome) -> CrawlOutcome:
        """Return the outcome with the numbers of items inferred from their utility."""
        arms, harvest = self._unit_arms(view), self._at(view, "harvest", outcome.cells)
        return from_utility(outcome, harvest, arms.mean_utility, arms.decay_rate)

    def begin_draws(self, shape: tuple[int, int]) -> RateDraws | Quality:
        """Return arrays, (B, N), for draws: of the rates, or if signals are used of `Quality`."""
        kind = Quality if isinstance(self.estimator, SignalQuality) else RateDraws
        return kind(*(np.zeros(shape) for _ in kind._fields))

    def redrawn(self, before: State, rates: State, fresh: IntArray) -> RateDraws | Quality:
        """Return arrays as of `begin_draws`, of which the entries at flat positions, (K,), are
        drawn from their posteriors, given the state of their estimator."""
        arrays, estimator = [copy_to_change(array, fresh) for array in before], self.estimator
        if not isinstance(estimator, SignalQuality):
            arrays[0].reshape(-1)[fresh] = estimator.posterior(rates, fresh).draw(self.rng)
            return RateDraws(*arrays)
        for array, draw in zip(arrays, estimator.draw(rates, fresh, self.rng), strict=True):
            array.reshape(-1)[fresh] = draw
        return Quality(*arrays)

    def _unit_arms(self, view: ObservationView) -> UnitArms:
        """Return the known parameters, (N,) or (B, N), at rate 1."""
        if self._arms is None or self.task.draw is not None:
            utility, decay, cost = (self._parameter(view, name) for name in self.parameters)
            self._arms = UnitArms(utility, decay, cost, self.known.period)
        return self._arms

    def _parameter(self, view: ObservationView, name: str) -> FloatArray:
        """Return a known parameter, (N,), or (B, N) if fleets are drawn at reset."""
        constant = self.known.parameters
        return constant[name] if name in constant else view[name]

    def _index(
        self, view: ObservationView, age: FloatArray, model: PlanningModel, pings: State
    ) -> FloatArray:
        """Return the Whittle index, (B, N); at rate Λ it is Λ times that at rate 1.

        Arguments:
            pings: `Pings` after the last step; () if they are not used.
        """
        rate, arms = np.maximum(model.rate, LEAST / self.known.period), model.arms
        content = view.content
        if pings and model.quality is not None:
            belief = arms.belief(model.quality, age, *pings)
            observed = self.known.observed
            if content is not None:
                belief = np.where(observed, content, belief)
            return arms.index_at(rate, age, belief, np.ones_like(observed))
        if content is not None:
            return arms.index_at(rate, age, content, self.known.observed)
        if (age == np.floor(age)).all():
            once = arms is not self._arms
            return arms.index_at_age_once(rate, age) if once else arms.index_at_age(rate, age)
        return arms.index_at(rate, age, age, np.zeros(1, dtype=bool))


def next_multiplier(
    index: FloatArray,
    cost: FloatArray,
    parameters: KnownParameters,
    multiplier: FloatArray,
    clock: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the multiplier λ now and in the next step, (B, 1) utility / budget unit.

    Arguments:
        index: (B, N) utility / budget unit.
        cost: (N,) or (B, N) budget units / crawl.
        multiplier: of the last call; NaN before the first.
        clock: (B, 1) steps.
    """
    budget = parameters.budget
    enough = budget >= cost.sum(axis=-1, keepdims=True)  # all sources fit: λ = 0
    multiplier = np.where(np.isnan(multiplier), margin(index, parameters.affordable), multiplier)
    spending = ((index >= multiplier) * cost).sum(axis=-1, keepdims=True)
    step = 0.5 * (1.0 + clock / 10.0) ** -0.6
    # In units in which a single crawl is not clipped, however small the budget, to avoid bias.
    scale = budget + cost.max(axis=-1, keepdims=True)
    surplus = np.clip((spending - budget) / scale, -1.0, 1.0)
    return np.where(enough, 0.0, multiplier), multiplier * np.exp(step * surplus)


def crawled_and_age(view: ObservationView, before: FloatArray) -> tuple[BoolArray, FloatArray]:
    """Return whether each source was crawled in the last step, and its age now, (B, N) each;
    `before` is the age before the crawls."""
    crawled = view["crawled"] > 0
    return crawled, view["age"] if view.shows("age") else np.where(crawled, 1.0, before + 1.0)


@compiled
def _index_at_age(rate: FloatArray, age: FloatArray, table: FloatArray, out: FloatArray) -> None:
    n = table.shape[1]
    for start in range(0, out.size, n):  # each fleet by a loop over slices, which is vectorised
        here = slice(start, start + n)
        _of_fleet_at_age(rate[here], age[here], table, out[here])


@compiled
def _of_fleet_at_age(rate: FloatArray, age: FloatArray, table: FloatArray, out: FloatArray) -> None:
    for i in range(out.size):
        out[i] = rate[i] * age_index(age[i], table[2, i], table[3, i], table[4, i])


@compiled
def _index_of_new_arms(
    rate: FloatArray,
    age: FloatArray,
    mean_utility: FloatArray,
    decay_rate: FloatArray,
    cost: FloatArray,
    period: float,
    out: FloatArray,
) -> None:
    for i in range(out.size):
        decay = decay_rate[i] * period
        full = mean_utility[i] / (decay_rate[i] * cost[i])
        out[i] = rate[i] * age_index(age[i], decay, decayed(decay)[1], full)


@compiled
def _index_at_content(
    rate: FloatArray,
    age: FloatArray,
    value: FloatArray,
    observed: FloatArray,
    table: FloatArray,
    out: FloatArray,
) -> None:
    n = table.shape[1]
    for start in range(0, out.size, n):
        here = slice(start, start + n)
        _content(age[here], table, out[here])
        _of_fleet_at_content(rate[here], value[here], observed, table, out[here])


@compiled
def _content(age: FloatArray, table: FloatArray, out: FloatArray) -> None:
    for i in range(out.size):
        aged = table[2, i] * age[i]
        out[i] = table[0, i] * min(aged * (1.0 - decayed(aged)[1]), 1.0)


@compiled
def _of_fleet_at_content(
    rate: FloatArray, value: FloatArray, observed: FloatArray, table: FloatArray, out: FloatArray
) -> None:
    for i in range(out.size):
        x = value[i] / rate[i] if observed[i] > 0 else out[i]
        out[i] = rate[i] * theorem_1(x, table[0, i], table[1, i], table[2, i], table[3, i])


@compiled
def _count_pings(
    pings: FloatArray,
    decay: FloatArray,
    crawled: BoolArray,
    number: FloatArray,
    aged: FloatArray,
) -> None:
    """Add the pings of one step to those since the last crawl; `decay` is μT, of one fleet or of
    all."""
    for i in range(number.size):
        survival, bend = decayed(decay[i % decay.size])
        before = 0.0 if crawled[i] else number[i]
        number[i] = before + pings[i] if before >= 0.0 else before
        aged[i] = (0.0 if crawled[i] else survival * aged[i]) + pings[i] * (1.0 - bend)


@compiled
def _belief(rows: FloatArray, table: FloatArray, period: float, out: FloatArray) -> None:
    rate, silent, precision = rows[0], rows[1], rows[2]
    age, number, aged = rows[3], rows[4], rows[5]
    for i in range(out.size):
        j = i % table.shape[1]
        ceiling, decay = table[0, j], table[2, j]
        full = ceiling * (1.0 - decayed(decay * age[i])[0])
        announced = precision[i] * ceiling * (decay / period) * aged[i]
        out[i] = silent[i] * full + announced if number[i] >= 0.0 else rate[i] * full
