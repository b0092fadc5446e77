"""The daily cycles of sources (`crawl_env.DailyCycle`), inferred from when the items that their
crawls found were published."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crawl_env.compiled import compiled
from crawl_env.numerics import FloatArray

ComplexArray = NDArray[np.complex128]

# Standard deviations of the sum of powers under constant rates. On 40 runs with drift, jumps,
# regimes or constant rates the most was 17; with a cycle of amplitude .9 it is 20 after four days.
_EVIDENCE = 20.0
_PRIOR_ITEMS = 2.0  # of a source's rate, of the mean of the fleet
_MOST = 0.99  # of an amplitude


@compiled
def published(
    number: float, age: float, age_squared: float, time: float, frequency: float
) -> complex:
    """Return Σ exp(iωt) over the times t at which items were published that a crawl at `time`
    found, given their number and the sums of their ages and of the squares of these.

    It is exact for one or two items; more are taken to lie a standard deviation before and after
    their mean.

    >>> round(published(2.0, 5.0, 13.0, 10.0, 1.0).real, 6)  # of ages 2 and 3
    0.608402
    """
    mean = age / number
    spread = np.sqrt(max(age_squared / number - mean * mean, 0.0))
    return complex(number * np.cos(frequency * spread) * np.exp(1j * frequency * (time - mean)))


@dataclass(frozen=True)
class DailyCycles:
    """The amplitude and the phase of each source's daily cycle, where neither is known.

    At time t a source publishes at the rate Λ(1 + Re(z̄ exp(iωt))) with ω = 2π/day, and |z| and the
    angle of z are the amplitude and the phase of its cycle. The sum of exp(iωt) over the times of n
    items then exceeds what constant rates let expect by about nz/2, with variance n/2 in each
    direction. z is estimated by its posterior mean, where the prior is normal and has the variance
    that the excesses of the whole fleet suggest (empirical Bayes, by the method of moments).
    Unless these are so large that constant rates cannot explain them, z = 0.

    Arguments:
        day: length of a day, in steps.

    >>> time = np.array([[1.0, 2.0, 4.0], [5.0, 7.0, 10.0]]) + 24 * np.arange(100)[:, None, None]
    >>> found = np.exp(2j * np.pi / 24 * time).sum(axis=(0, 2))[None]
    >>> z = DailyCycles(24.0).amplitudes(
    ...     found, np.full((1, 2), 300.0), np.zeros((1, 2)), np.full((1, 2), 2400.0)
    ... )
    >>> (np.angle(z) * 24 / (2 * np.pi)).round(1)
    array([[2.3, 7.3]])
    """

    day: float

    @property
    def frequency(self) -> float:
        """ω, per step."""
        return 2.0 * np.pi / self.day

    def amplitudes(
        self, waves: ComplexArray, items: FloatArray, begin: FloatArray, end: FloatArray
    ) -> ComplexArray:
        """Return z, (B, N).

        Arguments:
            waves: Σ exp(iωt) over the items of each source, (B, N).
            items: their number, (B, N).
            begin, end: of the time in which these were published, steps, (B, N).
        """
        span, turn = end - begin, 1j * self.frequency
        of_fleet = (items.sum(axis=1, keepdims=True) + 1.0) / (
            span.sum(axis=1, keepdims=True) + 1.0
        )
        rate = (items + _PRIOR_ITEMS) / (span + _PRIOR_ITEMS / of_fleet)
        excess = waves - rate * (np.exp(turn * end) - np.exp(turn * begin)) / turn
        n = rate * span
        power = (np.abs(excess) ** 2 - n).sum(axis=1, keepdims=True)
        square = (n * n).sum(axis=1, keepdims=True)
        cyclic = power > _EVIDENCE * np.sqrt(square)
        variance = np.where(cyclic, 2.0 * power / np.maximum(square, 1e-300), 1.0)
        z = np.where(cyclic, excess / (0.5 * n + 1.0 / variance), 0.0)
        return np.asarray(z / np.maximum(np.abs(z) / _MOST, 1.0), dtype=np.complex128)

    def factor(self, z: ComplexArray, clock: FloatArray) -> FloatArray:
        """Return the mean rate of the step from `clock` (B, 1) on, relative to Λ, (B, N)."""
        factor: FloatArray = 1.0 + (z.conj() * np.exp(1j * self.frequency * (clock + 0.5))).real
        return factor

    def content(
        self,
        z: ComplexArray,
        clock: FloatArray,
        age: FloatArray,
        weights: NDArray[np.float32],
        slowest: FloatArray,
    ) -> FloatArray:
        """Return the content at `clock` (B, 1) of what was published in the last `age` (B, N)
        steps, (B, N), where `weights` and `slowest` are those of `agents.theory.mixtures`."""
        wave = z.conj() * np.exp(1j * self.frequency * clock)
        return np.maximum(_content(age, weights, slowest, wave, self.frequency), 0.0)


@compiled
def _content(
    age: FloatArray,
    weights: NDArray[np.float32],
    slowest: FloatArray,
    wave: ComplexArray,
    frequency: float,
) -> FloatArray:
    """Return Σ w_j (1 − α_j^k + Re(v m_j/(m_j + iω) (1 − α_j^k exp(−iωk)))), (B, N), where the
    rate at present, relative to its mean, is 1 + Re v."""
    out = np.empty(age.shape)
    for b in range(age.shape[0]):
        for i in range(age.shape[1]):
            v, k, m = wave[b, i], age[b, i], slowest[b, i]
            then = v * np.exp(-1j * frequency * min(k, 1e9))  # when the time began
            survival, total = np.exp(-m * k), 0.0
            for w in weights[b, i]:
                x, y = v.real - survival * then.real, v.imag - survival * then.imag
                total += w * (1.0 - survival + m * (m * x + frequency * y) / (m * m + frequency**2))
                survival, m = survival * survival * survival, 3.0 * m
            out[b, i] = total
    return out
