"""Theorem 1: the Whittle index of a source in closed form (Avrachenkov & Borkar 2015).

Compiled functions of one source, and loops over arrays of them; `agents.theory.renewal` makes an
arm of them. Two corrections to the printed paper hold throughout the package:

- Above the ceiling, x ≥ u* (random arrivals can exceed it; a source never crawled reaches it by
  rounding), the index is x/C, as the dynamic program says. The printed log⁺ convention would give
  0 there: the richest sources would never be crawled.
- Observed random arrivals change the arm's true index; the closed form is then an approximation
  whose policy is close to the exact one (`agents.theory.observed`).

In all of them m = μT is `decay`, k or η counts steps, g(z) = z + e^−z − 1, and `curvature` is
g(m)/m = 1 − (1−α)/m, the fraction of a step's new interest that decays within the step. They use
products of whole steps, m and `full` = u*/C only, so that nothing underflows down to m = 1e-300.

The functions of one source have neither branches nor calls of the C library, so that loops over
them are vectorised, and give the same bits wherever they are called.
"""

from __future__ import annotations

from math import expm1, log

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.compiled import compiled, inlined
from crawl_env.numerics import FloatArray

_NEAR = 2.0  # time constants up to which the expanded form of Theorem 1 is the better one
_LOG2_E = 1.4426950408889634
_LN2, _LN2_REST = 0.6931471803691238, 1.9082149292705877e-10  # 32 digits of ln 2, and the others
_WHOLE = 1.5 * 2.0**52  # a number added to this is rounded to a whole one
_GONE = 700.0  # time constants after which nothing is left, e^−700 = 1e-304


# ------------------------------------------------------------------------------- of one source


@inlined
def decayed(z: float) -> tuple[float, float]:
    """Return e^−z and g(z)/z for z ≥ 0, each to 1e-15 of itself.

    With z = n ln 2 + r, it is a polynomial of r: that of lowest largest relative error in
    g(r)/r² on 0 ≤ r ≤ ln 2, 1e-17. The second result keeps its digits when z is small.
    """
    capped = min(z, _GONE)
    shifted = (capped * _LOG2_E - 0.5) + _WHOLE  # n in its last bits
    halvings = shifted - _WHOLE
    r = (capped - halvings * _LN2) - halvings * _LN2_REST
    bend = -1.1958107945460965e-10
    bend = bend * r + 2.016880199193204e-09
    bend = bend * r - 2.4980021735474826e-08
    bend = bend * r + 2.755261413177414e-07
    bend = bend * r - 2.755711528489139e-06
    bend = bend * r + 2.480158138650095e-05
    bend = bend * r - 0.00019841269728114436
    bend = bend * r + 0.0013888888887514847
    bend = bend * r - 0.00833333333332348
    bend = bend * r + 0.041666666666666304
    bend = bend * r - 0.16666666666666666
    bend = (bend * r + 0.5) * r
    n = np.float64(shifted).view(np.int64)
    kept = (1.0 - (r - r * bend)) * float(np.int64((1023 - n) << 52).view(np.float64))
    later = ((z - 1.0) + kept) / z
    return kept, bend if halvings == 0.0 else later


@inlined
def time_constants(level: float) -> float:
    """Return −ln(1 − y) for 0 ≤ y < 1, to 1e-15 of itself: μT × the steps in which an emptied
    source reaches the fraction y of its ceiling.

    With 1 − y = 2^−n (1 + f) it is n ln 2 − 2 artanh(f/(2 + f)), a polynomial.
    """
    left = 1.0 - level
    bits = np.float64(left).view(np.int64)
    # 1/√2 ≤ 1 + f < √2
    halvings = 1023 - ((bits + 0x95F6400000000) >> 52)
    f = left * float(np.int64((1023 + halvings) << 52).view(np.float64)) - 1.0
    f = -level if halvings == 0 else f
    s = f / (2.0 + f)
    t = s * s
    series = 0.06543313074624357
    series = series * t + 0.06634386569261096
    series = series * t + 0.07693119851409844
    series = series * t + 0.09090897820066407
    series = series * t + 0.1111111119585696
    series = series * t + 0.14285714285401807
    series = series * t + 0.2000000000000044
    series = series * t + 0.3333333333333333
    return halvings * _LN2 + (halvings * _LN2_REST - 2.0 * (s + s * t * series))


@inlined
def whole_steps(steps: float) -> float:
    """Return the smallest whole number that is at least `steps` ≥ 0, and at least 1."""
    nearest = (steps + _WHOLE) - _WHOLE
    above = nearest + 1.0
    whole = above if nearest < steps else nearest
    whole = whole if steps < 1e15 else steps
    return whole if whole > 1.0 else 1.0


@inlined
def age_index(age: float, decay: float, curvature: float, full: float) -> float:
    """Return the Whittle index of a source `age` steps after a crawl, 1 − α^k(1 + k(1−α)) times
    `full` = u*/C.

    `age` is a whole number, or infinite. The result is exact to 5e-15 of itself for m from 1e-12
    to 1e3. It never decreases with the age for m ≥ 1e-11, and by less than this accuracy for
    smaller m; it is `full` from some 45 time constants on.

    >>> from math import exp
    >>> m = 0.7
    >>> round(age_index(2.0, m, 1 + (exp(-m) - 1) / m, 357.142857), 3)
    180.401
    """
    aged = age * decay
    kept, bend = decayed(aged)
    rate = 1.0 - curvature  # (1 − α)/m
    near = (full * aged) * (rate * (aged - aged * bend) + (curvature - bend))
    far = full * (1.0 - kept * (1.0 + min(aged, _GONE) * rate))
    return near if aged < 0.5 else far


@compiled
def age_reaching(level: float, decay: float, curvature: float, full: float) -> float:
    """Return the smallest whole age ≥ 1 at which `age_index` is at least `level`; infinity if none.

    With a = (1−α)/m it solves z − ln(1 + az) = −ln(1 − level/full) for z = km by Newton's method,
    and moves to the lattice of whole ages by means of `age_index` itself: exact where that never
    decreases, m ≥ 1e-11.

    >>> from math import exp
    >>> m = 0.7
    >>> curvature, full = 1 + (exp(-m) - 1) / m, 357.142857
    >>> age_reaching(100.0, m, curvature, full), age_reaching(360.0, m, curvature, full)
    (2.0, inf)
    """
    if not level <= full:
        return np.inf
    if age_index(1.0, decay, curvature, full) >= level:
        return 1.0
    rate = 1.0 - curvature
    share = level / full
    target = time_constants(share) if share < 1.0 else 50.0
    z = target + np.sqrt(2.0 * target)  # not below the solution: from there Newton descends
    for _ in range(40):
        u = rate * z
        after = z - (z - time_constants(u / (1.0 + u)) - target) / (1.0 - rate / (1.0 + u))
        if not after < z * (1.0 - 1e-15):
            break
        z = after
    high = max(whole_steps(z / decay), 2.0)
    step = 1.0
    while age_index(high, decay, curvature, full) < level:
        high = high + max(step, high * 1e-15)
        step *= 2.0
    low, step = high - 1.0, 1.0
    while low > 1.0 and age_index(low, decay, curvature, full) >= level:
        high = low
        low = max(low - max(step, low * 1e-15), 1.0)
        step *= 2.0
    while high - low > max(1.0, high * 4e-16):
        middle = np.floor(0.5 * (low + high))
        if age_index(middle, decay, curvature, full) >= level:
            high = middle
        else:
            low = middle
    return high


@inlined
def closed_form(steps: float, level: float, decay: float, curvature: float, full: float) -> float:
    """Return the index of Theorem 1, η(1−α)y + η g(m) − g(ηm) times `full` = u*/C.

    steps: η, the steps a source needs from empty to reach its state.
    level: y = x/u*, the state as a fraction of the ceiling, below 1.

    It is the multiplier at which crawling in this state and one step later are equally good on
    average. It equals the printed 1 − α^η − η(1−α)(1−y), which cancels for small ηm and y, as this
    form does for large; each is used where it is accurate, to 5e-15 for m from 1e-12 to 1e3 and η
    up to 1e5.

    >>> from math import exp
    >>> m = 0.7
    >>> closed_form(1.0, 0.5, m, 1 + (exp(-m) - 1) / m, 1.0)  # (1 − α)y
    0.25170734810429524
    """
    aged = steps * decay
    kept, bend = decayed(aged)
    rate = 1.0 - curvature
    near = (full * aged) * (rate * level + (curvature - bend))
    far = full * ((1.0 - kept) - min(aged, _GONE) * rate * (1.0 - level))
    lost, lost_early = 1.0 - kept, aged - aged * bend
    lost = lost_early if aged < 0.5 else lost
    first = full * lost * level
    index = near if aged <= _NEAR else far
    return first if steps <= 1.0 else index


@inlined
def theorem_1(x: float, ceiling: float, cost: float, decay: float, curvature: float) -> float:
    """Return the index γ(x) of a source, utility / budget unit; x/C from the ceiling u* on."""
    at_once = x / cost
    share = x / ceiling
    level = share if share < 1.0 else 0.0
    steps = whole_steps(time_constants(level) / decay)
    gamma = closed_form(steps, level, decay, curvature, ceiling / cost)
    # Rounding must not leave the interval in which the index lies.
    gamma = gamma if gamma > 0.0 else 0.0
    gamma = gamma if gamma < at_once else at_once
    return gamma if share < 1.0 else at_once


@compiled
def discounted_index(
    x: float, ceiling: float, cost: float, decay: float, curvature: float, discount: float
) -> float:
    """Return the index of a source under a discount δ < 1, utility / budget unit; x/C from u* on.

    It solves λC·(1−δ)/(1−δ^η) = x − δx' + δ(1−δ)δ^{η−1}x_η/(1−δ^η), where x' = αx + u is the state
    after waiting. The policy "crawl from x on" reaches it η steps after a crawl, at x_η; waiting
    one step more must be as good as crawling now. The solution is expanded around δ = 1, where its
    terms cancel; with δ = e^−ℓ and g(z) it is exact to rounding for every δ and m.
    """
    at_once = x / cost
    if not x < ceiling:
        return at_once
    level = x / ceiling
    steps = whole_steps(time_constants(level) / decay)
    rate, loss = -log(discount), -expm1(-decay)  # ℓ, 1 − α
    spent = -expm1(-steps * rate)  # 1 − δ^η
    horizon = spent / (1.0 - discount)  # Σ_{j<η} δ^j
    gamma = horizon * loss * level
    gamma += spent * (1.0 - loss) * (level + expm1(-decay * (steps - 1.0)))
    if steps > 1.0:
        aged, discounted = steps * decay, steps * rate
        gamma += aged * (curvature - decayed(aged)[1])
        gamma += loss / (1.0 - discount) * discounted * (decayed(discounted)[1] - decayed(rate)[1])
    return min(max(gamma * (ceiling / cost), 0.0), at_once)


# -------------------------------------------------------------------------------- of many sources


@compiled
def _each_remainder_ratio(z: FloatArray, out: FloatArray) -> None:
    for i in range(z.size):
        out[i] = decayed(z[i])[1]


@compiled
def _each_theorem_1(x: FloatArray, table: FloatArray, out: FloatArray) -> None:
    """x, out: (R, N); table: (5, P, N), whose row r % P belongs to row r."""
    for r in range(len(x)):
        p = r % table.shape[1]
        ceiling, cost, decay, curvature = table[0, p], table[1, p], table[2, p], table[3, p]
        state, index = x[r], out[r]
        for i in range(state.size):
            index[i] = theorem_1(state[i], ceiling[i], cost[i], decay[i], curvature[i])


@compiled
def _each_discounted(x: FloatArray, table: FloatArray, discount: float, out: FloatArray) -> None:
    for r in range(len(x)):
        p = r % table.shape[1]
        ceiling, cost, decay, curvature = table[0, p], table[1, p], table[2, p], table[3, p]
        for i in range(x.shape[1]):
            out[r, i] = discounted_index(
                x[r, i], ceiling[i], cost[i], decay[i], curvature[i], discount
            )


@compiled
def _each_age_index(age: FloatArray, table: FloatArray, out: FloatArray) -> None:
    for r in range(len(age)):
        p = r % table.shape[1]
        decay, curvature, full = table[2, p], table[3, p], table[4, p]
        steps, index = age[r], out[r]
        for i in range(steps.size):
            index[i] = age_index(steps[i], decay[i], curvature[i], full[i])


@compiled
def _each_age_reaching(
    level: FloatArray, table: FloatArray, shortest: FloatArray, longest: FloatArray, out: FloatArray
) -> None:
    for r in range(len(level)):
        p = r % table.shape[1]
        decay, curvature, full = table[2, p], table[3, p], table[4, p]
        for i in range(level.shape[1]):
            first, last = shortest[r, i] + 1.0, longest[r, i]
            if first < last:
                age = age_reaching(level[r, i], decay[i], curvature[i], full[i])
                out[r, i] = min(max(age, first), last)
            else:
                out[r, i] = last


def remainder_ratio(z: ArrayLike) -> FloatArray:
    """Return g(z)/z, to rounding for every z ≥ 0, any shape; `curvature` at z = m.

    >>> remainder_ratio([0.0, 1e-9, 1.0])
    array([0.00000000e+00, 5.00000000e-10, 3.67879441e-01])
    """
    given = np.array(z, dtype=np.float64, order="C")
    out = np.empty_like(given)
    _each_remainder_ratio(given.reshape(-1), out.reshape(-1))
    return out


def remainder(z: ArrayLike) -> FloatArray:
    """Return g(z) = z + expm1(−z), what is left of 1 − e^−z after its first order, any shape.

    Both terms are close to z when z is small, which costs no digits here: the relative error stays
    below 1e-14 for every z ≥ 0.

    >>> remainder([0.0, 1e-9, 1.0])
    array([0.00000000e+00, 5.00000000e-19, 3.67879441e-01])
    """
    return np.asarray(np.multiply(z, remainder_ratio(z)))


class ClosedForm:
    """Theorem 1 for all sources of a fleet, (N,), or of a batch of fleets, (B, N).

    Arguments:
        ceiling: u* ≥ 0, utility.
        cost: C > 0, budget units.
        decay: m = μT > 0.
    """

    def __init__(self, ceiling: FloatArray, cost: FloatArray, decay: FloatArray) -> None:
        self.shape = decay.shape
        rows = (ceiling, cost, decay, remainder_ratio(decay), ceiling / cost)
        self._table = np.array([np.atleast_2d(row) for row in rows])

    def index(self, x: FloatArray, discount: float = 1.0) -> FloatArray:
        """Return the index of states x ≥ 0, (..., N) utility / budget unit; `theorem_1`."""
        x = self._cells(x)
        out = np.empty_like(x)
        if discount == 1.0:
            _each_theorem_1(self._rows(x), self._table, self._rows(out))
        else:
            _each_discounted(self._rows(x), self._table, discount, self._rows(out))
        return out

    def index_at_age(self, age: FloatArray) -> FloatArray:
        """Return the index at whole ages, (..., N) utility / budget unit; `age_index`."""
        age = self._cells(age)
        out = np.empty_like(age)
        _each_age_index(self._rows(age), self._table, self._rows(out))
        return out

    def age_reaching(
        self, level: FloatArray, shortest: FloatArray, longest: FloatArray
    ) -> FloatArray:
        """Return the smallest whole age in (shortest, longest] at which the index is at least
        `level`, and `longest` if there is none; all (..., N)."""
        longest = self._cells(longest)
        out = np.empty_like(longest)
        level, shortest = (np.broadcast_to(x, longest.shape).copy() for x in (level, shortest))
        level, shortest, longest = self._rows(level), self._rows(shortest), self._rows(longest)
        _each_age_reaching(level, self._table, shortest, longest, self._rows(out))
        return out

    def _cells(self, x: FloatArray) -> FloatArray:
        """Return x contiguous, in a shape that ends with that of the fleet."""
        if x.shape[-len(self.shape) :] != self.shape:
            x = np.broadcast_to(x, np.broadcast_shapes(x.shape, self.shape))
        return np.ascontiguousarray(x)

    def _rows(self, x: FloatArray) -> FloatArray:
        return x.reshape(-1, self.shape[-1])
