"""`ItemLog`: a log of published items with source, time, initial utility and recorded decay."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.errors import ElementError, as_array, check_choice, check_names, check_range, unknown
from crawl_env.files import table
from crawl_env.files.table import Column, Moments, Table
from crawl_env.log.clock import HOURS, far_items, time_unit_of, unix_moments
from crawl_env.log.decay_curves import DecayCurves
from crawl_env.numerics import BoolArray, FloatArray, IntArray

_COLUMNS = (
    Column("source", "text"),
    Column("published", "time"),
    Column("utility", required=False),
    Column("item", "text", required=False),
)


@dataclass(frozen=True, eq=False, init=False)
class ItemLog:
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
        if not times.size and (start is None or end is None):
            raise ValueError("the log has no items; give its start and end")
        first = float(times.min()) if start is None else start
        last = float(np.nextafter(times.max(), np.inf)) if end is None else end
        _check_span(times, first, last)
        which = which.astype(np.intp)
        if np.any(np.diff(times) < 0):
            order = np.argsort(times, kind="stable")
            which, times, initial = which[order], times[order], initial[order]
            curves = curves.select(order) if curves is not None else None
        for array in (which, times, initial):
            array.flags.writeable = False
        span = (float(first), float(last))
        values = (labels, which, times, initial, *span, curves, unit, origin, tuple(notes))
        for name, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        """Return n, the number of items."""
        return int(self.published.size)

    def __repr__(self) -> str:
        curves = ", with curves" if self.curves is not None else ""
        return (
            f"ItemLog({len(self)} items of {len(self.names)} sources, {self.start:g} to "
            f"{self.end:g} {self.unit}s{curves})"
        )

    def __reduce__(self) -> Any:  # copies are validated and made read-only like any other log
        return ItemLog, tuple(getattr(self, name) for name in self.__dataclass_fields__)

    @property
    def span(self) -> float:
        """The length of the span that the log covers, time."""
        return self.end - self.start

    @property
    def far(self) -> BoolArray:
        """Whether each item lies so far before or after all others that its date must be wrong,
        (n,); see `crawl_env.log.clock.far_items`."""
        return far_items(self.published)

    def date(self, time: float) -> str:
        """Return a time as a date, or with its unit if the moment of time 0 is unknown."""
        if not self.origin:
            return f"{time:.15g} {self.unit}s"
        seconds = np.rint(time * HOURS[self.unit] * 3600).astype("timedelta64[s]")
        return f"{np.datetime64(self.origin[:-1], 's') + seconds}Z"

    def covering(self, start: float | str | None, end: float | str | None) -> ItemLog:
        """Return the log with the span [start, end), given as numbers or time stamps.

        The span may extend beyond the items; items outside it are dropped. None keeps the present
        limit.
        """
        hours = HOURS[self.unit]
        given = time_of("start", start, self.origin, hours)
        low = self.start if given is None else given
        given = time_of("end", end, self.origin, hours)
        high = self.end if given is None else given
        _check_order(low, high)
        inside = np.flatnonzero((self.published >= low) & (self.published < high))
        return self._part(self.names, self.source, inside, low, high)

    def between(self, start: float, end: float) -> ItemLog:
        """Return the part of the log published in [start, end), with the same sources.

        Raises:
            ValueError: the log does not cover this time.
        """
        if not self.start <= start < end <= self.end:
            raise ValueError(
                f"the log covers {self.start:g} to {self.end:g} {self.unit}s, not {start:g} to "
                f"{end:g}; choose a part of this span"
            )
        return self.covering(start, end)

    def select(self, names: Sequence[str]) -> ItemLog:
        """Return the log of the named sources only, in this order.

        Raises:
            ValueError: the log has no such source.
        """
        place = np.full(len(self.names), -1, dtype=np.intp)
        known = {name: i for i, name in enumerate(self.names)}
        for i, name in enumerate(names):
            if name not in known:
                raise unknown("source", name, self.names)
            place[known[name]] = i
        source = place[self.source]
        return self._part(names, source, np.flatnonzero(source >= 0), self.start, self.end)

    def with_notes(self, *notes: str) -> ItemLog:
        """Return the log with further notes."""
        log = copy.copy(self)
        object.__setattr__(log, "notes", (*self.notes, *notes))
        return log

    def _part(
        self, names: Sequence[str], source: IntArray, kept: IntArray, start: float, end: float
    ) -> ItemLog:
        curves = self.curves.select(kept) if self.curves is not None else None
        published, utility = self.published[kept], self.utility[kept]
        described = (self.unit, self.origin, self.notes)
        return ItemLog(names, source[kept], published, utility, start, end, curves, *described)

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
        names, source = _sources(rows, sources)
        published, origin, notes = _times(rows, unit, time_unit)
        notes = [*rows.notes, *notes]
        utility = rows.number.get("utility", np.ones(rows.n))
        kept, found = _distinct(rows, source, published, utility, drop_duplicates)
        notes += found
        recorded = None
        if curves is not None:
            given = rows.text.get("item")
            item = [str(i) if given is None else given[i] for i in kept]
            recorded = DecayCurves.from_csv(curves, item)
        first, last = time_of("start", start, origin, hours), time_of("end", end, origin, hours)
        with rows.located(lambda i: int(kept[i])):
            return ItemLog(
                names,
                source[kept],
                published[kept],
                utility[kept],
                first,
                last,
                recorded,
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


def time_of(name: str, value: float | str | None, origin: str, hours: float) -> float | None:
    """Return a number as it is, and a time stamp as time since the origin in units of `hours`."""
    if value is None or not isinstance(value, str):
        return value
    if not origin:
        raise ValueError(f"{name} is {value!r}, but the items' times are numbers; give a number")
    try:
        stamp = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(f"{name} is {value!r}; give an ISO 8601 time stamp or a number") from None
    stamp = stamp if stamp.tzinfo is not None else stamp.replace(tzinfo=UTC)
    return (stamp - datetime.fromisoformat(origin)).total_seconds() / (3600 * hours)


def _times(rows: Table, unit: str, time_unit: str) -> tuple[FloatArray, str, list[str]]:
    """Return times in `unit`s, the moment of time 0 or "", and notes on how they were read."""
    times, notes = rows.time["published"], list[str]()
    if times.dtype.kind == "M":
        moments = cast(Moments, times)
        if time_unit != "auto":
            raise ValueError(
                f"{rows.path}: the column published holds time stamps, and a time unit "
                f"({time_unit}) is for numbers; leave it out"
            )
    else:
        numbers = np.asarray(times, dtype=np.float64)
        with rows.located():
            check_range("published", numbers, element="item")
            try:
                of_numbers = time_unit_of(numbers, unit, time_unit)
            except ValueError as error:
                raise ValueError(f"{rows.path}: {error}") from None
            if of_numbers in HOURS:
                return numbers * (HOURS[of_numbers] / HOURS[unit]), "", []
            moments = unix_moments(numbers, of_numbers)
        first, last = (x.astype("datetime64[s]") for x in (moments.min(), moments.max()))
        notes.append(
            f"The numbers in the column published are read as Unix times ({of_numbers}), from "
            f"{first}Z to {last}Z; if they are not, give the time unit (--time-unit)."
        )
    midnight = moments[~far_items(moments.astype(np.float64))].min().astype("datetime64[D]")
    since = (moments - midnight) / np.timedelta64(1, "s") / (3600 * HOURS[unit])
    return since, f"{midnight}T00:00:00Z", notes


def _distinct(
    rows: Table, source: IntArray, published: FloatArray, utility: FloatArray, drop: bool
) -> tuple[IntArray, list[str]]:
    """Return the rows to keep, and notes on those that repeat an item.

    Raises:
        ValueError: an identifier appears twice and `drop` is False, or is empty.
    """
    everything: IntArray = np.arange(rows.n)
    if (given := rows.text.get("item")) is None:
        order = np.lexsort((utility, published, source))
        alike = np.ones(rows.n - 1, dtype=bool)
        for column in (utility, published, source):
            alike &= np.diff(column[order]) == 0
        if not alike.any():
            return everything, []
        note = (
            f"{alike.sum():,} of {rows.n:,} rows repeat another one (same source, time and utility)"
        )
        if drop:
            return np.sort(order[np.append(True, ~alike)]), [f"{note}; they were dropped."]
        return everything, [
            f"{note} and count as items of their own; if they are the same items, drop them "
            "(--drop-duplicates)."
        ]
    if "" in given:
        raise ValueError(f"{rows.row(given.index(''))}: the item has no identifier; give it one")
    if not (repeated := rows.n - len(set(given))):
        return everything, []
    if not drop:
        try:
            with rows.located():
                check_names(given, "item")
        except ValueError as error:
            raise ValueError(
                f"{error}. In all, {repeated:,} of {rows.n:,} rows repeat an item; drop duplicates "
                "(--drop-duplicates) to keep the earliest publication of each"
            ) from None
    earliest: dict[str, int] = {}
    for i in np.argsort(published, kind="stable").tolist():
        earliest.setdefault(given[i], i)
    kept: IntArray = np.sort(np.fromiter(earliest.values(), np.intp, len(earliest)))
    return kept, [f"{repeated:,} of {rows.n:,} rows repeat an item; they were dropped."]


def _sources(rows: Table, wanted: Sequence[str] | None) -> tuple[tuple[str, ...], IntArray]:
    """Return the names of the sources, and the source of each row as a position among them."""
    cells = rows.text["source"]
    if not all(cells):
        unnamed = [i for i, cell in enumerate(cells) if not cell]
        others = table.all_rows(rows.path, unnamed)
        raise ValueError(f"{rows.row(unnamed[0])}: the item has no source; name it{others}")
    names = tuple(dict.fromkeys(cells) if wanted is None else wanted)
    place = {name: i for i, name in enumerate(names)}
    source = np.fromiter((place.get(cell, -1) for cell in cells), np.intp, len(cells))
    if np.any(source < 0):
        record = int(np.argmax(source < 0))
        raise ValueError(
            f"{rows.row(record)}: {unknown('source', cells[record], names)}. Name all sources, "
            "or read the whole log and choose sources with `select`"
        )
    return names, source


def _check_order(start: float, end: float) -> None:
    if not (np.isfinite(end - start) and start < end):
        raise ValueError(
            f"start is {start:g} and end is {end:g}; end must be after start, and both finite"
        )


def _check_span(published: FloatArray, start: float, end: float) -> None:
    _check_order(start, end)
    outside = (published < start) | (published >= end)
    if outside.any():
        i = int(np.argmax(outside))
        raise ElementError(
            f"published at {published[i]:g}, but the log covers {start:g} to {end:g}; give a wider "
            "span, or read the whole log and choose a part with `between`",
            i,
            f"item {i}",
        )
