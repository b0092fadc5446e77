"""Fleets as CSV files: reading with errors that name file, row and column, and writing whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike

from crawl_env.files import csv_table as csv_file
from crawl_env.files.csv_table import line_of
from crawl_env.fleet.parameters import DESCRIBED
from crawl_env.numerics import FloatArray

NAME, HOST = "source", "host"
DEFAULTS = {name: p.default for name, p in DESCRIBED.items() if p.default is not None}
REQUIRED = tuple(name for name in DESCRIBED if name not in DEFAULTS)
COLUMNS = (NAME, *REQUIRED, *DEFAULTS, HOST)


def read(
    path: str | PathLike[str],
) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, FloatArray]]:
    """Return the names, the hosts or (), and the numeric columns, each (N,)."""
    table = csv_file.read(path, COLUMNS, (NAME, *REQUIRED))
    if not table[NAME]:
        raise ValueError(f"{path}: no sources below the header; add one row a source")
    names = tuple(map(str.strip, table.pop(NAME)))
    _check_names(path, names)
    hosts = tuple(table.pop(HOST, ()))
    columns = {name: _filled(name, cells) for name, cells in table.items()}
    return names, hosts, {n: csv_file.numbers(path, n, cells) for n, cells in columns.items()}


def write(
    path: str | PathLike[str],
    names: Sequence[str],
    columns: Mapping[str, FloatArray],
    hosts: Sequence[str] = (),
) -> None:
    """Write the fleet; the file appears whole or not at all."""
    text: dict[str, Iterable[str]] = {NAME: names}
    text |= {name: map(repr, column.tolist()) for name, column in columns.items()}
    csv_file.write(path, text | ({HOST: hosts} if hosts else {}))


def _filled(name: str, cells: list[str]) -> list[str]:
    """Put the default in empty cells of an optional column."""
    if name not in DEFAULTS:
        return cells
    default = repr(DEFAULTS[name])
    return [cell if cell.strip() else default for cell in cells]


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
