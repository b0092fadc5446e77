"""What learners of one network for all fleets share: they practise in several, and play in any."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from agents.learning.arms import check_last_states, check_order, check_same, described
from agents.learning.base import Learner
from agents.policies.base import ObservationView
from crawl_env import CrawlVectorEnv, Task
from crawl_env.envs.unwrap import task_of
from crawl_env.numerics import FloatArray

BoolArray = NDArray[np.bool_]

_FADING = 0.98  # weight of an epoch's reward against the next one's, in a row's mean


class Practice:
    """One vector environment, what it shows now, and what each of its rows earns per epoch."""

    def __init__(self, env: CrawlVectorEnv, seed: int) -> None:
        check_order(env.task)
        check_last_states(env)
        self.env = env
        self.observation, _ = env.reset(seed=seed)
        self._over = np.zeros(env.num_envs, dtype=bool)
        self._earned, self._epochs = np.zeros(env.num_envs), np.zeros(env.num_envs)

    @property
    def gain(self) -> FloatArray:
        """(B,) recent mean reward per epoch, utility, since the last reset."""
        return self._earned / np.maximum(self._epochs, 1.0)

    @property
    def cost(self) -> FloatArray:
        """(B, N) of a crawl, in units of M/N, what an epoch pays for each source on average."""
        b, n = self.env.world.shape
        cost = np.broadcast_to(self.env.world.sources.cost, (b, n))
        return cost * n / self.env.task.budget

    def step(self, priority: NDArray[np.float32]) -> tuple[BoolArray, FloatArray, BoolArray]:
        """Crawl for an epoch; return what was crawled, (B, N), what it brought, (B, N), and the
        rows that were crawled rather than reset, (B,)."""
        shape = priority.shape
        self.observation, _, _, truncated, _ = self.env.step(priority)
        picked, value, *_ = self.env.harvest
        valid = ~self._over
        active, reward = np.zeros(shape, dtype=bool), np.zeros(shape)
        active.reshape(-1)[picked] = True
        reward.reshape(-1)[picked] = value
        self._earned = np.where(valid, _FADING * self._earned + reward.sum(axis=-1), 0.0)
        self._epochs = np.where(valid, _FADING * self._epochs + 1.0, 0.0)
        self._over = truncated
        return active, reward, valid

    def get_state(self) -> dict[str, Any]:
        own = {"over": self._over, "earned": self._earned, "epochs": self._epochs}
        return {"env": self.env.get_state(), **{name: x.copy() for name, x in own.items()}}

    def set_state(self, state: dict[str, Any]) -> None:
        self.observation = self.env.set_state(state["env"])
        self._over, self._earned = state["over"].copy(), state["earned"].copy()
        self._epochs = state["epochs"].copy()


class Practices:
    """Several of them, whose state is saved as one.

    Raises:
        ValueError: there is none, or they show different features.
    """

    def __init__(self, envs: Sequence[CrawlVectorEnv], seed: int) -> None:
        shown = {env.task.features for env in envs}
        if len(shown) != 1:
            raise ValueError(
                f"{len(envs)} environments show {len(shown)} sets of features; give at least one "
                "environment, and all the same `features` in the same order"
            )
        seeds = np.random.SeedSequence(seed, spawn_key=(5,)).generate_state(len(envs))
        self.all = [Practice(env, int(s)) for env, s in zip(envs, seeds, strict=True)]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rows, 0, D): what is learnt is of no particular number of sources."""
        rows = sum(practice.env.num_envs for practice in self.all)
        return rows, 0, len(self.all[0].env.task.features)

    def get_state(self) -> dict[str, Any]:
        return {
            "tasks": [described(practice.env) for practice in self.all],
            "practices": [practice.get_state() for practice in self.all],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        if len(state["practices"]) != len(self.all):
            raise ValueError(
                f"this agent practises in {len(self.all)} environments, the saved one in "
                f"{len(state['practices'])}; go on in the same ones"
            )
        for practice, saved in zip(self.all, state["tasks"], strict=True):
            check_same(practice.env, saved)
        for practice, its in zip(self.all, state["practices"], strict=True):
            practice.set_state(its)


class FleetPolicy:
    """Crawls what has the largest score, in a task that need not be one it was learnt in.

    A subclass has `score`.

    Raises:
        ValueError: actions are no priorities, or the budget may be saved up.
    """

    def __init__(self, task: Task, rng: np.random.Generator) -> None:
        check_order(task)
        self._task, self._rng = task, rng

    def score(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return scores of any sign: (B, N, F) to (B, N)."""
        raise NotImplementedError

    def predict(
        self,
        observation: ArrayLike,
        state: Any = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[np.float32], Any]:
        """Return priorities for one observation (N, F) or a batch (B, N, F), and the state.

        Not deterministic: with a standard Gumbel variable added to each score.

        Raises:
            ValueError: the observation is none of the task.
        """
        single = ObservationView(observation, self._task).single
        array = np.ascontiguousarray(observation, dtype=np.float32)
        score = self.score(array[None] if single else array)
        if not deterministic:
            score = perturbed(score, self._rng)
        priority = priority_of(score)
        return (priority[0] if single else priority), state


class FleetLearner(Learner):
    """Base of these learners. A subclass has `policy`, beside what `Learner` asks for.

    Arguments:
        arms: one vector environment, or several (of any N and M), each of which is practised in
            turn. `sources` may be drawn anew at each reset.
        settings, seed, device: as of `Learner`; `settings.window` is the epochs of an improvement.

    Raises:
        ValueError: environments that show different features, or none of whose actions are
            priorities under a budget in every epoch.
    """

    shares = True
    world = Practices
    features: tuple[str, ...]  # that are read, in the order in which they were learnt from

    def __init__(
        self,
        arms: CrawlVectorEnv | Sequence[CrawlVectorEnv],
        settings: Any = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        envs = [arms] if isinstance(arms, CrawlVectorEnv) else arms
        if not (isinstance(envs, Sequence) and all(isinstance(e, CrawlVectorEnv) for e in envs)):
            raise ValueError(
                f"{arms!r} is no CrawlVectorEnv, nor a list of them; make one with gym.make_vec, "
                'vectorization_mode="vector_entry_point"'
            )
        practices: Any = Practices(envs, seed)
        self.features = envs[0].task.features
        super().__init__(practices, settings, seed, device)
        self.task: Task = envs[0].task
        self.epochs_at_once = self.settings.window  # type: ignore[misc]
        self._chance = self._of_play()

    def policy(self, task: Task, rng: np.random.Generator) -> FleetPolicy:
        """Return what has been learnt, to be played in a task."""
        raise NotImplementedError

    def on(self, env: Any) -> FleetPolicy:
        """Return what has been learnt, to be played in any environment that shows its features.

        Raises:
            ValueError: it does not show them, or its actions are no priorities.
        """
        return self.policy(task_of(env), self._of_play())

    def predict(
        self,
        observation: ArrayLike,
        state: Any = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[np.float32], Any]:
        """Return priorities for one observation (N, F) or a batch (B, N, F) of the (first)
        environment, and the state; see `on` for others."""
        own = self.policy(self.task, self._chance)
        return own.predict(observation, state, episode_start, deterministic)

    @classmethod
    def load(cls, path: str | PathLike[str], arms: Any, device: str = "cpu") -> Self:
        """Return a saved agent for one or several environments; see `Learner.load`."""
        return super().load(path, arms, device)

    def _remember(self, path: str | PathLike[str], saved: dict[str, Any]) -> None:
        learnt = tuple(saved["arms"]["tasks"][0]["features"])
        shown = self.practices[0].env.task.features
        if set(learnt) != set(shown):
            raise ValueError(
                f"{path}: it has learnt from the features {', '.join(learnt)}, and the environment "
                f"shows {', '.join(shown)}; give one that shows the same, in any order"
            )
        if learnt != self.features:
            self.features = learnt
            self.prepare()
        super()._remember(path, saved)

    @property
    def practices(self) -> list[Practice]:
        """What is practised in."""
        practices: Any = self.arms
        return list(practices.all)

    def _of_play(self) -> np.random.Generator:
        """Return the generator of chance in play."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(4,)))


@torch.no_grad()
def follow(network: nn.Module, other: nn.Module, share: float) -> None:
    """Move every weight by a share of the way to another's."""
    torch._foreach_lerp_(list(network.parameters()), list(other.parameters()), share)


def fresh_share(improvements: int, latest: float) -> float:
    """Return the weight of the latest of so many networks in their mean, in which that of the n-th
    is in the long run as n^(latest − 1). Early networks are poor: they fade faster than an even
    mean has it. And as the mean is of ever more of them, a long run ends no worse than a short one.

    >>> fresh_share(1, 4.0), fresh_share(2, 4.0)
    (1.0, 0.8)
    """
    return latest / (improvements + latest - 1)


def perturbed(score: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Return scores with independent standard Gumbel variables added, all of them finite."""
    drawn = rng.standard_exponential(score.shape, dtype=np.float32)
    return score - np.log(np.maximum(drawn, np.finfo(np.float32).tiny))  # it can be 0 in float32


def priority_of(score: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return scores of any sign as priorities in (−1, 1), in the same order: s/(1 + |s|)."""
    return score / (1 + np.abs(score))
