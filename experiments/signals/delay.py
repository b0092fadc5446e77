"""Pings that come late."""

from __future__ import annotations

from typing import Any

import numpy as np

from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job
from ephemeral_crawl.core.study import Rows
from experiments.parts import Size
from experiments.signals.fleets import tasks
from experiments.signals.runs import Results, job, records, signals, work

__all__ = ["PART", "finding", "jobs", "records", "work", "write"]

PART = "delay"
DELAYS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # mean, steps
RECALL, PRECISION = 0.8, 0.8
NONE = "no signals"
_KEY = ("fleet", "budget", "delay")


def jobs(size: Size) -> list[Job]:
    delays: tuple[float | str, ...] = (NONE, *((0.0, 2.0) if size.quick else DELAYS))
    return [
        job(
            PART,
            f"{fleet}, M = {budget}",
            "whittle",
            {"sources": sources, "budget": budget}
            | ({} if delay == NONE else {"signals": signals(RECALL, PRECISION, float(delay))}),
            size,
            fleet=fleet,
            delay=delay,
        )
        for fleet, sources, budget in tasks(size)
        for delay in delays
    ]


def write(report: Report, rows: Rows) -> None:
    results = Results(rows, *_KEY)
    report.heading("Delay")
    report.paragraph(
        f"Recall {RECALL:g}, precision {PRECISION:g}; a true ping comes after its item by an "
        "exponential time. The belief allows for the delay. The bound is that of pings without "
        "delay, which are worth at least as much. Gain: share of the utility collected relative "
        "to no signals."
    )
    delays = [delay for delay in results.values(2) if delay != NONE]
    report.figure(picture(results), "Gain over no signals against the mean delay.")
    table = [
        [
            f"{fleet}, M = {budget}",
            f"{results.share(fleet, budget, NONE).mean():.1%}",
            *(_cell(results, fleet, budget, delay) for delay in delays),
        ]
        for fleet, budget in _tasks(results)
    ]
    columns = ["task", NONE, *(f"delay {float(delay):g}" for delay in delays)]
    report.table("Share of all utility (gain), by mean delay in steps", columns, table)


def _cell(results: Results, fleet: str, budget: str, delay: str) -> str:
    key = fleet, budget, delay
    gain = results.gain(key, (fleet, budget, NONE)).mean
    return f"{results.share(*key).mean():.1%} ({gain:+.1%})"


def finding(rows: Rows) -> str:
    results = Results(rows, *_KEY)
    fleet, budget = _tasks(results)[0]
    delays = [delay for delay in results.values(2) if delay != NONE]
    first, last = (
        results.gain((fleet, budget, delay), (fleet, budget, NONE)).mean
        for delay in (delays[0], delays[-1])
    )
    return (
        f"on {fleet} with M = {budget}, signals of recall {RECALL:g} and precision {PRECISION:g} "
        f"gain {first:.0%} without delay and {last:.0%} with a mean delay of "
        f"{float(delays[-1]):g} steps"
    )


def _tasks(results: Results) -> list[tuple[str, str]]:
    return list(dict.fromkeys((key[0], key[1]) for key in results))


def picture(results: Results) -> Any:
    fleets = results.values(0)
    figure, axes = plots.new(1, len(fleets), width=3.2 * len(fleets), height=3.0, squeeze=False)
    delays = [delay for delay in results.values(2) if delay != NONE]
    for axis, fleet in zip(axes[0], fleets, strict=True):
        budgets = [budget for name, budget in _tasks(results) if name == fleet]
        for i, budget in enumerate(budgets):
            gains = [results.gain((fleet, budget, d), (fleet, budget, NONE)).mean for d in delays]
            axis.plot(
                np.array(delays, dtype=float), 100 * np.array(gains), "o-", ms=3,
                color=plots.PALETTE[i], label=f"M = {budget}",
            )  # fmt: skip
        axis.axhline(0, color=plots.FAINT, lw=0.8)
        axis.set(title=fleet, xlabel="mean delay, steps")
        axis.legend(fontsize=7)
    axes[0][0].set_ylabel("gain over no signals, %")
    return figure
