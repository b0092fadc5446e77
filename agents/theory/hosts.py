"""Lagrange multipliers of hosts that several sources share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from agents.theory.price import Bracket
from agents.theory.renewal import RenewalArm
from crawl_env.numerics import FloatArray
from crawl_env.simulation.selection import Hosts

_HALVINGS = 48  # of the range of a host's multiplier: to 4e-15 of it


class _Solution(NamedTuple):
    """The multipliers of the hosts and the crawls."""

    low: FloatArray  # bounds on ν, (..., N)
    high: FloatArray
    crawls: FloatArray  # per step, (..., N)


class HostMultipliers:
    """The multipliers ν_h at which each host takes no more crawls than it may, as functions of λ.

    A crawl of a source of cost C on host h costs λC + ν_h in the Lagrangian. Where all sources of a
    host have the same cost, that sum does not depend on λ while the host is used up: it is found
    once, at λ = 0. Elsewhere ν_h is found anew at every λ.

    Arguments:
        arm: of the fleet.
        hosts: its hosts.
    """

    def __init__(self, arm: RenewalArm, hosts: Hosts) -> None:
        self._arm, self._cost, self._per_host = arm, arm.sources.cost, hosts.per_host
        self._all = _Bisection(arm, hosts)
        solution = self._all.solve(0.0, self._all.largest(arm.break_even * self._cost))
        self._full, self._rates = solution.high, solution.crawls  # ν and crawls per step at λ = 0
        cheapest, dearest = -self._all.largest(-self._cost), self._all.largest(self._cost)
        unequal = (cheapest < dearest) & (self._full > 0)
        # Sources of hosts whose ν is found anew, in some fleet of a batch at least.
        self._some = np.flatnonzero(unequal.reshape(-1, unequal.shape[-1]).any(axis=0))
        self._mixed: _Bisection | None = None
        if self._some.size:
            host_of = np.unique(hosts.host_of[self._some], return_inverse=True)[1]
            self._mixed = _Bisection(arm.select(self._some), Hosts(host_of, hosts.per_host))

    def at(self, multiplier: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ν of each source's host and the crawls per step, (..., N) each, at λ =
        `multiplier`, (..., 1).

        Crawls jump where an interval changes; at ν they are mixed from both sides of the jump, so
        that the host is used up.
        """
        nu = np.maximum(self._full - multiplier * self._cost, 0.0)
        alone = self._arm.crawl_rate(self._arm.interval(multiplier))
        alone = np.where(multiplier < self._arm.break_even, alone, 0.0)
        crawls = np.where(nu > 0.0, self._rates, alone)
        if self._mixed is not None:
            solution = self._mixed.solve(multiplier, self._full[..., self._some])
            nu[..., self._some], crawls[..., self._some] = solution.high, solution.crawls
        return nu, crawls

    def crawls_and_reward(self, multiplier: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return crawls and reward per step, (..., N) each, at λ = `multiplier`, (..., 1)."""
        arm, solution = self._arm, self._all.solve(multiplier, self._full)

        def at(nu: FloatArray) -> tuple[FloatArray, FloatArray]:
            total = multiplier + nu / self._cost
            interval = arm.interval(total)
            pays = total < arm.break_even
            reward = arm.cycle_reward(interval) / arm.cycle_length(interval)
            return np.where(pays, arm.crawl_rate(interval), 0.0), np.where(pays, reward, 0.0)

        (many, most), (few, least) = at(solution.low), at(solution.high)
        crawls = solution.crawls
        part = np.divide(crawls - few, many - few, out=np.zeros_like(few), where=many > few)
        return crawls, least + np.clip(part, 0.0, 1.0) * (most - least)

    def charge(self, nu: FloatArray) -> FloatArray:
        """Return Σ_h ν_h · per_host, (...), of ν (..., N)."""
        return self._per_host * nu[..., self._all.one_each].sum(axis=-1)


class _Bisection:
    """A search for the multipliers of some hosts at a λ."""

    def __init__(self, arm: RenewalArm, hosts: Hosts) -> None:
        self._arm, self._cost = arm, arm.sources.cost
        self._host_of, self._per_host = hosts.host_of, hosts.per_host
        # Sources in order of their hosts, and where each host begins: sums are then cheap.
        self._order = np.argsort(self._host_of, kind="stable")
        self._first = np.flatnonzero(np.diff(self._host_of[self._order], prepend=-1))
        self.one_each = self._order[self._first]  # a source of each host

    def solve(self, multiplier: FloatArray | float, high: FloatArray) -> _Solution:
        """Return ν, which lies between 0 and `high`, and the crawls."""
        arm, cost, low = self._arm, self._cost, np.zeros_like(high)
        shortest: FloatArray | None = None
        longest: FloatArray | None = None

        def rates(nu: FloatArray) -> tuple[FloatArray, FloatArray]:
            total = multiplier + nu / cost
            interval = arm.interval(total, shortest, longest)
            return np.where(total < arm.break_even, arm.crawl_rate(interval), 0.0), interval

        at_low, k_low = rates(low)
        above = self._total(at_low)
        free = above <= self._per_host * (1 + 1e-12)
        at_high, k_high = rates(high)
        below = self._total(at_high)
        # Bounds are met to rounding only.
        high = np.where(below <= self._per_host, high, high * (1 + 1e-12))
        high = np.where(free, 0.0, high)
        at_high = np.where(free, at_low, at_high)
        shortest, longest = k_low - 1.0, np.where(free, k_low, k_high)
        least = 2.0**-_HALVINGS * self.largest(arm.break_even * cost)
        bracket = Bracket(low, high)
        for _ in range(_HALVINGS):
            is_settled = free | (bracket.high - bracket.low <= least)
            if is_settled.all():
                break
            middle = np.where(is_settled, bracket.high, bracket.middle())
            at_middle, interval = rates(middle)
            fits = is_settled | (self._total(at_middle) <= self._per_host)
            bracket.learn(middle, fits)
            at_high, at_low = np.where(fits, at_middle, at_high), np.where(fits, at_low, at_middle)
            longest = np.where(fits, interval, longest)
            shortest = np.where(fits, shortest, interval - 1.0)
        above, below = self._total(at_low), self._total(at_high)
        weight = (self._per_host - below) / np.where(above > below, above - below, 1.0)
        crawls = np.clip(weight, 0.0, 1.0) * (at_low - at_high) + at_high
        return _Solution(bracket.low, bracket.high, crawls)

    def largest(self, values: FloatArray) -> FloatArray:
        """Return the largest of each source's host, (..., N)."""
        by_host = values[..., self._order]
        return np.maximum.reduceat(by_host, self._first, axis=-1)[..., self._host_of]

    def _total(self, crawls: FloatArray) -> FloatArray:
        """Return the sum over each source's host, (..., N)."""
        by_host = crawls[..., self._order]
        return np.add.reduceat(by_host, self._first, axis=-1)[..., self._host_of]
