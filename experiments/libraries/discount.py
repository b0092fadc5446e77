"""Which discount factor γ the recipes need: the best policy for each γ, by value iteration."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from crawl_env import Sources
from crawl_env.numerics import FloatArray

DISCOUNTS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95)
LARGEST_AGE = 12  # larger ones count as this one


def reward_per_step(discount: float, sources: Sources, budget: int, steps: int = 500) -> float:
    """Return the reward per step of the policy that maximises Σ γ^t r_t, from fresh sources.

    Arguments:
        sources: a fleet of equal costs under deterministic arrivals.
        budget: sources crawled in every step.

    >>> table1 = Sources.preset("table1")
    >>> round(reward_per_step(0.0, table1, 2), 2)  # the myopic policy
    327.45
    """
    number = len(sources.cost)
    ages = np.arange(1, LARGEST_AGE + 1, dtype=float)
    content = sources.content_at(np.tile(ages[:, None], number))  # (ages, N)
    state = np.indices((LARGEST_AGE,) * number)  # age − 1 of each source
    subsets = list(combinations(range(number), budget))
    older = np.minimum(state + 1, LARGEST_AGE - 1)
    following = [
        tuple(np.zeros_like(older[i]) if i in subset else older[i] for i in range(number))
        for subset in subsets
    ]
    rewards = np.array([sum(content[state[i], i] for i in subset) for subset in subsets])
    value: FloatArray = np.zeros(state.shape[1:])
    for _ in range(int(10 / (1 - discount)) + 1):
        worth = rewards + discount * np.array([value[then] for then in following])
        value = worth.max(axis=0)
    best = worth.argmax(axis=0)
    now, total = (0,) * number, 0.0
    for _ in range(steps):
        chosen = best[now]
        total += float(rewards[chosen][now])
        now = tuple(int(axis[now]) for axis in following[chosen])
    return total / steps
