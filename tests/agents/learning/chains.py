"""Finite chains with known indices, in the place of a crawl."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.learning.arms import Step
from crawl_env.numerics import FloatArray


class ChainArms:
    """One row of N copies of a chain, M of which are activated; the states are 1, 2, ….

    Arguments:
        passive, active: transition matrices, (S, S).
        reward: of each state under each action, (S, 2).
    """

    def __init__(
        self,
        passive: ArrayLike,
        active: ArrayLike,
        reward: ArrayLike,
        n: int,
        m: int,
        seed: int = 0,
    ) -> None:
        self._law = np.stack([np.asarray(passive), np.asarray(active)]).cumsum(axis=-1)
        self._reward = np.asarray(reward, dtype=float)
        self._m = m
        self._rng = np.random.default_rng(seed)
        self._at = self._rng.integers(0, len(self._reward), (1, n))

    @property
    def shape(self) -> tuple[int, int, int]:
        return (*self._at.shape, 1)

    @property
    def share(self) -> float:
        return self._m / self._at.shape[1]

    @property
    def cost(self) -> FloatArray:
        return np.ones(self._at.shape[1])

    def state(self) -> FloatArray:
        return self._at[..., None] + 1.0

    def step(self, priority: NDArray[np.float32]) -> Step:
        active = np.zeros(self._at.shape, dtype=bool)
        order = np.argsort(-priority, axis=-1, kind="stable")
        np.put_along_axis(active, order[:, : self._m], True, axis=-1)
        reward = self._reward[self._at, active.astype(int)]
        drawn = self._rng.random((*self._at.shape, 1))
        self._at = (drawn > self._law[active.astype(int), self._at]).sum(axis=-1)
        return Step(active, reward, self.state())

    def get_state(self) -> dict[str, Any]:
        return {"at": self._at.copy(), "generator": deepcopy(self._rng.bit_generator.state)}

    def set_state(self, state: dict[str, Any]) -> None:
        self._at = state["at"].copy()
        self._rng.bit_generator.state = deepcopy(state["generator"])


_FORWARD = np.array([[0.5, 0, 0, 0.5], [0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]])
_AGEING = 0.9 * np.eye(5, k=1) + 0.1 * np.eye(5)[:1].repeat(5, axis=0)
_AGEING[4, 4] = 0.9

CIRCULANT = (_FORWARD, _FORWARD.T, np.repeat([[-1.0], [0.0], [0.0], [1.0]], 2, axis=1))
CIRCULANT_INDEX = (-0.5, 0.5, 1.0, -1.0)
RESTART = (
    _AGEING,
    np.eye(5)[:1].repeat(5, axis=0),
    np.stack([0.9 ** np.arange(1, 6), np.zeros(5)], axis=1),
)
RESTART_INDEX = (-0.9, -0.729, -0.50949, -0.25879, 0.00989)


def index_of(passive: ArrayLike, active: ArrayLike, reward: ArrayLike) -> list[float]:
    """Return the average-reward index of each state by bisection on the subsidy."""
    return [
        _indifferent(np.stack([passive, active]), np.asarray(reward), k) for k in range(len(reward))
    ]  # type: ignore[arg-type]


def advantage(law: FloatArray, reward: FloatArray, subsidy: float) -> FloatArray:
    """Return Q(s, 1) − Q(s, 0) under a subsidy for waiting, by relative value iteration."""
    value = np.zeros(len(reward))
    for _ in range(3000):
        q = reward.T + np.array([[subsidy], [0.0]]) + law @ value
        value = 0.5 * value + 0.5 * (q.max(axis=0) - q.max(axis=0)[0])
    q = reward.T + np.array([[subsidy], [0.0]]) + law @ value
    return q[1] - q[0]


def _indifferent(law: FloatArray, reward: FloatArray, state: int) -> float:
    low, high = -5.0, 5.0
    for _ in range(30):
        middle = (low + high) / 2
        better = advantage(law, reward, middle)[state] > 0
        low, high = (middle, high) if better else (low, middle)
    return low
