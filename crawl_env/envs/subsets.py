"""Subsets of sources that fit the budget of one step: the table of `SubsetAction`."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

import numpy as np

from crawl_env.numerics import FloatArray
from crawl_env.simulation.selection import TOLERANCE, Hosts, whole_budget
from crawl_env.simulation.task import Task

MOST_SUBSETS = 2**16
_MOST_VISITS = 2**21  # limit of the search for subsets under mixed costs, a few seconds

Subsets = tuple[tuple[int, ...], ...]


def subsets_of(task: Task) -> Subsets:
    """Return the subsets that `SubsetAction` lists for a task."""
    if task.budget_rule == "average":
        return all_subsets(task.n)
    return maximal_subsets(task.sources.cost, task.budget, task.hosts)


def maximal_subsets(
    cost: FloatArray, budget: float, hosts: Hosts | None = None, most: int = MOST_SUBSETS
) -> Subsets:
    """Return the affordable sets to which no source can be added, in lexicographic order.

    With `hosts`, no set contains more sources of one host than `per_host`.

    Raises:
        ValueError: there are more than `most` of them.

    >>> maximal_subsets(np.array([1.0, 1.0, 2.0]), 2.0)
    ((0, 1), (2,))
    """
    if hosts is not None:
        return _maximal_with_hosts(cost, budget, hosts, most)
    k = whole_budget(cost, budget)
    if k is not None and comb(len(cost), k) > most:
        raise _too_many(len(cost), f"{len(cost)}-choose-{k}", most)
    return _collect(_maximal(cost, budget * (1 + TOLERANCE)), len(cost), most)


def all_subsets(n: int, most: int = MOST_SUBSETS) -> Subsets:
    """Return every set of n sources in lexicographic order, the empty set first.

    Raises:
        ValueError: there are more than `most` of them.
    """
    if n > most.bit_length() or 2**n > most:
        raise _too_many(n, f"2^{n}", most)
    return _collect(_extensions((), 0, n), n, most)


def _extensions(subset: tuple[int, ...], start: int, n: int) -> Iterator[tuple[int, ...]]:
    yield subset
    for i in range(start, n):
        yield from _extensions((*subset, i), i + 1, n)


def _maximal(cost: FloatArray, budget: float) -> Iterator[tuple[int, ...]]:
    """Search depth first, with and then without source i. A branch is cut off if all remaining
    sources could be added and an omitted source would still fit."""
    costs = cost.tolist()
    n = len(costs)
    remaining = np.append(np.cumsum(cost[::-1])[::-1], 0.0).tolist()
    stack: list[tuple[int, tuple[int, ...], float, float]] = [(0, (), budget, np.inf)]
    visits = 0
    while stack:
        i, subset, budget_left, cheapest_out = stack.pop()
        visits += 1
        if visits > _MOST_VISITS:
            raise _too_many(n, "too many", MOST_SUBSETS)
        if budget_left - remaining[i] >= cheapest_out:
            continue
        if i == n:
            yield subset
            continue
        # Pushed first, so visited last: the branch without source i.
        stack.append((i + 1, subset, budget_left, min(cheapest_out, costs[i])))
        if costs[i] <= budget_left:
            stack.append((i + 1, (*subset, i), budget_left - costs[i], cheapest_out))


def _maximal_with_hosts(cost: FloatArray, budget: float, hosts: Hosts, most: int) -> Subsets:
    """Search all sets: with shared hosts there is no simple rule to cut off a branch."""
    n = len(cost)
    sets = np.array([np.isin(np.arange(n), subset) for subset in all_subsets(n, most)])
    on_host = hosts.host_of == np.arange(hosts.host_of.max() + 1)[:, None]
    fits = (sets @ cost <= budget * (1 + TOLERANCE)) & np.all(
        sets @ on_host.T.astype(int) <= hosts.per_host, axis=-1
    )
    fine = sets[fits]
    keys = {row.tobytes() for row in fine}
    one_more = np.eye(n, dtype=bool)
    maximal = [
        row for row in fine if not any((row | extra).tobytes() in keys for extra in one_more[~row])
    ]
    return tuple(tuple(np.flatnonzero(row).tolist()) for row in maximal)


def _collect(sets: Iterator[tuple[int, ...]], n: int, most: int) -> Subsets:
    subsets = []
    for subset in sets:
        subsets.append(subset)
        if len(subsets) > most:
            raise _too_many(n, f"more than {most}", most)
    return tuple(subsets)


def _too_many(n: int, count: str, most: int) -> ValueError:
    return ValueError(
        f"{n} sources have {count} subsets to choose from, and a table may have at most {most}. "
        "Use the environment's own actions (priorities) or the SequentialSelection wrapper"
    )
