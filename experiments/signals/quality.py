"""The share of all utility that is collected, by recall, precision and budget."""

from __future__ import annotations

from typing import Any

import numpy as np

from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job
from experiments.core.data import Across, Case, Data, Table, mean
from experiments.core.study import Part
from experiments.signals.tasks import (
    BOUND,
    DESCRIPTION,
    NONE,
    OBSERVED,
    PUBLISHED,
    SHARE,
    gain,
    job,
    label,
    share_and_gain,
    signals,
    tasks,
)

RECALLS, PRECISIONS = (0.2, 0.5, 0.8, 1.0), (0.05, 0.2, 0.5, 0.8, 1.0)
# The qualities in the tables; the figure and the records have all.
SHOWN = ((0.5, 0.2), (0.5, 0.8), (0.8, 0.8), (0.9, 0.95), (1.0, 1.0))
_COLUMNS = (NONE, *(label(*pair) for pair in SHOWN), OBSERVED)


def jobs(study: Any) -> list[Job]:
    """Return a job for each task and quality."""
    size = study.size
    every = [(r, p) for r in RECALLS for p in PRECISIONS]
    few = [(r, p) for r in RECALLS[1::2] for p in PRECISIONS[1::2]]
    grid = few if size.quick else [*SHOWN[3:4], *every]
    by_quality: dict[str, tuple[dict[str, Any], float, float]] = {
        NONE: ({}, 0.0, 1.0),
        OBSERVED: ({"observed": True}, 1.0, 1.0),
        **{label(*pair): (signals(*pair), *pair) for pair in grid},
    }
    return [
        job(size, task, "whittle", arguments, quality=name, recall=recall, precision=precision)
        for task in tasks(size)
        for name, (arguments, recall, precision) in by_quality.items()
    ]


def claim(data: Data) -> str:
    """Return what signals of one quality bring."""
    case = data.cases("fleet", "budget")[0]
    none, signalled, observed = (
        SHARE(data, {**case, "quality": name}).mean for name in (NONE, label(0.5, 0.8), OBSERVED)
    )
    return (
        f"on {case['fleet']} with M = {case['budget']}, signals of recall .5 and precision .8 "
        f"raise the share of all utility collected from {none:.0%} to {signalled:.0%}, and seeing "
        f"all content to {observed:.0%}"
    )


def figure(report: Report, data: Data) -> None:
    """Add the figure: the share by recall and precision, a panel for each task."""
    fleets = data.cases("fleet")
    budgets = [data.cases("budget", **fleet) for fleet in fleets]
    columns = max(map(len, budgets))
    figure, axes = plots.new(
        len(fleets), columns, width=3.1 * columns + 1, height=2.7, sharey="row", squeeze=False
    )
    for row, of_fleet in zip(axes, budgets, strict=True):
        for axis in row[len(of_fleet) :]:
            axis.set_visible(False)
        for axis, case in zip(row, of_fleet, strict=False):
            _panel(axis, data, case)
            axis.set_title(f"{case['fleet']}, M = {case['budget']}")
        row[0].set_ylabel("share of all utility, %")
    for axis in axes[-1]:
        axis.set_xlabel("recall")
    axes[0][0].legend(fontsize=7, title="precision", title_fontsize=7)
    report.figure(
        figure,
        "Share of all utility collected (lines, by precision) against recall. Dashed: observed; "
        "dotted: the relaxed bound with p = 1 and of what is observed.",
        "quality",
    )


def _panel(axis: Any, data: Data, case: Case) -> None:
    bound = mean("bound", "published")
    none, observed = ({**case, "quality": name} for name in (NONE, OBSERVED))
    grid = [
        row
        for row in data.cases("quality", "recall", "precision", **case)
        if row["quality"] not in (NONE, OBSERVED)
    ]
    best = max(float(row["precision"]) for row in grid)
    for i, precision in enumerate(PRECISIONS):
        line = [row for row in grid if float(row["precision"]) == precision]
        line.sort(key=lambda row: float(row["recall"]))
        recall = [0.0, *(float(row["recall"]) for row in line)]
        shares = [SHARE(data, row).mean for row in (none, *line)]
        style = {"color": plots.PALETTE[i], "label": f"{precision:g}"}
        axis.plot(recall, 100 * np.array(shares), "o-", ms=3, **style)
        if precision == best:
            bounds = [bound(data, row).mean for row in (none, *line)]
            axis.plot(recall, 100 * np.array(bounds), ":", color=plots.INK, lw=1)
    axis.axhline(100 * SHARE(data, observed).mean, color=plots.FAINT, ls="--", lw=1)
    axis.axhline(100 * bound(data, observed).mean, color=plots.FAINT, ls=":", lw=1)


PART = Part(
    jobs=jobs,
    heading="Recall, precision and budget",
    content=(
        f"{DESCRIPTION} The share of all utility published that the Whittle policy collects, with "
        "the closed-form index at the belief. Recall r: the fraction of items that trigger a "
        "ping. Precision p: the fraction of pings that are true. “Observed” sees the utility that "
        "waits at every source, which pings never tell, not even with r = p = 1. The bound is "
        "that of the information set; means exceed it by chance, as the intervals say.",
        figure,
        Table(
            "{fleet}: share of all utility (gain)",
            {"budget": "M"},
            (Across("quality", (SHARE, gain(quality=NONE)), share_and_gain, _COLUMNS),),
            each=("fleet",),
        ),
        Table(
            "{fleet}: of the bound",
            {"budget": "M"},
            (Across("quality", (mean(*BOUND),), only=_COLUMNS),),
            each=("fleet",),
        ),
    ),
    claim=claim,
)

__all__ = ["PART", "PUBLISHED", "SHOWN"]
