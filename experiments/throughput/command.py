"""`python -m experiments throughput`: measures the speed of environments, policies and replays.

Here is what is timed in processes of its own: imports, the compilation before the first step, and a
replay of a log under every policy, as `ephemeral-crawl evaluate --items` runs it.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import isnan
from pathlib import Path
from statistics import median
from typing import Annotated, Any, ClassVar

import tyro

from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import Rows
from experiments.core.clock import Figure
from experiments.core.data import Data
from experiments.core.study import Part, PartsStudy
from experiments.throughput import steps, tensors

START, REPLAY = "Start", "Replay"
_IMPORT = """
import time
import gymnasium
start = time.perf_counter()
import crawl_env
print(time.perf_counter() - start)
"""
_FIRST_STEP = """
import time
import gymnasium as gym
import numpy as np
import crawl_env
start = time.perf_counter()
env = gym.make("EphemeralCrawl-v0", budget=2)
env.reset(seed=0)
env.step(np.ones(4, np.float32))
print(time.perf_counter() - start)
"""
_REPLAY = "replay of a log under every policy; the limit is for a year of hours at 105 sites"
_ALONE = ("--jobs", "1", "--run-on", "sequential")  # in one process


def start_figures(rounds: int) -> Iterator[Figure]:
    """Yield the time of the import, and that of compiling for the first step."""
    runs = max(3, rounds // 2)
    with tempfile.TemporaryDirectory() as cache:
        first = _seconds(_FIRST_STEP, cache)  # fills the cache
        again = [_seconds(_FIRST_STEP, cache) for _ in range(runs)]
        imports = [_seconds(_IMPORT, cache) for _ in range(runs)]
    empty = [first]
    for _ in range(runs - 1):
        with tempfile.TemporaryDirectory() as cache:
            empty.append(_seconds(_FIRST_STEP, cache))
    for what, seconds, limit, note in (
        ("import crawl_env, beyond Gymnasium", imports, 0.5, ""),
        (
            "first gym.make, reset and step with an empty cache of compiled functions",
            empty,
            2.0,
            f"{median(again):.2f} s once they are cached",
        ),
    ):
        spread = min(seconds), max(seconds)
        yield Figure(START, what, median(seconds), "s", "≤", limit, *spread, note=note)


def _seconds(code: str, cache: str) -> float:
    """Return the time that a program prints, run with compiled functions cached in a folder."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(process.stdout)


def replay_figures(items: str, curves: str = "", budget: float = 10.0) -> Iterator[Figure]:
    """Yield the CPU time of a replay.

    Arguments:
        items: the log; if empty, nothing is run.
        curves: the decay curves, or "".
        budget: crawls per hour.
    """
    if not items:
        return
    options = {"--items": items, "--curves": curves, "--budget": f"{budget:g}"}
    words = [word for name, value in options.items() if value for word in (name, value)]
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "replay")
        command = [sys.executable, "-m", "ephemeral_crawl", "evaluate", *words, "--out", out]
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        before = _spent()
        subprocess.run([*command, *_ALONE], check=True, stdout=subprocess.DEVNULL, env=one_thread)
        minutes = (_spent() - before) / 60
    note = f"evaluate {' '.join(Path(word).name for word in words)}"
    yield Figure(REPLAY, _REPLAY, minutes, "min of CPU", "≤", 1.0, note=note)


def _spent() -> float:
    """Return the processor time of all child processes so far, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


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
    "start": lambda job: start_figures(job["rounds"]),
    "replay": lambda job: replay_figures(job["items"], job["curves"], job["budget"]),
}


def _job(study: Any) -> Job:
    names = ("rounds", "items", "curves", "budget", "largest")
    return {name: getattr(study, name) for name in names}


def _figures(job: Job) -> Result:
    return {"rows": [figure.row() for figure in FIGURES[job["part"]](job)]}


def _shown(figure: Figure) -> list[str]:
    """Return how a figure is shown."""
    spread = "" if isnan(figure.low) else f" ({figure.low:.3g} … {figure.high:.3g})"
    value = f"{figure.value:.3g} {figure.unit}{spread}"
    limit = f"{figure.sense} {figure.limit:g}" if figure.sense else ""
    verdict = {True: "met", False: "NOT MET", None: ""}[figure.met]
    return [figure.what, value, limit, verdict, figure.note]


def _claim(data: Data) -> str:
    """Return how many figures meet their limits."""
    figures = [figure for figure in map(Figure.of, data.rows) if figure.sense]
    number = sum(bool(figure.met) for figure in figures)
    return f"{number} of {len(figures)} figures meet their limit."


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
