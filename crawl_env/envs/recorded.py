"""The environments of recorded tasks, whose logs are read when they are made."""

from __future__ import annotations

from typing import Any

from crawl_env.benchmark import named
from crawl_env.envs.env import CrawlEnv
from crawl_env.envs.vector_env import CrawlVectorEnv


def recorded_env(task: str, **changes: Any) -> CrawlEnv:
    """Return the environment of a recorded task, by name; `changes` replace its arguments.

    Raises:
        ValueError: the recording is not there, or it is another one.
    """
    return CrawlEnv(**{**named(task).environment, **changes})


recorded_env.metadata = CrawlEnv.metadata  # type: ignore[attr-defined]  # gym.make reads it


def recorded_vector_env(num_envs: int, task: str, **changes: Any) -> CrawlVectorEnv:
    """Return `num_envs` environments of a recorded task; see `recorded_env`."""
    return CrawlVectorEnv(num_envs, **{**named(task).environment, **changes})
