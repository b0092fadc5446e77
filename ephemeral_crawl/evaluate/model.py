"""Events that are drawn from a model of the sources, in steps: several runs, of one seed each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.rollout import Evaluation
from agents.evaluation.statistics import number
from agents.registry import CLAIRVOYANT
from agents.theory.task_bound import Bound, EngineBound
from crawl_env.content.names import make_arrivals
from crawl_env.numerics import FloatArray
from ephemeral_crawl.comparison import indexing, signals
from ephemeral_crawl.comparison.events import Column, RandomEvents, Results, StepEvents
from ephemeral_crawl.comparison.sample import Sample
from ephemeral_crawl.comparison.study import features_of
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.evaluation import (
    FLOOR,
    HOLDS_FOR,
    REFERENCE,
    fraction,
    plain,
    records,
)
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result

PART = 2e7  # sources × steps × seeds of one run: a few seconds
ITEMS = 2000.0  # items per step of a fleet up to which they are drawn one by one


@dataclass(frozen=True, kw_only=True)
class Model(RandomEvents[Evaluation], StepEvents[Evaluation]):
    """Events drawn from a model.

    Arguments:
        drawn: the name of the arrivals, as it was given.
        steps, warmup: of each run, measured and before.
        seeds: runs of each policy.
    """

    drawn: str
    steps: int
    warmup: int
    seeds: int

    @property
    def length(self) -> str:
        return f"{self.warmup + self.steps} steps × {self.seeds} seeds"

    @property
    def published(self) -> float:
        return float(self.fleet.published)

    @property
    def arrivals(self) -> str:
        """The name of the arrivals, which draw single items if sources have a finite capacity or
        send signals, or if there are few enough."""
        process, fleet = make_arrivals(self.drawn), self.fleet
        few = fleet.arrival_rate.sum() * fleet.period <= ITEMS
        single = fleet.is_capped or fleet.is_signalled or few or "engine" in self.arguments
        if process.random and not process.items and single:
            return f"{self.drawn}-items"
        return self.drawn

    # ------------------------------------------------------------------------ what is run

    def entrants(self, names: Sequence[str]) -> tuple[str, ...]:
        arguments = {"arrivals": self.arrivals, "observed": self.arguments["observed"]}
        return evaluation.entrants(names, {**arguments, "signals": self.fleet.is_signalled or None})

    def jobs(
        self,
        agent: str,
        budget: float,
        rates: Any = None,
        budget_rule: str | None = None,
    ) -> list[Job]:
        has_items = make_arrivals(self.arrivals).items
        arguments = {
            **self.arguments,
            "sources": evaluation.fleet_as_json(self.fleet),
            "budget": budget,
            "arrivals": self.arrivals,
            "start": "fresh",
            "features": list(features_of(agent)) if has_items else ["value"],
        }
        if budget_rule is not None:
            arguments["budget_rule"] = budget_rule
        seeds = evaluation.seeds_needed(arguments, agent, self.seeds)
        common = {"steps": self.steps, "warmup": self.warmup}
        job: Job = {"agent": agent, "arguments": arguments}
        if rates is not None:
            job["rates"] = np.asarray(rates).tolist()
        # The same parts for every policy, so that all policies meet the same arrivals.
        size = max(1, int(PART / (len(self.fleet) * (self.steps + self.warmup))))
        return [
            {**job, "runs": {**common, "seeds": min(size, seeds - i), "seed": self.seed + i}}
            for i in range(0, seeds, size)
        ]

    @property
    def work(self) -> Callable[[Job], Result]:
        return _work

    def run_of(self, results: Sequence[Result]) -> Evaluation:
        return evaluation.as_evaluation(evaluation.joined(results), self.seeds)

    def sampled(self, part: Sample) -> Model:
        return replace(self, fleet=part.of(self.fleet))

    # ------------------------------------------------------------------------ what was measured

    def sample(self, run: Evaluation) -> FloatArray:
        return run.reward

    @cached_property
    def _bounds(self) -> dict[float, Bound]:
        return {}

    def relaxed(self, budget: float) -> Bound:
        """Return the bound under a budget, with the multiplier of a budget that can be saved."""
        if budget not in self._bounds:
            self._bounds[budget] = indexing.bound_of(self.task(budget))
        return self._bounds[budget]

    def bound(self, budget: float) -> float:
        return float(self.relaxed(budget).bound)

    def prices(self, budgets: Sequence[float]) -> dict[str, list[float]]:
        relaxed = [self.relaxed(m) for m in budgets]
        prices = {"λ*": [float(r.multiplier) for r in relaxed]}
        engine = [float(r.price) for r in relaxed if isinstance(r, EngineBound)]
        return {**prices, "κ*": engine} if engine else prices

    def records(
        self, results: Results[Evaluation], common: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        return [
            row
            for m, of_budget in results.runs.items()
            for name, run in of_budget.items()
            for row in records(name, run, self.seed, budget=m, **common)
        ]

    # ------------------------------------------------------------------------ what is said

    def columns(
        self, budget: float, runs: Mapping[str, Evaluation]
    ) -> dict[str, Column[Evaluation]]:
        relaxed = self.relaxed(budget)
        floor, reference = runs[FLOOR].reward, runs[REFERENCE].reward

        def score(name: str, run: Evaluation) -> str:
            if name == CLAIRVOYANT:
                return ""
            return plain(statistics.score(run.reward, floor, reference))

        def of_bound(name: str, run: Evaluation) -> str:
            return "" if name == CLAIRVOYANT else _percent(run, float(relaxed.bound))

        return {
            "reward / step": lambda _, run: self.reward(run),
            f"of bound ({relaxed.name})": of_bound,
            "score": score,
            "of published": lambda _, run: _percent(run, self.published),
            "never visited": lambda _, run: _count(run.never.mean()),
            "delay (time)": lambda _, run: _mean(run.delay),
            "cost / step": lambda _, run: number(run.cost.mean()),
        }

    def remarks(self, report: Report, results: Results[Evaluation], budget: float) -> None:
        relaxed = self.relaxed(results.own(budget))
        if relaxed.name not in HOLDS_FOR:
            report.paragraph("No upper bound is known for these arrivals.")
            return
        report.paragraph(
            f"In the long run no {HOLDS_FOR[relaxed.name]} averages more than "
            f"{number(float(relaxed.bound))} per step. A measured fraction slightly above 100 % "
            f"is due to chance or to content at the start. {indexing.multipliers(relaxed)}"
        )

    def setting(self, report: Report) -> None:
        report.paragraph(
            f"Arrivals {self.arrivals}; {self.conditions}, period {self.fleet.period:g}. "
            f"{self.steps} steps after a warm-up of {self.warmup}; {self.seeds} runs on the "
            "same arrivals for every policy. Intervals: 95 % confidence (Student's t over runs). "
            f"The fleet publishes {number(self.published)} utility per step on average."
        )
        report.paragraph(
            "Step: one decision period. Reward: utility at the time of collection, or, in front of "
            "an indexing engine, when an item is indexed. Of bound: "
            "fraction of the upper bound on the average reward of every policy with the same "
            "observations. Of published: fraction of the published utility, at the time of "
            "publication. Score: 0 is the random policy, 1 the Whittle index policy. Never "
            "visited: number of sources that were not crawled in a run, mean over runs. Delay: "
            "mean age of the items when they were collected."
        )


def _work(job: Job) -> Result:
    return signals.collected(job) if "by source" in job else evaluation.work(job)


def _percent(run: Evaluation, whole: float) -> str:
    ratio = fraction(run.reward, whole).mean
    return "n/a" if np.isnan(ratio) else f"{ratio:.1%}"


def _mean(x: Any) -> str:
    finite = x[np.isfinite(x)]
    return f"{finite.mean():.4g}" if finite.size else "n/a"


def _count(x: float) -> str:
    return f"{x:.0f}" if x == round(x) else f"{x:.1f}"
