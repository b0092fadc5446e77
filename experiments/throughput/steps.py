"""Time of a step: of the environment against Gymnasium's, of policies and of content against what
the machine can do, of what an environment may have beside its arrivals, and of the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import cycle
from math import ceil
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from agents import make
from agents.scheduling.scheduler import FleetScheduler
from agents.theory.closed_form import ClosedForm
from crawl_env import (
    ArrivalProcess,
    Arrivals,
    CrawlVectorEnv,
    DailyCycle,
    Deadline,
    Deterministic,
    DiminishingReturns,
    Signals,
    Sources,
    Stories,
    Task,
    TaskArguments,
    World,
)
from crawl_env.fleet.columns import FleetColumns
from crawl_env.numerics import FloatArray
from crawl_env.simulation.selection import select_top
from experiments.adaptive import cost
from experiments.core.clock import Call, Figure, compared, in_turn, interleaved, of_each

# ------------------------------------------------------------------------------ against Gymnasium's

GYMNASIUM, ENTRY = "Gymnasium", "vector_entry_point"
SINGLE = ((1, 0.6), (2, 0.7))  # M, and the largest time relative to CartPole's
COPIES = ((1, 3.5), (2, 3.0))  # M, and the smallest rate relative to CartPoleVectorEnv's
SYNC = ((10, 40.0), (100, 30.0), (1000, 15.0))  # N, and the rate relative to SyncVectorEnv's


def gymnasium_figures(rounds: int) -> Iterator[Figure]:
    """Yield the time of a step against that of environments and of vectorisations of others."""
    yield from (single(m, limit, rounds) for m, limit in SINGLE)
    for m, limit in COPIES:
        what = f"1024 envs, N = 4, M = {m}, against CartPoleVectorEnv"
        ours = gym.make_vec("EphemeralCrawl-v0", 1024, ENTRY, budget=m)
        cartpole = gym.make_vec("CartPole-v1", 1024, ENTRY)
        pushes = np.repeat([[0], [1]], 1024, axis=1)
        steps = _vector_stepping(ours, _priorities(1024, 4)), _vector_stepping(cartpole, *pushes)
        yield in_turn(GYMNASIUM, what, "≥", limit, *steps, rounds)
    for n, limit in SYNC:
        what = f"64 envs, N = {n}, M = 1, against SyncVectorEnv of the same env"
        fleet, actions = Sources.random(n, seed=0), _priorities(64, n)
        native, sync = (
            _vector_stepping(gym.make_vec("EphemeralCrawl-v0", 64, kind, sources=fleet), actions)
            for kind in (ENTRY, "sync")
        )
        yield in_turn(GYMNASIUM, what, "≥", limit, native, sync, rounds)
    yield _sb3(rounds)


def single(m: int, limit: float, rounds: int) -> Figure:
    """Return the time of a step of one environment against CartPole's."""
    ours = _stepping(gym.make("EphemeralCrawl-v0", budget=m), _priorities(4))
    cartpole = _stepping(gym.make("CartPole-v1"), 0, 1)
    what = f"step of 1 env, N = 4, M = {m}, against CartPole-v1's (both gym.make)"
    return in_turn(GYMNASIUM, what, "≤", limit, ours, cartpole, rounds)


def _sb3(rounds: int) -> Figure:
    from stable_baselines3.common.vec_env import DummyVecEnv

    from crawl_env.envs.sb3 import CrawlVecEnv

    ours, dummy = CrawlVecEnv(64), DummyVecEnv([lambda: gym.make("EphemeralCrawl-v0")] * 64)
    ours.reset()
    dummy.reset()
    actions = _priorities(64, 4)
    what = "64 envs, N = 4, M = 1, SB3 adapter, against DummyVecEnv"
    steps = (lambda: ours.step(actions)), (lambda: dummy.step(actions))
    return in_turn(GYMNASIUM, what, "≥", 20.0, *steps, rounds)


def _priorities(*shape: int) -> Any:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def _stepping(env: gym.Env[Any, Any], *actions: Any) -> Call:
    """Step with the actions in turn: pushing left and right in turn keeps the pole up for long,
    so that resets do not make CartPole slow."""
    env.reset(seed=0)
    turn = cycle(actions)

    def step() -> None:
        _, _, terminated, truncated, _ = env.step(next(turn))
        if terminated or truncated:
            env.reset()

    return step


def _vector_stepping(env: VectorEnv[Any, Any, Any], *actions: Any) -> Call:
    env.reset(seed=0)
    turn = cycle(actions)
    return lambda: env.step(next(turn))


# ----------------------------------------------------------- policies and content in large fleets

WHITTLE, CONTENT, ADAPTIVE = "Whittle step", "Content", "Adaptive agents"
N = 10**6  # sources of a Whittle step
_MOVED = 64  # bytes a source, with which a Whittle step is compared
_DENSE = 10**5  # sources whose content is drawn
_RATE = 5.0  # items per source and step
LEARNING = 10**5  # sources of an adaptive agent


def whittle_figures(rounds: int, n: int = N) -> Iterator[Figure]:
    """Yield the time of a step of the Whittle policy, against copying 64 bytes a source."""
    fleet, ages = fleet_of(n, _RATE), np.random.default_rng(0).integers(1, 200, (1, n))
    index = ClosedForm(fleet.ceiling, fleet.cost, fleet.decay_per_step)
    # Mean content is the belief of unobserved sources.
    means, random_world = world_of(fleet, Deterministic(), ages), world_of(fleet, Arrivals())
    candidates = {
        "step": whittle_step(means, lambda world: index.index_at_age(world.age)),
        "copy": copying(n * _MOVED),
        "half": copying(n * _MOVED // 2),
        "observed": whittle_step(random_world, lambda world: index.index(world.value)),
        "content": advancing(random_world),
    }
    times = interleaved(candidates, max(3, rounds // 3) if n >= N else rounds)
    size = f"{n:,} sources, M = N/100"
    ratio = times["step"].ratio_to(times["half"])[0]
    yield compared(
        WHITTLE,
        f"index, select, crawl and advance, not observed, {size}, against copying 64 B a source",
        "≤",
        2.0,
        times["step"],
        times["copy"],
        f"{ratio:.2f} × copying 32 B, which reads and writes 64 B in all",
    )
    yield compared(
        WHITTLE,
        f"the same, observed Poisson content, {size}, without drawing the content",
        "≤",
        5.0,
        times["observed"].minus(times["content"]),
        times["copy"],
    )


def content_figures(rounds: int, n: int = _DENSE) -> Iterator[Figure]:
    """Yield the time of drawing content, against numpy drawing a Poisson number per source."""
    rng = np.random.default_rng(0)
    step = advancing(world_of(fleet_of(n, _RATE), Arrivals()))
    what = (
        f"step of Poisson content, ΛT = {_RATE:g}, {n:,} sources, against numpy drawing as many "
        "Poisson numbers"
    )
    figure = in_turn(CONTENT, what, "≤", 1.0, step, lambda: rng.poisson(_RATE, n), rounds)
    note = "in as many threads as the package uses here; the limit is for two"
    yield figure._replace(note=note)


def adaptive_figures(rounds: int, n: int = LEARNING) -> Iterator[Figure]:
    """Yield the time of a step of every adaptive agent, against Whittle's with known rates."""
    for one in cost.measure(n, max(3, rounds // 3)):
        what = f"{one.name}, shown {one.shown}, {n:,} sources, against Whittle with known rates"
        yield compared(ADAPTIVE, what, "≤", 2.0, one.step, one.best_step)


# Name of an agent, and nanoseconds a source that making it may take.
MAKING = {"lagrangian": 500.0, "static": 300.0}


def making_figures(rounds: int, n: int = LEARNING) -> Iterator[Figure]:
    """Yield the time of making the agents that compute a frequency or a price beforehand."""
    task = Task(Sources.random(n, seed=0), max(1, n // 100))
    times = interleaved({name: partial(make, name, task) for name in MAKING}, max(3, rounds // 3))
    for name, limit in MAKING.items():
        what = f"making {name}, {n:,} sources, M = N/100"
        yield of_each("Making agents", what, "ns a source", limit, times[name], 1e9 / n)


def fleet_of(n: int, rate: float) -> Sources:
    """Return sources that differ in utility and decay."""
    rng = np.random.default_rng(0)
    return Sources(np.full(n, rate), rng.lognormal(0, 0.8, n), rng.uniform(0.03, 0.5, n))


def world_of(
    fleet: Sources, arrivals: ArrivalProcess, ages: Any = 1.0, rows: int = 1
) -> tuple[World, np.random.Generator]:
    """Return a world at some ages, and the generator with which it goes on."""
    rng, world = np.random.default_rng(0), World(fleet, arrivals, rows)
    world.start(np.broadcast_to(ages, world.shape).astype(np.float64), rng)
    return world, rng


def advancing(setting: tuple[World, np.random.Generator]) -> Call:
    """Return a step in which nothing is crawled."""
    world, rng = setting
    return lambda: world.advance(rng)


def whittle_step(
    setting: tuple[World, np.random.Generator], index: Callable[[World], FloatArray]
) -> Call:
    """Return a step of a policy that crawls a hundredth of the sources, those of the largest
    indices, without the environment."""
    world, rng = setting
    k = max(1, world.shape[-1] // 100)

    def step() -> None:
        world.crawl(select_top(index(world), k, world.crawled_at))
        world.advance(rng)

    return step


def copying(size: int) -> Call:
    """Return a copy of as many bytes."""
    origin = np.ones(max(1, size // 8))
    target = np.empty_like(origin)
    return lambda: np.copyto(target, origin)


# ------------------------------------------------------------------------------ against no options

RATES = {"dense": 5.0, "sparse": 0.05}  # ΛT, items / step
SIZE = (64, 100)  # environments, sources
# By group: the arguments that all have, and by name what is added, with the limit of the ratio.
Options = tuple[TaskArguments, Mapping[str, tuple[TaskArguments, float]]]
PAYOFFS = "Payoffs, regimes and costs"
OPTIONS: dict[str, Options] = {
    "Signals": (
        {"arrivals": "poisson-items"},
        {
            "recall .5, precision .8": ({"signals": Signals(0.5, 0.8)}, 1.3),
            "recall .5, precision .2": ({"signals": Signals(0.5, 0.2)}, 1.3),
            "recall .5, precision .8, mean delay of 2 steps": (
                {"signals": Signals(0.5, 0.8, 2.0)},
                1.3,
            ),
        },
    ),
    PAYOFFS: (
        {"arrivals": "poisson"},
        {
            "a deadline": ({"payoff": Deadline(24)}, 1.5),
            "diminishing returns in 10 topics": ({"payoff": DiminishingReturns(5.0)}, 1.5),
            "a daily cycle": ({"arrivals": Arrivals(rate=DailyCycle(0.9))}, 3.0),
            "regimes of 10 topics": ({"arrivals": "poisson-regimes"}, 3.0),
            "stories of 10 topics": ({"arrivals": Stories(overlap=0.5)}, 50.0),
            "looks": ({"look_cost": 0.1}, 4.0),
            "cheaper crawls that find nothing": ({"unchanged_cost": 0.1}, 3.0),
        },
    ),
}


def option_figures(group: str, rounds: int, size: tuple[int, int] = SIZE) -> Iterator[Figure]:
    """Yield the time of a step with each option of a group, against that without, content not
    observed."""
    (rows, n), (common, options) = size, OPTIONS[group]
    for kind, rate in RATES.items():
        fleet = Sources(np.full(n, rate), 1.0, 0.1, topics=[str(i % 10) for i in range(n)])
        steps = {"none": _step_of(fleet, rows, common)}
        steps |= {name: _step_of(fleet, rows, common, more) for name, (more, _) in options.items()}
        times = interleaved(steps, rounds)
        for name, (more, limit) in options.items():
            what = f"step of {rows} envs × {n} {kind} sources (ΛT = {rate:g}), {name}, against none"
            signals, note = more.get("signals"), ""
            if isinstance(signals, Signals):
                note = f"{signals.of(fleet).ping_rate[0] / rate:.3g} pings an item"
            yield compared(group, what, "≤", limit, times[name], times["none"], note)


def knapsack_figure(rounds: int, size: tuple[int, int] = SIZE) -> Figure:
    """Return the time in which a budget is filled with unequal costs as a knapsack, against that of
    Whittle's policy, which fills it in the order of the indices."""
    rows, n = size
    costs = np.random.default_rng(0).uniform(1.0, 4.0, n)
    fleet = Sources(**{**Sources.random(n, seed=0).describe(), "cost": costs})
    env = CrawlVectorEnv(rows, sources=fleet, budget=n / 4)
    observation, _ = env.reset(seed=0)
    knapsack, whittle = (
        partial(make(name, env).predict, observation) for name in ("whittle-knapsack", "whittle")
    )
    what = f"whittle-knapsack against whittle, {rows} envs × {n} sources of cost 1 to 4, M = N/4"
    return in_turn(PAYOFFS, what, "≤", 30.0, knapsack, whittle, rounds)


def _step_of(fleet: Sources, rows: int, *options: TaskArguments) -> Call:
    """Return a step of environments in which the agent sees the belief."""
    arguments: TaskArguments = {"sources": fleet, "observed": False, "horizon": None}
    for some in options:
        arguments.update(some)
    arguments["budget"] = max(1, len(fleet) // 20)
    env = CrawlVectorEnv(rows, **arguments)
    env.reset(seed=0)
    actions = _priorities(rows, len(fleet))
    return lambda: env.step(actions)


# -------------------------------------------------------------------------------- large fleets

SCHEDULER = "Event-driven scheduler"
SMALL, LARGE, CRAWLS = 10**5, 10**7, 10**4
_TOURS = 1.5  # before anything is timed: times in which all sources can be crawled once


def scheduler_figures(
    rounds: int, small: int = SMALL, large: int = LARGE, m: int = CRAWLS
) -> Iterator[Figure]:
    """Yield the time per crawl of a large fleet, and its time against that of a small one."""
    schedulers = {n: _warm(n, m) for n in (small, large)}
    times = interleaved({str(n): scheduler.step for n, scheduler in schedulers.items()}, rounds)
    one, many = times[str(small)], times[str(large)]
    what = f"time per crawl, {large:,} sources, {m:,} crawls per step, known rates"
    yield of_each(SCHEDULER, what, "µs", 1.0, many, 1e6 / m)
    what = f"step of {large:,} sources against one of {small:,}, {m:,} crawls each"
    yield compared(SCHEDULER, what, "≤", 1.5, many, one)


def signal_figures(
    rounds: int, sizes: tuple[tuple[int, int], ...] = ((10**5, 10**3), (10**6, 10**4))
) -> Iterator[Figure]:
    """Yield the time of a step with as many signals as crawls, against one without, for fleets and
    crawls of some sizes."""
    for n, m in sizes:
        what = f"step of {n:,} sources, {m:,} crawls and as many signals, against none"
        steps = _signalled(_warm(n, m)), _warm(n, m).step
        yield in_turn(SCHEDULER, what, "≤", 2.0, *steps, rounds)


def _warm(n: int, m: int) -> FleetScheduler:
    """Return a scheduler whose ages are those of the long run."""
    scheduler = FleetScheduler(FleetColumns.random(n, 0), m, start="random")
    for _ in range(ceil(_TOURS * n / m)):
        scheduler.step()
    return scheduler


def _signalled(scheduler: FleetScheduler) -> Call:
    """Return a step with as many signals as crawls, at sources drawn uniformly, after as many such
    steps as can crawl all sources."""
    rng, n, m = np.random.default_rng(0), scheduler.n, int(scheduler.budget)

    def step() -> None:
        scheduler.signal(rng.integers(n, size=m), 0.5)
        scheduler.step()

    for _ in range(ceil(n / m)):
        step()
    return step
