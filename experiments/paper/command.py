"""`python -m experiments paper`: the paper's numerical section, recomputed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import Study, attributed
from experiments.paper import corrections, figures, numbers


@dataclass(kw_only=True)
class Paper(Study):
    """The table, the four figures and every number of the paper's numerical section, beside ours,
    with the corrections that the printed text needs. Takes about a minute."""

    seeds: int = 20
    """Runs wherever arrivals are random."""
    steps: int = 20_000
    """Steps of each such run."""

    def run(self) -> None:
        self.check()
        report = Report("Avrachenkov & Borkar (2015): the numerical section, recomputed")
        records: list[dict[str, Any]] = []
        report.answer(
            "Table 1, the indices and the patterns of the paper are confirmed, and its Whittle "
            "policy is exactly optimal on the example; five things in the printed text need "
            "correction."
        )
        report.paragraph(
            "The corrections, each shown at the end: the index above the ceiling (log⁺ in the "
            "equation of η); 254.66, which is an average over 61 steps; “the conclusions of "
            "Theorem 1 continue to hold” in the stochastic case; the middle of equation (1); and "
            "the remark on source 1 in the stochastic example."
        )
        report.heading("Table 1 and what follows from it")
        numbers.derived(report, records)
        numbers.indices(report, records)
        report.heading("The four figures")
        figures.interest(report)
        figures.evolutions(report)
        report.heading("Rewards")
        numbers.printed(report)
        numbers.rewards(report, records)
        numbers.patterns(report, records)
        report.heading("Corrections to the printed paper")
        corrections.above_the_ceiling(report, records, self.seeds, self.steps)
        corrections.short_average(report, records)
        corrections.observed_arrivals(report, records)
        corrections.missing_period(report)
        corrections.source_one(report, records, self.seeds, self.steps)
        self.publish(report, {"records.csv": attributed(records)})
