"""Reading and writing tables as CSV, gzipped CSV or Parquet; errors name the file and the row.

Columns are described by `Column`. Ranges are checked by the classes that are made from a table;
`Table.located` adds the row to their `ElementError`.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice, pairwise
from os import PathLike, fspath
from typing import IO, Any, NamedTuple, TextIO, cast

import numpy as np
from numpy.typing import NDArray

from crawl_env.errors import ElementError, brief, counted, shown, unknown
from crawl_env.extras import missing
from crawl_env.files.atomic import atomic_file
from crawl_env.files.regular import regular
from crawl_env.numerics import FloatArray

PathName = str | PathLike[str]
Moments = NDArray[np.datetime64]

SUFFIXES = (".csv", ".csv.gz", ".parquet")  # of the files that `read` accepts, in any case

BATCH = 4096  # rows held as lists at a time: millions of lists would slow garbage collection
MOST_ROWS = 50_000_000
LONGEST_LINE = 1 << 20  # characters
NAMED = 8  # rows with the same error that a message names
_FIRST, _LAST = np.datetime64("0001-01-01"), np.datetime64("9999-12-31T23:59:59")  # of datetime

# RFC 822 and its successors, as RSS feeds have it; other names of zones are ambiguous.
_RFC_822 = re.compile(
    r"(?:[a-z]+,\s*)?\d{1,2}\s+[a-z]{3}[a-z]*\s+(?:[12]\d{3}|\d{2})\s+\d{1,2}:\d\d(?::\d\d)?"
    r"(?P<zone>\s*[+-]\d{4}|\s+(?:UTC?|GMT|Z|[ECMP][SD]T))?",
    re.ASCII | re.IGNORECASE,
)
_SPACED_ZONE = re.compile(r"\s+(?:(?:UTC|GMT|Z)|([+-]\d\d:?\d\d))$", re.IGNORECASE)


class Column(NamedTuple):
    """A column that a table must or may have."""

    name: str
    kind: str = "number"  # "text", "number", or "time": numbers or time stamps
    required: bool = True
    default: float | None = None  # value of an empty cell; None: it must not be empty


@dataclass(frozen=True)
class Table:
    """A table of n rows, by column; columns that the file lacks are absent."""

    path: PathName
    n: int
    text: dict[str, list[str]] = field(default_factory=dict)  # without surrounding whitespace
    number: dict[str, FloatArray] = field(default_factory=dict)
    time: dict[str, FloatArray | Moments] = field(default_factory=dict)  # stamps are in UTC
    notes: list[str] = field(default_factory=list)  # what was assumed of the table

    def row(self, record: int) -> str:
        """Return the file and the row of a record; records count from 0."""
        return f"{self.path}, row {_row(self.path, record)}"

    @contextmanager
    def located(
        self,
        record: Callable[[int], int] = int,
        element: Callable[[int], str] | None = None,
    ) -> Iterator[None]:
        """Add the file and the row to an ElementError raised within this block.

        Arguments:
            record: maps the position of an element to its record.
            element: maps the position of an element to its label, which is shown beside the row.
        """
        try:
            yield
        except ElementError as error:
            if error.position is None:
                raise
            what = error.what
            if error.other is not None:
                what += f" (see row {_row(self.path, record(error.other))})"
            name = f" ({element(error.position)})" if element is not None else ""
            raise ValueError(f"{self.row(record(error.position))}{name}: {what}") from None


def read(path: PathName, columns: Sequence[Column], element: str) -> Table:
    """Read a table with one `element` per row; blank lines are skipped.

    The file is CSV in UTF-8, gzipped if its name ends in .gz, or Parquet if it ends in .parquet
    (which needs pyarrow). Its header names the columns in any order.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not such a table; the message names the file and the row.
    """
    cells, unzoned = (_read_parquet if _ends(path, ".parquet") else _read_csv)(path, columns)
    n = len(next(iter(cells.values())))
    if not n:
        raise ValueError(f"{path}: no {element}s below the header; add one row per {element}")
    table = Table(path, n)
    for column in columns:
        if (values := cells.pop(column.name, None)) is None:
            continue
        if column.kind == "text":
            table.text[column.name] = list(map(str.strip, cast(list[str], values)))
        elif column.kind == "number":
            table.number[column.name] = _numbers(path, column, values)
        else:
            table.time[column.name], has_zone = _times(path, column, values)
            if not has_zone or column.name in unzoned:
                table.notes.append(
                    f"The time stamps in the column {column.name} have no time zone and are read "
                    "as UTC."
                )
    return table


def write(path: PathName, columns: Mapping[str, Iterable[str]]) -> None:
    """Write a table of text as CSV, gzipped if the name ends in .gz; the write is atomic.

    Raises:
        ValueError: the name ends in .parquet.
    """
    if _ends(path, ".parquet"):
        raise ValueError(f"{path}: Parquet files can only be read; use a name in .csv or .csv.gz")
    with atomic_file(path) as new, new.open("wb") as raw:
        is_gzip = _ends(path, ".gz")
        # Without name and time in the gzip header, equal tables make equal files.
        stream = gzip.GzipFile("", "wb", 6, raw, mtime=0) if is_gzip else raw
        with io.TextIOWrapper(cast(IO[bytes], stream), "utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))


def _ends(path: PathName, suffix: str) -> bool:
    return fspath(path).lower().endswith(suffix)


def is_number(cell: str) -> bool:
    """Return whether a cell is read as a number."""
    try:
        _number(cell)
    except ValueError:
        return False
    return True


# -------------------------------------------------------------------------------------------- CSV


Cells = dict[str, list[str] | NDArray[Any]]  # text, numbers or datetime64 of each column


def _read_csv(path: PathName, known: Sequence[Column]) -> tuple[Cells, set[str]]:
    with _open(path) as file:
        reader = csv.reader(_lines(file), delimiter=_delimiter(file), strict=True)
        try:
            header = [name.strip() for name in next(filter(None, reader), [])]
            check_header(path, header, known)
            columns: list[list[str]] = [[] for _ in header]
            while rows := list(islice(reader, BATCH)):
                rows = [row for row in rows if row]
                if any(len(row) != len(header) for row in rows):
                    _refuse_width(path, len(header))
                for column, cells in zip(columns, zip(*rows, strict=True), strict=bool(rows)):
                    column.extend(cells)
                _check_size(path, len(columns[0]))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, row {_first_undecodable(path)}: not UTF-8 text ({error.reason}); save "
                "the file as UTF-8, compressed at most by gzip with a name in .gz, and try again"
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
    return dict(zip(header, columns, strict=True)), set()


def _open(path: PathName) -> TextIO:
    regular(path)
    if _ends(path, ".gz"):
        return cast(TextIO, gzip.open(path, "rt", newline="", encoding="utf-8-sig"))
    return open(path, newline="", encoding="utf-8-sig")


def _delimiter(file: TextIO) -> str:
    """Return the separator of the columns of a CSV file that has not been read from."""
    try:
        start = cast(Any, file).buffer.peek(1)  # what is buffered: many lines
    except (EOFError, gzip.BadGzipFile, zlib.error):  # reading will raise it again
        return ","
    lines = start.removeprefix(codecs.BOM_UTF8).splitlines()
    return separator_of(next(filter(bytes.strip, lines), b"").decode("latin-1"))


def separator_of(header: str) -> str:
    """Return the separator of the columns of a table with this header: a comma, or a semicolon or
    tab where the header has no comma.

    >>> separator_of("source;weight")
    ';'
    """
    return next((mark for mark in ",;\t" if mark in header), ",")


def _lines(file: TextIO) -> Iterator[str]:
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise csv.Error(f"a line of more than {LONGEST_LINE:,} characters")
        yield line


def _row(path: PathName, record: int) -> int:
    """Return the line of a CSV file on which a record ends, or the number of the record in a
    Parquet file. The file is read again, since only errors need this."""
    if _ends(path, ".parquet"):
        return record + 1
    with _open(path) as file:
        reader = csv.reader(file, delimiter=_delimiter(file))
        lines = (reader.line_num for row in reader if row)
        return next(islice(lines, record + 1, None))


def all_rows(path: PathName, records: Sequence[int]) -> str:
    """Return a sentence that names the rows of several records with the same error, or "" for one;
    so that all of them can be mended at once."""
    if len(records) < 2:
        return ""
    rows = ", ".join(str(_row(path, record)) for record in records[:NAMED])
    return f". {len(records):,} rows are like this: {rows}{', …' * (len(records) > NAMED)}"


def _first_undecodable(path: PathName) -> int:
    is_gzip = _ends(path, ".gz")
    with cast(IO[bytes], gzip.open(path) if is_gzip else open(path, "rb")) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8-sig")
            except UnicodeDecodeError:
                return number
    return 1


def _refuse_width(path: PathName, width: int) -> None:
    with _open(path) as file:
        reader = csv.reader(file, delimiter=_delimiter(file))
        rows = ((reader.line_num, len(row)) for row in reader if row)
        wrong = [(i - 1, *row) for i, row in enumerate(rows) if row[1] != width]  # 0: the header
    _, line, size = wrong[0]
    raise ValueError(
        f"{path}, row {line}: {counted(size, 'value')} under {counted(width, 'column')}; give one "
        "value per column, separated as in the header, with decimal points"
        + all_rows(path, [w[0] for w in wrong])
    )


def check_header(path: PathName, header: Sequence[str], known: Sequence[Column]) -> None:
    """Raise ValueError unless a header has the columns that it must have, and no unknown ones."""
    required = [column.name for column in known if column.required]
    optional = [column.name for column in known if not column.required]
    if not any(header):
        raise ValueError(f"{path} is empty; its first row must be: {','.join(required)}")
    missing = [name for name in required if name not in header]
    lacks = f"missing column{'s' * (len(missing) > 1)} {', '.join(missing)}"
    extra = [name for name in header if name not in (*required, *optional)]
    if extra:
        error = unknown("column", extra[0], [column.name for column in known])
        more = f" and {len(extra) - NAMED:,} others" * (len(extra) > NAMED)
        it = "it" if len(extra) == 1 else f"{', '.join(map(shown, extra[:NAMED]))}{more}"
        raise ValueError(
            f"{path}: {error}. "
            + f"Rename {it}, or remove {it if len(extra) == 1 else 'them'}"
            + f"; {lacks}" * bool(missing)
        )
    for name in header:
        if list(header).count(name) > 1:
            raise ValueError(f"{path}: column {name!r} appears twice; remove one of them")
    if missing:
        raise ValueError(
            f"{path}: {lacks}; the header must name {', '.join(required)}"
            + f" and may name {', '.join(optional)}" * bool(optional)
        )


def _check_size(path: PathName, rows: int) -> None:
    if rows > MOST_ROWS:
        raise ValueError(f"{path} has more than {MOST_ROWS:,} rows; split it into several files")


# ---------------------------------------------------------------------------------------- Parquet


def _read_parquet(path: PathName, known: Sequence[Column]) -> tuple[Cells, set[str]]:
    """Return each column, and the names of those with time stamps without a time zone."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise ValueError(f"{missing('pyarrow', f'{path}: Parquet')}; or give a CSV file") from None
    with open(regular(path), "rb") as file:
        try:
            schema = parquet.read_schema(file)
            names = schema.names
            # A text that a small file repeats a million times is stored once.
            is_text = (arrow.types.is_string, arrow.types.is_large_string)
            texts = [c.name for c in schema if any(is_kind(c.type) for is_kind in is_text)]
            source = parquet.ParquetFile(file, read_dictionary=list(dict.fromkeys(texts)))
            rows = source.metadata.num_rows
        except (arrow.ArrowException, OSError) as error:
            raise _not_whole(path, error) from None
        check_header(path, names, known)
        _check_size(path, rows)
        try:
            table = source.read()
            table.validate(full=True)
        except (arrow.ArrowException, OSError, MemoryError) as error:
            raise _not_whole(path, error) from None
    present = [column for column in known if column.name in names]
    is_moment = arrow.types.is_timestamp
    unzoned = {c.name for c in schema if is_moment(c.type) and c.type.tz is None}
    return {c.name: _cells(path, c, table.column(c.name)) for c in present}, unzoned


def _not_whole(path: PathName, error: BaseException) -> ValueError:
    return ValueError(f"{path}: not a whole Parquet file ({brief(error)}); write it anew")


def _cells(path: PathName, column: Column, cells: Any) -> list[str] | NDArray[Any]:
    import pyarrow as arrow

    is_type = arrow.types
    kind = cells.type.value_type if is_type.is_dictionary(cells.type) else cells.type
    is_text = is_type.is_string(kind) or is_type.is_large_string(kind)
    is_moment = is_type.is_timestamp(kind) or is_type.is_date(kind)
    numeric = (is_type.is_integer, is_type.is_floating, is_type.is_decimal, is_type.is_boolean)
    is_numeric = any(is_kind(kind) for is_kind in numeric)
    fine = {"text": is_numeric, "number": is_numeric, "time": is_moment or is_numeric}
    if is_text:
        return _texts(cells)
    if not fine[column.kind]:
        raise refuse_type(path, column, kind)
    if column.kind == "text":
        return ["" if cell is None else str(cell) for cell in cells.to_pylist()]
    if cells.null_count and column.default is None:
        record = int(np.argmax(cells.is_null().to_numpy()))
        raise ValueError(f"{path}, row {record + 1}: {column.name} is empty; give a value")
    try:
        if is_moment:  # with a time zone the values are in UTC; without, UTC is assumed
            finer = is_type.is_timestamp(kind) and kind.unit == "ns"  # truncated to microseconds
            return np.asarray(cells.cast(arrow.timestamp("us"), safe=not finer).to_numpy())
        numbers = cells.cast(kind).cast(arrow.float64(), safe=False)
        return np.array(numbers.fill_null(column.default or 0.0).to_numpy(), dtype=np.float64)
    except arrow.ArrowException as error:
        raise ValueError(f"{path}: column {column.name} cannot be read ({brief(error)})") from None


def refuse_type(path: PathName, column: Column, kind: object) -> ValueError:
    """Return the error for a column of a type that it must not have."""
    content = {"text": "text", "number": "numbers", "time": "numbers or time stamps"}
    return ValueError(
        f"{path}: column {column.name} holds {brief(kind)}; it must hold {content[column.kind]}"
    )


def _texts(cells: Any) -> list[str]:
    """Return text; each word of a dictionary-encoded column is stored once."""
    import pyarrow as arrow

    texts: list[str] = []
    for chunk in cells.chunks:
        if arrow.types.is_dictionary(chunk.type):
            words = [word or "" for word in chunk.dictionary.to_pylist()] + [""]
            texts += [words[i] for i in chunk.indices.fill_null(len(words) - 1).to_numpy()]
        else:
            texts += [cell or "" for cell in chunk.to_pylist()]
    return texts


# ---------------------------------------------------------------------------- parsing of the cells


def _numbers(path: PathName, column: Column, cells: list[str] | NDArray[Any]) -> FloatArray:
    if not isinstance(cells, list):
        return cells
    if column.default is not None:
        default = repr(column.default)
        cells = [cell if cell.strip() else default for cell in cells]
    try:
        return np.fromiter(map(_number, cells), np.float64, len(cells))
    except ValueError:
        wrong_ones = [i for i, cell in enumerate(cells) if not is_number(cell)]
    record, cell = wrong_ones[0], cells[wrong_ones[0]]
    hint = "; write decimals with a point" if "," in cell else ""
    if column.kind == "time" and record:
        hint = f", as in row {_row(path, 0)}; use numbers, or time stamps, in all rows"
    wrong = f"{shown(cell)}, not a number{hint}" if cell.strip() else "empty; give a number"
    raise ValueError(
        f"{path}, row {_row(path, record)}: {column.name} is {wrong}{all_rows(path, wrong_ones)}"
    )


def _number(cell: str) -> float:
    """Parse a number, refusing 1_000 and the digits of other scripts, which Python accepts."""
    if not cell.isascii() or "_" in cell:
        raise ValueError
    return float(cell)


def _times(
    path: PathName, column: Column, cells: list[str] | NDArray[Any]
) -> tuple[FloatArray | Moments, bool]:
    """Return numbers, or time stamps as datetime64 in UTC, as the first cell decides; and whether
    nothing had to be assumed of a time zone."""
    if not isinstance(cells, list):
        if cells.dtype.kind == "M" and (outside := (cells < _FIRST) | (cells > _LAST)).any():
            raise _outside(path, column, int(np.argmax(outside)), cells[np.argmax(outside)])
        return cells, True
    if not cells[0].strip() or is_number(cells[0]):
        return _numbers(path, column, cells), True
    stamps = []
    for record, cell in enumerate(cells):
        try:
            stamps.append(_stamp(cell.strip()))
        except ValueError:
            if record and (is_number(cell) or not cell.strip()):
                wrong = f"{shown(cell)}, but a time stamp ({cells[0]}) in row {_row(path, 0)}"
            else:
                wrong = f"{shown(cell)}, neither a number nor a time stamp"
            raise ValueError(
                f"{path}, row {_row(path, record)}: {column.name} is {wrong}; use numbers in all "
                "rows, or in all rows ISO 8601 (2024-05-01T13:30:00Z) or RFC 822 (Wed, 01 May 2024 "
                "13:30:00 +0200, or GMT, UT, EST, EDT, CST, CDT, MST, MDT, PST, PDT)"
                + all_rows(path, [i for i, text in enumerate(cells) if not _is_stamp(text)])
            ) from None
    has_zone = [stamp.tzinfo is not None for stamp in stamps]
    for record, (this, following) in enumerate(pairwise(has_zone)):
        if this != following:
            one, other = (record, record + 1) if this else (record + 1, record)
            raise ValueError(
                f"{path}, row {_row(path, one)}: {column.name} has a time zone ({cells[one]}), but "
                f"not in row {_row(path, other)} ({cells[other]}); give all stamps a zone (Z for "
                "UTC) or none"
            )
    if has_zone[0]:
        for record, stamp in enumerate(stamps):
            try:
                stamps[record] = stamp.astimezone(UTC).replace(tzinfo=None)
            except OverflowError:
                raise _outside(path, column, record, shown(cells[record])) from None
    return np.array(stamps, dtype="datetime64[us]"), has_zone[0]


def _outside(path: PathName, column: Column, record: int, stamp: object) -> ValueError:
    return ValueError(
        f"{path}, row {_row(path, record)}: {column.name} is {stamp}, which is outside the years 1 "
        "to 9999 in UTC; correct the time stamp"
    )


def _is_stamp(cell: str) -> bool:
    try:
        _stamp(cell.strip())
    except ValueError:
        return False
    return True


def _stamp(cell: str) -> datetime:
    """Parse a time stamp in ISO 8601, or in RFC 822 as the feeds have it.

    >>> _stamp("2024-05-01 13:30 +0200") == _stamp("Wed, 1 May 24 06:30 EST")
    True
    """
    try:
        return datetime.fromisoformat(cell)
    except ValueError:
        if (match := _RFC_822.fullmatch(cell)) is None:
            return datetime.fromisoformat(_SPACED_ZONE.sub(lambda m: m[1] or "Z", cell))
    from email.utils import parsedate_to_datetime  # a fifth of this package's import time

    stamp = parsedate_to_datetime(cell)
    return stamp.replace(tzinfo=UTC) if match["zone"] and stamp.tzinfo is None else stamp
