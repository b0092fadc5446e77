"""Rates from "changed or not": the posterior's mode, against simulation and plain sums."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from agents.inference import Changed, CrawlOutcome, Posterior, weak_prior
from agents.inference.changed import NODES, changed_posterior
from tests.agents.inference.common import (
    RATE,
    crawl_changing,
    learn,
)


def test_the_estimate_is_the_root_of_the_score():
    """Against the sum over crawls in plain Python, at gaps that are nodes."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        gaps = rng.choice(NODES[:12], (15, 1))
        items = rng.poisson(float(rng.uniform(0.01, 2)) * gaps)
        rate = float(learn(Changed(), gaps, items).mean[0])
        score = 0.5 - 0.01 * rate
        for t, new in zip(gaps[:, 0], items[:, 0] > 0, strict=True):
            score += rate * t / np.expm1(min(rate * t, 700)) if new else -rate * t
        assert abs(score) < 1e-5 * max(1.0, rate * gaps.sum())


@settings(max_examples=40, deadline=None)
@given(
    gaps=st.lists(st.sampled_from(list(NODES)), min_size=1, max_size=8),
    idle=st.floats(0.01, 1e3),
    shape=st.floats(0.1, 10.0),
    start=st.floats(1e-6, 1e3),
)
def test_newton_finds_the_root_and_its_curvature(gaps, idle, shape, start):
    """By bisection, with the printed score and its numerical derivative."""
    held = np.array([[gaps.count(node) for node in NODES]], dtype=np.float32)
    tau = np.array(gaps)

    def score(rate):
        return float(
            shape + (rate * tau / np.expm1(np.minimum(rate * tau, 700.0))).sum() - rate * idle
        )

    root = optimize.brentq(score, 1e-9, (shape + tau.size) / idle + 1e-9, xtol=1e-14, rtol=1e-12)
    law = changed_posterior(held, np.array([idle]), np.array([shape]), np.array([start]))
    np.testing.assert_allclose(law.mean, root, rtol=1e-7)
    step = 1e-4
    curved = (score(root * (1 - step)) - score(root * (1 + step))) / (2 * step)
    np.testing.assert_allclose(law.shape, max(curved, 0.5), rtol=1e-4)


def test_it_is_unbiased_at_regular_gaps_and_intervals_cover():
    rng = np.random.default_rng(2)
    gaps = np.full((400, 100), 2.0)
    law = learn(Changed(), gaps, rng.poisson(RATE * gaps))
    assert abs(law.mean.mean() / RATE - 1) < 0.01
    covered = np.mean(np.abs(law.mean - RATE) < 1.96 * law.deviation)
    assert abs(covered - 0.95) < 0.04


def test_it_follows_a_change_if_it_forgets():
    stays, follows = (crawl_changing(Changed(retention=r), 1.0, 0.1) for r in (1.0, 0.93))
    assert np.median(stays) > 0.4
    assert np.median(np.abs(follows / 0.1 - 1)) < 0.5


def test_the_past_fades_with_time_towards_the_prior():
    estimator, weak = Changed(retention=0.9), weak_prior()
    first = estimator.update(estimator.begin((1,)), CrawlOutcome.of([4.0], [8.0]))
    law = estimator.posterior(first)
    steps = first
    for _ in range(6):
        steps = estimator.update(steps, CrawlOutcome.of([4.0], crawled=False))
    once = estimator.update(first, CrawlOutcome.of([0.0], crawled=False, elapsed=6.0))
    np.testing.assert_allclose(steps[-2:], once[-2:])
    kept = weak.rate + 0.9**6 * (law.rate - weak.rate)
    assert estimator.posterior(steps).rate == pytest.approx(kept)
    # What is left of the first crawl at the next one, 7 steps later: .9^7 of its weight.
    again = estimator.update(steps, CrawlOutcome.of([7.0], [0.0]))
    assert again[4].sum() == pytest.approx(0.9**7, rel=1e-6)
    assert again[0] == pytest.approx(1 + 0.9**7)


def test_arguments_and_priors_of_single_sources():
    own = Posterior(np.array([2.0, 0.5]), np.array([1.0, 10.0]))
    np.testing.assert_allclose(Changed(own).posterior(Changed(own).begin((3, 2))).mean[0], own.mean)
    for arguments, what in (({"period": -1.0}, "period is -1"), ({"retention": 1.5}, "retention")):
        with pytest.raises(ValueError, match=what):
            Changed(**arguments)
