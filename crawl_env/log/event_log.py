"""`EventLog`: what logs of items and of pings have in common, and how their columns are read."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from crawl_env.errors import ElementError, check_range, shown, unknown
from crawl_env.files import table
from crawl_env.files.table import Moments, Table
from crawl_env.log.clock import HOURS, far_items, time_unit_of, unix_moments
from crawl_env.numerics import BoolArray, FloatArray, IntArray


class EventLog(ABC):
    """Log of n events at N sources within a span of time, oldest first; a frozen dataclass."""

    names: tuple[str, ...]  # (N,)
    source: IntArray  # (n,) position in `names`
    start: float  # time
    end: float  # time
    unit: str
    origin: str
    notes: tuple[str, ...]

    @property
    @abstractmethod
    def times(self) -> FloatArray:
        """The time of each event, (n,), ascending."""

    @abstractmethod
    def _part(
        self, names: Sequence[str], source: IntArray, index: IntArray, start: float, end: float
    ) -> Self:
        """Return the log of the events of `index`, with these names, sources (n,) and this span."""

    def _fill(self, *values: Any) -> None:
        """Set the fields to these values, of which the arrays become read-only."""
        for name, value in zip(cast(Any, self).__dataclass_fields__, values, strict=True):
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        """Return n, the number of events."""
        return int(self.times.size)

    def __reduce__(self) -> Any:  # copies are validated and made read-only like any other log
        fields = cast(Any, self).__dataclass_fields__
        return type(self), tuple(getattr(self, name) for name in fields)

    @property
    def counts(self) -> IntArray:
        """The number of events of each source, (N,)."""
        return np.bincount(self.source, minlength=len(self.names))

    def by_source(self) -> list[IntArray]:
        """Return the events of each source, as N arrays of positions in the log, ascending."""
        order = np.argsort(self.source, kind="stable")
        return np.split(order, np.cumsum(self.counts)[:-1])

    @property
    def span(self) -> float:
        """The length of the span that the log covers, time."""
        return self.end - self.start

    @property
    def far(self) -> BoolArray:
        """Whether each event lies so far before or after all others that its date must be wrong,
        (n,); see `crawl_env.log.clock.far_items`."""
        return far_items(self.times)

    def date(self, time: float) -> str:
        """Return a time as a date, or with its unit if the moment of time 0 is unknown."""
        if not self.origin:
            return f"{time:.15g} {self.unit}s"
        seconds = np.rint(time * HOURS[self.unit] * 3600).astype("timedelta64[s]")
        return f"{np.datetime64(self.origin[:-1], 's') + seconds}Z"

    def covering(self, start: float | str | None, end: float | str | None) -> Self:
        """Return the log with the span [start, end), given as numbers or time stamps.

        The span may extend beyond the events; events outside it are dropped. None keeps the present
        limit.
        """
        hours = HOURS[self.unit]
        limit = time_of("start", start, self.origin, hours)
        low = self.start if limit is None else limit
        limit = time_of("end", end, self.origin, hours)
        high = self.end if limit is None else limit
        _check_order(low, high)
        inside = np.flatnonzero((self.times >= low) & (self.times < high))
        return self._part(self.names, self.source, inside, low, high)

    def between(self, start: float, end: float) -> Self:
        """Return the part of the log in [start, end), with the same sources.

        Raises:
            ValueError: the log does not cover this time.
        """
        if not self.start <= start < end <= self.end:
            raise ValueError(
                f"the log covers {self.start:g} to {self.end:g} {self.unit}s, not {start:g} to "
                f"{end:g}; choose a part of this span"
            )
        return self.covering(start, end)

    def select(self, names: Sequence[str]) -> Self:
        """Return the log of the named sources only, in this order.

        Raises:
            ValueError: the log has no such source.
        """
        place = np.full(len(self.names), -1, dtype=np.intp)
        position = {name: i for i, name in enumerate(self.names)}
        for i, name in enumerate(names):
            if name not in position:
                raise unknown("source", name, self.names)
            place[position[name]] = i
        source = place[self.source]
        return self._part(names, source, np.flatnonzero(source >= 0), self.start, self.end)

    def with_notes(self, *notes: str) -> Self:
        """Return the log with further notes."""
        log = copy.copy(self)
        object.__setattr__(log, "notes", (*self.notes, *notes))
        return log


def time_of(name: str, value: float | str | None, origin: str, hours: float) -> float | None:
    """Return a number as it is, and a time stamp as time since the origin in units of `hours`."""
    if value is None or not isinstance(value, str):
        return value
    if not origin:
        what = f"{name} is {shown(value)}, but the log's times are numbers"
        raise ValueError(f"{what}; give a number")
    try:
        stamp = datetime.fromisoformat(value)
    except ValueError:
        advice = "give an ISO 8601 time stamp or a number"
        raise ValueError(f"{name} is {shown(value)}; {advice}") from None
    stamp = stamp if stamp.tzinfo is not None else stamp.replace(tzinfo=UTC)
    return (stamp - datetime.fromisoformat(origin)).total_seconds() / (3600 * hours)


def span_of(
    times: FloatArray, start: float | None, end: float | None, element: str, verb: str
) -> tuple[float, float]:
    """Return the span [start, end) of a log, by default from its first event to just after its
    last; `element` and `verb` are the words of messages.

    Raises:
        ElementError: an event is outside the span.
        ValueError: the span is empty, or there are no events and no span.
    """
    if not times.size and (start is None or end is None):
        raise ValueError(f"the log has no {element}s; give its start and end")
    first = float(times.min()) if start is None else float(start)
    last = float(np.nextafter(times.max(), np.inf)) if end is None else float(end)
    _check_order(first, last)
    outside = (times < first) | (times >= last)
    if outside.any():
        i = int(np.argmax(outside))
        raise ElementError(
            f"{verb} at {times[i]:g}, but the log covers {first:g} to {last:g}; give a wider "
            "span, or read the whole log and choose a part with `between`",
            i,
            f"{element} {i}",
        )
    return first, last


def _check_order(start: float, end: float) -> None:
    if not (np.isfinite(end - start) and start < end):
        raise ValueError(
            f"start is {start:g} and end is {end:g}; end must be after start, and both finite"
        )


def read_times(
    rows: Table, column: str, element: str, unit: str, time_unit: str
) -> tuple[FloatArray, str, list[str]]:
    """Return times in `unit`s, the moment of time 0 or "", and notes on how they were read."""
    times, notes = rows.time[column], list[str]()
    if times.dtype.kind == "M":
        moments = cast(Moments, times)
        if time_unit != "auto":
            raise ValueError(
                f"{rows.path}: the column {column} holds time stamps, and a time unit "
                f"({time_unit}) is for numbers; leave it out"
            )
    else:
        numbers = np.asarray(times, dtype=np.float64)
        with rows.located():
            check_range(column, numbers, element=element)
            try:
                of_numbers = time_unit_of(numbers, unit, time_unit, column, element)
            except ValueError as error:
                raise ValueError(f"{rows.path}: {error}") from None
            if of_numbers in HOURS:
                return numbers * (HOURS[of_numbers] / HOURS[unit]), "", []
            moments = unix_moments(numbers, of_numbers, column, element)
        first, last = (x.astype("datetime64[s]") for x in (moments.min(), moments.max()))
        notes.append(
            f"The numbers in the column {column} are read as Unix times ({of_numbers}), from "
            f"{first}Z to {last}Z; if they are not, give the time unit (--time-unit)."
        )
    midnight = moments[~far_items(moments.astype(np.float64))].min().astype("datetime64[D]")
    since = (moments - midnight) / np.timedelta64(1, "s") / (3600 * HOURS[unit])
    return since, f"{midnight}T00:00:00Z", notes


def read_sources(
    rows: Table, sources: Sequence[str] | None, element: str
) -> tuple[tuple[str, ...], IntArray]:
    """Return the names of the sources, and the source of each row as a position among them."""
    cells = rows.text["source"]
    if not all(cells):
        unnamed = [i for i, cell in enumerate(cells) if not cell]
        others = table.all_rows(rows.path, unnamed)
        raise ValueError(f"{rows.row(unnamed[0])}: the {element} has no source; name it{others}")
    names = tuple(dict.fromkeys(cells) if sources is None else sources)
    place = {name: i for i, name in enumerate(names)}
    source = np.fromiter((place.get(cell, -1) for cell in cells), np.intp, len(cells))
    if np.any(source < 0):
        record = int(np.argmax(source < 0))
        raise ValueError(
            f"{rows.row(record)}: {unknown('source', cells[record], names)}. Name all sources, "
            "or read the whole log and choose sources with `select`"
        )
    return names, source


def distinct(
    columns: Sequence[NDArray[Any]], rows: str, same: str, element: str, drop: bool
) -> tuple[IntArray, list[str]]:
    """Return the events to keep, and notes on those that repeat another one in all columns, (n,)
    each; `same` names these, and `rows` the events."""
    n, order = columns[0].size, np.lexsort(columns)
    alike = np.logical_and.reduce([np.diff(column[order]) == 0 for column in columns])
    if not alike.any():
        return np.arange(n), []
    verb = "repeats" if alike.sum() == 1 else "repeat"
    note = f"{alike.sum():,} of {n:,} {rows} {verb} another one (same {same})"
    if drop:
        return np.sort(order[np.append(True, ~alike)]), [f"{note}; they were dropped."]
    return np.arange(n), [
        f"{note}. Each counts as one {element}; if they are the same, drop them "
        "(--drop-duplicates)."
    ]
