"""`python -m experiments engine`: crawling for an engine that cannot index everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from experiments.engine import exact, learner, recordings, service
from experiments.parts import MultipartStudy, Size

PARTS: dict[str, Any] = {module.PART: module for module in (service, exact, learner, recordings)}


@dataclass(kw_only=True)
class Engine(MultipartStudy):
    """What a crawler loses that ignores the indexing engine behind it, as its service falls from
    ample to scarce, and what refusing stale items and an index that heeds the engine win."""

    title: ClassVar[str] = "Crawling for an indexing engine"
    outputs: ClassVar[tuple[str, ...]] = (
        *(f"{name}.csv.gz" for name in PARTS),
        "*.png",
        "report.html",
    )
    parts: ClassVar[Mapping[str, Any]] = PARTS
    sizes: ClassVar[Mapping[str, Size]] = {
        "quick": Size(seeds=4, steps=120, warmup=30, quick=True),
        "full": Size(seeds=16, steps=1000, warmup=200, quick=False),
    }

    part: tuple[Literal["service", "exact", "learner", "recordings"], ...] = ()
    """Parts to run; the recorded tables of the others are kept. By default all are run; where no
    recordings are given, the log that `ephemeral-crawl example` writes stands for one."""
