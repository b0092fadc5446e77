"""`Policy` and `Agent`, the base classes of everything that acts, and `ObservationView`.

`predict` has the signature of Stable-Baselines3's models, for one observation or a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from crawl_env import Sources, Task, task_of
from crawl_env.compiled import compiled
from crawl_env.errors import shown, unknown
from crawl_env.fleet.parameters import FIXED, PARAMETERS
from crawl_env.numerics import FloatArray
from crawl_env.rng import generator
from crawl_env.simulation.observation import FEATURES

# An index below λ* by at most this fraction counts as equal to it, since the index of a value
# observed in float32 may be rounded below the multiplier.
SLACK = 1e-6
State = tuple[Any, ...]  # arrays whose first axis is the batch, and tuples of such arrays


class Environment(Protocol):
    """An environment that agents are made for: a Gymnasium environment or vector environment, a
    Stable-Baselines3 `VecEnv`, wrapped or not, or the `Task` that these pose."""

    @property
    def observation_space(self) -> spaces.Space[Any]: ...
    @property
    def action_space(self) -> spaces.Space[Any]: ...


class Predictor(Protocol):
    """An object with Stable-Baselines3's `predict`: its models and the policies of this project."""

    def predict(
        self,
        observation: NDArray[Any],
        state: State | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], State | None]: ...


class ObservationView:
    """A batch of observations of one task, with features accessed by name.

    Features are in natural units, whether the task is `scaled` or not; `Task.natural` has the
    inverse maps.

    Arguments:
        observation: (N, F), or a batch of B, (B, N, F); (N·F,) or (B, N·F) if the task is `flat`.
        task: the task that the observation belongs to.
        sources: the fleet, if it is at hand; by default that of the task, or as observed.

    Attributes:
        single: whether one observation was given; it becomes a batch of 1.
        array: the batch, (B, N, F), in natural units.

    Raises:
        ValueError: the observation has a different shape.
    """

    def __init__(self, observation: ArrayLike, task: Task, sources: Sources | None = None) -> None:
        self.array = task.natural(observation)
        self.single = np.ndim(observation) == len(task.observation_space.shape)
        self._task, self._sources = task, sources

    @property
    def batch(self) -> int:
        """B, the number of observations."""
        return len(self.array)

    def shows(self, feature: str) -> bool:
        """Return whether a feature is observed."""
        return feature in self._task.features

    @property
    def content(self) -> FloatArray | None:
        """The utility of the sources whose content is observed, (B, N), of which the entries of
        others must not be used; None if neither `content` nor `value` is observed, or no source."""
        if not self._task.observed.any():
            return None
        return next((self[name] for name in ("content", "value") if self.shows(name)), None)

    def __getitem__(self, feature: str) -> FloatArray:
        """Return the column of a feature, (B, N) float64."""
        if not self.shows(feature):
            if feature not in FEATURES:
                raise unknown("feature", feature, FEATURES)
            raise NotShown(
                f"the environment does not show the feature {feature}; it shows "
                f"{', '.join(self._task.features)}. Add it to `features`"
            )
        return self.array[..., self._task.features.index(feature)].astype(np.float64)

    def column(self, feature: str) -> NDArray[np.floating]:
        """Return a feature that is observed, of all sources, (B·N,), without a copy."""
        features = self._task.features
        return self.array.reshape(-1, len(features))[:, features.index(feature)]

    @cached_property
    def sources(self) -> Sources:
        """The fleet, (N,); read from the observation if it is drawn at reset, (B, N)."""
        if self._sources is not None:
            return self._sources
        if self._task.draw is None:
            return self._task.sources
        columns: Any = {name: self[name] for name in PARAMETERS}
        shape = columns["cost"].shape
        limits: Any = {p: np.broadcast_to(getattr(self._task.sources, p), shape) for p in FIXED}
        limits["hosts"] = self._task.sources.hosts
        limits["topics"] = self._task.sources.topics
        return Sources(**columns, **limits, period=self._task.sources.period)

    @property
    def shows_pings(self) -> bool:
        """Whether the belief is to be computed from the pings: sources send signals, `age` and
        `pings_aged` are observed and `value` is not."""
        is_computable = not self.shows("value") and self.shows("age") and self.shows("pings_aged")
        return is_computable and self._task.sources.is_signalled

    @cached_property
    def value(self) -> FloatArray:
        """The uncollected utility if it is observed, else the belief, (B, N).

        If `value` is not shown, the belief is computed from the known parameters and `age`, and of
        sources that send signals from `pings_aged` too, if this is shown.
        """
        if self.shows("value"):
            return self["value"]
        sources, age = self.sources, self["age"]
        if not self.shows_pings:
            return sources.content_at(age)
        announced = sources.precision * sources.mean_utility * self["pings_aged"]
        return sources.silent_content_at(age) + announced


class NotShown(ValueError):
    """An agent reads a feature that its environment does not show."""


def needs(task: Task, agent: str, *any_of: str) -> None:
    """Raise ValueError unless at least one of the features is observed."""
    if not set(any_of) & set(task.features):
        one = (
            f"one of the features {', '.join(any_of)}" if any_of[1:] else f"the feature {any_of[0]}"
        )
        raise ValueError(
            f"agent {agent!r} needs {one}; the environment has {', '.join(task.features)}. "
            f"Add {'one' if any_of[1:] else 'it'} to `features`"
        )


def needs_all(task: Task, agent: str, *names: str) -> None:
    """Raise ValueError unless all of the features are observed."""
    missing = [name for name in names if name not in task.features]
    if missing:
        raise ValueError(
            f"agent {agent!r} needs the features {', '.join(names)}; the environment has "
            f"{', '.join(task.features)}. Add {', '.join(missing)} to `features`"
        )


def needs_parameters(task: Task, agent: str) -> None:
    """Raise ValueError if fleets are drawn at reset and their parameters are not observed."""
    missing = [name for name in PARAMETERS if name not in task.features]
    if task.draw is not None and missing:
        raise ValueError(
            f"agent {agent!r} plans with the sources' parameters, and this environment draws new "
            f"ones at each reset; add {', '.join(missing)} to `features`"
        )


class Policy:
    """Base class of all policies: maps observations of a task to a priority for each source.

    A subclass sets `task` and implements `priority`, or, if it has a recurrent state, `begin` and
    `decide`. The state is a tuple of arrays whose first axis is the batch (one observation is a
    batch of 1), or of such tuples, named or not. As in Stable-Baselines3 it is passed through
    `predict` and never stored in the policy, so that one policy can act in many episodes at once. A
    stochastic policy may implement `sample`.

    Priorities are numbers in [−1, 1]; the environment crawls the sources with the largest within
    the budget. Under `budget_rule="average"`, sources of negative priority are not crawled.
    """

    task: Task

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.task!r})"

    def priority(self, view: ObservationView) -> FloatArray:
        """Return the priorities, (B, N) in [−1, 1]."""
        raise NotImplementedError(f"{type(self).__name__} must implement priority(view) or decide")

    def begin(self, view: ObservationView) -> State:
        """Return the recurrent state at the first step of an episode; () for none."""
        return ()

    def decide(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        """Return the priorities, (B, N) in [−1, 1], and the next recurrent state.

        `state` belongs to the caller: return new arrays instead of changing it.
        """
        return self.priority(view), state

    def sample(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        """Return what `decide` returns, for `deterministic=False`; by default the same."""
        return self.decide(view, state)

    def predict(
        self,
        observation: ArrayLike,
        state: State | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], State | None]:
        """Return the action for one observation (N, F) or a batch (B, N, F), and the next state.

        Arguments:
            state: the state returned by the last call; None at the start of all episodes.
            episode_start: (B,), whether an episode starts, so that its state is reset; None if none
                does.
            deterministic: False to sample from the policy if it is stochastic. Policies that are
                random by definition, such as `Random`, ignore it.

        Raises:
            ValueError: the observation does not belong to the task, or the state to the batch.
        """
        view = self._view(observation)
        choose = self.decide if deterministic else self.sample
        answer: object = choose(view, self._current(view, state, episode_start))
        if not (isinstance(answer, tuple | list) and len(answer) == 2):
            raise ValueError(
                f"{type(self).__name__}.{choose.__name__} returned {shown(answer)}; return the "
                "priorities and the next state, which is () if there is none"
            )
        priority, new_state = answer
        if not isinstance(priority, np.ndarray):
            raise ValueError(
                f"{type(self).__name__} returned {shown(priority)} as priorities; return an array "
                f"with a number for each source, of shape {(view.batch, self.task.n)}"
            )
        action = priority.astype(np.float32, copy=False)
        return (action[0] if view.single else action), new_state or None

    def _view(self, observation: ArrayLike) -> ObservationView:
        return ObservationView(observation, self.task)

    def _current(
        self, view: ObservationView, state: State | None, episode_start: NDArray[np.bool_] | None
    ) -> State:
        """Return the state, reset where an episode starts."""
        if state is None:
            return self._fresh(view)
        if not isinstance(state, tuple):
            raise ValueError(
                f"state is {state!r}; give the tuple that predict returned for this batch, or None "
                "to start anew"
            )
        if not _is_of_batch(state, view.batch):
            shapes = map(np.shape, arrays_of(state))
            shape = next(one for one in shapes if one[:1] != (view.batch,))
            raise ValueError(
                f"the state has an array of shape {shape} and the observation a batch of "
                f"{view.batch}; pass the state that predict returned for this batch, or None to "
                "start anew"
            )
        if episode_start is None or not np.any(episode_start):
            return state
        fresh = self._fresh(view)
        if not fresh:
            return state
        starts = np.atleast_1d(episode_start)
        at = np.broadcast_to(starts.astype(bool), view.batch)
        arrays = (
            np.where(at.reshape(-1, *[1] * (new.ndim - 1)), new, old)
            for new, old in zip(arrays_of(fresh), arrays_of(state), strict=True)
        )
        return with_arrays(state, arrays)

    def _fresh(self, view: ObservationView) -> State:
        """Return what `begin` returns, checked."""
        state: object = self.begin(view)
        if not isinstance(state, tuple) or not _is_of_batch(state, view.batch):
            raise ValueError(
                f"{type(self).__name__}.begin returned {shown(state)}; return a tuple of arrays "
                f"whose first axis is the batch, here of {view.batch}, or () without any"
            )
        return state


def _is_of_batch(state: State, batch: int) -> bool:
    """Return whether the first axis of all arrays of a state is the batch."""
    for part in state:
        if isinstance(part, tuple):
            if not _is_of_batch(part, batch):
                return False
        elif np.shape(part)[:1] != (batch,):
            return False
    return True


def arrays_of(state: State) -> Iterator[NDArray[Any]]:
    """Return all arrays of a recurrent state, in order."""
    for part in state:
        if isinstance(part, tuple):
            yield from arrays_of(part)
        else:
            yield part


def with_arrays(state: State, arrays: Iterator[NDArray[Any]]) -> State:
    """Return a recurrent state of the same structure with other arrays, in the order of
    `arrays_of`."""
    parts = [with_arrays(x, arrays) if isinstance(x, tuple) else next(arrays) for x in state]
    make: Callable[[list[Any]], State] = getattr(state, "_make", tuple)
    return make(parts)


class Agent(Policy):
    """Base class of agents: policies that are made for an environment and need no training.

    Arguments:
        env: an environment, a vector environment, or a `Task`; see `Environment`.
        seed: seed of `rng`, for agents that draw at random.

    Raises:
        ValueError: wrappers change observations or actions, or a feature or parameter that the
            agent needs is not observed.
    """

    name: str = "agent"
    features: tuple[str, ...] = ()  # what it observes: evaluations and commands show it that

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        self.task = task_of(env)
        self._seed = seed

    @classmethod
    def features_in(cls, task: Task) -> tuple[str, ...]:
        """Return the features that evaluations add to those of a task; by default `features`."""
        return cls.features

    @cached_property
    def rng(self) -> np.random.Generator:
        """The agent's generator, independent of that of an environment with the same seed."""
        return generator(self._seed, "policy")


def graded(index: FloatArray, multiplier: FloatArray | None) -> NDArray[Any]:
    """Return priorities, (B, N) float32, strictly increasing in the index but for rounding, as
    `IndexAgent` describes.

    Arguments:
        index: γ, (B, N) utility / budget unit.
        multiplier: λ, (B, 1), below which priorities are negative; None if there is none.

    Raises:
        ValueError: an index is negative or not finite.
    """
    index = np.ascontiguousarray(index)
    out = np.empty(index.shape, dtype=np.float32)
    if multiplier is None:
        sound = _grade(index, out)
    else:
        level = np.broadcast_to(multiplier, (len(index), 1)) * (1 - SLACK)
        sound = _grade_from(index, level, out)
    if not sound and not (index.min() >= 0 and np.isfinite(index.max())):
        raise ValueError(
            "an index is negative or not finite. Look for NaN, infinite or negative numbers in the "
            "observation, and for parameters beyond the range of floating point numbers"
        )
    return out


@compiled
def _largest(index: FloatArray) -> tuple[float, bool]:
    """Return the largest of positive numbers, and whether all are zero or positive and finite.

    These floats have the order of their bits, which is faster to compare.
    """
    bits = index.view(np.int64)
    low = np.int64(0)
    high = np.int64(0)
    for i in range(bits.size):
        low = min(low, bits[i])
        high = max(high, bits[i])
    largest = float(np.int64(high).view(np.float64))
    return largest, bool(low == 0 and largest < np.inf)


@compiled
def _grade(index: FloatArray, out: NDArray[np.float32]) -> bool:
    """Write e/(e + c), e the index and c the largest, row by row; return whether all are sound."""
    sound = True
    for b in range(len(index)):
        row, graded = index[b], out[b]
        largest, ok = _largest(row)
        sound = sound and ok
        scale = largest if largest > 0.0 else 1.0
        for i in range(row.size):
            graded[i] = row[i] / (row[i] + scale)
    return sound


@compiled
def _grade_from(index: FloatArray, level: FloatArray, out: NDArray[np.float32]) -> bool:
    """Write e/(e + c), e = index − `level`, where it is positive, and else e/`level`."""
    sound = True
    for b in range(len(index)):
        row, graded, zero = index[b], out[b], level[b, 0]
        largest, ok = _largest(row)
        sound = sound and ok
        scale = largest - zero if largest > zero else 1.0
        unit = zero if zero > 0.0 else 1.0
        for i in range(row.size):
            excess = row[i] - zero
            above, below = excess / (abs(excess) + scale), excess / unit
            graded[i] = above if excess >= 0.0 else below
    return sound


def margin(excess: FloatArray, affordable: float) -> FloatArray:
    """Return the excess of the last source that the budget covers, (B, 1), positive."""
    n = excess.shape[-1]
    k = int(np.clip(affordable, 1, n))
    last = np.partition(excess, n - k, axis=-1)[:, n - k, None]
    if last.min() > 0:
        return last
    least = np.where(excess > 0, excess, np.inf).min(axis=-1, keepdims=True)
    return np.where(last > 0, last, np.where(np.isfinite(least), least, 1.0))
