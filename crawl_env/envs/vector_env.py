"""CrawlVectorEnv: many crawls of one task advanced together."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from crawl_env.content.world import World
from crawl_env.errors import unknown
from crawl_env.numerics import FloatArray
from crawl_env.simulation.observation import Harvest
from crawl_env.simulation.simulation import Crawl
from crawl_env.simulation.task import Task

BoolArray = NDArray[np.bool_]


class CrawlVectorEnv(gym.vector.VectorEnv[NDArray[np.float32], Any, NDArray[Any]]):
    """`num_envs` environments like `CrawlEnv`, in one array program.

    All of them share one random generator. Observations are (B, N, F), actions (B, N), rewards
    (B,) float64.

    Arguments:
        num_envs: B.
        autoreset_mode: `NEXT_STEP` (default), `SAME_STEP` or `DISABLED`, with
            `reset(options={"reset_mask": (B,) bool})`, as in Gymnasium's own vector environments.
        max_episode_steps: truncate after as many epochs, if this is sooner than `horizon`.
        render_mode: "rgb_array" (a picture for each environment) or None.
        **arguments: those of `CrawlEnv`.

    >>> vec = gym.make_vec("EphemeralCrawl-v0", num_envs=3, vectorization_mode="vector_entry_point")
    >>> vec.reset(seed=0)[0].shape
    (3, 4, 1)
    """

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        **arguments: Any,
    ) -> None:
        _check_whole("num_envs", num_envs)
        if max_episode_steps is not None:
            _check_whole("max_episode_steps", max_episode_steps)
        if render_mode not in (None, "rgb_array"):
            raise unknown("render_mode", render_mode, ["rgb_array"])
        self.num_envs = num_envs
        self.task = Task.from_arguments(arguments)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": 4,
            "autoreset_mode": self.autoreset_mode,
        }
        self.render_mode = render_mode
        self.single_observation_space = self.task.observation_space
        self.single_action_space = self.task.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        limits = [limit for limit in (self.task.horizon, max_episode_steps) if limit is not None]
        self._horizon = min(limits, default=np.inf)
        self._crawl = Crawl(self.task, num_envs)
        # Episodes are kept as the epoch in which each began, so that a step need not count them.
        self._clock = 0  # epochs stepped
        self._begun = np.full(num_envs, np.inf)  # on the clock; infinite before the first reset
        self._next_end = np.inf  # the clock when the next episode is over
        self._over = np.zeros(num_envs, dtype=bool)  # truncated, and not yet reset
        self._any_over = False
        self._ready = False

    @property
    def world(self) -> World:
        """What really waits at the sources, live: for evaluation and planning, not for agents."""
        return self._crawl.world

    @property
    def harvest(self) -> Harvest:
        """What the last epoch's crawls brought."""
        return self._crawl.harvest

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        if seed is not None and not isinstance(seed, (int, np.integer)):
            raise ValueError(
                f"seed is {seed!r}; give one number, from which all environments are seeded"
            )
        super().reset(seed=None if seed is None else int(seed))
        options = dict(options or {})
        mask = self._reset_mask(options.pop("reset_mask", None))
        self._crawl.reset(self.np_random, mask, options)
        self._begin(mask)
        self._over[mask] = False
        self._any_over = bool(self._over.any())
        return self._crawl.observe(), {}

    def step(
        self, actions: ArrayLike
    ) -> tuple[NDArray[np.float32], FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        if not self._ready:
            raise gym.error.ResetNeeded(
                "call env.reset() before the first env.step(), for all environments"
            )
        if self._any_over and self.autoreset_mode is AutoresetMode.DISABLED:
            raise gym.error.ResetNeeded(
                f"environments {np.flatnonzero(self._over).tolist()} are over; reset them with "
                'options={"reset_mask": …} before the next step'
            )
        reward = self._crawl.step(actions, self._np_random)  # type: ignore[arg-type]
        self._clock += 1
        if self._any_over:  # NEXT_STEP: what these did is replaced by their reset
            reward = np.where(self._over, 0.0, reward)
            self._restart(self._over)
            self._over = np.zeros(self.num_envs, dtype=bool)
        self._any_over = self._clock >= self._next_end
        if self._any_over:
            self._over = self._clock - self._begun >= self._horizon
        truncated = self._over.copy()
        info: dict[str, Any] = {}
        if self._any_over and self.autoreset_mode is AutoresetMode.SAME_STEP:
            info = self._final(self._crawl.observe())
            self._restart(self._over)
            self._over = np.zeros(self.num_envs, dtype=bool)
            self._any_over = False
        observation = self._crawl.observe()
        return observation, reward, np.zeros(self.num_envs, dtype=bool), truncated, info

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the whole state, its random generator included."""
        generator = deepcopy(self.np_random.bit_generator.state)
        episode = {"elapsed": self._clock - self._begun, "over": self._over.copy()}
        return {**self._crawl.get_state(), **episode, "generator": generator}

    def set_state(self, state: dict[str, Any]) -> NDArray[np.float32]:
        """Return to a state of `get_state`, as if never left; return the observations there."""
        self._crawl.set_state(state)
        self._begun, self._over = self._clock - state["elapsed"], state["over"].copy()
        self._any_over = bool(self._over.any())
        self._begin(np.zeros(self.num_envs, dtype=bool))
        self.np_random.bit_generator.state = deepcopy(state["generator"])
        return self._crawl.observe()

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """Return one picture (H, W, 3) for each environment."""
        from crawl_env import rendering

        if self.render_mode is None:
            gym.logger.warn("render() needs render_mode='rgb_array'; give it to gym.make_vec")
            return None
        return rendering.pictures(self._crawl, self._clock - self._begun)

    def _restart(self, rows: BoolArray) -> None:
        self._crawl.reset(self.np_random, rows)
        self._begin(rows)

    def _begin(self, rows: BoolArray) -> None:
        self._begun[rows] = self._clock
        self._next_end = float(self._begun.min() + self._horizon)
        self._ready = bool(np.isfinite(self._begun).all())

    def _final(self, observation: NDArray[np.float32]) -> dict[str, Any]:
        """Return the last observations of episodes, laid out as SyncVectorEnv does."""
        last = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(self._over):
            last[i] = observation[i]
        over = self._over.copy()
        return {"final_obs": last, "_final_obs": over, "final_info": {}, "_final_info": over.copy()}

    def _reset_mask(self, mask: object) -> BoolArray:
        if mask is None:
            return np.ones(self.num_envs, dtype=bool)
        if not (isinstance(mask, np.ndarray) and mask.dtype == bool):
            raise TypeError(f"options['reset_mask'] is {mask!r}; give an array of bools")
        if mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(
                f"options['reset_mask'] must have shape ({self.num_envs},) and reset at least one "
                f"environment; it has shape {mask.shape} and {int(mask.sum())} set"
            )
        return mask


def _check_whole(name: str, number: object) -> None:
    whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
    if not whole or number < 1:  # type: ignore[operator]
        raise ValueError(f"{name} is {number!r}; it must be a whole number of at least 1")
