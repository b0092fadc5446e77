"""The gain of the exact index: whittle against whittle-exact on the same arrivals."""

from __future__ import annotations

from typing import Any

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.rollout import Evaluation
from crawl_env import Sources
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.evaluation import fleet_as_json
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.tables import fraction, percent

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


Done = tuple[str, dict[str, Any], Evaluation, Evaluation, float]  # of one task; its bound


def answer(done: list[Done]) -> str:
    """Return what the exact index gains, in one sentence."""
    gains = {
        f"{name}, M = {arguments['budget']:g}": _gain(closed, exact)
        for name, arguments, closed, exact, _ in done
    }
    most = max(gains, key=lambda name: gains[name].mean)
    middle = float(np.median([gain.mean for gain in gains.values()]))
    return (
        "Where content is observed under random arrivals, the exact index collects "
        f"{middle:.2%} more than Theorem 1's in the median of {len(gains)} tasks, and "
        f"{gains[most].mean:.2%} more at most ({most})."
    )


def table(report: Report, done: list[Done]) -> None:
    """Add reward, gain and fraction of the bound on every task."""
    report.heading("The gain of the exact index")
    report.paragraph(
        "All content is observed before crawling, ξ is exponential. Gain: mean reward of "
        f"{EXACT} divided by that of {CLOSED} on the same arrivals, minus one, with a 95 % "
        "interval (Fieller, over runs). The bound is that of policies that observe the content; "
        "none exceeds it on average. Budgets below 1 hold on average, the others in every step. "
        f"Where they hold on average, sources of index below λ* are not crawled; {EXACT} computes "
        f"λ* and {CLOSED} simulates it (to a few per cent), so part of that gain is a better λ*."
    )
    rows, before = [], ""
    for name, arguments, closed, exact, bound in done:
        rows.append(
            [
                name if name != before else "",
                f"{arguments['budget']:g}",
                statistics.number(closed.reward.mean()),
                statistics.number(exact.reward.mean()),
                percent(_gain(closed, exact)),
                statistics.number(bound),
                f"{fraction(closed.reward, bound).mean:.2%}",
                f"{fraction(exact.reward, bound).mean:.2%}",
            ]
        )
        before = name
    columns = [
        "fleet",
        "M",
        CLOSED,
        EXACT,
        "gain",
        "bound (observed)",
        "of the bound",
        "of the bound, exact",
    ]
    report.table("Reward, utility / step", columns, rows)
    report.figure(_gains(done), "Gain of the exact index over Theorem 1, with 95 % intervals.")


def _gain(closed: Evaluation, exact: Evaluation) -> statistics.Estimate:
    return statistics.gain(exact.reward, closed.reward)


def _gains(done: list[Done]) -> object:
    figure, axis = plots.new(width=8, height=0.8 + 0.26 * len(done))
    gains = [_gain(closed, exact) for _, _, closed, exact, _ in done]
    place = np.arange(len(done))
    middle = np.array([100 * g.mean for g in gains])
    spread = 100 * np.array([[g.mean - g.low, g.high - g.mean] for g in gains]).T
    axis.errorbar(middle, place, xerr=spread, fmt="o", color=plots.colour(CLOSED), ms=4)
    labels = [f"{name}, M = {arguments['budget']:g}" for name, arguments, *_ in done]
    axis.set_yticks(place, labels)
    axis.invert_yaxis()
    axis.axvline(0, color="#888", lw=1)
    axis.set(xlabel="gain, %")
    return figure
