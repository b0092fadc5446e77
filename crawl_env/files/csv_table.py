"""Tables as CSV files, plain or gzipped: errors that name file and row, files written whole."""

from __future__ import annotations

import csv
import gzip
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import IO, TextIO, cast

import numpy as np

from crawl_env.errors import unknown
from crawl_env.numerics import FloatArray

BATCH = 4096  # rows held as lists at one time: a million lists would keep the collector busy


def read(
    path: str | PathLike[str], known: Sequence[str], required: Sequence[str]
) -> dict[str, list[str]]:
    """Return the cells of each column as text; the header must hold `required` of `known`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not a table with these columns; the message names file and row.
    """
    with _open_text(path) as file:
        reader = csv.reader(file, strict=True)
        try:
            header = [name.strip() for name in next(filter(None, reader), [])]
            check_header(path, header, known, required)
            columns: list[list[str]] = [[] for _ in header]
            while rows := list(islice(reader, BATCH)):
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
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{path}, after row {reader.line_num}: not a whole gzip file ({error}); copy it "
                "again, or give the CSV uncompressed"
            ) from None
    return dict(zip(header, columns, strict=True))


def line_of(path: str | PathLike[str], record: int) -> int:
    """Return the line of the file on which a record ends; read again, since only errors ask."""
    with _open_text(path) as file:
        reader = csv.reader(file)
        lines = (reader.line_num for row in reader if row)
        return next(islice(lines, record + 1, None))


def numbers(path: str | PathLike[str], column: str, cells: Sequence[str]) -> FloatArray:
    """Return a column as numbers.

    Raises:
        ValueError: a cell is none; the message names file, row and column.
    """
    try:
        return np.fromiter(map(_number, cells), np.float64, len(cells))
    except ValueError:
        record = next(i for i, cell in enumerate(cells) if not is_number(cell))
    cell = cells[record]
    hint = "; write decimals with a point" if "," in cell else ""
    wrong = f"{cell!r}, not a number{hint}" if cell.strip() else "empty; give a number"
    raise ValueError(f"{path}, row {line_of(path, record)}: {column} is {wrong}")


def is_number(cell: str) -> bool:
    """Return whether `numbers` reads the cell."""
    try:
        _number(cell)
    except ValueError:
        return False
    return True


def write(path: str | PathLike[str], columns: Mapping[str, Iterable[str]]) -> None:
    """Write the file beside its final place and move it there: it appears whole or not at all."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with _open_new(partial, target.suffix == ".gz") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def check_header(
    path: str | PathLike[str], header: Sequence[str], known: Sequence[str], required: Sequence[str]
) -> None:
    """Raise ValueError unless the header holds all `required` columns and none but `known`."""
    if len(header) == 1 and ";" in header[0]:
        raise ValueError(
            f"{path}: columns are separated by semicolons; separate them by commas, and write "
            "decimals with a point"
        )
    if not any(header):
        raise ValueError(f"{path} is empty; its first row must be: {','.join(required)}")
    for name in header:
        if name not in known:
            raise ValueError(f"{path}: {unknown('column', name, known)}. Rename it, or remove it")
        if list(header).count(name) > 1:
            raise ValueError(f"{path}: column {name!r} appears twice; remove one of them")
    missing = [name for name in required if name not in header]
    if missing:
        optional = [name for name in known if name not in required]
        raise ValueError(
            f"{path}: missing column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
            f"the header must name {', '.join(required)}"
            + f" and may name {', '.join(optional)}"
            * bool(optional)
        )


def _open_text(path: str | PathLike[str]) -> TextIO:
    if Path(path).suffix == ".gz":
        return cast(TextIO, gzip.open(path, "rt", newline="", encoding="utf-8-sig"))
    return open(path, newline="", encoding="utf-8-sig")


def _open_new(path: Path, compressed: bool) -> TextIO:
    if compressed:
        return cast(TextIO, gzip.open(path, "wt", 6, newline="", encoding="utf-8"))
    return path.open("w", newline="", encoding="utf-8")


def _first_undecodable(path: str | PathLike[str]) -> int:
    compressed = Path(path).suffix == ".gz"
    with cast(IO[bytes], gzip.open(path) if compressed else open(path, "rb")) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8-sig")
            except UnicodeDecodeError:
                return number
    return 1


def _refuse_width(path: str | PathLike[str], width: int) -> None:
    with _open_text(path) as file:
        reader = csv.reader(file)
        for row in reader:
            if row and len(row) != width:
                raise ValueError(
                    f"{path}, row {reader.line_num}: {len(row)} values under {width} columns; give "
                    "one value a column, separated by commas, with decimal points"
                )


def _number(cell: str) -> float:
    """Read a number; not 1_000 or other scripts' digits, which Python would take."""
    if not cell.isascii() or "_" in cell:
        raise ValueError
    return float(cell)
