"""What the crawler collects in fourteen days, against the rules and an oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job
from experiments.live.feeds.crawl import crawl
from experiments.live.feeds.rules import RULES, follow
from experiments.live.feeds.world import HOUR, World

TABLE = "feeds.csv"
BUDGETS = (3, 6, 12)  # fetches an hour
SEEDS = 8
CASES = ("own hosts", "shared hosts", "pings")

Row = dict[str, Any]


def jobs(sources: int, seconds: float) -> list[Job]:
    """Return a job for each case, seed and budget; they do not depend on the size of the other
    parts."""
    return [
        {"case": case, "seed": seed, "budget": budget}
        for case in CASES
        for seed in range(SEEDS)
        for budget in BUDGETS
    ]


def work(job: Job, folder: Path) -> list[Row]:
    """Return a row for each policy."""
    return collected([job["seed"]], [job["budget"]], cases=[job["case"]])


def collected(
    seeds: Sequence[int] = range(SEEDS),
    budgets: Sequence[float] = BUDGETS,
    days: float = 14.0,
    cases: Sequence[str] = CASES,
) -> list[Row]:
    """Return a row for each case, seed, budget and policy: the fraction of all worth collected.

    Cases: each feed on a host of its own; half of them on three hosts that accept one fetch an hour
    each; pings of recall .8 and precision .5, to be learnt, with hosts of their own.
    """
    return [
        {"case": case, "seed": seed, "budget": budget, "policy": policy, "fraction": fraction}
        for case in cases
        for seed in seeds
        for budget in budgets
        for policy, fraction in _collected(case, seed, budget, days).items()
    ]


def _collected(case: str, seed: int, budget: float, days: float) -> dict[str, float]:
    shared = case == "shared hosts"
    per_host = HOUR if shared else 0.0

    def world() -> World:
        return World(seed, days=days, shared_hosts=shared)

    crawled = world()
    crawl(crawled, budget, per_host=per_host, pings=case == "pings")
    found = {"Scheduler": crawled.fraction}
    if case != "pings":
        for name, rule in RULES.items():
            found[name] = follow(world(), budget, rule, per_host)
    return found


def answer(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return what was found in a sentence."""
    shares = [
        f"{_mean(rows, 'own hosts', budget, 'Scheduler', 'oracle'):.1%} at {budget}"
        for budget in BUDGETS
    ]
    return (
        "In a crawl of sixty feeds over HTTP, the scheduler collects, of what an oracle does, "
        f"{', '.join(shares)} fetches an hour."
    )


def write(report: Report, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add the part to the report."""
    policies = ("Scheduler", *RULES)
    report.heading("Sixty feeds over HTTP")
    report.table(
        "Fraction of all worth collected in fourteen days, means over seeds",
        ["hosts", "fetches / h", *policies, "of the oracle's"],
        [
            [
                case,
                budget,
                *(f"{_mean(rows, case, budget, policy):.3f}" for policy in policies),
                f"{_mean(rows, case, budget, 'Scheduler', 'oracle'):.1%}",
            ]
            for case in ("own hosts", "shared hosts")
            for budget in BUDGETS
        ],
    )
    gains = [
        _mean(rows, "pings", b, "Scheduler") / _mean(rows, "own hosts", b, "Scheduler")
        for b in BUDGETS
    ]
    report.paragraph(
        "With pings of recall .8 and precision .5, to be learnt, the scheduler collects "
        + ", ".join(f"{gain - 1.0:+.1%} at {b}" for gain, b in zip(gains, BUDGETS, strict=True))
        + " fetches an hour."
    )


def _mean(
    rows: Sequence[Mapping[str, Any]], case: str, budget: float, policy: str, by: str = ""
) -> float:
    """Return the mean fraction over the seeds, or of its ratio to that of another policy."""
    found = {
        (row["seed"], row["policy"]): float(row["fraction"])
        for row in rows
        if row["case"] == case and float(row["budget"]) == budget
    }
    values = [
        value / (found[seed, by] if by else 1.0)
        for (seed, name), value in found.items()
        if name == policy
    ]
    return float(np.mean(values))
