"""`python -m experiments throughput`: measures the speed of environments, policies and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import isnan
from typing import Annotated, Any, ClassVar

import tyro

from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import Rows
from experiments.core.clock import Figure
from experiments.core.data import Data
from experiments.core.study import Part, PartsStudy
from experiments.throughput import processes, steps, tensors

FIGURES: dict[str, Callable[[Job], Iterator[Figure]]] = {
    "gymnasium": lambda job: steps.gymnasium_figures(job["rounds"]),
    "whittle": lambda job: steps.whittle_figures(job["rounds"], min(job["largest"], steps.N)),
    "content": lambda job: steps.content_figures(job["rounds"]),
    "signals": lambda job: steps.option_figures("Signals", job["rounds"]),
    "payoffs": lambda job: chain(
        steps.option_figures(steps.PAYOFFS, job["rounds"]), [steps.knapsack_figure(job["rounds"])]
    ),
    "adaptive": lambda job: steps.adaptive_figures(
        job["rounds"], min(job["largest"], steps.LEARNING)
    ),
    "making": lambda job: steps.making_figures(job["rounds"], min(job["largest"], steps.LEARNING)),
    "scheduler": lambda job: (
        chain(steps.scheduler_figures(job["rounds"]), steps.signal_figures(job["rounds"]))
        if job["largest"] >= steps.LARGE
        else iter(())
    ),
    "tensors": lambda job: tensors.figures(job["rounds"]),
    "start": lambda job: processes.start_figures(job["rounds"]),
    "replay": lambda job: processes.replay_figures(job["items"], job["curves"], job["budget"]),
}


def _job(study: Any) -> Job:
    names = ("rounds", "items", "curves", "budget", "largest")
    return {name: getattr(study, name) for name in names}


def _figures(job: Job) -> Result:
    return {"rows": [figure.row() for figure in FIGURES[job["part"]](job)]}


def _shown(figure: Figure) -> list[str]:
    """Return how a figure is shown."""
    spread = "" if isnan(figure.low) else f" ({figure.low:.3g} … {figure.high:.3g})"
    measured = "" if isnan(figure.value) else f"{figure.value:.3g} {figure.unit}{spread}"
    limit = f"{figure.sense} {figure.limit:g}" if figure.sense else ""
    met = {True: "met", False: "NOT MET", None: ""}[figure.met]
    return [figure.what, measured, limit, met, figure.note]


def _claim(data: Data) -> str:
    """Return how many figures meet their limits."""
    held = [figure for figure in map(Figure.of, data.rows) if figure.sense]
    known = [figure for figure in held if figure.met is not None]
    met = sum(bool(figure.met) for figure in known)
    missing = len(held) - len(known)
    rest = f"; {missing} could not be measured on this machine" if missing else ""
    return f"{met} of {len(known)} measured figures meet their limit{rest}."


def _tables(report: Report, data: Data) -> None:
    """Add the figures of each group."""
    for group in data.values("group"):
        rows = [_shown(Figure.of(row)) for row in data.where(group=group)]
        report.table(group, ["", "measured", "limit", "", "note"], rows)


@dataclass(kw_only=True)
class Throughput(PartsStudy):
    """Measures the time per step, crawl and source, relative to the limits of the machine and to
    Gymnasium's environments. Candidates are interleaved; values are medians over rounds, ratios are
    computed within a round."""

    title: ClassVar[str] = "Throughput"
    parts: ClassVar[Mapping[str, Part]] = {
        name: Part(
            lambda study: [_job(study)],
            (_tables,),
            _claim,
            work=_figures,
            file="figures.csv",
            alone=True,
        )
        for name in FIGURES
    }

    rounds: int = 9
    """Rounds of each measurement."""
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="PART")] = ()
    """Parts to measure: gymnasium, whittle, content, signals, payoffs, adaptive, making,
    scheduler, tensors, start, replay; by default all. The record of the other parts
    is kept, so that a machine with a GPU can add its rows by --only tensors."""
    items: str = ""
    """Log of items for the replay, as for `ephemeral-crawl evaluate`; without it none is made."""
    curves: str = ""
    """Decay curves of the log."""
    budget: float = 10.0
    """Budget of the replay."""
    largest: int = 10**7
    """Largest fleet."""

    def write(self, report: Report, tables: Mapping[str, Rows]) -> None:
        figures = Data(tables["figures.csv"])
        report.answer(_claim(figures))
        report.heading("Figures and their limits")
        report.paragraph(
            "Medians over rounds, with the smallest and the largest in brackets. A ratio compares "
            "two things that take turns in one process; × is a ratio of times (≤) or of rates (≥)."
        )
        _tables(report, figures)
