"""Logs of items as files: CSV, gzipped CSV or Parquet, with errors that name file and row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from os import PathLike, fspath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crawl_env.errors import unknown
from crawl_env.files import csv_table as csv_file
from crawl_env.numerics import FloatArray

ITEMS = ("source", "published", "utility", "item")
CURVES = ("item", "age", "remaining")

PathName = str | PathLike[str]
Cells = list[str] | NDArray[Any]  # of one column: text, or numbers and moments of a Parquet file
Fault = tuple[int, str] | None  # where, and what is wrong


class Table(NamedTuple):
    """A table of n items as it was read."""

    names: tuple[str, ...]  # (N,)
    source: NDArray[np.intp]  # (n,) position in `names`
    published: FloatArray  # (n,) time
    utility: FloatArray  # (n,)
    item: list[str]  # (n,) identifiers
    start: float | None  # time
    end: float | None  # time
    origin: str  # the moment of time 0, or ""


def read_items(
    path: PathName,
    hours: float,
    start: float | str | None,
    end: float | str | None,
    sources: Sequence[str] | None,
) -> Table:
    """Read a table of items, in units of time of so many hours; see `ItemLog.from_csv`."""
    table = _columns(path, ITEMS, ("source", "published"))
    n = len(table["source"])
    if not n:
        raise ValueError(f"{path}: no items below the header; add one row an item")
    names, source = _sources(path, table["source"], sources)
    published, origin = _times(path, table["published"], hours)
    first, last = time_of("start", start, origin, hours), time_of("end", end, origin, hours)
    utility = _numbers(path, "utility", table["utility"]) if "utility" in table else np.ones(n)
    _refuse(path, fault_of_items(published, utility))
    _refuse(path, fault_of_span(published, first, last))
    item = _identifiers(path, table["item"]) if "item" in table else list(map(str, range(n)))
    return Table(names, source, published, utility, item, first, last, origin)


def read_curves(
    path: PathName, identifiers: Sequence[str]
) -> tuple[NDArray[np.intp], FloatArray, FloatArray]:
    """Read the curves of the items with these identifiers; return the arrays of `DecayCurves`."""
    table = _columns(path, CURVES, CURVES)
    place = {name: j for j, name in enumerate(identifiers)}
    cells = _text(table["item"])
    item = np.fromiter((place.get(cell.strip(), -1) for cell in cells), np.intp, len(cells))
    if np.any(item < 0):
        stray = int(np.argmax(item < 0))
        raise ValueError(
            f"{_row(path, stray)}: the table of items has no item {cells[stray]!r}; its column "
            "`item` (or, without one, row numbers from 0) names those that may have a curve"
        )
    age, remaining = (_numbers(path, name, table[name]) for name in ("age", "remaining"))
    record: NDArray[np.intp] = np.argsort(item, kind="stable")
    item, age, remaining = item[record], age[record], remaining[record]
    begins = np.flatnonzero(np.diff(item, prepend=-1))
    late = begins[age[begins] > 0]  # a curve starts at (0, 1), whether recorded or not
    item, record = np.insert(item, late, item[late]), np.insert(record, late, record[late])
    age, remaining = np.insert(age, late, 0.0), np.insert(remaining, late, 1.0)
    first = np.searchsorted(item, np.arange(len(identifiers) + 1))
    fault = fault_of_curves(first, age, remaining)
    if fault is not None:
        point, what = fault
        where = _row(path, int(record[point]))
        raise ValueError(f"{where} (item {identifiers[item[point]]!r}): {what}")
    return first, age, remaining


def write_items(
    path: PathName, names: Sequence[str], published: FloatArray, utility: FloatArray
) -> None:
    """Write a table of items, numbered from 0."""
    numbers = (map(repr, column.tolist()) for column in (published, utility))
    columns = (map(str, range(len(names))), names, *numbers)
    csv_file.write(path, dict(zip(("item", *ITEMS[:3]), columns, strict=True)))


def write_curves(
    path: PathName, item: NDArray[np.intp], age: FloatArray, remaining: FloatArray
) -> None:
    """Write a table of curves."""
    columns = (map(repr, column.tolist()) for column in (item, age, remaining))
    csv_file.write(path, dict(zip(CURVES, columns, strict=True)))


# ------------------------------------------------------------------- what may be wrong in arrays


def fault_of_items(published: FloatArray, utility: FloatArray) -> Fault:
    """Return the first item that cannot be, and why."""
    bad = ~np.isfinite(published)
    if bad.any():
        return _first(bad, "published is {:g}; it must be finite", published)
    bad = ~(np.isfinite(utility) & (utility >= 0))
    return _first(bad, "utility is {:g}; it must be zero or positive and finite", utility)


def fault_of_span(published: FloatArray, start: float | None, end: float | None) -> Fault:
    """Return the first item outside [start, end), and why that cannot be."""
    low, high = (-np.inf if start is None else start), (np.inf if end is None else end)
    if not low < high:
        raise ValueError(f"start is {low:g} and end is {high:g}; a log ends after it starts")
    what = f"published at {{:g}}, but the log covers {low:g} to {high:g}; give a wider span, or "
    what += "read the whole log and take a part with `between`"
    return _first((published < low) | (published >= high), what, published)


def fault_of_curves(first: NDArray[np.intp], age: FloatArray, remaining: FloatArray) -> Fault:
    """Return the first point that is not on a curve of `DecayCurves`, and why."""
    begins = np.zeros(age.size, dtype=bool)
    begins[first[:-1][np.diff(first) > 0]] = True
    inner = ~begins
    younger, rises = (np.diff(x, prepend=x[:1]) for x in (age, -remaining))
    checks = (
        (~(np.isfinite(age) & (age >= 0)), "age is {:g}; it must be zero or positive", age),
        (
            ~((remaining >= 0) & (remaining <= 1)),
            "remaining is {:g}; it must be a share, 0 to 1",
            remaining,
        ),
        (begins & (age > 0), "the curve starts at age {:g}; start it at age 0 with 1", age),
        (begins & (remaining < 1), "remaining is {:g} at age 0; it must be 1 there", remaining),
        (inner & (younger < 0), "age falls to {:g}; sort an item's points by age", age),
        (
            inner & (rises < 0),
            "remaining rises to {:g}; it is the share still to come and can only fall",
            remaining,
        ),
    )
    faults = [fault for check in checks if (fault := _first(*check)) is not None]
    return min(faults, default=None)


def _first(bad: NDArray[np.bool_], what: str, values: FloatArray) -> Fault:
    if not bad.any():
        return None
    where = int(np.argmax(bad))
    return where, what.format(values[where])


# --------------------------------------------------------------------------- columns and rows


def _columns(path: PathName, known: Sequence[str], required: Sequence[str]) -> dict[str, Cells]:
    if fspath(path).endswith(".parquet"):
        from crawl_env.files import parquet as parquet_file  # only here: it needs pyarrow

        return parquet_file.read(path, known, required)
    return dict(csv_file.read(path, known, required))


def _row(path: PathName, record: int) -> str:
    parquet = fspath(path).endswith(".parquet")
    return f"{path}, row {record + 1 if parquet else csv_file.line_of(path, record)}"


def _refuse(path: PathName, fault: Fault) -> None:
    if fault is not None:
        raise ValueError(f"{_row(path, fault[0])}: {fault[1]}")


def _text(cells: Cells) -> list[str]:
    return cells if isinstance(cells, list) else list(map(str, cells.tolist()))


def _numbers(path: PathName, column: str, cells: Cells) -> FloatArray:
    if isinstance(cells, list):
        return csv_file.numbers(path, column, cells)
    if cells.dtype.kind == "M":
        raise ValueError(f"{path}: column {column} holds moments of time; it must hold numbers")
    return cells.astype(np.float64)


def _sources(
    path: PathName, column: Cells, wanted: Sequence[str] | None
) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    cells = list(map(str.strip, _text(column)))
    if not all(cells):
        raise ValueError(f"{_row(path, cells.index(''))}: the item has no source; name it")
    names = tuple(dict.fromkeys(cells) if wanted is None else wanted)
    place = {name: i for i, name in enumerate(names)}
    source = np.fromiter((place.get(cell, -1) for cell in cells), np.intp, len(cells))
    if np.any(source < 0):
        record = int(np.argmax(source < 0))
        raise ValueError(
            f"{_row(path, record)}: {unknown('source', cells[record], names)}. Name all sources, "
            "or read the whole log and take a part with `select`"
        )
    return names, source


def _identifiers(path: PathName, column: Cells) -> list[str]:
    cells = list(map(str.strip, _text(column)))
    first: dict[str, int] = {}
    if len(set(cells)) == len(cells):
        return cells
    for record, cell in enumerate(cells):
        if cell in first:
            raise ValueError(
                f"{_row(path, record)}: item {cell!r} already stands in "
                f"{_row(path, first[cell]).rpartition(', ')[2]}; give every item its own identifier"
            )
        first[cell] = record
    raise AssertionError("unreachable")


# --------------------------------------------------------------------------------------- time


def _times(path: PathName, cells: Cells, hours: float) -> tuple[FloatArray, str]:
    """Return times in units of so many hours, and the moment of time 0 where there were stamps."""
    if isinstance(cells, list):
        if not cells[0].strip() or csv_file.is_number(cells[0]):
            return csv_file.numbers(path, "published", cells), ""
        moments = _moments(path, cells)
    elif cells.dtype.kind == "M":
        moments = cells.astype("datetime64[us]")
        if np.isnat(moments).any():
            raise ValueError(f"{_row(path, int(np.argmax(np.isnat(moments))))}: published is empty")
    else:
        return cells.astype(np.float64), ""
    midnight = moments.min().astype("datetime64[D]")
    return (moments - midnight) / np.timedelta64(1, "s") / (3600 * hours), f"{midnight}T00:00:00Z"


def _moments(path: PathName, cells: list[str]) -> NDArray[Any]:
    stamps = []
    for record, cell in enumerate(cells):
        try:
            stamps.append(datetime.fromisoformat(cell.strip()))
        except ValueError:
            raise ValueError(
                f"{_row(path, record)}: published is {cell!r}, neither a number nor an ISO 8601 "
                "time stamp such as 2024-05-01T13:30:00Z; give all items the same of the two"
            ) from None
    zoned = [stamp.tzinfo is not None for stamp in stamps]
    for record, (this, following) in enumerate(pairwise(zoned)):
        if this != following:
            one, other = (record, record + 1) if this else (record + 1, record)
            raise ValueError(
                f"{_row(path, one)}: published has a time zone ({cells[one]}), but not in "
                f"{_row(path, other).rpartition(', ')[2]} ({cells[other]}); give all stamps a zone "
                "(Z for UTC) or none"
            )
    if zoned[0]:
        stamps = [stamp.astimezone(UTC).replace(tzinfo=None) for stamp in stamps]
    return np.array(stamps, dtype="datetime64[us]")


def time_of(name: str, value: float | str | None, origin: str, hours: float) -> float | None:
    """Return a number as it is, a time stamp in units of so many hours since the origin."""
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
