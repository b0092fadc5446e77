"""The agent that estimates how far its sources report the same stories."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np

from agents.policies.base import ObservationView, State
from agents.policies.stories import WhittleStories, unpaid_content
from crawl_env import NEVER, Sources
from crawl_env.numerics import FloatArray

_OVERLAPS = (0.02, *np.arange(1, 11) / 10)
_LAGS = (0.0, 1.0, 3.0, 10.0)  # steps
_WORLDS = np.array([(p, lag) for lag, p in product(_LAGS, _OVERLAPS)])  # (44, 2)
_LEAST = 1e-6  # probability that an item is new, and that it is known


class StoriesMemory(NamedTuple):
    """The recurrent state of `AdaptiveStories`."""

    age: FloatArray  # (B, N) the feature `age` of the last observation; 1e9 at the beginning
    evidence: FloatArray  # (B, 44) log likelihood of each pair of overlap and lag


class AdaptiveStories(WhittleStories):
    """`WhittleStories`, told the posterior means of the overlap and the lag.

    The parameters of the sources are known. Of the n items that a crawl of source i finds after
    age τ, those whose stories have been paid are known, and their number counts as binomial:

        known ~ B(n, 1 − x_i(τ)),   x_i(τ) = (1/τ) ∫_0^τ Π_j (1 − q_j P_j(a)) da,

    where x is the part of the items that is new (`unpaid_content`, of items that do not decay).
    The prior is uniform on 11 overlaps p from .02 to 1 and four mean lags from 0 to 10 steps. That
    the items of several crawls may belong to one story is left out of account.

    Where no two sources share stories, and under `budget_rule="average"`, it is `Whittle`.

    Raises:
        ValueError: sources share stories, and one of the features `age`, `crawled`, `items` and
            `known` is not observed; or as for index agents.
    """

    name = "adaptive-stories"
    features: tuple[str, ...] = ("age", "crawled", "items", "known")

    def begin(self, view: ObservationView) -> State:
        if self._stories is None:
            return ()
        never = np.full((view.batch, self.task.n), float(NEVER))
        return StoriesMemory(never, np.zeros((view.batch, len(_WORLDS))))

    def decide(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        if self._stories is None:
            return super().decide(view, state)
        memory = StoriesMemory(*state)
        evidence = memory.evidence + self._evidence(view, memory.age)
        overlap, lag = self.estimate(StoriesMemory(memory.age, evidence))
        return self.selected(view, overlap, lag), StoriesMemory(view["age"], evidence)

    def estimate(self, memory: StoriesMemory) -> tuple[FloatArray, FloatArray]:
        """Return the posterior means of overlap and lag, steps, of each run of the batch, (B,)."""
        weights = np.exp(memory.evidence - memory.evidence.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        overlap, lag = (weights @ _WORLDS).T
        return np.minimum(overlap, 1.0), lag

    def _evidence(self, view: ObservationView, age: FloatArray) -> FloatArray:
        """Return the log likelihood of what the last step found, (B, 44).

        Arguments:
            age: (B, N) of the sources before that step.
        """
        items, known = view["items"], view["known"]
        counts = (view["crawled"] > 0) & (age < NEVER) & (items > 0)
        if not counts.any():
            return np.zeros((view.batch, len(_WORLDS)))
        lasting = _lasting(view.sources)
        expected = np.maximum(lasting.arrival_rate * lasting.period * age, _LEAST)
        overlap, lag = _WORLDS.T
        new = unpaid_content(lasting, overlap, lag, age, counts) / expected[:, None]
        new = np.clip(new, _LEAST, 1.0 - _LEAST)
        log = known[:, None] * np.log1p(-new) + (items - known)[:, None] * np.log(new)
        return np.asarray(np.where(counts[:, None], log, 0.0).sum(axis=-1))


def _lasting(sources: Sources) -> Sources:
    """Return the fleet with items that are all worth 1, and hardly decay before they are found."""
    slow: dict[str, Any] = {
        "decay_rate": np.full_like(sources.decay_rate, 1e-7 / sources.period),
        "mean_utility": np.ones_like(sources.mean_utility),
    }
    return sources.replaced(**slow)
