"""Vector environments that a learner practises in, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.learning.arms import check_last_states, check_order, check_same, described
from crawl_env import CrawlVectorEnv
from crawl_env.numerics import FloatArray

BoolArray = NDArray[np.bool_]

_FADING = 0.98  # weight of an epoch's reward against the next one's, in a row's mean


class Practice:
    """One vector environment, what it shows now, and what each of its rows earns per epoch."""

    def __init__(self, env: CrawlVectorEnv, seed: int) -> None:
        check_order(env.task)
        check_last_states(env)
        self.env = env
        self.observation, _ = env.reset(seed=seed)
        self._over = np.zeros(env.num_envs, dtype=bool)
        self._earned, self._epochs = np.zeros(env.num_envs), np.zeros(env.num_envs)

    @property
    def gain(self) -> FloatArray:
        """(B,) recent mean reward per epoch, utility, since the last reset."""
        return self._earned / np.maximum(self._epochs, 1.0)

    @property
    def cost(self) -> FloatArray:
        """(B, N) of a crawl, in units of M/N, what an epoch pays for each source on average."""
        b, n = self.env.world.shape
        cost = np.broadcast_to(self.env.world.sources.cost, (b, n))
        return cost * n / self.env.task.budget

    def step(self, priority: NDArray[np.float32]) -> tuple[BoolArray, FloatArray, BoolArray]:
        """Crawl for an epoch; return what was crawled, (B, N), what it brought, (B, N), and the
        rows that were crawled rather than reset, (B,)."""
        shape = priority.shape
        self.observation, _, _, truncated, _ = self.env.step(priority)
        picked, value, *_ = self.env.harvest
        valid = ~self._over
        active, reward = np.zeros(shape, dtype=bool), np.zeros(shape)
        active.reshape(-1)[picked] = True
        reward.reshape(-1)[picked] = value
        self._earned = np.where(valid, _FADING * self._earned + reward.sum(axis=-1), 0.0)
        self._epochs = np.where(valid, _FADING * self._epochs + 1.0, 0.0)
        self._over = truncated
        return active, reward, valid

    def get_state(self) -> dict[str, Any]:
        own = {"over": self._over, "earned": self._earned, "epochs": self._epochs}
        return {"env": self.env.get_state(), **{name: x.copy() for name, x in own.items()}}

    def set_state(self, state: dict[str, Any]) -> None:
        self.observation = self.env.set_state(state["env"])
        self._over, self._earned = state["over"].copy(), state["earned"].copy()
        self._epochs = state["epochs"].copy()


class Practices:
    """Several of them, whose state is saved as one.

    Raises:
        ValueError: there is none, or they show different features.
    """

    def __init__(self, envs: Sequence[CrawlVectorEnv], seed: int) -> None:
        shown = {env.task.features for env in envs}
        if len(shown) != 1:
            raise ValueError(
                f"{len(envs)} environments show {len(shown)} sets of features; give at least one "
                "environment, and all the same `features` in the same order"
            )
        seeds = np.random.SeedSequence(seed, spawn_key=(5,)).generate_state(len(envs))
        self.all = [Practice(env, int(s)) for env, s in zip(envs, seeds, strict=True)]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rows, 0, D): what is learnt is of no particular number of sources."""
        rows = sum(practice.env.num_envs for practice in self.all)
        return rows, 0, len(self.all[0].env.task.features)

    def get_state(self) -> dict[str, Any]:
        return {
            "tasks": [described(practice.env) for practice in self.all],
            "practices": [practice.get_state() for practice in self.all],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        if len(state["practices"]) != len(self.all):
            raise ValueError(
                f"this agent practises in {len(self.all)} environments, the saved one in "
                f"{len(state['practices'])}; go on in the same ones"
            )
        for practice, saved in zip(self.all, state["tasks"], strict=True):
            check_same(practice.env, saved)
        for practice, its in zip(self.all, state["practices"], strict=True):
            practice.set_state(its)
