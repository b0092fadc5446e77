"""The relaxed bound of every information set: no policy that observes as much can exceed it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from agents.theory.arm import Information, information, item_utility, utility_of
from agents.theory.checks import conditional_arm, is_saved
from agents.theory.deadline import deadline_bound
from agents.theory.looks import looks_relaxation
from agents.theory.observed import ObservedArm
from agents.theory.periodic import cycle_of, daily_inflow, periodic_relaxation
from agents.theory.regimes import regimes_of, regimes_relaxation
from agents.theory.relaxation import least_priced, relaxation
from agents.theory.renewal import simplified
from agents.theory.topics import conceded, topic_weights, weighted
from crawl_env import (
    Arrivals,
    Deadline,
    DiminishingReturns,
    Engine,
    Regimes,
    Sources,
    Stories,
    Task,
)
from crawl_env.content.utility import EqualUtilities
from crawl_env.numerics import BoolArray, FloatArray
from crawl_env.simulation.selection import affordable

_SLOW = 1e-6  # μT below which λ* may be many orders of magnitude below the largest index


class Bound(NamedTuple):
    """The largest long-run average reward of any policy, and the information set it holds for.

    name: of the information set: "deterministic", or with random arrivals "not observed",
        "signals", "partly observed", "partly observed, signals" or "observed". Bounds of different
        information sets are not comparable, since observing content, or its signals, raises the
        attainable reward. "cycle known" where rates have a daily cycle, for a crawler that knows
        it; "regimes known" where topics are hot or cold, for one that is told. "looks" where
        sources can be looked at. "unknown", with NaN as bound, where arrivals are recorded, their
        rates vary otherwise, or the decay of content that is observed, sends signals or is capped
        is not exponential; the multiplier is then that of the fleet with unobserved content,
        exponential decay and constant rates.
    """

    bound: float | FloatArray  # utility / step
    multiplier: float | FloatArray  # λ*, utility / budget unit: marginal value of the budget
    name: str


class EngineBound(Bound):
    """`Bound` of a task with an indexing engine, with κ*, the marginal value of a place in it.

    price: utility / item, a number or (B,) like the others. 0 where the rate of the engine does not
        bind.
    """

    price: float | FloatArray

    def __new__(
        cls,
        bound: float | FloatArray,
        multiplier: float | FloatArray,
        name: str,
        price: float | FloatArray = 0.0,
    ) -> EngineBound:
        instance = super().__new__(cls, bound, multiplier, name)
        instance.price = price
        return instance

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, price={self.price!r})"

    def _replace(self, **changes: Any) -> EngineBound:
        """Return the bound with some values replaced."""
        return EngineBound(**{**self._asdict(), "price": self.price, **changes})


def task_bound(task: Task, sources: Sources | None = None) -> Bound:
    """Return the relaxed bound of a task, for its fleet or for `sources`, (N,) or a batch (B, N).

    It is the minimum over λ ≥ 0 of λM + Σ (β(λ) − λC) over the sources that are observed or send
    signals + Σ max_k max(0, (x_k − λC)/k) over the others, where β − λC is the net reward of the
    arm in `agents.theory.observed`. Where content is observed or signalled the bound is too high by
    at most .1 % (see there); else the relaxation is solved exactly, under every decay function.
    With `budget_rule="step"`, sources that cost more than the budget are left out: they can never
    be crawled. Where content is observed or signalled, failures count as higher costs, and crawl
    delays, hosts, capacities and the delay of signals are ignored: the bound holds, but is not the
    sharpest. It increases with the recall and with the precision of signals, from the bound "not
    observed" to one below "observed".

    With an indexing engine the result is an `EngineBound`, which has the second multiplier: that of
    `agents.theory.engine.relaxation` where nothing is known of content before a crawl. Where
    content is observed or signalled it is the smaller of two bounds that hold, that without the
    engine, and that of a crawler that crawls everything in every step; it is not the sharpest. It
    holds for every buffer of the engine. Where an engine is first in, first out and refuses
    nothing, which items it indexes does not depend on their utilities, which nobody knows before
    they are indexed: the bound is then that of items worth ξ̄ each. If it has a small buffer and
    serves at random or a whole number of items, and sources are few, the bound is that of
    `agents.theory.engine.places`, if that is smaller; it takes one or two seconds for 100 sources.
    λ* and κ* are always those of an engine that may refuse items, for which κ* is the best
    threshold.

    With a deadline it is that of `agents.theory.deadline` where nothing is known of content before
    a crawl. Where content is observed or signalled it is the bound without the deadline, which
    holds, since items lose utility until then, but is loose. With diminishing returns per topic it
    is that of `agents.theory.topics`. With another payoff it is NaN, unless the payoff says that
    its reward never exceeds what is collected (`Payoff.at_most_collected`).

    Of rates with a daily cycle it is that of `agents.theory.periodic`, for a crawler that knows the
    cycle, under `budget_rule="step"` and where content is not observed; else NaN. Where topics are
    hot or cold it is that of `agents.theory.regimes`, for a crawler that is told their regimes,
    where content is not observed; else NaN. Where rates drift or jump it is NaN, and
    `agents.theory.episode` has the bound of the rates of a run.

    Where sources share stories it is that of `agents.theory.stories`, unless content is observed or
    there is another payoff as well: then stories count as different, which holds, but is loose.

    With looks it is that of `agents.theory.looks`, which takes a second for 100 sources. With an
    engine, another payoff or cheaper crawls as well, it is the bound if all content is observed for
    nothing: it holds, and is loose. If crawls that find nothing cost less, it is that of the arms
    in `agents.theory.checks` where nothing is known of content before a crawl, without failures,
    capacities, delays and hosts; where some content is observed or signalled, it is the bound if
    all of it is observed. Where the budget of a step covers no crawl after one that found nothing,
    it is the bound of crawls that all cost the same.

    Returns floats for a fleet, arrays (B,) for a batch.

    Raises:
        ValueError: some sources are observed or send signals, and arrivals are neither
            deterministic nor Poisson; there are too many different sources to solve; or fleets are
            drawn at each reset, and `sources` is None.

    >>> task = Task("fleet-f", budget=2, arrivals="poisson")
    >>> bound, _, name = task_bound(task)
    >>> round(bound, 2), name
    (8.14, 'observed')
    """
    if not isinstance(task, Task):
        raise ValueError(f"task is {task!r}; give a Task: crawl_env.task_of(env)")
    if sources is None and task.draws_anew:
        raise ValueError(
            "the environment draws a new fleet at each reset, and every fleet has a bound of its "
            "own; give it as `sources`, env.unwrapped.world.sources after env.reset(). A task of "
            'the benchmark has those of its runs: crawl_env.tasks()[id].references["bound"].rewards'
        )
    fleet = task.sources if sources is None else sources
    if task.look_cost is not None:
        return _with_looks(task, task.look_cost, fleet)
    if is_saved(task, fleet).any():
        if not information(task).is_informed:
            return _with_unchanged(task, fleet)
        task = _all_observed(task)
    if isinstance(task.payoff, Deadline) and not information(task).is_informed:
        return _of_each(fleet, _with_deadline, task, task.payoff.steps)
    if isinstance(task.arrivals, Stories) and _is_shared(task) and task.payoff is None:
        return _of_each(fleet, _with_stories, task, task.arrivals)
    if isinstance(task.payoff, DiminishingReturns):
        return _of_each(fleet, _with_topics, task, task.payoff.limit)
    plain = task.payoff is None and task.engine is None
    if plain and cycle_of(task) is not None:
        return _of_each(fleet, _with_cycle, task)
    law = regimes_of(task)
    if plain and law is not None and _is_mean_content(task, fleet):
        return _of_each(fleet, _with_regimes, task, law)
    if task.payoff is not None and not task.payoff.at_most_collected:
        fallback = _without_engine(task, fleet)
        return Bound(np.nan * fallback.bound, fallback.multiplier, Information.UNKNOWN.value)
    if task.engine is None:
        return _without_engine(task, fleet)
    return _of_each(fleet, _with_engine, task)


def _of_each(fleet: Sources, bound: Callable[..., Bound], *arguments: Any) -> Bound:
    """Return the bound of a fleet, (N,), or of each fleet of a batch, (B, N), as a function of
    `arguments` and a fleet, (N,)."""
    if fleet.cost.ndim == 1:
        return bound(*arguments, fleet)
    rows = [bound(*arguments, fleet.fleet(b)) for b in range(len(fleet.cost))]
    bounds, multipliers = (np.array([row[k] for row in rows]) for k in (0, 1))
    if isinstance(rows[0], EngineBound):
        prices = np.array([row.price for row in rows if isinstance(row, EngineBound)])
        return EngineBound(bounds, multipliers, rows[0].name, prices)
    return Bound(bounds, multipliers, rows[0].name)


def _with_looks(task: Task, cost: float, fleet: Sources) -> Bound:
    observed_task = _all_observed(task)
    more = task.unchanged_cost is not None or task.payoff is not None or task.engine is not None
    if more or information(observed_task) is not Information.OBSERVED:
        return task_bound(observed_task, fleet)

    def bound(fleet: Sources) -> Bound:
        live = _is_payable(task, fleet)
        costs = np.where(task.observed, 0.0, cost)[live]
        solution = looks_relaxation(fleet.select(live), task.budget, costs, utility_of(task))
        return Bound(*solution, "looks")

    return _of_each(fleet, bound)


def _all_observed(task: Task) -> Task:
    """Return the task in which all content is observed for nothing. Nobody there looks, or crawls
    what is empty."""
    with warnings.catch_warnings():  # that what crawls leave of the budget is lost
        warnings.simplefilter("ignore")
        return task.replaced(look_cost=None, unchanged_cost=None, observed=True)


def _with_unchanged(task: Task, fleet: Sources) -> Bound:
    live = _payable(task, fleet) if fleet.cost.ndim == 1 else fleet
    arm = conditional_arm(task, live)
    bound, multiplier = least_priced(arm.net_reward, arm.max_multiplier(), task.budget)
    knowledge = information(task)
    if knowledge is Information.UNKNOWN or task.payoff is not None or task.engine is not None:
        return Bound(np.nan * bound, multiplier, Information.UNKNOWN.value)
    return Bound(bound, multiplier, knowledge.value)


def _with_deadline(task: Task, steps: int, fleet: Sources) -> Bound:
    live = _payable(task, fleet)
    bound, multiplier = deadline_bound(live, task.budget, steps, task.budget_rule)
    knowledge = information(task)
    return Bound(np.nan if knowledge is Information.UNKNOWN else bound, multiplier, knowledge.value)


def _with_cycle(task: Task, fleet: Sources) -> Bound:
    fallback, inflow = _without_engine(task, fleet), daily_inflow(task, fleet)
    if inflow is None or not _is_mean_content(task, fleet) or task.budget_rule != "step":
        return fallback
    live = affordable(fleet.cost, task.budget)
    solution = periodic_relaxation(fleet.select(live), inflow[live], task.budget)
    return Bound(solution.bound, float(solution.multiplier.mean()), "cycle known")


def _with_regimes(task: Task, law: Regimes, fleet: Sources) -> Bound:
    return Bound(*regimes_relaxation(_payable(task, fleet), task.budget, law), "regimes known")


def _is_mean_content(task: Task, fleet: Sources) -> bool:
    """Return whether a crawler that knows the rates knows the mean content of every source and
    nothing more before a crawl, and content decays exponentially."""
    is_informed = (task.observed | (fleet.recall > 0)).any()
    return task.arrivals.exponential and not bool(is_informed)


def _is_shared(task: Task) -> bool:
    """Return whether sources share stories, none of which is observed."""
    together = np.bincount(task.sources.topic_of).max() > 1
    return bool(together) and not information(task).is_informed


def _with_stories(task: Task, stories: Stories, fleet: Sources) -> Bound:
    from agents.theory.stories import stories_bound  # needs SciPy

    solution = stories_bound(fleet, task.budget, stories, task.budget_rule)
    return Bound(*solution, information(task).value)


def _with_topics(task: Task, limit: float, fleet: Sources) -> Bound:
    weights = topic_weights(fleet, task.budget, limit)
    solution = _without_engine(task, weighted(fleet, weights))
    return solution._replace(bound=solution.bound + conceded(weights, limit))


def _payable(task: Task, fleet: Sources) -> Sources:
    """Return the sources of a fleet (N,) that can ever be crawled."""
    return fleet.select(_is_payable(task, fleet))


def _is_payable(task: Task, fleet: Sources) -> BoolArray:
    """Return which sources can ever be crawled, (N,), or (B, N) for a batch."""
    if task.budget_rule != "step":
        return np.ones(fleet.cost.shape, dtype=np.bool_)
    return affordable(fleet.cost, task.budget)


def _with_engine(task: Task, fleet: Sources) -> EngineBound:
    from agents.theory.engine.places import has_places, places_bound  # these need SciPy
    from agents.theory.engine.relaxation import engine_relaxation

    engine = task.engine
    assert engine is not None
    knowledge = information(task)
    live = _payable(task, fleet)
    utility, decay = item_utility(task), task.arrivals.decay
    if not knowledge.is_informed:
        resources = task.budget, engine.rate
        solution = engine_relaxation(live, *resources, utility, decay, task.per_host)
        bound = np.nan if knowledge is Information.UNKNOWN else solution.bound
        if _is_blind(engine) and isinstance(task.arrivals, Arrivals):
            equal = engine_relaxation(live, *resources, EqualUtilities(), decay, task.per_host)
            bound = np.minimum(bound, equal.bound)  # or NaN
        poisson = isinstance(task.arrivals, Arrivals) and task.arrivals.exponential
        if knowledge is Information.UNOBSERVED and poisson and has_places(live, engine):
            bound = min(bound, places_bound(live, task.budget, engine, utility))
        return EngineBound(bound, solution.multiplier, knowledge.value, solution.price)
    free = _without_engine(task, fleet)
    everything = max(task.budget, float(live.cost.sum()))
    unlimited = engine_relaxation(live, everything, engine.rate, utility, decay)
    if unlimited.bound < free.bound:
        return EngineBound(unlimited.bound, unlimited.multiplier, free.name, unlimited.price)
    return EngineBound(*free)


def _is_blind(engine: Engine) -> bool:
    """Return whether which items an engine indexes, and when, does not depend on their utility."""
    return engine.discipline == "fifo" and engine.threshold == 0.0


def _without_engine(task: Task, fleet: Sources) -> Bound:
    payable, knowledge = _is_payable(task, fleet), information(task)
    if not knowledge.is_informed:
        # A mask would make a batch ragged; its bound is less sharp where costs exceed the budget.
        live = fleet.select(payable) if fleet.cost.ndim == 1 else fleet
        if knowledge is Information.UNKNOWN:
            solution = relaxation(live, task.budget, task.per_host)
            return Bound(np.nan, solution.multiplier, knowledge.value)
        return Bound(
            *relaxation(live, task.budget, task.per_host, task.arrivals.decay), knowledge.value
        )
    fleet = simplified(fleet.replaced(capacity=np.inf))
    arms = ObservedArm(fleet, task.observed & payable, utility_of(task))

    def net_reward(multiplier: FloatArray) -> FloatArray:
        return np.where(payable, arms.net_reward(multiplier), 0.0)

    high, negligible = arms.max_multiplier(), np.zeros(1)
    if fleet.decay_per_step.min() < _SLOW:
        free = net_reward(np.zeros_like(high)).sum(axis=-1, keepdims=True)
        negligible = 1e-17 * free / task.budget
    return Bound(*least_priced(net_reward, high, task.budget, negligible), knowledge.value)
