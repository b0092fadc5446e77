"""Signals: what is expected at a source beyond what its age tells, until it is crawled.

The belief of a source is x = u*(1 − α^k) + e α^s: k steps after its crawl, with an expected utility
of e from its signals, s steps after the last. Its index is that of x, and the calendar has the step
in which that reaches the level.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.scheduling.age_index import (
    AGE,
    MYOPIC,
    NEVER,
    STATIC,
    Parameters,
    cost_of,
    failures_of,
    gather,
    index_at,
    read_scales,
    signed,
)
from agents.scheduling.calendar import BATCH, LATEST
from agents.theory.closed_form import (
    content_index,
    decayed,
    retries,
    share_reaching,
    theorem_1,
    time_constants,
)
from crawl_env.compiled import compiled, inlined
from crawl_env.numerics import FloatArray

_BELOW_1 = 1.0 - 2.0**-53
_ROUNDED = 1.0 - 1e-12  # of a time that no index below the level exceeds by rounding
_GONE = 100.0  # time constants after which nothing of a signal is left, e^−100 = 4e-44


class Signals(NamedTuple):
    """What is expected from the signals of each source; no elements before the first signal."""

    utility: FloatArray  # (N,) e, at the step of the last signal; 0 without signals since the crawl
    at: NDArray[np.uint32]  # (N,) the step of the last signal

    @staticmethod
    def empty(n: int) -> Signals:
        """Return no signals of n sources. Memory is taken where signals are written.

        The two elements of a source are neighbours, which are read at once.
        """
        pairs = np.zeros(n, np.dtype([("utility", np.float64), ("at", np.uint32)], align=True))
        return Signals(pairs["utility"], pairs["at"])


@compiled
def receive(
    parameters: Parameters,
    signals: Signals,
    sources: NDArray[np.uint32],
    utility: FloatArray,
    steps: NDArray[np.int64],
    least: float,
) -> NDArray[np.uint32]:
    """Add signals, (K,), to what is expected; return the sources whose index may reach `least`.

    No age brings the others to it, with all that is expected of them.
    """
    work, reaching, count = np.empty((3, BATCH)), np.empty_like(sources), 0
    for first in range(0, len(sources), BATCH):
        source = sources[first : first + BATCH]
        scale, decay = work[0, : len(source)], work[1, : len(source)]
        read_scales(parameters, source, scale, decay)
        # Read in the loop below from the cache, since reads overlap here alone.
        gather(signals.utility, source, work[2])
        for j in range(len(source)):
            i, step = signed(source[j]), steps[first + j]
            since = float(step - signed(signals.at[i]))
            expectation = utility[first + j] + expected(signals.utility[i], since * decay[j])
            signals.utility[i], signals.at[i] = expectation, step
            reaching[count] = source[j]
            count += scale[j] + expectation / cost_of(parameters, i) >= least
    return reaching[:count]


@inlined
def expected(utility: float, aged: float) -> float:
    """Return the rest of e after so many time constants; 0 after 100, and all before 0."""
    rest = utility * decayed(aged)[0]
    rest = rest if aged <= _GONE else 0.0
    return rest if aged > 0.0 else utility


@compiled
def read_extra(
    parameters: Parameters,
    signals: Signals,
    source: NDArray[np.uint32],
    decay: FloatArray,
    now: int,
    work: FloatArray,
    out: FloatArray,
) -> None:
    """Compute what is expected now from the signals of some sources, (K,), in the unit of
    `scale_of`.

    work: (K,), temporary.
    """
    gather(signals.utility, source, out)
    gather(signals.at, source, work)
    for j in range(len(source)):
        out[j] = expected(out[j], (now - work[j]) * decay[j])
    if parameters.cost.size:
        for j in range(len(source)):
            out[j] /= np.float64(parameters.cost[source[j]])


@inlined
def belief(age: float, decay: float, extra: float, scale: float) -> float:
    """Return x/C at a whole or infinite age, with an expected utility of extra·C more."""
    aged = age * decay
    survival, bend = decayed(aged)
    return scale * (aged - aged * bend if aged < 0.5 else 1.0 - survival) + extra


@compiled
def index_with(
    parameters: Parameters, i: int, scale: float, decay: float, age: float, extra: float
) -> float:
    """Return the index of source i at a whole age with an expected utility of extra·C more.

    It is that of Theorem 1 at the belief x, or q x/C for `MYOPIC`; the other kinds depend on the
    age alone.
    """
    if not extra > 0.0 or parameters.kind in (STATIC, AGE):
        return index_at(parameters, i, scale, decay, age)
    x = belief(np.inf if age >= NEVER else age, decay, extra, scale)
    fail, delay = failures_of(parameters, i)
    if parameters.kind == MYOPIC:
        return x * (1.0 - fail)
    return content_index(x, scale, 1.0, decay, decayed(decay)[1], retries(fail, delay, decay))


@compiled
def plain_indices_with(
    crawled_at: NDArray[np.uint32],
    scale: FloatArray,
    decay: FloatArray,
    extra: FloatArray,
    now: int,
    out: FloatArray,
) -> None:
    """Replace the index without signals, `out` (K,), by `index_with` of Theorem 1 where there are
    some, in step `now`; crawled at 0: never."""
    which, number = np.empty(len(out), np.uint32), 0
    for j in range(len(out)):
        which[number] = j
        number += extra[j] > 0.0
    index, at, full, rate = np.empty((4, number))
    gather(extra, which[:number], index)
    gather(crawled_at, which[:number], at)
    gather(scale, which[:number], full)
    gather(decay, which[:number], rate)
    for j in range(number):
        x = belief(now - at[j] if at[j] > 0.0 else np.inf, rate[j], index[j], full[j])
        index[j] = theorem_1(x, full[j], 1.0, rate[j], decayed(rate[j])[1])
    for j in range(number):
        out[which[j]] = index[j]


@compiled
def dues_with(
    age: FloatArray,
    crawled_at: NDArray[np.uint32],
    scale: FloatArray,
    decay: FloatArray,
    extra: FloatArray,
    now: int,
    level: float,
    plain: bool,
) -> None:
    """Replace the `age_reaching` of a level, (K,), by the steps until which the index, now below
    it, stays below.

    With x < u*, the source is as if crawled k' steps ago, x = u*(1 − α^k'). Its index is below the
    level as long as x is below the content at which it is the level, which is known if the index is
    `plain`; else as long as k' has not passed the last age at which it is. With x ≥ u*, the index
    falls to that of u*, and is never due.
    """
    for j in range(len(age)):
        at = float(crawled_at[j])
        share = belief(now - at, decay[j], extra[j], scale[j]) / scale[j]
        elapsed = time_constants(min(share, _BELOW_1)) / decay[j]
        enough = share_reaching(level, age[j], decay[j], decayed(decay[j])[1], scale[j])
        last = time_constants(max(min(enough, _BELOW_1), 0.0)) / decay[j] * _ROUNDED
        last = max(last, age[j] - 1.0) if plain else age[j] - 1.0
        due = now + max(np.ceil(last - elapsed), 1.0)
        due = due if share < 1.0 else float(LATEST)
        due = due if extra[j] > 0.0 and at > 0.0 else max(at + age[j], now + 1.0)
        age[j] = min(due, float(LATEST)) if age[j] <= NEVER else float(LATEST)
