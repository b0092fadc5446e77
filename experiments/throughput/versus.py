"""Comparison with Gymnasium's environments and with its vectorisation of many environments."""

from __future__ import annotations

from itertools import cycle
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from crawl_env import Sources
from experiments.throughput.clock import Call, interleaved

ENTRY = "vector_entry_point"


class Versus(NamedTuple):
    """A comparison of times per step."""

    what: str
    wanted: float  # target for other's time / ours
    ours: float  # seconds a step
    other: float
    speedup: float  # median over rounds
    low: float
    high: float


def all_comparisons(rounds: int) -> list[Versus]:
    return [
        *(_single(m, wanted, rounds) for m, wanted in ((1, 1.0), (2, 1 / 1.5))),
        *(_cartpole_vector(m, wanted, rounds) for m, wanted in ((1, 2.0), (2, 1.0))),
        *(_sync(n, wanted, rounds) for n, wanted in ((10, 25.0), (100, 15.0), (1000, 5.0))),
        _sb3(rounds),
    ]


def _single(m: int, wanted: float, rounds: int) -> Versus:
    ours = gym.make("EphemeralCrawl-v0", budget=m)
    action = np.random.default_rng(0).random(4, dtype=np.float32)
    return _versus(
        f"1 env, N = 4, M = {m}; CartPole-v1 (both gym.make)",
        wanted,
        _stepping(ours, action),
        _stepping(gym.make("CartPole-v1"), 0, 1),
        rounds,
    )


def _cartpole_vector(m: int, wanted: float, rounds: int) -> Versus:
    ours = gym.make_vec("EphemeralCrawl-v0", 1024, ENTRY, budget=m)
    cartpole = gym.make_vec("CartPole-v1", 1024, ENTRY)
    actions = np.random.default_rng(0).random((1024, 4), dtype=np.float32)
    return _versus(
        f"1024 envs, N = 4, M = {m}; CartPoleVectorEnv",
        wanted,
        _vector_stepping(ours, actions),
        _vector_stepping(cartpole, *np.repeat([[0], [1]], 1024, axis=1)),
        rounds,
    )


def _sync(n: int, wanted: float, rounds: int) -> Versus:
    fleet = Sources.random(n, seed=0)
    native = gym.make_vec("EphemeralCrawl-v0", 64, ENTRY, sources=fleet)
    sync = gym.make_vec("EphemeralCrawl-v0", 64, "sync", sources=fleet)
    actions = np.random.default_rng(0).random((64, n), dtype=np.float32)
    return _versus(
        f"64 envs, N = {n}, M = 1; SyncVectorEnv of the same env",
        wanted,
        _vector_stepping(native, actions),
        _vector_stepping(sync, actions),
        rounds,
    )


def _sb3(rounds: int) -> Versus:
    from stable_baselines3.common.vec_env import DummyVecEnv

    from crawl_env.envs.sb3 import CrawlVecEnv

    ours, dummy = CrawlVecEnv(64), DummyVecEnv([lambda: gym.make("EphemeralCrawl-v0")] * 64)
    ours.reset()
    dummy.reset()
    actions = np.random.default_rng(0).random((64, 4), dtype=np.float32)
    return _versus(
        "64 envs, N = 4, M = 1, SB3 adapter; DummyVecEnv",
        20.0,
        lambda: ours.step(actions),
        lambda: dummy.step(actions),
        rounds,
    )


def _versus(what: str, wanted: float, ours: Call, other: Call, rounds: int) -> Versus:
    times = interleaved({"ours": ours, "other": other}, rounds)
    ratio = times["other"].ratio_to(times["ours"])
    return Versus(what, wanted, times["ours"].median, times["other"].median, *ratio)


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
