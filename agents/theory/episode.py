"""The relaxed bound of the steps of one episode, for a crawler that is told the rates in all of
them, or of a discounted return.

Who is told more can earn no less, so that the bound holds for every policy that does not observe
content, whatever it knows or learns of rates that drift or jump. Given the rates, the mean content
of a source is a function of the step and of its last crawl: what was found tells nothing of what is
published later. At the Lagrange multiplier λ each source is therefore a problem of its own: the
best steps of its crawls, found by a dynamic programme over the step of the last one.
"""

from __future__ import annotations

import numpy as np

from agents.theory.price import Tangent, least_dual
from agents.theory.relaxation import Relaxation
from agents.theory.renewal import simplified
from crawl_env import Sources
from crawl_env.compiled import compiled
from crawl_env.errors import check_array, check_positive, check_within
from crawl_env.numerics import FloatArray

_GAP = 1e-8  # of the bound, at which the search for λ* ends
_ROUNDING = 1e-13  # of a reward, by which no other crawl before is better


def told_rates_bound(sources: Sources, rates: FloatArray, budget: float) -> Relaxation:
    """Return the most utility per step that is collected of what is published in T steps, by anyone
    who is told the rates in all of them and does not observe content.

    What is left at the end is counted as collected, so that in the long run no policy exceeds the
    mean of the bound over the paths of the rates, if content decays exponentially and the crawls of
    these steps cost M on average. Failures count as higher costs; capacities, crawl delays and
    hosts are ignored. It takes a fifth of a second for 100 sources and 1,000 steps.

    Arguments:
        sources: a fleet, (N,), with the mean rates.
        rates: items / time in each step, (T, N): `World.rate` before it.
        budget: M, budget units / step.

    Raises:
        ValueError: rates have another shape, are negative or not finite; or the budget is not
            positive.

    >>> fleet = Sources.preset("table1")
    >>> constant = np.tile(fleet.arrival_rate, (1000, 1))
    >>> round(told_rates_bound(fleet, constant, 2).bound, 2)  # without an end 338.05
    338.23
    """
    rates = check_array("rates", rates, (None, len(sources)), low=0.0, unit="items / time")
    mean = sources.arrival_rate
    factor = np.divide(rates, mean, out=np.zeros_like(rates), where=mean > 0)
    inflow, weights = (factor * sources.inflow).T, np.ones(len(rates) + 1)
    solution = episode_relaxation(sources, inflow, np.zeros(len(sources)), budget, weights)
    return Relaxation(solution.bound / len(rates), solution.multiplier)


def discounted_bound(
    sources: Sources, content: FloatArray, budget: float, steps: int, discount: float
) -> Relaxation:
    """Return the largest return Σ δ^t r_t, utility, that any policy has in steps 0 … T − 1 whose
    crawls cost M per step on discounted average, where content is deterministic or not observed.

    Failures count as higher costs; capacities, crawl delays and hosts are ignored.

    Arguments:
        sources: a fleet, (N,).
        content: utility at the start, (N,).
        budget: M, budget units / step.
        steps: T.
        discount: δ, in (0, 1].

    Raises:
        ValueError: content has another shape or is negative; or the budget or the discount is not
            in its range.

    >>> fleet = Sources.preset("table1")
    >>> round(discounted_bound(fleet, np.zeros(4), 2, 300, 0.99).bound)
    31835
    """
    check_within("discount", discount, 0.0, 1.0, open_low=True)
    inflow = np.tile(sources.inflow[:, None], steps)
    weights = np.append(discount ** np.arange(float(steps)), 0.0)
    return episode_relaxation(sources, inflow, content, budget, weights)


def episode_relaxation(
    sources: Sources, inflow: FloatArray, content: FloatArray, budget: float, weights: FloatArray
) -> Relaxation:
    """Minimise λM Σ_t w_t + Σ_i V_i(λ) over λ ≥ 0, where V_i is the most that source i alone brings
    if a crawl in step t brings w_t (x − λC) and what is left at the end w_T x.

    Returns the bound in utility, of all steps together.

    Arguments:
        sources: a fleet, (N,).
        inflow: the mean utility that each step adds, after its crawls, (N, T).
        content: utility at the start, (N,).
        budget: M, budget units / step.
        weights: w, (T + 1,) ≥ 0.

    Raises:
        ValueError: content has another shape or is negative; or the budget is not positive.
    """
    check_positive("budget", budget, "budget units / step")
    content = check_array("content", content, (len(sources),), low=0.0, unit="utility")
    fleet = simplified(sources.replaced(capacity=np.inf))
    inflow = np.ascontiguousarray(inflow)
    net, crawls = np.empty(len(fleet)), np.empty(len(fleet))

    def tangent(multiplier: float) -> Tangent:
        charge = multiplier * fleet.cost
        _each_best(inflow, content, fleet.retention, charge, weights, net, crawls)
        return Tangent(multiplier, float(net.sum()), float(crawls @ fleet.cost), whole)

    def top() -> float:
        most = np.maximum(content, inflow.max(axis=-1) / fleet.loss)
        return float((most / fleet.cost).max())

    whole = budget * float(weights[:-1].sum())
    minimum = least_dual(tangent, whole, top, gap=_GAP)
    return Relaxation(minimum.value, minimum.multiplier)


@compiled
def _each_best(
    inflow: FloatArray,
    content: FloatArray,
    retention: FloatArray,
    charge: FloatArray,
    weights: FloatArray,
    net: FloatArray,
    crawls: FloatArray,
) -> None:
    """Write V, (N,), and the crawls by which it is attained, each counted with the w of its step,
    (N,), if a crawl costs `charge`, (N,)."""
    steps = inflow.shape[1]
    total, number = np.empty(steps + 1), np.empty(steps + 1)  # up to a crawl in each step
    highest = np.zeros(steps + 1)  # the largest total of a crawl before each step, or of none
    for i in range(net.size):
        untouched = np.empty(steps + 1)  # content where there was no crawl yet
        untouched[0] = content[i]
        for t in range(steps):
            untouched[t + 1] = retention[i] * untouched[t] + inflow[i, t]
        net[i] = crawls[i] = 0.0
        for t in range(steps + 1):
            best, last, since, survival = weights[t] * untouched[t], -1, 0.0, 1.0
            close = _ROUNDING * (highest[t] + best)
            for s in range(t - 1, -1, -1):  # the last crawl, and what it has left to this one
                since += survival * inflow[i, s]
                survival *= retention[i]
                if total[s] + weights[t] * since > best:
                    best, last = total[s] + weights[t] * since, s
                if highest[s] + weights[t] * (since + survival * untouched[s]) <= best + close:
                    break  # no earlier one can be better
            weight = weights[t] if t < steps else 0.0
            total[t] = best - weight * charge[i]
            number[t] = weight + (number[last] if last >= 0 else 0.0)
            if total[t] > net[i]:
                net[i], crawls[i] = total[t], number[t]
            if t < steps:
                highest[t + 1] = net[i]
