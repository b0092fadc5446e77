"""What payoffs, regimes, looks and varying costs take: a step of environments, against none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crawl_env import Deadline, DiminishingReturns, Sources, Stories, TaskArguments
from experiments.core.clock import interleaved
from experiments.throughput.figure import Figure, longer
from experiments.throughput.signals import RATES, SIZE, step_of

GROUP = "Payoffs, regimes and costs"
ARRIVALS: TaskArguments = {"arrivals": "poisson"}
CASES: dict[str, tuple[TaskArguments, float]] = {  # with the limit of the ratio
    "a deadline": ({"payoff": Deadline(24)}, 1.5),
    "diminishing returns in 10 topics": ({"payoff": DiminishingReturns(5.0)}, 1.5),
    "regimes of 10 topics": ({"arrivals": "poisson-regimes"}, 3.0),
    "stories of 10 topics": ({"arrivals": Stories(overlap=0.5)}, 50.0),
    "looks": ({"look_cost": 0.1}, 4.0),
    "cheaper crawls that find nothing": ({"unchanged_cost": 0.1}, 3.0),
}


def figures(rounds: int, size: tuple[int, int] = SIZE) -> Iterator[Figure]:
    """Yield the time of a step with each option, against that without, content not observed."""
    rows, n = size
    for kind, rate in RATES.items():
        topics = [str(i % 10) for i in range(n)]
        fleet = Sources(np.full(n, rate), 1.0, 0.1, topics=topics)
        steps = {}
        for name, (given, _) in CASES.items():
            arguments = ARRIVALS.copy()
            arguments.update(given)
            steps[name] = step_of(fleet, rows, **arguments)
        times = interleaved({"none": step_of(fleet, rows, **ARRIVALS), **steps}, rounds)
        for name, (_, limit) in CASES.items():
            what = f"step of {rows} envs × {n} {kind} sources (ΛT = {rate:g}), {name}, against none"
            yield longer(GROUP, what, limit, times[name], times["none"])
