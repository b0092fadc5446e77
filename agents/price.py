"""λ*, the charge per unit of cost at which what is worth crawling spends the budget on average."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from crawl_env import Sources, Task, World, relaxation

FloatArray = NDArray[np.float64]
Index = Callable[[FloatArray, Sources], FloatArray]

_CELL_EPOCHS = 2e7  # work of a simulation: seconds
_FEWEST, _MOST = 300, 3000  # epochs of it


def charge(task: Task, sources: Sources, index: Index) -> FloatArray:
    """Return λ* of a fleet, (), or of each fleet of a batch, (B,), in utility / budget unit.

    Where content is not seen it is the price of the relaxation, exactly. Where random content is
    seen, what waits passes the level of a blind crawler's price at other times than its mean
    does; λ* is then found by simulating every source as if alone, crawled when its index reaches
    the level, and raising the level while more than the budget is spent, lowering it otherwise
    (stochastic approximation; fixed seed, a few per cent of error).
    """
    blind = np.asarray(relaxation(sources, task.budget).price)
    if task.arrivals.deterministic or not task.observed.any():
        return blind
    if task.budget >= sources.cost.sum(axis=-1).min():
        return np.zeros_like(blind)
    if blind.ndim == 0:
        return np.asarray(_simulated(task, sources, index, float(blind)))
    # Each fleet by itself, so that its price does not depend on the others of its batch.
    fleets = [sources.row(b) for b in range(blind.size)]
    prices = [_simulated(task, f, index, p) for f, p in zip(fleets, blind, strict=True)]
    return np.array(prices)


def _simulated(task: Task, sources: Sources, index: Index, blind: float) -> float:
    world = World(sources, task.arrivals, believe=not task.observed.all())
    rng = np.random.default_rng(np.random.SeedSequence(0, spawn_key=(2,)))
    world.start(np.ones(world.shape), rng)
    level = np.log(max(blind, np.finfo(float).tiny))
    epochs = int(np.clip(_CELL_EPOCHS / world.value.size, _FEWEST, _MOST))
    settled = 0.0
    for epoch in range(epochs):
        seen = np.where(task.observed, world.value, world.belief)
        crawled = np.flatnonzero(index(seen, sources) >= np.exp(level))
        spent = sources.cost[crawled].sum()
        world.crawl(crawled)
        world.advance(rng)
        step = 0.5 * (1 + epoch / 10) ** -0.6
        level += step * np.clip(spent / task.budget - 1.0, -1.0, 1.0)
        settled += level * (epoch >= epochs // 2)
    return float(np.exp(settled / (epochs - epochs // 2)))
