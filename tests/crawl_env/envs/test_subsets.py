"""The tables of discrete actions: against trying every set."""

from __future__ import annotations

import itertools
import time
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_env.envs.subsets import MOST_SUBSETS, all_subsets, maximal_subsets
from tests.references import maximal, plainly

COSTS = [0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.0, 2.0, 3.7, 50.0]


@plainly
@given(
    cost=st.lists(st.sampled_from(COSTS), min_size=1, max_size=8),
    budget=st.sampled_from([0.05, 0.1, 0.3, 0.6, 0.7, 1.0, 1.2, 2.5, 3.0, 7.7, 150.0]),
)
def test_maximal_subsets_of_round_costs(cost: list[float], budget: float) -> None:
    """Decimal fractions whose sums round: 0.1 + 0.2 fits into 0.3."""
    assert list(maximal_subsets(np.array(cost), budget)) == maximal(cost, budget)


@plainly
@given(
    cost=st.lists(st.floats(1e-3, 10), min_size=1, max_size=8),
    share=st.floats(0.01, 1.2),
)
def test_maximal_subsets_of_any_costs(cost: list[float], share: float) -> None:
    budget = share * sum(cost)
    assert list(maximal_subsets(np.array(cost), budget)) == maximal(cost, budget)


@pytest.mark.parametrize(("n", "k"), [(4, 1), (4, 2), (6, 3), (10, 4), (5, 5)])
def test_at_unit_cost_they_are_all_combinations_in_order(n: int, k: int) -> None:
    found = maximal_subsets(np.ones(n), float(k))
    assert found == tuple(itertools.combinations(range(n), k))
    assert found == maximal_subsets(np.ones(n), k + 0.5 if k < n else k + 7.0)


def test_rounding_of_the_budget_does_not_cost_a_source() -> None:
    assert maximal_subsets(np.full(4, 0.1), 0.3) == tuple(itertools.combinations(range(4), 3))
    assert maximal_subsets(np.array([0.1, 0.2, 0.4]), 0.3) == ((0, 1),)


def test_sources_too_dear_are_in_no_set() -> None:
    assert maximal_subsets(np.array([5.0, 1.0, 5.0, 1.0]), 1.0) == ((1,), (3,))
    assert maximal_subsets(np.array([5.0, 6.0]), 1.0) == ((),)


def test_sets_are_plain_sorted_tuples_in_lexicographic_order() -> None:
    found = maximal_subsets(np.array([1.0, 2.0, 3.0, 1.0, 2.0, 2.5]), 4.0)
    assert list(found) == sorted(found)
    assert len(set(found)) == len(found)
    for chosen in found:
        assert isinstance(chosen, tuple)
        assert list(chosen) == sorted(chosen)
        assert all(type(i) is int for i in chosen)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_all_subsets_are_all_in_lexicographic_order(n: int) -> None:
    expected = sorted(
        itertools.chain.from_iterable(itertools.combinations(range(n), k) for k in range(n + 1))
    )
    assert list(all_subsets(n)) == expected
    assert expected[0] == ()


def test_the_largest_tables_are_allowed() -> None:
    assert len(all_subsets(16)) == MOST_SUBSETS == 2**16
    assert len(maximal_subsets(np.ones(18), 9.0)) == comb(18, 9) == 48620
    assert len(all_subsets(3, most=8)) == 8
    assert len(maximal_subsets(np.array([1.0, 1.0, 1.5]), 1.5, most=3)) == 3


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: all_subsets(17), id="all of 17"),
        pytest.param(lambda: all_subsets(10**6), id="all of a million"),
        pytest.param(lambda: all_subsets(3, most=7), id="all of 3 in 7"),
        pytest.param(lambda: maximal_subsets(np.ones(30), 15.0), id="15 of 30"),
        pytest.param(lambda: maximal_subsets(np.ones(5), 2.0, most=9), id="2 of 5 in 9"),
        pytest.param(lambda: maximal_subsets(np.ones(10**5), 3.0), id="3 of 100,000"),
        pytest.param(lambda: maximal_subsets(np.linspace(1, 2, 40), 30.0), id="costs differ"),
        pytest.param(lambda: maximal_subsets(np.r_[1e-9, np.linspace(1, 2, 60)], 30.0), id="crumb"),
        pytest.param(lambda: maximal_subsets(np.array([1.0, 1.0, 1.5]), 1.5, most=2), id="3 in 2"),
    ],
)
def test_larger_tables_are_refused_soon_and_with_a_remedy(make: object) -> None:
    start = time.perf_counter()
    with pytest.raises(ValueError, match=r"sources have .* subsets.*priority.*SequentialSelection"):
        make()
    assert time.perf_counter() - start < 5


def test_a_search_that_would_not_end_is_refused() -> None:
    cost = np.r_[np.full(24, 0.001), np.ones(14)]
    with pytest.raises(ValueError, match="SequentialSelection"):
        maximal_subsets(cost, 7.5)
