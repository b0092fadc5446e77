"""What is evaluated besides agents: trained models of Stable-Baselines3, and functions.

They may use another form of the observation (flat, scaled, normalised) and of the action (the
number of a subset) than agents do.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from agents.policies.base import Policy, State
from crawl_env import CrawlVectorEnv, Task
from crawl_env.envs.subsets import subsets_of
from crawl_env.envs.unwrap import refuse_changes, unwrapped
from crawl_env.envs.wrappers import SequentialSelection, SubsetAction, VectorSubsetAction

_ELSEWHERE = (
    "a model that needs another wrapper can be evaluated with Stable-Baselines3's evaluate_policy"
)


def task_posed(env: Any) -> Task:
    """Return the task of an environment, whose actions may be subsets and whose observations may be
    normalised by `VecNormalize`.

    Raises:
        ValueError: another wrapper changes observations or actions.
    """
    if isinstance(env, Task):
        return env
    wrappers, task = unwrapped(env)
    for wrapper in wrappers:
        if not (isinstance(wrapper, SubsetAction | VectorSubsetAction) or _normalises(wrapper)):
            refuse_changes(wrapper)
    return task


def form_of(model: Any) -> dict[str, bool]:
    """Return `flat` and `scaled` for observations in the form that an agent or a model was made
    for."""
    task = getattr(model, "task", None)
    if isinstance(task, Task):
        return {"flat": task.flat, "scaled": task.scaled}
    space = getattr(model, "observation_space", None)
    if not isinstance(space, spaces.Box):
        return {}
    return {"flat": len(space.shape) == 1, "scaled": bool(np.isfinite(space.high).all())}


def check_has_task(agent: Policy) -> Policy:
    """Return an agent; raise ValueError if its `__init__` has not called that of `Agent`."""
    if not hasattr(agent, "task"):
        raise ValueError(
            f"the agent is a {type(agent).__name__} without a task; call "
            "super().__init__(env, seed=seed) in its __init__"
        )
    return agent


def check_agent(agent: Policy, task: Task) -> Policy:
    """Return an agent; raise ValueError if it was made for other observations than the task's."""
    own = check_has_task(agent).task
    if own.features != task.features:
        raise ValueError(
            f"the agent was made for the features {own.features}, and this environment shows "
            f"{task.features}; give the environment the features of the agent, in that order"
        )
    scale, own_scale = task.scales, own.scales
    if scale is not None and own_scale is not None and not np.array_equal(scale, own_scale, True):
        raise ValueError(
            f"the agent was made for observations scaled by {own_scale}, and those of this "
            f"environment are scaled by {scale}, since its sources or its budget differ; make the "
            "agent for this environment, or without `scaled`"
        )
    return agent


class Model:
    """A trained model of Stable-Baselines3, or a similar object with `predict`.

    Observations are normalised by the `VecNormalize` of the model's environment, if there is one.

    Raises:
        ValueError: the model was trained on other observations or actions than those of `env`.
    """

    def __init__(self, model: Any, env: CrawlVectorEnv) -> None:
        self._model = model
        trained_in = _environment(model)
        vec_wrappers = list(_vec_wrappers(trained_in))
        self._normalisers = [one for one in reversed(vec_wrappers) if _normalises(one)]
        _check_wrappers(trained_in, env.task)
        _check_observations(getattr(model, "observation_space", None), env)
        _check_actions(getattr(model, "action_space", None), env)

    def predict(
        self,
        observation: NDArray[Any],
        state: State | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], State | None]:
        for normaliser in self._normalisers:
            observation = normaliser.normalize_obs(observation)
        prediction: tuple[NDArray[Any], State | None] = self._model.predict(
            observation, state, episode_start, deterministic
        )
        return prediction


class Function:
    """A function from the observation of one environment to its action."""

    def __init__(self, function: Callable[[NDArray[Any]], Any], env: CrawlVectorEnv) -> None:
        self._function, self._n = function, env.task.n
        self._shape = env.task.action_space.shape  # (2, N) with looks

    def predict(
        self,
        observation: NDArray[Any],
        state: State | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], State | None]:
        actions = [self._action(one) for one in observation]
        if len({action.shape for action in actions}) > 1:
            raise ValueError(
                "the function returned priorities for one observation and the number of a subset "
                "for another; return the same for all"
            )
        return np.stack(actions), None

    def _action(self, observation: NDArray[Any]) -> NDArray[Any]:
        value = self._function(observation)
        if hasattr(value, "detach"):  # a tensor of PyTorch, of which gradients may be required
            value = value.detach().cpu()
        try:
            action: NDArray[Any] = np.asarray(value)
        except ValueError:  # a nested list of unequal lengths, or a pair such as `predict` returns
            action = np.empty(0)
        a_subset = action.shape == () and action.dtype.kind in "iu"
        priorities = action.shape in {(self._n,), self._shape} and action.dtype.kind in "fiub"
        if not a_subset and not priorities:
            raise ValueError(
                f"the function returned {value!r} for an observation of shape {observation.shape}, "
                f"that of one environment; return {self._n} priorities, or the number of a subset "
                "(an action of SubsetAction). A function that makes an agent for an environment "
                "must name its parameter `env`"
            )
        return action


def makes_agents(function: Callable[..., Any]) -> bool:
    """Return whether a function maps the vector environment, its parameter `env`, to an agent."""
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    return parameters[:1] == ["env"]


def _environment(model: Any) -> Any:
    """Return the environment of a model, or None if it is not a model with environments."""
    get_env = getattr(model, "get_env", None)
    if not callable(get_env):
        return None
    env = get_env()
    if env is None:
        warnings.warn(
            "the model has no environment, so it gets observations as they are. If it was trained "
            "through VecNormalize, load it with PPO.load(path, env=VecNormalize.load(…, env))",
            stacklevel=2,
        )
    return env


def _vec_wrappers(env: Any) -> Iterator[Any]:
    while env is not None:
        yield env
        env = vars(env).get("venv")


def _normalises(wrapper: Any) -> bool:
    # VecNormalize is recognised by its attributes, since Stable-Baselines3 is optional.
    return hasattr(wrapper, "normalize_obs") and vars(wrapper).get("norm_obs") is True


def _check_wrappers(trained_in: Any, task: Task) -> None:
    """Raise ValueError if the model needs wrappers that are not applied here, or other features."""
    try:
        wrappers, trained_on = unwrapped(trained_in)
    except ValueError:  # no environment, or one of the user's own, of which the spaces are checked
        return
    applied = (SubsetAction, VectorSubsetAction, gym.wrappers.FlattenObservation)
    for wrapper in wrappers:
        if isinstance(wrapper, SequentialSelection):
            raise ValueError(
                "the model was trained with SequentialSelection, whose actions are single picks; "
                + _ELSEWHERE
            )
        if not isinstance(wrapper, applied) and not _normalises(wrapper):
            try:
                refuse_changes(wrapper)
            except ValueError:
                raise ValueError(
                    f"the model was trained with {type(wrapper).__name__}, which is not applied "
                    f"here; {_ELSEWHERE}"
                ) from None
    if trained_on.features != task.features:
        raise ValueError(
            f"the model was trained on the features {trained_on.features}, and this environment "
            f"shows {task.features}; give the environment the features of the training"
        )
    numbered = any(isinstance(wrapper, SubsetAction | VectorSubsetAction) for wrapper in wrappers)
    if numbered and subsets_of(trained_on) != subsets_of(task):
        raise ValueError(
            "the model was trained on other subsets of sources than this environment has to choose "
            "from (SubsetAction). Give it the sources and the budget of the training"
        )


def _check_observations(space: spaces.Space[Any] | None, env: CrawlVectorEnv) -> None:
    own = env.single_observation_space
    if space is None or space == own:
        return
    raise ValueError(
        f"the model was trained on observations {space}, and this environment has {own}, with the "
        f"features {env.task.features}. Give the environment the sources and features of the "
        f"training; {_ELSEWHERE}"
    )


def _check_actions(space: spaces.Space[Any] | None, env: CrawlVectorEnv) -> None:
    own = env.single_action_space
    if isinstance(space, spaces.Discrete):
        count = len(subsets_of(env.task))
        if space.n != count or space.start != 0:
            raise ValueError(
                f"the model was trained on {space.n} discrete actions, and this environment has "
                f"{count} subsets of sources to choose from (SubsetAction). Give it the sources "
                "and the budget of the training"
            )
    elif space is not None and space != own:
        raise ValueError(
            f"the model was trained on actions {space}, and this environment has {own}; "
            + _ELSEWHERE
        )
