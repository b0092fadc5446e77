"""Estimator of arrival rates and of the quality of signals: the silent rate and the precision.

A crawl that finds k new items after a gap τ in which n pings arrived is an observation of

    k ~ Poisson(Λ_s τ) + Binomial(n, p),

with the silent rate Λ_s, at which items arrive without a ping, and the precision p, the probability
that a ping is true. With the ping rate g, which is counted, the arrival rate is Λ = Λ_s + pg.

The quality of signals may change, and nobody announces it: the precision changes, or pings cease.

**Precision.** In each step the precision of a source is replaced with a small probability, the
hazard, so that few crawls outweigh a long past that they contradict (`share`). But what sends the
pings of a fleet often changes for many sources at once, as where a hub breaks, and a crawl of one
source then tells about the others. The hypothesis that the precision of all sources has become p at
some time is compared with the current estimates by the likelihood of the crawls since (`compare`):
its posterior odds satisfy the recursion of Shiryaev (1963),

    R ← (R + hazard · prior) · P(crawl | p) / P(crawl),

for each p. Once a change is more likely than none, all precisions are replaced (`replacement`).

**Silence.** Pings at rate g that have ceased at a random time are to be told from a pause. After a
silence of s the odds are (hazard/g)(e^{gs} − 1), of a source or, with the sum of all g, of the
fleet; `listen` asks for odds of 4. The items arrive as before, only unannounced: Λ_s becomes
Λ_s + pg (`transfer`), until a ping comes again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from agents.inference.ping_likelihood import (
    LEAST,
    after_change,
    after_count,
    after_large_count,
    compare,
    has_ceased,
    share,
)
from agents.inference.rates import (
    WEAK,
    CrawlOutcome,
    Posterior,
    State,
    check_prior,
    check_retention,
    copy_to_change,
    fit_prior,
    is_due,
)
from crawl_env.compiled import compiled, inlined
from crawl_env.errors import check_positive, check_within
from crawl_env.numerics import BoolArray, FloatArray, IntArray

_PARTS = 16
_ANGLES: FloatArray = np.pi * (np.arange(_PARTS) + 0.5) / (2 * _PARTS)
# Support of the precision: the middles of cells that have equal probability under Beta(½, ½), the
# Jeffreys prior, and in which an estimate from given pings has about equal errors; and 0, for pings
# that are all but unrelated to items.
PRECISIONS: FloatArray = np.append(0.0, np.sin(_ANGLES) ** 2)  # (J,)
_J = PRECISIONS.size
_CELL = np.pi / (2 * _PARTS)  # width of a cell, as an angle
# Variance of a uniform distribution of the angle over a cell, as a variance of the precision.
_CELL_VARIANCE: FloatArray = np.append(0.0, np.sin(2 * _ANGLES) ** 2 * _CELL**2 / 12)
_ANY = 0.1  # probability, after a change, that the precision of a source is not like the others'
_MOST_TERMS = 64.0  # of an exact sum; beyond, counts are approximated by a normal distribution
_LEAST_WEIGHT = 1e-50  # of past observations, below which their sums are rescaled
_LEAST_SHAPE = 1e-6
_LEAST_PRECISION = 1e-12  # of means, of which the moments are divided
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


class PingSums(NamedTuple):
    """Sums over a batch of fleets (..., N): the state of `SignalQuality`.

    As in `Forgetting`, all that is added is divided by `weight`.
    """

    updates: FloatArray  # (..., 1) number of steps
    weight: FloatArray  # (..., 1) of all that was added so far
    elapsed: FloatArray  # (..., 1) time
    shape: FloatArray  # (..., 1) of the Gamma prior of Λ_s
    rate: FloatArray  # (..., 1) of it
    pings: FloatArray  # (..., N) number
    silence: FloatArray  # (..., N) time since the last ping
    ceased: FloatArray  # (..., N) rate of pings that have ceased; 0 where they come
    likelihood: FloatArray  # (..., N, J) logarithm, of the precisions
    items: FloatArray  # (..., N, J) what crawls have added to the shape of Λ_s given each precision
    time: FloatArray  # (..., N, J) the same of its rate
    fraction: FloatArray  # (..., J) of sources of each precision in the fleet
    odds: FloatArray  # (..., J) logarithms, of a change of all precisions to this one


# Of `PingSums` of B fleets, in whose arrays the compiled functions read and write: weight, and
# shape and rate of the prior, (B,); likelihood, items and time, (B·N, J); fraction, (B, J).
_Tables = tuple[FloatArray, ...]


def _tables(x: PingSums) -> _Tables:
    rows = (array.reshape(-1) for array in (x.weight, x.shape, x.rate))
    tables = (x.likelihood, x.items, x.time, x.fraction)
    return *rows, *(table.reshape(-1, _J) for table in tables)


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

    Rates and quality may change. The numbers of items and pings are weighted by ρ per step. In each
    step, with the probability `hazard` each, the precision of a source is replaced by one of
    Beta(½, ½), so that few crawls outweigh a long past that they contradict (Herbster & Warmuth);
    the precision of the whole fleet becomes another one, as where a hub breaks; and the pings of a
    source, or of all, cease, while its items arrive as before. See the module.

    Signals may come with a delay, which is not modelled: p is then the probability that a ping
    announces an item that was not crawled before the ping, and Λ_s includes items that were crawled
    before theirs; Λ = Λ_s + pg holds for these, too.

    Arguments:
        prior: initial Gamma prior of Λ_s, for all sources.
        retention: ρ in (0, 1], the weight of past observations after one step.
        hazard: probability in [0, 1) of each of these changes in one step.
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

    def __post_init__(self) -> None:
        check_prior(self.prior, most=0)
        check_retention(self.retention)
        check_within("hazard", self.hazard, 0.0, 1.0, open_high=True)
        check_positive("period", self.period)

    def begin(self, shape: tuple[int, ...]) -> State:
        """Return the `PingSums` of a batch of fleets (..., N) before any step."""
        one = (*shape[:-1], 1)
        fraction = np.full((*shape[:-1], _J), 1.0 / _J)
        return PingSums(
            updates=np.zeros(one),
            weight=np.ones(one),
            elapsed=np.zeros(one),
            shape=np.full(one, float(self.prior.shape)),
            rate=np.full(one, float(self.prior.rate)),
            pings=np.zeros(shape),
            silence=np.zeros(shape),
            ceased=np.zeros(shape),
            likelihood=np.zeros((*shape, _J)),
            items=np.zeros((*shape, _J)),
            time=np.zeros((*shape, _J)),
            fraction=fraction,
            odds=no_change(fraction.shape),
        )

    def update(self, state: State, outcome: CrawlOutcome) -> State:
        """Return the state after one step, in new arrays; an outcome without pings is one of
        sources that did not ping."""
        old = self._faded(PingSums(*state), outcome.elapsed)
        new = self._crawled(old, outcome)
        if outcome.arrived is not None:
            new = self._heard(new, outcome.arrived, outcome.elapsed)
        new = new._replace(updates=new.updates + 1)
        due = is_due(new.updates)
        return self._fitted(new, due) if due.any() else new

    def _faded(self, old: PingSums, elapsed: float) -> PingSums:
        """Return the state after the time of a step, without what was observed in it."""
        weight = old.weight * self.retention ** (elapsed / self.period)
        old = old._replace(odds=odds_after(old.odds, self._rate * elapsed))
        if weight.size and weight.min() < _LEAST_WEIGHT:
            w = weight[..., None]
            old = old._replace(
                elapsed=weight * old.elapsed,
                pings=weight * old.pings,
                items=w * old.items,
                time=w * old.time,
            )
            weight = np.ones_like(weight)
        return old._replace(weight=weight, elapsed=old.elapsed + elapsed / weight)

    def _crawled(self, old: PingSums, outcome: CrawlOutcome) -> PingSums:
        """Return the state after the crawls of a step."""
        cells, n = outcome.cells, outcome.shape[-1]
        if not cells.size:
            return old
        likelihood, items, time = (
            copy_to_change(table, cells, _J) for table in (old.likelihood, old.items, old.time)
        )
        new = old._replace(likelihood=likelihood, items=items, time=time)
        _add_crawls(
            cells,
            cells // n,
            outcome.gaps,
            outcome.counts if self.counts else outcome.changes.astype(np.float64),
            np.zeros(cells.size) if outcome.pings is None else outcome.pings,
            self.counts,
            self._rate,
            PRECISIONS,
            _tables(new),
            old.odds.reshape(-1, _J),  # `odds_after` has returned a new array
        )
        changed = is_likely(old.odds)[..., None]
        if not (self.hazard and changed.any()):
            return new
        fresh = np.log(replacement(new.odds) / new.fraction)[..., None, :]
        return new._replace(
            likelihood=np.where(changed[..., None], fresh, likelihood),
            odds=np.where(changed, no_change(new.odds.shape), new.odds),
        )

    def _heard(self, old: PingSums, arrived: FloatArray, time: float) -> PingSums:
        """Return the state after the pings of a step."""
        pings, silence = old.pings + arrived / old.weight, old.silence.copy()
        new = old._replace(pings=pings, silence=silence)
        cells = listen(
            arrived.reshape(-1),
            time,
            self._rate,
            old.elapsed.reshape(-1),
            pings.reshape(-1),
            silence.reshape(-1),
            old.ceased.reshape(-1),
        )
        if not cells.size:
            return new
        items, row = copy_to_change(old.items, cells, _J), cells // pings.shape[-1]
        ceased, flat = old.ceased.copy(), pings.reshape(-1)
        before, elapsed = ceased.reshape(-1)[cells], old.elapsed.reshape(-1)[row]
        rate = np.where(before > 0, -before, flat[cells] / elapsed)
        ceased.reshape(-1)[cells] = np.maximum(rate, 0.0)
        flat[cells] = np.maximum(flat[cells], before * elapsed)
        new = new._replace(items=items, ceased=ceased)
        transfer(cells, row, rate, PRECISIONS, _tables(new))
        return new

    @property
    def _rate(self) -> float:
        """The hazard, 1 / time."""
        return -float(np.log1p(-self.hazard)) / self.period

    def _fitted(self, old: PingSums, due: BoolArray) -> PingSums:
        """Return the state after one step of the fit of the priors, in the fleets that are due."""
        table, weight = self._table(old), old.weight[..., None]
        count, time = ((table * weight * x).sum(axis=-1) for x in (old.items, old.time))
        better = fit_prior(count, time, Posterior(old.shape, old.rate), self.prior)
        pinged = (old.pings > 0)[..., None]
        total = (table * pinged).sum(axis=-2) + 1.0 / _J
        total /= total.sum(axis=-1, keepdims=True)
        return old._replace(
            shape=np.where(due, np.maximum(better.shape, _LEAST_SHAPE), old.shape),
            rate=np.where(due, better.rate, old.rate),
            fraction=np.where(due, total, old.fraction),
        )

    def _table(self, sums: PingSums) -> FloatArray:
        """Return the probabilities of the precisions, (..., N, J)."""
        log = np.log(sums.fraction)[..., None, :] + sums.likelihood
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
        """Return the rates of pings g, (..., N) or (K,), pings / time; 0 where they have ceased."""
        sums = PingSums(*state)
        pings, ceased = sums.pings, sums.ceased
        elapsed = np.broadcast_to(sums.elapsed, pings.shape)
        if cells is not None:
            elapsed = sums.elapsed.reshape(-1)[cells // pings.shape[-1]]
            pings, ceased = pings.reshape(-1)[cells], ceased.reshape(-1)[cells]
        return np.where(ceased > 0, 0.0, pings / np.maximum(elapsed, _TINY))

    def draw(self, state: State, cells: IntArray, rng: np.random.Generator) -> Quality:
        """Return one draw from the joint posterior of some sources, (K,)."""
        sums = PingSums(*state)
        n = sums.pings.shape[-1]
        shape, rate, precision = (np.empty(cells.size) for _ in range(3))
        chance = rng.random(cells.size)
        _draw(cells, n, _tables(sums), PRECISIONS, chance, shape, rate, precision)
        silent = rng.standard_gamma(shape) / rate
        return Quality(silent + precision * self.ping_rate(state, cells), silent, precision)

    def _moments(
        self, state: State, cells: IntArray | None
    ) -> tuple[Posterior, Posterior, Posterior]:
        """Return the Gamma distributions that have the means and variances of the total rates, of
        the silent rates and of the precisions."""
        sums = PingSums(*state)
        pings = sums.pings
        shape = pings.shape if cells is None else cells.shape
        if cells is None:
            cells = np.arange(pings.size)
        rows, g = np.empty((6, cells.size)), self.ping_rate(state, cells)
        time = (sums.weight * sums.elapsed).reshape(-1)[cells // pings.shape[-1]]
        of_g = g / np.maximum(time, _TINY)  # the variance of a Poisson rate
        tables = _tables(sums)
        _moments(cells, pings.shape[-1], tables, g, of_g, PRECISIONS, _CELL_VARIANCE, rows)
        mean, variance = rows[:3].reshape(3, *shape), rows[3:].reshape(3, *shape)
        total, silent, precision = (
            Posterior(m * m / v, m / v) for m, v in zip(mean, variance, strict=True)
        )
        return total, silent, precision


# -- changes of the whole fleet: see the module ---------------------------------------------------


def no_change(shape: tuple[int, ...]) -> FloatArray:
    """Return the logarithms of the odds, (..., J), before any crawl."""
    return np.full(shape, LEAST)


def odds_after(odds: FloatArray, hazard: float) -> FloatArray:
    """Return the odds, (..., J), after a time in which a change has the probability `hazard`."""
    if hazard == 0:
        return odds.copy()
    return np.asarray(np.logaddexp(odds, np.log(hazard / odds.shape[-1])))


def is_likely(odds: FloatArray) -> BoolArray:
    """Return whether each fleet, (...), has more likely changed than not."""
    return np.asarray(np.logaddexp.reduce(odds, axis=-1) > 0.0)


def replacement(odds: FloatArray) -> FloatArray:
    """Return the probabilities of the precisions, (..., J), of sources of fleets that changed.

    Arguments:
        odds: (..., J), of which some are positive.
    """
    new = np.exp(odds - odds.max(axis=-1, keepdims=True))
    new /= new.sum(axis=-1, keepdims=True)
    return (1.0 - _ANY) * new + _ANY / new.shape[-1]


@compiled
def listen(
    arrived: FloatArray,
    time: float,
    hazard: float,
    elapsed: FloatArray,
    pings: FloatArray,
    silence: FloatArray,
    ceased: FloatArray,
) -> IntArray:
    """Update silences by the pings of a step, and find those that cease or come again.

    Returns the sources, flat positions in (B, N), of which `ceased` changes; the caller changes it.

    Arguments:
        arrived: number of pings, (B, N).
        time: length of the step.
        hazard: rate at which pings cease, 1 / time.
        elapsed, pings: time, (B,), and number of pings, (B, N), that tell the rate of pings g.
        silence: time since the last ping, (B, N), changed in place.
        ceased: rate of the pings that have ceased, (B, N); 0 of sources whose pings come.
    """
    cells = np.empty(arrived.size, dtype=np.int64)
    number, n = 0, arrived.size // elapsed.size
    for row in range(elapsed.size):
        total, since, most = 0.0, np.inf, max(elapsed[row], _TINY)
        for i in range(row * n, (row + 1) * n):
            silence[i] = 0.0 if arrived[i] > 0.0 else silence[i] + time
            since = min(since, silence[i])
            if ceased[i] == 0.0:
                total += pings[i] / most
        everywhere = has_ceased(total, since, hazard)
        for i in range(row * n, (row + 1) * n):
            if ceased[i] > 0.0:
                changes = arrived[i] > 0.0
            else:
                rate = pings[i] / most
                changes = rate > 0.0 and (everywhere or has_ceased(rate, silence[i], hazard))
            if changes:
                cells[number] = i
                number += 1
    return cells[:number]


@compiled
def transfer(
    cells: IntArray,
    row: IntArray,
    ping_rate: FloatArray,
    precisions: FloatArray,
    tables: _Tables,
) -> None:
    """Add p times the rate of pings, (K,), which may be negative, to the silent rates of sources
    given each precision p; the tables are (B·N, J)."""
    weight, _, prior_rate, _, more_shape, more_rate, _ = tables
    for k in range(cells.size):
        w = weight[row[k]]
        for j in range(precisions.size):
            b = prior_rate[row[k]] + w * more_rate[cells[k], j]
            more = more_shape[cells[k], j] + precisions[j] * ping_rate[k] * b / w
            more_shape[cells[k], j] = max(more, 0.0)


# -- crawls and moments ---------------------------------------------------------------------------


@compiled
def _add_crawls(
    cells: IntArray,
    row: IntArray,
    gaps: FloatArray,
    counts: FloatArray,
    pings: FloatArray,
    is_counted: bool,
    hazard: float,
    precisions: FloatArray,
    tables: _Tables,
    odds: FloatArray,
) -> None:
    """Update the tables, (B·N, J), and the odds of changes, (B, J), by crawls, (K,); weight and
    prior are those of fleets, (B,)."""
    weight, prior_shape, prior_rate, likelihood, more_shape, more_rate, fraction = tables
    logs, chance = np.empty(precisions.size), np.empty(precisions.size)
    for i in range(cells.size):
        cell, w = cells[i], weight[row[i]]
        shape, rate = prior_shape[row[i]], prior_rate[row[i]]
        gap, k, n = gaps[i], np.floor(counts[i]), np.floor(pings[i])
        share(cell, row[i], -np.expm1(-hazard * gap), likelihood, fraction)
        for j in range(precisions.size):
            a = shape + w * more_shape[cell, j]
            b = rate + w * more_rate[cell, j]
            p = precisions[j]
            if not is_counted:
                log, mean, variance = after_change(a, b, gap, n, p, k > 0.0)
            elif min(k, n) <= _MOST_TERMS:
                log, mean, variance = after_count(a, b, gap, n, p, k)
            else:
                log, mean, variance = after_large_count(a, b, gap, n, p, k)
            new = min(max(mean / variance, b), b + gap)
            chance[j] = fraction[row[i], j] * np.exp(likelihood[cell, j])
            logs[j] = log
            likelihood[cell, j] += log
            more_shape[cell, j] = max(mean * new - shape, 0.0) / w
            more_rate[cell, j] = (new - rate) / w
        compare(logs, chance, odds[row[i]])


@inlined
def _probabilities(
    cell: int,
    row: int,
    likelihood: FloatArray,
    fraction: FloatArray,
    out: FloatArray,
) -> None:
    """Fill in the probabilities of the precisions of a source, (J,)."""
    most, total = likelihood[cell].max(), 0.0
    for j in range(out.size):
        out[j] = fraction[row, j] * np.exp(likelihood[cell, j] - most)
        total += out[j]
    for j in range(out.size):
        out[j] /= total


@compiled
def _moments(
    cells: IntArray,
    n: int,
    tables: _Tables,
    ping_rate: FloatArray,
    ping_variance: FloatArray,
    precisions: FloatArray,
    cell_variance: FloatArray,
    out: FloatArray,
) -> None:
    """Fill in means and variances, (6, K), of the total rates, silent rates and precisions."""
    weight, prior_shape, prior_rate, likelihood, more_shape, more_rate, fraction = tables
    chance, means = np.empty(precisions.size), np.empty(precisions.size)
    variances = np.empty(precisions.size)
    for i in range(cells.size):
        cell, row, g = cells[i], cells[i] // n, ping_rate[i]
        _probabilities(cell, row, likelihood, fraction, chance)
        total, silent, true = 0.0, 0.0, 0.0
        squares, silent_squares, true_squares = 0.0, 0.0, 0.0
        for j in range(precisions.size):
            scale = 1.0 / (prior_rate[row] + weight[row] * more_rate[cell, j])
            means[j] = scale * (prior_shape[row] + weight[row] * more_shape[cell, j])
            variances[j] = scale * means[j]
        for j in range(precisions.size):
            mean, p = means[j], precisions[j]
            both = mean + p * g
            silent += chance[j] * mean
            total += chance[j] * both
            true += chance[j] * p
            squares += chance[j] * (variances[j] + p * p * ping_variance[i] + both * both)
            low, high = max(j - 1, 0), min(j + 1, precisions.size - 1)
            slope = (means[high] - means[low]) / (precisions[high] - precisions[low])
            silent_squares += chance[j] * (
                variances[j] + mean * mean + slope * slope * cell_variance[j]
            )
            true_squares += chance[j] * (p * p + cell_variance[j])
        true = max(true, _LEAST_PRECISION)
        out[0, i], out[1, i], out[2, i] = total, silent, true
        least = 1e-12  # of a variance, relative to the squared mean
        out[3, i] = max(squares - total * total, least * total * total)
        out[4, i] = max(silent_squares - silent * silent, least * silent * silent)
        out[5, i] = max(true_squares - true * true, least * true * true)


@compiled
def _draw(
    cells: IntArray,
    n: int,
    tables: _Tables,
    precisions: FloatArray,
    chance: FloatArray,
    shape: FloatArray,
    rate: FloatArray,
    precision: FloatArray,
) -> None:
    """Draw a precision of each source, and fill in the Gamma distribution of Λ_s given it."""
    weight, prior_shape, prior_rate, likelihood, more_shape, more_rate, fraction = tables
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
