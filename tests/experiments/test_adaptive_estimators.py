"""The estimator that only the study uses, against simulation."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.inference import CrawlOutcome, Posterior
from experiments.adaptive.entrants import Drifting, make_estimator
from tests.agents.inference.common import (
    check_any_outcome,
    check_not_crawled,
    check_unit_of_time,
    crawl_changing,
)


def test_no_outcome_breaks_an_estimate():
    @settings(max_examples=10)
    @given(data=st.data())
    def check(data):
        check_any_outcome(Drifting(), data)

    check()
    check_not_crawled(Drifting())


def test_the_unit_of_time_does_not_matter():
    check_unit_of_time(partial(make_estimator, "drifting"))


def test_restarts_follow_a_change():
    for before, after in ((1.0, 8.0), (8.0, 1.0)):
        follows = crawl_changing(Drifting(), before, after)
        assert np.median(np.abs(follows / after - 1)) < 0.3


def test_false_alarms_are_rarer_than_promised():
    """250 runs of 400 crawls at each of five rates; an alarm is an exposure that falls."""
    rng = np.random.default_rng(7)
    rate = np.repeat([[0.02, 0.1, 0.5, 2.0, 20.0]], 250, axis=0)
    estimator = Drifting(false_alarms=0.01)
    state, alarms = estimator.begin(rate.shape), np.zeros(5)
    for _ in range(400):
        before = state[1]
        state = estimator.update(state, CrawlOutcome.of(np.ones(rate.shape), rng.poisson(rate)))
        alarms += (state[1] < before + 1).sum(axis=0)
    assert (alarms > 0).all()
    assert (alarms < 0.01 * 250 * 400).all()


def test_a_change_is_found_within_some_crawls():
    rng = np.random.default_rng(8)
    estimator = Drifting()
    state = estimator.begin((500,))
    for _ in range(100):
        state = estimator.update(state, CrawlOutcome.of(np.ones(500), rng.poisson(1.0, 500)))
    found = np.full(500, np.inf)
    for t in range(60):
        before = state[1]
        state = estimator.update(state, CrawlOutcome.of(np.ones(500), rng.poisson(4.0, 500)))
        found = np.where((state[1] < before + 1) & np.isinf(found), t + 1, found)
    assert np.quantile(found, 0.95) <= 10


def test_arguments_priors_and_names():
    own = Posterior(np.array([2.0, 0.5]), np.array([1.0, 10.0]))
    estimator = Drifting(prior=own)
    np.testing.assert_allclose(estimator.posterior(estimator.begin((3, 2))).mean[0], own.mean)
    for build, what in (
        (lambda: Drifting(factor=1.0), r"factor is 1\.0"),
        (lambda: Drifting(false_alarms=0.0), r"false_alarms is 0\.0"),
        (lambda: make_estimator("drifting", length=2.0), "'drifting' has no option 'length'"),
    ):
        with pytest.raises(ValueError, match=what):
            build()
