"""Priorities of an index: in its order, in [−1, 1], negative below the Lagrange multiplier."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.policies.base import graded
from tests.references import plainly

values = st.one_of(st.just(0.0), st.floats(-12, 12).map(lambda e: 10.0**e))
rows = st.lists(values, min_size=1, max_size=20)


def plainly_graded(row, multiplier):
    """Return e/(e + c), e = γ − λ, c the largest e; e/λ where e is negative."""
    zero = 0.0 if multiplier is None else multiplier * (1 - 1e-6)
    scale = max(row) - zero if max(row) > zero else 1.0
    return [(x - zero) / (x - zero + scale) if x >= zero else (x - zero) / zero for x in row]


@plainly
@given(row=rows, multiplier=st.one_of(st.none(), values))
def test_priorities_are_those_of_the_plain_formula(row, multiplier):
    index = np.array([row, row[::-1]])
    level = None if multiplier is None else np.full((2, 1), multiplier)
    found = graded(index, level)
    assert found.dtype == np.float32
    expected = [plainly_graded(row, multiplier), plainly_graded(row[::-1], multiplier)]
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-40)
    assert np.abs(found).max() <= 1
    assert (np.diff(found[0, np.argsort(index[0])]) >= 0).all()
    if multiplier is not None:
        np.testing.assert_array_equal(found < 0, index < level * (1 - 1e-6))
    assert (index == [row, row[::-1]]).all()


def test_indices_a_ten_millionth_apart_keep_their_order():
    """Wherever the budget ends, and whatever the largest index is."""
    for size in (1e-9, 1.0, 0.37, 1e9):
        index = np.array([[size, size * (1 + 3e-7), 1.0, 1e9]])
        first, second = graded(index, None)[0, :2]
        assert first < second


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("multiplier", [None, np.ones((1, 1))])
def test_refuses_what_is_no_index(wrong, multiplier):
    with pytest.raises(ValueError, match="negative or not finite"):
        graded(np.array([[1.0, wrong, 2.0]]), multiplier)


def test_negative_zero_is_zero():
    np.testing.assert_array_equal(graded(np.array([[-0.0, 0.0, 3.0]]), None), [[0.0, 0.0, 0.5]])
    np.testing.assert_array_equal(graded(np.zeros((1, 3)), None), np.zeros((1, 3)))
