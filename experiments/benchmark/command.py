"""`python -m experiments benchmark`: index policies and learning agents on the reference tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from crawl_env.errors import unknown
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.results import read_csv
from ephemeral_crawl.core.study import ParallelStudy, Rows
from experiments.benchmark import entrants, policies, scoreboard, section
from experiments.benchmark.entrants import Suite
from experiments.benchmark.plan import name_of, version_of
from experiments.benchmark.runs import CURVES, RUNS, Records, complete
from experiments.benchmark.scores import tables_of


@dataclass(kw_only=True)
class Benchmark(ParallelStudy):
    """Evaluates index policies, and compares learning agents with Whittle by score, samples and
    time.

    Suite "quick": the index policies on the paper's example, recovering bandits, random fleets and
    a fleet read from a CSV, and five learners on the paper's example (about two minutes). Suite
    "full": all learners on all tasks that they can play, with equal budgets and equal tuning (days;
    any part can be run, and is added to the record). Jobs that are in the records are not run
    again, whichever machine ran them, so that the same command resumes an interrupted run.
    """

    main: ClassVar[tuple[str, ...]] = (
        *("suite", "agents", "tasks", "budgets", "runs", "trials", "redo"),
        *("only_report", "jobs", "out"),
    )
    outputs: ClassVar[tuple[str, ...]] = (
        *(RUNS, CURVES, "learners.md"),
        *("records.csv", "summary.md", "report.html"),  # records and summary: of the quick suite
        "*.png",
    )

    suite: Literal["quick", "full"] = "quick"
    agents: tuple[str, ...] = ()
    """Learners to train, by default all of the suite; the records of the others are kept."""
    tasks: tuple[str, ...] = ()
    """Parts of the names of the tasks on which they are trained, by default all."""
    budgets: tuple[int, ...] = ()
    """Budgets, in source steps, by default all of the suite."""
    runs: int | None = None
    """Trainings of each learner on each task, with different seeds, by default those of the
    suite."""
    trials: int | None = None
    """Trials of tuning of each learner, by default those of the suite; 1 takes the defaults."""
    redo: tuple[str, ...] = ()
    """Learners to train again, for instance after a change of their code; whittle, random, myopic
    or bound, after a change of the environment; or all."""
    only_report: bool = False
    """Write the report from the existing records; only bounds are computed."""
    seed: int = 0
    """Seed of the arrivals in the evaluation of the index policies."""

    @property
    def folder(self) -> Path:
        return self.out or Path("results") / f"benchmark{'-full' * (self.suite == 'full')}"

    def run(self) -> None:
        self._check()
        suite, full = self.part(), self.suite == "full"
        has_record = full or self.only_report  # the full suite is too long to be run again
        before = Records.read(self.folder) if has_record else Records([], [])
        version = version_of if full else None
        records = complete(suite, before, self.runner, self.redo, self.only_report, version)
        if has_record:  # another process may have added a part meanwhile
            before = Records.read(self.folder)
        records += before.without(records)
        report = Report(f"Benchmark, suite {self.suite}")
        outcome = None
        if not full:
            rows = read_csv(self.folder / "records.csv") if self.only_report else None
            outcome = policies.write(report, self.runner, self.seed, rows)
        tables = tables_of(records.runs, records.curves)
        section.write(report, tables, entrants.SUITES[self.suite])
        answers = [] if outcome is None else [outcome.answer]
        report.answer(" ".join([*answers, scoreboard.answer(tables[max(tables)])]))
        files: dict[str, Rows | str] = {
            RUNS: records.runs,
            CURVES: records.curves,
            "learners.md": scoreboard.summary(tables, section.source(records.runs)),
        }
        if outcome is not None:
            files |= {"records.csv": outcome.records, "summary.md": outcome.summary}
        self.publish(report, files, forget=not self.only_report)

    def part(self) -> Suite:
        """Return the part of the suite that is to be run."""
        suite = entrants.SUITES[self.suite]
        changes: dict[str, Any] = {
            "entrants": tuple(
                e for e in suite.entrants if e.learner in (self.agents or _of(suite))
            ),
            "trainings": tuple(
                training
                for training in suite.trainings
                if not self.tasks
                or any(part in name_of(test) for part in self.tasks for test in training.tests)
            ),
            "budgets": self.budgets or suite.budgets,
            "runs": suite.runs if self.runs is None else self.runs,
            "trials": suite.trials if self.trials is None else self.trials,
        }
        return replace(suite, **changes)

    def _check(self) -> None:
        """Raise ValueError for unknown names, or if the other suite's records would be replaced."""
        self.check()
        suite = entrants.SUITES[self.suite]
        for name in self.agents:
            if name not in _of(suite):
                raise unknown("agent of this suite", name, _of(suite))
        names = [name_of(test) for training in suite.trainings for test in training.tests]
        for part in self.tasks:
            if not any(part in name for name in names):
                raise unknown("part of the name of a task of this suite", part, names)
        for number in (*self.budgets, *(x for x in (self.runs, self.trials) if x is not None)):
            if number < 1:
                raise ValueError(
                    f"{number} is not a number of steps, runs or trials; give 1 or more"
                )
        if self.only_report and not (self.folder / RUNS).exists() and self.suite == "quick":
            raise ValueError("there are no records yet; leave out --only-report")
        if (self.folder / RUNS).exists():
            recorded_suite = "quick" if (self.folder / "summary.md").exists() else "full"
            if recorded_suite != self.suite:
                raise ValueError(
                    f"--out {self.folder.name} holds the record of suite {recorded_suite}; name "
                    "another folder"
                )


def _of(suite: Suite) -> list[str]:
    return [entrant.learner for entrant in suite.entrants]
