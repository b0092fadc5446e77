"""An upper bound on the reward of every policy on a recorded log, by Lagrangian relaxation.

If the budget is enforced only in total, a Lagrange multiplier λ decouples the sources: in H steps
of budget M, at most min_{λ≥0} λMH + Σ_i V_i(λ) is collected, where V_i is the optimal reward of
source i alone if a crawl costs λC_i. A crawl can be moved back to the last step at which a new item
became available: it then collects the same items, no older than before. V_i is therefore the
solution of a dynamic programme over those steps. Crawl delays, shared hosts, capacities and
failures are relaxed away, so that the bound remains valid.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from agents.theory.price import Tangent, least_dual
from crawl_env import Sources, Trace
from crawl_env.content.process import Published
from crawl_env.content.trace import TraceFeed
from crawl_env.numerics import FloatArray, IntArray

# Relative tolerance of the bound; the search on the dual takes some ten steps.
_NEAR = 1e-12


class PricedSchedule(NamedTuple):
    """The optimal schedule under a Lagrange multiplier."""

    net: float  # utility minus multiplier × cost
    cost: float  # budget units


class Hindsight:
    """The optimal schedules of `steps` steps of a log.

    Arguments:
        trace: the log, which is repeated from the start at its end.
        sources: the fleet.
        steps: number of steps in which sources are crawled, at the beginnings of steps, so that
            items published in the last step cannot be collected.
        start: step of the log with which it begins.
        before: number of steps before the first crawl. Their items, and no earlier ones, are all
            uncollected at that crawl.

    >>> from crawl_env import ItemLog
    >>> log = ItemLog(["a"], [0, 0], [0.5, 1.5], [3.0, 4.0], start=0, end=4)
    >>> fleet = Sources(arrival_rate=[0.5], mean_utility=[3.5], decay_rate=[2e-9], names=["a"])
    >>> best = Hindsight(Trace(log, random_start=False), fleet, steps=4)
    >>> round(best.bound(1.0), 3), round(best.bound(0.25), 3)  # 4 crawls, or 1, in 4 steps
    (7.0, 7.0)
    """

    def __init__(
        self, trace: Trace, sources: Sources, steps: int, *, start: int = 0, before: int = 0
    ) -> None:
        feed = trace.bind(sources, 1)
        self._cost, self._steps = sources.cost, steps
        self._sources = [
            _contents(feed, items, available)
            for items, available in _by_source(feed, len(sources), steps, start, before)
        ]

    def bound(self, budget: float) -> float:
        """Return an upper bound on the total utility that is collected with `budget` per step."""
        whole = budget * self._steps
        dear = 1.0 + max((c.max() for s in self._sources for _, c in s), default=0.0)

        def dual(multiplier: float) -> Tangent:
            """Return λMH + Σ V_i(λ)."""
            return Tangent(multiplier, *self.best(multiplier), whole)

        top = dear / float(self._cost.min())
        return float(least_dual(dual, whole, lambda: top, gap=_NEAR).value)

    def best(self, multiplier: float) -> PricedSchedule:
        """Return the optimal schedule if a crawl of source i costs `multiplier` × C_i."""
        net = cost = 0.0
        for contents, unit_cost in zip(self._sources, self._cost.tolist(), strict=True):
            alone, crawls = _best_alone(contents, multiplier * unit_cost)
            net, cost = net + alone, cost + crawls * unit_cost
        return PricedSchedule(net, cost)


# For each step k at which new items of a source become available: the first earlier such step whose
# items still have utility, and the reward of a crawl if the previous one was before that step, or
# before the next, …, or before k.
Contents = list[tuple[int, FloatArray]]


def _best_alone(contents: Contents, charge: float) -> tuple[float, int]:
    best, crawls = np.zeros(len(contents) + 1), np.zeros(len(contents) + 1, dtype=np.intp)
    for k, (first, content) in enumerate(contents):
        # Items of earlier steps have no utility left, so that earlier crawls need not be
        # considered.
        total = best[first : k + 1] + content
        j = int(total.argmax())
        crawl = total[j] - charge
        if crawl > best[k]:
            best[k + 1], crawls[k + 1] = crawl, crawls[first + j] + 1
        else:
            best[k + 1], crawls[k + 1] = best[k], crawls[k]
    return float(best[-1]), int(crawls[-1])


def _by_source(
    feed: TraceFeed, n: int, steps: int, start: int, before: int
) -> list[tuple[Published, IntArray]]:
    """Return every source's items, and the steps from which on they can be collected."""
    rng = np.random.default_rng(0)  # unused: the start of the log is fixed
    (_, block), *_ = feed.blocks
    feed.set_state(np.array([start]))
    parts = [Published.concatenate([])]  # nothing can be collected before a step has passed
    parts += [Published.concatenate(list(block.draw(rng))) for _ in range(before + steps - 1)]
    items = Published.concatenate(parts)
    first_step = np.repeat(np.arange(before + steps), [part.cell.size for part in parts])
    available = np.maximum(first_step, before)
    items = items._replace(age=items.age + (available - first_step))
    order = np.argsort(items.cell, kind="stable")
    edges = np.searchsorted(items.cell[order], np.arange(n + 1))
    groups = [order[edges[i] : edges[i + 1]] for i in range(n)]
    return [(items.only(group), available[group]) for group in groups]


def _contents(feed: TraceFeed, items: Published, available: IntArray) -> Contents:
    contents: Contents = []
    alive = np.zeros(0, dtype=np.intp)
    steps, begins = np.unique(available, return_index=True)
    place = np.searchsorted(steps, available)  # of each item
    ends = np.append(begins[1:], available.size)
    for k, now in enumerate(steps):
        alive = np.concatenate((alive, np.arange(begins[k], ends[k])))
        present = items.only(alive)
        survival = feed.survival(present._replace(age=present.age + (now - available[alive])))
        alive, utility = alive[survival > 0], (present.utility * survival)[survival > 0]
        first = int(place[alive[0]]) if alive.size else k
        by_step = np.bincount(place[alive] - first, utility, k + 1 - first)
        contents.append((first, by_step[::-1].cumsum()[::-1]))
    return contents
