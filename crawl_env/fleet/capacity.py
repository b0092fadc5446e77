"""Mean content of sources that show only their last K items, so that older items are lost."""

from __future__ import annotations

from math import exp, expm1, lgamma, log, log1p, sqrt

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.compiled import compiled
from crawl_env.numerics import FloatArray

_NOTHING = -40.0  # logarithm of a negligible fraction
_MOST_TERMS = 1000  # of the sum over items; an integral replaces longer sums
_MANY = -1.0  # in place of a fraction: it takes that integral
_MOST_WORK = 1e8  # cells of the table × terms, half a second
_MOST_CELLS = 2e7  # of the table, 160 MB

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)  # on [−1, 1]
_DEVIATIONS, _BEYOND = 9.0, 40.0  # above the mean of a Poisson variable, practically never reached
_WIDE = 10.0  # standard deviations that contain a gamma variable of large shape


class CappedContent:
    """Mean content as a function of age, for sources with a finite capacity, (..., n).

    Ages in whole periods are looked up in a table, which is computed once unless it is too large.

    >>> last_three = CappedContent(*np.array([[5.0], [1.0], [0.2], [3.0]]), period=1.0)
    >>> last_three([[1], [2], [np.inf]]).round(3).ravel()
    array([2.641, 2.773, 2.775])
    """

    def __init__(
        self,
        arrival_rate: FloatArray,
        mean_utility: FloatArray,
        decay_rate: FloatArray,
        capacity: FloatArray,
        period: float,
    ) -> None:
        self._parameters = arrival_rate, decay_rate, capacity
        self._ceiling = arrival_rate * mean_utility / decay_rate
        self._period = period
        # Sources that differ only in their mean utility share one column of the table.
        kinds, place = np.unique(
            np.stack(self._parameters).reshape(3, -1), axis=1, return_inverse=True
        )
        self._place = place.reshape(self._ceiling.shape)
        rate, decay, most = kinds
        # Constant to within rounding: older items have no utility, or K items have arrived.
        with np.errstate(over="ignore"):
            turnover = poisson_upper_bound(most) / (rate + decay)
            longest = np.ceil(np.minimum(-_NOTHING / decay, turnover).max() / period) + 1
        self._fraction = np.empty((0, kinds.shape[1]))
        terms = np.minimum(most, _MOST_TERMS).max()
        cells = longest * kinds.shape[1]
        if cells <= _MOST_CELLS and cells * terms <= _MOST_WORK:
            ages = np.append(np.arange(longest), np.inf)[:, None]
            self._fraction = capped_fraction(ages * period, rate, decay, most)

    def __call__(self, age: ArrayLike) -> FloatArray:
        """Return the mean content `age` periods after a crawl, broadcast to (..., n)."""
        age = np.asarray(age, dtype=np.float64)
        rows = len(self._fraction) - 1
        if rows < 0 or not np.all((age >= rows) | (age == np.floor(age))):
            with np.errstate(over="ignore"):
                time = age * self._period
            return self._ceiling * capped_fraction(time, *self._parameters)
        row = np.minimum(age, rows).astype(int)
        content: FloatArray = self._ceiling * self._fraction[row, self._place]
        return content


def capped_fraction(
    time: ArrayLike, arrival_rate: FloatArray, decay_rate: FloatArray, capacity: FloatArray
) -> FloatArray:
    """Return the mean content of a source that shows only its last K items, as a fraction of u*.

    The n-th last of Poisson arrivals is Erlang(n, Λ) old, so the fraction is

        (μ/Λ) Σ_{n≤K} r^n P(n, (Λ+μ)·time),  r = Λ/(Λ+μ),

    where P is the regularised lower incomplete gamma function. Terms are positive, so there is no
    cancellation; terms below 1e-17 are left out. If many remain, the equivalent
    E[1 − exp(−μ·min(time, S))] is computed by quadrature, where S ~ Gamma(K, Λ) is the age of the
    K-th last item; see `_many_items`. The fraction is 1 − exp(−μ·time) for K = ∞ and 0 for Λ = 0.

    Arguments broadcast, and the result has their shape. The relative error stays below 1e-12 for
    μ·time from 1e-300 to 1e3, and the work is bounded for all arguments.

    >>> capped_fraction([1.0, np.inf], np.array(5.0), np.array(0.2), np.array(3.0)).round(4)
    array([0.1057, 0.111 ])
    """
    values = [np.asarray(v, dtype=np.float64) for v in (time, arrival_rate, decay_rate, capacity)]
    shape = np.broadcast_shapes((1,), *(v.shape for v in values))
    own = np.broadcast_shapes((1,), *(v.shape for v in values[1:]))
    if shape[len(shape) - len(own) :] != own:
        own = shape
    table = np.stack([np.broadcast_to(v, own) for v in values[1:]]).reshape(3, -1, own[-1])
    width = values[0].shape[-1] if values[0].ndim else 1
    times = np.ascontiguousarray(np.broadcast_to(values[0], (*shape[:-1], width)))
    fraction = np.empty(shape)
    if _each_fraction(times.reshape(-1, width), table, fraction.reshape(-1, shape[-1])):
        many = fraction == _MANY
        fraction[many] = _many_items(*(np.broadcast_to(v, shape)[many] for v in values))
    return fraction.reshape(np.broadcast_shapes(*(v.shape for v in values)))


@compiled
def _each_fraction(time: FloatArray, table: FloatArray, out: FloatArray) -> bool:
    """Write the fraction, (R, n), or `_MANY` where items are too many; return whether any are.

    time: (R, n) or (R, 1); table: Λ, μ and K, (3, P, n), whose row r % P belongs to row r.
    """
    any_many = False
    for r in range(len(out)):
        p = r % table.shape[1]
        for i in range(out.shape[1]):
            t = time[r, min(i, time.shape[1] - 1)]
            fraction = _fraction(t, table[0, p, i], table[1, p, i], table[2, p, i])
            any_many = any_many or fraction == _MANY
            out[r, i] = fraction
    return any_many


@compiled
def _fraction(time: float, rate: float, decay: float, most: float) -> float:
    # With this capacity every item has lost its utility before it is displaced.
    come = rate * min(time, -_NOTHING / decay)
    if most >= come + _DEVIATIONS * sqrt(come) + _BEYOND:
        return -expm1(-decay * time)
    if rate <= 0.0:
        return 0.0
    ratio = decay / rate
    terms = min(most, np.ceil(-_NOTHING / log1p(ratio)))
    if terms > _MOST_TERMS:
        return _MANY
    events = (rate + decay) * time  # events at rate Λ + μ, a fraction r of which are items
    # Poisson probabilities below the first are lost beside 1.
    first = max(1.0, np.floor(events - 12.0 * sqrt(events))) if events < 1e9 else 1e9
    total, power, r = 0.0, 1.0, exp(-log1p(ratio))  # r^n and r
    probability, last = -expm1(-events), 0.0  # P(n, ·) and the probability of n events
    for n in range(1, int(terms) + 1):
        power *= r
        total += power * probability
        if power * probability <= 1e-17 * total:
            break
        if n == first:
            last = exp(n * log(events) - events - lgamma(n + 1.0)) if events > 0.0 else 0.0
        elif n > first:
            last *= events / n
        probability = max(probability - last, 0.0)
    return total * decay / rate


def _many_items(
    time: FloatArray, rate: FloatArray, decay: FloatArray, most: FloatArray
) -> FloatArray:
    """Return the fraction for K > 1000, (cells,), to a relative error of about 1e-15.

    With S ~ Gamma(K, Λ), E[1 − e^{−μ min(t, S)}] is

        (1 − e^{−μt}) − E[(e^{−μS} − e^{−μt})⁺] = (1 − r^K) − E[(e^{−μt} − e^{−μS})⁺],

    of which the first is used for t below the mean of S and the second above it; the subtracted
    term is then at most of the order 1/√K of the result. The expectation is a Gauss–Legendre sum.
    """
    with np.errstate(over="ignore"):
        end = rate * time  # in units of 1/Λ, in which S has mean K and variance K
    ratio, width = decay / rate, np.sqrt(most)
    before = end <= most
    edge = np.clip(end, most - _WIDE * width, most + _WIDE * width)
    far = np.where(before, most - _WIDE * width, most + _WIDE * width)
    half = 0.5 * np.abs(edge - far)
    from_mean = (0.5 * (edge + far) - most)[:, None] + half[:, None] * _NODES
    z = from_mean / most[:, None]
    log_density = -most[:, None] * (z - np.log1p(z)) - np.log1p(z)
    stirling = (1 / 12 - 1 / 360 / most / most) / most
    scale = np.exp(-stirling) / np.sqrt(2 * np.pi * most)
    to_edge = np.abs((edge - most)[:, None] - from_mean)
    survival = np.exp(-ratio * np.minimum(edge, end))[:, None]  # e^{−μt} where it is needed
    of_node = np.exp(-ratio[:, None] * (most[:, None] + from_mean))
    survival = np.where(before[:, None], of_node, survival)
    excess = survival * -np.expm1(-ratio[:, None] * to_edge) * np.exp(log_density)
    correction = scale * half * (excess @ _WEIGHTS)
    whole = np.where(before, -np.expm1(-decay * time), -np.expm1(-most * np.log1p(ratio)))
    return np.asarray(whole - correction)


def poisson_upper_bound(mean: FloatArray) -> FloatArray:
    """Return a bound that a Poisson variable of this mean practically never exceeds, 9 standard
    deviations above the mean."""
    return mean + _DEVIATIONS * np.sqrt(mean) + _BEYOND
