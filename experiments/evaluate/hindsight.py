"""What nobody can beat on a recorded log, even knowing all of it beforehand.

With the budget only on the whole, Lagrange's charge λ parts the sources: H steps of budget M bring
at most min_{λ≥0} λMH + Σ_i V_i(λ), V_i the most that source i alone brings if a crawl costs λC_i.
A crawl can be moved back to the last step that brought something new: it then collects the same
items, no older than before. So V_i is a dynamic programme over those steps alone. Crawl delays,
shared hosts, capacities and failures are left out, all of which only take away.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crawl_env import Sources, Trace
from crawl_env.content.process import Published
from crawl_env.content.trace import TraceFeed
from crawl_env.numerics import FloatArray, IntArray

# Share of the bound by which it may be missed; the lines of the dual meet after some ten steps.
_NEAR = 1e-12


class Schedule(NamedTuple):
    """The best schedule under a charge."""

    net: float  # utility less the charge
    cost: float  # budget units


class Hindsight:
    """The best schedules of a log's first `steps` steps, from sources that start empty.

    Steps are crawled at their beginnings 0, T, …: what the last one brings comes too late.

    >>> from crawl_env import ItemLog
    >>> log = ItemLog(["a"], [0, 0], [0.5, 1.5], [3.0, 4.0], start=0, end=4)
    >>> fleet = Sources(arrival_rate=[0.5], mean_utility=[3.5], decay_rate=[2e-9], names=["a"])
    >>> best = Hindsight(Trace(log, random_start=False), fleet, steps=4)
    >>> round(best.bound(1.0), 3), round(best.bound(0.25), 3)  # 4 crawls, or 1, in 4 steps
    (7.0, 7.0)
    """

    def __init__(self, trace: Trace, sources: Sources, steps: int) -> None:
        feed = trace.bind(sources, 1)
        self._cost, self._steps = sources.cost, steps
        self._sources = [
            _contents(feed, items, seen) for items, seen in _by_source(feed, len(sources), steps)
        ]

    def bound(self, budget: float) -> float:
        """Return the utility that crawls of cost `budget` a step collect at most in all."""
        return float(min(self._dual(budget)))

    def _dual(self, budget: float) -> list[float]:
        """Return λMH + Σ V_i(λ) at charges that lead to its minimum."""
        whole = budget * self._steps
        dear = 1.0 + max((c.max() for s in self._sources for _, c in s), default=0.0)
        low, high = 0.0, dear / float(self._cost.min())
        at_low, at_high = self.best(low), self.best(high)
        found = [at_low.net]
        while at_low.cost > whole:
            # The dual is convex and piecewise linear: try where the lines of both sides meet.
            reward = [at.net + price * at.cost for at, price in ((at_low, low), (at_high, high))]
            price = (reward[0] - reward[1]) / (at_low.cost - at_high.cost)
            at = self.best(price)
            found.append(price * whole + at.net)
            line = price * (whole - at_high.cost) + reward[1]
            if found[-1] <= line + _NEAR * abs(line):
                break
            if at.cost > whole:
                low, at_low = price, at
            else:
                high, at_high = price, at
        return found

    def best(self, charge: float) -> Schedule:
        """Return what the best schedule brings if a crawl costs `charge` × C_i, and its cost."""
        net = cost = 0.0
        for contents, each in zip(self._sources, self._cost.tolist(), strict=True):
            alone, crawls = _best_alone(contents, charge * each)
            net, cost = net + alone, cost + crawls * each
        return Schedule(net, cost)


# Of each step k that brings a source something new: the first earlier one whose items are still
# worth something, and what a crawl brings if the last was before that one, or the next, … or k.
Contents = list[tuple[int, FloatArray]]


def _best_alone(contents: Contents, charge: float) -> tuple[float, int]:
    best, crawls = np.zeros(len(contents) + 1), np.zeros(len(contents) + 1, dtype=np.intp)
    for k, (first, content) in enumerate(contents):
        # Before an earlier step still, a crawl leaves as much: what is worth nothing is no loss.
        total = best[first : k + 1] + content
        j = int(total.argmax())
        crawl = total[j] - charge
        if crawl > best[k]:
            best[k + 1], crawls[k + 1] = crawl, crawls[first + j] + 1
        else:
            best[k + 1], crawls[k + 1] = best[k], crawls[k]
    return float(best[-1]), int(crawls[-1])


def _by_source(feed: TraceFeed, n: int, steps: int) -> list[tuple[Published, IntArray]]:
    """Return every source's items, and the step (≥ 1) at whose beginning each is first seen."""
    rng = np.random.default_rng(0)  # not drawn from: the log starts where it starts
    (_, block), *_ = feed.blocks
    feed.start(np.zeros(1, dtype=np.intp), rng)
    # Nothing was published before the beginning of the log.
    parts = [Published.concatenate([])]
    parts += [Published.concatenate(list(block.draw(rng))) for _ in range(steps - 1)]
    items = Published.concatenate(parts)
    seen = np.repeat(np.arange(steps), [part.cell.size for part in parts])
    order = np.argsort(items.cell, kind="stable")
    edges = np.searchsorted(items.cell[order], np.arange(n + 1))
    mine = [order[edges[i] : edges[i + 1]] for i in range(n)]
    return [(items.only(which), seen[which]) for which in mine]


def _contents(feed: TraceFeed, items: Published, seen: IntArray) -> Contents:
    contents: Contents = []
    alive = np.zeros(0, dtype=np.intp)
    steps, begins = np.unique(seen, return_index=True)
    place = np.searchsorted(steps, seen)  # of each item
    ends = np.append(begins[1:], seen.size)
    for k, now in enumerate(steps):
        alive = np.concatenate((alive, np.arange(begins[k], ends[k])))
        here = items.only(alive)
        left = feed.survival(here._replace(age=here.age + (now - seen[alive])))
        alive, worth = alive[left > 0], (here.utility * left)[left > 0]
        first = int(place[alive[0]]) if alive.size else k
        by_step = np.bincount(place[alive] - first, worth, k + 1 - first)
        contents.append((first, by_step[::-1].cumsum()[::-1]))
    return contents
