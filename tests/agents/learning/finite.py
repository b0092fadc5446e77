"""A finite chain whose index is known, as arms and as a simulator; indices by value iteration."""

from __future__ import annotations

from typing import Any

import numpy as np

from agents.learning.arms import Step
from crawl_env.numerics import FloatArray

STATES = 5


class RestartArms:
    """The restart chain of Avrachenkov & Borkar (2022): waiting pays .9^k, activating restarts.

    Arms that are passive go from k to min(k + 1, 5) with probability .9, else to 1. `step` takes
    priorities where no generator is given, of which the largest is activated.
    """

    def __init__(self, rows: int, arms: int, seed: int = 0) -> None:
        self.shape, self.activation_fraction, self.cost = (rows, arms, 1), 1 / arms, np.ones(arms)
        self._rng = np.random.default_rng(seed)
        self._state = np.ones((rows, arms))

    def state(self) -> FloatArray:
        return self._state[..., None].copy()

    def step(self, what: Any, rng: np.random.Generator | None = None) -> Step:
        active = what
        if rng is None:
            rng = self._rng
            active = what == what.max(axis=-1, keepdims=True)
        reward = np.where(active, 0.0, 0.9**self._state)
        grows = ~active & (rng.random(active.shape) < 0.9)
        self._state = np.where(grows, np.minimum(self._state + 1, STATES), 1.0)
        return Step(active, reward, self.state())

    def draw(self, rows: int, rng: np.random.Generator) -> FloatArray:
        return rng.integers(1, STATES + 1, (rows, *self.shape[1:])).astype(np.float64)

    def start(self, state: FloatArray, rng: np.random.Generator) -> None:
        self._state = state[..., 0].copy()

    def get_state(self) -> dict[str, Any]:
        return {"state": self._state.copy(), "rng": self._rng.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        self._state = state["state"].copy()
        self._rng.bit_generator.state = state["rng"]


def restart_index(discount: float) -> FloatArray:
    """Return the discounted index of the restart chain's states, by bisection."""
    return np.array([_root(s, discount) for s in range(STATES)])


def _root(state: int, discount: float) -> float:
    low, high = -2.0, 2.0
    while high - low > 1e-9:
        charge = (low + high) / 2
        gain = _gain(charge, discount)[state]
        low, high = (charge, high) if gain > 0 else (low, charge)
    return (low + high) / 2


def _gain(charge: float, discount: float) -> FloatArray:
    """Return Q(s, 1) − Q(s, 0) under a charge, by policy iteration."""
    k = np.arange(1, STATES + 1)
    restart, wait = np.zeros((2, STATES, STATES))
    restart[:, 0] = 1.0
    wait[:, 0] = 0.1
    wait[k - 1, np.minimum(k, STATES - 1)] += 0.9
    active = np.zeros(STATES, dtype=bool)
    while True:
        reward = np.where(active, -charge, 0.9**k)
        moves = np.where(active[:, None], restart, wait)
        value = np.linalg.solve(np.eye(STATES) - discount * moves, reward)
        gain = -charge + discount * restart @ value - (0.9**k + discount * wait @ value)
        if np.array_equal(gain > 1e-12, active):
            return np.asarray(gain)
        active = gain > 1e-12
