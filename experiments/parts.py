"""Studies of several parts, each of which has a table and a section of one report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import ParallelStudy, RecordedStudy, Rows, attributed


@dataclass(frozen=True)
class Size:
    """How long and how often the parts of a study are run."""

    seeds: int
    steps: int
    warmup: int
    quick: bool  # fewer cases
    seed: int = 0
    recordings: tuple[Path, ...] = ()  # folders with items.csv.gz and curves.csv.gz


@dataclass(kw_only=True)
class MultipartStudy(RecordedStudy, ParallelStudy):
    """A study whose parts are modules, each with PART, jobs, work, records, write and finding."""

    parts: ClassVar[Mapping[str, Any]]  # the modules by PART
    sizes: ClassVar[Mapping[str, Size]]  # of the suites

    suite: Literal["quick", "full"] = "full"
    """quick: few cases and short runs, about a minute. full: what is reported."""
    part: tuple[str, ...] = ()
    """Parts to run; the recorded tables of the others are kept. By default all are run."""
    recordings: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FOLDER")] = ()
    """Folders of recordings, each with items.csv.gz and curves.csv.gz (see `replay`)."""
    seeds: int | None = None
    """Runs of each policy, instead of those of the suite."""
    steps: int | None = None
    """Steps measured in each run, instead of those of the suite."""
    seed: int = 0
    """Seed of the arrivals, and of all else that is random."""

    def measure(self) -> dict[str, Rows]:
        names = tuple(dict.fromkeys(self.part)) or tuple(self.parts)
        jobs = {name: self.parts[name].jobs(self._size()) for name in names}
        todo = [job for of_part in jobs.values() for job in of_part]
        results = iter(self.runner.run(todo, type(self).work))
        kept = self.recorded() if self.part and any(self.folder.glob("*.csv.gz")) else {}
        return kept | {
            f"{name}.csv.gz": attributed(
                self.parts[name].records(of_part, [next(results) for _ in of_part])
            )
            for name, of_part in jobs.items()
            if of_part
        }

    @classmethod
    def work(cls, job: Job) -> Result:
        """Run a job of any part."""
        result: Result = cls.parts[job["part"]].work(job)
        return result

    def write(self, report: Report, tables: Mapping[str, Rows]) -> None:
        rows = self.of_parts(tables)
        first, *others = (_sentence(self.parts[name].finding(rows[name])) for name in rows)
        report.answer(first)
        for found in others:
            report.paragraph(found)
        for name in rows:
            self.parts[name].write(report, rows[name])

    def of_parts(self, tables: Mapping[str, Rows]) -> dict[str, Rows]:
        """Return the tables by their parts, in the order of these."""
        found = {name: f"{name}.csv.gz" for name in self.parts}
        return {name: tables[file] for name, file in found.items() if file in tables}

    def _size(self) -> Size:
        size = self.sizes[self.suite]
        return replace(
            size,
            seeds=size.seeds if self.seeds is None else self.seeds,
            steps=size.steps if self.steps is None else self.steps,
            seed=self.seed,
            recordings=self.recordings,
        )


def _sentence(found: str) -> str:
    return f"{found[:1].upper()}{found[1:].removesuffix('.')}."
