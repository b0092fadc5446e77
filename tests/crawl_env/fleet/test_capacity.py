"""The last K items: against scipy's incomplete gamma functions, and against items one by one."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammainc, gammaincc
from scipy.stats import poisson

from crawl_env.content.arrivals import Arrivals
from crawl_env.content.utility import Lognormal
from crawl_env.content.world import World
from crawl_env.fleet.capacity import CappedContent, capped_fraction
from crawl_env.fleet.sources import Sources
from tests.references import Z_LIMIT, plainly, z_of_mean, z_of_variance


def fraction(time, rate, decay, most):
    """E[1 − r^min(N, K)], N Poisson events at rate Λ + μ: 1 − e^{−μt}Q(K, Λt) − r^K P(K, (Λ+μ)t).

    Going back in time, content is lost at the K-th item or where a unit that fades at rate μ has
    gone, whichever comes first.
    """
    ratio = rate / (rate + decay)
    gone = np.exp(-decay * time) * gammaincc(most, rate * time)
    return float(1 - gone - ratio**most * gammainc(most, (rate + decay) * time))


@plainly
@given(
    age=st.floats(0.01, 500),
    rate=st.floats(1e-3, 300),
    decay=st.floats(1e-3, 30),
    most=st.integers(1, 400),
)
def test_the_fraction_is_scipys(age, rate, decay, most):
    found = capped_fraction(age, np.array(rate), np.array(decay), np.array(float(most)))
    # scipy's form is a difference, exact to 1e-15 of 1; ours is a sum of shares of u*.
    assert float(found) == pytest.approx(fraction(age, rate, decay, most), rel=1e-9, abs=2e-13)
    assert 0 <= found <= -np.expm1(-decay * age) * (1 + 1e-12)


@plainly
@given(age=st.floats(1e-6, 50), rate=st.floats(1e-6, 100), decay=st.floats(1e-6, 30))
def test_limits_of_the_fraction(age, rate, decay):
    """K = 1 is the residual life of one item; K = ∞ the plain recursion; no arrivals, nothing."""
    arguments = np.array(rate), np.array(decay)
    one = decay / (rate + decay) * -np.expm1(-(rate + decay) * age)
    assert float(capped_fraction(age, *arguments, np.array(1.0))) == pytest.approx(one, rel=1e-12)
    whole = -np.expm1(-decay * age)
    for enough in (np.inf, 1e9, np.ceil(rate * age + 9 * np.sqrt(rate * age) + 60)):
        kept = float(capped_fraction(age, *arguments, np.array(enough)))
        assert kept == pytest.approx(whole, rel=1e-11)
    assert capped_fraction(age, np.array(0.0), np.array(decay), np.array(3.0)) == 0


def exactly(time, rate, decay, most):
    """`fraction` in as many digits as its differences need."""
    with mpmath.workdps(360 if decay / rate < 1e-20 else 50):
        t, lam, mu = mpmath.mpf(time), mpmath.mpf(rate), mpmath.mpf(decay)
        ratio = lam / (lam + mu)
        gone = mpmath.exp(-mu * t) * mpmath.gammainc(most, lam * t, mpmath.inf, regularized=True)
        pushed = mpmath.gammainc(most, 0, (lam + mu) * t, regularized=True)
        return float(1 - gone - ratio**most * pushed)


def test_slow_decay_and_large_capacities_keep_their_digits():
    """Ages around that at which K items have come, and both ways of computing."""
    for most in (3, 900, 1001, 20_000):
        for ratio in (1e-300, 1e-9, 1e-3, 0.02):
            ages = np.array([0.3, 0.97, 1.0, 1.01, 3.0]) * most
            found = capped_fraction(ages, np.array(1.0), np.array(ratio), np.array(float(most)))
            expected = [exactly(age, 1.0, ratio, most) for age in ages]
            np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.filterwarnings("error")
def test_results_do_not_depend_on_the_unit_of_time():
    """decay_rate × period from 1e-300 to 1e3, a capacity of one to far too many items, time in
    units from nanoseconds to years."""
    decay = np.repeat(10.0 ** np.array([-300.0, -200, -100, -30, -16, -9, -3, 0, 2, 3]), 6)
    capacity = np.tile([1.0, 30, 1e5, 1e15, 1e100, np.inf], 10)
    ages = np.array([0.0, 1, 2, 10, 1e6, 1e12, 1e290, np.inf])[:, None]

    def fleet(unit):
        """So many of the units that `decay` counts in are one."""
        return Sources(
            2.0 * unit,
            3.0,
            decay * unit,
            period=1 / unit,
            crawl_delay=2.5 / unit,
            capacity=capacity,
        )

    first = fleet(1.0)
    assert np.all(np.diff(first.content_at(ages), axis=0) >= -1e-12 * first.ceiling)
    np.testing.assert_allclose(first.content_at(1)[:6], [3.0 * -np.expm1(-2.0)] + [6.0] * 5)
    for unit in (1e-9, 1e-6, 1 / 3600, 8766.0):
        other = fleet(unit)
        for name in ("decay_per_step", "retention", "loss", "ceiling", "inflow"):
            np.testing.assert_allclose(getattr(other, name), getattr(first, name), rtol=1e-12)
        np.testing.assert_array_equal(other.delay, 3.0)
        np.testing.assert_allclose(other.content_at(ages), first.content_at(ages), rtol=1e-12)


def test_ages_between_epochs_and_shapes():
    table = CappedContent(*np.array([[5.0, 1.0], [1.0, 3.0], [0.2, 0.4], [3.0, 2.0]]), period=0.5)
    ages = np.array([[0.0, 0.5], [2.0, 2.5], [1e6, np.inf]])
    expected = [
        [25 * fraction(0.5 * a, 5, 0.2, 3), 7.5 * fraction(0.5 * b, 1, 0.4, 2)]
        for a, b in np.where(ages < 1e6, ages, 1e5)
    ]
    np.testing.assert_allclose(table(ages), expected, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(table(ages[:, :1]), table(np.repeat(ages[:, :1], 2, axis=1)))
    assert table(3.0).shape == (2,)


def item_by_item(rng, rate, decay, most, span):
    """One world in a list: publish until the span is over, keep the last K, add up what is left."""
    published, clock = [], 0.0
    while True:
        clock += rng.exponential(1 / rate)
        if clock > span:
            break
        published.append((clock, rng.lognormal(-0.32, 0.8)))
    return sum(worth * np.exp(-decay * (span - at)) for at, worth in published[-most:])


def test_the_world_is_as_items_one_by_one():
    """Means and variances after six steps, from a simulation and from the world; the two are
    compared by a z-test each, which a right program fails once in 150,000 times."""
    cells = [(0.4, 0.3, 1), (3.0, 0.2, 4), (8.0, 1.0, 3)]
    rate, decay, most = np.array(cells).T
    fleet = Sources(rate, 1.0, decay, capacity=most)
    arrivals = Arrivals(utility=Lognormal(0.8), sampler="items")
    world = World(fleet, arrivals, 8000, count=True)
    rng = np.random.default_rng(4)
    world.start(np.zeros(world.shape), rng)
    for _ in range(6):
        world.advance(rng)
    plain_rng = np.random.default_rng(5)
    assert world.items is not None
    for i, (ell, mu, k) in enumerate(cells):
        plain = np.array([item_by_item(plain_rng, ell, mu, k, 6.0) for _ in range(1500)])
        mean = fleet.content_at(6.0)[i]
        assert abs(z_of_mean(world.value[:, i], mean)) < Z_LIMIT
        assert abs(z_of_mean(plain, mean)) < Z_LIMIT
        spread = world.value[:, i].var()
        error = ((world.value[:, i] - mean) ** 2).std() / np.sqrt(8000)
        z = z_of_variance(plain, mean, spread)
        widened = np.hypot(1, error / (((plain - mean) ** 2).std() / np.sqrt(1500)))
        assert abs(z) / widened < Z_LIMIT
        assert world.items[:, i].max() <= k
        few = poisson.pmf(np.arange(k), 6 * ell) @ np.arange(k)  # E min(N, K)
        counted = few + k * poisson.sf(k - 1, 6 * ell)
        assert world.items[:, i].mean() == pytest.approx(counted, abs=0.03)  # 5 standard errors


def test_an_item_without_utility_still_takes_a_place():
    """The last item hides those before, however small its utility."""
    fleet = Sources(2.0, 1.0, 50.0, capacity=1)  # no utility after a step
    world, rng = (
        World(fleet, Arrivals(utility="constant", sampler="items"), 4000),
        np.random.default_rng(1),
    )
    world.start(np.full(world.shape, np.inf), rng)
    assert abs(z_of_mean(world.value[:, 0], fleet.content_at(np.inf)[0])) < Z_LIMIT
    for _ in range(5):
        world.advance(rng)
    assert abs(z_of_mean(world.value[:, 0], fleet.content_at(np.inf)[0])) < Z_LIMIT
    assert world.value.max() <= 1.0
