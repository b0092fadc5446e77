"""Reports of outcomes and pings: they are checked, become events of the journal, and change the
state."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from agents.scheduling.age_index import signed
from crawl_env.compiled import compiled
from crawl_env.errors import check_choice, check_whole, check_within, shown, unknown
from ephemeral_crawl.live import learning, life, reporting
from ephemeral_crawl.live.arguments import (
    EARLIEST,
    LATEST,
    MOST_COST,
    MOST_WORTH,
    name_of,
    seconds,
    time_of,
)
from ephemeral_crawl.live.columns import FLOORED, NEVER, NO_HOST, Sources
from ephemeral_crawl.live.errors import UnknownLease, UnknownSource
from ephemeral_crawl.live.learning import Shared
from ephemeral_crawl.live.reasons import (
    CAUSES,
    KINDS,
    LEARNT,
    LONGEST,
    cause_of,
    number_of,
    reason_of,
)
from ephemeral_crawl.live.reporting import Items, Tallies, Terms

if TYPE_CHECKING:
    from ephemeral_crawl.live.state import Event, Moment, State

OUTCOMES = ("fetched", "failed", "released")
FETCHED, FAILED, RELEASED = range(3)  # places in these
# An outcome in an event of the journal, which has a list for each of these, and its HTTP status.
# Their items are in two more lists: ages in seconds, in ascending order within an outcome, and
# worths, of which the first ones are those of the items whose age is known.
OUTCOME = np.dtype(
    [
        ("outcome", "u1"),  # place in `OUTCOMES`
        ("row", "<i4"),
        ("lease", "<i8"),  # number, 0: fetched without a lease
        ("at", "<f8"),  # time of the fetch
        ("until", "<f8"),  # time until which the source must not be fetched
        ("host_until", "<f8"),  # time until which its host must not be
        ("items", "<i8"),  # number of items with a worth
        ("dated", "<i8"),  # number of these with an age, too
        ("more", "<f8"),  # number of further items
        ("more_worth", "<f8"),  # and their worth
        ("cause", "u1"),  # why it failed, place in `reasons.LEARNT`
        ("spent", "<f8"),  # budget units that the fetch took; negative: what was charged for it
    ]
)
# Events have the last of them only if a cost was reported.
_LOG = logging.getLogger(__name__)
_DAY = 86_400.0  # seconds
_COLUMNS = (*(OUTCOME.names or ())[:-1], "status")
# An array of outcomes, (K,). In kernels its columns are attributes, which mypy does not know.
Outcomes = Any
MOST_ITEMS = 1000  # of an outcome in an event; further, older ones are only counted
_MOST_REPORTED = 1_000_000  # items in a report
MOST_PAUSE = 30 * _DAY  # for which a source is left alone as asked with a report
_MOST_RETRY = _DAY  # for which a host is after a failure: some servers ask in milliseconds
_SAME_PING = 60.0  # seconds between pings that say the same
_STEP = 60.0  # seconds before its lease at which a fetch may seem to have been, by other clocks
_RETRY = 300.0  # seconds after a failure in which a source is left alone
_ARGUMENTS = {
    kind: dict.fromkeys(("lease", "source", "outcome", *names))  # a set with an order
    for kind, names in (
        ("fetched", ("items", "status", "at", "again_after", "cost", "pings")),
        ("failed", ("retry_after", "status", "at", "reason", "kind", "cost")),
        ("released", ("again_after", "reason")),
    )
}
_PING_ARGUMENTS = ("source", "kind", "at")
_PAIR = (tuple, list)
_MAPPING = (dict, Mapping)  # the usual type first, since abstract classes take longer
# Places in the array of counts, in the order of `reporting.Counts`.
LEASES, _FETCHED, _FAILED, _RELEASED, PINGS, ITEMS, COLLECTED, LOOKS, LOOKS_COST, LOOKS_WORTH = (
    range(10)
)
NEW, FAILING, PAUSED = range(3)  # places in the array of numbers of sources
_MOST_FAILURES = 250
_LARGEST_SHOT = 1e6
_CAUSES = len(LEARNT)

Record = TypeVar("Record")


class Outcome(NamedTuple):
    """What became of a fetch, checked as far as it can be without the state."""

    fetch: int | str  # number of a lease, or name of a source
    kind: int  # place in `OUTCOMES`
    at: float | None  # time of the fetch, by the clock
    wait: float  # seconds in which the source, or after a failure its host, is left alone
    status: int | None
    times: Sequence[float]  # of publication, NaN if unknown
    worths: Sequence[float]
    reason: str = ""  # why there was no fetch
    cause: str = ""  # of a failure, one of `reasons.CAUSES`
    cost: float | None = None  # budget units; None if it is not reported
    # Times and worths of the pings of other sources that it brought; None: it announces nothing.
    pings: tuple[Sequence[float], Sequence[float]] | None = None


class Ping(NamedTuple):
    """A ping, checked as far as it can be without the state."""

    source: object
    kind: str
    at: float | None


def parse_all(
    name: str, parse: Callable[[Mapping[str, Any]], Record], entries: Iterable[Mapping[str, Any]]
) -> list[Record]:
    """Parse dictionaries; an error names the number of the invalid one."""
    records = []
    try:
        values = iter(entries)
    except TypeError:
        raise ValueError(f"{name}s is {shown(entries)}; give a list of dictionaries") from None
    for number, value in enumerate(values):
        try:
            if not isinstance(value, _MAPPING):
                raise ValueError(f"it is {shown(value)}; give a dictionary")
            records.append(parse(value))
        except ValueError as error:
            raise type(error)(f"{name} {number}: {error}") from None
    return records


def outcome_of(arguments: Mapping[str, Any]) -> Outcome:
    """Return an outcome from a dictionary, as `Scheduler.record` takes it."""
    kind = arguments.get("outcome", "fetched")
    if not isinstance(kind, str) or kind not in _ARGUMENTS:
        check_choice("outcome", kind, OUTCOMES)  # raises
    allowed = _ARGUMENTS[kind]
    if not arguments.keys() <= allowed.keys():
        name = next(name for name in arguments if name not in allowed)
        raise unknown("argument", name, allowed)
    if ("lease" in arguments) == ("source" in arguments):
        raise ValueError("give either the `lease` or the `source`")
    fetch = arguments["lease"] if "lease" in arguments else arguments["source"]
    if "lease" in arguments:
        if type(fetch) is not int or not 0 < fetch < 2**63:  # which would be unusual
            fetch = check_whole("lease", fetch)
    elif kind == "released":
        raise ValueError(f"source is {shown(fetch)}; give the id of the lease that is released")
    elif not isinstance(fetch, str):
        raise _no_source(fetch)
    pause = arguments.get("retry_after" if kind == "failed" else "again_after")
    name = "retry_after" if kind == "failed" else "again_after"
    at, status, reason = arguments.get("at"), arguments.get("status"), arguments.get("reason")
    if status is not None and not (type(status) is int and 100 <= status <= 999):
        status = int(check_within("status", check_whole("status", status), 100, 999))
    failure = arguments.get("kind")
    if failure is not None:
        failure = check_choice("kind", failure, KINDS)
    cause = cause_of(failure, status) if kind == "failed" else ""
    if reason is None and kind == "failed":
        is_http = failure in (None, "http") and status is not None
        meaning = "" if cause == "unknown" else CAUSES[cause].meaning
        reason = f"HTTP {status}" if is_http else meaning
    cost = arguments.get("cost")
    if cost is not None:
        cost = check_within("cost", cost, 0.0, MOST_COST, unit="budget units")
    times, worths = items_of(arguments["items"]) if "items" in arguments else ((), ())
    pings = arguments.get("pings")
    return Outcome(
        fetch,
        OUTCOMES.index(kind),
        None if at is None else time_of("at", at),
        0.0 if pause is None else min(seconds(name, pause), MOST_PAUSE),
        status,
        times,
        worths,
        "" if reason is None else reason_of(reason),
        cause,
        cost,
        None if pings is None else items_of(pings, "ping"),
    )


def items_of(
    items: Iterable[object], name: str = "item"
) -> tuple[Sequence[float], Sequence[float]]:
    """Return the times of publication, NaN if unknown, and worths of the items of a report.

    Raises:
        ValueError: an item is not a pair of a time, or None, and a worth that is zero or positive;
            or there are more than 10⁶.
    """
    try:
        if not isinstance(items, list) and isinstance(items, str | bytes | Mapping):
            raise TypeError
        pairs = list(items)
    except TypeError:
        raise ValueError(
            f"{name}s is {shown(items)}; give a list of pairs (published, worth)"
        ) from None
    if not pairs:  # often
        return (), ()
    if len(pairs) > _MOST_REPORTED:
        raise ValueError(f"there are {len(pairs)} {name}s; report at most {_MOST_REPORTED} at once")
    times, worths = [], []
    for number, pair in enumerate(pairs):
        if not (isinstance(pair, _PAIR) and len(pair) == 2):
            raise ValueError(f"{name} {number} is {shown(pair)}; give a pair (published, worth)")
        published, worth = pair
        # The usual cases first, since there can be many.
        if type(published) is not float or not EARLIEST <= published <= LATEST:
            what = f"{name} {number}: published"
            published = math.nan if published is None else time_of(what, published)
        if type(worth) is not float or not 0.0 <= worth <= MOST_WORTH:
            if not (isinstance(worth, Real) and not isinstance(worth, bool)):
                raise ValueError(f"{name} {number}: worth is {shown(worth)}; it must be a number")
            worth = check_within(f"{name} {number}: worth", worth, 0.0, MOST_WORTH)
        times.append(published)
        worths.append(worth)
    return times, worths


def ping_of(arguments: Mapping[str, Any]) -> Ping:
    """Return a ping from a dictionary, as `Scheduler.signal_many` takes it."""
    for name in arguments:
        if name not in _PING_ARGUMENTS:
            raise unknown("argument", name, _PING_ARGUMENTS)
    at = arguments.get("at")
    return Ping(
        arguments.get("source"),
        name_of("kind", arguments.get("kind", "ping")),
        None if at is None else time_of("at", at),
    )


def row_of(state: State, source: object) -> int:
    """Return the row of a source.

    Raises:
        UnknownSource: there is no such source.
        ValueError: it is not named by text.
    """
    row = state.names.row(source) if isinstance(source, str) else -1
    if row < 0:
        raise _no_source(source)
    return row


def _no_source(source: object, prefix: str = "") -> ValueError:
    """Return the error about what is not the name of a source."""
    if isinstance(source, str):
        message = f"there is no source {shown(source)}; check its name, or `add` it"
        return UnknownSource(prefix + message)
    return ValueError(
        f"{prefix}source is {shown(source)}; a source is named by text, such as its URL"
    )


def outcome_event(
    state: State, outcomes: Sequence[Outcome], moment: Moment, number: int
) -> tuple[Event | None, list[bool]]:
    """Return what outcomes change, in the columns of `OUTCOME`, and which of them
    count: not those of leases that were reported before.

    Arguments:
        number: of the last event, which the jitter of retries depends on.

    Raises:
        UnknownLease, UnknownSource: an outcome is one of a lease or source that does not exist.
    """
    now, clock = moment.time, moment.time - moment.offset
    ended: set[int] = set()
    counts: list[bool] = []
    rows: list[tuple[Any, ...]] = []
    ages: list[float] = []
    worths: list[float] = []
    reasons: list[tuple[int, str, str]] = []  # of rows
    costs: list[float | None] = []
    looks: list[tuple[int, int, float]] = []  # of rows: number of pings, and their worth
    row_by_name = _rows_by_name(state, [outcome.fetch for outcome in outcomes])
    for k, outcome in enumerate(outcomes):
        try:
            row, lease, begin, end = _lease_of(state, outcome.fetch, row_by_name)
        except ValueError as error:
            raise type(error)(f"outcome {k}: {error}") from None
        expired = outcome.kind == RELEASED and end <= now  # and counts as fetched
        counts.append(row >= 0 and lease not in ended and not expired)
        if not counts[-1]:
            continue
        if lease:
            ended.add(lease)
        then = clock if outcome.at is None else min(outcome.at, clock)
        at = then + moment.offset
        if at < begin - _STEP:  # the clock was set since
            at = now
        until = host_until = more_worth = 0.0
        items = dated = more = 0
        reason = outcome.reason
        if outcome.kind == FETCHED:
            until = at + outcome.wait if outcome.wait else 0.0
            times, values = outcome.times, outcome.worths
            if outcome.pings is not None:
                ping_times, ping_worths = outcome.pings
                looks.append((len(rows), len(ping_times), math.fsum(ping_worths)))
                times = [*times, *ping_times]
                values = [*values, *_at_publication(state, row, at, then, ping_times, ping_worths)]
            if values:
                age, worth, more, more_worth = _newest(then, times, values)
                items, dated = len(worth), len(age)
                ages += age
                worths += worth
        elif outcome.kind == FAILED:
            draw = np.random.default_rng([state.settings.seed, number, k]).random()
            pause, wait = _RETRY * (0.75 + 0.5 * draw), min(outcome.wait, _MOST_RETRY)
            if wait < outcome.wait:
                text = f"asks to be left alone for {outcome.wait:.0f} s, which is limited to a day"
                _LOG.warning("the server of %s %s", shown(state.names[row]), text)
                end_of_reason = f"; its server {text}"
                start = reason_of(reason, LONGEST - len(end_of_reason))
                reason = (start + end_of_reason).removeprefix("; ")
            elif not wait and outcome.cause == "busy":  # which concerns its host, too
                wait = pause
            if state.table["host"][row] == NO_HOST:
                pause = max(pause, wait)
            elif wait:
                host_until = now + wait
            until = now + pause
        else:
            until = now + outcome.wait if outcome.wait else 0.0
        if reason:
            reasons.append((len(rows), reason, outcome.cause))
        cost = outcome.cost
        costs.append(cost if cost is None else _plausible_cost(state, row, cost))
        rows.append(
            (outcome.kind, row, lease, at, until, host_until, items, dated, more, more_worth,
             number_of(outcome.cause) if outcome.cause else 0, outcome.status)
        )  # fmt: skip
    if not rows:
        return None, counts
    event: Event = dict(zip(_COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    if reasons:
        event["reasons"] = reasons
    if any(cost is not None for cost in costs):
        event["spent"] = costs
    if looks:
        event["looks"] = looks
    return {"kind": "record", **event, "age": ages, "worth": worths}, counts


def _at_publication(
    state: State,
    row: int,
    at: float,
    then: float,
    times: Sequence[float],
    worths: Sequence[float],
) -> list[float]:
    """Return the worths of pings as reports state those of items: at publication, or at the fetch
    if this is what the setting `worth_at` says.

    Arguments:
        at, then: time of the fetch, and by the clock.
    """
    if state.settings.worth_at == "fetch":
        return list(worths)
    gap = max(at - float(state.table["fetched"][row]), 0.0)
    decay = learning.decay_of(state.table, state.shared, row)
    return [
        min(reporting.at_publication(worth, max(then - time, 0.0), gap, decay), MOST_WORTH)
        for time, worth in zip(times, worths, strict=True)
    ]


def ping_events(
    state: State, pings: Sequence[Ping], moment: Moment
) -> tuple[list[list[Any]], list[int]]:
    """Return row, kind and time of each ping, without those that come within a minute of another
    since the last fetch of their source: they say nothing more; and which of the pings these
    are."""
    events: list[list[Any]] = []
    places: list[int] = []
    now, row_by_name = moment.time, _rows_by_name(state, [ping.source for ping in pings])
    last: dict[int, float] = {}
    for k, ping in enumerate(pings):
        row = row_by_name.get(ping.source, -1) if isinstance(ping.source, str) else -1
        if row < 0:
            raise _no_source(ping.source, f"ping {k}: ")
        at = now if ping.at is None else min(ping.at + moment.offset, now)
        if row not in last:
            pending = state.table["pending"][row] > 0.0
            last[row] = float(state.table["pinged"][row]) if pending else -math.inf
        if abs(at - last[row]) >= _SAME_PING:
            events.append([row, ping.kind, at])
            places.append(k)
            last[row] = max(at, last[row])
    return events, places


def _plausible_cost(state: State, row: int, cost: float) -> float:
    """Return a reported cost, at most the budget of a day: a larger one is a mistake, such as a
    wrong unit, and must not block a tag or make a source too expensive for good."""
    most = max(_DAY * state.settings.budget, float(state.table["cost"][row]))
    if cost <= most:
        return cost
    _LOG.warning(
        "%s is reported to cost %g budget units, more than the budget brings in a day; it counts "
        "as %g. Costs are in the units of the budget",
        shown(state.names[row]), cost, most,
    )  # fmt: skip
    return most


def _rows_by_name(state: State, fetches: Iterable[object]) -> dict[str, int]:
    """Return the rows of the sources among fetches; −1 of those that do not exist."""
    names = [name for name in fetches if isinstance(name, str)]
    return dict(zip(names, state.names.rows(names), strict=True)) if names else {}


def _lease_of(
    state: State, fetch: int | str, row_by_name: Mapping[str, int]
) -> tuple[int, int, float, float]:
    """Return row, number, beginning and end of a lease, or row, 0, −∞ and ∞ of a source; row −1 if
    it is reported."""
    if isinstance(fetch, str):
        if row_by_name[fetch] < 0:
            raise _no_source(fetch)
        return row_by_name[fetch], 0, -math.inf, math.inf
    lease = state.leases.get(fetch)
    if lease is not None:
        return lease[0], fetch, lease[2], lease[1]
    if fetch > state.last_lease:
        raise UnknownLease(
            f"there was no lease {fetch}; give the id of a lease, or a source's name"
        )
    return -1, fetch, -math.inf, math.inf


def _newest(
    then: float, times: Sequence[float], worths: Sequence[float]
) -> tuple[list[float], list[float], int, float]:
    """Return the ages of the items that have a date, in ascending order, the worths of these and
    the others, and number and worth of further, older ones."""
    pairs = [
        (then - t if t < then else 0.0, w)
        for t, w in zip(times, worths, strict=True)
        if t == t  # it is known
    ]
    pairs.sort()
    age = [s for s, _ in pairs]
    worth = [w for _, w in pairs]
    if len(pairs) < len(times):
        worth += [w for t, w in zip(times, worths, strict=True) if t != t]
    most = MOST_ITEMS
    return age[:most], worth[:most], max(len(worth) - most, 0), math.fsum(worth[most:])


def outcomes_of(event: dict[str, Any]) -> Outcomes:
    """Return the outcomes of an event.

    Raises:
        ValueError: its columns are not of the same length.
    """
    costs = event.get("spent") or [None] * len(event["row"])
    event = {**event, "spent": [-1.0 if cost is None else cost for cost in costs]}
    columns = [event[name] for name in OUTCOME.names or ()]
    return np.array(list(zip(*columns, strict=True)), dtype=OUTCOME)


@compiled
def apply(
    sources: Sources,
    shared: Shared,
    tallies: Tallies,
    outcomes: Outcomes,
    late: NDArray[np.bool_],
    age: NDArray[np.float64],
    worth: NDArray[np.float64],
    balance: float,
    burst: float,
    terms: Terms,
) -> float:
    """Apply outcomes, and return the budget units that are left.

    Arguments:
        outcomes: (K,).
        late: (K,) whether the lease had expired, so that hosts were not held for it.
        age: (Σ dated,) seconds, ascending within an outcome.
        worth: (Σ items,).
        balance, burst: budget units before, and at most.

    Raises:
        ValueError: the arguments do not fit together. Nothing is changed.
    """
    if not _fit_together(outcomes, len(sources), len(age), len(worth)):
        raise ValueError("the columns of a batch do not fit together")
    hosts, counts, numbers, run = shared.hosts, tallies.counts, tallies.numbers, tallies.run
    ages, worths = 0, 0
    for k in range(len(outcomes)):
        i, lease, outcome = signed(outcomes.row[k]), outcomes.lease[k], outcomes.outcome[k]
        host = sources.host[i]
        cost = np.float64(sources.cost[i])
        current = lease != 0 and sources.lease[i] == lease
        link = host
        while lease != 0 and link != NO_HOST:
            if current and not late[k] and hosts.lease[link] < 0:
                hosts.lease[link] += 1
            if hosts.lease[link] == lease or hosts.lease[link] == 0:
                hosts.held[link] = 0.0
            link = hosts.within[link]
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
        if outcomes.spent[k] >= 0.0:
            balance = max(min(balance + cost - outcomes.spent[k], burst), -burst)
            has_items = outcome == FETCHED and outcomes.items[k] + outcomes.more[k] > 0.0
            learning.learn_cost(sources, i, outcomes.spent[k], has_items)
        if not current and sources.lease[i] != 0 and outcomes.until[k] > 0.0:
            sources.marks[i] |= FLOORED
        link = host
        while link != NO_HOST:
            hosts.fetched[link] = max(hosts.fetched[link], at)
            link = hosts.within[link]
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
            number, more = outcomes.items[k], outcomes.more[k]
            items = Items(
                age[ages : ages + outcomes.dated[k]],
                worth[worths : worths + number],
                more,
                outcomes.more_worth[k],
            )
            counts[ITEMS] += number + more
            counts[COLLECTED] += reporting.learn(sources, shared, tallies, i, at, items, terms)
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
    """Record a failure of a source."""
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
def ping(
    sources: Sources,
    shared: Shared,
    rows: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    at: NDArray[np.float64],
) -> None:
    """Record pings of sources."""
    for k in range(len(rows)):
        i = signed(rows[k])
        sources.kind[i] = kinds[k]
        if sources.fetched[i] == NEVER or at[k] < sources.fetched[i]:
            continue  # it announces nothing that is not known
        decay = learning.decay_of(sources, shared, i)
        last = max(sources.pinged[i], at[k])
        shot = np.float64(sources.shot[i]) * math.exp(-decay * (last - sources.pinged[i]))
        shot += math.exp(-decay * (last - at[k]))
        sources.shot[i] = min(shot, _LARGEST_SHOT)
        sources.pinged[i] = last
        sources.pending[i] += 1.0
