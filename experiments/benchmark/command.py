"""`python -m experiments benchmark`: index policies and learning agents on the reference tasks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crawl_env.errors import unknown
from experiments.benchmark import policies
from experiments.benchmark.learning import entrants, leaderboard, section
from experiments.benchmark.learning.plan import plan, version_of
from experiments.benchmark.learning.runs import Records, complete
from experiments.core import runner
from experiments.core.migration import key_of
from experiments.core.report import Report
from experiments.core.results import check_out, whole_folder, write_csv


@dataclass
class Benchmark:
    """How much do index policies collect, and how close do learning agents come to Whittle, after
    how many samples and seconds?

    Suite "quick": the index policies on the paper's example, recovering bandits, random fleets and
    a CSV's fleet, and five learners on the paper's example (some five minutes). Suite "full": all
    learners on all their tasks (about two hours). Runs that the folder of the record holds are
    not run again, on whatever machine they were made: the same command goes on where it stopped.
    """

    suite: Literal["quick", "full"] = "quick"
    out: Path | None = None
    """Folder of the report and the records; default results/benchmark or results/benchmark-full."""
    agents: tuple[str, ...] = ()
    """Learners to run, by default all of the suite; of the others the record stays as it is."""
    redo: tuple[str, ...] = ()
    """Learners to run again, as when their code has changed; or whittle, random, myopic, bound, as
    when the environment's has; or all."""
    only_report: bool = False
    """Write the report of what has been run so far, and run nothing."""
    seed: int = 0
    """Seed of the arrivals that index policies meet."""
    jobs: int = -1
    """Processes; -1 for all cores."""
    engine: str = "loky"
    """joblib backend: loky, threading, sequential, or ray / dask where installed."""

    def run(self) -> None:
        out = self.out or Path("results/benchmark" + "-full" * (self.suite == "full"))
        self._check(out)
        kept = out.with_name(f".{out.name}.kept")
        learners = entrants.SUITES[self.suite]
        chosen = [player for player in learners if player.name in (self.agents or self._names)]
        full = self.suite == "full"  # too long to be run again with every change of the code
        before = Records.read(out).migrated(plan(learners)) if full else Records([], [])
        records = complete(
            chosen,
            before,
            kept,
            self.redo,
            self.jobs,
            self.engine,
            self.only_report,
            version_of if full else None,
        )
        report = Report(f"Benchmark, suite {self.suite}")
        records += before.of((key_of(unit) for unit in plan(chosen)), among=False)
        shown = records.of(key_of(unit) for unit in plan(learners))
        table = section.write(report, shown, learners)
        done = None if full else policies.write(report, kept, self.seed, self.jobs, self.engine)
        with whole_folder(out) as folder:
            records.write(folder)
            summary = leaderboard.summary(table, section.source(shown))
            (folder / "learners.md").write_text(summary, encoding="utf-8")
            if done is not None:
                write_csv(folder / "records.csv", done.records)
                (folder / "summary.md").write_text(done.summary, encoding="utf-8")
            report.write(folder / "report.html")
        if not self.only_report:
            runner.forget(kept)
        print(f"Report: {out / 'report.html'}   every run: {out / 'runs.csv.gz'}")

    @property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(player.name for player in entrants.SUITES[self.suite]))

    def _check(self, out: Path) -> None:
        """Refuse what would replace the other suite's record, or make no sense."""
        check_out(out)
        for name in self.agents:
            if name not in self._names:
                raise unknown("agent of this suite", name, self._names)
        if self.only_report and self.suite == "quick":
            raise ValueError("--only-report is for --suite full; the quick one is run as a whole")
        if (out / "runs.csv.gz").exists():
            found = "quick" if (out / "summary.md").exists() else "full"
            if found != self.suite:
                raise ValueError(
                    f"--out {out.name} holds the record of suite {found}; name another folder"
                )
