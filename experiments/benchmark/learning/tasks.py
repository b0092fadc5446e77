"""The tasks of the learners: data only. See `experiments.benchmark.suite.BenchmarkTask`."""

from __future__ import annotations

from dataclasses import replace

from crawl_env import Sources
from experiments.benchmark.suite import DRAWN, EXAMPLE, POISSON_UNSEEN, SUITE, BenchmarkTask
from experiments.core.evaluation import fleet_as_json

Tasks = tuple[BenchmarkTask, ...]

# Whole periods of the patterns of M = 1, 2, 3 (2, 7 and 4 steps), fewer than for index policies.
TABLE1: Tasks = tuple(
    replace(s, epochs=700, warmup=140) for s in SUITE if s.arguments["sources"] == "table1"
)
DETERMINISTIC: Tasks = tuple(s for s in TABLE1 if s.still)
OBSERVED: Tasks = tuple(s for s in TABLE1 if s.arguments.get("observed") is True)
UNOBSERVED: Tasks = tuple(s for s in TABLE1 if s.arguments.get("observed") is False)
RECOVERING: Tasks = tuple(s for s in SUITE if str(s.arguments["sources"]).startswith("recovering"))


def _random(n: int, regime: str) -> BenchmarkTask:
    """Return the task of a fixed fleet, which is another one in every run."""
    return BenchmarkTask(
        "Random fleets, M = N/10, Poisson, not seen; another fleet in each run",
        f"N = {n}, {regime}",
        {"sources": f"random-{regime}-{n}", "budget": n // 10, **POISSON_UNSEEN},
        epochs=600,
        warmup=200,
        seeds=4 if n >= 1000 else 10,
    )


RANDOM: Tasks = tuple(_random(n, regime) for n in (10, 100) for regime in ("dense", "sparse"))
LARGE: Tasks = tuple(_random(1000, regime) for regime in ("dense", "sparse"))

MIXED: Tasks = (
    BenchmarkTask(
        "Mixed: some sources seen, some not; and costs from 1 to 4",
        "sparse, N = 20, M = 2, every other source seen",
        {
            "sources": "random-sparse-20",
            "budget": 2,
            "arrivals": "poisson",
            "observed": [True, False] * 10,
        },
        epochs=600,
        warmup=200,
    ),
    BenchmarkTask(
        "Mixed: some sources seen, some not; and costs from 1 to 4",
        "example.csv, N = 20, M = 4, costs, not seen",
        {
            "sources": fleet_as_json(Sources.from_csv(EXAMPLE)),
            "budget": 4,
            **POISSON_UNSEEN,
        },
        epochs=600,
        warmup=200,
    ),
)


def _drawn(n: int, regime: str, epochs: int = 600, seeds: int = 20) -> BenchmarkTask:
    """Return the task of fleets drawn anew for every episode, their parameters in view."""
    return BenchmarkTask(
        "Fleets drawn anew, M = N/10, Poisson, not seen; parameters in view",
        f"N = {n:,}, {regime}",
        {
            "sources": f"drawn-{regime}-{n}",
            "budget": max(1, n // 10),
            "features": list(DRAWN),
            **POISSON_UNSEEN,
        },
        epochs=epochs,
        warmup=100,
        seeds=seeds,
    )


REGIMES = ("dense", "sparse")
TRAINING_FLEETS: Tasks = tuple(_drawn(n, regime) for n in (10, 30) for regime in REGIMES)
MEDIUM: Tasks = tuple(_drawn(40, regime) for regime in REGIMES)  # for training, too
# Other fleets than those of the trainings and, except for N = 10, of other sizes.
DRAWN_ANEW: Tasks = (
    *(_drawn(n, regime) for n in (50, 10) for regime in REGIMES),
    *(_drawn(1000, regime, epochs=400, seeds=5) for regime in REGIMES),
    *(_drawn(100_000, regime, epochs=100, seeds=1) for regime in REGIMES),
)
