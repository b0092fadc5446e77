"""The regimes of topics (`crawl_env.Regimes`), inferred from what the crawls of all their sources
brought."""

from __future__ import annotations

from dataclasses import dataclass
from math import lgamma
from typing import NamedTuple

import numpy as np

from crawl_env import Regimes
from crawl_env.compiled import compiled
from crawl_env.numerics import BoolArray, FloatArray, IntArray

_LEAST = 1e-300  # items, so that logarithms are finite
_LEAST_CHANCE = 1e-9  # of a regime
_OPTIMISM = 0.4  # standard deviations; chosen on fleets of 100 in 10 topics, where .2 is as good


class RegimeBelief(NamedTuple):
    """What is believed of the regimes of G topics, under each of K laws."""

    hot: FloatArray  # (B, K, G) probability that a topic was hot in the last step
    exposure: FloatArray  # (B, N, K, 2) Σ factor since the last crawl if cold then, or hot: mean
    content: FloatArray  # (B, N, K, 2) the same sum, of what has not decayed
    evidence: FloatArray  # (B, K) log-probability of the law given all numbers of items


@dataclass(frozen=True)
class RegimeFilter:
    """The posterior of hidden regimes under one or several laws.

    A topic's regime is a Markov chain of two states. The number of items that a crawl finds is
    Poisson with mean ΛT Σ factor, summed over the steps since the source's last crawl, where ΛT is
    known, or has a gamma distribution. It depends on the regime in each of these steps, and the
    gaps of the sources of a topic overlap. So the exact posterior is one of paths of the regime.
    This is an interacting multiple model filter (H. Blom and Y. Bar-Shalom, IEEE Transactions on
    Automatic Control 33(8), 1988): paths that end in the same regime are merged into one of mean
    exposure. Where every step crawls all sources, nothing is lost by that.

    Several laws are compared by the probabilities that they gave to the numbers of items of all
    topics before these were seen. A law with the ratio 1 is that of constant rates.

    Arguments:
        topics: number of each source's topic, (N,), as `Sources.topic_of`.
        laws: K laws of the regimes.
        prior: their probabilities, (K,); equal by default.

    >>> known, left = RegimeFilter(np.array([0, 0, 1]), (Regimes(ratio=9, switch=0.1),)), 0.5
    >>> state, crawled = known.begin(np.ones((1, 3)), left), np.ones((1, 3), dtype=bool)
    >>> env, source, items = np.zeros(3, dtype=np.intp), np.arange(3), np.array([9.0, 9.0, 1.0])
    >>> for _ in range(2):  # the first crawls find what was published before the episode
    ...     rate, shape = np.full(3, 5.0), np.full(3, np.inf)
    ...     state, _ = known.update(state, crawled, env, source, items, rate, shape, left)
    >>> known.factor(state).round(2)
    array([[1.51, 1.51, 0.49]])
    """

    topics: IntArray
    laws: tuple[Regimes, ...]
    prior: tuple[float, ...] = ()

    @property
    def _factors(self) -> FloatArray:
        return np.stack([law.factors for law in self.laws])

    @property
    def _switch(self) -> FloatArray:
        return np.array([law.switch for law in self.laws])

    def begin(self, age: FloatArray, retention: FloatArray | float) -> RegimeBelief:
        """Return the state at the start of an episode, of sources last crawled `age` (B, N) steps
        ago, until when the factor was 1; `retention` is the share of their content that a step
        leaves, broadcastable to (B, N)."""
        batch, k, g = len(age), len(self.laws), int(self.topics.max()) + 1
        alpha = np.minimum(np.broadcast_to(retention, age.shape), 1.0 - _LEAST_CHANCE)
        content = (1.0 - alpha**age) / (1.0 - alpha)
        prior = self.prior or (1.0 / k,) * k
        tiles = (1, 1, k, 2)
        return RegimeBelief(
            hot=np.full((batch, k, g), 0.5),
            exposure=np.tile(age[..., None, None], tiles),
            content=np.tile(content[..., None, None], tiles),
            evidence=np.tile(np.log(prior), (batch, 1)),
        )

    def update(
        self,
        state: RegimeBelief,
        crawled: BoolArray,
        env: IntArray,
        source: IntArray,
        items: FloatArray,
        mean: FloatArray,
        shape: FloatArray,
        retention: FloatArray | float,
    ) -> tuple[RegimeBelief, FloatArray]:
        """Return the state after a step, and Σ factor over the steps before each of its crawls as
        now expected, (C,). The crawls come before the arrivals of the step; C of them tell
        something, and the arguments from `env` to `shape` have the shape (C,).

        Arguments:
            crawled: (B, N) whether the step crawled a source.
            env, source: which fleet of the batch, and which source.
            items: number of new items found.
            mean: the posterior mean of ΛT, items / step.
            shape: of the posterior of ΛT, a gamma distribution; inf where it is known.
            retention: share of the content that a step leaves, broadcastable to (B, N).
        """
        hot, exposure, content, evidence = (array.copy() for array in state)
        log = np.log(np.stack([1.0 - hot, hot], axis=-1))
        finite = np.minimum(shape, 1e9)
        _see(env, source, self.topics, items, mean, finite, exposure, log)
        chance = _normalise(log, evidence)
        evidence -= evidence.max(axis=1, keepdims=True)
        own = chance[env, :, self.topics[source]] * exposure[env, source]
        expected = (self._weights(evidence)[env] * own.sum(axis=-1)).sum(axis=-1)
        alpha = np.broadcast_to(retention, crawled.shape)
        _go_on(
            self.topics, crawled, alpha, self._factors, self._switch, chance, hot, exposure, content
        )
        return RegimeBelief(hot, exposure, content, evidence), expected

    def factor(self, state: RegimeBelief) -> FloatArray:
        """Return the expected factor of every source in the coming step, (B, N)."""
        hot = state.hot + self._switch[:, None] * (1.0 - 2.0 * state.hot)
        cold, more = self._factors[:, :1], np.diff(self._factors)
        weight = self._weights(state.evidence)[..., None]
        mean: FloatArray = (weight * (cold + more * hot)).sum(axis=1)[:, self.topics]
        return mean

    def content(self, state: RegimeBelief) -> FloatArray:
        """Return the content of every source, (B, N), relative to the mean inflow of a step: the
        mean and .4 standard deviations, since crawls of uncertain sources tell of their topics."""
        laws = self._weights(state.evidence)[:, None, :, None]  # (B, G, K, 2) from here on
        weight = laws * np.stack([1.0 - state.hot, state.hot], axis=-1).transpose(0, 2, 1, 3)
        own = weight[:, self.topics]
        mean = np.einsum("bnkh,bnkh->bn", own, state.content)
        square = np.einsum("bnkh,bnkh,bnkh->bn", own, state.content, state.content)
        total: FloatArray = mean + _OPTIMISM * np.sqrt(np.maximum(square - mean**2, 0.0))
        return total

    @staticmethod
    def _weights(evidence: FloatArray) -> FloatArray:
        weight = np.exp(evidence - evidence.max(axis=1, keepdims=True))
        return np.asarray(weight / weight.sum(axis=1, keepdims=True))


@compiled
def _see(
    env: IntArray,
    source: IntArray,
    topics: IntArray,
    items: FloatArray,
    mean: FloatArray,
    shape: FloatArray,
    exposure: FloatArray,
    log: FloatArray,
) -> None:
    """Add the log-probabilities of the items of each crawl, which are those of negative binomial
    numbers, to those of the regimes, (B, K, G, 2)."""
    for c in range(env.size):
        b, i, n, a = env[c], source[c], items[c], shape[c]
        same = lgamma(a + n) - lgamma(a) - lgamma(n + 1.0)
        for k in range(exposure.shape[2]):
            for h in range(2):
                m = max(mean[c] * exposure[b, i, k, h], _LEAST)
                log[b, k, topics[i], h] += same - a * np.log1p(m / a) - n * np.log1p(a / m)


@compiled
def _normalise(log: FloatArray, evidence: FloatArray) -> FloatArray:
    """Return the probabilities of the regimes, (B, K, G, 2), whose sums go to the evidence."""
    chance = np.empty(log.shape)
    batch, laws, groups, _ = log.shape
    for b in range(batch):
        for k in range(laws):
            for g in range(groups):
                most = max(log[b, k, g, 0], log[b, k, g, 1])
                cold, hot = np.exp(log[b, k, g, 0] - most), np.exp(log[b, k, g, 1] - most)
                evidence[b, k] += most + np.log(cold + hot)
                chance[b, k, g, 0], chance[b, k, g, 1] = cold / (cold + hot), hot / (cold + hot)
    return chance


@compiled
def _go_on(
    topics: IntArray,
    crawled: BoolArray,
    retention: FloatArray,
    factors: FloatArray,
    switch: FloatArray,
    chance: FloatArray,
    hot: FloatArray,
    exposure: FloatArray,
    content: FloatArray,
) -> None:
    """Go on by a step, before whose arrivals the sources were crawled."""
    batch, laws, groups = hot.shape
    came = np.empty((groups, laws, 2))  # probability that it was the other regime before
    for b in range(batch):
        for k in range(laws):
            for g in range(groups):
                s, cold, warm = switch[k], chance[b, k, g, 0], chance[b, k, g, 1]
                after = min(max(warm * (1.0 - s) + cold * s, _LEAST_CHANCE), 1.0 - _LEAST_CHANCE)
                came[g, k, 0] = min(1.0, warm * s / (1.0 - after))
                came[g, k, 1] = min(1.0, cold * s / after)
                hot[b, k, g] = after
        for i in range(topics.size):
            stays = 0.0 if crawled[b, i] else 1.0
            for sums, part in ((exposure, stays), (content, stays * retention[b, i])):
                for k in range(laws):
                    cold, warm = part * sums[b, i, k, 0], part * sums[b, i, k, 1]
                    sums[b, i, k, 0] = cold + came[topics[i], k, 0] * (warm - cold) + factors[k, 0]
                    sums[b, i, k, 1] = warm + came[topics[i], k, 1] * (cold - warm) + factors[k, 1]
