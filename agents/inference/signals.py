"""Draws of the joint posterior of the signals of all sources, and of the fleet's.

Given which ping announced which item, announced items are binomial with the recall r, true pings
binomial with the precision p, and the time that true pings took is Gamma. The conjugate priors of
these, Beta for r and p and inverse Gamma for the mean delay d, describe the fleet, and sources with
few items are shrunk towards it. Assignments, parameters and priors are drawn in turn (data
augmentation, Tanner and Wong 1987). The strength of a prior is such that the shrinkage factor of a
typical source is uniform a priori, as in `estimate`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from scipy.special import betaln, expit, gammaln
from scipy.stats import beta, gamma

from agents.inference.assignment import Events, draw
from crawl_env.numerics import FloatArray, IntArray

_SWEEPS, _BURN_IN = 400, 100  # draws of a small log
_FEWEST = 60
_VISITS = 1e8  # events times draws of a large log
_FLEET = 2000  # sources from which the priors are found
_STEPS = 4  # of a prior between two assignments
_ACCEPTED = 0.3  # fraction of these steps
_STRONGEST = 14.0  # logarithm of the strength of a prior


class IntervalEstimates(NamedTuple):
    """One parameter of the signals of N sources: posterior means, and 95 % intervals."""

    value: FloatArray  # (N,)
    error: FloatArray  # (N,) standard error: the posterior standard deviation
    low: FloatArray  # (N,)
    high: FloatArray  # (N,)
    mean: float  # of the fleet
    spread: float  # standard deviation between sources


def sample(
    events: Events, start: FloatArray, shortest: float, rng: np.random.Generator
) -> tuple[IntervalEstimates, IntervalEstimates, IntervalEstimates]:
    """Return recall, precision and mean delay (time) of all sources.

    Arguments:
        start: logit r, logit p and ln d at which the draws begin.
        shortest: mean delay that is not told from none, time.
    """
    n, span = len(events.items), events.span
    items, pings = events.items.astype(np.float64), events.pings.astype(np.float64)
    some = rng.permutation(n)[:_FLEET]
    recall = _Fraction(float(np.clip(start[0], -6, 6)), items, some)
    precision = _Fraction(float(np.clip(start[1], -6, 6)), pings, some)
    within = float(np.log(shortest)), float(np.log(max(span.max(), 100 * shortest)))
    delay = _Time(float(np.clip(start[2], *within)), within, pings, some)
    sweeps = int(np.clip(_VISITS / max(events.gap.size, 1), _FEWEST, _SWEEPS))
    burn_in = min(_BURN_IN, sweeps // 3)
    for sweep in range(-burn_in, sweeps):
        rate = rng.gamma(np.maximum(pings, 0.5)) / span
        false_rate = (1 - precision.now) * rate + 1e-9 / span
        assignment = draw(events, np.clip(recall.now, 1e-9, 1 - 1e-9), false_rate, delay.now, rng)
        recall.draw(assignment.announced, items - assignment.announced, rng, sweep >= 0)
        precision.draw(assignment.true, pings - assignment.true, rng, sweep >= 0)
        delay.draw(assignment.true, assignment.waiting, rng, sweep >= 0)
    return recall.read(), precision.read(), delay.read()


class _Parameter(ABC):
    """A parameter of all sources, and its prior: the fleet.

    Arguments:
        place: mean of the prior, on the scale on which it is drawn.
        within: limits of that.
        trials: what each source says about the parameter if all is known, (N,) items or pings.
        some: sources from which the prior is found.
    """

    def __init__(
        self, place: float, within: tuple[float, float], trials: FloatArray, some: IntArray
    ) -> None:
        positive = trials[trials > 0]
        self._typical = max(float(positive.mean()), 1.0) if positive.size else 1.0
        self._prior = np.array([place, np.log(self._typical)])  # place, and log strength
        self._within, self._some = within, some
        self._step, self._draws = 0.5, 0
        self._sums = np.zeros((2, trials.size))  # of conditional means and second moments
        self._fleet = np.zeros(2)  # sums of mean and spread
        self.now = np.full(trials.size, self._mean(place))

    @abstractmethod
    def _mean(self, place: float) -> float:
        """Return the mean of the prior."""

    @abstractmethod
    def _log_density(self, prior: FloatArray, a: FloatArray, b: FloatArray) -> float:
        """Return the log of the joint density of the data of the sources and of the place."""

    @abstractmethod
    def _given(
        self, a: FloatArray, b: FloatArray, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        """Return draws given the prior, their conditional means and variances, and the spread."""

    @abstractmethod
    def _interval(self, value: FloatArray, error: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the 95 % interval of a distribution with this mean and standard deviation."""

    def draw(self, a: FloatArray, b: FloatArray, rng: np.random.Generator, counts: bool) -> None:
        """Draw the prior and then the parameter of all sources, given an assignment.

        Arguments:
            a, b: what it says, (N,): successes and failures, or events and the time they took.
            counts: whether the draw counts; else the steps of the prior are tuned.
        """
        self._move(a[self._some], b[self._some], rng, not counts)
        self.now, mean, variance, spread = self._given(a, b, rng)
        if counts:
            self._sums += mean, variance + mean**2
            self._fleet += self._mean(self._prior[0]), spread
            self._draws += 1

    def _move(self, a: FloatArray, b: FloatArray, rng: np.random.Generator, tune: bool) -> None:
        """Make some steps of random walk Metropolis with the prior."""
        now = self._posterior(self._prior, a, b)
        for _ in range(_STEPS):
            new = self._prior + self._step * rng.normal(size=2) * (0.5, 1.0)
            there = self._posterior(new, a, b)
            accepted = np.log(rng.random()) < there - now
            if accepted:
                self._prior, now = new, there
            if tune:
                self._step *= float(np.exp(0.2 * (accepted - _ACCEPTED)))
                self._step = min(max(self._step, 1e-3), 3.0)

    def _posterior(self, prior: FloatArray, a: FloatArray, b: FloatArray) -> float:
        place, log_strength = prior
        if not (self._within[0] <= place <= self._within[1] and abs(log_strength) < _STRONGEST):
            return -np.inf
        # typical/(typical + strength), the shrinkage factor, is uniform.
        uniform = log_strength - 2 * np.log(np.exp(log_strength) + self._typical)
        return float(self._log_density(prior, a, b) + uniform)

    def read(self) -> IntervalEstimates:
        """Return the posterior of all sources."""
        value, square = self._sums / self._draws
        error = np.sqrt(np.maximum(square - value**2, 1e-300))
        mean, spread = (self._fleet / self._draws).tolist()
        return IntervalEstimates(value, error, *self._interval(value, error), mean, spread)


class _Fraction(_Parameter):
    """A probability, of a Beta prior with a uniform mean."""

    def __init__(self, place: float, trials: FloatArray, some: IntArray) -> None:
        super().__init__(place, (-12.0, 12.0), trials, some)

    def _mean(self, place: float) -> float:
        return float(expit(place))

    def _log_density(self, prior: FloatArray, a: FloatArray, b: FloatArray) -> float:
        strength = np.exp(prior[1])
        x, y = strength * expit(prior[0]), strength * expit(-prior[0])
        of_mean = -abs(prior[0]) - 2 * np.log1p(np.exp(-abs(prior[0])))
        return float((betaln(x + a, y + b) - betaln(x, y)).sum() + of_mean)

    def _given(
        self, a: FloatArray, b: FloatArray, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        mean, strength = expit(self._prior[0]), np.exp(self._prior[1])
        x, y = strength * mean + a, strength * (1 - mean) + b
        variance = x * y / ((x + y) ** 2 * (x + y + 1))
        spread = float(np.sqrt(mean * (1 - mean) / (strength + 1)))
        return rng.beta(x, y), x / (x + y), variance, spread

    def _interval(self, value: FloatArray, error: FloatArray) -> tuple[FloatArray, FloatArray]:
        inner = np.clip(value, 1e-9, 1 - 1e-9)
        strength = np.maximum(inner * (1 - inner) / np.maximum(error, 1e-9) ** 2 - 1, 1e-3)
        x, y = inner * strength, (1 - inner) * strength
        return beta.ppf(0.025, x, y), beta.ppf(0.975, x, y)


class _Time(_Parameter):
    """The mean of an exponential time, of an inverse Gamma prior with a log-uniform mean. Its shape
    is 2 + strength, so that there is a variance."""

    def _mean(self, place: float) -> float:
        return float(np.exp(place))

    def _log_density(self, prior: FloatArray, a: FloatArray, b: FloatArray) -> float:
        shape = 2 + np.exp(prior[1])
        scale = (shape - 1) * np.exp(prior[0])
        of_each = gammaln(shape + a) - gammaln(shape) - a * np.log(scale)
        return float((of_each - (shape + a) * np.log1p(b / scale)).sum())

    def _given(
        self, a: FloatArray, b: FloatArray, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        mean, strength = np.exp(self._prior[0]), np.exp(self._prior[1])
        shape, scale = 2 + strength + a, (1 + strength) * mean + b
        expected = scale / (shape - 1)
        spread = float(mean / np.sqrt(strength))
        return scale / rng.gamma(shape), expected, expected**2 / (shape - 2), spread

    def _interval(self, value: FloatArray, error: FloatArray) -> tuple[FloatArray, FloatArray]:
        shape = 2 + (value / error) ** 2
        scale = value * (shape - 1)
        return scale / gamma.ppf(0.975, shape), scale / gamma.ppf(0.025, shape)
