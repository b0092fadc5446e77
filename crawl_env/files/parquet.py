"""Tables as Parquet files, where pyarrow is installed."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crawl_env.files import csv_table as csv_file


def read(
    path: str | PathLike[str], known: Sequence[str], required: Sequence[str]
) -> dict[str, list[str] | NDArray[Any]]:
    """Return each column as a list of text, as numbers (NaN where empty), or as datetime64.

    Raises:
        FileNotFoundError: no such file.
        ValueError: pyarrow is not installed, or the file is not a table with these columns.
    """
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise ValueError(
            f"{path}: reading Parquet needs pyarrow; install it (pip install pyarrow), or give CSV"
        ) from None
    try:
        with open(path, "rb") as file:
            table = parquet.read_table(file)
    except arrow.ArrowInvalid as error:
        raise ValueError(f"{path}: not a whole Parquet file ({error}); write it anew") from None
    csv_file.check_header(path, table.column_names, known, required)
    return {name: _cells(path, name, table.column(name)) for name in table.column_names}


def _cells(path: str | PathLike[str], name: str, column: Any) -> list[str] | NDArray[Any]:
    import pyarrow as arrow

    kind = column.type
    if arrow.types.is_dictionary(kind):
        kind = kind.value_type
    if arrow.types.is_string(kind) or arrow.types.is_large_string(kind):
        return [cell or "" for cell in column.to_pylist()]
    if arrow.types.is_timestamp(kind):  # with a zone they hold UTC already; without, UTC is meant
        return np.asarray(column.cast(arrow.timestamp("us"), safe=False).to_numpy())
    if name in ("source", "item"):
        return ["" if cell is None else str(cell) for cell in column.to_pylist()]
    try:
        return np.asarray(column.cast(arrow.float64(), safe=False).to_numpy(), dtype=np.float64)
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
        raise ValueError(f"{path}: column {name} holds {kind}; it must hold numbers") from None
