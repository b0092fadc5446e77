"""Nanoseconds per source and step, with lower limits of the machine; and microseconds per row of
reading and writing files."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from agents import whittle_index
from crawl_env import ArrivalProcess, Arrivals, CrawlVectorEnv, Deterministic, ItemLog, Sources
from experiments.core.clock import Call, interleaved
from experiments.throughput.steps import advancing, copying, fleet_of, whittle_step, world_of

SIZES = (
    (4, 1),
    (4, 1024),
    (100, 1),
    (100, 1024),
    (10_000, 1),
    (10_000, 100),
    (10**6, 1),
    (10**7, 1),
)
RATES = {"deterministic": 5.0, "Poisson, ΛT = 5": 5.0, "Poisson, ΛT = .05": 0.05}
LARGEST_FILE = 10**6  # rows


class StepCost(NamedTuple):
    """One size of world under one kind of arrivals; times in nanoseconds per source and step."""

    arrivals: str
    n: int
    rows: int
    world: float  # advance alone
    env: float  # a step of the vector environment
    whittle: float  # advance, index, select, crawl
    ranking: float  # the Whittle index alone
    copy: float  # copying as many bytes as `advance` has to move
    draws: float  # drawing the random numbers that the arrivals need, and nothing else
    memory: float  # bytes a source at the peak of a step of the vector environment


def step_cost(name: str, n: int, rows: int, rounds: int) -> StepCost:
    """Return what a step takes under the arrivals of a name in `RATES`."""
    fleet = fleet_of(n, RATES[name])
    arrivals: ArrivalProcess = Deterministic() if name == "deterministic" else Arrivals()
    memory = _peak_memory(fleet, rows, arrivals)
    env = _env(fleet, rows, arrivals)
    actions = np.random.default_rng(0).random((rows, n), dtype=np.float32)
    calls: dict[str, Call] = {
        "world": advancing(world_of(fleet, arrivals, rows=rows)),
        "env": lambda: env.step(actions),
        "whittle": whittle_step(
            world_of(fleet, arrivals, rows=rows), lambda world: whittle_index(world.value, fleet)
        ),
        "ranking": lambda: whittle_index(env.world.value, fleet),
        # Values are read and written, and the two tables read once.
        "copy": copying((16 * n * rows + 16 * n) // 2),
        "draws": _draws(name, fleet, rows),
    }
    cells = n * rows
    times = interleaved(calls, rounds if cells < 10**6 else max(3, rounds // 3))
    spent: Any = {name: t.median / cells * 1e9 for name, t in times.items()}
    return StepCost(name, n, rows, **spent, memory=memory / cells)


def _env(fleet: Sources, rows: int, arrivals: ArrivalProcess) -> CrawlVectorEnv:
    budget = max(1, len(fleet) // 100)
    env = CrawlVectorEnv(rows, sources=fleet, budget=budget, arrivals=arrivals, horizon=None)
    env.reset(seed=0)
    return env


def _draws(name: str, fleet: Sources, rows: int) -> Call:
    rng = np.random.default_rng(0)
    cells = len(fleet) * rows
    if name == "deterministic":
        return lambda: None
    expected = float(fleet.arrival_rate.sum()) * rows
    if expected < cells:
        n = max(1, int(expected))
        return lambda: (rng.standard_exponential(n), rng.random(n), rng.standard_exponential(n))
    block = min(cells, 2**15)
    shape = np.resize(fleet.arrival_rate / fleet.decay_rate, block)
    odds = np.resize(np.expm1(fleet.decay_rate), block)

    def draw() -> None:
        for _ in range(max(1, cells // block)):
            rng.standard_gamma(rng.poisson(rng.standard_gamma(shape) * odds))

    return draw


def _peak_memory(fleet: Sources, rows: int, arrivals: Any) -> int:
    """Return the peak memory of numpy in bytes, including the parameters of the fleet."""
    tracemalloc.start()
    env = _env(fleet.select(slice(None)), rows, arrivals)
    actions = np.zeros((rows, len(fleet)), dtype=np.float32)
    actions[:] = np.linspace(-1, 1, len(fleet), dtype=np.float32)
    env.step(actions)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


class FileCost(NamedTuple):
    """Reading and writing times of a file; medians over rounds."""

    what: str
    rows: int
    read: float  # microseconds per row
    written: float


def file_costs(rows: int, rounds: int) -> Iterator[FileCost]:
    """Yield the cost of a fleet and of a log of so many rows, plain and compressed."""
    contents: dict[str, Any] = {"fleet": Sources.random(rows, seed=0), "log of items": _log(rows)}
    with tempfile.TemporaryDirectory() as folder:
        for what, content in contents.items():
            for suffix in (".csv", ".csv.gz"):
                path = Path(folder) / f"{what}{suffix}"
                yield FileCost(
                    f"{what}, {suffix}",
                    rows,
                    written=_per_row(partial(content.to_csv, path), rows, rounds),
                    read=_per_row(partial(type(content).from_csv, path), rows, rounds),
                )


def _log(rows: int) -> ItemLog:
    rng = np.random.default_rng(0)
    names = [f"source-{i}" for i in range(max(1, rows // 100))]
    source = rng.integers(0, len(names), rows)
    return ItemLog(names, source, np.sort(rng.uniform(0, 1000, rows)), rng.random(rows), 0, 1000)


def _per_row(call: Call, rows: int, rounds: int) -> float:
    """Return the median time of a call, in microseconds per row; calls of seconds are made once."""
    times: list[float] = []
    while len(times) < rounds and sum(times) < 2.0:
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return median(times) / rows * 1e6
