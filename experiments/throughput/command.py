"""`python -m experiments throughput`: measures the speed of environments and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, get_type_hints

import numpy as np
from tqdm import tqdm

from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import RecordedStudy, Rows, attributed
from experiments.throughput import files, versus, world
from experiments.throughput.files import FileCost
from experiments.throughput.versus import Versus
from experiments.throughput.world import RATES, Cost


@dataclass(kw_only=True)
class Throughput(RecordedStudy):
    """Measures the time per source and step, relative to the limits of the machine and to
    Gymnasium's environments. Candidates are interleaved; values are medians over rounds, ratios are
    computed within a round."""

    title: ClassVar[str] = "Throughput"
    outputs: ClassVar[tuple[str, ...]] = ("versus.csv", "world.csv", "files.csv", "report.html")

    rounds: int = 9
    """Rounds of each measurement."""
    largest: int = 10**7
    """Largest fleet."""
    largest_file: int = files.LARGEST
    """Rows of the largest file."""

    def measure(self) -> dict[str, Rows]:
        comparisons = versus.all_comparisons(self.rounds)
        sizes = sum(n <= self.largest for n, _ in world.SIZES)
        progress = tqdm(
            world.all_costs(self.largest, self.rounds), total=sizes * len(RATES), unit="size"
        )
        costs = list(progress)
        readings = list(tqdm(files.all_file_costs(self.largest_file, self.rounds), unit="file"))
        return {
            "versus.csv": attributed([v._asdict() for v in comparisons]),
            "world.csv": attributed([c._asdict() for c in costs]),
            "files.csv": attributed([r._asdict() for r in readings]),
        }

    def write(self, report: Report, tables: Mapping[str, Rows]) -> None:
        comparisons = [_read(Versus, row) for row in tables["versus.csv"]]
        report.answer(_answer(comparisons))
        _versus(report, comparisons)
        _costs(report, [_read(Cost, row) for row in tables["world.csv"]])
        if "files.csv" in tables:
            _files(report, [_read(FileCost, row) for row in tables["files.csv"]])


T = TypeVar("T", Versus, Cost, FileCost)


def _read(kind: type[T], row: Mapping[str, Any]) -> T:
    """Return a row of a table as the named tuple that it was made from."""
    types = get_type_hints(kind)
    return kind(**{name: of(row[name]) for name, of in types.items()})


def _answer(comparisons: list[Versus]) -> str:
    met = sum(v.speedup >= v.wanted for v in comparisons)
    shown = next((v for v in comparisons if v.what.startswith("1024 envs")), comparisons[0])
    return (
        f"{met} of {len(comparisons)} comparisons with Gymnasium's environments reach their "
        f"target; {shown.what}: {shown.speedup:.1f} times as fast with deterministic arrivals "
        "(other arrivals below)."
    )


def _versus(report: Report, comparisons: list[Versus]) -> None:
    report.heading("Against Gymnasium")
    rows = [
        [
            v.what,
            f"{v.ours * 1e6:.2f}",
            f"{v.other * 1e6:.2f}",
            f"{v.speedup:.2f} ({v.low:.2f} … {v.high:.2f})",
            f"{v.wanted:.2f}",
            "yes" if v.speedup >= v.wanted else "NO",
        ]
        for v in comparisons
    ]
    report.table(
        "Time of one step of all environments, deterministic arrivals, feature `value`",
        ["", "ours, µs", "other, µs", "other / ours (range)", "target ≥", "met"],
        rows,
    )


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
