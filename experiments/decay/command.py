"""`python -m experiments decay`: what the Whittle index loses where interest is not exponential."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job
from ephemeral_crawl.core.study import ParallelStudy, RecordedStudy, Rows, attributed
from experiments.decay import functions, losses
from experiments.decay.functions import FUNCTIONS, Named
from experiments.decay.runs import RIGHT_MEAN, WHITTLES, work

UNOBSERVED = (*WHITTLES, "static", "myopic", "oldest-first", "random")  # these use ages only
OBSERVED = (*WHITTLES, "myopic", "random")
# Decay functions under which content that is not observed is also drawn at random.
CHECKED: tuple[Named, ...] = (functions.EXPONENTIAL, ("stretched", (0.4,)), ("lomax", (1.5,)))


@dataclass(kw_only=True)
class Decay(RecordedStudy, ParallelStudy):
    """What the Whittle index loses where interest does not decay exponentially, as it assumes, by
    decay function, budget, and whether content is observed. Takes some four minutes."""

    title: ClassVar[str] = "What the Whittle index loses if interest does not decay exponentially"

    seeds: int = 10
    """Random fleets; the arrivals are the same for all policies."""
    steps: int = 1200
    """Steps measured in each run; a quarter of them where content is drawn at random."""
    warmup: int = 400
    """Steps before them that are left out."""
    seed: int = 0
    """Seed of the fleets and the arrivals."""

    def measure(self) -> dict[str, Rows]:
        jobs = self._jobs()
        rows = losses.records(jobs, self.runner.run(jobs, work))
        return {"records.csv": attributed(rows)}

    def write(self, report: Report, tables: Mapping[str, Rows]) -> None:
        results = losses.Results(tables["records.csv"])
        losses.summary(report, results)
        functions.describe(report)
        losses.unobserved(report, results)
        losses.observed(report, results)
        losses.check(report, results, CHECKED)

    def _jobs(self) -> list[Job]:
        # The longest first: those with the most uncollected items.
        return [
            *(
                self._job(decay, policy, fleet, m, drawn=True, observed=True)
                for m in (2, 10, 30)
                for fleet in ("dense", "sparse")
                for decay in reversed(losses.OBSERVED_FUNCTIONS)
                for policy in OBSERVED
            ),
            *(
                self._job(decay, policy, "dense", losses.USUAL, drawn=True, observed=False)
                for decay in CHECKED
                for policy in (RIGHT_MEAN, "nutch")
            ),
            *(
                self._job(decay, policy, fleet, m, drawn=False, observed=False)
                for fleet, budgets in (("dense", (2, 10, 30)), ("table1", (1, 2, 3)))
                for m in budgets
                for decay in FUNCTIONS
                for policy in UNOBSERVED
            ),
        ]

    def _job(
        self, decay: Named, policy: str, fleet: str, budget: int, drawn: bool, observed: bool
    ) -> Job:
        return {
            "decay": decay,
            "policy": policy,
            "fleet": fleet,
            "budget": budget,
            "drawn": drawn,
            "observed": observed,
            "seeds": 1 if fleet == "table1" else self.seeds,
            "seed": self.seed,
            "steps": self.steps // 4 if drawn else self.steps,
            "warmup": self.warmup // 4 if drawn else self.warmup,
        }
