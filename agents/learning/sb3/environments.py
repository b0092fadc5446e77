"""What Stable-Baselines3's algorithms step, and the chance they draw from, so that both go on
exactly where they were left."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

from agents.learning.arms import check_order, check_same, described
from crawl_env import CrawlEnv, CrawlVectorEnv, TaskArguments
from crawl_env.envs.sb3 import CrawlVecEnv
from crawl_env.envs.wrappers import SequentialSelection
from crawl_env.simulation.selection import TOLERANCE

_TRANSITIONS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


class Rows:
    """As many rows of the same task as an environment has, as a `VecEnv`.

    Arguments:
        env: tells the task and the number of rows; it is not stepped itself. Episodes end at the
            task's `horizon`.
        sequential: whether each epoch is K picks, by `SequentialSelection`.

    Raises:
        ValueError: actions are no priorities, the budget may be saved up, or the number of picks
            would differ from epoch to epoch.
    """

    def __init__(self, env: CrawlVectorEnv, sequential: bool) -> None:
        task = env.task
        check_order(task)
        self._env, self._sequential = env, sequential
        self.picks = picks(env) if sequential else 1
        self.venv = MeanReward(self.vec_env(task.arguments), self.picks)
        # Where the next step begins; empty before the first reset.
        self.observation: NDArray[np.float32] = np.empty(0, dtype=np.float32)
        self.starts: NDArray[np.bool_] = np.ones(env.num_envs, dtype=bool)

    def vec_env(self, arguments: TaskArguments) -> VecEnv:
        """Return the rows, made with the arguments of an environment."""
        if not self._sequential:
            return CrawlVecEnv(self._env.num_envs, **arguments)
        make: Any = lambda: SequentialSelection(CrawlEnv(**arguments))  # noqa: E731
        return DummyVecEnv([make] * self._env.num_envs)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(B, N, F)."""
        return self._env.num_envs, self._env.task.n, len(self._env.task.features)

    @property
    def features(self) -> tuple[str, ...]:
        return self._env.task.features

    def get_state(self) -> dict[str, Any]:
        states = self.venv.env_method("get_state", indices=None if self._sequential else [0])
        return {"task": described(self._env), "envs": states, "starts": self.starts.copy()}

    def set_state(self, state: dict[str, Any]) -> None:
        check_same(self._env, state["task"])
        seen = [
            self.venv.env_method("set_state", one, indices=[i])[0]
            for i, one in enumerate(state["envs"])
        ]
        space: Any = self.venv.observation_space
        self.observation = np.stack(seen).reshape(-1, *space.shape)
        self.starts = state["starts"].copy()


class MeanReward(VecNormalize):
    """Rewards in units of the mean reward per epoch seen so far, less what a step earns on average.

    As in SB3's `VecNormalize`, replay buffers keep the rewards themselves and scale what they
    sample. Centred rewards keep values close to 0, where networks begin (A. Naik et al.: Reward
    centering, RLC 2024); with the horizon open, they change no preference.
    """

    def __init__(self, venv: VecEnv, picks: int) -> None:
        super().__init__(venv, norm_obs=False)
        self.picks = picks  # steps per epoch
        self.total, self.steps = 0.0, 0

    @property
    def mean(self) -> float:
        """Utility per epoch and row; 1 where nothing was earned."""
        return self.picks * self.total / self.steps if self.total > 0 else 1.0

    def normalize_reward(self, reward: NDArray[Any]) -> NDArray[np.float32]:
        return (reward / self.mean - 1 / self.picks).astype(np.float32)

    def _update_reward(self, reward: NDArray[Any]) -> None:
        self.total += float(reward.sum())
        self.steps += reward.size


class Chance:
    """The global generators of numpy and torch as one agent has left them.

    SB3 draws from these. Lent to it only while it works, they neither disturb the caller's nor
    depend on them. Python's own, which SB3 seeds and does not use, is put back as well.
    """

    def __init__(self) -> None:
        self.state: dict[str, Any] | None = None

    @contextmanager
    def lent(self) -> Iterator[None]:
        before, python = _generators(), random.getstate()
        if self.state is not None:
            _set_generators(self.state)
        try:
            yield
        finally:
            self.state = _generators()
            _set_generators(before)
            random.setstate(python)


def _generators() -> dict[str, Any]:
    numpy = np.random.get_state(legacy=False)  # noqa: NPY002 - it is what SB3 draws from
    return {"numpy": numpy, "torch": torch.get_rng_state().numpy()}


def _set_generators(state: dict[str, Any]) -> None:
    np.random.set_state(state["numpy"])  # noqa: NPY002
    torch.set_rng_state(torch.from_numpy(state["torch"]))


def picks(env: CrawlVectorEnv) -> int:
    """Return how many sources an epoch crawls, the same in every epoch.

    Raises:
        ValueError: costs differ, or some sources cannot be crawled at times.
    """
    task = env.task
    cost = task.sources.cost
    delayed = bool((task.sources.crawl_delay > 0).any())
    if task.draw is not None or cost.min() != cost.max() or delayed or task.sources.hosts:
        raise ValueError(
            "picks one after the other are learnt where every epoch has as many: of one fleet with "
            "equal costs, without crawl delays or shared hosts. Use 'ppo', 'a2c', 'sac' or 'td3'"
        )
    return min(task.n, int(task.budget * (1 + TOLERANCE) / float(cost[0])))


def kept(buffer: Any) -> dict[str, Any]:
    """Return what a replay buffer holds."""
    held = {name: getattr(buffer, name)[: buffer.size()].copy() for name in _TRANSITIONS}
    return {**held, "pos": buffer.pos, "full": buffer.full}


def put_back(buffer: Any, held: dict[str, Any]) -> None:
    """Fill a replay buffer, unless it is for another number of rows: then it begins empty."""
    if held["rewards"].shape[1] != buffer.n_envs:
        return
    for name in _TRANSITIONS:
        getattr(buffer, name)[: len(held[name])] = held[name]
    buffer.pos, buffer.full = held["pos"], held["full"]
