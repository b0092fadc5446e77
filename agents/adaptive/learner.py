"""`ThompsonLearner`: Thompson sampling trained in one environment and then evaluated frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agents.adaptive.base import UnitArms
from agents.adaptive.policies import Thompson
from agents.learning.arms import CrawlArms
from agents.learning.base import Learner
from agents.learning.storage import check_generator, check_like
from agents.policies.base import ObservationView, arrays_of, with_arrays
from crawl_env import Task
from crawl_env.numerics import FloatArray


@dataclass(frozen=True)
class AdaptiveSettings:
    """Hyper-parameters; none was tuned. The prior is `agents.inference.weak_prior`."""

    estimator: str = "gamma-poisson"  # one of `agents.inference.ESTIMATORS`


class ThompsonLearner(Learner[AdaptiveSettings]):
    """`Thompson` trained in one environment, and frozen afterwards.

    The frozen policy uses the index of Theorem 1 with the posterior mean of each arrival rate. The
    model, the mean utilities and the decay rates are given, unlike for the other learners; one
    parameter per source is learnt.

    Raises:
        ValueError: the arms are not a `CrawlVectorEnv` of one fleet with num_envs=1, or the
            features are not `age`, `crawled`, `harvest`.

    >>> from crawl_env import CrawlVectorEnv
    >>> env = CrawlVectorEnv(1, budget=2, features=("age", "crawled", "harvest"), horizon=None)
    >>> agent = ThompsonLearner(env).learn(50)
    >>> agent.score(agent.arms.state()).shape
    (1, 4)
    """

    name = Thompson.name  # in the leaderboard of the learners: the agent that is frozen
    state_features = ("age", "crawled", "harvest")
    estimates_index = True
    prior_knowledge = "the model"
    Settings = AdaptiveSettings

    def setup(self) -> None:
        if not isinstance(self.arms, CrawlArms):
            raise ValueError(f"{self.name} is trained on crawls only; give it a CrawlVectorEnv")
        task: Task = self.arms.env.task
        if task.features != self.state_features or task.draw is not None:
            raise ValueError(
                f"{self.name} learns one fleet from the features {', '.join(self.state_features)}, "
                f"in this order; the environment has {', '.join(task.features)}"
                + (" of fleets drawn anew" if task.draw is not None else "")
            )
        if self.arms.shape[0] != 1:
            raise ValueError(
                f"{self.name} is trained in one environment, and there are {self.arms.shape[0]}; "
                "make the vector environment with num_envs=1"
            )
        seed = int(self.rng.integers(2**32))
        self._agent = Thompson(task, seed=seed, estimator=self.settings.estimator)
        self._memory: Any = None  # None before the first step
        fleet = task.sources
        self._unit = UnitArms(fleet.mean_utility, fleet.decay_rate, fleet.cost, fleet.period)

    def update(self) -> dict[str, float]:
        state = self.arms.state().astype(np.float32)
        priority, self._memory = self._agent.predict(state, self._memory)
        step = self.arms.step(np.asarray(priority, dtype=np.float32))
        return {"reward per step": float(step.reward.sum(axis=-1).mean())}

    def score(self, state: FloatArray) -> FloatArray:
        age = np.maximum(state[..., 0], 1.0).astype(np.float64)
        return self._unit.index_at_age(np.broadcast_to(self.rate(), age.shape), age)

    def rate(self) -> FloatArray:
        """Return the posterior means of the arrival rates, (N,) items / time."""
        mean = self._agent.posterior(self._memory).mean
        return np.broadcast_to(mean, self.arms.shape[:2])[0].copy()

    def has_diverged(self, learnt: dict[str, Any]) -> bool:
        """Return False: it counts, and what it does not use is NaN."""
        return False

    def state_dict(self) -> dict[str, Any]:
        generator = self._agent.rng.bit_generator.state
        memory = None if self._memory is None else list(arrays_of(self._memory))
        return {"known": memory, "generator": generator}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        memory = state["known"]
        if memory is not None:
            task = self._agent.task
            template = self._agent.begin(ObservationView(np.zeros((task.n, 3)), task))
            own = list(arrays_of(template))
            multiplier = own.pop(1)  # the multiplier, which is NaN
            memory = [*memory[:1], *memory[2:]] if isinstance(memory, list) else memory
            check_like(memory, own, "known")
            check_like(memory[:2], own[:2], "known", low=0.0)  # clock and ages
            memory = with_arrays(template, iter([memory[0], multiplier, *memory[1:]]))
            if not all((np.isfinite(x) & (x > 0)).all() for x in self._agent.posterior(memory)):
                raise ValueError("the state has estimates that are not positive and finite")
        check_generator(state["generator"], self._agent.rng.bit_generator.state, "generator")
        self._memory = memory
        self._agent.rng.bit_generator.state = state["generator"]
