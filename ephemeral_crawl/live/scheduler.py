"""`Scheduler`: which source to fetch next, when, and why."""

from __future__ import annotations

import logging
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import numpy as np

from crawl_env.errors import check_flag, check_whole, check_within, shown, unknown
from ephemeral_crawl.live import agenda, choice, explanation, price, snapshot
from ephemeral_crawl.live import overview as overviews
from ephemeral_crawl.live.arguments import (
    MOST_COST,
    Duration,
    Item,
    Time,
    name_of,
    seconds,
)
from ephemeral_crawl.live.columns import EXISTS, NEVER, NO_HOST, PAUSED
from ephemeral_crawl.live.counts import Counts
from ephemeral_crawl.live.errors import SourceExists
from ephemeral_crawl.live.explanation import Explanation
from ephemeral_crawl.live.journal import Journal, open_journal
from ephemeral_crawl.live.lessons import Lesson
from ephemeral_crawl.live.outcomes import (
    Moment,
    each,
    outcome_event,
    outcome_of,
    ping_events,
    ping_of,
    row_of,
)
from ephemeral_crawl.live.overview import Overview
from ephemeral_crawl.live.settings import Settings, SourceSettings
from ephemeral_crawl.live.state import Event, State

_STEP = 60.0  # seconds by which a clock may differ from the last event without being set
_MOST_LEASES = 10_000  # at once
_EVERY = 1000  # changes of a source between two snapshots, at least
_AT_ONCE = 10_000  # sources of which a snapshot takes some milliseconds
_LOG = logging.getLogger(__name__)
_REASONS = {
    agenda.NEW: "not fetched yet",
    agenda.CEILING: "its maximum interval has passed",
    agenda.ROTATION: "not fetched for a whole rotation",
    agenda.SIGNAL: "pinged: its index has reached the price",
    agenda.INDEX: "its index has reached the price",
}
_SOURCE_ARGUMENTS = ("host", "cost", "min_interval", "max_interval", "half_life")
_COUNTED = 16_384  # largest number of sources of which those that are due are counted


@dataclass(slots=True)
class Lease:
    """The right to fetch a source, until it expires."""

    id: int
    source: str
    value: float  # expected worth that the fetch collects
    index: float  # what it is worth per budget unit, compared with waiting
    price: float  # which the index has reached
    reason: str
    expires: float  # seconds since 1970


@dataclass(frozen=True)
class Status:
    """The scheduler in numbers."""

    sources: int
    paused: int
    new: int  # not fetched yet
    failing: int  # of which the last fetch failed
    leased: int
    due: int  # whose index has reached the price; an estimate if there are very many sources
    price: float  # worth per budget unit
    balance: float  # budget units that can be spent now
    budget: float  # budget units per hour
    counts: Counts  # since the scheduler was made


class Scheduler:
    """Decides which source to fetch next, and learns from the reports.

    A source is *due* when its index, what a fetch is worth compared with waiting, reaches the price
    of the budget (`ephemeral_crawl.live.price`); the price is such that the budget is spent. Rates,
    worths and the precision of pings are learnt (`ephemeral_crawl.live.learning`). All methods can
    be called from several threads, and several processes can use the same file.

    Durations are strings such as "5min" or "24h", seconds, or `timedelta`; times are seconds since
    1970, `datetime` with a time zone, or strings such as "2026-11-23T10:00:00Z".

    Arguments:
        store: "sqlite:///crawl.db" or a `pathlib.Path`, a file that is made if it does not exist;
            "postgresql://user@host/database", for several machines, whose tables are in the schema
            "ephemeral_crawl" or, with "?schema=name", in another; or ":memory:", which is lost at
            the end.
        budget: cost of all fetches per time, such as "20/h". It may be omitted if the store exists;
            so may the other settings, and those given replace those stored.
        burst: budget units that can be spent at once after a time without fetches; default: those
            of an hour, at least 1.
        half_life: time in which the worth of an item halves, unless a source has its own; default 3
            hours, about that of votes on a front page. "learn" estimates it from reports with
            `worth_at="fetch"`.
        worth_at: what the worth of an item in a report is: "publication", its worth when it was
            published, of which the part that its age leaves counts as collected; or "fetch", what
            it is worth when fetched, such as the votes to come.
        explore: fraction of the budget for visits in rotation to sources that are otherwise hardly
            worth a fetch, to notice when they wake; default .05.
        seed: seed of the jitter of retries; default 0.
        clock: function that returns the time, seconds since 1970; default `time.time`. A clock that
            is set back does not stop the scheduler; one that leaps is like an outage.
        full: whether a change in a file also survives a power failure, rather than only the end of
            the process. In PostgreSQL the server's settings decide.

    Raises:
        ValueError: an argument is out of range, or the file is not a scheduler's.
        FileNotFoundError: the folder of the file does not exist.
        ConnectionError: the server of the database cannot be used; also later, by every method.
        ImportError: the package psycopg is missing.

    >>> now = 1_700_000_000.0
    >>> scheduler = Scheduler(":memory:", budget="20/h", clock=lambda: now)
    >>> scheduler.add("https://example.org/feed", host="example.org", max_interval="24h")
    >>> (lease,) = scheduler.lease(limit=8, timeout="2min")
    >>> lease.source, lease.reason
    ('https://example.org/feed', 'not fetched yet')
    >>> scheduler.report(lease.id, items=[(now - 3600, 1.0), (now - 600, 1.0)], status=200)
    True
    >>> scheduler.lease()
    []
    """

    def __init__(
        self,
        store: object = "sqlite:///crawl.db",
        *,
        budget: str | None = None,
        burst: float | None = None,
        half_life: Duration | None = None,
        worth_at: str | None = None,
        explore: float | None = None,
        seed: int | None = None,
        clock: Callable[[], float] = time.time,
        full: bool = False,
    ) -> None:
        if not callable(clock):
            raise ValueError(f"clock is {shown(clock)}; give a function that returns seconds")
        self._clock, self._steady = clock, _steady if clock is time.time else None
        self._seen: tuple[float, float] | None = None  # the scheduler's time, and a steady clock's
        self._jump = (math.nan, 0.0)  # time of the last event, and the offset since then
        self._lock = threading.RLock()
        given = {
            "budget": budget,
            "burst": burst,
            "half_life": half_life,
            "worth_at": worth_at,
            "explore": explore,
            "seed": seed,
        }
        given = {name: value for name, value in given.items() if value is not None}
        self._journal: Journal = open_journal(
            store, full=check_flag("full", full), new=lambda name: _new_settings(given, name)
        )
        self._state: State | None = None
        self._number = self._snapshot = 0  # of the last event applied, and in the snapshot
        self._changes = 0  # of a source, since the snapshot
        self._writer: threading.Thread | None = None  # of a snapshot
        try:
            self._configure(given)
        except BaseException:
            self._journal.close()
            raise

    # ------------------------------------------------------------------------------- sources

    def add(
        self,
        source: str,
        *,
        host: str | None = None,
        cost: float = 1.0,
        min_interval: Duration = "1min",
        max_interval: Duration | None = None,
        half_life: Duration | None = None,
    ) -> None:
        """Add a source, which is due at once.

        Arguments:
            source: its name, such as a URL: at most 2048 characters, without control characters.
            host: name of its host, for `limit_host`, and because sources of a host are alike; any
                name, such as a registered domain.
            cost: budget units of a fetch.
            min_interval: least time between two fetches; default a minute. A lease that is not
                reported counts as fetched when it expires.
            max_interval: largest time between two fetches, if the budget allows.
            half_life: of its items' worth; default: that of the scheduler.

        Raises:
            ValueError: an argument is out of range.
            SourceExists: there is a source of this name.
        """
        self.add_many(
            [
                {
                    "source": source,
                    "host": host,
                    "cost": cost,
                    "min_interval": min_interval,
                    "max_interval": max_interval,
                    "half_life": half_life,
                }
            ]
        )

    def add_many(self, sources: Iterable[Mapping[str, Any]], *, exist_ok: bool = False) -> int:
        """Add sources, all or, if one is refused, none; return how many were new.

        Arguments:
            sources: a dictionary of the arguments of `add` for each.
            exist_ok: whether to leave out those that are there, instead of refusing them.
        """
        rows: dict[str, list[Any]] = {}
        checked: dict[Any, list[Any]] = {}  # many have the same settings
        for number, given in enumerate(sources):
            try:
                arguments = dict(given)
                name = name_of("source", arguments.pop("source", None))
                if name in rows and not exist_ok:
                    raise ValueError(f"the source {shown(name)} appears twice")
                host = arguments.pop("host", None)
                key: Any = tuple([(key, type(value), value) for key, value in arguments.items()])
                try:
                    settings = checked.get(key)
                except TypeError:  # a value such as a list, which is refused below
                    settings, key = None, None
                if settings is None:
                    settings = checked[key] = _settings_of(arguments)[1:]
                host = None if host is None else name_of("host", host)
                rows.setdefault(name, [name, host, *settings])
            except (TypeError, ValueError) as error:
                raise ValueError(f"source {number}: {error}") from None
        added = 0

        def decide(state: State, moment: Moment) -> Event | None:
            nonlocal added
            new = [row for name, row in rows.items() if name not in state.numbers]
            if len(new) < len(rows) and not exist_ok:
                name = next(name for name in rows if name in state.numbers)
                raise SourceExists(f"there is a source {shown(name)}; use `update` to change it")
            added = len(new)
            return {"kind": "add", "sources": new} if new else None

        self._change(decide)
        return added

    def remove(self, source: str) -> None:
        """Remove a source and what was learnt about it. Reports of its leases are ignored."""
        self._change(lambda state, moment: {"kind": "remove", "source": _named(state, source)})

    def rename(self, source: str, name: str) -> None:
        """Change the name of a source, such as after a permanent redirect.

        Raises:
            UnknownSource: there is no such source.
            SourceExists: there is one of the new name.
        """
        name = name_of("name", name)

        def decide(state: State, moment: Moment) -> Event:
            old = _named(state, source)
            if name in state.numbers and name != old:
                raise SourceExists(f"there is a source {shown(name)}; remove one of the two first")
            return {"kind": "rename", "source": old, "name": name}

        self._change(decide)

    def update(self, source: str, *, paused: bool | None = None, **settings: Any) -> None:
        """Change settings of a source: those of `add`, and `paused`; the others stay."""

        def decide(state: State, moment: Moment) -> Event:
            i = state.numbers[_named(state, source)]
            stop = bool(state.sources.marks[i] & PAUSED)
            if paused is not None:
                stop = check_flag("paused", paused)
            values = _settings_of(settings, _stored(state, i))
            return {"kind": "update", "source": source, "settings": values, "paused": stop}

        self._change(decide)

    def pause(self, source: str) -> None:
        """Do not lease a source until `resume`."""
        self.update(source, paused=True)

    def resume(self, source: str) -> None:
        """End a pause."""
        self.update(source, paused=False)

    def limit_host(self, host: str, interval: Duration) -> None:
        """Lease one source of a host at a time, and the next one `interval` after its fetch.

        With an interval of 0 there is no limit. A lease that is not reported counts as fetched when
        it expires.
        """
        name, least = name_of("host", host), seconds("interval", interval)
        self._change(lambda state, moment: {"kind": "host", "host": name, "interval": least})

    def teach(self, lessons: Iterable[Lesson]) -> int:
        """Use what is known of sources that were not fetched yet; return how many there are.

        Rates, worths, and the fleet's prior start from it, so that the budget is spent well from
        the beginning. Lessons about sources that were fetched before are ignored, since what their
        fetches found tells the same.

        Raises:
            ValueError: a lesson's numbers are out of range.
            UnknownSource: there is no such source.

        >>> scheduler = Scheduler(":memory:", budget="20/h")
        >>> scheduler.add("a")
        >>> scheduler.teach([Lesson.of_rate("a", 3.0, worth=2.0)])  # items per hour
        1
        >>> round(scheduler.explain("a").rate, 1)
        3.0
        """
        given, taught = list(lessons), 0

        def decide(state: State, moment: Moment) -> Event | None:
            nonlocal taught
            rows = {
                lesson.source: lesson.as_row(moment.time - moment.offset)
                for lesson in given
                if state.sources.fetched[state.numbers[_named(state, lesson.source)]] == NEVER
            }
            taught = len(rows)
            return {"kind": "teach", "lessons": list(rows.values())} if rows else None

        self._change(decide)
        return taught

    def settings(self, source: str) -> dict[str, Any]:
        """Return the settings of a source, as arguments of `add`, in seconds, and `paused`."""
        with self._reading() as (state, _):
            i = state.numbers[_named(state, source)]
            stored = _stored(state, i)
            return {
                "host": stored.host,
                "cost": stored.cost,
                "min_interval": stored.shortest,
                "max_interval": stored.longest,
                "half_life": stored.half_life,
                "paused": bool(state.sources.marks[i] & PAUSED),
            }

    def __len__(self) -> int:
        with self._reading() as (state, _):
            return len(state)

    def __contains__(self, source: object) -> bool:
        with self._reading() as (state, _):
            return source in state.numbers

    def sources(self) -> list[str]:
        """Return the names of all sources, in the order in which they are stored."""
        with self._reading() as (state, _):
            return [name for name in state.names if name is not None]

    def find(self, text: str = "", *, start: int = 0, limit: int = 100) -> tuple[list[str], int]:
        """Return names of sources that contain a text, page by page.

        Arguments:
            text: what to look for, in upper or lower case as it stands; default: all sources.
            start: where to begin: 0, or what the page before returned.
            limit: largest number of names.

        Returns:
            The names, and where the next page begins; 0 after the last.

        >>> scheduler = Scheduler(":memory:", budget="20/h")
        >>> scheduler.add_many({"source": f"feed {i}"} for i in range(12))
        12
        >>> scheduler.find("1", limit=2)
        (['feed 1', 'feed 10'], 11)
        >>> scheduler.find("1", start=11, limit=2)
        (['feed 11'], 0)
        """
        start, limit = check_whole("start", start, 0), check_whole("limit", limit)
        if not isinstance(text, str):
            raise ValueError(f"text is {shown(text)}; give a string")
        found: list[str] = []
        with self._reading() as (state, _):
            for i in range(min(start, state.rows), state.rows):
                name = state.names[i]
                if name is not None and text in name:
                    found.append(name)
                    if len(found) == limit:
                        return found, i + 1 if i + 1 < state.rows else 0
        return found, 0

    # ------------------------------------------------------------------------------- fetching

    def lease(self, limit: int = 1, timeout: Duration = "5min") -> list[Lease]:
        """Return the sources that are due, best first; nobody else is given them until they expire.

        Arguments:
            limit: largest number of sources.
            timeout: time within which each must be reported, or it is given to others.

        Raises:
            ValueError: an argument is out of range.
        """
        limit = min(check_whole("limit", limit), _MOST_LEASES)
        time_left = seconds("timeout", timeout, 1e-3)
        leases: list[Lease] = []

        def decide(state: State, moment: Moment) -> Event | None:
            leases.clear()
            now = moment.time
            found = choice.choose(state, limit, now)
            if not len(found.row):
                return None
            rows = found.row.tolist()
            first, end, asked = state.last_lease + 1, now + time_left, state.accepted_at(now)
            values = price.values(state.table, state.shared, found.row, now).tolist()
            expires, names = end - moment.offset, state.names
            for k, (row, value, index, reason) in enumerate(
                zip(rows, values, found.gain.tolist(), found.reason.tolist(), strict=True)
            ):
                name = names[row] or ""
                leases.append(
                    Lease(first + k, name, value, index, asked, _REASONS[reason], expires)
                )
            return {"kind": "lease", "first": first, "rows": rows, "end": end}

        self._change(decide)
        return leases

    def record(self, outcomes: Iterable[Mapping[str, Any]]) -> list[bool]:
        """Record what became of leases, or of sources that were fetched without one.

        All are recorded in one transaction, in their order; if one is refused, none is. Many at
        once are faster than one by one.

        Arguments:
            outcomes: a dictionary for each:

                - `lease`, the id of a lease, even if it has expired; or `source`, a name, of a
                  source that was fetched without a lease;
                - `outcome`: "fetched" (the default), "failed" or "released";
                - the arguments of `report`, `failed` or `release`, such as `items`.

        Returns:
            For each, whether it counts: False if the lease was reported before, or its source was
            removed.

        Raises:
            ValueError: an argument is out of range. Nothing is recorded.
            UnknownLease, UnknownSource: there is no such lease or source.

        >>> now = 1_700_000_000.0
        >>> scheduler = Scheduler(":memory:", budget="20/h", clock=lambda: now)
        >>> scheduler.add_many({"source": name} for name in ("a", "b"))
        2
        >>> leases = scheduler.lease(2)
        >>> scheduler.record([
        ...     {"lease": leases[0].id, "items": [(now - 600, 1.0)], "status": 200},
        ...     {"lease": leases[1].id, "outcome": "failed", "retry_after": "1h"},
        ...     {"lease": leases[1].id, "outcome": "released"},
        ... ])
        [True, True, False]
        """
        parsed = each("outcome", outcome_of, outcomes)
        counts: list[bool] = []

        def decide(state: State, moment: Moment) -> Event | None:
            counts.clear()
            event, counted = outcome_event(state, parsed, moment, self._number)
            counts.extend(counted)
            return event

        self._change(decide)
        return counts

    def report(
        self,
        fetch: int | str,
        items: Iterable[Item] = (),
        *,
        status: int | None = None,
        at: Time | None = None,
        again_after: Duration = 0.0,
    ) -> bool:
        """Record a successful fetch, of a lease or of a source that was fetched without one.

        Arguments:
            fetch: `id` of the lease, even if it has expired, or the name of a source.
            items: a pair (published, worth) for each item that is new to you; `published` is None
                if it is unknown. Dates before the last fetch count as of then, dates in the future
                as now. In the first report of a source give all its items: their dates tell its
                rate.
            status: HTTP status, which is stored; 304 and an empty list mean the same.
            at: time of the fetch; default now.
            again_after: time after the fetch during which the source must not be fetched again,
                such as that of `Cache-Control` or `ttl`.

        Returns:
            Whether the report counts: False if the lease was reported before, or its source was
            removed.

        Raises:
            ValueError: an argument is out of range. Nothing is recorded.
            UnknownLease, UnknownSource: there is no such lease or source.
        """
        return self._record_one(
            {
                **_fetch(fetch),
                "items": items,
                "status": status,
                "at": at,
                "again_after": again_after,
            }
        )

    def failed(
        self,
        fetch: int | str,
        *,
        retry_after: Duration | None = None,
        status: int | None = None,
        at: Time | None = None,
        reason: str | None = None,
    ) -> bool:
        """Record a fetch that failed, of a lease or of a source.

        The source is tried again after 5 minutes, and after about twice as long with each further
        failure, at most a day. Nothing is learnt about its rate.

        Arguments:
            fetch: as for `report`.
            retry_after: what the server asked for; then its whole host is left alone for that time,
                if the source has one.
            status: HTTP status, which is stored.
            at: time of the fetch; default now.
            reason: what went wrong, which `explain` says until the next fetch; default: the status,
                such as "HTTP 500". At most 200 characters of it are kept, on one line, without the
                credentials of URLs.

        Returns:
            As for `report`.
        """
        given = {"retry_after": retry_after, "status": status, "at": at, "reason": reason}
        return self._record_one({**_fetch(fetch), "outcome": "failed", **given})

    def release(
        self, lease: int, *, again_after: Duration = 0.0, reason: str | None = None
    ) -> bool:
        """Give a lease back without a fetch, which costs nothing; return whether it was open.

        Arguments:
            again_after: time after which the source may be leased again.
            reason: why it was not fetched, as for `failed`.
        """
        given = {"outcome": "released", "again_after": again_after, "reason": reason}
        return self._record_one({**_fetch(lease), **given})

    def _record_one(self, outcome: Mapping[str, Any]) -> bool:
        try:
            return self.record([outcome])[0]
        except ValueError as error:
            raise type(error)(str(error).removeprefix("outcome 0: ")) from error.__cause__

    def signal(self, source: str, kind: str = "ping", *, at: Time | None = None) -> None:
        """Record a ping: a notice that the source may have something new.

        How often a ping is true is learnt from the fetches after it; until then, from the pings of
        the same kind at other sources.

        Arguments:
            source: its name.
            kind: kind of signal, such as "websub" or "sitemap". If a source has pings of several
                kinds, they are counted together.
            at: time of the ping; default now.

        Raises:
            ValueError: an argument is out of range.
            UnknownSource: there is no such source.
        """
        try:
            self.signal_many([{"source": source, "kind": kind, "at": at}])
        except ValueError as error:
            raise type(error)(str(error).removeprefix("ping 0: ")) from error.__cause__

    def signal_many(self, pings: Iterable[Mapping[str, Any]]) -> None:
        """Record pings, all or, if one is refused, none.

        Arguments:
            pings: a dictionary of the arguments of `signal` for each.
        """
        parsed = each("ping", ping_of, pings)

        def decide(state: State, moment: Moment) -> Event | None:
            events = ping_events(state, parsed, moment)
            return {"kind": "signal", "pings": events} if events else None

        self._change(decide)

    # ------------------------------------------------------------------------------- asking

    def next_due(self, source: str | None = None) -> float | None:
        """Return when a source is due at the present price, or when `lease` next gives something.

        This is for callers with a queue of their own, and to wait. It holds until the next report,
        ping or change.

        Arguments:
            source: its name; default: when `lease` next gives something, to a second.

        Returns:
            Seconds since 1970; None if never. It may be in the past.
        """
        with self._reading() as (state, moment):
            if source is None:
                due = choice.next_time(state, moment.time)
            else:
                i = state.numbers[_named(state, source)]
                due, _ = explanation.next_due(state, i, moment.time)
            return due - moment.offset if abs(due) < math.inf else None

    def explain(self, source: str) -> Explanation:
        """Return what is known about a source, when it is due, why, and what would change it."""
        with self._reading() as (state, moment):
            i = state.numbers[_named(state, source)]
            return explanation.explain(state, i, moment.time, moment.offset)

    def status(self) -> Status:
        """Return the scheduler in numbers."""
        with self._reading() as (state, moment):
            sources, now = state.sources, moment.time
            rows = np.flatnonzero(sources.marks[: state.rows] & EXISTS).astype(np.int32)
            running = (sources.marks[rows] & PAUSED) == 0
            free = running & (sources.blocked[rows] <= now)
            step = int(free.sum()) // _COUNTED + 1
            index = price.indices(sources, state.shared, rows[free][::step], now)
            value = state.price_at(now)
            return Status(
                sources=len(rows),
                paused=int((~running).sum()),
                new=int((sources.fetched[rows] == NEVER).sum()),
                failing=int((sources.failures[rows] > 0).sum()),
                leased=sum(state.leased_until(i) > now for i, *_ in state.leases.values()),
                due=step * int((index >= value).sum()),
                price=value,
                balance=state.balance_at(now),
                budget=3600.0 * state.settings.budget,
                counts=replace(state.counts),
            )

    def overview(self, limit: int = 20) -> Overview:
        """Return the fleet at a glance: what is due and why, what fails or waits, and what the
        budget buys, a half of it, twice as much and so on.

        It takes about a second for 10⁶ sources, in which nothing else can be asked.

        Arguments:
            limit: largest length of each of its lists.
        """
        limit = check_whole("limit", limit)
        with self._reading() as (state, moment):
            return overviews.overview(state, limit, moment.time, moment.offset)

    # ------------------------------------------------------------------------------- storage

    def copy(self, store: object) -> None:
        """Write everything to another store: as a backup, or to move to it.

        The copy is a scheduler in its present state. Others can use this one meanwhile.

        Arguments:
            store: as for the constructor, without a scheduler in it.

        Raises:
            ValueError: there is a scheduler in the store.
        """
        target = open_journal(store, full=True, new=lambda name: None)
        try:
            with self._reading() as (state, _):
                number, parts = self._number, snapshot.parts(state)
            if target.snapshot() is not None or target.since(0) != []:
                raise ValueError("there is a scheduler in the store; give another")
            target.write_snapshot(number, parts)
        finally:
            target.close()

    def close(self) -> None:
        """Write a snapshot and close the file. A scheduler need not be closed."""
        with self._lock:
            self._await_snapshot()
            if self._state is not None and self._number > self._snapshot:
                self._write_snapshot()
                self._await_snapshot()
            self._journal.close()

    def _await_snapshot(self) -> None:
        if self._writer is not None:
            self._writer.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _configure(self, given: dict[str, Any]) -> None:
        """Store settings that differ from those stored."""

        def decide(state: State, moment: Moment) -> Event | None:
            if self._number == 0:
                settings = _new_settings(given)
            else:
                settings = state.settings.changed(**given)
                if settings == state.settings:
                    return None
            return {"kind": "configure", "settings": settings.as_dict()}

        self._change(decide)

    def _change(self, decide: Callable[[State, Moment], Event | None]) -> bool:
        """Append the event that is decided, given the present state, and apply it.

        It is committed before it is applied: an error before leaves everything as it was, and if
        one occurs while it is applied, the state is read again.
        """
        with self._lock:
            with self._journal.exclusive():
                state = self._current()
                moment = self._now(state)
                event = decide(state, moment)
                if event is None:
                    return False
                event |= {"time": moment.time, "offset": moment.offset}
                number = self._number + 1
                self._journal.append(number, event)
            self._apply(state, number, event)
            if self._changes >= max(_EVERY, state.rows):
                self._write_snapshot()
            return True

    def _apply(self, state: State, number: int, event: Event) -> None:
        try:
            state.apply(event)
        except BaseException:
            self._state = None
            raise
        self._number = number
        self._changes += state.size_of(event)

    def _current(self) -> State:
        """Return the state with all events in the journal applied."""
        if self._state is not None:
            missed = self._journal.since(self._number)
            if missed is not None:
                return self._caught_up(self._state, missed)
        self._state, self._number = State(), 0
        stored = self._journal.snapshot()
        if stored is not None:
            self._number, data = stored
            self._snapshot = self._number
            self._state = snapshot.from_bytes(data)
        missed = self._journal.since(self._number)
        if missed is None:
            self._state = None
            raise ValueError("the journal is damaged: events after the snapshot are missing")
        return self._caught_up(self._state, missed)

    def _caught_up(self, state: State, missed: list[tuple[int, Event]]) -> State:
        for number, event in missed:
            try:
                self._apply(state, number, event)
            except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
                raise ValueError(f"the journal is damaged: event {number}: {error}") from error
        return state

    def _write_snapshot(self) -> None:
        """Store the state: at once if it is small, else by a thread, so that nobody waits."""
        if self._writer is not None and self._writer.is_alive():
            return
        state = self._state
        assert state is not None
        arguments = self._number, snapshot.parts(state)
        self._snapshot, self._changes = self._number, 0
        if state.rows <= _AT_ONCE:
            self._store(*arguments)
        else:
            self._writer = threading.Thread(target=self._store, args=arguments, name="snapshot")
            self._writer.start()

    def _store(self, number: int, parts: Iterable[bytes]) -> None:
        try:
            self._journal.write_snapshot(number, parts)
        except (
            OSError,
            ValueError,
            sqlite3.Error,
        ) as error:  # nothing is lost: what was called is recorded
            _LOG.warning("no snapshot was written, the journal has all: %s", error)

    def _now(self, state: State) -> Moment:
        # Between these, the process may be stopped for a while: time must not seem longer by it.
        before = self._steady() if self._steady is not None else 0.0
        clock = check_within("the clock's time", self._clock(), -1e11, 1e12, unit="seconds")
        # A jump that no event has recorded yet is remembered here.
        offset = self._jump[1] if self._jump[0] == state.time else state.offset
        now = clock + offset
        if self._steady is not None:
            if self._seen is not None:
                expected = self._seen[0] + max(before - self._seen[1], 0.0)
                if now - expected > _STEP:  # the clock was set, rather than time passed
                    now = max(expected, state.time)
                    offset = now - clock
            self._seen = max(now, state.time), self._steady()
        if now < state.time - _STEP:
            now, offset = state.time, state.time - clock
        self._jump = state.time, offset
        return Moment(max(now, state.time), offset)

    def _reading(self) -> _Reading:
        return _Reading(self)


_NEW = SourceSettings()


class _Reading:
    """The present state and time, while no other thread changes it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __enter__(self) -> tuple[State, Moment]:
        scheduler = self._scheduler
        scheduler._lock.acquire()
        try:
            state = scheduler._current()
            return state, scheduler._now(state)
        except BaseException:
            scheduler._lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        self._scheduler._lock.release()


def _steady() -> float:
    """Return a clock that cannot be set, and counts the time in which the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _new_settings(given: dict[str, Any], store: str = ":memory:") -> Settings:
    """Return the settings of a new scheduler."""
    if "budget" not in given:
        raise ValueError(f"{store} is new: give its budget, such as '20/h'")
    return Settings.of(**given)


def _named(state: State, source: object) -> str:
    row_of(state, source)
    return str(source)


def _fetch(fetch: object) -> dict[str, Any]:
    return {"source" if isinstance(fetch, str) else "lease": fetch}


def _settings_of(arguments: dict[str, Any], stored: SourceSettings = _NEW) -> list[Any]:
    """Return the settings of a source from arguments of `add`, with those stored as defaults."""
    for name in arguments:
        if name not in _SOURCE_ARGUMENTS:
            raise unknown("argument", name, _SOURCE_ARGUMENTS)
    host, half_life = stored.host, stored.half_life
    shortest, longest, cost = stored.shortest, stored.longest, stored.cost
    if "host" in arguments:
        host = arguments["host"]
        host = None if host is None else name_of("host", host)
    if "cost" in arguments:
        cost = check_within(
            "cost", arguments["cost"], 0.0, MOST_COST, open_low=True, unit="budget units"
        )
    if "min_interval" in arguments:
        shortest = seconds("min_interval", arguments["min_interval"])
    if "max_interval" in arguments:
        value = arguments["max_interval"]
        longest = None if value is None else seconds("max_interval", value, 1.0)
    if "half_life" in arguments:
        value = arguments["half_life"]
        half_life = None if value is None else seconds("half_life", value, 1.0)
    settings = SourceSettings(host, cost, shortest, longest, half_life)
    return [settings.host, cost, shortest, longest, half_life]


def _stored(state: State, i: int) -> SourceSettings:
    sources = state.sources
    host, longest = int(sources.host[i]), float(sources.longest[i])
    return SourceSettings(
        host=None if host == NO_HOST else state.host_names[host],
        cost=float(sources.cost[i]),
        shortest=float(sources.shortest[i]),
        longest=longest if longest < math.inf else None,
        half_life=float(sources.half_life[i]) or None,
    )
