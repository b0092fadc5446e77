"""`python -m experiments benchmark`: index policies and learning agents on the reference tasks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from crawl_env.errors import unknown
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.results import read_csv
from ephemeral_crawl.core.study import ParallelStudy, Rows
from experiments.benchmark import policies
from experiments.benchmark.learning import entrants, leaderboard, section
from experiments.benchmark.learning.plan import key_of, plan, version_of
from experiments.benchmark.learning.runs import CURVES, RUNS, Records, complete


@dataclass(kw_only=True)
class Benchmark(ParallelStudy):
    """Evaluates index policies, and compares learning agents with Whittle by score, samples and
    time.

    Suite "quick": the index policies on the paper's example, recovering bandits, random fleets and
    a fleet read from a CSV, and five learners on the paper's example (about two minutes). Suite
    "full": all learners on all their tasks (about two hours). Jobs that are in the records are not
    run again, whichever machine ran them, so that the same command resumes an interrupted run.
    """

    outputs: ClassVar[tuple[str, ...]] = (
        *(RUNS, CURVES, "learners.md"),
        *("records.csv", "summary.md", "report.html"),  # records and summary: of the quick suite
    )

    suite: Literal["quick", "full"] = "quick"
    agents: tuple[str, ...] = ()
    """Learners to run, by default all of the suite; the records of the others are kept."""
    redo: tuple[str, ...] = ()
    """Learners to run again, for instance after a change of their code; whittle, random, myopic or
    bound, after a change of the environment; or all."""
    only_report: bool = False
    """Write the report from the existing records; only bounds are computed."""
    seed: int = 0
    """Seed of the arrivals in the evaluation of the index policies."""

    @property
    def folder(self) -> Path:
        return self.out or Path("results") / f"benchmark{'-full' * (self.suite == 'full')}"

    def run(self) -> None:
        self._check()
        learners = entrants.SUITES[self.suite]
        chosen = [entrant for entrant in learners if entrant.name in (self.agents or self._names)]
        full = self.suite == "full"  # too long to be run again with every change of the code
        known = full or self.only_report
        before = Records.read(self.folder) if known else Records([], [])
        records = complete(
            chosen,
            before,
            self.runner,
            self.redo,
            self.only_report,
            version_of if full else None,
        )
        report = Report(f"Benchmark, suite {self.suite}")
        records += before.of((key_of(job) for job in plan(chosen)), among=False)
        shown = records.of(key_of(job) for job in plan(learners))
        done = None
        if not full:
            recorded = read_csv(self.folder / "records.csv") if self.only_report else None
            done = policies.write(report, self.runner, self.seed, recorded)
        table = section.write(report, shown, learners)
        answers = [] if done is None else [done.answer]
        report.answer(" ".join([*answers, leaderboard.answer(table)]))
        files: dict[str, Rows | str] = {
            RUNS: records.runs,
            CURVES: records.curves,
            "learners.md": leaderboard.summary(table, section.source(shown)),
        }
        if done is not None:
            files |= {"records.csv": done.records, "summary.md": done.summary}
        self.publish(report, files, forget=not self.only_report)

    @property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(entrant.name for entrant in entrants.SUITES[self.suite]))

    def _check(self) -> None:
        """Raise ValueError for unknown names, or if the other suite's records would be replaced."""
        self.check()
        for name in self.agents:
            if name not in self._names:
                raise unknown("agent of this suite", name, self._names)
        if self.only_report and not (self.folder / RUNS).exists() and self.suite == "quick":
            raise ValueError("there are no records yet; leave out --only-report")
        if (self.folder / RUNS).exists():
            found = "quick" if (self.folder / "summary.md").exists() else "full"
            if found != self.suite:
                raise ValueError(
                    f"--out {self.folder.name} holds the record of suite {found}; name another "
                    "folder"
                )
