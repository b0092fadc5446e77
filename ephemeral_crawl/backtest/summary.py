"""The report of a back-test."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from agents.evaluation import statistics
from agents.evaluation.statistics import Estimate
from crawl_env import ItemLog
from ephemeral_crawl.backtest.play import AS_IT_IS, KNOWN, SCHEDULER, WITHOUT, Feeds, Played
from ephemeral_crawl.backtest.rules import RULES
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report

_HOUR, _DAY = 3600.0, 86_400.0
_SHOWN = 15  # feeds in the page


class Found(NamedTuple):
    """What a back-test has found."""

    log: ItemLog
    runs: Mapping[tuple[str, float], Played]  # by policy and fraction of the budget
    total: float  # worth of all items
    per_hour: float  # fetches
    half_life: float  # seconds
    present: str
    feeds: Feeds

    def fraction(self, name: str, part: float = 1.0) -> float:
        """Return the part of all worth that a policy collects."""
        return float(self.runs[name, part].collected.sum()) / self.total if self.total else 0.0

    def rate(self, name: str) -> float:
        """Return the fetches per hour that a policy makes."""
        return float(
            self.runs[name, 1.0].fetches.sum() * _HOUR / (self.feeds.end - self.feeds.start)
        )

    def gain(self, name: str, part: float = 1.0) -> Estimate:
        """Return the scheduler's gain over a rule, with a part of its budget."""
        other = self.runs[name, 1.0].collected
        if not other.sum() > 0.0:
            return statistics.UNKNOWN
        return statistics.gain(self.runs[SCHEDULER, part].collected, other)

    def enough(self, *, sure: bool) -> float | None:
        """Return the smallest part of the budget with which the scheduler collects at least as much
        as the present rule; None if there is none below 1.

        Arguments:
            sure: whether the lower end of the interval, rather than the mean, must say so.
        """
        found = None
        for part in sorted((p for name, p in self.runs if name == SCHEDULER), reverse=True):
            gain = self.gain(self.present, part)
            if not (gain.low if sure else gain.mean) >= 0.0:
                break
            found = part
        return found if found is not None and found < 1.0 else None


def write(report: Report, found: Found) -> None:
    """Add everything to the report."""
    report.answer(_answer(found))
    report.figure(
        _by_budget(found),
        "Part of all worth that the scheduler collects with fewer fetches; lines: the rules.",
    )
    report.heading("All rules with the same number of fetches")
    rows = []
    about = {
        SCHEDULER: "learns from its own fetches",
        WITHOUT: "the same without pings",
        **{name: rule.about for name, rule in RULES.items()},
    }
    names = [name for name in about if (name, 1.0) in found.runs]
    for name in sorted(names, key=lambda name: -found.fraction(name)):
        run = found.runs[name, 1.0]
        rows.append(
            [
                name + (" (present)" if name == found.present else ""),
                f"{found.fraction(name):.1%}",
                "–" if name == SCHEDULER else _percent(found.gain(name)),
                _duration(run.delay),
                f"{(run.fetches > 0).sum():,}",
                about[name],
            ]
        )
    report.table(
        "What each collects",
        ["", "of all worth", "scheduler's gain", "delay", "feeds fetched", "rule"],
        rows,
    )
    itself = AS_IT_IS + found.present
    report.paragraph(
        f"With its own intervals, {found.present} makes {found.rate(itself):.3g} fetches an hour "
        f"here, and collects {found.fraction(itself):.1%}."
    )
    report.paragraph(
        f"With the mean rate and worth of every feed known in advance, the index of the scheduler "
        f"collects {found.fraction(KNOWN):.1%}."
    )
    report.heading("The scheduler with fewer fetches")
    parts = sorted((part for name, part in found.runs if name == SCHEDULER), reverse=True)
    report.table(
        f"Compared with {found.present} at {found.per_hour:g} fetches an hour",
        ["fetches an hour", "fewer", "of all worth", "gain"],
        [
            [
                f"{found.per_hour * part:g}",
                f"{1 - part:.0%}",
                f"{found.fraction(SCHEDULER, part):.1%}",
                _percent(found.gain(found.present, part)),
            ]
            for part in parts
        ],
    )
    report.heading("Where the fetches go")
    largest = sorted(feeds_of(found), key=lambda row: -float(row["worth_per_day"]))
    report.table(
        f"The {min(_SHOWN, len(largest))} feeds of largest worth; feeds.csv has all",
        ["feed", "items / day", "worth / day", "scheduler, fetches / day", f"{found.present}'s"],
        [
            [
                row["source"],
                *(f"{float(row[name]):.3g}" for name in
                  ("items_per_day", "worth_per_day", "scheduler_per_day", "present_per_day")),
            ]
            for row in largest[:_SHOWN]
        ],
    )  # fmt: skip
    with report.details("How this was measured"):
        report.paragraph(_method(found))
        for note in found.log.notes:
            report.paragraph(note)


def records(found: Found) -> list[dict[str, Any]]:
    """Return one row for every policy, budget and block of time."""
    return [
        {
            "policy": name,
            "fetches_per_hour": round(found.per_hour * part, 12),
            "block": block,
            "collected": repr(float(worth)),
            "published": repr(found.total),
        }
        for (name, part), run in found.runs.items()
        for block, worth in enumerate(run.collected)
    ]


def feeds_of(found: Found) -> list[dict[str, Any]]:
    """Return one row for every feed."""
    feeds = found.feeds
    days = (feeds.end - feeds.start) / _DAY
    rows = []
    for i, name in enumerate(found.log.names):
        time = feeds.published[i]
        live = (time >= feeds.start) & (time < feeds.end)
        rows.append(
            {
                "source": name,
                "items_per_day": live.sum() / days,
                "worth_per_day": float(feeds.worth[i][live].sum()) / days,
                "scheduler_per_day": found.runs[SCHEDULER, 1.0].fetches[i] / days,
                "present_per_day": found.runs[found.present, 1.0].fetches[i] / days,
            }
        )
    return rows


def _answer(found: Found) -> str:
    text = (
        f"With {found.per_hour:g} fetches an hour the scheduler collects "
        f"{found.fraction(SCHEDULER):.1%} of all worth, and the rule of {found.present} "
        f"{found.fraction(found.present):.1%}"
    )
    for sure, words in ((True, "at 95 % confidence"), (False, "which is not certain")):
        part = found.enough(sure=sure)
        if part is not None:
            return (
                f"{text}; at least as much as the rule with {1 - part:.0%} fewer fetches ({words})."
            )
    return text + "."


def _by_budget(found: Found) -> Any:
    figure, axes = plots.new(width=7, height=3.4)
    parts = sorted(part for name, part in found.runs if name == SCHEDULER)
    axes.plot(
        [found.per_hour * part for part in parts],
        [100 * found.fraction(SCHEDULER, part) for part in parts],
        label=SCHEDULER, **plots.style("whittle"),
    )  # fmt: skip
    for k, name in enumerate(RULES):
        axes.axhline(
            100 * found.fraction(name),
            color=plots.colour(name, k),
            lw=2.0 if name == found.present else 1.0,
            ls="-" if name == found.present else "--",
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


def _duration(seconds: float) -> str:
    if math.isnan(seconds):
        return "n/a"
    return f"{seconds / 60:.0f} min" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.1f} h"


def _method(found: Found) -> str:
    feeds = found.feeds
    length = (feeds.end - feeds.start) / _DAY
    listed = f"its newest {feeds.listed} items" if feeds.listed else "all its items"
    return (
        f"{len(found.log.names):,} feeds, {length:.1f} days, of which the first begins "
        f"{feeds.start / _DAY:.1f} days after the start of the log. A feed lists {listed}; an item "
        f"fetched at age s counts its worth × 2^(−s/{found.half_life / _HOUR:g} h). Fetches are at "
        "equal distances, and all policies have the same number; the scheduler may also save some "
        "up, those of an hour at most. With the rules, the feed of which the largest part of its "
        "interval has passed is fetched, as if all intervals were stretched or shrunk by the same "
        "factor. "
        "Fetches take no time and never fail, and hosts set no limits. "
        "Delay: mean time from publication to fetch, weighted by worth, of what was fetched. "
        "Intervals: "
        f"95 %, from {feeds.blocks} blocks of "
        f"{(feeds.end - feeds.start) / feeds.blocks / _DAY:.1f} days, paired. The scheduler is "
        "`ephemeral_crawl.live.Scheduler` itself, in memory, on the clock of the log."
    )
