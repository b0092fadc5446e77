"""Reading large tables a batch of rows at a time: Parquet, and Arrow files that are mapped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crawl_env.errors import brief, unknown
from crawl_env.extras import missing
from crawl_env.files.regular import regular
from crawl_env.files.table import Column, PathName, check_header, refuse_type

SUFFIXES = (".parquet", ".arrow", ".feather")
ROWS = 2**20  # of a batch, at most


class Words(NamedTuple):
    """A column of text, in which each word is stored once."""

    words: list[str]  # without surrounding whitespace
    code: NDArray[np.int64]  # (n,) number of the word; −1 for an empty cell


Batch = dict[str, NDArray[Any] | Words]


def read_batches(
    path: PathName,
    known: Sequence[Column],
    named: Mapping[str, str] | None = None,
    unread: Sequence[str] = (),
) -> tuple[int, Iterator[Batch]]:
    """Return the number of rows, and the columns in batches of at most `ROWS` rows.

    Numbers are arrays of the type that the file has, or float64 for decimals; empty cells have the
    column's default.

    Arguments:
        path: a Parquet file, or an Arrow file (.arrow, .feather), which is mapped.
        known: the columns that the file must or may have; those of text may hold whole numbers.
        named: names in the file of some of the columns; other columns of the file are then ignored.
        unread: other columns that the file may have.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: pyarrow is missing, or the file is not such a table; the message names it, and
            the row.
    """
    names, rows, batches = _open(path)
    columns = _columns_to_read(path, names, known, named, unread)
    return rows, _converted(path, columns, batches(list(columns)))


def count_rows(path: PathName) -> int:
    """Return the number of rows of such a file.

    Raises:
        ValueError: as `read_batches`.
    """
    return _open(path)[1]


def read_column(path: PathName, name: str) -> Iterator[Any] | None:
    """Return the cells of one column of such a file, as Arrow arrays of at most `ROWS` rows of the
    type that the file has; None if there is no such column.

    Raises:
        ValueError: as `read_batches`.
    """
    names, _, batches = _open(path)
    if name not in names:
        return None
    return (_decoded(batch.column(name)) for batch in batches([name]))


def _decoded(cells: Any) -> Any:
    import pyarrow as arrow

    return cells.dictionary_decode() if arrow.types.is_dictionary(cells.type) else cells


def _open(path: PathName) -> Any:
    """Return the names of the columns, the number of rows, and a function that yields batches."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: give a file in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise ValueError(missing("pyarrow", f"{path}: {suffix}")) from None
    regular(path)
    with _whole(path):
        return (_parquet if suffix == ".parquet" else _arrow)(path)


def _columns_to_read(
    path: PathName,
    names: list[str],
    known: Sequence[Column],
    named: Mapping[str, str] | None,
    unread: Sequence[str],
) -> dict[str, Column]:
    """Return the columns to read, by their names in the file."""
    if named is None:
        check_header(path, names, [*known, *(Column(name, required=False) for name in unread)])
        return {column.name: column for column in known if column.name in names}
    for name in named:
        if name not in [column.name for column in known]:
            raise unknown("column", name, [column.name for column in known])
    columns = {named.get(c.name, c.name): c._replace(name=c.name) for c in known}
    required = [own for own, c in columns.items() if c.required or c.name in named]
    lacking = [own for own in required if own not in names]
    if lacking:
        raise ValueError(
            f"{path}: missing column{'s' * (len(lacking) > 1)} {brief(', '.join(lacking))}; it has "
            f"{brief(', '.join(names))}"
        )
    return {own: c for own, c in columns.items() if own in names}


def _parquet(path: PathName) -> Any:
    from pyarrow import parquet

    file = parquet.ParquetFile(path, memory_map=True, pre_buffer=False)
    return (
        file.schema_arrow.names,
        file.metadata.num_rows,
        lambda names: file.iter_batches(ROWS, columns=names),
    )


def _arrow(path: PathName) -> Any:
    import pyarrow

    file = pyarrow.ipc.open_file(pyarrow.memory_map(str(path)))
    groups = range(file.num_record_batches)

    def batches(names: list[str]) -> Iterator[Any]:
        for group in map(file.get_batch, groups):
            for start in range(0, group.num_rows, ROWS):
                yield group.slice(start, ROWS).select(names)

    return file.schema.names, sum(file.get_batch(i).num_rows for i in groups), batches


@contextmanager
def _whole(path: PathName) -> Iterator[None]:
    """Say of what pyarrow cannot read that the file is not a whole one."""
    import pyarrow

    try:
        yield
    except PermissionError:
        raise
    except (pyarrow.ArrowException, OSError) as error:
        kind = "Parquet" if Path(path).suffix.lower() == ".parquet" else "Arrow"
        reason = brief(error)
        raise ValueError(f"{path}: not a whole {kind} file ({reason}); write it anew") from None


def _converted(path: PathName, columns: Mapping[str, Column], batches: Any) -> Iterator[Batch]:
    start = 0
    while True:
        with _whole(path):
            batch = next(batches, None)
        if batch is None:
            return
        yield {
            column.name: _cells(path, column._replace(name=own), batch.column(own), start)
            for own, column in columns.items()
        }
        start += batch.num_rows


def _cells(path: PathName, column: Column, cells: Any, start: int) -> NDArray[Any] | Words:
    import pyarrow as arrow

    is_type = arrow.types
    kind = cells.type.value_type if is_type.is_dictionary(cells.type) else cells.type
    is_text = is_type.is_string(kind) or is_type.is_large_string(kind)
    if column.kind == "text" and is_text:
        return _words(cells)
    whole = is_type.is_integer(kind)
    fine = whole if column.kind == "text" else whole or is_type.is_floating(kind)
    if not (fine or (column.kind == "number" and is_type.is_decimal(kind))):
        raise refuse_type(path, column, kind)
    if cells.null_count:
        if column.default is None:
            row = start + int(np.argmax(cells.is_null().to_numpy(zero_copy_only=False)))
            raise ValueError(f"{path}, row {row + 1}: {column.name} is empty; give a value")
        cells = cells.fill_null(arrow.scalar(column.default).cast(kind))
    if is_type.is_decimal(kind):
        cells = cells.cast(arrow.float64())
    return np.asarray(cells.to_numpy(zero_copy_only=False))


def _words(cells: Any) -> Words:
    import pyarrow as arrow

    if not arrow.types.is_dictionary(cells.type):
        cells = cells.dictionary_encode()
    words = [(word or "").strip() for word in cells.dictionary.to_pylist()]
    code = cells.indices.cast(arrow.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return Words(words, np.asarray(code))
