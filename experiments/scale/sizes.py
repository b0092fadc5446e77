"""A fleet of one size under one budget: what the policies collect, and what that takes."""

from __future__ import annotations

import multiprocessing
import resource
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np

from agents import Whittle
from agents.scheduling import FleetScheduler
from agents.scheduling.relaxation import columns_relaxation, stationary_ages
from agents.scheduling.simulation import error_of, simulate
from crawl_env import CrawlVectorEnv
from crawl_env.fleet.columns import FleetColumns
from ephemeral_crawl.core.runner import Job, Result

POLICIES = ("whittle", "static", "myopic", "oldest-first")
ADAPTIVE = ("adaptive-certainty", "adaptive-thompson")
CRAWLS = 400_000  # of a run, unless that takes too few or too many steps
STEPS = (20, 200)
WARMUP = 100  # steps, at most
SEED = 0
LEARNING = 1000  # steps before the evaluation of adaptive policies
MOST_ADAPTIVE = 10**6  # sources of a fleet on which these are played
_COMPILED = 2000  # sources of the fleet with which everything is compiled before it is timed
_DENSE_STEPS = 3


class Size(NamedTuple):
    """A policy at one size; times are processor times of one thread."""

    n: int
    budget: float
    regime: str
    policy: str
    steps: int
    reward: float  # utility / step, as collected
    expected: float  # utility / step, its mean given what was crawled and when
    error: float  # standard error of `expected`
    bound: float  # utility / step
    published: float  # utility / step
    scheduling: float  # seconds / step
    drawing: float  # seconds / step
    dense: float  # seconds / step of the dense world and policy; NaN where that was not run
    built: float  # seconds for the columns
    relaxed: float  # seconds for the bound
    filed: float  # seconds for the scheduler
    columns: float  # bytes a source
    memory: float  # bytes a source beyond those of an empty process, at the peak; NaN if not alone

    @property
    def per_crawl(self) -> float:
        """Expected utility per crawl."""
        return self.expected / self.budget

    @property
    def share(self) -> float:
        """Expected reward as a fraction of the bound."""
        return self.expected / self.bound


def measured_apart(job: Job) -> Result:
    """Return the rows of a size, made by `measured` in a process of its own, whose peak memory is
    that of this size alone."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        sizes = pool.submit(partial(measured, **job)).result()
    return {"rows": [size._asdict() for size in sizes]}


def measured(n: int, budget: float, regime: str, dense: bool) -> list[Size]:
    """Return the measurements of a size, policy by policy."""
    _compile(regime)
    before = _peak()
    began = perf_counter()
    fleet = FleetColumns.random(n, SEED, regime)
    built = perf_counter()
    relaxed = columns_relaxation(fleet, budget)
    known = perf_counter()
    scheduler = FleetScheduler(fleet, budget)
    filed = perf_counter()
    scheduler.step()
    memory = (_peak() - before) / n
    del scheduler
    steps, warmup = int(np.clip(CRAWLS / budget, *STEPS)), int(min(n / budget, WARMUP))
    found = []
    ages = stationary_ages(fleet, relaxed.multiplier)
    learning = ADAPTIVE if n <= MOST_ADAPTIVE and n / budget <= LEARNING / 5 else ()
    for policy in (*POLICIES, *learning):
        start = "random" if policy == "oldest-first" else ages
        preparation = warmup if policy in POLICIES else LEARNING
        run = simulate(fleet, budget, policy, steps=steps, warmup=preparation, start=start)
        found.append(
            Size(
                n=n,
                budget=budget,
                regime=regime,
                policy=policy,
                steps=steps,
                reward=float(run.reward.mean()),
                expected=run.mean,
                error=error_of(run.expected),
                bound=relaxed.bound,
                published=fleet.published,
                scheduling=run.scheduling,
                drawing=run.drawing,
                dense=_dense(fleet, budget) if dense and policy == "whittle" else np.nan,
                built=built - began,
                relaxed=known - built,
                filed=filed - known,
                columns=fleet.nbytes / n,
                memory=memory if policy == "whittle" else np.nan,
            )
        )
    return found


def _compile(regime: str) -> None:
    fleet = FleetColumns.random(_COMPILED, SEED, regime)
    stationary = stationary_ages(fleet, columns_relaxation(fleet, 10).multiplier)
    for policy in (*POLICIES, *ADAPTIVE):
        simulate(fleet, 10, policy, steps=5, start=stationary)


def _dense(fleet: FleetColumns, budget: float) -> float:
    """Return the time of a step of the dense world with the dense Whittle policy."""
    env = CrawlVectorEnv(
        1,
        sources=fleet.to_sources(),
        budget=budget,
        arrivals="poisson",
        observed=False,
        start="random",
        horizon=None,
    )
    agent = Whittle(env)
    observation, _ = env.reset(seed=SEED)
    state, times = None, []
    for _ in range(_DENSE_STEPS):
        began = process_time()
        action, state = agent.predict(observation, state)
        observation, *_ = env.step(action)
        times.append(process_time() - began)
    return float(np.median(times))


def _peak() -> float:
    """Return the largest memory that this process has had, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
