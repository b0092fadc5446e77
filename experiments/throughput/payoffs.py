"""What payoffs, looks and costs that vary take: a step of a vector environment, against none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crawl_env import Deadline, Sources, TaskArguments
from experiments.core.clock import interleaved
from experiments.throughput.figure import Figure, longer
from experiments.throughput.signals import RATES, SIZE, step_of

GROUP = "Payoffs and costs"
ARRIVALS: TaskArguments = {"arrivals": "poisson"}
CASES: dict[str, tuple[TaskArguments, float]] = {  # with the limit of the ratio
    "a deadline": ({"payoff": Deadline(24)}, 1.5),
    "looks": ({"look_cost": 0.1}, 4.0),
    "cheaper crawls that find nothing": ({"unchanged_cost": 0.1}, 3.0),
}


def figures(rounds: int, size: tuple[int, int] = SIZE) -> Iterator[Figure]:
    """Yield the time of a step with each option, against that without, content not observed."""
    rows, n = size
    for kind, rate in RATES.items():
        fleet = Sources(np.full(n, rate), 1.0, 0.1)
        steps = {
            name: step_of(fleet, rows, **{**ARRIVALS, **given})
            for name, (given, _) in CASES.items()
        }
        times = interleaved({"none": step_of(fleet, rows, **ARRIVALS), **steps}, rounds)
        for name, (_, limit) in CASES.items():
            what = f"step of {rows} envs × {n} {kind} sources (ΛT = {rate:g}), {name}, against none"
            yield longer(GROUP, what, limit, times[name], times["none"])
