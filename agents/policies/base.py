"""Index policies as agents: each gives every source a priority, and the environment fills up.

`predict` has the signature of Stable-Baselines3's models, single and batched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.policies.view import Seen, needs, needs_parameters
from agents.theory.price import Price
from crawl_env import Sources, Task
from crawl_env.numerics import FloatArray

State = tuple[NDArray[Any], ...]

# An index this share below λ* still counts as worth it: the index of a source seen in float32
# may round below a charge that it equals.
_SLACK = 1e-6
_TINY = np.finfo(np.float64).tiny


class Agent:
    """Base of the agents: from observations to actions of the task's kind.

    Subclasses give `priority`. Where it is negative under `budget_rule="average"`, they wait.

    One that remembers gives `begin` and `decide` instead. What it remembers is a tuple of arrays
    whose first axis is the batch (one observation is a batch of 1). It travels through `predict`
    as Stable-Baselines3's recurrent `state`, never in the agent: one agent plays many episodes.
    """

    name: str = "agent"
    features: tuple[str, ...] = ()  # shown to it by evaluations, whatever else is shown

    def __init__(self, task: Task, seed: int | None = None) -> None:
        self.task = task
        # Not the stream that an environment seeded alike draws its content from.
        self.rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))

    def priority(self, seen: Seen) -> FloatArray:
        """Return the priorities, (B, N) in [−1, 1]."""
        raise NotImplementedError

    def begin(self, seen: Seen) -> State:
        """Return what is known at the first epoch of every row of the batch; () is no memory."""
        return ()

    def decide(self, seen: Seen, state: State) -> tuple[FloatArray, State]:
        """Return the priorities, (B, N) in [−1, 1], and what is remembered from now on.

        `state` belongs to the caller: return new arrays, never change these.
        """
        return self.priority(seen), state

    def predict(
        self,
        observation: ArrayLike,
        state: State | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = True,
    ) -> tuple[Any, State | None]:
        """Return the action for one observation (N, F) or a batch (B, N, F), and the state.

        Arguments:
            state: what the last call returned; None where all episodes start.
            episode_start: (B,), which rows start an episode and forget; None for no others.

        Raises:
            ValueError: the observation does not belong to the task, or the state to the batch.
        """
        seen = Seen(observation, self.task)
        wanted, memory = self.decide(seen, self._remembered(seen, state, episode_start))
        action = wanted.astype(np.float32)
        return (action[0] if seen.single else action), memory or None

    def _remembered(
        self, seen: Seen, state: State | None, episode_start: NDArray[np.bool_] | None
    ) -> State:
        """Return the state with the rows that start an episode begun anew."""
        if state is None:
            return self.begin(seen)
        if any(len(array) != seen.batch for array in state):
            raise ValueError(
                f"the state is of a batch of {len(state[0])} and the observation of {seen.batch}; "
                "give back the state that predict returned for this batch, or None to start anew"
            )
        starts = np.zeros(1) if episode_start is None else np.atleast_1d(episode_start)
        fresh = self.begin(seen) if starts.any() else ()
        if not fresh:
            return state
        rows = np.broadcast_to(starts.astype(bool), seen.batch)
        return tuple(
            np.where(rows.reshape(-1, *[1] * (new.ndim - 1)), new, old)
            for new, old in zip(fresh, state, strict=True)
        )


class IndexAgent(Agent):
    """Crawls what has the largest index; subclasses give `worth`.

    What an index γ ≥ 0 exceeds the level by, e = γ − λ, becomes the priority e/(e + c): strictly
    increasing, so that no order is lost but to float32. The scale c is the excess at the margin of
    what the budget pays for, where the order matters. λ is 0, or λ* under
    `budget_rule="average"`: nothing worth less is crawled.

    Raises:
        ValueError: the environment shows neither value nor age, or hides parameters of fleets
            that it draws anew; in `predict`, an index is negative or not finite.
    """

    def __init__(self, task: Task, seed: int | None = None) -> None:
        super().__init__(task, seed)
        needs(task, self.name, "value", "age")
        needs_parameters(task, self.name)
        self._price = Price(task, self.worth)

    def worth(self, value: FloatArray, sources: Sources) -> FloatArray:
        """Return the index, (B, N) utility / budget unit, where `value` waits."""
        raise NotImplementedError

    def priority(self, seen: Seen) -> FloatArray:
        index = self.worth(seen.value, seen.sources)
        if not (index.min() >= 0 and np.isfinite(index.max())):
            wrong = np.argwhere(~(np.isfinite(index) & (index >= 0)))[0]
            raise ValueError(
                f"agent {self.name!r} gave source {wrong[-1] + 1} the index {index[tuple(wrong)]}; "
                "an index must be finite and not negative. For scores of any sign, subclass Agent "
                "and return priorities in [−1, 1]"
            )
        task = self.task
        level = self._price(seen.sources) if task.budget_rule == "average" else None
        return graded(index, level, task.budget / task.sources.cost.mean())


def graded(index: FloatArray, level: FloatArray | None, affordable: float) -> FloatArray:
    """Return priorities, (B, N), strictly increasing in the index, as `IndexAgent` describes.

    Arguments:
        index: γ ≥ 0 and finite, (B, N) utility / budget unit.
        level: λ, (B, 1), below which priorities are negative; None for no level.
        affordable: about how many sources the budget of one epoch pays for.
    """
    if level is None:
        return index / (index + margin(index, affordable))
    level = level * (1 - _SLACK)
    excess = index - level
    above = excess / (np.abs(excess) + margin(excess, affordable))
    below = np.minimum(excess, 0.0) / np.maximum(level, _TINY)
    return np.where(excess >= 0, above, below)


def margin(excess: FloatArray, affordable: float) -> FloatArray:
    """Return the excess of the last source that the budget pays for, (B, 1), positive."""
    n = excess.shape[-1]
    k = int(np.clip(affordable, 1, n))
    last = np.partition(excess, n - k, axis=-1)[:, n - k, None]
    if last.min() > 0:
        return last
    least = np.where(excess > 0, excess, np.inf).min(axis=-1, keepdims=True)
    return np.where(last > 0, last, np.where(np.isfinite(least), least, 1.0))
