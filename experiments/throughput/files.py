"""Microseconds per row of reading and writing fleets and logs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

import numpy as np

from crawl_env import ItemLog, Sources
from experiments.core.clock import Call

LARGEST = 10**6  # rows


class FileCost(NamedTuple):
    """Reading and writing times of a file; medians over rounds."""

    what: str
    rows: int
    read: float  # microseconds per row
    written: float


def all_file_costs(largest: int, rounds: int) -> Iterator[FileCost]:
    """Yield the cost of fleets and logs, of a tenth of `largest` rows and of all of them."""
    with tempfile.TemporaryDirectory() as folder:
        for rows in sorted({max(1, largest // 10), largest}):
            fleet = Sources.random(rows, seed=0)
            for suffix in (".csv", ".csv.gz"):
                path = Path(folder) / f"fleet{suffix}"
                yield FileCost(
                    f"fleet, {suffix}",
                    rows,
                    written=_cost(partial(fleet.to_csv, path), rows, rounds),
                    read=_cost(partial(Sources.from_csv, path), rows, rounds),
                )
            log = _log(rows)
            for suffix in (".csv", ".csv.gz"):
                path = Path(folder) / f"log{suffix}"
                yield FileCost(
                    f"log of items, {suffix}",
                    rows,
                    written=_cost(partial(log.to_csv, path), rows, rounds),
                    read=_cost(partial(ItemLog.from_csv, path), rows, rounds),
                )


def _log(rows: int) -> ItemLog:
    rng = np.random.default_rng(0)
    names = [f"source-{i}" for i in range(max(1, rows // 100))]
    source = rng.integers(0, len(names), rows)
    return ItemLog(names, source, np.sort(rng.uniform(0, 1000, rows)), rng.random(rows), 0, 1000)


def _cost(call: Call, rows: int, rounds: int) -> float:
    """Return the median time of a call, in microseconds per row; calls of seconds are made once."""
    times: list[float] = []
    while len(times) < rounds and sum(times) < 2.0:
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return median(times) / rows * 1e6
