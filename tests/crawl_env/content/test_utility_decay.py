"""Decay functions against quadrature, and what items under them leave at a source."""

import copy
import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from crawl_env import Arrivals, Sources, World
from crawl_env.content.utility import (
    DECAYS,
    EqualUtilities,
    ExponentialDecay,
    LomaxDecay,
    StretchedDecay,
    make_decay,
)

# A right program fails one simulated comparison in 16,000 (two-sided, 4 standard errors).
Z_LIMIT = 4.0
BETAS = (0.01, 0.25, 0.5, 0.9, 1.0)
KS = (np.nextafter(1.0, 2.0), 1.0 + 1e-7, 2.0, 1e3, 1e9)
FUNCTIONS = [ExponentialDecay(), *map(StretchedDecay, BETAS), *map(LomaxDecay, KS)]
functions = st.one_of(
    st.builds(StretchedDecay, st.floats(0.005, 1.0)),
    st.builds(LomaxDecay, st.floats(1.0, 1e6, exclude_min=True)),
)


def integral(decay, low, high):
    """∫ R by quadrature on a logarithmic axis, on which R has no corner."""

    def inside(y):
        return float(decay.survival(np.exp(y)) * np.exp(y))

    edges = np.linspace(np.log(low), np.log(high), 9)
    parts = [quad(inside, a, b, epsabs=0, epsrel=1e-12)[0] for a, b in pairwise(edges)]
    return float(sum(parts))


@pytest.mark.parametrize("decay", FUNCTIONS, ids=repr)
def test_all_is_there_at_first_and_the_integral_is_one(decay):
    assert decay.survival(np.array(0.0)) == 1.0
    assert decay.survival(np.array([decay.end, 2 * decay.end, np.inf])).tolist() == [0, 0, 0]
    assert decay.survival(np.array(decay.end * (1 - 1e-9))) > 0
    total = decay.integrated_survival
    assert total(0.0) == 0.0
    assert total([decay.end, np.inf]) == pytest.approx([1.0, 1.0], abs=1e-12)
    assert total(np.zeros((0, 3))).shape == (0, 3)
    low = 1e-13 * decay.end
    for z in np.geomspace(1e-6, 1.0, 5) * decay.end * (1 - 1e-12):
        expected = integral(decay, low, float(z)) + float(total(low))
        assert float(total(z)) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert integral(decay, low, decay.end) + total(low) == pytest.approx(1.0, abs=1e-9)
    # No digits are lost at very small z, where R = 1 but for the steepest.
    for z in (1e-300, 1e-100, 1e-30):
        if decay.survival(np.array(z)) > 1 - 1e-12:
            assert float(total(z)) == pytest.approx(z, rel=1e-9)


@given(functions, st.lists(st.floats(0, 2.0), min_size=2, max_size=20))
def test_utility_never_grows_and_content_never_falls(decay, where):
    z = np.sort(where) * decay.end
    share, total = decay.survival(z), decay.integrated_survival(z)
    assert np.all((share >= 0) & (share <= 1) & (total >= 0) & (total <= 1 + 1e-12))
    assert np.all(np.diff(share) <= 0)
    assert np.all(np.diff(total) >= -1e-12)


def test_the_others_tend_to_the_exponential():
    z = np.linspace(0.0, 8.0, 50)
    for near, error in ((StretchedDecay(1.0), 1e-8), (LomaxDecay(1e12), 1e-3)):
        np.testing.assert_allclose(
            near.integrated_survival(z), ExponentialDecay().integrated_survival(z), atol=error
        )
        np.testing.assert_allclose(near.survival(z), np.exp(-z), atol=error)


def test_what_is_no_decay_is_refused():
    for beta in (0.0, -1.0, 1.0 + 1e-9, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"beta is .*; it must be above 0 and at most 1"):
            StretchedDecay(beta)
    for k in (0.0, 1.0, -2.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"k is .*; it must be .*above 1"):
            LomaxDecay(k)

    class OnlySurvival:
        def survival(self, z):
            return np.exp(-z)

    for bad in (None, 2, StretchedDecay, OnlySurvival()):
        with pytest.raises(ValueError, match="give one of exponential, stretched, lomax, or an"):
            make_decay(bad)


class Linear:
    """A decay of one's own: R = scale·(1 − z/end), of integral scale·end/2."""

    def __init__(self, end, scale=1.0):
        self.end, self._scale = end, scale

    def survival(self, z):
        return self._scale * np.clip(1 - z / self.end, 0, None)

    def integrated_survival(self, z):
        until = np.minimum(z, self.end)
        return self._scale * (until - until**2 / (2 * self.end))


@pytest.mark.parametrize(
    ("decay", "message"),
    [
        (Linear(5.0), r"Linear\.integrated_survival\(end\) is 2\.5; it must be 1"),
        (Linear(2.5, 0.8), r"Linear\.survival\(0\) is 0\.8; it must be 1"),
        (Linear(2.0, -1.0), r"what Linear\.survival returned is -1"),
        (Linear(0.0), "end is 0"),
    ],
)
def test_a_faulty_decay_of_ones_own_is_refused(decay, message):
    assert make_decay(fine := Linear(2.0)) is fine
    with pytest.raises(ValueError, match=message):
        Arrivals(decay=decay)


def test_names_and_copies():
    assert [make_decay(name) for name in DECAYS] == [
        ExponentialDecay(),
        StretchedDecay(0.5),
        LomaxDecay(2.0),
    ]
    with pytest.raises(ValueError, match="did you mean 'lomax'"):
        make_decay("lomaks")
    for decay in FUNCTIONS:
        decay.integrated_survival(1.0)  # what it keeps must not tell it from a new one
        for again in (pickle.loads(pickle.dumps(decay)), copy.deepcopy(decay)):
            assert again == decay
            assert hash(again) == hash(decay)


@pytest.mark.parametrize(
    ("decay", "age"),
    [
        (StretchedDecay(0.8), 1.0),
        (StretchedDecay(0.4), 1e9),
        (LomaxDecay(1.5), 60.0),
        (LomaxDecay(1.5), 1e9),
    ],
)
def test_content_has_the_mean_and_variance_of_its_age(decay, age):
    """E X = u*∫R and, for constant ξ, Var X = Λξ̄²/μ ∫R²; at 1e9 the source was never crawled."""
    n, rate, decay_rate = 1500, 0.8, 0.2
    world = World(
        Sources(np.full(n, rate), 3.0, decay_rate), Arrivals(utility=EqualUtilities(), decay=decay)
    )
    world.start(np.full((1, n), age), np.random.default_rng(3))
    mean = 3 * rate / decay_rate * float(decay.integrated_survival(decay_rate * age))
    z = np.geomspace(1e-9, min(decay_rate * age, decay.end), 20_001)
    square = np.trapezoid(decay.survival(z[:-1]) ** 2, z[:-1])
    variance = 9 * rate / decay_rate * float(square)
    assert abs(world.value.mean() - mean) < Z_LIMIT * np.sqrt(variance / n)
    off = (world.value - mean) ** 2
    assert abs(off.mean() - variance) < Z_LIMIT * off.std() / np.sqrt(n) + 1e-4 * variance


@pytest.mark.parametrize("decay", [StretchedDecay(0.4), LomaxDecay(1.5)], ids=repr)
def test_never_crawled_it_stays_stationary_and_crawled_it_starts_anew(decay):
    n, rng = 3000, np.random.default_rng(4)
    world = World(Sources(np.full(n, 0.5), 1.0, 0.5), Arrivals(decay=decay))
    world.start(np.full((1, n), 1e9), rng)
    first = world.value.copy()
    world.crawl(np.arange(n // 2)[None])
    for _ in range(12):
        world.advance(rng)
    for part, z in ((np.s_[:, n // 2 :], np.inf), (np.s_[:, : n // 2], 6.0)):
        value, mean = world.value[part], float(decay.integrated_survival(z))
        assert abs(value.mean() - mean) < Z_LIMIT * value.std() / np.sqrt(value.size)
    assert abs(first.mean() - 1.0) < Z_LIMIT * first.std() / np.sqrt(n)
