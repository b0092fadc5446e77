"""The estimators that only the study uses, against simulation."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.inference import CrawlOutcome, Estimator, Posterior
from agents.inference.changed import NODES
from experiments.adaptive.estimators import (
    ESTIMATORS,
    LIBRARY,
    ChangedLikelihood,
    ChangedMoments,
    Drifting,
    Streaming,
    Windowed,
    make_estimator,
)
from tests.agents.inference.common import (
    RATE,
    check_any_outcome,
    check_not_crawled,
    check_order,
    check_unit_of_time,
    crawl_changing,
    learn,
)

OWN: dict[str, Any] = {
    "window": Windowed(20.0),
    "drifting": Drifting(),
    "changed-likelihood": ChangedLikelihood(),
    "changed-moments": ChangedMoments(),
    "changed-moments, retention .9": ChangedMoments(retention=0.9),
    "lln": Streaming("lln"),
    "lln, p known": Streaming("lln", 1.0),
    "sa": Streaming("sa", period=1.0),
    "naive": Streaming("naive"),
}


@pytest.mark.parametrize("name", OWN)
@settings(max_examples=10)
@given(data=st.data())
def test_no_outcome_breaks_an_estimate(name: str, data: Any) -> None:
    check_any_outcome(OWN[name], data)
    if name in ("changed-likelihood", "changed-moments", "lln", "naive"):
        check_order(OWN[name], data)
    if name not in ("window", "changed-moments, retention .9"):
        check_not_crawled(OWN[name])


def test_crawls_within_no_time_leave_the_estimate_a_number() -> None:
    estimator = ChangedLikelihood()
    gaps = np.array([1e-38, 1e-12, 0.0])
    state = estimator.update(estimator.begin((3,)), CrawlOutcome.of(gaps, np.ones(3), gaps < 1))
    law = estimator.posterior(state)
    assert np.isfinite(law.mean).all()
    assert np.isfinite(law.deviation).all()
    assert (law.mean > 0).all()


def test_the_unit_of_time_does_not_matter() -> None:
    for name in ESTIMATORS.keys() - LIBRARY.keys():
        check_unit_of_time(partial(make_estimator, name))


# The reference figures are of two independent computations with a few hundred runs, hence 10 %
# around their interval. Half of it would be three standard errors of ours.
@pytest.mark.parametrize(
    ("estimator", "low", "high"),
    [
        (ChangedLikelihood(period=0.02), 0.175, 0.185),
        (ChangedMoments(period=0.02), 0.182, 0.185),
        (Streaming("lln"), 0.188, 0.197),
        (Streaming("sa", 1.0), 0.226, 0.231),
        (Streaming("naive"), 0.333, 0.342),
    ],
    ids=["likelihood", "moments", "lln", "sa", "naive"],
)
def test_errors_at_exponential_gaps_are_the_known_ones(
    estimator: Estimator, low: float, high: float
) -> None:
    rng = np.random.default_rng(0)
    gaps = rng.exponential(1.0, (100, 1000))
    law = learn(estimator, gaps, rng.poisson(RATE * gaps))
    error = np.sqrt(np.mean((law.mean / RATE - 1) ** 2))
    assert 0.9 * low < error < 1.1 * high
    if estimator == Streaming("naive"):  # inconsistent: it tends to Λ/(1 + Λ)
        assert law.mean.mean() == pytest.approx(RATE / (1 + RATE), rel=0.02)
        return
    assert abs(law.mean.mean() / RATE - 1) < 0.05  # no bias but that of a ratio, of order 1/crawls
    assert law.deviation.mean() == pytest.approx(law.mean.std(), rel=0.06)
    covered = np.mean(np.abs(law.mean - RATE) < 1.96 * law.deviation)
    assert abs(covered - 0.95) < 0.03  # the distribution of SA is skewed


def test_regular_gaps_mislead_the_streaming_estimators_only() -> None:
    """Every two steps, as an index policy would: LLN's limit is p(e^{2Λ} − 1) = +72 %."""
    rng = np.random.default_rng(2)
    gaps = np.full((400, 100), 2.0)
    items = rng.poisson(RATE * gaps)
    for name in ("lln", "sa"):
        mean = learn(Streaming(name), gaps, items).mean.mean()
        assert mean / RATE == pytest.approx(1.72, abs=0.06)
    for estimator in (ChangedLikelihood(), ChangedMoments()):
        assert abs(learn(estimator, gaps, items).mean.mean() / RATE - 1) < 0.01
    geometric = rng.geometric(0.5, (1000, 100)) * 1.0
    items = rng.poisson(RATE * geometric)
    for name in ("lln", "sa"):
        plain = learn(Streaming(name), geometric, items).mean.mean()
        assert plain / RATE == pytest.approx(np.expm1(RATE) / RATE, abs=0.03)
        right = learn(Streaming(name, period=1.0), geometric, items).mean.mean()
        assert right / RATE == pytest.approx(1.0, abs=0.02)


def test_the_likelihood_estimate_is_the_root_of_the_score() -> None:
    """Against the sum over crawls in plain Python, at gaps that are nodes."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        gaps = rng.choice(NODES[:12], (15, 1))
        items = rng.poisson(float(rng.uniform(0.01, 2)) * gaps)
        rate = float(learn(ChangedLikelihood(), gaps, items).mean[0])
        crawls = [*zip(gaps[:, 0], items[:, 0] > 0, strict=True)]
        crawls += [(gaps.mean(), True), (gaps.mean(), False)]
        score = sum(
            rate * t / np.expm1(min(rate * t, 700)) if new else -rate * t for t, new in crawls
        )
        assert abs(score) < 1e-5 * max(1.0, rate * gaps.sum())


def test_windows_cusums_and_retention_follow_a_change() -> None:
    for before, after in ((1.0, 8.0), (8.0, 1.0)):
        for estimator in (Windowed(25.0), Drifting()):
            follows = crawl_changing(estimator, before, after)
            assert np.median(np.abs(follows / after - 1)) < 0.3
    for kind in (ChangedLikelihood, ChangedMoments):
        stays, follows = (crawl_changing(kind(retention=r), 1.0, 0.1) for r in (1.0, 0.93))
        assert np.median(stays) > 0.4
        assert np.median(np.abs(follows / 0.1 - 1)) < 0.5


def test_false_alarms_are_rarer_than_promised() -> None:
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


def test_a_change_is_found_within_some_crawls() -> None:
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


def test_arguments_priors_and_names() -> None:
    own = Posterior(np.array([2.0, 0.5]), np.array([1.0, 10.0]))
    for estimator in (Drifting(prior=own), Windowed(4.0, own), Streaming(prior=own)):
        np.testing.assert_allclose(estimator.posterior(estimator.begin((3, 2))).mean[0], own.mean)
    for build, what in (
        (lambda: Windowed(0.0), r"length is 0\.0"),
        (lambda: Drifting(factor=1.0), r"factor is 1\.0"),
        (lambda: Drifting(false_alarms=0.0), r"false_alarms is 0\.0"),
        (lambda: Streaming("lnl"), "unknown method 'lnl'; did you mean 'lln'"),
        (lambda: Streaming(crawl_rate=0.0), r"crawl_rate is 0\.0"),
        (lambda: Streaming(period=-1.0), r"period is -1\.0"),
        (lambda: make_estimator("lln", method="sa"), "'lln' has no option 'method'; it has no"),
    ):
        with pytest.raises(ValueError, match=what):
            build()
