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
    return _simulated(task, sources, index, blind)


def _simulated(task: Task, sources: Sources, index: Index, blind: FloatArray) -> FloatArray:
    rows = blind.size
    world = World(sources, task.arrivals, rows, believe=not task.observed.all())
    rng = np.random.default_rng(np.random.SeedSequence(0, spawn_key=(2,)))
    world.start(np.ones(world.shape), rng)
    level = np.log(np.maximum(blind.reshape(-1), np.finfo(float).tiny))
    epochs = int(np.clip(_CELL_EPOCHS / world.value.size, _FEWEST, _MOST))
    settled = np.zeros(rows)
    for epoch in range(epochs):
        seen = np.where(task.observed, world.value, world.belief)
        crawled = index(seen, sources) >= np.exp(level)[:, None]
        spent = np.where(crawled, sources.cost, 0.0).sum(axis=-1)
        world.crawl(np.flatnonzero(crawled))
        world.advance(rng)
        step = 0.5 * (1 + epoch / 10) ** -0.6
        level += step * np.clip(spent / task.budget - 1.0, -1.0, 1.0)
        settled += level * (epoch >= epochs // 2)
    return np.exp(settled / (epochs - epochs // 2)).reshape(blind.shape)
