"""Simulation of a fleet whose content is drawn when it is crawled: work per crawl, not per source.

The reward of a policy has the law that it has in the dense world, where every step draws the
content of every source; `agents.evaluation.rollout` evaluates agents there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.scheduling.age_index import NEVER as NEVER_CRAWLED
from agents.scheduling.learning import AdaptiveFleetScheduler
from agents.scheduling.scheduler import FleetScheduler
from crawl_env.content.on_demand import NEVER, OnDemandContent
from crawl_env.content.utility import Distribution
from crawl_env.errors import check_whole
from crawl_env.fleet.columns import FleetColumns
from crawl_env.numerics import FloatArray, IntArray

__all__ = ["OnDemandRun", "simulate"]

_PARTS = 20  # into which a series is divided for the error of its mean


@dataclass(frozen=True)
class OnDemandRun:
    """A run of a policy on a fleet, by evaluated step."""

    reward: FloatArray  # (H,) utility
    expected: FloatArray  # (H,) utility: the mean of the reward, given what was crawled and when
    cost: FloatArray  # (H,) budget units
    crawls: NDArray[np.int64]  # (H,)
    items: NDArray[np.int64]  # (H,) new items found
    failures: NDArray[np.int64]  # (H,) crawls that failed
    price: FloatArray  # (H,) least index that was crawled, utility / budget unit
    scheduling: float  # seconds per step, CPU time of the scheduler
    drawing: float  # seconds per step, CPU time of the content

    @property
    def mean(self) -> float:
        """Mean of `expected`, utility / step.

        Items arrive independently of what was crawled before, so that it has the expectation of the
        mean reward for every policy that does not observe content, and less noise.
        """
        return float(self.expected.mean())

    @property
    def error(self) -> float:
        """Standard error of `mean`, from the means of consecutive steps."""
        return error_of(self.expected)


def error_of(series: FloatArray) -> float:
    """Return the standard error of the mean of a stationary series, from means of its parts; NaN
    for a single number."""
    parts = min(_PARTS, len(series))
    if parts < 2:
        return float("nan")
    means = [part.mean() for part in np.array_split(series, parts)]
    return float(np.std(means, ddof=1) / np.sqrt(parts))


def simulate(
    columns: FleetColumns,
    budget: float,
    policy: str = "whittle",
    *,
    steps: int,
    warmup: int = 0,
    utility: str | Distribution = "exponential",
    start: str | ArrayLike = "fresh",
    seed: int = 0,
    tick: Callable[[], object] | None = None,
    **options: Any,
) -> OnDemandRun:
    """Return a run of a policy of `FleetScheduler` or `AdaptiveFleetScheduler`, on content that is
    drawn when it is crawled.

    All policies meet the same content under the same seed, so that their rewards are paired.

    Arguments:
        columns: the fleet.
        budget: M, budget units per step.
        policy: of either scheduler; an adaptive one is told the number of new items of each crawl.
        steps: number of steps evaluated.
        warmup: number of steps before these.
        utility: distribution of ξ, as in `OnDemandContent`.
        start: when the sources were crawled last, as in `FleetScheduler`; for a stationary start,
            `agents.scheduling.relaxation.stationary_ages`.
        seed: of the content, and of the random draws of the policy.
        tick: called after every step.
        options: further arguments of the scheduler.

    Raises:
        ValueError: an argument is invalid.

    >>> fleet = FleetColumns.random(1000, regime="sparse")
    >>> run = simulate(fleet, 10, "whittle", steps=100, warmup=100)
    >>> run.mean > simulate(fleet, 10, "oldest-first", steps=100).mean
    True
    """
    check_whole("steps", steps)
    check_whole("warmup", warmup, 0)
    content = OnDemandContent(columns, utility, seed)
    adaptive = policy in AdaptiveFleetScheduler.policies
    kind = AdaptiveFleetScheduler if adaptive else FleetScheduler
    scheduler = kind(columns, budget, policy, start=start, seed=seed, **options)
    table = np.zeros((7, steps))
    seconds = np.zeros(2)
    for step in range(warmup + steps):
        begin = process_time()
        picks = scheduler.step()
        middle = process_time()
        ages = scheduler.ages.astype(np.int64)
        harvest = content.crawl(picks, np.where(ages >= NEVER_CRAWLED, NEVER, step - ages), step)
        failed = content.fails(picks, step)
        utilities = np.where(failed, 0.0, harvest.utility)
        items = np.where(failed, 0, harvest.items)
        end = process_time()
        if isinstance(scheduler, AdaptiveFleetScheduler):
            scheduler.report(counts=items, failed=failed)
        else:
            scheduler.report(failed=failed)
        if step >= warmup:
            payment = float(picks.size if columns.cost is None else columns.cost[picks].sum())
            table[:, step - warmup] = (
                utilities.sum(),
                _expected(columns, picks, ages),
                payment,
                picks.size,
                items.sum(),
                failed.sum(),
                scheduler.price,
            )
            seconds += middle - begin + (process_time() - end), end - middle
        if tick is not None:
            tick()
    crawls, items, failures = (series.astype(np.int64) for series in table[3:6])
    scheduling, drawing = (seconds / steps).tolist()
    reward, expected, cost = table[:3]
    return OnDemandRun(
        reward, expected, cost, crawls, items, failures, table[6], scheduling, drawing
    )


def _expected(columns: FleetColumns, picks: IntArray, ages: NDArray[np.int64]) -> float:
    """Return the expected utility of crawls, Σ q u*(1 − α^k)."""
    decay = columns.decay_rate[picks].astype(np.float64)
    ceiling = columns.arrival_rate[picks] * columns.mean_utility[picks].astype(np.float64) / decay
    age = np.where(ages >= NEVER_CRAWLED, np.inf, ages)
    content = ceiling * -np.expm1(-decay * columns.period * age)
    if columns.failure_rate is not None:
        content *= 1.0 - columns.failure_rate[picks].astype(np.float64)
    return float(content.sum())
