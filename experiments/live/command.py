"""`python -m experiments live`: the live scheduler under load and in use.

Each part is a module with the name of its `TABLE`; `jobs(sources, seconds)`, what there is to do,
and `work(job, folder)`, which does one and returns its rows, and may keep files in the folder until
all are done; `answer(rows)`, a sentence; and `write(report, rows)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar

import tyro

from crawl_env.errors import check_choice
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import RecordedStudy, ResumableStudy, Rows, attributed
from experiments.live import http, process
from experiments.live.feeds import measure as feeds

PARTS: dict[str, ModuleType] = {"process": process, "http": http, "feeds": feeds}


@dataclass(kw_only=True)
class Live(RecordedStudy, ResumableStudy):
    """Measures the live scheduler: how many leases and reports it handles, in one process and
    over HTTP, how long they take, and what a crawl of sixty feeds collects. What is finished is
    kept if it is stopped."""

    title: ClassVar[str] = "The live scheduler"
    outputs: ClassVar[tuple[str, ...]] = ("*.csv", "report.html")

    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="PART")] = ()
    """Parts to measure: process, http, feeds; by default all. The record of the others, and of
    other numbers of sources, is kept."""
    sources: int = 10**6
    """Sources in the store."""
    seconds: float = 20.0
    """Time of each measurement under load."""

    def measure(self) -> Mapping[str, Rows]:
        asked = [check_choice("part", name, PARTS) for name in self.only] or list(PARTS)
        before = self.recorded() if any(self.folder.glob("*.csv")) else {}
        tables: dict[str, Rows] = {
            name: before[name] for part in PARTS.values() for name in [part.TABLE] if name in before
        }
        jobs = [
            {"part": name, "folder": str(self.runner.kept), **job}
            for name in asked
            for job in PARTS[name].jobs(self.sources, self.seconds)
        ]
        results = self.runner.run(jobs, _work)
        for name in asked:
            rows = [
                row
                for job, result in zip(jobs, results, strict=True)
                if job["part"] == name
                for row in result["rows"]
            ]
            table = PARTS[name].TABLE
            tables[table] = [*_others(tables.get(table, ()), rows), *rows]
        return tables

    def write(self, report: Report, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        parts = [part for part in PARTS.values() if part.TABLE in tables]
        report.answer(" ".join(part.answer(tables[part.TABLE]) for part in parts))
        for part in parts:
            part.write(report, tables[part.TABLE])


def _work(job: Job) -> Result:
    return {"rows": attributed(PARTS[job["part"]].work(job, Path(job["folder"])))}


def _others(recorded: Rows, rows: Rows) -> Rows:
    """Return the rows of a record that are of other numbers of sources."""
    measured = {str(row.get("sources")) for row in rows}
    return [row for row in recorded if str(row.get("sources")) not in measured]
