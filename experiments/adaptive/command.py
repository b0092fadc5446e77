"""`python -m experiments adaptive`: crawling while learning, in eight parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

import tyro

from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import ParallelStudy, RecordedStudy, Rows, attributed
from ephemeral_crawl.replay.split import Log
from experiments.adaptive import (
    abandonment,
    ablations,
    changes,
    cost,
    information,
    recorded,
    regret,
    runs,
)
from experiments.adaptive.runs import FULL, QUICK, Size, check_paired, curves_of, rows_of, work
from experiments.core.data import Data, write
from experiments.core.study import Part

SIMULATED: dict[str, Part] = {
    "regret": regret.PART,
    "abandonment": abandonment.PART,
    "information": information.PART,
    "ablations": ablations.PART,
    "drift": changes.DRIFT,
    "regimes": changes.REGIMES,
}
PARTS = {
    **SIMULATED,
    "cost": cost.PART,
    "recorded": Part(lambda study: [], recorded.CONTENT, recorded.claim, "A recorded log"),
}
RUNS, CURVES = "runs.csv.gz", "curves.csv.gz"


@dataclass(kw_only=True)
class Adaptive(RecordedStudy, ParallelStudy):
    """Crawling while learning how much each source publishes: what it costs, when good sources are
    given up, what a crawl has to reveal, rates that change, and a recorded log (--items, as for
    `evaluate`), whose first part is known beforehand and whose rest is replayed."""

    title: ClassVar[str] = "Crawling while learning how much each source publishes"
    outputs: ClassVar[tuple[str, ...]] = (RUNS, CURVES, "report.html", "*.png")

    part: tuple[
        Literal[
            "regret",
            "abandonment",
            "information",
            "ablations",
            "drift",
            "regimes",
            "cost",
            "recorded",
        ],
        ...,
    ] = ()
    """Parts to run; by default all, the recorded one if --items is given."""
    suite: Literal["quick", "full"] = "quick"
    """quick: few runs, a minute or two. full: what is reported, over an hour on two cores."""
    log: Annotated[Log, tyro.conf.arg(name="")] = field(default_factory=Log)
    seeds: int | None = None
    """Runs of each entrant, instead of those of the suite; several times as many where sources are
    given up, and 2 or 6 of a recorded log."""
    steps: int | None = None
    """Steps of each run, instead of those of the suite."""
    seed: int = 0
    """Seed of fleets and arrivals."""

    @property
    def size(self) -> Size:
        """The size of the suite, with what the options replace."""
        size = QUICK if self.suite == "quick" else FULL
        size = replace(
            size,
            seeds=size.seeds if self.seeds is None else self.seeds,
            steps=size.steps if self.steps is None else self.steps,
            seed=self.seed,
        )
        for name, least in (("seeds", 2), ("steps", 40)):
            if getattr(size, name) < least:
                raise ValueError(f"--{name} is {getattr(size, name)}; it must be at least {least}")
        return size

    def measure(self) -> dict[str, Rows]:
        self.check(self.log.items, self.log.curves)
        size, asked = self.size, self._asked()
        rows: runs.Rows = []
        curves: runs.Rows = []
        for name in SIMULATED:
            if name not in asked:
                continue
            todo = SIMULATED[name].jobs(self)
            results = self.runner.run(todo, work)
            check_paired(todo, results)
            count = abandonment.counted if name == "abandonment" else rows_of
            rows += count(todo, results)
            curves += (changes.rounds_of if name == "regimes" else curves_of)(todo, results)
        if "cost" in asked:
            rows += cost.rows(cost.measure(size.sources, size.rounds), size.sources)
        rows = attributed(rows)
        if "recorded" in asked:
            rows += recorded.measured(self.log, size, self.steps, self.runner)
        return {RUNS: rows, CURVES: curves}

    def _asked(self) -> Sequence[str]:
        if "recorded" in self.part and self.log.items is None:
            raise ValueError("part 'recorded' plays back a log, and none is given; give --items")
        given = tuple(SIMULATED) + ("cost",) + ("recorded",) * (self.log.items is not None)
        return self.part or given

    def write(self, report: Report, tables: Mapping[str, Rows]) -> None:
        of_parts: dict[str, list[Mapping[str, object]]] = {name: [] for name in PARTS}
        for row in (*tables[RUNS], *tables.get(CURVES, ())):
            of_parts[row["part"]].append(row)
        found = {name: Data(rows) for name, rows in of_parts.items() if rows}
        claims = [PARTS[name].claim(data) for name, data in found.items()]
        said = "; ".join(claims[:2])
        report.answer(f"{said[:1].upper()}{said[1:]}.")
        for claim in claims[2:]:
            report.paragraph(f"{claim[:1].upper()}{claim[1:]}.")
        for name, data in found.items():
            report.heading(PARTS[name].heading)
            write(report, data, PARTS[name].content)
