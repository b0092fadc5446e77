"""`CrawlVecEnv`: the native vector environment as a Stable-Baselines3 VecEnv."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Unpack

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from crawl_env.envs.vector_env import CrawlVectorEnv
from crawl_env.extras import missing
from crawl_env.simulation.task import Fleet, TaskOptions, suggest_arguments

try:
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env.base_vec_env import VecEnv
except ImportError as error:  # pragma: no cover
    raise gym.error.DependencyNotInstalled(
        missing("stable_baselines3", "crawl_env.envs.sb3")
    ) from error

__all__ = ["CrawlVecEnv"]


class CrawlVecEnv(VecEnv):
    """`num_envs` environments for Stable-Baselines3, stepped in one array program.

    Episodes are monitored as by SB3's `Monitor`: at the end of one, `info["episode"]` has its
    return `r`, its length `l` in steps, and the seconds `t` since this object was made. SB3 logs
    them as `ep_rew_mean` and `ep_len_mean`, and `evaluate_policy` reports them even if a wrapper
    such as `VecNormalize` changes rewards. An episode that `set_state` has entered midway has no
    such entry, since its return is not known.

    Arguments:
        num_envs: number of environments.
        sources, …, unchanged_cost: as in `CrawlEnv`.
        max_episode_steps, render_mode: as in `CrawlVectorEnv`.

    >>> from stable_baselines3 import PPO
    >>> model = PPO("MlpPolicy", CrawlVecEnv(num_envs=64, sources="table1", budget=2), n_steps=8)
    >>> model = model.learn(512)
    """

    @suggest_arguments
    def __init__(
        self,
        num_envs: int,
        sources: Fleet = "table1",
        budget: float = 1.0,
        *,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        self.vector_env = CrawlVectorEnv(
            num_envs,
            sources,
            budget,
            max_episode_steps=max_episode_steps,
            autoreset_mode=AutoresetMode.SAME_STEP,
            render_mode=render_mode,
            **options,
        )
        self._actions: NDArray[Any] = np.empty(0)
        self._made_at = time.time()
        self._returns, self._lengths = np.zeros(num_envs), np.zeros(num_envs, dtype=int)
        self._complete = np.ones(num_envs, dtype=bool)  # whether the return of the episode is known
        super().__init__(
            num_envs,
            self.vector_env.single_observation_space,
            self.vector_env.single_action_space,
        )

    def reset(self) -> NDArray[np.float32]:
        # As in Stable-Baselines3, seeds and options are used once; one seed serves all.
        options = self._common_options()
        observation, _ = self.vector_env.reset(seed=self._seeds[0], options=options)
        self._begin(np.ones(self.num_envs, dtype=bool))
        self._reset_seeds()
        self._reset_options()
        return observation

    def _common_options(self) -> dict[str, Any] | None:
        names = {frozenset(options) for options in self._options}
        if len(names) > 1:
            raise ValueError(
                "environments were given different reset options; pass the same options to all, "
                "with arrays (num_envs, N) where values differ"
            )
        return {
            name: np.stack([np.asarray(options[name], dtype=float) for options in self._options])
            for name in next(iter(names))
        }

    def step_async(self, actions: NDArray[Any]) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[NDArray[np.float32], Any, NDArray[np.bool_], list[dict[str, Any]]]:
        observation, reward, _, over, info = self.vector_env.step(self._actions)
        self._returns += reward
        self._lengths += 1
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if over.any():
            seconds = round(time.time() - self._made_at, 6)
            for i in np.flatnonzero(over):
                infos[i] = {
                    "terminal_observation": info["final_obs"][i],
                    "TimeLimit.truncated": True,
                }
                if self._complete[i]:
                    r, n = self._returns[i].item(), self._lengths[i].item()
                    infos[i]["episode"] = {"r": r, "l": n, "t": seconds}
            self._begin(over)
        return observation, reward.astype(np.float32), over, infos

    def close(self) -> None:
        self.vector_env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.vector_env, attr_name)] * len(self._numbers(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self.vector_env, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        result = getattr(self.vector_env, method_name)(*method_args, **method_kwargs)
        if method_name == "set_state":
            self._complete[:] = False
        return [result] * len(self._numbers(indices))

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        # True for `Monitor`, so that SB3 uses the returns in `info`.
        return [wrapper_class is Monitor] * len(self._numbers(indices))

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        return self.vector_env.render() or [None] * self.num_envs

    def _begin(self, envs: NDArray[np.bool_]) -> None:
        self._returns[envs], self._lengths[envs], self._complete[envs] = 0.0, 0, True

    def _numbers(self, indices: int | Iterable[int] | None) -> list[int]:
        if indices is None:
            return list(range(self.num_envs))
        return [indices] if isinstance(indices, int) else list(indices)
