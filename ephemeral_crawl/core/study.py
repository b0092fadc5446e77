"""Base classes of the studies. A study is a command with options that writes a folder of results.

A study is a folder `experiments/NAME/` with a module `command.py`, which defines one subclass of
`Study` (or of `ParallelStudy`): its fields are the options of `python -m experiments NAME`, its
docstring is the help, and the first sentence of that is shown by `python -m experiments --help`.
Nothing else has to be registered.

    @dataclass(kw_only=True)
    class Arm(ParallelStudy):
        \"\"\"Compares the closed-form index with the exact one.\"\"\"

        outputs: ClassVar = ("gaps.csv", *Study.outputs)
        seeds: int = 40

        def run(self) -> None:
            self.check()
            results = self.runner.run(jobs, work)
            ...
            self.publish(report, {"gaps.csv": rows, "records.csv": more})

The options of an `AnsweringStudy`, with digests of the inputs, are the question that its folder of
results answers. It is stored beside the results, so that a command replaces its own answer to the
same question and never, unasked, the answer to another one.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro

from ephemeral_crawl.core.folders import check_folder, recover, whole_folder
from ephemeral_crawl.core.program import Command
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.results import provenance, read_csv, write_csv
from ephemeral_crawl.core.runner import Runner

Rows = Sequence[Mapping[str, Any]]  # of a table
Content = Rows | str | Callable[[Path], object]  # of a file


@dataclass(kw_only=True)
class Study(Command):
    """A study whose results are a folder: a report, and the tables that it rests on."""

    # The files it writes, or patterns of their names. A folder with any other file is not replaced.
    outputs: ClassVar[tuple[str, ...]] = ("records.csv", "report.html")
    option: ClassVar[str] = "--out"  # which names the folder

    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder of the report and the records, replaced as a whole; by default results/NAME."""

    @abstractmethod
    def run(self) -> None:
        """Run the study and write its results."""

    @property
    def folder(self) -> Path:
        """Return the folder of the results."""
        return self.out or Path("results") / self.name()

    def check(self, *inputs: str | Path | None) -> None:
        """Make the folder ready before any work is done: recover the results of a run that was
        stopped while it wrote them.

        Arguments:
            inputs: files that the study reads; None and "" are none.

        Raises:
            ValueError: the folder cannot be written, or holds what the study must not replace.
        """
        recover(self.folder)
        paths = (path for path in inputs if path)
        check_folder(self.folder, self.outputs, *paths, option=self.option)

    @contextmanager
    def results(self) -> Iterator[Path]:
        """Give an empty folder, which takes the place of `folder` once all is written."""
        check_folder(self.folder, self.outputs, option=self.option)
        with whole_folder(self.folder) as folder:
            yield folder
            check_folder(folder, self.outputs)

    def publish(self, report: Report, files: Mapping[str, Content]) -> None:
        """Write the report and the files beside it, and say where they are: text, tables as CSV,
        and what functions write to a path that they are given."""
        with self.results() as folder:
            for name, content in files.items():
                if callable(content):
                    content(folder / name)
                elif isinstance(content, str):
                    (folder / name).write_text(content, encoding="utf-8")
                else:
                    write_csv(folder / name, content)
            tables = [c for c in files.values() if not (isinstance(c, str) or callable(c))]
            report.write(folder / "report.html", [row for rows in tables for row in rows])
        places = ", ".join(str(self.folder / name) for name in files)
        print(f"Report: {self.folder / 'report.html'}   Tables: {places}")


@dataclass(kw_only=True)
class ResumableStudy(Study):
    """A study that runs jobs one after the other, keeps their results, and resumes an interrupted
    run."""

    @property
    def runner(self) -> Runner:
        """Return the runner, which stores results beside the folder of the study."""
        return Runner(self.folder.with_name(f".{self.folder.name}.kept"), 1, "sequential")

    def publish(self, report: Report, files: Mapping[str, Content], forget: bool = True) -> None:
        """Write the report and the files, and remove the stored results of the jobs."""
        super().publish(report, files)
        if forget:
            self.runner.forget()


@dataclass(kw_only=True)
class ParallelStudy(ResumableStudy):
    """A study that runs independent jobs in parallel."""

    jobs: int = -1
    """Processes; -1 for all cores."""
    run_on: Annotated[str, tyro.conf.arg(metavar="WHERE")] = "loky"
    """Where jobs run: loky (processes), threading, sequential, or ray (at RAY_ADDRESS, else
    here)."""

    def check(self, *inputs: str | Path | None) -> None:
        super().check(*inputs)
        _ = self.runner  # raises ValueError for an unknown place

    @property
    def runner(self) -> Runner:
        return Runner(super().runner.folder, self.jobs, self.run_on)


@dataclass(kw_only=True)
class RecordedStudy(Study):
    """A study whose report is made from its tables alone, so that it can be written again."""

    title: ClassVar[str]

    only_report: bool = False
    """Write the report again from the recorded tables; nothing is run."""

    @abstractmethod
    def measure(self) -> Mapping[str, Rows]:
        """Run the study; return its tables by the names of their files."""

    @abstractmethod
    def write(self, report: Report, tables: Mapping[str, Rows]) -> None:
        """Add everything to the report.

        Arguments:
            tables: those of `measure`; values are text where they were read from files.
        """

    def texts(self, tables: Mapping[str, Rows]) -> Mapping[str, str]:
        """Return the text files that are made from the tables, by name; none unless overridden."""
        return {}

    def run(self) -> None:
        self.check()
        tables = self.recorded() if self.only_report else self.measure()
        report = Report(self.title)
        self.write(report, tables)
        files: dict[str, Content] = {**tables, **self.texts(tables)}
        if self.only_report:
            Study.publish(self, report, files)  # stored results of an interrupted run stay
        else:
            self.publish(report, files)

    def recorded(self) -> dict[str, Rows]:
        """Return the tables that were written before.

        Raises:
            ValueError: there are none.
        """
        names = [name for name in self.outputs if ".csv" in name and (self.folder / name).exists()]
        if not names:
            raise ValueError(
                f"{self.folder} has no tables to make a report from; leave out --only-report"
            )
        return {name: read_csv(self.folder / name) for name in names}


def attributed(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with their provenance: date, command, commit, versions and machine."""
    return [{**row, **provenance()} for row in rows]


FILE = "question.json"
_HOW = ("out", "jobs", "run_on", "replace")  # not part of the question that a report answers

Question = dict[str, Any]  # JSON


@dataclass(kw_only=True)
class AnsweringStudy(ParallelStudy):
    """A study that replaces results of another question only if it is asked to."""

    replace: bool = False
    """Replace the results in --out even if they answer another question."""

    def check(self, *inputs: str | Path | None) -> None:
        super().check(*inputs)
        check_question(self.folder, self._question, self.replace)

    def publish(self, report: Report, files: Mapping[str, Content], forget: bool = True) -> None:
        super().publish(report, {**files, FILE: text_of(self._question)}, forget)

    @property
    def _question(self) -> Question:
        options = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _HOW}
        return question(self.name(), options)


def question(command: str, options: Mapping[str, Any]) -> Question:
    """Return the question that a command asks with these options; of a path to a file, the file's
    digest counts, and not where it lies."""
    return {"command": command, **{name: _stored(value) for name, value in options.items()}}


def text_of(question: Question) -> str:
    """Return the question as JSON, to be stored."""
    return json.dumps(question, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def check_question(folder: Path, question: Question, replace: bool) -> None:
    """Raise ValueError if a folder holds results of another question that may not be replaced."""
    if replace or not folder.is_dir() or not any(folder.iterdir()):
        return
    try:
        previous = json.loads((folder / FILE).read_text(encoding="utf-8"))
        differs = [name for name in question if question[name] != previous.get(name)]
        if any(_is_missing(question[name], previous.get(name)) for name in differs):
            return  # reading the file raises the error that helps
        of = ", ".join(f"{_option(name)} {_shown(previous.get(name))}" for name in differs[:3])
        of += ", …" * (len(differs) > 3)
    except (OSError, ValueError, AttributeError):
        differs, of = ["?"], "which is not recorded"
    if differs:
        raise ValueError(
            f"{folder} holds the report of another question ({of}); name another folder with "
            f"--out {folder}-2, or allow that it is replaced with --replace"
        )


def _stored(value: Any) -> Any:
    if isinstance(value, str | Path) and value and Path(value).is_file():
        path = Path(value)
        with path.open("rb") as file:  # which may not fit in memory
            return {"file": path.name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    if isinstance(value, Path):
        return value.name
    return list(value) if isinstance(value, tuple) else value


def _is_missing(value: Any, previous: Any) -> bool:
    """Return whether a file was read before, and the one named now does not exist."""
    return isinstance(previous, dict) and isinstance(value, str) and bool(Path(value).suffix)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value.get('file', '?')} as it was then"
    if isinstance(value, list):
        return ",".join(map(str, value[:2])) + ",…" * (len(value) > 2)
    return "not given" if value in (None, "", False) else str(value)
