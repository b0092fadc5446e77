"""`python -m experiments arm`: Theorem 1 against the exact index where content is observed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from agents.evaluation.rollout import Evaluation
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.results import provenance
from ephemeral_crawl.core.runner import Job
from ephemeral_crawl.core.study import ParallelStudy, attributed
from ephemeral_crawl.core.tables import bound_of, records
from experiments.arm import gaps, rewards


@dataclass(kw_only=True)
class Arm(ParallelStudy):
    """Theorem 1 against the exact index of sources that are observed under random arrivals: the
    error of the index, and the reward lost by it. Takes a minute or two."""

    outputs: ClassVar[tuple[str, ...]] = ("gaps.csv", *ParallelStudy.outputs)

    seeds: int = 40
    """Runs of each policy, on the same arrivals for both."""
    steps: int = 5000
    """Steps measured in each run."""
    warmup: int = 300
    """Steps before them that are left out."""
    seed: int = 0
    """Seed of the arrivals."""

    def run(self) -> None:
        self.check()
        tasks = rewards.tasks()
        jobs = [
            self._job(agent, arguments)
            for _, arguments in tasks
            for agent in (rewards.CLOSED, rewards.EXACT)
        ]
        found = iter(self.runner.run(jobs, evaluation.work))
        done = [
            (name, arguments, self._next(found), self._next(found), self._bound(arguments))
            for name, arguments in tasks
        ]
        report = Report("The index where content is observed: Theorem 1 and the exact one")
        report.answer(rewards.answer(done))
        differences = gaps.compare(report)
        rewards.table(report, done)
        records = self._records(done)
        self.publish(report, {"gaps.csv": attributed(differences), "records.csv": records})

    def _job(self, agent: str, arguments: dict[str, Any]) -> Job:
        runs = {
            "steps": self.steps,
            "warmup": self.warmup,
            "seeds": self.seeds,
            "seed": self.seed,
        }
        return {"agent": agent, "arguments": arguments, "runs": runs}

    def _next(self, found: Any) -> Evaluation:
        return evaluation.as_evaluation(next(found), self.seeds)

    def _bound(self, arguments: dict[str, Any]) -> float:
        job = self._job(rewards.CLOSED, arguments)
        return float(bound_of(evaluation.arguments_of(job), 1, self.seed).bound)

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
