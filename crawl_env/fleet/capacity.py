"""Mean content of sources that show only their last K items, so that older items are lost."""

from __future__ import annotations

from math import lgamma

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.numerics import FloatArray

_NOTHING = -40.0  # logarithm of a negligible fraction
_MOST_TERMS = 1000  # of the sum over items; an integral replaces longer sums
_MOST_WORK = 1e8  # cells of the table × terms, a few seconds
_MOST_CELLS = 2e7  # of the table, 160 MB

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)  # on [−1, 1]
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
            pushed = poisson_upper_bound(most) / (rate + decay)
            longest = np.ceil(np.minimum(-_NOTHING / decay, pushed).max() / period) + 1
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
        found: FloatArray = self._ceiling * self._fraction[row, self._place]
        return found


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
    time, rate, decay, most = np.broadcast_arrays(time, arrival_rate, decay_rate, capacity)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # With this capacity every item has lost its utility before it is displaced.
        come = rate * np.minimum(time, -_NOTHING / decay)
        most = np.where(most >= poisson_upper_bound(come), np.inf, most)
        events = (rate + decay) * time  # events at rate Λ + μ, a fraction r of which are items
        log_ratio = -np.log1p(decay / rate)  # log r, −∞ for a source without items
        log_events = np.where(np.isfinite(events), np.log(events), 0.0)
        needed = np.where(np.isinf(most), 0.0, np.minimum(most, np.ceil(_NOTHING / log_ratio)))
        many = needed > _MOST_TERMS
        needed = np.where(many, 0.0, needed)
        reached = -np.expm1(-events)  # P(1, ·)
        total = np.zeros(events.shape)
        for n in range(1, int(needed.max(initial=0.0)) + 1):
            total += np.where(n <= needed, np.exp(n * log_ratio) * reached, 0.0)
            last = np.exp(n * log_events - events - lgamma(n + 1))
            reached = np.clip(reached - np.where(events > 0, last, 0.0), 0.0, 1.0)
        fraction = np.where(rate > 0, total * decay / rate, 0.0)
        fraction = np.where(np.isinf(most), -np.expm1(-decay * time), fraction)
    if many.any():
        fraction[many] = _many_items(time[many], rate[many], decay[many], most[many])
    return fraction


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
    kept = np.exp(-ratio * np.minimum(edge, end))[:, None]  # e^{−μt} where it is needed
    kept = np.where(before[:, None], np.exp(-ratio[:, None] * (most[:, None] + from_mean)), kept)
    excess = kept * -np.expm1(-ratio[:, None] * to_edge) * np.exp(log_density)
    lost = scale * half * (excess @ _WEIGHTS)
    whole = np.where(before, -np.expm1(-decay * time), -np.expm1(-most * np.log1p(ratio)))
    return np.asarray(whole - lost)


def poisson_upper_bound(mean: FloatArray) -> FloatArray:
    """Return a bound that a Poisson variable of this mean practically never exceeds, 9 standard
    deviations above the mean."""
    return mean + 9 * np.sqrt(mean) + 40
