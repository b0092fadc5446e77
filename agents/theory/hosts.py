"""Lagrange multipliers of hosts that several sources share."""

from __future__ import annotations

import numpy as np

from agents.theory.renewal import RenewalArm
from crawl_env.numerics import BoolArray, FloatArray
from crawl_env.simulation.selection import Hosts

_HALVINGS = 48  # of the range of a host's multiplier: to 4e-15 of it


class HostMultipliers:
    """The multipliers ν_h at which each host takes no more crawls than it may, as functions of λ.

    A source of cost C on host h is charged λC + ν_h for a crawl. Where all sources of a host cost
    the same, what they are charged when the host is used up does not depend on λ: it is found once,
    at λ = 0. Elsewhere ν_h falls as λ grows, so that the ν found at larger and smaller λ are bounds
    on it, and so are the intervals between crawls.

    Arguments:
        arm: of the fleet.
        hosts: its hosts.
    """

    def __init__(self, arm: RenewalArm, hosts: Hosts) -> None:
        self._arm, self._cost = arm, arm.sources.cost
        self._host_of, self._per_host = hosts.host_of, hosts.per_host
        # Sources in order of their hosts, and where each host begins: sums are then cheap.
        self._order = np.argsort(self._host_of, kind="stable")
        self._first = np.flatnonzero(np.diff(self._host_of[self._order], prepend=-1))
        high = self._largest(arm.break_even * self._cost)
        self._full, self._rates = self._solve(0.0, np.zeros_like(high), high, None, None)
        by_host = self._cost[..., self._order]
        cheapest = self._per_source(np.minimum.reduceat(by_host, self._first, axis=-1))
        unequal = (cheapest < self._largest(self._cost)) & (self._full > 0)
        self._mixed = unequal.reshape(-1, unequal.shape[-1]).any(axis=0)  # sources, (N,)
        self._nested: HostMultipliers | None = None
        if self._mixed.any() and not self._mixed.all():
            some = np.flatnonzero(self._mixed)
            here = Hosts(np.unique(self._host_of[some], return_inverse=True)[1], self._per_host)
            self._nested = HostMultipliers(arm.select(some), here)
        self.restart()

    def restart(self) -> None:
        """Forget the bounds: a new search for λ begins."""
        arm = self._arm
        self._below = (np.zeros_like(self._full), arm.longest)  # at a larger λ
        self._above = (self._full, arm.shortest)  # at a smaller λ
        self._last = self._below[0], arm.longest
        if self._nested is not None:
            self._nested.restart()

    def learn(self, enough: BoolArray) -> None:
        """Bound ν by that of the last λ: from now on λ is smaller where `enough`, else larger."""
        if self._nested is not None:
            self._nested.learn(enough)
        elif self._mixed.any():
            nu = self._last[0]
            self._below = np.where(enough, nu, self._below[0]), self._below[1]
            self._above = np.where(enough, self._above[0], nu), self._above[1]

    def at(
        self, multiplier: FloatArray, crawls: FloatArray, low: FloatArray, high: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return ν of each source's host, and the crawls per step, both (..., N).

        Crawls jump where an interval changes; at ν they are mixed from both sides of the jump, so
        that the host is used up.

        Arguments:
            multiplier: λ, (..., 1).
            crawls: per step, where no host is short, (..., N).
            low, high: bounds on λ, (..., 1).
        """
        if self._nested is None and self._mixed.any():
            return self._searched(multiplier, low, high)
        nu = np.maximum(self._full - multiplier * self._cost, 0.0)
        crawls = np.where(nu > 0, self._rates, crawls)
        if self._nested is not None:
            some = np.flatnonzero(self._mixed)
            nu[..., some], crawls[..., some] = self._nested.at(
                multiplier, crawls[..., some], low, high
            )
        return nu, crawls

    def _searched(
        self, multiplier: FloatArray, low: FloatArray, high: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return ν and the crawls from a bisection between the bounds."""
        least, most = self._below[0], self._above[0]
        # The charges at λ lie between those of the bounds; so do the intervals.
        shortest = self._arm.interval(low + least / self._cost, self._above[1], self._below[1]) - 1
        longest = self._arm.interval(high + most / self._cost, self._above[1], self._below[1])
        self._above, self._below = (most, shortest), (least, longest)
        nu, crawls = self._solve(multiplier, least, most, shortest, longest)
        self._last = nu, longest
        return nu, crawls

    def paid(self, nu: FloatArray) -> FloatArray:
        """Return Σ_h ν_h · per_host, (...), of ν (..., N)."""
        one_each = nu[..., self._order[self._first]]
        return self._per_host * one_each.sum(axis=-1)

    def _solve(
        self,
        multiplier: FloatArray | float,
        low: FloatArray,
        high: FloatArray,
        shortest: FloatArray | None,
        longest: FloatArray | None,
    ) -> tuple[FloatArray, FloatArray]:
        """Return ν in [low, high], the least at which each host takes all crawls, and the crawls;
        0 and those without ν where a host is not short."""
        arm, cost = self._arm, self._cost

        def rates(nu: FloatArray) -> tuple[FloatArray, FloatArray]:
            charged = multiplier + nu / cost
            interval = arm.interval(charged, shortest, longest)
            return np.where(charged < arm.break_even, arm.crawl_rate(interval), 0.0), interval

        at_low, k_low = rates(low)
        free = (self._total(at_low) <= self._per_host * (1 + 1e-12)) & (low == 0)
        unlimited = at_low
        at_high, k_high = rates(high)
        # Bounds are met to rounding only.
        high = np.where(self._total(at_high) <= self._per_host, high, high * (1 + 1e-12))
        shortest, longest = k_low - 1.0, k_high
        least = 2.0**-_HALVINGS * self._largest(arm.break_even * cost)
        for _ in range(_HALVINGS):
            if (free | (high - low <= least)).all():
                break
            middle = 0.5 * (low + high)
            found, interval = rates(middle)
            fits = self._total(found) <= self._per_host
            high, low = np.where(fits, middle, high), np.where(fits, low, middle)
            at_high, at_low = np.where(fits, found, at_high), np.where(fits, at_low, found)
            longest = np.where(fits, interval, longest)
            shortest = np.where(fits, shortest, interval - 1.0)
        above, below = self._total(at_low), self._total(at_high)
        weight = (self._per_host - below) / np.where(above > below, above - below, 1.0)
        mixed = np.clip(weight, 0.0, 1.0) * (at_low - at_high) + at_high
        return np.where(free, 0.0, high), np.where(free, unlimited, mixed)

    def _largest(self, values: FloatArray) -> FloatArray:
        """Return the largest of each source's host, (..., N)."""
        by_host = values[..., self._order]
        return self._per_source(np.maximum.reduceat(by_host, self._first, axis=-1))

    def _total(self, crawls: FloatArray) -> FloatArray:
        """Return the sum over each source's host, (..., N)."""
        return self._per_source(np.add.reduceat(crawls[..., self._order], self._first, axis=-1))

    def _per_source(self, of_host: FloatArray) -> FloatArray:
        return of_host[..., self._host_of]
