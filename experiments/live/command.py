"""`python -m experiments live`: the live scheduler under load and in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import tyro

from crawl_env.errors import check_choice
from ephemeral_crawl.core.runner import Runner
from ephemeral_crawl.core.study import ParallelStudy, Rows, attributed
from experiments.core.study import Part, PartsStudy
from experiments.live import http, large, process
from experiments.live.feeds import failing, shards
from experiments.live.feeds import measure as feeds

UNDER_LOAD = ("process", "http")  # parts whose jobs run alone


@dataclass(kw_only=True)
class Live(PartsStudy, ParallelStudy):
    """Measures the live scheduler: how many leases and reports it handles, in one process and
    over HTTP, how long they take, and what a crawl collects: of sixty feeds, of two hundred
    beside others that are dead, and of these by several schedulers; and how 64 of them would
    divide a budget. What is finished is kept if it is stopped."""

    title: ClassVar[str] = "The live scheduler"
    parts: ClassVar[Mapping[str, Part]] = {
        "process": process.PART,
        "http": http.PART,
        "feeds": feeds.PART,
        "failing": failing.PART,
        "shards": shards.PART,
        "balancer": large.PART,
    }

    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="PART")] = ()
    """Parts to measure: process, http, feeds, failing, shards, balancer; by default all. The
    record of the others, and of other numbers of sources, is kept."""
    sources: int = 10**6
    """Sources in the store."""
    seconds: float = 20.0
    """Time of each measurement under load."""
    http_seeds: int = 8
    """Seeds, of eight, of which the feeds are also crawled over HTTP, rather than only without
    sockets; each takes some minutes."""

    def asked(self) -> Sequence[str]:
        return [check_choice("part", name, self.parts) for name in self.only] or list(self.parts)

    def measure(self) -> dict[str, Rows]:
        tables = self.recorded() if any(self.folder.glob("*.csv")) else {}
        asked = self.asked()
        for name, part in self.parts.items():
            if name not in asked:
                continue
            todo = [{"part": name, **job} for job in part.jobs(self)]
            alone = Runner(self.runner.kept, 1, "sequential")
            results = (alone if name in UNDER_LOAD else self.runner).run(todo, self.work)
            pairs = zip(todo, results, strict=True)
            rows = attributed(row for pair in pairs for row in part.rows(*pair))
            tables[part.file] = [*_others(tables.get(part.file, ()), rows), *rows]
        return tables


def _others(recorded: Rows, rows: Rows) -> Rows:
    """Return the rows of a record that are of other numbers of sources."""
    measured = {str(row.get("sources")) for row in rows}
    return [row for row in recorded if str(row.get("sources")) not in measured]
