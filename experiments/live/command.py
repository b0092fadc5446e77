"""`python -m experiments live`: the live scheduler under load and in use.

Each part is a module with the name of its `TABLE`, `answer(rows)`, a sentence, and `write(report,
rows)`. What there is to do is in jobs, whose results are kept: those under load have `jobs(sources,
seconds)` and `work(job, folder)`, which does one alone, returns its rows, and may keep files in the
folder until the report is written; those of `feeds` and `failing` give a row each.
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
from ephemeral_crawl.core.runner import Job, Result, Runner
from ephemeral_crawl.core.study import ParallelStudy, RecordedStudy, Rows, attributed
from experiments.live import http, process
from experiments.live.feeds import failing
from experiments.live.feeds import measure as feeds

PARTS: dict[str, ModuleType] = {
    "process": process,
    "http": http,
    "feeds": feeds,
    "failing": failing,
}


@dataclass(kw_only=True)
class Live(RecordedStudy, ParallelStudy):
    """Measures the live scheduler: how many leases and reports it handles, in one process and
    over HTTP, how long they take, and what a crawl collects: of sixty feeds, and of two hundred
    beside others that are dead. What is finished is kept if it is stopped."""

    title: ClassVar[str] = "The live scheduler"
    outputs: ClassVar[tuple[str, ...]] = (
        *(part.TABLE for part in PARTS.values()),
        "report.html",
    )

    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="PART")] = ()
    """Parts to measure: process, http, feeds, failing; by default all. The record of the others,
    and of other numbers of sources, is kept."""
    sources: int = 10**6
    """Sources in the store."""
    seconds: float = 20.0
    """Time of each measurement under load."""
    http_seeds: int = 8
    """Seeds, of eight, of which the feeds are also crawled over HTTP, rather than only without
    sockets; each takes some minutes."""

    def measure(self) -> dict[str, Rows]:
        asked = [check_choice("part", name, PARTS) for name in self.only] or list(PARTS)
        tables = self.recorded() if any(self.folder.glob("*.csv")) else {}
        for name in PARTS:
            if name in asked:
                table = PARTS[name].TABLE
                rows = attributed(self._rows(name))
                tables[table] = [*_others(tables.get(table, ()), rows), *rows]
        return tables

    def _rows(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Return the rows of a part. Finished ones are kept until the report is written."""
        if name in ("feeds", "failing"):
            part = PARTS[name]
            todo = part.jobs(http_seeds=self.http_seeds) if name == "feeds" else part.jobs()
            return part.rows(todo, self.runner.run(todo, part.work))
        alone = Runner(self.runner.kept, 1, "sequential")
        todo = PARTS[name].jobs(self.sources, self.seconds)
        common = {"part": name, "folder": str(alone.kept)}
        results = alone.run([common | job for job in todo], _under_load)
        return [row for result in results for row in result["rows"]]

    def write(self, report: Report, tables: Mapping[str, Rows]) -> None:
        parts = [part for part in PARTS.values() if part.TABLE in tables]
        report.answer(" ".join(part.answer(tables[part.TABLE]) for part in parts))
        for part in parts:
            part.write(report, tables[part.TABLE])


def _under_load(job: Job) -> Result:
    return {"rows": PARTS[job["part"]].work(job, Path(job["folder"]))}


def _others(recorded: Rows, rows: Rows) -> Rows:
    """Return the rows of a record that are of other numbers of sources."""
    measured = {str(row.get("sources")) for row in rows}
    return [row for row in recorded if str(row.get("sources")) not in measured]
