"""Fleets as CSV files: reading with errors that name file, row and column, and writing whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike

from crawl_env import csv_file
from crawl_env.csv_file import line_of
from crawl_env.numerics import FloatArray

NAME = "source"
REQUIRED = ("arrival_rate", "mean_utility", "decay_rate")
COLUMNS = (NAME, *REQUIRED, "cost")


def read(path: str | PathLike[str]) -> tuple[tuple[str, ...], dict[str, FloatArray]]:
    """Return the names and the numeric columns, each (N,)."""
    table = csv_file.read(path, COLUMNS, (NAME, *REQUIRED))
    if not table[NAME]:
        raise ValueError(f"{path}: no sources below the header; add one row a source")
    names = tuple(map(str.strip, table.pop(NAME)))
    _check_names(path, names)
    return names, {name: csv_file.numbers(path, name, cells) for name, cells in table.items()}


def write(
    path: str | PathLike[str], names: Sequence[str], columns: Mapping[str, FloatArray]
) -> None:
    """Write the fleet; the file appears whole or not at all."""
    text = {name: map(repr, column.tolist()) for name, column in columns.items()}
    csv_file.write(path, {NAME: names, **text})


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
