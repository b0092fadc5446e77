"""What the tabular learners share: a table for every source, whose state is its age."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from agents.learning.arms import BoolArray
from agents.learning.base import Learner, explored
from crawl_env.numerics import FloatArray

IntArray = NDArray[np.intp]


@dataclass(frozen=True)
class TabularSettings:
    """Of all tabular learners."""

    states: int = 16  # ages 1 … states; older ones count as the oldest
    explore: float = 0.3  # share of the epochs in which the choice is chance
    visits: int = 500  # a step size falls to 1/n of its first value in (n − 1) times as many visits
    settle: int = 500  # the step of λ falls to half its first value when t ln t is as much

    def __post_init__(self) -> None:
        if not (isinstance(self.states, int) and self.states >= 2):
            raise ValueError(f"states is {self.states!r}; give a whole number of at least 2")
        if not 0 <= self.explore <= 1:
            raise ValueError(f"explore is {self.explore!r}; it is a share, from 0 to 1")
        for name, value in asdict(self).items():
            if name != "explore" and isinstance(value, int | float) and not value > 0:
                raise ValueError(f"{name} is {value!r}; it must be positive")


class Tabular(Learner):
    """Base of the tabular learners. A subclass has, besides `name` and `Settings`,

    - `begin()`: make the arrays that are named in `keeps`, all of them (N, …);
    - `transition(state, action, reward, after)`: learn from one epoch, (B, N) each;
    - `index`: (N, states), what is crawled by.

    The state is the age alone, also where sources are observed: a value has no grid of its own, and
    the scale of one would have to be known before. Sources share nothing, not even those of one
    kind; rows do: an epoch of all is learnt from at once.

    Raises:
        ValueError: fleets are drawn anew at each reset, which no table can follow.
    """

    epochs_at_once = 100
    settings: Any
    keeps: ClassVar[tuple[str, ...]]

    def prepare(self) -> None:
        if self.task is not None and self.task.draw is not None:
            raise ValueError(
                f"agent {self.name!r} keeps a table for every source, and this environment draws "
                "new sources at each reset; give it one fleet"
            )
        self.sources = np.arange(self.arms.shape[1])
        self.visits = np.zeros((len(self.sources), self.settings.states, 2))
        self.begin()

    def improve(self) -> dict[str, float]:
        for _ in range(self.epochs_at_once):
            before = self._states(self.arms.state())
            wanted = self.index[self.sources, before]
            step = self.arms.step(explored(wanted, self.settings.explore, self.rng))
            after, action = self._states(step.state), step.active.astype(np.intp)
            self.add(self.visits, before, action, np.ones(before.shape))
            self.transition(before, action, step.reward, after)
        return {"index/first": float(self.index[:, 0].mean())}

    def score(self, state: FloatArray) -> FloatArray:
        return np.asarray(self.index[self.sources, self._states(state)])

    def memory(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("visits", *self.keeps)}

    def remember(self, memory: dict[str, Any]) -> None:
        for name, mine in self.memory().items():
            if memory[name].shape != mine.shape:
                raise ValueError(f"{name} has shape {memory[name].shape}; it must be {mine.shape}")
            setattr(self, name, memory[name].copy())

    @property
    def index(self) -> FloatArray:
        """What is crawled by, (N, states), so far."""
        raise NotImplementedError

    def begin(self) -> None:
        """Make what is to be learnt."""
        raise NotImplementedError

    def transition(
        self, state: IntArray, action: IntArray, reward: FloatArray, after: IntArray
    ) -> None:
        """Learn from one epoch of every source, (B, N) each; states are numbered from 0."""
        raise NotImplementedError

    def add(self, table: FloatArray, state: IntArray, action: IntArray, change: FloatArray) -> None:
        """Add changes (B, N, …) to the entries of a table (N, states, 2, …), row by row: an entry
        that several rows met is changed by all of them."""
        for row in range(len(state)):
            table[self.sources, state[row], action[row]] += change[row]

    def level(self, table: FloatArray) -> FloatArray:
        """Return the mean of a table (N, states, 2, …), (N, …), over what was tried: the reference
        f(Q) of relative value iteration. What was not is 0."""
        tried = np.count_nonzero(self.visits, axis=(1, 2))
        return table.sum(axis=(1, 2)) / tried.reshape(-1, *[1] * (table.ndim - 3))

    @property
    def known(self) -> BoolArray:
        """Where both actions have been tried, (N, states)."""
        return np.asarray(self.visits.min(axis=-1) > 0)

    def tried(self, state: IntArray) -> BoolArray:
        """Return which actions were tried in states (B, N), (B, N, 2); where none was, both.

        What was never tried is worth nothing known: its 0 in a table is no estimate.
        """
        tried = self.visits[self.sources, state] > 0
        return tried | ~tried.any(axis=-1, keepdims=True)

    def step_size(self, first: float, state: IntArray, action: IntArray) -> FloatArray:
        """Return each row's part of a step, (B, N).

        A visit's step is a = first / ⌈n(s, a)/visits⌉. Rows that do the same in the same state,
        c of them, go together as far towards the mean of their targets as c visits would towards
        one target: 1 − (1 − a)ᶜ of the way.
        """
        step = first / np.ceil(self.visits[self.sources, state, action] / self.settings.visits)
        if len(state) == 1:
            return np.asarray(step)
        pair = 2 * state + action
        alike = (pair[:, None] == pair).sum(axis=1)
        return np.asarray((1 - (1 - step) ** alike) / alike)

    def slow_step_size(self, first: float) -> float:
        """Return first / (1 + ⌈t ln t/settle⌉), t the epochs learnt from, of all rows at once."""
        t = self.visits[0].sum() / self.arms.shape[0]
        return float(first / (1 + np.ceil(t * np.log(t) / self.settings.settle)))

    def _states(self, state: FloatArray) -> IntArray:
        return np.clip(state[..., 0], 1, self.settings.states).astype(np.intp) - 1
