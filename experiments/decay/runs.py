"""One policy on one task under one law of decay: what it earns on average."""

from __future__ import annotations

from typing import Any

import numpy as np

import agents
from agents.evaluation.rollout import with_features
from agents.policies.base import Agent
from agents.registry import AGENTS
from agents.theory.task_bound import task_bound
from crawl_env import Arrivals, CrawlVectorEnv, Sources, Task
from crawl_env.content.utility import EXPONENTIAL, Decay
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.fleet.sources import REGIMES
from crawl_env.numerics import FloatArray, IntArray
from experiments.core.runner import Job, Result
from experiments.decay.believer import Believer
from experiments.decay.laws import fitted, law

RIGHT_MEAN, FITTED, KNOWING = (
    "whittle, right mean life",
    "whittle, fitted exponential",
    "whittle, knows the decay",
)
BELIEVERS = (RIGHT_MEAN, FITTED, KNOWING)


class Fleets:
    """Draws random fleets of 100, one at each reset; dense ones with a twentieth of the items,
    each worth 20 times as much, so that all that wait can be followed."""

    def __init__(self, regime: str) -> None:
        self._regime = regime

    def __call__(self, rng: np.random.Generator) -> Sources:
        drawn = Sources.random(100, rng, self._regime)
        if self._regime == "sparse":
            return drawn
        return Sources(0.05 * drawn.arrival_rate, 20 * drawn.mean_utility, drawn.decay_rate)


def work(unit: Job) -> Result:
    """Run a unit: its policy on its task, for some seeds.

    Returns the reward per epoch of each run (S,) and, of the policy that knows the decay where
    content is not observed, the bound of each run's fleet (S,). Where content is not `drawn`, which
    takes a policy that minds ages only, the reward is the expected one of the crawls that were
    made.
    """
    decay, seeds = law(unit["law"]), unit["seeds"]
    arguments = _arguments(unit, decay)
    env = CrawlVectorEnv(seeds, **arguments)
    observation, _ = env.reset(seed=unit["seed"])
    agent = _agent(unit, env, decay)
    state, starts, reward = None, np.ones(seeds, dtype=bool), np.zeros(seeds)
    for epoch in range(unit["warmup"] + unit["epochs"]):
        action, state = agent.predict(observation, state, starts)
        age = env.world.age
        observation, earned, *_ = env.step(action)
        starts = np.zeros(seeds, dtype=bool)
        if epoch >= unit["warmup"]:
            if not unit["drawn"]:
                earned = expected(env.world.sources, decay, env.harvest.picked, age)
            reward += earned
    result = {"reward": (reward / unit["epochs"]).tolist()}
    if unit["policy"] == KNOWING and not unit["observed"]:
        task = Task(**{**arguments, "arrivals": Arrivals(decay=decay)})
        bound = task_bound(task, env.world.sources).bound
        result["bound"] = np.broadcast_to(bound, seeds).tolist()
    return result


def expected(sources: Sources, decay: Decay, picked: IntArray, age: FloatArray) -> FloatArray:
    """Return Σ u*∫_0^{μT·age} R over the picked cells of each row, (B,), utility: what crawling
    them at `age` (B, N) brings on average."""
    ceiling, rate = (
        np.broadcast_to(x, age.shape).reshape(-1)[picked]
        for x in (sources.ceiling, sources.decay_per_step)
    )
    brought = ceiling * decay.integrated_survival(rate * age.reshape(-1)[picked])
    rows, n = age.shape
    return np.asarray(np.bincount(picked.ravel() // n, brought.ravel(), rows), dtype=np.float64)


def _arguments(unit: Job, decay: Decay) -> dict[str, Any]:
    fleet, observed = unit["fleet"], unit["observed"]
    arguments = {
        "sources": Fleets(fleet) if fleet in REGIMES else fleet,
        "budget": unit["budget"],
        "arrivals": Arrivals(decay=decay) if unit["drawn"] else "deterministic",
        "observed": observed,
        "features": ("value" if observed else "age", *PARAMETERS),
        "horizon": None,
    }
    return with_features(AGENTS.get(unit["policy"], Believer), arguments)[1]


def _agent(unit: Job, env: CrawlVectorEnv, decay: Decay) -> Agent:
    name, sources, oldest = unit["policy"], env.world.sources, unit["warmup"] + unit["epochs"]
    if name not in BELIEVERS:
        return agents.make(name, env, seed=unit["seed"])
    believed = fitted(sources, decay) if name == FITTED else sources
    return Believer(env.task, believed, decay if name == KNOWING else EXPONENTIAL, oldest)
