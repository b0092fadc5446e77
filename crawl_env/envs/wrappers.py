"""SequentialSelection: one source at a time, for agents with plain discrete actions."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from crawl_env.envs.env import CrawlEnv
from crawl_env.simulation.selection import TOLERANCE

Observation = NDArray[np.float32]


class SequentialSelection(
    gym.Wrapper[Observation, Any, Observation, Any],
    gym.utils.RecordConstructorArgs,
):
    """One epoch as a sequence of picks, each an action of `Discrete(N)`.

    An epoch ends when nothing that is left fits the budget (after M picks at unit cost); the
    reward comes with its last pick, 0 before. Use the discount γ^(1/M) where γ is meant per epoch.
    The observation (N, F+1) has one more column: 1 for the sources picked so far in this epoch.

    `action_masks()` is True for the sources that can still be picked, as sb3-contrib's
    MaskablePPO expects. An agent without masks may pick another; the oldest that can be picked
    is taken instead.

    Raises:
        ValueError: the environment has `action="subset"` or `budget_rule="average"`, or its
            observations are changed by another wrapper.

    >>> env = SequentialSelection(gym.make("EphemeralCrawl-v0", budget=2))
    >>> observation, _ = env.reset(seed=0)
    >>> env.step(0)[1], env.action_masks().tolist(), round(env.step(1)[1], 3)
    (0.0, [False, True, True, True], 327.447)
    """

    def __init__(self, env: gym.Env[Observation, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        inner = env.unwrapped
        if not isinstance(inner, CrawlEnv):
            raise ValueError(f"SequentialSelection wraps EphemeralCrawl environments, not {inner}")
        task = inner.task
        if (task.action, task.budget_rule) != ("priority", "epoch"):
            raise ValueError(
                f"SequentialSelection needs action='priority' and budget_rule='epoch'; the "
                f"environment has {task.action!r} and {task.budget_rule!r}"
            )
        box = task.observation_space
        if env.observation_space != box:
            raise ValueError(
                f"SequentialSelection found observations changed to {env.observation_space}; put "
                "the wrapper that does it outside of this one"
            )
        self._inner = inner
        one = np.ones((task.n, 1), dtype=np.float32)
        self.observation_space = spaces.Box(
            np.hstack([box.low, 0 * one]), np.hstack([box.high, one]), dtype=np.float32
        )
        self.action_space = spaces.Discrete(task.n)
        self._seen: Observation = np.zeros(box.shape, dtype=np.float32)
        self._picked = np.zeros(task.n, dtype=bool)
        self._ready = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        self._seen, info = self.env.reset(seed=seed, options=options)
        self._picked[:] = False
        self._ready = True
        return self._observation(), info

    def step(
        self, action: np.integer[Any] | int
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if not self._ready:
            raise gym.error.ResetNeeded("call env.reset() before the first env.step()")
        possible = self.action_masks()
        number = np.asarray(action)
        if number.size != 1 or number.dtype.kind not in "iu" or not 0 <= number < possible.size:
            raise ValueError(
                f"action is {action!r}; give the number of a source, 0 … {possible.size - 1}"
            )
        action = int(number.reshape(()))
        if not possible[action]:
            action = int(np.argmax(np.where(possible, self._inner.world.age[0], -1.0)))
        self._picked[action] = True
        if self.action_masks().any():
            return self._observation(), 0.0, False, False, {}
        priority = np.where(self._picked, 1.0, -1.0).astype(np.float32)
        self._seen, reward, terminated, truncated, info = self.env.step(priority)
        self._picked[:] = False
        return self._observation(), float(reward), terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which sources can be picked now, (N,): not yet picked, still affordable, and not
        held back by a crawl delay or by their host."""
        cost, task = self._inner.sources.cost, self._inner.task
        left = task.budget * (1 + TOLERANCE) - cost[self._picked].sum()
        possible = ~self._picked & (cost <= left)
        available = self._inner.world.available
        if available is not None:
            possible &= available[0]
        host_of = self._inner.sources.host_of
        if host_of is not None:
            possible &= np.bincount(host_of, self._picked)[host_of] < task.per_host
        return possible

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the whole state: the environment's, and what is picked so far."""
        return {**self._inner.get_state(), "picked": self._picked.copy()}

    def set_state(self, state: dict[str, Any]) -> Observation:
        """Return to a state of `get_state`, as if never left; return the observation there."""
        self._seen = self._inner.set_state(state)
        self._picked[:] = state["picked"]
        self._ready = True
        return self._observation()

    def _observation(self) -> Observation:
        return np.hstack([self._seen, self._picked[:, None]]).astype(np.float32)
