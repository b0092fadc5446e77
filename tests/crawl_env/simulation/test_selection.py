"""Which sources are taken: against sorting in plain Python, and never above the budget."""

import itertools
import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crawl_env.simulation.selection import (
    affordable,
    most_spent,
    select,
    select_top,
    whole_budget,
)
from crawl_env.simulation.top import top_of_large, top_of_many_small, top_of_small
from tests.references import in_line, plainly

# Few values, so that ties abound; both zeros, both infinities, and neighbours of one.
VALUES = [-math.inf, -1.0, -0.0, 0.0, 0.5, 1.0, float(np.nextafter(np.float32(1), 2)), math.inf]
COSTS = [0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 3.7, 1e-3, 100.0]
BUDGETS = [0.1, 0.3, 0.6, 1.0, 1.2, 2.5, 3.0, 7.7, 150.0]


@st.composite
def priorities(draw_, values=VALUES):
    """Priorities and epochs of the last crawl, (B, N) each."""
    rows, n = draw_(st.integers(1, 4)), draw_(st.integers(1, 9))
    pool = draw_(st.lists(st.sampled_from(values), min_size=1, max_size=4))
    cell = st.sampled_from(pool) if draw_(st.booleans()) else st.floats(-1, 1, width=32)
    dtype = draw_(st.sampled_from([np.float32, np.float64]))
    flat = draw_(st.lists(cell, min_size=rows * n, max_size=rows * n))
    last = draw_(st.lists(st.integers(-3, 3), min_size=rows * n, max_size=rows * n))
    shape = (rows, n)
    return np.array(flat, dtype=dtype).reshape(shape), np.array(last, dtype=float).reshape(shape)


def by_row(cells, rows, n):
    """Return the sources picked in each row; no cell twice."""
    flat = np.ravel(cells)
    assert len(set(flat.tolist())) == flat.size
    assert flat.size == 0 or (flat.min() >= 0 and flat.max() < rows * n)
    return [{int(c) - row * n for c in flat if c // n == row} for row in range(rows)]


# ------------------------------------------------------------------------- top


@plainly
@given(case=priorities(), data=st.data())
def test_top_takes_what_sorting_takes(case, data):
    priority, crawled_at = case
    rows, n = priority.shape
    k = data.draw(st.integers(1, n + 1))
    before = priority.copy(), crawled_at.copy()
    picked = select_top(priority, k, crawled_at)
    expected = [
        set(in_line(p.tolist(), c.tolist())[:k]) for p, c in zip(priority, crawled_at, strict=True)
    ]
    assert by_row(picked, rows, n) == expected
    assert np.array_equal(before[0], priority)
    assert np.array_equal(before[1], crawled_at)
    assert picked.shape == (rows * min(k, n),)
    assert np.all(np.diff(picked) > 0)


@plainly
@given(case=priorities(), data=st.data())
def test_all_algorithms_of_the_top_agree_with_sorting(case, data):
    priority, crawled_at = case
    rows, n = priority.shape
    k = data.draw(st.integers(1, n))
    expected = [
        row * n + i
        for row in range(rows)
        for i in sorted(in_line(priority[row].tolist(), crawled_at[row].tolist())[:k])
    ]
    for top in (top_of_small, top_of_many_small, top_of_large):
        best = np.empty(rows * k, dtype=np.intp)
        assert top(priority.ravel(), crawled_at.ravel(), n, k, best)
        assert best.tolist() == expected


@pytest.mark.parametrize(
    ("n", "rows", "k", "dtype"),
    [
        (200, 1, 1, np.float64),
        (200, 3, 4, np.float32),
        (200, 3, 199, np.float64),
        (1000, 1, 2, np.float32),
        (1000, 3, 50, np.float64),
        (1000, 1, 200, np.float64),
        (1000, 3, 999, np.float32),
    ],
)
def test_top_of_a_large_fleet(n, rows, k, dtype):
    """With few and with many ties, and in orders that are unusual: the sorts of simple algorithms
    take quadratic time for some of them."""
    rng = np.random.default_rng(k)
    line = np.arange(rows * n).reshape(rows, n)
    wave = np.minimum(line, line[:, ::-1])
    for priority in (
        *(rng.standard_normal((rows, n)), rng.integers(0, 4, (rows, n))),
        *(line, -line, wave, -wave, np.zeros((rows, n)), np.where(line % 64, -np.inf, line)),
    ):
        priority = priority.astype(dtype)
        crawled_at = rng.integers(-9, 0, (rows, n)).astype(float)
        expected = [set(in_line(*pair)[:k]) for pair in zip(priority, crawled_at, strict=True)]
        picked = select_top(priority, k, crawled_at)
        assert by_row(picked, rows, n) == expected
        assert np.all(np.diff(picked) > 0)


def test_rounding_to_float32_does_not_make_new_ties():
    """Neighbouring doubles differ; the same numbers as float32 tie, and the older wins."""
    priority = np.array([[1.0, 1.0 + 2e-16 * 2]])
    crawled_at = np.array([[-5.0, -1.0]])
    assert set(np.ravel(select_top(priority, 1, crawled_at))) == {1}
    assert set(np.ravel(select_top(priority.astype(np.float32), 1, crawled_at))) == {0}


# ------------------------------------------------------------------------- NaN


def choose(how, priority, k, cost=None):
    crawled_at = np.zeros_like(priority, dtype=float)
    cost = np.ones(priority.shape[1]) if cost is None else cost
    if how == "top":
        return select_top(priority, k, crawled_at)
    if how == "fill":
        return select(priority, crawled_at, cost, float(k))
    balance = np.full(len(priority), float(k))
    return select(priority, crawled_at, cost, float(k), balance=balance)


@plainly
@given(case=priorities(), data=st.data())
@example(case=(np.array([[np.nan, 0.0], [1.0, 1.0]]), np.zeros((2, 2))), data=None)
def test_nan_never_slips_through(case, data):
    """Not even where ties in another row make up the number of picks."""
    priority = case[0].copy()
    rows, n = priority.shape
    k = 1
    if data is not None:
        k = data.draw(st.integers(1, n))
        priority[data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, n - 1))] = np.nan
    for how in ("top", "fill", "draw"):
        with pytest.raises(ValueError, match="NaN") as refusal:
            choose(how, priority, k)
        named = re.search(r"source (\d+)(?: \(environment (\d+)\))?", str(refusal.value))
        assert np.isnan(priority[int(named[2] or 0), int(named[1])])


@pytest.mark.parametrize("balance", [0.0, -3.0], ids=["empty", "overdrawn"])
def test_nan_is_refused_even_where_nothing_can_be_bought(balance):
    priority, cost = np.array([[0.0, np.nan]]), np.ones(2)
    with pytest.raises(ValueError, match="source 1"):
        select(priority, np.zeros((1, 2)), cost, 1.0, balance=np.array([balance]))


@pytest.mark.parametrize(
    ("cost", "budget", "expected"),
    [
        pytest.param([0.1] * 5, 0.3, 3, id="0.3 at 0.1"),
        pytest.param([0.1] * 20, 0.7, 7, id="0.7 at 0.1"),
        pytest.param([0.7] * 9, 2.1, 3, id="2.1 at 0.7"),
        pytest.param([1 / 3] * 9, 1.0, 3, id="1 at a third"),
        pytest.param([1.0] * 4, 2.5, 2, id="a half is left"),
        pytest.param([1.0] * 4, 1 - 1e-9, 0, id="not quite one"),
        pytest.param([1.0] * 4, 100.0, 4, id="more than all"),
        pytest.param([2.0], 2.0, 1, id="one source"),
        pytest.param([1.0, 2.0], 3.0, None, id="costs differ"),
        pytest.param([[1.0, 1.0], [1.0, 1.0]], 1.0, 1, id="a batch"),
        pytest.param([[1.0, 1.0], [2.0, 2.0]], 2.0, None, id="rows differ"),
        pytest.param([1e-300] * 3, 1e300, 3, id="beyond floating point"),
    ],
)
def test_whole_budget(cost, budget, expected):
    with np.errstate(over="ignore"):
        assert whole_budget(np.array(cost), budget) == expected


@plainly
@given(
    cost=st.integers(1, 1000), picks=st.integers(1, 40), scale=st.sampled_from([10, 100, 1000, 7])
)
def test_whole_budget_of_decimal_fractions_is_what_a_person_expects(cost, picks, scale):
    """Cost c/scale and budget k·c/scale, written as decimals: k sources."""
    n = 50
    assert whole_budget(np.full(n, cost / scale), picks * cost / scale) == picks


# ------------------------------------------------------------------------- at the edges


@pytest.mark.parametrize("k", [1, 20, 150])
def test_nan_is_refused_wherever_it_stands_in_a_large_fleet(k):
    for place in (0, 63, 64, 200, 319, 320, 324):
        priority = np.random.default_rng(0).random((2, 325))
        priority[1, place] = np.nan
        with pytest.raises(ValueError, match=rf"source {place} \(environment 1\)"):
            select_top(priority, k, np.zeros((2, 325)))


@pytest.mark.parametrize("share", [1 - 1e-9, 1 - 1e-13, 1.0, 1 + 1e-13, 1 + 1e-9])
def test_a_sum_fits_to_within_rounding_and_no_more(share):
    """Three tenths cost .3 in decimals and a bit more in binary; 1e-9 more does not fit."""
    cost, budget = np.array([0.1, 0.1, 0.1]) * share, 0.3
    fits = 3 if share < 1 + 1e-10 else 2
    assert whole_budget(cost, budget) == fits
    picked = select(np.ones((2, 3)), np.zeros((2, 3)), cost, budget)
    assert by_row(picked, 2, 3) == [set(range(fits))] * 2
    mixed = np.array([0.1, 0.2, 0.05]) * share
    expected = {0, 1} if share < 1 + 1e-10 else {0, 2}
    picked = select(np.array([[3.0, 2.0, 1.0]]), np.zeros((1, 3)), mixed, budget)
    assert by_row(picked, 1, 3) == [expected]
    assert affordable(np.array([0.3 * share, 0.1]), budget).tolist() == [share < 1 + 1e-10, True]


@pytest.mark.parametrize(("left", "crawls"), [(1e-8, 1), (1.1e-9, 1), (0.9e-9, 0), (0.0, 0)])
def test_a_balance_counts_as_empty_within_a_billionth_of_the_budget(left, crawls):
    for allowed in (None, np.ones((1, 3), bool)):
        for scale in (1.0, 50.0):
            balance = np.array([left * scale])
            args = (np.ones((1, 3)), np.zeros((1, 3)), np.ones(3), scale, None, balance, allowed)
            assert select(*args).size == crawls
            balance = np.array([scale + left * scale])
            prices = np.full(3, scale)
            args = (np.ones((1, 3)), np.zeros((1, 3)), prices, scale, None, balance, allowed)
            assert select(*args).size == 1 + crawls


@given(
    st.lists(st.sampled_from([*COSTS, 0.25, 1.5, 0.007]), min_size=1, max_size=7)
    | st.tuples(st.sampled_from([1 / 3, 0.7]), st.integers(1, 7)).map(lambda p: [p[0]] * p[1]),
    st.sampled_from([*BUDGETS, 0.999, 4.2005]),
)
def test_the_most_that_can_be_spent(costs, budget):
    """Against all subsets, in exact arithmetic."""
    sums = {Fraction(0)}
    for cost in costs:
        sums |= {total + Fraction(cost).limit_denominator(1000) for total in sums}
    most = max(total for total in sums if total <= Fraction(budget).limit_denominator(10**6))
    assert most_spent(np.array(costs), budget) == pytest.approx(float(most), rel=1e-12)


def test_the_most_that_can_be_spent_is_never_too_small():
    rng = np.random.default_rng(0)
    for _ in range(60):
        costs, budget = rng.uniform(0.1, 2, 6), rng.uniform(0.5, 8)
        sums = np.array(list(itertools.product([0, 1], repeat=6))) @ costs
        assert most_spent(costs, budget) * (1 + 1e-12) >= sums[sums <= budget].max(initial=0.0)
    many = rng.integers(1, 50, 10**5) * 0.1
    assert most_spent(many, 1e4 + 0.05) == pytest.approx(1e4, rel=1e-12)
    assert most_spent(many, 1e9) == pytest.approx(many.sum())
