"""A comparison of policies in steps: the options of `evaluate` and `replay`, and the runs."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import tyro

from agents.adaptive.base import Adaptive
from agents.evaluation.rollout import try_out
from agents.inference.content import HarvestSums
from agents.policies.industry import Rule
from agents.policies.simple import PingFirst
from agents.registry import AGENTS, ON_REQUEST, find
from agents.theory.task_bound import Bound
from crawl_env import Engine, Signals, Sources, Task
from crawl_env.content.engine import Discipline, Service
from crawl_env.errors import counted
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.numerics import FloatArray
from crawl_env.rng import check_seed
from crawl_env.simulation.selection import whole_budget
from crawl_env.simulation.task import make_sources
from ephemeral_crawl.comparison import indexing, present, signals
from ephemeral_crawl.comparison.events import (
    CHECKS,
    OF_LIMIT,
    OF_SCHEDULE,
    REFERENCES,
    C,
    CrawlRun,
    Results,
    StepEvents,
    play_all,
)
from ephemeral_crawl.comparison.present import Equal, Measurement, Present, since_last_crawl
from ephemeral_crawl.comparison.report import Plans, write
from ephemeral_crawl.comparison.sample import MOST, Sample, sample
from ephemeral_crawl.comparison.schedule import Schedule
from ephemeral_crawl.core.evaluation import FLOOR, REFERENCE
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.results import provenance
from ephemeral_crawl.core.runner import Job, Runner
from ephemeral_crawl.core.study import FILE, AnsweringStudy

Parts = dict[tuple[float, str], list[Job]]  # by budget and policy

# What a fetch reveals of single items.
_REVEALED = ("age", "crawled", "items", *HarvestSums.features)


@dataclass(kw_only=True)
class ComparisonStudy(AnsweringStudy):
    """A comparison of policies on a fleet under one budget or several."""

    agent_names: ClassVar[tuple[str, ...]] = tuple(AGENTS)  # names of --agents
    quickly: ClassVar[dict[str, int]]  # the options of a first answer, unless they are given
    outputs: ClassVar[tuple[str, ...]] = (
        "schedule.csv",
        "schedule.parquet",
        "sources.csv",
        "signals.csv",
        FILE,
        *AnsweringStudy.outputs,
    )

    budget: Annotated[str, tyro.conf.arg(metavar="M[,M…]")] = ""
    """M: the cost of the crawls that are allowed in one step. Several values, such as 3,4,8, also
    give the utility as a function of the budget."""
    period: float = 1.0
    """T: length of a step, in the unit of time of the rates."""
    present: Annotated[
        str,
        tyro.conf.arg(
            metavar="RULE|CSV",
            help="Your present rule, for comparison: the name of a policy (see --agents), or a "
            "CSV with the columns source, interval (time between two crawls; empty: never).",
        ),
    ] = ""
    last_crawls: Annotated[str, tyro.conf.arg(metavar="CSV")] = ""
    """When each source was last crawled, on which next_crawl in schedule.csv depends: a CSV with
    the columns source, since (time from its last crawl until now, or until the end of the log;
    empty: never). By default, no source was crawled before."""
    max_interval: Annotated[float, tyro.conf.arg(metavar="TIME")] = 0.0
    """Crawl every source at least once in this time, and say what that costs; 0 for no limit."""
    recall: float | None = None
    """Signals: the fraction of the items of every source that trigger a ping. By default,
    the fleet's column recall, or no signals without it."""
    precision: float | None = None
    """Signals: the fraction of the pings that an item triggered; the others are false. By default,
    the fleet's column precision, or 1 without it."""
    delay: Annotated[float | None, tyro.conf.arg(metavar="TIME")] = None
    """Signals: the mean time from an item to its ping. By default, the fleet's column
    signal_delay, or 0 without it."""
    engine_rate: Annotated[float | None, tyro.conf.arg(metavar="S")] = None
    """Indexing engine: the items that it indexes per step. Utility then counts when an item is
    indexed. By default everything is indexed in the step in which it is collected."""
    engine_capacity: Annotated[int | None, tyro.conf.arg(metavar="K")] = None
    """Indexing engine: the items that can wait from one step to the next; others are lost. By
    default any number."""
    engine_discipline: Discipline | None = None
    """Indexing engine: whether it indexes items in the order in which they were collected (fifo,
    the default), or the most valuable first (value)."""
    engine_service: Service | None = None
    """Indexing engine: whether it indexes the same number in every step (deterministic, the
    default), or a random one of that mean (poisson)."""
    engine_threshold: Annotated[float | None, tyro.conf.arg(metavar="UTILITY")] = None
    """Indexing engine: items worth less than this when they are collected are refused; by default
    none."""
    observed: bool = False
    """Whether the crawler observes the uncollected utility of a source before crawling it."""
    budget_rule: Literal["step", "average"] = "step"
    """Whether the budget holds in every step, or on average, as a token bucket."""
    per_host: int = 1
    """Maximum number of crawls per step of sources that share a host."""
    agents: Annotated[
        tuple[str, ...],
        tyro.conf.arg(
            help=f"Policies to compare; {REFERENCE} and {FLOOR} are always included, and "
            f"{PingFirst.name} with signals. whittle-exact is left out where it equals whittle, "
            "that is, unless random content is observed or announced by signals. Available besides "
            f"the default: {', '.join(ON_REQUEST)}."
        ),
    ] = tuple(name for name in AGENTS if name not in ON_REQUEST)
    seed: int = 0
    """Seed of all random draws."""
    quick: bool = False
    """A first answer in seconds: few runs and steps, and a sample of at most 300 sources, with the
    budget scaled to it. The schedule still covers all sources."""

    @abstractmethod
    def _events(self) -> StepEvents[Any]:
        """Return the events, on all sources, with the signals that the options give."""

    def run(self) -> None:
        self.compare(self._events())

    def compare(self, events: StepEvents[C]) -> None:
        """Play all policies on the same events, and write the report."""
        _ = check_seed(self.seed, "--seed")
        report_title, budgets = events.title, self._budgets()
        rule, latest = self._present(events.fleet), events.latest
        names = events.entrants(self._entrants(events.fleet, rule))
        since = since_last_crawl(self.last_crawls, latest) if self.last_crawls else None
        for name in self.agents:  # of installed packages: those of the house can act
            if name not in self.agent_names:
                try_out(name, events.task(budgets[0]), name)
        plans = {m: self._schedule(latest, m, since) for m in budgets}
        schedules = {m: self._schedule(events.fleet, m) for m in budgets}
        is_sampled = self.quick and self._indexing is None  # an engine serves the whole fleet
        part = sample(events.fleet, budgets, MOST if is_sampled else len(events.fleet))
        note = part.sentence(events.fleet, budgets)
        if note:
            events = events.sampled(part)
            rule = rule and rule.sampled(part)
        scaled = dict(zip(budgets, part.budgets, strict=True))
        parts: Parts = {}
        for m, plan in schedules.items():
            _ = events.task(scaled[m])  # raises ValueError for an impossible one
            parts |= {(m, name): events.jobs(name, scaled[m]) for name in names}
            parts |= {(m, n): events.jobs(n, scaled[m], r) for n, r in _crawls(plan, part).items()}
            if rule is not None and rule.rates is not None:
                rule_budget = rule.budget(events.fleet, scaled[m])
                parts[m, rule.name] = events.jobs(rule.name, rule_budget, rule.rates, "average")
        bounds = self._engine_bounds(events, parts, budgets)
        print(
            f"{counted(len(events.fleet), 'source')} × {events.length} × "
            f"{counted(len(names), 'policy', 'policies')} × {counted(len(budgets), 'budget')}, "
            f"in {counted(sum(map(len, parts.values())), 'part')}"
        )
        runs = play_all(self.runner, events, parts)
        costs = {m: indexing.cost_of(events, runs[m], bound) for m, bound in bounds.items()}
        equal = {
            m: self._equal(events, rule, scaled[m], runs[m]) for m in scaled if rule is not None
        }
        results = Results(events, runs, rule, equal, scaled)
        worth = self._worth(events, parts, runs)
        report = Report(report_title)
        notes = [text for text in (note, *events.notes) if text]
        rows = write(report, events, results, Plans(plans, not note, worth, costs, notes))
        self.publish(
            report,
            {
                "schedule.csv": rows,
                "records.csv": events.records(results, provenance()),
                "sources.csv": _per_source(events.fleet, runs),
                **signals.files(worth, events.fleet),
            },
        )

    def _entrants(self, fleet: Sources, rule: Present | None) -> tuple[str, ...]:
        names = self._names(fleet.is_signalled)
        more = (rule.name,) if rule is not None and rule.rates is None else ()
        return tuple(dict.fromkeys((*names, *more)))

    def _schedule(self, fleet: Sources, budget: float, since: FloatArray | None = None) -> Schedule:
        """Return the schedule of a fleet, without its signals.

        Raises:
            ValueError: an argument is invalid, or the maximum interval cannot be kept.
        """
        task = Task(
            signals.without_signals(fleet),
            budget=budget,
            budget_rule=self.budget_rule,
            per_host=self.per_host,
            observed=self.observed,
        )
        plan = Schedule(task, self._longest(self.period), since)
        _ = plan.best
        return plan

    def _engine_bounds(
        self, events: StepEvents[C], parts: Parts, budgets: Sequence[float]
    ) -> dict[float, Bound]:
        """Return the bounds in front of the indexing engine, by budget, and add its references to
        what is played; nothing without an engine."""
        if self._indexing is None:
            return {}
        bounds = {m: indexing.bound_of(events.task(m)) for m in budgets}
        for m, bound in bounds.items():
            pairs = zip(parts[m, REFERENCE], parts[m, indexing.HEEDS], strict=True)
            for plain, heeding in pairs:
                for name, job in indexing.references(plain, heeding, bound).items():
                    parts.setdefault((m, name), []).append(job)
        return bounds

    def _worth(
        self,
        events: StepEvents[C],
        parts: Parts,
        runs: Mapping[float, Mapping[str, C]],
    ) -> dict[float, signals.SignalGains]:
        """Return what the signals gain each policy, and are worth by source, by budget; nothing
        without signals."""
        if not events.fleet.is_signalled:
            return {}
        quiet = {
            key: [signals.silenced(job) for job in jobs]
            for key, jobs in parts.items()
            if signals.may_use(key[1])
        }
        print(f"The same without signals: {sum(map(len, quiet.values()))} parts")
        without = play_all(self.runner, events, quiet)
        gains_by_budget: dict[float, signals.SignalGains] = {}
        for m in runs:
            now = [{**job, "by source": True} for job in parts[m, REFERENCE]]
            todo = [*now, *(signals.silenced(job) for job in now)]
            results = self.runner.run(todo, events.work, quiet=True)
            net = signals.net_worth_of(events.modelled(now[0]))
            gains = {
                name: signals.gain_of(events, run, without[m].get(name, run))
                for name, run in runs[m].items()
                if name not in (*REFERENCES, FLOOR, *CHECKS)
            }
            worth = signals.Worth.of(net, results[: len(now)], results[len(now) :])
            gains_by_budget[m] = gains, worth
        return gains_by_budget

    def _equal(
        self, events: StepEvents[C], rule: Present, budget: float, runs: Mapping[str, C]
    ) -> Equal | None:
        """Return the budget at which whittle collects as much as the present rule."""
        fleet, now, task = events.fleet, runs[rule.name], events.task(budget)
        reward, cost = events.reward(now).mean, float(np.mean(now.cost))

        def measure(m: float) -> Measurement:
            jobs = {(m, REFERENCE): events.jobs(REFERENCE, m)}
            run = play_all(self.runner, events, jobs, quiet=True)[m][REFERENCE]
            mean = events.reward(run).mean
            low = events.lead(run, now).low
            least = -np.inf if np.isnan(low) else (1 + low) * reward
            return Measurement(m, mean, float(np.mean(run.cost)), least)

        return present.equal(
            Measurement(rule.budget(fleet, budget), reward, cost, reward),
            measure,
            lambda m: float(indexing.bound_of(task, max(m, 1e-9)).bound),
            least=float(fleet.cost.min()) if self.budget_rule == "step" else budget / 1000,
            whole=self.budget_rule == "step" and whole_budget(fleet.cost, budget) is not None,
        )

    def check(self, *inputs: str | Path | None) -> None:
        super().check(*inputs)
        _ = self._signals, self._indexing  # raise ValueError for impossible values

    @property
    def runner(self) -> Runner:
        """Return the runner; a first answer takes less time than processes take to start."""
        runner = super().runner
        return Runner(runner.folder, 1, "sequential") if self.quick else runner

    # ------------------------------------------------------------------------ the options

    def _budgets(self) -> list[float]:
        budgets = []
        for word in self.budget.split(","):
            try:
                budgets += [float(word)] if word.strip() else []
            except ValueError:
                raise ValueError(
                    f"--budget has {word!r}, which is not a number; write --budget 2.5, or "
                    "--budget 1,2,5,10 for several"
                ) from None
        if not budgets:
            raise ValueError(
                "no budget was given; give --budget 5, or --budget 1,2,5,10 for several"
            )
        return sorted(set(budgets))

    def _option(self, option: str, default: int) -> int:
        """Return the value of an option, or its default, which is another with --quick."""
        value: int | None = getattr(self, option)
        if value is None:
            return self.quickly[option] if self.quick else default
        return value

    def _names(self, has_signals: bool = False) -> tuple[str, ...]:
        """Return the policies to compare; if the sources send signals, also the usual rule that
        fetches whatever pinged, and with an indexing engine the policy that heeds it."""
        for name in self.agents:
            if name not in self.agent_names:
                find(name)
        more = (PingFirst.name,) * has_signals + (indexing.HEEDS,) * (self._indexing is not None)
        return tuple(dict.fromkeys((REFERENCE, *self.agents, *more, FLOOR)))

    def _present(self, fleet: Sources) -> Present | None:
        return Present.of(self.present, fleet) if self.present else None

    @property
    def _task_arguments(self) -> dict[str, Any]:
        """The arguments of an environment that the options give, as JSON."""
        engine = {} if self._indexing is None else {"engine": self._indexing.describe()}
        names = ("budget_rule", "per_host", "observed")
        return {**{name: getattr(self, name) for name in names}, **engine}

    @property
    def _signals(self) -> Signals | None:
        """Return the signals that the options describe; None without these options."""
        quality = self.recall, self.precision, self.delay
        return Signals(*quality) if any(x is not None for x in quality) else None

    @property
    def _indexing(self) -> Engine | None:
        """Return the indexing engine that the options describe; None without these options."""
        names = [field.name for field in fields(Engine)]
        values = {name: getattr(self, f"engine_{name}") for name in names}
        values = {name: value for name, value in values.items() if value is not None}
        if not values:
            return None
        if "rate" not in values:
            raise ValueError(
                f"--engine-{next(iter(values))} describes an indexing engine whose rate is "
                "missing; give --engine-rate, the items that it indexes per step, too"
            )
        try:
            engine = Engine(**values)
        except ValueError as error:
            raise ValueError(f"--engine-{error}") from None
        if math.isinf(engine.rate):
            raise ValueError(
                "--engine-rate is inf, an engine that indexes everything; leave the option out"
            )
        return engine

    def _with_signals(self, fleet: Sources) -> Sources:
        """Return the fleet with the signals that the options give."""
        overrides = self._signals
        if overrides is not None:
            if self.recall is None and not fleet.is_signalled:
                raise ValueError(
                    "--precision and --delay say how good signals are, but no source sends any; "
                    "give --recall, the fraction of the items that trigger a ping, too"
                )
            fleet = overrides.of(fleet)
        if fleet.is_signalled and self.observed:
            raise ValueError(
                "--observed is given with signals, which tell nothing of content that is observed "
                "anyway; leave out one of them"
            )
        return fleet

    def _longest(self, period: float) -> float:
        """Return the maximum interval in steps."""
        if self.max_interval == 0:
            return math.inf
        if not period <= self.max_interval < math.inf:
            raise ValueError(
                f"--max-interval is {self.max_interval:g}; it must be at least one step, which is "
                f"{period:g}"
            )
        return self.max_interval / period

    def _conditions(self) -> str:
        observed = "observed" if self.observed else "not observed"
        budget = "in every step" if self.budget_rule == "step" else "on average"
        engine = f", in front of {self._indexing!r}" * (self._indexing is not None)
        return f"content {observed} before crawling, budget enforced {budget}{engine}"


def fleet_of(text: str, period: float) -> Sources:
    """Return the fleet of a file, or the preset of a name."""
    path = Path(text)
    return make_sources(path if path.exists() else text).replaced(period=period)


def _crawls(plan: Schedule, part: Sample) -> dict[str, FloatArray]:
    """Return the crawls per step of the sampled sources, (n,), under the schedules to be played."""
    crawls = {OF_SCHEDULE: part.crawls(plan.free.crawls)}
    if np.isfinite(plan.longest):
        crawls[OF_LIMIT] = part.crawls(plan.best.crawls)
    return crawls


def _per_source(
    fleet: Sources, runs: Mapping[float, Mapping[str, CrawlRun]]
) -> list[dict[str, Any]]:
    """Return the crawls per step of every source under each budget and policy."""
    return [
        {
            "budget": m,
            "source": fleet.name(i),
            **{name: float(getattr(fleet, name)[i]) for name in PARAMETERS},
            **{f"crawls_per_step_{name}": float(run.frequency[i]) for name, run in agents.items()},
        }
        for m, agents in runs.items()
        for i in range(len(fleet))
    ]


def features_of(agent: str) -> Sequence[str]:
    """Return the features that an agent is shown: those that learn from their crawls get what a
    fetch reveals of single items, where these exist."""
    kind = AGENTS.get(agent)
    learns = isinstance(kind, type) and issubclass(kind, (Adaptive, Rule))
    return ["value", *_REVEALED] if learns else ["value"]
