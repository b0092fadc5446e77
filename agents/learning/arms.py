"""The world as learners see it: many arms, each in a state, some of which are activated.

Learners take nothing else from it. Their tests put finite chains with known indices in its place.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from crawl_env import CrawlVectorEnv
from crawl_env.errors import unknown
from crawl_env.numerics import FloatArray

BoolArray = NDArray[np.bool_]


class Step(NamedTuple):
    """What one epoch brought to B rows of N arms."""

    active: BoolArray  # (B, N) which arms were activated
    reward: FloatArray  # (B, N)
    state: FloatArray  # (B, N, D) in which the arms are now


class Arms(Protocol):
    """B rows of N arms, of which some are activated in each epoch."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(B, N, D): rows, arms, numbers in a state."""

    @property
    def share(self) -> float:
        """M/N: the share of the arms, by cost, that an epoch activates."""

    @property
    def cost(self) -> FloatArray:
        """(N,) of activating each arm."""

    def state(self) -> FloatArray:
        """Return the states, (B, N, D)."""

    def step(self, priority: NDArray[np.float32]) -> Step:
        """Activate the arms of largest priority, (B, N) in [−1, 1], and let an epoch pass."""

    def get_state(self) -> dict[str, Any]:
        """Return a copy of all that changes with time."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Return to a state of `get_state`."""


class CrawlArms:
    """The sources of a crawl as arms: what a source brought is its reward.

    Arguments:
        env: whose features show `crawled`, `harvest` and those that make up the state.
        features: the columns of the state. `crawled`, `harvest`, `failed` and `account` are none.
        seed: of the crawl.

    Raises:
        ValueError: a feature that is needed is not shown, or actions are no priorities.
    """

    def __init__(self, env: CrawlVectorEnv, features: tuple[str, ...], seed: int = 0) -> None:
        task = env.task
        for name in ("crawled", "harvest", *features):
            if name not in task.features:
                raise ValueError(
                    f"learning needs the feature {name!r}, and the environment shows "
                    f"{', '.join(task.features)}; add it to `features`"
                )
        if task.action != "priority":
            raise unknown("action for learning", task.action, ["priority"])
        self.env = env
        self._column = {name: task.features.index(name) for name in task.features}
        self._state = [self._column[name] for name in features]
        self._seen, _ = env.reset(seed=seed)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.env.num_envs, self.env.task.n, len(self._state)

    @property
    def share(self) -> float:
        task = self.env.task
        return min(1.0, task.budget / float(task.sources.cost.sum()))

    @property
    def cost(self) -> FloatArray:
        return self.env.task.sources.cost

    def state(self) -> FloatArray:
        return self._seen[..., self._state].astype(np.float64)

    def step(self, priority: NDArray[np.float32]) -> Step:
        self._seen, *_ = self.env.step(priority)
        active = self._seen[..., self._column["crawled"]] > 0
        reward = self._seen[..., self._column["harvest"]].astype(np.float64)
        return Step(active, reward, self.state())

    def get_state(self) -> dict[str, Any]:
        return self.env.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        self._seen = self.env.set_state(state)
