"""The searches for a price: against neighbouring numbers, and functions whose minimum is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.theory.price import (
    Tangent,
    first_near,
    first_where,
    least_dual,
    least_where,
    near_level,
)
from tests.references import plainly

sizes = st.floats(-290, 290).map(lambda e: 10.0**e)


@plainly
@given(where=st.lists(sizes, min_size=1, max_size=4), guess=sizes)
def test_a_condition_holds_first_at_one_of_two_neighbours(where, guess):
    found = np.array(where)
    low, high = first_where(lambda x: x >= found, np.full(found.shape, 1e300))
    np.testing.assert_array_equal(high, found)
    np.testing.assert_array_equal(low, np.nextafter(found, 0.0))
    near = first_near(lambda x: x >= where[0], guess)
    assert near == (float(np.nextafter(where[0], 0.0)), where[0])
    bounds = first_near(lambda x: x >= where[0], guess, tolerance=1e-3)
    assert bounds[0] < where[0] <= bounds[1] <= bounds[0] * 1.0011


@plainly
@given(
    scales=st.lists(st.floats(-9, 9).map(lambda e: 10.0**e), min_size=1, max_size=4),
    powers=st.lists(st.floats(0.1, 3.0), min_size=4, max_size=4),
    flat=st.floats(0.0, 0.9),
)
def test_close_bounds_change_no_search_and_spare_most_of_it(scales, powers, flat):
    """Spending that falls by powers of λ, nearly not at all (flat), or to 0."""
    scale, power = np.array(scales), np.array(powers[: len(scales)])
    high, asked = 50.0 * scale, []

    def spent(x):
        asked.append(x)
        fall = (x / scale) ** -power * (1.0 - flat) + flat
        return np.where(x < high, fall, 0.0)

    known = near_level(spent, 1.0, high)
    assert (spent(known[0]) > 1.0).all()
    assert (spent(known[1]) <= 1.0).all()
    close, whole = first_where(lambda x: spent(x) <= 1.0, high, bounds=known), len(asked)
    plain = first_where(lambda x: spent(x) <= 1.0, high)
    np.testing.assert_allclose(close, plain, rtol=1e-15 / (1.0 - flat) / power.min())
    assert whole < len(asked) - whole


def test_a_condition_that_holds_everywhere_or_nowhere():
    assert first_near(lambda x: True, 1.0) == (0.0, 0.0)
    assert first_near(lambda x: True, 1.0, least=0.3) == (0.3, 0.3)
    assert first_near(lambda x: False, 1.0, most=7.0) == (7.0, 7.0)
    low, high = first_where(lambda x: x > [-1.0, 9.0], np.array([2.0, 5.0]))
    assert low.tolist() == [0.0, np.nextafter(5.0, 0.0)]
    assert high[0] < 1e-300
    assert high[1] == 5.0


@plainly
@given(
    seed=st.integers(0, 999),
    n=st.integers(1, 30),
    guess=st.sampled_from([0.0, 1e-9, 1.0, 1e9]),
    whole=st.booleans(),
)
def test_the_least_dual(seed, n, guess, whole):
    """Of items of some worth and cost that are bought if worth their price, in whole or the more
    the more they are worth it: a kink is best, or the minimum is that of golden sections."""
    rng = np.random.default_rng(seed)
    worth, cost = rng.exponential(1.0, n), rng.uniform(0.5, 2.0, n)
    budget = float(rng.uniform(0.1, 0.9) * (cost.sum() if whole else 2.0 * worth @ cost))

    def dual(price):
        left = np.maximum(worth - price * cost, 0.0)
        earned, spent = (left, (left > 0) * cost) if whole else (left**2, 2.0 * left * cost)
        return Tangent(price, float(earned.sum()), float(spent.sum()), budget)

    top = 1.01 * float((worth / cost).max())
    found = least_dual(dual, budget, lambda: top, guess, 1e-12)
    assert found == dual(found.multiplier)
    if whole:
        best = min(dual(float(price)).value for price in np.append(worth / cost, 0.0))
        assert found.value == pytest.approx(best, rel=1e-9)
    each = least_where(lambda x: np.array([dual(float(p)).value for p in x]), np.array([top]))
    assert dual(float(each[0])).value == pytest.approx(found.value, rel=1e-9)


def test_a_minimiser_far_below_the_largest():
    far = least_where(lambda x: np.maximum(x, 1e-200 - x), np.array([1.0]), 1e-220)
    assert far[0] == pytest.approx(0.5e-200, rel=1e-6)
