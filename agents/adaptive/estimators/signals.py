"""Estimator of arrival rates and of the quality of signals: the silent rate and the precision.

A crawl that finds k new items after a gap τ in which n pings arrived is an observation of

    k ~ Poisson(Λ_s τ) + Binomial(n, p),

with the silent rate Λ_s, at which items arrive without a ping, and the precision p, the probability
that a ping is true. With the ping rate g, which is counted, the arrival rate is Λ = Λ_s + pg.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lgamma
from typing import ClassVar, NamedTuple

import numpy as np

from agents.adaptive.estimators.counts import (
    WEAK,
    CrawlOutcome,
    Posterior,
    State,
    check_prior,
    check_retention,
    fit_prior,
)
from agents.adaptive.recycling import copy_to_change
from crawl_env.compiled import compiled, inlined
from crawl_env.errors import check_positive, check_within
from crawl_env.numerics import BoolArray, FloatArray, IntArray

_J = 16
_ANGLES: FloatArray = np.pi * (np.arange(_J) + 0.5) / (2 * _J)
# Support of the precision: the middles of cells that have equal probability under Beta(½, ½), the
# Jeffreys prior, and in which an estimate from given pings has about equal errors.
PRECISIONS: FloatArray = np.sin(_ANGLES) ** 2  # (J,)
_CELL = np.pi / (2 * _J)  # width of a cell, as an angle
# Variance of a uniform distribution of the angle over a cell, as a variance of the precision.
_CELL_VARIANCE: FloatArray = np.sin(2 * _ANGLES) ** 2 * _CELL**2 / 12
_EVERY = 16  # updates between two steps of the fit to the fleet, after the first 16 updates
_MOST_TERMS = 64.0  # of an exact sum; beyond, counts are approximated by a normal distribution
_LARGE, _LOG_LARGE = 1e200, float(np.log(1e200))
_LEAST_WEIGHT = 1e-50  # of past observations, below which their sums are rescaled
_LEAST_RATE = 1e-12  # of silent rates, relative to the prior mean
_LEAST_SHAPE = 1e-6
_RARE = 1e-9  # probability of anything new below which it is a single item
_TINY = 1e-300


class Quality(NamedTuple):
    """Estimates of signals, in arrays of one shape, (..., N) or (K,)."""

    rate: FloatArray  # total rate Λ = Λ_s + pg, items / time
    silent: FloatArray  # silent rate Λ_s, items / time
    precision: FloatArray  # p

    def scaled(self, factor: FloatArray) -> Quality:
        """Return the estimates of a source at which this many times as many items arrive, with and
        without pings; p is at most 1."""
        precision = np.minimum(self.precision * factor, 1.0)
        return Quality(self.rate * factor, self.silent * factor, precision)


@dataclass(frozen=True)
class SignalQuality:
    """Posterior of the silent rate Λ_s and the precision p of every source.

    p is one of `PRECISIONS`, for each of which Λ_s has a Gamma distribution. A crawl multiplies the
    probability of each p by that of its outcome, and the Gamma distribution given p by its
    likelihood; the result is a mixture over the possible numbers of true pings, which is replaced
    by the Gamma distribution of the same mean and variance (assumed-density filtering). If only
    `changed` is observed, P(nothing new) = (1 − p)ⁿ e^{−Λ_s τ} takes the place of the distribution
    of the count; then p and Λ_s of a source that changes in every gap are not identifiable.

    Both priors are fitted to each fleet of the batch (empirical Bayes by
    expectation–maximisation, one step in each of the first 16 updates, then in every 16th): the
    fractions of the `PRECISIONS`, with a pseudo-source of Beta(½, ½), and the Gamma prior of Λ_s as
    by `fit_prior`. Sources that never ping have the fleet's precision and Λ = Λ_s.

    Rates and quality may change. The numbers of items and pings are weighted by ρ per step, and in
    each step the precision of a source is replaced with the probability `hazard` by one of
    Beta(½, ½), so that few crawls outweigh a long past that they contradict (Herbster & Warmuth).

    Signals may come with a delay, which is not modelled: p is then the probability that a ping
    announces an item that was not crawled before the ping, and Λ_s includes items that were crawled
    before theirs; Λ = Λ_s + pg holds for these, too.

    Arguments:
        prior: initial Gamma prior of Λ_s, for all sources.
        retention: ρ in (0, 1], the weight of past observations after one step.
        hazard: probability in [0, 1) of a new precision in one step.
        period: T, the length of a step.
        counts: whether numbers of items are used, rather than whether there are any.

    Raises:
        ValueError: an argument is out of range.
    """

    prior: Posterior = WEAK
    retention: float = 0.999
    hazard: float = 2e-4
    period: float = 1.0
    counts: bool = True
    signed: ClassVar[tuple[int, ...]] = (6,)

    def __post_init__(self) -> None:
        check_prior(self.prior, most=0)
        check_retention(self.retention)
        check_within("hazard", self.hazard, 0.0, 1.0, open_high=True)
        check_positive("period", self.period)

    def begin(self, shape: tuple[int, ...]) -> State:
        """Return, of a batch of fleets (..., N): the number of updates, the weight of all that was
        added so far, the time, the shape and rate of the prior of Λ_s, (..., 1) each; the number of
        pings, (..., N); log-likelihoods of the precisions and what crawls have added to shape and
        rate of Λ_s given each, (..., N, J); and the fractions of the precisions, (..., J).

        As in `Forgetting`, all that is added is divided by the weight."""
        one = (*shape[:-1], 1)
        prior = (np.full(one, float(x)) for x in self.prior)
        tables = (np.zeros((*shape, _J)) for _ in range(3))
        fraction = np.full((*shape[:-1], _J), 1.0 / _J)
        return (
            np.zeros(one),
            np.ones(one),
            np.zeros(one),
            *prior,
            np.zeros(shape),
            *tables,
            fraction,
        )

    def update(self, state: State, outcome: CrawlOutcome) -> State:
        """Return the state after one step, in new arrays; an outcome without pings is one of
        sources that did not ping."""
        number, weight, elapsed, shape, rate, pings, *tables, fraction = state
        weight = weight * self.retention ** (outcome.elapsed / self.period)
        if weight.size and weight.min() < _LEAST_WEIGHT:
            elapsed, pings = weight * elapsed, weight * pings
            tables[1:] = [weight[..., None] * table for table in tables[1:]]
            weight = np.ones_like(weight)
        elapsed = elapsed + outcome.elapsed / weight
        if outcome.arrived is not None:
            pings = pings + outcome.arrived / weight
        cells, n = outcome.cells, outcome.shape[-1]
        tables = [copy_to_change(table, cells, _J) for table in tables]
        _add_crawls(
            cells,
            cells // n,
            outcome.gaps,
            outcome.counts if self.counts else outcome.changes.astype(np.float64),
            np.zeros(cells.size) if outcome.pings is None else outcome.pings,
            self.counts,
            weight.reshape(-1),
            shape.reshape(-1),
            rate.reshape(-1),
            -np.log1p(-self.hazard) / self.period,
            PRECISIONS,
            *(table.reshape(-1, _J) for table in (*tables, fraction)),
        )
        number = number + 1
        due = (number <= _EVERY) | (number % _EVERY == 0)
        new = number, weight, elapsed, shape, rate, pings, *tables, fraction
        return self._fitted(new, due) if due.any() else new

    def _fitted(self, state: State, due: BoolArray) -> State:
        """Return the state after one step of the fit of the priors, in the fleets that are due."""
        number, weight, elapsed, shape, rate, pings, *tables, fraction = state
        table = self._table(state)
        count, time = (weight[..., None] * x for x in tables[1:])
        count, time = ((table * x).sum(axis=-1) for x in (count, time))
        better = fit_prior(count, time, Posterior(shape, rate), self.prior)
        pinged = (pings > 0)[..., None]
        total = (table * pinged).sum(axis=-2) + 1.0 / _J
        total /= total.sum(axis=-1, keepdims=True)
        return (
            number,
            weight,
            elapsed,
            np.where(due, np.maximum(better.shape, _LEAST_SHAPE), shape),
            np.where(due, better.rate, rate),
            pings,
            *tables,
            np.where(due, total, fraction),
        )

    def _table(self, state: State) -> FloatArray:
        """Return the probabilities of the precisions, (..., N, J)."""
        log = np.log(state[-1])[..., None, :] + state[6]
        log -= log.max(axis=-1, keepdims=True)
        np.exp(log, out=log)
        log /= log.sum(axis=-1, keepdims=True)
        return np.asarray(log)

    def posterior(self, state: State, cells: IntArray | None = None) -> Posterior:
        """Return the Gamma distributions with mean and variance of the total rates Λ."""
        return self._moments(state, cells)[0]

    def quality(self, state: State, cells: IntArray | None = None) -> Quality:
        """Return the posterior means, (..., N), or those of some sources, (K,)."""
        _, silent, precision = self._moments(state, cells)
        rate = silent.mean + precision.mean * self.ping_rate(state, cells)
        return Quality(rate, silent.mean, precision.mean)

    def ping_rate(self, state: State, cells: IntArray | None = None) -> FloatArray:
        """Return the rates of pings g, (..., N) or (K,), pings / time."""
        elapsed, pings = state[2], state[5]
        if cells is None:
            return pings / np.maximum(elapsed, _TINY)
        return pings.reshape(-1)[cells] / np.maximum(
            elapsed.reshape(-1)[cells // pings.shape[-1]], _TINY
        )

    def draw(self, state: State, cells: IntArray, rng: np.random.Generator) -> Quality:
        """Return one draw from the joint posterior of some sources, (K,)."""
        n = state[5].shape[-1]
        shape, rate, precision = (np.empty(cells.size) for _ in range(3))
        chance = rng.random(cells.size)
        _draw(cells, n, self._flat(state), PRECISIONS, chance, shape, rate, precision)
        silent = rng.standard_gamma(shape) / rate
        return Quality(silent + precision * self.ping_rate(state, cells), silent, precision)

    def _flat(self, state: State) -> tuple[FloatArray, ...]:
        """Return the weight and the Gamma prior, (B,), the tables, (B·N, J), and the fractions."""
        _, weight, _, shape, rate, _, *tables, fraction = state
        rows = (array.reshape(-1) for array in (weight, shape, rate))
        return *rows, *(x.reshape(-1, _J) for x in (*tables, fraction))

    def _moments(
        self, state: State, cells: IntArray | None
    ) -> tuple[Posterior, Posterior, Posterior]:
        """Return the Gamma distributions that have the means and variances of the total rates, of
        the silent rates and of the precisions."""
        pings = state[5]
        shape = pings.shape if cells is None else cells.shape
        if cells is None:
            cells = np.arange(pings.size)
        rows, g = np.empty((6, cells.size)), self.ping_rate(state, cells)
        time = (state[1] * state[2]).reshape(-1)[cells // pings.shape[-1]]
        of_g = g / np.maximum(time, _TINY)  # the variance of a Poisson rate
        _moments(
            cells, pings.shape[-1], self._flat(state), g, of_g, PRECISIONS, _CELL_VARIANCE, rows
        )
        mean, variance = rows[:3].reshape(3, *shape), rows[3:].reshape(3, *shape)
        total, silent, precision = (
            Posterior(m * m / v, m / v) for m, v in zip(mean, variance, strict=True)
        )
        return total, silent, precision


@compiled
def _add_crawls(
    cells: IntArray,
    row: IntArray,
    gaps: FloatArray,
    found: FloatArray,
    pings: FloatArray,
    counted: bool,
    weight: FloatArray,
    prior_shape: FloatArray,
    prior_rate: FloatArray,
    hazard: float,
    precisions: FloatArray,
    likelihood: FloatArray,
    more_shape: FloatArray,
    more_rate: FloatArray,
    fraction: FloatArray,
) -> None:
    """Update the tables, (B·N, J), by crawls, (K,); weight and prior are those of fleets, (B,)."""
    for i in range(cells.size):
        cell, w = cells[i], weight[row[i]]
        shape, rate = prior_shape[row[i]], prior_rate[row[i]]
        gap, k, n = gaps[i], np.floor(found[i]), np.floor(pings[i])
        _share(cell, row[i], -np.expm1(-hazard * gap), likelihood, fraction)
        for j in range(precisions.size):
            a = shape + w * more_shape[cell, j]
            b = rate + w * more_rate[cell, j]
            p = precisions[j]
            if not counted:
                log, mean, variance = _after_change(a, b, gap, n, p, k > 0.0)
            elif min(k, n) <= _MOST_TERMS:
                log, mean, variance = _after_count(a, b, gap, n, p, k)
            else:
                log, mean, variance = _after_large_count(a, b, gap, n, p, k)
            new = min(max(mean / variance, b), b + gap)
            likelihood[cell, j] += log
            more_shape[cell, j] = max(mean * new - shape, 0.0) / w
            more_rate[cell, j] = (new - rate) / w


@inlined
def _share(
    cell: int, row: int, changed: float, likelihood: FloatArray, fraction: FloatArray
) -> None:
    """Replace the precision, with the probability `changed`, by one of Beta(½, ½)."""
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
def _after_count(
    a: float, b: float, gap: float, n: float, p: float, k: float
) -> tuple[float, float, float]:
    """Return the log-probability of k items and n pings, and mean and variance of Λ_s after them,
    given p and Λ_s ~ Gamma(a, b): the sum over the numbers of true pings."""
    odds, grown = p / (1.0 - p), (b + gap) / gap
    term, log = 1.0, 0.0
    total, first, second = 0.0, 0.0, 0.0
    true = 0.0
    while True:
        silent = k - true
        total += term
        first += term * silent
        second += term * silent * silent
        if true >= min(k, n):
            break
        term *= (n - true) / (true + 1.0) * odds * (silent / (a + silent - 1.0)) * grown
        true += 1.0
        if term > _LARGE:
            term, total = term / _LARGE, total / _LARGE
            first, second = first / _LARGE, second / _LARGE
            log += _LOG_LARGE
    log += n * np.log1p(-p) + lgamma(a + k) - lgamma(a) - lgamma(k + 1.0)
    log += a * np.log(b / (b + gap)) - k * np.log(grown)
    mean = first / total
    spread = max(second / total - mean * mean, 0.0)
    return log + np.log(total), (a + mean) / (b + gap), (a + mean + spread) / (b + gap) ** 2


@inlined
def _after_large_count(
    a: float, b: float, gap: float, n: float, p: float, k: float
) -> tuple[float, float, float]:
    """Return the same with a normal approximation of both terms of the count."""
    of_pings, silent = n * p * (1.0 - p), a * gap / b
    # The noise of the silent items: at the rate that the count implies if the prior is weak.
    noise = (a + max(k - n * p, 0.0)) / (b + gap) * gap
    spread = noise + silent * gap / b
    surprise = k - n * p - silent
    variance = of_pings + spread
    expected = silent + spread / variance * surprise
    expected = min(max(expected, max(k - n, 0.0)), k)
    left = of_pings * spread / variance
    log = -0.5 * (surprise * surprise / variance + np.log(variance))
    return log, (a + expected) / (b + gap), (a + expected + left) / (b + gap) ** 2


@inlined
def _after_change(
    a: float, b: float, gap: float, n: float, p: float, changed: bool
) -> tuple[float, float, float]:
    """Return the log-probability that anything is new, or nothing, after n pings, and mean and
    variance of Λ_s after that, given p and Λ_s ~ Gamma(a, b)."""
    log = n * np.log1p(-p) - a * np.log1p(gap / b)  # nothing is new
    mean, variance = a / (b + gap), a / (b + gap) ** 2
    if not changed:
        return log, mean, variance
    nothing = np.exp(log)
    something = max(-np.expm1(log), _TINY)
    if something < _RARE:  # one item in no time; the differences below would be mere rounding
        return np.log(something), (a + 1.0) / (b + gap), (a + 1.0) / (b + gap) ** 2
    before, square = a / b, a * (a + 1.0) / (b * b)
    of_both = (before - nothing * mean) / something
    squares = (square - nothing * (variance + mean * mean)) / something
    spread = max(squares - of_both * of_both, 0.5 * of_both / (b + gap))
    return np.log(something), of_both, spread


@inlined
def _probabilities(
    cell: int,
    row: int,
    likelihood: FloatArray,
    fraction: FloatArray,
    out: FloatArray,
) -> None:
    """Fill in the probabilities of the precisions of a source, (J,)."""
    most = -np.inf
    for j in range(out.size):
        out[j] = np.log(fraction[row, j]) + likelihood[cell, j]
        most = max(most, out[j])
    total = 0.0
    for j in range(out.size):
        out[j] = np.exp(out[j] - most)
        total += out[j]
    for j in range(out.size):
        out[j] /= total


@compiled
def _moments(
    cells: IntArray,
    n: int,
    arrays: tuple[FloatArray, ...],
    ping_rate: FloatArray,
    ping_variance: FloatArray,
    precisions: FloatArray,
    cell_variance: FloatArray,
    out: FloatArray,
) -> None:
    """Fill in means and variances, (6, K), of the total rates, silent rates and precisions."""
    weight, prior_shape, prior_rate, likelihood, more_shape, more_rate, fraction = arrays
    chance, means = np.empty(precisions.size), np.empty(precisions.size)
    for i in range(cells.size):
        cell, row, g = cells[i], cells[i] // n, ping_rate[i]
        _probabilities(cell, row, likelihood, fraction, chance)
        total, silent, true = 0.0, 0.0, 0.0
        squares, silent_squares, true_squares = 0.0, 0.0, 0.0
        for j in range(precisions.size):
            means[j] = (prior_shape[row] + weight[row] * more_shape[cell, j]) / (
                prior_rate[row] + weight[row] * more_rate[cell, j]
            )
        for j in range(precisions.size):
            a = prior_shape[row] + weight[row] * more_shape[cell, j]
            b = prior_rate[row] + weight[row] * more_rate[cell, j]
            mean, p = means[j], precisions[j]
            both = mean + p * g
            silent += chance[j] * mean
            total += chance[j] * both
            true += chance[j] * p
            squares += chance[j] * (a / (b * b) + p * p * ping_variance[i] + both * both)
            low, high = max(j - 1, 0), min(j + 1, precisions.size - 1)
            slope = (means[high] - means[low]) / (precisions[high] - precisions[low])
            silent_squares += chance[j] * (
                a / (b * b) + mean * mean + slope * slope * cell_variance[j]
            )
            true_squares += chance[j] * (p * p + cell_variance[j])
        out[0, i], out[1, i], out[2, i] = total, silent, true
        least = 1e-12  # of a variance, relative to the squared mean
        out[3, i] = max(squares - total * total, least * total * total)
        out[4, i] = max(silent_squares - silent * silent, least * silent * silent)
        out[5, i] = max(true_squares - true * true, least * true * true)


@compiled
def _draw(
    cells: IntArray,
    n: int,
    arrays: tuple[FloatArray, ...],
    precisions: FloatArray,
    chance: FloatArray,
    shape: FloatArray,
    rate: FloatArray,
    precision: FloatArray,
) -> None:
    """Draw a precision of each source, and fill in the Gamma distribution of Λ_s given it."""
    weight, prior_shape, prior_rate, likelihood, more_shape, more_rate, fraction = arrays
    probability = np.empty(precisions.size)
    for i in range(cells.size):
        cell, row = cells[i], cells[i] // n
        _probabilities(cell, row, likelihood, fraction, probability)
        j, below = 0, probability[0]
        while j < precisions.size - 1 and below < chance[i]:
            j += 1
            below += probability[j]
        shape[i] = prior_shape[row] + weight[row] * more_shape[cell, j]
        rate[i] = prior_rate[row] + weight[row] * more_rate[cell, j]
        precision[i] = precisions[j]
