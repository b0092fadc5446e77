"""The regimes of topics (`crawl_env.Regimes`), inferred from what the crawls of all their sources
brought."""

from __future__ import annotations

from dataclasses import dataclass
from math import lgamma
from typing import NamedTuple

import numpy as np

from crawl_env import Regimes
from crawl_env.compiled import compiled
from crawl_env.errors import check_whole
from crawl_env.numerics import BoolArray, FloatArray, IntArray

_LEAST = 1e-300  # items, so that logarithms are finite

# Of `TopicFactors`.
_SCALES = np.array([0.5, 1.0, 2.0, 4.0, 8.0])  # tours, in which what was found fades to 1/e
_STRENGTH = 3.0  # items: shape and rate of the prior of a topic's factor, whose mean is 1
_CONSTANT = 0.5  # prior probability that the rates of topics do not change


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


class TopicSums(NamedTuple):
    """What `TopicFactors` has learnt of G topics, at each of K time scales."""

    found: FloatArray  # (B, K, G) items of the topic's crawls, fading
    expected: FloatArray  # (B, K, G) items expected of them at the sources' mean rates, fading
    evidence: FloatArray  # (B, K + 1) log-probability of all counts: with constant rates first


@dataclass(frozen=True)
class TopicFactors:
    """The factor by which the rates of a topic's sources are above their means, where neither these
    nor the law of the factor is known.

    The items of a crawl are Poisson with mean fΛ times the gap. Λ has the gamma posterior of the
    source's own crawls, and f that of the crawls of all sources of its topic, which fade with their
    age (A. Harvey and C. Fernandes: Time series models for count or qualitative observations,
    Journal of Business and Economic Statistics 7, 1989); its prior has mean 1. Time scales of half
    a tour to eight tours are compared with constant rates, f = 1, by the probabilities that they
    gave to the counts of all topics before these were seen, and the result is the mean over them.
    So where topics have no regimes, the factors are soon 1. A crawl after a gap that is long for a
    time scale tells as much of the present factor as one after a gap of that length.

    Arguments:
        topics: number of each source's topic, (N,), as `Sources.topic_of`.
        tour: steps in which the budget covers every source once.

    >>> known = TopicFactors(np.array([0, 0, 1]), tour=3.0)
    >>> state = known.begin(1)
    >>> env, source = np.zeros(3, dtype=np.intp), np.arange(3)
    >>> for _ in range(20):  # twice as many items of topic 0 as its sources have on average
    ...     items, expected = np.array([20.0, 20.0, 10.0]), np.full(3, 10.0)
    ...     state = known.update(state, env, source, np.ones(3), items, expected, np.full(3, 50.0))
    >>> known.factor(state).round(1)
    array([[2., 2., 1.]])
    """

    topics: IntArray
    tour: float

    def begin(self, batch: int) -> TopicSums:
        """Return the state before any crawl, of a batch of fleets."""
        k, g = _SCALES.size, int(self.topics.max()) + 1
        evidence = np.log([_CONSTANT, *[(1.0 - _CONSTANT) / k] * k])
        zeros = np.zeros((batch, k, g))
        return TopicSums(zeros, zeros.copy(), np.tile(evidence, (batch, 1)))

    def update(
        self,
        state: TopicSums,
        env: IntArray,
        source: IntArray,
        gap: FloatArray,
        items: FloatArray,
        expected: FloatArray,
        shape: FloatArray,
    ) -> TopicSums:
        """Return the state after a step with C crawls; arguments of shape (C,).

        Arguments:
            env, source: which fleet of the batch, and which source.
            gap: steps since the source's last crawl.
            items: number of new items found.
            expected: the posterior mean of Λ times the gap.
            shape: of the posterior of Λ.
        """
        scales = _SCALES * self.tour
        fading, evidence = np.exp(-1.0 / scales)[:, None], state.evidence.copy()
        found, so_far = state.found * fading, state.expected * fading
        topic = self.topics[source]
        _learn(env, topic, gap, items, expected, shape, scales, found, so_far, evidence)
        return TopicSums(found, so_far, evidence - evidence.max(axis=1, keepdims=True))

    def factor(self, state: TopicSums) -> FloatArray:
        """Return the expected factor of every source, (B, N)."""
        weight = np.exp(state.evidence)
        weight /= weight.sum(axis=1, keepdims=True)
        each = (state.found + _STRENGTH) / (state.expected + _STRENGTH)
        mean = weight[:, :1] + (weight[:, 1:, None] * each).sum(axis=1)
        factor: FloatArray = mean[:, self.topics]
        return factor


@compiled
def _learn(
    env: IntArray,
    topic: IntArray,
    gap: FloatArray,
    items: FloatArray,
    mean: FloatArray,
    shape: FloatArray,
    scales: FloatArray,
    found: FloatArray,
    expected: FloatArray,
    evidence: FloatArray,
) -> None:
    """Learn from the crawls of a step: the log-probability of the items of each is that of a
    negative binomial number with the mean and variance of fΛ; then all are added to the sums, by
    how much of their gaps a time scale still remembers."""
    for c in range(env.size):
        b, g, n = env[c], topic[c], items[c]
        for k in range(scales.size + 1):
            factor, variance = 1.0, 0.0  # of the gap
            if k > 0:
                rate, share = expected[b, k - 1, g] + _STRENGTH, min(1.0, scales[k - 1] / gap[c])
                present = (found[b, k - 1, g] + _STRENGTH) / rate
                factor += share * (present - 1.0)
                variance = share * share * present / rate
            relative = variance / (factor * factor)
            a, m = 1.0 / (relative + (1.0 + relative) / shape[c]), factor * mean[c]
            evidence[b, k] += lgamma(a + n) - lgamma(a) - lgamma(n + 1.0)
            evidence[b, k] -= a * np.log1p(m / a) + n * np.log1p(a / m)
    for c in range(env.size):
        for k in range(scales.size):
            weight = min(1.0, scales[k] / gap[c]) * np.exp(-gap[c] / (2.0 * scales[k]))
            found[env[c], k, topic[c]] += weight * items[c]
            expected[env[c], k, topic[c]] += weight * mean[c]
