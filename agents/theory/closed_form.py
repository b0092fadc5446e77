"""Theorem 1: the Whittle index of a source in closed form (Avrachenkov & Borkar 2015).

Pure functions of arrays; `agents.theory.renewal` makes an arm of them. Two corrections to the
printed paper hold throughout the package:

- Above the ceiling, x ≥ u* (random arrivals can exceed it; a source never crawled reaches it by
  rounding), the index is x/C, as the dynamic program says. The printed log⁺ convention would give
  0 there: the richest sources would never be crawled.
- Observed random arrivals change the arm's true index; the closed form is then an approximation
  whose policy is close to the exact one (`agents.theory.observed`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.numerics import FloatArray

SLOW = 1e-8  # μT below which products of it are kept apart, since they may underflow
_NEAR = 2.0  # time constants up to which the expanded form of Theorem 1 is the better one
# Cells computed at a time, so that the temporaries stay in a core's cache.
_BLOCK = 2**14
# z²/2! − z³/3! + …; ten terms are exact to rounding for z below the switch point.
_SERIES = tuple((-1) ** n / float(np.prod(np.arange(1, n + 1, dtype=float))) for n in range(2, 12))
_SWITCH = 0.1


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


def closed_form_index(
    steps: ArrayLike, level: ArrayLike, decay: FloatArray, loss: FloatArray, curvature: FloatArray
) -> FloatArray:
    """Return η(1−α)y + η g(m) − g(ηm), any shape: the index of Theorem 1 as a fraction of u*/C.

    steps: η, the steps a source needs from empty to reach its state.
    level: y = x/u*, the state as a fraction of the ceiling, below 1.
    decay, loss, curvature: m = μT, 1 − α and g(m), which are constants of a source.

    It is the multiplier, as a fraction of u*/C, at which crawling in this state and one step later
    are equally good on average. It equals the printed 1 − α^η − η(1−α)(1−y), which cancels for
    small ηm and y, as this form does for large; each is used where it is accurate, to 5e-15 for m
    from 1e-12 to 1e3 and η up to 1e5.

    >>> m = np.array(0.7)
    >>> float(closed_form_index(1, 0.5, m, -np.expm1(-m), remainder(m)))  # (1 − α)y
    0.25170734810429524
    """
    steps, level = np.asarray(steps, dtype=np.float64), np.asarray(level, dtype=np.float64)
    aged = steps * decay
    result = np.asarray(-np.expm1(-aged) - steps * loss * (1.0 - level))
    near = (aged <= _NEAR) | (steps <= 1.0)
    if near.any():
        expanded = steps * (loss * level) + (steps * curvature - remainder(aged))
        np.copyto(result, expanded, where=near)
    return result


def scaled_index(
    steps: FloatArray,
    level: FloatArray,
    decay: FloatArray,
    loss: FloatArray,
    curvature: FloatArray,
    full: FloatArray,
) -> FloatArray:
    """Return `closed_form_index` times `full` = u*/C, without underflow down to m = 1e-300.

    For the smallest m and ηm ≤ 2 it is (u*/C·ηm)·[y(1−α)/m + g(m)/m − g(ηm)/(ηm)].
    """
    index = closed_form_index(steps, level, decay, loss, curvature) * full
    slow = decay < SLOW
    if not slow.any():
        return index
    aged = steps * decay
    bracket = level * (loss / decay) + (remainder_ratio(decay) - remainder_ratio(aged))
    return np.where(slow & (aged <= _NEAR), full * aged * bracket, index)


def remainder_ratio(z: FloatArray) -> FloatArray:
    """Return g(z)/z, to rounding for every z ≥ 0, any shape."""
    series = z * (0.5 - z * (1 / 6 - z * (1 / 24 - z / 120)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(z < 1e-4, series, remainder(z) / z)


def discounted_index(
    steps: FloatArray,
    level: FloatArray,
    decay: FloatArray,
    loss: FloatArray,
    curvature: FloatArray,
    discount: float,
) -> FloatArray:
    """Return the discounted index as a fraction of u*/C, any shape; arguments as above.

    It solves λC·(1−δ)/(1−δ^η) = x − δx' + δ(1−δ)δ^{η−1}x_η/(1−δ^η), where x' = αx + u is the state
    after waiting. The policy "crawl from x on" reaches it η steps after a crawl, at x_η; waiting
    one step more must be as good as crawling now. The solution is expanded around δ = 1, where its
    terms cancel; with δ = e^−ℓ and g of `remainder` it is exact to rounding for every δ and m.
    """
    rate = -np.log(discount)  # ℓ
    spent = -np.expm1(-steps * rate)  # 1 − δ^η
    horizon = spent / (1.0 - discount)  # Σ_{j<η} δ^j
    since = np.maximum(steps - 1.0, 0.0)
    gamma = horizon * loss * level + spent * (1.0 - loss) * (level + np.expm1(-decay * since))
    bend = steps * curvature - remainder(steps * decay)
    bend += loss / (1.0 - discount) * (remainder(steps * rate) - steps * remainder(rate))
    return np.where(steps > 1.0, gamma + bend, gamma)


def theorem_1(
    x: FloatArray,
    ceiling: FloatArray,
    cost: FloatArray,
    decay: FloatArray,
    loss: FloatArray,
    curvature: FloatArray,
    discount: float = 1.0,
) -> FloatArray:
    """Return the index γ(x), utility / budget unit, the shape of x; x/C from the ceiling on."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        level = x / ceiling  # NaN where a silent source holds nothing: neither branch minds
    at_once = x / cost
    below = level < 1.0
    inside = np.where(below, level, 0.0)
    steps = np.ceil(np.log1p(-inside) / -decay)
    if discount == 1.0:
        gamma = scaled_index(steps, inside, decay, loss, curvature, ceiling / cost)
    else:
        gamma = discounted_index(steps, inside, decay, loss, curvature, discount)
        gamma *= ceiling / cost
    # Rounding must not leave the interval in which the index lies.
    np.clip(gamma, 0.0, at_once, out=gamma)
    return np.where(below, gamma, at_once)


def in_blocks(
    function: Callable[..., FloatArray], x: FloatArray, *parameters: FloatArray
) -> FloatArray:
    """Apply an elementwise function to x (..., N) and parameters that broadcast against it."""
    if x.size <= _BLOCK:
        return function(x, *parameters)
    shape = np.broadcast_shapes(x.shape, *(p.shape for p in parameters))
    n = shape[-1]
    rows = np.broadcast_to(x, shape).reshape(-1, n)
    out = np.empty_like(rows)
    tables = [p.reshape(-1, n) if p.ndim == 1 else _rows(p, shape) for p in parameters]
    height = max(1, _BLOCK // n)
    for top in range(0, len(rows), height):
        for left in range(0, n, _BLOCK):
            here: Any = np.s_[top : top + height, left : left + _BLOCK]
            cells = (t[:, left : left + _BLOCK] if len(t) == 1 else t[here] for t in tables)
            out[here] = function(rows[here], *cells)
    return out.reshape(shape)


def _rows(parameter: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    return np.broadcast_to(parameter, shape).reshape(-1, shape[-1])
