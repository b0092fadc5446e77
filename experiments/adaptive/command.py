"""`python -m experiments adaptive`: crawling while learning, in seven parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import tyro

from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import ParallelStudy, attributed
from ephemeral_crawl.replay.split import Log
from experiments.adaptive import abandonment, cost, drift, information, regimes, regret
from experiments.adaptive.recorded import Recorded
from experiments.adaptive.runs import FULL, QUICK, Found, Size, work

SIMULATED: dict[str, Any] = {
    module.PART: module for module in (regret, abandonment, information, drift, regimes)
}
Part = Literal["regret", "abandonment", "information", "drift", "regimes", "cost", "recorded"]
Rows = list[dict[str, Any]]


@dataclass(kw_only=True)
class Adaptive(ParallelStudy):
    """Crawling while learning how much each source publishes: what it costs, when good sources are
    given up, what a crawl has to reveal, rates that change, and a recorded log (--items, as for
    `evaluate`), whose first part is known beforehand and whose rest is replayed."""

    outputs: ClassVar[tuple[str, ...]] = (
        "runs.csv.gz",
        "curves.csv.gz",
        "report.html",
        "*.png",
    )

    part: tuple[Part, ...] = ()
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

    def run(self) -> None:
        self.check(self.log.items, self.log.curves)
        size, parts = self._size(), self._parts()
        recorded = self._recorded(size) if "recorded" in parts else None
        report = Report("Crawling while learning how much each source publishes")
        findings: list[str] = []
        records: Rows = []
        curves: Rows = []
        for name in parts:
            if name in SIMULATED:
                todo = SIMULATED[name].jobs(size)
                done = Found(todo, self.runner.run(todo, work))
                SIMULATED[name].write(report, done)
                findings.append(SIMULATED[name].finding(done))
                records += done.records(abandonment.counts if name == abandonment.PART else None)
                if name != regimes.PART:  # which is measured at thousands of steps
                    curves += done.curves()
        if cost.PART in parts:
            costs = cost.measure(size.sources, size.rounds)
            cost.write(report, costs, size.sources)
            findings.append(cost.finding(costs, size.sources))
            records += cost.records(costs, size.sources)
        if recorded is not None:
            rows, found = recorded.run(report, self.runner)
            records += rows
            findings.append(found)
        said = "; ".join(findings[:2])
        report.answer(f"{said[:1].upper()}{said[1:]}.")
        self.publish(report, {"runs.csv.gz": attributed(records), "curves.csv.gz": curves})

    def _size(self) -> Size:
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

    def _parts(self) -> Sequence[str]:
        if self.part:
            return tuple(dict.fromkeys(self.part))
        recorded = ("recorded",) if self.log.items is not None else ()
        return (*SIMULATED, cost.PART, *recorded)

    def _recorded(self, size: Size) -> Recorded:
        if self.log.items is None:
            raise ValueError("part 'recorded' plays back a log, and none is given; give --items")
        return Recorded(self.log, size, self.steps)
