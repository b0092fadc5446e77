"""What the sources of a fleet share, fitted to the estimates of each (empirical Bayes)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from agents.inference.rates import Posterior, fit_prior
from ephemeral_crawl.live import learning
from ephemeral_crawl.live.columns import NEVER, NO_HOST, Hosts, Sources, new_hosts
from ephemeral_crawl.live.learning import MEMORIES, PRECISION_PINGS, Shared
from ephemeral_crawl.live.life import NETWORK

WEAK = Posterior(np.array(0.5), np.array(1800.0))  # mean 1 item per hour
OPTIMISM = 0.25  # standard errors
_HOST_SOURCES = 2.0  # sources of the fleet's mean rate added to each host
_WORTH_VARIANCE = 1.0  # squared coefficient of variation, before any items
_GUESSED = 5.0  # its weight, in items
_LEAST_SPREAD = 0.02
_LEAST_ITEMS = 0.5
_NO_ITEMS = 1e-30  # weight of the first guess, in items: the first items alone replace it
_ANSWERING, _TRIED = 0.9, 10.0  # guess of the share of sources that answer; its weight, in sources
_FEW, _MOST_STEPS = 20_000, 200  # sources × steps, and steps, of a fit
_CONVERGED = 1e-4
_LEAST_PRECISION = 1e-3
_VOICE = 2.0  # weight of the guess that half of the pings of a kind are true, in hosts


class Totals:
    """Sums over the fleet's reports: see `learning.SUMS`."""

    def __init__(self, sums: Iterable[float] | None = None) -> None:
        start = ((1.0 + _WORTH_VARIANCE) * _GUESSED, _GUESSED, 0.0, 0.0)
        self.sums = np.array(start if sums is None else list(sums), dtype=np.float64)
        if self.sums.shape != (len(start),) or not np.isfinite(self.sums).all():
            raise ValueError("the sums over the fleet are damaged")

    def add_squares(self, mean: float, number: float) -> None:
        """Add a number of items of one source, given the mean square of their worth ÷ its mean."""
        discount = learning.SUMS_DISCOUNT**number
        weight = (1.0 - discount) / (1.0 - learning.SUMS_DISCOUNT)
        self.sums[:2] = discount * self.sums[:2] + [weight * min(mean, 1e4), weight]

    def decay(self) -> tuple[float, float]:
        """Return the learnt decay rate and its standard error, per second.

        It is minus the slope of the logarithm of worth by age within fetches, so that sources of
        high worth, which are fetched sooner, do not bias it; its prior is normal.
        """
        return learning.learnt_decay(self.sums)

    @property
    def variation(self) -> float:
        """Squared coefficient of variation of the worth of a source's items."""
        return max(float(self.sums[0] / self.sums[1]) - 1.0, 0.0)


def unfitted(decay: float) -> Shared:
    """Return the assumptions about a fleet before its first report."""
    return Shared(
        shape=0.5, rate=1800.0, worth=1.0, worth_items=_NO_ITEMS, decay=decay, optimism=OPTIMISM,
        answering=_ANSWERING, market=1.0, surplus=0.0, surplus_at_half=0.0, retrying=1.0,
        precision=np.full(1, 0.5), fresh=np.ones(1), hosts=new_hosts(),
    )  # fmt: skip


def fitted(
    shared: Shared,
    sources: Sources,
    rows: NDArray[np.int64],
    totals: Totals,
    kinds: NDArray[np.float64],
    decay: float,
) -> Shared:
    """Return what the sources share, fitted to some of them: until it has converged where few have
    reported, else a few steps nearer.

    Arguments:
        rows: those of the sources, of which those without any observations are ignored.
        kinds: (K, 4) of each kind of signal, see `learning.KIND_SUMS`.
        decay: declared decay rate of the fleet, per second; 0: that of `totals`.
    """
    longest = len(MEMORIES) - 1
    items = sources["items"][rows, longest].astype(np.float64)
    time = sources["exposure"][rows, longest].astype(np.float64)
    host, factors = sources["host"][rows], shared.hosts["factor"]
    scale = np.ones(len(rows))
    scale[host != NO_HOST] = factors[host[host != NO_HOST]]
    seen = time > 0.0
    at_host = seen & (host != NO_HOST)
    factors[factors != 1.0] = 1.0  # those of which there is none among these
    hosts, place = np.unique(host[at_host], return_inverse=True)
    sizes = np.bincount(place)
    # One less: what a source's own items say of it is in its posterior already.
    others = sizes - 1.0
    steps = min(_FEW // max(int(seen.sum()), 1), _MOST_STEPS) + 1 if seen.any() else 0
    shape, rate = shared.shape, shared.rate
    exposure = (time * scale)[seen]
    items_seen, items_at_host, time_at_host = items[seen], items[at_host], time[at_host]
    for _ in range(steps):
        before = shape, rate
        start = Posterior(np.array([shape]), np.array([rate]))
        prior = fit_prior(items_seen, exposure, start, WEAK)
        shape, mean = min(max(float(prior.shape[0]), 0.05), 50.0), prior.mean.item()
        rate = shape / mean
        if len(hosts):
            rates = (shape + items_at_host) / (rate + time_at_host)
            total = np.bincount(place, rates / mean)
            factor = (_HOST_SOURCES + others * (total / sizes)) / (_HOST_SOURCES + others)
            factors[hosts] = np.minimum(np.maximum(factor, 0.05), 20.0)
            scale[at_host] = factors[hosts][place]
            exposure = (time * scale)[seen]
        if max(abs(shape / before[0] - 1.0), abs(rate / before[1] - 1.0)) <= _CONVERGED:
            break
    shared = shared._replace(shape=shape, rate=rate)
    answered = (sources["fetched"][rows] != NEVER) | seen
    failed = ~answered & (sources["failures"][rows] > 0) & (sources["cause"][rows] != NETWORK)
    number_answered, number_tried = np.count_nonzero(answered), np.count_nonzero(answered | failed)
    answering = (_ANSWERING * _TRIED + number_answered) / (_TRIED + number_tried)
    worth, of_items = _worth(sources, rows, totals, shared)
    ratio = worth / shared.worth if min(worth, shared.worth) > 0.0 else 1.0
    decay = decay or totals.decay()[0]
    return shared._replace(
        worth=worth,
        worth_items=of_items,
        market=shared.market * ratio,
        answering=float(answering),
        decay=decay,
        precision=precisions(sources, shared.hosts, rows, len(kinds)),
        fresh=1.0 / (1.0 + decay * delays(kinds)),
    )


def delays(kinds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean time from an item to its ping of each kind of signal, at least one number,
    seconds."""
    means: NDArray[np.float64] = kinds[:, 2] / (kinds[:, 3] + learning.PROMPT_PINGS)
    return means if len(means) else np.zeros(1)


def precisions(
    sources: Sources, hosts: Hosts, rows: NDArray[np.int64], kinds: int
) -> NDArray[np.float64]:
    """Return the precision of each kind of signal over the fleet, at least one number, and note in
    hosts how much that of their sources differs.

    The precision of a kind is the mean over the middle half of the hosts, so that few whose pings
    are false change nothing. Each counts the more, up to one, the more pings it had; sources
    without a host are hosts of their own.
    """
    trust = hosts["trust"]
    trust[trust != 1.0] = 1.0
    precision = np.full(max(kinds, 1), 0.5)
    rows = rows[sources["pinged_for"][rows] > 0.0]
    if not len(rows):
        return precision
    host, kind = sources["host"][rows].astype(np.int64), sources["kind"][rows]
    group = np.stack([np.where(host == NO_HOST, -1 - rows, host), kind])
    (of_host, of_kind), place, number = np.unique(
        group, axis=1, return_inverse=True, return_counts=True
    )
    place = place.reshape(-1)
    pings, true = (
        np.bincount(place, sources[name][rows].astype(np.float64))
        for name in ("pings", "true_pings")
    )
    voice = pings / (pings + PRECISION_PINGS)
    observed = true / np.maximum(pings, 1e-9)
    for k in np.unique(of_kind):
        is_kind = of_kind == k
        middle = _middle(np.append(observed[is_kind], 0.5), np.append(voice[is_kind], _VOICE))
        precision[k] = max(middle, _LEAST_PRECISION)
    # Less what a source's own pings say, which is in its own precision already.
    others = (number - 1.0) / number
    usual = precision[of_kind]
    with_others = (PRECISION_PINGS * usual + others * true) / (PRECISION_PINGS + others * pings)
    is_named = of_host >= 0
    weight = np.bincount(of_host[is_named], pings[is_named] + 1e-9, len(hosts))
    share = (pings + 1e-9) * (with_others / usual)
    ratio = np.bincount(of_host[is_named], share[is_named], len(hosts))
    trust[weight > 0.0] = (ratio / np.maximum(weight, 1e-30))[weight > 0.0]
    return precision


def _middle(values: NDArray[np.float64], weight: NDArray[np.float64]) -> float:
    """Return the mean of the middle half of values.

    >>> _middle(np.array([0.0, 0.4, 0.6, 9.0]), np.ones(4))
    0.5
    """
    order = np.argsort(values)
    until = np.cumsum(weight[order]) / weight.sum()
    inside = np.diff(np.clip(until, 0.25, 0.75), prepend=0.25)
    return float(values[order] @ inside) / 0.5


def _worth(
    sources: Sources, rows: NDArray[np.int64], totals: Totals, shared: Shared
) -> tuple[float, float]:
    """Return the mean worth of the sources' items, and its weight in the estimate of each."""
    number = sources["worth_items"][rows].astype(np.float64)
    known = number > _LEAST_ITEMS
    if not known.any():
        return shared.worth, shared.worth_items
    number = number[known]
    mean = sources["worth"][rows][known] / number
    weight = number / (number + 1.0)
    middle = float((weight * mean).sum() / weight.sum())
    if not middle > 0.0:
        return 0.0, 1.0
    within = totals.variation
    spread = float((weight * (mean / middle - 1.0) ** 2).sum() / weight.sum())
    between = max(spread - within * float((weight / number).sum() / weight.sum()), _LEAST_SPREAD)
    return middle, min(max(within / between, 0.05), 50.0)
