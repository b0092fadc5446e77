"""The reference tasks of the benchmark. To add a task, append a `BenchmarkTask` to `SUITE`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ephemeral_crawl
from crawl_env import Sources
from ephemeral_crawl.core.evaluation import fleet_as_json

EXAMPLE = Path(ephemeral_crawl.__file__).parent / "data" / "example.csv"

Arguments = dict[str, Any]

POISSON_OBSERVED = {"arrivals": "poisson", "observed": True}
POISSON_UNOBSERVED = {"arrivals": "poisson", "observed": False}
DETERMINISTIC = {"arrivals": "deterministic"}
# Features where every run draws a new fleet: the observation includes its parameters.
DRAWN = ("value", "arrival_rate", "mean_utility", "decay_rate", "cost")


@dataclass(frozen=True)
class BenchmarkTask:
    """A task and the protocol by which agents are evaluated on it."""

    group: str
    name: str
    arguments: Arguments
    steps: int
    warmup: int = 0
    discount: float = 1.0  # γ; below 1, the discounted return is reported
    seeds: int = 20

    @property
    def is_deterministic(self) -> bool:
        """Whether the arrivals are deterministic, so that only the agent may be random."""
        return bool(self.arguments["arrivals"] == "deterministic")


def _table1() -> list[BenchmarkTask]:
    # 2,800 steps are a multiple of the cycle lengths for M = 1, 2, 3 (2, 7 and 4 steps).
    return [
        BenchmarkTask(
            "Table 1 of the paper",
            f"M = {m}, {label}",
            {"sources": "table1", "budget": m, **arrivals},
            steps=2800,
            warmup=200,
        )
        for label, arrivals in (
            ("deterministic", DETERMINISTIC),
            ("Poisson, observed", POISSON_OBSERVED),
            ("Poisson, not observed", POISSON_UNOBSERVED),
        )
        for m in (1, 2, 3)
    ]


def _recovering() -> list[BenchmarkTask]:
    neurwin = [
        BenchmarkTask(
            "Recovering bandits, NeurWIN's protocol: Σ 0.99^t r_t over 300 steps",
            f"N = {n}, M = {m}",
            {"sources": f"recovering-{n}", "budget": m, **DETERMINISTIC},
            steps=300,
            discount=0.99,
            seeds=100,
        )
        for n, m in ((4, 1), (10, 1), (100, 25))
    ]
    deeptop = [
        BenchmarkTask(
            "Recovering bandits, DeepTOP's protocol: mean reward of steps 6,000–11,999",
            f"N = {n}, M = {m}",
            {"sources": f"recovering-{n}", "budget": m, **DETERMINISTIC},
            steps=6000,
            warmup=6000,
        )
        for n, m in ((10, 3), (20, 5), (30, 6))
    ]
    return neurwin + deeptop


def _random() -> list[BenchmarkTask]:
    return [
        BenchmarkTask(
            "Random fleets, N = 100, M = 10, a different fleet in each of 20 runs",
            f"{regime}, {label}",
            {"sources": f"drawn-{regime}-100", "budget": 10, "features": list(DRAWN), **arrivals},
            steps=1000,
            warmup=200,
        )
        for regime in ("dense", "sparse")
        for label, arrivals in (
            ("deterministic", DETERMINISTIC),
            ("Poisson, observed", POISSON_OBSERVED),
            ("Poisson, not observed", POISSON_UNOBSERVED),
        )
    ]


def _csv() -> list[BenchmarkTask]:
    fleet = fleet_as_json(Sources.from_csv(EXAMPLE))
    return [
        BenchmarkTask(
            "A fleet read from a CSV with mixed costs (example.csv), M = 4",
            label,
            {
                "sources": fleet,
                "budget": 4,
                "budget_rule": rule,
                **POISSON_UNOBSERVED,
            },
            steps=2000,
            warmup=200,
        )
        for label, rule in (
            ("Poisson, not observed, budget per step", "step"),
            ("Poisson, not observed, average budget", "average"),
        )
    ]


SUITE = [*_table1(), *_recovering(), *_random(), *_csv()]
