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

_DECAY = 2.0  # of the weight of the index with f, found on random fleets


class GreedyTopics(Whittle):
    """Crawls the source of largest Δ·(γ/x)^w, one after the other.

    The marginal reward Δ is what the payoff `DiminishingReturns` pays on average for a crawl beside
    those that were selected before it in the same step, per unit of cost. A crawl that succeeds
    pays B(1 − e^(−f)) if it is the only one of its topic, and leaves the part e^(−f) of what the
    topic pays for others. With a known content x, f is x/B. If x is the mean of random content that
    is not observed, f is x/(B + ξ̄), which is exact for a Poisson number of items whose utilities
    are exponential with mean ξ̄.

    The Whittle index γ ignores the topics, and deducts from x what later crawls would collect of
    it (all per unit of cost, and times the probability of success). Its weight w = e^(−2f) is 1
    where the payoff is nearly linear, so that the policy tends to `Whittle` as B grows, and 0 where
    a crawl pays nearly B whenever it takes place.

    Without that payoff, and under `budget_rule="average"`, it is `Whittle`.
    """

    name = "greedy-topics"

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        payoff = self.task.payoff
        self._limit: float | None = None
        if isinstance(payoff, DiminishingReturns) and self.task.budget_rule == "step":
            self._limit = payoff.limit
        self._is_known = self.task.observed | (not self.task.arrivals.random)

    def ranked(self, view: ObservationView, index: FloatArray) -> NDArray[Any]:
        priority = super().ranked(view, index)  # refuses what is no index
        if self._limit is None:
            return priority
        sources, limit = view.sources, self._limit
        success, topic = 1.0 - sources.failure_rate, sources.topic_of
        item = np.where(self._is_known, 0.0, sources.mean_utility)
        return greedy_priority(
            view.value, item, index, success, sources.cost, topic, limit, self.task.budget
        )


def greedy_priority(
    value: FloatArray,
    item: FloatArray,
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
        item: mean utility of an item where `value` is the mean of random content, (B, N) or (N,);
            0 where it is known.
        index: utility / budget unit in the unit of `value`, (B, N).
        success: the probability that a crawl succeeds, (N,) or (B, N).
        cost: budget units, (N,) or (B, N).
        topic: number of each source's topic, (N,).
        limit: B of the payoff, in the unit of `value`.
        budget: M, budget units / step.
    """
    value, index = np.ascontiguousarray(value), np.ascontiguousarray(index)
    item, success, cost = (np.broadcast_to(x, value.shape).copy() for x in (item, success, cost))
    out = np.zeros(value.shape, dtype=np.float32)
    _greedy(value, item, index, success, cost, topic, limit, budget, out)
    return out


@compiled
def _greedy(
    value: FloatArray,
    item: FloatArray,
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
    keeps = np.empty(n)  # the part of its topic's marginal reward that its selection leaves
    for b in range(len(value)):
        for i in range(n):
            x, each = value[b, i], success[b, i] / cost[b, i]
            fills = x / (limit + item[b, i])  # f
            keeps[i] = 1.0 + success[b, i] * np.expm1(-fills)
            alone[i] = 0.0
            if x * each > 0.0 and index[b, i] > 0.0:
                weight = np.exp(-_DECAY * fills)
                alone[i] = -limit * np.expm1(-fills) * each * (index[b, i] / (x * each)) ** weight
        rest = np.ones(topic.max() + 1)
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
            rest[topic[best]] *= keeps[best]
