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
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from agents.theory.closed_form import (
    age_index,
    ages_reaching,
    continuous_age_reaching,
    decayed,
    retried_age_index,
    retried_age_reaching,
    retries,
    time_constants,
)
from crawl_env.compiled import compiled, inlined
from crawl_env.content.draws import gamma, mixed

WHITTLE, MYOPIC, STATIC, AGE = range(4)
NEVER = 10**9  # age of a source never crawled, `crawl_env.content.world.NEVER`
_ROUNDED = 1.0 - 1e-12  # of a level that no index below the age exceeds by rounding
LEAST_RATE = 1e-12  # items / step, as in `agents.adaptive`
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the increment of a stream

_NONE = np.zeros(0, np.float32)


class Columns(Protocol):
    """The parameters of a fleet, as `crawl_env.fleet` has them; arrays may be memory-mapped."""

    @property
    def arrival_rate(self) -> NDArray[Any]: ...
    @property
    def mean_utility(self) -> NDArray[Any]: ...
    @property
    def decay_rate(self) -> NDArray[Any]: ...
    @property
    def cost(self) -> NDArray[Any] | None: ...
    @property
    def period(self) -> float: ...
    def __len__(self) -> int: ...


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


def parameters_of(columns: Columns, kind: int, part: slice = slice(None)) -> Parameters:
    """Return what an index is computed from, of a fleet or of a part of it; columns that hold
    nothing but the default are left out."""
    rate = np.asarray(columns.arrival_rate[part])

    def optional(name: str, default: float, dtype: np.dtype[Any]) -> NDArray[Any]:
        column = getattr(columns, name, None)
        if column is not None:
            array = np.asarray(column[part])
            if not array.min() == default == array.max():
                return fixed(array.astype(dtype, copy=False))
        return fixed(np.zeros(0, dtype))

    return Parameters(
        fixed(rate),
        fixed(np.asarray(columns.mean_utility[part])),
        fixed(np.asarray(columns.decay_rate[part])),
        optional("cost", 1.0, rate.dtype),
        optional("failure_rate", 0.0, rate.dtype),
        optional("delay", 1.0, np.dtype(np.uint32)),
        kind,
        float(columns.period),
        0.0,
    )


@compiled
def signed(number: Any) -> int:
    """Return a number as a signed integer of 64 bits, in which steps are computed."""
    result: Any = np.int64(number)
    return result


@inlined
def cost_of(parameters: Parameters, i: int) -> float:
    """Return the cost of source i."""
    return np.float64(parameters.cost[i]) if parameters.cost.size else 1.0


@inlined
def failures_of(parameters: Parameters, i: int) -> tuple[float, float]:
    """Return the probability that a crawl of source i fails, and the steps after which it may be
    crawled again."""
    fail = np.float64(parameters.failure_rate[i]) if parameters.failure_rate.size else 0.0
    delay = np.float64(parameters.delay[i]) if parameters.delay.size else 1.0
    return fail, delay


@compiled
def scale_of(parameters: Parameters, i: int) -> float:
    """Return the scale of the index of source i."""
    if parameters.kind == AGE:
        return 1.0
    full = rate_of(parameters, i) * np.float64(parameters.mean_utility[i])
    full /= np.float64(parameters.decay_rate[i])
    full /= cost_of(parameters, i)
    if parameters.kind != STATIC:
        return full
    fail, delay = failures_of(parameters, i)
    if not parameters.multiplier < full * (1.0 - fail):
        return 0.0
    constants = continuous_age_reaching(parameters.multiplier, full * (1.0 - fail))
    return 1.0 / max(constants / decay_of(parameters, i), delay)


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
def draw_rate(parameters: Parameters, i: int, seed: int, step: int) -> None:
    """Draw the arrival rate of source i from its posterior; it depends on (seed, i, step) only."""
    key = mixed(np.uint64(step) + mixed(np.uint64(i) + _GOLDEN) + _GOLDEN)
    state = np.array([np.uint64(seed) + key, _GOLDEN])
    shape = parameters.prior_shape + np.float64(parameters.items[i])
    rate = parameters.prior_rate + np.float64(parameters.exposure[i]) * parameters.period
    parameters.drawn[i] = max(gamma(state, shape) / rate, LEAST_RATE / parameters.period)


@compiled
def draw_rates(parameters: Parameters, seed: int, step: int) -> None:
    """Draw the arrival rates of all sources."""
    for i in range(parameters.drawn.size):
        draw_rate(parameters, i, seed, step)


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
        at = signed(crawled_at[j])
        age = float(now - at) if at > 0 else np.inf
        out[j] = age_index(age, decay[j], decayed(decay[j])[1], scale[j])


@compiled
def is_plain(parameters: Parameters) -> bool:
    """Return whether the index is Theorem 1 for all sources, for which loops are vectorised."""
    return parameters.kind == WHITTLE and parameters.failure_rate.size == 0


@compiled
def index_at(parameters: Parameters, i: int, scale: float, decay: float, age: float) -> float:
    """Return the index of source i at a whole age, given its `scale_of` and `decay_of`."""
    kind = parameters.kind
    if kind in (STATIC, AGE):
        return scale * age
    age = np.inf if age >= NEVER else age
    fail, delay = failures_of(parameters, i)
    if kind == MYOPIC:
        return scale * -math.expm1(-age * decay) * (1.0 - fail)
    if fail == 0.0:
        return age_index(age, decay, decayed(decay)[1], scale)
    failing = retries(fail, delay, decay)
    return retried_age_index(age, decay, decayed(decay)[1], scale, failing)


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
    if kind == MYOPIC:
        fraction = level / scale / (1.0 - fail)
        return _whole(time_constants(min(fraction, 1.0) * _ROUNDED) / decay)
    failing = retries(fail, delay, decay)
    return _whole(retried_age_reaching(level, decay, decayed(decay)[1], scale, failing))


@compiled
def plain_ages_reaching(
    scale: NDArray[np.float64], decay: NDArray[np.float64], level: float, work: NDArray[np.float64]
) -> None:
    """Write `age_reaching` of the index of Theorem 1 at a level > 0 to `work[0]`.

    Arguments:
        scale, decay: (K,).
        work: (4, W), W ≥ K; the other rows are temporary.
    """
    age = work[0, : len(scale)]
    age[:] = level
    ages_reaching(age, decay, scale, work[1:])
    for j in range(len(scale)):
        age[j] = min(age[j], float(NEVER)) if level <= scale[j] else np.inf


@compiled
def _whole(age: float) -> float:
    """Return the age rounded up to a whole number from 1 to `NEVER`."""
    return np.ceil(min(max(age, 1.0), float(NEVER)))
