"""The regimes of topics (`crawl_env.Regimes`), inferred from what the crawls of all their sources
brought."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import lgamma
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crawl_env import Regimes
from crawl_env.compiled import compiled, inlined
from crawl_env.errors import check_whole
from crawl_env.numerics import BoolArray, FloatArray, IntArray

_LEAST = 1e-300  # items, so that logarithms are finite

# Of `TopicFactors`.
_LAWS = tuple(product((3.0, 10.0), (2.0, 8.0)))  # ratios of the rates, and tours that regimes last
_FACTORS = np.stack([Regimes(ratio).factors for ratio, _ in _LAWS])
_CONSTANT = 0.5  # prior probability that the rates of topics do not change
_LEAST_CHANCE = 1e-9  # of a regime


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


class TopicRegimes(NamedTuple):
    """What `TopicFactors` believes of G topics, under each of K laws of the regimes."""

    hot: FloatArray  # (B, K, G) probability that a topic was hot in the last step
    exposure: FloatArray  # (B, N, K, 2) Σ factor since the last crawl if cold then, or hot: mean
    evidence: FloatArray  # (B, K + 1) log-probability of all counts: with constant rates first


@dataclass(frozen=True)
class TopicFactors:
    """The factor by which the rates of a topic's sources are above their means, where neither these
    nor the law of the factor is known.

    Under each of four laws (hot topics publish 3 or 10 times as much as cold ones, and regimes last
    2 or 8 tours) it is inferred by an interacting multiple model filter (H. Blom and Y. Bar-Shalom,
    IEEE Transactions on Automatic Control 33(8), 1988): of the paths of a topic's regime, which
    `RegimeFilter` keeps, those that end in the same regime are merged into one of mean exposure.
    The items of a crawl are Poisson with mean Λ Σ factor, where Λ has the gamma posterior of the
    source's own crawls. The laws are compared with constant rates by the probabilities that they
    gave to the counts of all topics before these were seen, and the result is the mean over them.
    So where topics have no regimes, the factors are soon 1.

    Arguments:
        topics: number of each source's topic, (N,), as `Sources.topic_of`.
        tour: steps in which the budget covers every source once.

    >>> known = TopicFactors(np.array([0, 0, 1]), tour=3.0)
    >>> state, all_crawled = known.begin(np.ones((1, 3))), np.ones((1, 3), dtype=bool)
    >>> env, source = np.zeros(3, dtype=np.intp), np.arange(3)
    >>> for _ in range(20):  # 1.8 times as many items of topic 0 as its sources have on average
    ...     items, rate, shape = np.array([18.0, 18.0, 2.0]), np.full(3, 10.0), np.full(3, 50.0)
    ...     state = known.update(state, all_crawled, env, source, np.ones(3), items, rate, shape)
    >>> known.factor(state).round(1)
    array([[1.7, 1.7, 0.3]])
    """

    topics: IntArray
    tour: float

    @property
    def switch(self) -> FloatArray:
        """The probability that a regime ends in a step, under each law, (K,)."""
        return np.array([min(0.5, 1.0 / (tours * self.tour)) for _, tours in _LAWS])

    def begin(self, age: FloatArray) -> TopicRegimes:
        """Return the state at the start of an episode, of sources last crawled `age` (B, N) steps
        ago; until then the factor was 1."""
        batch, k, g = len(age), len(_LAWS), int(self.topics.max()) + 1
        evidence = np.log([_CONSTANT, *[(1.0 - _CONSTANT) / k] * k])
        exposure = np.tile(age[..., None, None], (1, 1, k, 2))
        return TopicRegimes(np.full((batch, k, g), 0.5), exposure, np.tile(evidence, (batch, 1)))

    def update(
        self,
        state: TopicRegimes,
        crawled: BoolArray,
        env: IntArray,
        source: IntArray,
        gap: FloatArray,
        items: FloatArray,
        rate: FloatArray,
        shape: FloatArray,
    ) -> TopicRegimes:
        """Return the state after a step, of whose crawls C tell something; the arguments from `env`
        on have the shape (C,).

        Arguments:
            crawled: (B, N) whether the step crawled a source.
            env, source: which fleet of the batch, and which source.
            gap: steps since the source's last crawl.
            items: number of new items found.
            rate: the posterior mean of ΛT, items / step.
            shape: of the posterior of Λ.
        """
        hot, exposure, evidence = (array.copy() for array in state)
        log = np.log(np.stack([1.0 - hot, hot], axis=-1))
        _see(env, source, self.topics, gap, items, rate, shape, exposure, log, evidence)
        _go_on(self.topics, crawled, _FACTORS, self.switch, log, hot, exposure, evidence)
        return TopicRegimes(hot, exposure, evidence - evidence.max(axis=1, keepdims=True))

    def factor(self, state: TopicRegimes, beside: ArrayLike = 1.0) -> FloatArray:
        """Return the expected factor of every source in the coming step, (B, N).

        Arguments:
            beside: what the factor is multiplied by if rates change, (B, N): the ratio of the mean
                rate to that which is used if they are constant.
        """
        weight = np.exp(state.evidence)
        weight /= weight.sum(axis=1, keepdims=True)
        cold, more = _FACTORS[:, :1], np.diff(_FACTORS)
        hot = state.hot + self.switch[:, None] * (1.0 - 2.0 * state.hot)
        change = (weight[:, 1:, None] * (cold + more * hot)).sum(axis=1)
        return np.asarray(weight[:, :1] + change[:, self.topics] * beside)


@compiled
def _see(
    env: IntArray,
    source: IntArray,
    topics: IntArray,
    gap: FloatArray,
    items: FloatArray,
    rate: FloatArray,
    shape: FloatArray,
    exposure: FloatArray,
    log: FloatArray,
    evidence: FloatArray,
) -> None:
    """Add the log-probabilities of the items of each crawl, which are those of negative binomial
    numbers: to those of the regimes, (B, K, G, 2), and under constant rates to the evidence."""
    for c in range(env.size):
        b, i, n, a = env[c], source[c], items[c], shape[c]
        same = lgamma(a + n) - lgamma(a) - lgamma(n + 1.0)
        evidence[b, 0] += _with_mean(same, n, a, rate[c] * gap[c])
        for k in range(exposure.shape[2]):
            for h in range(2):
                likely = _with_mean(same, n, a, rate[c] * exposure[b, i, k, h])
                log[b, k, topics[i], h] += likely


@inlined
def _with_mean(same: float, n: float, shape: float, mean: float) -> float:
    """Return the log-probability of a negative binomial number n, of which `same` is the part that
    does not depend on the mean."""
    m = max(mean, _LEAST)
    return float(same - shape * np.log1p(m / shape) - n * np.log1p(shape / m))


@compiled
def _go_on(
    topics: IntArray,
    crawled: BoolArray,
    factors: FloatArray,
    switch: FloatArray,
    log: FloatArray,
    hot: FloatArray,
    exposure: FloatArray,
    evidence: FloatArray,
) -> None:
    """Normalise the probabilities of the regimes, whose sums go to the evidence, and go on by a
    step, before whose arrivals the sources were crawled."""
    batch, laws, groups = hot.shape
    stayed = np.empty((groups, laws, 2))  # probability that it was the same regime before
    for b in range(batch):
        for k in range(laws):
            for g in range(groups):
                most = max(log[b, k, g, 0], log[b, k, g, 1])
                cold, warm = np.exp(log[b, k, g, 0] - most), np.exp(log[b, k, g, 1] - most)
                evidence[b, k + 1] += most + np.log(cold + warm)
                chance, s = warm / (cold + warm), switch[k]
                after = chance * (1.0 - s) + (1.0 - chance) * s
                after = min(max(after, _LEAST_CHANCE), 1.0 - _LEAST_CHANCE)
                stayed[g, k, 0] = min(1.0, (1.0 - chance) * (1.0 - s) / (1.0 - after))
                stayed[g, k, 1] = min(1.0, chance * (1.0 - s) / after)
                hot[b, k, g] = after
        for i in range(topics.size):
            for k in range(laws):
                kept = 0.0 if crawled[b, i] else 1.0
                cold, warm = kept * exposure[b, i, k, 0], kept * exposure[b, i, k, 1]
                to_cold, to_warm = 1.0 - stayed[topics[i], k, 0], 1.0 - stayed[topics[i], k, 1]
                exposure[b, i, k, 0] = cold + to_cold * (warm - cold) + factors[k, 0]
                exposure[b, i, k, 1] = warm - to_warm * (warm - cold) + factors[k, 1]
