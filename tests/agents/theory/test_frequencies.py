"""Static frequencies: the literature, optimality conditions, and other ways to spend the budget."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.theory.closed_form import continuous_age_index
from agents.theory.frequencies import static_frequencies, static_reward
from crawl_env import Sources
from tests.references import plainly

TABLE1 = Sources.preset("table1")


def test_published_rewards_and_frequencies():
    for budget, reward in ((1, 264.22), (2, 340.30), (3, 373.50)):
        got = static_reward(TABLE1, static_frequencies(TABLE1, budget))
        assert got == pytest.approx(reward, abs=6e-3)
    np.testing.assert_allclose(
        static_frequencies(TABLE1, 2), [1, 0.6302, 0.2589, 0.1110], atol=5e-5
    )


def fleet_of(seed, n, slowest, fastest):
    """Return a random fleet with μT between two powers of ten, and a budget."""
    rng = np.random.default_rng(seed)
    period = float(rng.uniform(0.3, 3))
    decay = 10 ** rng.uniform(slowest, fastest, n) / period
    ceiling = rng.choice([1.0, 10 ** rng.uniform(0, 2)], n) * rng.choice([1.0, 1.5], n)
    cost = rng.uniform(0.3, 2, n) if rng.random() < 0.5 else np.ones(n)
    delay = period * rng.choice([0, 1, 3], n)
    fleet = Sources(decay * ceiling, 1.0, decay, cost, period=period, crawl_delay=delay)
    return fleet, float(rng.uniform(0.02, 0.9) * cost.sum())


@settings(plainly, max_examples=100)
@given(
    seed=st.integers(0, 10**6), n=st.integers(1, 8), fastest=st.sampled_from([-1.0, 0.3, 1.0, 2.0])
)
def test_budget_kkt_conditions_and_no_better_way_to_spend_it(seed, n, fastest):
    """μT up to 100: the budget holds to 1e-9, one multiplier fits all sources, and neither equal
    frequencies nor the richest sources first are better."""
    fleet, budget = fleet_of(seed, n, -1.5, fastest)
    f = static_frequencies(fleet, budget)
    limit = 1 / (fleet.period * fleet.delay)
    spent = fleet.period * fleet.cost @ f
    assert spent == pytest.approx(min(budget, fleet.period * fleet.cost @ limit), rel=1e-9)
    assert ((f >= 0) & (f <= limit * (1 + 1e-15))).all()
    # The marginal value per cost: alike inside, no less at the limit, no more where never crawled.
    full = fleet.ceiling / fleet.cost
    value = full * continuous_age_index(fleet.decay_rate / np.maximum(f, 1e-30))
    most = f >= limit * (1 - 1e-9)
    inside = (f > 0) & ~most
    multiplier = value[inside].max(initial=0.0) if inside.any() else full[f == 0].max(initial=0.0)
    if inside.any():
        np.testing.assert_allclose(value[inside], multiplier, rtol=1e-9)
    assert (full[f == 0] <= multiplier * (1 + 1e-9)).all()
    if spent >= budget * (1 - 1e-9):
        assert (value[most] >= multiplier * (1 - 1e-9)).all()
    best = static_reward(fleet, f)
    equal = np.minimum(budget / (fleet.period * fleet.cost.sum()), limit)
    left, greedy = budget / fleet.period, np.zeros(n)
    for i in np.argsort(-full):
        greedy[i] = min(limit[i], max(left, 0.0) / fleet.cost[i])
        left -= greedy[i] * fleet.cost[i]
    assert best >= max(static_reward(fleet, equal), static_reward(fleet, greedy)) * (1 - 1e-9)


@pytest.mark.parametrize("m", [1e-300, 1e-12])
def test_slow_decay_is_the_age_of_information(m):
    """p(z) → z²/2: frequencies tend to √(Λξ̄/C) in proportion, whatever the size of μT."""
    cost = np.array([1.0, 2.0, 1.0])
    f = static_frequencies(Sources([1.0, 2.0, 3.0], 1.0, m, cost), 1.2)
    root = np.sqrt(np.array([1.0, 2.0, 3.0]) / cost)
    np.testing.assert_allclose(f, 1.2 * root / (cost @ root), rtol=max(5 * m, 1e-13))


def test_batches_silent_fleets_delays_and_budget_for_all():
    fleets = [fleet_of(seed, 5, -1.5, 1.5)[0].replaced(period=1.0) for seed in range(3)]
    together = static_frequencies(Sources.stack(fleets), 2.0)
    for row, fleet in zip(together, fleets, strict=True):
        np.testing.assert_allclose(row, static_frequencies(fleet, 2.0), rtol=1e-12)
    silent = Sources([0.0, 3.0, 0.0], 1.0, 0.2, period=2.0)
    np.testing.assert_array_equal(static_frequencies(silent, 1), [0, 0.5, 0])
    np.testing.assert_array_equal(static_frequencies(silent, 0.5)[[0, 2]], 0)
    np.testing.assert_array_equal(static_frequencies(Sources(np.zeros(3), 1, 1), 1), 0)
    delayed = Sources([5, 1, 1, 1], 1, 0.3, crawl_delay=[4, 1, 1, 1])
    assert static_frequencies(delayed, 1)[0] == pytest.approx(0.25)
    np.testing.assert_allclose(static_frequencies(delayed, 10), [0.25, 1, 1, 1])
    with pytest.raises(ValueError, match="budget is -1"):
        static_frequencies(TABLE1, -1)


@pytest.mark.parametrize("scale", [1e-9, 2.0**30])
def test_units_of_time_and_utility_do_not_matter(scale):
    fleet, budget = fleet_of(5, 6, -1.0, 1.0)
    f = static_frequencies(fleet, budget)
    other = Sources(
        fleet.arrival_rate / scale,
        fleet.mean_utility * scale,
        fleet.decay_rate / scale,
        fleet.cost,
        fleet.period * scale,
        crawl_delay=fleet.crawl_delay * scale,
    )
    np.testing.assert_allclose(static_frequencies(other, budget) * scale, f, rtol=1e-12)


@pytest.mark.parametrize(
    ("frequency", "words"),
    [
        ([0.5, -0.5, 1, 0], "source 1: frequency is -0.5; it must be zero or positive"),
        ([0.5, np.nan, 1, 0], "source 1: frequency is nan"),
        ([0.5, 1, 0], r"frequency has shape \(3,\) for 4 sources"),
    ],
)
def test_what_is_no_frequency_of_every_source_is_refused(frequency, words):
    with pytest.raises(ValueError, match=words):
        static_reward(TABLE1, frequency)
    assert static_reward(TABLE1, [0, 0, 0, 1e-320]) >= 0  # whose interval is infinite


def test_frequencies_may_be_a_batch_or_one_for_all_sources():
    batch = np.array([[0.5, 0.5, 0.5, 0.5], [0.1, 0.2, 0.3, 0.4]])
    rewards = [static_reward(TABLE1, frequency) for frequency in batch]
    np.testing.assert_array_equal(static_reward(TABLE1, batch), rewards)
    assert static_reward(TABLE1, 0.5) == rewards[0]
