"""The relaxed bound: the Lagrangian relaxation of the budget, which no policy can exceed.

It holds for deterministic arrivals, and for random arrivals at unobserved sources, where the mean
follows the same recursion, under any decay function. A crawler that observes random content before
crawling can earn more: see `agents.theory.task_bound`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from numbers import Integral
from typing import NamedTuple

import numpy as np

from agents.theory.hosts import HostMultipliers
from agents.theory.price import Bracket
from agents.theory.renewal import RenewalArm, renewal_arm
from crawl_env.content.utility import EXPONENTIAL, Decay
from crawl_env.errors import check_positive
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import BoolArray, FloatArray
from crawl_env.simulation.selection import TOLERANCE, Hosts

_MOST_HALVINGS = 200
Condition = Callable[[FloatArray], BoolArray]  # on the spending per step
Intervals = tuple[FloatArray, FloatArray]  # the largest too short and the largest possible


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
    _refuse_no_fleet(sources)
    check_positive("budget", budget, "budget units / step")
    _check_per_host(per_host)
    search = _Search(renewal_arm(sources, decay), per_host)
    low, high = search.first_where_both(
        lambda spent: spent <= budget * (1 + TOLERANCE),
        lambda spent: spent < budget * (1 - TOLERANCE),
    )
    multiplier = 0.5 * (low + high)
    bound = multiplier[..., 0] * budget + search.earned(multiplier)
    if sources.arrival_rate.ndim == 1:
        return Relaxation(float(bound), float(multiplier[0]))
    return Relaxation(bound, multiplier[:, 0])


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
    _refuse_batch(sources, "relaxed_bound")
    return float(relaxation(sources, budget, per_host).bound)


def _refuse_no_fleet(sources: object) -> None:
    if not isinstance(sources, Sources):
        raise ValueError(
            f"sources is {sources!r}; give a Sources, such as Sources.preset('table1')"
        )


def _check_per_host(per_host: int) -> None:
    if isinstance(per_host, bool) or not (isinstance(per_host, Integral) and per_host > 0):
        raise ValueError(f"per_host is {per_host!r}; it must be a positive number of crawls")


class _Place(NamedTuple):
    """How far a search has come."""

    bracket: Bracket  # of λ
    shortest: FloatArray  # bounds on the intervals, (..., N)
    longest: FloatArray
    halvings: int = 0


class _Search:
    """Bisection on λ that keeps, for every source, the intervals between which its own lies."""

    def __init__(self, arm: RenewalArm, per_host: int = 1) -> None:
        self._arm, self._cost = arm, arm.sources.cost
        self._top = arm.max_multiplier()
        self._intervals = arm.shortest, arm.longest
        hosts = Hosts.of(arm.sources, per_host)
        self._hosts = None if hosts is None else HostMultipliers(arm, hosts)
        self._tolerance = 1e-12 if self._hosts else 1e-15

    def first_where_both(
        self, enough: Condition, fewer: Condition
    ) -> tuple[FloatArray, FloatArray]:
        """Return the smallest λ, (..., 1), where the spending per step satisfies `enough`, and the
        smallest where it satisfies `fewer`, which is at least that one.

        The second search goes on from where the two first give different answers. With hosts, whose
        spending is known only as well as an answer needs, it begins anew near the first λ.
        """
        start = _Place(Bracket(np.zeros_like(self._top), self._top.copy()), *self._intervals)
        if self._hosts:
            least, _ = self._first_where(enough, start)
            return least, self._first_where(fewer, start, least)[0]
        least, parting = self._first_where(enough, start, fewer=fewer)
        return least, self._first_where(fewer, parting)[0]

    def _first_where(
        self,
        enough: Condition,
        place: _Place,
        least: FloatArray | None = None,
        fewer: Condition | None = None,
    ) -> tuple[FloatArray, _Place]:
        """Return the smallest λ, at least `least`, where the spending per step satisfies `enough`,
        (..., 1), and the last place at which `fewer` had the same answers."""
        bracket, shortest, longest = copy(place.bracket), place.shortest, place.longest
        if self._hosts:
            self._hosts.restart()
        zero = np.zeros_like(self._top)
        free = enough(self._spent(zero, self._intervals, zero, self._top, enough)[0])
        alike = True
        for step in range(place.halvings, _MOST_HALVINGS):
            low, high = bracket.low, bracket.high
            if step > 0 and np.all(free | (high - low <= self._tolerance * high)):
                break
            middle = bracket.middle()
            if self._hosts and least is not None and step < 2:  # it is hardly ever larger
                near = least * (1.0 + (4.0 * step - 2.0) * self._tolerance)
                middle = np.where((low < near) & (near < high), near, middle)
            spent, interval = self._spent(middle, (shortest, longest), low, high, enough)
            done = enough(spent)
            alike = alike and fewer is not None and np.array_equal(done, fewer(spent))
            if self._hosts:
                self._hosts.learn(done)
            bracket.learn(middle, done)
            longest = np.where(done, interval, longest)
            shortest = np.where(done, shortest, interval - 1)
            if alike:
                place = _Place(copy(bracket), shortest, longest, step + 1)
        return np.where(free, 0.0, bracket.high), place

    def earned(self, multiplier: FloatArray) -> FloatArray:
        """Return Σ_h ν_h H + Σ_i max(0, (G − (λC + ν)/q)/L), utility per step, (...)."""
        arm, cost = self._arm, self._cost
        if self._hosts is None:
            return arm.net_reward(multiplier).sum(axis=-1)
        nu = self._hosts.multipliers(multiplier)
        interval = arm.interval(multiplier + nu / cost)
        rate = np.maximum(arm.reward_rate(interval, multiplier * cost + nu), 0.0)
        return rate.sum(axis=-1) + self._hosts.paid(nu)

    def _spent(
        self,
        multiplier: FloatArray,
        limits: Intervals,
        low: FloatArray,
        high: FloatArray,
        enough: Condition,
    ) -> tuple[FloatArray, FloatArray]:
        """Return the spending per step, (..., 1), with hosts perhaps a bound on it that is as good
        for `enough`, and the intervals without hosts, (..., N); `low`, `high` are bounds on λ."""
        crawls, interval = self._crawls(multiplier, limits)
        if self._hosts:
            return self._hosts.spending(multiplier, crawls, low, high, enough), interval
        return (crawls * self._cost).sum(axis=-1, keepdims=True), interval

    def _crawls(self, multiplier: FloatArray, limits: Intervals) -> tuple[FloatArray, FloatArray]:
        """Return the crawls per step and the intervals."""
        arm, interval = self._arm, self._arm.interval(multiplier, *limits)
        return np.where(multiplier < arm.break_even, arm.crawl_rate(interval), 0.0), interval


def _refuse_batch(sources: Sources, function: str) -> None:
    _refuse_no_fleet(sources)
    if sources.arrival_rate.ndim != 1:
        raise ValueError(f"{function} takes one fleet, not a batch; give it `sources.fleet(b)`")
