"""Studies as data: what is run, what is measured, and what the report shows.

A study is a subclass of `PartsStudy` in `experiments/NAME.py` (or in `experiments/NAME/command.py`
if it needs more than one file), which lists its parts; see `docs/how-to/study.md` for one. A job
is JSON: `columns`, which are those of its rows, and what its measure needs. Results of jobs are
kept while a study runs, so that the same command resumes a run that was stopped.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from crawl_env import Task
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import (
    ParallelStudy,
    RecordedStudy,
    ResumableStudy,
    Rows,
    attributed,
)
from experiments.core.data import Data, Item, write


def collected(job: Job) -> Result:
    """Return what the agent of a job collects on its task, the measure of most studies.

    The job has `agent`, `arguments` of the environment, `runs` (arguments of `agents.evaluate`),
    and perhaps `options` of the agent; see `ephemeral_crawl.core.evaluation`.

    Returns the reward per step of each run (S,); the expected utility that is published per step;
    and the relaxed bound and the information set that it holds for.
    """
    fleet = Task(**evaluation.arguments_of(job)).sources
    arguments = {name: x for name, x in job["arguments"].items() if name != "features"}
    found = _bound(json.dumps({"arguments": arguments, "runs": job["runs"]}))
    return {
        "reward": evaluation.work(job)["reward"],
        "published": float((fleet.arrival_rate * fleet.mean_utility).sum() * fleet.period),
        "bound": found["bound"],
        "information": found["name"],
    }


@lru_cache(maxsize=32)
def _bound(task: str) -> Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return evaluation.bound(json.loads(task))


def each_run(job: Job, result: Result, run: str = "run") -> Iterator[dict[str, Any]]:
    """Yield a row for each run of a job: its columns, and its results, of which lists have a value
    for each run; one row if there are none.

    >>> job, result = {"columns": {"agent": "a"}}, {"reward": [1.5, 2.5], "bound": 4.0}
    >>> list(each_run(job, result))[1]
    {'agent': 'a', 'run': 1, 'reward': '2.5', 'bound': '4.0'}
    """
    lengths = [len(x) for x in result.values() if isinstance(x, list)]
    for i in range(max(lengths, default=1)):
        of_run = {name: x[i] if isinstance(x, list) else x for name, x in result.items()}
        shown = {name: repr(x) if isinstance(x, float) else x for name, x in of_run.items()}
        yield {**job["columns"], **({run: i} if lengths else {}), **shown}


@dataclass(frozen=True)
class Part:
    """A part of a study: a table of records, and a section of the report.

    Arguments:
        jobs: what is run, given the study with its options.
        content: of the section; see `experiments.core.data`.
        claim: a sentence on what was found, computed from the rows.
        heading: of the section.
        work: the measure: runs a job, and returns its result.
        rows: yields the rows of a job and its result.
        file: of the table; by default NAME.csv.gz.
    """

    jobs: Callable[[Any], Sequence[Job]]
    content: Sequence[Item]
    claim: Callable[[Data], str]
    heading: str = ""
    work: Callable[[Job], Result] = collected
    rows: Callable[[Job, Result], Iterator[dict[str, Any]]] = each_run
    file: str = ""


@dataclass(kw_only=True)
class PartsStudy(RecordedStudy, ResumableStudy):
    """A study that consists of parts; with `ParallelStudy`, jobs run in parallel."""

    parts: ClassVar[Mapping[str, Part]]  # by name, in the order of the report
    after: ClassVar[Sequence[Callable[[Report, Mapping[str, Data]], None]]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "parts" in vars(cls):
            files = (part.file or f"{name}.csv.gz" for name, part in cls.parts.items())
            cls.outputs = (*files, "*.png", "report.html")

    def asked(self) -> Sequence[str]:
        """Return the names of the parts that are run; the records of the others are kept."""
        return tuple(self.parts)

    def measure(self) -> dict[str, Rows]:
        asked = self.asked()
        kept: dict[str, Rows] = {}
        if set(asked) < set(self.parts) and any(self.folder.glob("*.csv*")):
            kept = self.recorded()
        jobs = {name: [{"part": name, **job} for job in self.parts[name].jobs(self)]
                for name in asked}  # fmt: skip
        results = iter(self.runner.run([job for some in jobs.values() for job in some], self.work))
        return kept | {
            self._file(name): attributed(
                [row for job in some for row in self.parts[name].rows(job, next(results))]
            )
            for name, some in jobs.items()
            if some
        }

    @classmethod
    def work(cls, job: Job) -> Result:
        """Run a job of any part."""
        return cls.parts[job["part"]].work(job)

    def write(self, report: Report, tables: Mapping[str, Rows]) -> None:
        found = {
            name: Data(tables[self._file(name)])
            for name in self.parts
            if self._file(name) in tables
        }
        first, *others = (_sentence(self.parts[name].claim(found[name])) for name in found)
        report.answer(first)
        for claim in others:
            report.paragraph(claim)
        for name, data in found.items():
            part = self.parts[name]
            if part.heading:
                report.heading(part.heading)
            write(report, data, part.content)
        for function in self.after:
            function(report, found)

    def _file(self, name: str) -> str:
        return self.parts[name].file or f"{name}.csv.gz"


def _sentence(claim: str) -> str:
    return f"{claim[:1].upper()}{claim[1:].removesuffix('.')}."


def single(part: Part) -> dict[str, Part]:
    """Return the parts of a study that has one, whose table is records.csv."""
    return {"": replace(part, file="records.csv")}


@dataclass(frozen=True)
class Size:
    """How long and how often the parts of a study are run."""

    seeds: int
    steps: int
    warmup: int
    quick: bool = False  # fewer cases
    seed: int = 0
    recordings: tuple[Path, ...] = ()  # folders with items.csv.gz and curves.csv.gz

    @property
    def runs(self) -> dict[str, int]:
        """The arguments of `agents.evaluate`."""
        names = ("seeds", "seed", "steps", "warmup")
        return {name: getattr(self, name) for name in names}


@dataclass(kw_only=True)
class SuiteStudy(PartsStudy, ParallelStudy):
    """An experiment of which any parts may be run, in two sizes."""

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

    def asked(self) -> Sequence[str]:
        return tuple(dict.fromkeys(self.part)) or tuple(self.parts)

    @property
    def size(self) -> Size:
        """The size of the suite, with what the options replace."""
        size = self.sizes[self.suite]
        return replace(
            size,
            seeds=size.seeds if self.seeds is None else self.seeds,
            steps=size.steps if self.steps is None else self.steps,
            seed=self.seed,
            recordings=self.recordings,
        )
