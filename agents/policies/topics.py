"""A greedy policy for rewards of diminishing returns per topic."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.policies.base import Environment, ObservationView
from agents.policies.index import Whittle
from crawl_env import DiminishingReturns
from crawl_env.compiled import compiled
from crawl_env.numerics import FloatArray, IntArray

_DECAY = 2.0  # of the weight of the index with x/B, found on random fleets


class GreedyTopics(Whittle):
    """Crawls the source of largest Δ·(γ/x)^w, one after the other.

    The marginal reward Δ of a source is what the payoff `DiminishingReturns` pays for it beside the
    sources that were selected before it in the same step, Be^(−Y/B)(1 − e^(−x/B)) per unit of cost,
    where x is its value or belief and Y that of the sources of its topic which were selected. The
    Whittle index γ ignores the topics, and deducts from x what later crawls would collect of it.
    Its weight w = e^(−2x/B) is 1 where the payoff is nearly linear, so that the policy tends to
    `Whittle` as B grows, and 0 where a crawl of the source alone pays nearly B, whenever it takes
    place. Without that payoff, and under `budget_rule="average"`, it is `Whittle`.
    """

    name = "greedy-topics"

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        payoff = self.task.payoff
        self._limit: float | None = None
        if isinstance(payoff, DiminishingReturns) and self.task.budget_rule == "step":
            self._limit = payoff.limit

    def ranked(self, view: ObservationView, index: FloatArray) -> NDArray[Any]:
        if self._limit is None:
            return super().ranked(view, index)
        sources, limit = view.sources, self._limit
        success, topic = 1.0 - sources.failure_rate, sources.topic_of
        return greedy_priority(
            view.value, index, success, sources.cost, topic, limit, self.task.budget
        )


def greedy_priority(
    value: FloatArray,
    index: FloatArray,
    success: FloatArray,
    cost: FloatArray,
    topic: IntArray,
    limit: float,
    budget: float,
) -> NDArray[Any]:
    """Return priorities, (B, N), that decrease in the order in which `GreedyTopics` selects.

    Arguments:
        value: the utility that a crawl is expected to collect if it succeeds, (B, N).
        index: utility / budget unit, (B, N).
        success: the probability that a crawl succeeds, (N,) or (B, N).
        cost: budget units, (N,) or (B, N).
        topic: number of each source's topic, (N,).
        limit: B of the payoff, in the unit of `value`.
        budget: M, budget units / step.
    """
    value, index = np.ascontiguousarray(value), np.ascontiguousarray(index)
    success, cost = (np.broadcast_to(x, value.shape).copy() for x in (success, cost))
    out = np.zeros(value.shape, dtype=np.float32)
    _greedy(value, index, success, cost, topic, limit, budget, out)
    return out


@compiled
def _greedy(
    value: FloatArray,
    index: FloatArray,
    success: FloatArray,
    cost: FloatArray,
    topic: IntArray,
    limit: float,
    budget: float,
    out: NDArray[np.float32],
) -> None:
    """Write priorities, (B, N), that decrease in the order in which sources are selected; 0 where
    they no longer fit the budget."""
    n = topic.size
    alone = np.empty(n)  # the score of each source if nothing of its topic is selected before it
    for b in range(len(value)):
        for i in range(n):
            alone[i] = 0.0
            x, each = value[b, i], success[b, i] / cost[b, i]
            if x * each > 0.0 and index[b, i] > 0.0:
                weight = np.exp(-_DECAY * x / limit)
                worth = -limit * np.expm1(-x / limit) * each
                alone[i] = worth * (index[b, i] / (x * each)) ** weight
        rest = np.ones(topic.max() + 1)  # the part of it that the selection of a topic leaves
        budget_left = budget * (1.0 + 1e-12)
        for k in range(n):
            best, most = -1, -1.0
            for i in range(n):
                if out[b, i] == 0.0 and cost[b, i] <= budget_left:
                    score = alone[i] * rest[topic[i]]
                    if score > most:
                        best, most = i, score
            if best < 0:
                break
            out[b, best] = 1.0 - k / (n + 1.0)
            budget_left -= cost[b, best]
            rest[topic[best]] *= np.exp(-value[b, best] * success[b, best] / limit)
