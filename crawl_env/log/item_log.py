"""`ItemLog`: a log of published items with source, time, initial utility and recorded decay."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.errors import as_array, check_choice, check_names, check_range, counted
from crawl_env.files import table
from crawl_env.files.table import Column, Table
from crawl_env.log.clock import HOURS
from crawl_env.log.decay_curves import DecayCurves
from crawl_env.log.event_log import (
    EventLog,
    distinct,
    read_sources,
    read_times,
    span_of,
    time_of,
)
from crawl_env.numerics import FloatArray, IntArray

_COLUMNS = (
    Column("source", "text"),
    Column("published", "time"),
    Column("utility", required=False),
    Column("item", "text", required=False),
)


@dataclass(frozen=True, eq=False, init=False)
class ItemLog(EventLog):
    """Log of the n items that N sources published within a span of time, oldest first.

    Arguments:
        names: names of the sources, including those without items.
        source: source of each item, as a position in `names`.
        published: publication times, in units of time; items and their curves are sorted by it.
        utility: initial utility of each item, ≥ 0.
        start, end: the span that the log covers, `end` excluded; by default from the first item to
            just after the last. Rates are averages over the span: give it if it is known.
        curves: recorded decay curves of single items.
        unit: unit of time: "second", "minute", "hour" or "day".
        origin: the moment of time 0 in ISO 8601, or "" if it is unknown.
        notes: sentences on what was assumed or noticed when the log was read.

    Raises:
        ValueError: lengths differ, a number is out of range, or an item is outside the span.

    >>> log = ItemLog(["a", "b"], source=[0, 1, 0], published=[0.5, 1, 7], utility=[3, 1, 2])
    >>> log
    ItemLog(3 items of 2 sources, 0.5 to 7 hours)
    >>> log.between(0.5, 2).utility
    array([3., 1.])
    >>> log.counts, log.by_source()
    (array([2, 1]), [array([0, 2]), array([1])])
    """

    names: tuple[str, ...]  # (N,)
    source: IntArray  # (n,) position in `names`
    published: FloatArray  # (n,) time, ascending
    utility: FloatArray  # (n,) utility
    start: float  # time
    end: float  # time
    curves: DecayCurves | None  # of the n items
    unit: str
    origin: str
    notes: tuple[str, ...]

    def __init__(
        self,
        names: Sequence[str],
        source: ArrayLike,
        published: ArrayLike,
        utility: ArrayLike,
        start: float | None = None,
        end: float | None = None,
        curves: DecayCurves | None = None,
        unit: str = "hour",
        origin: str = "",
        notes: Sequence[str] = (),
    ) -> None:
        check_choice("unit", unit, HOURS)
        labels = check_names(names)
        which, times = as_array("source", source), as_array("published", published)
        initial = as_array("utility", utility)
        if not (times.ndim == 1 and which.shape == times.shape == initial.shape):
            raise ValueError(
                f"source, published and utility have shapes {which.shape}, {times.shape} and "
                f"{initial.shape}; give one number per item"
            )
        if curves is not None and len(curves) != times.size:
            raise ValueError(
                f"curves has {len(curves)} items and the log has {times.size}; give one entry per "
                "item"
            )
        check_range("source", which, 0, len(labels), open_high=True, whole=True, element="item")
        check_range("published", times, element="item")
        check_range("utility", initial, 0, element="item")
        first, last = span_of(times, start, end, "item", "published")
        which = which.astype(np.intp)
        if np.any(np.diff(times) < 0):
            order = np.argsort(times, kind="stable")
            which, times, initial = which[order], times[order], initial[order]
            curves = curves.select(order) if curves is not None else None
        columns = labels, which, times, initial
        self._fill(*columns, first, last, curves, unit, origin, tuple(notes))

    def __repr__(self) -> str:
        curves = ", with curves" if self.curves is not None else ""
        return (
            f"ItemLog({counted(len(self), 'item')} of {counted(len(self.names), 'source')}, "
            f"{self.start:g} to {self.end:g} {self.unit}s{curves})"
        )

    @property
    def times(self) -> FloatArray:
        """The time of each item, (n,): `published`."""
        return self.published

    def _part(
        self, names: Sequence[str], source: IntArray, index: IntArray, start: float, end: float
    ) -> ItemLog:
        curves = self.curves.select(index) if self.curves is not None else None
        published, utility = self.published[index], self.utility[index]
        details = (self.unit, self.origin, self.notes)
        return ItemLog(names, source[index], published, utility, start, end, curves, *details)

    @staticmethod
    def from_csv(
        path: str | PathLike[str],
        curves: str | PathLike[str] | None = None,
        unit: str = "hour",
        start: float | str | None = None,
        end: float | str | None = None,
        sources: Sequence[str] | None = None,
        time_unit: str = "auto",
        drop_duplicates: bool = False,
    ) -> ItemLog:
        """Read a log from a table with a header, as CSV, gzipped CSV (.gz) or Parquet (.parquet).

        The table has one row per item, in any order, and the columns

        - `source`: name;
        - `published`: numbers, in `unit`s since any moment or Unix times; or time stamps in ISO
          8601 or RFC 822, all with a time zone or all without (UTC). Unix times and stamps become
          `unit`s since the midnight (UTC) before the first item;
        - `utility`, optional: initial utility, ≥ 0; without it, 1 for every item;
        - `item`, optional: an identifier, to which curves refer; without it, row numbers from 0.

        What was assumed of the table, and what looks wrong in it, is said in `notes`: how times
        were read, and items that repeat another. Items whose date must be wrong are in `far`.

        Arguments:
            curves: a table `item, age, remaining` of recorded decay, with ages in `unit`s; see
                `DecayCurves`. If a first point is after age 0, the point (0, 1) is added.
            start, end: the span that the log covers, as numbers or time stamps like in the table.
            sources: all names in the order wanted, including sources without items; by default the
                names of the table in order of first appearance.
            time_unit: of numbers in `published`: second, minute, hour, day, unix-s, unix-ms,
                unix-us or unix-ns; "auto" recognises Unix times (see
                `crawl_env.log.clock.time_unit_of`), and takes other numbers as `unit`s.
            drop_duplicates: of the rows with the same `item`, keep only the earliest publication;
                otherwise an identifier that appears twice is refused. Without the column `item`,
                keep the first of the rows with the same source, time and utility.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the table is invalid; the message names the file and the row.
        """
        hours = HOURS[check_choice("unit", unit, HOURS)]
        rows = table.read(path, _COLUMNS, "item")
        names, source = read_sources(rows, sources, "item")
        published, origin, notes = read_times(rows, "published", "item", unit, time_unit)
        notes = [*rows.notes, *notes]
        utility = rows.number.get("utility", np.ones(rows.n))
        index, remarks = _distinct(rows, source, published, utility, drop_duplicates)
        notes += remarks
        decay_curves = None
        if curves is not None:
            identifiers = rows.text.get("item")
            item = [str(i) if identifiers is None else identifiers[i] for i in index]
            decay_curves = DecayCurves.from_csv(curves, item)
        first, last = time_of("start", start, origin, hours), time_of("end", end, origin, hours)
        with rows.located(lambda i: int(index[i])):
            return ItemLog(
                names,
                source[index],
                published[index],
                utility[index],
                first,
                last,
                decay_curves,
                unit,
                origin,
                notes,
            )

    def to_csv(self, path: str | PathLike[str], curves: str | PathLike[str] | None = None) -> None:
        """Write the log, and its curves, so that `from_csv` reads back the same numbers.

        Files whose name ends in .gz are gzipped. Span, unit and origin are not written.

        Raises:
            ValueError: `curves` is given for a log without any.
        """
        if curves is not None and self.curves is None:
            raise ValueError(f"the log has no curves to write to {curves}; omit `curves`")
        columns = {
            "item": map(str, range(len(self))),
            "source": [self.names[i] for i in self.source],
            "published": map(repr, self.published.tolist()),
            "utility": map(repr, self.utility.tolist()),
        }
        table.write(path, columns)
        if curves is not None and self.curves is not None:
            self.curves.to_csv(curves)

    def digest(self) -> str:
        """Return the SHA-256 of the log: of its names, unit and span, its items and their curves.

        It does not depend on how the files were written from which the log was read.

        >>> log = ItemLog(["a"], source=[0], published=[0.5], utility=[3], start=0, end=1)
        >>> log.digest()[:16]
        '68d160c2df96fc09'
        """
        span = (float(self.start), float(self.end))
        sha = hashlib.sha256(repr((self.names, *span, self.unit)).encode())
        numbers = [self.source.astype("<i8"), self.published, self.utility]
        if self.curves is not None:
            curves = self.curves
            numbers += [curves.first.astype("<i8"), curves.age, curves.remaining]
        for array in numbers:
            sha.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
        return sha.hexdigest()


def _distinct(
    rows: Table, source: IntArray, published: FloatArray, utility: FloatArray, drop: bool
) -> tuple[IntArray, list[str]]:
    """Return the rows to keep, and notes on those that repeat an item.

    Raises:
        ValueError: an identifier appears twice and `drop` is False, or is empty.
    """
    everything: IntArray = np.arange(rows.n)
    if (identifiers := rows.text.get("item")) is None:
        same = "source, time and utility"
        return distinct((utility, published, source), "rows", same, "item", drop)
    if "" in identifiers:
        row = rows.row(identifiers.index(""))
        raise ValueError(f"{row}: the item has no identifier; give it one")
    if not (repeats := rows.n - len(set(identifiers))):
        return everything, []
    if not drop:
        try:
            with rows.located():
                check_names(identifiers, "item")
        except ValueError as error:
            raise ValueError(
                f"{error}. In all, {repeats:,} of {rows.n:,} rows repeat an item; drop duplicates "
                "(--drop-duplicates) to keep the earliest publication of each"
            ) from None
    earliest: dict[str, int] = {}
    for i in np.argsort(published, kind="stable").tolist():
        earliest.setdefault(identifiers[i], i)
    index: IntArray = np.sort(np.fromiter(earliest.values(), np.intp, len(earliest)))
    return index, [f"{repeats:,} of {rows.n:,} rows repeat an item; they were dropped."]
