"""Runs of the paper's example, step by step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import agents
from crawl_env import CrawlVectorEnv
from crawl_env.numerics import FloatArray


class Run(NamedTuple):
    """One run."""

    value: FloatArray  # (H, N) uncollected utility before the crawls of each step
    crawled: NDArray[np.bool_]  # (H, N)
    reward: FloatArray  # (H,)


def crawl(steps: int, agent: str = "whittle", seed: int = 0, **arguments: Any) -> Run:
    """Let an agent crawl for some steps; arguments are those of the environment."""
    env = CrawlVectorEnv(1, horizon=None, **arguments)
    policy = agents.make(agent, env)
    observation, _ = env.reset(seed=seed)
    value, crawled, rewards = [], [], []
    for _ in range(steps):
        value.append(env.world.value[0].copy())
        observation, reward, *_ = env.step(policy.predict(observation)[0])
        chosen = np.zeros(env.task.n, dtype=bool)
        chosen[env.harvest.picked] = True
        crawled.append(chosen)
        rewards.append(reward[0])
    return Run(np.array(value), np.array(crawled), np.array(rewards))


def period(run: Run, longest: int = 200) -> int:
    """Return the smallest p with which the second half of the run repeats itself."""
    tail = run.crawled[len(run.crawled) // 2 :]
    for p in range(1, longest):
        if (tail[p:] == tail[:-p]).all():
            return p
    raise ValueError(f"the crawl has no period below {longest}")


def long_run(run: Run) -> tuple[float, FloatArray, int]:
    """Return reward per step, frequency of each source and period, exact over one period."""
    p = period(run)
    return float(run.reward[-p:].mean()), run.crawled[-p:].mean(axis=0), p
