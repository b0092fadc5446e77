"""The exact optimum of small fleets under a hard budget, by value iteration over joint ages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.theory.relaxation import refuse_batch, relaxation, relaxed_bound
from agents.theory.renewal import renewal_arm
from crawl_env.content.payoff import DiminishingReturns
from crawl_env.envs.subsets import maximal_subsets
from crawl_env.errors import check_positive
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray
from crawl_env.simulation.selection import Hosts, affordable

_MOST_SWEEPS = 100_000
_TINY = 1e-12


def optimal_reward(
    sources: Sources,
    budget: float,
    tolerance: float = 1e-9,
    max_states: int = 200_000,
    per_host: int = 1,
    payoff: DiminishingReturns | None = None,
) -> float:
    """Return the best long-run reward per step under a hard budget at each step, in utility.

    It is that of deterministic arrivals, and of random ones if content is not observed and reward
    is additive, over the policies of an environment, which crawl as many sources as fit.

    Value iteration over the joint ages. Ages are capped; the true optimum lies between that of
    a fleet whose sources stop growing at the cap and that of one whose sources are then at their
    ceiling, and the
    caps grow until both agree to `tolerance` (relative).

    Arguments:
        tolerance: relative.
        max_states: largest number of joint states.
        per_host: crawls per step of a shared host.
        payoff: the diminishing returns per topic, of deterministic arrivals; None: additive reward.

    Raises:
        ValueError: the fleet needs more than `max_states` joint states; use `relaxed_bound`. Or
            crawls can fail where crawl delays hold: the state would need the last attempts too; or
            they can fail and there is a payoff, which is not that of the mean.
        RuntimeError: value iteration did not converge.

    >>> round(optimal_reward(Sources.preset("table1"), 2), 6)
    337.77455
    """
    check_positive("budget", budget, "budget units / step")
    refuse_batch(sources, "optimal_reward")
    if sources.fails and sources.is_delayed:
        raise ValueError(
            "optimal_reward takes crawl delays or failing crawls, not both in one fleet; use "
            "relaxed_bound"
        )
    if sources.fails and payoff is not None:
        raise ValueError(
            "optimal_reward takes failing crawls or a payoff, not both: the payoff of a crawl that "
            "may fail is not that of its mean. Give failure_rate=0, or no payoff"
        )
    live = (sources.ceiling > 0) & affordable(sources.cost, budget)
    if not live.any():
        return 0.0
    sources = sources.select(live)
    _refuse_large(len(sources), 3.0 ** min(len(sources), 600), max_states)
    actions = maximal_subsets(sources.cost, budget, Hosts.of(sources, per_host))
    caps = _first_caps(sources, budget)
    while True:
        with np.errstate(over="ignore"):
            _refuse_large(len(sources), float(np.prod(caps)), max_states)
        joint = functools.partial(_joint_value, sources, caps.astype(int), actions, payoff)
        low, high = joint(False, tolerance / 4)[0], joint(True, tolerance / 4)[1]
        if high - low <= tolerance * low:
            return min(0.5 * (low + high), relaxed_bound(sources, budget, per_host))
        caps = np.ceil(1.5 * caps)


def _first_caps(sources: Sources, budget: float) -> FloatArray:
    """Return ages beyond which waiting for the ceiling does not pay at the relaxed multiplier."""
    multiplier, arm = np.array([relaxation(sources, budget).multiplier]), renewal_arm(sources)
    cost = multiplier * sources.cost / arm.success
    rate = arm.reward_rate(arm.interval(multiplier), multiplier * sources.cost)
    with np.errstate(divide="ignore", invalid="ignore"):
        pays_until = np.where(rate > 0, (sources.content_at(np.inf) - cost) / rate, 0.0)
    return np.maximum(sources.delay + 2, np.ceil(pays_until) + 1)


def _refuse_large(n: int, states: float, max_states: int) -> None:
    if states > max_states:
        raise ValueError(
            f"the exact optimum of {n} sources needs {states:.3g} joint states, more than "
            f"max_states={max_states}; use relaxed_bound, which no policy can beat either"
        )


def relative_values(
    improved: Callable[[FloatArray], FloatArray], shape: tuple[int, ...], tolerance: float
) -> tuple[FloatArray, float, float]:
    """Return the values of the states of a decision process relative to each other, under the
    average reward, and bounds on the optimum that agree to a tolerance (relative), by value
    iteration.

    min(TV − V) ≤ optimum ≤ max(TV − V) for any V; half steps keep periodic policies from cycling.

    Arguments:
        improved: returns TV, the best reward of a step and value after it, of V.
        shape: of an array over all states.

    Raises:
        RuntimeError: value iteration did not converge.
    """
    value = np.zeros(shape)
    for _ in range(_MOST_SWEEPS):
        change = improved(value) - value
        low, high = float(change.min()), float(change.max())
        if high - low <= tolerance * max(abs(high), _TINY):
            return value, low, high
        value += 0.5 * change
        value -= value.flat[0]
    raise RuntimeError("value iteration did not converge; raise the tolerance")


def _joint_value(
    sources: Sources,
    caps: NDArray[np.int_],
    actions: tuple[tuple[int, ...], ...],
    payoff: DiminishingReturns | None,
    optimistic: bool,
    tolerance: float,
) -> tuple[float, float]:
    """Return bounds on the optimal average reward under capped ages, by value iteration. Axis i of
    the values is the age of source i."""
    success = 1.0 - sources.failure_rate
    ages = [np.arange(1.0, cap + 1) for cap in caps]
    content = [sources.select([i]).content_at(k[:, None])[:, 0] for i, k in enumerate(ages)]
    if optimistic:
        for i, column in enumerate(content):
            column[-1] = sources.content_at(np.inf)[i]
    n = len(caps)
    older = [np.minimum(np.arange(1, cap + 1), cap - 1) for cap in caps]
    # The utility that a crawl of source i collects at each age: none before its delay has passed.
    may = [_along(k >= sources.delay[i], i, n) for i, k in enumerate(ages)]
    brings = [may[i] * _along(success[i] * content[i], i, n) for i in range(n)]
    rewards = [_reward(brings, action, sources, payoff) for action in actions]

    def improved(value: FloatArray) -> FloatArray:
        best = np.full(value.shape, -np.inf)
        for action, reward in zip(actions, rewards, strict=True):
            after = value
            for i in range(n):
                waiting = after.take(older[i], axis=i)
                if i in action:
                    emptied = success[i] * after.take([0], axis=i) + (1 - success[i]) * waiting
                    waiting = np.where(may[i], emptied, waiting)
                after = waiting
            np.maximum(best, reward + after, out=best)
        return best

    return relative_values(improved, tuple(caps), tolerance)[1:]


def _reward(
    brings: Sequence[FloatArray],
    action: tuple[int, ...],
    sources: Sources,
    payoff: DiminishingReturns | None,
) -> Any:
    """Return the reward of an action in every joint state."""
    if payoff is None:
        return sum(brings[i] for i in action)
    of_topic: dict[int, Any] = {}
    for i in action:
        topic = int(sources.topic_of[i])
        of_topic[topic] = of_topic.get(topic, 0.0) + brings[i]
    return sum(payoff.worth(utility) for utility in of_topic.values())


def _along(values: NDArray[Any], axis: int, n: int) -> NDArray[Any]:
    """Return values as an array that varies along one of n axes."""
    return values.reshape([-1 if j == axis else 1 for j in range(n)])
