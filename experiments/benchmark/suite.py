"""The checks among the tasks of the benchmark (`crawl_env.tasks`), in the form of the studies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crawl_env
from crawl_env import tasks
from crawl_env.benchmark.catalogue import DETERMINISTIC, DRAWN, POISSON_OBSERVED, POISSON_UNOBSERVED

__all__ = [
    "DETERMINISTIC",
    "DRAWN",
    "EXAMPLE",
    "POISSON_OBSERVED",
    "POISSON_UNOBSERVED",
    "SUITE",
    "Setting",
]

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


SUITE = [
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
]
