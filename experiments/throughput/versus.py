"""Comparison with Gymnasium's environments and with its vectorisation of many environments."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from crawl_env import Sources
from experiments.core.clock import Call
from experiments.throughput.figure import Figure, faster, longer, timed

GROUP = "Gymnasium"
ENTRY = "vector_entry_point"
SINGLE = ((1, 0.6), (2, 0.7))  # M, and the largest time relative to CartPole's
COPIES = ((1, 3.5), (2, 3.0))  # M, and the smallest rate relative to CartPoleVectorEnv's
SYNC = ((10, 40.0), (100, 30.0), (1000, 15.0))  # N, and the rate relative to SyncVectorEnv's


def figures(rounds: int) -> Iterator[Figure]:
    yield from (_single(m, limit, rounds) for m, limit in SINGLE)
    yield from (_cartpole_vector(m, limit, rounds) for m, limit in COPIES)
    yield from (_sync(n, limit, rounds) for n, limit in SYNC)
    yield _sb3(rounds)


def _single(m: int, limit: float, rounds: int) -> Figure:
    ours = gym.make("EphemeralCrawl-v0", budget=m)
    action = np.random.default_rng(0).random(4, dtype=np.float32)
    times = timed(_stepping(ours, action), _stepping(gym.make("CartPole-v1"), 0, 1), rounds)
    return longer(
        GROUP,
        f"step of 1 env, N = 4, M = {m}, against CartPole-v1's (both gym.make)",
        limit,
        *times,
    )


def _cartpole_vector(m: int, limit: float, rounds: int) -> Figure:
    ours = gym.make_vec("EphemeralCrawl-v0", 1024, ENTRY, budget=m)
    cartpole = gym.make_vec("CartPole-v1", 1024, ENTRY)
    actions = np.random.default_rng(0).random((1024, 4), dtype=np.float32)
    times = timed(
        _vector_stepping(ours, actions),
        _vector_stepping(cartpole, *np.repeat([[0], [1]], 1024, axis=1)),
        rounds,
    )
    return faster(GROUP, f"1024 envs, N = 4, M = {m}, against CartPoleVectorEnv", limit, *times)


def _sync(n: int, limit: float, rounds: int) -> Figure:
    fleet = Sources.random(n, seed=0)
    native = gym.make_vec("EphemeralCrawl-v0", 64, ENTRY, sources=fleet)
    sync = gym.make_vec("EphemeralCrawl-v0", 64, "sync", sources=fleet)
    actions = np.random.default_rng(0).random((64, n), dtype=np.float32)
    times = timed(_vector_stepping(native, actions), _vector_stepping(sync, actions), rounds)
    return faster(
        GROUP, f"64 envs, N = {n}, M = 1, against SyncVectorEnv of the same env", limit, *times
    )


def _sb3(rounds: int) -> Figure:
    from stable_baselines3.common.vec_env import DummyVecEnv

    from crawl_env.envs.sb3 import CrawlVecEnv

    ours, dummy = CrawlVecEnv(64), DummyVecEnv([lambda: gym.make("EphemeralCrawl-v0")] * 64)
    ours.reset()
    dummy.reset()
    actions = np.random.default_rng(0).random((64, 4), dtype=np.float32)
    times = timed(lambda: ours.step(actions), lambda: dummy.step(actions), rounds)
    return faster(GROUP, "64 envs, N = 4, M = 1, SB3 adapter, against DummyVecEnv", 20.0, *times)


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
