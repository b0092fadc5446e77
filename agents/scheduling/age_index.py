"""Indices that depend on a source's age alone, and the ages at which they reach a level.

The index of a source that is not observed rises from one crawl to the next. Four kinds are known,
all of them `scale` times a function of the age k ≥ 1, in steps:

| kind | index at age k | scale | decay |
| --- | --- | --- | --- |
| `WHITTLE` | Theorem 1, with failures as in `agents.theory.renewal` | u*/C | μT |
| `MYOPIC` | q u*(1 − α^k)/C | u*/C | μT |
| `STATIC` | f·k, which is 1 when the interval 1/f has passed | f, crawls / step | not used |
| `AGE` | k | 1 | not used |

A source that was never crawled, of age `NEVER`, has the limit of the first two.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crawl_env.compiled import compiled

WHITTLE, MYOPIC, STATIC, AGE = range(4)
NEVER = 10**9  # age of a source never crawled, `crawl_env.content.world.NEVER`
_SLOW = 1e-8  # μT below which products of it may underflow, as in `agents.theory.closed_form`
_NEAR = 2.0  # time constants up to which the expanded form of Theorem 1 is the better one
_SHORT = 1e-5  # time constants below which Newton's steps cancel, and a series is exact
_STEPS = 8  # of Newton's method, at most
_TRIES = 4  # corrections by one step before the age is searched for


class Parameters(NamedTuple):
    """What the index of a source is computed from; optional columns are empty if not needed."""

    arrival_rate: NDArray[np.floating]  # (N,) items / time
    mean_utility: NDArray[np.floating]  # (N,) utility
    decay_rate: NDArray[np.floating]  # (N,) 1 / time
    cost: NDArray[np.floating]  # (N,) budget units, or (0,): 1
    failure_rate: NDArray[np.floating]  # (N,) probability, or (0,): 0
    delay: NDArray[np.uint32]  # (N,) steps ≥ 1, or (0,): 1
    kind: int  # one of the four above
    period: float  # T
    multiplier: float  # λ, utility / budget unit: `STATIC` has the frequencies optimal at it


@compiled
def whole(number: Any) -> int:
    """Return a number as a signed integer of 64 bits, in which steps are computed."""
    result: Any = np.int64(number)
    return result


@compiled
def scale_of(parameters: Parameters, i: int) -> float:
    """Return the scale of the index of source i."""
    if parameters.kind == AGE:
        return 1.0
    full = np.float64(parameters.arrival_rate[i]) * np.float64(parameters.mean_utility[i])
    full /= np.float64(parameters.decay_rate[i])
    if parameters.cost.size:
        full /= np.float64(parameters.cost[i])
    if parameters.kind != STATIC:
        return full
    fail = 0.0
    if parameters.failure_rate.size:
        fail = np.float64(parameters.failure_rate[i])
    fraction = parameters.multiplier / (full * (1.0 - fail))
    if not fraction < 1.0:
        return 0.0
    delay = np.float64(parameters.delay[i]) if parameters.delay.size else 1.0
    interval = time_constants(fraction, 1.0) / decay_of(parameters, i)
    return 1.0 / max(interval, delay)


@compiled
def decay_of(parameters: Parameters, i: int) -> float:
    """Return μT of source i."""
    return np.float64(parameters.decay_rate[i]) * parameters.period


@compiled
def index_at(parameters: Parameters, i: int, scale: float, decay: float, age: int) -> float:
    """Return the index of source i at an age, given its `scale_of` and `decay_of`."""
    kind = parameters.kind
    if kind in (STATIC, AGE):
        return scale * age
    if age <= 0:
        return 0.0
    fail, delay = 0.0, 1.0
    if parameters.failure_rate.size:
        fail = np.float64(parameters.failure_rate[i])
        if parameters.delay.size:
            delay = np.float64(parameters.delay[i])
    if kind == MYOPIC:
        content = 1.0 if age >= NEVER else -math.expm1(-age * decay)
        return scale * content * (1.0 - fail)
    if fail == 0.0:
        return scale if age >= NEVER else whittle_at(scale, decay, float(age))
    if age >= NEVER:
        return scale * (1.0 - fail)
    kept, more, bend = retries(fail, delay, decay)
    theorem = whittle_at(1.0, decay, float(age))
    level = -math.expm1(-age * decay)
    fraction = kept * (theorem + (more * level + bend))
    return max(fraction, 0.0) * scale


@compiled
def whittle_at(full: float, decay: float, age: float) -> float:
    """Return the index of Theorem 1 at an age ≥ 1; `full` = u*/C.

    Computed as `agents.theory.closed_form.scaled_index`, without its arrays.
    """
    aged = age * decay
    level = -math.expm1(-aged)
    loss = -math.expm1(-decay)
    if aged > _NEAR and age > 1.0:
        return full * (level - age * loss * (1.0 - level))
    if decay < _SLOW and aged <= _NEAR:
        ratio = _remainder_ratio(decay) - _remainder_ratio(aged)
        return full * aged * (level * (loss / decay) + ratio)
    return full * (age * (loss * level) + (age * _remainder(decay) - _remainder(aged)))


@compiled
def _remainder(z: float) -> float:
    """Return z + expm1(−z), to rounding."""
    if z >= 0.1:
        return z + math.expm1(-z)
    series = 1.0 - z / 11.0
    for n in range(10, 2, -1):
        series = 1.0 - series * z / n
    return 0.5 * z * z * series


@compiled
def _remainder_ratio(z: float) -> float:
    """Return (z + expm1(−z)) / z, to rounding for every z ≥ 0."""
    if z < 1e-4:
        return z * (0.5 - z * (1 / 6 - z * (1 / 24 - z / 120)))
    return _remainder(z) / z


@compiled
def retries(fail: float, delay: float, decay: float) -> tuple[float, float, float]:
    """Return the constants of the index where crawls fail with probability p > 0.

    With q = 1 − p, it is u*/C · qa [Theorem 1 + (dp/q)(1−α)y + (p/q)(d g(m) − g(dm))], where
    a = q/(1 − pα^d): the factors qa, (dp/q)(1−α) and the last term in the brackets.
    """
    success = 1.0 - fail
    kept = success * success / (success - fail * math.expm1(-decay * delay))
    more = delay * fail / success * -math.expm1(-decay)
    bend = fail * (delay * _remainder(decay) - _remainder(delay * decay)) / success
    return kept, more, bend


@compiled
def age_reaching(parameters: Parameters, i: int, scale: float, decay: float, level: float) -> int:
    """Return an age k such that the index of source i is below `level` at all ages below k.

    It is the smallest age at which the index reaches the level, or, by rounding, slightly less;
    0 at level 0, and above `NEVER` if the index never reaches it. A caller who relies on the ages
    below k subtracts more than the rounding of the index from the level, since the computed index
    need not be monotone in its last bits.
    """
    kind = parameters.kind
    if level <= 0.0:
        return 0
    if kind in (STATIC, AGE):
        return _whole(level / scale) if scale > 0.0 else 2 * NEVER
    fail, delay = 0.0, 1.0
    if parameters.failure_rate.size:
        fail = np.float64(parameters.failure_rate[i])
        if parameters.delay.size:
            delay = np.float64(parameters.delay[i])
    if not (1.0 - fail) * scale >= level:
        return 2 * NEVER
    fraction = level / scale
    if kind == MYOPIC:
        k = _whole(-math.log1p(-min(fraction / (1.0 - fail), 1.0)) / decay)
    elif fail == 0.0:
        k = _whole(_interval(fraction, decay, 1.0))
    else:
        kept, more, bend = retries(fail, delay, decay)
        fraction = (fraction / kept - bend) / (1.0 + more)
        k = _whole(_interval(fraction, decay, 1.0 + more)) if fraction > 0.0 else 1
    for _ in range(_TRIES):
        if k <= 1 or index_at(parameters, i, scale, decay, k - 1) < level:
            return k
        k -= 1
    low = 0  # an age at which the index is below the level
    while k - low > 1:
        middle = (low + k) // 2
        if index_at(parameters, i, scale, decay, middle) < level:
            low = middle
        else:
            k = middle
    return k


@compiled
def _whole(age: float) -> int:
    """Return the age rounded up to a whole number from 1 to `NEVER`."""
    return whole(math.ceil(min(max(age, 1.0), NEVER)))


@compiled
def _interval(fraction: float, decay: float, factor: float) -> float:
    """Return the age k at which 1 − e^(−km)(1 + k(1−α)/factor) is `fraction`, m = `decay`."""
    if not fraction < 1.0:
        return float(NEVER)
    slope = 1.0 if decay < 1e-8 else -math.expm1(-decay) / decay
    z = time_constants(fraction, slope / factor)
    if z < _SHORT and factor == 1.0:
        return z / decay - 0.5  # on the lattice of steps: k(k + 1) instead of k²
    return z / decay


@compiled
def time_constants(fraction: float, slope: float) -> float:
    """Return z with 1 − e^(−z)(1 + slope·z) = fraction, for fraction in [0, 1), slope in (0, 1].

    Newton's steps from above for the convex function z − ln(1 + slope·z) + ln(1 − fraction). For
    very small z the solution at slope 1 is returned.
    """
    missing = -math.log1p(-fraction)
    root = math.sqrt(2.0 * missing)
    z = root + missing
    if z < _SHORT:
        return root * (1.0 + root / 3.0)
    for _ in range(_STEPS):
        ahead = 1.0 + slope * z
        step = (z - math.log1p(slope * z) - missing) / (1.0 - slope / ahead)
        z = max(z - step, 0.0)
        if step < 1e-9 * z:
            break
    return z
