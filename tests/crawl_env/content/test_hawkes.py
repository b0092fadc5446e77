"""Hawkes processes against the theory of Hawkes processes, and against plain thinning."""

import math

import numpy as np
import pytest
from scipy import stats

from crawl_env import Arrivals, Hawkes, Sources, World
from tests.references import Z_LIMIT, z_of_mean, z_of_variance


def counts(rate_model, rate, period, epochs, rows):
    """Return the items of successive windows of so many epochs, (rows,) each."""
    fleet = Sources(np.array([rate]), 1.0, 0.1, period=period)
    arrivals = Arrivals(rate=rate_model)
    world, rng = World(fleet, arrivals, rows, count=True), np.random.default_rng(8)
    world.start(np.ones((rows, 1)), rng)
    found = []
    for window in epochs:
        world.crawl(np.arange(rows))
        for _ in range(window):
            world.advance(rng)
        found.append(world.items[:, 0].copy())
    return found


def variance(rate, n, decay, time):
    """Var N of a stationary window: Λ[κ²t + (1 − κ²)(1 − e^−γt)/γ], κ = 1/(1 − n),
    γ = β(1 − n) (Da Fonseca & Zaatour, 2014, Hawkes process: fast calibration)."""
    kappa, gamma = 1 / (1 - n), decay * (1 - n)
    return rate * (kappa**2 * time + (1 - kappa**2) * -math.expm1(-gamma * time) / gamma)


@pytest.mark.parametrize(
    ("n", "period"), [(0.0, 1.0), (0.3, 0.25), (0.3, 6.0), (0.8, 0.25), (0.8, 1.0)]
)
def test_counts_have_the_moments_of_a_hawkes_process(n, period):
    """For windows of one epoch and of several; the first one lets it become stationary."""
    rate, decay = 0.9, 1.5
    settled = math.ceil(40 / (decay * (1 - n)) / period)
    sizes = [settled, 1, 2, 8]
    found = counts(Hawkes(n, decay), rate, period, sizes, 6000)
    assert abs(z_of_mean(found[0], rate * settled * period)) < Z_LIMIT
    for size, items in zip(sizes[1:], found[1:], strict=True):
        mean = rate * size * period
        assert abs(z_of_mean(items, mean)) < Z_LIMIT
        expected = variance(rate, n, decay, size * period)
        assert abs(z_of_variance(items, mean, expected)) < Z_LIMIT


def test_the_first_epoch_has_the_mean_rate_already():
    first, second = counts(Hawkes(0.8, 0.5), 3.0, 1.0, [1, 1], 20_000)
    for items in (first, second):
        assert abs(z_of_mean(items, 3.0)) < Z_LIMIT


def thinned(rate, n, decay, until, rng):
    """Ogata's algorithm: from candidate to candidate, each kept with its share of a bound."""
    base, excited, now, times = rate * (1 - n), rate * n, 0.0, []
    while True:
        bound = base + excited
        wait = rng.exponential(1 / bound)
        now += wait
        if now > until:
            return times
        excited *= math.exp(-decay * wait)
        if rng.random() * bound < base + excited:
            times.append(now)
            excited += n * decay


def test_plain_thinning_brings_the_same_items_at_the_same_ages():
    """Numbers, and worths after decay, which depend on when within an epoch items come."""
    rate, n, decay, mu, epochs, rows = 2.5, 0.7, 1.3, 0.9, 3, 3000
    rng = np.random.default_rng(5)
    plain = [thinned(rate, n, decay, epochs, rng) for _ in range(rows)]
    worth = [math.fsum(math.exp(-mu * (epochs - t)) for t in times) for times in plain]
    fleet = Sources(np.array([rate]), 1.0, mu)
    arrivals = Arrivals(rate=Hawkes(n, decay), utility="constant")
    for store_items in (False, True):
        world = World(fleet, arrivals, rows, count=True, store_items=store_items)
        world.start(np.zeros((rows, 1)), rng)
        for _ in range(epochs):
            world.advance(rng)
        assert world.items is not None
        assert stats.ks_2samp(world.value[:, 0], worth).pvalue > 7e-6
        assert stats.ks_2samp(world.items[:, 0], [len(t) for t in plain]).pvalue > 7e-6


def test_the_rate_of_the_moment_is_the_intensity():
    """Counts of a short epoch have the mean that `rate` tells before it."""
    fleet = Sources(np.array([5.0]), 1.0, 0.1, period=0.01)
    world, rng = (
        World(fleet, Arrivals(rate=Hawkes(0.9, 1.0)), 4000, count=True),
        np.random.default_rng(6),
    )
    world.start(np.ones((4000, 1)), rng)
    for _ in range(300):
        world.advance(rng)
    rate = world.rate[:, 0]
    assert rate.std() > 2
    low = rate < np.median(rate)
    world.crawl(np.arange(4000))
    for _ in range(5):
        world.advance(rng)
    assert world.items is not None
    for group in (low, ~low):
        excess = world.items[group, 0] - rate[group] * 0.05
        assert abs(z_of_mean(excess, 0.0)) < Z_LIMIT


def test_more_items_than_can_be_drawn_are_refused():
    with pytest.raises(ValueError, match="items would have to be drawn singly"):
        World(Sources(1e10, 1.0, [0.1]), Arrivals(rate=Hawkes()))
