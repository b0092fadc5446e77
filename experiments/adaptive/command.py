"""`python -m experiments adaptive`: crawling while learning, in eight parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from ephemeral_crawl.core.study import Rows
from ephemeral_crawl.replay.split import Log
from experiments.adaptive import (
    abandonment,
    ablations,
    changes,
    cost,
    information,
    recorded,
    regret,
)
from experiments.core.study import Part, Size, SuiteStudy


@dataclass(kw_only=True)
class Adaptive(Log, SuiteStudy):
    """Crawling while learning how much each source publishes: what it costs, when good sources are
    given up, what a crawl has to reveal, rates that change, and a recorded log (--items, as for
    `evaluate`), whose first part is known beforehand and whose rest is replayed."""

    main: ClassVar[tuple[str, ...]] = (
        *("part", "suite", "items", "curves", "half_life", "seeds", "steps"),
        *("jobs", "out", "only_report"),
    )
    title: ClassVar[str] = "Crawling while learning how much each source publishes"
    parts: ClassVar[Mapping[str, Part]] = {
        "regret": regret.PART,
        "abandonment": abandonment.PART,
        "information": information.PART,
        "ablations": ablations.PART,
        "drift": changes.DRIFT,
        "regimes": changes.REGIMES,
        "cost": cost.PART,
        "recorded": recorded.PART,
    }
    sizes: ClassVar[Mapping[str, Size]] = {
        "quick": Size(seeds=4, steps=300, quick=True),
        "full": Size(seeds=20, steps=2000),
    }

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
    """Parts to run; the records of the others are kept. By default all, the recorded one if --items
    is given."""
    suite: Literal["quick", "full"] = "quick"
    """quick: few runs, a minute or two. full: what is reported, over an hour on two cores."""
    seeds: int | None = None
    """Runs of each entrant, instead of those of the suite; several times as many where sources are
    given up, and 2 or 5 of a recorded log."""

    @property
    def size(self) -> Size:
        size = super().size
        for name, least in (("seeds", 2), ("steps", 40)):
            if getattr(size, name) < least:
                raise ValueError(f"--{name} is {getattr(size, name)}; it must be at least {least}")
        return size

    def asked(self) -> Sequence[str]:
        if "recorded" in self.part and self.items is None:
            raise ValueError("part 'recorded' plays back a log, and none is given; give --items")
        return super().asked()

    def measure(self) -> dict[str, Rows]:
        self.check(self.items, self.curves)
        return super().measure()
