"""Selection on tensors: the same sources as the selection on arrays, ties included."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl_env.device.selection import select_top
from crawl_env.simulation import selection


@given(st.integers(1, 4), st.integers(1, 12), st.integers(1, 12), st.integers(0, 10**6))
@settings(max_examples=150)
def test_it_selects_what_the_selection_on_arrays_selects(num_envs, n, k, seed):
    rng = np.random.default_rng(seed)
    kinds = np.array([-np.inf, -1.0, -0.0, 0.0, 0.5, np.inf])  # few values, many ties
    priority = rng.choice(kinds, (num_envs, n))
    crawled_at = rng.integers(0, 3, (num_envs, n))
    found = select_top(torch.tensor(priority), k, torch.tensor(crawled_at.astype(np.int32)))
    expected = np.zeros(num_envs * n, dtype=bool)
    expected[selection.select_top(priority, k, crawled_at.astype(float))] = True
    chosen = torch.zeros(num_envs, n, dtype=torch.bool).scatter_(1, found, True)
    np.testing.assert_array_equal(chosen.numpy().ravel(), expected)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_nan_is_refused_with_its_place(k):
    priority = torch.zeros(2, 3)
    priority[1, 2] = torch.nan
    with pytest.raises(ValueError, match=r"NaN as priority of source 2 \(environment 1\)"):
        select_top(priority, k, torch.zeros(2, 3, dtype=torch.int32))
