"""The regimes of topics (`crawl_env.Regimes`), inferred from what the crawls of all their sources
brought."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crawl_env import Regimes
from crawl_env.errors import check_whole
from crawl_env.numerics import BoolArray, FloatArray, IntArray

_LEAST = 1e-300  # items, so that logarithms are finite


class Paths(NamedTuple):
    """Weighted paths of the regimes of G topics up to the coming step, P of each."""

    weight: FloatArray  # (B, G, P) probability; 0 for unused places
    hot: BoolArray  # (B, G, P) whether the topic is hot in the coming step
    exposure: FloatArray  # (B, N, P) Σ factor over the steps since the source's last crawl


@dataclass(frozen=True)
class RegimeFilter:
    """The posterior of hidden regimes, for known rates and a known law of the regimes.

    A topic's regime is a Markov chain of two states. A crawl of a source of rate Λ that finds n
    items tells that ΛT Σ factor, summed over the steps since its last crawl, was the mean of a
    Poisson number n: it depends on the regime in each of these steps, and the gaps of the sources
    of a topic overlap. So the state is a set of paths of the regime with their probabilities. Each
    path branches in every step, and has a likelihood factor for every crawl of the topic's sources.

    The posterior is exact as long as there are no more than `paths` paths, for log₂ `paths` steps.
    From then on the least probable are dropped in every step. Where switches are rare, few paths
    hold nearly all probability.

    Arguments:
        law: the regimes.
        topics: number of each source's topic, (N,), as `Sources.topic_of`.
        paths: P ≥ 2.

    >>> known = RegimeFilter(Regimes(ratio=9, switch=0.1), np.array([0, 0, 1]))
    >>> state = known.begin(np.ones((1, 3)))
    >>> mean, crawled = np.full((1, 3), 5.0), np.array([[True, False, True]])
    >>> for _ in range(2):  # the first crawls find what was published before the episode
    ...     state = known.update(state, mean, crawled, np.array([[9.0, 0.0, 1.0]]))
    >>> known.factor(state).round(2)
    array([[1.51, 1.51, 0.49]])
    """

    law: Regimes
    topics: IntArray
    paths: int = 64

    def __post_init__(self) -> None:
        check_whole("paths", self.paths, 2)

    def begin(self, age: FloatArray) -> Paths:
        """Return the state at the start of an episode, of sources last crawled `age` (B, N) steps
        ago; until then the factor was 1."""
        weight = np.zeros((len(age), int(self.topics.max()) + 1, self.paths))
        weight[..., :2] = 0.5
        hot = np.zeros(weight.shape, dtype=bool)
        hot[..., 1] = True
        return Paths(weight, hot, np.repeat(age[..., None], self.paths, axis=-1))

    def update(
        self, state: Paths, mean: FloatArray, crawled: BoolArray, items: FloatArray
    ) -> Paths:
        """Return the state after a step.

        Arguments:
            mean: ΛT, items / step, (B, N).
            crawled: whether the step crawled a source, (B, N); the crawls come before its arrivals.
            items: number of new items that each crawl found, (B, N).
        """
        weight, hot, exposure = state
        env, source = np.nonzero(crawled)
        expected = np.maximum(mean[env, source, None] * exposure[env, source], _LEAST)
        fit = items[env, source, None] * np.log(expected) - expected  # (K, P)
        with np.errstate(divide="ignore"):
            log = np.log(weight)
        np.add.at(log, (env, self.topics[source]), fit)
        likely = np.exp(log - log.max(axis=-1, keepdims=True))
        low, high = self.law.factors.tolist()
        factor = np.where(hot, high, low)[:, self.topics]
        exposure = np.where(crawled[..., None], 0.0, exposure) + factor
        switch = self.law.switch
        branches = np.concatenate(((1.0 - switch) * likely, switch * likely), axis=-1)
        kept = np.argpartition(branches, -self.paths, axis=-1)[..., -self.paths :]
        parent, switched = kept % self.paths, kept >= self.paths
        weight = np.take_along_axis(branches, kept, axis=-1)
        return Paths(
            weight / weight.sum(axis=-1, keepdims=True),
            np.take_along_axis(hot, parent, axis=-1) ^ switched,
            np.take_along_axis(exposure, parent[:, self.topics], axis=-1),
        )

    def factor(self, state: Paths) -> FloatArray:
        """Return the expected factor of every source in the coming step, (B, N)."""
        cold, hot = self.law.factors
        chance = (state.weight * state.hot).sum(axis=-1)
        mean: FloatArray = (cold + (hot - cold) * chance)[:, self.topics]
        return mean
