"""Selection of the sources to crawl: in decreasing priority, under a budget.

Ties go to the source crawled longer ago, then to the lower number. Sources that may not be crawled
now, or whose host has reached its limit, are skipped.

Selections are flat indices of cells (environment · N + source), ascending, (K,).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crawl_env.compiled import compiled
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import BoolArray, FloatArray, IntArray
from crawl_env.simulation.top import Priority, partition, top_kernel

# A sum of costs may exceed the budget by this fraction of it, which allows for rounding.
TOLERANCE = 1e-12
# A balance within this fraction of the budget counts as empty, since rounding errors add up.
BALANCE_TOLERANCE = 1e-9
# Totals of costs that are examined for how much of a budget can be spent.
_MOST_TOTALS = 10**6
# Types of priorities for which kernels are compiled; others are converted.
KERNEL_TYPES = (np.dtype(np.float32), np.dtype(np.float64))
_ALL = np.empty(0, dtype=bool)  # no source is excluded
_NONE = np.empty(0, dtype=np.intp)  # no source has a shared host


class Hosts(NamedTuple):
    """The hosts of a fleet, each of which may be crawled at most `per_host` times per step."""

    host_of: NDArray[np.intp]  # (N,) number of the host of each source
    per_host: int  # crawls per step and host

    @staticmethod
    def of(sources: Sources, per_host: int) -> Hosts | None:
        """Return the hosts of a fleet, or None if no host has more than `per_host` sources."""
        host_of = sources.host_of
        if host_of is None or np.bincount(host_of).max() <= per_host:
            return None
        return Hosts(host_of, per_host)


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
            number = min(batch, count)
            reachable |= (reachable << part * number) & all_sums
            count, batch = count - number, 2 * batch
    return reachable.bit_length() - 1


def affordable(cost: FloatArray, budget: float) -> NDArray[np.bool_]:
    """Return whether one step's budget covers a crawl of each source, in the shape of `cost`."""
    return cost <= budget * (1 + TOLERANCE)


def select(
    priority: Priority,
    crawled_at: FloatArray,
    cost: FloatArray,
    budget: float,
    whole: int | None = None,
    balance: FloatArray | None = None,
    allowed: BoolArray | None = None,
    hosts: Hosts | None = None,
    paid: FloatArray | None = None,
) -> IntArray:
    """Return the sources to crawl, as flat indices of cells, (K,).

    Without balances, sources that do not fit the rest of the budget are skipped: in every
    environment Σ cost ≤ budget. With balances, sources of priority ≥ 0 are selected while the
    balance is positive, so that the last one may leave it negative.

    Arguments:
        priority, crawled_at: (B, N).
        cost: (N,) or (B, N).
        budget: M, budget units / step.
        whole: the result of `whole_budget`, with which a selection without other limits is faster.
        balance: (B,) budget units under `budget_rule="average"`, None under "step".
        allowed: (B, N), or None if all sources may be crawled.
        hosts: the shared hosts, if any.
        paid: (B, N) what is taken from the budget for each source that is selected; None: its cost,
            which must fit the budget in any case.

    Raises:
        ValueError: a priority is NaN.
    """
    limits = balance, allowed, hosts, paid
    if whole is not None and all(limit is None for limit in limits):
        return select_top(priority, whole, crawled_at)
    funds = np.full(len(priority), float(budget)) if balance is None else balance.astype(np.float64)
    selection = np.empty(priority.size + 1, dtype=np.intp)
    count = _in_turn(
        _flat(priority),
        _flat64(crawled_at),
        _flat64(cost),
        funds,
        budget * (TOLERANCE if balance is None else BALANCE_TOLERANCE),
        balance is not None,
        _ALL if allowed is None else np.array(allowed, dtype=bool).reshape(-1),
        _NONE if hosts is None else hosts.host_of,
        0 if hosts is None else hosts.per_host,
        _flat64(cost if paid is None else paid),
        selection,
    )
    if count < 0:
        refuse_nan(priority.reshape(-1), priority.shape[1])
    return selection[:count].copy()


def select_top(priority: Priority, k: int, crawled_at: FloatArray) -> IntArray:
    """Return the k sources of largest priority in each environment, or all if there are fewer.

    priority, crawled_at: (B, N). Raises ValueError if a priority is NaN.

    >>> select_top(np.array([[0.5, 2.0, 0.5]]), 2, np.array([[-3.0, -1.0, -4.0]]))
    array([1, 2])
    """
    num_envs, n = priority.shape
    k = min(k, n)
    best = np.empty(num_envs * k, dtype=np.intp)
    flat = _flat(priority)
    if k == 0 and not np.isnan(flat).any():
        return best
    if k == 0 or not top_kernel(num_envs, n, k)(flat, _flat64(crawled_at), n, k, best):
        refuse_nan(flat, n)
    return best


@compiled
def _in_turn(
    priority: Priority,
    crawled_at: FloatArray,
    cost: FloatArray,
    funds: FloatArray,
    tolerance: float,
    on_average: bool,
    allowed: BoolArray,
    host_of: IntArray,
    per_host: int,
    charge: FloatArray,
    selection: IntArray,
) -> int:
    """Take cells in decreasing priority; write them to `selection` (B·N + 1,), ascending, and
    return their number.

    Return −1 if a priority is NaN. The cells are sorted only as far as they are needed.

    Arguments:
        priority, crawled_at: (B·N,).
        cost: (N,) or (B·N,).
        funds: (B,) budget units, reduced by the costs.
        tolerance: the amount of budget that counts as nothing.
        on_average: whether cells of priority ≥ 0 are taken while something is left; else cells
            are taken whose cost does not exceed what is left.
        allowed: (B·N,), or empty if all cells are allowed.
        host_of: (N,), or empty if crawls per host are not limited.
        per_host: number of cells that may be taken of one host.
        charge: (N,) or (B·N,) what is taken from `funds`.
    """
    n = priority.size // funds.size
    cells, pivots = np.empty(n, np.intp), np.empty(n + 1, np.intp)
    crawls = np.empty(host_of.max() + 1 if host_of.size > 0 else 0, np.intp)
    is_selected = np.zeros(n, np.bool_)
    count = 0
    for row in range(funds.size):
        size, least = 0, np.inf
        for cell in range(row * n, (row + 1) * n):
            p, price = priority[cell], cost[cell % cost.size]
            if p != p:
                return -1
            possible = p >= 0 if on_average else price <= funds[row] + tolerance
            if possible and (allowed.size == 0 or allowed[cell]):
                cells[size] = cell
                size += 1
                least = min(least, price)
        crawls[:] = 0
        open_cells = size  # at most so many can still be taken
        if host_of.size > 0:
            for i in range(size):
                crawls[host_of[cells[i] % n]] += 1
            open_cells = 0
            for host in range(crawls.size):
                open_cells += min(crawls[host], per_host)
                crawls[host] = 0
        depth, place = 1, 0
        pivots[0] = size
        while place < size and open_cells > 0:
            if funds[row] <= tolerance if on_average else least > funds[row] + tolerance:
                break
            while pivots[depth - 1] > place:  # until the next cell in order is at its place
                end = pivots[depth - 1]
                pivots[depth] = partition(priority, crawled_at, cells, place, end, end)
                depth += 1
            depth -= 1
            cell = cells[place]
            place += 1
            price = cost[cell % cost.size]
            if not on_average and price > funds[row] + tolerance:
                continue
            if host_of.size > 0:
                if crawls[host_of[cell % n]] == per_host:
                    continue
                crawls[host_of[cell % n]] += 1
            funds[row] -= charge[cell % charge.size]
            is_selected[cell % n] = True
            open_cells -= 1
        for i in range(n):
            selection[count] = row * n + i
            count += is_selected[i]
            is_selected[i] = False
    return count


def _flat(priority: Priority) -> Priority:
    """Return priorities as the kernels need them: flat, contiguous, of float32 or float64."""
    if priority.dtype not in KERNEL_TYPES:
        priority = priority.astype(np.float64)
    return np.ascontiguousarray(priority).reshape(-1)


def _flat64(array: FloatArray) -> FloatArray:
    return np.ascontiguousarray(array, dtype=np.float64).reshape(-1)


def refuse_nan(priority: Priority, n: int) -> None:
    """Raise ValueError for the first NaN in flat priorities (B·N,)."""
    env, source = divmod(int(np.isnan(priority).argmax()), n)
    raise ValueError(
        f"action has NaN as priority of source {source} (environment {env}); "
        "give every source a number"
    )
