"""CrawlVectorEnv: many environments of one task, advanced together."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Unpack, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from crawl_env.content.indexing import Ledger
from crawl_env.content.world import World
from crawl_env.envs.spec import TruthfulSpec
from crawl_env.errors import check_choice, check_whole, shown
from crawl_env.numerics import BoolArray, FloatArray, IntArray, Written
from crawl_env.rng import check_seed
from crawl_env.simulation.simulation import Harvest, Simulation, check_state, reset_options
from crawl_env.simulation.task import Fleet, Task, TaskOptions, suggest_arguments


class CrawlVectorEnv(  # type: ignore[misc]  # `spec` is a property
    TruthfulSpec,
    Written,
    gym.vector.VectorEnv[NDArray[np.float32], NDArray[np.float32], NDArray[Any]],
):
    """`num_envs` environments like `CrawlEnv`, in one array program.

    All of them use one random generator. Observations are (B, N, F), actions (B, N), rewards
    (B,) float64. To save a fifth of the time of a step, `info` is empty except for the final
    observations under `SAME_STEP`; `harvest` has the crawls of the last step, and `ledger` what
    became of the items if there is an indexing engine.

    Arguments:
        num_envs: B.
        sources, …, unchanged_cost: as in `CrawlEnv`.
        max_episode_steps: truncate after this many steps, if this is below `horizon`.
        autoreset_mode: `NEXT_STEP` (default), `SAME_STEP` or `DISABLED`; the last is used with
            `reset(options={"reset_mask": (B,) bool})`, as in Gymnasium's own vector environments.
        render_mode: "rgb_array" (a picture of each environment) or None.

    >>> vec = gym.make_vec("EphemeralCrawl-v0", num_envs=3, vectorization_mode="vector_entry_point")
    >>> vec.reset(seed=0)[0].shape
    (3, 4, 1)
    """

    observation_space: spaces.Box[np.float32]
    action_space: spaces.Box[np.float32]
    single_observation_space: spaces.Box[np.float32]
    single_action_space: spaces.Box[np.float32]

    @suggest_arguments
    def __init__(
        self,
        num_envs: int = 1,
        sources: Fleet = "table1",
        budget: float = 1.0,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        self.num_envs = num_envs = check_whole("num_envs", num_envs)
        if max_episode_steps is not None:
            check_whole("max_episode_steps", max_episode_steps, what="steps")
        if render_mode is not None:
            check_choice("render_mode", render_mode, ["rgb_array"])
        self.task = Task(sources, budget, **options)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": 4,
            "autoreset_mode": self.autoreset_mode,
        }
        self.render_mode = render_mode
        self.single_observation_space = self.task.observation_space
        self.single_action_space = self.task.action_space
        self.observation_space = _batch(self.single_observation_space, num_envs)
        self.action_space = _batch(self.single_action_space, num_envs)
        limits = [limit for limit in (self.task.horizon, max_episode_steps) if limit is not None]
        self._episode_length = min(limits, default=None)
        self._horizon = np.inf if self._episode_length is None else self._episode_length
        self._simulation = self._simulate()
        # The starting step of each episode is stored, so that no counter needs an update per step.
        self._clock = 0  # steps taken
        self._begun = np.full(num_envs, np.inf)  # on the clock; infinite before the first reset
        self._next_end = np.inf  # time on the clock at which the next episode ends
        self._over = np.zeros(num_envs, dtype=bool)  # truncated and not yet reset
        self._any_over = False
        self._ready = False

    def _simulate(self) -> Simulation:
        return Simulation(self.task, self.num_envs)

    @property
    def world(self) -> World:
        """The true state, not a copy; for evaluation and planning, not for agents."""
        return self._simulation.world

    @property
    def harvest(self) -> Harvest:
        """The crawls of the last step and what they collected."""
        return self._simulation.harvest

    @property
    def looked(self) -> IntArray:
        """The cells that were looked at in the last step, environment · N + source, (K,)."""
        return self._simulation.looked

    @property
    def spent(self) -> FloatArray:
        """Budget units spent in the last step, (B,)."""
        return self._simulation.spent

    @property
    def ledger(self) -> Ledger | None:
        """The outcomes of the items of the last step, (B, 2) each; None without an engine."""
        queue = self.world.queue
        return None if queue is None else queue.ledger

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        if isinstance(seed, list | tuple):
            raise ValueError(
                f"seed is {shown(seed)}; give one number, since all environments have one random "
                "generator"
            )
        super().reset(seed=check_seed(seed))
        options = reset_options(options)
        mask = self._reset_mask(options.pop("reset_mask", None))
        self._simulation.reset(self.np_random, mask, options)
        self._begin(mask)
        self._over[mask] = False
        self._any_over = bool(self._over.any())
        return self._simulation.observe(), {}

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
        simulation, rng = self._simulation, cast("np.random.Generator", self._np_random)
        observation, reward, info = simulation.step(actions, rng)
        self._clock += 1
        if self._any_over:  # NEXT_STEP: the step of these environments is replaced by their reset
            reward[self._over] = 0.0
            self._restart(self._over)
            self._over = np.zeros(self.num_envs, dtype=bool)
            observation = simulation.observe()
        self._any_over = self._clock >= self._next_end
        if self._any_over:
            self._over = self._clock - self._begun >= self._horizon
        truncated = self._over.copy()
        if self._any_over and self.autoreset_mode is AutoresetMode.SAME_STEP:
            info = self._final(observation)
            self._restart(self._over)
            self._over = np.zeros(self.num_envs, dtype=bool)
            self._any_over = False
            observation = simulation.observe()
        return observation, reward, np.zeros(self.num_envs, dtype=bool), truncated, info

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the whole state, including that of the random generator."""
        generator = deepcopy(self.np_random.bit_generator.state)
        episode = {"elapsed": self._clock - self._begun, "over": self._over.copy()}
        return {**self._simulation.get_state(), **episode, "generator": generator}

    def set_state(self, state: dict[str, Any], *, seed: int | None = None) -> NDArray[np.float32]:
        """Restore a state returned by `get_state`; return its observations.

        `seed` gives another future, see `CrawlEnv.set_state`.
        """
        check_state(state, self.num_envs)
        future = None if seed is None else self._simulation.generator(seed)
        # The state has the streams beside it, which a reset without a seed continues.
        self.world.seed_beside(self.np_random)
        self._simulation.set_state(state)
        self._begun, self._over = self._clock - state["elapsed"], state["over"].copy()
        self._any_over = bool(self._over.any())
        self._begin(np.zeros(self.num_envs, dtype=bool))
        if future is None:
            self.np_random.bit_generator.state = deepcopy(state["generator"])
        else:
            self.np_random = future
            self.world.seed_beside(future)
        return self._simulation.observe()

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """Return a picture (H, W, 3) of each environment."""
        from crawl_env import rendering

        if self.render_mode is None:
            gym.logger.warn("render() needs render_mode='rgb_array'; pass it to gym.make_vec")
            return None
        return rendering.pictures(self._simulation, self._clock - self._begun)

    def _restart(self, envs: BoolArray) -> None:
        self._simulation.reset(self.np_random, envs)
        self._begin(envs)

    def _begin(self, envs: BoolArray) -> None:
        self._begun[envs] = self._clock
        self._next_end = float(self._begun.min() + self._horizon)
        self._ready = bool(np.isfinite(self._begun).all())

    def _final(self, observation: NDArray[np.float32]) -> dict[str, Any]:
        """Return the final observations of episodes in the layout of SyncVectorEnv."""
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
                f"options['reset_mask'] has shape {mask.shape} and {int(mask.sum())} entries set; "
                f"it must have shape ({self.num_envs},) and reset at least one environment"
            )
        return mask


def _batch(space: spaces.Box[np.float32], num_envs: int) -> spaces.Box[np.float32]:
    return cast("spaces.Box[np.float32]", batch_space(space, num_envs))
