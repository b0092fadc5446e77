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

from agents.theory.closed_form import age_index, decayed, time_constants
from crawl_env.compiled import compiled

WHITTLE, MYOPIC, STATIC, AGE = range(4)
NEVER = 10**9  # age of a source never crawled, `crawl_env.content.world.NEVER`
_SHORT = 1e-5  # time constants below which Newton's steps cancel, and a series is exact
_BELOW_1 = 1.0 - 2.0**-53
_TINY = 1e-300
_STEPS = 3  # of Newton's method; the age found with them is settled afterwards
_MORE_STEPS = 8  # to rounding
LEAST_RATE = 1e-12  # items / step, as in `agents.adaptive`
_TRIES = 4  # corrections by one step before the age is searched for

_NONE = np.zeros(0, np.float32)


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
    items: NDArray[np.float32] = _NONE  # (N,) number of items found, or (0,): the rate is known
    exposure: NDArray[np.float32] = _NONE  # (N,) steps in which they were published
    drawn: NDArray[np.float32] = _NONE  # (N,) draws of the rates from the posterior, or (0,)
    prior_shape: float = 0.0
    prior_rate: float = 0.0  # time


def fixed(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only, contiguous view of an array, or of a copy if it is not contiguous:
    functions are compiled anew for each type, and both are a part of it."""
    view = np.ascontiguousarray(array)[:]
    view.flags.writeable = False
    return view


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
    full = rate_of(parameters, i) * np.float64(parameters.mean_utility[i])
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
    interval = constants_reaching(fraction, 1.0, _MORE_STEPS) / decay_of(parameters, i)
    return 1.0 / max(interval, delay)


@compiled
def rate_of(parameters: Parameters, i: int) -> float:
    """Return Λ of source i, its draw from the posterior or its posterior mean, items / time."""
    if parameters.drawn.size:
        return np.float64(parameters.drawn[i])
    if parameters.items.size == 0:
        return np.float64(parameters.arrival_rate[i])
    shape = parameters.prior_shape + np.float64(parameters.items[i])
    rate = parameters.prior_rate + np.float64(parameters.exposure[i]) * parameters.period
    return max(shape / rate, LEAST_RATE / parameters.period)


@compiled
def decay_of(parameters: Parameters, i: int) -> float:
    """Return μT of source i."""
    return np.float64(parameters.decay_rate[i]) * parameters.period


@compiled
def gather(column: NDArray[Any], source: NDArray[np.uint32], out: NDArray[Any]) -> None:
    """Read the elements of some sources, (K,). In a loop of its own, reads from memory overlap."""
    for j in range(len(source)):
        out[j] = column[source[j]]


@compiled
def read_scales(
    parameters: Parameters,
    source: NDArray[np.uint32],
    scale: NDArray[np.float64],
    decay: NDArray[np.float64],
) -> None:
    """Compute `scale_of` and `decay_of` of some sources, (K,)."""
    n = len(source)
    if parameters.kind in (STATIC, AGE):
        for j in range(n):
            scale[j] = scale_of(parameters, source[j])
            decay[j] = decay_of(parameters, source[j])
        return
    if parameters.drawn.size:
        gather(parameters.drawn, source, scale)
    elif parameters.items.size == 0:
        gather(parameters.arrival_rate, source, scale)
    else:
        for j in range(n):
            scale[j] = rate_of(parameters, source[j])
    gather(parameters.decay_rate, source, decay)
    utility = parameters.mean_utility
    for j in range(n):
        scale[j] *= np.float64(utility[source[j]])
    for j in range(n):
        scale[j] /= decay[j]
        decay[j] *= parameters.period
    if parameters.cost.size:
        for j in range(n):
            scale[j] /= np.float64(parameters.cost[source[j]])


@compiled
def plain_indices(
    crawled_at: NDArray[np.uint32],
    scale: NDArray[np.float64],
    decay: NDArray[np.float64],
    now: int,
    out: NDArray[np.float64],
) -> None:
    """Compute the index of Theorem 1 of some sources, (K,), in step `now`; crawled at 0: never."""
    for j in range(len(out)):
        at = whole(crawled_at[j])
        age = float(now - at) if at > 0 else np.inf
        out[j] = age_index(age, decay[j], decayed(decay[j])[1], scale[j])


@compiled
def is_plain(parameters: Parameters) -> bool:
    """Return whether the index is Theorem 1 for all sources, for which loops are vectorised."""
    return parameters.kind == WHITTLE and parameters.failure_rate.size == 0


@compiled
def plain_index(scale: float, decay: float, age: float) -> float:
    """Return the index of Theorem 1 at a whole age; `NEVER` is infinite."""
    age = np.inf if age >= NEVER else age
    return age_index(age, decay, decayed(decay)[1], scale)


@compiled
def index_at(parameters: Parameters, i: int, scale: float, decay: float, age: float) -> float:
    """Return the index of source i at a whole age, given its `scale_of` and `decay_of`."""
    kind = parameters.kind
    if kind in (STATIC, AGE):
        return scale * age
    fail, delay = failures_of(parameters, i)
    if kind == WHITTLE and fail == 0.0:
        return plain_index(scale, decay, age)
    level = 1.0 if age >= NEVER else -math.expm1(-age * decay)
    if kind == MYOPIC:
        return scale * level * (1.0 - fail)
    kept, more, bend = retries(fail, delay, decay)
    theorem = plain_index(1.0, decay, age)
    return scale * (kept * max(theorem + (more * level + bend), 0.0)) if age > 0 else 0.0


@compiled
def failures_of(parameters: Parameters, i: int) -> tuple[float, float]:
    """Return the probability that a crawl fails, and the steps after which it is tried again."""
    fail, delay = 0.0, 1.0
    if parameters.failure_rate.size:
        fail = np.float64(parameters.failure_rate[i])
        if parameters.delay.size:
            delay = np.float64(parameters.delay[i])
    return fail, delay


@compiled
def retries(fail: float, delay: float, decay: float) -> tuple[float, float, float]:
    """Return the constants of the index where crawls fail with probability p.

    With q = 1 − p, it is u*/C · qa [Theorem 1 + (dp/q)(1−α)y + (p/q)(d g(m) − g(dm))], where
    a = q/(1 − pα^d): the factors qa, (dp/q)(1−α) and the last term in the brackets.
    """
    success = 1.0 - fail
    kept = success * success / (success - fail * math.expm1(-decay * delay))
    more = delay * fail / success * -math.expm1(-decay)
    bend = fail * delay * decay * (decayed(decay)[1] - decayed(delay * decay)[1]) / success
    return kept, more, bend


@compiled
def age_reaching(parameters: Parameters, i: int, scale: float, decay: float, level: float) -> float:
    """Return an age k such that the index of source i is below `level` at all ages below k.

    It is the smallest age at which the index reaches the level, or, by rounding, slightly less;
    0 at level 0, and above `NEVER` if the index never reaches it. A caller who relies on the ages
    below k subtracts more than the rounding of the index from the level, since the computed index
    need not be monotone in its last bits.
    """
    kind = parameters.kind
    if level <= 0.0:
        return 0.0
    if kind in (STATIC, AGE):
        return _whole(level / scale) if scale > 0.0 else np.inf
    fail, delay = failures_of(parameters, i)
    if not (1.0 - fail) * scale >= level:
        return np.inf
    fraction, slope, offset = level / scale, slope_of(decay), 0.5
    if kind == MYOPIC:
        k = time_constants(min(fraction / (1.0 - fail), _BELOW_1)) / decay
    else:
        if fail > 0.0:
            kept, more, bend = retries(fail, delay, decay)
            fraction, offset = (fraction / kept - bend) / (1.0 + more), 0.0
            slope /= 1.0 + more
        fraction = min(max(fraction, 0.0), _BELOW_1)
        z = constants_reaching(fraction, slope, _MORE_STEPS)
        k = z / decay - (offset if z < _SHORT else 0.0)
    k = _whole(k)
    for _ in range(_TRIES):
        if k <= 1.0 or index_at(parameters, i, scale, decay, k - 1.0) < level:
            return k
        k -= 1.0
    low = 0.0  # an age at which the index is below the level
    while k - low > 1.0:
        middle = np.floor(0.5 * (low + k))
        if index_at(parameters, i, scale, decay, middle) < level:
            low = middle
        else:
            k = middle
    return k


@compiled
def plain_ages_reaching(
    scale: NDArray[np.float64], decay: NDArray[np.float64], level: float, work: NDArray[np.float64]
) -> None:
    """Write `age_reaching` of the index of Theorem 1 at a level > 0 to `work[0]`.

    It is 0 where the age that was found cannot be confirmed, for `age_reaching` to search. Loops
    without branches, and with few calls each, are vectorised.

    Arguments:
        scale, decay: (K,).
        work: (4, W), W ≥ K; the other rows are temporary.
    """
    age, z, missing, slope = work[0], work[1], work[2], work[3]
    n = len(scale)
    for j in range(n):
        missing[j] = time_constants(min(level / scale[j], _BELOW_1))
        slope[j] = 1.0 - decayed(decay[j])[1]
    for j in range(n):
        z[j] = np.sqrt(2.0 * missing[j]) + missing[j]
    for _ in range(_STEPS):
        for j in range(n):
            more = slope[j] * z[j]
            ahead = 1.0 + more
            excess = z[j] - time_constants(more / ahead) - missing[j]
            z[j] = max(z[j] - excess * ahead / max(ahead - slope[j], _TINY), 0.0)
    for j in range(n):
        root = np.sqrt(2.0 * missing[j])
        short = root < _SHORT
        constants = root * (1.0 + root / 3.0) if short else z[j]
        k = constants / decay[j] - (0.5 if short else 0.0)
        age[j] = np.ceil(min(max(k, 1.0), float(NEVER)))
    for _ in range(2):
        for j in range(n):
            reached = age_index(age[j] - 1.0, decay[j], 1.0 - slope[j], scale[j]) >= level
            age[j] -= 1.0 if reached else 0.0
    for j in range(n):
        reached = age_index(age[j] - 1.0, decay[j], 1.0 - slope[j], scale[j]) >= level
        found = 0.0 if reached else age[j]
        age[j] = found if level <= scale[j] else np.inf


@compiled
def _whole(age: float) -> float:
    """Return the age rounded up to a whole number from 1 to `NEVER`."""
    return np.ceil(min(max(age, 1.0), float(NEVER)))


@compiled
def slope_of(decay: float) -> float:
    """Return (1 − α)/m, m = `decay`."""
    return 1.0 - decayed(decay)[1]


@compiled
def constants_reaching(fraction: float, slope: float, steps: int) -> float:
    """Return z with 1 − e^(−z)(1 + slope·z) = fraction, for fraction in [0, 1), slope in (0, 1].

    Newton's steps from above for the convex function z − ln(1 + slope·z) + ln(1 − fraction). For
    very small z it is the solution at slope 1.
    """
    missing = time_constants(fraction)
    root = np.sqrt(2.0 * missing)
    z = root + missing
    for _ in range(steps):
        more = slope * z
        ahead = 1.0 + more
        z -= (z - time_constants(more / ahead) - missing) * ahead / max(ahead - slope, _TINY)
        z = max(z, 0.0)
    return root * (1.0 + root / 3.0) if root < _SHORT else z
