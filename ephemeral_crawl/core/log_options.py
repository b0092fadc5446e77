"""The options with which commands read a log of items, and one of pings."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crawl_env import ItemLog, PingLog
from crawl_env.errors import counted
from crawl_env.files.table import is_number
from crawl_env.log.clock import unix_moments, unix_unit_of

_NAMED = 3  # items in a message
_DATE = re.compile(r"(?:19|20)\d\d(?:\d{4})?", re.ASCII)


@dataclass(kw_only=True)
class LogOptions:
    """How a log of items is read."""

    unit: str = "hour"
    """Unit of time of the log and of the rates: second, minute, hour or day. Numbers in the column
    published are in this unit, unless they are Unix times."""
    time_unit: str = "auto"
    """Unit of the numbers in the column published, if it is another one: second, minute, hour, day,
    unix-s, unix-ms, unix-us or unix-ns. By default Unix times are recognised."""
    drop_duplicates: bool = False
    """Of rows with the same identifier in the column item, keep only the earliest publication;
    without this column, of rows with the same source, time and utility. Of pings, if there are any,
    keep the first with the same source and time."""
    drop_outliers: bool = False
    """Drop items that lie so far before or after all others that their date must be wrong."""

    def read(
        self,
        items: Path,
        curves: Path | None = None,
        since: str = "",
        until: str = "",
    ) -> ItemLog:
        """Return a log, whose notes say what was assumed and left out.

        Arguments:
            since, until: the part of the log to read, as numbers or time stamps, or "". A limit
                that is given is believed: items within it are not refused as too far from others.

        Raises:
            ValueError: the log is invalid or covers no time, or items lie too far from all others.
        """
        whole = ItemLog.from_csv(
            items,
            curves,
            unit=self.unit,
            time_unit=self.time_unit,
            drop_duplicates=self.drop_duplicates,
        )
        log = whole.covering(
            given_time("--from", since, whole), given_time("--until", until, whole)
        )
        if not (since or until) and log.published[0] == log.published[-1]:
            raise ValueError(
                f"{items}: all items are of the same moment, which does not tell how often sources "
                "publish; give a longer log. Of all commands only `fit` takes this one, if it is "
                "told the time that it covers by --from and --until"
            )
        if outside := len(whole) - len(log):
            log = log.with_notes(f"Left out: {counted(outside, 'item')} outside this time.")
        early = np.arange(len(log)) < len(log) // 2
        is_believed = np.where(early, since != "", until != "")
        far = log.far & ~is_believed
        if not far.any():
            return log.with_notes(*_hole(log))
        text = far_text(log, far)
        if not self.drop_outliers:
            raise ValueError(
                f"{items}: {text}. Correct their dates, or drop them with --drop-outliers. If "
                "they are right, of all commands only `fit` takes them, if it is told the time "
                "that the log covers by --from and --until"
            )
        near = log.published[~far]
        start = float(near.min()) if far[0] else log.start
        end = float(np.nextafter(near.max(), np.inf)) if far[-1] else log.end
        return log.covering(start, end).with_notes(f"{text}. They are left out.")


@dataclass(kw_only=True)
class SignalOptions(LogOptions):
    """How a log of items is read, and one of pings."""

    signals: Path | None = None
    """Log of the pings with which sources announced items: a table with the columns source, time
    (as published); .csv, .csv.gz or .parquet."""
    drop_unknown: bool = False
    """Leave out pings of sources that the log of items lacks."""

    def pings(self, log: ItemLog) -> PingLog | None:
        """Return the pings on the clock of a log, for its sources and its span; None if no log of
        pings was given. Its notes say what was assumed and left out.

        Raises:
            ValueError: the log of pings is invalid, or does not fit the log of items.
        """
        if self.signals is None:
            return None
        pings = PingLog.from_csv(
            self.signals,
            unit=self.unit,
            time_unit=self.time_unit,
            drop_duplicates=self.drop_duplicates,
        )
        try:
            return pings.aligned_with(log, self.drop_unknown)
        except ValueError as error:
            raise ValueError(f"{self.signals}: {error}") from None


def _hole(log: ItemLog) -> list[str]:
    """Return a note on the longest time in which no source published, if it is more than twice as
    long as any other and hardly one in 10,000 Poisson logs has such a time; else nothing."""
    gaps = np.diff(log.published)
    if gaps.size < 2 or not gaps.any():
        return []
    longest = int(gaps.argmax())
    part = gaps[longest] / (log.end - log.start)
    if gaps.size * (1.0 - part) ** gaps.size > 1e-4:
        return []
    if gaps[longest] <= 2.0 * np.delete(gaps, longest).max():
        return []
    first, last = (log.date(float(log.published[longest + i])) for i in (0, 1))
    return [
        f"No source published anything between {first} and {last}. If items of this time are "
        f"missing, all rates are {part:.0%} too low: leave out what is before or after it, as "
        "`fit` does with --from or --until."
    ]


def far_text(log: ItemLog, far: np.ndarray) -> str:
    """Return which items lie far from all others, as a sentence without its full stop.

    Arguments:
        far: whether each item does, (n,), as `ItemLog.far` says; at least one.
    """
    near = log.published[~far]
    return (
        f"{far.sum():,} of {len(log):,} items lie far from all others, which are from "
        f"{log.date(float(near.min()))} to {log.date(float(near.max()))}: "
        f"{_items_text(log, np.flatnonzero(far))}"
    )


def _items_text(log: ItemLog, rows: np.ndarray) -> str:
    """Return the sources and dates of some items of a log, the farthest first."""
    middle = float(np.median(log.published))
    rows = rows[np.argsort(-np.abs(log.published[rows] - middle), kind="stable")]
    items = [f"{log.names[log.source[i]]} at {log.date(log.published[i])}" for i in rows[:_NAMED]]
    return ", ".join(items) + f" and {rows.size - _NAMED} more" * (rows.size > _NAMED)


def given_time(option: str, text: str, log: ItemLog) -> float | str | None:
    """Return the number or time stamp that an option holds, or None if it is empty; of a log with
    dates, a Unix time becomes a time stamp, and what may be a year or a day (2024, 20240501) as
    well as a number of hours is refused."""
    if not text:
        return None
    if is_number(text):
        number = float(text)
        if log.origin and (unit := unix_unit_of(number)):
            return f"{unix_moments(np.array([number]), unit)[0]}Z"
        if log.origin and _DATE.fullmatch(text):
            raise ValueError(
                f"{option} is {text}, which may be a date or {log.unit}s; write a date as "
                f"2024-05-01, and {log.unit}s as {text}.0"
            )
        return number
    if not log.origin:
        raise ValueError(
            f"{option} is {text!r}, but the log's times are numbers; give a number, in {log.unit}s"
        )
    return text


def digest(log: ItemLog, pings: PingLog | None = None) -> str:
    """Return a hash of a log, and of a log of pings."""
    hasher = hashlib.sha256(log.digest().encode())
    for array in () if pings is None else (pings.source, pings.time):
        hasher.update(array.tobytes())
    return hasher.hexdigest()[:24]
