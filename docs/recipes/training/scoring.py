"""What the recipes share: their two options, and the measurement of what was learnt."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import gymnasium as gym
import numpy as np

import crawl_env
from agents import Random, Whittle
from agents.policies.base import Agent

EPISODES = 10
FIRST_SEED = 1000  # of the evaluation; recipes are trained with other seeds

Act = Callable[[Any], Any]  # one observation → one action, without exploration


def options(steps: int) -> argparse.Namespace:
    """Read `--seed` and `--steps` (of the environment, all its copies together), and start the
    clock."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=steps)
    arguments = parser.parse_args()
    arguments.started, arguments.processor = time.perf_counter(), _processor_time()
    return arguments


def report(
    act: Act,
    env_id: str,
    task: Mapping[str, Any],
    *,
    package: str,
    arguments: argparse.Namespace,
    env: gym.Env[Any, Any] | None = None,
) -> None:
    """Evaluate what was learnt, and print the result as a line of JSON.

    Arguments:
        act: maps an observation of `gym.make(env_id, **task)` to an action.
        package: the library's name as an installed package; its version is printed.
        arguments: returned by `options`; the seconds since then are those of the training.
        env: the environment that `act` plays, if it is wrapped.
    """
    seconds = time.perf_counter() - arguments.started
    processor = _processor_time() - arguments.processor
    learnt = _reward(gym.make(env_id, **task) if env is None else env, act)
    whittle, random = (_reference(agent, task) for agent in (Whittle, Random))
    plain = gym.make("EphemeralCrawl-v0", **task)
    largest = crawl_env.task_of(plain).sources.ceiling
    always = (largest / largest.max()).astype(np.float32)
    result = {
        "package": package,
        "version": version(package),
        "gymnasium": version("gymnasium"),
        "id": env_id,
        "seed": arguments.seed,
        "steps": arguments.steps,
        "reward": learnt,
        "whittle": whittle,
        "random": random,
        "same_sources": _reward(plain, lambda observation: always),
        "ratio": learnt / whittle,
        "score": (learnt - random) / (whittle - random),
        "seconds": seconds,
        "cpu_seconds": processor,  # a busy machine does not change them
    }
    print(json.dumps(result))


def _reference(agent: type[Agent], task: Mapping[str, Any]) -> float:
    env = gym.make("EphemeralCrawl-v0", **task)
    policy, state = agent(env, seed=FIRST_SEED), None

    def act(observation: Any) -> Any:
        nonlocal state
        action, state = policy.predict(observation, state)
        return action

    return _reward(env, act)


def _reward(env: gym.Env[Any, Any], act: Act) -> float:
    """Return the reward per step. Arrivals depend on the seed alone: they are the same for all."""
    total, horizon = 0.0, env.unwrapped.task.horizon
    for episode in range(EPISODES):
        observation, _ = env.reset(seed=FIRST_SEED + episode)
        ended = False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            ended = terminated or truncated
            total += float(reward)
    env.close()
    return total / EPISODES / horizon


def _processor_time() -> float:
    """Return the seconds of processor time of this process and of the children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
