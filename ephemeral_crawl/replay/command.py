"""`ephemeral-crawl replay`: how much would each policy have collected from a recorded log?"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import tyro

from agents.policies.simple import PingFirst
from agents.registry import CLAIRVOYANT, ON_REQUEST
from agents.theory.task_bound import Bound
from crawl_env import Sources, Task
from crawl_env.log.clock import HOURS
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
from ephemeral_crawl.core.tables import FLOOR, REFERENCE
from ephemeral_crawl.replay import play, summary
from ephemeral_crawl.replay.hindsight import Hindsight
from ephemeral_crawl.replay.play import REFITTED, SCHEDULER, Replay
from ephemeral_crawl.replay.split import WEEK, Log, Split
from ephemeral_crawl.replay.view import View, records

_QUICK = {"steps": 1000, "seeds": 2}
_OF_SCHEDULE, _OF_LIMIT = "schedule", "schedule, maximum interval"  # not ranked


@dataclass(kw_only=True)
class ReplayLog(ComparisonStudy):
    """Replays a log of what your sources published: how much would each policy have collected?

    The policies are fitted to the first part of the log and replay the second, all with the same
    items. The schedule is that of the fleet fitted to the whole log.
    """

    known: ClassVar[tuple[str, ...]] = (*ComparisonStudy.known, SCHEDULER)

    log: Annotated[Log, tyro.conf.arg(name="")] = field(default_factory=Log)
    sources: str = ""
    """A fleet of your own, which is used instead of one fitted to the log: a CSV, or the name of a
    preset."""
    steps: Annotated[int | None, tyro.conf.arg(metavar="H")] = None
    """Steps that are replayed; by default all of the second part, with --quick 1000."""
    agents: Annotated[
        tuple[str, ...],
        tyro.conf.arg(
            help=f"Policies to compare: {', '.join(known)}, which is the live scheduler, started "
            f"from the fleet. {REFERENCE} and {FLOOR} are always included; "
            f"{', '.join(ON_REQUEST)} only if they are named, but for {PingFirst.name} with "
            "signals."
        ),
    ] = tuple(name for name in known if name not in ON_REQUEST)
    seeds: Annotated[int | None, tyro.conf.arg(metavar="S")] = None
    """Runs of each policy, each of which starts one step after the previous one; by default 4, with
    --quick 2."""

    def run(self) -> None:
        self.check(
            *(self.log.items, self.log.curves, self.log.signals),
            *(self.sources, self.present, self.last_crawls),
        )
        self._check_options()
        given = self._budgets()
        _ = self._names()  # raises ValueError for an unknown one
        given_fleet = fleet_of(self.sources, self.period) if self.sources else None
        steps = _QUICK["steps"] if self.quick and self.steps is None else self.steps
        split = self._announced(self.log.split(given_fleet, self.period, steps))
        names = self._names(split.fleet.is_signalled)
        rule, longest = self._present(split.fleet), self._longest(self.period)
        if rule is not None and rule.rates is None:
            names = tuple(dict.fromkeys((*names, rule.name)))
        entrants = play.entrants(names, split, self.observed)
        since = self._since(split.latest)
        plans = {m: Schedule(self._task(split.latest, m), longest, since) for m in given}
        tested = {m: Schedule(self._task(split.fleet, m), longest) for m in given}
        for plan in (*plans.values(), *tested.values()):
            _ = plan.best  # raises ValueError if the maximum interval cannot be kept
        sampled = self.quick and self._engine is None  # an engine serves the whole fleet
        part = sample(split.fleet, given, MOST if sampled else len(split.fleet))
        note = part.sentence(split.fleet, given)
        if len(part.which) < len(split.fleet):
            split = split.sampled(part.of(split.fleet))
            if rule is not None and rule.rates is not None:
                rule = rule._replace(rates=part.crawls(rule.rates))
        parts: dict[tuple[float, str], Job] = {}
        for m, own in zip(given, part.budgets, strict=True):
            of_plan = {_OF_SCHEDULE: tested[m].free.crawls}
            if np.isfinite(longest):
                of_plan[_OF_LIMIT] = tested[m].best.crawls
            for name in (*entrants, *of_plan):
                played = part.crawls(of_plan[name]) if name in of_plan else None
                parts[m, name] = self._job(split, own, name, played)
            if rule is not None and rule.rates is not None:
                asked = rule.budget(split.fleet, own)
                parts[m, rule.name] = self._job(split, asked, rule.name, rule.rates, "average")
        bounds: dict[float, Bound] = {}
        if self._engine is not None:
            bounds = {m: indexing.bound_of(self._queued(split.fleet, m)) for m in given}
        for m, bound in bounds.items():
            jobs = indexing.references(parts[m, REFERENCE], parts[m, indexing.HEEDS], bound)
            parts |= {(m, name): job for name, job in jobs.items()}
        todo = list(parts.values())
        print(
            f"{len(split.fleet)} sources × {split.steps} steps × {self._runs(split)} runs × "
            f"{len(entrants)} policies × {len(given)} budgets, in {len(todo)} parts"
        )
        net = self._net_worth(split, dict(zip(given, part.budgets, strict=True)))
        results = self.runner.run(todo, partial(play.work, split.trace, pings=split.announced))
        runs: dict[float, dict[str, Replay]] = {m: {} for m in given}
        for (m, name), result in zip(parts, results, strict=True):
            runs[m][name] = play.replay_of(result)
        view = self._view(split, dict(zip(given, part.budgets, strict=True)), note)
        costs = {m: _cost(view, runs[m], bound) for m, bound in bounds.items()}
        found = summary.Found(
            view=view,
            runs=runs,
            own=dict(zip(given, part.budgets, strict=True)),
            plans=plans,
            present=rule,
            equal={
                m: self._equal(view, own, rule, runs[m])
                for m, own in zip(given, part.budgets, strict=True)
            },
            checks=(_OF_SCHEDULE, _OF_LIMIT, PLAYED),
            when=_clock(split),
            sampled=bool(note),
            costs=costs,
        )
        assert self.log.items is not None
        report = Report(f"Replay of {self.log.items.name}: what each policy would have collected")
        worth = self._worth(net, view, parts, runs)
        schedule = summary.write(report, found, worth)
        self.publish(
            report,
            {
                "schedule.csv": schedule,
                "records.csv": records(view, runs, {"observed": self.observed, **provenance()}),
                "sources.csv": per_source(split.fleet, runs),
                **signals.files(worth, split.fleet),
            },
        )

    # ------------------------------------------------------------------------ jobs

    def _job(
        self,
        split: Split,
        budget: float,
        name: str,
        rates: Any = None,
        budget_rule: str | None = None,
    ) -> Job:
        """Return the job of a policy or a reference, or of a schedule with these crawls per
        step."""
        refitted = split.refitted if name == REFITTED else None
        job: Job = {
            "agent": REFERENCE if refitted else name,
            "arguments": {
                "sources": evaluation.fleet_as_json(refitted or split.fleet),
                "budget": budget,
                "budget_rule": "average" if name == SCHEDULER else budget_rule or self.budget_rule,
                "per_host": self.per_host,
                "observed": self.observed,
                "start": "empty",
                "features": list(features_of(name)),
            },
            "steps": split.steps,
            "runs": self._runs(split),
            "seed": self.seed,
            "log": split.digest,
        }
        if self._engine is not None:
            job["arguments"]["engine"] = self._engine.describe()
        if rates is not None:
            job["rates"] = np.asarray(rates).tolist()
        return job

    def _task(self, fleet: Sources, budget: float) -> Task:
        """Return the task of a schedule; raises ValueError for invalid arguments."""
        return Task(
            fleet,
            budget=budget,
            budget_rule=self.budget_rule,
            per_host=self.per_host,
            observed=self.observed,
        )

    def _queued(self, fleet: Sources, budget: float) -> Task:
        """Return the task in front of the engine, as if arrivals were Poisson."""
        return self._task(fleet, budget).replaced(engine=self._engine, arrivals="poisson-items")

    def _announced(self, split: Split) -> Split:
        """Return the split with the signals that the options give."""
        refitted = split.refitted and self._with_signals(split.refitted)
        quiet = signals.without_signals(split.latest)
        return replace(
            split, fleet=self._with_signals(split.fleet), refitted=refitted, latest=quiet
        )

    def _net_worth(
        self, split: Split, budgets: Mapping[float, float]
    ) -> dict[float, signals.NetWorth]:
        """Return what the signals are worth by the model, as if arrivals were Poisson, by budget;
        nothing without signals."""
        if not split.fleet.is_signalled:
            return {}
        jobs = {m: self._job(split, own, REFERENCE) for m, own in budgets.items()}
        poisson = {"arrivals": "poisson-items"}
        return {
            m: signals.net_worth_of({**job, "arguments": {**job["arguments"], **poisson}})
            for m, job in jobs.items()
        }

    def _worth(
        self,
        net: Mapping[float, signals.NetWorth],
        view: View,
        parts: Mapping[tuple[float, str], Job],
        runs: Mapping[float, Mapping[str, Replay]],
    ) -> dict[float, signals.Found]:
        """Return what the signals gain each policy, and are worth by source, by budget."""
        if not net:
            return {}
        kinds = {key: job for key, job in parts.items() if signals.may_use(key[1])}
        work, by_source = (
            partial(of, view.split.trace, pings=view.split.announced)
            for of in (play.work, play.work_by_source)
        )
        quiet = [signals.silenced(job) for job in kinds.values()]
        print(f"The same without signals: {len(quiet)} parts")
        results = self.runner.run(quiet, work)
        without = dict(zip(kinds, map(play.replay_of, results), strict=True))
        found: dict[float, signals.Found] = {}
        for m, of in net.items():
            job = {**parts[m, REFERENCE], "block": view.block}
            both = self.runner.run([job, signals.silenced(job)], by_source, quiet=True)
            gains = {
                name: _gain(view, run, without.get((m, name), run))
                for name, run in runs[m].items()
                if name not in (CLAIRVOYANT, REFITTED, FLOOR, _OF_SCHEDULE, _OF_LIMIT, PLAYED)
            }
            found[m] = gains, signals.Worth.of(of, both[:1], both[1:])
        return found

    def _equal(
        self, view: View, budget: float, rule: Present | None, runs: dict[str, Replay]
    ) -> Equal | None:
        """Return the budget at which whittle collects as much as the present rule."""
        if rule is None:
            return None
        fleet, now = view.split.fleet, runs[rule.name]
        reward = now.total / view.steps
        return present_rule.equal(
            Measured(rule.budget(fleet, budget), reward, now.cost, reward),
            partial(self._measured, view, now),
            partial(_bound, self._task(fleet, budget)),
            least=float(fleet.cost.min()) if self.budget_rule == "step" else budget / 1000,
            whole=self.budget_rule == "step" and whole_budget(fleet.cost, budget) is not None,
        )

    def _measured(self, view: View, rule: Replay, budget: float) -> Measured:
        split = view.split
        job = self._job(split, budget, REFERENCE)
        work = partial(play.work, split.trace, pings=split.announced)
        (found,) = self.runner.run([job], work, quiet=True)
        run = play.replay_of(found)
        gain = view.gain(run, rule).low
        least = -np.inf if np.isnan(gain) else (1 + gain) * rule.total / split.steps
        return Measured(budget, run.total / split.steps, run.cost, least)

    def _view(self, split: Split, budgets: dict[float, float], note: str) -> View:
        best = Hindsight(split.trace, split.fleet, split.steps)
        # A balance may be overdrawn by less than one crawl.
        more = split.fleet.cost.max() / split.steps if self.budget_rule == "average" else 0.0
        bounds = {m: best.bound(own + more) for m, own in budgets.items()}
        block = self.log.block or WEEK / HOURS[self.log.unit]
        return View(
            split,
            max(1, round(block / split.fleet.period)),
            bounds,
            best.best(multiplier=0.0).net,
            self._conditions(),
            " ".join(text for text in (note, self.log.note) if text),
            self._runs(split),
        )

    # ------------------------------------------------------------------------ options

    def _check_options(self) -> None:
        for option in ("steps", "seeds"):
            value = getattr(self, option)
            if value is not None and value < 1:
                raise ValueError(f"--{option} is {value}; it must be at least 1")

    def _runs(self, split: Split) -> int:
        asked = self.seeds if self.seeds is not None else _QUICK["seeds"] if self.quick else 4
        return min(asked, split.steps)

    def _asked(self) -> dict[str, Any]:
        options = super()._asked()
        log: Log = options.pop("log")
        return {**options, **vars(log)}


def _gain(view: View, run: Replay, without: Replay) -> signals.Gain:
    """Return what a policy gains by signals, with an interval over blocks of time."""
    totals = without.total / view.steps, run.total / view.steps
    return signals.Gain(*totals, view.gain(run, without))


def _cost(view: View, runs: dict[str, Replay], bound: Bound) -> indexing.Cost:
    """Return what the engine costs the policies, and take the references out of the runs."""
    aside = {name: runs.pop(name) for name in indexing.REFERENCES if name in runs}
    free, heeding = aside[indexing.FREE], runs[indexing.HEEDS]
    left_out = (CLAIRVOYANT, REFITTED, PLAYED)
    peers = {name: run for name, run in runs.items() if name not in left_out}
    return indexing.Cost(
        bound,
        free.total / view.steps,
        {name: run.total / view.steps for name, run in peers.items()},
        {name: indexing.lost(view.gain(run, free)) for name, run in peers.items()},
        {name: view.gain(run, heeding) for name, run in aside.items() if name != indexing.FREE},
    )


def _bound(task: Task, budget: float) -> float:
    with warnings.catch_warnings():  # budgets in between need not be of any use
        warnings.simplefilter("ignore")
        return float(Schedule(task.replaced(budget=max(budget, 1e-9))).free.reward.sum())


def _clock(split: Split) -> Callable[[float], str]:
    """Return what turns a time after the end of the log into a time stamp, or into a number in the
    log's unit if its times are numbers."""
    log, end = split.rest, split.end
    if not log.origin:
        return lambda after: f"{end + after:.6g}"
    origin = datetime.fromisoformat(log.origin)

    def stamp(after: float) -> str:
        moment = origin + timedelta(hours=(end + after) * HOURS[log.unit])
        return moment.isoformat(timespec="seconds").replace("+00:00", "Z")

    return stamp
