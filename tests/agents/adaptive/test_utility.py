"""Mean utility and decay, from items and from harvests, against simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from agents.adaptive import Evidence, ItemSums, fit_utility
from agents.adaptive.harvests import DECAYS, Harvests
from agents.adaptive.utility import NOISES

UTILITY, DECAY = 1.5, 0.2


def draw(noise: str, rng: np.random.Generator, size: Any) -> np.ndarray:
    """Return utilities of mean 1."""
    if noise == "exponential":
        return rng.exponential(1.0, size)
    return rng.lognormal(-0.72, 1.2, size) if noise == "lognormal" else np.ones(size)


def items_of(
    n: int,
    each: int,
    noise: str,
    rng: np.random.Generator,
    decay: Any = DECAY,
    longest: float = 8.0,
) -> ItemSums:
    source = np.repeat(np.arange(n), each)
    age = rng.uniform(0, longest, n * each)
    worth = UTILITY * draw(noise, rng, n * each) * np.exp(-np.broadcast_to(decay, n)[source] * age)
    return ItemSums.empty((n,)).add(source, age, worth)


@pytest.mark.parametrize("noise", NOISES)
def test_least_squares_is_unbiased_and_knows_its_error(noise: str) -> None:
    rng = np.random.default_rng(0)
    fit = fit_utility(items_of(2000, 100, noise, rng), noise, shrink=False)
    if noise == "constant":  # no noise: exact
        np.testing.assert_allclose(fit.decay_rate, DECAY, rtol=1e-6)
        np.testing.assert_allclose(fit.mean_utility, UTILITY, rtol=1e-6)
        return
    for got, error, truth in (
        (fit.decay_rate, fit.decay_error, DECAY), (fit.mean_utility, fit.utility_error, UTILITY),
    ):  # fmt: skip
        assert error.mean() == pytest.approx(got.std(), rel=0.1)
        assert abs(np.mean(np.abs(got - truth) < 1.96 * error) - 0.95) < 0.03
        # The exponential of an estimate that errs by σ is too high by σ²/2.
        second_order = 0.5 * np.mean((error / got) ** 2) * truth
        assert abs(got.mean() - truth) < 1.2 * second_order + 4.5 * got.std() / np.sqrt(2000)


def test_the_wrong_law_of_noise_costs_what_is_stated() -> None:
    """γ for exponential utilities; σ²/2 = π²/12 would be too high by e^.245."""
    sums = items_of(50, 4000, "exponential", np.random.default_rng(1))
    right, wrong = (fit_utility(sums, noise).mean_utility.mean() for noise in NOISES[:2])
    assert right == pytest.approx(UTILITY, rel=0.02)
    assert wrong / right == pytest.approx(np.exp(np.pi**2 / 12 - 0.57721566), rel=0.02)


def test_sums_may_come_in_parts() -> None:
    rng = np.random.default_rng(2)
    source, age, worth = rng.integers(0, 6, 50), rng.uniform(0, 9, 50), rng.exponential(1, 50)
    at_once = ItemSums.empty((2, 3)).add(source, age, worth)
    order = rng.permutation(50)
    parts = ItemSums.empty((2, 3))
    for part in np.array_split(order, 7):
        parts = parts.add(source[part], age[part], worth[part])
    np.testing.assert_allclose(np.array(parts), np.array(at_once), rtol=1e-12)
    assert at_once.number.sum() == 50


def test_sources_with_few_items_lean_on_the_fleet() -> None:
    rng = np.random.default_rng(3)
    truth = rng.uniform(0.15, 0.25, 300)
    sums = items_of(300, 6, "exponential", rng, truth)
    alone, together = (fit_utility(sums, shrink=shrink) for shrink in (False, True))
    error = [np.sqrt(np.mean((fit.decay_rate - truth) ** 2)) for fit in (alone, together)]
    assert error[1] < 0.3 * error[0]
    assert np.mean(np.abs(together.decay_rate - truth) < 1.96 * together.decay_error) > 0.85
    # With many items and decays that differ, each keeps its own.
    truth = np.geomspace(0.05, 0.5, 100)
    own = fit_utility(items_of(100, 3000, "exponential", rng, truth))
    np.testing.assert_allclose(own.decay_rate, truth, atol=5 * own.decay_error.max())
    assert np.corrcoef(own.decay_rate, truth)[0, 1] > 0.98
    # One without items has the fleet's decay, and the spread over the fleet as its error.
    none = fit_utility(ItemSums(*(np.append(s, 0.0) for s in items_of(99, 3000, "exponential", rng,
                                                                      truth[:99]))))  # fmt: skip
    assert none.decay_rate[-1] == pytest.approx(truth.mean(), rel=0.3)
    assert none.decay_error[-1] == pytest.approx(truth.std(), rel=0.3)
    assert np.isinf(none.utility_error[-1])


NUMBERS = st.one_of(
    st.sampled_from([0.0, -1.0, 1e-308, 1e308, np.inf, -np.inf, np.nan]), st.floats(0, 100)
)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), noise=st.sampled_from(NOISES), shrink=st.booleans())
def test_no_item_breaks_the_fit(data: Any, noise: str, shrink: bool) -> None:
    n = data.draw(st.integers(0, 12))
    source = data.draw(arrays(np.int64, n, elements=st.integers(0, 3)))
    age, worth = (data.draw(arrays(float, n, elements=NUMBERS)) for _ in range(2))
    fit = fit_utility(ItemSums.empty((2, 2)).add(source, age, worth), noise, shrink)
    for number in fit:
        assert not np.isnan(number).any()
        assert (number >= 0).all()
    assert np.isfinite(fit.decay_rate).all()
    assert np.isfinite(fit.mean_utility).all()


def test_unknown_noise_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown noise 'exponentail'; did you mean 'exponential'"):
        fit_utility(ItemSums.empty((1,)), "exponentail")


# -------------------------------------------------------------------------------- from harvests


def crawl(learner: Harvests, crawls: int, n: int, rate: float, decay: Any, seed: int) -> Any:
    """Return the state after crawls with gaps from 1 to 20, one fleet of n sources."""
    rng = np.random.default_rng(seed)
    state = learner.begin((1, n))
    for _ in range(crawls):
        gap = rng.integers(1, 21, (1, n)) * 1.0
        number = rng.poisson(rate * gap[0])
        source = np.repeat(np.arange(n), number)
        age = rng.uniform(0, gap[0][source])
        worth = rng.exponential(UTILITY, source.size)
        worth = worth * np.exp(-np.broadcast_to(decay, n)[source] * age)
        harvest = np.bincount(source, worth, n)[None]
        state = learner.update(state, Evidence.of(gap, number[None]), harvest)
    return state


@pytest.mark.parametrize("decay", [0.05, 0.2, 0.6])
def test_gaps_tell_decay_and_utility(decay: float) -> None:
    learner = Harvests()
    state = crawl(learner, 200, 30, 1.0, decay, 4)
    cells = np.arange(30)
    weight = learner.decays(state, cells).T
    utility = learner.utility(state, cells).T
    expected = weight @ np.log(DECAYS)
    step = np.log(DECAYS[1] / DECAYS[0])
    assert np.abs(expected - np.log(decay)).mean() < 0.6 * step
    slope = (weight * utility / DECAYS).sum(axis=-1)  # of u*: what the index is made of
    np.testing.assert_allclose(slope, UTILITY / decay, rtol=0.35)
    assert abs(slope.mean() * decay / UTILITY - 1) < 0.12
    means = learner.estimate(state, cells)
    np.testing.assert_allclose(means[0], (weight * utility).sum(axis=-1), rtol=1e-5)
    np.testing.assert_allclose(means[1], weight @ DECAYS, rtol=1e-5)


def test_a_source_never_heard_of_has_the_fleets() -> None:
    learner = Harvests()
    state = crawl(learner, 60, 200, 1.0, np.r_[np.full(150, 0.1), np.full(50, 1.0)], 5)
    new = tuple(np.concatenate([x, np.zeros_like(x[:, :1])], axis=1) for x in state[3:])
    last = np.array([200])
    weight = learner.decays((*state[:3], *new), last).T
    fleets = state[2] / state[3].sum()  # total worth, and items
    np.testing.assert_allclose(
        learner.utility((*state[:3], *new), last)[:, 0], fleets[0], rtol=1e-6
    )
    near = [np.abs(np.log(DECAYS / m)) < 0.8 for m in (0.1, 1.0)]
    assert weight[0, near[0]].sum() == pytest.approx(0.75, abs=0.15)
    assert weight[0, near[1]].sum() == pytest.approx(0.25, abs=0.15)


def test_a_crawl_of_countless_worthless_items_leaves_the_others_what_is_known_of_them() -> None:
    learner = Harvests()
    state = learner.begin((1, 3))
    items, worth = np.array([[9e8, 5.0, 5.0]]), np.array([[0.0, 4.0, 4.0]])
    for _ in range(40):  # beyond two fits of the fleet
        state = learner.update(state, Evidence.of(np.full((1, 3), 4.0), items, elapsed=4.0), worth)
    weight = learner.decays(state, np.arange(3))
    np.testing.assert_allclose(weight.sum(axis=0), 1.0, rtol=1e-5)
    np.testing.assert_allclose(weight[:, 1], weight[:, 2])
    assert weight[:, 1].max() < 1.0


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_no_harvest_breaks_what_is_believed(data: Any) -> None:
    learner = Harvests()
    state = learner.begin((2, 3))
    for _ in range(data.draw(st.integers(1, 20))):
        gap, items, worth = (data.draw(arrays(float, (2, 3), elements=NUMBERS)) for _ in range(3))
        kept = [x.copy() for x in state]
        new = learner.update(state, Evidence.of(gap, items), worth)
        for array, copy in zip(state, kept, strict=True):
            np.testing.assert_array_equal(array, copy)
        state = new
    np.testing.assert_allclose(learner.decays(state, np.arange(6)).sum(axis=0), 1.0, rtol=1e-6)
    for mean in learner.estimate(state, np.arange(6)):
        assert np.isfinite(mean).all()
        assert (mean >= 0).all()


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_order_of_harvests_does_not_matter(data: Any) -> None:
    """But for rounding; within the epochs between two fits of the fleet."""
    learner, known = Harvests(), []
    crawls = [
        tuple(data.draw(arrays(float, (1, 3), elements=st.integers(0, 9))) for _ in range(3))
        for _ in range(5)
    ]
    for order in (crawls, data.draw(st.permutations(crawls))):
        state = learner.begin((1, 3))
        for gap, items, worth in order:
            state = learner.update(state, Evidence.of(gap, items), worth)
        known.append(state)
    for one, other in zip(*known, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
