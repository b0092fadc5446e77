"""Whether a source answers: what its failures say, and when it is worth trying again.

A source that has failed is down, and comes back after a time whose distribution is a mixture of
exponentials: glitches, outages of hours, days and weeks, and the end, from which hardly any source
recovers. With the prior weights w_k of these, which depend on what went wrong, and their rates of
recovery ρ_k, a source that has been down for a time T is of kind k with the posterior weight
v_k ∝ w_k e^(−ρ_k T): the longer it has been down, the longer it will be. A time s after the last
attempt, a fetch is answered with the probability

    p(s) = Σ v_k (1 − e^(−ρ_k s)),

and ∫ p(r) dr over [0, s] is the expected time for which the source has been back unnoticed. Among
sources that have never answered, the weight of the end is the share of the fleet that has not, so
that a list full of dead addresses is soon recognised as such.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from crawl_env.compiled import compiled
from ephemeral_crawl.live.columns import NEVER, Sources
from ephemeral_crawl.live.learning import Shared, is_guess
from ephemeral_crawl.live.reasons import LEARNT, UNREACHED

# ρ_k, per second: of glitches, of outages of hours, days and weeks, and of the end.
RECOVERY = 1.0 / np.array([600.0, 10_800.0, 129_600.0, 1_728_000.0, 31_536_000.0])
_END = len(RECOVERY) - 1
_WEIGHT = np.array([0.6, 0.25, 0.08, 0.04, 0.03])  # w_k of sources that have answered before
_FAILING = 0.05  # share of attempts at sources that do answer that fail
# How likely each cause is in failures of each kind, up to a factor.
_LIKELY = {
    "unknown": (1.0, 1.0, 1.0, 1.0, 1.0),
    "dns": (0.1, 0.2, 0.6, 0.8, 1.0),
    "connection": (0.5, 1.0, 0.8, 0.6, 0.5),
    "timeout": (1.0, 1.0, 0.5, 0.4, 0.3),
    "content": (0.1, 0.2, 0.5, 0.8, 1.0),
    "missing": (0.05, 0.1, 0.4, 0.7, 1.0),  # 404
    "gone": (0.005, 0.01, 0.05, 0.2, 1.0),  # 410
    "refused": (0.1, 0.2, 0.4, 0.7, 1.0),  # other 4xx, or by rules of one's own
    "busy": (1.0, 0.3, 0.05, 0.03, 0.02),  # 429
    "server": (1.0, 1.0, 0.5, 0.3, 0.2),  # 5xx
    # Many different sources in a row have failed: it is more likely one's own network.
    "network": (1.0, 1.0, 0.1, 0.01, 0.001),
}
_LIKELIHOOD = np.array([_LIKELY[cause] for cause in LEARNT])
NETWORK = LEARNT.index("network")
_UNREACHED = len(UNREACHED)  # these come first
_NETWORK_ODDS = math.log(0.01)  # that an attempt begins an outage of one's own network
_LEAST_RUN = 5.0  # sources that have failed in a row
Weights = NDArray[np.float64]  # (5,)
_SOON = 86_400.0  # seconds
DEAD = 30.0 * 86_400.0  # seconds; what does not answer for so long is called dead
_ROUNDS = 14  # halvings of an interval of times
_LONGEST = 1e10  # seconds


@compiled
def is_unreached(cause: int) -> bool:
    """Return whether a failure may be due to one's own network: nobody has answered."""
    return cause < _UNREACHED


@compiled
def is_own_network(shared: Shared, run: float) -> bool:
    """Return whether it is more likely one's own network that fails, after so many different
    sources in a row have: by chance they do so with (1 − a)^run, if a share a of them answers."""
    fail = math.log(min(max(1.0 - shared.answering, 0.1), 0.9))
    return run >= _LEAST_RUN and run * fail < _NETWORK_ODDS


@compiled
def more_telling(cause: int, other: int) -> bool:
    """Return whether a cause is stronger evidence than another that a source has ended."""
    ratio = _LIKELIHOOD[cause, _END] * _LIKELIHOOD[other, 0]
    return ratio > _LIKELIHOOD[other, _END] * _LIKELIHOOD[cause, 0]


@compiled
def has_answered(sources: Sources, i: int) -> bool:
    """Return whether source i has answered, or a log of its items was taught."""
    return sources.fetched[i] != NEVER or not is_guess(sources, i)


@compiled
def weights(sources: Sources, shared: Shared, i: int) -> Weights:
    """Return the posterior weights v of the kinds of failure of source i, which has failed."""
    down, cause = np.float64(sources.down[i]), sources.cause[i]
    answered = has_answered(sources, i)
    v, total = np.empty(_END + 1), 0.0
    for k in range(_END + 1):
        weight = _WEIGHT[k]
        if not answered:
            weight *= _FAILING * shared.answering
            if k == _END:
                weight += 1.0 - shared.answering
        v[k] = weight * _LIKELIHOOD[cause, k] * np.exp((RECOVERY[_END] - RECOVERY[k]) * down)
        total += v[k]
    return v / total


@compiled
def back(v: Weights, since: float) -> float:
    """Return the probability p that a source is back a time after the last attempt, seconds."""
    p = 0.0
    for k in range(_END + 1):
        p -= v[k] * np.expm1(-RECOVERY[k] * since)
    return p


@compiled
def unnoticed(v: Weights, since: float) -> float:
    """Return the expected time for which a source has been back, a time after the last attempt."""
    total = 0.0
    for k in range(_END + 1):
        x = RECOVERY[k] * since
        away = x * x * (0.5 - x / 6.0) if x < 1e-4 else x + np.expm1(-x)
        total += v[k] * away / RECOVERY[k]
    return total


@compiled
def unnoticed_for(v: Weights, time: float) -> float:
    """Return the time s after the last attempt at which `unnoticed` is a time, to 1e-4.

    >>> v = np.array([0.6, 0.25, 0.08, 0.04, 0.03])
    >>> round(unnoticed(v, unnoticed_for(v, 3600.0)) / 3600.0, 3)
    1.0
    """
    low = high = max(time, 1.0)
    while unnoticed(v, high) < time:
        low, high = high, 2.0 * high
        if high > _LONGEST:
            return np.inf
    for _ in range(_ROUNDS):
        middle = 0.5 * (low + high)
        if unnoticed(v, middle) < time:
            low = middle
        else:
            high = middle
    return high


@compiled
def answering(sources: Sources, shared: Shared, i: int, now: float) -> float:
    """Return the probability that source i answers now."""
    if sources.failures[i] > 0:
        return back(weights(sources, shared, i), max(now - sources.tried[i], 0.0))
    return 1.0 if has_answered(sources, i) else shared.answering


@compiled
def answering_soon(sources: Sources, shared: Shared, i: int, now: float) -> float:
    """Return the mean probability that source i answers, over the next day."""
    if sources.failures[i] == 0:
        return answering(sources, shared, i, now)
    v, since = weights(sources, shared, i), max(now - sources.tried[i], 0.0)
    return min((unnoticed(v, since + _SOON) - unnoticed(v, since)) / _SOON, 1.0)


@compiled
def dead(sources: Sources, shared: Shared, i: int) -> float:
    """Return the probability that source i, if it has failed, does not answer for another month."""
    return 1.0 - back(weights(sources, shared, i), DEAD) if sources.failures[i] > 0 else 0.0


@compiled
def tried_at(sources: Sources, i: int) -> float:
    """Return the time of the last attempt at source i, or NEVER."""
    return sources.tried[i] if sources.failures[i] > 0 else sources.fetched[i]
