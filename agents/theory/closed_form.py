"""Indices: what crawling a source now is worth, as pure functions of arrays.

The baseline of this project is the average-reward Whittle index of Theorem 1 (Avrachenkov &
Borkar 2015), with two corrections to the printed paper:

- Above the ceiling, x ≥ u* (random arrivals can exceed it; a source never crawled reaches it by
  rounding), the index is x/C, as the dynamic program says. The printed log⁺ convention would give
  0 there: the richest sources would never be crawled.
- Observed random arrivals change the arm's true index; the closed form is then an approximation
  whose policy is close to the exact one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agents.theory.renewal import Cycle
from crawl_env import NEVER, Sources
from crawl_env.numerics import FloatArray, break_even, remainder

# Cells computed at a time, so that the temporaries stay in a core's cache.
_BLOCK = 2**14


def whittle_index(value: ArrayLike, sources: Sources, discount: float = 1.0) -> FloatArray:
    """Return the Whittle index γ(x) of every source, (..., N), utility / budget unit.

    With y = x/u* and η = ⌈log(1−y)/log α⌉, the epochs a source needs from empty to reach x:
    γ(x) = (u*/C)[1 − α^η − η(1−α)(1−y)] for x < u*, and x/C from there on (Theorem 1, extended).
    It is the charge per unit of cost at which crawling now or later are equally good. Where crawls
    fail or only the last items stay, it is the charge of `agents.theory.renewal` at the age that
    goes with x, linear in x between two ages.

    Arguments:
        value: x ≥ 0, (..., N), what waits, or the belief.
        sources: the fleet, (N,), or a batch that broadcasts against `value`.
        discount: δ in (0, 1]; below 1 the index of the discounted problem. It differs a lot for
            small μT: at age 1 by the factor 1 + (1−δ)α/(1−α).

    Raises:
        ValueError: a value is negative or NaN, the shapes do not match, or δ is out of range, or
            below 1 where crawls fail or capacities hold.

    >>> table1 = Sources.preset("table1")
    >>> whittle_index(table1.inflow, table1).round(3)
    array([90.509, 43.605, 18.102,  3.417])
    """
    if not 0 < discount <= 1:
        raise ValueError(f"discount is {discount}; it must be above 0 and at most 1")
    if sources.fails or sources.is_capped:
        return _restricted_index(checked(value, sources), sources, discount)
    return _in_blocks(
        partial(_index, discount=discount),
        checked(value, sources),
        sources.ceiling,
        sources.cost,
        sources.decay_per_epoch,
        sources.loss,
        sources.curvature,
    )


def index_at_age(age: ArrayLike, sources: Sources, discount: float = 1.0) -> FloatArray:
    """Return the Whittle index `age` epochs after a crawl, (..., N): γ(x_k), x_k = (1−α^k)u*.

    >>> index_at_age([[1], [2], [3]], Sources.preset("table1"))[:, 0].round(3)
    array([ 90.509, 180.401, 247.359])
    """
    k = np.asarray(age, dtype=np.float64)
    if not k.min(initial=0.0) >= 0:
        raise ValueError("age has negative or NaN entries; it counts epochs since the last crawl")
    if k.ndim and k.shape[-1] not in (1, len(sources)):
        raise ValueError(f"age has shape {k.shape}; the last axis must hold {len(sources)} sources")
    return whittle_index(sources.content_at(k), sources, discount)


def myopic_index(value: ArrayLike, sources: Sources) -> FloatArray:
    """Return qx/C, (..., N), utility / budget unit: what a crawl brings at once for its cost.

    q = 1 − `failure_rate` is the share of crawls that succeed.

    Raises:
        ValueError: a value is negative or NaN, or the shapes do not match.
    """
    at_once = checked(value, sources) / sources.cost
    return at_once * (1.0 - sources.failure_rate) if sources.fails else at_once


def checked(value: ArrayLike, sources: Sources) -> FloatArray:
    """Return values as floats; raise ValueError where they are none of this fleet."""
    x = np.asarray(value, dtype=np.float64)
    n = len(sources)
    if x.shape[-1:] != (n,):
        raise ValueError(f"value has shape {x.shape}; the last axis must hold {n} sources")
    if not x.min(initial=0.0) >= 0:
        raise ValueError("value has negative or NaN entries; what waits is zero or positive")
    return x


def _index(
    x: FloatArray,
    ceiling: FloatArray,
    cost: FloatArray,
    decay: FloatArray,
    loss: FloatArray,
    curvature: FloatArray,
    discount: float,
) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = x / ceiling  # NaN where a silent source holds nothing: neither branch minds
    at_once = x / cost
    below = share < 1.0
    inside = np.where(below, share, 0.0)
    epochs = np.ceil(np.log1p(-inside) / -decay)
    if discount == 1.0:
        gamma = break_even(epochs, inside, decay, loss, curvature)
    else:
        gamma = _discounted(epochs, inside, decay, loss, curvature, discount)
    gamma *= ceiling / cost
    # Rounding must not leave the interval in which the index lies.
    np.clip(gamma, 0.0, at_once, out=gamma)
    return np.where(below, gamma, at_once)


def _restricted_index(x: FloatArray, sources: Sources, discount: float) -> FloatArray:
    """Return the index where crawls fail, or only the last items stay."""
    if discount < 1:
        raise ValueError(
            f"discount is {discount}, and crawls fail or capacities hold: the index is known only "
            "for the average reward there; use discount=1"
        )
    cycle = Cycle(sources)
    at_once = myopic_index(x, sources)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = x / sources.ceiling
    inside = np.where(share < 1.0, share, 0.0)
    epochs = np.ceil(np.log1p(-inside) / -sources.decay_per_epoch)
    gamma = cycle.charge_within(epochs, inside) * (sources.ceiling / sources.cost)
    below = share < 1.0
    if sources.is_capped:
        below = x < sources.content_at(np.inf)
        gamma = np.where(np.isinf(sources.capacity), gamma, _by_age(x, cycle))
    return np.where(below, np.clip(gamma, 0.0, at_once), at_once)


def _by_age(x: FloatArray, cycle: Cycle) -> FloatArray:
    """Return the charges at the ages between which x is reached, interpolated."""
    content_at = cycle.sources.content_at
    low, high = np.zeros_like(x), np.ones_like(x)
    while (short := (content_at(high) < x) & (high < NEVER)).any():
        low, high = np.where(short, high, low), np.where(short, 2 * high, high)
    while (high - low > 1).any():
        middle = np.ceil(0.5 * (low + high))
        enough = content_at(middle) >= x
        high, low = np.where(enough, middle, high), np.where(enough, low, middle)
    before, after = content_at(low), content_at(high)
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where(after > before, (x - before) / (after - before), 1.0)
    start = np.where(low > 0, cycle.charge(np.maximum(low, 1.0)), 0.0)
    return start + np.clip(weight, 0.0, 1.0) * (cycle.charge(high) - start)


def _discounted(
    epochs: FloatArray,
    share: FloatArray,
    decay: FloatArray,
    loss: FloatArray,
    curvature: FloatArray,
    discount: float,
) -> FloatArray:
    """Return the charge λC/u* that solves λC·(1−δ)/(1−δ^η) = x − δx' + δ(1−δ)δ^{η−1}x_η/(1−δ^η).

    x' = αx + u is the state after waiting. The policy "crawl from x on" reaches it η epochs after
    a crawl, at x_η; waiting one epoch more must be as good as crawling now. The solution is
    expanded around δ = 1, where its terms cancel; with δ = e^−ℓ and g of `remainder` it is exact
    to rounding for every δ and m.
    """
    rate = -np.log(discount)  # ℓ
    spent = -np.expm1(-epochs * rate)  # 1 − δ^η
    horizon = spent / (1.0 - discount)  # Σ_{j<η} δ^j
    since = np.maximum(epochs - 1.0, 0.0)
    gamma = horizon * loss * share + spent * (1.0 - loss) * (share + np.expm1(-decay * since))
    bend = epochs * curvature - remainder(epochs * decay)
    bend += loss / (1.0 - discount) * (remainder(epochs * rate) - epochs * remainder(rate))
    return np.where(epochs > 1.0, gamma + bend, gamma)


def _in_blocks(
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
