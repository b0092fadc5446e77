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
from crawl_env.errors import check_choice
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result, Runner
from ephemeral_crawl.core.study import (
    ParallelStudy,
    RecordedStudy,
    ResumableStudy,
    Rows,
    attributed,
)
from experiments.core.data import Data, Item, write


def collected(job: Job) -> Result:
    """Return the rewards of the agent of a job on its task, the measure of most studies.

    The job has `agent`, `arguments` of the environment, `runs` (arguments of `agents.evaluate`),
    and perhaps `options` of the agent; see `ephemeral_crawl.core.evaluation`.

    Returns the reward per step of each run (S,); the expected utility that is published per step;
    and the relaxed bound and the information set that it holds for.
    """
    fleet = Task(**evaluation.arguments_of(job)).sources
    arguments = {name: x for name, x in job["arguments"].items() if name != "features"}
    bound = _bound(json.dumps({"arguments": arguments, "runs": job["runs"]}))
    return {
        "reward": evaluation.work(job)["reward"],
        "published": float((fleet.arrival_rate * fleet.mean_utility).sum() * fleet.period),
        "bound": bound["bound"],
        "information": bound["name"],
    }


@lru_cache(maxsize=32)
def _bound(task: str) -> Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return evaluation.bound(json.loads(task))


def each_run(job: Job, result: Result, run: str = "run") -> Iterator[dict[str, Any]]:
    """Yield a row for each run of a job: its columns, and its results, of which lists have a value
    for each run; one row if there are none. A result with a list `rows` has made them itself.

    >>> job, result = {"columns": {"agent": "a"}}, {"reward": [1.5, 2.5], "bound": 4.0}
    >>> list(each_run(job, result))[1]
    {'agent': 'a', 'run': 1, 'reward': '2.5', 'bound': '4.0'}
    """
    if isinstance(result.get("rows"), list):
        yield from result["rows"]
        return
    lengths = [len(x) for x in result.values() if isinstance(x, list)]
    for i in range(max(lengths, default=1)):
        of_run = {name: x[i] if isinstance(x, list) else x for name, x in result.items()}
        cells = {name: repr(x) if isinstance(x, float) else x for name, x in of_run.items()}
        yield {**job.get("columns", {}), **({run: i} if lengths else {}), **cells}


@dataclass(frozen=True)
class Part:
    """A part of a study: a table of records, and a section of the report.

    Arguments:
        jobs: what is run, given the study with its options.
        content: of the section; see `experiments.core.data`.
        claim: a sentence on the result, computed from the rows.
        heading: of the section.
        work: the measure: runs a job, and returns its result.
        rows: yields the rows of a job and its result.
        file: of the table; by default NAME.csv.gz. Parts may share a file, whose rows then have a
            column `part`.
        tables: the rows of several files, by their names, from all jobs and their results; instead
            of `rows`.
        files: the names of these files.
        alone: whether jobs run one after the other in this process, since they measure time.
    """

    jobs: Callable[[Any], Sequence[Job]]
    content: Sequence[Item]
    claim: Callable[[Data], str]
    heading: str = ""
    work: Callable[[Job], Result] = collected
    rows: Callable[[Job, Result], Iterator[dict[str, Any]]] = each_run
    file: str = ""
    tables: Callable[[Sequence[Job], Sequence[Result]], Mapping[str, Rows]] | None = None
    files: Sequence[str] = ()
    alone: bool = False

    def rows_of(self, jobs: Sequence[Job], results: Sequence[Result]) -> Sequence[Rows]:
        """Return the rows of some jobs and their results, for each file."""
        if self.tables is not None:
            by_file = self.tables(jobs, results)
            return [by_file[file] for file in self.files]
        pairs = zip(jobs, results, strict=True)
        return [[row for pair in pairs for row in self.rows(*pair)]]

    def names(self, name: str) -> Sequence[str]:
        """Return the names of the files of the part of a name."""
        return self.files or (self.file or f"{name}.csv.gz",)


@dataclass(kw_only=True)
class PartsStudy(RecordedStudy, ResumableStudy):
    """A study that consists of parts; with `ParallelStudy`, jobs run in parallel. An option `part`
    or `only` names the parts that are run."""

    parts: ClassVar[Mapping[str, Part]]  # by name, in the order of the report
    after: ClassVar[Sequence[Callable[[Report, Mapping[str, Data]], None]]] = ()
    adds: ClassVar[str] = ""  # a column: rows with other values of it stay in the record

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "parts" in vars(cls):
            files = (file for name, part in cls.parts.items() for file in part.names(name))
            cls.outputs = (*dict.fromkeys(files), "*.png", "report.html")

    def asked(self) -> Sequence[str]:
        """Return the names of the parts that are run; the records of the others are kept.

        Raises:
            ValueError: there is no such part.
        """
        names = getattr(self, "part", ()) or getattr(self, "only", ())
        return [check_choice("part", name, self.parts) for name in names] or list(self.parts)

    def measure(self) -> dict[str, Rows]:
        names = [name for name in self.parts if name in self.asked()]
        before: Mapping[str, Rows] = {}
        if (self.adds or len(names) < len(self.parts)) and any(self.folder.glob("*.csv*")):
            before = self.recorded()
        jobs = {name: [{"part": name, **job} for job in self.parts[name].jobs(self)]
                for name in names}  # fmt: skip
        results = self._results(jobs)
        tables: dict[str, list[Mapping[str, Any]]] = {}
        for name, part in self.parts.items():
            files = part.names(name)
            of_files = [self._of(name, before, file) for file in files]
            if jobs.get(name):
                fresh = part.rows_of(jobs[name], results[name])
                of_files = [
                    self._with_others(name, file, *both)
                    for file, *both in zip(files, of_files, fresh, strict=True)
                ]
            for file, rows in zip(files, of_files, strict=True):
                tables.setdefault(file, []).extend(rows)
        return {file: rows for file, rows in tables.items() if rows}

    def _results(self, jobs: Mapping[str, Sequence[Job]]) -> dict[str, list[Result]]:
        """Run the jobs of some parts."""
        alone = [name for name in jobs if self.parts[name].alone]
        by_part: dict[str, list[Result]] = {}
        for names, runner in (
            ([name for name in jobs if name not in alone], self.runner),
            (alone, Runner(self.runner.folder, 1, "sequential")),
        ):
            if names:
                results = iter(runner.run([job for name in names for job in jobs[name]], self.work))
                by_part |= {name: [next(results) for _ in jobs[name]] for name in names}
        return by_part

    @classmethod
    def work(cls, job: Job) -> Result:
        """Run a job of any part."""
        return cls.parts[job["part"]].work(job)

    def write(self, report: Report, tables: Mapping[str, Rows]) -> None:
        by_part = self.data_by_part(tables)
        first, *others = (_sentence(self.parts[name].claim(by_part[name])) for name in by_part)
        report.answer(first)
        for claim in others:
            report.paragraph(claim)
        for name, data in by_part.items():
            part = self.parts[name]
            if part.heading:
                report.heading(part.heading)
            write(report, data, part.content)
        for function in self.after:
            function(report, by_part)

    def data_by_part(self, tables: Mapping[str, Rows]) -> dict[str, Data]:
        """Return the rows of the parts that are recorded, by name."""
        rows = {
            name: [row for file in part.names(name) for row in self._of(name, tables, file)]
            for name, part in self.parts.items()
        }
        return {name: Data(of_part) for name, of_part in rows.items() if of_part}

    def _shares(self, file: str) -> bool:
        return sum(file in part.names(name) for name, part in self.parts.items()) > 1

    def _of(self, name: str, tables: Mapping[str, Rows], file: str) -> Rows:
        """Return the rows of a part in a file."""
        rows = tables.get(file, ())
        return [row for row in rows if row["part"] == name] if self._shares(file) else rows

    def _with_others(self, name: str, file: str, old: Rows, new: Rows) -> Rows:
        """Return the rows of a part that were measured, after those of its record that stay."""
        label = {"part": name} if self._shares(file) else {}
        rows = attributed({**label, **row} for row in new)
        values = {str(row.get(self.adds)) for row in rows}
        others = [row for row in old if self.adds and str(row.get(self.adds)) not in values]
        return [*others, *rows]


def _sentence(claim: str) -> str:
    return f"{claim[:1].upper()}{claim[1:].removesuffix('.')}."


def single(part: Part) -> dict[str, Part]:
    """Return the parts of a study that has one, whose table is records.csv."""
    return {"": replace(part, file="records.csv")}


Recordings = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FOLDER")]


@dataclass(frozen=True)
class Size:
    """How long and how often the parts of a study are run."""

    seeds: int
    steps: int
    warmup: int = 0
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
    seeds: int | None = None
    """Runs of each policy, instead of those of the suite."""
    steps: int | None = None
    """Steps measured in each run, instead of those of the suite."""
    seed: int = 0
    """Seed of the arrivals, and of all else that is random."""

    @property
    def size(self) -> Size:
        """The size of the suite, with what the options replace."""
        size = self.sizes[self.suite]
        return replace(
            size,
            seeds=size.seeds if self.seeds is None else self.seeds,
            steps=size.steps if self.steps is None else self.steps,
            seed=self.seed,
            recordings=getattr(self, "recordings", ()),
        )
