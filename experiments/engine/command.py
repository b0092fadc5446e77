"""`python -m experiments engine`: crawling for an engine that cannot index everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import ParallelStudy, RecordedStudy, Rows, attributed
from experiments.engine import exact, learner, recordings, service
from experiments.signals.runs import Size

# Every part is a module with PART, jobs, work, records, write and finding.
PARTS: dict[str, Any] = {module.PART: module for module in (service, exact, learner, recordings)}
QUICK = Size(seeds=4, steps=120, warmup=30, quick=True)
FULL = Size(seeds=16, steps=1000, warmup=200, quick=False)


@dataclass(kw_only=True)
class Engine(RecordedStudy, ParallelStudy):
    """What a crawler loses that ignores the indexing engine behind it, as its service falls from
    ample to scarce, and what refusing stale items and an index that heeds the engine win."""

    title: ClassVar[str] = "Crawling for an indexing engine"
    outputs: ClassVar[tuple[str, ...]] = (
        *(f"{name}.csv.gz" for name in PARTS),
        "*.png",
        "report.html",
    )

    suite: Literal["quick", "full"] = "full"
    """quick: few cases and short runs, about a minute. full: what is reported."""
    part: tuple[Literal["service", "exact", "learner", "recordings"], ...] = ()
    """Parts to run; the recorded tables of the others are kept. By default all are run."""
    recordings: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FOLDER")] = ()
    """Folders of recordings, each with items.csv.gz and curves.csv.gz (see `replay`). Without any,
    the log that `ephemeral-crawl example` writes stands for one."""
    seeds: int | None = None
    """Runs of each policy, instead of those of the suite."""
    steps: int | None = None
    """Steps measured in each run, instead of those of the suite."""
    seed: int = 0
    """Seed of the arrivals."""

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
        first, *others = (PARTS[name].finding(of_part) for name, of_part in rows.items())
        report.answer(first)
        for found in others:
            report.paragraph(found)
        for name, of_part in rows.items():
            PARTS[name].write(report, of_part)

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


def work(job: Job) -> Result:
    """Run a job of any part."""
    result: Result = PARTS[job["part"]].work(job)
    return result
