"""The event-driven scheduler: its time per crawl, and how that depends on the number of sources."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from agents.scheduling.scheduler import FleetScheduler
from crawl_env.fleet.columns import FleetColumns
from experiments.core.clock import Timing, interleaved
from experiments.throughput.figure import Figure, longer

GROUP = "Event-driven scheduler"
SMALL, LARGE, CRAWLS = 10**5, 10**7, 10**4
_TOURS = 1.5  # before anything is timed: times in which all sources can be crawled once


def figures(
    rounds: int, small: int = SMALL, large: int = LARGE, m: int = CRAWLS
) -> Iterator[Figure]:
    """Yield the time per crawl of a large fleet, and its time against that of a small one."""
    schedulers = {n: _warm(n, m) for n in (small, large)}
    times = interleaved({str(n): each.step for n, each in schedulers.items()}, rounds)
    one, many = times[str(small)], times[str(large)]
    per_crawl = Timing(tuple(1e6 * seconds / m for seconds in many.rounds))
    yield Figure(
        GROUP,
        f"time per crawl, {large:,} sources, {m:,} crawls per step, known rates",
        per_crawl.median,
        "µs",
        "≤",
        1.0,
        min(per_crawl.rounds),
        max(per_crawl.rounds),
    )
    what = f"step of {large:,} sources against one of {small:,}, {m:,} crawls each"
    yield longer(GROUP, what, 1.5, many, one)


def _warm(n: int, m: int) -> FleetScheduler:
    """Return a scheduler whose ages are those of the long run."""
    scheduler = FleetScheduler(FleetColumns.random(n, 0), m, start="random")
    for _ in range(ceil(_TOURS * n / m)):
        scheduler.step()
    return scheduler
