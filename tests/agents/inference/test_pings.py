"""The silent rate and the precision: against integrals, and in simulation."""

from itertools import product

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

from agents.inference import CrawlOutcome, FleetPrior, SignalQuality, make_estimator
from agents.inference.ping_likelihood import (
    after_change,
    after_count,
    after_large_count,
    compare,
    has_ceased,
)
from agents.inference.pings import PRECISIONS, no_change, odds_after


def integrals(shape, rate, likelihood):
    """Return the log-probability of an observation, and mean and variance of Λ_s after it."""
    law = stats.gamma(shape, scale=1 / rate)
    # The trapezoidal rule for ln Λ_s: the integrand is smooth, and falls to nothing at both ends.
    log, step = np.linspace(*np.log([law.ppf(1e-13), law.isf(1e-13)]), 3000, retstep=True)
    x = np.exp(log)
    weight = law.pdf(x) * likelihood(x) * x * step
    total, first, second = (float((weight * x**power).sum()) for power in range(3))
    mean = first / total
    return np.log(total), mean, second / total - mean**2


def probability(k, mean, n, p):
    """Return P(k), k ~ Poisson(mean) + Binomial(n, p)."""
    true = np.arange(min(k, n) + 1)
    silent = stats.poisson.pmf(k - true, mean[:, None])
    return (stats.binom.pmf(true, n, p) * silent).sum(axis=-1)


CASES = [
    (0.5, 0.01, 4.0, 0, 0),
    (0.7, 3.0, 2.0, 1, 1),
    (2.0, 1.5, 9.0, 3, 7),
    (5.0, 40.0, 6.0, 9, 4),
]


@pytest.mark.parametrize(("shape", "rate", "gap", "n", "k"), CASES)
def test_one_crawl_is_the_integral_over_the_silent_rate(shape, rate, gap, n, k):
    for p in PRECISIONS[[0, 7, 15]]:
        counted = integrals(shape, rate, lambda x, p=p: probability(k, x * gap, n, p))
        found = after_count(shape, rate, gap, n, p, k)
        np.testing.assert_allclose(found, counted, rtol=1e-6, atol=1e-12)

        def nothing(x, p=p):
            return (1 - p) ** n * np.exp(-x * gap)

        for changed in (False, True):
            if changed:
                expected = integrals(shape, rate, lambda x: 1 - nothing(x))
            else:
                expected = integrals(shape, rate, nothing)
            found = after_change(shape, rate, gap, n, p, changed)
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


def test_something_new_after_any_gap():
    """Against 60 digits, for gaps that are short or long against what is known of Λ_s."""

    def expected(*law):
        a, b, gap, n, p = map(mpmath.mpf, law)
        kept = (1 - p) ** n * (b / (b + gap)) ** a  # probability of nothing new
        mean, square = (
            (x / b**k - kept * x / (b + gap) ** k) / (1 - kept)
            for k, x in ((1, a), (2, a * (a + 1)))
        )
        return [float(mpmath.log(1 - kept)), float(mean), float(square - mean**2)]

    with mpmath.workdps(60):
        for law in product(
            (1e-6, 0.5, 3.0, 1e8), (1e-3, 1.0, 1e6), (1e-9, 1e-6, 1e-3, 1e3), (0, 1), (0.1,)
        ):
            found = after_change(*law, True)
            np.testing.assert_allclose(found, expected(*law), rtol=1e-9, atol=1e-9 * found[2])


@pytest.mark.parametrize("gap", [0.0, 1e-300, 1e-100, 1e100])
def test_no_gap_breaks_a_likelihood(gap):
    for a, b, n, p, k in product((1e-6, 3.0), (1e-9, 1e9), (0, 50), (0.002, 0.998), (0, 1, 60)):
        assert np.isfinite(after_count(a, b, gap, n, p, k)).all()
        assert np.isfinite(after_change(a, b, gap, n, p, k > 0)).all()


def test_large_counts_are_nearly_normal():
    for p, k in ((0.2, 130.0), (0.6, 190.0), (0.9, 240.0)):
        exact = after_count(400.0, 40.0, 10.0, 150.0, p, k)
        normal = after_large_count(400.0, 40.0, 10.0, 150.0, p, k)
        assert normal[1] == pytest.approx(exact[1], rel=2e-3)
        assert normal[2] == pytest.approx(exact[2], rel=2e-2)
    # The terms that are left out of the logarithm are the same for all precisions.
    logs = [
        f(400.0, 40.0, 10.0, 150.0, p, 190.0)[0]
        for f in (after_count, after_large_count)
        for p in (0.5, 0.7)
    ]
    assert logs[1] - logs[0] == pytest.approx(logs[3] - logs[2], abs=0.1)


def test_sources_that_never_ping_have_the_posterior_of_counts():
    rng = np.random.default_rng(0)
    signals, plain = SignalQuality(retention=1.0), FleetPrior()
    state, other = signals.begin((2, 5)), plain.begin((2, 5))
    for _ in range(40):
        outcome = CrawlOutcome.of(
            rng.integers(1, 9, (2, 5)), rng.poisson(2.0, (2, 5)), rng.random((2, 5)) < 0.4
        )
        state, other = signals.update(state, outcome), plain.update(other, outcome)
    for one, two in zip(signals.posterior(state), plain.posterior(other), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9)


def crawled(
    estimator, rates, recall, precision, steps,
    batch = 10, counted = True):  # fmt: skip
    """Return the state after `steps` in which waiting pings cause crawls, and others occur."""
    rng, shape = np.random.default_rng(1), (batch, rates.size)
    state, age, pings, items = estimator.begin(shape), *np.zeros((3, *shape))
    for _ in range(steps):
        true, silent = rng.poisson(recall * rates, shape), rng.poisson((1 - recall) * rates, shape)
        false = rng.poisson(recall * rates * (1 / precision - 1), shape)
        arrived = (true + false).astype(float)
        age, pings, items = age + 1, pings + arrived, items + true + silent
        cells = np.flatnonzero(rng.random(shape) < np.where(pings > 0, 0.3, 0.05))
        gaps, found, number = (x.ravel()[cells] for x in (age, items, pings))
        counts = found if counted else np.zeros_like(found)
        state = estimator.update(
            state, CrawlOutcome.at(shape, cells, gaps, counts, found > 0, 1.0, number, arrived)
        )
        for array in (age, pings, items):
            array.ravel()[cells] = 0
    return state


def covered(law, truth):
    """Return how often the central interval of probability .9 contains the truth."""
    return float(((law.quantile(0.05) <= truth) & (truth <= law.quantile(0.95))).mean())


@pytest.mark.parametrize("precision", [0.8, 0.02])
def test_bias_and_coverage(precision):
    """Bounds are five standard errors of 400 sources, or the width of a cell of the precisions; the
    seed is fixed."""
    rates = np.geomspace(0.05, 1.0, 40)
    estimator = SignalQuality()
    state = crawled(estimator, rates, 0.5, precision, 800)
    quality, total = estimator.quality(state), estimator.posterior(state)
    assert abs((quality.rate / rates - 1).mean()) < 0.04
    assert 0.82 < covered(total, rates) < 0.98
    cell = np.sqrt(precision * (1 - precision)) * np.pi / PRECISIONS.size
    assert np.abs(quality.precision - precision).mean() < cell
    assert abs((quality.silent / (0.5 * rates) - 1).mean()) < 0.1


def test_changes_alone_identify_both_where_some_gaps_have_none():
    rates = np.geomspace(0.05, 0.3, 20)
    estimator = SignalQuality(counts=False)
    state = crawled(estimator, rates, 0.5, 0.8, 800, counted=False)
    quality = estimator.quality(state)
    assert abs((quality.rate / rates - 1).mean()) < 0.06
    assert abs(quality.precision.mean() - 0.8) < 0.04


def test_draws_have_the_moments_of_the_posterior():
    estimator = SignalQuality()
    state = crawled(estimator, np.array([0.1, 0.6]), 0.5, 0.3, 60, batch=1)
    rng, cells = np.random.default_rng(0), np.array([0, 1])
    draws = np.array([estimator.draw(state, cells, rng) for _ in range(4000)])
    mean = np.array(estimator.quality(state, cells))
    deviation = draws.std(axis=0)
    assert (np.abs(draws.mean(axis=0) - mean) < 5 * deviation / np.sqrt(4000)).all()
    np.testing.assert_allclose(deviation[0], estimator.posterior(state, cells).deviation, rtol=0.12)


def test_weighting_forgets_and_batches_are_loops():
    rates = np.full(6, 0.5)
    for retention in (1.0, 0.9):
        estimator = SignalQuality(retention=retention, hazard=0.0)
        state = crawled(estimator, rates, 0.5, 0.8, 50, batch=2)
        moments = estimator.quality(state)
        first = estimator.quality(tuple(array[:1] for array in state))
        np.testing.assert_array_equal(moments.rate[:1], first.rate)
        some = estimator.quality(state, np.array([1, 8]))
        np.testing.assert_array_equal(moments.precision.ravel()[[1, 8]], some.precision)
    silence = CrawlOutcome.of(np.zeros((2, 6)), crawled=False)
    deviation = estimator.posterior(state).deviation
    for _ in range(60):
        state = estimator.update(state, silence)
    assert (estimator.posterior(state).deviation > deviation).all()


def test_crawls_after_an_unknown_number_of_pings_are_ignored():
    cells, ones = np.arange(2), np.ones(2)
    outcome = CrawlOutcome.at((2,), cells, ones, ones, ones > 0, 1.0, np.array([-1.0, 3.0]))
    assert outcome.cells.tolist() == [1]
    assert outcome.pings.tolist() == [3.0]


def test_a_precision_that_falls_is_noticed_sooner_with_a_hazard():
    cells, one = np.arange(1), np.ones(1)
    estimates = []
    for hazard in (0.0, 2e-4):
        estimator = SignalQuality(hazard=hazard)
        state = estimator.begin((1, 1))
        for t in range(200):  # one ping and an item in every gap of 5 steps, and then no item
            found = one * (t < 180)
            outcome = CrawlOutcome.at((1, 1), cells, 5 * one, found, found > 0, 5.0, one, one[None])
            state = estimator.update(state, outcome)
        estimates.append(float(estimator.quality(state).precision[0, 0]))
    assert estimates[0] > 0.5 > 0.3 > estimates[1]


@pytest.mark.parametrize("pings", [1e3, 1e8])
@pytest.mark.parametrize("counts", [False, True])
def test_pings_that_announce_next_to_nothing(counts, pings):
    """Two items in ten crawls, each after very many pings: the rate is that of the items."""
    estimator = SignalQuality(counts=counts)
    state, one = estimator.begin((1, 1)), np.array([0])
    for crawl in range(400):
        found, many = np.array([float(crawl % 5 == 0)]), np.array([pings])
        outcome = CrawlOutcome.at(
            (1, 1), one, found * 0 + 1, found, found > 0, 1.0, many, many[None]
        )
        state = estimator.update(state, outcome)
    quality = estimator.quality(state)
    assert quality.precision[0, 0] < 1e-4
    np.testing.assert_allclose([quality.rate, quality.silent], 0.2, atol=0.06)
    assert np.isfinite(estimator.posterior(state).deviation).all()


def test_it_is_made_by_name():
    estimator = make_estimator("signals", retention=0.99, counts=False)
    assert isinstance(estimator, SignalQuality)
    assert (estimator.retention, estimator.counts) == (0.99, False)
    with pytest.raises(ValueError, match="retention is"):
        SignalQuality(retention=0.0)
    with pytest.raises(ValueError, match="hazard is"):
        SignalQuality(hazard=1.0)


def test_the_odds_of_a_change_of_the_fleet_are_those_of_all_times_of_it():
    """Against the sum over the time of the change, with a probability of `hazard` per step."""
    rng, hazard = np.random.default_rng(0), 0.01
    logs, chance = rng.normal(0, 1, (9, 4)), np.array([0.1, 0.2, 0.3, 0.4])
    odds = no_change((4,))
    for log in logs:
        odds = odds_after(odds, hazard)
        compare(log, chance, odds)
    ratios = np.exp(logs) / (np.exp(logs) @ chance)[:, None]
    expected = sum(hazard / 4 * ratios[k:].prod(axis=0) for k in range(9))
    np.testing.assert_allclose(np.exp(odds), expected, rtol=1e-9)


def test_the_odds_of_silence_are_those_of_all_times_of_an_end():
    hazard, rate = 1e-3, 0.3
    limit = np.log1p(4 * rate / hazard) / rate  # odds of 4
    for silence, expected in ((0.99 * limit, False), (1.01 * limit, True)):
        ended = integrate.quad(lambda u: hazard * np.exp(-rate * u), 0, silence)[0]
        assert (ended > 4 * np.exp(-rate * silence)) == expected
        assert has_ceased(rate, silence, hazard) == expected


def test_a_change_of_the_fleet_is_noticed_from_few_crawls_of_each_source():
    """The sources are crawled in turn, a few times each; then items come without pings."""
    n, seen = 30, []
    for hazard in (0.0, 2e-4):
        estimator, rng = SignalQuality(hazard=hazard), np.random.default_rng(0)
        state = estimator.begin((1, n))
        for t in range(12 * n):
            true = t < 10 * n
            items = rng.poisson(0.3) + (rng.binomial(2, 0.9 if true else 0.05))
            cell, pings = np.array([t % n]), np.full((1, n), 2.0 / n)
            found = np.array([float(items)])
            outcome = CrawlOutcome.at(
                (1, n), cell, np.array([30.0]), found, found > 0, 1.0, np.array([2.0]), pings
            )
            state = estimator.update(state, outcome)
            if t == 10 * n - 1:
                before = estimator.quality(state).precision
        seen.append(np.r_[before.mean(), estimator.quality(state).precision.mean()])
    (steady, late), (same, soon) = seen
    assert steady == pytest.approx(same, abs=0.05) == pytest.approx(0.9, abs=0.07)
    assert soon < 0.15 < 0.3 < late


def test_items_of_pings_that_cease_come_unannounced_until_pings_come_again():
    estimator, n = SignalQuality(), 4
    state = crawled(estimator, np.full(n, 0.5), 0.6, 0.8, 400, batch=1)
    before = estimator.quality(state)
    quiet, one = np.zeros((1, n)), np.eye(1, n)

    def heard(state, arrived):
        nothing = np.zeros(0)
        cells = np.zeros(0, dtype=np.intp)
        return estimator.update(
            state, CrawlOutcome.at((1, n), cells, nothing, nothing, nothing > 0, 1.0, None, arrived)
        )

    for _ in range(20):
        state = heard(state, quiet)
    assert (estimator.ping_rate(state) == 0).all()
    after = estimator.quality(state)
    np.testing.assert_allclose(after.rate, before.rate, rtol=0.1)
    np.testing.assert_allclose(after.silent, after.rate)
    again = estimator.quality(heard(state, one))
    np.testing.assert_allclose(again.silent[0, 0], before.silent[0, 0], rtol=0.1)
    np.testing.assert_allclose(again.silent[0, 1:], after.silent[0, 1:], rtol=0.1)
