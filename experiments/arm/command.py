"""`python -m experiments arm`: Theorem 1 against the true index where content is seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from agents.evaluation.rollout import Evaluation
from experiments.arm import gaps, rewards
from experiments.core import evaluation
from experiments.core.report import Report
from experiments.core.results import provenance
from experiments.core.runner import Job
from experiments.core.study import ParallelStudy, attributed
from experiments.core.tables import bound_of, records


@dataclass(kw_only=True)
class Arm(ParallelStudy):
    """Theorem 1 against the true index of sources that are seen under random arrivals: how far the
    index is off, and how much reward that costs. Takes a minute or two."""

    outputs: ClassVar[tuple[str, ...]] = ("gaps.csv", *ParallelStudy.outputs)

    seeds: int = 40
    """Runs of each policy, on the same arrivals for both."""
    epochs: int = 5000
    """Epochs measured in each run."""
    warmup: int = 300
    """Epochs before them that are left out."""
    seed: int = 0
    """Seed of the arrivals."""

    def run(self) -> None:
        self.check()
        tasks = rewards.tasks()
        todo = [
            self._unit(agent, arguments)
            for _, arguments in tasks
            for agent in (rewards.CLOSED, rewards.EXACT)
        ]
        found = iter(self.runner.run(todo, evaluation.work))
        done = [
            (name, arguments, self._next(found), self._next(found), self._bound(arguments))
            for name, arguments in tasks
        ]
        report = Report("The index where content is seen: Theorem 1 and the truth")
        differences = gaps.compare(report)
        rewards.table(report, done)
        records = self._records(done)
        self.publish(report, {"gaps.csv": attributed(differences), "records.csv": records})

    def _unit(self, agent: str, arguments: dict[str, Any]) -> Job:
        runs = {
            "epochs": self.epochs,
            "warmup": self.warmup,
            "seeds": self.seeds,
            "seed": self.seed,
        }
        return {"agent": agent, "arguments": arguments, "runs": runs}

    def _next(self, found: Any) -> Evaluation:
        return evaluation.as_evaluation(next(found), self.seeds)

    def _bound(self, arguments: dict[str, Any]) -> float:
        unit = self._unit(rewards.CLOSED, arguments)
        return float(bound_of(evaluation.arguments_of(unit), 1, self.seed).bound)

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
