"""Base class of the tabular learners: one table per source, whose state is its age."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from agents.learning.base import Learner, epsilon_greedy
from crawl_env.errors import check_positive, check_whole, check_within
from crawl_env.numerics import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class TabularSettings:
    """Hyper-parameters of all tabular learners."""

    max_age: int = 16  # states are the ages 1 … max_age; older sources count as of age max_age
    epsilon: float = 0.3  # probability of random priorities in a step
    learning_rate_decay_visits: int = 500  # v: a step size is divided by ⌈n(s, a)/v⌉
    multiplier_decay_steps: int = 500  # d: the step size of λ is divided by 1 + ⌈t ln t/d⌉

    def __post_init__(self) -> None:
        check_whole("max_age", self.max_age, 2)
        for name, value in asdict(self).items():
            if name == "gamma":
                check_within(name, value, 0.0, 1.0, open_high=True)
            if name != "epsilon" and isinstance(value, int | float):
                check_positive(name, value)


T = TypeVar("T", bound=TabularSettings)


def same_names(*attributes: str) -> dict[str, str]:
    """Return attributes that have the same names in a file."""
    return {name: name for name in attributes}


class Tabular(Learner[T]):
    """Base class of the tabular learners. A subclass has, besides `name` and `Settings`,

    - `create_arrays()`: create the arrays named in `learnt`, besides `visits`;
    - `transition(state, action, reward, next_state)`: learn from one step, (B, N) each;
    - `index`: (N, max_age), by which sources are crawled.

    The state is the age alone, even if content is observed: values have no natural grid, and their
    scale would have to be known beforehand. Sources have separate tables; all environments update
    the same tables in one step.

    Raises:
        ValueError: fleets are drawn at each reset, which no table can represent.
    """

    steps_per_update = 100
    size_settings = ("max_age",)
    not_negative: ClassVar[tuple[str, ...]] = ("visits",)

    def setup(self) -> None:
        if self.task is not None and self.task.draws_anew:
            raise ValueError(
                f"agent {self.name!r} has one table per source, and this environment draws new "
                "sources at each reset; give it one fleet"
            )
        self.sources = np.arange(self.arms.shape[1])
        self.visits = np.zeros((len(self.sources), self.settings.max_age, 2))
        self.create_arrays()

    def update(self) -> dict[str, float]:
        for _ in range(self.steps_per_update):
            state = self._states(self.arms.state())
            score = self.index[self.sources, state]
            step = self.arms.step(self.explored(state, score))
            next_state, action = self._states(step.state), step.active.astype(np.intp)
            self.add(self.visits, state, action, np.ones(state.shape))
            self.transition(state, action, step.reward, next_state)
        return {"index of age 1, mean": float(self.index[:, 0].mean())}

    def explored(self, state: IntArray, score: FloatArray) -> NDArray[np.float32]:
        """Return the priorities of a step of learning, (B, N); by default, ε-greedy ones."""
        return epsilon_greedy(score, self.settings.epsilon, self.rng)

    def score(self, state: FloatArray) -> FloatArray:
        return np.asarray(self.index[self.sources, self._states(state)])

    @property
    def index(self) -> FloatArray:
        """The current estimate, (N, max_age), by which sources are crawled."""
        raise NotImplementedError

    def create_arrays(self) -> None:
        """Create the arrays to be learnt."""
        raise NotImplementedError

    def transition(
        self, state: IntArray, action: IntArray, reward: FloatArray, next_state: IntArray
    ) -> None:
        """Learn from one step of every source, (B, N) each; states are numbered from 0."""
        raise NotImplementedError

    def add(self, table: FloatArray, state: IntArray, action: IntArray, change: FloatArray) -> None:
        """Add changes (B, N, …) to the entries of a table (N, max_age, 2, …).

        An entry that was visited in several environments is changed by all of them.
        """
        for env in range(len(state)):
            table[self.sources, state[env], action[env]] += change[env]

    def reference(self, table: FloatArray) -> FloatArray:
        """Return the mean of a table (N, max_age, 2, …) over the visited pairs, (N, …).

        It is the reference f(Q) of relative value iteration. Entries of other pairs are 0.
        """
        visited = np.count_nonzero(self.visits, axis=(1, 2))
        return table.sum(axis=(1, 2)) / visited.reshape(-1, *[1] * (table.ndim - 3))

    @property
    def both_visited(self) -> BoolArray:
        """Whether both actions have been taken in a state, (N, max_age)."""
        return np.asarray(self.visits.min(axis=-1) > 0)

    def visited(self, state: IntArray) -> BoolArray:
        """Return which actions have been taken in states (B, N), (B, N, 2); both if none has been.

        The entry 0 of an action that was never taken is not an estimate.
        """
        visited = self.visits[self.sources, state] > 0
        return visited | ~visited.any(axis=-1, keepdims=True)

    def step_size(self, first: float, state: IntArray, action: IntArray) -> FloatArray:
        """Return the step size of each environment, (B, N).

        A visit's step size is a = first/⌈n(s, a)/v⌉. Environments with the same state and action,
        c of them, together move as far towards the mean of their targets as c successive visits
        would towards one target: 1 − (1 − a)ᶜ of the way.
        """
        decay_visits = self.settings.learning_rate_decay_visits
        step = first / np.ceil(self.visits[self.sources, state, action] / decay_visits)
        if len(state) == 1:
            return np.asarray(step)
        pair = 2 * state + action
        equal = (pair[:, None] == pair).sum(axis=1)
        return np.asarray((1 - (1 - step) ** equal) / equal)

    def multiplier_step_size(self, first: float) -> float:
        """Return first/(1 + ⌈t ln t/d⌉), with t the steps learnt from."""
        t = self.visits[0].sum() / self.arms.shape[0]
        decay_steps = self.settings.multiplier_decay_steps
        return float(first / (1 + np.ceil(t * np.log(t) / decay_steps)))

    def _states(self, state: FloatArray) -> IntArray:
        return np.clip(state[..., 0], 1, self.settings.max_age).astype(np.intp) - 1
