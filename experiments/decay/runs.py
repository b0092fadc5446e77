"""One policy on one task under one decay function: its average reward."""

from __future__ import annotations

from typing import Any

import numpy as np

import agents
from agents.evaluation.rollout import with_features
from agents.policies.base import Agent, Environment
from agents.policies.index import Whittle
from agents.registry import AGENTS
from agents.theory.renewal import RenewalArm, renewal_arm
from agents.theory.task_bound import task_bound
from crawl_env import Arrivals, CrawlVectorEnv, Sources, Task
from crawl_env.content.utility import EXPONENTIAL, Decay
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.fleet.sources import REGIMES
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core.evaluation import RandomFleet, collected
from ephemeral_crawl.core.runner import Job, Result
from experiments.decay.functions import decay_function, fitted

RIGHT_MEAN, FITTED, KNOWING = (
    "whittle, right mean life",
    "whittle, fitted exponential",
    "whittle, knows the decay",
)
WHITTLES = (RIGHT_MEAN, FITTED, KNOWING)
# Dense fleets have a twentieth of the items, of 20 times the utility, so that all can be stored.
_GROUPED = {"dense": 20, "sparse": 1}


class AssumedDecay(Whittle):
    """The Whittle index of a fleet whose interest is assumed to decay in a given way.

    Where content is not observed, the index is taken at the source's age: it is exact if the
    assumption is right. Where content is observed, it is the index of a source whose mean content
    has the observed value, as in Theorem 1, which is not exact under any decay function.

    Arguments:
        env: with the feature `value` or `age`.
        sources: the fleet assumed, (N,) or (B, N).
        decay: the decay function assumed.
    """

    name = "whittle, assumed decay"

    def __init__(self, env: Environment, sources: Sources, decay: Decay = EXPONENTIAL) -> None:
        self._assumed = renewal_arm(sources, decay)
        super().__init__(env)

    def arm(self, sources: Sources) -> RenewalArm:
        return self._assumed

    def index_at_age(self, age: FloatArray, sources: Sources) -> FloatArray:
        return self._assumed.index_at_age(age)


def work(job: Job) -> Result:
    """Run a job: its policy on its task, for some seeds.

    Returns the reward per step of each run (S,) and, of the policy that knows the decay where
    content is not observed, the bound of each run's fleet (S,). Where content is not `drawn`, which
    takes a policy that uses ages only, the reward is the expected one of the crawls that were
    made.
    """
    decay, seeds = decay_function(job["decay"]), job["seeds"]
    arguments = _arguments(job, decay)
    env = CrawlVectorEnv(seeds, **arguments)
    observation, _ = env.reset(seed=job["seed"])
    agent, arm = _agent(job, env, decay), renewal_arm(env.world.sources, decay)
    state, starts, reward = None, np.ones(seeds, dtype=bool), np.zeros(seeds)
    for step in range(job["warmup"] + job["steps"]):
        action, state = agent.predict(observation, state, starts)
        age = env.world.age.astype(np.float64)
        observation, earned, *_ = env.step(action)
        starts = np.zeros(seeds, dtype=bool)
        if step >= job["warmup"]:
            if not job["drawn"]:
                earned = collected(arm.mean_content(age), env.harvest.picked)
            reward += earned
    result = {"reward": (reward / job["steps"]).tolist()}
    if job["policy"] == KNOWING and not job["observed"]:
        task = Task(**{**arguments, "arrivals": Arrivals(decay=decay)})
        bound = task_bound(task, env.world.sources).bound
        result["bound"] = np.broadcast_to(bound, seeds).tolist()
    return result


def _arguments(job: Job, decay: Decay) -> dict[str, Any]:
    fleet, observed = job["fleet"], job["observed"]
    arguments = {
        "sources": RandomFleet(100, fleet, _GROUPED[fleet]) if fleet in REGIMES else fleet,
        "budget": job["budget"],
        "arrivals": Arrivals(decay=decay) if job["drawn"] else "deterministic",
        "observed": observed,
        "features": ("value" if observed else "age", *PARAMETERS),
        "horizon": None,
    }
    return with_features(AGENTS.get(job["policy"], Whittle), arguments)[1]


def _agent(job: Job, env: CrawlVectorEnv, decay: Decay) -> Agent:
    name, sources = job["policy"], env.world.sources
    if name not in WHITTLES:
        return agents.make(name, env, seed=job["seed"])
    assumed = fitted(sources, decay) if name == FITTED else sources
    return AssumedDecay(env, assumed, decay if name == KNOWING else EXPONENTIAL)
