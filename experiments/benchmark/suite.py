"""The tasks of the benchmark: the checks of `crawl_env.tasks`, and those of the learning agents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import crawl_env
from crawl_env import Sources, tasks
from crawl_env.benchmark.catalogue import DRAWN, POISSON_UNOBSERVED
from ephemeral_crawl.core.evaluation import fleet_as_json

EXAMPLE = Path(crawl_env.__file__).parent / "fleet" / "presets" / "mixed-costs.csv"


@dataclass(frozen=True)
class Setting:
    """A task and the protocol by which the studies evaluate agents on it.

    A `crawl_env.BenchmarkTask` has an id, seeds of its own and references besides, which hold for
    its arguments and protocol only; those of a setting may be changed.
    """

    group: str
    name: str
    arguments: dict[str, Any]
    steps: int
    warmup: int = 0
    discount: float = 1.0  # γ; below 1, the discounted return is reported
    seeds: int = 20

    @property
    def is_deterministic(self) -> bool:
        """Whether the arrivals are deterministic, so that only the agent may be random."""
        return bool(self.arguments["arrivals"] == "deterministic")


Tasks = tuple[Setting, ...]

SUITE: Tasks = tuple(
    Setting(
        task.group,
        task.label,
        dict(task.arguments),
        task.steps,
        task.warmup,
        task.discount,
        task.seeds,
    )
    for task in tasks("checks").values()
)

# 700 steps are a multiple of the cycle lengths for M = 1, 2, 3 (2, 7 and 4 steps); the index
# policies are evaluated over more.
TABLE1: Tasks = tuple(
    replace(s, steps=700, warmup=140) for s in SUITE if s.arguments["sources"] == "table1"
)
RECOVERING: Tasks = tuple(s for s in SUITE if str(s.arguments["sources"]).startswith("recovering"))


def _random(n: int, regime: str) -> Setting:
    """Return a task whose fleet is fixed during a run and differs between runs."""
    return Setting(
        "Random fleets, M = N/10, Poisson, not observed; a different fleet in each run",
        f"N = {n}, {regime}",
        {"sources": f"random-{regime}-{n}", "budget": n // 10, **POISSON_UNOBSERVED},
        steps=600,
        warmup=200,
        seeds=4 if n >= 1000 else 10,
    )


RANDOM: Tasks = tuple(_random(n, regime) for n in (10, 100) for regime in ("dense", "sparse"))
# Settings are chosen on these; their fleets, which are those of other runs, occur nowhere else.
TUNING: Tasks = RANDOM[:2]
LARGE: Tasks = tuple(_random(1000, regime) for regime in ("dense", "sparse"))

MIXED: Tasks = (
    Setting(
        "Mixed: some sources observed, some not; costs from 1 to 4",
        "sparse, N = 20, M = 2, every other source observed",
        {
            "sources": "random-sparse-20",
            "budget": 2,
            "arrivals": "poisson",
            "observed": [True, False] * 10,
        },
        steps=600,
        warmup=200,
    ),
    Setting(
        "Mixed: some sources observed, some not; costs from 1 to 4",
        "example.csv, N = 20, M = 4, costs, not observed",
        {
            "sources": fleet_as_json(Sources.from_csv(EXAMPLE)),
            "budget": 4,
            **POISSON_UNOBSERVED,
        },
        steps=600,
        warmup=200,
    ),
)


def _drawn(n: int, regime: str, steps: int = 600, seeds: int = 20) -> Setting:
    """Return a task in which every episode draws a new fleet, whose parameters are observed."""
    return Setting(
        "A new fleet in every episode, M = N/10, Poisson, not observed; parameters observed",
        f"N = {n:,}, {regime}",
        {
            "sources": f"drawn-{regime}-{n}",
            "budget": max(1, n // 10),
            "features": list(DRAWN),
            **POISSON_UNOBSERVED,
        },
        steps=steps,
        warmup=100,
        seeds=seeds,
    )


REGIMES = ("dense", "sparse")
TRAINING_FLEETS: Tasks = tuple(_drawn(n, regime) for n in (10, 30) for regime in REGIMES)
# The test fleets differ from the training fleets and, except for N = 10, in size too.
DRAWN_ANEW: Tasks = (
    *(_drawn(n, regime) for n in (50, 10) for regime in REGIMES),
    *(_drawn(1000, regime, steps=400, seeds=5) for regime in REGIMES),
    *(_drawn(100_000, regime, steps=100, seeds=1) for regime in REGIMES),
)
