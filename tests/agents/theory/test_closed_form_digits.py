"""Theorem 1's bracket, the index as a fraction of u*/C, against 60 digits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from numpy.typing import ArrayLike

from agents.theory.closed_form import closed_form_index, remainder
from crawl_env.fleet.sources import Sources

ACCURACY = 2e-14
DECAYS = np.logspace(-12, 3, 61)
AGES = (1, 2, 3, 4, 7, 10, 37, 100, 999, 10_000, 100_000)


def exact_bracket(steps: int, fraction: mpmath.mpf | float, decay: float) -> mpmath.mpf:
    """Theorem 1 as printed, 1 − α^η − η(1−α)(1−y), which 60 digits can afford."""
    with mpmath.workdps(60):
        m = mpmath.mpf(decay)
        return 1 - mpmath.exp(-m * steps) + steps * mpmath.expm1(-m) * (1 - mpmath.mpf(fraction))


def index_at(steps: ArrayLike, fraction: ArrayLike, decay: ArrayLike) -> np.ndarray:
    """Theorem 1's bracket as the code computes it, with the constants a fleet keeps."""
    m = np.asarray(decay, dtype=float)
    return closed_form_index(steps, fraction, m, -np.expm1(-m), remainder(m))


def relative_error(found: float, exact: mpmath.mpf) -> float:
    with mpmath.workdps(60):
        return float(abs(mpmath.mpf(float(found)) / exact - 1))


def test_at_an_age_it_is_exact() -> None:
    for age in AGES:
        found = index_at(age, -np.expm1(-DECAYS * age), DECAYS)
        for m, index in zip(DECAYS, found, strict=True):
            with mpmath.workdps(60):
                fraction = -mpmath.expm1(-mpmath.mpf(m) * age)
            exact = exact_bracket(age, fraction, m)
            assert relative_error(index, exact) < ACCURACY, f"age {age}, m = {m}"


def test_between_ages_it_is_exact() -> None:
    """A state between x_{k−1} and x_k needs η = k steps."""
    for age in (1, 2, 3, 10, 100, 10_000):
        for m in DECAYS:
            low, high = -np.expm1(-m * (age - 1)), -np.expm1(-m * age)
            for place in (0.03, 0.5, 0.97):
                fraction = float(low + place * (high - low))
                if not low < fraction < high:  # the two ages are the same number
                    continue
                exact = exact_bracket(age, fraction, m)
                assert relative_error(float(index_at(age, fraction, m)), exact) < ACCURACY, (age, m)


def test_it_grows_with_age_to_the_whole_ceiling() -> None:
    ages = np.arange(1.0, 400.0)
    index = index_at(ages, -np.expm1(-0.3 * ages), 0.3)
    assert np.all(np.diff(index) >= -ACCURACY)
    assert np.all(np.diff(index[:90]) > 0)
    assert index[-1] == pytest.approx(1.0, abs=ACCURACY)


def test_it_becomes_the_continuous_index_as_decay_vanishes() -> None:
    """y + (1 − y) ln(1 − y), for steps that are short beside the time of decay."""
    m = 1e-7
    for age_in_time in (0.01, 0.3, 1.0, 5.0):
        y = -np.expm1(-age_in_time)
        expected = y + (1 - y) * np.log1p(-y)
        assert index_at(age_in_time / m, y, m) == pytest.approx(expected, rel=1e-5)


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
    index = fleet.ceiling[:, None] * index_at(age, -np.expm1(-decay * age), decay)
    np.testing.assert_allclose(index, expected, rtol=0, atol=5.1e-4)
