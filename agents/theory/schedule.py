"""The optimal schedule of the relaxed problem: how often each source is crawled at λ*.

Under a budget that holds on average, it is optimal to crawl every source whenever its index reaches
the Lagrange multiplier λ*, that is, at an interval of its own; a source whose index never reaches
λ* is not crawled. Sources whose index is λ* at two ages, or at one age and for ever, divide what is
left of the budget, so that all of it is spent: their intervals are averages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from agents.theory.hosts import HostMultipliers
from agents.theory.price import first_near
from agents.theory.renewal import renewal_arm
from crawl_env.errors import check_positive
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray
from crawl_env.simulation.selection import TOLERANCE, Hosts


class RelaxedSchedule(NamedTuple):
    """How often each of N sources is crawled, and what that collects."""

    crawls: FloatArray  # (N,) crawls per step, failed ones included
    reward: FloatArray  # (N,) utility per step
    multiplier: float  # λ*, utility / budget unit; where several are optimal, as in `relaxation`

    @property
    def interval(self) -> FloatArray:
        """Return the mean steps between two crawls, (N,); infinite where there are none."""
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / self.crawls)

    @property
    def utility_per_crawl(self) -> FloatArray:
        """Return the expected utility that a crawl collects, (N,); 0 where there are none."""
        return np.divide(
            self.reward, self.crawls, out=np.zeros_like(self.reward), where=self.crawls > 0
        )


def relaxed_schedule(
    sources: Sources, budget: float, per_host: int = 1, longest: float = np.inf
) -> RelaxedSchedule:
    """Return the optimal schedule under a budget that holds on average.

    The sum of `reward` is `relaxed_bound` if `longest` is infinite; the difference otherwise is
    what the maximum interval costs.

    Arguments:
        sources: a fleet, (N,).
        budget: M, budget units per step.
        per_host: crawls per step of sources that share a host.
        longest: maximum interval in steps; every source is then crawled, even if it publishes
            nothing. Where crawls fail, the first attempt is made at this age.

    Raises:
        ValueError: budget is not positive and finite; `longest` is below a crawl delay, or is given
            for a fleet with shared hosts; or the budget does not cover a crawl of every source in
            each `longest` steps.

    >>> best = relaxed_schedule(Sources.preset("table1"), budget=2)
    >>> best.interval.round(3), round(float(best.reward.sum()), 5)
    (array([1.   , 1.909, 3.   , 7.   ]), 338.05394)
    >>> relaxed_schedule(Sources.preset("table1"), budget=2, longest=6).interval.round(3)
    array([1., 2., 3., 6.])
    """
    check_positive("budget", budget, "budget units / step")
    arm, cost = renewal_arm(sources), sources.cost
    hosts = Hosts.of(sources, per_host)
    limit = None if longest == np.inf else _limit(sources, longest, hosts)
    limits = None if hosts is None else HostMultipliers(arm, hosts)

    def at(multiplier: float) -> tuple[FloatArray, FloatArray]:
        """Return crawls and reward per step."""
        level = np.full(cost.shape, multiplier)
        if limits is not None:
            return limits.crawls_and_reward(level[:1])
        worth = level < arm.break_even
        if limit is None:
            interval, crawled = arm.interval(level), worth
        else:  # what is not worth a crawl is crawled as rarely as it may be
            interval = arm.interval(level, None, np.minimum(arm.longest, limit))
            interval, crawled = np.where(worth, interval, limit), np.ones_like(worth)
        crawls = np.where(crawled, arm.crawl_rate(interval), 0.0)
        reward = arm.cycle_reward(interval) / arm.cycle_length(interval)
        return crawls, np.where(crawled, reward, 0.0)

    def spending(multiplier: float) -> float:
        return float((at(multiplier)[0] * cost).sum())

    top = 2.0 * arm.max_multiplier()[0] + 1.0
    if limit is not None and spending(top) > budget * (1 + TOLERANCE):
        raise ValueError(
            f"a maximum interval of {longest * sources.period:g} needs a budget of at least "
            f"{spending(top):.4g} per step, and the budget is {budget:g}; allow a longer "
            "interval, or raise the budget"
        )
    if spending(0.0) <= budget * (1 + TOLERANCE):
        crawls, reward = at(0.0)
        return RelaxedSchedule(crawls, reward, 0.0)
    low, high = first_near(lambda x: spending(x) <= budget * (1 + TOLERANCE), top, most=top)
    (many, most), (few, least) = at(low), at(high)
    more = float(((many - few) * cost).sum())
    part = np.clip((budget - float((few * cost).sum())) / more, 0.0, 1.0)
    crawls, reward = few + part * (many - few), least + part * (most - least)
    # Where a whole interval of λ is optimal, its middle, which `relaxation` and reports have, too.
    last = first_near(lambda x: spending(x) < budget * (1 - TOLERANCE), high, high, top)[1]
    return RelaxedSchedule(crawls, reward, 0.5 * (high + last))


def _limit(sources: Sources, longest: float, hosts: Hosts | None) -> FloatArray:
    """Return the maximum interval of each source, in whole steps, after checking it."""
    check_positive("longest", longest, "steps")
    if hosts is not None:
        raise ValueError(
            "a maximum interval is not supported for sources that share a host; leave out one of "
            "the two"
        )
    late = np.flatnonzero(sources.delay > max(np.floor(longest), 1.0))
    if late.size:
        raise ValueError(
            f"source {sources.name(late[0])} has a crawl delay of "
            f"{sources.delay[late[0]] * sources.period:g}, which is longer than the maximum "
            f"interval of {longest * sources.period:g}; allow a longer interval"
        )
    return np.full(len(sources), max(np.floor(longest), 1.0))
