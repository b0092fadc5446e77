"""The Whittle index of arms that are given as finite Markov chains, such as estimated ones.

Under a charge λ per unit of cost for activating, the value of a policy is an affine function of λ.
From λ = ∞, where no state is activated, λ falls, and the state whose activation pays first is
activated from there on; the λ at which it does is its index. Every step solves one linear system
(adaptive greedy; J. Niño-Mora: Dynamic priority allocation via restless bandit marginal
productivity indices, TOP 15, 2007). An arm that is not indexable gets indices, too, which decrease
in this order.
"""

from __future__ import annotations

import numpy as np

from crawl_env.numerics import FloatArray

_NO_WORK = 1e-12  # least difference in discounted cost between activating and waiting


def chain_index(
    transition: FloatArray, reward: FloatArray, cost: FloatArray, discount: float = 0.999
) -> FloatArray:
    """Return the discounted Whittle index of every state of N arms, (N, S) reward / cost.

    As the discount factor approaches 1, so does the index that of the average reward.

    Arguments:
        transition: (N, S, 2, S), the probabilities of the next state after each state and action;
            the actions are waiting and activating.
        reward: (N, S, 2), the mean reward of each state and action.
        cost: (N,) of activating each arm.
        discount: below 1.

    >>> transition = np.zeros((1, 3, 2, 3))  # a source of age 1, 2 and 3 or more
    >>> transition[0, [0, 1, 2], 0, [1, 2, 2]] = transition[0, :, 1, 0] = 1.0
    >>> reward = np.array([[[0.0, 1.0], [0.0, 1.5], [0.0, 1.75]]])  # content at these ages
    >>> chain_index(transition, reward, np.ones(1), discount=0.9999).round(2)
    array([[0.5 , 1.  , 1.75]])
    """
    n, s = reward.shape[:2]
    identity, arms = np.eye(s), np.arange(n)
    active = np.zeros((n, s), dtype=bool)
    index, level = np.zeros((n, s)), np.full(n, np.inf)
    expense = np.zeros((n, s, 2))
    expense[..., 1] = cost[:, None]
    both = np.stack([reward, expense], axis=-1)  # (N, S, 2, 2): reward and cost of each action
    for _ in range(s):
        action = active.astype(np.intp)[..., None]
        law = np.take_along_axis(transition, action[..., None], axis=2)[:, :, 0]
        of_policy = np.take_along_axis(both, action[..., None], axis=2)[:, :, 0]
        value = np.linalg.solve(identity - discount * law, of_policy)  # (N, S, 2)
        q = both + discount * np.einsum("nsat,ntk->nsak", transition, value)
        more = q[:, :, 1] - q[:, :, 0]  # reward and cost by which activating differs
        at = np.where(
            more[..., 1] > _NO_WORK, more[..., 0] / np.maximum(more[..., 1], _NO_WORK), -np.inf
        )
        at[active] = -np.inf
        first = at.argmax(axis=1)
        first = np.where(active[arms, first], active.argmin(axis=1), first)
        level = np.minimum(level, np.where(np.isfinite(at[arms, first]), at[arms, first], level))
        index[arms, first] = level
        active[arms, first] = True
    return index
