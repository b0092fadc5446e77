"""λ*, the Lagrange multiplier at which crawling all sources of larger index spends the budget."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from agents.theory.relaxation import relaxation
from agents.theory.renewal import simplified
from crawl_env import Arrivals, Sources, Task, Trace, World
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.numerics import FloatArray, IntArray
from crawl_env.rng import generator
from crawl_env.simulation import selection
from crawl_env.simulation.selection import Hosts

Index = Callable[[FloatArray, Sources], FloatArray]

_WORK = 2e7  # sources and items of a whole simulation: some seconds
_FEWEST, _MOST = 200, 3000  # steps of it
_MANY = 1000.0  # items per source and step from which content is all but deterministic


def payable(sources: Sources, task: Task) -> tuple[Sources, float]:
    """Return the fleet and the budget of `spendable`; failures and capacities are in the fleet as
    in `simplified`."""
    fleet, budget = spendable(sources, task)
    return simplified(fleet), budget


def spendable(sources: Sources, task: Task) -> tuple[Sources, float]:
    """Return the fleet and the budget as far as one can be spent on the other, each step.

    Under a hard budget, sources that are too dear fall silent here, and where all cost the same
    the budget is what whole crawls cost.
    """
    if task.budget_rule == "average":
        return sources, task.budget
    whole = selection.whole_budget(sources.cost, task.budget)
    budget = task.budget if whole is None else float(whole * sources.cost.flat[0])
    within = selection.affordable(sources.cost, task.budget)
    if within.all():
        return sources, budget
    return sources.replaced(arrival_rate=np.where(within, sources.arrival_rate, 0.0)), budget


class BudgetMultiplier:
    """λ* of the task's fleet, or of each fleet of a batch; kept while the fleets stay the same.

    Where nothing is known of the content before a crawl, it is the multiplier of the relaxation, at
    which the spending of the Whittle index meets the budget exactly. Where random content is
    observed or announced by signals, the index reaches λ at other times than its mean does; λ* is
    then found by simulating every source as if alone, crawled when its index reaches λ, and raising
    λ while more than the budget is spent, lowering it otherwise (stochastic approximation with a
    fixed seed; a few per cent of error). Call it when an agent is made: the simulation takes up to
    some seconds.

    Arguments:
        task: the task, for its budget, arrivals, observed sources and hosts.
        index: from value and sources to the index, utility / budget unit.

    References:
        Borkar (2008), Stochastic Approximation: A Dynamical Systems Viewpoint.
    """

    def __init__(self, task: Task, index: Index) -> None:
        self._task, self._index = task, index
        self._sources: Sources | None = None
        self._multiplier: FloatArray = np.empty(0)

    def __call__(self, sources: Sources) -> FloatArray:
        """Return λ*, (1, 1) or (B, 1), utility / budget unit."""
        if sources is not self._sources:
            new = self._changed(sources)
            if new.all():
                self._multiplier = self._find(sources)
            elif new.any():  # some environments of a batch have drawn another fleet
                self._multiplier[new] = self._find(sources.select_fleets(new))
            self._sources = sources
        return self._multiplier[:, None]

    def _changed(self, sources: Sources) -> NDArray[np.bool_]:
        rows = 1 if sources.arrival_rate.ndim == 1 else len(sources.arrival_rate)
        before = self._sources
        if before is None or before.arrival_rate.shape != sources.arrival_rate.shape:
            return np.ones(rows, dtype=bool)
        differs = [getattr(before, p) != getattr(sources, p) for p in PARAMETERS]
        return np.any(differs, axis=(0, -1)).reshape(rows)

    def _find(self, sources: Sources) -> FloatArray:
        task = self._task
        blind = np.atleast_1d(relaxation(sources, task.budget, task.per_host).multiplier)
        calm = sources.arrival_rate.max() * sources.period > _MANY
        is_informed = task.observed | (task.sources.recall > 0)
        if not task.arrivals.random or calm or not is_informed.any():
            return blind
        free = task.budget >= sources.cost.sum(axis=-1)  # a budget for all needs no multiplier
        return np.where(free, 0.0, blind if np.all(free) else self._simulate(sources, blind))

    def _simulate(self, sources: Sources, blind: FloatArray) -> FloatArray:
        task, rows = self._task, blind.size
        # The rest of a log is not known when λ is set.
        replay = isinstance(task.arrivals, Trace)
        needs_items = sources.is_capped or sources.is_signalled
        arrivals = (Arrivals() if replay else task.arrivals).model(items=needs_items)
        world = World(sources, arrivals, rows, track_belief=not task.observed.all())
        rng = generator(0, "multiplier")
        world.start(np.ones(world.shape), rng)
        items = np.broadcast_to(sources.arrival_rate * sources.period, world.shape).sum()
        steps = int(np.clip(_WORK / (world.value.size + items), _FEWEST, _MOST))
        level = np.log(np.maximum(blind, np.finfo(float).tiny))
        total = np.zeros(rows)
        cost = np.broadcast_to(sources.cost, world.shape).ravel()
        hosts = Hosts.of(sources, task.per_host)
        # In units in which one crawl is not cut off, however small the budget: no bias.
        scale = task.budget + sources.cost.max(axis=-1)
        for t in range(steps):
            value = np.where(task.observed, world.value, world.belief)
            excess = self._index(value, sources) - np.exp(level)[:, None]
            crawls = self._above(excess, world, hosts)
            spending = np.bincount(crawls // task.n, cost[crawls], rows)
            failed = None
            if sources.fails:
                failed = (rng.random(world.shape) < sources.failure_rate).take(crawls)
            world.crawl(crawls, failed)
            world.advance(rng)
            step = 0.5 * (1 + t / 10) ** -0.6
            level += step * np.clip((spending - task.budget) / scale, -1.0, 1.0)
            total += level * (t >= steps // 2)
        return np.exp(total / (steps - steps // 2))

    def _above(self, excess: FloatArray, world: World, hosts: Hosts | None) -> IntArray:
        """Return the sources of sufficient index that may be crawled now, as cells."""
        if hosts is None and world.available is None:
            return np.flatnonzero(excess >= 0)
        unlimited = np.full(len(excess), np.inf)
        cost, budget = world.sources.cost, self._task.budget
        limits = world.available, hosts
        return selection.select(excess, world.crawled_at, cost, budget, None, unlimited, *limits)
