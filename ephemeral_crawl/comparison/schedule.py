"""The schedule: how often each source is crawled, when next, and why."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np

from agents import make
from agents.evaluation.statistics import number
from agents.theory.multiplier import spendable
from agents.theory.renewal import renewal_arm
from agents.theory.schedule import RelaxedSchedule, relaxed_schedule
from crawl_env import NEVER, CrawlVectorEnv, ItemLog, Task
from crawl_env.errors import counted
from crawl_env.log.clock import HOURS
from crawl_env.numerics import FloatArray
from crawl_env.simulation import selection
from ephemeral_crawl.core.report import Report

_NUMBERS = ("interval", "interval_measured", "utility_per_crawl", "index")
_NAMED = 5  # sources that are never crawled
SHOWN = 20  # sources in the table of the report; the file has all
_WORK = 2e8  # sources × steps above which the order of the first crawls is found in longer steps


@dataclass(frozen=True)
class Schedule:
    """The schedule of a fleet under one budget.

    Arguments:
        task: the fleet, the budget and its rule.
        longest: maximum interval, in steps; infinite for none.
        since: time since the last crawl of each source, (N,), infinite where it was never crawled;
            None if no source was.
    """

    task: Task
    longest: float = np.inf
    since: FloatArray | None = None

    @cached_property
    def free(self) -> RelaxedSchedule:
        """Return the optimal schedule without a maximum interval."""
        fleet, budget = spendable(self.task.sources, self.task)
        return relaxed_schedule(fleet, budget, self.task.per_host)

    @cached_property
    def best(self) -> RelaxedSchedule:
        """Return the optimal schedule with the maximum interval."""
        if np.isinf(self.longest):
            return self.free
        fleet, budget = spendable(self.task.sources, self.task)
        return relaxed_schedule(fleet, budget, self.task.per_host, self.longest)

    @property
    def price(self) -> float:
        """Return the fraction of the utility that the maximum interval costs."""
        free = float(self.free.reward.sum())
        return 1.0 - float(self.best.reward.sum()) / free if free > 0 else 0.0

    @property
    def publishes(self) -> FloatArray:
        """Return the mean utility Λξ̄T that each source publishes, (N,) utility / step."""
        fleet = self.task.sources
        return fleet.arrival_rate * fleet.mean_utility * fleet.period

    @cached_property
    def interval(self) -> FloatArray:
        """Return the mean interval of each source, (N,) time; infinite where it is not crawled."""
        return self.best.interval * self.task.sources.period

    @cached_property
    def first(self) -> FloatArray:
        """Return the time until the next crawl of each source, (N,) time, if the budget holds in
        every step: the Whittle policy's order."""
        task, fleet = self.task, self.task.sources
        finite = np.isfinite(self.interval)
        first = np.where(finite, self.interval, np.inf)
        ages = np.full(len(fleet), NEVER)
        if self.since is not None:
            crawled = finite & np.isfinite(self.since)
            first[crawled] = np.maximum(first[crawled] - self.since[crawled], 0.0)
            ages = np.minimum(self.since / fleet.period, NEVER)
        if not finite.any():
            return first
        # A round takes so many steps; several are one if there would be very many.
        steps = int(3.0 * float(fleet.cost[finite].sum()) / task.budget) + 10
        together = max(1, math.ceil(steps * len(fleet) / _WORK))
        length = fleet.period * together
        with warnings.catch_warnings():  # those of the task have been shown
            warnings.simplefilter("ignore")
            env = CrawlVectorEnv(
                1,
                sources=fleet.replaced(failure_rate=0.0, period=length),
                budget=task.budget * together,
                budget_rule=task.budget_rule,
                per_host=None if task.per_host is None else task.per_host * together,
                arrivals="deterministic",
                horizon=None,
            )
            whittle = make("whittle", env)
        missing = finite.copy()
        observation, _ = env.reset(seed=0, options={"age": ages / together})
        for step in range(math.ceil(steps / together)):
            priority = whittle.predict(observation)[0]
            observation, *_ = env.step(priority)
            new = env.harvest.picked
            new = new[missing[new]]
            # Those of a step follow each other, in the order of their index.
            place = np.argsort(np.argsort(-priority[0, new], kind="stable"), kind="stable")
            first[new] = (step + place * together // max(len(new), 1) / together) * length
            missing[new] = False
            if not missing.any():
                break
        due = np.full(len(fleet), self.longest * fleet.period)
        if self.since is not None:
            due = np.maximum(due - np.where(np.isfinite(self.since), self.since, 0.0), 0.0)
        return np.where(finite, np.minimum(first, due), np.inf)

    @cached_property
    def age(self) -> FloatArray:
        """Return the mean steps from a successful crawl to the next attempt, (N,); infinite where
        there is none. Without failures, this is the interval."""
        fleet = self.task.sources
        success = 1.0 - fleet.failure_rate
        return np.asarray((self.best.interval - fleet.delay * fleet.failure_rate) / success)

    @property
    def assumed(self) -> str:
        """Return the end of a sentence on the next crawls: what was crawled before."""
        if self.since is None:
            return "if no source has been crawled yet (--last-crawls tells when each was)"
        return "according to the times since the last crawls that were given"

    @cached_property
    def index(self) -> FloatArray:
        """Return the Whittle index at the age of the first attempt, (N,); where a source is not
        crawled, the limit that its index does not exceed."""
        return self._index_at(np.ceil(self.age - 1e-9))

    def _index_at(self, age: FloatArray) -> FloatArray:
        arm, finite = renewal_arm(self.task.sources), np.isfinite(age)
        return np.where(finite, arm.index_at_age(np.where(finite, age, 1.0)), arm.break_even)

    def reasons(self) -> list[str]:
        """Return why each source is crawled at its interval, or is not."""
        fleet, best = self.task.sources, self.best
        arm, level = renewal_arm(fleet), best.multiplier
        affordable = np.broadcast_to(
            (self.task.budget_rule == "average")
            | selection.affordable(fleet.cost, self.task.budget),
            fleet.cost.shape,
        )
        publishes = self.publishes > 0
        at_ceiling = (self.age > self.longest - 1.0) & (self.index < level)
        # The index would reach λ* at once, or sooner, if it were not for the host.
        before = self._index_at(np.maximum(np.ceil(self.age - 1e-9) - 1.0, fleet.delay))
        host_bound = (before > level * (1 + 1e-9)) & bool(fleet.hosts)
        reasons = []
        for i, age in enumerate(self.age):
            if not affordable[i]:
                reason = f"never: a crawl costs {fleet.cost[i]:g}, more than the budget of a step"
            elif at_ceiling[i]:
                rarer = "less often or never" if publishes[i] else "never: publishes nothing"
                reason = f"at the maximum interval; without it, {rarer}"
            elif not publishes[i]:
                reason = "never: publishes nothing"
            elif np.isinf(age) and host_bound[i]:
                reason = "never: the crawls of its host are worth more at other sources"
            elif np.isinf(age):
                reason = (
                    f"never: a crawl brings at most {number(arm.break_even[i])} per unit of "
                    f"budget, below λ* = {number(level)}"
                )
            elif age <= fleet.delay[i] * (1 + 1e-9):
                reason = "worth a crawl as often as possible: its index is above λ* at once"
            elif host_bound[i]:
                reason = "as often as the limit of its host allows"
            elif abs(age - np.round(age)) <= 1e-9 * age:
                reason = f"worth a crawl after {counted(round(age), 'step')}: its index reaches λ*"
            else:
                reason = "uses the rest of the budget: its index is λ* at two ages"
            reasons.append(reason)
        return reasons

    def rows(
        self, when: Callable[[float], str], measured: FloatArray | None
    ) -> list[dict[str, Any]]:
        """Return the rows of schedule.csv.

        Arguments:
            when: turns a time from now into what is written.
            measured: crawls per step of whittle in the simulation or replay, (N,).
        """
        fleet, best, period = self.task.sources, self.best, self.task.sources.period
        reasons, utility = self.reasons(), best.utility_per_crawl
        rows = []
        for i in range(len(fleet)):
            is_crawled = bool(best.crawls[i] > 0)
            row: dict[str, Any] = {
                "budget": f"{self.task.budget:g}",
                "source": fleet.name(i),
                "interval": _digits(self.interval[i]) if is_crawled else "",
                "next_crawl": when(float(self.first[i])) if is_crawled else "",
                "utility_per_crawl": _digits(utility[i]) if is_crawled else "",
                "index": _digits(self.index[i]),
                "multiplier": _digits(best.multiplier),
                "reason": reasons[i],
            }
            if measured is not None:
                row["interval_measured"] = _digits(period / measured[i]) if measured[i] else ""
            rows.append(row)
        return rows


def own_multiplier(task: Task) -> str:
    """Return a sentence on why λ* of the schedule is not that of `indexing.bound_of`, which is of
    the policies of a task under an average budget; "" if it is."""
    heeded = {
        "signals": task.sources.is_signalled,
        "observed content": task.arrivals.random and bool(task.observed.any()),
        "the indexing engine": task.engine is not None,
    }
    names = " and ".join(name for name, is_heeded in heeded.items() if is_heeded)
    fleet, budget = spendable(task.sources, task)
    reasons = {
        f"fixed intervals take no account of {names}": bool(names),
        "the budget of a step does not pay for every source": fleet is not task.sources,
        "a step cannot spend all of its budget": budget < task.budget,
    }
    told = "; ".join(reason for reason, holds in reasons.items() if holds)
    return f" This is not λ* of the policies under an average budget, since {told}." * bool(told)


def write(report: Report, schedule: Schedule, rows: Sequence[dict[str, Any]], unit: str) -> None:
    """Add the table of the schedule, the most frequent sources first."""
    order = np.argsort(schedule.interval, kind="stable")
    top = [rows[i] for i in order[:SHOWN]]
    if len(rows) > SHOWN:
        scope = f"the {SHOWN} most frequent of {len(rows):,}; all are in schedule.csv"
    else:
        scope = "also in schedule.csv"
    columns = {
        "source": "source",
        "interval": f"interval ({unit})",
        "interval_measured": "interval of whittle, measured",
        "next_crawl": "next crawl",
        "utility_per_crawl": "utility per crawl",
        "index": "index",
        "reason": "reason",
    }
    present = [name for name in columns if name in rows[0]]
    report.table(
        f"Schedule under budget {rows[0]['budget']} ({scope})",
        [columns[name] for name in present],
        [[_cell(name, row[name]) for name in present] for row in top],
    )


def counts(schedule: Schedule, delay: float, unit: str = "units of time") -> str:
    """Return sentences on how many sources are crawled how often, and which never are.

    Arguments:
        delay: mean age of the items that whittle collected, time; NaN if there were none.
    """
    interval, fleet = schedule.interval, schedule.task.sources
    crawled = np.isfinite(interval)
    if not crawled.any():
        return "No source is worth a crawl."
    low, high = interval[crawled].min(), interval[crawled].max()
    intervals = f"every {low:.4g}" if low == high else f"every {low:.4g} to {high:.4g}"
    start = "The schedule, which ignores signals, crawls " if fleet.is_signalled else ""
    crawls = f"{crawled.sum():,} of {counted(len(fleet), 'source')}"
    text = f"{start}{crawls}, {intervals}" if start else f"Crawled: {crawls}, {intervals}"
    text += f" {unit}."
    never = np.flatnonzero(~crawled)
    if never.size:
        publishes = schedule.publishes
        order = never[np.argsort(-publishes[never], kind="stable")][:_NAMED]
        names = ", ".join(
            f"{fleet.name(i)} ({100 * publishes[i] / fleet.published:.2g}%)" for i in order
        )
        text += (
            f" {never.size:,} are never crawled, which publish "
            f"{publishes[never].sum() / fleet.published:.1%} of all utility: {names}"
            f"{', …' if never.size > _NAMED else ''}."
        )
    if not np.isnan(delay):
        text += f" Items are {delay:.3g} {unit} old on average when they are collected."
    return text


def clock(log: ItemLog, end: float) -> Callable[[float], str]:
    """Return a function that turns a time after the end of a log into a time stamp, or into a
    number in the log's unit if its times are numbers.

    >>> clock(ItemLog(["a"], [0], [1089924], [1]), 1089948.0)(1.5)
    '1089949.5'
    >>> clock(ItemLog(["a"], [0], [1], [1], origin="2026-11-30T00:00:00Z"), 1.0)(1e9)
    '9999-12-31T23:59:59Z'
    """
    if not log.origin:
        return lambda after: f"{end + after:.4f}".rstrip("0").rstrip(".")
    origin = datetime.fromisoformat(log.origin)

    def stamp(after: float) -> str:
        try:
            moment = origin + timedelta(hours=(end + after) * HOURS[log.unit])
        except OverflowError:  # after the year 9999, as with many sources and hardly any budget
            moment = datetime.max.replace(tzinfo=UTC)
        return moment.isoformat(timespec="seconds").replace("+00:00", "Z")

    return stamp


def _cell(name: str, text: str) -> str:
    """Return a cell of the report, in which four digits are enough."""
    if name == "interval" and not text:
        return "never"
    if name in _NUMBERS and text:
        return f"{float(text):.4g}"
    return text


def _digits(x: float) -> str:
    return f"{x:.6g}"
