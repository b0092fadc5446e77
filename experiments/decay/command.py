"""`python -m experiments decay`: what the Whittle index loses where interest is not exponential."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from experiments import runner
from experiments.decay import laws, losses
from experiments.decay.laws import LAWS, Named
from experiments.decay.runs import BELIEVERS, RIGHT_MEAN, work
from experiments.report import Report
from experiments.results import check_out, provenance, whole_folder, write_csv

BLIND = (*BELIEVERS, "static", "myopic", "oldest-first", "random")  # minds ages only
SEEING = (*BELIEVERS, "myopic", "oldest-first", "random")
BUDGETS = {"table1": (1, 2, 3), "dense": (2, 10, 30), "sparse": (2, 10, 30)}
# Expectations, and the same drawn: with these laws, and with a policy that knows no parameters.
CHECKED: tuple[Named, ...] = (laws.EXPONENTIAL, ("stretched", (0.4,)), ("lomax", (1.5,)))


@dataclass
class Decay:
    """What the Whittle index loses where interest decays otherwise than exponentially, as it
    believes: by law of decay, budget, and whether content is seen. Takes some four minutes."""

    out: Path = field(default=Path("results/decay"))
    """Folder of the report and the records; replaced as a whole."""
    seeds: int = 10
    """Random fleets, on which all policies meet the same arrivals."""
    epochs: int = 1500
    """Epochs measured in each run; a third as many where content is drawn."""
    warmup: int = 500
    """Epochs before them that are left out."""
    seed: int = 0
    """Seed of the fleets and the arrivals."""
    jobs: int = -1
    """Processes; -1 for all cores."""
    engine: str = "loky"
    """joblib backend: loky, threading, sequential, or ray / dask where installed."""

    def run(self) -> None:
        check_out(self.out)
        kept = self.out.with_name(f".{self.out.name}.kept")
        todo = self._units()
        found = runner.run(todo, work, kept, self.jobs, self.engine)
        done = losses.Done(todo, found)
        report = Report("If interest does not decay exponentially: what the Whittle index loses")
        losses.summary(report, done)
        laws.describe(report)
        losses.unseen(report, done)
        losses.seen(report, done)
        losses.check(report, done, CHECKED)
        with whole_folder(self.out) as folder:
            write_csv(folder / "records.csv", [{**r, **provenance()} for r in done.records()])
            report.write(folder / "report.html")
        runner.forget(kept)
        print(f"Report: {self.out / 'report.html'}   every run: {self.out / 'records.csv'}")

    def _units(self) -> list[runner.Unit]:
        seen = product(("dense", "sparse"), (2, 10, 30), SEEING)
        unseen = product(("dense", "table1"), (0, 1, 2), BLIND)
        return [
            *(
                self._unit(law, policy, fleet, m, drawn=True, observed=True)
                for law in LAWS
                for fleet, m, policy in seen
            ),
        ]

    def _unit(
        self, law: Named, policy: str, fleet: str, budget: int, drawn: bool, observed: bool
    ) -> runner.Unit:
        return {}
