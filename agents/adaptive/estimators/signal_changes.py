"""Changes of the signals that nobody announces: of the precision of pings, and pings that cease.

**Precision.** In each step the precision of a source is replaced with a small probability, the
hazard, so that few crawls outweigh a long past that they contradict (`share`). But what sends the
pings of a fleet often changes for many sources at once, as where a hub breaks, and a crawl of one
source then tells about the others. The hypothesis that the precision of all sources has become p at
some time is compared with the current estimates by the likelihood of the crawls since (`compare`):
its posterior odds satisfy the recursion of Shiryaev (1963),

    R ← (R + hazard · prior) · P(crawl | p) / P(crawl),

for each p. Once a change is more likely than none, all precisions are replaced (`replaced`).

**Silence.** Pings at rate g that have ceased at a random time are to be told from a pause. After a
silence of s the odds are (hazard/g)(e^{gs} − 1), of a source or, with the sum of all g, of the
fleet; `listen` asks for odds of 4. The items arrive as before, only unannounced: Λ_s becomes
Λ_s + pg (`transfer`), until a ping comes again.
"""

from __future__ import annotations

import numpy as np

from crawl_env.compiled import compiled, inlined
from crawl_env.numerics import BoolArray, FloatArray, IntArray

_MOST_RATIO = 100.0  # of the odds by one crawl, so that no single outlier decides
_LEAST = -600.0  # logarithm of odds
_CLEAR = 4.0  # odds from which pings are believed to have ceased
_ANY = 0.1  # probability, after a change, that the precision of a source is not like the others'
_TINY = 1e-300


def no_change(shape: tuple[int, ...]) -> FloatArray:
    """Return the logarithms of the odds, (..., J), before any crawl."""
    return np.full(shape, _LEAST)


def passed(odds: FloatArray, hazard: float) -> FloatArray:
    """Return the odds, (..., J), after a time in which a change has the probability `hazard`."""
    if hazard == 0:
        return odds.copy()
    return np.asarray(np.logaddexp(odds, np.log(hazard / odds.shape[-1])))


def is_likely(odds: FloatArray) -> BoolArray:
    """Return whether each fleet, (...), has more likely changed than not."""
    return np.asarray(np.logaddexp.reduce(odds, axis=-1) > 0.0)


def replaced(odds: FloatArray) -> FloatArray:
    """Return the probabilities of the precisions, (..., J), of sources of fleets that changed.

    Arguments:
        odds: (..., J), of which some are positive.
    """
    new = np.exp(odds - odds.max(axis=-1, keepdims=True))
    new /= new.sum(axis=-1, keepdims=True)
    return (1.0 - _ANY) * new + _ANY / new.shape[-1]


@inlined
def share(
    cell: int, row: int, changed: float, likelihood: FloatArray, fraction: FloatArray
) -> None:
    """Replace the precision of a source, with the probability `changed`, by one of Beta(½, ½)."""
    most, total = -np.inf, 0.0
    for j in range(likelihood.shape[1]):
        most = max(most, likelihood[cell, j])
    for j in range(likelihood.shape[1]):
        likelihood[cell, j] = np.exp(likelihood[cell, j] - most)
        total += fraction[row, j] * likelihood[cell, j]
    part = changed / likelihood.shape[1]
    for j in range(likelihood.shape[1]):
        kept = (1.0 - changed) * likelihood[cell, j] / total + part / fraction[row, j]
        likelihood[cell, j] = np.log(max(kept, _TINY))


@inlined
def compare(logs: FloatArray, chance: FloatArray, odds: FloatArray) -> None:
    """Update the odds of a fleet, (J,), by one crawl.

    Arguments:
        logs: (J,) logarithms of the probability of what was found given each precision.
        chance: (J,) probabilities of the precisions before the crawl.
    """
    most, expected = -np.inf, 0.0
    for j in range(logs.size):
        most = max(most, logs[j])
    for j in range(logs.size):
        expected += chance[j] * np.exp(logs[j] - most)
    for j in range(logs.size):
        ratio = min(np.exp(logs[j] - most) / max(expected, _TINY), _MOST_RATIO)
        odds[j] = max(odds[j] + np.log(max(ratio, _TINY)), _LEAST)


@compiled
def listen(
    arrived: FloatArray,
    time: float,
    hazard: float,
    elapsed: FloatArray,
    pings: FloatArray,
    silence: FloatArray,
    ceased: FloatArray,
) -> IntArray:
    """Update silences by the pings of a step, and find those that cease or come again.

    Returns the sources, flat positions in (B, N), of which `ceased` changes; the caller changes it.

    Arguments:
        arrived: number of pings, (B, N).
        time: length of the step.
        hazard: rate at which pings cease, 1 / time.
        elapsed, pings: time, (B,), and number of pings, (B, N), that tell the rate of pings g.
        silence: time since the last ping, (B, N), changed in place.
        ceased: rate of the pings that have ceased, (B, N); 0 of sources whose pings come.
    """
    found = np.empty(arrived.size, dtype=np.int64)
    number, n = 0, arrived.size // elapsed.size
    for row in range(elapsed.size):
        total, since, most = 0.0, np.inf, max(elapsed[row], _TINY)
        for i in range(row * n, (row + 1) * n):
            silence[i] = 0.0 if arrived[i] > 0.0 else silence[i] + time
            since = min(since, silence[i])
            if ceased[i] == 0.0:
                total += pings[i] / most
        everywhere = has_ceased(total, since, hazard)
        for i in range(row * n, (row + 1) * n):
            if ceased[i] > 0.0:
                changes = arrived[i] > 0.0
            else:
                rate = pings[i] / most
                changes = rate > 0.0 and (everywhere or has_ceased(rate, silence[i], hazard))
            if changes:
                found[number] = i
                number += 1
    return found[:number]


@inlined
def has_ceased(rate: float, silence: float, hazard: float) -> bool:
    missed = rate * silence
    return missed > 1.0 and hazard * np.expm1(min(missed, 600.0)) > _CLEAR * rate


@compiled
def transfer(
    cells: IntArray,
    row: IntArray,
    ping_rate: FloatArray,
    weight: FloatArray,
    prior_rate: FloatArray,
    precisions: FloatArray,
    more_shape: FloatArray,
    more_rate: FloatArray,
) -> None:
    """Add p times the rate of pings, (K,), which may be negative, to the silent rates of sources
    given each precision p; the tables are (B·N, J)."""
    for k in range(cells.size):
        w = weight[row[k]]
        for j in range(precisions.size):
            b = prior_rate[row[k]] + w * more_rate[cells[k], j]
            more = more_shape[cells[k], j] + precisions[j] * ping_rate[k] * b / w
            more_shape[cells[k], j] = max(more, 0.0)
