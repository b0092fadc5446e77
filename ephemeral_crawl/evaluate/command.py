"""`ephemeral-crawl evaluate`: compares all policies on a given fleet, and writes a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from agents.evaluation import statistics
from agents.evaluation.rollout import Evaluation
from agents.evaluation.statistics import FEWEST_RUNS, number
from agents.registry import CLAIRVOYANT
from agents.scheduling.scheduler import POLICIES
from agents.theory.task_bound import Bound
from crawl_env import Sources, Task
from crawl_env.content.names import GRAMMAR, make_arrivals
from crawl_env.fleet.columns import FleetColumns
from crawl_env.fleet.sources import PRESETS
from crawl_env.simulation.selection import whole_budget
from ephemeral_crawl.comparison import indexing, signals
from ephemeral_crawl.comparison import present as present_rule
from ephemeral_crawl.comparison.frequencies import per_source
from ephemeral_crawl.comparison.present import PLAYED, Equal, Measured, Present
from ephemeral_crawl.comparison.sample import MOST, sample
from ephemeral_crawl.comparison.schedule import Schedule
from ephemeral_crawl.comparison.study import ComparisonStudy, features_of, fleet_of
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.results import provenance
from ephemeral_crawl.core.runner import Job
from ephemeral_crawl.core.tables import FLOOR, REFERENCE, records
from ephemeral_crawl.evaluate import large, summary

Runs = dict[float, dict[str, Evaluation]]  # by budget and agent

_PART = 2e7  # sources × steps × seeds of one run: a few seconds
_ITEMS = 2000.0  # items per step of a fleet up to which they are drawn one by one
_QUICK = {"steps": 400, "warmup": 100, "seeds": 5}

_OF_SCHEDULE, _OF_LIMIT = "schedule", "schedule, maximum interval"  # not ranked


@dataclass(kw_only=True)
class Evaluate(ComparisonStudy):
    """Compares how much utility each policy collects from your sources under a budget, and writes
    the schedule of the best one.

    The sources are simulated. With --items LOG instead of --sources, this is the command `replay`.
    """

    sources: Annotated[
        str,
        tyro.conf.arg(
            help="CSV file of the fleet, with the columns source, arrival_rate (items / time), "
            "mean_utility, decay_rate (1 / time) and, optional, cost, crawl_delay (time), host, "
            "capacity (items), failure_rate, recall, precision and signal_delay (time); or the "
            f"name of a preset ({', '.join(PRESETS)})."
        ),
    ] = ""
    arrivals: Annotated[
        str,
        tyro.conf.arg(
            help=f"{GRAMMAR}; poisson means poisson-items, that is, single items are drawn, if "
            "sources have a finite capacity or send signals, there is an indexing engine, or the "
            f"fleet publishes at most {_ITEMS:.0f} items per step."
        ),
    ] = "poisson"
    start: Literal["fresh", "empty", "full", "random"] = "fresh"
    """State of the sources at the first step."""
    steps: Annotated[int | None, tyro.conf.arg(metavar="H")] = None
    """Steps evaluated in each run; by default 2000, with --quick 400."""
    warmup: Annotated[int | None, tyro.conf.arg(metavar="H")] = None
    """Steps before the evaluation; by default 200, with --quick 100."""
    seeds: Annotated[int | None, tyro.conf.arg(metavar="S")] = None
    """Runs of each policy, on the same arrivals for all policies; by default 20, with --quick
    5."""

    def run(self) -> None:
        self._check_options()
        self.check(self.sources, self.present, self.last_crawls)
        if (columns := large.columns_of(self)) is not None:
            self._run_large(columns)
            return
        fleet, given = self._with_signals(fleet_of(self.sources, self.period)), self._budgets()
        quiet = signals.without_signals(fleet) if fleet.is_signalled else fleet
        if not self.quick and (columns := large.as_columns(self, fleet)) is not None:
            self._run_large(columns, fleet.names)
            return
        rule, longest = self._present(fleet), self._longest(self.period)
        names = self._entrants(fleet, rule)
        since = self._since(fleet)
        plans = {m: Schedule(self._unqueued(quiet, m), longest, since) for m in given}
        for plan in plans.values():
            _ = plan.best  # raises ValueError if the maximum interval cannot be kept
        sampled = self.quick and self._engine is None  # an engine serves the whole fleet
        part = sample(fleet, given, MOST if sampled else len(fleet))
        simulated = part.of(fleet) if sampled else fleet
        if rule is not None and rule.rates is not None:
            rule = rule._replace(rates=part.crawls(rule.rates))
        net = self._net_worth(simulated, dict(zip(given, part.budgets, strict=True)))
        parts: dict[tuple[float, str], list[Job]] = {}
        for m, plan, own in zip(given, plans.values(), part.budgets, strict=True):
            rates = {_OF_SCHEDULE: plan.free.crawls}
            if np.isfinite(longest):
                rates[_OF_LIMIT] = plan.best.crawls
            for name in (*names, *rates):
                played = part.crawls(rates[name]) if name in rates else None
                parts[m, name] = self._jobs(simulated, name, own, played)
            if rule is not None and rule.rates is not None:
                parts[m, rule.name] = self._jobs(
                    simulated, rule.name, rule.budget(simulated, own), rule.rates, "average"
                )
        todo = [job for jobs in parts.values() for job in jobs]
        bounds: dict[float, Bound] = {}
        if self._engine is not None:
            bounds = {m: indexing.bound_of(self._task(simulated, m)) for m in given}
            for m in given:
                for plain, heeding in zip(
                    parts[m, REFERENCE], parts[m, indexing.HEEDS], strict=True
                ):
                    for name, job in indexing.references(plain, heeding, bounds[m]).items():
                        parts.setdefault((m, name), []).append(job)
            todo = [job for jobs in parts.values() for job in jobs]
        self._announce(simulated, names, given, todo)
        results = iter(self.runner.run(todo, evaluation.work))
        runs: Runs = {m: {} for m in given}
        for (m, name), jobs in parts.items():
            runs[m][name] = self._joined([next(results) for _ in jobs])
        costs = {m: _cost(runs[m], bound) for m, bound in bounds.items()}
        found = summary.Found(
            tasks={
                m: self._task(simulated, own) for m, own in zip(given, part.budgets, strict=True)
            },
            runs=runs,
            plans=plans,
            present=rule,
            equal={
                m: self._equal(simulated, own, rule, runs[m])
                for m, own in zip(given, part.budgets, strict=True)
            },
            checks=(_OF_SCHEDULE, _OF_LIMIT, PLAYED),
            of_all=part.which if len(part.which) == len(fleet) else None,
            note=part.sentence(fleet, given),
            setting=self._setting(simulated),
            costs=costs,
        )
        report = Report(f"Schedule of the {len(fleet):,} sources of {Path(self.sources).name}")
        worth = self._worth(net, parts, runs)
        rows = summary.write(report, found, worth)
        records_ = [
            row
            for m, of_budget in runs.items()
            for name, run in of_budget.items()
            for row in records(name, run, self.seed, budget=m, **provenance())
        ]
        self.publish(
            report,
            {
                "schedule.csv": rows,
                "records.csv": records_,
                "sources.csv": per_source(simulated, runs),
                **signals.files(worth, simulated),
            },
        )

    def _run_large(self, columns: FleetColumns, names: Sequence[str] | None = None) -> None:
        """Evaluate a large fleet crawl by crawl."""
        self._names()  # raises ValueError for an unknown one
        policies = [name for name in POLICIES if name in (*self.agents, self.present)]
        policies = list(dict.fromkeys((REFERENCE, *policies, large.IN_TURN)))
        steps = _QUICK["steps"] // 4 if self.quick and self.steps is None else self.steps
        plans = [large.plan(columns, m, steps, self.warmup) for m in self._budgets()]
        seeds = large.SEEDS if self.seeds is None else self._seeds
        print(
            f"{len(columns):,} sources, simulated crawl by crawl, as fleets from {large.LARGE:,} "
            f"on are: {plans[0].steps} steps after a warm-up of {plans[0].warmup}, {seeds} seeds, "
            f"{len(policies)} policies, {len(plans)} budgets"
        )
        folder = large.mapped(columns, self.runner.kept)
        utility = large.utility_of(self.arrivals)
        parts = {
            (plan.budget, name): large.jobs(
                plan, name, utility, self.per_host, self.seed, seeds, folder
            )
            for plan in plans
            for name in policies
        }
        results = iter(self.runner.run([j for jobs in parts.values() for j in jobs], large.work))
        runs: dict[float, dict[str, large.Measured]] = {plan.budget: {} for plan in plans}
        for (m, name), jobs in parts.items():
            runs[m][name] = large.Measured.of([next(results) for _ in jobs])
        report = Report(f"Schedule of the {len(columns):,} sources of {Path(self.sources).name}")
        called = large.named(columns, self.sources, names)
        large.write(report, columns, plans, runs, self.present, called)
        kind = "parquet" if names is None else "csv"
        self.publish(
            report,
            {
                f"schedule.{kind}": partial(
                    large.write_schedule, columns=columns, plans=plans, names=called
                ),
                "records.csv": large.records(runs, self.seed, **provenance()),
            },
        )

    # ------------------------------------------------------------------------ jobs

    def _entrants(self, fleet: Sources, rule: Present | None) -> tuple[str, ...]:
        names = self._names(fleet.is_signalled)
        if rule is not None and rule.rates is None:
            names = tuple(dict.fromkeys((*names, rule.name)))
        known = {"arrivals": self._arrivals(fleet), "observed": self.observed}
        return evaluation.entrants(names, {**known, "signals": fleet.is_signalled or None})

    def _jobs(
        self,
        fleet: Sources,
        agent: str,
        budget: float,
        rates: Any = None,
        budget_rule: str | None = None,
    ) -> list[Job]:
        """Return the jobs of a policy, or of a schedule with these crawls per step."""
        arrivals = self._arrivals(fleet)
        itemised = make_arrivals(arrivals).items and self.start != "full"
        arguments = {
            "sources": evaluation.fleet_as_json(fleet),
            "budget": budget,
            "budget_rule": budget_rule or self.budget_rule,
            "per_host": self.per_host,
            "arrivals": arrivals,
            "observed": self.observed,
            "start": self.start,
            "features": list(features_of(agent)) if itemised else ["value"],
        }
        if self._engine is not None:
            arguments["engine"] = self._engine.describe()
        seeds = evaluation.seeds_needed(arguments, agent, self._seeds)
        common = {"steps": self._steps, "warmup": self._warmup}
        job: Job = {"agent": agent, "arguments": arguments}
        if rates is not None:
            job["rates"] = np.asarray(rates).tolist()
        # The same parts for every policy, so that all policies meet the same arrivals.
        size = max(1, int(_PART / (len(fleet) * (self._steps + self._warmup))))
        return [
            {**job, "runs": {**common, "seeds": min(size, seeds - i), "seed": self.seed + i}}
            for i in range(0, seeds, size)
        ]

    def _joined(self, results: Sequence[Any]) -> Evaluation:
        return evaluation.as_evaluation(evaluation.joined(results), self._seeds)

    def _net_worth(
        self, fleet: Sources, budgets: Mapping[float, float]
    ) -> dict[float, signals.NetWorth]:
        """Return what the signals are worth by the model, by budget; nothing without signals."""
        if not fleet.is_signalled:
            return {}
        jobs = {m: self._jobs(fleet, REFERENCE, own)[0] for m, own in budgets.items()}
        return {m: signals.net_worth_of(job) for m, job in jobs.items()}

    def _worth(
        self,
        net: Mapping[float, signals.NetWorth],
        parts: Mapping[tuple[float, str], Sequence[Job]],
        runs: Runs,
    ) -> dict[float, signals.Found]:
        """Return what the signals gain each policy, and are worth by source, by budget."""
        kinds = {key: jobs for key, jobs in parts.items() if signals.may_use(key[1])}
        if not net:
            return {}
        quiet = [signals.silenced(job) for jobs in kinds.values() for job in jobs]
        print(f"The same without signals: {len(quiet)} parts")
        results = iter(self.runner.run(quiet, evaluation.work))
        without: Runs = {m: {} for m in net}
        for (m, name), jobs in kinds.items():
            without[m][name] = self._joined([next(results) for _ in jobs])
        found: dict[float, signals.Found] = {}
        for m, of in net.items():
            now = [{**job, "measured": "by source"} for job in parts[m, REFERENCE]]
            both = [*now, *(signals.silenced(job) for job in now)]
            per_source = self.runner.run(both, signals.collected, quiet=True)
            gains = {
                name: signals.gain_of(run.reward, without[m].get(name, run).reward)
                for name, run in runs[m].items()
                if name not in (CLAIRVOYANT, FLOOR, _OF_SCHEDULE, _OF_LIMIT, PLAYED)
            }
            found[m] = gains, signals.Worth.of(of, per_source[: len(now)], per_source[len(now) :])
        return found

    def _equal(
        self, fleet: Sources, budget: float, rule: Present | None, runs: dict[str, Evaluation]
    ) -> Equal | None:
        """Return the budget at which whittle collects as much as the present rule."""
        if rule is None:
            return None
        task = self._task(fleet, budget)
        asked = rule.budget(fleet, budget)
        now = runs[rule.name]
        mean = float(now.reward.mean())
        return present_rule.equal(
            Measured(asked, mean, float(now.cost.mean()), mean),
            partial(self._measured, fleet, now),
            lambda m: float(summary.View(task).relaxed(max(m, 1e-9)).bound),
            least=float(fleet.cost.min()) if self.budget_rule == "step" else budget / 1000,
            whole=self.budget_rule == "step" and whole_budget(fleet.cost, budget) is not None,
        )

    def _measured(self, fleet: Sources, rule: Evaluation, budget: float) -> Measured:
        jobs = self._jobs(fleet, REFERENCE, budget)
        run = self._joined(self.runner.run(jobs, evaluation.work, quiet=True))
        least = float(rule.reward.mean()) + statistics.difference(run.reward, rule.reward).low
        return Measured(budget, float(run.reward.mean()), float(run.cost.mean()), least)

    def _task(self, fleet: Sources, budget: float) -> Task:
        """Return the task under a budget; raises ValueError for invalid arguments."""
        return Task(**evaluation.arguments_of(self._jobs(fleet, REFERENCE, budget)[0]))

    def _unqueued(self, fleet: Sources, budget: float) -> Task:
        """Return the task without an engine, for which schedules are made."""
        return self._task(fleet, budget).replaced(engine=None)

    def _announce(
        self, fleet: Sources, names: Sequence[str], budgets: Sequence[float], todo: list[Job]
    ) -> None:
        print(
            f"{len(fleet)} sources × {self._warmup + self._steps} steps × {self._seeds} seeds × "
            f"{len(names)} policies × {len(budgets)} budgets, in {len(todo)} parts"
        )

    # ------------------------------------------------------------------------ options

    def _check_options(self) -> None:
        if not self.sources:
            raise ValueError(
                "no sources were given; give --sources fleet.csv (or a preset), or --items "
                "log.csv for the replay of a log"
            )
        for option, value, least in (("steps", self._steps, 1), ("warmup", self._warmup, 0)):
            if value < least:
                raise ValueError(f"--{option} is {value}; it must be at least {least}")
        if self._seeds < FEWEST_RUNS:
            raise ValueError(
                f"--seeds is {self._seeds}; intervals need at least {FEWEST_RUNS} runs of each "
                "policy"
            )

    @property
    def _steps(self) -> int:
        return self._given("steps", 2000)

    @property
    def _warmup(self) -> int:
        return self._given("warmup", 200)

    @property
    def _seeds(self) -> int:
        return self._given("seeds", 20)

    def _given(self, option: str, default: int) -> int:
        value = getattr(self, option)
        if value is None:
            return _QUICK[option] if self.quick else default
        return int(value)

    def _arrivals(self, fleet: Sources) -> str:
        """Return the name of the arrivals, which draw single items if sources have a finite
        capacity or send signals, or if there are few enough."""
        process = make_arrivals(self.arrivals)
        few = fleet.arrival_rate.sum() * fleet.period <= _ITEMS
        single = fleet.is_capped or fleet.is_signalled or few or self._engine is not None
        if process.random and not process.items and single:
            return f"{self.arrivals}-items"
        return self.arrivals

    def _setting(self, fleet: Sources) -> str:
        return (
            f"Arrivals {self._arrivals(fleet)}; {self._conditions()}, period {fleet.period:g}. "
            f"{self._steps} steps after a warm-up of {self._warmup}; {self._seeds} runs on the "
            "same arrivals for every policy. Intervals: 95 % confidence (Student's t over runs). "
            f"The fleet publishes {number(float(fleet.published))} utility per step on average."
        )


def _cost(runs: dict[str, Evaluation], bound: Bound) -> indexing.Cost:
    """Return what the engine costs the policies, and take the references out of the runs."""
    aside = {name: runs.pop(name) for name in indexing.REFERENCES if name in runs}
    free, heeding = aside[indexing.FREE].reward, runs[indexing.HEEDS].reward
    reward = {name: run.reward for name, run in runs.items() if name not in (CLAIRVOYANT, PLAYED)}
    return indexing.Cost(
        bound,
        float(free.mean()),
        {name: float(own.mean()) for name, own in reward.items()},
        {name: indexing.lost(statistics.gain(own, free)) for name, own in reward.items()},
        {
            name: statistics.gain(run.reward, heeding)
            for name, run in aside.items()
            if name != indexing.FREE
        },
    )
