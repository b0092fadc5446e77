"""g(z) = z + expm1(−z) and Theorem 1's bracket, against 60 digits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from numpy.typing import ArrayLike

from agents.theory.closed_form import closed_form_index
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import remainder

ACCURACY = 2e-14
DECAYS = np.logspace(-12, 3, 61)
AGES = (1, 2, 3, 4, 7, 10, 37, 100, 999, 10_000, 100_000)


def exact_remainder(z: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        return mpmath.mpf(z) + mpmath.expm1(-mpmath.mpf(z))


def exact_bracket(epochs: int, share: mpmath.mpf | float, decay: float) -> mpmath.mpf:
    """Theorem 1 as printed, 1 − α^η − η(1−α)(1−y), which 60 digits can afford."""
    with mpmath.workdps(60):
        m = mpmath.mpf(decay)
        return 1 - mpmath.exp(-m * epochs) + epochs * mpmath.expm1(-m) * (1 - mpmath.mpf(share))


def charge_at(epochs: ArrayLike, share: ArrayLike, decay: ArrayLike) -> np.ndarray:
    """Theorem 1's bracket as the code computes it, with the constants a fleet keeps."""
    m = np.asarray(decay, dtype=float)
    return closed_form_index(epochs, share, m, -np.expm1(-m), remainder(m))


def relative_error(found: float, exact: mpmath.mpf) -> float:
    with mpmath.workdps(60):
        return float(abs(mpmath.mpf(float(found)) / exact - 1))


def test_remainder_is_exact_to_rounding_over_fifteen_decades() -> None:
    z = np.concatenate([np.logspace(-12, 3, 601), 0.1 + np.linspace(-1e-3, 1e-3, 41), [0.1]])
    worst = max(relative_error(g, exact_remainder(x)) for x, g in zip(z, remainder(z), strict=True))
    assert worst < 1e-14


def test_remainder_of_zero_is_zero_and_shape_is_kept() -> None:
    assert remainder(0.0) == 0.0
    assert remainder(np.zeros((2, 3))).shape == (2, 3)
    assert remainder(0.05).shape == ()


def test_remainder_leaves_its_argument_alone() -> None:
    z = np.array([0.01, 1.0])
    remainder(z)
    assert z.tolist() == [0.01, 1.0]


@pytest.mark.parametrize("age", AGES)
def test_break_even_at_an_age_is_exact(age: int) -> None:
    found = charge_at(age, -np.expm1(-DECAYS * age), DECAYS)
    for m, charge in zip(DECAYS, found, strict=True):
        with mpmath.workdps(60):
            share = -mpmath.expm1(-mpmath.mpf(m) * age)
        assert relative_error(charge, exact_bracket(age, share, m)) < ACCURACY, f"m = {m}"


@pytest.mark.parametrize("place", [0.03, 0.5, 0.97])
def test_break_even_between_ages_is_exact(place: float) -> None:
    """A state between x_{k−1} and x_k needs η = k epochs."""
    for age in (1, 2, 3, 10, 100, 10_000):
        for m in DECAYS:
            low, high = -np.expm1(-m * (age - 1)), -np.expm1(-m * age)
            share = float(low + place * (high - low))
            if not low < share < high:  # the two ages are the same number
                continue
            exact = exact_bracket(age, share, m)
            assert relative_error(float(charge_at(age, share, m)), exact) < ACCURACY, (age, m)


def test_break_even_grows_with_age_to_the_whole_ceiling() -> None:
    ages = np.arange(1.0, 400.0)
    charge = charge_at(ages, -np.expm1(-0.3 * ages), 0.3)
    assert np.all(np.diff(charge) >= -ACCURACY)
    assert np.all(np.diff(charge[:90]) > 0)
    assert charge[-1] == pytest.approx(1.0, abs=ACCURACY)


def test_break_even_becomes_the_continuous_index_as_decay_vanishes() -> None:
    """y + (1 − y) ln(1 − y), for epochs that are short beside the time of decay."""
    m = 1e-7
    for age_in_time in (0.01, 0.3, 1.0, 5.0):
        y = -np.expm1(-age_in_time)
        expected = y + (1 - y) * np.log1p(-y)
        assert charge_at(age_in_time / m, y, m) == pytest.approx(expected, rel=1e-5)


def test_index_of_table_1_at_ages_1_2_3() -> None:
    """Figures of the model's page, computed independently of this project."""
    fleet = Sources.preset("table1")
    expected = [
        [90.509, 180.401, 247.359],
        [43.605, 105.060, 170.020],
        [18.102, 36.080, 49.472],
        [3.417, 8.956, 15.692],
    ]
    age, decay = np.arange(1.0, 4.0), fleet.decay_per_step[:, None]
    index = fleet.ceiling[:, None] * charge_at(age, -np.expm1(-decay * age), decay)
    np.testing.assert_allclose(index, expected, rtol=0, atol=5.1e-4)
