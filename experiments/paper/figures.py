"""The paper's four figures."""

from __future__ import annotations

import numpy as np

from crawl_env import Sources
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from experiments.paper.runs import Run, crawl

STEPS = 61  # the paper plots m = 0 … 60


def interest(report: Report) -> None:
    fleet = Sources.preset("table1")
    age = np.linspace(0, 20, 400)
    figure, axes = plots.new(width=7, height=3)
    for i in range(len(fleet)):
        decay = fleet.mean_utility[i] * np.exp(-fleet.decay_rate[i] * age)
        axes.plot(age, decay, color=plots.PALETTE[i], label=f"source {i + 1}")
    axes.set(xlabel="age of an item (time)", ylabel="mean utility ξ̄·exp(−μ·age)")
    axes.legend()
    report.figure(figure, "Figure 1 of the paper: content value as a function of time.")


def evolutions(report: Report) -> None:
    for number, m, arrivals in (
        (2, 1, "deterministic"),
        (3, 2, "deterministic"),
        (4, 2, "poisson"),
    ):
        run = crawl(STEPS, budget=m, arrivals=arrivals, start="empty")
        process = "Poisson arrivals, exponential ξ" if arrivals == "poisson" else "deterministic"
        report.figure(
            _evolution(run),
            f"Figure {number} of the paper: M = {m}, {process}, from X(0) = 0. The uncollected "
            "utility at each source; dots are crawls.",
        )


def _evolution(run: Run) -> object:
    n = run.value.shape[1]
    figure, axes = plots.new(n, 1, width=8, height=1.25, sharex=True)
    steps = np.arange(len(run.value))
    for i, axis in enumerate(axes):
        colour = plots.PALETTE[i]
        axis.plot(steps, run.value[:, i], color=colour, lw=1)
        hit = run.crawled[:, i]
        axis.plot(steps[hit], run.value[hit, i], "o", color=colour, ms=3.5)
        axis.set_ylabel(f"X_{i + 1}")
        axis.set_ylim(bottom=0)
    axes[-1].set_xlabel("step")
    return figure
