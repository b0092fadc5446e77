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


def factors_of(known, age, crawled, items, shape):
    """Return the factors that follow from crawls, (N,), and the state."""
    state, age = known.begin(age[None]), age.copy()
    for now, found in zip(crawled, items, strict=True):
        (source,) = np.nonzero(now)
        told = age[source], found[source], MEAN[source], np.full(source.size, shape)
        state = known.update(state, now[None], np.zeros_like(source), source, *told)
        age = np.where(now, 0.0, age) + 1.0
    return known.factor(state)[0], state


def test_factors_are_those_of_all_paths_under_all_laws_if_each_step_crawls_everything():
    """Then it is the forward filter of a hidden Markov model: nothing is lost by merging paths."""
    laws = [
        Regimes(ratio, 1 / (tours * 5.0)) for ratio, tours in itertools.product((3, 10), (2, 8))
    ]
    chance = shape = 6.0
    items = np.random.default_rng(1).poisson(1.7 * MEAN, (6, TOPICS.size)).astype(float)
    items[3:, 1] = 0.0

    def pmf(numbers, mean):
        return stats.nbinom.pmf(numbers, shape, shape / (shape + mean))

    weight, expected = [0.5 * pmf(items, MEAN).prod()], [np.ones(TOPICS.size)]
    for law in laws:
        evidence, factor = 1.0, np.zeros(TOPICS.size)
        for topic in set(TOPICS):
            mine = np.flatnonzero(topic == TOPICS)
            total = hot = 0.0
            for path in itertools.product((0, 1), repeat=len(items)):
                stays = np.where(np.diff(path) != 0, law.switch, 1 - law.switch)
                seen = [1.0, *law.factors[list(path[:-1])]]  # until the first crawl it was 1
                chance = 0.5 * np.prod(stays)
                chance *= pmf(items[:, mine], np.outer(seen, MEAN[mine])).prod()
                total, hot = total + chance, hot + chance * (path[-1])
            after = (1 - law.switch) * hot / total + law.switch * (1 - hot / total)
            evidence *= total
            factor[mine] = law.factors[0] * (1 - after) + law.factors[1] * after
        weight, expected = [*weight, 0.125 * evidence], [*expected, factor]
    found, _ = factors_of(
        TopicFactors(TOPICS, tour=5.0),
        np.ones(TOPICS.size),
        np.ones(items.shape, bool),
        items,
        shape,
    )
    assert found == pytest.approx(np.array(weight) @ expected / np.sum(weight))


def test_merged_paths_are_nearly_as_good_as_all():
    """Against the filter that keeps them, for the first law: rates 3 : 1, regimes of 10 steps."""
    law, differences = Regimes(3.0, 0.1), []
    for seed in range(8):
        age, crawled, items = history(seed, 11)
        exact, _ = filtered(RegimeFilter(law, TOPICS, 2**12), age + 1, crawled, items)
        _, state = factors_of(TopicFactors(TOPICS, tour=5.0), age + 1, crawled, items, 1e6)
        hot = state.hot[0, 0] + law.switch * (1.0 - 2.0 * state.hot[0, 0])
        mine = law.factors[0] + np.diff(law.factors) * hot
        differences.append(np.abs(mine[TOPICS] - exact))
    assert np.max(differences) < 0.03


def test_factors_follow_regimes_and_are_one_where_there_are_none():
    """On 40 topics of five sources with crawls every four steps, 500 steps."""
    rng, topics = np.random.default_rng(5), np.repeat(np.arange(40), 5)
    hot = np.cumsum(rng.random((500, 40)) < 0.01, axis=0) % 2
    for truth in (np.where(hot, 1.8, 0.2), np.ones((500, 40))):
        known, four = TopicFactors(topics, tour=4.0), np.full(50, 4.0)
        state, error = known.begin(np.arange(200)[None] % 4 + 1.0), []
        for step in range(4, 500):
            crawled = (np.arange(200) + step) % 4 == 3
            (source,) = np.nonzero(crawled)
            found = rng.poisson(0.3 * truth[step - 4 : step, topics[source]].sum(axis=0))
            # The mean rates are known well.
            told = source, four, found, four / 4 * 0.3, four * 250
            state = known.update(state, crawled[None], np.zeros_like(source), *told)
            error.append(np.abs(known.factor(state)[0] - truth[step][topics]).mean())
        found = float(np.mean(error[100:]))
        assert found < (0.35 if truth.std() > 0 else 0.01)  # .8 for a factor of 1 under regimes
