"""The filter of hidden regimes, against all paths of the regimes, written out."""

import itertools

import numpy as np
import pytest
from scipy import stats

from agents.inference import regimes
from agents.inference.regimes import RegimeFilter
from crawl_env import Regimes

TOPICS = np.array([0, 1, 0, 0])
MEAN = np.array([3.0, 0.7, 0.2, 8.0])
LEFT = 0.7


def all_paths(law, age, crawled, items):
    """Return the expected factor and content of each source after T steps, (N,) each, by all
    2^(T+1) paths."""
    paths = np.array(list(itertools.product((0, 1), repeat=len(crawled) + 1)))
    switches = (np.diff(paths, axis=1) != 0).sum(axis=1)
    weight = law.switch**switches * (1 - law.switch) ** (len(crawled) - switches)
    factor, weight = law.factors[paths], np.tile(weight, (TOPICS.size, 1))
    content = np.empty(weight.shape)
    for i in range(TOPICS.size):
        exposure = np.full(len(paths), age[i])
        content[i] = (1 - LEFT ** age[i]) / (1 - LEFT)
        for t, now in enumerate(crawled[:, i]):
            if now:
                weight[TOPICS[i] == TOPICS] *= stats.poisson.pmf(items[t, i], MEAN[i] * exposure)
            exposure = (0.0 if now else exposure) + factor[:, t]
            content[i] = (0.0 if now else LEFT * content[i]) + factor[:, t]
    weight /= weight.sum(axis=1, keepdims=True)
    return weight @ factor[:, -1], (weight * content).sum(axis=1)


def history(seed, steps):
    rng = np.random.default_rng(seed)
    crawled = rng.random((steps, TOPICS.size)) < 0.4
    items = rng.poisson(rng.choice([0.3, 3.0]) * MEAN, crawled.shape).astype(float)
    return rng.integers(0, 4, TOPICS.size) + 1.0, crawled, items


def filtered(known, ages, crawled, items, shape=np.inf):
    """Return the state after the crawls of a batch of episodes, (B, T, N), and Σ factor before the
    crawls of the last step."""
    state, age = known.begin(ages, LEFT), ages.copy()
    for now, number in zip(crawled.swapaxes(0, 1), items.swapaxes(0, 1), strict=True):
        env, source = np.nonzero(now)
        given = number[env, source], MEAN[source], np.full(source.size, shape)
        state, seen = known.update(state, now, env, source, *given, LEFT)
        age = np.where(now, 0.0, age) + 1.0
    return state, seen


def test_merged_paths_are_nearly_as_good_as_all(monkeypatch):
    """Twelve steps, ratios of 3 and 9, regimes of 10 and 50 steps, twelve histories each."""
    monkeypatch.setattr(regimes, "_OPTIMISM", 0.0)
    for ratio, switch in ((3.0, 0.1), (9.0, 0.02)):
        law, differences = Regimes(ratio, switch), []
        known = RegimeFilter(TOPICS, (law,))
        for seed in range(12):
            age, crawled, items = history(seed, 12)
            state, _ = filtered(known, age[None], crawled[None], items[None])
            factor, content = all_paths(law, age, crawled, items)
            differences.append([known.factor(state)[0] - factor, known.content(state)[0] - content])
        assert np.abs(differences).mean() < 0.02
        assert np.abs(differences).max() < 0.3


def test_the_standard_deviation_of_content_is_that_of_the_paths():
    """After one step without crawls content is LEFT·c + factor, and the regime is unknown."""
    law = Regimes(4.0, 0.5)
    known = RegimeFilter(TOPICS, (law,))
    none = np.zeros((1, 1, TOPICS.size))
    state, _ = filtered(known, np.ones((1, TOPICS.size)), none > 0, none)
    expected = LEFT + 1.0 + 0.4 * np.diff(law.factors) / 2
    assert known.content(state)[0] == pytest.approx(np.full(TOPICS.size, expected))


def test_what_was_exposed_before_a_crawl_is_corrected_by_its_items():
    known = RegimeFilter(TOPICS, (Regimes(9.0, 0.01), Regimes(1.0, 0.0)), (0.9, 0.1))
    steps, quiet = np.zeros((2, 6, TOPICS.size)), np.zeros((2, 6, TOPICS.size))
    steps[:, -1] = 1.0
    quiet[1, -1] = 1.8 * 7 * MEAN
    _, seen = filtered(known, np.ones((2, TOPICS.size)), steps > 0, quiet)
    few, many = seen.reshape(2, TOPICS.size)
    # Six steps before the crawl: one before the episode, when the factor was 1, and five.
    assert few == pytest.approx(np.full(TOPICS.size, 1 + 5 * 0.2), abs=0.6)
    assert many == pytest.approx(np.full(TOPICS.size, 1 + 5 * 1.8), abs=0.6)


def test_batches_are_independent():
    known = RegimeFilter(TOPICS, (Regimes(4.0, 0.1), Regimes(2.0, 0.3)))
    ages, crawled, items = map(np.array, zip(*(history(seed, 9) for seed in range(3)), strict=True))
    state, _ = filtered(known, ages, crawled, items, shape=5.0)
    for b in range(3):
        rows = slice(b, b + 1)
        alone, _ = filtered(known, ages[rows], crawled[rows], items[rows], shape=5.0)
        assert known.factor(state)[b] == pytest.approx(known.factor(alone)[0])
        assert known.content(state)[b] == pytest.approx(known.content(alone)[0])


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
    known = RegimeFilter(TOPICS, (Regimes(1.0), *laws), (0.5, *(0.125,) * 4))
    every = np.ones((1, *items.shape), dtype=bool)
    state, _ = filtered(known, np.ones((1, TOPICS.size)), every, items[None], shape)
    assert known.factor(state)[0] == pytest.approx(np.array(weight) @ expected / np.sum(weight))


def test_factors_follow_regimes_and_are_one_where_there_are_none():
    """On 40 topics of five sources with crawls every four steps, 500 steps."""
    rng, topics = np.random.default_rng(5), np.repeat(np.arange(40), 5)
    hot = np.cumsum(rng.random((500, 40)) < 0.01, axis=0) % 2
    for truth in (np.where(hot, 1.8, 0.2), np.ones((500, 40))):
        laws = Regimes(1.0), Regimes(3.0, 1 / 8), Regimes(3.0, 1 / 32), Regimes(10.0, 1 / 32)
        known, rate = RegimeFilter(topics, laws), np.full(50, 0.3)
        state, error = known.begin(np.arange(200)[None] % 4 + 1.0, LEFT), []
        for step in range(4, 500):
            crawled = (np.arange(200) + step) % 4 == 3
            (source,) = np.nonzero(crawled)
            found = rng.poisson(0.3 * truth[step - 4 : step, topics[source]].sum(axis=0))
            # The mean rates are known well.
            told = np.zeros_like(source), source, found, rate, np.full(50, 1e3), LEFT
            state, _ = known.update(state, crawled[None], *told)
            error.append(np.abs(known.factor(state)[0] - truth[step][topics]).mean())
        found = float(np.mean(error[100:]))
        assert found < (0.35 if truth.std() > 0 else 0.01)  # .8 for a factor of 1 under regimes
