"""The Whittle index policy for mixed costs: the budget is filled as a knapsack."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.policies.base import Environment, ObservationView, needs
from agents.policies.index import Whittle
from crawl_env import Task
from crawl_env.compiled import compiled
from crawl_env.numerics import BoolArray, FloatArray, IntArray
from crawl_env.simulation.selection import TOLERANCE

_GAP = 1e-6  # of the best value, below which no better set is searched for
_MOST_VISITS = 20_000  # of the search for one environment: about a millisecond
_NO_HOSTS = np.zeros(0, dtype=np.intp)


class WhittleKnapsack(Whittle):
    """`Whittle` that fills the budget of a step as a knapsack: it crawls the affordable set of the
    largest Σ γC.

    Greedy selection takes the source of the largest index γ first, and what is left of the budget
    may then be too small for any other source. Where costs differ, this policy searches for the
    best set instead, by branch and bound, to a part in 10⁶. The search ends after 20,000 sets,
    which happens in fleets of hundreds of sources and more, where little is left to gain; its
    result is never worse than greedy selection. Hosts are kept, and so are crawl delays, of which
    `available` tells. Where costs are equal, or under `budget_rule="average"`, it is `Whittle`.

    Priorities are those of `Whittle` for the sources of the set, and less by 1 for the others, so
    that the environment takes the set first, and then what the rest of the budget still covers:
    sources whose index is 0, unless the search was cut short.

    Raises:
        ValueError: there are crawl delays, and `available` is not observed; or as for `Whittle`.

    >>> from agents import evaluate
    >>> from crawl_env import Sources
    >>> fleet = Sources([5.0, 10.0, 10.0, 5.0], 1.0, [0.8, 0.8, 0.4, 0.8], [1.0, 3.0, 1.0, 3.0])
    >>> for agent in ("whittle", "whittle-knapsack"):
    ...     evaluate(agent, {"sources": fleet, "budget": 4}, steps=840, seeds=1).reward.round(2)
    array([15.72])
    array([16.89])
    """

    name = "whittle-knapsack"
    features = ("available",)

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        if self.task.sources.is_delayed:
            needs(self.task, self.name, "available")

    def ranked(self, view: ObservationView, index: FloatArray) -> NDArray[Any]:
        priority: NDArray[Any] = super().ranked(view, index)
        cost = np.atleast_2d(view.sources.cost)
        if self.task.budget_rule == "average" or cost.min() == cost.max():
            return priority
        return best_first(self.task, view, priority, np.ascontiguousarray(cost))


def best_first(
    task: Task, view: ObservationView, priority: NDArray[Any], cost: FloatArray
) -> NDArray[Any]:
    """Return priorities by which the affordable set of the largest Σ γC comes first: those of the
    other actions are less by 1.

    Arguments:
        task: the task, whose crawl delays and hosts limit crawls.
        view: the observations.
        priority: of crawls, (B, N), or of crawls and then looks, (B, 2N), as `graded` returns them.
        cost: of these actions, (B or 1, N or 2N).
    """
    exact = priority.astype(np.float64)
    worth = cost * exact / (1.0 - exact)  # γC, in units of the largest index
    may = np.ones(worth.shape, dtype=bool)
    if view.shows("available"):
        may[:, : task.n] = view["available"] > 0
    host_of = _NO_HOSTS
    if task.hosts is not None:  # a look counts as on a host of its own
        crawled = task.hosts.host_of
        host_of = np.append(crawled, crawled.max() + 1 + np.arange(worth.shape[1] - task.n))
    is_best = best_sets(worth, cost, task.budget, may, host_of, task.per_host)
    return np.where(is_best, priority, priority - 1.0)


def best_sets(
    worth: FloatArray,
    cost: FloatArray,
    budget: float,
    may: BoolArray,
    host_of: IntArray = _NO_HOSTS,
    per_host: int = 1,
) -> BoolArray:
    """Return the affordable sets of the largest total worth, (B, N) bool.

    Depth-first branch and bound in decreasing worth per cost (Horowitz and Sahni 1974), with the
    fractional knapsack of the remaining sources as bound (Dantzig 1957). The first set is that of
    greedy selection.

    Arguments:
        worth: of each source, ≥ 0, (B, N).
        cost: > 0, (B or 1, N).
        budget: of each row.
        may: whether a source may be taken, (B, N).
        host_of: (N,) number of the host of each source; empty for none.
        per_host: number of sources that may be taken of one host.

    >>> worth, cost = np.array([[6.0, 5.0, 5.0]]), np.array([[3.0, 2.5, 2.5]])
    >>> best_sets(worth, cost, 5.0, np.ones((1, 3), dtype=bool))
    array([[False,  True,  True]])
    """
    sets = np.zeros(worth.shape, dtype=bool)
    for b in range(len(worth)):
        price = cost[b % len(cost)]
        fits = may[b] & (worth[b] > 0) & (price <= budget)
        some = np.flatnonzero(fits)
        some = some[np.argsort(-(worth[b] / price)[some], kind="stable")]
        is_taken = np.zeros(some.size, dtype=bool)
        host = host_of[some] if host_of.size else host_of
        limit = budget * (1.0 + 0.5 * TOLERANCE)
        _search(worth[b, some], price[some], limit, host, per_host, is_taken)
        sets[b, some] = is_taken
    return sets


@compiled
def _search(
    worth: FloatArray,
    cost: FloatArray,
    budget: float,
    host_of: IntArray,
    per_host: int,
    best: BoolArray,
) -> None:
    """Write which items, in decreasing worth per cost, (n,), are in the best set."""
    n = worth.size
    costs, worths = np.zeros(n + 1), np.zeros(n + 1)  # of the first k items
    cheapest = np.full(n + 1, np.inf)  # of the items from k on
    for k in range(n):
        costs[k + 1], worths[k + 1] = costs[k] + cost[k], worths[k] + worth[k]
    for k in range(n - 1, -1, -1):
        cheapest[k] = min(cheapest[k + 1], cost[k])
    items, crawls = np.empty(n, np.intp), np.zeros(host_of.max() + 1 if host_of.size else 0)
    rest, value = np.empty(n + 1), np.empty(n + 1)  # after each of the items
    rest[0], value[0] = budget, 0.0
    depth, k, most = 0, 0, 0.0
    for _ in range(_MOST_VISITS):
        whole = np.searchsorted(costs, costs[k] + rest[depth], side="right") - 1
        bound = value[depth] + worths[whole] - worths[k]
        if whole < n:
            bound += (rest[depth] - costs[whole] + costs[k]) * worth[whole] / cost[whole]
        if bound > most * (1.0 + _GAP):
            while k < n and cheapest[k] <= rest[depth]:
                skipped = cost[k] > rest[depth]
                if not skipped and host_of.size > 0:
                    skipped = crawls[host_of[k]] == per_host
                k += 1
                if skipped:
                    break
                items[depth] = k - 1
                rest[depth + 1] = rest[depth] - cost[k - 1]
                value[depth + 1] = value[depth] + worth[k - 1]
                depth += 1
                if host_of.size > 0:
                    crawls[host_of[k - 1]] += 1
            if k < n and cheapest[k] <= rest[depth]:
                continue  # an item was left out: see whether the rest can still be better
            if value[depth] > most:
                most = value[depth]
                best[:] = False
                best[items[:depth]] = True
        if depth == 0:
            break
        depth -= 1
        k = items[depth] + 1
        if host_of.size > 0:
            crawls[host_of[items[depth]]] -= 1
