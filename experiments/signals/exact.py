"""The closed-form index at the belief against the exact index of the arm with signals."""

from __future__ import annotations

from typing import Any

import numpy as np

from agents.evaluation.statistics import Estimate
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job
from ephemeral_crawl.core.study import Rows
from ephemeral_crawl.core.tables import fraction, percent
from experiments.parts import Size
from experiments.signals.fleets import tasks
from experiments.signals.quality import label
from experiments.signals.runs import Results, job, records, signals, work

__all__ = ["PART", "finding", "jobs", "records", "work", "write"]

PART = "exact"
CLOSED, EXACT, MYOPIC = "whittle", "whittle-exact", "myopic"
QUALITIES = ((0.5, 0.05), (0.5, 0.2), (0.5, 0.8), (0.9, 0.95), (1.0, 1.0))
_KEY = ("fleet", "budget", "quality", "agent")


def jobs(size: Size) -> list[Job]:
    return [
        job(
            PART,
            f"{fleet}, M = {budget}",
            agent,
            {"sources": sources, "budget": budget, "signals": signals(recall, precision)},
            size,
            fleet=fleet,
            quality=label(recall, precision),
            bound=agent == CLOSED,
        )
        for fleet, sources, budget in tasks(size)
        for recall, precision in (QUALITIES[1:3] if size.quick else QUALITIES)
        for agent in (CLOSED, EXACT, MYOPIC)
    ]


def write(report: Report, rows: Rows) -> None:
    results = Results(rows, *_KEY)
    cases = _cases(results)
    report.heading("The closed-form index and the exact one")
    report.paragraph(
        "With pings, the belief jumps, and Theorem 1 at the belief is no longer the exact index of "
        "a source: `whittle-exact` solves the arm with the law of the pings. Gain: its mean reward "
        "over that of `whittle` on the same arrivals and pings, minus one, with a 95 % interval. "
        "`myopic` crawls the largest beliefs."
    )
    report.figure(picture(results), "Gain of the exact index, with 95 % intervals.")
    table = [
        [
            f"{fleet}, M = {budget}",
            quality,
            percent(_gain(results, *case)),
            *(percent(fraction(results.share(*case, agent), results.bound(*case, agent)))
              for agent in (CLOSED, EXACT, MYOPIC)),
        ]
        for case in cases
        for fleet, budget, quality in (case,)
    ]  # fmt: skip
    columns = ["task", "signals", "gain", *(f"{a}, of the bound" for a in (CLOSED, EXACT, MYOPIC))]
    report.table("The exact index", columns, table)


def finding(rows: Rows) -> str:
    results = Results(rows, *_KEY)
    gains = {case: _gain(results, *case) for case in _cases(results)}
    best, worst = (choose(gains, key=lambda case: gains[case].mean) for choose in (max, min))
    level = 1 - 0.05 / len(gains)  # Bonferroni
    clear = sum(_gain(results, *case, level=level).high < 0 for case in gains)
    return (
        f"the exact index gains {gains[best].mean:.2%} at most ({_name(best)}) and "
        f"{gains[worst].mean:.2%} at least ({_name(worst)}); it is clearly behind the closed form "
        f"in {clear} of {len(gains)} cases"
    )


def _gain(results: Results, *case: str, level: float = 0.95) -> Estimate:
    return results.gain((*case, EXACT), (*case, CLOSED), level)


def _cases(results: Results) -> list[tuple[str, str, str]]:
    return list(dict.fromkeys((key[0], key[1], key[2]) for key in results))


def _name(case: tuple[str, str, str]) -> str:
    return f"{case[0]}, M = {case[1]}, {case[2]}"


def picture(results: Results) -> Any:
    fleets = results.values(0)
    figure, axes = plots.new(
        1, len(fleets), width=3.4 * len(fleets), height=3.2, sharex=True, squeeze=False
    )
    qualities = results.values(2)
    for axis, fleet in zip(axes[0], fleets, strict=True):
        budgets = list(dict.fromkeys(key[1] for key in results if key[0] == fleet))
        for i, budget in enumerate(budgets):
            gains = [_gain(results, fleet, budget, quality) for quality in qualities]
            middle = 100 * np.array([gain.mean for gain in gains])
            ends = 100 * np.array([[g.mean - g.low, g.high - g.mean] for g in gains]).T
            axis.errorbar(
                np.arange(len(qualities)) + 0.1 * (i - 1),
                middle,
                yerr=np.maximum(ends, 0),
                fmt="o",
                ms=3.5,
                color=plots.PALETTE[i],
                label=f"M = {budget}",
            )
        axis.axhline(0, color=plots.FAINT, lw=0.8)
        axis.set_xticks(range(len(qualities)), qualities, rotation=45, ha="right", size=8)
        axis.set_title(fleet)
        axis.legend(fontsize=7)
    axes[0][0].set_ylabel("gain, %")
    return figure
