"""Sources whose rates have a known daily cycle: the best times of crawls, and the relaxed bound.

The content of a source that is not observed is then a function of the time of day and of its last
crawl. At Lagrange multipliers λ of the budget, one for each step of a day, each source is a problem
of its own: choose the times at which it is crawled, so that Σ (y − λC) per step is largest, where y
is what a crawl collects. Every crawl empties the source, so the state after it is the time of day
alone, and the best times are the cycle of largest mean in a graph of D nodes, the steps of a day.
With a day of one step, this is the problem of `agents.policies.lagrangian`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from agents.theory.multiplier import payable
from agents.theory.price import Tangent, least_dual, least_of_sum
from agents.theory.renewal import simplified
from crawl_env import Arrivals, Sources, Task
from crawl_env.compiled import compiled
from crawl_env.content.rates import DailyCycle
from crawl_env.numerics import FloatArray, IntArray

_FULL = 45.0  # time constants after which content depends on the time of day only, to rounding
_ROUNDING = 1e-13  # of u*, below which a cycle is no better
_GAP = 1e-10  # of the bound, at which the search for λ* ends


class PeriodicRelaxation(NamedTuple):
    """The relaxation of a fleet whose rates have a daily cycle, at its optimal multiplier λ*."""

    bound: float  # utility / step
    multiplier: FloatArray  # λ*, (D,) utility / budget unit
    rate: FloatArray  # (N,) β, the best net reward of each source, utility / step; 0: no crawl pays
    potential: FloatArray  # (N, D) V, utility: what a crawl in this step of the day is worth later


def daily_inflow(task: Task, sources: Sources) -> FloatArray | None:
    """Return the mean utility that each step of a day adds, (N, D); D is 1 where rates are constant
    or their cycle is not known beforehand, and the result None where a day is no whole number of
    steps."""
    inflow = sources.inflow[:, None]
    cycle = cycle_of(task)
    if cycle is None:
        return inflow
    steps = cycle.day / sources.period
    if abs(steps - round(steps)) > 1e-9 * steps:
        return None
    start = cycle.start((1, len(sources)), sources.period, np.random.default_rng(0))
    times = start + np.arange(round(steps))[:, None]
    return np.ascontiguousarray(inflow * cycle.factor(times, sources.period).T)


def cycle_of(task: Task) -> DailyCycle | None:
    """Return the daily cycle of a task's arrivals, or None where there is none."""
    rate = task.arrivals.rate if isinstance(task.arrivals, Arrivals) else None
    return rate if isinstance(rate, DailyCycle) else None


def periodic_relaxation(sources: Sources, inflow: FloatArray, budget: float) -> PeriodicRelaxation:
    """Minimise Σ_d λ_d M/D + Σ_i β_i(λ) over λ ≥ 0, (D,), where β_i is the largest mean per step of
    y − λC that crawls of source i at any times of day can have.

    No policy earns more in the long run that does not observe the content and whose crawls cost M
    on average at each time of day. Failures and capacities count as in
    `agents.theory.renewal.simplified`; crawl delays and hosts do not, and can only lower what is
    earned. It takes half a second for 60 sources and a day of 24 steps.

    Arguments:
        sources: a fleet, (N,).
        inflow: the mean utility that each step of a day adds, (N, D): `daily_inflow`.
        budget: M, budget units / step.

    >>> fleet = Sources.preset("table1")
    >>> round(periodic_relaxation(fleet, fleet.inflow[:, None], 2.0).bound, 5)
    338.05394
    """
    sources = simplified(sources)
    days = inflow.shape[1]
    rate, crawls, potential = np.empty(len(sources)), np.empty(inflow.shape), np.empty(inflow.shape)
    longest = np.ceil(_FULL / sources.decay_per_step).astype(np.intp) + days

    def at(price: FloatArray) -> tuple[FloatArray, FloatArray]:
        columns = sources.retention, price, sources.cost, longest
        _each_best_cycle(inflow, *columns, rate, crawls, potential)
        return rate.copy(), -crawls * sources.cost[:, None] / days

    def tangent(multiplier: float) -> Tangent:
        net, slopes = at(np.full(days, multiplier))
        return Tangent(multiplier, float(net.sum()), -float(slopes.sum()), budget)

    # No crawl collects more than what waits where the rate is always at its maximum.
    most = float((inflow.max(axis=-1) / sources.loss / sources.cost).max())
    price = np.full(days, least_dual(tangent, budget, lambda: most, gap=_GAP).multiplier)
    if days > 1:
        price, _ = least_of_sum(at, np.full(days, budget / days), price)
    at(price)
    return PeriodicRelaxation(float(rate.sum() + budget * price.mean()), price, rate, potential)


def periodic_bound(task: Task) -> float:
    """Return the relaxed bound of a task whose rates have a daily cycle, or none: utility / step
    that no policy exceeds in the long run which knows the cycle, but not the content.

    Under `budget_rule="step"`. Sources that cost more than the budget are left out, and delays and
    hosts ignored; see `periodic_relaxation`.

    Raises:
        ValueError: content is observed or sends signals; the budget holds on average; rates change
            in a way that is not known beforehand; decay is not exponential; fleets are drawn at
            reset; or a day is no whole number of steps.
    """
    arrivals = task.arrivals
    random_rates = arrivals.stateful and cycle_of(task) is None
    is_informed = arrivals.random and bool((task.observed | (task.sources.recall > 0)).any())
    if random_rates or is_informed or not arrivals.exponential or task.draw is not None:
        raise ValueError(
            f"the bound of a daily cycle is not known for {task!r}: give a fleet that is not "
            "observed and sends no signals, and Arrivals(rate=DailyCycle(…)) with exponential decay"
        )
    if task.budget_rule == "average":
        raise ValueError(
            "the bound of a daily cycle holds for budget_rule='step'; with the budget on average, "
            "what is saved at one time of day can be spent at another"
        )
    fleet, budget = payable(task.sources, task)
    inflow = daily_inflow(task, fleet)
    if inflow is None:
        raise ValueError("a day is no whole number of periods; use another period of the fleet")
    return periodic_relaxation(fleet, inflow, budget).bound


@compiled
def _each_best_cycle(
    inflow: FloatArray,
    retention: FloatArray,
    price: FloatArray,
    cost: FloatArray,
    longest: IntArray,
    rate: FloatArray,
    crawls: FloatArray,
    potential: FloatArray,
) -> None:
    """Write β, (N,), and V and the crawls per day at each time of day, (N, D), where a crawl costs
    price × cost, (D,) and (N,)."""
    for i in range(len(inflow)):
        charge = price * cost[i]
        rate[i] = _best_cycle(inflow[i], retention[i], charge, longest[i], potential[i], crawls[i])


@compiled
def _best_cycle(
    inflow: FloatArray,
    retention: float,
    charge: FloatArray,
    longest: int,
    potential: FloatArray,
    crawls: FloatArray,
) -> float:
    """Return β, and write V and the crawls per day at each time of day, both (D,), of the best
    cycle: Howard's policy iteration for V(d) = max_j y_j(d) − λC − jβ + V(d + j), j steps after a
    crawl at time d.

    From each time of day every other one can be reached, so that β does not depend on d.
    """
    days = inflow.size
    full, cheapest = inflow.max() / (1.0 - retention), charge.min()
    least = _ROUNDING * full
    wait, brings = np.ones(days, np.intp), np.empty(days)  # the policy and its net rewards
    seen, path = np.empty(days, np.intp), np.empty(days, np.intp)
    potential[:] = 0.0
    crawls[:] = 0.0
    beta = 0.0
    if not full > cheapest:
        return 0.0
    for d in range(days):  # the first policy: the largest mean of one interval
        best, content = -np.inf, 0.0
        for j in range(1, longest + 1):
            content = retention * content + inflow[(d + j - 1) % days]
            net = content - charge[(d + j) % days]
            if net / j > best:
                best, wait[d], brings[d] = net / j, j, net
            if (full - cheapest) / j < best:
                break
    length = days
    for _ in range(1000):
        # The cycle of the policy that has the largest mean.
        seen[:] = -1
        beta, root = -np.inf, 0
        for start in range(days):
            d = start
            while seen[d] < 0:
                seen[d] = start
                d = (d + wait[d]) % days
            if seen[d] == start:  # a new cycle
                total, steps, k = 0.0, 0, d
                while True:
                    total, steps = total + brings[k], steps + wait[k]
                    k = (k + wait[k]) % days
                    if k == d:
                        break
                if total / steps > beta:
                    beta, root, length = total / steps, d, steps
        if not beta > 0.0:
            potential[:] = 0.0
            return 0.0
        # V along the policy, towards the root; what leads to another cycle goes there directly.
        seen[:] = 0
        seen[root] = 1
        potential[root] = 0.0
        for start in range(days):
            d, depth = start, 0
            while seen[d] == 0:
                seen[d] = 2
                path[depth] = d
                depth += 1
                d = (d + wait[d]) % days
            if seen[d] == 2:
                d = path[depth - 1]
                wait[d] = (root - d - 1) % days + 1
                content = 0.0
                for j in range(wait[d]):
                    content = retention * content + inflow[(d + j) % days]
                brings[d] = content - charge[root]
            for place in range(depth - 1, -1, -1):
                d = path[place]
                after = (d + wait[d]) % days
                potential[d] = brings[d] - wait[d] * beta + potential[after]
                seen[d] = 1
        highest = potential.max()
        better = False
        for d in range(days):
            best, content = potential[d] + least, 0.0
            for j in range(1, longest + 1):
                content = retention * content + inflow[(d + j - 1) % days]
                net = content - charge[(d + j) % days]
                now = net - j * beta + potential[(d + j) % days]
                if now > best:
                    best, wait[d], brings[d], better = now, j, net, True
                if full - cheapest - j * beta + highest < best:
                    break
        if not better:
            break
    d = root
    while True:
        crawls[d] += days / length
        d = (d + wait[d]) % days
        if d == root:
            break
    return beta


@compiled
def periodic_gains(
    value: FloatArray,
    day: IntArray,
    inflow: FloatArray,
    retention: FloatArray,
    price: FloatArray,
    cost: FloatArray,
    rate: FloatArray,
    potential: FloatArray,
    out: FloatArray,
) -> None:
    """Write the gain W of crawling each source now over crawling it later, (B, N) utility.

    W = x − λC + V(d) − max_j [x_j − λC − jβ + V(d + j)], where x_j is the content after j more
    steps; if no crawl pays, what a crawl now brings over the best one later that is not at a loss.

    Arguments:
        value: x, uncollected utility or belief, (B, N).
        day: d, step of the day, (B,).
        inflow: (N, D).
        retention, cost, rate: α, C and β, (N,).
        price: λ, (D,).
        potential: V, (N, D).
    """
    days = inflow.shape[1]
    for i in range(value.shape[1]):
        highest = potential[i].max()
        most = inflow[i].max() / (1.0 - retention[i])
        longest = np.ceil(_FULL / (1.0 - retention[i])) + days
        for b in range(len(value)):
            x, best = value[b, i], 0.0 if rate[i] == 0.0 else -np.inf
            full = max(x, most) - price.min() * cost[i] + highest
            j = 0
            while full - j * rate[i] > best and j < longest:
                x = retention[i] * x + inflow[i, (day[b] + j) % days]
                j += 1
                d = (day[b] + j) % days
                best = max(best, x - price[d] * cost[i] - j * rate[i] + potential[i, d])
            d = day[b] % days
            out[b, i] = value[b, i] - price[d] * cost[i] + potential[i, d] - best
