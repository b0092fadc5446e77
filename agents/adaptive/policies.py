"""Agents that crawl while they learn how much each source publishes.

They know what a crawler knows (`Knowledge`): T, M, what crawls cost, and what their own brought.
Each epoch they crawl by the Whittle index of a fleet supposed from what they learnt so far. Where
content is not seen it is the index at the source's age, with u* = Λ̂ξ̄/μ. A source never crawled has
the prior.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.adaptive.evidence import Estimator, Evidence, Posterior, State
from agents.adaptive.harvests import Harvests, from_utility
from agents.adaptive.item_sums import HarvestSums
from agents.adaptive.names import make_estimator
from agents.policies.base import Agent, Environment, ObservationView, needs
from agents.policies.index import graded, margin
from agents.theory.index import index_at_age, whittle_index
from crawl_env import NEVER, Sources, Task, task_of
from crawl_env.numerics import FloatArray

_ITEMS = ("items", "harvest_number")  # what tells how many items a crawl brought
_COUNTED = (*_ITEMS, "harvest")  # … or what they are worth
_BROUGHT = ("changed", *_COUNTED)  # what tells whether it brought anything
_LEAST = 1e-12  # items / time of a supposed source: none, but no division by zero


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What a crawler knows of its task, and all that these agents read of it."""

    period: float  # T
    budget: float  # M, budget units / epoch
    average: bool  # whether the budget holds on average
    observed: NDArray[np.bool_]  # (N,) which sources show their value
    parameters: Mapping[str, FloatArray]  # (N,) each: the known ones of a constant fleet
    cost: FloatArray  # (N,) budget units / crawl; of fleets drawn anew, typical ones

    @staticmethod
    def of(task: Task, parameters: Sequence[str]) -> Knowledge:
        fleet, average = task.sources, task.budget_rule == "average"
        constant = parameters if task.draw is None else ()
        known = {name: getattr(fleet, name) for name in constant}
        return Knowledge(fleet.period, task.budget, average, task.observed, known, fleet.cost)

    @property
    def affordable(self) -> float:
        """About how many sources the budget of one epoch pays for."""
        return float(self.budget / self.cost.mean())

    @property
    def cycle(self) -> int:
        """Epochs in which the budget pays for every source once, at least 1."""
        return max(1, int(np.ceil(self.cost.sum() / self.budget)))


def at_rate_one(fleet: Sources) -> Sources:
    """Return a fleet as if all its rates were 1: the index of rate Λ is Λ times that of rate 1."""
    columns = (fleet.mean_utility, fleet.decay_rate, fleet.cost)
    return Sources(np.ones_like(fleet.cost), *columns, period=fleet.period)


class Supposed(NamedTuple):
    """A fleet to crawl by, in one epoch."""

    rate: FloatArray  # (B, N) items / time
    others: Sources  # of rate 1 and with all other parameters, (N,) or (B, N)
    memory: State  # what the agent remembers of it


class Adaptive(Agent):
    """Base of the adaptive agents; subclasses give `suppose`.

    The arrival rates Λ are learnt; μ and ξ̄ are known, but for `SelfTuning`. Failed crawls tell
    nothing. A source that shows only its last items is taken for one that shows all.

    Under `budget_rule="average"` the charge λ is learnt too: it rises while more than M is worth
    its charge, and falls otherwise, by steps that shrink (stochastic approximation).

    Arguments:
        estimator: of the rates, or the name of one (`agents.adaptive.names`). One that counts is
            given the items where they are shown; where they are not, what the harvest is worth in
            items (`from_utility`). Default "gamma-poisson", or "changed" where only `changed` is
            shown.

    Raises:
        ValueError: the environment does not show `crawled`, or what crawls brought (`items` or
            `harvest`; `changed` is enough for estimators that do not count); it draws fleets anew
            and does not show their parameters.
    """

    # Not `items`: content that is counted is drawn otherwise, so that agents that are shown the
    # count would not meet what the others meet.
    features: tuple[str, ...] = ("age", "crawled", "harvest")
    parameters: tuple[str, ...] = ("mean_utility", "decay_rate", "cost")  # known ones

    def __init__(
        self, env: Environment, *, seed: int | None = None, estimator: Estimator | str | None = None
    ) -> None:
        super().__init__(env, seed=seed)
        task = self.task
        needs(task, self.name, "crawled")
        needs(task, self.name, *_BROUGHT)
        for name in self.parameters if task.draw is not None else ():
            needs(task, self.name, name)
        self.knowledge = Knowledge.of(task, self.parameters)
        counted = bool(set(_COUNTED) & set(task.features))
        default = "gamma-poisson" if counted else "changed"
        self.estimator = make_estimator(estimator or default, self.knowledge.period)
        if self.estimator.counts:
            needs(task, self.name, *_COUNTED)
        self._fleet: Sources | None = None
        self._turn = np.arange(task.n) % self.knowledge.cycle
        self._width = len(self.remembered((1, task.n)))

    def suppose(
        self,
        seen: ObservationView,
        law: Posterior,
        fresh: NDArray[np.bool_],
        clock: FloatArray,
        memory: State,
    ) -> Supposed:
        """Return the fleet to crawl by.

        Arguments:
            law: what is believed of the rates, (B, N).
            fresh: (B, N), sources crawled in the last epoch, and those whose turn it is: every
                source at least once in the epochs in which the budget pays for all.
            clock: (B, 1), epochs since the episode began.
            memory: what `suppose` last returned, `remembered` at first.
        """
        raise NotImplementedError

    def remembered(self, shape: tuple[int, int]) -> State:
        """Return what `suppose` remembers at first, of (B, N) sources."""
        return ()

    def learn(self, seen: ObservationView, evidence: Evidence, memory: State) -> State:
        """Return what `suppose` remembers after an epoch's crawls."""
        return memory

    def believed(self, state: State | None) -> Posterior:
        """Return what a state, as `predict` returns it, says of the rates, (B, N); None: what is
        believed before the first epoch, (N,) or one number."""
        if state is None:
            return self.estimator.posterior(self.estimator.begin((self.task.n,)))
        return self.estimator.posterior(state[3 + self._width :])

    def begin(self, seen: ObservationView) -> State:
        shape = (seen.batch, self.task.n)
        age = (seen["age"] if seen.shows("age") else np.ones(shape)) - 1.0
        clock, price = np.zeros((seen.batch, 1)), np.full((seen.batch, 1), np.nan)
        return clock, price, age, *self.remembered(shape), *self.estimator.begin(shape)

    def decide(self, seen: ObservationView, state: State) -> tuple[FloatArray, State]:
        clock, price, age = state[:3]
        memory, known = state[3 : 3 + self._width], state[3 + self._width :]
        crawled = seen["crawled"] > 0
        evidence = self._evidence(seen, crawled, age)
        known = self.estimator.update(known, evidence)
        memory = self.learn(seen, evidence, memory)
        age = seen["age"] if seen.shows("age") else np.where(crawled, 1.0, age + 1.0)
        turn = self._turn == clock % self.knowledge.cycle
        law = self.estimator.posterior(known)
        supposed = self.suppose(seen, law, crawled | turn | (clock == 0), clock, memory)
        index = self._index(seen, age, supposed)
        level = None
        if self.knowledge.average:
            level, price = self._charge(seen, index, price, clock)
        priority = graded(index, level, self.knowledge.affordable)
        return priority, (clock + 1.0, price, age, *supposed.memory, *known)

    def _evidence(
        self, seen: ObservationView, crawled: NDArray[np.bool_], age: FloatArray
    ) -> Evidence:
        """Return what the last epoch's crawls told; `age` is that at which they came."""
        period = self.knowledge.period
        items = next((seen[name] for name in _ITEMS if seen.shows(name)), None)
        changed = seen[next(name for name in _BROUGHT if seen.shows(name))] > 0
        crawled = crawled & (age < NEVER)  # what waited at first came in a time that nobody knows
        told = Evidence.of(age * period, items, crawled, changed, period)
        if items is None and self.estimator.counts:
            return self._worth(seen, told, seen["harvest"])
        return told

    def _worth(self, seen: ObservationView, told: Evidence, harvest: FloatArray) -> Evidence:
        """Return the evidence with items made of what crawls brought."""
        known = self._others(seen)
        return from_utility(told, harvest, known.mean_utility, known.decay_rate)

    def _others(self, seen: ObservationView) -> Sources:
        """Return the known parameters, (N,) or (B, N), with a rate of 1."""
        if self._fleet is None or self.task.draw is not None:
            columns: Any = {name: self._known(seen, name) for name in self.parameters}
            self._fleet = Sources(
                arrival_rate=np.ones_like(columns["cost"]), **columns, period=self.knowledge.period
            )
        return self._fleet

    def _known(self, seen: ObservationView, name: str) -> FloatArray:
        """Return a known parameter, (N,), or (B, N) of fleets drawn anew."""
        constant = self.knowledge.parameters
        return constant[name] if name in constant else seen[name]

    def _index(self, seen: ObservationView, age: FloatArray, supposed: Supposed) -> FloatArray:
        """Return the Whittle index, (B, N); of sources of rate Λ it is Λ times that of rate 1."""
        rate, others = np.maximum(supposed.rate, _LEAST), supposed.others
        observed = self.knowledge.observed
        if not (seen.shows("value") and observed.any()):
            return rate * index_at_age(age, others)
        value = np.where(observed, seen["value"] / rate, others.content_at(age))
        return rate * whittle_index(value, others)

    def _charge(
        self, seen: ObservationView, index: FloatArray, price: FloatArray, clock: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the charge λ now and in the next epoch, (B, 1) utility / budget unit."""
        cost, budget = self._known(seen, "cost"), self.knowledge.budget
        enough = budget >= cost.sum(axis=-1, keepdims=True)  # what pays for all need not be saved
        price = np.where(np.isnan(price), margin(index, self.knowledge.affordable), price)
        wanted = ((index >= price) * cost).sum(axis=-1, keepdims=True)
        step = 0.5 * (1.0 + clock / 10.0) ** -0.6
        # In units in which one crawl is not cut off, however small the budget: no bias.
        scale = budget + cost.max(axis=-1, keepdims=True)
        surplus = np.clip((wanted - budget) / scale, -1.0, 1.0)
        return np.where(enough, 0.0, price), price * np.exp(step * surplus)


class Certainty(Adaptive):
    """Certainty equivalence: crawls as if the estimates were true.

    It can stop visiting a source for ever after an unlucky start, and then learns nothing more of
    it: the other two exist for that.
    """

    name = "adaptive-certainty"

    def suppose(
        self,
        seen: ObservationView,
        law: Posterior,
        fresh: NDArray[np.bool_],
        clock: FloatArray,
        memory: State,
    ) -> Supposed:
        return Supposed(law.mean, self._others(seen), memory)


class Optimism(Adaptive):
    """Optimism: crawls as if every rate were as large as it may well be.

    That is a quantile of the posterior, so that what is little known is visited until it is known
    better (UCWhittle, AAAI 2023, with the exact posterior in place of its confidence bounds).

    Arguments:
        confidence: the quantile's probability.
    """

    name = "adaptive-optimism"

    def __init__(
        self,
        env: Environment,
        *,
        seed: int | None = None,
        estimator: Estimator | str | None = None,
        confidence: float = 0.9,
    ) -> None:
        super().__init__(env, seed=seed, estimator=estimator)
        if not 0.5 <= confidence < 1:
            raise ValueError(f"confidence is {confidence}; it must be at least .5 and below 1")
        self.confidence = confidence

    def suppose(
        self,
        seen: ObservationView,
        law: Posterior,
        fresh: NDArray[np.bool_],
        clock: FloatArray,
        memory: State,
    ) -> Supposed:
        return Supposed(law.quantile(self.confidence), self._others(seen), memory)


class Thompson(Adaptive):
    """Thompson sampling: crawls as if each rate were one drawn from what is believed of it.

    A draw is held until the source is crawled, or until its turn, which comes once in the epochs in
    which the budget pays for every source; held until the next crawl alone, a low draw might put
    that off for ever. With new draws in every epoch a source would be crawled as soon as one of
    many was high.
    """

    name = "adaptive-thompson"

    def remembered(self, shape: tuple[int, int]) -> State:
        return (np.zeros(shape),)

    def suppose(
        self,
        seen: ObservationView,
        law: Posterior,
        fresh: NDArray[np.bool_],
        clock: FloatArray,
        memory: State,
    ) -> Supposed:
        rate = memory[0].copy()
        rate[fresh] = Posterior(law.shape[fresh], law.rate[fresh]).draw(self.rng)
        return Supposed(rate, self._others(seen), (rate,))


class SelfTuning(Adaptive):
    """Learns Λ, ξ̄ and μ: nothing but T, M and costs is known.

    Rates are drawn from what is believed, as by `Thompson`. Of ξ̄ and μ the means are used, which
    explores less: a source whose first items were worth little by chance may be left alone for
    long. They are learnt from sums over the items of each harvest where the environment shows all
    five (`agents.adaptive.item_sums`), else from what crawls brought after gaps of different
    lengths (`agents.adaptive.harvests`).

    Where items are not shown, only Λξ̄ can be learnt, and is, as ξ̄: an item an epoch is supposed,
    and an estimator of rates has nothing to do. Of `items` and the sums show both: items so old
    that they are worth nothing are not in the sums, and where these alone are shown, sources that
    are rarely crawled seem to publish less than they do.

    Rates may change: where items are shown, the default estimator is "forgetting". ξ̄ and μ are
    taken for constant.

    Raises:
        ValueError: neither `harvest` nor all of the sums are shown, or some of them alone; items
            are not shown and an estimator is given.
    """

    name = "adaptive-self-tuning"
    parameters = ("cost",)

    def __init__(
        self, env: Environment, *, seed: int | None = None, estimator: Estimator | str | None = None
    ) -> None:
        task = task_of(env)
        sums = [name for name in HarvestSums.features if name in task.features]
        itemised = len(sums) == len(HarvestSums.features)
        if sums and not itemised and sums != ["harvest_number"]:
            lacking = ", ".join(name for name in HarvestSums.features if name not in sums)
            raise ValueError(
                f"agent {self.name!r} needs all five sums over items or none, and the environment "
                f"does not show {lacking}; add them to `features`"
            )
        period = task.sources.period
        self._content = HarvestSums(period) if itemised else Harvests(period)
        needs(task, self.name, self._content.features[0])
        if estimator is not None:  # which counts items, or is no use
            needs(task, f"{self.name} with an estimator of rates", *_ITEMS)
        elif set(_ITEMS) & set(task.features):
            estimator = "forgetting"
        super().__init__(env, seed=seed, estimator=estimator)

    def remembered(self, shape: tuple[int, int]) -> State:
        drawn = (np.ones(shape) for _ in range(3))
        return *drawn, *self._content.begin(shape)

    def learn(self, seen: ObservationView, evidence: Evidence, memory: State) -> State:
        brought = (seen[name] for name in self._content.features)
        return *memory[:3], *self._content.update(memory[3:], evidence, *brought)

    def _worth(self, seen: ObservationView, told: Evidence, harvest: FloatArray) -> Evidence:
        return told._replace(items=told.gap / self.knowledge.period)

    def suppose(
        self,
        seen: ObservationView,
        law: Posterior,
        fresh: NDArray[np.bool_],
        clock: FloatArray,
        memory: State,
    ) -> Supposed:
        rate, utility, decay = (array.copy() for array in memory[:3])
        rate[fresh] = Posterior(law.shape[fresh], law.rate[fresh]).draw(self.rng)
        found = self._content.estimate(memory[3:], np.flatnonzero(fresh))
        for array, new in zip((utility, decay), found, strict=True):
            array[fresh] = np.clip(new, _LEAST, 1.0 / _LEAST)
        cost = np.broadcast_to(self._known(seen, "cost"), rate.shape)
        others = Sources(np.ones_like(rate), utility, decay, cost, self.knowledge.period)
        return Supposed(rate, others, (rate, utility, decay, *memory[3:]))
