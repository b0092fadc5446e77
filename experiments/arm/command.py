"""`python -m experiments arm`: Theorem 1 against the exact index where content is observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.results import provenance
from ephemeral_crawl.core.runner import Job
from ephemeral_crawl.core.study import ParallelStudy, RecordedStudy, Rows, attributed
from ephemeral_crawl.core.tables import bound_of
from ephemeral_crawl.core.tables import records as records_of
from experiments.arm import gaps, rewards


@dataclass(kw_only=True)
class Arm(RecordedStudy, ParallelStudy):
    """Theorem 1 against the exact index of sources that are observed under random arrivals: the
    error of the index, and the reward lost by it. Takes a minute or two."""

    title: ClassVar[str] = "The index where content is observed: Theorem 1 and the exact one"
    outputs: ClassVar[tuple[str, ...]] = ("gaps.csv", *ParallelStudy.outputs)

    seeds: int = 40
    """Runs of each policy, on the same arrivals for both."""
    steps: int = 5000
    """Steps measured in each run."""
    warmup: int = 300
    """Steps before them that are left out."""
    seed: int = 0
    """Seed of the arrivals."""

    def measure(self) -> dict[str, Rows]:
        tasks = rewards.tasks()
        jobs = [
            self._job(agent, arguments)
            for _, arguments in tasks
            for agent in (rewards.CLOSED, rewards.EXACT)
        ]
        found = iter(self.runner.run(jobs, evaluation.work))
        records = [
            row
            for name, arguments in tasks
            for bound in (self._bound(arguments),)
            for agent in (rewards.CLOSED, rewards.EXACT)
            for row in records_of(
                agent,
                evaluation.as_evaluation(next(found), self.seeds),
                self.seed,
                fleet=name,
                budget=arguments["budget"],
                bound=repr(bound),
                **provenance(),
            )
        ]
        return {"gaps.csv": attributed(gaps.measure()), "records.csv": records}

    def write(self, report: Report, tables: Mapping[str, Rows]) -> None:
        done = rewards.done(tables["records.csv"])
        report.answer(rewards.answer(done))
        rewards.write(report, done)
        gaps.write(report, tables["gaps.csv"])

    def _job(self, agent: str, arguments: dict[str, Any]) -> Job:
        runs = {
            "steps": self.steps,
            "warmup": self.warmup,
            "seeds": self.seeds,
            "seed": self.seed,
        }
        return {"agent": agent, "arguments": arguments, "runs": runs}

    def _bound(self, arguments: dict[str, Any]) -> float:
        job = self._job(rewards.CLOSED, arguments)
        return float(bound_of(evaluation.arguments_of(job), 1, self.seed).bound)
