"""What waits at sources that show only their last K items: older ones are lost."""

from __future__ import annotations

from math import lgamma

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.numerics import FloatArray

_NOTHING = -40.0  # logarithm of a share that adds nothing
_MOST_WORK = 1e8  # cells of the table × items: some seconds


class CappedContent:
    """Mean content by age, for sources with a capacity, (..., n).

    Ages that are whole epochs are looked up in a table, which is made once.

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
        # Sources that are alike but for their utility are tabulated once.
        kinds, place = np.unique(
            np.stack(self._parameters).reshape(3, -1), axis=1, return_inverse=True
        )
        self._place = place.reshape(self._ceiling.shape)
        rate, decay, most = kinds
        # Full to within rounding: nothing older is worth anything, or K items have surely come.
        pushed = _surely(most) / (rate + decay)
        longest = np.ceil(np.minimum(-_NOTHING / decay, pushed).max() / period) + 1
        self._share = np.empty((0, kinds.shape[1]))
        terms = np.minimum(most, _MOST_WORK).max()
        if longest * kinds.shape[1] * terms <= _MOST_WORK:
            ages = np.append(np.arange(longest), np.inf)[:, None]
            self._share = kept_share(ages * period, rate, decay, most)

    def __call__(self, age: ArrayLike) -> FloatArray:
        """Return the mean utility waiting `age` epochs after a crawl, broadcast to (..., n)."""
        age = np.asarray(age, dtype=np.float64)
        rows = len(self._share) - 1
        if rows < 0 or not np.all((age >= rows) | (age == np.floor(age))):
            return self._ceiling * kept_share(age * self._period, *self._parameters)
        row = np.minimum(age, rows).astype(int)
        found: FloatArray = self._ceiling * self._share[row, self._place]
        return found


def kept_share(
    time: ArrayLike, arrival_rate: FloatArray, decay_rate: FloatArray, capacity: FloatArray
) -> FloatArray:
    """Return the mean content of a source that shows only its last K items, as a share of u*.

    (μ/Λ) Σ_{n≤K} r^n P(n, (Λ+μ)·time) with r = Λ/(Λ+μ): the n-th last of Poisson arrivals came
    an Erlang(n, Λ) time ago. P is the regularised lower incomplete gamma function. Terms are
    positive, so nothing cancels; those below 1e-17 are left out. Arguments broadcast; the result
    has their shape. 1 − exp(−μ·time) for K = ∞, 0 for Λ = 0.

    >>> kept_share([1.0, np.inf], np.array(5.0), np.array(0.2), np.array(3.0)).round(4)
    array([0.1057, 0.111 ])
    """
    time, rate, decay, most = np.broadcast_arrays(time, arrival_rate, decay_rate, capacity)
    # So many items do not come before the first is worth nothing: nothing is ever pushed out.
    most = np.where(most >= _surely(rate * np.minimum(time, -_NOTHING / decay)), np.inf, most)
    events = (rate + decay) * time  # arrivals at rate Λ + μ, of which r are items
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = -np.log1p(decay / rate)  # log r, −∞ for a silent source
        log_events = np.where(np.isfinite(events), np.log(events), 0.0)
        needed = np.where(np.isinf(most), 0.0, np.minimum(most, np.ceil(_NOTHING / log_ratio)))
        reached = -np.expm1(-events)  # P(1, ·)
        total = np.zeros(events.shape)
        for n in range(1, int(needed.max(initial=0.0)) + 1):
            total += np.where(n <= needed, np.exp(n * log_ratio) * reached, 0.0)
            last = np.exp(n * log_events - events - lgamma(n + 1))
            reached = np.clip(reached - np.where(events > 0, last, 0.0), 0.0, 1.0)
        share = np.where(rate > 0, total * decay / rate, 0.0)
    return np.where(np.isinf(most), -np.expm1(-decay * time), share)


def _surely(mean: FloatArray) -> FloatArray:
    """Return more than a Poisson number of this mean ever is: 9 standard deviations above."""
    return mean + 9 * np.sqrt(mean) + 40
