"""Nanoseconds per source and step, and lower limits of the machine."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from agents import whittle_index
from crawl_env import ArrivalProcess, Arrivals, CrawlVectorEnv, Deterministic, Sources, World
from crawl_env.simulation.selection import select_top
from experiments.core.clock import Call, interleaved

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


def all_costs(largest: int, rounds: int) -> Iterator[StepCost]:
    for n, rows in SIZES:
        if n <= largest:
            for name in RATES:
                yield _cost(name, n, rows, rounds)


def _cost(name: str, n: int, rows: int, rounds: int) -> StepCost:
    rng = np.random.default_rng(0)
    fleet = Sources(np.full(n, RATES[name]), rng.lognormal(0, 0.8, n), rng.uniform(0.03, 0.5, n))
    arrivals: ArrivalProcess = Deterministic() if name == "deterministic" else Arrivals()
    memory = _peak_memory(fleet, rows, arrivals)
    world = World(fleet, arrivals, rows)
    world.start(np.ones(world.shape), rng)
    env = CrawlVectorEnv(
        rows, sources=fleet, budget=max(1, n // 100), arrivals=arrivals, horizon=None
    )
    env.reset(seed=0)
    actions = rng.random((rows, n), dtype=np.float32)
    calls: dict[str, Call] = {
        "world": lambda: world.advance(rng),
        "env": lambda: env.step(actions),
        "whittle": _whittle_step(fleet, rows, arrivals),
        "ranking": lambda: whittle_index(env.world.value, fleet),
        "copy": _copy(n, rows),
        "draws": _draws(name, fleet, rows),
    }
    cells = n * rows
    times = interleaved(calls, rounds if cells < 10**6 else max(3, rounds // 3))
    spent: Any = {name: t.median / cells * 1e9 for name, t in times.items()}
    return StepCost(name, n, rows, **spent, memory=memory / cells)


def _whittle_step(fleet: Sources, rows: int, arrivals: ArrivalProcess) -> Call:
    """Return a step of a Whittle policy without the environment."""
    rng = np.random.default_rng(0)
    world = World(fleet, arrivals, rows)
    world.start(np.ones(world.shape), rng)
    k = max(1, len(fleet) // 100)

    def step() -> None:
        index = whittle_index(world.value, fleet)
        world.crawl(select_top(index, k, world.crawled_at))
        world.advance(rng)

    return step


def _copy(n: int, rows: int) -> Call:
    """Move the bytes of a step: values are read and written, and the two tables read once."""
    moved = 16 * n * rows + 16 * n
    origin = np.ones(max(1, moved // 16))
    target = np.empty_like(origin)
    return lambda: np.copyto(target, origin)


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
    copy = fleet.select(slice(None))
    env = CrawlVectorEnv(
        rows, sources=copy, budget=max(1, len(fleet) // 100), arrivals=arrivals, horizon=None
    )
    env.reset(seed=0)
    actions = np.zeros((rows, len(fleet)), dtype=np.float32)
    actions[:] = np.linspace(-1, 1, len(fleet), dtype=np.float32)
    env.step(actions)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak
