"""The relaxed bound: the Lagrangian relaxation of the budget, which no policy can exceed.

It holds for deterministic arrivals, and for random arrivals at unobserved sources, where the mean
follows the same recursion, under any decay function. A crawler that observes random content before
crawling can earn more: see `agents.theory.task_bound`.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import NamedTuple

import numpy as np

from agents.theory.hosts import HostMultipliers
from agents.theory.price import LevelBracket, least_where
from agents.theory.renewal import RenewalArm, renewal_arm
from crawl_env.content.utility import EXPONENTIAL, Decay
from crawl_env.errors import check_positive
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import BoolArray, FloatArray
from crawl_env.simulation.selection import TOLERANCE, Hosts

_MOST_STEPS = 200
# Fractions of λ at which bounds are close. Without hosts they enclose a λ at which the spending
# jumps, to rounding (`price.CLOSE` is for spending that is continuous); within hosts, the spending
# is known to the accuracy of their multipliers only.
_CLOSE, _CLOSE_WITHIN_HOSTS = 1e-15, 1e-12
Condition = Callable[[FloatArray], BoolArray]  # on the spending per step


class Relaxation(NamedTuple):
    """The Lagrangian relaxation of a fleet under a budget."""

    bound: float | FloatArray  # utility / step
    multiplier: float | FloatArray  # λ*, utility / budget unit: marginal value of the budget


def relaxation(
    sources: Sources, budget: float, per_host: int = 1, decay: Decay = EXPONENTIAL
) -> Relaxation:
    """Minimise λM + Σ_h ν_h H + Σ_i max_k max(0, (G_ik − (λC_i + ν_h(i))/q_i)/L_ik) over λ, ν ≥ 0.

    G, L and q are of `agents.theory.renewal`: without failures G_k = x_k, L_k = k, q = 1. ν_h
    is the Lagrange multiplier of the H = `per_host` crawls that a shared host takes in a step; k is
    at least the delay.
    The bound holds for every policy whose cost is at most M on average, from a fresh or empty
    start. Where a whole interval of λ is optimal, `multiplier` is its middle. `decay` is the decay
    function of interest, in `sources.decay_rate` × age.

    Returns floats for a fleet (N,), arrays (B,) for a batch (B, N).

    Raises:
        ValueError: budget is not positive and finite; or the fleet has capacities and `decay` is
            not exponential.

    >>> relaxation(Sources.preset("table1"), 2).bound.__round__(6)
    338.05394
    """
    refuse_no_fleet(sources)
    check_positive("budget", budget, "budget units / step")
    _check_per_host(per_host)
    search = _Search(renewal_arm(sources, decay), per_host)
    low, high = search.first_where_both(
        lambda spending: spending <= budget * (1 + TOLERANCE),
        lambda spending: spending < budget * (1 - TOLERANCE),
        budget,
    )
    multiplier = 0.5 * (low + high)
    bound = multiplier[..., 0] * budget + search.net_reward(multiplier)
    if sources.arrival_rate.ndim == 1:
        return Relaxation(float(bound), float(multiplier[0]))
    return Relaxation(bound, multiplier[:, 0])


def least_priced(
    net_reward: Callable[[FloatArray], FloatArray],
    high: FloatArray,
    budget: float,
    least: FloatArray | float = 0.0,
) -> Relaxation:
    """Minimise λM + Σ_i β_i(λ) over λ in [0, high], where β is the net reward of each source, (...,
    N), at λ, (..., 1): the relaxed bound and λ*, floats, or arrays (B,) for a batch. Below `least`
    λ* need not be told from 0."""

    def dual(multiplier: FloatArray) -> FloatArray:
        net: FloatArray = net_reward(multiplier).sum(axis=-1, keepdims=True)
        return multiplier * budget + net

    multiplier = least_where(dual, high, least)
    bound = dual(multiplier)
    if multiplier.ndim == 1:
        return Relaxation(float(bound[0]), float(multiplier[0]))
    return Relaxation(bound[:, 0], multiplier[:, 0])


def net_reward(sources: Sources, multiplier: FloatArray) -> FloatArray:
    """Return max_k max(0, (G_k − λC/q)/L_k), (..., N) utility / step: the net reward of each source
    that is not observed, at the Lagrange multiplier λ = `multiplier`, (..., 1).

    >>> net_reward(Sources.preset("table1"), np.array([100.0])).round(3)
    array([84.536, 75.854,  0.   ,  0.   ])
    """
    return renewal_arm(sources).net_reward(multiplier)


def relaxed_bound(sources: Sources, budget: float, per_host: int = 1) -> float:
    """Return the reward per step (utility) that no policy can exceed which learns of content only
    by crawling; see `relaxation`, and `task_bound` where content is observed or sends signals.

    >>> round(relaxed_bound(Sources.preset("table1"), 1), 6)
    260.38993
    """
    refuse_batch(sources, "relaxed_bound")
    return float(relaxation(sources, budget, per_host).bound)


def refuse_no_fleet(sources: object) -> None:
    """Raise ValueError unless sources are a fleet or a batch of fleets."""
    if not isinstance(sources, Sources):
        raise ValueError(
            f"sources is {sources!r}; give a Sources, such as Sources.preset('table1')"
        )


def _check_per_host(per_host: int) -> None:
    if isinstance(per_host, bool) or not (isinstance(per_host, Integral) and per_host > 0):
        raise ValueError(f"per_host is {per_host!r}; it must be a positive number of crawls")


class _Search:
    """A search for λ that keeps, for every source, the intervals between which its own lies."""

    def __init__(self, arm: RenewalArm, per_host: int = 1) -> None:
        self._arm, self._cost = arm, arm.sources.cost
        self._top = arm.max_multiplier()
        hosts = Hosts.of(arm.sources, per_host)
        self._hosts = None if hosts is None else HostMultipliers(arm, hosts)

    def first_where_both(
        self, enough: Condition, fewer: Condition, budget: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return the smallest λ, (..., 1), where the spending per step satisfies `enough`, and the
        smallest where it satisfies `fewer`, which is at least that one.

        The two differ where the spending is the budget in a whole interval of λ.
        """
        find = self._first_where if self._hosts is None else self._first_where_within_hosts
        at_once = self._spending(np.zeros_like(self._top))
        free = enough(at_once), fewer(at_once)
        least, there = find(enough, LevelBracket(budget, self._top), free[0])
        least, there = np.where(free[0], 0.0, least), np.where(free[0], at_once, there)
        known = free[1] | fewer(there)
        if known.all():
            return least, least
        most, _ = find(fewer, LevelBracket(budget, self._top, low=least), known)
        return least, np.where(known, least, most)

    def _first_where(
        self, holds: Condition, bracket: LevelBracket, known: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the smallest λ where the spending per step satisfies a condition, and what is
        spent there, (..., 1) each, except where the answer is `known`.

        Once three of four sources cannot change in the rest of the bracket, they are left out.
        Where one source can, and only once, it does so at the index of its shorter interval.
        """
        arm, rest, there = self._arm, np.zeros_like(self._top), np.zeros_like(self._top)
        shortest, longest = arm.shortest, arm.longest
        for _ in range(_MOST_STEPS):
            if np.all(known | (bracket.high - bracket.low <= _CLOSE * bracket.high)):
                break
            middle = bracket.middle()
            interval = arm.interval(middle, shortest, longest)
            spending = rest + _cost_per_step(arm, interval, middle)
            fits = holds(spending)
            bracket.learn(spending, fits)
            there = np.where(fits, spending, there)
            longest = np.where(fits, interval, longest)
            shortest = np.where(fits, shortest, interval - 1.0)
            ends = (bracket.low < arm.break_even) & (arm.break_even < bracket.high)
            intervals = longest - shortest
            changing = (intervals > 1.0) | ends
            one = np.where(changing, np.maximum(intervals, 2.0), 0.0).sum(-1, keepdims=True) == 2.0
            if one.any():
                at = np.where(ends, arm.break_even, arm.index_at_age(shortest + 1.0))
                bracket.jump(np.where(changing, at, 0.0).sum(axis=-1, keepdims=True), one)
            changes = changing.reshape(-1, longest.shape[-1]).any(axis=0)
            if 0 < 4 * np.count_nonzero(changes) <= changes.size:
                some = np.flatnonzero(changes)
                rest = rest + _cost_per_step(arm, longest, bracket.low, np.logical_not(changes))
                arm, shortest, longest = arm.select(some), shortest[..., some], longest[..., some]
        return bracket.high, there

    def _first_where_within_hosts(
        self, holds: Condition, bracket: LevelBracket, known: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the same within the limits of the hosts."""
        there = np.zeros_like(self._top)
        for _ in range(_MOST_STEPS):
            if np.all(known | (bracket.high - bracket.low <= _CLOSE_WITHIN_HOSTS * bracket.high)):
                break
            spending = self._spending(bracket.middle())
            fits = holds(spending)
            bracket.learn(spending, fits)
            there = np.where(fits, spending, there)
        return bracket.high, there

    def _spending(self, multiplier: FloatArray) -> FloatArray:
        """Return the spending per step at λ, (..., 1)."""
        if self._hosts is None:
            return _cost_per_step(self._arm, self._arm.interval(multiplier), multiplier)
        crawls = self._hosts.at(multiplier)[1]
        return np.asarray((crawls * self._cost).sum(axis=-1, keepdims=True))

    def net_reward(self, multiplier: FloatArray) -> FloatArray:
        """Return Σ_h ν_h H + Σ_i max(0, (G − (λC + ν)/q)/L), utility per step, (...)."""
        arm, cost = self._arm, self._cost
        if self._hosts is None:
            return arm.net_reward(multiplier).sum(axis=-1)
        nu = self._hosts.at(multiplier)[0]
        interval = arm.interval(multiplier + nu / cost)
        rate = np.maximum(arm.reward_rate(interval, multiplier * cost + nu), 0.0)
        return rate.sum(axis=-1) + self._hosts.charge(nu)


def _cost_per_step(
    arm: RenewalArm, interval: FloatArray, multiplier: FloatArray, some: BoolArray | None = None
) -> FloatArray:
    """Return the cost of these crawls per step, (..., 1), of all sources or of some, (N,)."""
    crawls = np.where(multiplier < arm.break_even, arm.crawl_rate(interval), 0.0)
    cost = crawls * arm.sources.cost
    return np.asarray((cost if some is None else cost[..., some]).sum(axis=-1, keepdims=True))


def refuse_batch(sources: Sources, function: str) -> None:
    """Raise ValueError unless sources are one fleet."""
    refuse_no_fleet(sources)
    if sources.arrival_rate.ndim != 1:
        raise ValueError(f"{function} takes one fleet, not a batch; give it `sources.fleet(b)`")
