"""The task behind a wrapped environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from crawl_env.simulation.task import Task

_MADE = "make one with gym.make('EphemeralCrawl-v0', sources=…), or give a crawl_env.Task"
_REMEDY = (
    "Pass the environment without that wrapper, such as env.unwrapped, and use the wrapper when "
    "stepping"
)


def task_of(env: Any) -> Task:
    """Return the task that an environment poses, looking through wrappers and vector envs.

    Raises:
        ValueError: it is not an EphemeralCrawl environment, or a wrapper changes observations or
            actions.
    """
    if isinstance(env, Task):
        return env
    wrappers, task = unwrapped(env)
    for wrapper in wrappers:
        refuse_changes(wrapper)
    observation = getattr(env, "single_observation_space", env.observation_space)
    if observation != task.observation_space:
        raise ValueError(
            f"the environment's observations are {observation}, changed by a wrapper from "
            f"{task.observation_space}; agents identify sources and features by position. {_REMEDY}"
        )
    action = getattr(env, "single_action_space", env.action_space)
    if action != task.action_space and not _only_unbounded(action, task.action_space):
        raise ValueError(
            f"the environment's actions are {action}, changed by a wrapper from "
            f"{task.action_space}. {_REMEDY}"
        )
    return task


def unwrapped(env: Any) -> tuple[list[Any], Task]:
    """Return the wrappers of an environment, outermost first, and the task of the innermost one.

    Raises:
        ValueError: it is not an EphemeralCrawl environment.
    """
    wrappers: list[Any] = []
    while hasattr(env, "__dict__"):
        own = vars(env)
        inner = next((own[name] for name in ("env", "venv", "vector_env") if name in own), None)
        if inner is None and own.get("envs"):
            inner = own["envs"][0]
        if inner is None:
            task = getattr(env, "task", None)
            if not isinstance(task, Task):
                task = _task_elsewhere(env)
            if task is None:
                raise ValueError(f"{env} is not an EphemeralCrawl environment; {_MADE}")
            return wrappers, task
        wrappers.append(env)
        env = inner
    raise ValueError(f"{env!r} is not an environment; {_MADE}")


def _task_elsewhere(env: Any) -> Task | None:
    """Query environments that run in other processes."""
    try:
        if hasattr(env, "has_attr") and not env.has_attr("portable_task"):
            return None  # the query would crash Stable-Baselines3's workers
        tasks = env.get_attr("portable_task")
    except AttributeError:
        return None
    return tasks[0] if isinstance(tasks[0], Task) else None


def refuse_changes(env: Any) -> None:
    """Raise ValueError for wrappers that change observations or actions, if not their spaces."""
    changes = isinstance(env, gym.ObservationWrapper | gym.vector.VectorObservationWrapper)
    # VecNormalize is recognised by its method, since Stable-Baselines3 is optional.
    if changes or vars(env).get("norm_obs") is True:
        raise ValueError(
            f"{type(env).__name__} changes observations, which agents identify by position and "
            f"expect in the environment's units. {_REMEDY}"
        )
    acts = isinstance(env, gym.ActionWrapper | gym.vector.VectorActionWrapper)
    if acts and type(env).__name__ != "ClipAction":  # ClipAction leaves agents' actions unchanged
        raise ValueError(
            f"{type(env).__name__} changes actions, which agents compute for the environment's own "
            f"action space. {_REMEDY}"
        )


def _only_unbounded(action: object, target: object) -> bool:
    """Return whether the bounds are infinite, as ClipAction sets them; it changes nothing else."""
    return (
        isinstance(action, spaces.Box)
        and isinstance(target, spaces.Box)
        and action.shape == target.shape
        and bool(np.isinf(action.low).all() and np.isinf(action.high).all())
    )
