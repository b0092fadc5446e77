"""`python -m experiments benchmark`: index policies and learning agents on the reference tasks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from crawl_env.errors import unknown
from experiments.benchmark import policies
from experiments.benchmark.learning import entrants, leaderboard, section
from experiments.benchmark.learning.plan import plan, version_of
from experiments.benchmark.learning.runs import CURVES, RUNS, Records, complete
from experiments.core.migration import key_of
from experiments.core.report import Report
from experiments.core.results import read_csv
from experiments.core.study import ParallelStudy, Rows


@dataclass(kw_only=True)
class Benchmark(ParallelStudy):
    """How much do index policies collect, and how close do learning agents come to Whittle, after
    how many samples and seconds?

    Suite "quick": the index policies on the paper's example, recovering bandits, random fleets and
    a CSV's fleet, and five learners on the paper's example (some five minutes). Suite "full": all
    learners on all their tasks (about two hours). Runs that the folder of the record holds are
    not run again, on whatever machine they were made: the same command goes on where it stopped.
    """

    outputs: ClassVar[tuple[str, ...]] = (
        *(RUNS, CURVES, "learners.md"),
        *("records.csv", "summary.md", "report.html"),  # records and summary: of the quick suite
    )

    suite: Literal["quick", "full"] = "quick"
    agents: tuple[str, ...] = ()
    """Learners to run, by default all of the suite; of the others the record stays as it is."""
    redo: tuple[str, ...] = ()
    """Learners to run again, as when their code has changed; or whittle, random, myopic, bound, as
    when the environment's has; or all."""
    only_report: bool = False
    """Write the report from the records of what has been run so far; run nothing but bounds."""
    seed: int = 0
    """Seed of the arrivals that index policies meet."""

    @property
    def folder(self) -> Path:
        return self.out or Path("results") / f"benchmark{'-full' * (self.suite == 'full')}"

    def run(self) -> None:
        self._check()
        learners = entrants.SUITES[self.suite]
        chosen = [player for player in learners if player.name in (self.agents or self._names)]
        full = self.suite == "full"  # too long to be run again with every change of the code
        known = full or self.only_report
        before = Records.read(self.folder).migrated(plan(learners)) if known else Records([], [])
        records = complete(
            chosen,
            before,
            self.runner,
            self.redo,
            self.only_report,
            version_of if full else None,
        )
        report = Report(f"Benchmark, suite {self.suite}")
        records += before.of((key_of(unit) for unit in plan(chosen)), among=False)
        shown = records.of(key_of(unit) for unit in plan(learners))
        table = section.write(report, shown, learners)
        done = None
        if not full:
            recorded = read_csv(self.folder / "records.csv") if self.only_report else None
            done = policies.write(report, self.runner, self.seed, recorded)
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
        return list(dict.fromkeys(player.name for player in entrants.SUITES[self.suite]))

    def _check(self) -> None:
        """Refuse what would replace the other suite's record, or make no sense."""
        self.check()
        for name in self.agents:
            if name not in self._names:
                raise unknown("agent of this suite", name, self._names)
        if self.only_report and not (self.folder / RUNS).exists() and self.suite == "quick":
            raise ValueError("nothing has been run yet; leave out --only-report")
        if (self.folder / RUNS).exists():
            found = "quick" if (self.folder / "summary.md").exists() else "full"
            if found != self.suite:
                raise ValueError(
                    f"--out {self.folder.name} holds the record of suite {found}; name another "
                    "folder"
                )
