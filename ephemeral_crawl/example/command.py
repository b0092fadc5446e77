"""`ephemeral-crawl example`: writes example files, and says what to do with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from crawl_env.files import table
from crawl_env.rng import check_seed
from ephemeral_crawl.core.study import Study
from ephemeral_crawl.example import world

_LOG, _CURVES, _PINGS = "log.csv", "curves.csv", "pings.csv"
_SOURCES, _INTERVALS = "sources.csv", "intervals.csv"


@dataclass(kw_only=True)
class Example(Study):
    """Writes example files to a folder, and prints the commands that go from a log to a schedule.

    The files are twelve weeks of 24 invented feeds: log.csv has their items, curves.csv how fast
    the items lose their readers, pings.csv the pings that announce some of them, sources.csv the
    rates from which all were drawn, and intervals.csv a present rule. One feed closes and one opens
    within this time.
    """

    outputs: ClassVar[tuple[str, ...]] = (_LOG, _CURVES, _PINGS, _SOURCES, _INTERVALS)

    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("example")
    """Folder of the files; replaced as a whole, unless it holds anything else."""
    seed: int = 0
    """Seed of the log."""

    def run(self) -> None:
        _ = check_seed(self.seed, "--seed")
        self.check()
        log = world.log(self.seed)
        with self.results() as folder:
            table.write(folder / _LOG, world.rows(log))
            assert log.curves is not None
            log.curves.to_csv(folder / _CURVES)
            table.write(folder / _PINGS, world.ping_rows(world.pings(log, self.seed)))
            world.fleet().to_csv(folder / _SOURCES)
            rule = world.intervals()
            table.write(folder / _INTERVALS, {"source": rule, "interval": rule.values()})
        items, curves, pings = (self.out / name for name in (_LOG, _CURVES, _PINGS))
        print(
            f"Wrote {len(log):,} items of {len(log.names)} feeds to {items}, their curves to "
            f"{curves}, pings to {pings}, the true rates to {self.out / _SOURCES}, and a present "
            f"rule to "
            f"{self.out / _INTERVALS}. Rates and intervals are per hour and in hours.\n\n"
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
            f"   ephemeral-crawl evaluate --items {items} --curves {curves} --signals {pings} "
            f"--budget 3 --out {Path('results/signals')}\n\n"
            f"5. What would the live scheduler collect, which knows nothing at first, and what the "
            f"rule of a feed reader?\n\n"
            f"   ephemeral-crawl backtest --items {items} --budget 3/h --half-life 6h --present "
            f"miniflux"
        )
