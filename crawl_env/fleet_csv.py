"""Fleets as CSV files: reading with errors that name file, row and column, and writing whole."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path

import numpy as np

from crawl_env.errors import unknown
from crawl_env.numerics import FloatArray
from crawl_env.parameters import DESCRIBED

NAME, HOST = "source", "host"
DEFAULTS = {name: p.default for name, p in DESCRIBED.items() if p.default is not None}
REQUIRED = tuple(name for name in DESCRIBED if name not in DEFAULTS)
COLUMNS = (NAME, *REQUIRED, *DEFAULTS, HOST)
_BATCH = 4096  # rows held as lists at one time: a million lists would keep the collector busy


def read(
    path: str | PathLike[str],
) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, FloatArray]]:
    """Return the names, the hosts or (), and the numeric columns, each (N,)."""
    table = _columns(path)
    if not table[NAME]:
        raise ValueError(f"{path}: no sources below the header; add one row a source")
    names = tuple(map(str.strip, table.pop(NAME)))
    _check_names(path, names)
    hosts = tuple(table.pop(HOST, ()))
    return names, hosts, {name: _numbers(path, name, cells) for name, cells in table.items()}


def line_of(path: str | PathLike[str], record: int) -> int:
    """Return the line of the file on which a source ends; read again, since only errors ask."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        lines = (reader.line_num for row in reader if row)
        return next(islice(lines, record + 1, None))


def write(
    path: str | PathLike[str],
    names: Sequence[str],
    columns: Mapping[str, FloatArray],
    hosts: Sequence[str] = (),
) -> None:
    """Write the file beside its final place and move it there: it appears whole or not at all."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow((NAME, *columns, *([HOST] if hosts else ())))
            cells = [map(repr, column.tolist()) for column in columns.values()]
            writer.writerows(zip(names, *cells, *([hosts] if hosts else ()), strict=True))
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _columns(path: str | PathLike[str]) -> dict[str, list[str]]:
    """Return the cells of each column as text, read a batch of rows at a time."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = [name.strip() for name in next(filter(None, reader), [])]
            _check_header(path, header)
            columns: list[list[str]] = [[] for _ in header]
            while rows := list(islice(reader, _BATCH)):
                rows = [row for row in rows if row]
                if any(len(row) != len(header) for row in rows):
                    _refuse_width(path, len(header))
                for column, cells in zip(columns, zip(*rows, strict=True), strict=bool(rows)):
                    column.extend(cells)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, row {_first_undecodable(path)}: not UTF-8 text ({error.reason}); save "
                "the file as UTF-8 and try again"
            ) from None
        except csv.Error as error:
            raise ValueError(
                f"{path}, row {reader.line_num}: not valid CSV ({error}); check its quotes"
            ) from None
    return dict(zip(header, columns, strict=True))


def _first_undecodable(path: str | PathLike[str]) -> int:
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8-sig")
            except UnicodeDecodeError:
                return number
    return 1


def _refuse_width(path: str | PathLike[str], width: int) -> None:
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        for row in reader:
            if row and len(row) != width:
                raise ValueError(
                    f"{path}, row {reader.line_num}: {len(row)} values under {width} columns; give "
                    "one value a column, separated by commas, with decimal points"
                )


def _check_header(path: str | PathLike[str], header: Sequence[str]) -> None:
    if len(header) == 1 and ";" in header[0]:
        raise ValueError(
            f"{path}: columns are separated by semicolons; separate them by commas, and write "
            "decimals with a point"
        )
    if not any(header):
        raise ValueError(
            f"{path} is empty; its first row must be: {','.join((NAME, *REQUIRED))},cost"
        )
    for name in header:
        if name not in COLUMNS:
            raise ValueError(f"{path}: {unknown('column', name, COLUMNS)}. Rename it, or remove it")
        if list(header).count(name) > 1:
            raise ValueError(f"{path}: column {name!r} appears twice; remove one of them")
    missing = [name for name in (NAME, *REQUIRED) if name not in header]
    if missing:
        raise ValueError(
            f"{path}: missing column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
            f"the header must name {', '.join((NAME, *REQUIRED))} and may name "
            f"{', '.join((*DEFAULTS, HOST))}"
        )


def _check_names(path: str | PathLike[str], names: Sequence[str]) -> None:
    if len(set(names)) == len(names) and all(names):
        return
    first: dict[str, int] = {}
    for record, name in enumerate(names):
        if not name:
            line = line_of(path, record)
            raise ValueError(f"{path}, row {line}: the source has no name; give it one")
        if name in first:
            raise ValueError(
                f"{path}, row {line_of(path, record)}: source {name!r} already stands in "
                f"row {line_of(path, first[name])}; names must be unique"
            )
        first[name] = record


def _number(cell: str) -> float:
    """Read a number; not 1_000 or other scripts' digits, which Python would take."""
    if not cell.isascii() or "_" in cell:
        raise ValueError
    return float(cell)


def _numbers(path: str | PathLike[str], column: str, cells: Sequence[str]) -> FloatArray:
    numbers = np.full(len(cells), DEFAULTS.get(column, np.nan))
    for record, cell in enumerate(cells):
        if column in DEFAULTS and not cell.strip():
            continue
        try:
            numbers[record] = _number(cell)
        except ValueError:
            hint = "; write decimals with a point" if "," in cell else ""
            wrong = f"{cell!r}, not a number{hint}" if cell.strip() else "empty; give a number"
            raise ValueError(f"{path}, row {line_of(path, record)}: {column} is {wrong}") from None
    return numbers
