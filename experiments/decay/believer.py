"""The Whittle index of somebody who has a belief about decay, right or wrong."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agents.policies.base import Agent, ObservationView
from agents.theory.renewal import renewal_arm
from crawl_env import Sources, Task
from crawl_env.content.utility import Decay
from crawl_env.numerics import FloatArray


class Believer(Agent):
    """Crawls the largest Whittle index under the decay that it believes in.

    Where it does not see what waits, it takes the index at the source's age, which is the exact
    one if the belief is right. Where it does, it takes the index of a source whose mean content is
    what waits, as Theorem 1 does; that is no exact index under any law.

    Arguments:
        task: with the feature `value` or `age`.
        sources: the fleet believed in, (N,) or (B, N).
        decay: the law believed in.
        oldest: epochs up to which ages are told apart.
    """

    name = "believer"

    def __init__(self, task: Task, sources: Sources, decay: Decay, oldest: int) -> None:
        super().__init__(task)
        cycle, age = renewal_arm(sources, decay), np.arange(1.0, oldest + 1)[:, None, None]
        ceiling = np.atleast_2d(sources.ceiling)
        self._ceiling, self._cost = ceiling, np.atleast_2d(sources.cost)
        # By age, 0 … `oldest`, and then for ever: (1 or B, N, oldest + 2).
        self._charge = _table(cycle.index_at_age(age), ceiling / self._cost)
        self._share = (
            _table(cycle.mean_content(age), ceiling) / np.where(ceiling > 0, ceiling, 1)[..., None]
        )
        # All rows of that table in one sorted line, the share of row c between 2c and 2c + 1.
        rows = np.arange(ceiling.size).reshape(*ceiling.shape, 1)
        self._line = (2.0 * rows + self._share).ravel()

    def priority(self, seen: ObservationView) -> FloatArray:
        index = self._at_value(seen["value"]) if seen.shows("value") else self._at_age(seen["age"])
        scale = index.mean(axis=-1, keepdims=True)
        return index / (index + np.maximum(scale, np.finfo(float).tiny))

    def _at_age(self, age: FloatArray) -> FloatArray:
        last = self._charge.shape[-1] - 1
        return self._take(self._charge, np.minimum(age, last).astype(np.intp))

    def _at_value(self, value: FloatArray) -> FloatArray:
        below = value < self._ceiling
        share = np.where(below, value / np.where(below, self._ceiling, 1.0), 0.0)
        row = np.broadcast_to(
            np.arange(self._ceiling.size).reshape(self._ceiling.shape), share.shape
        )
        place = np.searchsorted(self._line, 2.0 * row + share, side="right") - 1
        age = np.clip(place - row * self._share.shape[-1], 0, self._share.shape[-1] - 2)
        start, end = self._take(self._share, age), self._take(self._share, age + 1)
        low, high = self._take(self._charge, age), self._take(self._charge, age + 1)
        weight = (share - start) / np.where(end > start, end - start, 1.0)
        return np.where(below, low + weight * (high - low), value / self._cost)

    def _take(self, table: FloatArray, age: NDArray[np.intp]) -> FloatArray:
        whole = np.broadcast_to(table, (*age.shape, table.shape[-1]))
        return np.take_along_axis(whole, age[..., None], axis=-1)[..., 0]


def _table(by_age: FloatArray, ever: FloatArray) -> FloatArray:
    """Return (oldest, B, N) as (B, N, oldest + 2): 0 at first, `ever` at last."""
    columns = np.moveaxis(by_age, 0, -1)
    return np.concatenate([np.zeros_like(ever)[..., None], columns, ever[..., None]], axis=-1)
