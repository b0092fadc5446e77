"""What is reported: outcomes of fetches and pings, checked, and the events that they become."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from crawl_env.errors import check_choice, check_whole, check_within, shown, unknown
from ephemeral_crawl.live.arguments import items_of, name_of, seconds, time_of
from ephemeral_crawl.live.errors import UnknownLease, UnknownSource
from ephemeral_crawl.live.state import Event, State

OUTCOMES = ("fetched", "failed", "released")
MOST_ASKED = 30 * 86_400.0  # seconds for which a server's wish to be left alone is honoured
_SINGLE = 1000  # items of a report whose dates are kept; further, older ones are only counted
_RETRY, _MOST_RETRY = 300.0, 86_400.0  # seconds after the first and after many failures
_ARGUMENTS = {
    "fetched": ("items", "status", "at", "again_after"),
    "failed": ("retry_after", "status", "at"),
    "released": ("again_after",),
}
_PING_ARGUMENTS = ("source", "kind", "at")

Parsed = TypeVar("Parsed")


class Moment(NamedTuple):
    """The scheduler's time, which never falls, and what it adds to the clock's."""

    time: float
    offset: float


class Outcome(NamedTuple):
    """What became of a fetch, checked as far as it can be without the state."""

    fetch: int | str  # number of a lease, or name of a source
    kind: str  # one of `OUTCOMES`
    at: float | None  # time of the fetch, by the clock
    wait: float  # seconds in which the source, or after a failure its host, is left alone
    status: int | None
    times: list[float]  # of publication, NaN if unknown
    worths: list[float]


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
            if not isinstance(value, Mapping):
                raise ValueError(f"it is {shown(value)}; give a dictionary")
            parsed.append(parse(value))
        except ValueError as error:
            raise type(error)(f"{name} {number}: {error}") from None
    return parsed


def outcome_of(given: Mapping[str, Any]) -> Outcome:
    """Return an outcome from a dictionary, as `Scheduler.record` takes it."""
    kind = given.get("outcome", "fetched")
    allowed = _ARGUMENTS[check_choice("outcome", kind, OUTCOMES)]
    for name in given:
        if name not in allowed and name not in ("lease", "source", "outcome"):
            raise unknown("argument", name, ("lease", "source", "outcome", *allowed))
    if ("lease" in given) == ("source" in given):
        raise ValueError("give either the `lease` or the `source`")
    fetch = given["lease"] if "lease" in given else given["source"]
    if "lease" in given:
        fetch = check_whole("lease", fetch)
    elif kind == "released":
        raise ValueError(f"source is {shown(fetch)}; give the id of the lease that is released")
    elif not isinstance(fetch, str):
        raise UnknownSource(f"there is no source {shown(fetch)}; `add` it first")
    asked = given.get("retry_after" if kind == "failed" else "again_after")
    name = "retry_after" if kind == "failed" else "again_after"
    at, status = given.get("at"), given.get("status")
    times, worths = items_of(given.get("items", ()))
    return Outcome(
        fetch,
        kind,
        None if at is None else time_of("at", at),
        0.0 if asked is None else min(seconds(name, asked), MOST_ASKED),
        None
        if status is None
        else int(check_within("status", check_whole("status", status), 100, 999)),
        times,
        worths,
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
    if not isinstance(source, str) or source not in state.numbers:
        raise UnknownSource(f"there is no source {shown(source)}; `add` it first")
    return state.numbers[source]


def outcome_events(
    state: State, outcomes: Sequence[Outcome], moment: Moment, number: int
) -> list[Event | None]:
    """Return what each outcome changes; None if its lease was reported before.

    Arguments:
        number: of the last event, which the jitter of retries depends on.

    Raises:
        UnknownLease, UnknownSource: an outcome is one of a lease or source that does not exist.
    """
    ended: set[int] = set()
    failures: dict[int, int] = {}  # of sources, after the outcomes so far
    events: list[Event | None] = []
    for k, outcome in enumerate(outcomes):
        try:
            found = _found(state, outcome.fetch)
        except ValueError as error:
            raise type(error)(f"outcome {k}: {error}") from None
        if found is None or found[1] in ended:
            events.append(None)
            continue
        row, lease = found
        if lease is not None:
            ended.add(lease)
        event: Event = {"row": row, "lease": lease}
        if outcome.kind == "fetched":
            failures[row] = 0
            event |= _fetched(outcome, moment)
        elif outcome.kind == "failed":
            before = failures.get(row, int(state.sources.failures[row]))
            failures[row] = before + 1
            draw = np.random.default_rng([state.settings.seed, number, k]).random()
            event |= _failed(outcome, moment, before, draw)
        else:
            until = moment.time + outcome.wait if outcome.wait else 0.0
            event |= {"kind": "release", "until": until}
        events.append(event)
    return events


def ping_events(state: State, pings: Sequence[Ping], moment: Moment) -> list[list[Any]]:
    """Return row, kind and time of each ping."""
    events: list[list[Any]] = []
    for k, ping in enumerate(pings):
        try:
            row = row_of(state, ping.source)
        except ValueError as error:
            raise type(error)(f"ping {k}: {error}") from None
        now = moment.time
        events.append(
            [row, ping.kind, now if ping.at is None else min(ping.at + moment.offset, now)]
        )
    return events


def _found(state: State, fetch: int | str) -> tuple[int, int | None] | None:
    """Return row and number of a lease, or row and None of a source; None if it is reported."""
    if isinstance(fetch, str):
        return row_of(state, fetch), None
    if fetch > state.last_lease:
        raise UnknownLease(
            f"there was no lease {fetch}; give the id of a lease, or a source's name"
        )
    if fetch not in state.leases:
        return None
    return state.leases[fetch][0], fetch


def _fetched(outcome: Outcome, moment: Moment) -> Event:
    clock = moment.time - moment.offset
    then = clock if outcome.at is None else min(outcome.at, clock)
    ages = [None if math.isnan(x) else max(then - x, 0.0) for x in outcome.times]
    kept, worths, more, more_worth = _newest(ages, outcome.worths)
    return {
        "kind": "report",
        "at": then + moment.offset,
        "until": then + moment.offset + outcome.wait if outcome.wait else 0.0,
        "ages": kept,
        "worths": worths,
        "more": more,
        "more_worth": more_worth,
        "status": outcome.status,
    }


def _failed(outcome: Outcome, moment: Moment, failures: int, draw: float) -> Event:
    now = moment.time
    pause = min(_RETRY * 2.0 ** min(failures, 30), _MOST_RETRY)
    return {
        "kind": "fail",
        "at": now if outcome.at is None else min(outcome.at + moment.offset, now),
        "until": now + max(pause * (0.75 + 0.5 * draw), outcome.wait),
        "host_until": now + outcome.wait if outcome.wait else 0.0,
        "status": outcome.status,
    }


def _newest(
    ages: list[float | None], worths: list[float]
) -> tuple[list[float | None], list[float], int, float]:
    """Return ages and worths of the newest items, and number and worth of the others."""
    if len(ages) <= _SINGLE:
        return ages, worths, 0, 0.0
    order = np.argsort([math.inf if age is None else age for age in ages], kind="stable").tolist()
    kept, rest = order[:_SINGLE], order[_SINGLE:]
    return (
        [ages[j] for j in kept],
        [worths[j] for j in kept],
        len(rest),
        math.fsum(worths[j] for j in rest),
    )
