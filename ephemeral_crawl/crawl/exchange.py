"""Sources in and out of a scheduler: OPML, CSV, and what a log or a fitted fleet knows of them."""

from __future__ import annotations

import asyncio
import csv
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, replace
from datetime import datetime
from os import PathLike, fspath
from typing import Any

from crawl_env import ItemLog
from crawl_env.errors import counted, shown
from crawl_env.files import table
from crawl_env.files.regular import regular
from crawl_env.files.table import Column
from crawl_env.fleet.sources import Sources
from crawl_env.log.clock import HOURS
from ephemeral_crawl.core.log_options import far_text
from ephemeral_crawl.crawl.client import Client, FetchError
from ephemeral_crawl.crawl.opml import read_opml, write_opml
from ephemeral_crawl.crawl.sitemaps import MOST_ENTRIES, parse_sitemap
from ephemeral_crawl.crawl.stores import Stores
from ephemeral_crawl.crawl.urls import check_url, host_of, source_of
from ephemeral_crawl.live import Lesson, Scheduler, UnknownSource
from ephemeral_crawl.live.arguments import Duration, Time, seconds
from ephemeral_crawl.live.settings import SourceSettings

PathName = str | PathLike[str]

_DURATIONS = ("min_interval", "max_interval", "half_life")
_COLUMNS = (
    Column("source", "text"),
    Column("host", "text", required=False),
    Column("cost", required=False, default=1.0),
    *(Column(name, "text", required=False) for name in _DURATIONS),
    Column("tag", "text", required=False),
    Column("weight", required=False, default=1.0),
    Column("paused", "text", required=False),
)
_PAUSED = {"": False, "0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}
_MOST_MAPS = 100  # sitemaps of an index that are fetched
_SHOWN = 5  # refused sources in a message


@dataclass(frozen=True)
class ImportReport:
    """What an import did."""

    added: int  # sources that are new
    known: int  # that the scheduler had, or that the file repeats
    taught: int = 0  # of which the file told rate and worth
    refused: tuple[str, ...] = ()  # why entries were left out, one sentence each
    pages: tuple[str, ...] = ()  # sources of a sitemap, for `Memory.add_pages`
    hosts: frozenset[str] = frozenset()  # of all its sources

    def __str__(self) -> str:
        text = f"{counted(self.added, 'source')} added, {self.known:,} known before or repeated"
        if self.taught:
            text += f"; {self.taught:,} start from what the file tells"
        if self.refused:
            more = len(self.refused) - _SHOWN
            text += f"; {len(self.refused):,} refused:\n  " + "\n  ".join(self.refused[:_SHOWN])
            text += f"\n  and {more:,} more" if more > 0 else ""
        return text


def kind_of(path: PathName) -> str:
    """Return "opml" or "csv", by the name of a file.

    Raises:
        ValueError: it is neither.
    """
    name = fspath(path).lower()
    if name.endswith((".opml", ".xml")):
        return "opml"
    if name.endswith((".csv", ".csv.gz")):
        return "csv"
    raise ValueError(
        f"{path} is neither OPML (.opml, .xml) nor a table of sources (.csv, .csv.gz); a list of "
        "addresses becomes a table if its first line is the word source and its name ends in .csv"
    )


def import_opml(
    scheduler: Scheduler | Stores, path: PathName, *, per_host: Duration = 0.0, **settings: Any
) -> ImportReport:
    """Add the feeds of an OPML file, those in nested outlines as well.

    The name of a source is its URL; its host, for limits and because feeds of a host are alike, the
    registered domain. Feeds whose URL `check_url` refuses are left out, and listed in the result.

    Arguments:
        per_host: least time between two fetches of a host; 0: as it is set, or none.
        settings: of all new sources, such as `max_interval`, as for `Scheduler.add`.

    Raises:
        ValueError: the file is not OPML, or an argument is out of range. Nothing is added.
    """
    rows, refusals = [], []
    feeds = read_opml(path)
    for feed in feeds:
        try:
            url = check_url(feed.url)
        except ValueError as error:
            refusals.append(f"line {feed.line}: {error}")
        else:
            rows.append({"source": url, "host": host_of(url), **settings})
    return _add(scheduler, rows, per_host, refusals)


def export_opml(
    scheduler: Scheduler | Stores, path: PathName, titles: dict[str, str] | None = None
) -> int:
    """Write the sources whose names are URLs as OPML, and return how many.

    Arguments:
        titles: by URL, such as those that `memory.titles_beside` returns; a source without one has
            its URL as title.
    """
    title_of = titles or {}
    urls = [name for name in scheduler.sources() if name.startswith(("http://", "https://"))]
    return write_opml(path, ((url, title_of.get(url, "")) for url in urls), "Sources")


async def import_sitemap(
    scheduler: Scheduler | Stores,
    address: str,
    client: Client,
    *,
    per_host: Duration = 0.0,
    **settings: Any,
) -> ImportReport:
    """Add the pages that a sitemap lists, and those of the sitemaps in it if it is an index.

    Sitemaps are fetched one after the other, `per_host` apart, at most 100, of which one that
    cannot be fetched or read is left out, and listed in the result; so are those of other hosts
    (registered domains) than that of the address, and pages of other hosts. At most 50,000 pages
    are added. A crawler whose `Memory` is given the `pages` of the result reads robots.txt for
    them.

    Arguments:
        address: URL of the sitemap.
        client: which fetches.
        per_host: least time between two fetches of a host; 0: as it is set, or none.
        settings: of all new sources, as for `import_opml`.

    Raises:
        ValueError: the address is not a URL, an argument is out of range, or no sitemap can be
            read. Nothing is added.
    """
    first, wait = check_url(address), seconds("per_host", per_host)
    host, maps = host_of(first), {first: None}
    pages, refusals, number_read = dict[str, None](), list[str](), 0
    beyond = Counter[tuple[str, int]]()  # what is left out, of which there may be millions
    for number, url in enumerate(_growing(maps)):
        if number:
            await asyncio.sleep(wait)
        try:
            response = await client.get(url)
            if not response.is_document:
                raise ValueError(f"HTTP {response.status}")
            sitemap = parse_sitemap(response.body)
        except (FetchError, ValueError) as error:
            refusals.append(f"{url}: {error}")
            continue
        number_read += 1
        own_links = [entry.url for entry in sitemap.entries if host_of(entry.url) == host]
        links, most = (maps, _MOST_MAPS) if sitemap.is_index else (pages, MOST_ENTRIES)
        for link in own_links:
            if len(links) < most:
                links[link] = None
            elif link not in links:
                beyond["sitemaps" if sitemap.is_index else "pages", most] += 1
        if number_left_out := len(sitemap.entries) - len(own_links) + sitemap.refused:
            refusals.append(f"{url}: {number_left_out:,} entries that are no URL of {host}")
    if not number_read:
        raise ValueError(f"no sitemap can be read: {refusals[0]}")
    refusals += [f"{n:,} {kind} after the first {most:,}" for (kind, most), n in beyond.items()]
    rows = [{"source": url, "host": host, **settings} for url in pages]
    return replace(_add(scheduler, rows, per_host, refusals), pages=tuple(pages))


def _growing(keys: dict[str, None]) -> Iterator[str]:
    """Return the keys of a dictionary to which more may be added meanwhile."""
    position = 0
    while position < len(keys):
        for key in list(keys)[position:]:
            position += 1
            yield key


def import_csv(
    scheduler: Scheduler | Stores, path: PathName, *, per_host: Duration = 0.0, **settings: Any
) -> ImportReport:
    """Add the sources of a table: source and, optionally, host, cost, min_interval, max_interval,
    half_life (such as 24h, or seconds), tag, weight and paused (yes or no).

    Arguments:
        per_host: least time between two fetches of a host; 0: as it is set, or none.
        settings: of new sources for which the table does not say otherwise, as for `import_opml`.

    Raises:
        ValueError: the file is not such a table; the message names the row. Nothing is added.
    """
    columns = table.read(path, _COLUMNS, "source")
    rows, to_pause = [], []
    for i, text in enumerate(columns.text["source"]):
        try:
            name, host = source_of(text)
            row: dict[str, Any] = {"source": name, "host": host, **settings}
            if cell := columns.text.get("host", {i: ""})[i]:
                row["host"] = cell
            for key in ("cost", "weight"):
                if key in columns.number:
                    row[key] = float(columns.number[key][i])
            if cell := columns.text.get("tag", {i: ""})[i]:
                row["tag"] = cell
            for key in _DURATIONS:
                if cell := columns.text.get(key, {i: ""})[i]:
                    row[key] = float(cell) if table.is_number(cell) else cell
            pause = columns.text.get("paused", {i: ""})[i]
            if pause.lower() not in _PAUSED:
                raise ValueError(f"paused is {pause!r}; write yes or no")
            if _PAUSED[pause.lower()] and name not in scheduler:
                to_pause.append(name)
        except ValueError as error:
            raise ValueError(f"{columns.row(i)}: {error}") from None
        rows.append(row)
    try:
        with scheduler.together():
            report = _add(scheduler, rows, per_host, [])
            for name in dict.fromkeys(to_pause):
                scheduler.pause(name)
    except ValueError as error:
        number, _, text = str(error).removeprefix("source ").partition(": ")
        if isinstance(scheduler, Stores) or not number.isdecimal():
            raise
        raise ValueError(f"{columns.row(int(number))}: {text}") from None
    return report


def read_changes(scheduler: Scheduler, path: PathName) -> Callable[[], int]:
    """Read changes of settings of sources from a file, and return a function that makes them, all
    or, if one is refused, none, and returns of how many sources. Others can use the store while the
    file is read.

    The file is a table (.csv) whose header names `source` and the settings that change, in which an
    empty cell changes nothing; or it has a JSON object a line (.jsonl), in which null means
    none: no host, maximum interval, half-life or tag of its own. The settings are those of
    `Scheduler.update`.

    Raises:
        ValueError: the file is not such a file; the message names the line and the column. So do
            errors of the function.
    """
    rows, lines, names = [], [], {*scheduler.sources()}
    for line, cells in _lines(path):
        row = {}
        for column, value in cells.items():
            try:
                row[column] = _setting(names, column, value)
            except ValueError as error:
                raise ValueError(f"{path}, line {line}, column {column}: {error}") from None
        if "source" not in row:
            raise ValueError(f"{path}, line {line}, column source: it is missing")
        rows.append(row)
        lines.append(line)

    def change() -> int:
        try:
            return scheduler.update_many(rows)
        except ValueError as error:  # what several columns or lines say together
            number, _, text = str(error).removeprefix("source ").partition(": ")
            line = lines[int(number)] if number.isdecimal() else 0
            place = f"{path}, line {line}" if line else f"{path}"
            raise ValueError(f"{place}: {text if line else error}") from None

    return change


def _lines(path: PathName) -> Iterator[tuple[int, dict[str, Any]]]:
    """Return the number of each line of a file of changes, and what it says, by column."""
    with open(regular(path), encoding="utf-8-sig", newline="") as file:
        try:
            lines = file.readlines()
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not UTF-8 text; save it as UTF-8 and try again") from None
    if fspath(path).lower().endswith(".csv"):
        mark = table.separator_of(next(filter(str.strip, lines), ""))
        reader = csv.DictReader(lines, restval="", strict=True, delimiter=mark)
        try:
            columns = reader.fieldnames or ()
            if "source" not in columns:
                raise ValueError(f"{path}, line 1: there is no column source")
            if len({*columns}) < len(columns):
                raise ValueError(f"{path}, line 1: a column appears twice")
            for cells in reader:
                if None in cells:
                    raise ValueError(
                        f"{path}, line {reader.line_num}: there are more cells than columns"
                    )
                yield reader.line_num, {key: x for key, x in cells.items() if x != ""}
        except csv.Error as error:
            raise ValueError(f"{path}, line {reader.line_num + 1}: {error}") from None
        return
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line, object_pairs_hook=_each_once) if line.strip() else None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: it is not JSON: {error}") from None
        if entry is not None and not isinstance(entry, dict):
            raise ValueError(f"{path}, line {number}: it is {shown(entry)}; give an object")
        if entry:
            yield number, entry


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("an object has two values of the same name")
    return values


def _setting(names: Set[str], column: str, value: Any) -> Any:
    """Return the value of a cell of a file of changes, checked.

    Arguments:
        names: of all sources.
    """
    if column == "source":
        name = source_of(value)[0] if isinstance(value, str) else ""
        if name not in names:
            raise ValueError(f"there is no source {shown(value)}")
        return name
    if column == "paused":
        if isinstance(value, bool):
            return value
        if str(value).lower() not in _PAUSED:
            raise ValueError(f"paused is {shown(value)}; write yes or no")
        return _PAUSED[str(value).lower()]
    if isinstance(value, str) and column not in ("host", "tag") and table.is_number(value):
        value = float(value)
    SourceSettings(shortest=0.0).changed({column: value})
    return value


def export_csv(scheduler: Scheduler | Stores, path: PathName) -> int:
    """Write all sources with their settings, as `import_csv` reads them; return how many."""
    columns: dict[str, list[str]] = {column.name: [] for column in _COLUMNS}
    for name in scheduler.sources():
        try:
            settings = {"source": name, **scheduler.settings(name)}
        except UnknownSource:  # another process has removed it since
            continue
        settings["paused"] = "yes" if settings["paused"] else ""
        for key, column in columns.items():
            value = settings[key]
            column.append(
                "" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)
            )
    table.write(path, columns)
    return len(columns["source"])


def import_log(
    scheduler: Scheduler | Stores, path: PathName, *, per_host: Duration = 0.0, **log: Any
) -> ImportReport:
    """Add the sources of a log of items, and start from the rates and worths that it shows.

    The log is that of `ephemeral-crawl fit`: one row an item, with source, published and,
    optionally, utility and item. Its end is taken for the time until which all items are known.

    Arguments:
        log: further arguments of `ItemLog.from_csv`, such as `end`.

    Raises:
        ValueError: the file is not such a log, has no dates or some that lie far from all others,
            or is of one moment. Nothing is added.
    """
    history = ItemLog.from_csv(path, **log)
    if not history.origin:
        raise ValueError(
            f"{path}: the times are numbers without a date; give time stamps or Unix times"
        )
    if history.published[0] == history.published[-1]:
        raise ValueError(
            f"{path}: all items are of the same moment, which does not tell how often sources "
            "publish; give a longer log"
        )
    if (far := history.far).any():
        raise ValueError(f"{path}: {far_text(history, far)}. Correct their dates, or remove them")
    try:
        names = [source_of(name) for name in history.names]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    origin, unit = datetime.fromisoformat(history.origin).timestamp(), 3600.0 * HOURS[history.unit]
    start, end = origin + history.start * unit, origin + history.end * unit
    # Of all spellings of a URL.
    items: dict[str, list[tuple[Time, float]]] = {name: [] for name, _ in names}
    for (name, _), rows_of in zip(names, history.by_source(), strict=True):
        times = (origin + history.published[rows_of] * unit).tolist()
        items[name] += zip(times, history.utility[rows_of].tolist(), strict=True)
    lessons = []
    for name, pairs in items.items():
        try:
            lessons.append(Lesson.of_items(name, pairs, start, end))
        except ValueError as error:
            raise ValueError(f"{path}: of the items of {name}, {error}") from None
    rows = [{"source": name, "host": host} for name, host in names]
    report = _add(scheduler, rows, per_host, [])
    return replace(report, taught=scheduler.teach(lessons))


def import_fleet(
    scheduler: Scheduler | Stores,
    path: PathName,
    *,
    unit: str = "hour",
    items: float = 20.0,
    per_host: Duration = 0.0,
) -> ImportReport:
    """Add the sources of a fleet, such as `ephemeral-crawl fit` writes, and start from its rates,
    worths, half-lives and costs.

    Arguments:
        unit: unit of time of its rates.
        items: how much a rate is to be believed, in items.

    Raises:
        ValueError: the file is not such a fleet, or a number is out of range. Nothing is added.
    """
    fleet, hours = Sources.from_csv(path), HOURS[unit]
    rows, lessons = [], []
    for i, text in enumerate(fleet.names):
        half_life = math.log(2.0) / float(fleet.decay_rate[i]) * 3600.0 * hours
        rate = float(fleet.arrival_rate[i]) / hours
        try:
            name, host = source_of(text)
            settings = {
                "host": (fleet.hosts[i] if fleet.hosts else "") or host,
                "cost": float(fleet.cost[i]),
                "half_life": max(half_life, 1.0),
            }
            _ = SourceSettings().changed(settings)
            lessons.append(Lesson.of_rate(name, rate, float(fleet.mean_utility[i]), items))
        except ValueError as error:
            raise ValueError(f"{path}, source {i + 1}: {error}") from None
        rows.append({"source": name, **settings})
    report = _add(scheduler, rows, per_host, [])
    return replace(report, taught=scheduler.teach(lessons))


IMPORTS = {"opml": import_opml, "csv": import_csv}  # by what `kind_of` returns


def _add(
    scheduler: Scheduler | Stores,
    rows: list[dict[str, Any]],
    per_host: Duration,
    refusals: Iterable[str],
) -> ImportReport:
    interval = seconds("per_host", per_host)
    hosts = frozenset(row["host"] for row in rows if row["host"])
    number = scheduler.add_many(rows, exist_ok=True)
    if interval:
        scheduler.limit_hosts(dict.fromkeys(hosts, interval))
    return ImportReport(number, len(rows) - number, refused=tuple(refusals), hosts=hosts)
