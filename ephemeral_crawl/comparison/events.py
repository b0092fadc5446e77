"""What policies are compared on: events that all of them meet, and what they collect of these.

A comparison plays every policy on the same events under one budget or several, and makes one table
and one report of what each collected (`ephemeral_crawl.comparison.report`). Events are drawn from a
model, step by step (`evaluate.model`) or crawl by crawl (`evaluate.large`), or recorded: a log is
replayed in steps (`replay.recording`) or in continuous time (`backtest.summary`).
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.statistics import Estimate
from agents.registry import CLAIRVOYANT
from crawl_env import Sources, Task
from crawl_env.numerics import FloatArray
from ephemeral_crawl.comparison.present import PLAYED, Equal, Present
from ephemeral_crawl.comparison.sample import Sample
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.evaluation import OBSERVES_ALL, REFERENCE
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result, Runner

IN_TURN = "oldest-first"
REFITTED = "whittle-refitted"  # a reference: fitted to the replayed part itself
OF_SCHEDULE, OF_LIMIT = "schedule", "schedule, maximum interval"
CHECKS = (OF_SCHEDULE, OF_LIMIT, PLAYED)  # played to check the schedule: in no table
REFERENCES = (CLAIRVOYANT, REFITTED)  # not ranked among the policies
NOTABLE = 1e-3  # fraction of the reward below which a difference supports no recommendation


class CrawlRun(Protocol):
    """What is measured of a policy in steps: numbers are means over its runs, or have one entry for
    each, (S,)."""

    @property
    def frequency(self) -> FloatArray:
        """Crawls per step of each source, (N,)."""

    @property
    def cost(self) -> float | FloatArray:
        """Budget units per step."""

    @property
    def delay(self) -> float | FloatArray:
        """Mean age of the items that were collected, time; NaN if there were none."""


R = TypeVar("R")  # what is measured of one policy
C = TypeVar("C", bound=CrawlRun)
Column = Callable[[str, R], object]  # from a policy and its run to a cell


class Events(ABC, Generic[R]):
    """Events that all policies meet, and the statistics of runs on them.

    All utilities are in one unit, that of `published`: per step, or in total.
    """

    what: ClassVar[str] = "that the sources publish"  # of which utility a part is collected
    same: ClassVar[str] = "arrivals"  # that all policies meet
    bound_name: ClassVar[str] = "upper bound"
    references: ClassVar[tuple[str, ...]] = REFERENCES
    checks: ClassVar[tuple[str, ...]] = CHECKS

    @property
    def labels(self) -> Mapping[str, str]:
        """Names of policies in tables, where they are others."""
        return {CLAIRVOYANT: OBSERVES_ALL}

    @property
    @abstractmethod
    def published(self) -> float:
        """The utility that the sources publish."""

    @abstractmethod
    def jobs(self, agent: str, budget: float) -> list[Job]:
        """Return the jobs that play a policy."""

    @property
    @abstractmethod
    def work(self) -> Callable[[Job], Result]:
        """The function that runs a job, for `Runner`."""

    @abstractmethod
    def run_of(self, results: Sequence[Result]) -> R:
        """Return the measurements, given the results of the jobs of a policy."""

    @abstractmethod
    def reward(self, run: R) -> Estimate:
        """Return the utility collected; without an interval where runs are no sample."""

    @abstractmethod
    def gain(self, run: R, other: R) -> Estimate:
        """Return how much more a policy collects than another, as a fraction of that, paired."""

    def lead(self, best: R, other: R, level: float = 0.95) -> Estimate:
        """Return the paired difference of two policies as a fraction of what the second collects,
        with an interval of that level, by which is decided whether it is significant."""
        raise NotImplementedError

    def bound(self, budget: float) -> float:
        """Return what no policy exceeds under a budget; NaN where no bound is known."""
        return math.nan

    @abstractmethod
    def columns(self, budget: float, runs: Mapping[str, R]) -> dict[str, Column[R]]:
        """Return the columns of the table of policies, by heading, after that of their names."""

    def bound_rows(self, budget: float) -> list[list[object]]:
        """Return rows at the end of the table of policies."""
        return []

    def prices(self, budgets: Sequence[float]) -> dict[str, list[float]]:
        """Return the Lagrange multipliers that are known, by name, under each budget."""
        return {}

    def few(self) -> str:
        """Return a phrase on why no difference can be told significant, or ""."""
        return ""

    def recommended(self, peers: Mapping[str, R]) -> str:
        """Return the best policy, or whittle where it collects something and does not differ
        significantly from it.

        Arguments:
            peers: the policies, best first.
        """
        best = next(iter(peers))
        if not self.reward(peers[REFERENCE]).mean > 0:
            return best
        better = self._clearly_better(peers[best], peers[REFERENCE], len(peers) - 1)
        return best if better and not self.few() else REFERENCE

    def rivals(self, peers: Mapping[str, R]) -> list[str]:
        """Return the policies that do not differ significantly from the best one, of policies in
        that order."""
        best, *others = peers
        n = len(others)
        return [name for name in others if not self._clearly_better(peers[best], peers[name], n)]

    def _clearly_better(self, best: R, other: R, comparisons: int) -> bool:
        """Return whether a policy is significantly better than another, where so many are compared
        (Bonferroni): the best of many is often ahead by chance."""
        gap = self.lead(best, other, 1 - 0.05 / max(comparisons, 1))
        return gap.low > 0 and gap.mean > NOTABLE


class RandomEvents(Events[R]):
    """Events that are drawn anew in each of several runs, on which policies are paired."""

    @abstractmethod
    def sample(self, run: R) -> FloatArray:
        """Return the utility that each run collected, (S,)."""

    def reward(self, run: R) -> Estimate:
        return statistics.mean(self.sample(run))

    def gain(self, run: R, other: R) -> Estimate:
        return statistics.gain(self.sample(run), self.sample(other))

    def lead(self, best: R, other: R, level: float = 0.95) -> Estimate:
        gap = statistics.difference(self.sample(best), self.sample(other), level=level)
        with np.errstate(divide="ignore", invalid="ignore"):
            return Estimate(*(np.array(gap) / self.reward(other).mean))


@dataclass(frozen=True, kw_only=True)
class StepEvents(Events[C]):
    """Events in steps of equal length, on a fleet of which the policies are told.

    Arguments:
        fleet: as the policies know it, with its signals.
        arguments: the other arguments of the environment, as JSON.
        seed: of the first run.
        title: of the report.
        conditions: of the comparison, in words.
    """

    basis: ClassVar[str] = ""  # what the schedules that are played rest on

    fleet: Sources
    arguments: Mapping[str, Any]
    seed: int
    title: str
    conditions: str

    @property
    @abstractmethod
    def length(self) -> str:
        """How much is run, in words."""

    @property
    def latest(self) -> Sources:
        """The fleet as it is known in the end, for which the schedule is made."""
        return self.fleet

    @property
    def unit(self) -> str:
        """The unit of intervals and delays, plural."""
        return "time units"

    @property
    def notes(self) -> Sequence[str]:
        """Notes on the events, for the report."""
        return ()

    @abstractmethod
    def entrants(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return those of the policies that are played, and the references."""

    @abstractmethod
    def jobs(
        self,
        agent: str,
        budget: float,
        rates: FloatArray | None = None,
        budget_rule: str | None = None,
    ) -> list[Job]:
        """Return the jobs that play a policy. What it collects is measured by source if "by source"
        is added to a job.

        Arguments:
            rates: crawls per step of each source, (N,), of a schedule that is played instead.
            budget_rule: if it is not that of the comparison.
        """

    def modelled(self, job: Job) -> Job:
        """Return a job on arrivals of which a model is known."""
        return job

    def task(self, budget: float) -> Task:
        """Return the task under a budget, on modelled arrivals."""
        job = self.modelled(self.jobs(REFERENCE, budget)[0])
        with warnings.catch_warnings():  # the schedule's task has warned of the budget
            warnings.simplefilter("ignore")
            return Task(**evaluation.arguments_of(job))

    @abstractmethod
    def sampled(self, part: Sample) -> StepEvents[C]:
        """Return the events of a sample of the sources."""

    def frequency(self, run: C) -> FloatArray:
        """Return the measured crawls per step of the sources of `latest`, (N,)."""
        return run.frequency

    @abstractmethod
    def records(self, results: Results[C], common: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows of records.csv, each with the values in `common`."""

    def when(self, after: float) -> str:
        """Return what is written for a time from now on."""
        return f"{after:.6g}"

    @abstractmethod
    def remarks(self, report: Report, results: Results[C], budget: float) -> None:
        """Add what else is to be said of the policies under a budget, after their table."""

    def ending(self, report: Report, results: Results[C], has_limit: bool) -> None:
        """Add what concerns all budgets, after them.

        Arguments:
            has_limit: whether a maximum interval was given.
        """

    @abstractmethod
    def setting(self, report: Report) -> None:
        """Add how all was measured, and the definitions."""


@dataclass(frozen=True)
class Results(Generic[R]):
    """The runs of all policies, and of what is played to check or to compare.

    Arguments:
        events: that all met.
        runs: by budget, as it was given, and by policy.
        present: the present rule of the user, if it was given.
        equal: where whittle collects as much as that rule, by budget.
        budgets: the budgets that were played, where they are others: smaller ones for a sample.
    """

    events: Events[R]
    runs: Mapping[float, Mapping[str, R]]
    present: Present | None = None
    equal: Mapping[float, Equal | None] = field(default_factory=dict)
    budgets: Mapping[float, float] = field(default_factory=dict)

    def peers(self, budget: float) -> dict[str, R]:
        """Return the policies under a budget, best first, without references and checks."""
        runs = self.runs[budget]
        aside = (*self.events.references, *self.events.checks)
        names = [name for name in runs if name not in aside]
        order = sorted(names, key=lambda name: -self.reward(budget, name))
        return {name: runs[name] for name in order}

    def references(self, budget: float) -> dict[str, R]:
        """Return the references that were played."""
        names = self.events.references
        return {name: run for name, run in self.runs[budget].items() if name in names}

    def reward(self, budget: float, name: str) -> float:
        """Return the mean utility that a policy collects; 0 if it was not played."""
        run = self.runs[budget].get(name)
        return 0.0 if run is None else self.events.reward(run).mean

    def own(self, budget: float) -> float:
        """Return the budget that was played for a given one."""
        return self.budgets.get(budget, budget)

    def table(self, report: Report, budget: float, caption: str = "") -> None:
        """Add the table of all policies, best first, then the references, to a report.

        Arguments:
            caption: by default it names the budget.
        """
        events, scaled = self.events, self.own(budget)
        runs = {**self.peers(budget), **self.references(budget)}
        columns = events.columns(scaled, runs)
        rows = [
            [events.labels.get(name, name), *(cell(name, run) for cell in columns.values())]
            for name, run in runs.items()
        ]
        report.table(
            caption or f"Policies under budget {budget:g}",
            ["policy", *columns],
            [*rows, *events.bound_rows(scaled)],
        )


def play_all(
    runner: Runner,
    events: Events[R],
    parts: Mapping[tuple[float, str], Sequence[Job]],
    quiet: bool = False,
) -> dict[float, dict[str, R]]:
    """Return the runs of all policies, by budget, given their jobs.

    Arguments:
        quiet: whether no progress is shown.
    """
    todo = [job for jobs in parts.values() for job in jobs]
    results = iter(runner.run(todo, events.work, quiet=quiet))
    runs: dict[float, dict[str, R]] = {m: {} for m, _ in parts}
    for (m, name), jobs in parts.items():
        runs[m][name] = events.run_of([next(results) for _ in jobs])
    return runs
