"""Lagrange multipliers of hosts that several sources share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from agents.theory.price import Bracket
from agents.theory.renewal import RenewalArm
from crawl_env.numerics import BoolArray, FloatArray
from crawl_env.simulation.selection import Hosts

_HALVINGS = 48  # of the range of a host's multiplier: to 4e-15 of it


class _Found(NamedTuple):
    """What a bisection has found."""

    low: FloatArray  # bounds on ν, (..., N)
    high: FloatArray
    crawls: FloatArray  # per step, (..., N)
    spent: FloatArray  # per step, (..., 1)


class HostMultipliers:
    """The multipliers ν_h at which each host takes no more crawls than it may, as functions of λ.

    A crawl of a source of cost C on host h costs λC + ν_h in the Lagrangian. Where all sources of a
    host have the same cost, that sum does not depend on λ while the host is used up: it is found
    once, at λ = 0. Elsewhere ν_h decreases with λ, so that the bounds on ν found at larger and
    smaller λ bound it, and so do the intervals between crawls. The spending of such a host is known
    before ν is: as soon as the sources whose intervals still depend on ν all have the same cost.

    Arguments:
        arm: of the fleet.
        hosts: its hosts.
        at_zero: ν and the crawls per step at λ = 0, both (..., N), if they are known.
    """

    def __init__(
        self, arm: RenewalArm, hosts: Hosts, at_zero: tuple[FloatArray, FloatArray] | None = None
    ) -> None:
        self._arm, self._cost = arm, arm.sources.cost
        self._host_of, self._per_host = hosts.host_of, hosts.per_host
        # Sources in order of their hosts, and where each host begins: sums are then cheap.
        self._order = np.argsort(self._host_of, kind="stable")
        self._first = np.flatnonzero(np.diff(self._host_of[self._order], prepend=-1))
        self._one_each = self._order[self._first]  # a source of each host
        if at_zero is None:
            high = self._largest(arm.break_even * self._cost)
            found = self._bisect(0.0, np.zeros_like(high), high, None, None)
            at_zero = found.high, found.crawls
        self._full, self._rates = at_zero
        by_host = self._cost[..., self._order]
        cheapest = self._per_source(np.minimum.reduceat(by_host, self._first, axis=-1))
        unequal = (cheapest < self._largest(self._cost)) & (self._full > 0)
        self._mixed = unequal.reshape(-1, unequal.shape[-1]).any(axis=0)  # sources, (N,)
        self._nested: HostMultipliers | None = None
        if self._mixed.any() and not self._mixed.all():
            some = np.flatnonzero(self._mixed)
            here = Hosts(np.unique(self._host_of[some], return_inverse=True)[1], self._per_host)
            known = self._full[..., some], self._rates[..., some]
            self._nested = HostMultipliers(arm.select(some), here, known)
        self.restart()

    def restart(self) -> None:
        """Forget the bounds: a new search for λ begins."""
        arm = self._arm
        self._below = (np.zeros_like(self._full), arm.longest)  # at a larger λ
        self._above = (self._full, arm.shortest)  # at a smaller λ
        self._last = self._below[0], self._full
        if self._nested is not None:
            self._nested.restart()

    def learn(self, enough: BoolArray) -> None:
        """Bound ν by that of the last λ: from now on λ is smaller where `enough`, else larger."""
        if self._nested is not None:
            self._nested.learn(enough)
        elif self._mixed.any():
            low, high = self._last
            self._below = np.where(enough, low, self._below[0]), self._below[1]
            self._above = np.where(enough, self._above[0], high), self._above[1]

    def multipliers(self, multiplier: FloatArray) -> FloatArray:
        """Return ν of each source's host, (..., N), at λ = `multiplier`, (..., 1)."""
        if self._nested is None and self._mixed.any():
            return self._bisect(multiplier, np.zeros_like(self._full), self._full, None, None).high
        nu = np.maximum(self._full - multiplier * self._cost, 0.0)
        if self._nested is not None:
            nu[..., np.flatnonzero(self._mixed)] = self._nested.multipliers(multiplier)
        return nu

    def crawled(self, multiplier: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return crawls and reward per step, (..., N) each, at λ = `multiplier`, (..., 1)."""
        arm, zero = self._arm, np.zeros_like(self._full)
        found = self._bisect(multiplier, zero, self._full, None, None)

        def at(nu: FloatArray) -> tuple[FloatArray, FloatArray]:
            total = multiplier + nu / self._cost
            interval = arm.interval(total)
            pays = total < arm.break_even
            reward = arm.cycle_reward(interval) / arm.cycle_length(interval)
            return np.where(pays, arm.crawl_rate(interval), 0.0), np.where(pays, reward, 0.0)

        (many, most), (few, least) = at(found.low), at(found.high)
        part = np.divide(found.crawls - few, many - few, out=np.zeros_like(few), where=many > few)
        return found.crawls, least + np.clip(part, 0.0, 1.0) * (most - least)

    def spending(
        self,
        multiplier: FloatArray,
        crawls: FloatArray,
        low: FloatArray,
        high: FloatArray,
        enough: Callable[[FloatArray], BoolArray],
    ) -> FloatArray:
        """Return the spending per step, (..., 1), or a bound on it of which `enough` says the same.

        Crawls jump where an interval changes; at ν they are mixed from both sides of the jump, so
        that the host is used up.

        Arguments:
            multiplier: λ, (..., 1).
            crawls: per step, where no host is used up, (..., N).
            low, high: bounds on λ, (..., 1).
            enough: whether a spending (..., 1) is small enough; what exceeds one that is not, is
                not either.
        """
        if self._nested is None and self._mixed.any():
            return self._bounded(multiplier, low, high, enough)
        spent = np.where(self._full > multiplier * self._cost, self._rates, crawls) * self._cost
        if self._nested is None:
            return spent.sum(axis=-1, keepdims=True)
        alike = spent[..., ~self._mixed].sum(axis=-1, keepdims=True)
        return alike + self._nested.spending(
            multiplier, crawls[..., self._mixed], low, high, lambda more: enough(alike + more)
        )

    def _bounded(
        self,
        multiplier: FloatArray,
        low: FloatArray,
        high: FloatArray,
        enough: Callable[[FloatArray], BoolArray],
    ) -> FloatArray:
        """Return the spending, or a bound on it, from a bisection between the bounds on ν."""
        least, most = self._below[0], self._above[0]
        # λ + ν/C lies between the sums of the bounds, and so do the intervals.
        shortest = self._arm.interval(low + least / self._cost, self._above[1], self._below[1]) - 1
        longest = self._arm.interval(high + most / self._cost, self._above[1], self._below[1])
        self._above, self._below = (most, shortest), (least, longest)
        found = self._bisect(multiplier, least, most, shortest, longest, enough)
        self._last = found.low, found.high
        return found.spent

    def paid(self, nu: FloatArray) -> FloatArray:
        """Return Σ_h ν_h · per_host, (...), of ν (..., N)."""
        return self._per_host * nu[..., self._one_each].sum(axis=-1)

    def _bisect(
        self,
        multiplier: FloatArray | float,
        low: FloatArray,
        high: FloatArray,
        shortest: FloatArray | None,
        longest: FloatArray | None,
        enough: Callable[[FloatArray], BoolArray] | None = None,
    ) -> _Found:
        """Return ν, which lies between `low` and `high`, and the crawls; with `enough`, bounds on ν
        as soon as they decide whether the spending is small enough.

        The intervals lie in (shortest, longest], where these are given.
        """
        arm, cost = self._arm, self._cost

        def rates(nu: FloatArray) -> tuple[FloatArray, FloatArray]:
            total = multiplier + nu / cost
            interval = arm.interval(total, shortest, longest)
            return np.where(total < arm.break_even, arm.crawl_rate(interval), 0.0), interval

        at_low, k_low = rates(low)
        above = self._total(at_low)
        free = (above <= self._per_host * (1 + 1e-12)) & (low == 0)
        at_high, k_high = rates(high)
        below = self._total(at_high)
        # Bounds are met to rounding only.
        high = np.where(below <= self._per_host, high, high * (1 + 1e-12))
        high = np.where(free, 0.0, high)
        at_high = np.where(free, at_low, at_high)
        shortest, longest = k_low - 1.0, np.where(free, k_low, k_high)
        least = 2.0**-_HALVINGS * self._largest(arm.break_even * cost)
        bracket = Bracket(low, high)
        for _ in range(_HALVINGS):
            settled = free | (bracket.high - bracket.low <= least)
            if enough is not None:
                spent, most, known = self._spending_bounds(at_low, at_high)
                decided = enough(most) | ~enough(spent)
                settled = settled | known | decided
            if settled.all():
                break
            middle = np.where(settled, bracket.high, bracket.middle())
            found, interval = rates(middle)
            fits = settled | (self._total(found) <= self._per_host)
            bracket.learn(middle, fits)
            at_high, at_low = np.where(fits, found, at_high), np.where(fits, at_low, found)
            longest = np.where(fits, interval, longest)
            shortest = np.where(fits, shortest, interval - 1.0)
        above, below = self._total(at_low), self._total(at_high)
        weight = (self._per_host - below) / np.where(above > below, above - below, 1.0)
        crawls = np.clip(weight, 0.0, 1.0) * (at_low - at_high) + at_high
        spent = (crawls * cost).sum(axis=-1, keepdims=True)
        return _Found(bracket.low, bracket.high, crawls, spent)

    def _spending_bounds(
        self, at_low: FloatArray, at_high: FloatArray
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Return bounds on the spending, (..., 1), from the crawls at bounds on ν, and whether that
        of each source's host is known, (..., N).

        The crawls lie between those given and add up to what the host takes.
        """
        more = at_low - at_high
        missing = np.clip(self._per_host - self._total(at_high), 0.0, self._total(more))
        cheapest = self._per_source(
            np.minimum.reduceat(
                np.where(more > 0, self._cost, np.inf)[..., self._order], self._first, axis=-1
            )
        )
        dearest = self._largest(np.where(more > 0, self._cost, 0.0))
        known = ~(cheapest < dearest)
        spent = (at_high * self._cost).sum(axis=-1, keepdims=True)
        one = self._one_each
        least = missing * np.where(known, dearest, cheapest)
        most = missing * dearest
        return (
            spent + least[..., one].sum(axis=-1, keepdims=True),
            spent + most[..., one].sum(axis=-1, keepdims=True),
            known,
        )

    def _largest(self, values: FloatArray) -> FloatArray:
        """Return the largest of each source's host, (..., N)."""
        by_host = values[..., self._order]
        return self._per_source(np.maximum.reduceat(by_host, self._first, axis=-1))

    def _total(self, crawls: FloatArray) -> FloatArray:
        """Return the sum over each source's host, (..., N)."""
        return self._per_source(np.add.reduceat(crawls[..., self._order], self._first, axis=-1))

    def _per_source(self, of_host: FloatArray) -> FloatArray:
        return of_host[..., self._host_of]
