"""What the scheduler learns about a source: its rate, its items' worth, its signals' precision.

**Rate.** The items of a source are a Poisson process of unknown rate, which may change. Its rate
has a Gamma posterior with each of the `MEMORIES` h in parallel: what was observed a time s ago has
the weight e^(−s/h). The weights of the memories are the likelihoods of their predictions, one step
ahead (negative binomial), themselves discounted (dynamic model averaging: Raftery, Kárný & Ettler
2010). So a constant rate is averaged over months, and a source that falls silent or wakes up is
seen within a few fetches. The prior is fitted to the fleet
(`agents.inference.rates.fit_prior`), and scaled by the mean of the sources of the same
host.

**Worth.** The mean worth of a source's items is Σ worth ÷ Σ share + a few items of the fleet's
mean, where the share of an item's worth that is left at the fetch is known from its age.

**Signals.** In a gap τ with n pings, k items are Poisson(Λ_s τ) + Binomial(n, p) with the silent
rate Λ_s and the precision p. The expected number of true pings given k, n and the estimates so far
is added to the counts of p, and the other items to those of Λ_s. Of a ping that was alone, dates
say more than numbers: its item came shortly before it (`reporting`). Until a source has pings of
its own, its precision is that of the same kind of signal at the other hosts, or what those of its
host say. Each host has one voice in the precision of a kind (`fitting.precisions`), so that a host
whose pings are false, however many there are, changes nothing for others.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crawl_env.compiled import compiled
from ephemeral_crawl.live.arguments import LEAST_COST
from ephemeral_crawl.live.columns import NO_HOST, Hosts, Sources

MEMORIES = (43_200.0, 5.0 * 86_400, 100.0 * 86_400)  # seconds
_MEMORIES = len(MEMORIES)
_MEMORY = np.array(MEMORIES)
_PRIOR_WEIGHT = np.log([0.1, 0.3, 0.6])
_DISCOUNT = 0.98  # of the logarithms of weights, per observation
PRECISION_PINGS = 4.0  # weight of the fleet's precision, in pings of the source
PROMPT_PINGS = 2.0  # weight of the guess that pings come at once, in pings
_MOST_PRECISION = 0.99  # of a prior
_EXACT = 64  # number of pings up to which the expected number of true ones is summed exactly
_SHORTEST = 1.0  # seconds; shorter gaps do not tell memories apart
UNSIGNALLED = 5.0  # items that the silent rate keeps when the first pings come
# Sums over the fleet's reports: Σ (worth ÷ mean worth of the source)² and number of these items,
# Σ(s − s̄)² and Σ(s − s̄)(ln w − mean) over the items of each fetch, of age s.
SUMS = 4
# Sums over the pings of a kind that a fetch has followed: of true ones, of all, and of the delays,
# seconds, of those that were alone with one item, and their number, as far as they are true.
KIND_SUMS = 4
SUMS_DISCOUNT = 0.9995  # of the first two, per item
_COST_GAIN = 0.2
_DECAY = math.log(2.0) / 10_800.0  # per second; guess and its standard error
_NOISE = math.pi**2 / 6.0  # variance of the logarithm of exponential worths
_WINDOW = 8.0  # half-lives; older items do not tell how fast worth decays at first


class Shared(NamedTuple):
    """What the sources of a fleet share. Rates are per second."""

    shape: float  # of the prior of the rates
    rate: float  # seconds
    worth: float  # mean worth of an item over the fleet
    worth_items: float  # its weight, in items
    decay: float  # per second, of sources without a half-life of their own
    optimism: float  # standard errors added to the rate in decisions
    answering: float  # probability that a source that was never tried answers
    market: float  # price of a budget unit at which the estimates say that the budget is spent
    # Per second: what a source earns on average over the cost of its fetches, ÷ price; 0: nothing
    # is spent on sources that are hardly worth a fetch. The second: at half of the price.
    surplus: float
    surplus_at_half: float
    retrying: float  # factor of the surplus of sources that fail, so that retries cost little
    precision: NDArray[np.float64]  # (K,) precision of each kind of signal over the fleet
    fresh: NDArray[np.float64]  # (K,) worth of an item that is left when its ping comes, as a share
    hosts: Hosts  # (H,)


class Belief(NamedTuple):
    """The estimates of one source; rates per second."""

    silent: float  # rate of items that no ping announces
    error: float  # standard error of it
    worth: float  # mean worth of an item, times the weight of the source
    precision: float
    ping_rate: float
    ping_worth: float  # expected worth of what a ping announces, when it comes
    decay: float


@compiled
def _below(sources: Sources, shared: Shared, i: int) -> float:
    """Return the rate parameter of the prior of source i."""
    host = sources.host[i]
    return shared.rate / (shared.hosts.factor[host] if host != NO_HOST else 1.0)


@compiled
def is_guess(sources: Sources, i: int) -> bool:
    """Return whether the rate of source i is that of the other sources: it has not been fetched
    yet, or once, when it had no items or none with a date, and was not taught."""
    return not sources.exposure[i, _MEMORIES - 1] > 0.0


@compiled
def belief(sources: Sources, shared: Shared, i: int) -> Belief:
    """Return the estimates of source i."""
    below = _below(sources, shared, i)
    most = -np.inf
    for m in range(_MEMORIES):
        most = max(most, np.float64(sources.weight[i, m]) + _PRIOR_WEIGHT[m])
    total, mean, square = 0.0, 0.0, 0.0
    for m in range(_MEMORIES):
        weight = np.exp(np.float64(sources.weight[i, m]) + _PRIOR_WEIGHT[m] - most)
        above = shared.shape + np.float64(sources.items[i, m])
        under = below + np.float64(sources.exposure[i, m])
        rate = above / under
        total += weight
        mean += weight * rate
        square += weight * (rate * rate + rate / under)
    mean /= total
    error = np.sqrt(max(square / total - mean * mean, 0.0))
    worth = (np.float64(sources.worth[i]) + shared.worth_items * shared.worth) / (
        np.float64(sources.worth_items[i]) + shared.worth_items
    )
    worth *= np.float64(sources.importance[i])
    true_share, ping_rate, ping_worth = 0.0, 0.0, 0.0
    if sources.pending[i] > 0.0 or sources.pinged_for[i] > 0.0:
        true_share = precision(sources, shared, i)
        ping_worth = true_share * worth * shared.fresh[sources.kind[i]]
        if sources.pinged_for[i] > 0.0:
            ping_rate = np.float64(sources.pings[i]) / np.float64(sources.pinged_for[i])
    half_life = np.float64(sources.half_life[i])
    decay = math.log(2.0) / half_life if half_life > 0.0 else shared.decay
    return Belief(mean, error, worth, true_share, ping_rate, ping_worth, decay)


@compiled
def precision(sources: Sources, shared: Shared, i: int) -> float:
    """Return the precision of the pings of source i."""
    prior = shared.precision[sources.kind[i]]
    host = sources.host[i]
    if host != NO_HOST:
        prior = min(prior * shared.hosts.trust[host], _MOST_PRECISION)
    return (PRECISION_PINGS * prior + np.float64(sources.true_pings[i])) / (
        PRECISION_PINGS + np.float64(sources.pings[i])
    )


@compiled
def add_signals(sources: Sources, shared: Shared, totals: NDArray[np.float64]) -> None:
    """Add the estimates of sources that were pinged to totals of the kinds of their last pings.

    Arguments:
        totals: (K, 5) number of sources, of pings and of true pings, and the rates of items that
            pings announce, and that none does.
    """
    for i in range(len(sources)):
        if sources.pinged_for[i] > 0.0:
            estimate, row = belief(sources, shared, i), totals[sources.kind[i]]
            row[0] += 1.0
            row[1] += sources.pings[i]
            row[2] += sources.true_pings[i]
            row[3] += estimate.precision * estimate.ping_rate
            row[4] += estimate.silent


@compiled
def observe(
    sources: Sources, shared: Shared, i: int, counts: NDArray[np.float64], time: float
) -> None:
    """Add items found in parts of equal length of a gap, the oldest first.

    Arguments:
        counts: (P,) number of items of each part.
        time: length of a part, seconds.
    """
    below = _below(sources, shared, i)
    for part in range(len(counts)):
        n = counts[part]
        gap = max(time, _SHORTEST)
        for m in range(_MEMORIES):
            memory = _MEMORY[m]
            discount = np.exp(-time / memory)
            items = discount * np.float64(sources.items[i, m])
            exposure = discount * np.float64(sources.exposure[i, m])
            above, under = shared.shape + items, below + exposure
            likelihood = (
                math.lgamma(above + n)
                - math.lgamma(above)
                + above * np.log(under / (under + gap))
                + n * np.log(gap / (under + gap))
            )
            sources.weight[i, m] = _DISCOUNT * np.float64(sources.weight[i, m]) + likelihood
            within = 1.0 - 0.5 * time / memory
            if time > 0.01 * memory:
                within = (1.0 - discount) * memory / time
            sources.items[i, m] = items + n * within
            sources.exposure[i, m] = exposure + time * within
        most = max(sources.weight[i, 0], max(sources.weight[i, 1], sources.weight[i, 2]))
        for m in range(_MEMORIES):
            sources.weight[i, m] -= most


@compiled
def limit(sources: Sources, i: int, most: float) -> None:
    """Reduce the weight of the rate of source i to this number of items; its mean stays."""
    for m in range(_MEMORIES):
        items = np.float64(sources.items[i, m])
        if items > most:
            sources.items[i, m] = most
            sources.exposure[i, m] = np.float64(sources.exposure[i, m]) * most / items


@compiled
def true_pings(items: float, pings: float, silent: float, precision: float) -> float:
    """Return the expected number of true pings, of n, given k items in a gap.

    Arguments:
        items, pings: k, n.
        silent: Λ_s τ, the expected number of items that no ping announces.
        precision: p.

    >>> round(true_pings(1.0, 1.0, 0.5, 0.5), 4)  # 1/(1 + silent × (1 − p)/p)
    0.6667
    """
    most = min(items, pings)
    if most <= 0.0 or precision <= 0.0:
        return 0.0
    if silent <= 0.0 or precision >= 1.0:
        return most
    if pings > _EXACT:
        expected = pings * precision
        return min(most, items * expected / (expected + silent))
    odds = np.log(precision / (1.0 - precision)) - np.log(silent)
    highest = -np.inf
    for pick in range(2):
        total, mean = 0.0, 0.0
        for j in range(int(most) + 1):
            score = (
                j * odds
                - math.lgamma(j + 1.0)
                - math.lgamma(pings - j + 1.0)
                - math.lgamma(items - j + 1.0)
            )
            if pick == 0:
                highest = max(highest, score)
            else:
                weight = np.exp(score - highest)
                total += weight
                mean += j * weight
    return mean / total


@compiled
def learn_cost(sources: Sources, i: int, cost: float, has_items: bool) -> None:
    """Learn what a fetch of source i costs, from one that found items, or nothing.

    Both costs are exponential averages: the first such fetch sets the estimate, and each later one
    moves it by a fifth of the difference. So is the cost that a lease is charged, over all fetches.
    """
    cost = max(cost, LEAST_COST)
    before = np.float64(sources.hit[i]) if has_items else np.float64(sources.vain[i])
    now = cost if before == 0.0 else before + _COST_GAIN * (cost - before)
    if sources.hit[i] == 0.0 and sources.vain[i] == 0.0:
        sources.cost[i] = cost
    else:
        sources.cost[i] += _COST_GAIN * (cost - np.float64(sources.cost[i]))
    if has_items:
        sources.hit[i] = now
    else:
        sources.vain[i] = now


@compiled
def decay_of(sources: Sources, shared: Shared, i: int) -> float:
    """Return the decay rate of source i, per second."""
    return belief(sources, shared, i).decay


@compiled
def worth_of(sources: Sources, shared: Shared, i: int) -> float:
    """Return the mean worth of an item of source i, without the weight of the source."""
    return belief(sources, shared, i).worth / np.float64(sources.importance[i])


@compiled
def learnt_decay(sums: NDArray[np.float64]) -> tuple[float, float]:
    """Return the decay rate that `SUMS` tell, and its standard error, per second."""
    precision = 1.0 / _DECAY**2 + sums[2] / _NOISE
    mean = (1.0 / _DECAY - sums[3] / _NOISE) / precision
    return min(max(mean, _DECAY / 1000.0), 1000.0 * _DECAY), math.sqrt(1.0 / precision)


@compiled
def add_ages(
    sums: NDArray[np.float64], age: NDArray[np.float64], worth: NDArray[np.float64]
) -> None:
    """Add the items of one fetch, whose worths are those at the fetch, to `SUMS`."""
    oldest = _WINDOW * math.log(2.0) / learnt_decay(sums)[0]
    number, mean_age, mean_log = 0, 0.0, 0.0
    for k in range(len(age)):
        if worth[k] > 0.0 and age[k] < oldest:
            number += 1
            mean_age += age[k]
            mean_log += math.log(worth[k])
    if number < 2:
        return
    mean_age /= number
    mean_log /= number
    for k in range(len(age)):
        if worth[k] > 0.0 and age[k] < oldest:
            away = age[k] - mean_age
            sums[2] += away * away
            sums[3] += away * (math.log(worth[k]) - mean_log)


@compiled
def add_worth(sums: NDArray[np.float64], relative: float) -> None:
    """Add an item's worth ÷ the mean worth of its source to `SUMS`."""
    sums[0] = SUMS_DISCOUNT * sums[0] + min(relative * relative, 1e4)
    sums[1] = SUMS_DISCOUNT * sums[1] + 1.0
