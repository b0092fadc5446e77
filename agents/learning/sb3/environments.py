"""Environments and random generators of Stable-Baselines3's algorithms, with states that can be
saved, so that training can be resumed exactly."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

from agents.learning.arms import (
    check_budget_rule,
    check_env_state,
    check_same_task,
    task_description,
)
from agents.learning.fleet.networks import ScaledColumns
from agents.learning.storage import check_generator, check_keys, check_like
from crawl_env import CrawlEnv, CrawlVectorEnv, TaskArguments
from crawl_env.envs.sb3 import CrawlVecEnv
from crawl_env.envs.wrappers import SequentialSelection
from crawl_env.fleet.drawn import DrawnFleet
from crawl_env.simulation.selection import TOLERANCE

_TRANSITIONS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


class TrainingVecEnv:
    """A `VecEnv` with the task and the number of environments of a vector environment.

    Arguments:
        env: vector environment with the task and the number of environments; it is not stepped.
            Episodes end at the task's `horizon`.
        sequential: whether each step is a sequence of K picks (`SequentialSelection`).

    Raises:
        ValueError: actions are not priorities, the budget rule is "average", or the number of picks
            would differ between steps.
    """

    def __init__(self, env: CrawlVectorEnv, sequential: bool) -> None:
        task = env.task
        check_budget_rule(task)
        self.env, self._sequential = env, sequential
        self.picks = picks(env) if sequential else 1
        plain: TaskArguments = {**task.arguments, "flat": False, "scaled": False}
        self.venv = CenteredReward(self.vec_env(plain), self.picks)

    def vec_env(self, arguments: TaskArguments) -> VecEnv:
        """Return the environments, each made with these arguments."""
        if not self._sequential:
            return CrawlVecEnv(self.env.num_envs, **arguments)
        make: Any = lambda: SequentialSelection(CrawlEnv(**arguments))  # noqa: E731
        return DummyVecEnv([make] * self.env.num_envs)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(B, N, F)."""
        return self.env.num_envs, self.env.task.n, len(self.env.task.features)

    @property
    def features(self) -> tuple[str, ...]:
        return self.env.task.features

    def columns(self) -> ScaledColumns:
        """Return the map from observations of the `VecEnv` to the columns of its policies."""
        task, picked = self.env.task, ("picked",) if self._sequential else ()
        return ScaledColumns((*task.features, *picked), task.budget, task.sources.period)

    def get_state(self) -> dict[str, Any]:
        states = self.venv.env_method("get_state", indices=None if self._sequential else [0])
        return {"task": task_description(self.env), "envs": states}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state of `get_state`, in which the next reset leaves the environments."""
        own, venv = self.get_state(), self.venv
        check_keys({name: state[name] for name in own if name in state}, own, "arms")
        check_same_task(self.env, state["task"])
        if not isinstance(state["envs"], list) or len(state["envs"]) != len(own["envs"]):
            raise ValueError(f"arms.envs must be a list of {len(own['envs'])} environments")
        observations = []
        for i, (one, mine) in enumerate(zip(state["envs"], own["envs"], strict=True)):
            check_env_state(one, mine, f"env {i}")
            observations += venv.env_method("set_state", one, indices=[i])
        space: Any = venv.observation_space
        venv.restored = np.stack(observations).reshape(-1, *space.shape)


class CenteredReward(VecNormalize):
    """Centred rewards in units of the running mean reward per step.

    As in SB3's `VecNormalize`, replay buffers store the raw rewards and scale what they sample.
    Centred rewards keep values close to 0, where networks start (A. Naik et al.: Reward centering,
    RLC 2024); without a horizon they change no preference.
    """

    def __init__(self, venv: VecEnv, picks: int) -> None:
        super().__init__(venv, norm_obs=False)
        self.picks = picks  # per step of the environment
        self.total, self.steps = 0.0, 0
        # The observation of the state that was restored, which the next reset keeps.
        self.restored: NDArray[np.float32] | None = None

    @property
    def mean(self) -> float:
        """Utility per step and environment; 1 if nothing was earned."""
        return self.picks * self.total / self.steps if self.total > 0 else 1.0

    def normalize_reward(self, reward: NDArray[Any]) -> NDArray[np.float32]:
        return (reward / self.mean - 1 / self.picks).astype(np.float32)

    def reset(self) -> Any:
        if self.restored is None:
            return super().reset()
        self.old_obs, self.restored = self.restored, None
        return self.old_obs

    def step_wait(self) -> Any:
        observation, self.old_reward, done, infos = self.venv.step_wait()
        assert isinstance(observation, np.ndarray)
        self.old_obs = observation
        self.total += float(self.old_reward.sum())
        self.steps += self.old_reward.size
        return observation, self.normalize_reward(self.old_reward), done, infos


class GlobalGenerators:
    """The states of numpy's and torch's global generators that belong to one agent.

    SB3 draws from the global generators. They have this agent's states only while SB3 runs, so that
    the agent neither changes the caller's random numbers nor depends on them. Python's generator,
    which SB3 seeds and does not use, is restored as well.
    """

    def __init__(self) -> None:
        self.state: dict[str, Any] | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
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
    numpy = np.random.get_state(legacy=False)  # noqa: NPY002 - SB3 draws from it
    return {"numpy": numpy, "torch": torch.get_rng_state().numpy()}


def _set_generators(state: dict[str, Any]) -> None:
    np.random.set_state(state["numpy"])  # noqa: NPY002
    torch.set_rng_state(torch.from_numpy(state["torch"]))


def picks(env: CrawlVectorEnv) -> int:
    """Return the number of sources that every step crawls.

    Raises:
        ValueError: costs differ, or some sources are not always available.
    """
    task = env.task
    cost = task.sources.cost
    delayed = bool((task.sources.crawl_delay > 0).any())
    unequal = cost.min() != cost.max() or not isinstance(task.draw, DrawnFleet | None)
    if unequal or delayed or task.sources.hosts:
        raise ValueError(
            "sequential picks need the same number of picks in every step: equal costs, which of "
            "the fleets drawn at reset only those named drawn-… are known to have, and neither "
            "crawl delays nor shared hosts. Use 'ppo', 'a2c', 'sac' or 'td3'"
        )
    return min(task.n, int(task.budget * (1 + TOLERANCE) / float(cost[0])))


def buffer_state(buffer: Any) -> dict[str, Any]:
    """Return the content of a replay buffer."""
    arrays = {name: getattr(buffer, name)[: buffer.size()].copy() for name in _TRANSITIONS}
    return {**arrays, "pos": buffer.pos, "full": buffer.full}


def check_buffer(buffer: Any, state: Any) -> None:
    """Raise ValueError unless loaded content fits a replay buffer, whatever the number of
    environments."""
    check_keys(state, (*_TRANSITIONS, "pos", "full"), "buffer")
    check_like([state["pos"], state["full"]], [buffer.pos, buffer.full], "buffer position")
    rewards = state["rewards"]
    if not isinstance(rewards, np.ndarray) or rewards.ndim != 2:
        raise ValueError("buffer.rewards must have shape (steps, environments)")
    length, num_envs = rewards.shape
    if num_envs == buffer.n_envs:
        if state["pos"] >= buffer.buffer_size:
            raise ValueError(f"buffer.pos is {state['pos']}; it must be below {buffer.buffer_size}")
        steps = buffer.buffer_size if state["full"] else state["pos"]
        if length != steps:
            raise ValueError(f"buffer.rewards has {length} steps; it must have {steps}")
    for name in _TRANSITIONS:
        own = getattr(buffer, name)
        like = np.empty((length, num_envs, *own.shape[2:]), own.dtype)
        check_like(state[name], like, f"buffer.{name}")


def restore_buffer(buffer: Any, state: dict[str, Any]) -> None:
    """Fill a replay buffer with validated content.

    The buffer starts empty if the content has another number of environments.
    """
    if state["rewards"].shape[1] != buffer.n_envs:
        return
    for name in _TRANSITIONS:
        getattr(buffer, name)[: len(state[name])] = state[name]
    buffer.pos, buffer.full = state["pos"], state["full"]


def check_generators(saved: Any, own: dict[str, Any]) -> None:
    """Raise ValueError unless loaded states of the global generators fit."""
    check_keys(saved, own, "generators")
    check_generator(saved["numpy"], own["numpy"], "generators.numpy")
    check_like(saved["torch"], own["torch"], "generators.torch")
    try:
        torch.Generator().set_state(torch.from_numpy(saved["torch"].copy()))
    except RuntimeError as error:
        raise ValueError(f"generators.torch is not the state of a generator: {error}") from None
