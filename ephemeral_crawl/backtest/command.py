"""`ephemeral-crawl backtest`: what would the live scheduler have collected from your own feeds?"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import tyro

from crawl_env import ItemLog, Sources
from crawl_env.errors import check_choice, counted
from crawl_env.log.clock import HOURS
from ephemeral_crawl.backtest import summary
from ephemeral_crawl.backtest.play import AS_IT_IS, KNOWN, SCHEDULER, WITHOUT
from ephemeral_crawl.backtest.rules import RULES
from ephemeral_crawl.backtest.summary import FeedEvents
from ephemeral_crawl.comparison.events import Results, play_all
from ephemeral_crawl.comparison.sample import MOST, sample
from ephemeral_crawl.core.log_options import SignalOptions
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import FILE, AnsweringStudy, attributed
from ephemeral_crawl.crawl.waiting import compile_scheduler
from ephemeral_crawl.live.arguments import MOST_WORTH, seconds
from ephemeral_crawl.live.settings import Settings

_FRACTIONS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)  # of the budget
_QUICK = (0.8, 0.6, 0.4)
_MOST_FETCHES = 1e8  # of which each policy makes as many, one by one
_MANY_FETCHES = 1e6  # from which on a part takes minutes
_DAY, _WEEK = 86_400.0, 7 * 86_400.0
_FEWEST_WEEKS = 8  # with fewer, the intervals rest on days


@dataclass(kw_only=True)
class Backtest(SignalOptions, AnsweringStudy):
    """Plays the live scheduler on a recorded log, item by item, against the rules of feed readers.

    The scheduler knows nothing about the feeds at first. It learns from what its own fetches find,
    and from pings if there are any (--signals). The scheduler and all rules spend the same number
    of fetches: the intervals of a rule are stretched or shrunk by one factor. The log has the
    columns source, published and utility, as for `fit`.
    """

    main: ClassVar[tuple[str, ...]] = (
        *("items", "budget", "half_life", "present", "signals", "unit", "begin", "listed"),
        *("quick", "out", "replace"),
    )
    outputs: ClassVar[tuple[str, ...]] = ("feeds.csv", "records.csv", "report.html", FILE)

    items: Path
    """The log."""
    budget: str
    """Fetches per time, such as 20/h."""
    half_life: str = "3h"
    """Time in which the worth of an item halves."""
    present: Annotated[
        str,
        tyro.conf.arg(
            metavar="RULE",
            help="The rule that you use now: "
            + "; ".join(f"{name} ({rule.about})" for name, rule in RULES.items())
            + ".",
        ),
    ] = "miniflux"
    begin: float = 0.1
    """Part of the log after which fetches begin: what was published before is the backlog that the
    first fetch of a feed lists."""
    listed: int = 20
    """Number of the newest items that a feed lists; 0 if it lists all. Items that have left the
    list are lost."""
    quick: bool = False
    """Play four weeks at most, a sample of at most 300 feeds with the budget scaled to it, and
    fewer budgets of the scheduler."""

    def run(self) -> None:
        check_choice("--present", self.present, RULES)
        if not 0.0 <= self.begin < 1.0:
            raise ValueError(f"--begin is {self.begin:g}; it must be at least 0 and below 1")
        if self.listed < 0:
            raise ValueError(f"--listed is {self.listed}; it must be at least 0")
        per_hour = 3600.0 * Settings.of(self.budget).budget
        half_life = seconds("--half-life", self.half_life, 1.0)
        self.check(self.items, self.signals)
        log = self.read(self.items)
        most = float(log.utility.max())
        least = 1.0 / MOST_WORTH  # of the largest; what is far smaller is lost in rounding
        if not least <= most <= MOST_WORTH:
            text = f"utilities up to {most:g}, which the scheduler does not accept"
            raise ValueError(
                f"{self.items} has {text if most else 'no item of any utility'}; give utilities "
                f"of which the largest is between {least:g} and {MOST_WORTH:g}"
            )
        pings = self.pings(log)
        title, total = f"Back-test on {self.items.name}", len(log.names)
        if self.quick:
            log, per_hour = _sampled(log, per_hour)
            if len(log.names) < total:
                title += f": a sample, {len(log.names):,} of {total:,} feeds"
        events = FeedEvents(log, pings, self._feeds(log, half_life), per_hour, self.present)
        fetches = (events.feeds.end - events.feeds.start) / 3600.0 * per_hour
        if not 1.0 <= fetches <= _MOST_FETCHES:
            number = "no fetch" if fetches < 1.0 else f"{fetches:.3g} fetches"
            raise ValueError(
                f"--budget {self.budget} pays for {number} in the time that is played; take a "
                f"{'larger one, or a longer log' if fetches < 1.0 else 'smaller one'}"
            )
        names = (SCHEDULER, *RULES, KNOWN, AS_IT_IS + self.present)
        names += () if pings is None else (WITHOUT,)
        parts = {(per_hour, name): events.jobs(name, per_hour) for name in names}
        for part in _QUICK if self.quick else _FRACTIONS:
            m = per_hour * part
            parts[m, SCHEDULER] = events.jobs(SCHEDULER, m)
        size = f"{counted(len(log), 'item')} of {counted(len(log.names), 'feed')}"
        print(f"{size}, {len(parts)} parts; {fetches:,.0f} fetches at --budget {self.budget}")
        if fetches > _MANY_FETCHES and not self.quick:
            print("A part may take minutes; --quick plays a sample of the feeds.")
        compile_scheduler("preparing", partial(print, file=sys.stderr))
        results = Results(events, play_all(self.runner, events, parts))
        report = Report(title)
        summary.write(report, events, results)
        self.publish(
            report,
            {
                "feeds.csv": summary.feeds_of(events, results),
                "records.csv": attributed(summary.records(events, results)),
            },
        )

    def _feeds(self, log: ItemLog, half_life: float) -> dict[str, Any]:
        """Return the arguments of `Feeds`."""
        span = (log.end - log.start) * HOURS[log.unit] * 3600.0
        length = min(span * (1.0 - self.begin), 4 * _WEEK if self.quick else span)
        return {
            "start": self.begin,
            "half_life": half_life,
            "listed": self.listed,
            "length": length,
            "block": _WEEK if length >= _FEWEST_WEEKS * _WEEK else _DAY,
        }


def _sampled(log: ItemLog, per_hour: float) -> tuple[ItemLog, float]:
    """Return some feeds of a log, in even steps of their worth, and the budget scaled to them."""
    names = log.names
    worth = np.bincount(log.source, log.utility, len(names)).astype(np.float64)
    subset = sample(Sources(worth, 1.0, 1.0), [per_hour], MOST)
    if len(subset.places) == len(names):
        return log, per_hour
    part_budget = subset.budgets[0] / subset.stretch
    part = log.select([names[i] for i in subset.places])
    note = (
        f"A sample: {len(part.names):,} of {len(names):,} feeds, in even steps of their worth, "
        f"with the budget scaled to it ({per_hour:g} to {part_budget:.4g} fetches an hour)."
        + subset.unlike(worth)
    )
    print(note)
    return part.with_notes(note), part_budget
