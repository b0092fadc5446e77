"""`ephemeral-crawl crawl`: fetches feeds when they are due, and writes what is new."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TextIO

import tyro

from crawl_env.errors import check_whole, counted
from crawl_env.files.regular import regular
from ephemeral_crawl.core.logs import Form, Level, logged
from ephemeral_crawl.core.program import Command, breaking
from ephemeral_crawl.live.arguments import seconds
from ephemeral_crawl.live.reasons import redacted

if TYPE_CHECKING:
    from ephemeral_crawl.crawl.client import Client
    from ephemeral_crawl.crawl.crawler import Visit
    from ephemeral_crawl.crawl.exchange import ImportReport
    from ephemeral_crawl.crawl.waiting import Waiting
    from ephemeral_crawl.crawl.websub import Subscriptions
    from ephemeral_crawl.live import Scheduler

_LOG = logging.getLogger(__name__)
_EVERY = 60.0  # seconds between two lines of progress
_MATCHES = 10  # of a part of a URL that are listed
_PATIENCE = 1.0  # seconds in which nothing else is done while another process has the store locked


@dataclass(kw_only=True)
class CrawlFeeds(Command):
    """Fetches feeds when they are due, within a budget, and writes what is new.

    The scheduler learns while it crawls. It reads RSS, Atom, RDF, JSON Feed and sitemaps. Requests
    are conditional, and respect Retry-After, Cache-Control, ttl, permanent redirects and 410;
    robots.txt applies only to pages, since feeds are made for programs. Ctrl-C ends the crawl after
    the fetches under way, and a second Ctrl-C at once; the same command continues where it was.
    """

    main: ClassVar[tuple[str, ...]] = (
        *("feeds", "budget", "half_life", "store", "out", "once", "dry_run", "explain", "items"),
        *("per_host", "user_agent"),
    )
    feeds: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = ()
    """OPML or CSV files of feeds to add to the store; none if the store has them."""
    budget: str | None = None
    """Fetches per time, such as 20/h, or by the hour, such as "08:00 40/h, 22:00 10/h"; by default
    that of the store."""
    zone: str | None = None
    """Time zone of a budget by the hour, such as Europe/Paris; by default UTC."""
    unit: Literal["requests", "kB", "seconds"] = "requests"
    """What the budget counts: requests, kilobytes received, or seconds. The cost of each feed's
    fetches is learnt; those that find nothing may cost much less. Give this option at every
    start."""
    half_life: str | None = None
    """Time in which the worth of an item halves, such as 3h, which is the default."""
    store: Path = Path("crawl.db")
    """File of the scheduler. The identifiers of known items are in a file beside it, with .items
    added."""
    out: str = "-"
    """File to which new items are appended, one JSON object per line; - is the standard output."""
    once: bool = False
    """Fetch what is due now, and end."""
    dry_run: bool = False
    """Fetch nothing: print the schedule, and what it gains."""
    all: bool = False
    """With --dry-run: list all feeds instead of the first 40."""
    explain: str = ""
    """Fetch nothing: print what is known about this feed, when it is due, and why. A part of the
    URL will do."""
    resume: str = ""
    """Fetch nothing: end the pause of this feed, such as one that answered 410, Gone. A part of the
    URL will do."""
    items: Path | None = None
    """Log of items, as for `fit`, from which the schedule starts."""
    parallel: int = 8
    """Fetches at once."""
    per_host: str = "10s"
    """Least time between two fetches of a host (registered domain). A longer one that a host was
    given otherwise stays."""
    max_interval: str | None = None
    """Largest time between two fetches of the feeds that are added, such as 24h."""
    timeout: str = "30s"
    """Time limit of a fetch, redirects included."""
    max_size: float = 10.0
    """Largest size of a document, MB, unpacked."""
    worth: str = ""
    """Field of an item, as feedparser names it, that states its worth, such as slash_comments; by
    default all are worth 1."""
    user_agent: str = ""
    """How the crawler identifies itself to servers; say how you can be reached."""
    allow_private: bool = False
    """Also fetch from addresses that are not public: loopback and private networks."""
    use_proxies: bool = False
    """Use the proxies that the environment names."""
    public_url: str | None = None
    """Address at which WebSub hubs reach this program, such as https://me.example.org/news. The
    crawl then subscribes to the hubs that feeds name, and their notices are pings."""
    listen: str = "127.0.0.1:8600"
    """With --public-url: address and port to listen on, to which requests to the public address are
    passed on."""
    quiet: bool = False
    """Print no progress and no failures of feeds, as with --log-level error."""
    log_level: Level = "info"
    """What is logged on standard error: error, errors of the program; warning, also feeds that
    fail; info, also where the crawl stands; debug, also every fetch."""
    log_format: Form = "text"
    """Log lines of text, or one JSON object per line."""

    def run(self) -> None:
        from ephemeral_crawl.crawl.schedule import SHOWN, UNIT, describe
        from ephemeral_crawl.crawl.stores import make_store
        from ephemeral_crawl.crawl.waiting import Waiting, compile_scheduler, telling
        from ephemeral_crawl.crawl.websub import about
        from ephemeral_crawl.live import Scheduler

        self._check()
        client = None if self.dry_run or self.explain or self.resume else self._client()
        if client and self.public_url is not None:
            asyncio.run(self._check_listen())
        level: Level = "error" if self.quiet else self.log_level
        waiting = Waiting()
        settings: dict[str, Any] = {
            "budget": self.budget,
            "zone": self.zone,
            "half_life": self.half_life,
        }
        imported: list[tuple[Path, ImportReport]] | None = None  # when the store was made

        def open_store() -> Scheduler:
            nonlocal imported
            with telling("opening the store", _LOG.info):
                imports = partial(self._imports, waiting)
                imported = imported or make_store(store, imports, **settings)
                return Scheduler(store, **settings, patience=_PATIENCE)

        with (
            logged(("ephemeral_crawl",), level, self.log_format, "%(message)s", redacted),
            self._place() as store,
            waiting.until(open_store) as scheduler,
        ):
            for path, report in imported or self._imports(waiting, scheduler):
                _LOG.info("%s: %s", path, report)
            if self.resume:
                name = self._source_of(scheduler, self.resume)
                waiting.until(partial(scheduler.resume, name))
                print(scheduler.explain(name))
            elif self.explain:
                name = self._source_of(scheduler, self.explain)
                parts = str(scheduler.explain(name)), about(self.store, name), UNIT
                print("\n".join(filter(None, parts)))
            elif self.dry_run:
                print(describe(scheduler, time.time, None if self.all else SHOWN))
            elif client:
                compile_scheduler("preparing to fetch", _LOG.info)
                try:
                    with self._output() as output, contextlib.suppress(KeyboardInterrupt):
                        asyncio.run(self._crawl(scheduler, client, output, waiting))
                except BrokenPipeError as error:
                    raise OSError(
                        "nobody reads the items that are printed any more, so that the crawl has "
                        "ended; the same command goes on where it was"
                    ) from error
                except sqlite3.Error as error:
                    raise OSError(
                        f"what is known of the items of {self.store} cannot be stored: {error}"
                    ) from error

    def _imports(
        self, waiting: Waiting, scheduler: Scheduler
    ) -> Iterator[tuple[Path, ImportReport]]:
        """Add the sources of files, and limit their hosts; return each file, and what was done."""
        from ephemeral_crawl.crawl import exchange

        hosts = set[str]()
        for path in self.feeds:
            settings = {"max_interval": self.max_interval} if self.max_interval else {}
            of = exchange.IMPORTS[exchange.kind_of(path)]
            report = waiting.until(partial(of, scheduler, path, **settings))
            hosts |= report.hosts
            yield path, report
        if self.items:
            report = waiting.until(partial(exchange.import_log, scheduler, self.items))
            hosts |= report.hosts
            yield self.items, report
        waiting.until(partial(_limit, scheduler, hosts, self.per_host))
        if not len(scheduler):
            raise ValueError(f"{self.store} has no sources; name an OPML or CSV file of feeds")

    def _source_of(self, scheduler: Scheduler, part: str) -> str:
        """Return a source that is named, or by a part that no other has."""
        names = [name for name in scheduler.sources() if part in name]
        if part in names:
            return part
        if len(names) == 1:
            return names[0]
        if not names:
            raise ValueError(f"no feed of {self.store} matches {part!r}; --dry-run --all lists all")
        listed = "".join(f"\n  {redacted(name)}" for name in names[:_MATCHES])
        more = len(names) - _MATCHES
        raise ValueError(
            f"{len(names):,} feeds of {self.store} match {part!r}; give more of the URL:{listed}"
            + (f"\n  and {more:,} more" if more > 0 else "")
        )

    @contextlib.contextmanager
    def _place(self) -> Iterator[Path]:
        """Give the store, or a copy of it if nothing is to be changed."""
        from ephemeral_crawl.live.journal.sqlite import copy_file, is_new

        if not (self.dry_run or self.explain):
            yield self.store
            return
        if not self.feeds and is_new(self.store):
            raise ValueError(f"there is no store {self.store}; name an OPML or CSV file of feeds")
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "copy.db"
            if not is_new(self.store):
                try:
                    copy_file(self.store, copy)
                except sqlite3.DatabaseError as error:
                    raise ValueError(
                        f"{self.store} cannot be copied to {folder}, where it is looked at: {error}"
                    ) from error
            try:
                yield copy
            except ValueError as error:  # which names the copy
                raise ValueError(str(error).replace(str(copy), str(self.store))) from error

    def _check(self) -> None:
        from ephemeral_crawl.crawl import exchange
        from ephemeral_crawl.crawl.memory import HUBS, ITEMS, beside
        from ephemeral_crawl.crawl.urls import check_url
        from ephemeral_crawl.live.journal import is_connection_string
        from ephemeral_crawl.live.journal.sqlite import is_new

        for path in self.feeds:
            _ = exchange.kind_of(path)
            regular(path)
        if "".join(self.store.parts[:1]).endswith(":") or is_connection_string(str(self.store)):
            raise ValueError("--store is not the path of a file; give one, such as crawl.db")
        if self.out == "-" and sys.stdout is None:
            raise ValueError(
                "standard output is closed, so that all items would be lost; give --out"
            )
        out = Path(self.out)
        place = out if out.exists() else Path(os.path.realpath(out)).parent
        is_open = os.access(place, os.W_OK) and not out.is_dir()
        if self.out != "-" and not is_open:
            raise ValueError(
                f"--out is {self.out}, which cannot be written; give a file in a folder that exists"
            )
        own = (beside(self.store, end) for end in ("", ITEMS, HUBS, "-wal", "-shm"))
        if Path(os.path.realpath(out)) in own:
            raise ValueError(
                f"--out is {self.out}, which is the store, or belongs to it; give another file"
            )
        if is_new(self.store) and not ((self.feeds or self.items) and self.budget):
            raise ValueError(
                f"there is no store {self.store} yet; to begin, name an OPML file and a budget: "
                f"ephemeral-crawl crawl feeds.opml --budget 20/h"
            )
        if sum(map(bool, (self.dry_run, self.explain, self.resume))) > 1:
            raise ValueError("give one of --dry-run, --explain and --resume")
        host, colon, port = self.listen.rpartition(":")
        if not (host and colon and port.isascii() and port.isdecimal() and int(port) < 65_536):
            raise ValueError(f"--listen is {self.listen}; give ADDRESS:PORT, as 127.0.0.1:8600")
        if self.public_url is not None:
            check_url(self.public_url, "--public-url")
        check_whole("--parallel", self.parallel)
        seconds("--timeout", self.timeout, 0.1)
        seconds("--per-host", self.per_host)
        if self.max_interval:
            seconds("--max-interval", self.max_interval)
        if not 0 < self.max_size <= 1000:
            raise ValueError(f"--max-size is {self.max_size:g}; it must be above 0, at most 1000")

    def _client(self) -> Client:
        from ephemeral_crawl.crawl.client import USER_AGENT, Client

        return Client(
            timeout=seconds("--timeout", self.timeout, 0.1),
            most_bytes=int(self.max_size * 1e6),
            allow_private=self.allow_private,
            user_agent=self.user_agent or USER_AGENT,
            use_proxies=self.use_proxies,
        )

    async def _crawl(
        self, scheduler: Scheduler, client: Client, output: TextIO, waiting: Waiting
    ) -> None:
        from ephemeral_crawl.crawl.crawler import Crawler
        from ephemeral_crawl.crawl.limited import LimitedProcess
        from ephemeral_crawl.crawl.memory import Memory

        limit = seconds("--timeout", self.timeout, 0.1)
        memory = waiting.until(partial(Memory.beside, self.store, _PATIENCE))
        parse = LimitedProcess(self.worth)
        progress = _Progress(scheduler)
        async with client:
            subscriptions = waiting.until(
                lambda: self._subscriptions(scheduler, client, lambda: crawler.look())
            )
            crawler = Crawler(
                scheduler,
                client,
                parse,
                memory,
                output,
                parallel=self.parallel,
                lease_time=3.0 * limit + 60.0,  # robots.txt, a page, and the feed that it names
                per_host=self.per_host,
                done=progress.add,
                idle=progress.idle,
                subscriptions=subscriptions,
                unit=self.unit,
            )
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                with contextlib.suppress(NotImplementedError, RuntimeError):  # threads, Windows
                    loop.add_signal_handler(number, crawler.stop)
            try:
                async with self._listening(subscriptions):
                    await crawler.run(once=self.once)
            finally:
                await parse.close()
                memory.close()
                progress.end()

    def _subscriptions(
        self, scheduler: Scheduler, client: Client, look: Callable[[], None]
    ) -> Subscriptions | None:
        """Return the subscriptions at hubs, which are in a file beside the store."""
        from ephemeral_crawl.crawl.memory import HUBS, beside
        from ephemeral_crawl.crawl.websub import KIND, Subscriptions
        from ephemeral_crawl.live import UnknownSource

        if self.public_url is None:
            return None

        async def is_source(name: str) -> bool:
            return name in scheduler and not scheduler.settings(name)["paused"]

        async def ping(name: str) -> None:
            with contextlib.suppress(UnknownSource):
                scheduler.signal(name, KIND)
                look()

        path = beside(self.store, HUBS)
        return Subscriptions(path, self.public_url, client, is_source, ping)

    @contextlib.asynccontextmanager
    async def _listening(self, subscriptions: Subscriptions | None) -> AsyncIterator[None]:
        """Return a context in which hubs are answered, and subscriptions kept."""
        from ephemeral_crawl.crawl.websub import listen

        if subscriptions is None:
            yield
            return
        server = await listen(subscriptions, *self._address)
        keeping = asyncio.create_task(subscriptions.keep())
        try:
            yield
        finally:
            keeping.cancel()
            server.close()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping
            subscriptions.close()

    async def _check_listen(self) -> None:
        """Raise ValueError if --listen cannot be used: before a store is made."""
        try:
            server = await asyncio.start_server(lambda _, writer: writer.close(), *self._address)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ValueError(f"cannot listen on {self.listen}: {reason}") from None
        server.close()

    @property
    def _address(self) -> tuple[str, int]:
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    @contextlib.contextmanager
    def _output(self) -> Iterator[TextIO]:
        if self.out == "-":
            yield breaking(sys.stdout)
            return
        file = io.TextIOWrapper(io.BufferedWriter(_Items(self.out, "a")), encoding="utf-8")
        try:
            if _is_cut_off(Path(self.out)):
                file.write("\n")
            yield file
        finally:
            with contextlib.suppress(OSError):  # all was written before, or this has been said
                file.close()


def _limit(scheduler: Scheduler, hosts: Iterable[str], per_host: str) -> None:
    """Limit hosts, but for those whose limit is longer."""
    interval = seconds("--per-host", per_host)
    with scheduler.together():  # in which the store is read once, and not for each host
        scheduler.limit_hosts({h: interval for h in hosts if scheduler.host_limit(h) < interval})


class _Items(io.FileIO):
    """The file of items. If it was renamed or removed, as logrotate does, it is begun anew: what
    is appended to the old one could be lost."""

    def write(self, data: Any, /) -> int:
        if not self._is_in_place():
            with open(str(self.name), "ab", buffering=0) as new:
                os.dup2(new.fileno(), self.fileno(), inheritable=False)
        return super().write(data)

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.stat(str(self.name)), os.fstat(self.fileno()))
        except FileNotFoundError:
            return False


def _is_cut_off(path: Path) -> bool:
    """Return whether the last line of a file was not written to its end, as when the process was
    killed or the disk was full: its items are written again, and on a line of their own."""
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


class _Progress:
    """Prints failures as they come, and where the crawl stands: when nothing is left to do at
    present, and once a minute at most."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._last = time.monotonic()
        self._fetches = self._items = self._failures = 0
        self._reported = 0  # fetches
        self._not_allowed: dict[str, str] = {}  # errors that were shown
        self._unstable: set[str] = set()  # whose identifiers change, as was reported

    def add(self, visit: Visit) -> None:
        if not visit.allowed:  # it comes again and again
            if self._not_allowed.get(visit.source) != visit.error:
                self._not_allowed[visit.source] = visit.error
                _tell(logging.WARNING, f"{visit.source}: {visit.error}", visit)
            return
        self._fetches += 1
        self._items += visit.new
        if visit.moved:
            merged = ", which is a source already: this one is removed" if visit.merged else ""
            merged += "; that one is paused, see --explain and --resume" * visit.other_paused
            level = logging.WARNING if visit.other_paused else logging.INFO
            _tell(level, f"{visit.source}: moved for good, now {visit.moved}{merged}", visit)
        if visit.unstable and visit.source not in self._unstable:
            self._unstable.add(visit.source)
            text = "the identifiers of its items change at every fetch; items are distinguished by "
            _tell(logging.INFO, f"{visit.source}: {text}link, title and date", visit)
        if visit.error:
            self._failures += 1
            pause = "; it is paused, see --explain and --resume" if visit.paused else ""
            _tell(logging.WARNING, f"{visit.source}: {visit.error}{pause}", visit)
        elif _LOG.isEnabledFor(logging.DEBUG):
            _tell(
                logging.DEBUG,
                f"{visit.source}: {visit.status}, {counted(visit.new, 'new item')}",
                visit,
            )
        if time.monotonic() - self._last > _EVERY:
            self.end()

    def idle(self) -> None:
        long_ago = self._reported == 0 or time.monotonic() - self._last > _EVERY
        if self._fetches > self._reported and long_ago:
            self.end()

    def end(self) -> None:
        """Print where the crawl stands."""
        from ephemeral_crawl.live.explanation import duration

        self._last, self._reported = time.monotonic(), self._fetches
        status, due = self._scheduler.status(), self._scheduler.next_due()
        following = ""
        if due is not None:
            wait = due - time.time()
            following = f", next fetch {f'in {duration(wait)}' if wait > 0.0 else 'now'}"
        fields = {"fetches": self._fetches, "new": self._items, "failures": self._failures}
        fields |= {"sources": status.sources, "not_fetched": status.new, "due": status.due}
        _LOG.info(
            f"{counted(self._fetches, 'fetch', 'fetches')}, {counted(self._items, 'new item')}, "
            f"{counted(self._failures, 'failure')}; {status.new:,} of "
            f"{counted(status.sources, 'feed')} not fetched yet, {status.due:,} due" + following,
            extra={"fields": fields},
        )


def _tell(level: int, text: str, visit: Visit) -> None:
    """Log what a fetch came to, with its fields."""
    _LOG.log(level, "%s", text, extra={"fields": visit._asdict()})
