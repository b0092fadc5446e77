"""`ephemeral-crawl evaluate`: compares all policies on a given fleet and budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from agents import AGENTS
from agents.evaluation.rollout import Evaluation
from agents.evaluation.statistics import FEWEST_RUNS, number
from agents.registry import find
from crawl_env import Sources, Task
from crawl_env.content.names import make_arrivals
from crawl_env.log.clock import HOURS
from crawl_env.simulation.task import make_sources
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.results import provenance
from ephemeral_crawl.core.runner import Job
from ephemeral_crawl.core.study import ParallelStudy
from ephemeral_crawl.core.tables import FLOOR, REFERENCE, records, without_reference
from ephemeral_crawl.evaluate import replay, replay_summary, summary
from ephemeral_crawl.evaluate.hindsight import Hindsight
from ephemeral_crawl.evaluate.log import WEEK, Log, Split
from ephemeral_crawl.evaluate.replay_view import View
from ephemeral_crawl.evaluate.replay_view import records as records_of_blocks

Runs = dict[float, dict[str, Evaluation]]  # by budget and agent

_STEPS = 2000

_PART = 2e8  # sources × steps × seeds of one run: some ten seconds


@dataclass(kw_only=True)
class Evaluate(ParallelStudy):
    """Compares how much utility each policy collects from your sources under a budget.

    Give --sources, a CSV with the columns source, arrival_rate (items / time), mean_utility,
    decay_rate (1 / time) and, optional, cost, crawl_delay (time), host, capacity (items) and
    failure_rate, whose content is simulated; or --items, a log of the items that your sources
    published, which is replayed.
    """

    outputs: ClassVar[tuple[str, ...]] = ("sources.csv", *ParallelStudy.outputs)

    log: Annotated[Log, tyro.conf.arg(name="")] = field(default_factory=Log)
    sources: str = ""
    """CSV file of the fleet, or the name of a preset (table1, fleet-f, recovering-<n>,
    hacker-news)."""
    budget: Annotated[str, tyro.conf.arg(metavar="M")] = ""
    """M: the cost of the crawls that is allowed per step."""
    budgets: Annotated[str, tyro.conf.arg(metavar="M1,M2,…")] = ""
    """Several budgets: also plots the reward and the Lagrange multiplier λ* against the budget."""
    period: float = 1.0
    """T: length of a step, in the unit of time of the rates in the CSV."""
    arrivals: str = "poisson"
    """deterministic, or poisson[-drift|-jumps|-cycle|-hawkes][-constant|-lognormal|-gamma]
    [-stretched|-lomax][-items]; poisson means poisson-items if sources have a finite capacity. Not
    with --items; neither are --warmup and --start."""
    observed: bool = False
    """Whether the crawler observes the uncollected utility of a source before crawling it."""
    budget_rule: Literal["step", "average"] = "step"
    """Whether the budget holds in every step, or on average, as a token bucket."""
    per_host: int = 1
    """Maximum number of crawls per step of sources that share a host."""
    start: Literal["fresh", "empty", "full", "random"] = "fresh"
    """State of the sources at the first step."""
    agents: tuple[str, ...] = tuple(AGENTS)
    """Policies to compare, by default all of `agents.AGENTS`. whittle and random are always
    included; whittle-exact only if random content is observed, since it is the same as whittle
    otherwise."""
    steps: int | None = None
    """Steps evaluated in each run: by default 2000, or all of the replayed part of the log."""
    warmup: int = 200
    """Steps before the evaluation."""
    seeds: int = 20
    """Runs of each policy, on the same arrivals for all policies. In a replay, each run starts one
    step after the previous one."""
    seed: int = 0
    """Seed of the arrivals."""

    def run(self) -> None:
        if self.log.items is not None:
            self._replay()
        else:
            self._simulate()

    def _replay(self) -> None:
        self.check(self.log.items, self.log.curves, self.sources)
        self._refuse(
            ("arrivals", "warmup", "start"),
            "for simulations only; a log is replayed as it was recorded",
        )
        budgets, names = self._budgets(), self._names()
        fleet = self._fleet() if self.sources else None
        split = self.log.split(fleet, self.period, self.steps)
        entrants = replay.entrants(names, self.observed, split.refitted is not None)
        parts = {(m, name): self._replay_jobs(split, m, name) for m in budgets for name in entrants}
        for jobs in parts.values():
            replay.task(jobs[0], split.trace)  # raises ValueError before any job is run
        todo = [job for jobs in parts.values() for job in jobs]
        print(
            f"{len(split.fleet)} sources × {split.steps} steps × {self.seeds} runs × "
            f"{len(entrants)} policies × {len(budgets)} budgets"
        )
        results = iter(self.runner.run(todo, partial(replay.work, split.trace)))
        runs: dict[float, dict[str, replay.Replay]] = {m: {} for m in budgets}
        for (m, name), jobs in parts.items():
            runs[m][name] = replay.joined([next(results) for _ in jobs], split.steps)
        view = self._view(split, budgets)
        assert self.log.items is not None
        report = Report(f"Replay of {self.log.items.name}: utility collected by each policy")
        replay_summary.write(report, view, runs)
        rows = records_of_blocks(view, runs, {"observed": self.observed, **provenance()})
        sources = summary.per_source(split.fleet, runs)
        self.publish(report, {"records.csv": rows, "sources.csv": sources})

    def _replay_jobs(self, split: Split, budget: float, name: str) -> list[Job]:
        """Return the jobs of a policy or a reference."""
        refitted = split.refitted if name == replay.REFITTED else None
        job = {
            "agent": REFERENCE if refitted else name,
            "arguments": {
                "sources": evaluation.fleet_as_json(refitted or split.fleet),
                "budget": budget,
                "budget_rule": self.budget_rule,
                "per_host": self.per_host,
                "observed": self.observed,
                "start": "empty",
                "features": ["value"],
            },
            "steps": split.steps,
            "log": replay.digest(split.rest),
        }
        runs = range(min(self.seeds, split.steps))
        return [{**job, "late": late, "seed": self.seed + late} for late in runs]

    def _view(self, split: Split, budgets: list[float]) -> View:
        best = Hindsight(split.trace, split.fleet, split.steps)
        # A balance may be overdrawn by less than one crawl.
        more = split.fleet.cost.max() / split.steps if self.budget_rule == "average" else 0.0
        bounds = {m: best.bound(m + more) for m in budgets}
        block = self.log.block or WEEK / HOURS[self.log.unit]
        return View(
            split,
            max(1, round(block / self.period)),
            bounds,
            best.best(multiplier=0.0).net,
            self._conditions(),
            self.log.note,
            min(self.seeds, split.steps),
        )

    def _refuse(self, names: tuple[str, ...], why: str) -> None:
        """Raise ValueError if one of these options was given."""
        for name in names:
            if getattr(self, name) != getattr(type(self), name):
                raise ValueError(f"--{name} is {why}; leave it out")

    def _simulate(self) -> None:
        self.check(self.sources)
        if self.log != Log():
            raise ValueError("options of a log were given without a log; give --items log.csv")
        if not self.sources:
            raise ValueError(
                "no sources were given; give --sources fleet.csv (or a preset), or --items "
                "log.csv for the replay of a log"
            )
        fleet, budgets = self._fleet(), self._budgets()
        names = evaluation.entrants(
            self._names(), {"arrivals": self._arrivals(fleet), "observed": self.observed}
        )
        parts = {
            (m, name): self._jobs(fleet, name, m) for m in budgets for name in names
        }  # the seeds of each policy under each budget, in parts that are stored as they finish
        # Raises ValueError for invalid arguments before any job is run.
        tasks = [Task(**evaluation.arguments_of(jobs[0])) for jobs in parts.values()]
        todo = [job for jobs in parts.values() for job in jobs]
        print(
            f"{len(fleet)} sources × {self.warmup + self._steps} steps × {self.seeds} seeds × "
            f"{len(names)} policies × {len(budgets)} budgets, in {len(todo)} runs"
        )
        results = iter(self.runner.run(todo, evaluation.work))
        runs: Runs = {m: {} for m in budgets}
        for (m, name), jobs in parts.items():
            found = [next(results) for _ in jobs]
            runs[m][name] = evaluation.as_evaluation(evaluation.joined(found), self.seeds)
        report = Report(
            f"{len(fleet)} sources of {Path(self.sources).name}: utility collected by each policy"
        )
        view = summary.View(tasks[0])
        report.answer(summary.answer(view, runs))
        report.paragraph(self._setting(fleet))
        if len(budgets) > 1:
            summary.curve(report, view, runs)
        for m in budgets:
            report.heading(f"Budget {m:g}")
            peers, reference = without_reference(runs[m])
            summary.advice(report, view, m, peers)
            summary.table(report, view, m, peers, reference)
        summary.glossary(report)
        rows = [
            row
            for m, of_budget in runs.items()
            for name, run in of_budget.items()
            for row in records(name, run, self.seed, budget=m, **provenance())
        ]
        self.publish(report, {"records.csv": rows, "sources.csv": summary.per_source(fleet, runs)})

    def _jobs(self, fleet: Sources, agent: str, budget: float) -> list[Job]:
        arguments = {
            "sources": evaluation.fleet_as_json(fleet),
            "budget": budget,
            "budget_rule": self.budget_rule,
            "per_host": self.per_host,
            "arrivals": self._arrivals(fleet),
            "observed": self.observed,
            "start": self.start,
            "features": ["value"],
        }
        seeds = evaluation.seeds_needed(arguments, agent, self.seeds)
        common = {"steps": self._steps, "warmup": self.warmup}
        # The same parts for every policy, so that all policies meet the same arrivals.
        size = max(1, int(_PART / (len(fleet) * (self._steps + self.warmup))))
        return [
            {
                "agent": agent,
                "arguments": arguments,
                "runs": {**common, "seeds": min(size, seeds - first), "seed": self.seed + first},
            }
            for first in range(0, seeds, size)
        ]

    def _arrivals(self, fleet: Sources) -> str:
        """Return the name of the arrivals, which draw single items if sources have a finite
        capacity."""
        process = make_arrivals(self.arrivals)
        if fleet.is_capped and process.random and not process.items:
            return f"{self.arrivals}-items"
        return self.arrivals

    def _fleet(self) -> Sources:
        path = Path(self.sources)
        return make_sources(path if path.exists() else self.sources).with_period(self.period)

    def _names(self) -> tuple[str, ...]:
        for name in self.agents:
            find(name)
        return tuple(dict.fromkeys((REFERENCE, *self.agents, FLOOR)))

    def _budgets(self) -> list[float]:
        given = []
        for option, words in (("--budget", [self.budget]), ("--budgets", self.budgets.split(","))):
            for word in words:
                try:
                    given += [float(word)] if word.strip() else []
                except ValueError:
                    raise ValueError(
                        f"{option} has {word!r}, which is not a number; write --budget 2.5, or "
                        "--budgets 1,2,5,10 for several"
                    ) from None
        if not given:
            raise ValueError(
                "no budget was given; give --budget 5, or --budgets 1,2,5,10 for a curve"
            )
        if self._steps < 1:
            raise ValueError(f"--steps is {self._steps}; it must be at least 1")
        fewest = 1 if self.log.items is not None else FEWEST_RUNS
        if self.seeds < fewest:
            raise ValueError(
                f"--seeds is {self.seeds}; intervals need at least {fewest} runs of each policy"
            )
        if self.warmup < 0:
            raise ValueError(f"--warmup is {self.warmup}; it must be zero or more steps")
        return sorted(set(given))

    @property
    def _steps(self) -> int:
        return _STEPS if self.steps is None else self.steps

    def _conditions(self) -> str:
        observed = "observed" if self.observed else "not observed"
        budget = "in every step" if self.budget_rule == "step" else "on average"
        return f"content {observed} before crawling, budget enforced {budget}"

    def _setting(self, fleet: Sources) -> str:
        return (
            f"Arrivals {self._arrivals(fleet)}; {self._conditions()}, period {fleet.period:g}. "
            f"{self._steps} steps after a warm-up of {self.warmup}; {self.seeds} runs on the same "
            "arrivals for every policy. Intervals: 95 % confidence (Student's t over runs). The "
            f"fleet publishes {number(float(fleet.published))} utility per step on average."
        )
