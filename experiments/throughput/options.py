"""What options of the world cost: a step of a vector environment with them, against one without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from crawl_env import CrawlVectorEnv, DiminishingReturns, Sources
from experiments.core.clock import Call, interleaved
from experiments.throughput.figure import Figure, longer

GROUP = "Options of the world"
LIMIT = 2.0
CASES: dict[str, dict[str, Any]] = {
    "regimes of topics": {"arrivals": "poisson-regimes-items"},
    "diminishing returns per topic": {"payoff": DiminishingReturns(5.0)},
}
SIZE = (64, 100)  # environments, sources
TOPICS = 10


def figures(rounds: int, size: tuple[int, int] = SIZE) -> Iterator[Figure]:
    """Yield the time of a step with each option, against that of the plain world."""
    rows, n = size
    steps = {name: _step(rows, n, **options) for name, options in CASES.items()}
    times = interleaved({"none": _step(rows, n), **steps}, rounds)
    for name in CASES:
        what = f"step of {rows} envs × {n} sources in {TOPICS} topics, {name}, against none"
        yield longer(GROUP, what, LIMIT, times[name], times["none"])


def _step(rows: int, n: int, **options: Any) -> Call:
    """Return a step of environments that are not observed."""
    rng, topics = np.random.default_rng(0), [str(i % TOPICS) for i in range(n)]
    env = CrawlVectorEnv(
        rows,
        Sources(np.full(n, 5.0), 1.0, 0.1, topics=topics),
        budget=max(1, n // 20),
        observed=False,
        horizon=None,
        **{"arrivals": "poisson-items", **options},
    )
    env.reset(seed=0)
    actions = rng.random((rows, n), dtype=np.float32)
    return lambda: env.step(actions)
