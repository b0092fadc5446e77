"""Base classes of learners with one network for all fleets, which are trained in several
environments and act in any."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from agents.learning.arms import (
    check_autoreset_mode,
    check_budget_rule,
    check_collected,
    check_env_state,
    check_same_task,
    task_description,
)
from agents.learning.base import Learner
from agents.learning.storage import check_keys, check_like
from agents.policies.base import ObservationView, Policy, State
from crawl_env import CrawlVectorEnv, Sources, Task
from crawl_env.envs.torch_env import TorchCrawlVectorEnv, usable_device
from crawl_env.envs.unwrap import task_of
from crawl_env.numerics import FloatArray
from crawl_env.rng import generator, seed_sequence

_DECAY = 0.98  # per step, of the exponential moving average of rewards


class TrainingEnv:
    """A vector environment, its current observation, and the recent mean reward of each copy.

    All arrays are tensors on the device of the learner. If the environment is on the same device,
    as a `TorchCrawlVectorEnv` may be, nothing is copied from or to host memory.

    Arguments:
        env: the environment.
        seed: its seed.
        device: torch device of the learner.
    """

    observation: Tensor  # (B, N, F) float32, in natural units

    def __init__(self, env: CrawlVectorEnv, seed: int, device: str = "cpu") -> None:
        check_autoreset_mode(env)
        self.env, self._device = env, torch.device(device)
        self._on_tensors = isinstance(env, TorchCrawlVectorEnv)
        self._observe(env.reset(seed=seed)[0])
        zeros = torch.zeros(env.num_envs, dtype=torch.float64, device=self._device)
        self._truncated = zeros > 0
        self._reward_sum, self._weight_sum = zeros, zeros.clone()
        self._fleet: Sources | None = None  # whose cost is `_cost`

    @property
    def mean_reward(self) -> Tensor:
        """(B,) recent mean reward per step, utility, since the last reset."""
        return self._reward_sum / self._weight_sum.clamp_min(1.0)

    @property
    def cost(self) -> Tensor:
        """(B, N) cost of a crawl, in units of M/N, the budget per step and source."""
        world = self.env.world
        if self._fleet is not world.sources:
            b, n = world.shape
            cost = np.broadcast_to(world.sources.cost, (b, n)) * n / self.env.task.budget
            self._fleet, self._cost = world.sources, self._moved(cost)
        return self._cost

    def step(self, priority: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Take a step; return which sources were crawled, (B, N), the reward of each, (B, N), and
        whether each environment took a step rather than being reset, (B,)."""
        action: Any = priority if self._on_tensors else priority.cpu().numpy()
        observation, _, _, truncated, _ = self.env.step(action)
        self._observe(observation)
        crawled, value = (self._moved(x) for x in self.env.harvest[:2])
        valid = ~self._truncated
        active = torch.zeros(priority.numel(), dtype=torch.bool, device=self._device)
        reward = torch.zeros(priority.numel(), dtype=torch.float64, device=self._device)
        active[crawled], reward[crawled] = True, value.double()
        active, reward = active.reshape(priority.shape), reward.reshape(priority.shape)
        total = _DECAY * self._reward_sum + reward.sum(-1)
        self._reward_sum = torch.where(valid, total, 0.0)
        self._weight_sum = torch.where(valid, _DECAY * self._weight_sum + 1.0, 0.0)
        self._truncated = self._moved(truncated)
        return active, reward, valid

    def _observe(self, observation: Any) -> None:
        task = self.env.task
        if self._on_tensors and task.scales is None:
            observation = observation.reshape(-1, task.n, len(task.features))
        else:  # scaled features are mapped back in host memory
            observation = task.natural(observation).astype(np.float32, copy=False)
        self.observation = self._moved(observation)

    def _moved(self, array: Any) -> Tensor:
        return torch.as_tensor(array, device=self._device)

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the time-dependent state, in host memory."""
        return {
            "env": self.env.get_state(),
            "truncated": self._truncated.cpu().numpy().copy(),
            "reward_sum": self._reward_sum.cpu().numpy().copy(),
            "weight_sum": self._weight_sum.cpu().numpy().copy(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state returned by `get_state` after validating it."""
        own = self.get_state()
        check_keys(state, own, "environment")
        for name in ("truncated", "reward_sum", "weight_sum"):
            check_like(state[name], own[name], name, low=0.0)
        check_env_state(state["env"], own["env"])
        self._observe(self.env.set_state(state["env"]))
        self._truncated, self._reward_sum, self._weight_sum = (
            self._moved(state[name].copy()) for name in ("truncated", "reward_sum", "weight_sum")
        )


class TrainingEnvs:
    """Several training environments, whose states are saved together.

    Raises:
        ValueError: there is none, or their features differ.
    """

    def __init__(self, envs: Sequence[CrawlVectorEnv], seed: int, device: str = "cpu") -> None:
        features = {env.task.features for env in envs}
        if len(features) != 1:
            raise ValueError(
                f"{len(envs)} environments have {len(features)} sets of features; give at least "
                "one environment, and all the same `features` in the same order"
            )
        seeds = seed_sequence(seed, "training-environments").generate_state(len(envs))
        self.all = [TrainingEnv(env, int(s), device) for env, s in zip(envs, seeds, strict=True)]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(B, 0, F): the learnt parameters do not depend on the number of sources."""
        num_envs = sum(one.env.num_envs for one in self.all)
        return num_envs, 0, len(self.all[0].env.task.features)

    def get_state(self) -> dict[str, Any]:
        return {
            "tasks": [task_description(one.env) for one in self.all],
            "envs": [one.get_state() for one in self.all],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        check_keys(state, ("tasks", "envs"), "arms")
        if not len(state["envs"]) == len(state["tasks"]) == len(self.all):
            raise ValueError(
                f"this agent is trained in {len(self.all)} environments, the saved one in "
                f"{len(state['envs'])}; resume in the same ones"
            )
        for one, saved in zip(self.all, state["tasks"], strict=True):
            check_same_task(one.env, saved)
        for one, its in zip(self.all, state["envs"], strict=True):
            one.set_state(its)


class FleetPolicy(Policy):
    """Crawls the sources with the largest scores, in any task with the features of training.

    A subclass implements `score`.

    Raises:
        ValueError: the budget rule is "average".
    """

    def __init__(self, task: Task, rng: np.random.Generator) -> None:
        check_budget_rule(task)
        self.task, self._rng = task, rng

    def score(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return scores of any sign: (B, N, F) to (B, N)."""
        raise NotImplementedError

    def priority(self, view: ObservationView) -> FloatArray:
        return squashed(self._scores(view)).astype(np.float64)

    def sample(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        """Return priorities of the scores with a standard Gumbel variable added to each."""
        score = torch.from_numpy(self._scores(view))
        perturbed = gumbel_perturbed(score, torch_generator(self._rng, "cpu"))
        return squashed(perturbed).double().numpy(), state

    def _scores(self, view: ObservationView) -> NDArray[np.float32]:
        return self.score(np.ascontiguousarray(view.array, dtype=np.float32))


S = TypeVar("S")
A = TypeVar("A", Tensor, NDArray[np.float32])


class FleetLearner(Learner[S]):
    """Base class of these learners. A subclass implements `policy` and the methods of `Learner`.

    Arguments:
        arms: one vector environment, or several (of any N and M), in each of which it is trained.
            `sources` may be drawn at each reset. With a `TorchCrawlVectorEnv` on the same device,
            training does not leave it.
        settings, seed, device: as in `Learner`; `settings.n_steps` is the steps per update.

    Raises:
        ValueError: the features of the environments differ, actions are not priorities, or the
            budget rule is "average".
    """

    arms_type = TrainingEnvs
    size_settings = ("hidden",)
    features: tuple[str, ...]  # features used, in the order of training

    def __init__(
        self,
        arms: CrawlVectorEnv | Sequence[CrawlVectorEnv],
        settings: S | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        envs = [arms] if isinstance(arms, CrawlVectorEnv) else arms
        if not (isinstance(envs, Sequence) and all(isinstance(e, CrawlVectorEnv) for e in envs)):
            raise ValueError(
                f"{arms!r} is neither a CrawlVectorEnv nor a list of them; use gym.make_vec, "
                'vectorization_mode="vector_entry_point"'
            )
        for env in envs:
            self.check_task(env.task)
        device = str(usable_device(device))
        training_envs: Any = TrainingEnvs(envs, seed, device)
        self.features = envs[0].task.features
        super().__init__(training_envs, settings, seed, device)
        self.task: Task = envs[0].task
        self.steps_per_update = self.settings.n_steps  # type: ignore[attr-defined]
        self._sampling_rng = self._policy_rng()

    def check_task(self, task: Task) -> None:
        """Raise ValueError unless it can learn in the task."""
        check_budget_rule(task)
        check_collected(task)

    def policy(self, task: Task, rng: np.random.Generator) -> FleetPolicy:
        """Return the learnt policy for a task."""
        raise NotImplementedError

    def policy_for(self, env: Any) -> FleetPolicy:
        """Return the learnt policy for any environment with the features of training.

        Raises:
            ValueError: a feature is missing, or the actions are not priorities.
        """
        return self.policy(task_of(env), self._policy_rng())

    def decide(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        return self.policy(self.task, self._sampling_rng).decide(view, state)

    def sample(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        return self.policy(self.task, self._sampling_rng).sample(view, state)

    @classmethod
    def load(cls, path: str | PathLike[str], arms: Any, device: str = "cpu") -> Self:
        """Return a saved agent for one or several environments; see `Learner.load`."""
        return super().load(path, arms, device)

    def _restore(self, path: str | PathLike[str], saved: dict[str, Any]) -> None:
        names = _features_of(path, saved)
        features = self.training_envs[0].env.task.features
        if set(names) != set(features):
            raise ValueError(
                f"{path}: the agent was trained on the features {', '.join(names)}, and the "
                f"environment has {', '.join(features)}; give one with the same, in any order"
            )
        if names != self.features:
            self.features = names
            self.setup()
        super()._restore(path, saved)

    @property
    def training_envs(self) -> list[TrainingEnv]:
        """The environments in which it is trained."""
        envs: Any = self.arms
        return list(envs.all)

    def _policy_rng(self) -> np.random.Generator:
        """Return a new generator for policies that sample."""
        return generator(self.seed, "learner-policy")


def _features_of(path: str | PathLike[str], saved: dict[str, Any]) -> tuple[str, ...]:
    try:
        return tuple(str(name) for name in saved["arms"]["tasks"][0]["features"])
    except (LookupError, TypeError) as error:
        raise ValueError(f"{path}: the features of training are missing ({error!r})") from None


@torch.no_grad()
def polyak_update(network: nn.Module, other: nn.Module, tau: float) -> None:
    """Move every weight by the fraction `tau` towards that of another network."""
    torch._foreach_lerp_(list(network.parameters()), list(other.parameters()), tau)


def averaging_weight(updates: int, power: float) -> float:
    """Return the weight of the latest of `updates` networks in their running mean.

    In the long run the n-th network has a weight proportional to n^(power − 1), so that early, poor
    networks lose weight faster than in the plain mean. As the mean covers more and more networks, a
    long run does not end worse than a short one.

    >>> averaging_weight(1, 4.0), averaging_weight(2, 4.0)
    (1.0, 0.8)
    """
    return power / (updates + power - 1)


def gumbel_perturbed(score: Tensor, generator: Generator) -> Tensor:
    """Return scores with independent standard Gumbel variables added, all of them finite."""
    noise = torch.empty_like(score).exponential_(generator=generator)
    return score - noise.clamp_min_(torch.finfo(score.dtype).tiny).log_()


def torch_generator(rng: np.random.Generator, device: str) -> Generator:
    """Return a generator on a device, seeded by the next number of another."""
    return Generator(device).manual_seed(int(rng.integers(2**63)))


def squashed(score: A) -> A:
    """Return scores of any sign as priorities in (−1, 1), in the same order: s/(1 + |s|)."""
    return score / (1 + abs(score))
