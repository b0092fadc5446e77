"""Table 1, the indices, the rewards and the patterns."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

import agents
from crawl_env import Sources, optimal_reward, relaxation
from experiments.paper.runs import crawl, long_run
from experiments.report import Report

Records = list[dict[str, Any]]

# What the paper prints, and where.
PRINTED = {"greedy": 179.79, "whittle, M=1": 254.66}


def note(records: Records, quantity: str, value: float, printed: float | str = "") -> None:
    records.append({"quantity": quantity, "value": repr(float(value)), "printed": printed})


def derived(report: Report, records: Records) -> None:
    fleet = Sources.preset("table1")
    columns = {
        "Λ": fleet.arrival_rate,
        "ξ̄": fleet.mean_utility,
        "μ": fleet.decay_rate,
        "α = exp(−μT)": fleet.retention,
        "u": fleet.inflow,
        "u*": fleet.ceiling,
    }
    rows = [[i + 1, *(f"{c[i]:.9g}" for c in columns.values())] for i in range(len(fleet))]
    report.table("Table 1 (T = C = 1) and derived values", ["source", *columns], rows)
    for i in range(len(fleet)):
        note(records, f"retention of source {i + 1}", fleet.retention[i])
        note(records, f"inflow of source {i + 1}", fleet.inflow[i])
        note(records, f"ceiling of source {i + 1}", fleet.ceiling[i])


def indices(report: Report, records: Records) -> None:
    fleet = Sources.preset("table1")
    index = agents.index_at_age([[1], [2], [3]], fleet)
    rows = [[i + 1, *(f"{index[k, i]:.3f}" for k in range(3))] for i in range(len(fleet))]
    report.table("Whittle index at ages 1, 2, 3", ["source", "age 1", "age 2", "age 3"], rows)
    for i in range(len(fleet)):
        for k in range(3):
            note(records, f"index of source {i + 1} at age {k + 1}", index[k, i])


def rewards(report: Report, records: Records) -> None:
    fleet = Sources.preset("table1")
    greedy = crawl(100, "fixed").reward[-1]
    note(records, "crawling only source 1", greedy, PRINTED["greedy"])
    report.paragraph(
        f"Crawling only source 1 earns u₁ = {greedy:.6f} per epoch (paper: {PRINTED['greedy']})."
    )
    rows = []
    for m in (1, 2, 3):
        reward, _, _ = long_run(crawl(2000, budget=m))
        optimum, relaxed = optimal_reward(fleet, m), relaxation(fleet, m)
        rows.append([m, *(f"{x:.6f}" for x in (reward, optimum, relaxed.bound, relaxed.price))])
        note(records, f"whittle, long run, M={m}", reward)
        note(records, f"exact optimum, M={m}", optimum)
        note(records, f"relaxed bound, M={m}", float(relaxed.bound))
    report.table(
        "Long-run reward per epoch",
        ["M", "Whittle", "exact optimum (joint value iteration)", "relaxed bound", "λ*"],
        rows,
    )


def patterns(report: Report, records: Records) -> None:
    rows = []
    for m in (1, 2, 3):
        run = crawl(2000, budget=m)
        _, frequency, p = long_run(run)
        shares = [str(Fraction(f).limit_denominator(p)) for f in frequency]
        sets = ["+".join(str(i + 1) for i in np.flatnonzero(row)) for row in run.crawled[-p:]]
        rows.append([m, p, ", ".join(shares), "  ".join(sets)])
        note(records, f"period, M={m}", p)
        for i, f in enumerate(frequency):
            note(records, f"frequency of source {i + 1}, M={m}", f)
    report.table(
        "The pattern of the Whittle policy",
        ["M", "period", "crawls per epoch of sources 1–4", "crawled, epoch by epoch"],
        rows,
    )
