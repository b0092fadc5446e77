"""Whittle's index of what is still unpaid, where sources of a topic report the same stories."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.policies.base import Environment, ObservationView, needs_all
from agents.policies.index import Whittle
from crawl_env import NEVER, Sources, Stories, Task
from crawl_env.compiled import compiled
from crawl_env.numerics import BoolArray, FloatArray, IntArray

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)


class WhittleStories(Whittle):
    """The Whittle index of the expected utility that has not been paid, one source after another.

    Content is the mean of the items whose stories no crawl of another source has found
    (`unpaid_content`), given the overlap and the lag of `crawl_env.Stories`. After each selection
    in a step the content of the rest of the topic is computed anew.

    Each topic proposes the source with the largest (1 − s)W + sx/C, where W is the Whittle index
    of a source without duplicates at content x, C its cost and s the probability that another
    source of the topic reports a story of this source. The proposals compete by W. Without
    duplicates, s = 0, this is the Whittle index. Where all sources report all stories, s = 1, a
    crawl of any source empties the topic: the topic is one arm, and its best crawl is the one that
    pays most. Between the two it is a heuristic.

    Where no two sources share stories, and under `budget_rule="average"`, it is `Whittle`. Sources
    whose value is observed have the index of this value.

    Raises:
        ValueError: sources share stories, and `age` is not observed; or as for index agents.
    """

    name = "whittle-stories"
    features: tuple[str, ...] = ("age",)

    @classmethod
    def features_in(cls, task: Task) -> tuple[str, ...]:
        return cls.features if stories_of(task) else ()

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        self._stories = stories_of(self.task)
        if self._stories is not None:
            needs_all(self.task, self.name, *self.features)

    def priority(self, view: ObservationView) -> NDArray[Any]:
        if self._stories is None:
            return super().priority(view)
        return self.selected(view, self._stories.overlap, self._stories.lag)

    def selected(
        self, view: ObservationView, overlap: float | FloatArray, lag: float | FloatArray
    ) -> NDArray[Any]:
        """Return the priorities, (B, N), if stories have this overlap and lag, one or (B,) each."""
        sources, age = view.sources, view["age"]
        cost = np.broadcast_to(sources.cost, age.shape)
        rest = np.full(len(age), self.task.budget * (1.0 + 1e-12))
        overlap, lag = (np.broadcast_to(x, len(age))[:, None] for x in (overlap, lag))
        shared, topic = _shared(sources, overlap, age.shape), sources.topic_of
        out, rows = np.zeros(age.shape, dtype=np.float32), np.arange(len(age))
        for k in range(self.task.n):
            content = unpaid_content(sources, overlap, lag, age)[:, 0]
            if view.shows("value"):
                content = np.where(self.task.observed, view["value"], content)
            index = self._arms(sources).index(content)
            is_open = (out == 0) & (cost <= rest[:, None])
            merit = np.where(is_open, (1.0 - shared) * index + shared * content / cost, -np.inf)
            proposal = is_open & (merit == _largest(merit, topic))
            best = np.where(proposal, index, -np.inf).argmax(axis=1)
            is_left = is_open[rows, best]
            if not is_left.any():
                break
            row, best = rows[is_left], best[is_left]
            out[row, best] = 1.0 - k / (self.task.n + 1.0)
            rest[row] -= cost[row, best]
            age[row, best] = 0.0
        return out


def stories_of(task: Task) -> Stories | None:
    """Return the arrivals, if some sources share stories and the budget is one for each step."""
    shared = isinstance(task.arrivals, Stories) and np.bincount(task.sources.topic_of).max() > 1
    if not shared or task.budget_rule != "step":
        return None
    assert isinstance(task.arrivals, Stories)
    return task.arrivals


def _largest(merit: FloatArray, topic: IntArray) -> FloatArray:
    """Return the largest number (B, N) of the sources of each source's topic."""
    most = np.full((int(topic.max()) + 1, len(merit)), -np.inf)
    np.maximum.at(most, topic, merit.T)
    return most[topic].T


def _shared(sources: Sources, overlap: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Return the probability that another source reports a story of each source, (B, N)."""
    topic, rate = sources.topic_of, np.broadcast_to(sources.arrival_rate, shape)
    share = overlap * rate / np.maximum(_largest(rate, topic), 1e-300)
    silent = np.log1p(-np.minimum(share, 1.0 - 1e-12))
    together = np.zeros((int(topic.max()) + 1, len(rate)))
    np.add.at(together, topic, silent.T)
    return np.asarray(-np.expm1(np.minimum(together[topic].T - silent, 0.0)))


def unpaid_content(
    sources: Sources,
    overlap: FloatArray,
    lag: FloatArray,
    age: FloatArray,
    where: BoolArray | None = None,
) -> FloatArray:
    """Return the mean utility of the items whose stories no other source has been paid for, for
    each of W pairs of overlap and lag, (B, W, N).

    It is Λ_iξ̄_i ∫ e^{−μ_i a} Π_j (1 − q_j P_j(a)) da over the ages a of items since the last crawl
    of source i, where P_j(a) is the probability that source j would have reported the story before
    its own last crawl, τ_j steps ago. Without a lag, P_j(a) = 1 if a > τ_j and 0 otherwise. With a
    mean lag d the lags of two reports differ by a Laplace variable: P_j(a) = 1 − e^{(τ_j − a)/d}/2
    if a > τ_j and e^{(a − τ_j)/d}/2 otherwise. This is the posterior mean given all crawls,
    whatever they found, without a lag or for two sources per topic; with more the product
    is an approximation, as the lag at source i is common to its factors.

    Arguments:
        sources: the fleet, (N,), or a batch (B, N).
        overlap, lag: as of `crawl_env.Stories`, (W,) or (B, W).
        age: (B, N) steps since the last crawl, failed ones not counted; 1e9 if there was none.
        where: (B, N) of which sources it is computed, by default of all; 0 elsewhere.

    >>> fleet = Sources([1.0, 1.0], 1.0, 0.1, topics=["news", "news"])
    >>> unpaid_content(fleet, np.array([1.0]), np.array([0.0]), np.array([[3.0, 1.0]])).round(3)
    array([[[0.952, 0.952]]])
    """

    def whole(parameter: FloatArray, width: int) -> FloatArray:
        shape = len(age), width
        return np.ascontiguousarray(np.broadcast_to(parameter, shape), dtype=np.float64)

    n, worlds = age.shape[1], overlap.shape[-1]
    mask = np.ones(age.shape, dtype=bool) if where is None else where
    out = np.zeros((len(age), worlds, n))
    rate, decay = whole(sources.arrival_rate * sources.period, n), whole(sources.decay_per_step, n)
    utility, steps = whole(sources.mean_utility, n), np.minimum(age, NEVER)
    pairs = whole(overlap, worlds), whole(lag, worlds)
    topic = sources.topic_of
    _unpaid(rate, utility, decay, steps, topic, *pairs, _NODES, _WEIGHTS, mask, out)
    return out


@compiled
def _unpaid(
    rate: FloatArray,
    utility: FloatArray,
    decay: FloatArray,
    age: FloatArray,
    topic: IntArray,
    overlap: FloatArray,
    lag: FloatArray,
    nodes: FloatArray,
    weights: FloatArray,
    mask: BoolArray,
    out: FloatArray,
) -> None:
    n, worlds = topic.size, overlap.shape[1]
    total = np.empty(worlds)
    for b in range(age.shape[0]):
        most = np.zeros(topic.max() + 1)
        for i in range(n):
            most[topic[i]] = max(most[topic[i]], rate[b, i])
        for i in range(n):
            if not mask[b, i]:
                continue
            # The integral is over s = 1 − e^{−μa}, in pieces between the ages of the others.
            ends = np.zeros(n + 2)
            number = 1
            for j in range(n):
                if j != i and topic[j] == topic[i] and age[b, j] < age[b, i]:
                    ends[number] = age[b, j]
                    number += 1
            ends[number] = age[b, i]
            number += 1
            ends[:number].sort()
            total[:] = 0.0
            for k in range(number - 1):
                low = -np.expm1(-decay[b, i] * ends[k])
                half = (-np.expm1(-decay[b, i] * ends[k + 1]) - low) / 2.0
                if half <= 0.0:
                    continue
                for node in range(nodes.size):
                    a = -np.log1p(-min(low + half * (1.0 + nodes[node]), 1.0 - 1e-16)) / decay[b, i]
                    for w in range(worlds):
                        product = 1.0
                        for j in range(n):
                            if j != i and topic[j] == topic[i]:
                                late = a - age[b, j]
                                if lag[b, w] == 0.0:
                                    chance = 1.0 if late > 0.0 else 0.0
                                else:
                                    chance = 0.5 * np.exp(-abs(late) / lag[b, w])
                                    chance = 1.0 - chance if late > 0.0 else chance
                                share = overlap[b, w] * rate[b, j] / max(most[topic[i]], 1e-300)
                                product *= 1.0 - share * chance
                        total[w] += weights[node] * half * product
            for w in range(worlds):
                out[b, w, i] = rate[b, i] * utility[b, i] / decay[b, i] * total[w]
