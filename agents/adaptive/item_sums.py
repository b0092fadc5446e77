"""Mean utility ξ̄ and decay μ from sums over the items of each harvest, source by source.

An item of age s is worth w = ξe^{−μs}: ln w falls with age by the slope −μ. Least squares need five
sums, which the environment shows; sources with few items lean on the fleet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.adaptive.evidence import MOST, Evidence, State
from crawl_env.numerics import FloatArray
from crawl_env.simulation.observation import SUMMED

EULER = 0.5772156649015329  # Euler's constant
_VARIANCE = np.pi**2 / 6  # σ², of ln ξ, ξ exponential
_HIGHEST = 1e3  # |ln w|; the logarithm of a double is less by itself
_EVERY = 16  # updates between two steps of the fit of the fleet, once it has run for as many
_DECAY = 0.3  # μT of one source more, which is added to the fleet, and its deviation
_SLOWEST = 0.02  # μT that a fleet is crawled by


class Fleet(NamedTuple):
    """Normal laws of the slopes μT and of the levels β over a fleet, (..., 1) each."""

    slope: FloatArray
    slope_variance: FloatArray
    level: FloatArray
    level_variance: FloatArray


class Line(NamedTuple):
    """The bivariate normal law of slope and level of some sources, any shape."""

    slope: FloatArray
    slope_variance: FloatArray
    level: FloatArray
    level_variance: FloatArray
    tilt: FloatArray  # by how much the level rises with the slope
    level_given: FloatArray  # the level's variance, the slope known


@dataclass(frozen=True)
class HarvestSums:
    """Learns ξ̄ and μ of every source of a fleet, (B, N), with what the fleet has in common.

    ln w = β − μs + ε, where β = ln ξ̄ − γ and ε has mean 0 and the variance σ² = π²/6 if ξ is
    exponential, γ = .5772. μT and β are independent and normal over the fleet; a source's posterior
    is then normal too, with n and the sums of s, s², ln w and s ln w as all that it needs. The two
    normal laws are fitted to the fleet (empirical Bayes: expectation–maximisation, one step in each
    of the first 16 epochs, then every 16), with one source more of μT = .3 ± .3 and β one away
    from the mean, so that they stay finite and positive.

    Σ(ln w)² is not shown, hence σ² not estimated. If ξ has another law, γ is wrong by the same
    amount for all sources: every ξ̄ by one factor, which leaves the order of the indices as it is.
    σ² too large or small only leans more or less on the fleet (lognormal votes of σ = 1.2: 1.44
    against 1.64).

    Arguments:
        period: T.
    """

    period: float = 1.0
    features = SUMMED

    def begin(self, shape: tuple[int, int]) -> State:
        start = _DECAY, _DECAY**2, 0.0, 1.0
        fleet = np.broadcast_to(start, (shape[0], len(start)))
        return np.zeros((shape[0], 1)), fleet.copy(), *(np.zeros(shape) for _ in range(5))

    def update(self, state: State, evidence: Evidence, *sums: FloatArray) -> State:
        """Return what is known after an epoch.

        Arguments:
            sums: what `features` show, (B, N) each: n, Σs, Σs², Σ ln w, Σ s ln w. What cannot be is
                left out.
        """
        time, fleet, *known = state
        unit = self.period
        with np.errstate(over="ignore", invalid="ignore"):
            new = [x / scale for x, scale in zip(sums, (1, unit, unit**2, 1, unit), strict=True)]
            told = evidence.crawled & _possible(*new)
        known = [old + np.where(told, more, 0.0) for old, more in zip(known, new, strict=True)]
        time = time + 1.0
        due = ((time <= _EVERY) | (time % _EVERY == 0))[:, 0]
        if due.any():
            fleet = fleet.copy()
            fleet[due] = _fitted(fleet[due], [array[due] for array in known])
        return time, fleet, *known

    def estimate(self, state: State, cells: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return the means of ξ̄ and μ, for cells (K,) by their flat places in (B, N).

        μ is at least .02/T, and ξ̄ its mean given that μ: a μ near 0 would make u* = Λξ̄/μ as large
        as one likes.
        """
        _, fleet, *known = state
        row = cells // known[0].shape[1]
        line = posterior_line(Fleet(*fleet[row].T), *(array.reshape(-1)[cells] for array in known))
        slope = np.maximum(line.slope, _SLOWEST)
        level = line.level + line.tilt * (slope - line.slope) + 0.5 * line.level_given
        return np.exp(np.clip(level + EULER, -_HIGHEST, 0.5 * _HIGHEST)), slope / self.period


def posterior_line(
    fleet: Fleet,
    number: FloatArray,
    age: FloatArray,
    age2: FloatArray,
    log: FloatArray,
    age_log: FloatArray,
) -> Line:
    """Return what is believed of slope and level given sums over a source's items.

    The precision matrix is (Σs² + σ²/v, −Σs; −Σs, n + σ²/w)/σ², v and w the variances over the
    fleet.
    """
    free = _VARIANCE / fleet.slope_variance
    tied = _VARIANCE / fleet.level_variance
    spread = np.maximum(age2 - age**2 / np.maximum(number, 1.0), 0.0)
    of_slope, of_level = age2 + free, number + tied
    determinant = spread * number + age2 * tied + number * free + free * tied
    falls = fleet.slope * free - age_log
    stands = fleet.level * tied + log
    return Line(
        slope=(of_level * falls + age * stands) / determinant,
        slope_variance=_VARIANCE * of_level / determinant,
        level=(of_slope * stands + age * falls) / determinant,
        level_variance=_VARIANCE * of_slope / determinant,
        tilt=age / of_level,
        level_given=_VARIANCE / of_level,
    )


def _fitted(fleet: FloatArray, known: list[FloatArray]) -> FloatArray:
    """Return the laws of rows (B, 4) after one step, from sums (B, N)."""
    line = posterior_line(Fleet(*fleet.T[..., None]), *known)
    heard = known[0] > 0
    number = heard.sum(axis=1)

    def total(term: FloatArray) -> FloatArray:
        return np.where(heard, term, 0.0).sum(axis=1)

    slope = (total(line.slope) + _DECAY) / (number + 1)
    level = np.where(number > 0, total(line.level) / np.maximum(number, 1), fleet[:, 2])
    off = total(line.slope_variance + (line.slope - slope[:, None]) ** 2)
    away = total(line.level_variance + (line.level - level[:, None]) ** 2)
    of_slope, of_level = (off + _DECAY**2) / (number + 1), (away + 1.0) / (number + 1)
    # Sums that contradict each other must not make the fleet's laws as wide as they like.
    most = _HIGHEST
    slope, level = np.clip(slope, 0.0, most), np.clip(level, -most, most)
    return np.stack([slope, np.minimum(of_slope, most**2), level, np.minimum(of_level, most**2)], 1)


def _possible(
    number: FloatArray, age: FloatArray, age2: FloatArray, log: FloatArray, age_log: FloatArray
) -> NDArray[np.bool_]:
    """Return where sums can be those of some items; NaN fails every comparison."""
    oldest = MOST * number
    return (
        (number >= 1)
        & (number < MOST)
        & (age >= 0)
        & (age <= oldest)
        & (age2 >= 0)
        & (age2 <= MOST * oldest)
        & (np.abs(log) <= _HIGHEST * number)
        & (np.abs(age_log) <= _HIGHEST * age)
    )
