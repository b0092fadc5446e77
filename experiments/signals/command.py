"""`python -m experiments signals`: what signals that may be false or missing are worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import Rows
from experiments.parts import MultipartStudy, Size
from experiments.signals import checks, delay, exact, freshness, mixed, quality, recordings, unknown
from experiments.signals.runs import FULL, QUICK

PARTS: dict[str, Any] = {
    module.PART: module for module in (quality, exact, freshness, delay, mixed, unknown, recordings)
}

Part = Literal["quality", "exact", "freshness", "delay", "mixed", "unknown", "recordings"]


@dataclass(kw_only=True)
class Signals(MultipartStudy):
    """What signals of changes (WebSub, sitemaps, webhooks) that may be false or missing are worth
    to a crawler, by recall, precision and budget."""

    title: ClassVar[str] = "What signals of changes are worth"
    outputs: ClassVar[tuple[str, ...]] = (
        *(f"{name}.csv.gz" for name in PARTS),
        "*.png",
        "report.html",
    )
    parts: ClassVar[Mapping[str, Any]] = PARTS
    sizes: ClassVar[Mapping[str, Size]] = {"quick": QUICK, "full": FULL}

    part: tuple[Part, ...] = ()
    """Parts to run; the recorded tables of the others are kept. By default all are run, the
    recordings if some are given."""

    def write(self, report: Report, tables: Mapping[str, Rows]) -> None:
        super().write(report, tables)
        checks.write(report, self.of_parts(tables))
