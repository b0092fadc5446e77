"""What tests of estimators share: how estimates are made, and properties that hold for all."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from agents.inference import CrawlOutcome, Estimator, Posterior

RATE = 0.5
Z_LIMIT = 4.5  # a right estimator fails one such test in 150,000
UNIT = 2.0**30  # about 1e9: scaling by a power of two rounds nothing


def learn(estimator: Estimator, gaps: np.ndarray, items: np.ndarray) -> Posterior:
    """Return the posterior after crawls (K, ...) of as many sources."""
    state = estimator.begin(gaps.shape[1:])
    for gap, n in zip(gaps, items, strict=True):
        state = estimator.update(state, CrawlOutcome.of(gap, n))
    return estimator.posterior(state)


def crawl_changing(
    estimator: Estimator, before: float, after: float, runs: int = 200
) -> np.ndarray:
    """Return the estimates 30 crawls after a change at crawl 200, gaps of 2."""
    rng = np.random.default_rng(6)
    state = estimator.begin((runs,))
    for t in range(230):
        items = rng.poisson(2.0 * (before if t < 200 else after), runs)
        state = estimator.update(state, CrawlOutcome.of(2.0, items, elapsed=2.0))
    return np.asarray(estimator.posterior(state).mean)


ANYTHING = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 1e-300, 1e308, np.inf, -np.inf, np.nan, 1e9, 9e8, 1e25]),
    st.floats(0, 50),
)


def check_any_outcome(estimator: Estimator, data: Any) -> None:
    """Check that no reported number breaks an estimate, and that no argument is changed."""
    shape = data.draw(st.sampled_from([(3,), (2, 3), (1, 2, 2)]))
    state = estimator.begin(shape)
    for _ in range(data.draw(st.integers(1, 6))):
        gap, items = (data.draw(arrays(float, shape, elements=ANYTHING)) for _ in range(2))
        crawled = data.draw(arrays(bool, shape))
        copies = [array.copy() for array in state]
        new = estimator.update(state, CrawlOutcome.of(gap, items, crawled))
        for array, copy in zip(state, copies, strict=True):
            np.testing.assert_array_equal(array, copy)
        assert [a.shape for a in new] == [a.shape for a in state]
        state = new
    assert all(np.isfinite(array).all() for array in state)
    law = estimator.posterior(state)
    for number in (law.mean, law.deviation, law.quantile(0.9), law.draw(np.random.default_rng(0))):
        assert number.shape == shape
        assert np.isfinite(number).all()
        assert (number >= 0).all()
    assert (law.mean > 0).all()


def check_order(estimator: Estimator, data: Any) -> None:
    """Check that the order of the crawls does not matter."""
    crawls = data.draw(
        st.lists(st.tuples(st.integers(1, 40), st.integers(0, 5)), min_size=1, max_size=12)
    )
    laws = []
    for order in (crawls, data.draw(st.permutations(crawls))):
        gaps, items = np.array(order, dtype=float).T[..., None]
        laws.append(learn(estimator, gaps, items))
    np.testing.assert_allclose(laws[0].mean, laws[1].mean, rtol=1e-6)
    np.testing.assert_allclose(laws[0].deviation, laws[1].deviation, rtol=1e-6)


def check_not_crawled(estimator: Estimator) -> None:
    """Check that a source that was not crawled leaves the state as it is."""
    first = CrawlOutcome.of(np.arange(1.0, 5), [0, 1, 2, 3])
    state = estimator.update(estimator.begin((4,)), first)
    none = CrawlOutcome.of(np.arange(5.0, 9), [1, 0, 5, 7], crawled=False)
    for array, copy in zip(estimator.update(state, none), state, strict=True):
        np.testing.assert_array_equal(array, copy)


def check_unit_of_time(make: Any) -> None:
    """Check that estimates in another unit of time are the same, in that unit.

    Arguments:
        make: an estimator from the length of a step.
    """
    rng = np.random.default_rng(5)
    steps, crawled = rng.integers(1, 9, (60, 2, 4)), rng.random((60, 2, 4)) < 0.6
    items = rng.poisson(RATE * steps)
    means = []
    for unit in (1.0, UNIT, 1.0 / UNIT):
        estimator = make(unit)
        state = estimator.begin((2, 4))
        for gap, n, which in zip(steps, items, crawled, strict=True):
            outcome = CrawlOutcome.of(gap * unit, n, which, elapsed=unit)
            assert outcome.crawled.sum() == which.sum()
            state = estimator.update(state, outcome)
        means.append(estimator.posterior(state).mean * unit)
    for mean in means[1:]:
        np.testing.assert_allclose(mean, means[0], rtol=1e-9)
    assert not np.allclose(means[0], estimator.posterior(estimator.begin((2, 4))).mean * unit)
