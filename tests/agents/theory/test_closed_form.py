"""The index against 60 digits, an independent package, optimal stopping, and over its range.

Nothing expected here comes from the code under test: formulas are restated from the model's page.
"""

import itertools

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents import index_at_age, myopic_index, whittle_index
from crawl_env import Sources

# The same examples on every machine, and no files left behind.
plainly = settings(derandomize=True, database=None, max_examples=150)

# The index is a sum of rounded terms, so that along consecutive floats it may fall by this share
# of itself (measured: 1.5e-14 close to the ceiling, 2e-15 below .999 u*).
WOBBLE = 3e-14


def one(decay, ceiling=1.0, cost=1.0):
    """Return one source of given μT and u*; for ceiling 1 the float u* is exactly 1."""
    return Sources(ceiling * decay, 1.0, [decay], cost)


def index_of(x, source, discount=1.0):
    """Return the index of one source in many states."""
    return whittle_index(np.reshape(x, (-1, 1)), source, discount)[:, 0]


def printed(share, decay):
    """Return Theorem 1 as printed, as a share of u*/C, extended by y from 1 on."""
    y, m = mpmath.mpf(float(share)), mpmath.mpf(float(decay))
    if y >= 1:
        return y
    eta = mpmath.ceil(mpmath.log1p(-y) / -m)
    return 1 - mpmath.exp(-m * eta) - eta * -mpmath.expm1(-m) * (1 - y)


def discounted(share, decay, discount):
    """Return the charge λ/u* at which crawling now and one epoch later are equally good.

    Crawled whenever x_η is reached, a source is worth W = δ^(η−1)(x_η − λ)/(1 − δ^η) just after
    a crawl. Now: x − λ + δW. Later: δ(x' − λ + δW), x' = αx + u. Both are linear in λ.
    """
    y, m, d = (mpmath.mpf(float(z)) for z in (share, decay, discount))
    if y >= 1:
        return y
    eta = mpmath.ceil(mpmath.log1p(-y) / -m)
    after = y - mpmath.expm1(-m) * (1 - y)
    turn = d ** (eta - 1) / (1 - d**eta)
    gain = y - d * after + d * (1 - d) * turn * -mpmath.expm1(-m * eta)
    return gain / ((1 - d) * (1 + d * turn))


def relative_error(got, expected):
    return float(abs(mpmath.mpf(float(got)) / expected - 1))


@pytest.mark.parametrize(("retention", "discount"), [(0.2, 0.9), (0.97, 1.0)])
def test_agrees_with_markovianbandit(bandits, retention, discount):
    inflow, cost = 147.655955, 2.5
    ages, cap = np.arange(1, 13), 25
    k = np.arange(1, cap + 1)
    content = inflow / (1 - retention) * (1 - retention**k)
    older, reset = np.eye(cap)[np.minimum(k, cap - 1)], np.tile(np.eye(cap)[0], (cap, 1))
    chain = bandits.restless_bandit_from_P0P1_R0R1(older, reset, np.zeros(cap), content)
    expected = chain.whittle_indices(discount=discount)[: ages.size] / cost
    decay = -np.log(retention)
    source = Sources(inflow / (1 - retention) * decay, 1.0, [decay], cost)
    got = index_at_age(ages[:, None], source, discount)[:, 0]
    np.testing.assert_allclose(got, expected, rtol=1e-9)


# ------------------------------------------------------------------------------------ 60 digits

DECAYS = np.logspace(-12, 3, 61)


def shares(rng, most):
    """Return y = x/u* of every size up to `most`, exact as floats."""
    near = 1 - 10 ** rng.uniform(np.log10(1 - most), 0, 12)
    return np.concatenate([10 ** rng.uniform(-14, 0, 12) * most, near, rng.random(6) * most])


def test_60_digits():
    rng = np.random.default_rng(1)
    worst = (0.0, 0.0, 0.0)
    with mpmath.workdps(60):
        for decay in DECAYS[::2]:
            y = np.concatenate([shares(rng, 1 - 2e-16), shares(rng, 1 - 1e-5)])
            y = y[(y > 0) & (y < 1)]
            for share, got in zip(y, index_of(y, one(decay)), strict=True):
                error = relative_error(got, printed(share, decay))
                worst = max(worst, (error, decay, float(share)))
    assert worst[0] < 5e-15, f"relative error {worst[0]:.2g} at μT = {worst[1]:g}, y = {worst[2]:g}"


@pytest.mark.parametrize("discount", [1e-3, 0.9, 1 - 1e-9])
def test_60_digits_discounted(discount):
    rng = np.random.default_rng(3)
    worst = (0.0, 0.0, 0.0)
    with mpmath.workdps(60):
        for decay in DECAYS[::4]:
            y = shares(rng, 1 - 1e-5)
            y = y[y > 0]
            for share, got in zip(y, index_of(y, one(decay), discount), strict=True):
                error = relative_error(got, discounted(share, decay, discount))
                worst = max(worst, (error, decay, float(share)))
    assert worst[0] < 1e-12, f"relative error {worst[0]:.2g} at μT = {worst[1]:g}, y = {worst[2]:g}"


def indifference(x, alpha, ceiling, cost, discount):
    """Return the charge per unit of cost from which waiting in state x is optimal.

    By bisection: for a charge, the best interval after a crawl is found by trying all up to
    `far`, and crawling now is compared with crawling after 1, 2, …, `far` epochs, or never.
    """
    far = 3000
    k = np.arange(1.0, far + 1)
    kept, far_off = alpha**k, discount**k
    grown, waited = ceiling * (1 - kept), ceiling - (ceiling - x) * kept

    def waits(charge):
        paid = charge * cost
        if discount == 1:
            gain = max(0.0, float(((grown - paid) / k).max()))  # per epoch
            later = float((waited - paid - gain * k).max())
            never = 0.0 if gain == 0 else -np.inf
            return max(later, never) > x - paid
        after = max(0.0, float((far_off / discount * (grown - paid) / (1 - far_off)).max()))
        later = float((far_off * (waited - paid + discount * after)).max())
        return max(later, 0.0) > x - paid + discount * after

    low, high = 0.0, (max(x, ceiling) + 1.0) / cost
    for _ in range(55):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if waits(middle) else (middle, high)
    return 0.5 * (low + high)


@pytest.mark.parametrize("discount", [1.0, 0.97, 0.6])
def test_agrees_with_optimal_stopping(discount):
    rng = np.random.default_rng(4)
    for _ in range(10):
        alpha, ceiling = rng.uniform(0.02, 0.98), 10 ** rng.uniform(-1, 2)
        cost, decay = 10 ** rng.uniform(-0.5, 0.5), -np.log(alpha)
        source = one(decay, ceiling, cost)
        lattice = ceiling * (1 - alpha ** rng.integers(1, 8))
        between = ceiling * rng.random(3) * 0.999
        for x in [lattice, *between, ceiling * rng.uniform(1, 1.001), ceiling * rng.uniform(1, 9)]:
            expected = indifference(x, alpha, ceiling, cost, discount)
            got = float(index_of(x, source, discount)[0])
            assert got == pytest.approx(expected, rel=1e-8, abs=1e-11 * ceiling / cost)


# -------------------------------------------------------------------------- what is always so

decays = st.floats(-12, 3).map(lambda e: 10.0**e)
scales = st.floats(-4, 6).map(lambda e: 10.0**e)
discounts = st.sampled_from([1.0, 0.999, 0.99, 0.9, 0.5, 1e-3])


def states(ceiling, decay, shares):
    """Return awkward values of x in increasing order: lattice, ceiling, neighbours, extremes."""
    ages = np.array([1, 2, 3, 10, 1e3, 1e5, 1 / decay, 10 / decay, 36 / decay, 40 / decay])
    around = np.concatenate(
        [ceiling * -np.expm1(-decay * np.floor(ages)), ceiling * np.array([*shares, 1.0])]
    )
    close = [around]
    for direction in (0.0, np.inf):
        x = around
        for _ in range(3):
            x = np.nextafter(x, direction)
            close.append(x)
    far = np.array([0.0, 5e-324, 1e-310, 2.2e-308, 1e-150]), ceiling * np.array([1.5, 1e9])
    return np.sort(np.concatenate([*close, *far]))


@plainly
@given(
    decay=decays,
    ceiling=scales,
    cost=scales,
    shares=st.lists(st.floats(0, 1), max_size=5),
    discount=discounts,
)
def test_in_range(decay, ceiling, cost, shares, discount):
    source = one(decay, ceiling, cost)
    x = states(float(source.ceiling[0]), decay, shares)
    index = index_of(x, source, discount)
    assert np.isfinite(index).all()
    assert (index >= 0).all()
    assert (index <= x / cost).all()
    above = x >= source.ceiling[0]
    assert (index[above] == x[above] / cost).all()
    assert index[0] == 0


@plainly
@given(decay=decays, ceiling=scales, shares=st.lists(st.floats(0, 1), max_size=5))
def test_never_falls(decay, ceiling, shares):
    source = one(decay, ceiling)
    index = index_of(states(float(source.ceiling[0]), decay, shares), source)
    highest = np.maximum.accumulate(index)
    assert (index >= highest * (1 - WOBBLE)).all()
    # In steps larger than rounding it rises.
    apart = index_of(source.ceiling[0] * np.linspace(1e-9, 2, 300), source)
    assert (np.diff(apart) > 0).all()


@plainly
@given(decay=decays, ceiling=scales, cost=scales, shares=st.lists(st.floats(0, 1), min_size=1))
def test_first_epoch_and_ceiling(decay, ceiling, cost, shares):
    source = one(decay, ceiling, cost)
    x = float(source.inflow[0]) * np.array(shares)
    lost = float(-mpmath.expm1(-mpmath.mpf(decay)))
    # y = x/u* is rounded to a subnormal for the smallest x: so far absolute.
    np.testing.assert_allclose(
        index_of(x, source), lost * x / cost, rtol=2e-15, atol=1e-320 * max(1, ceiling) / cost
    )
    top = source.ceiling
    assert whittle_index(top, source)[0] == top[0] / cost
    for neighbour in (np.nextafter(top, 0), np.nextafter(top, np.inf)):
        assert whittle_index(neighbour, source)[0] == pytest.approx(top[0] / cost, rel=WOBBLE)


def test_silent_source_is_worth_what_it_holds():
    fleet = Sources([0.0, 0.0, 3.0], [1.0, 2.0, 0.0], 0.5, [1.0, 4.0, 0.5])
    x = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [1e-310, 1e200, 1e-9]])
    for discount in (1.0, 0.9):
        np.testing.assert_array_equal(whittle_index(x, fleet, discount), x / fleet.cost)


def test_table1_at_ages():
    printed = [
        [90.509, 180.401, 247.359],
        [43.605, 105.060, 170.020],
        [18.102, 36.080, 49.472],
        [3.417, 8.956, 15.692],
    ]
    fleet = Sources.preset("table1")
    got = index_at_age([[1], [2], [3]], fleet).T
    np.testing.assert_allclose(got, printed, rtol=0, atol=5.01e-4)
    with mpmath.workdps(60):
        rows = [(250, "1", "0.7"), (250, "0.7", "0.35"), (250, "0.2", "0.7"), (250, "0.08", "0.21")]
        for i, k in itertools.product(range(4), range(1, 4)):
            rate, utility, decay = (mpmath.mpf(z) for z in rows[i])
            a, u = mpmath.exp(-decay), rate * utility / decay
            expected = u * (1 - a**k) - k * u * (1 - a) * a**k
            assert relative_error(got[i, k - 1], expected) < 1e-14


# -------------------------------------------------------------------------------- many at a time


@pytest.mark.parametrize(("n", "discount"), [(1, 1.0), (7, 0.95), (41, 1.0)])
def test_shapes_change_nothing(n, discount):
    rng = np.random.default_rng(5)
    rows = [
        Sources(*(rng.uniform(0.1, 3, (3, n))), rng.uniform(0.5, 2, n), period=0.7)
        for _ in range(4)
    ]
    values = rng.gamma(1.0, 4.0, (4, 5, n))
    values[rng.random(values.shape) < 0.1] = 0.0
    loop = np.array(
        [
            [
                [
                    whittle_index(values[b, t, i : i + 1], fleet.select([i]), discount)[0]
                    for i in range(n)
                ]
                for t in range(5)
            ]
            for b, fleet in enumerate(rows)
        ]
    )
    shared = np.array([[whittle_index(v, rows[0], discount) for v in batch] for batch in values])
    stacked = Sources.stack(rows)
    np.testing.assert_array_equal(whittle_index(values, rows[0], discount), shared)  # (B, T, N)
    np.testing.assert_array_equal(shared[0], loop[0])
    for t in range(5):
        here = values[:, t]
        np.testing.assert_array_equal(whittle_index(here, stacked, discount), loop[:, t])  # (B, N)
        np.testing.assert_array_equal(whittle_index(here, rows[0], discount), shared[:, t])
    over_time = whittle_index(values.swapaxes(0, 1), stacked, discount)  # (T, B, N)
    np.testing.assert_array_equal(over_time, loop.swapaxes(0, 1))
    np.testing.assert_array_equal(  # one state, (N,), under B fleets
        whittle_index(values[1, 2], stacked, discount),
        np.array([whittle_index(values[1, 2], fleet, discount) for fleet in rows]),
    )
    np.testing.assert_array_equal(whittle_index(values[0, 0], rows[0], discount), loop[0, 0])


def test_layout_and_input_are_left_alone():
    rng = np.random.default_rng(6)
    fleet = Sources.random(200, seed=1)
    x = rng.gamma(1.0, 20.0, (150, 200))  # larger than one block
    kept = x.copy()
    expected = whittle_index(x, fleet)
    np.testing.assert_array_equal(x, kept)
    np.testing.assert_array_equal(whittle_index(np.asfortranarray(x), fleet), expected)
    np.testing.assert_array_equal(whittle_index(x[::-1], fleet)[::-1], expected)
    np.testing.assert_array_equal(whittle_index(x[3], fleet), expected[3])
    assert whittle_index(np.empty((0, 200)), fleet).shape == (0, 200)
    whole = np.full(200, 3)
    np.testing.assert_array_equal(whittle_index(whole, fleet), whittle_index(whole * 1.0, fleet))


def test_ages_are_states():
    fleet = Sources.random(9, seed=2)
    ages = np.array([[0.0], [1], [2], [50], [1e9], [np.inf]])
    got = index_at_age(ages, fleet)
    at_content = whittle_index(fleet.content_at(ages), fleet)
    np.testing.assert_allclose(got, at_content, rtol=1e-14)
    assert (got[0] == 0).all()
    np.testing.assert_array_equal(got[-1], fleet.ceiling / fleet.cost)
    np.testing.assert_array_equal(index_at_age(2, fleet), got[2])
    np.testing.assert_array_equal(myopic_index([[1.0] * 9] * 2, fleet), [1 / fleet.cost] * 2)


@pytest.mark.parametrize(
    ("value", "discount", "message"),
    [
        ([1.0, -1e-9, 0, 0], 1.0, "negative or NaN"),
        ([1.0, np.nan, 0, 0], 1.0, "negative or NaN"),
        ([1.0, 2.0], 1.0, "last axis must hold 4"),
        (1.0, 1.0, "last axis must hold 4"),
        (np.ones((4, 3)), 1.0, "last axis must hold 4"),
        (np.ones(4), 0.0, "discount is 0"),
        (np.ones(4), "0.9", "discount is '0.9'; it must be a number"),
        (np.ones(4), -0.5, "discount"),
        (np.ones(4), 1.0000001, "discount"),
        (np.ones(4), np.nan, "discount"),
    ],
)
def test_refuses(value, discount, message):
    with pytest.raises(ValueError, match=message):
        whittle_index(value, Sources.preset("table1"), discount)


def test_refuses_bad_ages_and_shapes():
    fleet = Sources.preset("table1")
    for bad in (-1, np.nan, [1, 2, -0.5, 1]):
        with pytest.raises(ValueError, match="age has negative or NaN"):
            index_at_age(bad, fleet)
    with pytest.raises(ValueError, match=r"broadcast|shape"):
        whittle_index(np.ones((3, 4)), Sources.stack([fleet, fleet]))
