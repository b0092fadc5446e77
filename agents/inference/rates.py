"""Estimators of arrival rates from the number of new items, and the interface of all estimators.

An estimator is updated with a `CrawlOutcome` in every step, and has a `Posterior`, a Gamma
distribution, of every source's arrival rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from sys import getrefcount
from typing import Any, ClassVar, NamedTuple, Protocol
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crawl_env.compiled import compiled
from crawl_env.errors import check_array, check_positive
from crawl_env.numerics import BoolArray, FloatArray, IntArray

State = tuple[NDArray[Any], ...]

MOST_ITEMS = 1e9  # largest number of items of one crawl
# Range of gaps in any unit of time, whose squares are finite.
SHORTEST, LONGEST = 1e-100, 1e100
RETENTIONS = (1.0, 0.999, 0.99, 0.97, 0.9)  # per step
_TINY_MEAN = 1e-12  # lower bound of expected numbers of items, so that logarithms are finite
_LEAST_WEIGHT = 1e-50  # of past observations, below which their sums are rescaled
_SHIFT = 6  # arguments of digamma are shifted above this, where its series is exact to 1e-10
_LARGEST_SHAPE = 1e6  # of a fitted prior; it means that all sources have the same rate
EVERY = 16  # updates between two steps of the fit, after the first 16 updates
_FEW = 2**12  # entries up to which an array is simply copied


@dataclass(frozen=True, eq=False)
class CrawlOutcome:
    """Observations from the crawls of one step, of sources in arrays of one shape (..., N).

    Most sources are not crawled: the crawls are listed. Use `CrawlOutcome.of` or `CrawlOutcome.at`,
    which remove impossible values.
    """

    shape: tuple[int, ...]
    cells: IntArray  # (K,) flat positions of the crawled sources in (..., N), ascending
    gaps: FloatArray  # (K,) time since the previous crawl
    counts: FloatArray  # (K,) number of new items
    changes: BoolArray  # (K,) whether there were any new items
    elapsed: float  # time since the previous step, over which an estimator may discount
    pings: FloatArray | None = None  # (K,) number of pings since the previous crawl
    arrived: FloatArray | None = None  # (..., N) number of pings since the previous step

    @staticmethod
    def of(
        gap: ArrayLike,
        items: ArrayLike | None = None,
        crawled: ArrayLike = True,
        changed: ArrayLike | None = None,
        elapsed: float = 1.0,
    ) -> CrawlOutcome:
        """Return the outcome without crawls whose numbers are impossible.

        A crawl is ignored if its gap or number of items is NaN, negative or infinite, if the gap
        is 0, or if it has more than 1e9 items.

        Arguments:
            gap: (..., N) time since the previous crawl.
            items: (..., N) number of new items, or None if it is not observed.
            crawled: (..., N) whether the source was crawled.
            changed: (..., N) whether anything was new; default: whether `items` is positive.
            elapsed: time since the previous step.

        >>> CrawlOutcome.of([2, 0, np.nan, 5], [3, 1, 1, 0]).crawled
        array([ True, False, False,  True])
        """
        time = np.asarray(gap, dtype=np.float64)
        count = np.asarray(0.0 if items is None else items, dtype=np.float64)
        new = np.asarray(count > 0 if changed is None else changed, dtype=bool)
        time, count, new, mask = np.broadcast_arrays(time, count, new, np.asarray(crawled, bool))
        cells = np.flatnonzero(mask)
        gaps, counts, changes = (array.reshape(-1)[cells] for array in (time, count, new))
        return CrawlOutcome.at(time.shape, cells, gaps, counts, changes.astype(bool), elapsed)

    @staticmethod
    def at(
        shape: tuple[int, ...],
        cells: IntArray,
        gaps: FloatArray,
        counts: FloatArray,
        changes: BoolArray,
        elapsed: float = 1.0,
        pings: FloatArray | None = None,
        arrived: FloatArray | None = None,
    ) -> CrawlOutcome:
        """Return the outcome of the crawls of some cells, without those that `of` ignores.

        Crawls after an unknown number of pings, NaN, are ignored, too.

        Arguments:
            shape: (..., N).
            cells, gaps, counts, changes, pings: (K,), see the attributes.
            elapsed: time since the previous step.
            arrived: (..., N), see the attributes.
        """
        valid = (gaps > SHORTEST) & (gaps < LONGEST) & (counts >= 0) & (counts < MOST_ITEMS)
        if pings is not None:
            valid &= (pings >= 0) & (pings < MOST_ITEMS)
        if not valid.all():
            cells, gaps = cells[valid], gaps[valid]
            counts, changes = counts[valid], changes[valid]
            pings = None if pings is None else pings[valid]
        return CrawlOutcome(shape, cells, gaps, counts, changes, elapsed, pings, arrived)

    @property
    def crawled(self) -> BoolArray:
        """Whether a crawl of the source was observed, (..., N)."""
        return self._spread(np.ones(self.cells.size, dtype=bool))

    @property
    def gap(self) -> FloatArray:
        """Time since the previous crawl, (..., N); 0 if not crawled."""
        return self._spread(self.gaps)

    @property
    def items(self) -> FloatArray:
        """Number of new items, (..., N); 0 if not crawled."""
        return self._spread(self.counts)

    @property
    def changed(self) -> BoolArray:
        """Whether there were any new items, (..., N)."""
        return self._spread(self.changes)

    def _spread(self, values: Any) -> Any:
        dense = np.zeros(self.shape, dtype=values.dtype)
        dense.reshape(-1)[self.cells] = values
        return dense


def entries(array: ArrayLike, cells: IntArray, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the entries, (K,), of an array that broadcasts to `shape`, at flat positions of it."""
    array = np.asarray(array)
    if array.shape == shape:
        return array.reshape(-1)[cells]
    if array.ndim == 0:
        return np.full(cells.size, array)
    if array.shape == shape[-1:]:
        return array[cells % shape[-1]]
    where: NDArray[Any] = np.broadcast_to(array, shape)[np.unravel_index(cells, shape)]
    return where


def increased(array: FloatArray, cells: IntArray, more: FloatArray) -> FloatArray:
    """Return a copy of an array, (..., N), with (K,) added at flat positions."""
    copy: FloatArray = copy_to_change(array, cells)
    copy.reshape(-1)[cells] += more
    return copy


class Posterior(NamedTuple):
    """A Gamma distribution of arrival rates, (..., N).

    It is exact for counts, and otherwise matched to an estimate and its standard error.

    >>> posterior = Posterior(np.array(4.0), np.array(2.0))
    >>> float(posterior.mean), float(posterior.deviation)
    (2.0, 1.0)
    """

    shape: FloatArray
    rate: FloatArray  # time

    @property
    def mean(self) -> FloatArray:
        """The posterior mean, items / time."""
        return self.shape / self.rate

    @property
    def deviation(self) -> FloatArray:
        """The standard deviation, items / time."""
        return np.sqrt(self.shape) / self.rate

    def at(self, cells: IntArray, shape: tuple[int, ...]) -> Posterior:
        """Return the distributions, (K,), at flat positions of (..., N)."""
        return Posterior(entries(self.shape, cells, shape), entries(self.rate, cells, shape))

    def quantile(self, level: ArrayLike) -> FloatArray:
        """Return the quantile of the rate at probability `level` in (0, 1), items / time.

        Wilson & Hilferty (1931): s(1 − 1/(9s) + z/(3√s))³ for the shape s. For s ≥ ½ upper
        quantiles from .6 to .999 are accurate to 3.1 %, for s ≥ 4 to .8 %.
        """
        probability = np.asarray(level, dtype=np.float64)
        normal = [NormalDist().inv_cdf(p) for p in probability.ravel()]
        z = np.reshape(normal, probability.shape)
        root = np.sqrt(self.shape)
        cube = 1.0 - 1.0 / (9.0 * self.shape) + z / (3.0 * root)
        return self.mean * np.maximum(cube, 0.0) ** 3

    def draw(self, rng: np.random.Generator) -> FloatArray:
        """Return one draw of every rate, (..., N) items / time."""
        return rng.standard_gamma(self.shape) / self.rate


def weak_prior(period: float = 1.0) -> Posterior:
    """Return the prior Gamma(½, T/100), which one crawl outweighs.

    Its mean, 50 items per step, is above the rates of most fleets, so that the index of every
    source is high until its first crawl. A prior mean below the true rate can prevent a source from
    ever being crawled.
    """
    return Posterior(np.array(0.5), np.array(0.01 * period))


WEAK = weak_prior()


class Estimator(Protocol):
    """An estimator of arrival rates, as pure functions of a state.

    The state is a tuple of arrays whose leading axes are those of the batch.
    """

    @property
    def counts(self) -> bool:
        """Whether the estimator uses the number of items, rather than whether there are any."""
        ...

    def begin(self, shape: tuple[int, ...]) -> State:
        """Return the state before any crawl of sources (..., N)."""
        ...

    def update(self, state: State, outcome: CrawlOutcome) -> State:
        """Return the state after one step, in new arrays."""
        ...

    def posterior(self, state: State, cells: IntArray | None = None) -> Posterior:
        """Return the posterior of the arrival rates, (..., N), or of some sources, (K,), given by
        their flat positions in (..., N)."""
        ...


def conjugate(
    prior: Posterior, count: FloatArray, exposure: FloatArray, cells: IntArray | None = None
) -> Posterior:
    """Return the posterior, (..., N), of sources with `count` items in the time `exposure`; or that
    of some, (K,), given by their flat positions."""
    if cells is None:
        return Posterior(prior.shape + count, prior.rate + exposure)
    shape, rate = prior.at(cells, count.shape)
    return Posterior(shape + count.reshape(-1)[cells], rate + exposure.reshape(-1)[cells])


class Counts(NamedTuple):
    """DiscountedCounts sums over the crawls of every source, (..., N)."""

    items: FloatArray  # number
    time: FloatArray


@dataclass(frozen=True)
class GammaPoisson:
    """The conjugate posterior: n items after a gap τ add n to the shape and τ to the rate.

    With ρ < 1 both are multiplied by ρ in every step, towards the prior. The estimate is then an
    average over about 1/(1 − ρ) steps, and the uncertainty of a source grows between crawls.

    Arguments:
        prior: shape and rate of the prior, for all sources or (N,).
        retention: ρ in (0, 1], the weight of past observations after one step; with ρ = 1 the
            estimate does not depend on the order of the crawls. Arrays broadcast with (..., N).
        period: T, the length of a step.

    Raises:
        ValueError: an argument is out of range.

    >>> estimator = GammaPoisson()
    >>> state = estimator.update(estimator.begin((2,)), CrawlOutcome.of([10, 10], [3, 0]))
    >>> estimator.posterior(state).mean.round(3)
    array([0.35, 0.05])
    """

    prior: Posterior = WEAK
    retention: float | FloatArray = 1.0
    period: float = 1.0
    counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_prior(self.prior)
        check_retention(self.retention)
        check_positive("period", self.period)

    def begin(self, shape: tuple[int, ...]) -> Counts:
        return Counts(np.zeros(shape), np.zeros(shape))

    def update(self, state: State, outcome: CrawlOutcome) -> Counts:
        old, cells = Counts(*state), outcome.cells
        if not np.all(np.equal(self.retention, 1.0)):
            fade = self.retention ** (outcome.elapsed / self.period)
            old = Counts(fade * old.items, fade * old.time)
        return Counts(
            increased(old.items, cells, outcome.counts),
            increased(old.time, cells, outcome.gaps),
        )

    def posterior(self, state: State, cells: IntArray | None = None) -> Posterior:
        return conjugate(self.prior, *Counts(*state), cells)


class DiscountedCounts(NamedTuple):
    """Sums over the crawls of every fleet of a batch (..., N), for each of K retentions.

    Discounting multiplies the weight, and only crawls change counts and time, to which they add
    with the inverse of the weight.
    """

    crawls: FloatArray  # (..., 1) number
    misfit: FloatArray  # (..., K) Σ (n − m)²/v
    spread: FloatArray  # (..., K) Σ ln v
    weight: FloatArray  # (..., K) of all that was added so far
    items: FloatArray  # (..., K, N) number
    time: FloatArray  # (..., K, N)


@dataclass(frozen=True)
class Forgetting:
    """Gamma–Poisson with the retention ρ of highest prequential (one-step-ahead) likelihood.

    The rates are estimated with each ρ in parallel. Before a crawl of gap τ, a posterior (A, B)
    predicts its count n with mean m = Aτ/B and variance v = m(1 + τ/B). In every fleet of the
    batch, the ρ is used that maximises the normal likelihood of all counts of the fleet, with
    variances φv and the dispersion φ fitted for each ρ:

        −½(K ln φ + Σ ln v), φ = Σ (n − m)²/v / K, over K crawls.

    Without φ, or with the exact distribution of the counts, items that arrive in clusters would be
    mistaken for changing rates, since both discounting and clusters increase the prediction errors.
    (Discount factors compared by their predictions: West & Harrison; the score: Dawid &
    Sebastiani.)

    All past crawls enter the likelihood with equal weight: after a long stationary time, it takes
    as many crawls under changing rates to alter ρ.

    Arguments:
        retentions: candidate values of ρ, each in (0, 1], the weight of past observations after
            one step.
        prior: shape and rate of the prior, for all sources or (N,).
        period: T, the length of a step.

    Raises:
        ValueError: an argument is out of range.
    """

    retentions: tuple[float, ...] = RETENTIONS
    prior: Posterior = WEAK
    period: float = 1.0
    counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not len(self.retentions):
            raise ValueError("retentions is empty; give at least one, such as 1.0")
        for retention in self.retentions:
            check_retention(retention)
        check_prior(self.prior, most=1)
        check_positive("period", self.period)

    def begin(self, shape: tuple[int, ...]) -> DiscountedCounts:
        *batch, n = shape
        width = len(self.retentions)
        return DiscountedCounts(
            crawls=np.zeros((*batch, 1)),
            misfit=np.zeros((*batch, width)),
            spread=np.zeros((*batch, width)),
            weight=np.ones((*batch, width)),
            items=np.zeros((*batch, width, n)),
            time=np.zeros((*batch, width, n)),
        )

    def update(self, state: State, outcome: CrawlOutcome) -> DiscountedCounts:
        crawls, misfit, spread, weight, count, exposure = state
        fade = np.array(self.retentions) ** (outcome.elapsed / self.period)
        weight = weight * fade
        if weight.size and weight.min() < _LEAST_WEIGHT:
            count, exposure = weight[..., None] * count, weight[..., None] * exposure
            weight = np.ones_like(weight)
        n, width = outcome.shape[-1], len(self.retentions)
        row = outcome.cells // n
        first = row * (width - 1) * n + outcome.cells  # flat positions in (..., K, N)
        at = (first[:, None] + n * np.arange(width)).reshape(-1)
        count, exposure = copy_to_change(count, at), copy_to_change(exposure, at)
        misfit, spread = misfit.copy(), spread.copy()
        law = self.prior.at(outcome.cells, outcome.shape)
        _predict_and_add(
            law.shape,
            law.rate,
            outcome.counts,
            outcome.gaps,
            row,
            at,
            weight.reshape(-1, width),
            count.reshape(-1),
            exposure.reshape(-1),
            misfit.reshape(-1, width),
            spread.reshape(-1, width),
        )
        number = np.bincount(row, minlength=crawls.size).reshape(crawls.shape)
        return DiscountedCounts(crawls + number, misfit, spread, weight, count, exposure)

    def posterior(self, state: State, cells: IntArray | None = None) -> Posterior:
        best = self.best(state)
        _, _, _, weight, count, exposure = state
        *batch, width, n = count.shape
        fleet = np.arange(best.size), best.reshape(-1)
        weights = weight.reshape(-1, width)[fleet]
        if cells is not None:
            row = cells // n
            at = (row * (width - 1) + best.reshape(-1)[row]) * n + cells
            law, now = self.prior.at(cells, (*batch, n)), weights[row]
            return Posterior(
                law.shape + now * count.reshape(-1)[at], law.rate + now * exposure.reshape(-1)[at]
            )
        count, exposure = (
            (weights[:, None] * array.reshape(-1, width, n)[fleet]).reshape(*batch, n)
            for array in (count, exposure)
        )
        return Posterior(self.prior.shape + count, self.prior.rate + exposure)

    def best(self, state: State) -> NDArray[np.intp]:
        """Return the position of the selected ρ in `retentions`, (...,)."""
        crawls, misfit, spread = state[:3]
        dispersion = np.maximum(misfit / np.maximum(crawls, 1.0), _TINY_MEAN)
        return np.asarray((-crawls * np.log(dispersion) - spread).argmax(axis=-1))


@compiled
def _predict_and_add(
    shape: FloatArray,
    rate: FloatArray,
    items: FloatArray,
    gaps: FloatArray,
    row: IntArray,
    at: IntArray,
    weight: FloatArray,
    count: FloatArray,
    exposure: FloatArray,
    misfit: FloatArray,
    spread: FloatArray,
) -> None:
    """Compare the counts of crawls, (M,), with their predictions, and then add them.

    Arguments:
        shape, rate: of the prior, (M,).
        row: (M,) the fleet to which a source belongs, of R.
        at: (M·K,) positions of its sums for each ρ.
        weight: (R, K).
        count, exposure: the flat sums, to which each crawl adds.
        misfit, spread: (R, K), to which (n − m)²/v and ln v are added.
    """
    width = weight.shape[1]
    for i in range(items.size):
        r, n, gap = row[i], items[i], gaps[i]
        for k in range(width):
            cell, now = at[i * width + k], weight[r, k]
            below = rate[i] + now * exposure[cell]
            mean = max((shape[i] + now * count[cell]) * gap / below, _TINY_MEAN)
            variance = mean * (1.0 + gap / below)
            misfit[r, k] += (n - mean) ** 2 / variance
            spread[r, k] += np.log(variance)
            count[cell] += n / now
            exposure[cell] += gap / now


class FleetCounts(NamedTuple):
    """Sums over crawls, and the prior fitted to every fleet of a batch (..., N)."""

    items: FloatArray  # (..., N) number
    time: FloatArray  # (..., N)
    shape: FloatArray  # (..., 1) of the prior
    rate: FloatArray  # (..., 1) of it, time
    updates: FloatArray  # (..., 1) number of steps


@dataclass(frozen=True)
class FleetPrior:
    """Gamma–Poisson whose prior is fitted to each fleet of the batch (empirical Bayes).

    Each of the first 16 updates, and then every 16th, makes one step of `fit_prior`.

    Arguments:
        prior: initial prior of all sources. The fit adds a pseudo-source whose rate has a
            distribution of this shape.

    Raises:
        ValueError: the prior is out of range, or differs between sources.
    """

    prior: Posterior = WEAK
    counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_prior(self.prior)
        if np.ndim(self.prior.shape) or np.ndim(self.prior.rate):
            raise ValueError(
                "the prior has one shape or rate per source, but estimator 'fleet-prior' fits one "
                "prior for the whole fleet; give two scalars, or use 'gamma-poisson'"
            )

    def begin(self, shape: tuple[int, ...]) -> FleetCounts:
        one = (*shape[:-1], 1)
        own, rate = (np.full(one, float(x)) for x in self.prior)
        return FleetCounts(np.zeros(shape), np.zeros(shape), own, rate, np.zeros(one))

    def update(self, state: State, outcome: CrawlOutcome) -> FleetCounts:
        count, exposure, shape, rate, updates = state
        count = increased(count, outcome.cells, outcome.counts)
        exposure, updates = increased(exposure, outcome.cells, outcome.gaps), updates + 1
        due = is_due(updates)
        if due.any():
            better = fit_prior(count, exposure, Posterior(shape, rate), self.prior)
            shape = np.where(due, better.shape, shape)
            rate = np.where(due, better.rate, rate)
        return FleetCounts(count, exposure, shape, rate, updates)

    def posterior(self, state: State, cells: IntArray | None = None) -> Posterior:
        counts = FleetCounts(*state)
        prior = Posterior(counts.shape, counts.rate)
        return conjugate(prior, counts.items, counts.time, cells)


def is_due(updates: FloatArray) -> BoolArray:
    """Return whether the next step of a fit to the fleet is due after so many updates."""
    return (updates <= EVERY) | (updates % EVERY == 0)


def fit_prior(
    count: FloatArray, exposure: FloatArray, start: Posterior, weak: Posterior, steps: int = 1
) -> Posterior:
    """Return a Gamma prior (..., 1) for sources that had `count` items in time `exposure` (..., N).

    It maximises the marginal likelihood Π NB(n; a, b/(b + τ)) by expectation–maximisation: with
    E Λ = (a+n)/(b+τ) and E ln Λ = ψ(a+n) − ln(b+τ), the new (a, b) is the Gamma distribution that
    has the means of these over the fleet.

    A pseudo-source is added, whose rate has a distribution of the weak prior's shape and the
    fleet's mean, (Σn + a₀)/(Στ + b₀). As a conjugate prior of (a, b) it does not change the mean,
    and keeps both finite and positive for one source, for equal sources, and without any items.

    Arguments:
        start: initial value, (..., 1).
        weak: a₀, b₀.
        steps: number of steps.
    """
    n = count.shape[-1]
    shape, rate = (np.asarray(x, dtype=np.float64) for x in start)
    number = count.sum(axis=-1, keepdims=True) + weak.shape
    middle = number / (exposure.sum(axis=-1, keepdims=True) + weak.rate)
    log_middle = np.log(middle) + float(digamma(np.asarray(weak.shape)) - np.log(weak.shape))
    for _ in range(steps):
        above, below = shape + count, rate + exposure
        mean = (above / below).sum(axis=-1, keepdims=True) + middle
        log_mean = (digamma(above) - np.log(below)).sum(axis=-1, keepdims=True) + log_middle
        mean, log_mean = mean / (n + 1), log_mean / (n + 1)
        shape = _gamma_shape(np.log(mean) - log_mean)
        rate = shape / mean
    return Posterior(shape, rate)


def digamma(x: FloatArray) -> FloatArray:
    """Return ψ(x), any shape, x > 0, to 1e-10 (Abramowitz & Stegun 6.3.5, 6.3.18).

    >>> float(digamma(np.array(1.0)).round(10))
    -0.5772156649
    """
    y = np.ascontiguousarray(x, dtype=np.float64)
    out = np.empty(y.size)
    _digamma_of_each(y.reshape(-1), out)
    return out.reshape(np.shape(x))


@compiled
def _digamma_of_each(x: FloatArray, out: FloatArray) -> None:
    for i in range(x.size):
        out[i] = _digamma(x[i])


@compiled
def _digamma(x: float) -> float:
    low = 0.0
    for i in range(_SHIFT):
        low += 1.0 / (x + i)
    y = x + _SHIFT
    w = 1.0 / (y * y)
    series = w * (1 / 12 - w * (1 / 120 - w * (1 / 252 - w * (1 / 240 - w / 132))))
    return np.log(y) - 0.5 / y - series - low


def _gamma_shape(spread: FloatArray) -> FloatArray:
    """Return the root a of ln a − ψ(a) = spread ≥ 0: Minka's initial value and two Newton steps."""
    out = np.empty(spread.size)
    _gamma_shape_of_each(spread.reshape(-1), out)
    return out.reshape(spread.shape)


@compiled
def _gamma_shape_of_each(spread: FloatArray, out: FloatArray) -> None:
    for i in range(spread.size):
        s = max(spread[i], 0.5 / _LARGEST_SHAPE)
        a = (3.0 - s + np.sqrt((s - 3.0) ** 2 + 24.0 * s)) / (12.0 * s)
        for _ in range(2):
            h = 1e-4 * a
            slope = 1.0 / a - (_digamma(a + h) - _digamma(a - h)) / (2 * h)
            a = 1.0 / (1.0 / a + (np.log(a) - _digamma(a) - s) / (a * a * slope))
        out[i] = min(max(a, 1.0 / _LARGEST_SHAPE), _LARGEST_SHAPE)


def check_prior(prior: Posterior, most: int = 2) -> None:
    """Raise ValueError unless shape and rate of a prior are positive and finite, with at most
    `most` axes."""
    if not isinstance(prior, Posterior):
        raise ValueError(f"prior is {prior!r}; give a Posterior(shape, rate)")
    if max(np.ndim(prior.shape), np.ndim(prior.rate)) > most:
        raise ValueError(
            "the prior has too many axes; give two scalars, or one shape and rate per source"
        )
    for name, value in zip(("shape", "rate"), prior, strict=True):
        check_array(f"the prior's {name}", value, low=0.0, open_low=True)


def check_retention(retention: float | FloatArray) -> None:
    """Raise ValueError unless the retention is in (0, 1]."""
    check_array("retention", retention, low=0.0, high=1.0, open_low=True)


# -- copies of arrays of which few entries change ------------------------------------------------
#
# States belong to the caller, so that an update returns new arrays. To copy those of a large fleet
# in every step would take longer than all the rest. But whoever passes on the last state has
# usually dropped the one before it, which differs from it only where the last update changed it:
# these few entries are brought up to date, and the array is used again. Where somebody still refers
# to it, or it is unknown, the whole array is copied.


class _Older(NamedTuple):
    """An array that `copy_to_change` has returned, and the one of which it was a copy."""

    newer: ref[Any]  # the array
    older: NDArray[Any]  # the one of which it was a copy
    cells: IntArray  # where they differ


_older: dict[int, _Older] = {}  # by id of the newer array, as long as that exists


def _references(entry: _Older) -> int:
    return getrefcount(entry[1])


_OWN = _references(_Older(ref(_FEW.__class__), np.empty(1), np.empty(0, dtype=np.intp)))


def copy_to_change(array: NDArray[Any], cells: IntArray, width: int = 1) -> NDArray[Any]:
    """Return a copy of an array, of which the caller may change some entries only.

    The array itself must never be changed afterwards.

    Arguments:
        array: (..., N) or, with rows of `width`, (..., N, width).
        cells: (K,), flat positions in (..., N) of the entries or rows that may be changed.
    """
    if array.size <= _FEW:
        return array.copy()
    entry = _older.pop(id(array), None)
    if entry is not None and entry.newer() is array and _references(entry) == _OWN:
        copy = entry.older
        copy.reshape(-1, width)[entry.cells] = array.reshape(-1, width)[entry.cells]
    else:
        copy = array.copy()
    del entry
    if array.flags.owndata and array.flags.writeable:
        key = id(copy)
        _older[key] = _Older(ref(copy, lambda _: _forget(key)), array, cells)
    return copy


def _forget(key: int) -> None:
    _older.pop(key, None)
