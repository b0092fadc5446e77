"""Recall, precision and delay of each source's signals, from a log of items and a log of pings.

Which ping announced which item is not recorded. It is drawn many times given the pings and the
parameters, and these given the assignment (Gibbs sampling by data augmentation, Tanner and Wong
1987); for the model of pings see `assignment`. Given an assignment, announced items are binomial
with the recall r, true pings binomial with the precision p, and the time that true pings took is
Gamma: their conjugate priors Beta(r), Beta(p) and inverse Gamma (d) describe the fleet, so that
sources with few items are shrunk towards it. The parameters of these priors are drawn, too. Their
spread is such that the shrinkage factor of a typical source is uniform a priori, as in `estimate`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln, expit, gammaln
from scipy.stats import beta, gamma

from crawl_env import ItemLog, PingLog
from crawl_env.log.clock import HOURS
from crawl_env.numerics import FloatArray, IntArray
from ephemeral_crawl.fit.assignment import Events, draw, log_likelihood
from ephemeral_crawl.fit.lives import Lives

_SWEEPS, _BURN_IN = 400, 100  # draws of a small log
_FEWEST = 60
_VISITS = 1e8  # events times draws of a large log
_FLEET = 2000  # sources from which the priors are found
_POOL = 10_000  # events from which the start and the clock skew are found
_SECOND = 1 / 3600  # hours: shorter delays are those of the time stamps
_SKEWS = np.array([1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600, 7200]) / 3600  # hours
_EVIDENCE = 12.0  # log likelihood ratio from which clocks count as different


class Quality(NamedTuple):
    """One parameter of the signals of N sources: posterior means, and 95 % intervals."""

    value: FloatArray  # (N,)
    error: FloatArray  # (N,) standard error: the posterior standard deviation
    low: FloatArray  # (N,)
    high: FloatArray  # (N,)
    mean: float  # of the fleet
    spread: float  # standard deviation between sources


class SignalFit(NamedTuple):
    """The signals of N sources as fitted to a log."""

    recall: Quality
    precision: Quality
    delay: Quality  # time
    items: IntArray  # (N,) in the lives of the sources
    pings: IntArray  # (N,) in the lives of the sources
    outside: int  # pings outside the lives of their sources
    skew: float  # time by which pings may precede the recorded publication
    notes: tuple[str, ...]  # of the log of pings

    def columns(self, which: IntArray) -> dict[str, FloatArray]:
        """Return the columns of some sources in a fleet."""
        return {
            "recall": self.recall.value[which],
            "precision": self.precision.value[which],
            "signal_delay": self.delay.value[which],
        }


def measure(
    log: ItemLog,
    pings: PingLog,
    lives: Lives,
    skew: float | None = None,
    seed: int = 0,
) -> SignalFit:
    """Fit the signals of all sources.

    Errors and intervals are those of the posterior. In simulations of fleets like the prior, 95 %
    intervals cover the true recall, precision and delay of 93 to 97 % of the sources.

    Arguments:
        pings: on the clock of the log, see `PingLog.aligned_with`.
        lives: the time over which each source is fitted.
        skew: the time by which pings may precede the recorded publication of what they announce;
            None to find it. Pings are moved by it, and delays count from the publication all the
            same, so that they are at least 0.
        seed: of the draws.

    Raises:
        ValueError: there are no pings.
    """
    second = _SECOND / HOURS[log.unit]
    rng = np.random.default_rng(seed)
    if not _events(log, pings, lives, 0.0).pings.any():
        raise ValueError(
            "there is no ping within the lives of the sources, so that their signals cannot be "
            "fitted; fit without the log of pings"
        )
    pool = _pool(log, pings, lives, rng)
    if skew is None:
        skew, start = _skew(pool, second)
    else:
        start = _pooled(pool(skew), second)[1]
    events = _events(log, pings, lives, skew)
    of_recall, of_precision, of_delay = _sample(events, start, second, rng)
    outside = len(pings) - int(events.pings.sum())
    found = of_recall, of_precision, _from_publication(of_delay, skew, second)
    return SignalFit(*found, events.items, events.pings, outside, skew, pings.notes)


def _events(log: ItemLog, pings: PingLog, lives: Lives, skew: float) -> Events:
    # A ping dated just after the end of a life is moved out of it, and one before its start in.
    received = np.minimum(pings.time + skew, np.nextafter(log.end, -np.inf))
    return Events.of(lives.start, lives.end, log.source, log.published, pings.source, received)


# --------------------------------------------------------------------------------- start and skew


def _pool(
    log: ItemLog, pings: PingLog, lives: Lives, rng: np.random.Generator
) -> Callable[[float], Events]:
    """Return a function from a clock skew to the events of some sources, drawn at random, or to
    the first events of a long one."""
    everything = _events(log, pings, lives, 0.0)
    size = everything.items + everything.pings
    order = rng.permutation(np.flatnonzero(everything.pings))
    chosen = np.sort(order[: 1 + np.searchsorted(np.cumsum(size[order]), _POOL)])
    part = np.minimum(1.0, _POOL / np.maximum(size, 1))
    shorter = lives._replace(end=lives.start + part * lives.span)

    def pooled(skew: float) -> Events:
        return _events(log, pings, shorter, skew).of_sources(chosen)

    return pooled


def _pooled(
    events: Events, second: float, start: FloatArray | None = None
) -> tuple[float, FloatArray]:
    """Return the maximum of the log likelihood if recall, precision and delay are the same for
    all sources, and its place (logit r, logit p, ln d)."""
    span = events.span
    typical = span.sum() / max(events.items.sum(), 1)
    longest = np.log(max(span.max(), 10 * second))
    rate = events.pings / span

    def loss(x: FloatArray) -> float:
        r, p = expit(np.clip(x[:2], -12.0, 12.0))
        d = np.exp(np.clip(x[2], np.log(second / 10), longest))
        n = np.ones(span.size)
        found = log_likelihood(events, r * n, (1 - p) * rate + 1e-9 / span, d * n).sum()
        # A weak prior, so that the maximum is finite.
        return float(-found - np.log(r * (1 - r) * p * (1 - p)) / 2)

    delays = (60 * second, 0.02 * typical, 0.2 * typical) if start is None else (60 * second,)
    starts = [(0.0, 0.0, np.log(d)) for d in delays]
    starts += [] if start is None else [start]
    best = min(
        (
            minimize(
                loss,
                np.asarray(x, dtype=float),
                method="Nelder-Mead",
                options={"maxfev": 150, "xatol": 0.01, "fatol": 0.01},
            )
            for x in starts
        ),
        key=lambda found: found.fun,
    )
    return -float(best.fun), np.asarray(best.x)


def _skew(pool: Callable[[float], Events], second: float) -> tuple[float, FloatArray]:
    """Return the clock skew of the largest likelihood, which is 0 unless another one is much
    larger, and the parameters common to all sources there."""
    least, start = _pooled(pool(0.0), second)
    gained = np.inf
    while gained > 0.1:  # the search may end early
        before = least
        least, start = _pooled(pool(0.0), second, start)
        gained = least - before
    best, skew, place = least + _EVIDENCE, 0.0, start
    for candidate in _SKEWS * (second / _SECOND):
        found, x = _pooled(pool(float(candidate)), second, start)
        if found > best:
            best, skew, place = found, float(candidate), x
    return skew, place


# --------------------------------------------------------------------------------- the posterior


class _Prior:
    """The prior of one parameter between sources, drawn by random walk Metropolis.

    Arguments:
        log_density: of what is known of the sources, given (mean, strength) of the prior.
        mean, strength: where to start; `link` maps the mean to the real line.
        typical: the strength at which a typical source is shrunk half way.
    """

    def __init__(
        self,
        x: FloatArray,  # (2,) transformed mean, and log strength
        typical: float,
        bounds: tuple[float, float],
        jacobian: Callable[[float], float],
    ) -> None:
        self.x, self._typical, self._bounds, self._jacobian = x, typical, bounds, jacobian
        self._step = 0.5

    def draw(
        self, log_density: Callable[[float, float], float], rng: np.random.Generator, tune: bool
    ) -> None:
        """Make a few steps; `log_density` is that of the data given the two coordinates."""

        def posterior(x: FloatArray) -> float:
            if not self._bounds[0] <= x[0] <= self._bounds[1] or abs(x[1]) > 14:
                return -np.inf
            # The strength has the density s/(s + t)², t typical, on its logarithmic scale.
            prior = x[1] - 2 * np.log(np.exp(x[1]) + self._typical)
            return float(log_density(x[0], x[1]) + prior + self._jacobian(x[0]))

        now = posterior(self.x)
        for _ in range(4):
            new = self.x + self._step * rng.normal(size=2) * (0.5, 1.0)
            there = posterior(new)
            accepted = np.log(rng.random()) < there - now
            if accepted:
                self.x, now = new, there
            if tune:
                self._step = float(np.clip(self._step * np.exp(0.2 * (accepted - 0.3)), 1e-3, 3.0))


class _Moments:
    """Sums of conditional means and second moments of one parameter over the draws."""

    def __init__(self, n: int) -> None:
        self._first, self._second, self._draws = np.zeros(n), np.zeros(n), 0
        self._mean = self._spread = 0.0

    def add(self, mean: FloatArray, variance: FloatArray, of_fleet: float, spread: float) -> None:
        self._first += mean
        self._second += variance + mean**2
        self._draws += 1
        self._mean += of_fleet
        self._spread += spread

    def read(self, interval: Callable[[FloatArray, FloatArray], tuple[FloatArray, ...]]) -> Quality:
        value = self._first / self._draws
        error = np.sqrt(np.maximum(self._second / self._draws - value**2, 1e-300))
        of_fleet = self._mean / self._draws, self._spread / self._draws
        return Quality(value, error, *interval(value, error), *of_fleet)


def _sample(
    events: Events, start: FloatArray, second: float, rng: np.random.Generator
) -> tuple[Quality, Quality, Quality]:
    """Return recall, precision and delay of all sources, from draws of their joint posterior."""
    n, span = len(events.items), events.span
    items, pings = events.items.astype(float), events.pings.astype(float)
    some = rng.permutation(n)[:_FLEET]  # from which the priors are found
    sweeps = int(np.clip(_VISITS / max(events.gap.size, 1), _FEWEST, _SWEEPS))
    burn_in = min(_BURN_IN, sweeps // 3)
    known = np.clip(start, -6.0, 6.0)

    def on_unit(x: float) -> float:  # the density of a uniform mean on the scale of its logit
        return float(-abs(x) - 2 * np.log1p(np.exp(-abs(x))))

    def flat(_: float) -> float:
        return 0.0

    of_items, of_pings = (
        max(float(k[k > 0].mean()) if k.any() else 1.0, 1.0) for k in (items, pings)
    )
    of_recall = _Prior(np.array([known[0], np.log(of_items)]), of_items, (-12, 12), on_unit)
    of_precision = _Prior(np.array([known[1], np.log(of_pings)]), of_pings, (-12, 12), on_unit)
    longest = np.log(max(float(span.max()), 10 * second))
    first_delay = float(np.clip(start[2], np.log(second / 10), longest))
    of_delay = _Prior(
        np.array([first_delay, np.log(of_pings)]), of_pings, (np.log(second / 10), longest), flat
    )
    r, p = np.full(n, expit(known[0])), np.full(n, expit(known[1]))
    d = np.full(n, np.exp(first_delay))
    moments = [_Moments(n) for _ in range(3)]
    tiny = 1e-9 / span
    for sweep in range(burn_in + sweeps):
        rate = rng.gamma(np.maximum(pings, 0.5)) / span
        found = draw(events, np.clip(r, 1e-9, 1 - 1e-9), (1 - p) * rate + tiny, d, rng)
        tune = sweep < burn_in
        r, a, b, spread_r = _beta(of_recall, found.announced, items, some, rng, tune)
        p, e, f, spread_p = _beta(of_precision, found.true, pings, some, rng, tune)
        d, g, h, spread_d = _inverse_gamma(of_delay, found, some, rng, tune)
        if tune:
            continue
        for moment, (x, y), (mean, spread) in (
            (moments[0], (a, b), spread_r),
            (moments[1], (e, f), spread_p),
        ):
            moment.add(x / (x + y), x * y / ((x + y) ** 2 * (x + y + 1)), mean, spread)
        mean = h / (g - 1)
        moments[2].add(mean, mean**2 / (g - 2), *spread_d)
    of_unit = moments[0].read(_beta_interval), moments[1].read(_beta_interval)
    return *of_unit, moments[2].read(_gamma_interval)


Drawn = tuple[FloatArray, FloatArray, FloatArray, tuple[float, float]]


def _beta(
    prior: _Prior,
    successes: FloatArray,
    trials: FloatArray,
    some: IntArray,
    rng: np.random.Generator,
    tune: bool,
) -> Drawn:
    """Draw the prior and the probabilities of all sources; return these, the two parameters of
    their posteriors, and mean and spread of the prior."""
    hits, misses = successes[some], (trials - successes)[some]

    def log_density(x: float, log_strength: float) -> float:
        a, b = np.exp(log_strength) * expit(x), np.exp(log_strength) * expit(-x)
        return float((betaln(a + hits, b + misses) - betaln(a, b)).sum())

    prior.draw(log_density, rng, tune)
    mean, strength = float(expit(prior.x[0])), float(np.exp(prior.x[1]))
    a, b = strength * mean + successes, strength * (1 - mean) + trials - successes
    spread = np.sqrt(mean * (1 - mean) / (strength + 1))
    return rng.beta(a, b), a, b, (mean, spread)


def _inverse_gamma(
    prior: _Prior,
    found: object,
    some: IntArray,
    rng: np.random.Generator,
    tune: bool,
) -> Drawn:
    """Draw the prior and the delays of all sources; see `_beta`. The shape is 2 + strength, so that
    delays have a variance."""
    true, waiting = found.true, found.waiting  # type: ignore[attr-defined]
    k, w = true[some], waiting[some]

    def log_density(x: float, log_strength: float) -> float:
        a = 2 + np.exp(log_strength)
        b = (a - 1) * np.exp(x)
        return float(
            (gammaln(a + k) - gammaln(a) - k * np.log(b) - (a + k) * np.log1p(w / b)).sum()
        )

    prior.draw(log_density, rng, tune)
    a = 2 + float(np.exp(prior.x[1]))
    mean = float(np.exp(prior.x[0]))
    shape, scale = a + true, (a - 1) * mean + waiting
    return scale / rng.gamma(shape), shape, scale, (mean, mean / np.sqrt(a - 2))


def _beta_interval(value: FloatArray, error: FloatArray) -> tuple[FloatArray, ...]:
    """Return the 95 % interval of a Beta distribution with this mean and standard deviation."""
    inner = np.clip(value, 1e-9, 1 - 1e-9)
    strength = np.maximum(inner * (1 - inner) / np.maximum(error, 1e-9) ** 2 - 1, 1e-3)
    a, b = inner * strength, (1 - inner) * strength
    return beta.ppf(0.025, a, b), beta.ppf(0.975, a, b)


def _gamma_interval(value: FloatArray, error: FloatArray) -> tuple[FloatArray, ...]:
    """Return the 95 % interval of an inverse Gamma distribution with this mean and deviation."""
    shape = 2 + (value / error) ** 2
    scale = value * (shape - 1)
    return scale / gamma.ppf(0.975, shape), scale / gamma.ppf(0.025, shape)


def _from_publication(delay: Quality, skew: float, second: float) -> Quality:
    """Return delays from the recorded publication on, at least 0; below a second, which is the
    resolution of time stamps, they are 0."""
    later = [np.maximum(x - skew, 0.0) for x in (delay.value, delay.low, delay.high)]
    value, low, high = (np.where(x < second, 0.0, x) for x in later)
    mean = max(delay.mean - skew, 0.0)
    of_fleet = mean if mean >= second else 0.0, delay.spread
    return Quality(value, delay.error, low, np.maximum(high, second), *of_fleet)
