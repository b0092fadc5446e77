"""`python -m experiments throughput`: measures the speed of environments, policies and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Annotated, Any, ClassVar

import tyro
from tqdm import tqdm

from crawl_env.errors import check_choice
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import RecordedStudy, Rows, attributed
from experiments.core.data import Case, Column, Data, Details, Item, Lines, Table, mean, write
from experiments.throughput import (
    files,
    payoffs,
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
from experiments.throughput.world import RATES

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
    """Parts to measure: gymnasium, whittle, content, signals, payoffs, adaptive, scheduler,
    tensors, start, replay, sizes, files; by default all. The record of the other parts is kept, so
    that a machine with a GPU can add its rows by --only tensors."""
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
            "payoffs": lambda: payoffs.figures(rounds),
            "adaptive": lambda: policy.adaptive_figures(rounds, min(self.largest, policy.LEARNING)),
            "scheduler": lambda: scheduler.figures(rounds) if fits else iter(()),
            "tensors": lambda: tensors.figures(rounds),
            "start": lambda: startup.figures(rounds),
            "replay": lambda: replay.figures(self.items, self.curves, self.budget),
        }

    def write(self, report: Report, tables: Mapping[str, Rows]) -> None:
        figures = [Figure.of(row) for row in tables["figures.csv"]]
        report.answer(_answer(figures))
        report.heading("Figures and their limits")
        report.paragraph(
            "Medians over rounds, with the smallest and the largest in brackets. A ratio compares "
            "two things that take turns in one process; × is a ratio of times (≤) or of rates (≥)."
        )
        for group in dict.fromkeys(figure.group for figure in figures):
            mine = [_row(figure) for figure in figures if figure.group == group]
            report.table(group, ["", "measured", "limit", "", "note"], mine)
        for name, content in (("world.csv", WORLD), ("files.csv", FILES)):
            if name in tables:
                write(report, Data(tables[name]), content)


def _answer(figures: Sequence[Figure]) -> str:
    held = [figure for figure in figures if figure.sense]
    known = [figure for figure in held if figure.met is not None]
    met = sum(bool(figure.met) for figure in known)
    missing = len(held) - len(known)
    rest = f"; {missing} could not be measured on this machine" if missing else ""
    return f"{met} of {len(known)} measured figures meet their limit{rest}."


def _row(figure: Figure) -> list[str]:
    spread = "" if isnan(figure.low) else f" ({figure.low:.3g} … {figure.high:.3g})"
    measured = "" if isnan(figure.value) else f"{figure.value:.3g} {figure.unit}{spread}"
    limit = f"{figure.sense} {figure.limit:g}" if figure.sense else ""
    met = {True: "met", False: "NOT MET", None: ""}[figure.met]
    return [figure.what, measured, limit, met, figure.note]


def _column(title: str, column: str, form: str = ".2f") -> Column:
    return Column(title, mean(column), lambda found: format(found.mean, form))


def _limit(data: Data, case: Case) -> float:
    """Return the least time of a step: that of copying and drawing."""
    return float(sum(data.numbers(name, **case)[0] for name in ("copy", "draws")))


def _times(report: Report, data: Data) -> None:
    """Add the figure of the time of a step, of one environment."""
    rows: list[dict[str, Any]] = []
    for row in data.where(rows=1):
        limit = float(row["copy"]) + float(row["draws"])
        parts = {name: row[name] for name in ("world", "env", "whittle")}
        for name, time in {**parts, "limit: copy + draws": limit}.items():
            rows.append({"arrivals": row["arrivals"], "n": row["n"], "part": name, "ns": time})
    Lines(
        "Time of a step by the number of sources, one environment.",
        x="n",
        y=mean("ns"),
        line="part",
        columns="arrivals",
        labels=("sources", "ns / source and step"),
        log="xy",
    )(report, Data(rows))


WORLD: tuple[Item, ...] = (
    _times,
    Table(
        "Nanoseconds per source and step",
        {"arrivals": "arrivals", "n": "N", "rows": "envs"},
        (
            _column("world", "world"),
            _column("env step", "env"),
            _column("Whittle step", "whittle"),
            _column("index", "ranking"),
            _column("copy", "copy"),
            _column("draws", "draws"),
            Column(
                "world / limit",
                lambda data, case: data.numbers("world", **case)[0] / _limit(data, case),
                lambda ratio: f"{ratio:.1f}",
            ),
            _column("memory", "memory", ".0f"),
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
FILES: tuple[Item, ...] = (
    Table(
        "Reading and writing files; medians over rounds",
        {"what": "file", "rows": "rows"},
        (_column("read, µs/row", "read"), _column("written, µs/row", "written")),
    ),
)
