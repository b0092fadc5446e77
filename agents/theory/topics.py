"""The bound under diminishing returns per topic.

The payoff B(1 − e^(−Y/B)) of a topic is concave in the utility Y that a step collects from it. So
it is at most wY + B(1 − w + w ln w) for every weight w in (0, 1], with equality at w = e^(−Y/B),
and no policy's average reward exceeds R(w) + B Σ_g (1 − w_g + w_g ln w_g), where R(w) bounds the
additive reward of the fleet whose mean utilities are multiplied by the weights of their topics. The
sum is convex in w. At its minimum w_g = e^(−y_g/B), where y_g is what topic g brings on average in
the relaxed problem of the weighted fleet.
"""

from __future__ import annotations

import numpy as np

from agents.theory.relaxation import relaxation
from agents.theory.renewal import renewal_arm, simplified
from crawl_env import Sources
from crawl_env.numerics import FloatArray

_ROUNDS = 40


def weighted(sources: Sources, weights: FloatArray) -> Sources:
    """Return a fleet, (N,), whose mean utilities are multiplied by the weights of their topics."""
    return sources.replaced(mean_utility=sources.mean_utility * weights[sources.topic_of])


def conceded(weights: FloatArray, limit: float) -> float:
    """Return B Σ (1 − w + w ln w), utility / step."""
    return float(limit * (1.0 - weights + weights * np.log(weights)).sum())


def topic_weights(sources: Sources, budget: float, limit: float) -> FloatArray:
    """Return weights of the topics, (G,), at which the bound is nearly the least.

    Every weight gives a bound. These are those of a damped fixed-point iteration for sources that
    are not observed.

    Arguments:
        sources: a fleet, (N,).
        budget: M, budget units per step.
        limit: B of `crawl_env.DiminishingReturns`.

    >>> fleet = Sources([1.0, 1.0], 1.0, 0.5, topics=["sport", "sport"])
    >>> topic_weights(fleet, 1, limit=1.0).round(2)
    array([0.28])
    """
    fleet = simplified(sources)
    weights = best = np.ones(int(fleet.topic_of.max()) + 1)
    least = float(np.inf)
    for _ in range(_ROUNDS):
        now = weighted(fleet, weights)
        solution = relaxation(now, budget)
        bound = float(solution.bound) + conceded(weights, limit)
        if bound < least:
            least, best = bound, weights
        arm = renewal_arm(now)
        interval = arm.interval(np.array([solution.multiplier]))
        brings = np.where(np.isfinite(interval), fleet.content_at(interval) / interval, 0.0)
        utility = np.bincount(fleet.topic_of, np.ravel(brings), minlength=weights.size)
        weights = np.sqrt(weights * np.exp(-utility / limit)).clip(1e-100)
    return best
