"""Recorded arrivals: the fleet is fitted to two thirds of a recording, and the rest is replayed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from agents.evaluation import statistics
from agents.theory.engine.relaxation import engine_relaxation
from crawl_env.files import table
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.evaluation import fleet_as_json
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import Rows
from ephemeral_crawl.core.tables import percent
from ephemeral_crawl.example import world
from ephemeral_crawl.replay.split import Split
from experiments.engine.service import AGENTS, NEVER, OURS, PLAIN, STALE
from experiments.parts import Size
from experiments.signals import recordings

PART = "recordings"
INVENTED = "invented"  # the log of `ephemeral-crawl example`
SERVICE = (2.0, 0.5, 0.2)  # of the items published
BUDGET, RUNS = 5, 4
_BUFFER = 5  # steps of service that can wait


def jobs(size: Size) -> list[Job]:
    return [
        {
            "part": PART,
            "recording": name,
            "folder": folder,
            "log": split.digest,
            "service": share,
            "threshold": threshold,
            "agent": agent,
            "arguments": {
                "sources": fleet_as_json(split.fleet),
                "budget": BUDGET,
                "start": "empty",
                "observed": False,
                "features": ["age", "backlog"],
                "engine": {
                    "rate": rate,
                    "capacity": max(1, round(_BUFFER * rate)),
                    "service": "poisson",
                    "threshold": level,
                },
            },
            "runs": RUNS,
            "steps": min(size.steps, split.steps) if size.quick else split.steps,
            "seed": size.seed,
        }
        for name, folder in _folders(size)
        for split in [read(folder)]
        for share in (SERVICE[1:2] if size.quick else SERVICE)
        for rate in [share * float(split.fleet.arrival_rate.sum() * split.fleet.period)]
        for price in [engine_relaxation(split.fleet, BUDGET, rate).price]
        for threshold, level in ((NEVER, 0.0), (STALE, price))[: 1 if size.quick else None]
        for agent in AGENTS[: 2 if size.quick else None]
    ]


def _folders(size: Size) -> list[tuple[str, str]]:
    """Return the names and folders of the recordings given; an invented one if there are none."""
    return [(folder.name, str(folder)) for folder in size.recordings] or [(INVENTED, "")]


@cache
def read(folder: str) -> Split:
    """Return a recording, split after two thirds, in steps of one hour; "" is the invented one."""
    if folder:
        return recordings.read(folder)
    log = world.log(0)
    assert log.curves is not None
    with TemporaryDirectory() as made:
        table.write(Path(made) / "items.csv.gz", world.rows(log))
        log.curves.to_csv(Path(made) / "curves.csv.gz")
        return recordings.read(made)


def work(job: Job) -> Result:
    """Replay the rest of a recording; return what is indexed and published in each week."""
    return recordings.replayed(job, read(job["folder"]))


def records(jobs: Sequence[Job], results: Sequence[Result]) -> Iterator[dict[str, Any]]:
    """Yield one row for each week of each job."""
    for job, result in zip(jobs, results, strict=True):
        for week, (reward, published) in enumerate(
            zip(result["reward"], result["published"], strict=True)
        ):
            yield {
                "recording": job["recording"],
                "service": job["service"],
                "threshold": job["threshold"],
                "agent": job["agent"],
                "seed": job["seed"],
                "runs": job["runs"],
                "week": week,
                "reward": repr(reward),
                "published": repr(published),
            }


Case = tuple[str, str, str]  # recording, service, threshold


def _weeks(rows: Rows, column: str) -> dict[tuple[Case, str], FloatArray]:
    """Return a column by case and agent, one number for each week."""
    found: dict[tuple[Case, str], list[float]] = {}
    for row in rows:
        case = str(row["recording"]), str(row["service"]), str(row["threshold"])
        found.setdefault((case, str(row["agent"])), []).append(float(row[column]))
    return {key: np.array(weeks) for key, weeks in found.items()}


def _cases(rows: Rows) -> list[Case]:
    return list(dict.fromkeys(case for case, _ in _weeks(rows, "reward")))


def _agents(rows: Rows) -> list[str]:
    return list(dict.fromkeys(agent for _, agent in _weeks(rows, "reward")))


def _gain(rows: Rows, case: Case, agent: str) -> statistics.Estimate:
    weeks = _weeks(rows, "reward")
    return statistics.gain(weeks[case, agent], weeks[case, PLAIN])


def _share(rows: Rows, case: Case, agent: str) -> float:
    """Return the indexed part of the utility published."""
    return float(
        _weeks(rows, "reward")[case, agent].sum() / _weeks(rows, "published")[case, agent].sum()
    )


def write(report: Report, rows: Rows) -> None:
    report.heading("Recorded arrivals")
    weeks = {case[0]: row.size for (case, _), row in _weeks(rows, "reward").items()}
    lengths = ", ".join(f"{name} {n}" for name, n in weeks.items())
    report.paragraph(
        f"Rates are fitted to two thirds of a recording; the rest is replayed hour by hour, M = "
        f"{BUDGET}, with a Poisson engine whose service is a multiple of the items that the fitted "
        f"fleet publishes, {_BUFFER} steps of which can wait, first in, first out. Means of {RUNS} "
        "runs that start one step after the other. 95 % intervals of the gains over the plain "
        f"index are over weeks, as if these were independent ({lengths})."
    )
    report.figure(picture(rows), "Utility indexed, as a part of what is published.", PART)
    agents = _agents(rows)
    report.table(
        "Gain over whittle in front of the same engine",
        ["recording", "service", "refused below", *agents[1:], "whittle, of published"],
        [
            [*case, *(percent(_gain(rows, case, agent)) for agent in agents[1:]),
             f"{_share(rows, case, PLAIN):.1%}"]
            for case in _cases(rows)
        ],
    )  # fmt: skip


def picture(rows: Rows) -> Any:
    cases = _cases(rows)
    names = list(dict.fromkeys((case[0], case[2]) for case in cases))
    figure, axes = plots.new(1, len(names), width=3.6 * len(names), height=3.4, squeeze=False)
    for axis, (name, threshold) in zip(axes[0], names, strict=True):
        shares = [case[1] for case in cases if (case[0], case[2]) == (name, threshold)]
        for i, agent in enumerate(_agents(rows)):
            level = [100 * _share(rows, (name, share, threshold), agent) for share in shares]
            width = 2.2 if agent == OURS else 1.2
            style = {**plots.style(agent, i), "lw": width, "zorder": 2 + (agent == OURS)}
            axis.plot([float(share) for share in shares], level, label=agent, ms=5, **style)
        refused = "" if threshold == NEVER else ",\nitems below κ* refused"
        axis.set_title(f"{name}{refused}", fontsize=10)
        axis.set_xscale("log")
        axis.set_xticks([float(share) for share in shares], [f"{float(s):g}" for s in shares])
        axis.minorticks_off()
        axis.set_ylim(0, None)
        axis.set_xlabel("service / items published")
    axes[0][0].set_ylabel("indexed, % of published")
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=len(AGENTS)
    )
    return figure


def finding(rows: Rows) -> str:
    gains = {case: _gain(rows, case, OURS) for case in _cases(rows) if case[2] == NEVER}
    listed = "; ".join(
        f"{percent(gain)} on {name} at service {share}" for (name, share, _), gain in gains.items()
    )
    return f"On recorded arrivals whittle-engine gains over the plain index: {listed}."
