"""The relaxation of two budgets: crawls at a price λ, places in the engine at a price κ.

No policy of a crawler that is not told of content before it crawls, and no order of the engine,
refusing items or not, can index more per step than

    min_{λ, κ ≥ 0}  λM + κs + Σ_i max_k max(0, (x_ik(κ) − λC_i)/k),

with x_k(κ) = Λ ∫_0^{kT} E (v − κ)⁺ da (`agents.theory.engine.content`): an item that is indexed is
worth at most v, its utility when it was collected, so that each earns at most κ + (v − κ)⁺, and at
most s are indexed per step on average. The bound is 1 where nothing else is: λ is the marginal
value of the budget, κ that of a place in the engine. At κ = 0 it is the bound without an engine.

If every item that is found must be indexed, a source that is served passes on all of its ΛT items
per step, whatever the interval: the price decides whether it is served,

    min_{λ, κ ≥ 0}  λM + κs + Σ_i max(0, max_k (x_ik − λC_i)/k − κΛ_iT).

This is a bound for queues that lose nothing. It is none for an engine whose buffer overflows, since
losing items costs no place: one source, 10 items a step, and an engine that takes one of them has
the variant's bound x_1/10, the worth of an average item, and indexes the newest.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from agents.theory.engine.content import WaitingItems
from agents.theory.price import least_of_two
from agents.theory.relaxation import relaxation
from agents.theory.renewal import RenewalArm
from crawl_env import Sources
from crawl_env.content.utility import EXPONENTIAL, Decay, Distribution, Exponential
from crawl_env.errors import check_positive
from crawl_env.numerics import FloatArray


class PricedArm(RenewalArm):
    """The arm of every source of a fleet (N,) whose items pay for a place in the engine.

    Content of age k is worth d V_k(ℓ) − κ y_k(ℓ): see `WaitingItems`. By default ℓ = κ: what is not
    worth its place is refused, and the content is worth x_k(κ). x is concave in k for every ℓ ≤ κ,
    so that the index increases with age and the arm is indexable, as without an engine.

    Arguments:
        items: the items of the fleet.
        price: κ, utility / item.
        level: ℓ, the utility of the least item that is not refused.
        survival: d, (N,), the fraction of the utility that is left when items are indexed.
    """

    def __init__(
        self,
        items: WaitingItems,
        price: float,
        level: FloatArray | float | None = None,
        survival: FloatArray | float = 1.0,
    ) -> None:
        super().__init__(items.sources, items.decay)
        self._items, self._price, self._survival = items, price, survival
        self._level = price / np.asarray(survival) if level is None else level

    def mean_content(self, age: FloatArray) -> FloatArray:
        ages = np.broadcast_to(age, np.broadcast_shapes(np.shape(age), self.sources.cost.shape))
        return self._items.worth(ages, self._price, self._level, self._survival)

    @cached_property
    def numbers(self) -> PricedArm:
        """The same arm, whose content is the number of items passed on, y_k(ℓ)."""
        return PricedArm(self._items, -1.0, self._level, 0.0)

    @cached_property
    def break_even(self) -> FloatArray:
        most = self.mean_content(self._faded)
        return self.success * np.maximum(most, 0.0) / self.sources.cost

    @cached_property
    def _faded(self) -> FloatArray:
        return np.ceil(max(45.0, self._decay.end) / self.sources.decay_per_step) + 1

    @cached_property
    def longest(self) -> FloatArray:
        return np.maximum(self._faded, self.sources.delay)


class EngineRelaxation(NamedTuple):
    """The Lagrangian relaxation of a fleet under a budget and the rate of an engine."""

    bound: float  # utility / step
    multiplier: float  # λ*, utility / budget unit: marginal value of the budget
    price: float  # κ*, utility / item: marginal value of a place in the engine


def engine_relaxation(
    sources: Sources,
    budget: float,
    rate: float,
    utility: Distribution | None = None,
    decay: Decay = EXPONENTIAL,
    per_host: int = 1,
    refuse: bool = True,
) -> EngineRelaxation:
    """Minimise λM + κs + Σ_i max_k max(0, (x_ik(κ) − λC_i)/k) over λ, κ ≥ 0.

    With failures and crawl delays x, C and k are as in `agents.theory.relaxation`. Where the engine
    is fast enough for every item of the sources that are crawled without it, κ is 0 and the rest is
    that relaxation; else hosts are ignored, and capacities of sources too: the bound holds, but is
    not the sharpest.

    Arguments:
        sources: a fleet, (N,).
        budget: M, budget units / step.
        rate: s > 0, items / step, or infinity.
        utility: the distribution of ξ/ξ̄; exponential by default.
        refuse: False for the variant in which everything that is found must be indexed, which
            bounds no engine that may lose items.

    Raises:
        ValueError: budget or rate is not positive.

    >>> table1 = Sources.preset("table1")
    >>> ample, scarce = (engine_relaxation(table1, 2, rate) for rate in (1000, 100))
    >>> round(ample.bound, 5), ample.price, round(scarce.bound, 3), round(scarce.price, 3)
    (338.05394, 0.0, 173.892, 1.046)
    """
    check_positive("budget", budget, "budget units / step")
    if rate != np.inf:
        check_positive("rate", rate, "items / step")
    free = relaxation(sources, budget, per_host, decay)
    without = EngineRelaxation(float(free.bound), float(free.multiplier), 0.0)
    items = WaitingItems(sources.replaced(capacity=np.inf), utility or Exponential(), decay)
    most = _highest_price(items, rate)
    if most == 0.0:
        return without
    dual = _Dual(items, budget, rate, refuse)
    if dual(np.array([without.multiplier * (1 - 1e-9), 0.0]))[1][1] >= 0.0:
        return without
    if not refuse:
        most = float((items.sources.mean_utility).max())  # all that an item can be worth on average
    corner = np.array([max(without.multiplier, dual.most_multiplier), most])
    at, bound = least_of_two(dual, corner)
    if bound > without.bound:
        return without
    return EngineRelaxation(bound, float(at[0]), float(at[1]))


class _Dual:
    """λM + κs + Σ net rewards at (λ, κ), and its derivative."""

    def __init__(self, items: WaitingItems, budget: float, rate: float, refuse: bool) -> None:
        self._items, self._budgets, self._refuse = items, np.array([budget, rate]), refuse
        self._flow = items.sources.arrival_rate * items.sources.period

    @property
    def most_multiplier(self) -> float:
        return float(PricedArm(self._items, 0.0).max_multiplier()[0])

    def __call__(self, at: FloatArray) -> tuple[float, FloatArray]:
        arm = PricedArm(self._items, float(at[1]) if self._refuse else 0.0)
        charge = at[0] * arm.sources.cost
        interval = arm.interval(np.array([at[0]]))
        net = arm.reward_rate(interval, charge)
        if not self._refuse:
            flow, net = self._flow, net - at[1] * self._flow
        crawls = np.where(net > 0, arm.crawl_rate(interval), 0.0)
        spending = float(crawls @ arm.sources.cost)
        if self._refuse:
            flow = arm.numbers.cycle_reward(interval) / arm.cycle_length(interval)
        use = np.array([spending, float(np.where(net > 0, flow, 0.0).sum())])
        return float(self._budgets @ at + np.maximum(net, 0.0).sum()), self._budgets - use


def _highest_price(items: WaitingItems, rate: float) -> float:
    """Return the price at which no more than `rate` items that are published in a step are worth
    it: 0 where all of them may be."""
    sources = items.sources
    flow = sources.arrival_rate * sources.period
    if flow.sum() <= rate:
        return 0.0

    def above(price: float) -> float:
        return float(flow @ items.worth_at_once(price))

    high = float(sources.mean_utility.max())
    while above(high) > rate:
        high *= 2.0
    return high
