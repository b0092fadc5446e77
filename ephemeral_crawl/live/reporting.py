"""Learning from the items of a fetch, and the totals of all fetches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crawl_env.compiled import compiled
from ephemeral_crawl.live import learning, life, price
from ephemeral_crawl.live.columns import NEVER, Sources
from ephemeral_crawl.live.learning import Shared

_PARTS = 16  # of a gap, for the estimate of the rate
_BACKLOG = 20.0  # weight of a first fetch, in items
_LEAST_SPAN = 60.0  # seconds between items of a first fetch that tell a rate
_UNUSUAL = 8.0  # expected items in the time without any that says that items are missing
_ANY = 0.1  # part of the pings whose delay may be anything
_PROMPT = 300.0  # seconds; shortest mean delay that is believed, since dates are not exact
_MOST_EXPONENT = 700.0  # of which there is an exponential
_FRESH = 0.3  # share of an item's worth that must be left to tell how much worths differ
_LONGEST = learning.MEMORIES[-1]
_MIDDLE = learning.MEMORIES[1]


class Tallies(NamedTuple):
    """Numbers of a fleet that reports change, besides those of its sources and hosts."""

    kind_pings: NDArray[np.float64]  # (K, 4) of each kind of signal, see `learning.KIND_SUMS`
    sums: NDArray[np.float64]  # see `learning.SUMS`
    counts: NDArray[np.float64]  # (10,) see `Counts`
    numbers: NDArray[np.int64]  # (3,) sources that are new, failing, and paused
    # (2,) different sources in a row for which nobody answered, and the time of the first.
    run: NDArray[np.float64]


class Items(NamedTuple):
    """The items that a fetch found."""

    age: NDArray[np.float64]  # (D,) seconds, ascending, of those whose age is known
    worth: NDArray[np.float64]  # (K,) of these first, then of others
    more: float  # number of further items
    more_worth: float  # and their worth


class Terms(NamedTuple):
    """How reports are understood."""

    at_fetch: bool  # whether worths are those at the fetch
    price: float  # of a budget unit
    now: float


@compiled
def learn(
    sources: Sources,
    shared: Shared,
    tallies: Tallies,
    i: int,
    at: float,
    items: Items,
    terms: Terms,
) -> float:
    """Learn from the items of a fetch, and return what they were worth then."""
    first = sources.fetched[i] == NEVER
    gap = np.inf if first else max(at - sources.fetched[i], 0.0)
    age = np.minimum(items.age, gap)
    items = Items(age, items.worth, items.more, items.more_worth)
    later = sources.pending[i] > 0.0 and sources.pinged[i] > at  # than the fetch
    collected = _learn_worth(sources, shared, tallies.sums, i, items, gap, terms.at_fetch)
    if first and life.has_answered(sources, i):
        pass  # it was taught, and these items were counted then
    elif first:
        _learn_backlog(sources, shared, i, age)
    else:
        pings = np.float64(sources.pending[i]) - (1.0 if later else 0.0)
        _learn_rate(sources, shared, tallies.kind_pings, i, items, gap, at, pings, terms)
    sources.pending[i] = 1.0 if later else 0.0
    sources.shot[i] = sources.pending[i]
    return collected


@compiled
def _learn_worth(
    sources: Sources,
    shared: Shared,
    sums: NDArray[np.float64],
    i: int,
    items: Items,
    gap: float,
    at_fetch: bool,
) -> float:
    """Learn the mean worth of items, and return what these were worth when they were fetched.

    Items without a date are spread evenly over the gap.
    """
    age, worth, more, more_worth = items
    if gap < np.inf:
        discount = math.exp(-gap / _LONGEST)
        sources.worth[i] *= discount
        sources.worth_items[i] *= discount
    if not len(worth):
        return 0.0
    decay = learning.decay_of(sources, shared, i)
    undated_share = share_of_undated(decay, gap)
    number = len(age) if at_fetch else len(worth)
    total, shares, collected = 0.0, 0.0, 0.0
    for k in range(len(worth)):
        share = math.exp(-decay * age[k]) if k < len(age) else undated_share
        collected += worth[k] if at_fetch else worth[k] * share
        if k < number:
            total += worth[k]
            shares += share if at_fetch else 1.0
    if at_fetch:
        learning.add_ages(sums, age, worth[:number])
        collected += more_worth
    else:
        total += more_worth
        shares += more
    sources.worth[i] += total
    sources.worth_items[i] += shares
    mean = learning.worth_of(sources, shared, i)
    if mean > 0.0:
        for k in range(number):
            share = math.exp(-decay * age[k]) if at_fetch else 1.0
            if share > _FRESH:
                learning.add_worth(sums, worth[k] / share / mean)
    return collected


@compiled
def share_of_undated(decay: float, gap: float) -> float:
    """Return which share of its worth an item without a date has left on average: it was published
    at any time in the gap before the fetch, or long before a first one."""
    if 0.0 < gap < np.inf:
        return -math.expm1(-decay * gap) / (decay * gap)
    return 1.0 if gap == 0.0 else 0.0


def at_publication(worth: float, age: float, gap: float, decay: float) -> float:
    """Return the worth at publication of what is worth so much at the fetch.

    Arguments:
        age: seconds, NaN if it is unknown.
        gap: since the last fetch, which is the largest age; infinite at the first fetch.
    """
    if gap == math.inf:
        return worth
    if math.isnan(age):
        return worth / share_of_undated(decay, gap)
    return worth * math.exp(min(decay * min(age, gap), _MOST_EXPONENT))


@compiled
def _learn_backlog(sources: Sources, shared: Shared, i: int, age: NDArray[np.float64]) -> None:
    """Learn the rate from the ages, in ascending order, of all items of a first fetch.

    Of k items, the newest of which were published within a time T, k − 1 are counted in T. If the
    older half spreads over far more time than the newer half, as pinned entries and archives do,
    only the newer half is used.
    """
    number = len(age)
    half = (number + 1) // 2
    newest = half
    if number and age[number - 1] <= 4.0 * max(age[half - 1], _LEAST_SPAN):
        newest = number
    if newest == 0 or not age[newest - 1] >= _LEAST_SPAN:
        return
    span = age[newest - 1]
    _observe(sources, shared, i, age[: newest - 1], min(_PARTS, 2 * newest), span, 1.0)
    learning.limit(sources, i, _BACKLOG)


@compiled
def _learn_rate(
    sources: Sources,
    shared: Shared,
    kind_pings: NDArray[np.float64],
    i: int,
    items: Items,
    gap: float,
    at: float,
    pings: float,
    terms: Terms,
) -> None:
    """Learn the rate, and the precision of pings, from the number of items of a gap."""
    age, number = items.age, len(items.worth) + items.more
    if gap <= 0.0:  # reported after a later fetch: items that were missed before
        for m in range(len(learning.MEMORIES)):
            sources.items[i, m] += number
        return
    dated = len(age)
    if dated == number and _is_cut_off(sources, shared, i, age, gap, terms):
        gap = age[dated - 1]
        dated -= 1
        number -= 1.0
    true_pings = 0.0
    if pings > 0.0 or sources.pinged_for[i] > 0.0:
        if not sources.pinged_for[i] > 0.0:
            learning.limit(sources, i, learning.UNSIGNALLED)
        discount = math.exp(-gap / _MIDDLE)
        estimate = learning.belief(sources, shared, i)
        precision = learning.precision(sources, shared, i)
        sums = kind_pings[sources.kind[i]]
        delay = sums[2] / (sums[3] + learning.PROMPT_PINGS)
        alone = pings == 1.0 and dated == number and sources.pinged[i] <= at
        if alone:
            true_pings = _is_true(
                age[:dated],
                at - sources.pinged[i],
                gap,
                estimate.silent,
                precision,
                max(delay, _PROMPT),
            )
        else:
            true_pings = learning.true_pings(number, pings, estimate.silent * gap, precision)
        sources.pings[i] = discount * sources.pings[i] + pings
        sources.true_pings[i] = discount * sources.true_pings[i] + true_pings
        sources.pinged_for[i] = discount * sources.pinged_for[i] + gap
        kind_pings[sources.kind[i], 0] += true_pings
        kind_pings[sources.kind[i], 1] += pings
        if pings == 1.0 and number == 1.0 and dated == 1 and sources.pinged[i] <= at:
            late = sources.pinged[i] - (at - age[0])
            if late >= 0.0:
                kind_pings[sources.kind[i], 2] += true_pings * late
                kind_pings[sources.kind[i], 3] += true_pings
    silent = 1.0 - true_pings / number if number > 0.0 else 1.0
    parts = min(_PARTS, 2 * dated) if dated == number and dated > 0 else 1
    if parts == 1:
        learning.observe(sources, shared, i, np.full(1, silent * number), gap)
    else:
        _observe(sources, shared, i, age[:dated], parts, gap, silent)


@compiled
def _is_true(
    age: NDArray[np.float64],
    since: float,
    gap: float,
    silent: float,
    precision: float,
    delay: float,
) -> float:
    """Return the probability that the only ping of a gap announced one of its dated items.

    How many items there are hardly tells it where each fetch follows one ping: a high precision
    with few silent items then predicts as many as a low one with many. When they were published
    does: an item that is announced came shortly before the ping, others at any time of the gap.
    With the density f of the delay the odds are p/(1 − p) Σ f(delay)/Λ_s.

    Arguments:
        age: of the items, seconds.
        since: seconds from the ping to the fetch.
        silent: Λ_s, per second.
        delay: mean of the delay, which is exponential but for a part of `_ANY` of the pings.
    """
    total = 0.0
    for k in range(len(age)):
        late = age[k] - since
        total += _ANY / gap
        if late >= 0.0:
            total += (1.0 - _ANY) * math.exp(-late / delay) / delay
    odds = precision * total
    return odds / (odds + (1.0 - precision) * silent) if odds > 0.0 else 0.0


@compiled
def _observe(
    sources: Sources,
    shared: Shared,
    i: int,
    age: NDArray[np.float64],
    parts: int,
    span: float,
    weight: float,
) -> None:
    """Learn from dated items, by the part of a time in which each was published."""
    counts = np.zeros(parts)
    for k in range(len(age)):
        part = min(max((span - age[k]) * (parts / span), 0.0), parts - 1.0)
        counts[int(part)] += weight
    learning.observe(sources, shared, i, counts, span / parts)


@compiled
def _is_cut_off(
    sources: Sources,
    shared: Shared,
    i: int,
    age: NDArray[np.float64],
    gap: float,
    terms: Terms,
) -> bool:
    """Return whether items of the beginning of a gap seem to be missing.

    After an outage, or a jump of the clock, a source no longer shows all that it published since
    the last fetch. Otherwise the time from the fetch to the first item is exponential.
    """
    number = len(age)
    if number < _UNUSUAL or not age[number - 1] > 0.0:
        return False
    usual = price.due_at(sources, shared, i, terms.price, terms.now)
    if not gap > 4.0 * max(usual - sources.fetched[i], _LEAST_SPAN):
        return False
    return (gap - age[number - 1]) * number / age[number - 1] > _UNUSUAL


@dataclass
class Counts:
    """Totals since the scheduler was made, over all processes that use it."""

    leases: float = 0.0
    fetched: float = 0.0  # reports of fetches
    failed: float = 0.0
    released: float = 0.0
    pings: float = 0.0
    items: float = 0.0
    collected: float = 0.0  # worth of the items when they were fetched
    looks: float = 0.0  # fetches of sources that announce what others have
    looks_cost: float = 0.0  # budget units that these took
    looks_worth: float = 0.0  # of the pings that they brought: see `ephemeral_crawl.live.looks`

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Counts:
        """Return stored counts, checked."""
        counts = Counts(**{name: float(value) for name, value in values.items()})
        if not all(0.0 <= value < math.inf for value in vars(counts).values()):
            raise ValueError("a count is negative or infinite")
        return counts
