"""What the sources of a fleet share, fitted to what was learnt of each (empirical Bayes)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.adaptive.estimators.counts import Posterior, fit_prior
from ephemeral_crawl.live.columns import NO_HOST, Hosts, Sources
from ephemeral_crawl.live.learning import MEMORIES, Shared

WEAK = Posterior(np.array(0.5), np.array(1800.0))  # mean 1 item per hour
OPTIMISM = 0.25  # standard errors
_HOST_SOURCES = 2.0  # sources of the fleet's mean rate added to each host
_WORTH_VARIANCE = 1.0  # squared coefficient of variation, before any items
_GUESSED = 5.0  # its weight, in items
_KEPT = 0.9995  # of the sums over the fleet's items, per item
_LEAST_SPREAD = 0.02
_DECAY = math.log(2.0) / 10_800.0  # per second; guess and its standard error
_NOISE = math.pi**2 / 6.0  # variance of the logarithm of exponential worths
_WINDOW = 8.0  # half-lives; older items do not tell how fast worth decays at first
_LEAST_ITEMS = 0.5
_PINGS = 2.0  # pseudo-pings of a kind of signal, half of them true


@dataclass
class Totals:
    """Sums over the fleet's reports."""

    squares: float = (1.0 + _WORTH_VARIANCE) * _GUESSED  # of worth ÷ the source's mean
    number: float = _GUESSED
    age_squares: float = 0.0  # Σ(s − s̄)² over the items of each fetch, seconds²
    age_logs: float = 0.0  # Σ(s − s̄)(ln w − mean)

    def add_worths(self, relative: NDArray[np.float64]) -> None:
        """Add items' worths ÷ the mean worth of their source."""
        kept = _KEPT ** len(relative)
        self.squares = kept * self.squares + float(np.minimum(relative**2, 1e4).sum())
        self.number = kept * self.number + len(relative)

    def add_squares(self, mean: float, number: float) -> None:
        """Add a number of items of one source, given the mean square of their worth ÷ its mean."""
        kept = _KEPT**number
        used = (1.0 - kept) / (1.0 - _KEPT)
        self.squares = kept * self.squares + used * min(mean, 1e4)
        self.number = kept * self.number + used

    def add_ages(self, age: NDArray[np.float64], worth: NDArray[np.float64]) -> None:
        """Add the items of one fetch, whose worths are those at the fetch."""
        useful = (worth > 0.0) & (age < _WINDOW * math.log(2.0) / self.decay()[0])
        if useful.sum() < 2:
            return
        age, log = age[useful], np.log(worth[useful])
        away = age - age.mean()
        self.age_squares += float((away**2).sum())
        self.age_logs += float((away * (log - log.mean())).sum())

    def decay(self) -> tuple[float, float]:
        """Return the learnt decay rate and its standard error, per second.

        It is minus the slope of the logarithm of worth by age within fetches, so that sources of
        high worth, which are fetched sooner, do not bias it; its prior is normal.
        """
        precision = 1.0 / _DECAY**2 + self.age_squares / _NOISE
        mean = (1.0 / _DECAY - self.age_logs / _NOISE) / precision
        return min(max(mean, _DECAY / 1000.0), 1000.0 * _DECAY), math.sqrt(1.0 / precision)

    @property
    def variation(self) -> float:
        """Squared coefficient of variation of the worth of a source's items."""
        return max(self.squares / self.number - 1.0, 0.0)


def unfitted(decay: float) -> Shared:
    """Return what is assumed of a fleet before anything is known."""
    return Shared(0.5, 1800.0, 1.0, 2.0, decay, OPTIMISM, np.full(1, 0.5), np.ones(1))


def fitted(
    shared: Shared,
    sources: Sources,
    hosts: Hosts,
    which: NDArray[np.int64],
    totals: Totals,
    kinds: list[list[float]],
    decay: float,
) -> Shared:
    """Return what the sources share, after one step of the fit to some of them.

    Arguments:
        which: rows of the sources, of which those without any observations are ignored.
        kinds: number of true pings and of all pings of each kind of signal.
        decay: declared decay rate of the fleet, per second; 0: that of `totals`.
    """
    longest = len(MEMORIES) - 1
    items = sources.items[which, longest].astype(np.float64)
    time = sources.exposure[which, longest].astype(np.float64)
    host = sources.host[which]
    scale = np.ones(len(which))
    scale[host != NO_HOST] = hosts.factor[host[host != NO_HOST]]
    seen = time > 0.0
    if seen.any():
        prior = fit_prior(
            items[seen],
            (time * scale)[seen],
            Posterior(np.array([shared.shape]), np.array([shared.rate])),
            WEAK,
        )
        shape = float(np.clip(prior.shape[0], 0.05, 50.0))
        mean = float(prior.mean[0])
        shared = shared._replace(shape=shape, rate=shape / mean)
        at_host = seen & (host != NO_HOST)
        if at_host.any():
            rate = (shape + items) / (shape / mean + time)
            number = np.bincount(host[at_host], minlength=len(hosts.factor))
            total = np.bincount(host[at_host], rate[at_host] / mean, minlength=len(hosts.factor))
            factor = (_HOST_SOURCES + total) / (_HOST_SOURCES + number)
            hosts.factor[:] = np.clip(factor, 0.05, 20.0)
    worth, of_items = _worth(sources, which, totals, shared)
    return shared._replace(
        worth=worth,
        worth_items=of_items,
        decay=decay or totals.decay()[0],
        precision=precisions(kinds),
        factor=hosts.factor,
    )


def precisions(kinds: list[list[float]]) -> NDArray[np.float64]:
    """Return the precision of each kind of signal over the fleet, at least one number."""
    found = [(0.5 * _PINGS + true) / (_PINGS + number) for true, number in kinds]
    return np.array(found or [0.5])


def _worth(
    sources: Sources, which: NDArray[np.int64], totals: Totals, shared: Shared
) -> tuple[float, float]:
    """Return the mean worth of the sources' items, and its weight in the estimate of each."""
    number = sources.worth_items[which].astype(np.float64)
    known = number > _LEAST_ITEMS
    if not known.any():
        return shared.worth, shared.worth_items
    number = number[known]
    mean = sources.worth[which][known] / number
    weight = number / (number + 1.0)
    middle = float((weight * mean).sum() / weight.sum())
    if not middle > 0.0:
        return 0.0, 1.0
    within = totals.variation
    spread = float((weight * (mean / middle - 1.0) ** 2).sum() / weight.sum())
    between = max(spread - within * float((weight / number).sum() / weight.sum()), _LEAST_SPREAD)
    return middle, min(max(within / between, 0.05), 50.0)
