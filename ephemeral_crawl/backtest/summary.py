"""The events of a log in continuous time, for a comparison, and the report of a back-test."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

from agents.evaluation import statistics
from agents.evaluation.statistics import Estimate
from crawl_env import ItemLog, PingLog
from crawl_env.errors import counted
from ephemeral_crawl.backtest import play
from ephemeral_crawl.backtest.play import AS_IT_IS, KNOWN, SCHEDULER, WITHOUT, Feeds, PlayRun
from ephemeral_crawl.backtest.rules import RULES
from ephemeral_crawl.comparison.events import Column, Events, Results
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.log_options import digest
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result, measured_of
from ephemeral_crawl.live.explanation import duration

_HOUR, _DAY = 3600.0, 86_400.0
_SHOWN = 15  # feeds in the page
_ABOUT = {
    SCHEDULER: "learns from its own fetches",
    WITHOUT: "the same without pings",
    KNOWN: "the index, with the mean rate and worth of every feed known in advance",
    **{name: rule.about for name, rule in RULES.items()},
}


@dataclass(frozen=True)
class FeedEvents(Events[PlayRun]):
    """Items of a log as feeds that are fetched one by one; budgets are fetches per hour.

    Arguments:
        log, pings: the items, and the pings if there are any.
        options: the arguments of `Feeds`.
        per_hour: the budget.
        present: the rule that is used now.
    """

    references: ClassVar[tuple[str, ...]] = (KNOWN,)
    checks: ClassVar[tuple[str, ...]] = tuple(AS_IT_IS + name for name in RULES)

    log: ItemLog
    pings: PingLog | None
    options: Mapping[str, Any]
    per_hour: float
    present: str

    @property
    def labels(self) -> Mapping[str, str]:
        return {self.present: f"{self.present} (present)", KNOWN: f"{KNOWN} (reference)"}

    @cached_property
    def feeds(self) -> Feeds:
        """The feeds, none of which was fetched."""
        return Feeds(self.log, **self.options)

    @cached_property
    def published(self) -> float:
        return self.feeds.total

    def jobs(self, agent: str, budget: float) -> list[Job]:
        return [
            {
                "policy": agent,
                "per_hour": budget,
                "feeds": self.options,
                "log": digest(self.log, self.pings),
            }
        ]

    @property
    def work(self) -> Callable[[Job], Result]:
        return partial(play.work, self.log, self.pings)

    def run_of(self, results: Sequence[Result]) -> PlayRun:
        return measured_of(PlayRun, results[0])

    def reward(self, run: PlayRun) -> Estimate:
        return Estimate(float(run.collected.sum()), math.nan, math.nan)

    def gain(self, run: PlayRun, other: PlayRun) -> Estimate:
        known = other.collected.sum() > 0.0
        return statistics.gain(run.collected, other.collected) if known else statistics.UNKNOWN

    def columns(self, budget: float, runs: Mapping[str, PlayRun]) -> dict[str, Column[PlayRun]]:
        scheduler = runs[SCHEDULER]
        return {
            "of all worth": lambda _, run: f"{self.part(run):.1%}",
            "scheduler's gain": lambda name, run: (
                "–" if name == SCHEDULER else _percent(self.gain(scheduler, run))
            ),
            "delay, hours": lambda _, run: _number(run.delay / _HOUR),
            "feeds fetched": lambda _, run: f"{(run.fetches > 0).sum():,}",
            "rule": lambda name, _: _ABOUT[name],
        }

    def part(self, run: PlayRun) -> float:
        """Return the part of all worth that was collected."""
        return float(run.collected.sum()) / self.published if self.published else 0.0


def write(report: Report, events: FeedEvents, results: Results[PlayRun]) -> None:
    """Write the report, of the scheduler under several budgets and of the rules under the first."""
    per_hour, present = events.per_hour, events.present
    runs = results.runs[per_hour]
    report.answer(_answer(events, results))
    report.figure(
        _by_budget(events, results),
        "Share of all worth that the scheduler collects with fewer fetches. Lines: the rules with "
        "all fetches.",
    )
    report.heading("All rules with the same number of fetches")
    results.table(report, per_hour, "What each collects")
    itself, period = runs[AS_IT_IS + present], RULES[present].counts
    rate = itself.fetches.sum() * _HOUR / (events.feeds.end - events.feeds.start)
    report.paragraph(
        f"With its own intervals, {present} makes {_fetches(rate, '.3g')} an hour here, "
        f"and collects {events.part(itself):.1%}."
        + (
            f" It counts the entries of {duration(period)}, but the log begins only "
            f"{duration(events.feeds.start)} before the first fetch, so that it makes fewer "
            "fetches at first than it does in use. A longer log, or a larger --begin, avoids this."
            if period > events.feeds.start
            else ""
        )
    )
    report.heading("The scheduler with fewer fetches")
    report.table(
        f"Compared with {present} at {_fetches(per_hour)} an hour",
        ["fetches an hour", "fewer", "of all worth", "gain"],
        [
            [
                f"{m:g}",
                f"{1 - m / per_hour:.0%}",
                f"{events.part(of_budget[SCHEDULER]):.1%}",
                _percent(events.gain(of_budget[SCHEDULER], runs[present])),
            ]
            for m, of_budget in results.runs.items()
        ],
    )
    report.heading("Where the fetches go")
    largest = sorted(feeds_of(events, results), key=lambda row: -float(row["worth_per_day"]))
    names = ("items_per_day", "worth_per_day", "scheduler_per_day", "present_per_day")
    report.table(
        f"The {counted(min(_SHOWN, len(largest)), 'feed')} of largest worth; feeds.csv has all",
        ["feed", "items / day", "worth / day", "scheduler, fetches / day", f"{present}'s"],
        [[row["source"], *(f"{float(row[n]):.3g}" for n in names)] for row in largest[:_SHOWN]],
    )
    with report.details("How this was measured"):
        report.paragraph(_method(events))
        for note in events.log.notes:
            report.paragraph(note)


def enough(events: FeedEvents, results: Results[PlayRun], *, sure: bool) -> float | None:
    """Return the smallest budget with which the scheduler collects at least as much as the present
    rule with all of it; None if there is none below that.

    Arguments:
        sure: whether the lower end of the interval, rather than the mean, must say so.
    """
    rule, smallest = results.runs[events.per_hour][events.present], events.per_hour
    for m, runs in results.runs.items():
        gain = events.gain(runs[SCHEDULER], rule)
        if not (gain.low if sure else gain.mean) >= 0.0:
            break
        smallest = m
    return smallest if smallest < events.per_hour else None


def records(events: FeedEvents, results: Results[PlayRun]) -> list[dict[str, Any]]:
    """Return one row for every policy, budget and block of time."""
    return [
        {
            "policy": name,
            "fetches_per_hour": round(m, 12),
            "block": block,
            "collected": repr(float(worth)),
            "published": repr(events.published),
        }
        for m, runs in results.runs.items()
        for name, run in runs.items()
        for block, worth in enumerate(run.collected)
    ]


def feeds_of(events: FeedEvents, results: Results[PlayRun]) -> list[dict[str, Any]]:
    """Return one row for every feed."""
    feeds, runs = events.feeds, results.runs[events.per_hour]
    days = (feeds.end - feeds.start) / _DAY
    rows = []
    for i, name in enumerate(events.log.names):
        time = feeds.published[i]
        live = (time >= feeds.start) & (time < feeds.end)
        rows.append(
            {
                "source": name,
                "items_per_day": live.sum() / days,
                "worth_per_day": float(feeds.worth[i][live].sum()) / days,
                "scheduler_per_day": runs[SCHEDULER].fetches[i] / days,
                "present_per_day": runs[events.present].fetches[i] / days,
            }
        )
    return rows


def _answer(events: FeedEvents, results: Results[PlayRun]) -> str:
    runs = results.runs[events.per_hour]
    text = (
        f"With {_fetches(events.per_hour)} an hour the scheduler "
        f"collects {events.part(runs[SCHEDULER]):.1%} of all worth, and the rule of "
        f"{events.present} {events.part(runs[events.present]):.1%}"
    )
    for sure, words in ((True, "with 95 % confidence"), (False, "but not with 95 % confidence")):
        if (least := enough(events, results, sure=sure)) is not None:
            saving = 1 - least / events.per_hour
            return (
                f"{text}. With {saving:.0%} fewer fetches the scheduler still collects at least as "
                f"much as that rule, {words}."
            )
    return text + "."


def _by_budget(events: FeedEvents, results: Results[PlayRun]) -> Any:
    figure, axes = plots.new(width=7, height=3.4)
    axes.plot(
        [*results.runs],
        [100 * events.part(runs[SCHEDULER]) for runs in results.runs.values()],
        label=SCHEDULER,
        **plots.style("whittle"),
    )
    runs = results.runs[events.per_hour]
    for k, name in enumerate(RULES):
        axes.axhline(
            100 * events.part(runs[name]),
            color=plots.colour(name, k),
            lw=2.0 if name == events.present else 1.0,
            ls="-" if name == events.present else "--",
            label=name,
        )
    axes.set(xlabel="fetches an hour of the scheduler", ylabel="% of all worth", ylim=(0, None))
    plots.legend_above(axes, 4)
    return figure


def _percent(gain: Estimate) -> str:
    if math.isnan(gain.mean):
        return "n/a"
    text = f"{gain.mean:+.1%}"
    return text if math.isnan(gain.low) else f"{text} [{gain.low:+.1%}, {gain.high:+.1%}]"


def _fetches(number: float, form: str = "g") -> str:
    text = f"{number:{form}}"
    return f"{text} fetch{'' if text == '1' else 'es'}"


def _number(x: float) -> str:
    return "n/a" if math.isnan(x) else f"{x:.3g}"


def _method(events: FeedEvents) -> str:
    feeds = events.feeds
    length = (feeds.end - feeds.start) / _DAY
    items = f"its newest {feeds.listed} items" if feeds.listed else "all its items"
    return (
        f"{counted(len(events.log.names), 'feed')}, {length:.1f} days, of which the first begins "
        f"{feeds.start / _DAY:.1f} days after the start of the log. A feed lists {items}; an item "
        f"fetched at age s counts its worth × 2^(−s/{events.options['half_life'] / _HOUR:g} h). "
        "Fetches are at equal distances, and all policies have the same number; the scheduler may "
        "also save some up, those of an hour at most. With the rules, the feed of which the "
        "largest part of its interval has passed is fetched, as if all intervals were stretched or "
        "shrunk by the same factor. "
        "Fetches take no time and never fail, and hosts set no limits. "
        "Delay: mean time from publication to fetch, weighted by worth, of what was fetched. "
        "Intervals: "
        f"95 %, from {counted(feeds.blocks, 'block')} of "
        f"{(feeds.end - feeds.start) / feeds.blocks / _DAY:.1f} days, paired. The scheduler is "
        "`ephemeral_crawl.live.Scheduler` itself, in memory, on the clock of the log."
    )
