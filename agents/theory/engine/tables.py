"""Indices of a fleet with an engine as tables over the age of a source and the backlog."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from agents.theory.engine.content import WaitingItems
from agents.theory.engine.relaxation import PricedArm
from crawl_env import Engine, Sources
from crawl_env.content.utility import Decay, Distribution
from crawl_env.numerics import FloatArray, IntArray

_MOST_CELLS = 2e6
_FADED = 6.0  # time constants after which a source is taken to be as old as it gets


class BacklogTable(NamedTuple):
    """The index of N sources at ages 1 … A and some backlogs.

    values: (N, A, G) utility / budget unit; the last age stands for all beyond.
    backlog: (G,) increasing; others are rounded to the nearest.
    """

    values: FloatArray
    backlog: FloatArray

    def priority(self, age: FloatArray, phase: IntArray, backlog: FloatArray) -> FloatArray:
        """Return the index, (B, N), linear between two ages and below age 1; backlog: (B,). The
        phase of the engine does not matter."""
        n, ages, _ = self.values.shape
        middles = 0.5 * (self.backlog[1:] + self.backlog[:-1])
        column = np.searchsorted(middles, backlog)[:, None]
        k = np.clip(age, 1.0, ages) - 1.0
        low = np.minimum(k.astype(np.intp), ages - 1)
        high = np.minimum(low + 1, ages - 1)
        source = np.arange(n)
        first, second = self.values[source, low, column], self.values[source, high, column]
        return np.asarray((first + (k - low) * (second - first)) * np.minimum(age, 1.0))


def priced_table(
    sources: Sources,
    engine: Engine,
    price: float,
    utility: Distribution,
    decay: Decay,
    backlogs: int = 12,
) -> BacklogTable:
    """Return the index with x_k(κ) for the content, discounted by e^(−μw) for the wait w = b/s of
    the items in front of an engine that takes them in order.

    With discipline "value" the least valuable items lose their places, as if they were refused;
    what waits is then worth less than what comes, and delays nothing. With "fifo" an item is
    refused by the threshold of the engine alone.
    """
    slowest = float(np.quantile(sources.decay_per_step, 0.1))
    ages = int(np.clip(np.ceil(_FADED / slowest) + 1, 20, max(20, _MOST_CELLS / len(sources) / 8)))
    by_value = engine.discipline == "value"
    most = 3.0 / max(slowest, 1e-3) * engine.rate
    most = most if engine.capacity is None else min(most, float(engine.capacity))
    levels = np.zeros(1) if by_value else np.unique(np.linspace(0.0, most, backlogs))
    items = WaitingItems(sources, utility, decay)
    k = np.arange(1.0, ages + 1)[:, None] * np.ones(len(sources))
    index = np.empty((len(sources), ages, levels.size))
    for g, backlog in enumerate(levels):
        survival = decay.survival(sources.decay_per_step * (backlog / engine.rate))
        least = engine.threshold * np.ones(len(sources))
        if by_value:
            least = np.maximum(least, price)
        index[..., g] = PricedArm(items, price, least, survival).index_at_age(k).T
    return BacklogTable(index, levels)
