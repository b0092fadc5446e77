"""The relaxed bound where sources can be looked at: no policy of crawls and looks can exceed it.

At the Lagrange multiplier λ a source is a problem of its own. What is known of it is the content x
that a look or a crawl showed last, and how many steps ago. Let v(x) be the value of knowing x now,
relative to that of an empty source, and g the net reward per step:

    v(x) = max(x − λC, max_j (E X_j − λC − gj), max_j (E v(X_j) − λc − gj)),   v(0) = 0,

where X_j = α^j x + S_j is the content j ≥ 1 steps later, and S_j what is left of what is published
in them: to crawl now, to crawl after j steps, or to look after j steps.

If v is at least the right-hand side everywhere, no policy has more than g per step: what it
collects, less λ times what it spends, telescopes. Three steps make the problem finite, and each can
only raise it, so that g is a bound from above on every grid:

- S_j is replaced by a variable that is larger in convex order, on a lattice. v is convex.
- v is interpolated between the points of a grid, and grows as x above them. The right-hand side is
  convex and grows no faster, so that it is below v between the points if it is at the points.
- All j from a to b count as a look after a steps that shows α^a x + S_b. v does not decrease, nor
  does S_b with b. The last of these spans has no end.

What remains is the error of the values that stand for the distribution of ξ (`one_item`), as in
`agents.theory.observed`. The solution of the finite problem is exact, by policy iteration.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from agents.theory.observed import grid_of, reach_of
from agents.theory.price import Tangent, least_dual
from agents.theory.relaxation import Relaxation, relaxation
from agents.theory.renewal import simplified
from agents.theory.shot_noise import Content, Item, one_item
from crawl_env import Sources
from crawl_env.content.utility import Distribution
from crawl_env.errors import check_positive
from crawl_env.numerics import FloatArray, IntArray

_STATES = 64
_LATTICE = 1024  # points of the law of S_j, up to the largest content of the grid
_SINGLY = 32  # steps that are told apart; then a span is this fraction of the time before it
_GROWTH = 1 / 8
_LONGEST = 5.0  # time constants after which the last span begins
_CACHED_ARMS = 128  # of a search for λ, 1 to 4 MB each; the others are made again
_HIGHEST = 0.8  # of the largest content: what a crawl is taken to cost at most
_FREE = 1e-9  # of the cost of a crawl: what a look at an observed source costs
_MOST_POLICIES = 200
_TIE = 1e-12  # of the largest content
_FULL = 40.0  # time constants after which nothing grows any more
_GAP = 1e-5  # of the bound, at which the search for λ* ends


class _LookArm(NamedTuple):
    """The finite problem of one source, in units of ξ̄: K spans of time, n contents."""

    ceiling: float  # u*/ξ̄
    decay: float  # μT
    content: FloatArray  # (n,)
    steps: FloatArray  # (K,) after which a look is made
    moves: FloatArray  # (K, n, n) where the content is then
    beyond: FloatArray  # (K, n) by how much it exceeds the largest content, on average


class _Choice(NamedTuple):
    """What follows when a content is known, (n,) each."""

    span: IntArray  # in which the source is looked at next; −1: it is crawled first
    wait: FloatArray  # steps before that crawl


class _NetReward(NamedTuple):
    """The largest net reward of an arm, and what is done for it."""

    gain: float  # ξ̄ / step
    crawls: float  # per step, like the looks
    looks: float
    policy: _Choice


def looks_relaxation(
    sources: Sources, budget: float, look_cost: FloatArray, utility: Distribution
) -> Relaxation:
    """Minimise λM + Σ_i g_i(λ) over λ ≥ 0, g_i being the largest net reward of source i alone.

    No policy exceeds the bound in the long run whose crawls and looks cost M per step on average,
    with Poisson arrivals and exponential decay. Failures count as higher costs; crawl delays, hosts
    and capacities are ignored. It takes one or two seconds for 100 sources.

    Arguments:
        sources: a fleet, (N,).
        budget: M, budget units / step.
        look_cost: c, (N,) budget units; 0 where content is observed.
        utility: the distribution of ξ.

    Raises:
        ValueError: the budget is not positive, or the distribution of ξ has too heavy a tail.

    >>> from crawl_env.content.utility import Exponential
    >>> fleet = Sources.preset("fleet-f")
    >>> looks = [looks_relaxation(fleet, 2, np.full(25, c), Exponential()) for c in (0.0, 0.1, 1.0)]
    >>> [round(solution.bound, 2) for solution in looks]
    [8.15, 6.92, 6.17]
    """
    check_positive("budget", budget, "budget units / step")
    fleet = simplified(sources.replaced(capacity=np.inf))
    live = fleet.ceiling > 0
    if not live.any():
        return Relaxation(0.0, 0.0)
    fleet, look_cost = fleet.select(live), look_cost[live]
    look_cost = np.maximum(look_cost, _FREE * fleet.cost)
    items, decay = fleet.arrival_rate * fleet.period, fleet.decay_per_step
    worth = fleet.mean_utility
    item = one_item(utility)
    arm_of = lru_cache(maxsize=_CACHED_ARMS)(lambda ell, m: _arm(ell, m, item))
    policies: dict[int, _Choice] = {}

    def tangent(multiplier: float) -> Tangent:
        if multiplier == 0.0:
            cheapest = np.minimum(fleet.cost, look_cost - fleet.cost * np.expm1(-items))
            return Tangent(0.0, float(fleet.inflow.sum()), float(cheapest.sum()), budget)
        net = spending = 0.0
        for i in range(len(fleet)):
            arm = arm_of(float(items[i]), float(decay[i]))
            crawl, look = (float(multiplier * x[i] / worth[i]) for x in (fleet.cost, look_cost))
            best = _solve(arm, crawl, look, policies.get(i))
            policies[i] = best.policy
            net += best.gain * worth[i]
            spending += best.crawls * fleet.cost[i] + best.looks * look_cost[i]
        return Tangent(multiplier, net, spending, budget)

    def top() -> float:
        reach = [reach_of(*one, item) for one in zip(items, decay, strict=True)]
        return float((np.array(reach) * worth / fleet.cost).max())

    guess = float(relaxation(fleet, budget).multiplier)
    minimum = least_dual(tangent, budget, top, guess, _GAP)
    published = float(fleet.inflow.sum())
    if minimum.value >= published:  # at λ > 0 the grid is coarse where content hardly decays
        return Relaxation(published, 0.0)
    return Relaxation(float(minimum.value), float(minimum.multiplier))


def _arm(items: float, decay: float, item: Item) -> _LookArm:
    """Return the finite problem of a source with ℓ = ΛT `items` and m = μT `decay`."""
    ceiling, top = items / decay, reach_of(items, decay, item)
    content = grid_of(top, ceiling / top, _STATES - 1)
    first, last = _spans(decay)
    step = top / (_LATTICE - 2)
    laws = Content.within(items, decay, item, last, step, _LATTICE)
    start = np.exp(-decay * first)[:, None] * content
    moves = np.zeros((first.size, _STATES, _STATES))
    for law, begin, out in zip(laws, start, moves, strict=True):
        law.split(begin, content, out)
    # The rest is above the grid, where v is linear: its probability and its mean suffice.
    rest = 1.0 - moves.sum(axis=-1)
    mean = start - ceiling * np.expm1(-decay * last)[:, None]
    beyond = np.maximum(mean - moves @ content - rest * top, 0.0)
    moves[..., -1] += rest
    return _LookArm(ceiling, decay, content, first, moves, beyond)


def _spans(decay: float) -> tuple[FloatArray, FloatArray]:
    """Return the first and the last step of each span, (K,) each."""
    first = [1.0]
    while first[-1] * decay <= _LONGEST:
        longer = first[-1] >= _SINGLY
        first.append(first[-1] + (np.floor(_GROWTH * first[-1]) if longer else 1.0))
    return np.array(first), np.append(np.array(first[1:]) - 1.0, np.inf)


def _solve(arm: _LookArm, crawl: float, look: float, policy: _Choice | None) -> _NetReward:
    """Return the net reward of an arm, and how it is attained, by policy iteration.

    Arguments:
        crawl, look: λC/ξ̄ and λc/ξ̄.
        policy: with which the iteration begins.
    """
    content, n, last = arm.content, arm.content.size, arm.steps.size - 1
    most = _HIGHEST * content[-1]
    dear, crawl = crawl > most, min(crawl, most)
    if policy is None:
        policy = _Choice(np.where(content < crawl, last, -1), np.zeros(n))
    for _ in range(_MOST_POLICIES):
        at = np.flatnonzero(policy.span >= 0)
        span = policy.span[at]
        # Until the next crawl: net reward, steps, crawls and looks.
        until = np.stack([_after(arm, policy.wait) - crawl, policy.wait, np.ones(n), np.zeros(n)])
        until[:, at] = arm.beyond[span, at] - look, arm.steps[span], 0.0 * span, 0.0 * span + 1.0
        chain = np.eye(n)
        chain[at] -= arm.moves[span, at]
        reward, steps, crawls, looks = np.linalg.solve(chain, until.T).T
        gain = max(reward[0] / steps[0], 0.0)
        value = reward - gain * steps
        crawl_value, wait = _crawl_value(arm, crawl, gain)
        look_value = (arm.moves.reshape(-1, n) @ value).reshape(-1, n) + arm.beyond - look
        look_value -= gain * arm.steps[:, None]
        span = look_value.argmax(axis=0)
        look_value = look_value[span, np.arange(n)]
        better = np.maximum(look_value, crawl_value) > value + _TIE * content[-1]
        if not better.any():
            rate = (gain > 0.0) / steps[0]
            return _NetReward(gain, 0.0 if dear else crawls[0] * rate, looks[0] * rate, policy)
        span = np.where(look_value > crawl_value, span, -1)
        policy = _Choice(np.where(better, span, policy.span), np.where(better, wait, policy.wait))
    raise RuntimeError("policy iteration did not converge")


def _after(arm: _LookArm, steps: FloatArray) -> FloatArray:
    """Return the mean content some steps after each content of the grid, (n,)."""
    return arm.ceiling + (arm.content - arm.ceiling) * np.exp(-arm.decay * steps)


def _crawl_value(arm: _LookArm, crawl: float, gain: float) -> tuple[FloatArray, FloatArray]:
    """Return the value of a crawl without a look before, and after how many steps it is best, (n,)
    each."""
    growth = np.maximum(arm.ceiling - arm.content, 0.0) * arm.decay
    with np.errstate(divide="ignore", invalid="ignore"):
        best = np.log(growth / gain) / arm.decay
    best = np.floor(np.clip(np.nan_to_num(best, nan=0.0), 0.0, np.ceil(_FULL / arm.decay)))
    now, then = (_after(arm, k) - crawl - gain * k for k in (best, best + 1.0))
    return np.maximum(now, then), np.where(then > now, best + 1.0, best)
