"""Mean utility and decay from sums over harvested items, against simulation and plain algebra."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from agents.adaptive import Evidence, HarvestSums
from agents.adaptive.item_sums import EULER, Fleet, posterior_line

VARIANCE = np.pi**2 / 6


def sums_of(source: Any, age: Any, worth: Any, n: int) -> list[np.ndarray]:
    """Return the sums that the environment shows of a fleet of n, (1, n) each."""
    log = np.log(worth)
    terms = (np.ones_like(age), age, age**2, log, age * log)
    return [np.bincount(source, term, n)[None] for term in terms]


def harvests(
    rng: np.random.Generator, decay: Any, utility: Any, items: int, noise: str = "exponential"
) -> list[np.ndarray]:
    n = len(decay)
    source = np.repeat(np.arange(n), items)
    age = rng.uniform(0, 6.0, source.size)
    drawn = rng.exponential(1.0, source.size)
    if noise == "lognormal":
        drawn = rng.lognormal(-0.72, 1.2, source.size)
    return sums_of(source, age, utility[source] * drawn * np.exp(-decay[source] * age), n)


def fleet_of(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.uniform(0.05, 0.45, n), rng.lognormal(0.3, 0.6, n)


def learnt(learner: HarvestSums, sums: list[np.ndarray], epochs: int = 32) -> Any:
    """Return the state after one epoch with harvests and others without, which fit the fleet."""
    shape = sums[0].shape
    state = learner.update(learner.begin(shape), Evidence.of(np.ones(shape)), *sums)  # type: ignore[arg-type]
    for _ in range(epochs):
        state = learner.update(state, Evidence.of(np.ones(shape), crawled=False), *sums)
    return state


def test_posterior_is_that_of_the_matrix() -> None:
    """Against numpy's inverse of the precision matrix, source by source."""
    rng = np.random.default_rng(0)
    sums = harvests(rng, *fleet_of(rng, 5), items=7)
    line = posterior_line(Fleet(*map(np.array, (0.2, 0.03, -0.4, 0.5))), *sums)
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
def test_beliefs_hold_the_truth_as_often_as_they_say(items: int) -> None:
    rng = np.random.default_rng(1)
    decay, utility = fleet_of(rng, 400)
    state = learnt(HarvestSums(), harvests(rng, decay, utility, items))
    line = posterior_line(Fleet(*state[1].T[..., None]), *state[2:])
    levels = np.log(utility) - EULER
    for truth, mean, variance in (
        (decay, line.slope[0], line.slope_variance[0]),
        (levels, line.level[0], line.level_variance[0]),
    ):
        covered = np.mean(np.abs(truth - mean) < 1.645 * np.sqrt(variance))
        assert abs(covered - 0.9) < 0.07


def test_estimates_are_the_means_of_what_is_believed() -> None:
    """Of ξ̄ against draws from the law of its logarithm; 4 standard errors."""
    rng = np.random.default_rng(5)
    state = learnt(HarvestSums(), harvests(rng, *fleet_of(rng, 20), 5))
    line = posterior_line(Fleet(*state[1].T[..., None]), *state[2:])
    worth, falls = HarvestSums().estimate(state, np.arange(20))
    np.testing.assert_allclose(falls, np.maximum(line.slope[0], 0.02))
    middle = line.level + line.tilt * (falls - line.slope) + EULER
    drawn = np.exp(rng.normal(middle, np.sqrt(line.level_given), (40_000, 20)))
    error = drawn.std(axis=0) / 200
    assert (np.abs(worth - drawn.mean(axis=0)) < 4 * error).all()


def test_many_items_leave_no_doubt_in_any_unit_of_time() -> None:
    rng = np.random.default_rng(2)
    decay, utility = fleet_of(rng, 20)
    sums = harvests(rng, decay, utility, 20_000)
    cells = np.arange(20)
    mean = [HarvestSums().estimate(learnt(HarvestSums(), sums), cells)]
    longer = [x * 3.0**p for x, p in zip(sums, (0, 1, 2, 0, 1), strict=True)]
    mean.append(HarvestSums(3.0).estimate(learnt(HarvestSums(3.0), longer), cells))
    for (worth, falls), unit in zip(mean, (1.0, 3.0), strict=True):
        np.testing.assert_allclose(worth, utility, rtol=0.1)
        np.testing.assert_allclose(falls * unit, decay, atol=0.025)


def test_another_law_of_utilities_errs_by_one_factor() -> None:
    """γ stands for σ²/2 = .72 of lognormal utilities: all ξ̄ are too low by e^−.14, none more."""
    rng = np.random.default_rng(3)
    decay, utility = fleet_of(rng, 30)
    sums = harvests(rng, decay, utility, 20_000, "lognormal")
    worth, _ = HarvestSums().estimate(learnt(HarvestSums(), sums), np.arange(30))
    np.testing.assert_allclose(worth / utility, np.exp(EULER - 0.72), rtol=0.12)


def test_sources_without_items_have_the_fleets() -> None:
    rng = np.random.default_rng(4)
    decay, utility = fleet_of(rng, 300)
    sums = harvests(rng, decay, utility, 100)
    sums = [np.concatenate([x, np.zeros((1, 1))], axis=1) for x in sums]
    learner = HarvestSums()
    worth, falls = learner.estimate(learnt(learner, sums), np.array([300]))
    assert falls[0] == pytest.approx(decay.mean(), rel=0.15)
    # Of a lognormal law over the fleet the mean, which its variance raises.
    assert worth[0] == pytest.approx(utility.mean(), rel=0.15)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_order_of_harvests_does_not_matter(data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    parts = [harvests(rng, *fleet_of(rng, 3), items=i + 1) for i in range(4)]
    sums = []
    for order in (range(4), data.draw(st.permutations(range(4)))):
        state = HarvestSums().begin((1, 3))
        for i in order:
            state = HarvestSums().update(state, Evidence.of(np.ones((1, 3))), *parts[i])
        sums.append(state[2:])
    for one, other in zip(*sums, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


NUMBERS = st.one_of(
    st.sampled_from([0.0, -1.0, 1e-308, 1e308, 3e38, 1e9, 9e8, np.inf, -np.inf, np.nan]),
    st.floats(-100, 100),
)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_no_sums_break_an_estimate(data: Any) -> None:
    learner = HarvestSums(data.draw(st.sampled_from([1.0, 0.01, 300.0])))
    state = learner.begin((2, 3))
    for _ in range(data.draw(st.integers(1, 20))):
        sums = [data.draw(arrays(float, (2, 3), elements=NUMBERS)) for _ in range(5)]
        kept = [x.copy() for x in state]
        new = learner.update(state, Evidence.of(np.ones((2, 3))), *sums)
        for array, copy in zip(state, kept, strict=True):
            np.testing.assert_array_equal(array, copy)
        state = new
        for mean in learner.estimate(state, np.arange(6)):
            assert np.isfinite(mean).all()
            assert (mean >= 0).all()
