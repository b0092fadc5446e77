"""What outcomes of fetches change, many at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.scheduling.age_index import whole
from crawl_env.compiled import compiled
from ephemeral_crawl.live import causes, learning, life, price
from ephemeral_crawl.live.columns import FLOORED, NEVER, NO_HOST, Hosts, Sources
from ephemeral_crawl.live.learning import Shared

FETCHED, FAILED, RELEASED = 0, 1, 2  # outcomes
# Places in the array of counts, in the order of `counts.Counts`.
LEASES, _FETCHED, _FAILED, _RELEASED, PINGS, _ITEMS, _COLLECTED = range(7)
NEW, FAILING, PAUSED = range(3)  # places in the array of numbers of sources
MOST_ITEMS = 1000  # of an outcome; further, older ones are only counted
_PARTS = 16  # of a gap, for the estimate of the rate
_BACKLOG = 20.0  # weight of a first fetch, in items
_LEAST_SPAN = 60.0  # seconds between items of a first fetch that tell a rate
_UNUSUAL = 8.0  # expected items in the time without any that says that items are missing
_FRESH = 0.3  # share of an item's worth that must be left to tell how much worths differ
_MOST_FAILURES = 250
_LARGEST_SHOT = 1e6
_CAUSES = len(causes.LEARNT)
_LONGEST = learning.MEMORIES[-1]
_MIDDLE = learning.MEMORIES[1]


OUTCOME = np.dtype(
    [
        ("outcome", "u1"),
        ("row", "<i4"),
        ("lease", "<i8"),  # number, 0: fetched without a lease
        ("at", "<f8"),  # time of the fetch
        ("until", "<f8"),  # time until which the source must not be fetched
        ("host_until", "<f8"),  # time until which its host must not be
        ("items", "<i8"),  # number of items, in `worth`
        ("dated", "<i8"),  # number of these, the first of them, whose age is in `age`
        ("more", "<f8"),  # number of further items
        ("more_worth", "<f8"),  # and their worth
        ("cause", "u1"),  # why it failed, place in `causes.LEARNT`
    ]
)
# An array of the above, (K,). In kernels its columns are attributes, which mypy does not know.
Outcomes = Any


def outcomes_of(event: dict[str, Any]) -> Outcomes:
    """Return the outcomes of an event.

    Raises:
        ValueError: its columns are not of the same length.
    """
    if "cause" not in event:  # of an earlier version
        names = [causes.cause_of(None, status) for status in event["status"]]
        event = {**event, "cause": list(map(causes.number_of, names))}
    columns = [event[name] for name in OUTCOME.names or ()]
    return np.array(list(zip(*columns, strict=True)), dtype=OUTCOME)


@compiled
def apply(
    sources: Sources,
    hosts: Hosts,
    shared: Shared,
    kind_pings: NDArray[np.float64],
    sums: NDArray[np.float64],
    counts: NDArray[np.float64],
    numbers: NDArray[np.int64],
    run: NDArray[np.float64],
    outcomes: Outcomes,
    late: NDArray[np.bool_],
    age: NDArray[np.float64],
    worth: NDArray[np.float64],
    balance: float,
    burst: float,
    at_fetch: bool,
    price_now: float,
    now: float,
) -> float:
    """Apply outcomes, and return the budget units that are left; NaN, and nothing is changed, if
    the arguments do not fit together.

    Arguments:
        outcomes: (K,).
        late: (K,) whether the lease had expired, so that hosts were not held for it.
        age: (Σ dated,) seconds, ascending within an outcome.
        worth: (Σ items,).
        kind_pings: (K, 4) of each kind, see `learning.KIND_SUMS`.
        sums: see `learning.SUMS`.
        counts: (7,) see `counts.Counts`.
        numbers: (3,) number of sources that are new, failing, and paused.
        run: (2,) number of different sources in a row for which nobody answered, and the time of
            the first.
        balance, burst: budget units before, and at most.
        at_fetch: whether worths are those at the fetch.
        price_now: price of a budget unit.
    """
    if not _fit_together(outcomes, len(sources), len(age), len(worth)):
        return np.nan
    ages, worths = 0, 0
    for k in range(len(outcomes)):
        i, lease, outcome = whole(outcomes.row[k]), outcomes.lease[k], outcomes.outcome[k]
        host = sources.host[i]
        cost = np.float64(sources.cost[i])
        current = lease != 0 and sources.lease[i] == lease
        each = host
        while lease != 0 and each != NO_HOST:
            if current and not late[k] and hosts.lease[each] < 0:
                hosts.lease[each] += 1
            if hosts.lease[each] == lease or hosts.lease[each] == 0:
                hosts.held[each] = 0.0
            each = hosts.within[each]
        if current:
            sources.lease[i] = 0
            if sources.marks[i] & FLOORED == 0:
                sources.blocked[i] = 0.0
        if outcome == RELEASED:
            counts[_RELEASED] += 1.0
            balance = min(balance + cost, burst)
            if current:
                sources.blocked[i] = max(sources.blocked[i], outcomes.until[k])
            continue
        at = outcomes.at[k]
        if lease == 0:
            balance = max(balance - cost, -burst)
        if not current and sources.lease[i] != 0 and outcomes.until[k] > 0.0:
            sources.marks[i] |= FLOORED
        each = host
        while each != NO_HOST:
            hosts.fetched[each] = max(hosts.fetched[each], at)
            each = hosts.within[each]
        if outcome == FAILED:
            counts[_FAILED] += 1.0
            if at >= sources.fetched[i]:  # it has not answered since
                _fail(sources, shared, numbers, run, i, at, outcomes.cause[k])
            if host != NO_HOST:
                hosts.blocked[host] = max(hosts.blocked[host], outcomes.host_until[k])
        else:
            counts[_FETCHED] += 1.0
            numbers[NEW] -= sources.fetched[i] == NEVER and sources.failures[i] == 0
            if sources.failures[i] > 0 and at >= sources.tried[i]:  # it has not failed since
                numbers[FAILING] -= 1
                sources.failures[i] = 0
            run[0] = 0.0
            items, more = outcomes.items[k], outcomes.more[k]
            counts[_ITEMS] += items + more
            counts[_COLLECTED] += _learn(
                sources, shared, kind_pings, sums, i, at, age[ages : ages + outcomes.dated[k]],
                worth[worths : worths + items], more, outcomes.more_worth[k], at_fetch, price_now,
                now,
            )  # fmt: skip
            sources.fetched[i] = max(sources.fetched[i], at)
        ages += outcomes.dated[k]
        worths += outcomes.items[k]
        sources.blocked[i] = max(sources.blocked[i], outcomes.until[k])
    return balance


@compiled
def _fail(
    sources: Sources,
    shared: Shared,
    numbers: NDArray[np.int64],
    run: NDArray[np.float64],
    i: int,
    at: float,
    cause: int,
) -> None:
    """Note a failure of a source."""
    failures = sources.failures[i]
    if not life.is_unreached(cause):
        run[0] = 0.0
    else:
        if run[0] == 0.0:
            run[1] = at
        if run[0] == 0.0 or failures == 0 or sources.tried[i] < run[1]:
            run[0] += 1.0
    if failures == 0:
        numbers[FAILING] += 1
        numbers[NEW] -= sources.fetched[i] == NEVER
        sources.down[i], sources.tried[i] = 0.0, at
    sources.down[i] += max(at - sources.tried[i], 0.0)
    sources.tried[i] = max(sources.tried[i], at)
    if life.is_own_network(shared, run[0]):
        cause = life.NETWORK
    if (
        failures == 0
        or sources.cause[i] == life.NETWORK
        or life.more_telling(cause, sources.cause[i])
    ):
        sources.cause[i] = cause
    sources.failures[i] = min(failures + 1, _MOST_FAILURES)


@compiled
def _fit_together(outcomes: Outcomes, rows: int, ages: int, worths: int) -> bool:
    """Return whether outcomes refer to rows that exist, and to as many items as there are."""
    for k in range(len(outcomes)):
        row, items, dated = outcomes.row[k], outcomes.items[k], outcomes.dated[k]
        if not (
            0 <= row < rows
            and outcomes.outcome[k] <= RELEASED
            and outcomes.cause[k] < _CAUSES
            and 0 <= dated <= items <= MOST_ITEMS
            and (items == 0 or outcomes.outcome[k] == FETCHED)
        ):
            return False
        ages -= dated
        worths -= items
    return ages == 0 and worths == 0


@compiled
def _learn(
    sources: Sources,
    shared: Shared,
    kind_pings: NDArray[np.float64],
    sums: NDArray[np.float64],
    i: int,
    at: float,
    given_age: NDArray[np.float64],
    worth: NDArray[np.float64],
    more: float,
    more_worth: float,
    at_fetch: bool,
    price_now: float,
    now: float,
) -> float:
    """Learn from the items of a fetch, and return what they were worth then."""
    first = sources.fetched[i] == NEVER
    gap = np.inf if first else max(at - sources.fetched[i], 0.0)
    age = np.minimum(given_age, gap)
    later = sources.pending[i] > 0.0 and sources.pinged[i] > at  # than the fetch
    collected = _learn_worth(sources, shared, sums, i, age, worth, more, more_worth, gap, at_fetch)
    if first and life.has_answered(sources, i):
        pass  # it was taught, and these items were counted then
    elif first:
        _learn_backlog(sources, shared, i, age)
    else:
        pings = np.float64(sources.pending[i]) - (1.0 if later else 0.0)
        _learn_rate(
            sources, shared, kind_pings, i, age, len(worth) + more, gap, at, pings, price_now, now
        )
    sources.pending[i] = 1.0 if later else 0.0
    sources.shot[i] = sources.pending[i]
    return collected


@compiled
def _learn_worth(
    sources: Sources,
    shared: Shared,
    sums: NDArray[np.float64],
    i: int,
    age: NDArray[np.float64],
    worth: NDArray[np.float64],
    more: float,
    more_worth: float,
    gap: float,
    at_fetch: bool,
) -> float:
    """Learn the mean worth of items, and return what these were worth when they were fetched.

    Items without a date are spread evenly over the gap.
    """
    if gap < np.inf:
        kept = math.exp(-gap / _LONGEST)
        sources.worth[i] *= kept
        sources.worth_items[i] *= kept
    if not len(worth):
        return 0.0
    decay = learning.decay_of(sources, shared, i)
    unknown = 1.0 if gap == 0.0 else 0.0
    if 0.0 < gap < np.inf:
        unknown = -math.expm1(-decay * gap) / (decay * gap)
    number = len(age) if at_fetch else len(worth)
    total, shares, collected = 0.0, 0.0, 0.0
    for k in range(len(worth)):
        left = math.exp(-decay * age[k]) if k < len(age) else unknown
        collected += worth[k] if at_fetch else worth[k] * left
        if k < number:
            total += worth[k]
            shares += left if at_fetch else 1.0
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
def _learn_backlog(sources: Sources, shared: Shared, i: int, age: NDArray[np.float64]) -> None:
    """Learn the rate from the ages, in ascending order, of all items of a first fetch.

    Of k items, the newest of which were published within a time T, k − 1 are counted in T. If the
    older half spreads over far more time than the newer half, as pinned entries and archives do,
    only the newer half is used.
    """
    number = len(age)
    half = (number + 1) // 2
    used = half
    if number and age[number - 1] <= 4.0 * max(age[half - 1], _LEAST_SPAN):
        used = number
    if used == 0 or not age[used - 1] >= _LEAST_SPAN:
        return
    span = age[used - 1]
    _observe(sources, shared, i, age[: used - 1], min(_PARTS, 2 * used), span, 1.0)
    learning.limit(sources, i, _BACKLOG)


@compiled
def _learn_rate(
    sources: Sources,
    shared: Shared,
    kind_pings: NDArray[np.float64],
    i: int,
    age: NDArray[np.float64],
    number: float,
    gap: float,
    at: float,
    pings: float,
    price_now: float,
    now: float,
) -> None:
    """Learn the rate, and the precision of pings, from the number of items of a gap."""
    if gap <= 0.0:  # reported after a later fetch: items that were missed before
        for m in range(len(learning.MEMORIES)):
            sources.items[i, m] += number
        return
    dated = len(age)
    if dated == number and _is_cut_off(sources, shared, i, age, gap, price_now, now):
        gap = age[dated - 1]
        dated -= 1
        number -= 1.0
    announced = 0.0
    if pings > 0.0 or sources.pinged_for[i] > 0.0:
        if not sources.pinged_for[i] > 0.0:
            learning.limit(sources, i, learning.UNSIGNALLED)
        kept = math.exp(-gap / _MIDDLE)
        known = learning.belief(sources, shared, i)
        precision = learning.precision(sources, shared, i)
        announced = learning.true_pings(number, pings, known.silent * gap, precision)
        sources.pings[i] = kept * sources.pings[i] + pings
        sources.true_pings[i] = kept * sources.true_pings[i] + announced
        sources.pinged_for[i] = kept * sources.pinged_for[i] + gap
        kind_pings[sources.kind[i], 0] += announced
        kind_pings[sources.kind[i], 1] += pings
        if pings == 1.0 and number == 1.0 and dated == 1 and sources.pinged[i] <= at:
            late = sources.pinged[i] - (at - age[0])
            if late >= 0.0:
                kind_pings[sources.kind[i], 2] += announced * late
                kind_pings[sources.kind[i], 3] += announced
    silent = 1.0 - announced / number if number > 0.0 else 1.0
    parts = min(_PARTS, 2 * dated) if dated == number and dated > 0 else 1
    if parts == 1:
        learning.observe(sources, shared, i, np.full(1, silent * number), gap)
    else:
        _observe(sources, shared, i, age[:dated], parts, gap, silent)


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
    price_now: float,
    now: float,
) -> bool:
    """Return whether items of the beginning of a gap seem to be missing.

    After an outage, or a jump of the clock, a source no longer shows all that it published since
    the last fetch. Otherwise the time from the fetch to the first item is exponential.
    """
    number = len(age)
    if number < _UNUSUAL or not age[number - 1] > 0.0:
        return False
    usual = price.due_at(sources, shared, i, price_now, now)
    if not gap > 4.0 * max(usual - sources.fetched[i], _LEAST_SPAN):
        return False
    return (gap - age[number - 1]) * number / age[number - 1] > _UNUSUAL


@compiled
def give(sources: Sources, hosts: Hosts, rows: NDArray[np.int32], first: int, end: float) -> float:
    """Lease sources until `end`, by numbers from `first` on, and return what they cost."""
    total = 0.0
    for k in range(len(rows)):
        i = whole(rows[k])
        sources.lease[i] = first + k
        sources.marks[i] &= 0xFF ^ FLOORED
        # If it is never reported, it may have been fetched at the end.
        sources.blocked[i] = max(sources.blocked[i], end + np.float64(sources.shortest[i]))
        total += np.float64(sources.cost[i])
        host = sources.host[i]
        while host != NO_HOST:
            hosts.lease[host] = first + k
            hosts.held[host] = end + hosts.interval[host]
            host = hosts.within[host]
    return total


@compiled
def ping(
    sources: Sources,
    shared: Shared,
    rows: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    at: NDArray[np.float64],
) -> None:
    """Note pings of sources."""
    for k in range(len(rows)):
        i = whole(rows[k])
        sources.kind[i] = kinds[k]
        if sources.fetched[i] == NEVER or at[k] < sources.fetched[i]:
            continue  # it announces nothing that is not known
        decay = learning.decay_of(sources, shared, i)
        last = max(sources.pinged[i], at[k])
        left = np.float64(sources.shot[i]) * math.exp(-decay * (last - sources.pinged[i]))
        left += math.exp(-decay * (last - at[k]))
        sources.shot[i] = min(left, _LARGEST_SHOT)
        sources.pinged[i] = last
        sources.pending[i] += 1.0
