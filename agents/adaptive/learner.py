"""Adaptive agents among the learners: what a crawl taught them, frozen, and played."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agents.adaptive.policies import Adaptive, Thompson, at_rate_one
from agents.learning.arms import CrawlArms
from agents.learning.base import Learner
from agents.theory.index import index_at_age
from crawl_env import Task
from crawl_env.numerics import FloatArray


@dataclass(frozen=True)
class AdaptiveSettings:
    """Nothing was tuned: the prior is the weak one of `agents.adaptive.evidence`."""

    estimator: str = "gamma-poisson"  # of `agents.adaptive.ESTIMATORS`


class AdaptiveLearner(Learner[AdaptiveSettings]):
    """An adaptive agent that crawls to learn, in one row, and is then played frozen.

    What is played is Theorem 1's index with the mean of what it believes of each rate: so it is
    told the model, mean utilities and decay rates, of which learners know nothing, and learns
    one number of each source.

    Raises:
        ValueError: the arms are no crawl of one fleet in one row, or show others than the features
            `age`, `crawled`, `harvest`.

    >>> from crawl_env import CrawlVectorEnv
    >>> env = CrawlVectorEnv(1, budget=2, features=("age", "crawled", "harvest"), horizon=None)
    >>> agent = ThompsonLearner(env).learn(50)
    >>> agent.score(agent.arms.state()).shape
    (1, 4)
    """

    state_features = ("age", "crawled", "harvest")
    estimates_index = True
    prior_knowledge = "the model"
    Settings = AdaptiveSettings
    agent: type[Adaptive]

    def setup(self) -> None:
        if not isinstance(self.arms, CrawlArms):
            raise ValueError(f"{self.name} knows crawls alone; give it a CrawlVectorEnv")
        task: Task = self.arms.env.task
        if task.features != self.state_features or task.draw is not None:
            raise ValueError(
                f"{self.name} learns one fleet from the features {', '.join(self.state_features)}, "
                f"in this order; the environment shows {', '.join(task.features)}"
                + (" of fleets drawn anew" if task.draw is not None else "")
            )
        if self.arms.shape[0] != 1:
            raise ValueError(
                f"{self.name} learns from one crawl, and the environment has {self.arms.shape[0]} "
                "side by side; make it with num_envs=1"
            )
        seed = int(self.rng.integers(2**32))
        self._agent = self.agent(task, seed=seed, estimator=self.settings.estimator)
        self._known: Any = None  # before the first epoch
        self._model = at_rate_one(task.sources)

    def update(self) -> dict[str, float]:
        state = self.arms.state().astype(np.float32)
        priority, self._known = self._agent.predict(state, self._known)
        step = self.arms.step(np.asarray(priority, dtype=np.float32))
        return {"reward per step": float(step.reward.sum(axis=-1).mean())}

    def score(self, state: FloatArray) -> FloatArray:
        return self.rate() * index_at_age(np.maximum(state[..., 0], 1.0), self._model)

    def rate(self) -> FloatArray:
        """Return what is believed of the arrival rates, (N,) items / time."""
        mean = self._agent.believed(self._known).mean
        return np.broadcast_to(mean, self.arms.shape[:2])[0].copy()

    def state_dict(self) -> dict[str, Any]:
        chance = self._agent.rng.bit_generator.state
        return {"known": None if self._known is None else list(self._known), "chance": chance}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._known = None if state["known"] is None else tuple(state["known"])
        self._agent.rng.bit_generator.state = state["chance"]


class ThompsonLearner(AdaptiveLearner):
    """`Thompson`, frozen: see `AdaptiveLearner`."""

    name = "adaptive-thompson"
    agent = Thompson
