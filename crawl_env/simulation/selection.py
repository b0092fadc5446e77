"""Selection of the sources to crawl: in decreasing priority, under a budget.

Ties go to the source crawled longer ago, then to the lower number. Sources that may not be crawled
now, or whose host has reached its limit, are skipped.

Selections are flat indices of cells (environment · N + source): of shape (k, B) if each of several
environments selects the same number, and (K,) otherwise. One source of one environment is a scalar.
In these shapes numpy sums rewards and sets cells fastest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crawl_env.fleet.sources import Sources
from crawl_env.numerics import BoolArray, FloatArray, IntArray

# A sum of costs may exceed the budget by this fraction of it, which allows for rounding.
TOLERANCE = 1e-12
# A balance within this fraction of the budget counts as empty, since rounding errors add up.
BALANCE_TOLERANCE = 1e-9
# Totals of costs that are examined for how much of a budget can be spent.
_MOST_TOTALS = 10**6
# Up to this many sources, repeated argmax is faster than partitioning.
_FEW = 3


class Hosts:
    """The hosts of a fleet, each of which may be crawled at most `per_host` times per step.

    Arguments:
        host_of: (N,) number of the host of each source.
        per_host: crawls per step and host.
    """

    def __init__(self, host_of: NDArray[np.intp], per_host: int) -> None:
        self.host_of, self.per_host = host_of, per_host

    @staticmethod
    def of(sources: Sources, per_host: int) -> Hosts | None:
        """Return the hosts of a fleet, or None if no host has more than `per_host` sources."""
        host_of = sources.host_of
        if host_of is None or np.bincount(host_of).max() <= per_host:
            return None
        return Hosts(host_of, per_host)

    def have_room(
        self, chosen: NDArray[np.bool_], order: NDArray[np.intp], more: int = 0
    ) -> NDArray[np.bool_]:
        """Return whether the host of each source admits it after the chosen ones before it, (B, N).

        Arguments:
            chosen: (B, N), in the order of crawling.
            order: (B, N), the numbers of the sources in that order.
            more: number of crawls that must be admitted besides the chosen ones; 0 if `chosen`
                includes the source itself.
        """
        host = self.host_of[order]
        by_host = np.argsort(host, axis=-1, kind="stable")
        here = np.take_along_axis(chosen, by_host, axis=-1)
        count = np.cumsum(here, axis=-1)
        sorted_host = np.take_along_axis(host, by_host, axis=-1)
        begins = np.diff(sorted_host, axis=-1, prepend=-1) != 0
        before = np.maximum.accumulate(np.where(begins, count - here, 0), axis=-1)
        room = np.empty_like(chosen)
        np.put_along_axis(room, by_host, count - before + more <= self.per_host, axis=-1)
        return room


def whole_budget(cost: FloatArray, budget: float) -> int | None:
    """Return how many sources one step's budget covers if all cost the same, else None."""
    if cost.min() != cost.max():
        return None
    number = budget * (1 + TOLERANCE) / cost.flat[0]
    return int(min(number, cost.shape[-1]))


def most_spent(cost: FloatArray, budget: float) -> float:
    """Return the largest total cost of a set of sources that is within the budget.

    It is exact if costs are equal or multiples of 0.001. For other costs, and if the number of
    totals to examine is too large, it is the smaller of the budget and the total of all costs,
    which no set exceeds.

    >>> most_spent(np.array([1.0, 1.0, 1.0]), 2.5), most_spent(np.array([2.0, 5.0, 5.0]), 6.5)
    (2.0, 5.0)
    """
    bound = min(budget, float(cost.sum()))
    for unit in (float(cost.min()), 1e-3):
        units = np.rint(cost / unit)
        whole = np.abs(units * unit - cost) <= TOLERANCE * cost
        size = budget * (1 + TOLERANCE) / unit
        if whole.all() and size < _MOST_TOTALS:
            return min(bound, _largest_sum(units.astype(np.int64), int(size)) * unit)
    return bound


def _largest_sum(parts: NDArray[np.int64], limit: int) -> int:
    """Return the largest sum of some of the parts that is at most `limit`."""
    reachable, all_sums = 1, (1 << (limit + 1)) - 1  # bit s is set if some parts sum to s
    kinds, counts = np.unique(parts[parts <= limit], return_counts=True)
    for part, count in zip(kinds.tolist(), counts.tolist(), strict=True):
        batch = 1
        while count and not reachable >> limit:  # in batches of 1, 2, 4, … equal parts
            taken = min(batch, count)
            reachable |= (reachable << part * taken) & all_sums
            count, batch = count - taken, 2 * batch
    return reachable.bit_length() - 1


def affordable(cost: FloatArray, budget: float) -> NDArray[np.bool_]:
    """Return whether one step's budget covers a crawl of each source, in the shape of `cost`."""
    return cost <= budget * (1 + TOLERANCE)


def select(
    priority: NDArray[np.floating],
    crawled_at: FloatArray,
    cost: FloatArray,
    budget: float,
    whole: int | None,
    balance: FloatArray | None,
    allowed: BoolArray | None = None,
    hosts: Hosts | None = None,
) -> IntArray:
    """Return the sources to crawl, as flat indices of cells.

    Arguments:
        priority, crawled_at: (B, N).
        whole: the result of `whole_budget`.
        balance: (B,) under `budget_rule="average"`, None under "step".
        allowed: (B, N), or None if all sources may be crawled.
        hosts: the shared hosts, if any.

    Raises:
        ValueError: a priority is NaN.
    """
    if balance is not None:
        return select_from_balance(priority, crawled_at, cost, balance, budget, allowed, hosts)
    if whole is not None and allowed is None and hosts is None:
        return select_top(priority, whole, crawled_at)
    return select_greedy(priority, crawled_at, cost, budget, allowed, hosts)


def select_top(priority: NDArray[np.floating], k: int, crawled_at: FloatArray) -> IntArray:
    """Return the k sources of largest priority in each environment, ascending by number.

    priority, crawled_at: (B, N). Raises ValueError if a priority is NaN.
    """
    num_envs, n = priority.shape
    if k >= n:
        _refuse_nan(priority)
        return by_pick(np.arange(num_envs * n), num_envs)
    if num_envs == 1 and k == 1:
        best: Any = priority.argmax()
        highest = priority.item(best)
        if np.count_nonzero(priority == highest) == 1:
            return best
        return _top_with_ties(priority, k, crawled_at)
    if k > _FEW:
        picked, threshold = _top_by_partition(priority, k)
    elif num_envs == 1:
        picked, threshold = _top_of_one(priority, k)
    else:
        picked, threshold = _top_by_maximum(priority, k)
    if picked is None or np.count_nonzero(priority >= threshold) != num_envs * k:
        return _top_with_ties(priority, k, crawled_at)
    return picked


def by_pick(cells: IntArray, num_envs: int) -> IntArray:
    """Return ascending cells, k in each environment, as (k, B); unchanged for one environment."""
    return cells if num_envs == 1 else cells.reshape(num_envs, -1).T


def _top_of_one(priority: NDArray[np.floating], k: int) -> tuple[IntArray | None, Any]:
    flat = priority.ravel().copy()
    best = int(flat.argmax())
    if np.isnan(flat.item(best)):  # argmax stops at NaN
        return None, None
    picked = [best]
    for _ in range(k - 1):
        flat[best] = -np.inf
        best = int(flat.argmax())
        picked.append(best)
    return np.array(sorted(picked)), flat.item(best)


def _top_by_maximum(priority: NDArray[np.floating], k: int) -> tuple[IntArray, Any]:
    num_envs, n = priority.shape
    first = np.arange(0, num_envs * n, n)
    flat = priority.reshape(-1)
    _refuse_nan(priority)
    if k == 1:
        best = priority.argmax(-1)
        best += first
        return best[None], flat.take(best)[:, None]
    flat = flat.copy()
    picked = np.empty((k, num_envs), dtype=np.intp)
    for j in range(k):
        if j:
            flat[picked[j - 1]] = -np.inf
        np.add(flat.reshape(num_envs, n).argmax(-1), first, picked[j])
    threshold = flat.take(picked[-1])[:, None]
    return _ascending(picked), threshold


def _ascending(picked: IntArray) -> IntArray:
    """Sort the picks of each environment, (k, B), by a comparison network."""
    for end in range(len(picked) - 1, 0, -1):
        for j in range(end):
            low = np.minimum(picked[j], picked[j + 1])
            np.maximum(picked[j], picked[j + 1], out=picked[j + 1])
            picked[j] = low
    return picked


def _top_by_partition(priority: NDArray[np.floating], k: int) -> tuple[IntArray | None, Any]:
    num_envs, n = priority.shape
    _refuse_nan(priority)
    threshold = np.partition(priority, n - k, axis=-1)[:, n - k, None]
    above = np.flatnonzero(priority >= threshold)
    return (by_pick(above, num_envs) if above.size == num_envs * k else None), threshold


def _top_with_ties(priority: NDArray[np.floating], k: int, crawled_at: FloatArray) -> IntArray:
    """Return the same as `select_top`, sorting only the ties at the threshold."""
    _refuse_nan(priority)
    num_envs, n = priority.shape
    threshold = np.partition(priority, n - k, axis=-1)[:, n - k, None]
    above = priority > threshold
    missing = k - np.count_nonzero(above, axis=-1)
    tied = np.flatnonzero(priority == threshold)
    env = tied // n
    order = np.lexsort((crawled_at.reshape(-1)[tied], env))
    place = np.arange(tied.size) - np.searchsorted(env, np.arange(num_envs))[env]
    winners = tied[order[place < missing[env]]]
    chosen = above.reshape(-1)
    chosen[winners] = True
    return by_pick(np.flatnonzero(chosen), num_envs)


def select_greedy(
    priority: NDArray[np.floating],
    crawled_at: FloatArray,
    cost: FloatArray,
    budget: float,
    allowed: BoolArray | None = None,
    hosts: Hosts | None = None,
) -> IntArray:
    """Return the sources selected in decreasing priority, flat (K,); those that do not fit the
    remaining budget are skipped.

    priority, crawled_at, allowed: (B, N); cost: (N,) or (B, N). In every environment Σ cost ≤
    budget.
    """
    order = _in_order(priority, crawled_at)
    cost = np.take_along_axis(np.broadcast_to(cost, priority.shape), order, axis=-1)
    slack = budget * TOLERANCE
    left = np.full((len(priority), 1), float(budget))
    taken = np.zeros(priority.shape, dtype=bool)
    pending = cost <= left + slack
    if allowed is not None:
        pending &= np.take_along_axis(allowed, order, axis=-1)
    # Each round selects all up to the first that does not fit, then drops all that no longer fit.
    while pending.any():
        ready = pending if hosts is None else pending & hosts.have_room(taken | pending, order)
        spent = np.cumsum(np.where(ready, cost, 0.0), axis=-1)
        fits = ready & (spent <= left + slack)
        taken |= fits
        left = left - np.where(fits, cost, 0.0).sum(axis=-1, keepdims=True)
        pending &= ~fits
        pending &= cost <= left + slack
        if hosts is not None:  # drop sources whose host has no room even if they come next
            pending &= hosts.have_room(taken, order, more=1)
    return _flat(order, taken)


def select_from_balance(
    priority: NDArray[np.floating],
    crawled_at: FloatArray,
    cost: FloatArray,
    balance: FloatArray,
    budget: float,
    allowed: BoolArray | None = None,
    hosts: Hosts | None = None,
) -> IntArray:
    """Return the sources of priority ≥ 0 selected while the balance is positive, flat (K,).

    balance: (B,) budget units, which the last selection may leave negative. priority, crawled_at,
    allowed: (B, N).
    """
    cost = np.broadcast_to(cost, priority.shape)
    empty = budget * BALANCE_TOLERANCE
    n = priority.shape[-1]
    # At most k sources can be selected per environment; if all are allowed, only k need sorting.
    k = int(min(np.ceil(max((balance.max() + empty) / cost.min(), 0.0)), n))
    candidates: Any = np.arange(priority.size).reshape(priority.shape)
    if allowed is None and hosts is None and k < n:
        if k == 0:
            _refuse_nan(priority)
            return np.empty(0, dtype=np.intp)
        top = select_top(priority, k, crawled_at)
        candidates = np.sort(top, axis=None).reshape(len(priority), k)
    order = _in_order(priority.take(candidates), crawled_at.take(candidates))
    cells = np.take_along_axis(candidates, order, axis=-1)
    ready = priority.take(cells) >= 0
    if allowed is not None:
        ready &= allowed.take(cells)
    if hosts is not None:
        ready &= hosts.have_room(ready, order)
    payment = np.where(ready, cost.take(cells), 0.0)
    before = np.cumsum(payment, axis=-1) - payment
    return np.sort(cells[ready & (balance[:, None] - before > empty)])


def _in_order(priority: NDArray[np.floating], crawled_at: FloatArray) -> IntArray:
    """Return the order of selection in each environment, (B, N) source numbers."""
    _refuse_nan(priority)
    return np.lexsort((crawled_at, -priority), axis=-1)


def _flat(order: IntArray, taken: NDArray[np.bool_]) -> IntArray:
    num_envs, n = order.shape
    cells = order + np.arange(0, num_envs * n, n)[:, None]
    return np.sort(cells[taken])


def _refuse_nan(priority: NDArray[np.floating]) -> None:
    if np.isnan(priority.max()):  # max propagates NaN, at a third of the cost of isnan().any()
        env, source = np.argwhere(np.isnan(np.atleast_2d(priority)))[0]
        raise ValueError(
            f"action has NaN as priority of source {source} (environment {env}); "
            "give every source a number"
        )
