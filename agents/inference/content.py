"""Estimators of the mean utility ξ̄ and the decay rate μ, both unknown.

`HarvestSums` uses sums over the single items of each crawl. An item of age s has the utility
w = ξe^{−μs}, so ln w is linear in s with slope −μ, and five sums are sufficient for least squares.

`Harvests` uses the number of items of each crawl and their total utility. Here the gaps between
crawls identify the decay: n items after a gap τ have the expected utility nξ̄φ(μτ) with
φ(z) = (1 − e^{−z})/z, which decreases in τ.

Both shrink the estimates of sources with few items towards the fleet. Neither depends on the units
of time and utility.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from agents.inference.rates import (
    EVERY,
    MOST_ITEMS,
    CrawlOutcome,
    State,
    copy_to_change,
    entries,
    increased,
    is_due,
)
from crawl_env.numerics import FloatArray
from crawl_env.simulation.observation import SUMMED


class ContentEstimator(Protocol):
    """An estimator of ξ̄ and μ of every source in a batch of fleets, (B, N)."""

    @property
    def features(self) -> tuple[str, ...]:
        """The features that the estimator uses."""
        ...

    def begin(self, shape: tuple[int, int]) -> State:
        """Return the state before any crawl."""
        ...

    def update(self, state: State, outcome: CrawlOutcome, *revealed: FloatArray) -> State:
        """Return the state after one step, in new arrays; `revealed` are the features, (K,), of the
        crawls."""
        ...

    def estimate(self, state: State, cells: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return the estimates of ξ̄ and μ, (K,), of the cells at these flat positions in (B, N)."""
        ...

    def any_items(self, state: State) -> NDArray[np.bool_]:
        """Return whether any item was found, (B, 1); until then the scale of ξ̄ is arbitrary."""
        ...


# ------------------------------------------------------------------------- sums over single items

EULER = 0.5772156649015329  # Euler's constant
_VARIANCE = np.pi**2 / 6  # σ², the variance of ln ξ for exponential ξ
_HIGHEST = 1e3  # bound of |ln w|, which every double satisfies
_HIGHEST_UTILITY = 230.0  # bound of |ln ξ̄| in estimates
_DECAY = 0.3  # mean and standard deviation of μT of the pseudo-source added to the fleet
_SLOWEST = 0.02  # lower bound of estimates of μT


class Population(NamedTuple):
    """Normal distributions of the slopes μT and of the levels β over a fleet, (..., 1) each."""

    slope: FloatArray
    slope_variance: FloatArray
    level: FloatArray
    level_variance: FloatArray


class Line(NamedTuple):
    """The bivariate normal distribution of slope and level of some sources, any shape."""

    slope: FloatArray
    slope_variance: FloatArray
    level: FloatArray
    level_variance: FloatArray
    tilt: FloatArray  # regression coefficient of the level on the slope
    level_given: FloatArray  # variance of the level given the slope


class ItemSums(NamedTuple):
    """The state of `HarvestSums`: of every fleet, (B, …), and of every source, (B, N)."""

    updates: FloatArray  # (B, 1) number of steps
    fleet: FloatArray  # (B, 4) the parameters of `Population`
    number: FloatArray  # (B, N) of items, and the sums over these of
    age: FloatArray  # s, steps
    age2: FloatArray  # s²
    log: FloatArray  # ln w
    age_log: FloatArray  # s ln w


@dataclass(frozen=True)
class HarvestSums:
    """Estimates ξ̄ and μ of every source of a fleet, (B, N), from sums over the items of crawls.

    The model is ln w = β − μs + ε, where β = ln ξ̄ − γ, and ε has mean 0 and the variance σ² = π²/6
    of exponential ξ (γ = .5772). μT and β are independent and normal over the fleet, so that the
    posterior of a source is also normal, with n and the sums of s, s², ln w and s ln w as
    sufficient statistics. The two normal distributions are fitted to the fleet (empirical Bayes by
    expectation–maximisation, one step in each of the first 16 updates, then in every 16th), with a
    pseudo-source of μT = .3 ± .3 and β one away from the mean, which keeps them finite and
    positive. The mean of β starts at the mean over the first items found.

    Σ(ln w)² is not observed, hence σ² is not estimated. If ξ has another distribution, γ is wrong
    by the same amount for all sources: every ξ̄ is off by the same factor, which does not change
    the order of the indices. A wrong σ² changes only the strength of shrinkage (lognormal votes
    of σ = 1.2: 1.44 instead of 1.64).

    Arguments:
        period: T.
    """

    period: float = 1.0
    features: ClassVar[tuple[str, ...]] = SUMMED

    def begin(self, shape: tuple[int, int]) -> ItemSums:
        start = _DECAY, _DECAY**2, 0.0, 1.0
        fleet = np.broadcast_to(start, (shape[0], len(start)))
        sums = (np.zeros(shape) for _ in range(5))
        return ItemSums(np.zeros((shape[0], 1)), fleet.copy(), *sums)

    def update(self, state: State, outcome: CrawlOutcome, *revealed: FloatArray) -> ItemSums:
        """Return the state after one step.

        Arguments:
            revealed: n, Σs, Σs², Σ ln w and Σ s ln w of each crawl, (K,) each. Impossible values
                are ignored.
        """
        updates, fleet, *sums = state
        unit = self.period
        with np.errstate(over="ignore", invalid="ignore"):
            new = [
                x / scale for x, scale in zip(revealed, (1, unit, unit**2, 1, unit), strict=True)
            ]
            valid = _possible(*new)
        cells = outcome.cells[valid]
        new = [more[valid] for more in new]
        fleet = fleet.copy()
        rows = cells // sums[0].shape[1]
        first = np.bincount(rows, minlength=len(fleet)) > 0
        first &= ~self.any_items(state)[:, 0]
        if first.any():
            number, age, _, log, _ = (np.bincount(rows, x, len(fleet))[first] for x in new)
            fleet[first, 2] = (log + fleet[first, 0] * age) / number
        sums = [increased(old, cells, more) for old, more in zip(sums, new, strict=True)]
        updates = updates + 1.0
        due = is_due(updates)[:, 0]
        if due.any():
            fleet[due] = _fitted(fleet[due], [array[due] for array in sums])
        return ItemSums(updates, fleet, *sums)

    def estimate(self, state: State, cells: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return the estimates of ξ̄ and μ, for cells (K,) given by flat positions in (B, N).

        μ is at least .02/T, and ξ̄ is its mean given that μ: with μ near 0, u* = Λξ̄/μ would be
        arbitrarily large.
        """
        _, fleet, *sums = state
        row = cells // sums[0].shape[1]
        line = posterior_line(
            Population(*fleet[row].T), *(array.reshape(-1)[cells] for array in sums)
        )
        slope = np.maximum(line.slope, _SLOWEST)
        level = line.level + line.tilt * (slope - line.slope) + 0.5 * line.level_given
        log_utility = np.clip(level + EULER, -_HIGHEST_UTILITY, _HIGHEST_UTILITY)
        return np.exp(log_utility), slope / self.period

    def any_items(self, state: State) -> NDArray[np.bool_]:
        return _any(ItemSums(*state).number)


def posterior_line(
    fleet: Population,
    number: FloatArray,
    age: FloatArray,
    age2: FloatArray,
    log: FloatArray,
    age_log: FloatArray,
) -> Line:
    """Return the posterior of slope and level given sums over a source's items.

    The precision matrix is (Σs² + σ²/v, −Σs; −Σs, n + σ²/w)/σ², with v and w the variances over the
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


def _fitted(fleet: FloatArray, sums: list[FloatArray]) -> FloatArray:
    """Return the parameters of `Population`, (B, 4), after one step of the fit to sums (B, N)."""
    line = posterior_line(Population(*fleet.T[..., None]), *sums)
    has_items = sums[0] > 0
    number = has_items.sum(axis=1)

    def total(term: FloatArray) -> FloatArray:
        return np.where(has_items, term, 0.0).sum(axis=1)

    slope = (total(line.slope) + _DECAY) / (number + 1)
    level = np.where(number > 0, total(line.level) / np.maximum(number, 1), fleet[:, 2])
    off = total(line.slope_variance + (line.slope - slope[:, None]) ** 2)
    away = total(line.level_variance + (line.level - level[:, None]) ** 2)
    of_slope, of_level = (off + _DECAY**2) / (number + 1), (away + 1.0) / (number + 1)
    # Inconsistent sums must not make the variances over the fleet unbounded.
    most = _HIGHEST
    slope, level = np.clip(slope, 0.0, most), np.clip(level, -most, most)
    return np.stack([slope, np.minimum(of_slope, most**2), level, np.minimum(of_level, most**2)], 1)


def _possible(
    number: FloatArray, age: FloatArray, age2: FloatArray, log: FloatArray, age_log: FloatArray
) -> NDArray[np.bool_]:
    """Return whether the sums are possible for some items; NaN fails every comparison."""
    oldest = MOST_ITEMS * number
    return (
        (number >= 1)
        & (number < MOST_ITEMS)
        & (age >= 0)
        & (age <= oldest)
        & (age2 >= 0)
        & (age2 <= MOST_ITEMS * oldest)
        & (np.abs(log) <= _HIGHEST * number)
        & (np.abs(age_log) <= _HIGHEST * age)
    )


# -------------------------------------------------------------- number and total utility of crawls

DECAYS = np.geomspace(0.01, 2.0, 12)  # (J,) μT, the support of the prior
_J = len(DECAYS)

DISPERSION = 1.5  # variance ÷ squared mean of an item's utility, for exponential ξ and μτ of 1 to 2
_MOST_UTILITY = 1e25  # of one crawl, so that sums are finite in single precision
_LONGEST_GAP = 1e9  # steps
_TINY = 1e-37
_PSEUDO = 2.0  # number of items of the fleet's mean utility added to every source


class HarvestTotals(NamedTuple):
    """The state of `Harvests`: of every fleet, (B, …), and of every source, (B, N, …)."""

    updates: FloatArray  # (B, 1) number of steps
    fraction: FloatArray  # (B, J) of the sources of each decay
    total: FloatArray  # (B, J) Σ h/φ over the fleet
    number: FloatArray  # (B, N) Σ n
    table: NDArray[np.float32]  # (B, N, 2J) Σ h/φ and −Σ n ln φ
    hits: FloatArray  # (B, 2) number of crawls with utility, and steps of gaps without


@dataclass(frozen=True)
class Harvests:
    """Estimates ξ̄ and μ of every source of a fleet, (B, N), from the utility of whole crawls.

    μT is one of `DECAYS`, for each of which ξ̄ has the estimate Σ(h/φ)/Σn, where h is the utility of
    a crawl. The fit of each is the quasi-likelihood exp(−[Σn ln(ξ̄φ) + Σn]/d) of utilities whose
    variance is d times their squared mean, d = 1.5. The prior over `DECAYS` is fitted to the fleet
    (empirical Bayes by expectation–maximisation, one step every 16 updates, with a pseudo-source of
    unknown decay); the posterior of a source with uninformative gaps is close to it.

    If items are not counted, n is the number of steps of the gap, and ξ̄ the utility per step. How
    many items that are is then estimated for the fleet from the crawls that found nothing, ρ per
    step, at most 1: the fleet's mean enters as 2/ρ steps, and the exponent of the fit is multiplied
    by ρ. Otherwise sources that publish one item in a hundred steps would be taken for known after
    their first crawl, and given up if it found nothing.

    Arguments:
        period: T.
        counted: whether n is the number of items.
    """

    period: float = 1.0
    counted: bool = True
    features: ClassVar[tuple[str, ...]] = ("harvest",)

    def begin(self, shape: tuple[int, int]) -> HarvestTotals:
        rows, width = shape[0], len(DECAYS)
        fraction, total = np.full((rows, width), 1.0 / width), np.zeros((rows, width))
        table = np.zeros((*shape, 2 * _J), dtype=np.float32)
        hits = np.zeros((rows, 2))
        return HarvestTotals(np.zeros((rows, 1)), fraction, total, np.zeros(shape), table, hits)

    def update(self, state: State, outcome: CrawlOutcome, *revealed: FloatArray) -> HarvestTotals:
        """Return the state after one step whose crawls collected `revealed[0]`, (K,) utility."""
        (utility,) = revealed
        updates, fraction, total, number, table, hits = state
        gaps = outcome.gaps / self.period
        valid = (outcome.counts > 0) & (utility >= 0) & (utility < _MOST_UTILITY)
        valid &= (gaps > 1.0 / _LONGEST_GAP) & (gaps < _LONGEST_GAP)
        cells, n = outcome.cells[valid], outcome.counts[valid]
        if cells.size:
            # There are many crawls, but few distinct gaps.
            gap, which = np.unique(gaps[valid], return_inverse=True)
            z = DECAYS * gap[:, None]
            phi = -np.expm1(-z) / z  # φ
            undecayed = utility[valid, None] / phi[which]
            number = increased(number, cells, n)
            table = copy_to_change(table, cells, 2 * _J)
            flat = table.reshape(-1, 2 * _J)
            flat[cells, :_J] += undecayed.astype(np.float32)
            flat[cells, _J:] -= (n[:, None] * np.log(phi)[which]).astype(np.float32)
            rows = cells // number.shape[1]
            first = np.flatnonzero(np.diff(rows, prepend=-1))
            total = total.copy()
            total[rows[first]] += np.add.reduceat(undecayed, first, axis=0)
            if not self.counted:
                some = utility[valid] > 0
                new = (np.bincount(rows, x, len(hits)) for x in (some, gaps[valid] * ~some))
                hits = hits + np.stack([*new], axis=1)
        updates = updates + 1.0
        due = (updates % EVERY == 0)[:, 0]
        if due.any():
            fraction = fraction.copy()
            fraction[due] = self._fitted(fraction[due], number[due], table[due], hits[due])
        return HarvestTotals(updates, fraction, total, number, table, hits)

    def estimate(self, state: State, cells: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return the estimates of ξ̄ and μ, for cells (K,) given by ascending flat positions in
        (B, N)."""
        weight = self.decays(state, cells)
        mean = (weight * self.utility(state, cells)).sum(axis=0)
        return mean, DECAYS @ weight / self.period

    def any_items(self, state: State) -> NDArray[np.bool_]:
        return _any(HarvestTotals(*state).number)

    def decays(self, state: State, cells: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return the probability of each of `DECAYS`, (J, K), for cells as in `estimate`."""
        _, fraction, _, number, table, hits = state
        row = cells // number.shape[1]
        log_fraction = _logarithm(fraction.T)[:, row]
        n = number.reshape(-1)[cells].astype(np.float32)
        mine = table.reshape(-1, 2 * _J)[cells]
        return _weights(log_fraction, n, mine, self._weight(mine, self._rate(hits)[row]))

    def utility(self, state: State, cells: NDArray[np.intp]) -> FloatArray:
        """Return the estimate of ξ̄ for each of `DECAYS`, (J, K), for cells as in `estimate`; the
        fleet's mean enters as `_PSEUDO` items."""
        _, _, total, number, table, hits = state
        whole = number.sum(axis=1, keepdims=True)
        typical = np.where(whole > 0, total / np.maximum(whole, _TINY), 1.0)  # (B, J)
        row = cells // number.shape[1]
        pseudo = (_PSEUDO / self._rate(hits))[row]
        items = number.reshape(-1)[cells] + pseudo
        fresh = table.reshape(-1, 2 * _J)[cells, :_J]
        own = fresh + pseudo[:, None] * typical[row]
        return np.asarray((own / items[:, None]).T)

    def _rate(self, hits: FloatArray) -> FloatArray:
        """Return ρ, the items per unit of n, (B,); 1 if items are counted."""
        return np.minimum((hits[:, 0] + 1.0) / (hits[:, 1] + 1.0), 1.0)

    def _weight(self, table: NDArray[np.float32], rate: FloatArray) -> NDArray[np.float32]:
        """Return the weight of the findings of some sources; if items are not counted, it is 0
        where nothing was found, which tells nothing of the decay."""
        some = (table[..., 0] > 0) | self.counted
        return (rate * some).astype(np.float32)

    def _fitted(
        self,
        fraction: FloatArray,
        number: FloatArray,
        table: NDArray[np.float32],
        hits: FloatArray,
    ) -> FloatArray:
        log_fraction = _logarithm(fraction.T)[..., None]
        n = number.astype(np.float32)
        share = self._weight(table, self._rate(hits)[:, None])
        weight = _weights(log_fraction, n, table, share)
        total = (weight * (n > 0)).sum(axis=-1, dtype=np.float64).T + 1.0 / len(DECAYS)
        return np.asarray(total / total.sum(axis=-1, keepdims=True))


def from_utility(
    outcome: CrawlOutcome, utility: FloatArray, mean_utility: FloatArray, decay_rate: FloatArray
) -> CrawlOutcome:
    """Return an outcome whose numbers of items are inferred from utility, with ξ̄ and μ known.

    With z = μτ a crawl collects h of mean Λ(ξ̄/μ)(1 − e^{−z}). For exponential ξ its relative error
    equals that of a count over the time e = τ tanh(z/2)/z, so h is replaced by Λ̂e items in the time
    e, where Λ̂ is the rate at which h would be the mean. This is unbiased and as precise as h.

    Arguments:
        utility: h, (K,), of the crawls of the outcome.
        mean_utility, decay_rate: ξ̄ and μ of all sources, in a shape that broadcasts to (..., N).

    >>> crawl = CrawlOutcome.of([2.0])
    >>> inferred = from_utility(crawl, np.array([3.0]), np.array(1.0), np.array(0.1))
    >>> (inferred.items / inferred.gap).round(3)
    array([1.655])
    """
    shape, cells, gap = outcome.shape, outcome.cells, outcome.gaps
    typical, decay = (entries(x, cells, shape) for x in (mean_utility, decay_rate))
    valid = (utility >= 0) & (utility < _MOST_UTILITY) & (typical > 0)
    z = decay * gap
    exposure = gap * np.tanh(0.5 * z) / z
    mean = np.where(valid, typical / decay * -np.expm1(-z), 1.0)
    items = np.where(valid, utility / mean * exposure, -1.0)  # impossible, which is ignored
    return CrawlOutcome.at(shape, cells, exposure, items, utility > 0, outcome.elapsed)


def _any(number: FloatArray) -> NDArray[np.bool_]:
    """Return whether any number of each row is positive, (B, 1)."""
    return np.asarray((number > 0).any(axis=1, keepdims=True))


def _logarithm(fraction: FloatArray) -> NDArray[np.float32]:
    return np.log(fraction).astype(np.float32)


def _weights(
    log_fraction: NDArray[np.float32],
    number: NDArray[np.float32],
    table: NDArray[np.float32],
    share: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Return the probability of each decay, (J, ...), from sums (...,) and (..., 2J), of which
    the exponent is multiplied by `share`, (...,)."""
    fresh, faded = np.ascontiguousarray(np.moveaxis(table, -1, 0)).reshape(2, _J, *number.shape)
    score = np.maximum(fresh, _TINY)
    np.log(score, out=score)
    score -= np.log(np.maximum(number, np.float32(1.0)))  # log of the quotient, which can be 0
    score *= number
    score -= faded
    score *= -share / DISPERSION
    score += log_fraction
    score -= score.max(axis=0)
    weight = np.exp(score, out=score)
    weight /= weight.sum(axis=0)
    return weight
