"""What an agent is shown: named columns of the observation, completed by the known parameters."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crawl_env import Sources, Task
from crawl_env.fleet.parameters import CONSTRAINTS, PARAMETERS
from crawl_env.numerics import FloatArray


class Seen:
    """One batch of observations of a task, (B, N, F), by the names of its features.

    Raises:
        ValueError: the observation is not (N, F) or (B, N, F) of this task.
    """

    def __init__(self, observation: ArrayLike, task: Task) -> None:
        array = np.asarray(observation)
        shape = (task.n, len(task.features))
        if array.ndim not in (2, 3) or array.shape[-2:] != shape:
            raise ValueError(
                f"the observation has shape {array.shape}; this agent was made for {shape}, or a "
                "batch of it. Remove wrappers that flatten, stack or change observations"
            )
        self.single = array.ndim == 2
        self._array = array.reshape(-1, *shape)
        self._task = task

    @property
    def batch(self) -> int:
        return len(self._array)

    def shows(self, feature: str) -> bool:
        return feature in self._task.features

    def __getitem__(self, feature: str) -> FloatArray:
        """Return one channel, (B, N) float64."""
        return self._array[..., self._task.features.index(feature)].astype(np.float64)

    @cached_property
    def sources(self) -> Sources:
        """The parameters: of the constant fleet, (N,); from the channels where it is drawn anew."""
        if self._task.draw is None:
            return self._task.sources
        columns: Any = {name: self[name] for name in PARAMETERS}
        shape = columns["cost"].shape
        limits: Any = {
            p: np.broadcast_to(getattr(self._task.sources, p), shape) for p in CONSTRAINTS
        }
        limits["hosts"] = self._task.sources.hosts
        return Sources(**columns, **limits, period=self._task.sources.period)

    @cached_property
    def value(self) -> FloatArray:
        """What waits where observed, else its mean given what is known, (B, N) utility."""
        return self["value"] if self.shows("value") else self.sources.content_at(self["age"])


def needs(task: Task, agent: str, *any_of: str) -> None:
    """Raise ValueError unless the task shows one of the features to the agent."""
    if not set(any_of) & set(task.features):
        raise ValueError(
            f"agent {agent!r} needs one of the features {', '.join(any_of)}; the environment shows "
            f"{', '.join(task.features)}. Add one to `features`"
        )


def needs_parameters(task: Task, agent: str) -> None:
    """Raise ValueError where fleets are drawn anew and the observation does not describe them."""
    missing = [name for name in PARAMETERS if name not in task.features]
    if task.draw is not None and missing:
        raise ValueError(
            f"agent {agent!r} plans with the sources' parameters, and this environment draws new "
            f"ones at each reset; add {', '.join(missing)} to `features`"
        )
