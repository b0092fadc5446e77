"""`Scheduler`: which source to fetch next, when, and why."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from types import TracebackType
from typing import Any, Self

import numpy as np

from crawl_env.errors import check_flag, check_whole, check_within, shown
from ephemeral_crawl.live import choice, explanation, lessons, looks
from ephemeral_crawl.live import overview as overviews
from ephemeral_crawl.live import status as statuses
from ephemeral_crawl.live.agenda import Lease, lease_event
from ephemeral_crawl.live.arguments import Duration, Item, Time, name_of, seconds, whole
from ephemeral_crawl.live.columns import NEVER, PAUSED
from ephemeral_crawl.live.errors import NewStore, SourceExists
from ephemeral_crawl.live.explanation import Explanation
from ephemeral_crawl.live.journal import open_journal
from ephemeral_crawl.live.ledger import Clock, Ledger, without_forks
from ephemeral_crawl.live.lessons import Lesson
from ephemeral_crawl.live.outcomes import (
    outcome_event,
    outcome_of,
    parse_all,
    ping_events,
    ping_of,
    row_of,
)
from ephemeral_crawl.live.overview import Overview
from ephemeral_crawl.live.reasons import Kind
from ephemeral_crawl.live.settings import Settings, rows_of
from ephemeral_crawl.live.state import Event, Moment, State
from ephemeral_crawl.live.status import Outline, Status
from ephemeral_crawl.live.tags import TagStatus, bounds_of

_MOST_LEASES = 10_000  # at once
_LOG = logging.getLogger(__name__)


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
        budget: cost of all fetches per time, such as "20/h", or a table of hours, from each of
            which on there is another, such as "08:00 40/h, 22:00 10/h". It may be omitted if the
            store exists; so may the other settings, and those given replace those stored.
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
        zone: time zone of the table of hours, such as "Europe/Paris"; default "UTC".
        clock: function that returns the time, seconds since 1970; default `time.time`. A clock that
            is set back does not stop the scheduler; one that leaps is like an outage.
        full: whether a change in a file also survives a power failure, rather than only the end of
            the process. In PostgreSQL the server's settings decide.
        patience: time for which every method waits while another process changes the store; after
            that it raises `TimeoutError`, and changes nothing.

    Raises:
        ValueError: an argument is out of range, or the file is not a scheduler's.
        FileNotFoundError: the folder of the file does not exist.
        TimeoutError: another process changes the store for longer than `patience`; also later, by
            every method that changes something.
        OSError: the file cannot be used, or was deleted, moved or replaced; also later, by every
            method.
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
        zone: str | None = None,
        clock: Callable[[], float] = time.time,
        full: bool = False,
        patience: Duration = 30.0,
    ) -> None:
        time_of_clock = Clock(clock)
        settings = _without_none(
            budget=budget,
            burst=burst,
            half_life=half_life,
            worth_at=worth_at,
            explore=explore,
            seed=seed,
            zone=zone,
        )
        with without_forks():
            journal = open_journal(
                store,
                full=check_flag("full", full),
                patience=seconds("patience", patience),
                new=lambda name: _prepare(settings, name),
            )
        self._ledger = Ledger(journal, time_of_clock)
        try:
            self._configure(settings)
        except BaseException:
            self._ledger.journal.close()
            raise

    def configure(
        self,
        *,
        budget: str | None = None,
        burst: float | None = None,
        half_life: Duration | None = None,
        worth_at: str | None = None,
        explore: float | None = None,
        zone: str | None = None,
    ) -> None:
        """Change settings of the scheduler: those that are given, as for the constructor.

        They hold for all processes that use the store, from the next lease on, and are stored with
        it. The price follows at once. A new budget brings its default burst, unless that is given
        too; what was saved of the old budget is kept as far as the burst allows.

        Raises:
            ValueError: no setting is given, or one is out of range. Nothing is changed.

        >>> scheduler = Scheduler(":memory:", budget="20/h")
        >>> scheduler.configure(budget="40/h")
        >>> scheduler.status().budget
        40.0
        """
        settings = _without_none(
            budget=budget,
            burst=burst,
            half_life=half_life,
            worth_at=worth_at,
            explore=explore,
            zone=zone,
        )
        if not settings:
            raise ValueError("no setting is given; give at least one, such as budget='20/h'")
        self._configure(settings)

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
        tag: str | None = None,
        weight: float = 1.0,
    ) -> None:
        """Add a source, which is due at once.

        Arguments:
            source: its name, such as a URL: at most 2048 characters, without control characters.
            host: name of its host, for `limit_host`, and because sources of a host are alike; any
                name, such as that of a server or a registered domain.
            cost: budget units of a fetch.
            min_interval: least time between two fetches; default a minute. A lease that is not
                reported counts as fetched when it expires.
            max_interval: largest time between two fetches, if the budget allows.
            half_life: of its items' worth; default: that of the scheduler.
            tag: name of what it belongs to, such as a section or a customer, for `limit_tag`.
            weight: by which the worth of its items is multiplied, in index, price and forecasts;
                not in what is reported and counted.

        Raises:
            ValueError: an argument is out of range.
            SourceExists: there is a source of this name.
        """
        settings = {
            "host": host,
            "cost": cost,
            "min_interval": min_interval,
            "max_interval": max_interval,
            "half_life": half_life,
            "tag": tag,
            "weight": weight,
        }
        try:
            self.add_many([{"source": source, **settings}])
        except ValueError as error:
            raise type(error)(str(error).removeprefix("source 0: ")) from error.__cause__

    def add_many(self, sources: Iterable[Mapping[str, Any]], *, exist_ok: bool = False) -> int:
        """Add sources, all or, if one is refused, none; return how many were new.

        Arguments:
            sources: a dictionary of the arguments of `add` for each.
            exist_ok: whether to leave out those that are there, instead of refusing them.
        """
        rows = rows_of(sources, exist_ok)
        added = 0

        def decide(state: State, moment: Moment) -> Event | None:
            nonlocal added
            new = [row for name, row in rows.items() if name not in state.names]
            if len(new) < len(rows) and not exist_ok:
                name = next(name for name in rows if name in state.names)
                raise SourceExists(f"there is a source {shown(name)}; use `update` to change it")
            added = len(new)
            return {"kind": "add", "sources": new} if new else None

        self._ledger.change(decide)
        return added

    def remove(self, source: str) -> None:
        """Remove a source and what was learnt about it. Reports of its leases are ignored."""
        self._ledger.change(
            lambda state, moment: {"kind": "remove", "source": _name_in(state, source)}
        )

    def rename(self, source: str, name: str) -> None:
        """Change the name of a source, such as after a permanent redirect; `explain` says what it
        was.

        Raises:
            UnknownSource: there is no such source.
            SourceExists: there is one of the new name.
        """
        name = name_of("name", name)

        def decide(state: State, moment: Moment) -> Event:
            old = _name_in(state, source)
            if name in state.names and name != old:
                raise SourceExists(f"there is a source {shown(name)}; remove one of the two first")
            return {"kind": "rename", "source": old, "name": name}

        self._ledger.change(decide)

    def update(self, source: str, *, paused: bool | None = None, **settings: Any) -> None:
        """Change settings of a source: those of `add`, and `paused`; the others stay."""

        arguments = {"source": source, "paused": paused, **settings}
        self._ledger.change(
            lambda state, moment: {"kind": "update", **_update_event(state, arguments)}
        )

    def update_many(self, sources: Iterable[Mapping[str, Any]]) -> int:
        """Change settings of sources, all or, if one is refused, none; return how many there are.

        Arguments:
            sources: a dictionary of the arguments of `update` for each.
        """
        updates = list(sources)

        def decide(state: State, moment: Moment) -> Event | None:
            rows = parse_all("source", lambda settings: _update_event(state, settings), updates)
            names = set[str]()
            for number, row in enumerate(rows):
                if row["source"] in names:
                    raise ValueError(f"source {number}: {shown(row['source'])} appears twice")
                names.add(row["source"])
            return {"kind": "update_many", "sources": rows} if rows else None

        self._ledger.change(decide)
        return len(updates)

    def pause(
        self, source: str | None = None, *, host: str | None = None, tag: str | None = None
    ) -> None:
        """Do not lease a source, or any source of a host or a domain, or of a tag, until `resume`.

        A source that is paused with its host or tag does not count in the price, as if it were
        paused by itself, and its own pause stays as it is.
        """
        self._pause(True, source, host, tag)

    def resume(
        self, source: str | None = None, *, host: str | None = None, tag: str | None = None
    ) -> None:
        """End a pause of a source, a host or domain, or a tag; of a host, or all hosts of a domain,
        also the time for which they asked to be left alone after a failure."""
        self._pause(False, source, host, tag)

    def limit_tag(
        self,
        tag: str,
        *,
        least: str | None = None,
        most: str | None = None,
        least_part: float = 1.0,
        most_part: float = 1.0,
    ) -> None:
        """Give the sources of a tag a minimum and a maximum of their own, in place of those before.

        Within the budget the price of the tag is such that it spends at least the minimum and at
        most the maximum; what it cannot spend the others do. A minimum lowers the price to a
        hundredth at most: what is worth less than that is no demand.

        Arguments:
            least: a rate such as "5/h", or a fraction of the budget such as "20%"; default: none.
                If all minima exceed the budget, they are reduced in proportion.
            most: likewise.
            least_part, most_part: part of a rate that this scheduler has, where several divide it
                among them, such as shards; a fraction of the budget is of its own.

        Raises:
            ValueError: an argument is out of range, or the minimum is above the maximum.

        >>> scheduler = Scheduler(":memory:", budget="20/h")
        >>> scheduler.add("a", tag="news")
        >>> scheduler.limit_tag("news", least="10%", most="5/h")
        >>> [(status.tag, status.least, status.most) for status in scheduler.tags()]
        [('', None, None), ('news', 2.0, 5.0)]
        """
        low, high = bounds_of(least, most)
        parts = [
            check_within(name, part, 0.0, 1.0, open_low=True)
            for name, part in (("least_part", least_part), ("most_part", most_part))
        ]
        head = {"kind": "tag", "tag": name_of("tag", tag)}
        event: Event = {**head, "least": low, "most": high, "parts": parts}
        self._ledger.change(lambda state, moment: event)

    def tags(self) -> list[TagStatus]:
        """Return the tags and what they spend, first the sources that have none; nothing if there
        are no tags."""
        with self._ledger.reading() as (state, moment):
            return statuses.tags(state, moment.time)

    def limit_host(self, host: str, interval: Duration) -> None:
        """Lease one source of a host at a time, and the next one `interval` after its fetch.

        With an interval of 0 there is no limit. A lease that is not reported counts as fetched when
        it expires. `"*.example.org"` is the host example.org and all hosts below it, together: the
        limit holds besides those of single hosts and of larger or smaller domains.

        >>> scheduler = Scheduler(":memory:", budget="600/h")
        >>> for name in ("a", "b", "c"):
        ...     scheduler.add(f"https://{name}.example.org/", host=f"{name}.example.org")
        >>> scheduler.limit_host("*.example.org", "1s")
        >>> len(scheduler.lease(3))
        1
        """
        self.limit_hosts({name_of("host", host): interval})

    def limit_hosts(self, intervals: Mapping[str, Duration]) -> None:
        """Do as `limit_host` for many hosts at once: their names and intervals."""
        if not isinstance(intervals, Mapping):
            raise ValueError(
                f"intervals is {shown(intervals)}; give a dictionary {{host: interval}}"
            )
        hosts = {
            name_of("host", host): seconds("interval", interval)
            for host, interval in intervals.items()
        }
        if hosts:
            self._ledger.change(lambda state, moment: {"kind": "hosts", "hosts": hosts})

    def host_limit(self, host: str) -> float:
        """Return the least time between two fetches of a host, seconds, as `limit_host` sets it; 0
        if there is no limit.

        >>> scheduler = Scheduler(":memory:", budget="600/h")
        >>> scheduler.limit_host("example.org", "10s")
        >>> scheduler.host_limit("example.org"), scheduler.host_limit("example.com")
        (10.0, 0.0)
        """
        with self._ledger.reading() as (state, _):
            row = state.host_names.row(name_of("host", host))
            return float(state.shared.hosts["interval"][row]) if row >= 0 else 0.0

    def unused_limits(self) -> dict[str, float]:
        """Return the limits of hosts and domains without sources, seconds. They are kept until they
        are set to 0.

        >>> scheduler = Scheduler(":memory:", budget="600/h")
        >>> scheduler.limit_host("example.org", "10s")
        >>> scheduler.unused_limits()
        {'example.org': 10.0}
        """
        with self._ledger.reading() as (state, _):
            return state.unused_limits()

    def paused_hosts(self) -> list[str]:
        """Return the hosts and domains that are paused, also those without sources."""
        with self._ledger.reading() as (state, _):
            return [state.host_names[k] or "" for k in state.paused_hosts]

    def teach(self, lessons: Iterable[Lesson]) -> int:
        """Learn from lessons about sources that were not fetched yet; return how many there are.

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
        all_lessons, number = list(lessons), 0

        def decide(state: State, moment: Moment) -> Event | None:
            nonlocal number
            rows = {
                lesson.source: lesson.as_row(moment.time - moment.offset)
                for lesson in all_lessons
                if state.table["fetched"][row_of(state, lesson.source)] == NEVER
            }
            number = len(rows)
            return {"kind": "teach", "lessons": list(rows.values())} if rows else None

        self._ledger.change(decide)
        return number

    def export(self, sources: Iterable[str]) -> dict[str, Any]:
        """Return the estimates of sources, and of their hosts, for `adopt` of another scheduler.

        To move them, `remove` them here once they are there. Leases, the reasons of failures and
        budgets of tags do not go along; pauses of hosts and tags do, and a source that is leased is
        not leased there until the lease ends.

        Returns:
            A dictionary that JSON can hold.

        Raises:
            UnknownSource: there is no such source.
            ValueError: `sources` is a single name.
        """
        if isinstance(sources, str):
            raise ValueError(f"sources is {shown(sources)}; give a list of names")
        with self._ledger.reading() as (state, _):
            rows = [row_of(state, source) for source in dict.fromkeys(sources)]
            return lessons.exported(state, np.array(rows, dtype=np.int64))

    def adopt(self, exported: Mapping[str, Any]) -> int:
        """Add sources of another scheduler, with what it learnt of them; return how many.

        Limits of their hosts come along; where a host has a limit here, the longer one holds.

        Arguments:
            exported: what `export` has returned.

        Raises:
            ValueError: it is something else.
            SourceExists: one of the sources is here. Nothing is changed.

        >>> now = 1_700_000_000.0
        >>> one = Scheduler(":memory:", budget="20/h", clock=lambda: now)
        >>> other = Scheduler(":memory:", budget="20/h", clock=lambda: now)
        >>> one.add("a", max_interval="24h")
        >>> one.report("a", items=[(None, 1.0)] * 5)
        True
        >>> other.adopt(one.export(["a"]))
        1
        >>> one.explain("a").rate == other.explain("a").rate
        True
        """
        export = lessons.checked(exported)
        names = [name for name, *_ in export["sources"]]

        def decide(state: State, moment: Moment) -> Event:
            for name in names:
                if name in state.names:
                    raise SourceExists(f"there is a source {shown(name)} in both")
            return {"kind": "adopt", **export}

        self._ledger.change(decide)
        return len(names)

    def settings(self, source: str | None = None) -> dict[str, Any]:
        """Return the settings of a source, as arguments of `add`, in seconds, and `paused`;
        without a source those of the scheduler, as arguments of `configure`."""
        with self._ledger.reading() as (state, _):
            if source is None:
                return state.settings.as_arguments()
            i = row_of(state, source)
            paused = bool(state.table["marks"][i] & PAUSED)
            return {**state.settings_of(i).as_arguments(), "paused": paused}

    def __len__(self) -> int:
        with self._ledger.reading() as (state, _):
            return len(state)

    def count(self, *, host: str | None = None, tag: str | None = None) -> int:
        """Return the number of sources at a host or in a domain such as ``*.example.org``, of a
        tag, or of both.

        >>> scheduler = Scheduler(":memory:", budget="20/h")
        >>> scheduler.add("a", host="a.example.org", tag="news")
        >>> scheduler.count(host="a.example.org"), scheduler.count(tag="sports")
        (1, 0)
        """
        with self._ledger.reading() as (state, _):
            return state.count_of(host, tag)

    def __contains__(self, source: object) -> bool:
        with self._ledger.reading() as (state, _):
            return source in state.names

    def sources(self) -> list[str]:
        """Return the names of all sources, in the order in which they are stored."""
        with self._ledger.reading() as (state, _):
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
        names: list[str] = []
        with self._ledger.reading() as (state, _):
            for i, name in enumerate(islice(state.names, start, None), start):
                if name is not None and text in name:
                    names.append(name)
                    if len(names) == limit:
                        return names, i + 1 if i + 1 < state.rows else 0
        return names, 0

    # ------------------------------------------------------------------------------- fetching

    def lease(self, limit: int = 1, timeout: Duration = "5min") -> list[Lease]:
        """Return the sources that are due, best first; nobody else is given them until they expire.

        Arguments:
            limit: largest number of sources.
            timeout: time within which each must be reported, or it is given to others.

        Raises:
            ValueError: an argument is out of range.
        """
        limit = min(whole("limit", limit), _MOST_LEASES)
        time_left = seconds("timeout", timeout, 1e-3)
        leases: list[Lease] = []
        late = False

        def decide(state: State, moment: Moment) -> Event | None:
            nonlocal leases, late
            s = state.settings
            late = bool(s.hours) and s.is_late(moment.time - moment.offset)
            if late:
                return None
            event, leases = lease_event(state, moment, limit, time_left)
            return event

        self._ledger.change(decide)
        if late:  # another hour has begun
            self._configure({})
            self._ledger.change(decide)
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
            For each, whether it counts: False if the lease was reported before, if it had expired
            when it was released, or if its source was removed.

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
        records = parse_all("outcome", outcome_of, outcomes)
        counts: list[bool] = []

        def decide(state: State, moment: Moment) -> Event | None:
            counts.clear()
            event, flags = outcome_event(state, records, moment, self._ledger.number)
            counts.extend(flags)
            return event

        self._ledger.change(decide)
        return counts

    def record_one(self, outcome: Mapping[str, Any]) -> bool:
        """Record one outcome, a dictionary as for `record`; return whether it counts."""
        try:
            return self.record([outcome])[0]
        except ValueError as error:
            raise type(error)(str(error).removeprefix("outcome 0: ")) from error.__cause__

    def report(
        self,
        fetch: int | str,
        items: Iterable[Item] = (),
        *,
        status: int | None = None,
        at: Time | None = None,
        again_after: Duration = 0.0,
        cost: float | None = None,
        pings: Iterable[Item] | None = None,
    ) -> bool:
        """Record a successful fetch, of a lease or of a source that was fetched without one.

        Arguments:
            fetch: `id` of the lease, even if it has expired, or the name of a source that was
                fetched without one; an open lease of that source stays open.
            items: a pair (published, worth) for each item that is new to you; `published` is None
                if it is unknown. Dates before the last fetch count as of then, dates in the future
                as now. In the first report of a source give all its items: their dates tell its
                rate.
            status: HTTP status, which is stored; 304 and an empty list mean the same.
            at: time of the fetch; default now.
            again_after: time after the fetch during which the source must not be fetched again,
                such as that of `Cache-Control` or `ttl`.
            cost: budget units that the fetch took, such as its bytes or seconds; default: what the
                lease was charged, the `cost` of the source. That becomes the mean of what its
                fetches take; what those cost that find items, and those that do not, is learnt
                apart, and decides with the others how often it is fetched.
            pings: of a source that announces what others have, such as a sitemap, a pair
                (published, worth) for each ping that this fetch brought: when the other was
                changed, None if it is unknown, and what `signal` returned. With the cost they
                decide how often such a source is fetched; they do not count as items.

        Returns:
            Whether the report counts: False if the lease was reported before, or its source was
            removed.

        Raises:
            ValueError: an argument is out of range. Nothing is recorded.
            UnknownLease, UnknownSource: there is no such lease or source.
        """
        return self.record_one(
            {
                **_fetch(fetch),
                "items": items,
                "status": status,
                "at": at,
                "again_after": again_after,
                "cost": cost,
                **({} if pings is None else {"pings": pings}),
            }
        )

    def failed(
        self,
        fetch: int | str,
        *,
        retry_after: Duration | None = None,
        status: int | None = None,
        kind: Kind | None = None,
        at: Time | None = None,
        reason: str | None = None,
        cost: float | None = None,
    ) -> bool:
        """Record a fetch that failed, of a lease or of a source.

        The source is left alone for about five minutes. After that its index counts with the
        probability that it answers, which depends on what went wrong and on how long it has failed
        (`ephemeral_crawl.live.life`): a server that is busy is tried again soon, an address that
        does not exist hardly ever. Nothing is learnt about its rate.

        Arguments:
            fetch: as for `report`.
            retry_after: what the server asked for; then its whole host is left alone for that time,
                if the source has one, or until `resume`, at most a day; default: five minutes if
                the status is 429, too many requests.
            status: HTTP status, which is stored, and tells what went wrong.
            kind: what went wrong if there was no status, or if that does not tell: "dns", the name
                was not found; "connection", it was refused or broken off; "timeout"; "tls", the
                certificate is not valid; "incomplete", the answer was cut off; "content", it could
                not be used; "format", it is not a feed; "refused", by rules of your own; "http",
                the status tells.
            at: time of the fetch; default now.
            reason: what went wrong, which `explain` says until the next fetch; default: the status,
                such as "HTTP 500", or what `kind` means. At most 200 characters of it are kept, on
                one line, without the credentials of URLs.
            cost: as for `report`.

        Returns:
            As for `report`.
        """
        arguments = {
            "retry_after": retry_after,
            "status": status,
            "kind": kind,
            "at": at,
            "reason": reason,
            "cost": cost,
        }
        return self.record_one({**_fetch(fetch), "outcome": "failed", **arguments})

    def release(
        self, lease: int, *, again_after: Duration = 0.0, reason: str | None = None
    ) -> bool:
        """Give a lease back without a fetch, which costs nothing; return whether it was open.

        A lease that has expired counts as fetched: nothing of it can be given back.

        Arguments:
            again_after: time after which the source may be leased again.
            reason: why it was not fetched, as for `failed`.
        """
        arguments = {"outcome": "released", "again_after": again_after, "reason": reason}
        return self.record_one({**_fetch(lease), **arguments})

    def expired_at(self, lease: int) -> float | None:
        """Return when a lease expired that was not reported, seconds since 1970; None if it has not
        expired, or was reported, or if its source was removed."""
        number = check_whole("lease", lease)
        with self._ledger.reading() as (state, moment):
            _, end, _ = state.leases.get(number, (0, math.inf, 0.0))
            return end - moment.offset if end <= moment.time else None

    def signal(self, source: str, kind: str = "ping", *, at: Time | None = None) -> float:
        """Record a ping: a notice that the source may have something new.

        How often a ping is true is learnt from the fetches after it; until then, from the pings of
        the same kind at other sources.

        Arguments:
            source: its name.
            kind: kind of signal, such as "websub" or "sitemap". If a source has pings of several
                kinds, they are counted together.
            at: time of the ping; default now. One from before the last fetch announces nothing.

        Returns:
            What the ping is worth: what fetches of the source are expected to collect, less the
            price, beyond what they would without it; 0 if it announces nothing.

        Raises:
            ValueError: an argument is out of range.
            UnknownSource: there is no such source.
        """
        try:
            return self.signal_many([{"source": source, "kind": kind, "at": at}])[0]
        except ValueError as error:
            raise type(error)(str(error).removeprefix("ping 0: ")) from error.__cause__

    def signal_many(self, pings: Iterable[Mapping[str, Any]]) -> list[float]:
        """Record pings, all or, if one is refused, none; return what each is worth.

        Arguments:
            pings: a dictionary of the arguments of `signal` for each.
        """
        records = parse_all("ping", ping_of, pings)
        worths = [0.0] * len(records)

        def decide(state: State, moment: Moment) -> Event | None:
            events, places = ping_events(state, records, moment)
            if not events:
                return None
            for k, worth in zip(places, looks.gains(state, events, moment.time), strict=True):
                worths[k] = float(worth)
            return {"kind": "signal", "pings": events}

        self._ledger.change(decide)
        return worths

    # ------------------------------------------------------------------------------- asking

    def next_due(self, source: str | None = None) -> float | None:
        """Return when a source is due at the present price, or when `lease` next gives something.

        This is for callers with a queue of their own, and to wait. It holds until the next report,
        ping or change.

        Arguments:
            source: its name; default: when `lease` next gives something, to a second, or when the
                next budget of a table of hours begins, if that is before. It may be earlier, and is
                never later, with more than 1,024 sources, or where the first source that is due
                costs more than others, which the budget would suffice for.

        Returns:
            Seconds since 1970; None if never. It may be in the past.
        """
        with self._ledger.reading() as (state, moment):
            if source is None:
                due = choice.next_time(state, moment.time)
                if state.settings.hours:
                    due = min(due, state.settings.until + moment.offset)
            else:
                i = row_of(state, source)
                due, _ = explanation.next_due(state, i, moment.time)
            return due - moment.offset if abs(due) < math.inf else None

    def explain(self, source: str) -> Explanation:
        """Return the estimates of a source, when it is due, why, and what would change that."""
        with self._ledger.reading() as (state, moment):
            i = row_of(state, source)
            return explanation.explain(state, i, moment.time, moment.offset)

    def outline(self) -> Outline:
        """Return the estimates of all sources, as columns: a microsecond each, in which nobody else
        can use the scheduler."""
        with self._ledger.reading() as (state, moment):
            return statuses.outline(state, moment.time)

    def status(self) -> Status:
        """Return the scheduler in numbers."""
        with self._ledger.reading() as (state, moment):
            return statuses.status(state, moment.time)

    def overview(self, limit: int = 20) -> Overview:
        """Return the fleet at a glance: what is due and why, what fails or waits, and what the
        budget buys, a half of it, twice as much and so on.

        It takes some tenths of a second for 10⁶ sources, in which others can use the scheduler.

        Arguments:
            limit: largest length of each of its lists.
        """
        return overviews.overview(self._ledger.reading, check_whole("limit", limit))

    # ------------------------------------------------------------------------------- storage

    @contextmanager
    def together(self) -> Iterator[None]:
        """Return a context in which all changes are stored by one commit, at its end.

        This is faster than a commit each, above all with `full`. If the context is left by an
        exception, or the commit fails, none of the changes has happened: do not act on what the
        methods return, such as leases, before the end. Others who use the store wait meanwhile. An
        argument that is refused, and whose exception is caught, does not prevent the rest. What is
        in memory only cannot be taken back: changes made before an exception stay.

        >>> scheduler = Scheduler(":memory:", budget="20/h")
        >>> with scheduler.together():
        ...     scheduler.add("a")
        ...     scheduler.limit_host("example.org", "10s")
        """
        with self._ledger.group():
            yield

    def copy(self, store: object) -> None:
        """Write everything to another store: as a backup, or to move to it.

        The copy is a scheduler in its present state. Others can use this one meanwhile.

        Arguments:
            store: as for the constructor, without a scheduler in it.

        Raises:
            ValueError: there is a scheduler in the store.
        """
        self._ledger.copy(store)

    def close(self) -> None:
        """Write a snapshot and close the file. A scheduler need not be closed."""
        self._ledger.close()

    def __getstate__(self) -> object:
        raise TypeError(
            "a scheduler cannot be pickled, as it would be to be sent to another process; open its "
            "store there: Scheduler(store) with the same address"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            _LOG.warning("the scheduler could not be closed: %s", failure)  # not to hide `error`

    def _configure(self, arguments: dict[str, Any]) -> None:
        """Store settings that differ from those stored, with the budget of the present hour."""

        def decide(state: State, moment: Moment) -> Event | None:
            if self._ledger.number == 0:
                settings = _new_settings(arguments, self._ledger.journal.name)
            else:
                settings = state.settings.changed(**arguments)
            settings = settings.at(moment.time - moment.offset)
            if settings == state.settings and self._ledger.number:
                return None
            return {"kind": "configure", "settings": settings.as_dict()}

        self._ledger.change(decide)

    def _pause(self, paused: bool, source: str | None, host: str | None, tag: str | None) -> None:
        targets = {"source": source, "host": host, "tag": tag}
        targets = {name: value for name, value in targets.items() if value is not None}
        if len(targets) != 1:
            raise ValueError("give one of a source, a host and a tag")
        if source is not None:
            self.update(source, paused=paused)
            return
        ((kind, name),) = targets.items()
        event = {"kind": "pause", kind: name_of(kind, name), "paused": paused}
        self._ledger.change(lambda state, moment: event)


def check_apart(schedulers: Iterable[Scheduler]) -> None:
    """Raise ValueError if two schedulers use the same store, by whatever names."""
    names = dict[object, str]()
    for scheduler in schedulers:
        journal = scheduler._ledger.journal
        if (place := journal.place()) in names:
            raise ValueError(
                f"{names[place]} and {journal.name} are one store; give each shard a store of its "
                "own"
            )
        names[place] = journal.name


def _without_none(**settings: object) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _new_settings(arguments: dict[str, Any], store: str) -> Settings:
    """Return the settings of a new scheduler."""
    if "budget" not in arguments:
        raise NewStore(f"{store} is new: give its budget, such as '20/h'")
    return Settings.of(**arguments)


def _prepare(arguments: dict[str, Any], store: str) -> None:
    """Check the settings of a new store, and add a source in memory, so that what this takes is
    compiled before there is a store that other processes would wait for."""
    _ = _new_settings(arguments, store)
    with Scheduler(":memory:", budget="1/h") as scheduler:
        scheduler.add("a")
        scheduler.teach([Lesson.of_rate("a", 1.0, 1.0)])


def _name_in(state: State, source: object) -> str:
    row_of(state, source)
    return str(source)


def _update_event(state: State, arguments: Mapping[str, Any]) -> Event:
    """Return what the journal holds of changes of a source."""
    settings = dict(arguments)
    source, paused = settings.pop("source", None), settings.pop("paused", None)
    i = row_of(state, source)
    stop = bool(state.table["marks"][i] & PAUSED)
    if paused is not None:
        stop = check_flag("paused", paused)
    values = state.settings_of(i).changed(settings).as_row()
    return {"source": source, "settings": values, "paused": stop}


def _fetch(fetch: object) -> dict[str, Any]:
    return {"source" if isinstance(fetch, str) else "lease": fetch}
