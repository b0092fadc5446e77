"""`python -m experiments signals`: what signals that may be false or missing are worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import ParallelStudy, RecordedStudy, Rows, attributed
from experiments.signals import checks, delay, exact, freshness, mixed, quality, recordings, unknown
from experiments.signals.runs import FULL, QUICK, Size

# Every part is a module with PART, jobs, work, records, write and finding; see `quality`.
PARTS: dict[str, Any] = {
    module.PART: module for module in (quality, exact, freshness, delay, mixed, unknown, recordings)
}

Part = Literal["quality", "exact", "freshness", "delay", "mixed", "unknown", "recordings"]


@dataclass(kw_only=True)
class Signals(RecordedStudy, ParallelStudy):
    """What signals of changes (WebSub, sitemaps, webhooks) that may be false or missing are worth
    to a crawler, by recall, precision and budget."""

    title: ClassVar[str] = "What signals of changes are worth"
    outputs: ClassVar[tuple[str, ...]] = (
        *(f"{name}.csv.gz" for name in PARTS),
        "*.png",
        "report.html",
    )

    suite: Literal["quick", "full"] = "full"
    """quick: few cases and short runs, under a minute. full: what is reported."""
    part: tuple[Part, ...] = ()
    """Parts to run; the recorded tables of the others are kept. By default all are run, the
    recordings if some are given."""
    recordings: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FOLDER")] = ()
    """Folders of recordings, each with items.csv.gz and curves.csv.gz (see `replay`)."""
    seeds: int | None = None
    """Runs of each policy, instead of those of the suite."""
    steps: int | None = None
    """Steps measured in each run, instead of those of the suite."""
    seed: int = 0
    """Seed of the arrivals, and of the pings."""

    def measure(self) -> dict[str, Rows]:
        jobs = {name: PARTS[name].jobs(self._size()) for name in self._parts()}
        todo = [job for of_part in jobs.values() for job in of_part]
        results = iter(self.runner.run(todo, work))
        kept = self.recorded() if self.part and any(self.folder.glob("*.csv.gz")) else {}
        return kept | {
            f"{name}.csv.gz": attributed(
                PARTS[name].records(of_part, [next(results) for _ in of_part])
            )
            for name, of_part in jobs.items()
            if of_part
        }

    def write(self, report: Report, tables: Mapping[str, Rows]) -> None:
        rows = {name: tables[f"{name}.csv.gz"] for name in PARTS if f"{name}.csv.gz" in tables}
        first, *others = (_sentence(PARTS[name].finding(of_part)) for name, of_part in rows.items())
        report.answer(first)
        for found in others:
            report.paragraph(found)
        for name, of_part in rows.items():
            PARTS[name].write(report, of_part)
        checks.write(report, rows)

    def _parts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.part)) or tuple(PARTS)

    def _size(self) -> Size:
        size = QUICK if self.suite == "quick" else FULL
        return replace(
            size,
            seeds=size.seeds if self.seeds is None else self.seeds,
            steps=size.steps if self.steps is None else self.steps,
            seed=self.seed,
            recordings=self.recordings,
        )


def _sentence(found: str) -> str:
    return f"{found[:1].upper()}{found[1:]}."


def work(job: Job) -> Result:
    """Run a job of any part."""
    result: Result = PARTS[job["part"]].work(job)
    return result
