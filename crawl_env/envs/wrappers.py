"""Wrappers with discrete actions: `SequentialSelection` and `SubsetAction`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from crawl_env.envs.env import CrawlEnv
from crawl_env.envs.spec import CrawlSpec
from crawl_env.envs.subsets import Subsets, subsets_of
from crawl_env.envs.vector_env import CrawlVectorEnv
from crawl_env.numerics import FloatArray
from crawl_env.simulation.selection import TOLERANCE
from crawl_env.simulation.task import Task, TaskArguments

__all__ = ["SequentialSelection", "SubsetAction", "VectorSubsetAction"]

Observation = NDArray[np.float32]
Number = np.integer[Any] | int
Kind = TypeVar("Kind")

if TYPE_CHECKING:
    _VectorActionWrapper = gym.vector.VectorActionWrapper[
        Observation, NDArray[np.integer[Any]], Observation
    ]
else:  # not generic in Gymnasium 1.1 and 1.2
    _VectorActionWrapper = gym.vector.VectorActionWrapper


class SequentialSelection(
    gym.Wrapper[Observation, Any, Observation, Any],
    gym.utils.RecordConstructorArgs,
):
    """Splits a step into a sequence of picks, each an action of `Discrete(N)`.

    The environment advances when no further source fits the budget (after M picks at unit cost);
    the reward comes with the last pick and is 0 before. If γ is meant per step, use the discount
    factor γ^(1/M). The observation (N, F+1) has one more column: 1 for the sources picked so far
    in this step. If the environment is `flat`, so is this observation, of shape (N·(F+1),).

    `action_masks()` is True for the sources that can still be picked, as sb3-contrib's
    MaskablePPO expects. If an agent without masks picks another one, the source crawled longest
    ago among those that can be picked is taken instead.

    Raises:
        ValueError: the environment has `budget_rule="average"`, or its observations are changed by
            another wrapper.

    >>> env = SequentialSelection(gym.make("EphemeralCrawl-v0", budget=2))
    >>> observation, _ = env.reset(seed=0)
    >>> env.step(0)[1], env.action_masks().tolist(), round(env.step(1)[1], 3)
    (0.0, [False, True, True, True], 327.447)
    """

    def __init__(self, env: gym.Env[Observation, Observation]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self._inner = inner = _unwrapped(self, env, CrawlEnv)
        task = inner.task
        if task.budget_rule != "step":
            raise ValueError(
                f"SequentialSelection needs budget_rule='step'; the environment has "
                f"{task.budget_rule!r}"
            )
        box = task.observation_space
        if env.observation_space != box:
            raise ValueError(
                f"SequentialSelection found observations changed to {env.observation_space}; apply "
                "the wrapper that changes them outside this one"
            )
        self.action_space = spaces.Discrete(task.n)
        self._inner_observation: Observation = np.zeros(box.shape, dtype=np.float32)
        self._picked = np.zeros(task.n, dtype=bool)
        one = np.ones(task.n, dtype=np.float32)
        self.observation_space = spaces.Box(
            self._with_column(box.low, 0 * one), self._with_column(box.high, one), dtype=np.float32
        )
        self._ready = False

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override]
        """The specification; `max_episode_steps` counts picks, of which a step has several."""
        is_new = self._cached_spec is None
        spec = super().spec
        if is_new and isinstance(spec, CrawlSpec) and spec.max_episode_steps is not None:
            task, steps = self._inner.task, spec.max_episode_steps
            if steps != task.horizon:  # a TimeLimit inside this wrapper, which counts steps
                spec.kwargs = {**spec.kwargs, "horizon": steps}
            spec.max_episode_steps = spec.horizon = steps * _most_picks(task)
        return spec

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        self._inner_observation, info = self.env.reset(seed=seed, options=options)
        self._picked[:] = False
        self._ready = True
        return self._observation(), info

    def step(self, action: Number) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if not self._ready:
            raise gym.error.ResetNeeded("call env.reset() before the first env.step()")
        possible = self.action_masks()
        number = np.asarray(action)
        if number.size != 1 or number.dtype.kind not in "iu" or not 0 <= number < possible.size:
            raise ValueError(
                f"action is {action!r}; give the number of a source, 0 … {possible.size - 1}"
            )
        action = int(number.reshape(()))
        if not possible[action]:
            action = int(np.argmax(np.where(possible, self._inner.world.age[0], -1.0)))
        self._picked[action] = True
        if self.action_masks().any():
            return self._observation(), 0.0, False, False, {}
        priority = np.where(self._picked, 1.0, -np.inf).astype(np.float32)
        self._inner_observation, reward, terminated, truncated, info = self.env.step(priority)
        self._picked[:] = False
        return self._observation(), float(reward), terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Return a mask (N,) of the sources that can be picked now: not picked yet, affordable, and
        excluded neither by a crawl delay nor by the limit of their host."""
        cost, task = self._inner.sources.cost, self._inner.task
        budget_left = task.budget * (1 + TOLERANCE) - cost[self._picked].sum()
        possible = ~self._picked & (cost <= budget_left)
        available = self._inner.world.available
        if available is not None:
            possible &= available[0]
        host_of = self._inner.sources.host_of
        if host_of is not None:
            possible &= np.bincount(host_of, self._picked)[host_of] < task.per_host
        return possible

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the whole state: that of the environment, and the picks so far."""
        return {**self._inner.get_state(), "picked": self._picked.copy()}

    def set_state(self, state: dict[str, Any], *, seed: int | None = None) -> Observation:
        """Restore a state returned by `get_state`; return its observation.

        `seed` gives another future, see `CrawlEnv.set_state`.
        """
        self._inner_observation = self._inner.set_state(state, seed=seed)
        self._picked[:] = state.get("picked", False)  # of the environment itself: none
        self._ready = True
        return self._observation()

    def _observation(self) -> Observation:
        return self._with_column(self._inner_observation, self._picked)

    def _with_column(self, observation: Observation, column: NDArray[Any]) -> Observation:
        rows = observation.reshape(len(column), -1)
        more = np.column_stack([rows, column]).astype(np.float32)
        return more.ravel() if observation.ndim == 1 else more


class SubsetAction(
    gym.ActionWrapper[Observation, Number, Observation], gym.utils.RecordConstructorArgs
):
    """`Discrete` actions, each of which crawls a fixed set of sources.

    `subsets` lists the sets, tuples of source numbers from 0, in lexicographic order: under
    `budget_rule="step"` the maximal sets that budget and hosts allow, under "average" all sets.
    Under "step" members have equal priority. Under "average" cheaper members have higher priority,
    so that if the balance does not cover the set, its most expensive members (ties: the most
    recently crawled) are dropped. The budget that an unavailable member (crawl delay) leaves is not
    spent: no other sources are crawled.

    Raises:
        ValueError: there are more than 2¹⁶ sets, or another wrapper changes the actions; at
            `reset`, if a newly drawn fleet has other costs than the table.

    >>> env = SubsetAction(gym.make("EphemeralCrawl-v0", budget=2))
    >>> env.action_space, env.subsets[:3]
    (Discrete(6), ((0, 1), (0, 2), (0, 3)))
    >>> observation, _ = env.reset(seed=0)
    >>> round(env.step(0)[1], 3)
    327.447
    """

    def __init__(self, env: gym.Env[Observation, Observation]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self._inner = _unwrapped(self, env, CrawlEnv)
        task = _with_priorities(self, env.action_space, self._inner.task)
        self.subsets = subsets_of(task)
        self.action_space = spaces.Discrete(len(self.subsets))
        self._priorities = _priorities(self.subsets, task)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        result = self.env.reset(seed=seed, options=options)
        _refuse_other_costs(self._inner.sources.cost, self._inner.task)
        return result

    def action(self, action: Number) -> Observation:
        return self._priorities[_checked(action, (), len(self.subsets))]


class VectorSubsetAction(_VectorActionWrapper, gym.utils.RecordConstructorArgs):
    """`SubsetAction` for `CrawlVectorEnv`: actions (B,) of `MultiDiscrete`.

    >>> vec = VectorSubsetAction(CrawlVectorEnv(3, budget=2))
    >>> observation, _ = vec.reset(seed=0)
    >>> vec.step(np.array([0, 0, 5]))[1].round(3)
    array([327.447, 327.447,  53.998])
    """

    def __init__(self, env: gym.vector.VectorEnv[Any, Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self._inner = _unwrapped(self, env, CrawlVectorEnv)
        task = _with_priorities(self, env.single_action_space, self._inner.task)
        self.subsets = subsets_of(task)
        self.single_action_space = spaces.Discrete(len(self.subsets))
        self.action_space = spaces.MultiDiscrete(np.full(env.num_envs, len(self.subsets)))
        self._priorities = _priorities(self.subsets, task)

    @property
    def autoreset_mode(self) -> AutoresetMode:
        """That of the environment, which TorchRL reads."""
        return self._inner.autoreset_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        result = self.env.reset(seed=seed, options=options)
        self.check_costs()
        return result

    def check_costs(self) -> None:
        """Raise ValueError if fleets drawn at reset have other costs than the table of subsets."""
        _refuse_other_costs(self._inner.world.sources.cost, self._inner.task)

    def actions(self, actions: NDArray[np.integer[Any]]) -> Observation:
        return self._priorities[_checked(actions, (self.num_envs,), len(self.subsets))]


def discrete_env(
    *, render_mode: str | None = None, **arguments: Unpack[TaskArguments]
) -> SubsetAction:
    """Return `CrawlEnv(**arguments)` in a `SubsetAction`: the id `EphemeralCrawlDiscrete-v0`."""
    return SubsetAction(CrawlEnv(**arguments, render_mode=render_mode))


discrete_env.metadata = CrawlEnv.metadata  # type: ignore[attr-defined]  # gym.make reads it


def discrete_vector_env(
    num_envs: int = 1,
    *,
    max_episode_steps: int | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    render_mode: str | None = None,
    **arguments: Unpack[TaskArguments],
) -> VectorSubsetAction:
    """Return `CrawlVectorEnv(num_envs, **arguments)` in a `VectorSubsetAction`."""
    env = CrawlVectorEnv(
        num_envs,
        **arguments,
        max_episode_steps=max_episode_steps,
        autoreset_mode=autoreset_mode,
        render_mode=render_mode,
    )
    return VectorSubsetAction(env)


def _unwrapped(wrapper: object, env: Any, kind: type[Kind]) -> Kind:
    inner = env.unwrapped
    if not isinstance(inner, kind):
        raise ValueError(
            f"{type(wrapper).__name__} wraps EphemeralCrawl environments ({kind.__name__}), not "
            f"{inner}; apply it to an environment made by gym.make or gym.make_vec"
        )
    return inner


def _with_priorities(wrapper: object, space: spaces.Space[Any], task: Task) -> Task:
    if space != task.action_space:
        raise ValueError(
            f"{type(wrapper).__name__} found actions changed to {space}; apply the wrapper that "
            "changes them outside this one"
        )
    return task


def _most_picks(task: Task) -> int:
    """Return the largest number of sources that one step can crawl."""
    if task.draw is not None:
        return task.n
    total = np.cumsum(np.sort(task.sources.cost))
    return int(np.searchsorted(total, task.budget * (1 + TOLERANCE), side="right"))


def _priorities(subsets: Subsets, task: Task) -> Observation:
    """Return priorities (subsets, N) for which the environment crawls each of the subsets."""
    member = np.ones(task.n)
    if task.budget_rule == "average":  # ranks of the cost, which are distinct in float32
        member -= np.unique(task.sources.cost, return_inverse=True)[1] / task.n
    priorities = np.full((len(subsets), task.n), -np.inf, dtype=np.float32)
    for row, subset in zip(priorities, subsets, strict=True):
        row[list(subset)] = member[list(subset)]
    return priorities


def _checked(action: Any, shape: tuple[int, ...], count: int) -> NDArray[np.integer[Any]]:
    numbers = np.asarray(action)
    if numbers.dtype.kind not in "iu" or numbers.size != math.prod(shape):
        raise ValueError(
            f"action is {action!r}; give the number of a subset, an integer from 0 to {count - 1}"
            + (f", for each of the {shape[0]} environments" if shape else "")
        )
    if numbers.min() < 0 or numbers.max() >= count:
        raise ValueError(f"action is {action!r}; subsets are numbered 0 … {count - 1}")
    return numbers.reshape(shape)


def _refuse_other_costs(cost: FloatArray, task: Task) -> None:
    if task.draw is not None and not np.array_equal(
        cost, np.broadcast_to(task.sources.cost, cost.shape)
    ):
        raise ValueError(
            "the callable `sources` changed the costs, on which the table of subsets depends; "
            "keep them, or use the environment without the wrapper"
        )
