"""What learners of one network for all fleets share: they practise in several, and play in any."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from agents.learning.arms import check_order
from agents.learning.choice import perturbed, priority_of
from agents.learning.learner import Learner
from agents.learning.practice import Practice, Practices
from agents.policies.base import ObservationView
from crawl_env import CrawlVectorEnv, Task
from crawl_env.envs.unwrap import task_of


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
