"""Mean utility and decay, from whole crawls and from sums over items: simulation and algebra."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from agents.inference import CrawlOutcome, GammaPoisson, Harvests, HarvestSums
from agents.inference.content import DECAYS, EULER, Population, from_utility, posterior_line
from tests.agents.inference.common import RATE, Z_LIMIT

UTILITY = 1.5
VARIANCE = np.pi**2 / 6
NUMBERS = st.one_of(
    st.sampled_from([0.0, -1.0, 1e-308, 1e308, 3e38, 1e9, 9e8, np.inf, -np.inf, np.nan]),
    st.floats(-100, 100),
)


def updated(estimator, state, outcome, *revealed):
    """Return the state after a step whose crawls revealed numbers (B, N)."""
    return estimator.update(state, outcome, *(x.reshape(-1)[outcome.cells] for x in revealed))


@pytest.mark.parametrize("kind", [Harvests, HarvestSums])
@settings(max_examples=10)
@given(data=st.data())
def test_no_outcome_breaks_an_estimate(kind, data):
    estimator = kind(data.draw(st.sampled_from([1.0, 0.01, 300.0])))
    state = estimator.begin((2, 3))
    for _ in range(data.draw(st.integers(1, 20))):
        gap, items, *revealed = (
            data.draw(arrays(float, (2, 3), elements=NUMBERS))
            for _ in range(2 + len(estimator.features))
        )
        kept = [x.copy() for x in state]
        new = updated(estimator, state, CrawlOutcome.of(gap, items), *revealed)
        for array, copy in zip(state, kept, strict=True):
            np.testing.assert_array_equal(array, copy)
        state = new
    assert all(np.isfinite(array).all() for array in state)
    for mean in estimator.estimate(state, np.arange(6)):
        assert np.isfinite(mean).all()
        assert (mean >= 0).all()


def crawled(learner, crawls, n, decay, seed, unit=1.0):
    """Return the state after crawls with gaps from 1 to 20, one fleet of n sources that publish one
    item per step; `unit` is that of utility."""
    rng = np.random.default_rng(seed)
    state = learner.begin((1, n))
    for _ in range(crawls):
        gap = rng.integers(1, 21, (1, n)) * 1.0
        number = rng.poisson(gap[0])
        source = np.repeat(np.arange(n), number)
        age = rng.uniform(0, gap[0][source])
        utility = rng.exponential(UTILITY, source.size)
        utility = utility * np.exp(-np.broadcast_to(decay, n)[source] * age)
        harvest = np.bincount(source, utility, n)[None] * unit
        outcome = CrawlOutcome.of(gap * learner.period, number[None])
        state = updated(learner, state, outcome, harvest)
    return state


@pytest.mark.parametrize("decay", [0.05, 0.2, 0.6])
def test_gaps_reveal_decay_and_utility(decay):
    learner, cells = Harvests(), np.arange(30)
    state = crawled(learner, 200, 30, decay, 4)
    weight, utility = learner.decays(state, cells).T, learner.utility(state, cells).T
    step = np.log(DECAYS[1] / DECAYS[0])
    assert np.abs(weight @ np.log(DECAYS) - np.log(decay)).mean() < 0.6 * step
    slope = (weight * utility / DECAYS).sum(axis=-1)  # of u*, which determines the index
    np.testing.assert_allclose(slope, UTILITY / decay, rtol=0.35)
    assert abs(slope.mean() * decay / UTILITY - 1) < 0.12
    means = learner.estimate(state, cells)
    np.testing.assert_allclose(means[0], (weight * utility).sum(axis=-1), rtol=1e-5)
    np.testing.assert_allclose(means[1], weight @ DECAYS, rtol=1e-5)


def test_harvests_do_not_depend_on_units():
    cells = np.arange(5)
    reference = Harvests().estimate(crawled(Harvests(), 40, 5, 0.2, 1), cells)
    for time, utility in ((2.0**30, 2.0**30), (2.0**-30, 2.0**-30)):
        learner = Harvests(time)
        means = learner.estimate(crawled(learner, 40, 5, 0.2, 1, utility), cells)
        np.testing.assert_allclose(means[0] / utility, reference[0], rtol=1e-3)
        np.testing.assert_allclose(means[1] * time, reference[1], rtol=1e-3)


def test_a_source_without_items_has_the_decay_and_utility_of_the_fleet():
    learner = Harvests()
    state = crawled(learner, 60, 200, np.r_[np.full(150, 0.1), np.full(50, 1.0)], 5)
    new = tuple(np.concatenate([x, np.zeros_like(x[:, :1])], axis=1) for x in state[3:])
    last = np.array([200])
    weight = learner.decays((*state[:3], *new), last).T
    fleets = state[2] / state[3].sum()
    utility = learner.utility((*state[:3], *new), last)[:, 0]
    np.testing.assert_allclose(utility, fleets[0], rtol=1e-6)
    near = [np.abs(np.log(DECAYS / m)) < 0.8 for m in (0.1, 1.0)]
    assert weight[0, near[0]].sum() == pytest.approx(0.75, abs=0.15)
    assert weight[0, near[1]].sum() == pytest.approx(0.25, abs=0.15)


def test_countless_items_of_no_utility_do_not_affect_other_sources():
    learner = Harvests()
    state = learner.begin((1, 3))
    items, utility = np.array([[9e8, 5.0, 5.0]]), np.array([[0.0, 4.0, 4.0]])
    outcome = CrawlOutcome.of(np.full((1, 3), 4.0), items, elapsed=4.0)
    for _ in range(40):  # beyond two fits of the fleet
        state = updated(learner, state, outcome, utility)
    weight = learner.decays(state, np.arange(3))
    np.testing.assert_allclose(weight.sum(axis=0), 1.0, rtol=1e-5)
    np.testing.assert_allclose(weight[:, 1], weight[:, 2])
    assert weight[:, 1].max() < 1.0


@pytest.mark.parametrize("decay", [0.05, 1.0])
def test_items_inferred_from_harvests_are_unbiased(decay):
    """Content of exponential utilities: the error is that of the posterior."""
    rng = np.random.default_rng(9)
    utility, gap, runs = 2.0, 4.0, 1000
    estimator = GammaPoisson()
    state = estimator.begin((runs,))
    for _ in range(25):
        number = rng.poisson(RATE * gap, runs)
        age = rng.uniform(0, gap, number.sum())
        items = rng.exponential(utility, number.sum()) * np.exp(-decay * age)
        harvest = np.bincount(np.repeat(np.arange(runs), number), items, runs)
        outcome = CrawlOutcome.of(np.full(runs, gap))
        inferred = from_utility(outcome, harvest, np.array(utility), np.array(decay))
        state = estimator.update(state, inferred)
    law = estimator.posterior(state)
    error = law.mean.std()
    assert abs(law.mean.mean() - RATE) < Z_LIMIT * error / np.sqrt(runs) + 0.02 * RATE
    assert law.deviation.mean() == pytest.approx(error, rel=0.1)


def sums_of(source, age, utility, n):
    """Return the sums that the environment shows of a fleet of n, (1, n) each."""
    log = np.log(utility)
    terms = (np.ones_like(age), age, age**2, log, age * log)
    return [np.bincount(source, term, n)[None] for term in terms]


def harvested(rng, decay, utility, items, noise="exponential"):
    n = len(decay)
    source = np.repeat(np.arange(n), items)
    age = rng.uniform(0, 6.0, source.size)
    drawn = rng.exponential(1.0, source.size)
    if noise == "lognormal":
        drawn = rng.lognormal(-0.72, 1.2, source.size)
    return sums_of(source, age, utility[source] * drawn * np.exp(-decay[source] * age), n)


def fleet_of(rng, n):
    return rng.uniform(0.05, 0.45, n), rng.lognormal(0.3, 0.6, n)


def learnt(learner, sums, steps=32):
    """Return the state after one step with crawls and others without, which fit the fleet."""
    shape = (sums[0].shape[0], sums[0].shape[1])
    gap = np.full(shape, learner.period)
    state = updated(learner, learner.begin(shape), CrawlOutcome.of(gap), *sums)
    for _ in range(steps):
        state = updated(learner, state, CrawlOutcome.of(gap, crawled=False), *sums)
    return state


def test_the_posterior_is_that_of_the_matrix():
    """Against numpy's inverse of the precision matrix, source by source."""
    rng = np.random.default_rng(0)
    sums = harvested(rng, *fleet_of(rng, 5), items=7)
    line = posterior_line(Population(*map(np.array, (0.2, 0.03, -0.4, 0.5))), *sums)
    for i in range(5):
        n, age, age2, log, age_log = (float(x[0, i]) for x in sums)
        precision = np.array([[age2, -age], [-age, n]]) / VARIANCE + np.diag([1 / 0.03, 1 / 0.5])
        covariance = np.linalg.inv(precision)
        right = np.array([-age_log, log]) / VARIANCE + np.array([0.2 / 0.03, -0.4 / 0.5])
        slope, level = covariance @ right
        assert line.slope[0, i] == pytest.approx(slope)
        assert line.level[0, i] == pytest.approx(level)
        assert line.slope_variance[0, i] == pytest.approx(covariance[0, 0])
        assert line.level_variance[0, i] == pytest.approx(covariance[1, 1])
        assert line.tilt[0, i] == pytest.approx(covariance[0, 1] / covariance[0, 0])
        given = covariance[1, 1] - covariance[0, 1] ** 2 / covariance[0, 0]
        assert line.level_given[0, i] == pytest.approx(given)


@pytest.mark.parametrize("items", [3, 30, 1000])
def test_credible_intervals_cover_the_truth(items):
    rng = np.random.default_rng(1)
    decay, utility = fleet_of(rng, 400)
    state = learnt(HarvestSums(), harvested(rng, decay, utility, items))
    line = posterior_line(Population(*state[1].T[..., None]), *state[2:])
    for truth, mean, variance in (
        (decay, line.slope[0], line.slope_variance[0]),
        (np.log(utility) - EULER, line.level[0], line.level_variance[0]),
    ):
        covered = np.mean(np.abs(truth - mean) < 1.645 * np.sqrt(variance))
        assert abs(covered - 0.9) < 0.07


def test_estimates_are_the_posterior_means():
    """Of ξ̄ against draws from the distribution of its logarithm; 4 standard errors."""
    rng = np.random.default_rng(5)
    state = learnt(HarvestSums(), harvested(rng, *fleet_of(rng, 20), 5))
    line = posterior_line(Population(*state[1].T[..., None]), *state[2:])
    utility, decay = HarvestSums().estimate(state, np.arange(20))
    np.testing.assert_allclose(decay, np.maximum(line.slope[0], 0.02))
    middle = line.level + line.tilt * (decay - line.slope) + EULER
    drawn = np.exp(rng.normal(middle, np.sqrt(line.level_given), (40_000, 20)))
    assert (np.abs(utility - drawn.mean(axis=0)) < 4 * drawn.std(axis=0) / 200).all()


def test_many_items_determine_the_estimates_whatever_the_distribution():
    """For lognormal utilities γ stands for σ²/2 = .72: all ξ̄ are too low by one factor, e^−.14."""
    for noise, factor in (("exponential", 1.0), ("lognormal", np.exp(EULER - 0.72))):
        rng = np.random.default_rng(2)
        true_decay, true_utility = fleet_of(rng, 30)
        sums = harvested(rng, true_decay, true_utility, 20_000, noise)
        utility, decay = HarvestSums().estimate(learnt(HarvestSums(), sums), np.arange(30))
        np.testing.assert_allclose(utility / true_utility, factor, rtol=0.12)
        np.testing.assert_allclose(decay, true_decay, atol=0.025)


def test_sums_do_not_depend_on_units():
    """From the first items on, when little is known, and after the fleet has been fitted."""
    for steps in (0, 5, 32):
        check_units(steps)


def check_units(steps):
    rng, cells = np.random.default_rng(2), np.arange(20)
    number, age, age2, log, age_log = harvested(rng, *fleet_of(rng, 20), items=3)
    reference = HarvestSums().estimate(
        learnt(HarvestSums(), [number, age, age2, log, age_log], steps), cells
    )
    for time, utility in ((3.0, 1.0), (1e9, 1e9), (1e-9, 1e-9), (1.0, 1e-9)):
        shift = np.log(utility)
        logs = log + number * shift, (age_log + age * shift) * time
        scaled = [number, age * time, age2 * time**2, *logs]
        learner = HarvestSums(time)
        found = learner.estimate(learnt(learner, scaled, steps), cells)
        np.testing.assert_allclose(found[0] / utility, reference[0], rtol=1e-6)
        np.testing.assert_allclose(found[1] * time, reference[1], rtol=1e-6)


def test_sources_without_items_have_the_mean_of_the_fleet():
    rng = np.random.default_rng(4)
    true_decay, true_utility = fleet_of(rng, 300)
    sums = harvested(rng, true_decay, true_utility, 100)
    sums = [np.concatenate([x, np.zeros((1, 1))], axis=1) for x in sums]
    learner = HarvestSums()
    utility, decay = learner.estimate(learnt(learner, sums), np.array([300]))
    assert decay[0] == pytest.approx(true_decay.mean(), rel=0.15)
    assert utility[0] == pytest.approx(true_utility.mean(), rel=0.15)


@settings(max_examples=15)
@given(data=st.data())
def test_the_order_of_crawls_does_not_matter(data):
    """But for rounding; within the steps between two fits of the fleet."""
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    parts = [harvested(rng, *fleet_of(rng, 3), items=i + 1) for i in range(4)]
    whole = [
        tuple(data.draw(arrays(float, (1, 3), elements=st.integers(0, 9))) for _ in range(3))
        for _ in range(4)
    ]
    sums, totals = [], []
    for order in (range(4), data.draw(st.permutations(range(4)))):
        by_items, by_crawls = HarvestSums().begin((1, 3)), Harvests().begin((1, 3))
        for i in order:
            by_items = updated(HarvestSums(), by_items, CrawlOutcome.of(np.ones((1, 3))), *parts[i])
            gap, items, utility = whole[i]
            by_crawls = updated(Harvests(), by_crawls, CrawlOutcome.of(gap, items), utility)
        sums.append(by_items[2:])
        totals.append(by_crawls)
    for one, other in zip(*sums, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    for one, other in zip(*totals, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
