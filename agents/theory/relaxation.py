"""What no policy can beat: the relaxed bound, and the exact optimum of small fleets.

Both are for deterministic arrivals, and for random arrivals at unobserved sources, where the mean
follows the same recursion; the relaxed bound also for any other law of decay there. Seeing the
content before crawling is worth more than either.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.theory.renewal import Cycle
from crawl_env.content.decay import EXPONENTIAL, Decay
from crawl_env.fleet.hosts import Bracket, Hosts
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray
from crawl_env.simulation.selection import TOLERANCE
from crawl_env.simulation.task import check_budget

# Beyond 45 time constants the content is at its ceiling to within rounding.
_FULL = 45.0
_MOST_CELLS = 1e7  # of a table of charges


class Relaxation(NamedTuple):
    """The Lagrangian relaxation of a fleet under a budget."""

    bound: float | FloatArray  # utility / epoch
    price: float | FloatArray  # λ*, utility / budget unit: what one more crawl is worth


def relaxation(
    sources: Sources, budget: float, per_host: int = 1, decay: Decay = EXPONENTIAL
) -> Relaxation:
    """Minimise λM + Σ_h ν_h H + Σ_i max_k max(0, (G_ik − (λC_i + ν_h(i))/q_i)/L_ik) over λ, ν ≥ 0.

    G, L and q are of `agents.theory.renewal`: without failures G_k = x_k, L_k = k, q = 1. ν is the
    charge for the H = `per_host` crawls that a shared host takes in an epoch; k is at least the
    delay.
    The bound holds for every policy whose cost is at most M on average, from a fresh or empty
    start. Where a whole interval of λ is optimal, `price` is its middle. `decay` is the law of
    interest, in `sources.decay_rate` × age.

    Returns floats for a fleet (N,), arrays (B,) for a batch (B, N).

    Raises:
        ValueError: budget is not positive and finite; or the fleet has capacities and `decay` is
            not exponential.

    >>> relaxation(Sources.preset("table1"), 2).bound.__round__(6)
    338.05394
    """
    _refuse_no_fleet(sources)
    check_budget(budget)
    _check_per_host(per_host)
    search = _PriceSearch(sources, per_host, decay)
    low = search.first_where(lambda spent: spent <= budget * (1 + TOLERANCE))
    high = search.first_where(lambda spent: spent < budget * (1 - TOLERANCE))
    price = 0.5 * (low + high)
    bound = price[..., 0] * budget + search.earned(price)
    if sources.arrival_rate.ndim == 1:
        return Relaxation(float(bound), float(price[0]))
    return Relaxation(bound, price[:, 0])


def net_reward(sources: Sources, price: FloatArray) -> FloatArray:
    """Return max_k max(0, (G_k − λC/q)/L_k), (..., N) utility / epoch: what each source earns at
    most when every unit of its cost is charged λ = `price`, (..., 1).

    >>> net_reward(Sources.preset("table1"), np.array([100.0])).round(3)
    array([84.536, 75.854,  0.   ,  0.   ])
    """
    cycle = Cycle(sources)
    interval = _PriceSearch(sources).interval(price)
    rate = (cycle.content(interval) - price * sources.cost / cycle.success) / cycle.length(interval)
    return np.maximum(rate, 0.0)


def relaxed_bound(sources: Sources, budget: float, per_host: int = 1) -> float:
    """Return the reward per epoch (utility) that no policy can exceed; see `relaxation`.

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


class _PriceSearch:
    """Bisection on λ, remembering for every source the intervals between which its own lies."""

    def __init__(self, sources: Sources, per_host: int = 1, decay: Decay = EXPONENTIAL) -> None:
        self._sources, self._cycle = sources, Cycle(sources, decay)
        self._worth = self._cycle.success * sources.content_at(np.inf) / sources.cost
        # A silent source is never worth a crawl: no need to search for its interval.
        most = np.maximum(
            np.ceil(max(_FULL, decay.end) / sources.decay_per_epoch) + 1, sources.delay
        )
        self._most = np.where(self._worth > 0, most, sources.delay)
        self._least = np.broadcast_to(sources.delay - 1.0, self._most.shape)
        self._top = self._worth.max(axis=-1, keepdims=True)
        self._hosts = Hosts.of(sources, per_host)
        self._tolerance = 1e-12 if self._hosts else 1e-15
        self._charges = self._table() if self._hosts or sources.is_capped else None

    def _table(self) -> FloatArray | None:
        """Return the charges at ages 1, 2, …, (ages, ..., N): for searches that ask too often."""
        ages = np.arange(1.0, self._most.max() + 1)
        if ages.size * self._most.size > _MOST_CELLS:
            return None
        return self._cycle.charge(ages.reshape(-1, *(1,) * self._most.ndim))

    def first_where(self, enough: Callable[[FloatArray], NDArray[np.bool_]]) -> FloatArray:
        """Return the smallest λ at which the spending per epoch satisfies `enough`, (..., 1)."""
        low, high = np.zeros_like(self._top), self._top.copy()
        shortest, longest = self._least, self._most
        free = enough(self._spent(low, None)[0])
        for _ in range(200):
            middle = 0.5 * (low + high)
            spent, interval = self._spent(middle, (shortest, longest))
            done = enough(spent)
            high, low = np.where(done, middle, high), np.where(done, low, middle)
            longest = np.where(done, interval, longest)
            shortest = np.where(done, shortest, interval - 1)
            if np.all(free | (high - low <= self._tolerance * high)):
                break
        return np.where(free, 0.0, high)

    def earned(self, price: FloatArray) -> FloatArray:
        """Return Σ_h ν_h H + Σ_i max(0, (G − (λC + ν)/q)/L), utility per epoch, (...)."""
        cycle, cost = self._cycle, self._sources.cost
        surcharge = self._surcharge(price)[0] if self._hosts else np.zeros(1)
        interval = self.interval(price + surcharge / cost)
        each = (price * cost + surcharge) / cycle.success
        rate = np.maximum((cycle.content(interval) - each) / cycle.length(interval), 0.0)
        paid = self._hosts.paid(surcharge) if self._hosts else 0.0
        return rate.sum(axis=-1) + paid

    def interval(self, price: FloatArray) -> FloatArray:
        """Return the epochs between crawls that are best under the charge `price`, (..., N)."""
        return self._between(price, self._least, self._most)

    def _spent(self, price: FloatArray, bracket: Bracket | None) -> tuple[FloatArray, FloatArray]:
        """Return the spending per epoch, (..., 1), and the intervals, (..., N).

        Surcharges change the intervals against the price: the bracket is of no use with them.
        """
        if self._hosts:
            crawls, interval = self._surcharge(price)[1], self._most
        else:
            crawls, interval = self._crawls(price, bracket)
        return (crawls * self._sources.cost).sum(axis=-1, keepdims=True), interval

    def _surcharge(self, price: FloatArray) -> tuple[FloatArray, FloatArray]:
        assert self._hosts is not None
        cost = self._sources.cost
        most = np.maximum(self._worth - price, 0.0) * cost
        return self._hosts.surcharge(lambda nu, b: self._crawls(price + nu / cost, b), most)

    def _crawls(
        self, charged: FloatArray, bracket: Bracket | None
    ) -> tuple[FloatArray, FloatArray]:
        """Return the crawls per epoch under a charge per unit of cost, and the intervals."""
        interval = self._between(charged, *(bracket or (self._least, self._most)))
        return np.where(charged < self._worth, self._cycle.crawls(interval), 0.0), interval

    def _between(self, price: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
        """Find the smallest k in (low, high] whose break-even charge reaches the price."""
        low, high = low.copy(), high.copy()
        while (open_ := high - low > 1).any():
            middle = np.floor(0.5 * (low + high))
            reached = self._reaches(price, middle, open_)
            k = middle[open_]
            high[open_] = np.where(reached, k, high[open_])
            low[open_] = np.where(reached, low[open_], k)
        return high

    def _reaches(self, price: FloatArray, age: FloatArray, where: NDArray[np.bool_]) -> Any:
        if self._charges is None:
            return self._cycle.reaches(price, age, where)
        row = np.maximum(age - 1.0, 0.0).astype(np.intp)
        return (np.take_along_axis(self._charges, row[None], axis=0)[0] >= price)[where]


def _refuse_batch(sources: Sources, function: str) -> None:
    _refuse_no_fleet(sources)
    if sources.arrival_rate.ndim != 1:
        raise ValueError(f"{function} takes one fleet, not a batch; give it `sources.row(b)`")
