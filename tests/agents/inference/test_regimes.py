"""The filter of hidden regimes, against all paths of the regimes, written out."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from agents.inference.regimes import RegimeFilter
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
