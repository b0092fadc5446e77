"""The share of all utility that is collected, by recall, precision and budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job
from ephemeral_crawl.core.study import Rows
from ephemeral_crawl.core.tables import fraction, percent
from experiments.parts import Size
from experiments.signals.fleets import DESCRIPTION, tasks
from experiments.signals.runs import Results, job, records, signals, work

__all__ = ["PART", "finding", "jobs", "records", "work", "write"]

PART = "quality"
RECALLS, PRECISIONS = (0.2, 0.5, 0.8, 1.0), (0.05, 0.2, 0.5, 0.8, 1.0)
NONE, OBSERVED = "no signals", "observed"
# The qualities in the tables; the figure and the records have all.
SHOWN = ((0.5, 0.2), (0.5, 0.8), (0.8, 0.8), (0.9, 0.95), (1.0, 1.0))
_KEY = ("fleet", "budget", "quality")


def label(recall: float, precision: float) -> str:
    """Return the name of a quality.

    >>> label(0.5, 0.8)
    'r = 0.5, p = 0.8'
    """
    return f"r = {recall:g}, p = {precision:g}"


def jobs(size: Size) -> list[Job]:
    found = []
    for fleet, sources, budget in tasks(size):
        for quality, arguments, recall, precision in _qualities(size.quick):
            found.append(
                job(
                    PART,
                    f"{fleet}, M = {budget}",
                    "whittle",
                    {"sources": sources, "budget": budget, **arguments},
                    size,
                    fleet=fleet,
                    quality=quality,
                    recall=recall,
                    precision=precision,
                )
            )
    return found


def _qualities(quick: bool) -> Iterator[tuple[str, dict[str, Any], float, float]]:
    yield NONE, {}, 0.0, 1.0
    yield OBSERVED, {"observed": True}, 1.0, 1.0
    grid = (
        [(r, p) for r in RECALLS[1::2] for p in PRECISIONS[1::2]]
        if quick
        else [*SHOWN[3:4], *((r, p) for r in RECALLS for p in PRECISIONS)]
    )
    for recall, precision in grid:
        arguments = {"signals": signals(recall, precision)}
        yield label(recall, precision), arguments, recall, precision


def write(report: Report, rows: Rows) -> None:
    results = Results(rows, *_KEY)
    report.heading("Recall, precision and budget")
    report.paragraph(
        f"{DESCRIPTION} The share of all utility published that the Whittle policy collects, with "
        "the closed-form index at the belief. Recall r: the fraction of items that trigger a "
        "ping. Precision p: the fraction of pings that are true. “Observed” sees the utility that "
        "waits at every source, which pings never tell, not even with r = p = 1. The bound is "
        "that of the information set; means exceed it by chance, as the intervals say."
    )
    report.figure(
        picture(results),
        "Share of all utility collected (lines, by precision) against recall. Dashed: observed; "
        "dotted: the relaxed bound with p = 1 and of what is observed.",
        PART,
    )
    for fleet in results.values(0):
        budgets = [key[1] for key in results if key[0] == fleet and key[2] == NONE]
        shown = [q for pair in SHOWN if (fleet, budgets[0], (q := label(*pair))) in results]
        for name, cell in (("share of all utility (gain)", _share), ("of the bound", _of_bound)):
            table = [
                [
                    f"M = {budget}",
                    *(cell(results, fleet, budget, q) for q in (NONE, *shown, OBSERVED)),
                ]
                for budget in budgets
            ]
            report.table(f"{fleet}: {name}", ["budget", NONE, *shown, OBSERVED], table)


def _share(results: Results, fleet: str, budget: str, quality: str) -> str:
    key = fleet, budget, quality
    share = f"{results.share(*key).mean():.1%}"
    if quality == NONE:
        return share
    return f"{share} ({results.gain(key, (fleet, budget, NONE)).mean:+.0%})"


def _of_bound(results: Results, fleet: str, budget: str, quality: str) -> str:
    key = fleet, budget, quality
    return percent(fraction(results.share(*key), results.bound(*key)))


def finding(rows: Rows) -> str:
    results = Results(rows, *_KEY)
    fleet, budget, _ = next(iter(results))
    key = fleet, budget, label(0.5, 0.8)
    none, with_signals, observed = (
        results.share(fleet, budget, quality).mean() for quality in (NONE, key[2], OBSERVED)
    )
    return (
        f"on {fleet} with M = {budget}, signals of recall .5 and precision .8 raise the share of "
        f"all utility collected from {none:.0%} to {with_signals:.0%}, and seeing all content to "
        f"{observed:.0%}"
    )


def picture(results: Results) -> Any:
    fleets = results.values(0)
    budgets = {f: [k[1] for k in results if k[0] == f and k[2] == NONE] for f in fleets}
    columns = max(map(len, budgets.values()))
    figure, axes = plots.new(
        len(fleets), columns, width=3.1 * columns + 1, height=2.7, sharey="row", squeeze=False
    )
    for row, fleet in zip(axes, fleets, strict=True):
        for axis in row[len(budgets[fleet]) :]:
            axis.set_visible(False)
        for axis, budget in zip(row, budgets[fleet], strict=False):
            _lines(axis, results, fleet, budget)
            axis.set_title(f"{fleet}, M = {budget}")
        row[0].set_ylabel("share of all utility, %")
    for axis in axes[-1]:
        axis.set_xlabel("recall")
    axes[0][0].legend(fontsize=7, title="precision", title_fontsize=7)
    return figure


def _lines(axis: Any, results: Results, fleet: str, budget: str) -> None:
    grid = {
        (float(row["recall"]), float(row["precision"])): quality
        for f, m, quality in results
        if (f, m) == (fleet, budget) and quality not in (NONE, OBSERVED)
        for row in results.rows(f, m, quality)[:1]
    }
    none, best = results.share(fleet, budget, NONE).mean(), max(p for _, p in grid)
    for i, precision in enumerate(PRECISIONS):
        cells = sorted((r, quality) for (r, p), quality in grid.items() if p == precision)
        shares = [none, *(results.share(fleet, budget, quality).mean() for _, quality in cells)]
        axis.plot(
            [0, *(r for r, _ in cells)], 100 * np.array(shares), "o-", ms=3,
            color=plots.PALETTE[i], label=f"{precision:g}",
        )  # fmt: skip
        if precision == best:
            qualities = [NONE, *(quality for _, quality in cells)]
            bounds = [results.bound(fleet, budget, quality) for quality in qualities]
            recalls = [0, *(r for r, _ in cells)]
            axis.plot(recalls, 100 * np.array(bounds), ":", color=plots.INK, lw=1)
    seen = (fleet, budget, OBSERVED)
    axis.axhline(100 * results.share(*seen).mean(), color=plots.FAINT, ls="--", lw=1)
    axis.axhline(100 * results.bound(*seen), color=plots.FAINT, ls=":", lw=1)
