"""Freshness: the objective of web crawlers that keep copies of pages, and its crawl index.

A page changes as a Poisson process of rate Δ, and its copy is *fresh* from a crawl to the next
change. A crawler of limited bandwidth maximises Σ m × (fraction of time in which the copy is
fresh); m, the importance, is the rate of requests for the page. Here pages are sources, and every
item that a source publishes is a change: Δ = Λ.

**Signals.** A change triggers a ping with probability r (recall), false pings come as a Poisson
process, and a ping is true with probability p (precision), so that the rate of pings is γ = rΔ/p
and that of changes without a ping is a = (1 − r)Δ. A time τ and n pings after a crawl,

    P(fresh) = e^(−aτ) (1 − p)^n = e^−w,    w = aτ + bn,    b = −ln(1 − p).

w is called the *staleness* here. A ping counts as much as the time b/a without one.

**Cycles.** Let a page be crawled as soon as w ≥ θ. With y_n = (θ − bn)/a, the time by which n pings
suffice, and R_n(x) = P(Poisson(x) > n), a cycle has the mean length and the mean fresh time

    L(θ) = Σ R_n(γ y_n) / γ,
    F(θ) = Σ ((1 − p)γ)^n / (a + γ)^(n+1) · R_n((a + γ) y_n)        over all n with y_n > 0.

Since dF = e^−θ dL, the gain in freshness per crawl added, d(mF/L) / d(1/L), is

    V(θ) = m [F − e^−θ L] = m ∫₀^θ e^−w L(w) dw,

the Lagrange multiplier at which crawling now and a little later are equally good: the index of the
page. Without signals V = (m/Δ) [1 − (1 + Δτ) e^−Δτ]. That is the index of ephemeral content of
ceiling u* = m/Δ that decays at rate μ = Δ, crawled continuously: keeping copies fresh is the
problem of this package for another fleet, `as_ephemeral`.

References:
    Busa-Fekete, Zimmert, György, Qiu, Sung, Shen, Choi, Subramaniam & Xiao (2025), A scalable
    crawling algorithm utilizing noisy change-indicating signals, WWW (arXiv 2502.02430): signals,
    thresholds on τ + (b/a)n, and V as the index. The forms for one parameter w, which also hold
    where all changes have pings (a = 0) or no ping is false (b = ∞), and the sums of positive terms
    by which V is computed, were derived for this package.
    Olston & Pandey (2008), Recrawl scheduling based on information longevity, WWW, appendix: V
    without signals.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from agents.theory.closed_form import age_index
from crawl_env import Sources
from crawl_env.compiled import compiled
from crawl_env.errors import check_choice
from crawl_env.numerics import FloatArray

__all__ = ["Cycle", "FreshnessArm", "as_ephemeral", "importance"]

WEIGHTS = ("flow", "ceiling", "utility", "equal")
_CERTAIN = 50.0  # staleness beyond which no digit of the index changes
_SERIES = 40.0  # (a + γ)y up to which a term of the index is summed as a series
_LEAST = 1e-17  # relative size of what need not be added


def importance(sources: Sources, weight: str = "flow") -> FloatArray:
    """Return the importance m of each source, (N,) or (B, N), by the name of a choice.

    Freshness policies take m as given, as the rate of requests for a page. Where items have a
    utility that decays, the choices are

    - "flow", Λξ̄: the utility that the source publishes per unit of time;
    - "ceiling", u* = Λξ̄/μ: the utility that waits at a source that is never crawled;
    - "utility", ξ̄: that of an item;
    - "equal", 1.

    Raises:
        ValueError: the name is unknown.

    >>> importance(Sources([2.0, 3.0], [0.5, 1.0], 0.1))
    array([1., 3.])
    """
    check_choice("weight", weight, WEIGHTS)
    if weight == "flow":
        return np.asarray(sources.arrival_rate * sources.mean_utility)
    if weight == "ceiling":
        return sources.ceiling
    return sources.mean_utility if weight == "utility" else np.ones(sources.arrival_rate.shape)


def as_ephemeral(sources: Sources, weight: str = "flow") -> Sources:
    """Return the fleet of ephemeral content whose collection is the freshness of `sources`.

    Its ceiling is m/Λ and its decay rate is Λ, so that f crawls per unit of time, at equal
    intervals, collect m f (1 − e^(−Λ/f))/Λ: the importance times the fraction of time in which the
    copy is fresh, if changes have no signals (Cho & Garcia-Molina 2003). Sources that publish
    nothing are worth nothing: their copies remain fresh.

    >>> mirrored = as_ephemeral(Sources([2.0, 3.0], [0.5, 1.0], 0.1))
    >>> mirrored.decay_rate, mirrored.ceiling
    (array([2., 3.]), array([0.5, 1. ]))
    """
    live = sources.arrival_rate > 0
    return sources.replaced(
        arrival_rate=np.where(live, importance(sources, weight), 0.0),
        mean_utility=1.0,
        decay_rate=np.where(live, sources.arrival_rate, 1.0),
        capacity=np.inf,
    )


class Cycle(NamedTuple):
    """What happens between two crawls of a page, on average."""

    length: FloatArray  # L, time
    fresh: FloatArray  # F, time in which the copy is fresh


class FreshnessArm:
    """Pages that are crawled when they have probably changed; see the module for the equations.

    Arguments:
        change_rate: Δ, changes / time, ≥ 0; an array (N,), or (B, N) for a batch, or a number.
        recall: r in [0, 1], the probability that a change triggers a ping.
        precision: p in (0, 1], the probability that a ping is true.
        weight: m ≥ 0, the importance.
        cost: C, budget units per crawl.

    >>> arm = FreshnessArm(change_rate=1.0, recall=0.5, precision=0.8)
    >>> arm.index(age=1.5, pings=0).round(4), arm.index(age=0.2, pings=1).round(4)
    (array([0.2646]), array([0.6146]))
    """

    def __init__(
        self,
        change_rate: ArrayLike,
        recall: ArrayLike = 0.0,
        precision: ArrayLike = 1.0,
        weight: ArrayLike = 1.0,
        cost: ArrayLike = 1.0,
    ) -> None:
        columns = np.broadcast_arrays(*np.atleast_1d(change_rate, recall, precision, weight, cost))
        rate, r, p, m, c = (np.asarray(column, dtype=np.float64) for column in columns)
        self.shape = rate.shape
        with np.errstate(divide="ignore"):
            information = -np.log1p(-p)
        live = rate > 0
        full = np.divide(m, rate * c, out=np.zeros(self.shape), where=live)
        # In units of 1/Δ: a/Δ, γ/Δ, b and 1 − p; then Δ and m/(ΔC).
        parts = 1.0 - r, r / p, np.where(r > 0, information, 0.0), 1.0 - p, rate, full
        self._table = np.array([np.atleast_2d(part) for part in parts])

    @staticmethod
    def of(sources: Sources, weight: str = "flow") -> FreshnessArm:
        """Return the arm of a fleet, or of a batch of fleets; a crawl that fails is repeated."""
        return FreshnessArm(
            sources.arrival_rate,
            sources.recall,
            sources.precision,
            importance(sources, weight),
            sources.cost / (1.0 - sources.failure_rate),
        )

    def index(self, age: ArrayLike, pings: ArrayLike = 0.0) -> FloatArray:
        """Return V/C, (..., N) weight × time / budget unit, `age` units of time and n `pings` after
        a crawl.

        Accurate to 1e-12 of itself for precisions from .01 on. It takes some .1 µs for each of the
        1 + ⌊w/b⌋ terms of the sum; an infinite age stands for a page without a copy.
        """
        shape = np.broadcast_shapes(np.shape(age), np.shape(pings), self.shape)
        rows = (-1, shape[-1])
        time, count = (
            np.ascontiguousarray(np.broadcast_to(x, shape), dtype=np.float64).reshape(rows)
            for x in (age, pings)
        )
        index = np.empty(time.shape)
        _indices(time, count, self._table, index)
        return index.reshape(shape)

    def cycle(self, threshold: ArrayLike) -> Cycle:
        """Return mean length and fresh time of cycles that end when w ≥ `threshold` > 0, (..., N).

        Where all changes have pings the threshold is reached by pings only.
        """
        shape = np.broadcast_shapes(np.shape(threshold), self.shape)
        theta = np.ascontiguousarray(np.broadcast_to(threshold, shape), dtype=np.float64)
        theta = theta.reshape(-1, shape[-1])
        length, fresh = np.empty(theta.shape), np.empty(theta.shape)
        _cycles(theta, self._table, length, fresh)
        return Cycle(length.reshape(shape), fresh.reshape(shape))


# ---------------------------------------------------------------------------- of one page, Δ = 1


@compiled
def _indices(age: FloatArray, pings: FloatArray, table: FloatArray, out: FloatArray) -> None:
    """age, pings, out: (R, N); table: (6, P, N), whose row r % P is that of r."""
    for r in range(len(age)):
        at = r % table.shape[1]
        for i in range(age.shape[1]):
            rate, full = table[4, at, i], table[5, at, i]
            out[r, i] = 0.0
            if full > 0.0:
                value = 1.0
                if age[r, i] < np.inf:
                    value = _value(
                        rate * age[r, i],
                        pings[r, i],
                        table[0, at, i],
                        table[1, at, i],
                        table[2, at, i],
                        table[3, at, i],
                    )
                out[r, i] = full * value


@compiled
def _value(
    age: float, pings: float, silent: float, pinged: float, information: float, miss: float
) -> float:
    """Return V of a page with m = Δ = 1.

    V = ∫ e^−w L(w) dw is a sum of positive terms, one for each n with y = y_n > 0:

        (1 − p)^n ∫₀^y a e^(−at) R_n(γt)/γ dt = (1 − p)^n T_n/γ,
        T_n = (γ/(a+γ))^(n+1) R_n((a+γ)y) − e^(−ay) R_n(γy).

    Near y = 0 the two parts of T_n cancel. With x = γy and z = (a + γ)y, their series in k combine
    to e^−z Σ x^(n+1) (z^j − x^j)/(n+1+j)! over j ≥ 1, whose terms are positive; and z^j − x^j = ay
    Σ z^i x^(j−1−i) needs no difference either.

    Arguments:
        age: Δτ.
        pings: n.
        silent, pinged: a/Δ and γ/Δ.
        information: b, infinite if no ping is false.
        miss: 1 − p.
    """
    silence = silent * age
    if pinged == 0.0:
        return age_index(silence, 1.0, 0.0, 1.0)
    if silence >= _CERTAIN or (pings > 0.0 and silence + pings * information >= _CERTAIN):
        return 1.0
    total, weight = 0.0, 1.0
    ratio = pinged / silent  # infinite if all changes have pings
    growth = math.log1p(silent / pinged)
    n = 0
    while weight > 0.0:
        aged = silence  # a y
        if n != pings:
            aged = silence + (pings - n) * information
        if not aged > 0.0:
            break
        x, z = aged * ratio, aged * (1.0 + ratio)
        if z <= _SERIES:
            term = _near(n, aged / silent, aged, x, z)
        else:
            term = _far(n, aged, x, z, growth) / pinged
        total += weight * term
        if weight * term < _LEAST * total:
            break
        weight *= miss
        n += 1
    return total


@compiled
def _near(n: int, y: float, aged: float, x: float, z: float) -> float:
    """Return T_n/γ by the series of positive terms."""
    exponent = -z - math.lgamma(n + 3.0)
    if n > 0:
        if x == 0.0:
            return 0.0
        exponent += n * math.log(x)
    both, single, total, k = 1.0, x, 1.0, n + 2.0
    while True:
        k += 1.0
        both = (z * both + single) / k
        single *= x / k
        total += both
        if both < _LEAST * total and k > z:
            break
    return math.exp(exponent) * aged * y * total


@compiled
def _far(n: int, aged: float, x: float, z: float, growth: float) -> float:
    """Return T_n by its two parts; `growth` is ln(1 + a/γ)."""
    spread = (n + 1.0) * growth
    if not x > n + 2.0:
        return math.exp(-spread) * _above(n, z) - math.exp(-aged) * _above(n, x)
    if aged - spread > 1.0:
        most = math.exp(-spread) - math.exp(-aged)
    else:
        most = math.exp(-aged) * math.expm1(aged - spread)
    return most - math.exp(-spread) * _below(n, z) + math.exp(-aged) * _below(n, x)


@compiled
def _above(n: int, x: float) -> float:
    """Return P(Poisson(x) > n)."""
    if not x > 0.0:
        return 0.0
    if x > n + 2.0:
        return 1.0 - _below(n, x)
    term = math.exp((n + 1.0) * math.log(x) - x - math.lgamma(n + 2.0))
    total, k = term, n + 1.0
    while term > _LEAST * total:
        k += 1.0
        term *= x / k
        total += term
    return total


@compiled
def _below(n: int, x: float) -> float:
    """Return P(Poisson(x) ≤ n) for x > n."""
    if x == np.inf:
        return 0.0
    term = math.exp(n * math.log(x) - x - math.lgamma(n + 1.0))
    total, k = term, float(n)
    while k > 0.0 and term > _LEAST * total:
        term *= k / x
        total += term
        k -= 1.0
    return total


@compiled
def _cycles(theta: FloatArray, table: FloatArray, length: FloatArray, fresh: FloatArray) -> None:
    """theta, length, fresh: (R, N); table: (6, P, N), whose row r % P is that of r."""
    for r in range(len(theta)):
        at = r % table.shape[1]
        for i in range(theta.shape[1]):
            rate = table[4, at, i]
            both = _cycle(
                theta[r, i], table[0, at, i], table[1, at, i], table[2, at, i], table[3, at, i]
            )
            length[r, i], fresh[r, i] = both[0] / rate, both[1] / rate


@compiled
def _cycle(
    theta: float, silent: float, pinged: float, information: float, miss: float
) -> tuple[float, float]:
    """Return L and F of a page with Δ = 1."""
    if pinged == 0.0:
        return theta / silent, -math.expm1(-theta) / silent
    length, fresh, weight, n = 0.0, 0.0, 1.0 / (silent + pinged), 0
    ratio = pinged / silent
    while True:
        aged = theta
        if n > 0:
            aged = theta - n * information
        # A threshold that is a multiple of b is reached by that many pings, whatever the rounding.
        if not aged > 1e-14 * theta:
            break
        if n == 0:
            longer = -math.expm1(-aged * ratio) / pinged
            fresher = -math.expm1(-aged * (1.0 + ratio))
        else:
            longer = _above(n, aged * ratio) / pinged
            fresher = _above(n, aged * (1.0 + ratio))
        length += longer
        fresh += weight * fresher
        if longer < _LEAST * length:
            break
        weight *= miss * pinged / (silent + pinged)
        n += 1
    return length, fresh
