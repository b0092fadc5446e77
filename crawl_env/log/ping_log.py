"""`PingLog`: a log of the pings with which sources announced news, with source and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.errors import as_array, check_choice, check_names, check_range, counted
from crawl_env.files import table
from crawl_env.files.table import Column
from crawl_env.log.clock import HOURS
from crawl_env.log.event_log import (
    EventLog,
    distinct,
    read_sources,
    read_times,
    span_of,
    time_of,
)
from crawl_env.numerics import BoolArray, FloatArray, IntArray

_COLUMNS = (Column("source", "text"), Column("time", "time"))
_NAMED = 5  # sources in a message
_LEVEL = 1e-4  # chance that a Poisson log of pings begins so late, or ends so early, as is noted


@dataclass(frozen=True, eq=False, init=False)
class PingLog(EventLog):
    """Log of the n pings that N sources sent within a span of time, oldest first.

    A ping says that a source has news, at the time when the crawler received it; it may be false,
    and news may come without one.

    Arguments:
        names: names of the sources, including those without pings.
        source: source of each ping, as a position in `names`.
        time: times at which the pings were received, in units of time; pings are sorted by it.
        start, end: the span that the log covers, `end` excluded; by default from the first ping to
            just after the last.
        unit: unit of time: "second", "minute", "hour" or "day".
        origin: the moment of time 0 in ISO 8601, or "" if it is unknown.
        notes: sentences on what was assumed or noticed when the log was read.

    Raises:
        ValueError: lengths differ, a number is out of range, or a ping is outside the span.

    >>> pings = PingLog(["a", "b"], source=[0, 1, 0], time=[7, 1, 0.5])
    >>> pings
    PingLog(3 pings of 2 sources, 0.5 to 7 hours)
    >>> pings.counts
    array([2, 1])
    """

    names: tuple[str, ...]  # (N,)
    source: IntArray  # (n,) position in `names`
    time: FloatArray  # (n,) time, ascending
    start: float  # time
    end: float  # time
    unit: str
    origin: str
    notes: tuple[str, ...]

    def __init__(
        self,
        names: Sequence[str],
        source: ArrayLike,
        time: ArrayLike,
        start: float | None = None,
        end: float | None = None,
        unit: str = "hour",
        origin: str = "",
        notes: Sequence[str] = (),
    ) -> None:
        check_choice("unit", unit, HOURS)
        labels = check_names(names)
        which, times = as_array("source", source), as_array("time", time)
        if not (times.ndim == 1 and which.shape == times.shape):
            raise ValueError(
                f"source and time have shapes {which.shape} and {times.shape}; give one number per "
                "ping"
            )
        check_range("source", which, 0, len(labels), open_high=True, whole=True, element="ping")
        check_range("time", times, element="ping")
        first, last = span_of(times, start, end, "ping", "received")
        order = np.argsort(times, kind="stable")
        which, times = which[order].astype(np.intp), times[order]
        self._fill(labels, which, times, first, last, unit, origin, tuple(notes))

    def __repr__(self) -> str:
        return (
            f"PingLog({counted(len(self), 'ping')} of {counted(len(self.names), 'source')}, "
            f"{self.start:g} to {self.end:g} {self.unit}s)"
        )

    @property
    def times(self) -> FloatArray:
        """The time of each ping, (n,): `time`."""
        return self.time

    def aligned_with(self, items: EventLog, drop_unknown: bool = False) -> PingLog:
        """Return the pings on the clock of a log of items, for its sources and its span.

        Pings outside the span of the log are left out, and counted in `notes`, since what they
        announced is not known.

        Arguments:
            items: an `ItemLog`; its unit, origin, names and span are those of the result.
            drop_unknown: leave out, and count in `notes`, the pings of sources that the log lacks.

        Raises:
            ValueError: one log has dates and the other numbers; there are pings of unknown sources,
                and `drop_unknown` is False; or all pings are outside the span.

        >>> from crawl_env import ItemLog
        >>> items = ItemLog(["a", "b"], [0, 1], [0, 2], [1, 1], 0, 3, origin="2026-03-02T00:00:00Z")
        >>> pings = PingLog(["b"], [0, 0], [1, 190], unit="minute", origin="2026-03-02T00:00:00Z")
        >>> aligned = pings.aligned_with(items)
        >>> aligned, aligned.counts
        (PingLog(1 ping of 2 sources, 0 to 3 hours), array([0, 1]))
        >>> aligned.notes
        ('1 of 2 pings are outside the time of the items and are left out.',)
        """
        if bool(self.origin) != bool(items.origin):
            dated, plain = ("pings", "items") if self.origin else ("items", "pings")
            raise ValueError(
                f"the times of the {dated} are dates (from {self.origin or items.origin} on), and "
                f"those of the {plain} are numbers; write both as dates or Unix times, or both as "
                "numbers that count from the same moment"
            )
        position = {name: i for i, name in enumerate(items.names)}
        place = np.array([position.get(name, -1) for name in self.names], dtype=np.intp)
        source, notes = place[self.source], list(self.notes)
        if (strange := source < 0).any():
            notes.append(self._strangers(strange, drop_unknown))
        time = self.time * (HOURS[self.unit] / HOURS[items.unit])
        if self.origin:
            shift = np.datetime64(self.origin[:-1]) - np.datetime64(items.origin[:-1])
            time = time + shift / np.timedelta64(1, "s") / (3600 * HOURS[items.unit])
        inside = (time >= items.start) & (time < items.end)
        usable = inside & ~strange
        if (outside := int((~inside & ~strange).sum())) and not usable.any():
            first, last = (items.date(float(t)) for t in (time.min(), time.max()))
            raise ValueError(
                f"no ping is within the time of the items, {items.date(items.start)} to "
                f"{items.date(items.end)}: the pings are from {first} to {last}; check the dates, "
                "the time zones and the unit of both"
            )
        if outside:
            notes.append(
                f"{outside:,} of {len(self):,} pings are outside the time of the items and are "
                "left out."
            )
        notes += _late(time[usable], items)
        details = (items.start, items.end, items.unit, items.origin, notes)
        return PingLog(items.names, source[usable], time[usable], *details)

    def _strangers(self, strange: BoolArray, drop: bool) -> str:
        """Return the note on pings of sources that a log of items lacks.

        Raises:
            ValueError: these must not be dropped.
        """
        counts = np.bincount(self.source[strange], minlength=len(self.names))
        order = np.argsort(-counts, kind="stable")[: (counts > 0).sum()]
        names = ", ".join(self.names[i] for i in order[:_NAMED]) + ", …" * (order.size > _NAMED)
        note = (
            f"{counts.sum():,} of {len(self):,} pings are of {counted(order.size, 'source')} that "
            f"the log of items lacks ({names})"
        )
        if not drop:
            raise ValueError(
                f"{note}; correct their names, or leave them out (--drop-unknown, drop_unknown)"
            )
        return f"{note}; they are left out."

    def _part(
        self, names: Sequence[str], source: IntArray, index: IntArray, start: float, end: float
    ) -> PingLog:
        details = (self.unit, self.origin, self.notes)
        return PingLog(names, source[index], self.time[index], start, end, *details)

    @staticmethod
    def from_csv(
        path: str | PathLike[str],
        unit: str = "hour",
        start: float | str | None = None,
        end: float | str | None = None,
        sources: Sequence[str] | None = None,
        time_unit: str = "auto",
        drop_duplicates: bool = False,
    ) -> PingLog:
        """Read a log from a table with a header, as CSV, gzipped CSV (.gz) or Parquet (.parquet).

        The table has one row per ping, in any order, and the columns

        - `source`: name;
        - `time`: numbers, in `unit`s since any moment or Unix times; or time stamps in ISO 8601 or
          RFC 822, all with a time zone or all without (UTC). Unix times and stamps become `unit`s
          since the midnight (UTC) before the first ping.

        What was assumed of the table, and rows that repeat another, are said in `notes`. To use
        the pings with a log of items, put them on its clock with `aligned_with`.

        Arguments:
            start, end: the span that the log covers, as numbers or time stamps like in the table.
            sources: all names in the order wanted, including sources without pings; by default the
                names of the table in order of first appearance.
            time_unit: of numbers in `time`: second, minute, hour, day, unix-s, unix-ms, unix-us or
                unix-ns; "auto" recognises Unix times, and takes other numbers as `unit`s.
            drop_duplicates: keep the first of the rows with the same source and time; otherwise
                each counts as a ping.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the table is invalid; the message names the file and the row.
        """
        hours = HOURS[check_choice("unit", unit, HOURS)]
        rows = table.read(path, _COLUMNS, "ping")
        names, source = read_sources(rows, sources, "ping")
        time, origin, notes = read_times(rows, "time", "ping", unit, time_unit)
        columns, same = (time, source), "source and time"
        index, remarks = distinct(columns, "pings", same, "ping", drop_duplicates)
        first, last = time_of("start", start, origin, hours), time_of("end", end, origin, hours)
        with rows.located(lambda i: int(index[i])):
            notes = [*rows.notes, *notes, *remarks]
            return PingLog(names, source[index], time[index], first, last, unit, origin, notes)

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write the log, so that `from_csv` reads back the same numbers.

        Files whose name ends in .gz are gzipped. Span, unit and origin are not written.
        """
        columns = {
            "source": [self.names[i] for i in self.source],
            "time": map(repr, self.time.tolist()),
        }
        table.write(path, columns)


def _late(time: FloatArray, items: EventLog) -> list[str]:
    """Return notes on pings that begin much after the items, or end much before them."""
    if not time.size:
        return []
    # All of n uniform times leave out a part x of the span with probability (1 − x)^n.
    longest = items.span * (1 - _LEVEL ** (1 / time.size))
    clauses = []
    if time.min() - items.start > longest:
        clauses.append(f"The first ping is at {items.date(float(time.min()))}")
    if items.end - time.max() > longest:
        the = "the" if clauses else "The"
        clauses.append(f"{the} last ping is at {items.date(float(time.max()))}")
    if not clauses:
        return []
    return [
        f"{' and '.join(clauses)}, but the items are from {items.date(items.start)} to "
        f"{items.date(items.end)}; if pings were not recorded all the time, limit the items to "
        "the time when they were, as `fit` does with --from and --until."
    ]
