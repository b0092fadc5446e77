"""Types of arrays, and expressions whose printed form cancels: z − (1 − e^−z), and Theorem 1."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]

# z²/2! − z³/3! + …; ten terms are exact to rounding for z below the switch point.
_SERIES = tuple((-1) ** n / float(np.prod(np.arange(1, n + 1, dtype=float))) for n in range(2, 12))
_SWITCH = 0.1
_NEAR = 2.0  # time constants up to which the expanded form of Theorem 1 is the better one


def remainder(z: ArrayLike) -> FloatArray:
    """Return g(z) = z + expm1(−z), what is left of 1 − e^−z after its first order, any shape.

    Both terms are close to z when z is small; there the Taylor series is used instead, so
    the relative error stays below 1e-14 for every z ≥ 0.

    >>> remainder([0.0, 1e-9, 1.0])
    array([0.00000000e+00, 5.00000000e-19, 3.67879441e-01])
    """
    z = np.asarray(z, dtype=np.float64)
    result = np.asarray(np.add(z, np.expm1(-z)))
    small = z < _SWITCH
    if small.any():
        s = np.minimum(z, _SWITCH)  # computed everywhere: cheaper than picking the small ones out
        series = np.full_like(s, _SERIES[-1])
        for coefficient in _SERIES[-2::-1]:
            series *= s
            series += coefficient
        series *= s
        series *= s
        np.copyto(result, series, where=small)
    return result


def break_even(
    epochs: ArrayLike, share: ArrayLike, decay: FloatArray, loss: FloatArray, curvature: FloatArray
) -> FloatArray:
    """Return η(1−α)y + η g(m) − g(ηm), any shape: Theorem 1 as a share of u*/C.

    epochs: η, the epochs a source needs from empty to reach its state.
    share: y = x/u*, the state as a share of the ceiling, below 1.
    decay, loss, curvature: m = μT, 1 − α and g(m), which are constants of a source.

    It is the charge, as a share of u*, at which crawling in this state and one epoch later
    are equally good on average. Equal to the printed 1 − α^η − η(1−α)(1−y), which cancels for
    small ηm and y, as this form does for large; each is used where it is right, to 5e-15 for m from
    1e-12 to 1e3 and η up to 1e5.

    >>> m = np.array(0.7)
    >>> float(break_even(1, 0.5, m, -np.expm1(-m), remainder(m)))  # (1 − α)y
    0.25170734810429524
    """
    epochs, share = np.asarray(epochs, dtype=np.float64), np.asarray(share, dtype=np.float64)
    aged = epochs * decay
    result = np.asarray(-np.expm1(-aged) - epochs * loss * (1.0 - share))
    near = (aged <= _NEAR) | (epochs <= 1.0)
    if near.any():
        expanded = epochs * (loss * share) + (epochs * curvature - remainder(aged))
        np.copyto(result, expanded, where=near)
    return result
