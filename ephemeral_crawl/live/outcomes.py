"""What is reported: outcomes of fetches and pings, checked, and the events that they become."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from crawl_env.errors import check_choice, check_whole, check_within, shown, unknown
from ephemeral_crawl.live import reporting
from ephemeral_crawl.live.arguments import items_of, name_of, seconds, time_of
from ephemeral_crawl.live.causes import CAUSES, KINDS, cause_of, number_of
from ephemeral_crawl.live.errors import UnknownLease, UnknownSource
from ephemeral_crawl.live.reasons import reason_of
from ephemeral_crawl.live.reporting import FAILED, FETCHED, RELEASED
from ephemeral_crawl.live.state import Event, State

OUTCOMES = ("fetched", "failed", "released")  # in the order of `reporting`
_STEP = 60.0  # seconds before its lease at which a fetch may seem to have been, by other clocks
MOST_ASKED = 30 * 86_400.0  # seconds for which a server's wish to be left alone is honoured
_SAME_PING = 60.0  # seconds
_RETRY = 300.0  # seconds after a failure in which a source is left alone
_ARGUMENTS = {
    kind: dict.fromkeys(("lease", "source", "outcome", *names))  # a set with an order
    for kind, names in (
        ("fetched", ("items", "status", "at", "again_after")),
        ("failed", ("retry_after", "status", "at", "reason", "kind")),
        ("released", ("again_after", "reason")),
    )
}
_COLUMNS = (
    *("outcome", "row", "lease", "at", "until", "host_until", "items", "dated"),
    *("more", "more_worth", "status", "cause"),
)
_PING_ARGUMENTS = ("source", "kind", "at")
_MAPPING = (dict, Mapping)  # the usual type first, since abstract classes take longer

Parsed = TypeVar("Parsed")


class Moment(NamedTuple):
    """The scheduler's time, which never falls, and what it adds to the clock's."""

    time: float
    offset: float


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
    cause: str = ""  # of a failure, one of `causes.CAUSES`


class Ping(NamedTuple):
    """A ping, checked as far as it can be without the state."""

    source: object
    kind: str
    at: float | None


def each(
    name: str, parse: Callable[[Mapping[str, Any]], Parsed], given: Iterable[Mapping[str, Any]]
) -> list[Parsed]:
    """Return what dictionaries say; an error names the number of the one that is refused."""
    parsed = []
    try:
        values = iter(given)
    except TypeError:
        raise ValueError(f"{name}s is {shown(given)}; give a list of dictionaries") from None
    for number, value in enumerate(values):
        try:
            if not isinstance(value, _MAPPING):
                raise ValueError(f"it is {shown(value)}; give a dictionary")
            parsed.append(parse(value))
        except ValueError as error:
            raise type(error)(f"{name} {number}: {error}") from None
    return parsed


def outcome_of(given: Mapping[str, Any]) -> Outcome:
    """Return an outcome from a dictionary, as `Scheduler.record` takes it."""
    kind = given.get("outcome", "fetched")
    allowed = _ARGUMENTS[check_choice("outcome", kind, OUTCOMES)]
    if not given.keys() <= allowed.keys():
        name = next(name for name in given if name not in allowed)
        raise unknown("argument", name, allowed)
    if ("lease" in given) == ("source" in given):
        raise ValueError("give either the `lease` or the `source`")
    fetch = given["lease"] if "lease" in given else given["source"]
    if "lease" in given:
        fetch = check_whole("lease", fetch)
    elif kind == "released":
        raise ValueError(f"source is {shown(fetch)}; give the id of the lease that is released")
    elif not isinstance(fetch, str):
        raise UnknownSource(_unknown(fetch))
    asked = given.get("retry_after" if kind == "failed" else "again_after")
    name = "retry_after" if kind == "failed" else "again_after"
    at, status, reason = given.get("at"), given.get("status"), given.get("reason")
    if status is not None:
        status = int(check_within("status", check_whole("status", status), 100, 999))
    failure = given.get("kind")
    if failure is not None:
        failure = check_choice("kind", failure, KINDS)
    cause = cause_of(failure, status) if kind == "failed" else ""
    if reason is None and kind == "failed":
        told = failure in (None, "http") and status is not None
        meaning = "" if cause == "unknown" else CAUSES[cause].meaning
        reason = f"HTTP {status}" if told else meaning
    times, worths = items_of(given.get("items", ()))
    return Outcome(
        fetch,
        OUTCOMES.index(kind),
        None if at is None else time_of("at", at),
        0.0 if asked is None else min(seconds(name, asked), MOST_ASKED),
        status,
        times,
        worths,
        "" if reason is None else reason_of(reason),
        cause,
    )


def ping_of(given: Mapping[str, Any]) -> Ping:
    """Return a ping from a dictionary, as `Scheduler.signal_many` takes it."""
    for name in given:
        if name not in _PING_ARGUMENTS:
            raise unknown("argument", name, _PING_ARGUMENTS)
    at = given.get("at")
    return Ping(
        given.get("source"),
        name_of("kind", given.get("kind", "ping")),
        None if at is None else time_of("at", at),
    )


def row_of(state: State, source: object) -> int:
    """Return the row of a source."""
    row = state.names.row(source) if isinstance(source, str) else -1
    if row < 0:
        raise UnknownSource(_unknown(source))
    return row


def _unknown(source: object) -> str:
    return f"there is no source {shown(source)}; `add` it first"


def outcome_event(
    state: State, outcomes: Sequence[Outcome], moment: Moment, number: int
) -> tuple[Event | None, list[bool]]:
    """Return what outcomes change, in columns as `reporting.Batch` has them, and which of them
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
    known = _known(state, [outcome.fetch for outcome in outcomes])
    for k, outcome in enumerate(outcomes):
        try:
            row, lease, begin, end = _found(state, outcome.fetch, known)
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
        if outcome.kind == FETCHED:
            until = at + outcome.wait if outcome.wait else 0.0
            if outcome.worths:
                age, worth, more, more_worth = _newest(then, outcome.times, outcome.worths)
                items, dated = len(worth), len(age)
                ages += age
                worths += worth
        elif outcome.kind == FAILED:
            draw = np.random.default_rng([state.settings.seed, number, k]).random()
            pause = _RETRY * (0.75 + 0.5 * draw)
            least = at + float(state.table["shortest"][row])
            until = max(now + max(pause, outcome.wait), least)
            host_until = now + outcome.wait if outcome.wait else 0.0
        else:
            until = now + outcome.wait if outcome.wait else 0.0
        if outcome.reason:
            reasons.append((len(rows), outcome.reason, outcome.cause))
        rows.append(
            (outcome.kind, row, lease, at, until, host_until, items, dated, more, more_worth,
             outcome.status, number_of(outcome.cause or "unknown"))
        )  # fmt: skip
    if not rows:
        return None, counts
    event: Event = dict(zip(_COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    if reasons:
        event["reasons"] = reasons
    return {"kind": "record", **event, "age": ages, "worth": worths}, counts


def ping_events(state: State, pings: Sequence[Ping], moment: Moment) -> list[list[Any]]:
    """Return row, kind and time of each ping, without those that come within a minute of another
    since the last fetch of their source: they say nothing more."""
    events: list[list[Any]] = []
    now, known = moment.time, _known(state, [ping.source for ping in pings])
    last: dict[int, float] = {}
    for k, ping in enumerate(pings):
        row = known.get(ping.source, -1) if isinstance(ping.source, str) else -1
        if row < 0:
            raise UnknownSource(f"ping {k}: {_unknown(ping.source)}")
        at = now if ping.at is None else min(ping.at + moment.offset, now)
        if row not in last:
            pending = state.table["pending"][row] > 0.0
            last[row] = float(state.table["pinged"][row]) if pending else -math.inf
        if abs(at - last[row]) >= _SAME_PING:
            events.append([row, ping.kind, at])
            last[row] = max(at, last[row])
    return events


def _known(state: State, given: Iterable[object]) -> dict[str, int]:
    """Return the rows of the sources among what is given; −1 of those that do not exist."""
    names = [name for name in given if isinstance(name, str)]
    return dict(zip(names, state.names.rows(names).tolist(), strict=True)) if names else {}


def _found(
    state: State, fetch: int | str, known: Mapping[str, int]
) -> tuple[int, int, float, float]:
    """Return row, number, beginning and end of a lease, or row, 0, −∞ and ∞ of a source; row −1 if
    it is reported."""
    if isinstance(fetch, str):
        if known[fetch] < 0:
            raise UnknownSource(_unknown(fetch))
        return known[fetch], 0, -math.inf, math.inf
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
    dated = [
        (then - t if t < then else 0.0, w)
        for t, w in zip(times, worths, strict=True)
        if t == t  # it is known
    ]
    dated.sort()
    age = [s for s, _ in dated]
    worth = [w for _, w in dated]
    if len(dated) < len(times):
        worth += [w for t, w in zip(times, worths, strict=True) if t != t]
    most = reporting.MOST_ITEMS
    return age[:most], worth[:most], max(len(worth) - most, 0), math.fsum(worth[most:])
