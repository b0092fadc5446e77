"""`python -m experiments live`: the live scheduler under load and in use.

Each part is a module with the name of its `TABLE`, `measure(sources, seconds)`, which returns its
rows, `answer(rows)`, a sentence, and `write(report, rows)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, Any, ClassVar

import tyro

from crawl_env.errors import check_choice
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import RecordedStudy, Rows, attributed
from experiments.live import http, process
from experiments.live.feeds import measure as feeds

PARTS: dict[str, ModuleType] = {"process": process, "http": http, "feeds": feeds}


@dataclass(kw_only=True)
class Live(RecordedStudy):
    """Measures the live scheduler: how many leases and reports it handles, in one process and
    over HTTP, how long they take, and what a crawl of sixty feeds collects."""

    title: ClassVar[str] = "The live scheduler"
    outputs: ClassVar[tuple[str, ...]] = ("*.csv", "report.html")

    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="PART")] = ()
    """Parts to measure: process, http, feeds; by default all. The record of the others is kept."""
    sources: int = 10**6
    """Sources in the store."""
    seconds: float = 20.0
    """Time of each measurement under load."""

    def measure(self) -> Mapping[str, Rows]:
        asked = [check_choice("part", name, PARTS) for name in self.only] or list(PARTS)
        kept = self.recorded() if any(self.folder.glob("*.csv")) else {}
        tables = {name: rows for name, rows in kept.items() if name in _tables()}
        for name in asked:
            part = PARTS[name]
            tables[part.TABLE] = attributed(part.measure(self.sources, self.seconds))
        return tables

    def write(self, report: Report, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        parts = [part for part in PARTS.values() if part.TABLE in tables]
        report.answer(" ".join(part.answer(tables[part.TABLE]) for part in parts))
        for part in parts:
            part.write(report, tables[part.TABLE])


def _tables() -> set[str]:
    return {part.TABLE for part in PARTS.values()}
