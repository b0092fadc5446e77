"""g(z) = z + expm1(−z) against 60 digits."""

from __future__ import annotations

import mpmath
import numpy as np

from agents.theory.closed_form import remainder


def exact_remainder(z: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        return mpmath.mpf(z) + mpmath.expm1(-mpmath.mpf(z))


def test_remainder_is_exact_to_rounding_over_fifteen_decades() -> None:
    z = np.concatenate([np.logspace(-12, 3, 601), 0.1 + np.linspace(-1e-3, 1e-3, 41), [0.1]])
    for x, found in zip(z, remainder(z), strict=True):
        with mpmath.workdps(60):
            assert abs(mpmath.mpf(float(found)) / exact_remainder(x) - 1) < (
                2e-15 if x < 0.1 else 1e-14
            ), x


def test_remainder_keeps_shapes_and_its_argument() -> None:
    assert remainder(0.0) == 0.0
    assert remainder(np.zeros((2, 3))).shape == (2, 3)
    assert remainder(0.05).shape == ()
    z = np.array([0.01, 1.0])
    remainder(z)
    assert z.tolist() == [0.01, 1.0]
