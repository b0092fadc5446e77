"""`python -m experiments arm`: Theorem 1 against the true index where content is seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.evaluation.rollout import Evaluation
from experiments.arm import gaps, rewards
from experiments.core import runner, units
from experiments.core.report import Report
from experiments.core.results import check_out, provenance, whole_folder, write_csv
from experiments.core.tables import bound_of, records


@dataclass
class Arm:
    """Theorem 1 against the true index of sources that are seen under random arrivals: how far the
    index is off, and how much reward that costs. Takes a minute or two."""

    out: Path = field(default=Path("results/arm"))
    """Folder of the report and the records; replaced as a whole."""
    seeds: int = 40
    """Runs of each policy, on the same arrivals for both."""
    epochs: int = 5000
    """Epochs measured in each run."""
    warmup: int = 300
    """Epochs before them that are left out."""
    seed: int = 0
    """Seed of the arrivals."""
    jobs: int = -1
    """Processes; -1 for all cores."""
    engine: str = "loky"
    """joblib backend: loky, threading, sequential, or ray / dask where installed."""

    def run(self) -> None:
        check_out(self.out)
        kept = self.out.with_name(f".{self.out.name}.kept")
        tasks = rewards.tasks()
        todo = [
            self._unit(agent, arguments)
            for _, arguments in tasks
            for agent in (rewards.CLOSED, rewards.EXACT)
        ]
        found = iter(runner.run(todo, units.work, kept, self.jobs, self.engine))
        done = [
            (name, arguments, self._next(found), self._next(found), self._bound(arguments))
            for name, arguments in tasks
        ]
        report = Report("The index where content is seen: Theorem 1 and the truth")
        differences = gaps.compare(report)
        rewards.table(report, done)
        with whole_folder(self.out) as folder:
            write_csv(folder / "gaps.csv", [{**row, **provenance()} for row in differences])
            write_csv(folder / "records.csv", self._records(done))
            report.write(folder / "report.html")
        runner.forget(kept)
        print(f"Report: {self.out / 'report.html'}   every run: {self.out / 'records.csv'}")

    def _unit(self, agent: str, arguments: dict[str, Any]) -> runner.Unit:
        runs = {
            "epochs": self.epochs,
            "warmup": self.warmup,
            "seeds": self.seeds,
            "seed": self.seed,
        }
        return {"agent": agent, "arguments": arguments, "runs": runs}

    def _next(self, found: Any) -> Evaluation:
        return units.as_evaluation(next(found), self.seeds)

    def _bound(self, arguments: dict[str, Any]) -> float:
        unit = self._unit(rewards.CLOSED, arguments)
        return float(bound_of(units.arguments_of(unit), 1, self.seed).bound)

    def _records(self, done: list[rewards.Done]) -> list[dict[str, Any]]:
        return [
            row
            for name, arguments, closed, exact, bound in done
            for agent, run in ((rewards.CLOSED, closed), (rewards.EXACT, exact))
            for row in records(
                agent,
                run,
                self.seed,
                fleet=name,
                budget=arguments["budget"],
                bound=repr(bound),
                **provenance(),
            )
        ]
