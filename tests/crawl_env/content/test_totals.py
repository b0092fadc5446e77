"""Totals of exponential content against numpy's draws of the same law and exact distributions.

Each test has a chance of at most 1e-3 to fail if the distribution is right; seeds are fixed.
"""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from crawl_env.content import totals
from crawl_env.content.process import Cells
from crawl_env.content.totals import ExponentialTotals

N = 20_000
ITEMS = (0.01, 0.15, 1.0, 5.0, 20.0, 300.0, 1e4)  # ΛT
DECAYS = (1e-3, 0.05, 0.5, 3.0)  # μT
LEVEL = 1e-3 / (2 * len(ITEMS) * len(DECAYS))


def drawn(items, decay, seed):
    value = np.zeros(N)
    block = ExponentialTotals(Cells(np.full(N, items), np.full(N, 1.7), np.full(N, decay)))
    block.add(value, None, np.random.default_rng(seed))
    return value


def plain(items, decay, seed):
    """Return content drawn by numpy, as a sum over single items if they are few."""
    rng = np.random.default_rng(seed)
    if items > 50:
        batches = rng.poisson(rng.gamma(items / decay, np.expm1(decay), N))
        return 1.7 * np.exp(-decay) * rng.standard_gamma(batches)
    owner = np.repeat(np.arange(N), rng.poisson(items, N))
    utility = rng.exponential(1.7, owner.size) * np.exp(-decay * rng.random(owner.size))
    return np.bincount(owner, utility, N)


@pytest.mark.parametrize("items", ITEMS)
def test_totals_have_the_law_of_sums_of_items(items):
    for seed, decay in enumerate(DECAYS):
        value, expected = drawn(items, decay, seed), plain(items, decay, 100 + seed)
        assert stats.binomtest(int((value == 0).sum()), N, np.exp(-items)).pvalue > LEVEL
        if (value > 0).any():
            found, wanted = value[value > 0], expected[expected > 0]
            assert stats.ks_2samp(found, wanted).pvalue > LEVEL, decay
        mean = items * 1.7 * -np.expm1(-decay) / decay
        variance = items * 1.7**2 * -np.expm1(-2 * decay) / decay
        assert abs(value.mean() - mean) < 4.5 * np.sqrt(variance / N)


@given(st.floats(1e-3, 1 - 1e-9), st.floats(0.01, 14.0), st.floats(1e-3, 4.0))
def test_batches_are_the_quantile_of_a_negative_binomial_number(u, mean, decay):
    odds = np.expm1(decay)
    law = stats.nbinom(mean / odds, 1 / (1 + odds))
    none = law.pmf(0)
    assume(u > none)
    found = totals._batches(u - none, none, mean, odds)
    # Where u is at the edge of a class, rounding may decide.
    assert law.cdf(found - 1) - 1e-12 <= u <= law.cdf(found) + 1e-12


@pytest.mark.parametrize("decay", [1e-300, 1e-12, 1e-3, 1.0, 30.0, 40.0, 1e3])
def test_totals_of_any_decay_and_of_very_many_items(decay):
    """B, some 1e16 times the number of items in the last time constants, may exceed any integer."""
    for items in (1e3, 1e5, 1e8, 1e12, 1e15):
        value = drawn(items, decay, 7)
        mean = items * 1.7 * -np.expm1(-decay) / decay
        variance = items * 1.7**2 * -np.expm1(-2 * decay) / decay
        assert abs(value.mean() - mean) < 4.5 * np.sqrt(variance / N)
        if items > 1e3 * decay:
            assert abs(value.var() / variance - 1) < 0.15


@pytest.mark.parametrize("items", [0.3, 1.0, 300.0, 1e3, 1e6])
def test_content_of_all_times_is_gamma_distributed(items):
    """The stationary law is Gamma(Λ/μ, ξ̄); B is then up to 1e16 times Λ/μ."""
    cells = Cells(np.full(N, items * 0.7), np.full(N, 1.7), np.full(N, 0.7))
    value = np.zeros(N)
    ExponentialTotals(cells, np.inf).add(value, None, np.random.default_rng(8))
    assert stats.kstest(value, stats.gamma(items, scale=1.7).cdf).pvalue > LEVEL


def test_cells_of_any_kind_lie_side_by_side():
    """Cells drawn in different ways do not disturb each other."""
    kinds = list(itertools.product((0.0, 0.05, 3.0, 200.0), (0.1, 2.0, 9.0)))
    items, decay = (np.tile(column, 2000) for column in np.array(kinds).T)
    value = np.zeros(items.size)
    cells = Cells(items, np.ones(items.size), decay)
    ExponentialTotals(cells).add(value, None, np.random.default_rng(3))
    by_kind = value.reshape(2000, len(kinds)).T
    for content, mean, (rate, m) in zip(
        by_kind, cells.mean_content(1.0)[: len(kinds)], kinds, strict=True
    ):
        error = np.sqrt(rate * -np.expm1(-2 * m) / m / 2000)
        assert abs(content.mean() - mean) <= 4.5 * error
    correlation = np.corrcoef(by_kind[3:])[np.triu_indices(len(kinds) - 3, 1)]
    assert np.abs(correlation).max() * np.sqrt(2000) < 4.5
