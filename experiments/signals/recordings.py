"""Recorded arrivals with simulated pings: the fleet is fitted to two thirds of a recording, and the
rest is replayed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from agents.evaluation import statistics
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core.evaluation import fleet_as_json
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import Rows
from ephemeral_crawl.replay.play import play, rollout_of
from ephemeral_crawl.replay.split import WEEK, Log, Split
from experiments.parts import Size
from experiments.signals.quality import NONE, OBSERVED, SHOWN, label
from experiments.signals.runs import Results, signals

PART = "recordings"
BUDGETS = (2, 5, 10, 20)
FITTED = 2 / 3  # of the recording
RUNS = 6  # which start one step after the other, each with pings of its own
_KEY = ("recording", "budget", "quality")


def jobs(size: Size) -> list[Job]:
    return [
        {
            "part": PART,
            "recording": folder.name,
            "folder": str(folder),
            "log": split.digest,
            "quality": quality,
            "agent": "whittle",
            "arguments": {
                "sources": fleet_as_json(split.fleet),
                "budget": budget,
                "start": "empty",
                "features": ["value"],
                **arguments,
            },
            "runs": 2 if size.quick else RUNS,
            "steps": _steps(size, split),
            "seed": size.seed,
        }
        for folder in size.recordings
        for split in [read(str(folder))]
        for budget in (BUDGETS[:1] if size.quick else BUDGETS)
        if 2 * budget <= len(split.fleet)
        for quality, arguments in _qualities(size.quick)
    ]


def _qualities(quick: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    yield NONE, {"observed": False}
    for quality in SHOWN[1:2] if quick else SHOWN:
        yield label(*quality), {"observed": False, "signals": signals(*quality)}
    yield OBSERVED, {"observed": True}


def _steps(size: Size, split: Split) -> int:
    return min(size.steps, split.steps) if size.quick else split.steps


@cache
def read(folder: str) -> Split:
    """Return a recording, split after two thirds, in steps of one hour.

    Raises:
        FileNotFoundError: the folder lacks items.csv.gz or curves.csv.gz.
        ValueError: the log is invalid.
    """
    path = Path(folder)
    items, curves = path / "items.csv.gz", path / "curves.csv.gz"
    whole = Log().read(items)
    at = whole.start + FITTED * whole.span
    return Log(items=items, curves=curves, train_until=f"{at:g}").split(None, 1.0)


def work(job: Job) -> Result:
    """Replay the rest of a recording; return what is collected and published in each week."""
    return replayed(job, read(job["folder"]))


def replayed(job: Job, split: Split) -> Result:
    """Replay the second part of a log with a job's agent; return what `work` does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = play(rollout_of(job, split.trace), split.trace, job["steps"])
    return {
        "reward": _by_week(run.reward.mean(axis=0)),
        "published": _by_week(split.published[: job["steps"]]),
    }


def _by_week(of_steps: FloatArray) -> list[float]:
    starts = np.arange(0, of_steps.size, int(WEEK))
    return [float(x) for x in np.add.reduceat(of_steps, starts)]


def records(jobs: Sequence[Job], results: Sequence[Result]) -> Iterator[dict[str, Any]]:
    """Yield one row for each week of each job."""
    for job, result in zip(jobs, results, strict=True):
        for week, (reward, published) in enumerate(
            zip(result["reward"], result["published"], strict=True)
        ):
            yield {
                "recording": job["recording"],
                "budget": job["arguments"]["budget"],
                "quality": job["quality"],
                "agent": job["agent"],
                "seed": job["seed"],
                "runs": job["runs"],
                "week": week,
                "reward": repr(reward),
                "published": repr(published),
            }


def write(report: Report, rows: Rows) -> None:
    results = Results(rows, *_KEY)
    report.heading("Recorded arrivals")
    report.paragraph(
        "The fleet is fitted to the first two thirds of a recording, and the rest is replayed. "
        "Items, their times, utilities and decay are the recorded ones; the pings are simulated: "
        "each item triggers one with probability r, and false pings are as frequent as precision p "
        "takes at the fitted rate. So p is not exact where a source publishes more or less than "
        "before. Share of the utility published that the Whittle policy collects, with the gain "
        "over no signals in parentheses."
    )
    for recording in results.values(0):
        budgets = list(dict.fromkeys(key[1] for key in results if key[0] == recording))
        qualities = list(dict.fromkeys(key[2] for key in results if key[0] == recording))
        table = [
            [f"M = {budget}", *(_cell(results, recording, budget, q) for q in qualities)]
            for budget in budgets
        ]
        report.table(f"Recording: {recording}", ["budget", *qualities], table)


def _cell(results: Results, recording: str, budget: str, quality: str) -> str:
    share = f"{_share(results, recording, budget, quality):.1%}"
    if quality == NONE:
        return share
    mine, none = (
        [float(row["reward"]) for row in results.rows(recording, budget, q)]
        for q in (quality, NONE)
    )
    gain = statistics.gain(mine, none)
    return f"{share} ({gain.mean:+.0%} [{gain.low:+.0%}, {gain.high:+.0%}])"


def _share(results: Results, recording: str, budget: str, quality: str) -> float:
    rows = results.rows(recording, budget, quality)
    collected, published = (sum(float(r[name]) for r in rows) for name in ("reward", "published"))
    return collected / published


def finding(rows: Rows) -> str:
    results = Results(rows, *_KEY)
    said = []
    for recording in results.values(0):
        budget = next(key[1] for key in results if key[0] == recording)
        shares = [
            f"{_share(results, recording, budget, quality):.0%}"
            for quality in (NONE, label(0.5, 0.8), OBSERVED)
        ]
        said.append(
            f"on the recording {recording} with M = {budget}, whittle collects {shares[0]} without "
            f"signals, {shares[1]} with r = .5 and p = .8, and {shares[2]} if it sees all content"
        )
    return "; ".join(said)
