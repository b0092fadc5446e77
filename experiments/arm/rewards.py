"""The gain of the exact index: whittle against whittle-exact on the same arrivals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.rollout import Evaluation
from crawl_env import Sources
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.evaluation import fleet_as_json
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import Rows
from ephemeral_crawl.core.tables import fraction, percent, recorded_runs

CLOSED, EXACT = "whittle", "whittle-exact"
_SPARSE = Sources.random(30, seed=0, regime="sparse")

# A name, the fleet and the budgets under which it is crawled.
FLEETS: tuple[tuple[str, Sources | str, tuple[float, ...]], ...] = (
    ("fleet F", "fleet-f", (2, 5, 10)),
    ("Table 1", "table1", (1, 2, 3)),
    ("random, sparse, N = 20", Sources.random(20, seed=0, regime="sparse"), (0.5, 1, 2)),
    ("random, sparse, N = 50", Sources.random(50, seed=1, regime="sparse"), (1, 3, 5)),
    ("random, dense, N = 20", Sources.random(20, seed=2), (1, 2, 5)),
    ("random, dense, N = 50", Sources.random(50, seed=3), (2, 5, 10)),
    (
        "ΛT = .05 at all sources, N = 30",
        Sources(0.05, _SPARSE.mean_utility, _SPARSE.decay_rate),
        (0.25, 0.5, 1),
    ),
)


def tasks() -> list[tuple[str, dict[str, Any]]]:
    """Return the name and the environment's arguments of every task."""
    return [
        (name, _arguments(fleet, budget)) for name, fleet, budgets in FLEETS for budget in budgets
    ]


def _arguments(fleet: Sources | str, budget: float) -> dict[str, Any]:
    return {
        "sources": fleet if isinstance(fleet, str) else fleet_as_json(fleet),
        "budget": budget,
        # A budget of less than one crawl per step has to be saved up.
        "budget_rule": "step" if budget >= 1 else "average",
        "arrivals": "poisson",
        "observed": True,
    }


class Done(NamedTuple):
    """The runs of one task."""

    fleet: str
    budget: float
    closed: Evaluation
    exact: Evaluation
    bound: float

    @property
    def name(self) -> str:
        return f"{self.fleet}, M = {self.budget:g}"

    @property
    def gain(self) -> statistics.Estimate:
        return statistics.gain(self.exact.reward, self.closed.reward)


def done(rows: Rows) -> list[Done]:
    """Return the runs of the records, by task."""
    found: dict[tuple[str, float], dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        task = found.setdefault((row["fleet"], float(row["budget"])), {})
        task.setdefault(row["agent"], []).append(row)
    return [
        Done(
            fleet,
            budget,
            recorded_runs(agents[CLOSED]),
            recorded_runs(agents[EXACT]),
            float(agents[CLOSED][0]["bound"]),
        )
        for (fleet, budget), agents in found.items()
    ]


def answer(done: list[Done]) -> str:
    """Return what the exact index gains, in one sentence."""
    most = max(done, key=lambda one: one.gain.mean)
    return (
        "Where content is observed under random arrivals, the exact index collects "
        f"{np.median([one.gain.mean for one in done]):.2%} more than that of Theorem 1 in the "
        f"median of {len(done)} tasks, and {most.gain.mean:.2%} more at most ({most.name})."
    )


def write(report: Report, done: list[Done]) -> None:
    """Add reward, gain and fraction of the bound on every task."""
    report.heading("The gain of the exact index")
    report.figure(_gains(done), "Gain of the exact index over Theorem 1, with 95 % intervals.")
    rows = [
        [
            one.fleet,
            f"{one.budget:g}",
            statistics.number(one.closed.reward.mean()),
            statistics.number(one.exact.reward.mean()),
            percent(one.gain),
            statistics.number(one.bound),
            f"{fraction(one.closed.reward, one.bound).mean:.2%}",
            f"{fraction(one.exact.reward, one.bound).mean:.2%}",
        ]
        for one in done
    ]
    columns = [
        "fleet",
        "M",
        CLOSED,
        EXACT,
        "gain",
        "bound (observed)",
        f"{CLOSED}, of the bound",
        f"{EXACT}, of the bound",
    ]
    report.table("Reward, utility / step", columns, rows)
    with report.details("How this is measured"):
        report.paragraph(
            "All content is observed before crawling, ξ is exponential. Gain: mean reward of "
            f"{EXACT} divided by that of {CLOSED} on the same arrivals, minus one, with a 95 % "
            "interval (Fieller, over runs). The bound is that of policies that observe the "
            "content; none exceeds it on average. Budgets below 1 hold on average, the others in "
            "every step. Where they hold on average, sources of index below λ* are not crawled; "
            f"{EXACT} computes λ* and {CLOSED} simulates it (to a few per cent), so part of that "
            "gain is a better λ*."
        )


def _gains(done: list[Done]) -> object:
    figure, axis = plots.new(width=8, height=0.8 + 0.26 * len(done))
    gains = [one.gain for one in done]
    place = np.arange(len(done))
    middle = np.array([100 * g.mean for g in gains])
    spread = 100 * np.array([[g.mean - g.low, g.high - g.mean] for g in gains]).T
    axis.errorbar(middle, place, xerr=spread, fmt="o", color=plots.colour(EXACT), ms=4)
    axis.set_yticks(place, [one.name for one in done])
    axis.invert_yaxis()
    axis.axvline(0, color=plots.FAINT, lw=1)
    axis.set(xlabel="gain, %")
    return figure
