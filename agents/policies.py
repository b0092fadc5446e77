"""Index policies as agents: each gives every source a priority, and the environment fills up.

`predict` has the signature of Stable-Baselines3's models, single and batched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.index import myopic_index, whittle_index
from agents.price import charge
from agents.seen import Seen, needs, needs_parameters
from agents.subset_choice import SubsetChoice
from crawl_env import Sources, Task

FloatArray = NDArray[np.float64]
State = tuple[NDArray[Any], ...]

# An index this share below λ* still counts as worth it: the index of a source seen in float32
# may round below a charge that it equals.
_MARGIN = 1e-6


class Agent:
    """Base of the agents: from observations to actions of the task's kind.

    Subclasses give `priority`. Where it is negative under `budget_rule="average"`, they wait.
    """

    name = "agent"

    def __init__(self, task: Task, seed: int | None = None) -> None:
        self.task = task
        # Not the stream that an environment seeded alike draws its content from.
        self._rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
        self._choice = SubsetChoice(task, self.name) if task.action == "subset" else None

    def priority(self, seen: Seen) -> FloatArray:
        """Return the priorities, (B, N) in [−1, 1]."""
        raise NotImplementedError

    def predict(
        self,
        observation: ArrayLike,
        state: State | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = True,
    ) -> tuple[Any, State | None]:
        """Return the action for one observation (N, F) or a batch (B, N, F), and the state.

        Raises:
            ValueError: the observation does not belong to the task.
        """
        seen = Seen(observation, self.task)
        priority = self.priority(seen).astype(np.float32)
        action = priority if self._choice is None else self._choice(priority, seen)
        return (action[0] if seen.single else action), state


class IndexAgent(Agent):
    """Crawls what has the largest index; subclasses give `worth`.

    An index γ ≥ 0 becomes the priority (γ − c)/(γ + c), strictly increasing, so that no order is
    lost but to float32, whose resolution is finest around c. Under `budget_rule="average"` c is
    λ*, so that nothing worth less is crawled.
    """

    def __init__(self, task: Task, seed: int | None = None) -> None:
        super().__init__(task, seed)
        needs(task, self.name, "value", "age")
        needs_parameters(task, self.name)
        self._priced: Sources | None = None
        self._price: FloatArray = np.empty(0)

    def worth(self, value: FloatArray, sources: Sources) -> FloatArray:
        """Return the index, (B, N) utility / budget unit, where `value` waits."""
        raise NotImplementedError

    def priority(self, seen: Seen) -> FloatArray:
        index, level = self.worth(seen.value, seen.sources), self._level(seen.sources)
        if not (index.min() >= 0 and np.isfinite(index.max())):
            wrong = np.argwhere(~(np.isfinite(index) & (index >= 0)))[0]
            raise ValueError(
                f"agent {self.name!r} gave source {wrong[-1] + 1} the index {index[tuple(wrong)]}; "
                "an index must be finite and not negative. For scores of any sign, subclass Agent "
                "and return priorities in [−1, 1]"
            )
        return (index - level) / (index + level)

    def _level(self, sources: Sources) -> FloatArray:
        if self._priced is not sources and self._priced != sources:
            self._price = np.atleast_1d(self._level_of(sources))[:, None]
            self._priced = sources
        return self._price

    def _level_of(self, sources: Sources) -> FloatArray:
        typical = np.asarray(np.median(sources.inflow / sources.cost, axis=-1))
        typical = np.where(typical > 0, typical, 1.0)
        if self.task.budget_rule == "epoch":
            return typical  # the sign of a priority means nothing
        price = charge(self.task, sources, self.worth) * (1 - _MARGIN)
        # With money for everything the price is zero; any lower level than the least index does.
        return np.where(price > 0, price, np.finfo(np.float32).tiny)


class Whittle(IndexAgent):
    """The Whittle index policy (Avrachenkov & Borkar 2015): the baseline to beat.

    It acts on what waits where this is observed, else on the belief; where only `age` is shown it
    computes the belief from the known parameters. The index is the average-reward one.
    """

    name = "whittle"

    def worth(self, value: FloatArray, sources: Sources) -> FloatArray:
        return whittle_index(value, sources)


class Myopic(IndexAgent):
    """Crawls what brings most at once for each unit of cost."""

    name = "myopic"

    def worth(self, value: FloatArray, sources: Sources) -> FloatArray:
        return myopic_index(value, sources)


class Fixed(Agent):
    """Crawls always the same sources: those of largest inflow u for each unit of cost."""

    name = "fixed"

    def __init__(self, task: Task, seed: int | None = None) -> None:
        super().__init__(task, seed)
        needs_parameters(task, self.name)

    def priority(self, seen: Seen) -> FloatArray:
        worth = seen.sources.inflow / seen.sources.cost
        order = np.argsort(np.argsort(-worth, axis=-1, kind="stable"), axis=-1)
        ranked = 1.0 - order / worth.shape[-1]  # never negative: it does not wait
        return np.broadcast_to(ranked, (seen.batch, self.task.n))


class OldestFirst(Agent):
    """Crawls the sources in turn, whatever they are."""

    name = "oldest-first"

    def priority(self, seen: Seen) -> FloatArray:
        # All alike: the environment gives ties to the older source, then to the lower number.
        return np.zeros((seen.batch, self.task.n))


class Random(Agent):
    """Crawls sources drawn uniformly, from a generator of its own (`seed`)."""

    name = "random"

    def priority(self, seen: Seen) -> FloatArray:
        return self._rng.random((seen.batch, self.task.n))
