"""Estimators that count, against simulation: error, coverage, changes; and any report to all."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from agents.inference import (
    ESTIMATORS,
    Changed,
    CrawlOutcome,
    FleetPrior,
    Forgetting,
    GammaPoisson,
    Posterior,
    SignalQuality,
    make_estimator,
    weak_prior,
)
from agents.inference.rates import digamma, fit_prior
from tests.agents.inference.common import (
    RATE,
    Z_LIMIT,
    check_any_outcome,
    check_not_crawled,
    check_order,
    check_unit_of_time,
    crawl_changing,
    learn,
)

EVERY = {
    "gamma-poisson": GammaPoisson(),
    "gamma-poisson, retention .9": GammaPoisson(retention=0.9),
    "forgetting": Forgetting(),
    "fleet-prior": FleetPrior(),
    "changed": Changed(),
    "changed, retention .9": Changed(retention=0.9),
    "signals": SignalQuality(),
    "signals, of changes": SignalQuality(counts=False),
}
START = Posterior(np.full((1, 1), 0.5), np.full((1, 1), 0.01))
WEAK = weak_prior()


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=15)
@given(data=st.data())
def test_no_outcome_breaks_an_estimate(name, data):
    check_any_outcome(EVERY[name], data)


def test_the_unit_of_time_does_not_matter():
    for name in ESTIMATORS:
        check_unit_of_time(partial(make_estimator, name))


@settings(max_examples=15)
@given(data=st.data())
def test_without_forgetting_neither_order_nor_idle_steps_matter(data):
    for estimator in (GammaPoisson(), Changed()):
        check_order(estimator, data)
        check_not_crawled(estimator)


def test_the_error_is_the_known_one_and_intervals_cover():
    """Reference: two independent computations with a few hundred runs, .130 and .139; theory says
    (ΛΣτ)^−½ = .141."""
    rng = np.random.default_rng(0)
    gaps = rng.exponential(1.0, (100, 1000))
    law = learn(GammaPoisson(), gaps, rng.poisson(RATE * gaps))
    assert 0.9 * 0.130 < np.sqrt(np.mean((law.mean / RATE - 1) ** 2)) < 1.1 * 0.139
    assert abs(law.mean.mean() / RATE - 1) < 0.05
    assert law.deviation.mean() == pytest.approx(law.mean.std(), rel=0.06)
    assert abs(np.mean(np.abs(law.mean - RATE) < 1.96 * law.deviation) - 0.95) < 0.03


def test_gamma_poisson_is_the_exact_posterior():
    """Rates drawn from the prior lie below the posterior's quantiles as often as these say."""
    rng = np.random.default_rng(1)
    prior = Posterior(np.array(2.0), np.array(4.0))
    rate = rng.gamma(2.0, 1 / 4.0, 20_000)
    gaps = rng.integers(1, 6, (3, rate.size)) * 1.0
    law = learn(GammaPoisson(prior), gaps, rng.poisson(rate * gaps))
    place = stats.gamma.cdf(rate, law.shape, scale=1 / law.rate)
    assert stats.kstest(place, "uniform").pvalue > 1e-5
    for level in (0.1, 0.5, 0.9):
        fraction = np.mean(rate < law.quantile(level))
        assert abs(fraction - level) < Z_LIMIT * np.sqrt(level * (1 - level) / rate.size) + 2e-3
    drawn = stats.gamma.cdf(law.draw(rng), law.shape, scale=1 / law.rate)
    assert stats.ks_2samp(drawn, place).pvalue > 1e-5


def test_quantiles_are_accurate():
    levels = np.array([0.6, 0.75, 0.9, 0.95, 0.99, 0.999])
    for shape in (0.5, 1.0, 4.0, 50.0, 1e4):
        law = Posterior(np.array(shape), np.array(3.0))
        exact = stats.gamma.ppf(levels, shape, scale=1 / 3.0)
        np.testing.assert_allclose(law.quantile(levels), exact, rtol=0.031 if shape < 4 else 0.008)


def test_every_source_may_have_its_own_prior():
    for build in (GammaPoisson, partial(Forgetting, (0.9,))):
        check_own_priors(build)


def check_own_priors(build):
    """Check that what one source reveals does not depend on the priors of others, and that the
    prior is returned before any crawl."""
    own = Posterior(np.array([2.0, 0.5]), np.array([1.0, 10.0]))
    both, second = build(prior=own), build(prior=Posterior(own.shape[1], own.rate[1]))
    np.testing.assert_allclose(both.posterior(both.begin((3, 2))).mean, [[2.0, 0.05]] * 3)
    gaps, items = np.full((4, 3, 2), 2.0), np.tile([1.0, 0.0], (4, 3, 1))
    law, alone = learn(both, gaps, items), learn(second, gaps[..., 1:], items[..., 1:])
    np.testing.assert_allclose(law.mean[:, 1:], alone.mean)
    assert (law.mean[:, 0] > law.mean[:, 1]).all()


def test_forgetting_follows_a_change():
    for before, after in ((1.0, 8.0), (8.0, 1.0)):
        stays = crawl_changing(GammaPoisson(), before, after)
        assert np.median(np.abs(stays / after - 1)) > 0.5
        follows = crawl_changing(GammaPoisson(retention=0.93), before, after)
        assert np.median(np.abs(follows / after - 1)) < 0.3


def test_the_past_fades_with_time_towards_the_prior():
    estimator = GammaPoisson(retention=0.9)
    first = estimator.update(estimator.begin((1,)), CrawlOutcome.of([4.0], [8.0]))
    state = first
    for _ in range(6):
        state = estimator.update(state, CrawlOutcome.of([4.0], [8.0], crawled=False))
    once = estimator.update(first, CrawlOutcome.of([0.0], crawled=False, elapsed=6.0))
    np.testing.assert_allclose(state, once)
    assert state[0][0] == pytest.approx(8 * 0.9**6)
    for _ in range(500):
        state = estimator.update(state, CrawlOutcome.of([4.0], [8.0], crawled=False))
    assert estimator.posterior(state).mean == pytest.approx(float(WEAK.mean), rel=1e-6)


def test_the_retention_of_the_best_predictions_is_used():
    """By plain sums, crawl by crawl; the posterior is that of the best ρ alone."""
    rng = np.random.default_rng(0)
    estimator = Forgetting((1.0, 0.9), Posterior(np.array(0.5), np.array(0.2)))
    alone = [GammaPoisson(estimator.prior, retention) for retention in estimator.retentions]
    gaps, items = rng.integers(1, 9, (6, 1, 3)), rng.poisson(2.0, (6, 1, 3))
    crawled = rng.random(gaps.shape) < 0.7
    state, states = estimator.begin((1, 3)), [one.begin((1, 3)) for one in alone]
    errors = [[], []]
    variances = [[], []]
    for gap, n, which in zip(gaps, items, crawled, strict=True):
        outcome = CrawlOutcome.of(gap, n, which, elapsed=2.0)
        for k, one in enumerate(alone):
            idle = CrawlOutcome.of(gap, n, False, elapsed=2.0)
            law = one.posterior(one.update(states[k], idle))
            mean = (law.mean * gap)[which]
            predicted = stats.nbinom(law.shape[which], (law.rate / (law.rate + gap))[which])
            np.testing.assert_allclose(predicted.mean(), mean)
            errors[k] += list((n[which] - mean) ** 2 / predicted.var())
            variances[k] += list(predicted.var())
            states[k] = one.update(states[k], outcome)
        state = estimator.update(state, outcome)
    likelihood = [
        stats.norm.logpdf(np.sqrt(e), scale=np.sqrt(np.mean(e))).sum() - 0.5 * np.log(v).sum()
        for e, v in zip(errors, variances, strict=True)
    ]
    best = int(np.argmax(likelihood))
    assert estimator.best(state).tolist() == [best]
    for ours, theirs in zip(
        estimator.posterior(state), alone[best].posterior(states[best]), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_clusters_do_not_look_like_changing_rates():
    """Items that arrive several at a time, at constant rates: next to nothing is forgotten. (By the
    exact distribution of counts it would be a tenth in every step.)"""
    for cluster in (1, 5):
        rng, estimator = np.random.default_rng(2), Forgetting()
        state, rate = estimator.begin((1, 50)), np.geomspace(0.5, 20, 50)[None]
        for _ in range(400):
            gap = rng.integers(1, 6, (1, 50)) * 1.0
            items = cluster * rng.poisson(rate * gap / cluster)
            outcome = CrawlOutcome.of(gap, items, rng.random((1, 50)) < 0.3)
            state = estimator.update(state, outcome)
        assert estimator.retentions[estimator.best(state)[0]] >= 0.99


def test_each_row_of_the_batch_has_its_own_retention():
    """Of two crawlers of 40 sources each, one meets rates that change every 10 steps."""
    rng, estimator = np.random.default_rng(1), Forgetting()
    state, rate = estimator.begin((2, 40)), np.full((2, 40), 3.0)
    for t in range(300):
        if t % 10 == 0:
            rate[1] = rng.choice([0.5, 8.0], 40)
        state = estimator.update(state, CrawlOutcome.of(np.ones((2, 40)), rng.poisson(rate)))
    kept = [estimator.retentions[k] for k in estimator.best(state)]
    assert kept[0] >= 0.999
    assert kept[1] <= 0.97


def test_the_fitted_prior_is_that_of_the_fleet():
    for shape, rate in ((0.6, 2.0), (3.0, 30.0), (8.0, 0.5)):
        rng = np.random.default_rng(4)
        truth = rng.gamma(shape, 1 / rate, (2, 2000))
        exposure = rng.uniform(0.5, 3.0, truth.shape) * 10 * rate / shape
        fitted = fit_prior(rng.poisson(truth * exposure) * 1.0, exposure, START, WEAK, steps=300)
        np.testing.assert_allclose(fitted.shape, shape, rtol=0.12)
        np.testing.assert_allclose(fitted.mean, shape / rate, rtol=0.06)


def test_the_fit_increases_the_marginal_likelihood_and_improves_on_a_weak_prior():
    rng = np.random.default_rng(5)
    truth = rng.gamma(4.0, 1 / 40.0, (1, 200))
    exposure = rng.uniform(5, 40, (1, 200))
    count = rng.poisson(truth * exposure) * 1.0
    middle = (count.sum() + 0.5) / (exposure.sum() + 0.01)
    log_middle = np.log(middle) + special.digamma(0.5) - np.log(0.5)
    prior, target = START, []
    for _ in range(200):
        prior = fit_prior(count, exposure, prior, WEAK)
        shape, rate = float(prior.shape[0, 0]), float(prior.rate[0, 0])
        likelihood = stats.nbinom.logpmf(count, shape, rate / (rate + exposure)).sum()
        conjugate = shape * np.log(rate) - special.gammaln(shape)
        conjugate += (shape - 1) * log_middle - rate * middle
        target.append(likelihood + conjugate)
    assert (np.diff(target) > -1e-6).all()
    assert target[-1] - target[-2] < 1e-2
    error = {}
    for name, law in (("fleet", prior), ("weak", WEAK)):
        error[name] = np.mean(((law.shape + count) / (law.rate + exposure) - truth) ** 2)
    assert error["fleet"] < 0.5 * error["weak"]


def test_the_fit_to_few_sources_or_none_that_publish():
    items = np.array([0.0, 1.0, 1e6])[:, None]  # of three fleets
    for n in (1, 2, 50):
        shape = (300, 3, n)
        law = learn(FleetPrior(), np.full(shape, 3.0), np.broadcast_to(items, shape))
        assert np.isfinite(law.shape).all()
        assert (law.shape > 0).all()
        assert (law.rate > 0).all()
        assert (np.abs(law.mean - items / 3.0) < 2e-3 + 0.02 * items).all()


def test_digamma_is_accurate():
    x = np.geomspace(1e-12, 1e15, 400)
    np.testing.assert_allclose(digamma(x), special.digamma(x), rtol=1e-10, atol=1e-10)
    assert digamma(np.array([1, 2])).dtype == np.float64


def test_estimators_are_made_by_name_or_given():
    own = GammaPoisson(retention=0.5)
    assert make_estimator(own) is own
    for name in ESTIMATORS:
        estimator = make_estimator(name, period=2.0)
        mean = estimator.posterior(estimator.begin((1, 2))).mean
        np.testing.assert_allclose(mean, 25.0)  # 50 per step of two units of time
    assert make_estimator("forgetting", retentions=(1.0, 0.5)).retentions == (1.0, 0.5)


def test_bad_arguments_are_refused():
    cases = [
        (lambda: GammaPoisson(retention=0.0), "retention is 0; it must be above 0 and at most 1"),
        (lambda: GammaPoisson(Posterior(np.array(0.0), np.array(1.0))), "prior's shape is 0"),
        (lambda: GammaPoisson(period=-1), "period is -1; it must be positive"),
        (lambda: GammaPoisson((1.0, 2.0)), r"prior is \(1.0, 2.0\); give a Posterior"),
        (lambda: Forgetting(()), "retentions is empty"),
        (lambda: Forgetting(prior=Posterior(np.ones((5, 2)), np.ones(2))), "too many axes"),
        (lambda: FleetPrior(Posterior(np.ones(3), np.array(1.0))), "one shape or rate per"),
        (
            lambda: make_estimator("forgetting", retention=0.9),
            "^estimator 'forgetting' has no option 'retention'; its options are: retentions$",
        ),
        (lambda: make_estimator("gama-poisson"), "did you mean 'gamma-poisson'"),
        (lambda: make_estimator("changed", period=0.0), "period is 0.0; it must be positive"),
        (lambda: make_estimator(GammaPoisson(), retention=0.9), "an estimator object"),
        (lambda: make_estimator(GammaPoisson), "estimator is <class .* or an object, such as"),
        (lambda: make_estimator(0.5), "estimator is 0.5; give one of gamma-poisson, "),
    ]
    for build, what in cases:
        with pytest.raises(ValueError, match=what):
            build()
