"""The filter of hidden regimes, against all paths of the regimes, written out."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from agents.inference.regimes import RegimeFilter, TopicFactors
from crawl_env import Regimes

TOPICS = np.array([0, 1, 0, 0])
MEAN = np.array([3.0, 0.7, 0.2, 8.0])


def all_paths(law, age, crawled, items):
    """Return the expected factor of each source after T steps, (N,), by all 2^(T+1) paths."""
    factors, expected = law.factors, np.zeros(TOPICS.size)
    for topic in set(TOPICS):
        total = chance = 0.0
        for path in itertools.product((0, 1), repeat=len(crawled) + 1):
            switches = np.diff(path) != 0
            weight = 0.5 * np.prod(np.where(switches, law.switch, 1 - law.switch))
            for i in np.flatnonzero(topic == TOPICS):
                exposure = age[i]
                for t, now in enumerate(path[:-1]):
                    if crawled[t, i]:
                        weight *= stats.poisson.pmf(items[t, i], MEAN[i] * exposure)
                        exposure = 0.0
                    exposure += factors[now]
            total, chance = total + weight, chance + weight * path[-1]
        hot = chance / total
        expected[topic == TOPICS] = factors[0] * (1 - hot) + factors[1] * hot
    return expected


def filtered(known, age, crawled, items):
    state = known.begin(age[None])
    for t in range(len(crawled)):
        state = known.update(state, MEAN[None], crawled[t][None], items[t][None])
    return known.factor(state)[0], state


def history(seed, steps):
    rng = np.random.default_rng(seed)
    crawled = rng.random((steps, TOPICS.size)) < 0.4
    items = rng.poisson(rng.choice([0.3, 3.0]) * MEAN, crawled.shape).astype(float)
    return rng.integers(0, 4, TOPICS.size).astype(float), crawled, items


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 6), st.floats(1, 20), st.floats(0.001, 0.6))
def test_the_posterior_is_that_of_all_paths(seed, steps, ratio, switch):
    law, (age, crawled, items) = Regimes(ratio, switch), history(seed, steps)
    age += (crawled[:1] & (items[:1] > 0)).any(axis=0)  # nothing comes in no time
    found, state = filtered(RegimeFilter(law, TOPICS, paths=128), age, crawled, items)
    assert found == pytest.approx(all_paths(law, age, crawled, items), rel=1e-6)
    assert state.weight.sum(axis=-1) == pytest.approx(1.0)


def test_few_paths_are_enough_where_switches_are_rare():
    law = Regimes(9.0, 0.02)
    for seed in range(8):
        age, crawled, items = history(seed, 11)
        few, exact = (
            filtered(RegimeFilter(law, TOPICS, paths), age + 1, crawled, items)[0]
            for paths in (32, 2**12)
        )
        assert few == pytest.approx(exact, abs=0.02)


def test_batches_are_independent():
    law = Regimes(4.0, 0.1)
    known = RegimeFilter(law, TOPICS)
    runs = [history(seed, 9) for seed in range(3)]
    state = known.begin(np.array([age + 1 for age, _, _ in runs]))
    for t in range(9):
        crawled, items = (np.array([run[k][t] for run in runs]) for k in (1, 2))
        state = known.update(state, np.tile(MEAN, (3, 1)), crawled, items)
    for row, (age, crawled, items) in zip(known.factor(state), runs, strict=True):
        assert row == pytest.approx(filtered(known, age + 1, crawled, items)[0])


def test_factors_of_topics_are_those_of_the_discounted_gamma_filter():
    """Against the formulas, written out over the list of all crawls of a topic."""
    tour, shape, rng = 4.0, 5.0, np.random.default_rng(2)
    known = TopicFactors(np.array([0, 0, 1]), tour)
    state, scales = known.begin(2), tour * np.array([0.5, 1.0, 2.0, 4.0, 8.0])
    crawls, log = [], np.log([0.5, *[0.1] * 5])

    def learnt(scale, step):
        """Return mean and variance of the factor of topic 0."""
        found = expected = 3.0
        for then, gap, items, mean in crawls:
            fading = np.exp((then - step - gap / 2) / scale) * min(1, scale / gap)
            found, expected = found + fading * items, expected + fading * mean
        return found / expected, found / expected**2

    for step in range(12):
        gap, mean = float(rng.integers(1, 12)), rng.uniform(0.5, 5.0)
        items = float(rng.poisson(2.0 * mean))
        place, numbers = (np.array([1]), np.array([step % 2])), (gap, items, mean, shape)
        state = known.update(state, *place, *(np.array([x]) for x in numbers))
        moments = [(1.0, 0.0)]
        for scale in scales:
            (present, variance), share = learnt(scale, step), min(1, scale / gap)
            moments.append((1 + share * (present - 1), share**2 * variance))
        for k, (factor, variance) in enumerate(moments):
            spread = (1 + variance / factor**2) * (1 + 1 / shape) - 1  # of a product, relative
            log[k] += stats.nbinom.logpmf(items, 1 / spread, 1 / (1 + spread * factor * mean))
        crawls.append((step, gap, items, mean))
    weight = np.exp(log - log.max()) / np.exp(log - log.max()).sum()
    expected = weight @ [1.0, *(learnt(scale, step)[0] for scale in scales)]
    assert known.factor(state)[1] == pytest.approx([expected, expected, 1.0])
    assert known.factor(state)[0] == pytest.approx(1.0)
    assert expected > 1.5


def test_factors_follow_regimes_and_are_one_where_there_are_none():
    """On 40 topics of five sources with crawls every four steps, 500 steps."""
    rng, topics = np.random.default_rng(5), np.repeat(np.arange(40), 5)
    hot = np.cumsum(rng.random((500, 40)) < 0.01, axis=0) % 2
    for truth in (np.where(hot, 1.8, 0.2), np.ones((500, 40))):
        known = TopicFactors(topics, tour=4.0)
        state, error = known.begin(1), []
        for step in range(4, 500):
            source = np.flatnonzero((np.arange(200) + step) % 4 == 0)
            mean = 0.3 * truth[step - 4 : step, topics[source]].sum(axis=0)
            many = np.full(source.size, 1000.0)  # the mean rates are known well
            state = known.update(
                state, np.zeros_like(source), source, np.full(source.size, 4.0),
                rng.poisson(mean), np.full(source.size, 1.2), many,
            )  # fmt: skip
            error.append(np.abs(known.factor(state)[0] - truth[step][topics]).mean())
        found = float(np.mean(error[100:]))
        assert found < (0.35 if truth.std() > 0 else 0.01)  # .8 for a factor of 1 under regimes
