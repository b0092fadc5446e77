"""`python -m experiments throughput`: measures the speed of environments, policies and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Annotated, Any, ClassVar, TypeVar, get_type_hints

import numpy as np
import tyro
from tqdm import tqdm

from crawl_env.errors import check_choice
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import RecordedStudy, Rows, attributed
from experiments.throughput import (
    files,
    policy,
    replay,
    scheduler,
    signals,
    startup,
    tensors,
    versus,
    world,
)
from experiments.throughput.figure import Figure
from experiments.throughput.files import FileCost
from experiments.throughput.world import RATES, Cost

_TABLES = ("figures.csv", "world.csv", "files.csv")
_SIZES, _FILES = "sizes", "files"  # parts that are tables of their own


@dataclass(kw_only=True)
class Throughput(RecordedStudy):
    """Measures the time per step, crawl and source, relative to the limits of the machine and to
    Gymnasium's environments. Candidates are interleaved; values are medians over rounds, ratios are
    computed within a round."""

    title: ClassVar[str] = "Throughput"
    outputs: ClassVar[tuple[str, ...]] = (*_TABLES, "report.html")

    rounds: int = 9
    """Rounds of each measurement."""
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="PART")] = ()
    """Parts to measure: gymnasium, whittle, content, signals, adaptive, scheduler, tensors, start,
    replay, sizes, files; by default all. The record of the other parts is kept, so that a machine
    with a GPU can add its rows by --only tensors."""
    items: str = ""
    """Log of items for the replay, as for `ephemeral-crawl evaluate`; without it none is made."""
    curves: str = ""
    """Decay curves of the log."""
    budget: float = 10.0
    """Budget of the replay."""
    largest: int = 10**7
    """Largest fleet."""
    largest_file: int = files.LARGEST
    """Rows of the largest file."""

    def measure(self) -> dict[str, Rows]:
        parts = self._parts()
        chosen = self.only or (*parts, _SIZES, _FILES)
        for name in chosen:
            check_choice("only", name, (*parts, _SIZES, _FILES))
        tables: dict[str, Rows] = {}
        if self.only and any((self.folder / name).exists() for name in _TABLES):
            tables.update(self.recorded())
        found = {name: list(parts[name]()) for name in tqdm([p for p in parts if p in chosen])}
        new = {name: attributed([f.row() for f in part]) for name, part in found.items()}
        kept = [row for row in tables.get("figures.csv", ()) if row["part"] not in new]
        rows = [*kept, *({"part": name, **row} for name, part in new.items() for row in part)]
        order = list(parts)
        tables["figures.csv"] = sorted(rows, key=lambda row: order.index(row["part"]))
        if _SIZES in chosen:
            sizes = sum(n <= self.largest for n, _ in world.SIZES)
            costs = tqdm(
                world.all_costs(self.largest, self.rounds), total=sizes * len(RATES), unit="size"
            )
            tables["world.csv"] = attributed([c._asdict() for c in costs])
        if _FILES in chosen:
            readings = tqdm(files.all_file_costs(self.largest_file, self.rounds), unit="file")
            tables["files.csv"] = attributed([r._asdict() for r in readings])
        return tables

    def _parts(self) -> dict[str, Callable[[], Iterator[Figure]]]:
        rounds = self.rounds
        fits = self.largest >= scheduler.LARGE
        return {
            "gymnasium": lambda: versus.figures(rounds),
            "whittle": lambda: policy.whittle_figures(rounds, min(self.largest, policy.N)),
            "content": lambda: policy.content_figures(rounds),
            "signals": lambda: signals.figures(rounds),
            "adaptive": lambda: policy.adaptive_figures(rounds, min(self.largest, policy.LEARNING)),
            "scheduler": lambda: scheduler.figures(rounds) if fits else iter(()),
            "tensors": lambda: tensors.figures(rounds),
            "start": lambda: startup.figures(rounds),
            "replay": lambda: replay.figures(self.items, self.curves, self.budget),
        }

    def write(self, report: Report, tables: Mapping[str, Rows]) -> None:
        figures = [Figure.of(row) for row in tables["figures.csv"]]
        report.answer(_answer(figures))
        _figures(report, figures)
        if "world.csv" in tables:
            _costs(report, [_read(Cost, row) for row in tables["world.csv"]])
        if "files.csv" in tables:
            _files(report, [_read(FileCost, row) for row in tables["files.csv"]])


T = TypeVar("T", Cost, FileCost)


def _read(kind: type[T], row: Mapping[str, Any]) -> T:
    """Return a row of a table as the named tuple that it was made from."""
    types = get_type_hints(kind)
    return kind(**{name: of(row[name]) for name, of in types.items()})


def _answer(figures: Sequence[Figure]) -> str:
    held = [figure for figure in figures if figure.sense]
    known = [figure for figure in held if figure.met is not None]
    met = sum(bool(figure.met) for figure in known)
    missing = len(held) - len(known)
    rest = f"; {missing} could not be measured on this machine" if missing else ""
    return f"{met} of {len(known)} measured figures meet their limit{rest}."


def _figures(report: Report, figures: Sequence[Figure]) -> None:
    report.heading("Figures and their limits")
    report.paragraph(
        "Medians over rounds, with the smallest and the largest in brackets. A ratio compares two "
        "things that take turns in one process; × is a ratio of times (≤) or of rates (≥)."
    )
    for group in dict.fromkeys(figure.group for figure in figures):
        rows = [
            [
                figure.what,
                _measured(figure),
                f"{figure.sense} {figure.limit:g}" if figure.sense else "",
                {True: "met", False: "NOT MET", None: ""}[figure.met],
                figure.note,
            ]
            for figure in figures
            if figure.group == group
        ]
        report.table(group, ["", "measured", "limit", "", "note"], rows)


def _measured(figure: Figure) -> str:
    if isnan(figure.value):
        return ""
    spread = "" if isnan(figure.low) else f" ({figure.low:.3g} … {figure.high:.3g})"
    return f"{figure.value:.3g} {figure.unit}{spread}"


def _costs(report: Report, costs: list[Cost]) -> None:
    report.heading("Nanoseconds per source and step")
    rows = [
        [
            c.arrivals,
            f"{c.n:,} × {c.rows:,}",
            *(f"{x:.2f}" for x in (c.world, c.env, c.whittle, c.ranking, c.copy, c.draws)),
            f"{c.world / (c.copy + c.draws):.1f}",
            f"{c.memory:.0f}",
        ]
        for c in costs
    ]
    columns = [
        "arrivals",
        "N × envs",
        "world",
        "env step",
        "Whittle step",
        "index",
        "copy",
        "draws",
        "world / limit",
        "memory",
    ]
    report.figure(_figure(costs), "Time of a step by the number of sources.")
    report.table("Nanoseconds per source and step", columns, rows)
    report.paragraph(_reading(costs))
    with report.details("What the columns mean"):
        report.paragraph(
            "World: advance alone. Env step: the vector environment, M = N/100, random "
            "priorities. Whittle step: advance, index, select, crawl. Index: the index alone, for "
            "the content of the env's world. Copy: moving the bytes that advance has to move "
            "(values read and written, two parameters read). Draws: only the random numbers that "
            "the arrivals need. World / limit: the world's time over copy + draws. Memory: "
            "peak bytes per source during an env step, including the parameters of the fleet."
        )


def _files(report: Report, readings: list[FileCost]) -> None:
    report.heading("Reading and writing files")
    rows = [
        [r.what, f"{r.rows:,}", f"{r.read:.2f}", f"{r.written:.2f}", f"{r.read * r.rows / 1e6:.2f}"]
        for r in readings
    ]
    columns = ["file", "rows", "read, µs/row", "written, µs/row", "read, s"]
    report.table("Time per row; medians over rounds", columns, rows)


def _reading(costs: list[Cost]) -> str:
    """Return sentences on the limiting factors, from the values of this run."""
    small = next(c for c in costs if c.arrivals == "deterministic")
    large = max((c for c in costs if c.arrivals == "deterministic"), key=lambda c: c.n * c.rows)
    sparse = [c for c in costs if c.arrivals == "Poisson, ΛT = .05"][-1]
    dense = [c for c in costs if c.arrivals == "Poisson, ΛT = 5"][-1]
    static = [c for c in costs if c.arrivals == "deterministic"][-1]
    per_step = small.world * small.n * small.rows
    extra = sparse.world - static.world
    return (
        f"Limiting factors. Smallest fleet: a step takes {per_step:.0f} ns, the overhead of two "
        "numpy calls. Largest fleet, deterministic: memory bandwidth; "
        f"{large.world / large.copy:.1f} times the time to copy the same bytes. Dense Poisson: "
        f"the random numbers, {dense.draws / dense.world:.0%} of the time. Sparse Poisson: "
        f"arrivals add {extra:.2f} ns per source, that is {extra / RATES[sparse.arrivals]:.0f} ns "
        f"per arrival, of which {sparse.draws / RATES[sparse.arrivals]:.0f} ns are its random "
        "numbers; the rest assigns them to sources. Whittle step, deterministic, largest: the "
        f"index alone takes {large.ranking:.1f} of {large.whittle:.1f} ns."
    )


def _figure(costs: list[Cost]) -> object:
    figure, axes = plots.new(1, len(RATES), width=11, height=3.6, sharey=True)
    for axis, name in zip(axes, RATES, strict=True):
        mine = [c for c in costs if c.arrivals == name and c.rows == 1]
        cells = np.array([c.n * c.rows for c in mine])
        for j, what in enumerate(("world", "env", "whittle")):
            times = [getattr(c, what) for c in mine]
            axis.loglog(cells, times, "o-", ms=4, color=plots.PALETTE[j], label=what)
        limit = [c.copy + c.draws for c in mine]
        axis.loglog(cells, limit, "--", color=plots.INK, lw=1, label="limit: copy + draws")
        axis.set(title=name, xlabel="sources (one environment)")
    axes[0].set_ylabel("ns / source and step")
    axes[0].legend()
    return figure
