"""Finite chains with known indices, in the place of a crawl."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.learning.arms import Step
from crawl_env.numerics import FloatArray


class ChainArms:
    """Rows of N copies of a chain, M of which are activated; the states are 1, 2, ….

    They are a simulator, too: with a generator, `step` takes what is activated.

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
        rows: int = 1,
    ) -> None:
        self._law = np.stack([np.asarray(passive), np.asarray(active)]).cumsum(axis=-1)
        self._reward = np.asarray(reward, dtype=float)
        self._m = m
        self._rng = np.random.default_rng(seed)
        self._at = self._rng.integers(0, len(self._reward), (rows, n))  # from 0

    @property
    def shape(self) -> tuple[int, int, int]:
        return (*self._at.shape, 1)

    @property
    def activation_fraction(self) -> float:
        return self._m / self._at.shape[1]

    @property
    def cost(self) -> FloatArray:
        return np.ones(self._at.shape[1])

    def state(self) -> FloatArray:
        return self._at[..., None] + 1.0

    def step(self, what: NDArray[Any], rng: np.random.Generator | None = None) -> Step:
        active = what
        if rng is None:
            active = np.zeros(self._at.shape, dtype=bool)
            order = np.argsort(-what, axis=-1, kind="stable")
            np.put_along_axis(active, order[:, : self._m], True, axis=-1)
        reward = self._reward[self._at, active.astype(int)]
        uniform = (rng or self._rng).random((*self._at.shape, 1))
        self._at = (uniform > self._law[active.astype(int), self._at]).sum(axis=-1)
        return Step(active, reward, self.state())

    def draw(self, rows: int, rng: np.random.Generator) -> FloatArray:
        return rng.integers(1, len(self._reward) + 1, (rows, self.shape[1], 1)) * 1.0

    def start(self, state: FloatArray, rng: np.random.Generator) -> None:
        self._at = state[..., 0].astype(int) - 1

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


def restart(rows: int, n: int) -> ChainArms:
    """Return rows of copies of the restart chain, of which one each is activated."""
    return ChainArms(*RESTART, n, 1, rows=rows)


def worth(law: FloatArray, reward: FloatArray, subsidy: float, discount: float = 1.0) -> FloatArray:
    """Return Q(s, 1) − Q(s, 0) under a subsidy for waiting, by relative value iteration.

    `law` is (2, S, S), passive first.
    """
    gain = reward.T + np.array([[subsidy], [0.0]])
    value = np.zeros(len(reward))
    for _ in range(2000):
        best = (gain + discount * law @ value).max(axis=0)
        before, value = value, 0.5 * (value + best - best[0])
        if np.abs(value - before).max() < 1e-13:
            break
    q = gain + discount * law @ value
    return q[1] - q[0]


def index_by_bisection(
    passive: ArrayLike, active: ArrayLike, reward: ArrayLike, discount: float = 1.0
) -> FloatArray:
    """Return the index of each state: the subsidy that makes it indifferent."""
    law, rewards = np.stack([np.asarray(passive), np.asarray(active)]), np.asarray(reward)
    low, high = np.full(len(rewards), -3.0), np.full(len(rewards), 3.0)
    for _ in range(20):
        middle = (low + high) / 2
        better = np.array([worth(law, rewards, m, discount)[k] > 0 for k, m in enumerate(middle)])
        low, high = np.where(better, middle, low), np.where(better, high, middle)
    return low
