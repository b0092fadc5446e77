"""The daily cycles of sources, inferred from the times at which items were published."""

import numpy as np
import pytest

from agents.inference.cycles import DailyCycles, published

DAY = 24.0


def simulated(rng, z, rate, span):
    """Return the times of the items of a source, by thinning."""
    times = rng.uniform(0.0, span, rng.poisson(2 * rate * span))
    factor = 1.0 + (np.conj(z) * np.exp(2j * np.pi / DAY * times)).real
    return times[rng.random(times.size) < factor / 2]


def exactly(times, span, of_fleet, variance):
    """Return the posterior mean of z on a grid, with the likelihood of the Poisson process. Its
    prior is normal, and that of the rate a gamma distribution of shape 2 and the fleet's mean."""
    line = np.linspace(-1.0, 1.0, 41)
    z = line[:, None] + 1j * line
    turn = 2j * np.pi / DAY
    log = np.full(z.shape, 0.0)
    for time in times:
        log += np.log(np.maximum(1.0 + (z.conj() * np.exp(turn * time)).real, 1e-9))
    exposure = span + (z.conj() * np.expm1(turn * span) / turn).real
    log -= (times.size + 2.0) * np.log(exposure + 2.0 / of_fleet)
    weight = np.where(np.abs(z) < 1.0, np.exp(log - log.max() - np.abs(z) ** 2 / variance / 2), 0.0)
    return (weight * z).sum() / weight.sum()


@pytest.mark.parametrize("ages", [[3.0], [0.5, 7.0], [4.0, 4.0]])
def test_the_times_of_one_or_two_items_are_exact(ages):
    ages, frequency = np.array(ages), 2 * np.pi / DAY
    found = published(float(ages.size), ages.sum(), (ages**2).sum(), 100.0, frequency)
    assert found == pytest.approx(np.exp(1j * frequency * (100.0 - ages)).sum())


def test_amplitudes_are_those_of_the_exact_posterior():
    rng, span = np.random.default_rng(3), 503.0  # no whole number of days
    rates = [0.1, 1.0] * 30
    z = 0.6 * np.exp(2j * np.pi * rng.random(60)) * rng.random(60) ** 0.5
    every = [simulated(rng, of_one, rate, span) for of_one, rate in zip(z, rates, strict=True)]
    items = np.array([[times.size for times in every]], dtype=np.float64)
    found = np.array([[np.exp(2j * np.pi / DAY * times).sum() for times in every]])
    mine = DailyCycles(DAY).amplitudes(found, items, np.zeros((1, 60)), np.full((1, 60), span))[0]
    of_fleet, variance = items.mean() / span, (np.abs(z) ** 2).mean() / 2
    exact = np.array([exactly(times, span, of_fleet, variance) for times in every])
    assert np.abs(mine - exact).max() < 0.08
    assert np.abs(mine - z).mean() < 0.7 * np.abs(z).mean()


def test_there_is_no_cycle_where_rates_are_constant():
    rng, span = np.random.default_rng(4), 2000.0
    every = [simulated(rng, 0.0, rate, span) for rate in (0.02, 0.3, 1.0) * 20]
    items = np.array([[times.size for times in every]], dtype=np.float64)
    found = np.array([[np.exp(2j * np.pi / DAY * times).sum() for times in every]])
    begin, end = np.zeros((1, 60)), np.full((1, 60), span)
    assert not DailyCycles(DAY).amplitudes(found, items, begin, end).any()
    assert not DailyCycles(DAY).amplitudes(0.0 * found, 0.0 * items, begin, begin).any()


def test_content_and_factor_are_integrals_of_the_rate():
    known, clock, age = DailyCycles(DAY), np.array([[31.0]]), np.array([[40.0, 1.0]])
    z, slowest = np.array([[0.5 + 0.3j, -0.9j]]), np.array([[0.2, 0.03]])
    weights = np.array([[[0.7, 2.0], [1.0, 0.0]]], dtype=np.float32)
    content, factor = known.content(z, clock, age, weights, slowest), known.factor(z, clock)
    for i in range(2):
        ago = (np.arange(200_000) + 0.5) / 200_000 * age[0, i]
        rate = 1.0 + (z[0, i].conj() * np.exp(2j * np.pi / DAY * (31.0 - ago))).real
        decay = slowest[0, i] * np.array([[1.0], [3.0]])
        expected = (decay * np.exp(-decay * ago) * rate).mean(axis=1) * age[0, i]
        assert content[0, i] == pytest.approx(weights[0, i] @ expected, rel=1e-6)
        later = 31.0 + (np.arange(1000) + 0.5) / 1000
        coming = 1.0 + (z[0, i].conj() * np.exp(2j * np.pi / DAY * later)).real
        assert factor[0, i] == pytest.approx(coming.mean(), abs=5e-3)
