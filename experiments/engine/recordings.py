"""Recorded arrivals: the fleet is fitted to two thirds of a recording, and the rest is replayed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from agents.evaluation import statistics
from ephemeral_crawl.core.evaluation import fleet_as_json
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job
from ephemeral_crawl.core.study import Rows
from ephemeral_crawl.core.tables import percent
from experiments.signals.recordings import read, work
from experiments.signals.runs import Size

__all__ = ["PART", "finding", "jobs", "records", "work", "write"]

PART = "recordings"
AGENTS = ("whittle", "whittle-engine", "myopic", "oldest-first")
SERVICE = (2.0, 0.5, 0.2)  # of the items published
BUDGET, RUNS = 5, 2


def jobs(size: Size) -> list[Job]:
    return [
        {
            "part": PART,
            "recording": folder.name,
            "folder": str(folder),
            "log": split.digest,
            "service": share,
            "agent": agent,
            "arguments": {
                "sources": fleet_as_json(split.fleet),
                "budget": BUDGET,
                "start": "empty",
                "observed": False,
                "features": ["age", "backlog"],
                "engine": {"rate": share * flow, "capacity": max(1, round(5 * share * flow)),
                           "service": "poisson"},
            },
            "runs": RUNS,
            "steps": min(size.steps, split.steps) if size.quick else split.steps,
            "seed": size.seed,
        }
        for folder in size.recordings
        for split in [read(str(folder))]
        for flow in [float(split.fleet.arrival_rate.sum() * split.fleet.period)]
        for share in (SERVICE[1:2] if size.quick else SERVICE)
        for agent in AGENTS
    ]  # fmt: skip


def records(jobs: Sequence[Job], results: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield one row for each week of each job."""
    for job, result in zip(jobs, results, strict=True):
        for week, (reward, published) in enumerate(
            zip(result["reward"], result["published"], strict=True)
        ):
            yield {
                "recording": job["recording"],
                "service": job["service"],
                "agent": job["agent"],
                "week": week,
                "reward": repr(reward),
                "published": repr(published),
            }


def _weeks(rows: Rows) -> dict[tuple[str, str, str], Any]:
    found: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        key = str(row["recording"]), str(row["service"]), str(row["agent"])
        found.setdefault(key, []).append(float(row["reward"]))
    return {key: np.array(weeks) for key, weeks in found.items()}


def _gains(rows: Rows) -> dict[tuple[str, str, str], statistics.Estimate]:
    weeks = _weeks(rows)
    return {
        key: statistics.gain(reward, weeks[*key[:2], AGENTS[0]]) for key, reward in weeks.items()
    }


def write(report: Report, rows: Rows) -> None:
    report.heading("Recorded arrivals")
    report.paragraph(
        f"Rates are fitted to two thirds of a recording; the rest is replayed hour by hour, M = "
        f"{BUDGET}, with a Poisson engine whose service is a multiple of the items published, "
        "first in, first out. Gain over the plain index, by weeks, with 95 % intervals."
    )
    gains = _gains(rows)
    report.table(
        "Gain over whittle",
        ["recording", "service", *AGENTS[1:]],
        [
            [name, share, *(percent(gains[name, share, agent]) for agent in AGENTS[1:])]
            for name, share in dict.fromkeys(key[:2] for key in gains)
        ],
    )


def finding(rows: Rows) -> str:
    gains = {key: gain for key, gain in _gains(rows).items() if key[2] == AGENTS[1]}
    return (
        "On recorded arrivals whittle-engine gains over the plain index: "
        + "; ".join(
            f"{percent(gain)} on {name} at service {share}"
            for (name, share, _), gain in gains.items()
        )
        + "."
    )
