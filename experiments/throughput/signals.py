"""What signals cost: a step of a vector environment with them, against one without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

import numpy as np

from crawl_env import CrawlVectorEnv, Signals, Sources, TaskArguments
from experiments.core.clock import Call, interleaved
from experiments.throughput.figure import Figure, longer

GROUP = "Signals"
LIMIT = 1.3
RATES = {"dense": 5.0, "sparse": 0.05}  # ΛT, items / step
CASES = {
    "recall .5, precision .8": Signals(0.5, 0.8),
    "recall .5, precision .2": Signals(0.5, 0.2),
    "recall .5, precision .8, mean delay of 2 steps": Signals(0.5, 0.8, 2.0),
}
SIZE = (64, 100)  # environments, sources


def figures(rounds: int, size: tuple[int, int] = SIZE) -> Iterator[Figure]:
    """Yield the time of a step with each kind of signals, against that of sources not observed."""
    rows, n = size
    for kind, rate in RATES.items():
        fleet = Sources(np.full(n, rate), 1.0, 0.1)
        steps = {name: step_of(fleet, rows, signals=signals) for name, signals in CASES.items()}
        times = interleaved({"none": step_of(fleet, rows), **steps}, rounds)
        for name, signals in CASES.items():
            pings = signals.of(fleet).ping_rate[0] / rate
            what = f"step of {rows} envs × {n} {kind} sources (ΛT = {rate:g}), {name}, against none"
            note = f"{pings:.3g} pings an item"
            yield longer(GROUP, what, LIMIT, times[name], times["none"], note)


def step_of(fleet: Sources, rows: int, **arguments: Unpack[TaskArguments]) -> Call:
    """Return a step of environments in which the agent sees the belief."""
    n, rng = len(fleet), np.random.default_rng(0)
    posed: TaskArguments = {
        "sources": fleet,
        "budget": max(1, n // 20),
        "arrivals": "poisson-items",
        "observed": False,
        "horizon": None,
    }
    posed.update(arguments)
    env = CrawlVectorEnv(rows, **posed)
    env.reset(seed=0)
    actions = rng.random(env.action_space.shape, dtype=np.float32)
    return lambda: env.step(actions)
