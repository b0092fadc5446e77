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
from experiments.core.data import (
    Case,
    Column,
    Data,
    Derived,
    Details,
    Item,
    Lines,
    Table,
    mean,
    write,
)
from experiments.core.study import Part, PartsStudy
from experiments.throughput import costs, processes, steps, tensors
from experiments.throughput.figure import Figure

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


# ------------------------------------------------------------------------------ costs of all sizes


def _sizes(study: Any) -> list[Job]:
    return [
        {"arrivals": name, "n": n, "rows": rows, "rounds": study.rounds}
        for n, rows in costs.SIZES
        if n <= study.largest
        for name in costs.RATES
    ]


def _size(job: Job) -> Result:
    return costs.step_cost(job["arrivals"], job["n"], job["rows"], job["rounds"])._asdict()


def _files(study: Any) -> list[Job]:
    largest = study.largest_file
    return [
        {"number": rows, "rounds": study.rounds}
        for rows in sorted({max(1, largest // 10), largest})
    ]


def _file(job: Job) -> Result:
    return {"rows": [one._asdict() for one in costs.file_costs(job["number"], job["rounds"])]}


def _limit(data: Data, case: Case) -> float:
    """Return the least time of a step: that of copying and drawing."""
    return float(sum(data.numbers(name, **case)[0] for name in ("copy", "draws")))


def _parts_of_steps(data: Data) -> Rows:
    """Return the time of each part of a step of one environment."""
    return [
        {"arrivals": row["arrivals"], "n": row["n"], "part": name, "ns": time}
        for row in data.where(rows=1)
        for limit in [float(row["copy"]) + float(row["draws"])]
        for name, time in (
            *((name, row[name]) for name in ("world", "env", "whittle")),
            ("limit: copy + draws", limit),
        )
    ]


STEPS: tuple[Item, ...] = (
    Derived(
        _parts_of_steps,
        (
            Lines(
                "Time of a step by the number of sources, one environment.",
                x="n",
                y=mean("ns"),
                line="part",
                columns="arrivals",
                labels=("sources", "ns / source and step"),
                log="xy",
            ),
        ),
    ),
    Table(
        "Nanoseconds per source and step",
        {"arrivals": "arrivals", "n": "N", "rows": "envs"},
        (
            Column("world", mean("world"), ".2f"),
            Column("env step", mean("env"), ".2f"),
            Column("Whittle step", mean("whittle"), ".2f"),
            Column("index", mean("ranking"), ".2f"),
            Column("copy", mean("copy"), ".2f"),
            Column("draws", mean("draws"), ".2f"),
            Column(
                "world / limit",
                lambda data, case: data.numbers("world", **case)[0] / _limit(data, case),
                ".1f",
            ),
            Column("memory", mean("memory"), ".0f"),
        ),
    ),
    Details(
        "What the columns mean",
        (
            "World: advance alone. Env step: the vector environment, M = N/100, random priorities. "
            "Whittle step: advance, index, select, crawl. Index: the index alone, for the content "
            "of the env's world. Copy: moving the bytes that advance has to move (values read and "
            "written, two parameters read). Draws: only the random numbers that the arrivals need. "
            "World / limit: the world's time over copy + draws: of the smallest fleet, it is the "
            "overhead of two numpy calls; of the largest deterministic one, memory bandwidth. "
            "Memory: peak bytes per source during an env step, including the parameters of the "
            "fleet.",
        ),
    ),
)
FILES = Table(
    "Reading and writing files; medians over rounds",
    {"what": "file", "rows": "rows"},
    (
        Column("read, µs/row", mean("read"), ".2f"),
        Column("written, µs/row", mean("written"), ".2f"),
    ),
)


@dataclass(kw_only=True)
class Throughput(PartsStudy):
    """Measures the time per step, crawl and source, relative to the limits of the machine and to
    Gymnasium's environments. Candidates are interleaved; values are medians over rounds, ratios are
    computed within a round."""

    title: ClassVar[str] = "Throughput"
    parts: ClassVar[Mapping[str, Part]] = {
        **{
            name: Part(
                lambda study: [_job(study)],
                (_tables,),
                _claim,
                work=_figures,
                file="figures.csv",
                alone=True,
            )
            for name in FIGURES
        },
        "sizes": Part(
            _sizes,
            STEPS,
            lambda data: "",
            work=_size,
            file="world.csv",
            alone=True,
        ),
        "files": Part(
            _files,
            (FILES,),
            lambda data: "",
            work=_file,
            file="files.csv",
            alone=True,
        ),
    }

    rounds: int = 9
    """Rounds of each measurement."""
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="PART")] = ()
    """Parts to measure: gymnasium, whittle, content, signals, payoffs, adaptive, making,
    scheduler, tensors, start, replay, sizes, files; by default all. The record of the other parts
    is kept, so that a machine with a GPU can add its rows by --only tensors."""
    items: str = ""
    """Log of items for the replay, as for `ephemeral-crawl evaluate`; without it none is made."""
    curves: str = ""
    """Decay curves of the log."""
    budget: float = 10.0
    """Budget of the replay."""
    largest: int = 10**7
    """Largest fleet."""
    largest_file: int = costs.LARGEST_FILE
    """Rows of the largest file."""

    def write(self, report: Report, tables: Mapping[str, Rows]) -> None:
        figures = Data(tables["figures.csv"])
        report.answer(_claim(figures))
        report.heading("Figures and their limits")
        report.paragraph(
            "Medians over rounds, with the smallest and the largest in brackets. A ratio compares "
            "two things that take turns in one process; × is a ratio of times (≤) or of rates (≥)."
        )
        write(report, figures, (_tables,))
        for name, data in self.found(tables).items():
            if name not in FIGURES:
                write(report, data, self.parts[name].content)
