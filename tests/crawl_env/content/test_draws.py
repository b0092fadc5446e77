"""Random numbers of compiled functions against their distributions.

Each test has a chance of 1e-4 to fail if the distribution is right; seeds are fixed.
"""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from crawl_env.compiled import compiled
from crawl_env.content import draws

N = 200_000
LEVEL = 1e-4


@compiled
def uniforms(state, out):
    for i in range(out.size):
        out[i] = draws.uniform(state)


@compiled
def exponentials(state, out):
    for i in range(out.size):
        out[i] = draws.exponential(state)


@compiled
def normals(state, out):
    for i in range(out.size):
        out[i] = draws.normal(state)


@compiled
def gammas(state, shape, out):
    for i in range(out.size):
        out[i] = draws.gamma(state, shape)


@compiled
def poissons(state, mean, out):
    for i in range(out.size):
        out[i] = draws.poisson(state, mean)


def stream(seed):
    return draws.stream(np.random.default_rng(seed))


def test_words_are_those_of_splitmix():
    """With its standard increment; computed with integers of any size."""
    state = np.array([1234567, 0x9E3779B97F4A7C15], dtype=np.uint64)
    counter = 1234567
    for _ in range(5):
        counter = z = (counter + 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        assert int(draws.bits(state)) == z ^ (z >> 31)


def test_uniform_exponential_and_normal_numbers():
    for fill, law in (
        (uniforms, stats.uniform),
        (exponentials, stats.expon),
        (normals, stats.norm),
    ):
        out = np.empty(N)
        fill(stream(1), out)
        assert stats.kstest(out, law.cdf).pvalue > LEVEL
        # The tails, which the edges of the layers cut off, and the serial correlation.
        for p in (1e-3, 1e-2):
            for inside in (out < law.ppf(p), out > law.isf(p)):
                assert stats.binomtest(int(inside.sum()), N, p).pvalue > LEVEL
        lags = np.corrcoef(np.stack([out[:-2], out[1:-1], out[2:]]))[0, 1:]
        assert np.abs(lags).max() * math.sqrt(N) < 4.5


def test_the_far_tails():
    """Beyond the last layer of the ziggurat, at 3.65 and 7.7."""
    out = np.empty(4_000_000)
    normals(stream(2), out)
    far = np.abs(out[np.abs(out) > 3.7])
    assert stats.binomtest(far.size, out.size, 2 * stats.norm.sf(3.7)).pvalue > LEVEL
    assert stats.kstest(stats.norm.sf(far) / stats.norm.sf(3.7), "uniform").pvalue > LEVEL
    exponentials(stream(3), out)
    far = out[out > 7.8] - 7.8
    assert stats.binomtest(far.size, out.size, math.exp(-7.8)).pvalue > LEVEL
    assert stats.kstest(far, "expon").pvalue > LEVEL


@pytest.mark.parametrize("shape", [0.02, 0.999, 1.0, 7.5, 1e12])
def test_gamma_numbers(shape):
    out = np.empty(N)
    gammas(stream(4), shape, out)
    assert stats.kstest(out, stats.gamma(shape).cdf).pvalue > LEVEL
    gammas(stream(4), 0.0, out)
    assert not out.any()


@pytest.mark.parametrize("mean", [0.0, 1e-3, 4.0, 9.99, 10.0, 60.0, 1e4])
def test_poisson_numbers(mean):
    out = np.empty(N)
    poissons(stream(5), mean, out)
    law = stats.poisson(mean)
    # Classes of equal chances, as far as the numbers allow.
    edges = np.unique(law.ppf(np.linspace(0.002, 0.998, 200)))
    chances = np.diff(np.concatenate(([0.0], law.cdf(edges), [1.0])))
    counts = np.bincount(np.searchsorted(edges, out), minlength=chances.size)
    seen = chances * N > 5
    statistic = ((counts - N * chances)[seen] ** 2 / (N * chances[seen])).sum()
    assert stats.chi2.sf(statistic, max(seen.sum() - 1, 1)) > LEVEL
    assert np.array_equal(out, np.round(out))
    assert mean or not out.any()


@pytest.mark.parametrize("mean", [1e7, 1e12, 1e15])
def test_large_poisson_numbers_are_nearly_normal(mean):
    out = np.empty(N)
    poissons(stream(6), mean, out)
    z = (out - mean) / math.sqrt(mean)
    assert stats.kstest(z, "norm").pvalue > LEVEL
    assert abs((z**2).mean() - 1.0) < 4.5 * math.sqrt(2 / N)


@given(st.floats(10.0, 1e15), st.floats(-8.0, 8.0))
def test_the_poisson_probability_has_its_digits(mean, z):
    k = max(math.floor(mean + z * math.sqrt(mean)), 0)
    with mpmath.workdps(50):
        exact = k * mpmath.log(mean) - mean - mpmath.loggamma(k + 1)
    assert draws.log_poisson(float(k), mean) == pytest.approx(float(exact), abs=1e-6)
