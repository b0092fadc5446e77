"""`ephemeral-crawl example`: writes example files, with which all other commands can be tried, of
twenty-four invented feeds and twelve weeks of what they published."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import tyro

from crawl_env import DecayCurves, ItemLog, PingLog, Sources
from crawl_env.files import table
from crawl_env.numerics import FloatArray
from crawl_env.rng import check_seed
from ephemeral_crawl.core.study import Study

_LOG, _CURVES, _PINGS = "log.csv", "curves.csv", "pings.csv"
_SOURCES, _INTERVALS = "sources.csv", "intervals.csv"

WEEK = 168.0  # hours
SPAN = 12 * WEEK
ORIGIN = "2026-03-02T00:00:00Z"  # a Monday
CLOSED, OPENED = "festival-2026", "harbour-podcast"
_CLOSES, _OPENS = 5.5 * WEEK, 7 * WEEK

_HALF_LIFE = {"news": 3.0, "forum": 6.0, "blog": 18.0, "video": 30.0}  # hours
# Recall, precision and mean delay (hours) of the pings: WebSub, a webhook for new threads, a
# sitemap that changes for any reason, and none.
_SIGNALS = {
    "news": (0.9, 0.95, 0.03),
    "forum": (0.6, 0.7, 0.25),
    "blog": (0.5, 0.2, 1.0),
    "video": (0.0, 1.0, 0.0),
}
# Name, kind, items per week, mean utility (readers who would still open an item).
_FEEDS: tuple[tuple[str, str, float, float], ...] = (
    ("city-news", "news", 70, 40),
    ("national-news", "news", 60, 90),
    ("sports-results", "news", 42, 25),
    ("traffic-alerts", "news", 40, 6),
    ("weather-warnings", "news", 7, 60),
    ("stock-notes", "news", 35, 12),
    ("court-reports", "news", 6, 30),
    ("forum-cycling", "forum", 30, 8),
    ("forum-gardening", "forum", 25, 5),
    ("forum-housing", "forum", 20, 14),
    ("forum-photography", "forum", 9, 9),
    ("forum-schools", "forum", 8, 20),
    ("planning-office", "blog", 5, 10),
    ("tech-weekly", "blog", 3, 120),
    ("science-letters", "blog", 4, 80),
    ("kitchen-notes", "blog", 6, 35),
    ("local-history", "blog", 1, 45),
    ("union-bulletin", "blog", 2, 8),
    ("museum-diary", "blog", 1, 15),
    ("theatre-channel", "video", 2, 110),
    ("council-live", "video", 1.5, 25),
    ("street-food-channel", "video", 3, 70),
    (CLOSED, "blog", 8, 30),
    (OPENED, "video", 2, 90),
)
_AGES = np.array([0.0, 1.0, 3.0, 6.0, 12.0, 24.0])  # hours, at which readers were counted


@dataclass(kw_only=True)
class Example(Study):
    """Writes example files to a folder, and prints the commands that go from a log to a schedule.

    The files describe twelve weeks of 24 invented feeds. log.csv has their items, curves.csv how
    fast the items lose their readers, pings.csv the pings that announce some of them, sources.csv
    the rates from which everything was drawn, and intervals.csv a present rule. Within this time,
    one feed closes and another one opens.
    """

    outputs: ClassVar[tuple[str, ...]] = (_LOG, _CURVES, _PINGS, _SOURCES, _INTERVALS)

    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("example")
    """Folder of the files; replaced as a whole, unless it holds anything else."""
    seed: int = 0
    """Seed of the log."""

    def run(self) -> None:
        _ = check_seed(self.seed, "--seed")
        self.check()
        data = log(self.seed)
        with self.results() as folder:
            table.write(folder / _LOG, rows(data))
            assert data.curves is not None
            data.curves.to_csv(folder / _CURVES)
            table.write(folder / _PINGS, ping_rows(pings(data, self.seed)))
            fleet().to_csv(folder / _SOURCES)
            rule = intervals()
            table.write(folder / _INTERVALS, {"source": rule, "interval": rule.values()})
        items, curves, signals = (self.out / name for name in (_LOG, _CURVES, _PINGS))
        print(
            f"Wrote {len(data):,} items of {len(data.names)} feeds to {items}, their curves to "
            f"{curves}, pings to {signals}, the true rates to {self.out / _SOURCES}, and a present "
            f"rule to {self.out / _INTERVALS}. Rates and intervals are per hour and in hours.\n\n"
            f"1. Estimate the rates, utilities and decay of the feeds from the log:\n\n"
            f"   ephemeral-crawl fit --items {items} --curves {curves} --out fitted.csv\n\n"
            f"2. Replay the second half of the log: what would each policy have collected with 3 "
            f"fetches an hour, compared with the present rule?\n\n"
            f"   ephemeral-crawl replay --items {items} --curves {curves} --budget 3 --present "
            f"{self.out / _INTERVALS}\n\n"
            f"3. Make a schedule from the fitted feeds, in which each is fetched at least once in "
            f"two days:\n\n"
            f"   ephemeral-crawl evaluate --sources fitted.csv --budget 3 --max-interval 48\n\n"
            f"4. What would the pings be worth, to each policy and of each source?\n\n"
            f"   ephemeral-crawl evaluate --items {items} --curves {curves} --signals {signals} "
            f"--budget 3 --out {Path('results/signals')}\n\n"
            f"5. What would the live scheduler collect, which knows nothing at first, and what the "
            f"rule of a feed reader?\n\n"
            f"   ephemeral-crawl backtest --items {items} --budget 3/h --half-life 6h --present "
            f"miniflux"
        )


def fleet() -> Sources:
    """Return the feeds as they are on average while they publish, per hour."""
    kinds = [kind for _, kind, _, _ in _FEEDS]
    recall, precision, delay = zip(*(_SIGNALS[kind] for kind in kinds), strict=True)
    return Sources(
        [rate / WEEK for _, _, rate, _ in _FEEDS],
        [utility for _, _, _, utility in _FEEDS],
        [np.log(2) / _HALF_LIFE[kind] for kind in kinds],
        names=[name for name, _, _, _ in _FEEDS],
        recall=recall,
        precision=precision,
        signal_delay=delay,
    )


def log(seed: int) -> ItemLog:
    """Return the items of the feeds, with curves: Poisson arrivals with a daily cycle, exponential
    utilities, and decay rates that differ between items by a fifth."""
    rng, feeds = np.random.default_rng(seed), fleet()
    source, published = [], []
    for i, name in enumerate(feeds.names):
        first, last = (_OPENS if name == OPENED else 0.0), (_CLOSES if name == CLOSED else SPAN)
        times = _cycle_times(rng, float(feeds.arrival_rate[i]), first, last)
        source.append(np.full(times.size, i))
        published.append(times)
    sources, moments = np.concatenate(source), np.concatenate(published)
    order = np.argsort(moments, kind="stable")
    sources, moments = sources[order], moments[order]
    utility = np.ceil(feeds.mean_utility[sources] * rng.exponential(size=sources.size))
    decay = feeds.decay_rate[sources] * rng.gamma(25.0, 1 / 25.0, sources.size)
    remaining = np.round(np.exp(-decay[:, None] * _AGES), 4)
    n, k = remaining.shape
    curves = DecayCurves(np.arange(n + 1) * k, np.tile(_AGES, n), remaining.ravel())
    return ItemLog(
        feeds.names, sources, np.round(moments, 3), utility, 0.0, SPAN, curves, origin=ORIGIN
    )


def rows(log: ItemLog) -> dict[str, Iterable[str]]:
    """Return the columns of the log as a table with time stamps."""
    return {
        "source": (log.names[i] for i in log.source),
        "published": _stamps(log.published),
        "utility": (f"{x:.0f}" for x in log.utility),
        "item": map(str, range(len(log))),
    }


def pings(items: ItemLog, seed: int) -> PingLog:
    """Return the pings of the feeds: of some items, after an exponential delay, and false ones at a
    constant rate while a feed publishes."""
    rng, feeds = np.random.default_rng((seed, 1)), fleet()
    is_announced = rng.random(len(items)) < feeds.recall[items.source]
    source = items.source[is_announced]
    time = items.published[is_announced] + rng.exponential(feeds.signal_delay[source])
    starts = np.array([_OPENS if name == OPENED else 0.0 for name in feeds.names])
    ends = np.array([_CLOSES if name == CLOSED else SPAN for name in feeds.names])
    false = rng.poisson(feeds.false_rate * (ends - starts))
    of = np.repeat(np.arange(len(feeds)), false)
    source = np.concatenate((source, of))
    arrival = np.round(np.concatenate((time, rng.uniform(starts[of], ends[of]))), 3)
    seen = arrival < SPAN
    return PingLog(feeds.names, source[seen], arrival[seen], 0.0, SPAN, origin=ORIGIN)


def ping_rows(log: PingLog) -> dict[str, Iterable[str]]:
    """Return the columns of the pings as a table with time stamps."""
    return {"source": (log.names[i] for i in log.source), "time": _stamps(log.time)}


def intervals() -> dict[str, str]:
    """Return a rule such as many crawlers have: news every two hours, all others every twelve."""
    return {name: "2" if kind == "news" else "12" for name, kind, _, _ in _FEEDS}


def _stamps(times: FloatArray) -> Iterable[str]:
    origin = datetime.fromisoformat(ORIGIN)
    moments = (origin + timedelta(hours=float(t)) for t in times)
    return (x.isoformat(timespec="seconds").replace("+00:00", "Z") for x in moments)


def _cycle_times(rng: np.random.Generator, rate: float, first: float, last: float) -> FloatArray:
    """Return the times of a Poisson process whose rate has a daily cycle, by thinning."""
    times = rng.uniform(first, last, rng.poisson(1.6 * rate * (last - first)))
    is_kept = rng.uniform(0, 1.6, times.size) < 1 + 0.6 * np.sin(2 * np.pi * (times % 24 - 9) / 24)
    return np.asarray(times[is_kept])
