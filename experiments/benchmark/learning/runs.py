"""The records: what has been run, and the files that hold it.

`runs.csv.gz` has one row for every test of a training, and for every policy they are compared with;
`curves.csv.gz` one for every evaluation during a training. Both can be moved to another machine:
what they hold is not run again, whichever code produced it (each row names its commit).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crawl_env.errors import unknown
from experiments.benchmark.learning.entrants import Entrant
from experiments.benchmark.learning.plan import (
    BASELINES,
    BLIND_BOUND,
    BOUND,
    plan,
    version_of,
    work,
)
from experiments.core.migration import key_of, old_keys, renamed
from experiments.core.results import provenance, read_csv
from experiments.core.runner import Job, Runner, Version

RUNS, CURVES = "runs.csv.gz", "curves.csv.gz"

Row = dict[str, Any]


class Records:
    """All rows, as text where they come from files."""

    def __init__(self, runs: list[Row], curves: list[Row]) -> None:
        self.runs, self.curves = runs, curves

    @staticmethod
    def read(folder: Path) -> Records:
        """Return what a folder holds; nothing where there is none."""
        runs, curves = folder / RUNS, folder / CURVES
        if not (runs.exists() and curves.exists()):
            return Records([], [])
        return Records([*read_csv(runs)], [*read_csv(curves)])

    def migrated(self, units: Iterable[Job]) -> Records:
        """Return the same rows under the present names, which units may have been renamed to.

        Arguments:
            units: those whose results may lie here under an earlier key; see
                `experiments.core.migration`.
        """
        keys = {row["unit"] for row in self.runs}
        now: dict[str, str] = {}
        for unit in units:
            if key_of(unit) not in keys:
                now |= {key: key_of(unit) for key in old_keys(unit) if key in keys}
        return Records(
            [_renamed(row, now) for row in self.runs], [_renamed(row, now) for row in self.curves]
        )

    def of(self, keys: Iterable[str], among: bool = True) -> Records:
        """Return the rows of these units alone, or all others."""
        wanted = set(keys)
        return Records(
            [row for row in self.runs if (row["unit"] in wanted) == among],
            [row for row in self.curves if (row["unit"] in wanted) == among],
        )

    def __add__(self, other: Records) -> Records:
        return Records(self.runs + other.runs, self.curves + other.curves)


def complete(
    entrants: Sequence[Entrant],
    found: Records,
    runner: Runner,
    redo: Sequence[str] = (),
    only_done: bool = False,
    version: Version | None = version_of,
) -> Records:
    """Return the records of all entrants, running what `found` lacks, and what is to be redone.

    Arguments:
        runner: keeps finished units while others still run; a later call reuses them as long as
            `version` is the same: see `experiments.core.runner`.
        redo: names of entrants, baselines or bounds, or "all".
        only_done: run nothing, and leave out what has not been run before.

    Raises:
        ValueError: `redo` names none of them; threads cannot train; nothing has been run.
        SystemExit: stopped by Ctrl-C; what was finished is kept.
    """
    names = [*(entrant.name for entrant in entrants), *BASELINES, BOUND, BLIND_BOUND, "all"]
    for name in redo:
        if name not in names:
            raise unknown("name after --redo,", name, names)
    if runner.engine == "threading":
        raise ValueError(
            "trainings draw from generators of the whole process and count its time, which threads "
            "would share; use --engine loky, or --jobs 1 with sequential"
        )
    todo = {key_of(unit): unit for unit in plan(entrants)}
    old = found.of(
        row["unit"]
        for row in found.runs
        if row["unit"] in todo and not {"all", row["entrant"]} & set(redo)
    )
    done = {row["unit"] for row in old.runs}
    missing = [key for key in todo if key not in done]
    if only_done:
        missing = [key for key in missing if runner.has(todo[key], version)]
        if not (done or missing):
            raise ValueError("nothing has been run yet; leave out --only-report")
    results = runner.run([todo[key] for key in missing], work, version)
    fresh = Records([], [])
    command = {"command": provenance()["command"]}
    for key, result in zip(missing, results, strict=True):
        fresh.runs += [{"unit": key, **row, **command} for row in result["runs"]]
        fresh.curves += [{"unit": key, **row} for row in result["curves"]]
    order = {key: i for i, key in enumerate(todo)}
    together = old + fresh
    for rows in (together.runs, together.curves):
        rows.sort(key=lambda row: order[row["unit"]])
    return together


def _renamed(row: Row, keys: Mapping[str, str]) -> Row:
    """Return a row under the present names: its key, its columns and its settings."""
    row = {**row, "unit": keys.get(row["unit"], row["unit"])}
    if row.get("settings"):
        settings = renamed({**row, "settings": json.loads(row["settings"])})["settings"]
        row["settings"] = json.dumps(settings, sort_keys=True)
    return renamed(row)
