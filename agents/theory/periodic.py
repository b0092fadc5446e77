"""Sources whose rates have a known daily cycle: the best times of crawls, and the relaxed bound.

The content of a source that is not observed is then a function of the time of day and of its last
crawl. At Lagrange multipliers λ of the budget, one for each step of a day, each source is a problem
of its own: choose the times at which it is crawled, so that Σ (y − λC) per step is largest, where y
is what a crawl collects. Every crawl empties the source, so the state after it is the time of day
alone, and the best times are the cycle of largest mean in a graph of D nodes, the steps of a day.
With a day of one step, this is the problem of `agents.policies.lagrangian`.
"""

from __future__ import annotations

from math import expm1, log
from typing import NamedTuple

import numpy as np

from agents.theory.multiplier import spendable
from agents.theory.price import Tangent, least_dual, least_of_sum
from agents.theory.renewal import simplified
from crawl_env import Arrivals, Sources, Task, Trace
from crawl_env.compiled import compiled, inlined
from crawl_env.content.rates import DailyCycle
from crawl_env.numerics import FloatArray, IntArray

_FULL = 45.0  # time constants after which content depends on the time of day only, to rounding
_SINGLY = 1000  # steps up to which content is computed one by one
_ROUNDING = 1e-13  # of what a crawl collects, below which a cycle is no better
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
    on average at each time of day. Failures count as higher costs; capacities, crawl delays and
    hosts do not count, and can only lower what is earned. It takes half a second for 60 sources and
    a day of 24 steps.

    Arguments:
        sources: a fleet, (N,).
        inflow: the mean utility that each step of a day adds, (N, D): `daily_inflow`.
        budget: M, budget units / step.

    >>> fleet = Sources.preset("table1")
    >>> round(periodic_relaxation(fleet, fleet.inflow[:, None], 2.0).bound, 5)
    338.05394
    """
    sources = simplified(sources.replaced(capacity=np.inf))
    days = inflow.shape[1]
    rate, crawls, potential = np.empty(len(sources)), np.empty(inflow.shape), np.empty(inflow.shape)

    def at(price: FloatArray) -> tuple[FloatArray, FloatArray]:
        columns = sources.retention, sources.decay_per_step, price, sources.cost
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

    Under `budget_rule="step"`. Sources that cost more than the budget are left out, and capacities,
    delays and hosts ignored; see `periodic_relaxation`.

    Raises:
        ValueError: content is observed or sends signals; the budget holds on average; rates change
            in a way that is not known beforehand; decay is not exponential; fleets are drawn at
            reset; or a day is no whole number of steps.
    """
    arrivals = task.arrivals
    random_rates = isinstance(arrivals, Trace) or (arrivals.stateful and cycle_of(task) is None)
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
    fleet, budget = spendable(task.sources, task)
    inflow = daily_inflow(task, fleet)
    if inflow is None:
        raise ValueError("a day is no whole number of periods; use another period of the fleet")
    return periodic_relaxation(fleet, inflow, budget).bound


@compiled
def _each_best_cycle(
    inflow: FloatArray,
    retention: FloatArray,
    decay: FloatArray,
    price: FloatArray,
    cost: FloatArray,
    rate: FloatArray,
    crawls: FloatArray,
    potential: FloatArray,
) -> None:
    """Write β, (N,), and V and the crawls per day at each time of day, (N, D), where a crawl costs
    price × cost, (D,) and (N,); `retention` is α and `decay` m, (N,)."""
    for i in range(len(inflow)):
        charge = price * cost[i]
        constants = retention[i], decay[i], charge
        rate[i] = _best_cycle(inflow[i], *constants, potential[i], crawls[i])


@compiled
def _best_cycle(
    inflow: FloatArray,
    retention: float,
    decay: float,
    charge: FloatArray,
    potential: FloatArray,
    crawls: FloatArray,
) -> float:
    """Return β, and write V and the crawls per day at each time of day, both (D,), of the best
    cycle: Howard's policy iteration for V(d) = max_j y_j(d) − λC − jβ + V(d + j), j steps after a
    crawl at time d.

    From each time of day every other one can be reached, so that β does not depend on d.
    """
    days = inflow.size
    daily = _daily(inflow, retention, decay)
    loss = -expm1(-decay * days)
    full = daily / loss  # content at each time of day if it is never crawled
    richest = (full - charge).argmax()
    margin = full[richest] - charge[richest]
    potential[:] = 0.0
    crawls[:] = 0.0
    if not margin > 0.0:
        return 0.0
    constants = retention, decay, daily, charge
    wait, to, brings = np.empty(days), np.empty(days, np.intp), np.empty(days)  # the policy
    seen, path = np.empty(days, np.intp), np.empty(days, np.intp)
    # From every time of day, half of the margin is reached within so many steps.
    least_mean = 0.5 * margin / (log(2.0 * full[richest] / margin) / decay + 2.0 * days)
    for d in range(days):  # the first policy: the largest mean of one interval, or one above 0
        best, content, idle = 0.0, 0.0, 0
        for j in range(1, max(days, _SINGLY) + 1):
            content = retention * content + inflow[(d + j - 1) % days]
            e = (d + j) % days
            net = content - charge[e]
            if net / j > best:
                best, wait[d], to[d], brings[d] = net / j, j, e, net
            idle = idle + 1 if daily[e] - loss * content <= days * best else 0
            if idle == days:
                break
        if not best > 0.0:
            choice = _best_wait(0.0, d, inflow, *constants, least_mean, potential)
            _, wait[d], to[d], brings[d] = choice
    length = 0.0
    for _ in range(1000):
        # The cycle of the policy that has the largest mean.
        seen[:] = -1
        beta, root = -np.inf, 0
        for start in range(days):
            d = start
            while seen[d] < 0:
                seen[d] = start
                d = to[d]
            if seen[d] == start:  # a new cycle
                total, steps, k = 0.0, 0.0, d
                while True:
                    total, steps = total + brings[k], steps + wait[k]
                    k = to[k]
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
                d = to[d]
            if seen[d] == 2:
                d = path[depth - 1]
                ahead = (root - d - 1) % days + 1
                content = 0.0
                for j in range(ahead):
                    content = retention * content + inflow[(d + j) % days]
                wait[d], to[d], brings[d] = ahead, root, content - charge[root]
            for place in range(depth - 1, -1, -1):
                d = path[place]
                potential[d] = brings[d] - wait[d] * beta + potential[to[d]]
                seen[d] = 1
        least = _ROUNDING * (brings + charge[to]).max()
        better = False
        for d in range(days):
            best, after, e, net = _best_wait(0.0, d, inflow, *constants, beta, potential)
            if best > potential[d] + least:
                wait[d], to[d], brings[d], better = after, e, net, True
        if not better:
            break
    d = root
    while True:
        crawls[d] += days / length
        d = to[d]
        if d == root:
            break
    return beta


@inlined
def _daily(inflow: FloatArray, retention: float, decay: float) -> FloatArray:
    """Return the content at each time of day of a source that was crawled a day before, (D,)."""
    days = inflow.size
    daily, x = np.empty(days), 0.0
    for d in range(days):
        x = retention * x + inflow[d]
    for d in range(days):
        daily[d] = x
        x = retention * x - expm1(-decay * days) * inflow[d]
    return daily


@inlined
def _best_wait(
    x: float,
    day: int,
    inflow: FloatArray,
    retention: float,
    decay: float,
    daily: FloatArray,
    charge: FloatArray,
    rate: float,
    potential: FloatArray,
) -> tuple[float, float, int, float]:
    """Return max_j x_j − λC − jβ + V(d + j) over j ≥ 1, with that j, the time of day d + j, and
    x_j − λC; x_j is the content j steps after it was x at time d.

    At one time of day, content grows from one day to the next by e^−mD times as much as on the day
    before, so that the best day is the first after which it grows by no more than Dβ. Beyond
    `_SINGLY` steps, that day is computed at once.
    """
    days, aged = inflow.size, decay * inflow.size
    loss, enough, idle = -expm1(-aged), days * rate, 0
    last = max(days, _SINGLY)
    best, wait, to, brings = -np.inf, 1.0, 0, 0.0
    for j in range(1, last + 1):
        x = retention * x + inflow[(day + j - 1) % days]
        e = (day + j) % days
        content, steps, growth = x, float(j), daily[e] - loss * x
        idle = idle + 1 if growth <= enough else 0
        if j > last - days and growth > enough:
            more = np.ceil(min(log(growth / enough), _FULL) / aged)
            content += growth * (-expm1(-aged * more) / loss)
            steps += more * days
        net = content - charge[e]
        now = net - steps * rate + potential[e]
        if now > best:
            best, wait, to, brings = now, steps, e, net
        if idle == days:
            break
    return best, wait, to, brings


@compiled
def periodic_gains(
    value: FloatArray,
    day: IntArray,
    inflow: FloatArray,
    retention: FloatArray,
    decay: FloatArray,
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
        retention, decay, cost, rate: α, m, C and β, (N,).
        price: λ, (D,).
        potential: V, (N, D).
    """
    days = inflow.shape[1]
    for i in range(value.shape[1]):
        row, later, charge = inflow[i], potential[i], price * cost[i]
        daily = _daily(row, retention[i], decay[i])
        full = daily / -expm1(-decay[i] * days)
        constants = retention[i], decay[i], daily, charge
        for b in range(len(value)):
            d, x, best = day[b] % days, value[b, i], 0.0
            if rate[i] > 0.0 or x > full[d]:  # else every later crawl is at a loss
                best, _, _, _ = _best_wait(x, d, row, *constants, rate[i], later)
                best = best if rate[i] > 0.0 else max(best, 0.0)
            out[b, i] = x - charge[d] + later[d] - best
