"""Theorem 1: the Whittle index of a source in closed form (Avrachenkov & Borkar 2015), and all that
follows from it: by age and by content, where crawls fail, in continuous time, and the age at which
the index reaches a level.

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

In continuous time, the limit T → 0, the age is z = μτ time constants for a time τ since the crawl,
and the index u*/C [1 − e^−z (1 + z)]: `age_index` with z for the age, m = 1 and a curvature of 0.

The functions of one source have neither branches nor calls of the C library, so that loops over
them are vectorised, and give the same bits wherever they are called.
"""

from __future__ import annotations

from math import expm1, log, log1p
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.compiled import compiled, inlined
from crawl_env.numerics import FloatArray

_NEAR = 2.0  # time constants up to which the expanded form of Theorem 1 is the better one
_LOG2_E = 1.4426950408889634
_LN2, _LN2_REST = 0.6931471803691238, 1.9082149292705877e-10  # 32 digits of ln 2, and the others
_WHOLE = 1.5 * 2.0**52  # a number added to this is rounded to a whole one
_GONE = 700.0  # time constants after which nothing is left, e^−700 = 1e-304
_BELOW_1 = 1.0 - 2.0**-53
# Of the ages at which many sources reach a level: those that no rounding can change.
_STEPS = 4  # of Newton's method
_CONVERGED = 1e-5  # last step, as a fraction of z, whose square is below `_DISTANT`
_DISTANT = 1e-7  # distance from a whole age, as a fraction of it
_CLEAR, _SHORT = 1.0 - 1e-6, 1e-5  # largest share of u*/C, and smallest z
# Inverse of z − ln(1+z) = s²/2 near 0: 1/s, then the coefficients of the series of Stirling's
# formula. Exact to rounding below the switch, above which Newton's steps are.
_SERIES = (1.0, 1 / 3, 1 / 36, -1 / 270, 1 / 4320, 1 / 17010, -139 / 5443200)
_SWITCH = 0.03
# Above the switch z is near s²/2 + s (1 + as)/(1 + bs): the a and b, of five digits, for which two
# of Newton's steps leave the smallest relative error, 3e-18 up to s²/2 = 38.
_NEAREST = (0.01001, 0.17743)
_SMALL = 1e-30  # share of u*/C below which its square root is taken first: it may underflow


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
    survival = (1.0 - (r - r * bend)) * float(np.int64((1023 - n) << 52).view(np.float64))
    later = ((z - 1.0) + survival) / z
    return survival, bend if halvings == 0.0 else later


@inlined
def time_constants(level: float) -> float:
    """Return −ln(1 − y) for 0 ≤ y < 1, to 1e-15 of itself: μT × the steps in which an emptied
    source reaches the fraction y of its ceiling.

    With 1 − y = 2^−n (1 + f) it is n ln 2 − 2 artanh(f/(2 + f)), a polynomial.
    """
    rest = 1.0 - level
    bits = np.float64(rest).view(np.int64)
    # 1/√2 ≤ 1 + f < √2
    halvings = 1023 - ((bits + 0x95F6400000000) >> 52)
    f = rest * float(np.int64((1023 + halvings) << 52).view(np.float64)) - 1.0
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
    survival, bend = decayed(aged)
    return decayed_index(aged, survival, bend, curvature, full)


@inlined
def decayed_index(
    aged: float, survival: float, bend: float, curvature: float, full: float
) -> float:
    """Return `age_index`, given `aged` = km, e^−km and g(km)/km."""
    rate = 1.0 - curvature  # (1 − α)/m
    near = (full * aged) * (rate * (aged - aged * bend) + (curvature - bend))
    far = full * (1.0 - survival * (1.0 + min(aged, _GONE) * rate))
    return near if aged < 0.5 else far


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
    survival, bend = decayed(aged)
    rate = 1.0 - curvature
    near = (full * aged) * (rate * level + (curvature - bend))
    far = full * ((1.0 - survival) - min(aged, _GONE) * rate * (1.0 - level))
    loss, early_loss = 1.0 - survival, aged - aged * bend
    loss = early_loss if aged < 0.5 else loss
    first = full * loss * level
    index = near if aged <= _NEAR else far
    return first if steps <= 1.0 else index


@inlined
def share_reaching(
    index: float, steps: float, decay: float, curvature: float, full: float
) -> float:
    """Return the fraction y = x/u* at which `closed_form` is `index`, given its η, the smallest age
    at which the index is reached.

    >>> from math import exp
    >>> m = 0.7
    >>> round(share_reaching(0.25170734810429524, 1.0, m, 1 + (exp(-m) - 1) / m, 1.0), 12)
    0.5
    """
    aged = steps * decay
    early = aged * (decayed(aged)[1] - curvature)  # g(ηm) − η g(m)
    return (index / full + early) / (aged * (1.0 - curvature))


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
    total_discount = -expm1(-steps * rate)  # 1 − δ^η
    horizon = total_discount / (1.0 - discount)  # Σ_{j<η} δ^j
    gamma = horizon * loss * level
    gamma += total_discount * (1.0 - loss) * (level + expm1(-decay * (steps - 1.0)))
    if steps > 1.0:
        aged, discounted = steps * decay, steps * rate
        gamma += aged * (curvature - decayed(aged)[1])
        gamma += loss / (1.0 - discount) * discounted * (decayed(discounted)[1] - decayed(rate)[1])
    return min(max(gamma * (ceiling / cost), 0.0), at_once)


# --------------------------------------------------------------------- of one whose crawls fail


class Retries(NamedTuple):
    """What the index of a source depends on if crawls fail with probability p = 1 − q and are tried
    again d steps later.

    With a = q/(1 − pα^d) it is q a {γ + u*/C [(dp/q) (1−α)y + (p/q) (d g(m) − g(dm))]}, where γ is
    the index of Theorem 1 at y = x/u*.
    """

    success: float  # q
    factor: float  # q a
    slope: float  # (dp/q)(1−α)
    bend: float  # (p/q)(d g(m) − g(dm))/m


@inlined
def retries(failure_rate: float, delay: float, decay: float) -> Retries:
    """Return the constants of a source; `delay` is d."""
    success, aged = 1.0 - failure_rate, delay * decay
    curvature, later = decayed(decay)[1], decayed(aged)[1]
    retry_loss, odds = failure_rate * (aged * (1.0 - later)), failure_rate / success
    return Retries(
        success,
        success * success / (success + retry_loss),
        odds * (aged * (1.0 - curvature)),
        odds * (delay * (curvature - later)),
    )


@inlined
def _with_retries(
    theorem: float, level: float, decay: float, full: float, failing: Retries
) -> float:
    """Return the index where crawls may fail, given that of Theorem 1 at y = `level`."""
    more = (full * failing.slope) * level + (full * decay) * failing.bend
    index = failing.factor * max(theorem + more, 0.0)
    return theorem if failing.success == 1.0 else index


@inlined
def retried_age_index(
    age: float, decay: float, curvature: float, full: float, failing: Retries
) -> float:
    """Return `age_index` where crawls may fail: of a source first tried at this age."""
    aged = age * decay
    survival, bend = decayed(aged)
    level = aged - aged * bend if aged < 0.5 else 1.0 - survival
    return _with_retries(age_index(age, decay, curvature, full), level, decay, full, failing)


@inlined
def content_index(
    x: float, ceiling: float, cost: float, decay: float, curvature: float, failing: Retries
) -> float:
    """Return `theorem_1` where crawls may fail, of the content or of the belief x; qx/C from the
    ceiling u* on."""
    theorem, at_once = theorem_1(x, ceiling, cost, decay, curvature), x / cost * failing.success
    share = x / ceiling
    gamma = min(_with_retries(theorem, share, decay, ceiling / cost, failing), at_once)
    return gamma if share < 1.0 else at_once


# ----------------------------------------------------------------------- when it reaches a level


@inlined
def _descended(z: float, target: float, rate: float) -> float:
    """Return the next of Newton's steps to the solution of z − ln(1 + az) = `target`, a = `rate`.

    The function is convex: from above the solution the steps descend to it, and from below the
    first leads above it.
    """
    u = rate * z
    return z - (z - time_constants(u / (1.0 + u)) - target) / (1.0 - rate / (1.0 + u))


@inlined
def _from_above(target: float) -> float:
    """Return a z that is not below the solution, for any a ≤ 1."""
    return target + np.sqrt(2.0 * target)


@compiled
def _index_at(age: float, decay: float, curvature: float, full: float, failing: Retries) -> float:
    return retried_age_index(age, decay, curvature, full, failing)


@compiled
def retried_age_reaching(
    level: float, decay: float, curvature: float, full: float, failing: Retries
) -> float:
    """Return the smallest whole age ≥ 1 at which `retried_age_index` is at least `level`; infinity
    if none.

    With a = (1−α)/m it solves z − ln(1 + az) = −ln(1 − level/full) for z = km by Newton's method,
    and moves to the lattice of whole ages by means of the index itself: exact where that never
    decreases, m ≥ 1e-11. Failures change a and the level only.
    """
    if not level <= _index_at(np.inf, decay, curvature, full, failing):
        return np.inf
    if _index_at(1.0, decay, curvature, full, failing) >= level:
        return 1.0
    rate, share = 1.0 - curvature, level / full
    if failing.success < 1.0:
        share = (share / failing.factor - decay * failing.bend) / (1.0 + failing.slope)
        rate /= 1.0 + failing.slope
    target = time_constants(max(share, 0.0)) if share < 1.0 else 50.0
    z = _from_above(target)
    for _ in range(40):
        after = _descended(z, target, rate)
        if not after < z * (1.0 - 1e-15):
            break
        z = after
    high = max(whole_steps(z / decay), 2.0)
    step = 1.0
    while _index_at(high, decay, curvature, full, failing) < level:
        high = high + max(step, high * 1e-15)
        step *= 2.0
    low, step = high - 1.0, 1.0
    while low > 1.0 and _index_at(low, decay, curvature, full, failing) >= level:
        high = low
        low = max(low - max(step, low * 1e-15), 1.0)
        step *= 2.0
    while high - low > max(1.0, high * 4e-16):
        middle = np.floor(0.5 * (low + high))
        if _index_at(middle, decay, curvature, full, failing) >= level:
            high = middle
        else:
            low = middle
    return high


@compiled
def age_reaching(level: float, decay: float, curvature: float, full: float) -> float:
    """Return the smallest whole age ≥ 1 at which `age_index` is at least `level`; infinity if none.

    >>> from math import exp
    >>> m = 0.7
    >>> curvature, full = 1 + (exp(-m) - 1) / m, 357.142857
    >>> age_reaching(100.0, m, curvature, full), age_reaching(360.0, m, curvature, full)
    (2.0, inf)
    """
    return retried_age_reaching(level, decay, curvature, full, Retries(1.0, 1.0, 0.0, 0.0))


@compiled
def ages_reaching(
    levels: FloatArray, decay: FloatArray, full: FloatArray, work: FloatArray
) -> None:
    """Replace the levels of K sources by `age_reaching` of them.

    Four of Newton's steps are enough for nearly all; their loops have no branches, so that they are
    vectorised. The rest are searched for one by one: those near a whole age, near u*/C, or at which
    hardly anything has decayed.

    Arguments:
        levels: (K,) levels, then ages.
        decay, full: (K,).
        work: (3, W), W ≥ K, temporary.
    """
    target, rate, z = work[0], work[1], work[2]
    for j in range(levels.size):
        target[j] = time_constants(min(levels[j] / full[j], _BELOW_1))
        rate[j] = 1.0 - decayed(decay[j])[1]
    for j in range(levels.size):
        z[j] = _from_above(target[j])
    for _ in range(_STEPS - 1):
        for j in range(levels.size):
            z[j] = _descended(z[j], target[j], rate[j])
    for j in range(levels.size):
        level, last = levels[j], _descended(z[j], target[j], rate[j])
        real = max(last / decay[j], 0.5)
        age = np.ceil(real)
        apart = min(age - real, real - (age - 1.0)) > _DISTANT * age
        near = abs(z[j] - last) < _CONVERGED * last and last > _SHORT
        age = age if apart and near and level < _CLEAR * full[j] else 0.0
        z[j] = age if level <= full[j] else np.inf
    for j in range(levels.size):
        if z[j] > 0.0:
            levels[j] = z[j]
        else:
            levels[j] = age_reaching(levels[j], decay[j], decayed(decay[j])[1], full[j])


# -------------------------------------------------------------------------- in continuous time


@inlined
def continuous_index(level: float, full: float) -> float:
    """Return the index in continuous time of a belief of `level` = x/u*, u*/C [y + (1 − y) ln(1 −
    y)], and x/C from the ceiling on; `full` is u*/C.

    >>> round(continuous_index(0.5, 1.0), 12), continuous_index(2.0, 3.0)
    (0.15342640972, 6.0)
    """
    below = age_index(time_constants(min(level, _BELOW_1)), 1.0, 0.0, full)
    return below if level < 1.0 else level * full


@inlined
def continuous_age_reaching(level: float, full: float) -> float:
    """Return the time constants z after a crawl at which the index in continuous time is `level`,
    u*/C (1 − e^−z (1 + z)) = `level`; infinity from `full` = u*/C on.

    It is exact to 1e-14 of itself for every z.

    >>> z = continuous_age_reaching(0.2, 1.0)
    >>> round(age_index(z, 1.0, 0.0, 1.0), 15)
    0.2
    """
    share = max(level, 0.0) / full
    target = time_constants(min(share, _BELOW_1))
    # 1 − e^−z (1 + z) = 1 − e^(−s²/2)
    s = np.sqrt(2.0 * target)
    s = s if share > _SMALL else np.sqrt(2.0 * max(level, 0.0)) / np.sqrt(full)
    near = _SERIES[6] * s
    for i in range(5, -1, -1):
        near = (near + _SERIES[i]) * s
    # Within 1e-3 of the solution, so that two of Newton's steps reach it.
    z = max(target + s * (1.0 + _NEAREST[0] * s) / (1.0 + _NEAREST[1] * s), _SWITCH)
    z = max(_descended(z, target, 1.0), _SWITCH)
    z = max(_descended(z, target, 1.0), _SWITCH)
    z = near if s < _SWITCH else z
    return z if level < full else np.inf


# -------------------------------------------------------------------------------- of many sources


@compiled
def notice_gain(x: float, more: float, ceiling: float, level: float) -> float:
    """Return what it is worth to be told that a source has `more` content than was believed, in
    continuous time: what crawls collect from then on, less their price, beyond what they would
    without the notice.

    A source is crawled when the belief x about its content, which tends to the ceiling A, reaches
    the level L of the price. Its relative value is

        V(x) = x − L for x ≥ L,    V(x) = (A − L) ln((A − L)/(A − x)) below,

    or 0 below if L ≥ A, where waiting never ends. Without the notice, what waits would be crawled
    when x has reached L, when a part q = (A − L)/(A − x) of it is left, or 0 if L ≥ A. The gain is
    V(x + more) − V(x) − q more, and 0 if x ≥ L, since the source is crawled at once anyway.

    Arguments:
        x: belief before, utility.
        more: what is announced, in expectation, utility.
        ceiling: A, of the belief if no notice comes.
        level: L.

    >>> round(notice_gain(0.5, 1.0, 2.0, 1.0), 4), notice_gain(1.0, 1.0, 2.0, 1.0)
    (0.2388, 0.0)
    >>> notice_gain(0.0, 1.0, 0.2, 0.4)  # is crawled after notices alone
    0.6
    """
    if x >= level or not more > 0.0:
        return 0.0
    if ceiling <= level:
        return max(x + more - level, 0.0)
    rest = (ceiling - level) / (ceiling - x)
    if x + more >= level:
        return more * (1.0 - rest) - (level - x) - (ceiling - level) * log(rest)
    part = more / (ceiling - x)
    return (ceiling - level) * (-log1p(-part) - part)


@compiled
def _each_remainder_ratio(z: FloatArray, out: FloatArray) -> None:
    for i in range(z.size):
        out[i] = decayed(z[i])[1]


@compiled
def _each_content_index(
    x: FloatArray, table: FloatArray, failing: FloatArray, out: FloatArray
) -> None:
    """x, out: (R, N); table: (5, P, N) and failing, `Retries`: (4, P, N) or (4, 0, 0) if no crawl
    fails, whose row r % P belongs to row r."""
    for r in range(len(x)):
        p = r % table.shape[1]
        ceiling, cost, decay, curvature = table[0, p], table[1, p], table[2, p], table[3, p]
        state, index = x[r], out[r]
        if failing.size == 0:
            for i in range(state.size):
                index[i] = theorem_1(state[i], ceiling[i], cost[i], decay[i], curvature[i])
            continue
        success, factor, slope, bend = failing[0, p], failing[1, p], failing[2, p], failing[3, p]
        for i in range(state.size):
            one = Retries(success[i], factor[i], slope[i], bend[i])
            index[i] = content_index(state[i], ceiling[i], cost[i], decay[i], curvature[i], one)


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
def _each_age_index(
    age: FloatArray, table: FloatArray, failing: FloatArray, out: FloatArray
) -> None:
    for r in range(len(age)):
        p = r % table.shape[1]
        decay, curvature, full = table[2, p], table[3, p], table[4, p]
        steps, index = age[r], out[r]
        if failing.size == 0:
            for i in range(steps.size):
                index[i] = age_index(steps[i], decay[i], curvature[i], full[i])
            continue
        success, factor, slope, bend = failing[0, p], failing[1, p], failing[2, p], failing[3, p]
        for i in range(steps.size):
            one = Retries(success[i], factor[i], slope[i], bend[i])
            index[i] = retried_age_index(steps[i], decay[i], curvature[i], full[i], one)


@compiled
def _each_age_reaching(
    level: FloatArray,
    table: FloatArray,
    failing: FloatArray,
    shortest: FloatArray,
    longest: FloatArray,
    out: FloatArray,
) -> None:
    n = level.shape[1]
    which, levels, work = np.empty(n, np.int64), np.empty(n), np.empty((5, n))
    for r in range(len(level)):
        p, count = r % table.shape[1], 0
        for i in range(n):
            out[r, i] = longest[r, i]
            # The index is u*/C at most.
            if shortest[r, i] + 1.0 < longest[r, i] and level[r, i] <= table[4, p, i]:
                which[count], levels[count] = i, level[r, i]
                work[0, count], work[1, count] = table[2, p, i], table[4, p, i]
                count += 1
        if failing.size == 0:
            ages_reaching(levels[:count], work[0, :count], work[1, :count], work[2:])
        for j in range(count):
            i = which[j]
            if failing.size:
                f = failing[:, p, i]
                one = Retries(f[0], f[1], f[2], f[3])
                decay, curvature, full = table[2, p, i], table[3, p, i], table[4, p, i]
                levels[j] = retried_age_reaching(levels[j], decay, curvature, full, one)
            out[r, i] = min(max(levels[j], shortest[r, i] + 1.0), longest[r, i])


@compiled
def _each_retries(rows: FloatArray, out: FloatArray) -> None:
    """rows: failure rate, delay and μT, (3, K); out: (4, K)."""
    for i in range(out.shape[1]):
        one = retries(rows[0, i], rows[1, i], rows[2, i])
        out[0, i], out[1, i], out[2, i], out[3, i] = one


@compiled
def _each_continuous_index(z: FloatArray, out: FloatArray) -> None:
    for i in range(out.size):
        out[i] = age_index(z[i], 1.0, 0.0, 1.0)


@compiled
def _each_continuous_age_reaching(level: FloatArray, full: FloatArray, out: FloatArray) -> None:
    for i in range(out.size):
        out[i] = continuous_age_reaching(level[i], full[i])


def remainder_ratio(z: ArrayLike) -> FloatArray:
    """Return g(z)/z, to rounding for every z ≥ 0, any shape; `curvature` at z = m.

    >>> remainder_ratio([0.0, 1e-9, 1.0])
    array([0.00000000e+00, 5.00000000e-10, 3.67879441e-01])
    """
    points = np.array(z, dtype=np.float64, order="C")
    out = np.empty_like(points)
    _each_remainder_ratio(points.reshape(-1), out.reshape(-1))
    return out


def continuous_age_index(z: ArrayLike) -> FloatArray:
    """Return the index in continuous time z time constants after a crawl, as a fraction of u*/C,
    any shape.

    >>> continuous_age_index([0.0, 1.0, np.inf]).round(4)
    array([0.    , 0.2642, 1.    ])
    """
    points = np.array(z, dtype=np.float64, order="C")
    out = np.empty_like(points)
    _each_continuous_index(points.reshape(-1), out.reshape(-1))
    return out


def continuous_ages_reaching(level: ArrayLike, full: FloatArray) -> FloatArray:
    """Return `continuous_age_reaching` of levels and u*/C that broadcast."""
    levels, fulls = np.broadcast_arrays(np.asarray(level, dtype=np.float64), full)
    out = np.empty(levels.shape)
    _each_continuous_age_reaching(levels.ravel(), fulls.ravel(), out.reshape(-1))
    return out


class ClosedForm:
    """Theorem 1 for all sources of a fleet, (N,), or of a batch of fleets, (B, N).

    Arguments:
        ceiling: u* ≥ 0, utility.
        cost: C > 0, budget units.
        decay: m = μT > 0.
        failure_rate: p in [0, 1), the probability that a crawl fails; None: none does.
        delay: d ≥ 1, steps after which it is tried again.
    """

    def __init__(
        self,
        ceiling: FloatArray,
        cost: FloatArray,
        decay: FloatArray,
        failure_rate: FloatArray | None = None,
        delay: ArrayLike = 1.0,
    ) -> None:
        self.shape = decay.shape
        rows = (ceiling, cost, decay, remainder_ratio(decay), ceiling / cost)
        self._table = np.array([np.atleast_2d(row) for row in rows])
        self._failing = np.empty((4, 0, 0))
        if failure_rate is not None:
            columns = np.array(np.broadcast_arrays(failure_rate, delay, decay), dtype=np.float64)
            self._failing = np.empty((4, *self._table.shape[1:]))
            _each_retries(columns.reshape(3, -1), self._failing.reshape(4, -1))

    def index(self, x: FloatArray, discount: float = 1.0) -> FloatArray:
        """Return the index of states x ≥ 0, (..., N) utility / budget unit: `theorem_1`, or
        `content_index`; a discounted one is known where no crawl fails."""
        x = self._cells(x)
        out = np.empty_like(x)
        if discount == 1.0:
            _each_content_index(self._rows(x), self._table, self._failing, self._rows(out))
        else:
            _each_discounted(self._rows(x), self._table, discount, self._rows(out))
        return out

    def index_at_age(self, age: FloatArray) -> FloatArray:
        """Return the index at whole ages, (..., N) utility / budget unit: `age_index`, or
        `retried_age_index`."""
        age = self._cells(age)
        out = np.empty_like(age)
        _each_age_index(self._rows(age), self._table, self._failing, self._rows(out))
        return out

    def age_reaching(
        self, level: FloatArray, shortest: FloatArray, longest: FloatArray
    ) -> FloatArray:
        """Return the smallest whole age in (shortest, longest] at which the index is at least
        `level`, and `longest` if there is none; all (..., N)."""
        longest = self._cells(longest)
        out = np.empty_like(longest)
        level, shortest = (np.broadcast_to(x, longest.shape).copy() for x in (level, shortest))
        rows = [self._rows(x) for x in (level, shortest, longest, out)]
        _each_age_reaching(rows[0], self._table, self._failing, *rows[1:])
        return out

    def _cells(self, x: FloatArray) -> FloatArray:
        """Return x contiguous, in a shape that ends with that of the fleet."""
        if x.shape[-len(self.shape) :] != self.shape:
            x = np.broadcast_to(x, np.broadcast_shapes(x.shape, self.shape))
        return np.ascontiguousarray(x)

    def _rows(self, x: FloatArray) -> FloatArray:
        return x.reshape(-1, self.shape[-1])
