"""Poisson content in distribution: moments, Laplace transforms, independence, counts, ages, cost.

Every statistical test compares with a value derived by hand (see `references`), at 4.5 standard
errors and a fixed seed. One test loops over the samplers and settings that share its reference.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from crawl_env import Arrivals
from crawl_env.content import items as module
from crawl_env.content import totals
from crawl_env.content.draws import exponential, uniform
from crawl_env.content.process import Cells
from crawl_env.content.utility import EqualUtilities, Exponential, Gamma, Lognormal
from tests.references import (
    Z_LIMIT,
    transform_of_content,
    z_of_mean,
    z_of_share,
    z_of_variance,
)

UTILITIES = [
    pytest.param(EqualUtilities(), "constant", 0.0, id="constant"),
    pytest.param(Exponential(), "exponential", 0.0, id="exponential"),
    pytest.param(Lognormal(0.6), "lognormal", 0.6, id="lognormal"),
    pytest.param(Gamma(0.7), "gamma", 0.7, id="gamma"),
]
EACH = pytest.mark.parametrize(("utility", "name", "parameter"), UTILITIES)
SECOND_MOMENT = {"constant": 1.0, "exponential": 2.0, "lognormal": math.exp(0.36), "gamma": 17 / 7}

# ℓ = ΛT items / step, ξ̄, m = μT
SETTINGS = {
    "sparse": (0.2, 1.3, 0.22),
    "a few": (1.8, 0.7, 0.35),
    "many": (9.0, 2.0, 0.7),
    "long steps": (4.0, 1.0, 6.0),
}


def both(utility):
    """Return arrivals that draw totals, and arrivals that draw items."""
    return Arrivals(utility=utility), Arrivals(utility=utility, sampler="items")


def cells_of(settings, rows):
    """Return `rows` environments of the given sources, as flat cells."""
    return Cells(*(np.tile(column, rows) for column in np.array(settings, dtype=float).T))


def steps_of(arrivals, settings, rows, steps=1, seed=1):
    """Return utility and counts of single steps, (steps, rows, sources) each."""
    rng = np.random.default_rng(seed)
    block = arrivals.block(cells_of(settings, rows), np.empty(0))
    shape = (steps, rows, len(settings))
    value, items = np.zeros(shape), np.zeros(shape)
    for t in range(steps):
        block.add(value[t].reshape(-1), items[t].reshape(-1), rng)
    return value, items


def past_of(arrivals, cells, steps, rng):
    """Return utility and counts of the last `steps` steps, (n,) each."""
    value, items = np.zeros_like(cells.items), np.zeros_like(cells.items)
    arrivals.past(cells, np.broadcast_to(float(steps), value.shape)).add(value, items, rng)
    return value, items


def assert_content_in_law(value, setting, epochs, law, parameter):
    """Mean u_k, variance ℓE[ξ²](1−α^2k)/(2m), P(U = 0) = exp(−ℓk), E exp(−sU) for some s."""
    items, mean_utility, m = setting
    mean = items * mean_utility / m * -math.expm1(-m * epochs)
    second = SECOND_MOMENT[law] * mean_utility**2
    variance = items * second * -math.expm1(-2 * m * epochs) / (2 * m)
    assert value.min() >= 0
    assert abs(z_of_mean(value, mean)) < Z_LIMIT
    assert abs(z_of_variance(value, mean, variance)) < Z_LIMIT
    for s in (0.3 / mean, 3.0 / mean, 20.0 / mean_utility):
        expected = transform_of_content(s, *setting, epochs, law, parameter)
        if expected > 0.01:  # else a few samples near zero carry the whole mean
            assert abs(z_of_mean(np.exp(-s * value), expected)) < Z_LIMIT, s
    never = math.exp(-items * epochs)
    if value.size * never > 20:
        assert abs(z_of_share(value == 0, never)) < Z_LIMIT


# ------------------------------------------------------------------------- one step


@EACH
def test_one_step_has_the_distribution_of_the_model(utility, name, parameter):
    """Under both samplers; where items are drawn, their number is Poisson."""
    for arrivals, setting in itertools.product(both(utility), SETTINGS.values()):
        value, items = steps_of(arrivals, [setting], 15_000)
        assert_content_in_law(value.ravel(), setting, 1, name, parameter)
        if not items.any():
            assert (arrivals.items, name) == (False, "exponential")
            continue
        n, rate = items.ravel(), setting[0]
        assert np.array_equal(n, np.round(n))
        assert abs(z_of_mean(n, rate)) < Z_LIMIT
        assert abs(z_of_variance(n, rate, rate)) < Z_LIMIT
        for k in range(12):
            share = stats.poisson.pmf(k, rate)
            if n.size * share > 50:
                assert abs(z_of_share(n == k, share)) < Z_LIMIT, k


def test_each_of_a_few_sparse_sources_gets_its_share():
    """From the first to the last, although the cells that get nothing are skipped."""
    settings = [(0.1, 1.0, 0.4), (0.05, 1.0, 0.4), (0.2, 1.0, 0.4)]
    for arrivals in both("exponential"):
        value, _ = steps_of(arrivals, settings, 1, steps=10_000)
        for i, (items, *_) in enumerate(settings):
            assert abs(z_of_share(value[:, 0, i] > 0, -math.expm1(-items))) < Z_LIMIT


def test_sources_and_steps_are_independent():
    settings = [(0.5, 1, 0.3), (3.0, 2, 0.1), (0.5, 1, 0.3), (1.0, 1, 2.0), (8.0, 0.5, 0.4)]
    rows = 6000
    for arrivals in (*both("exponential"), *both("gamma")):
        value, items = steps_of(arrivals, settings, rows, steps=3, seed=9)
        for drawn in (value, items) if arrivals.items else (value,):
            by_row = drawn.transpose(1, 0, 2).reshape(rows, -1)  # 3 steps × 5 sources a row
            correlation = np.corrcoef(by_row.T)[np.triu_indices(15, 1)]
            assert np.abs(correlation).max() * math.sqrt(rows) < Z_LIMIT
            # Neighbouring rows: the last source of one stands beside the first of the next.
            for t in range(3):
                across = np.corrcoef(drawn[t, :-1, -1], drawn[t, 1:, 0])[0, 1]
                assert abs(across) * math.sqrt(rows) < Z_LIMIT


def test_the_same_seed_brings_the_same_content_which_is_added():
    cells = cells_of(list(SETTINGS.values()), 3)
    for arrivals in (*both("exponential"), *both("lognormal")):
        block = arrivals.block(cells, np.empty(0))
        first, second, items = np.zeros(12), np.full(12, 100.0), np.full(12, 7.0)
        block.add(first, None, np.random.default_rng(3))
        block.add(second, items, np.random.default_rng(3))
        np.testing.assert_allclose(second - 100, first, atol=1e-12)
        assert (items.sum() > 7 * 12) == isinstance(block, module.ItemSampler)


@pytest.mark.parametrize(("utility", "second"), [("constant", 1.0), ("exponential", 2.0)])
def test_given_the_count_each_item_has_its_mean_and_variance(utility, second):
    """E[U|n] = n·ξ̄(1−α)/m and Var[U|n] = n·(E[ξ²](1−α²)/(2m) − (ξ̄(1−α)/m)²)."""
    for setting in SETTINGS.values():
        _, mean, m = setting
        value, items = (x.ravel() for x in steps_of(both(utility)[1], [setting], 30_000, seed=11))
        one = mean * -math.expm1(-m) / m
        spread = second * mean**2 * -math.expm1(-2 * m) / (2 * m) - one**2
        assert np.all(value[items == 0] == 0)
        assert np.all(value[items > 0] > 0)
        if utility == "constant":
            alone = value[items == 1]
            assert mean * math.exp(-m) <= alone.min() < alone.max() <= mean
            age = np.log(mean / alone) / m
            assert alone.size < 300 or stats.kstest(age, "uniform").pvalue > 1e-4
        tested = 0
        for n in range(1, 14):
            given_n = value[items == n]
            if given_n.size > 400:
                tested += 1
                assert abs(z_of_mean(given_n, n * one)) < Z_LIMIT, n
                assert abs(z_of_variance(given_n, n * one, n * spread)) < Z_LIMIT, n
        assert tested >= 2


# ------------------------------------------------------------------------- content of an age


@EACH
def test_content_of_an_age_has_the_distribution_of_that_many_steps(utility, name, parameter):
    n, settings = 6000, [SETTINGS[key] for key in ("sparse", "a few", "many")]
    for arrivals, (setting, age) in itertools.product(
        both(utility), zip(settings, (12, 3, 1), strict=True)
    ):
        value, items = past_of(arrivals, cells_of([setting], n), age, np.random.default_rng(2))
        assert_content_in_law(value, setting, age, name, parameter)
        if arrivals.items:
            rate = setting[0] * age
            assert abs(z_of_mean(items, rate)) < Z_LIMIT
            assert abs(z_of_variance(items, rate, rate)) < Z_LIMIT
            assert np.array_equal(items == 0, value == 0)
    age, few = 4, SETTINGS["a few"]
    steps, _ = steps_of(arrivals, [few] * age, 10_000, seed=12)
    later = steps[0] @ np.exp(-few[2] * np.arange(age))
    content, _ = past_of(arrivals, cells_of([few], 10_000), age, np.random.default_rng(2))
    assert stats.ks_2samp(later, content).pvalue > 1e-4


@EACH
def test_content_never_crawled_has_the_stationary_distribution(utility, name, parameter):
    """One more step leaves it as it is; 10⁸ steps are as good as infinitely many; exponential
    content is gamma distributed."""
    n, few = 8000, SETTINGS["a few"]
    for arrivals in both(utility):
        value, _ = past_of(arrivals, cells_of([few], n), math.inf, np.random.default_rng(2))
        assert_content_in_law(value, few, math.inf, name, parameter)
        if name == "exponential":
            gamma = stats.gamma(few[0] / few[2], scale=few[1])
            assert stats.kstest(value, gamma.cdf).pvalue > 1e-4
        later, _ = steps_of(arrivals, [few], n, seed=13)
        assert_content_in_law(
            math.exp(-few[2]) * value + later.ravel(), few, math.inf, name, parameter
        )
    value, _ = past_of(both(utility)[0], cells_of([few], 3000), 1e8, np.random.default_rng(2))
    assert_content_in_law(value, few, math.inf, name, parameter)


def test_ages_may_differ_from_cell_to_cell():
    ages = np.tile([0.0, 1.0, 5.0, math.inf], 4000)
    cells = cells_of([SETTINGS["a few"]], ages.size)
    for name, parameter in (("exponential", 0.0), ("gamma", 0.7)):
        for arrivals in both(Gamma(0.7) if name == "gamma" else name):
            value = np.zeros(ages.size)
            arrivals.past(cells, ages).add(value, None, np.random.default_rng(14))
            by_age = value.reshape(-1, 4).T
            assert np.all(by_age[0] == 0)
            for content, age in zip(by_age[1:], ages[1:4], strict=True):
                assert_content_in_law(content, SETTINGS["a few"], age, name, parameter)


def test_items_displaced_for_sure_are_not_drawn():
    """A source that shows its last item needs some fifty, however long it was left alone."""
    cells = Cells(np.full(50, 1e4), np.ones(50), np.full(50, 1e-6), capacity=np.ones(50))
    rng, arrivals = np.random.default_rng(0), Arrivals(sampler="items")
    (items,) = arrivals.past(cells, np.full(50, 1e9)).draw(rng)
    number = np.bincount(items.cell, minlength=50)
    assert 10 < number.min() <= number.max() < 100
    assert items.age.max() <= 50 / 1e4 + 1e-9


# ------------------------------------------------------------------------- silent sources

PLACES = {
    "first": [0.0, 3.0, 3.0],
    "last": [3.0, 3.0, 0.0],
    "both ends": [0.0, 0.0, 3.0, 0.0, 0.0],
    "all": [0.0, 0.0],
    "beside the sparse": [0.0, 1e-3, 0.0, 1e-3, 0.0],
}


@pytest.mark.parametrize("place", PLACES)
def test_silent_sources_never_get_anything(place):
    rates, rows = PLACES[place], 400
    settings = [(rate, 1.0, 0.4) for rate in rates]
    silent, cells = np.array(rates) == 0, cells_of(settings, rows)
    for arrivals in both("exponential"):
        value, items = steps_of(arrivals, settings, rows, steps=3, seed=15)
        assert not value[..., silent].any()
        assert not items[..., silent].any()
        assert silent.all() or value[..., ~silent].sum() > 0
        for age in (5.0, math.inf):
            drawn = past_of(arrivals, cells, age, np.random.default_rng(16))
            for content in drawn:
                assert not content.reshape(rows, -1)[:, silent].any()


@given(
    st.lists(st.sampled_from([0.0, 0.0, 1e-3, 0.3, 2.0, 40.0]), min_size=1, max_size=40),
    st.integers(1, 9),
    st.integers(0, 2**64 - 1),
)
@settings(max_examples=60)
def test_items_lie_where_a_plain_walk_along_the_line_puts_them(rates, chunk, seed):
    line, window = np.cumsum(rates), np.linspace(1.0, 2.0, len(rates))
    words = np.array([seed, 7 * seed % 2**64], dtype=np.uint64)
    plain, place, expected = words.copy(), 0.0, []
    while (place := place + exponential(plain)) <= line[-1]:
        cell = int(np.searchsorted(line, place))
        expected.append((cell, uniform(plain) * window[cell]))
    found, n, cell, place = [], chunk, 0, 0.0
    while n == chunk:
        where, age = np.empty(chunk, dtype=np.intp), np.empty(chunk)
        n, cell, place = module._next_items(line, window, cell, place, where, age, words)
        found += list(zip(where[:n].tolist(), age[:n].tolist(), strict=True))
    assert found == expected
    assert all(rates[cell] > 0 for cell, _ in found)


def test_only_items_worth_less_than_rounding_are_left_out():
    cells, rng = cells_of([(2000.0, 3.0, 0.5)], 50), np.random.default_rng(0)
    for steps in (1e6, math.inf):
        block = both("constant")[0].past(cells, np.full(50, steps))
        oldest = max(items.age.max() for items in block.draw(rng))
        assert 37 / 0.5 - 0.01 < oldest < 37 / 0.5
        assert 2000.0 / 0.5 * 3.0 * math.exp(-37) < 1e-11  # utility of all that are older


# ------------------------------------------------------------------------- many items


def test_cutting_the_work_into_chunks_keeps_the_distribution(monkeypatch):
    settings = [SETTINGS["a few"], (0.0, 1.0, 1.0), SETTINGS["many"], SETTINGS["sparse"]]
    for chunk in (2, 7):
        monkeypatch.setattr(module, "CHUNK", chunk)
        # Few rows and many steps: with one long line, most cells never meet a boundary.
        value, items = steps_of(both(Gamma(0.7))[1], settings, 2, steps=1500, seed=17)
        for i, setting in enumerate(settings):
            if setting[0]:
                assert_content_in_law(value[..., i].ravel(), setting, 1, "gamma", 0.7)
                n = items[..., i].ravel()
                assert abs(z_of_mean(n, setting[0])) < Z_LIMIT
                assert abs(z_of_variance(n, setting[0], setting[0])) < Z_LIMIT
        assert np.all(items[..., 1] == 0)
        correlation = np.corrcoef(items.reshape(1500, 8)[:, [0, 2, 3, 4, 6, 7]].T)
        assert np.abs(correlation[np.triu_indices(6, 1)]).max() * math.sqrt(1500) < Z_LIMIT


def numbers_drawn(arrivals, items, cells, age=0):
    """Return how many 64-bit words compiled functions take from their streams."""
    streams = []

    def recorded(rng):
        words = rng.bit_generator.random_raw(2)
        streams.append((words.copy(), words))
        return words

    fleet, rng = cells_of([(items, 1.0, 0.5)], cells), np.random.default_rng(19)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(totals, "stream", recorded)
        patch.setattr(module, "stream", recorded)
        if age:
            past_of(arrivals, fleet, age, rng)
        else:
            arrivals.block(fleet, np.empty(0)).add(np.zeros(cells), None, rng)
    counts = (
        (int(after[0]) - int(before[0])) * pow(int(before[1]) | 1, -1, 2**64) % 2**64
        for before, after in streams
    )
    return sum(counts)


@EACH
def test_work_is_in_proportion_to_what_must_be_drawn(utility, name, parameter):
    """Two numbers an item beside its utility; where totals are drawn at once, five a source, and
    up to ten if much is published; nothing of what has decayed."""
    total, items = both(utility)
    for published in (1e-3, 0.1):
        expected = published * 100_000
        assert expected < numbers_drawn(items, published, 100_000) < 2.3 * expected
        assert expected < numbers_drawn(total, published, 100_000) < 5 * expected
    # 37 time constants of 2 steps, 2 numbers an item
    assert numbers_drawn(total, 1.0, 50, age=1e6) < 2.3 * 74 * 50
    if name == "exponential":
        assert numbers_drawn(total, 0.5, 10_000) < 3 * 10_000
        for published in (10.0, 1e4, 1e8):
            assert numbers_drawn(total, published, 50) < 500
            assert numbers_drawn(total, published, 50, age=20.0) < 500
        assert numbers_drawn(total, 50.0, 20_000, age=1e5) < 10 * 20_000  # stationary


def test_more_items_than_can_be_drawn_are_refused_with_a_remedy():
    cells = cells_of([(1e9, 1.0, 0.5)], 2)
    for draw in (
        lambda: both("constant")[0].block(cells, np.empty(0)),
        lambda: both("exponential")[1].block(cells, np.empty(0)),
        lambda: both("gamma")[0].past(cells, np.full(2, 3.0)),
    ):
        with pytest.raises(ValueError, match=r"e\+\d+ items .*singly; use .*'deterministic'"):
            draw()


def test_very_slow_decay_loses_no_digits_and_takes_no_time():
    """U tends to the sum of the items' utilities as μ → 0."""
    rng = np.random.default_rng(3)
    for decay in (1e-9, 1e-17, 1e-300):
        cells = Cells(np.full(4000, 9.0), np.full(4000, 2.0), np.full(4000, decay))
        for arrivals in both("exponential"):
            for drawn in (past_of(arrivals, cells, 5, rng)[0], np.zeros(4000)):
                steps = 5.0 if drawn.any() else 1.0
                if not drawn.any():
                    arrivals.block(cells, np.empty(0)).add(drawn, None, rng)
                assert abs(z_of_mean(drawn, 18.0 * steps)) < Z_LIMIT
                assert abs(z_of_variance(drawn, 18.0 * steps, 72.0 * steps)) < Z_LIMIT
