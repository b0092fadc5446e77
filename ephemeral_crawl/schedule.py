"""`ephemeral-crawl schedule`: an interval and a next fetch per source, from a log."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import tyro
from numpy.typing import NDArray
from scipy import stats

from agents import AGENTS
from agents.inference import shrinkage
from crawl_env import ItemLog, Sources, Task
from crawl_env.errors import counted
from crawl_env.log.clock import HOURS
from crawl_env.numerics import FloatArray
from ephemeral_crawl.comparison import schedule
from ephemeral_crawl.comparison.present import intervals, since_last_crawl
from ephemeral_crawl.comparison.schedule import Schedule
from ephemeral_crawl.core.log_options import LogOptions
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import Study
from ephemeral_crawl.fit import decay
from ephemeral_crawl.fit.lives import lives
from ephemeral_crawl.live.arguments import seconds
from ephemeral_crawl.live.settings import Settings
from ephemeral_crawl.replay.split import fitted_to

_REACHED = "fetched when its index reaches the price of a fetch"
_FEW = 5  # items, below which the rate of a source rests mostly on those of the others
_NAMED = 5  # of such sources, and of silent ones, in the report
_STEPS = 30  # of a mean gap between two fetches, in which the order of the first ones is decided


@dataclass(kw_only=True)
class MakeSchedule(LogOptions, Study):
    """Makes a schedule from a log: an interval, a next fetch and a reason for each source.

    Nothing is simulated, so that it takes seconds, and you can make a new schedule every night.
    Test schedules on the log with `replay`, and the live scheduler, which learns while it crawls,
    with `backtest`.
    """

    main: ClassVar[tuple[str, ...]] = (
        *("items", "budget", "half_life", "curves", "max_interval", "present", "last_crawls"),
        *("unit", "drop_duplicates", "out"),
    )
    outputs: ClassVar[tuple[str, ...]] = ("schedule.csv", "report.html")

    items: Path
    """The log: a table with the columns source, published and utility (by default 1)."""
    budget: str
    """Cost of all fetches per time, such as 20/h."""
    half_life: str = ""
    """Time in which the worth of an item halves, such as 3h."""
    curves: Path | None = None
    """Table item, age, remaining: recorded decay of single items, instead of a half-life."""
    max_interval: str = ""
    """Fetch every source at least once in this time, such as 24h, and say what that costs."""
    present: Annotated[str, tyro.conf.arg(metavar="CSV")] = ""
    """Your present intervals, to be compared with: a CSV with the columns source, interval (in the
    unit of the log; empty: never). By default equal intervals."""
    last_crawls: Annotated[str, tyro.conf.arg(metavar="CSV")] = ""
    """When each source was last fetched: a CSV with the columns source, since (time until the end
    of the log; empty: never). By default none was fetched before."""

    def run(self) -> None:
        self.check(self.items, self.curves, self.present, self.last_crawls)
        declared = decay.declared(self.curves, self.half_life, self.unit)
        log = self.read(self.items, self.curves)
        hour = 1.0 / HOURS[log.unit]  # in the unit of the log
        per_hour = 3600.0 * Settings.of(self.budget).budget
        period = hour / per_hour / _STEPS
        fading = declared or decay.measure(log).rate.value
        fleet, evidence = fitted_to(log, fading, period, closed=True), Evidence.of(log)
        longest = math.inf
        if self.max_interval:
            hours = seconds("--max-interval", self.max_interval, 1.0) / 3600.0
            if (rate := float(fleet.cost.sum()) / hours) > per_hour:
                raise ValueError(
                    f"--max-interval {self.max_interval} takes {rate:.3g} fetches an hour for "
                    f"{counted(len(fleet), 'source')}, and --budget {self.budget} allows "
                    f"{per_hour:.3g}; allow a longer interval, or raise the budget"
                )
            longest = hours * hour / float(fleet.period)
        since = since_last_crawl(self.last_crawls, fleet) if self.last_crawls else None
        budget = 1.0 / _STEPS  # per step
        task = Task(fleet, budget=budget, budget_rule="average", observed=False)
        plan = Schedule(task, longest, since)
        rows = plan.rows(schedule.clock(log, log.end), None)
        for row, items, low, high in zip(rows, *evidence, strict=True):
            row |= {"items": int(items), "rate_low": f"{low:.4g}", "rate_high": f"{high:.4g}"}
            row["budget"] = self.budget
            if "λ*" in row["reason"] and not row["reason"].startswith("never"):
                row["reason"] = _REACHED
        present = self._now(fleet, per_hour / hour)
        report = Report(f"Schedule of {counted(len(fleet), 'source')} at {self.budget}")
        _write(report, plan, present, rows, log, evidence, self.max_interval)
        self.publish(report, {"schedule.csv": rows})

    def _now(self, fleet: Sources, per_time: float) -> tuple[str, FloatArray]:
        """Return the present rule in words, and its fetches per unit of time, (N,)."""
        if not self.present:
            equal = np.full(len(fleet), per_time / fleet.cost.sum())
            return "equal intervals", equal
        if self.present in AGENTS:
            raise ValueError(
                f"--present {self.present} is the name of a policy; give a CSV of intervals, or "
                "ask `replay` or `backtest`, which play policies and rules"
            )
        return "the present intervals", 1.0 / intervals(self.present, fleet)


class Evidence(NamedTuple):
    """What the rates of N sources rest on."""

    items: NDArray[np.intp]  # (N,) that count towards the rate
    low: FloatArray  # (N,) of the 95 % interval of the rate, items / time
    high: FloatArray  # (N,)

    @staticmethod
    def of(log: ItemLog) -> Evidence:
        """Return what the rates that are fitted to a log rest on; they are those of Gamma
        distributions."""
        alive = lives(log)
        counts = alive.counts(log)
        rates = shrinkage.rates(counts, alive.span)
        shape, scale = (rates.value / rates.error) ** 2, rates.error**2 / rates.value
        low, high = (stats.gamma.ppf(p, shape, scale=scale) for p in (0.025, 0.975))
        return Evidence(counts, low, high)

    def few(self, fleet: Sources, unit: str) -> str:
        """Return a sentence on the sources with few items, or "" if there are none."""
        few = np.flatnonzero(self.items < _FEW)
        if not few.size:
            return ""
        worth = fleet.arrival_rate * fleet.mean_utility
        order = few[np.argsort(-worth[few], kind="stable")][:_NAMED]
        items = [counted(n, "item") for n in self.items[order]]
        names = ", ".join(
            f"{fleet.name(i)} ({number}; {self.low[i]:.2g} to {self.high[i]:.2g} per {unit})"
            for i, number in zip(order, items, strict=True)
        )
        basis = "those of the others" if few.size < len(fleet) else "one another"
        return (
            f"{few.size:,} of {counted(len(fleet), 'source')} "
            f"{'has' if few.size == 1 else 'have'} fewer than {_FEW} items in the log; "
            f"{worth[few].sum() / worth.sum():.0%} of the utility is expected of them. Their rates "
            f"rest on {basis} and on the prior of the fit more than on what they published: "
            f"{names}{', …' if few.size > _NAMED else ''}. Ranges are 95 % intervals."
        )


def collected(fleet: Sources, crawls: FloatArray) -> FloatArray:
    """Return the expected utility per unit of time of fetches at equal intervals, (N,).

    Arguments:
        crawls: fetches per unit of time, (N,).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        utility = crawls * fleet.ceiling * -np.expm1(-fleet.decay_rate / crawls)
    return np.where(crawls > 0, utility, 0.0)


def _write(
    report: Report,
    plan: Schedule,
    present: tuple[str, FloatArray],
    rows: list[dict[str, Any]],
    log: ItemLog,
    evidence: Evidence,
    max_interval: str,
) -> None:
    fleet = plan.task.sources
    name, crawls = present
    period = float(fleet.period)
    published = float((fleet.arrival_rate * fleet.mean_utility).sum())
    if not published > 0.0:
        raise ValueError(
            "no source publishes anything of any utility at the end of the log; give items of a "
            "utility above 0, up to a time at which sources still publish"
        )
    best = float(plan.best.reward.sum()) / period
    now = float(collected(fleet, crawls).sum())
    cost = float((crawls * fleet.cost).sum()) * period
    text = f"The schedule collects {best / published:.1%} of all utility, and {name} "
    text += f"{now / published:.1%}"
    if abs(cost / plan.task.budget - 1.0) > 0.01:
        equal = Schedule(plan.task.replaced(budget=cost), plan.longest)
        text += (
            f" with {cost / plan.task.budget:.2g} times its fetches, with which a schedule would "
            f"collect {float(equal.free.reward.sum()) / period / published:.1%}"
        )
    report.answer(text + ".")
    if few := evidence.few(fleet, log.unit):
        report.paragraph(few)
    if (silent := np.flatnonzero(~(plan.publishes > 0.0))).size:
        names = ", ".join(fleet.name(i) for i in silent[:_NAMED])
        report.paragraph(
            f"{counted(silent.size, 'source')} fell silent before the end of the log, and nothing "
            f"more is expected of {'it' if silent.size == 1 else 'them'}: {names}"
            f"{', …' if silent.size > _NAMED else ''}. In schedule.csv the reason says so."
        )
    report.paragraph(schedule.counts(plan, math.nan, f"{log.unit}s"))
    if max_interval:
        report.paragraph(
            f"That every source is fetched at least once in {max_interval} costs {plan.price:.1%} "
            "of what could be collected without."
        )
    schedule.write(report, plan, rows, f"{log.unit}s")
    with report.details("What this rests on"):
        report.paragraph(
            "Expected values of Poisson arrivals with the rates and mean utilities of the log, "
            "fetched at equal intervals, which are optimal for these rates. Next fetches are "
            f"counted from the end of the log, {plan.assumed}."
        )
        for note in log.notes:
            report.paragraph(note)
