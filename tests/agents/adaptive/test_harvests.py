"""Mean utility and decay from harvests, against simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from agents.adaptive import Evidence
from agents.adaptive.harvests import DECAYS, Harvests

UTILITY = 1.5
NUMBERS = st.one_of(
    st.sampled_from([0.0, -1.0, 1e-308, 1e308, np.inf, -np.inf, np.nan]), st.floats(0, 100)
)


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
