"""Table 1, the indices, the rewards and the patterns."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

import agents
from agents import optimal_reward, relaxation
from crawl_env import Sources
from ephemeral_crawl.core.report import Report
from experiments.paper.runs import crawl, long_run

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


def printed(report: Report) -> None:
    """Add the numbers and statements of the paper beside the recomputed ones."""
    short = crawl(61, start="empty").reward.mean()
    one, two = (long_run(crawl(2000, budget=m)) for m in (1, 2))
    fraction = crawl(20_000, budget=2, arrivals="poisson").crawled[:, 0].mean()
    rows = [
        ["crawling only source 1", "179.79", f"{crawl(100, 'fixed').reward[-1]:.6f}"],
        ["Whittle, M = 1, mean of steps 0 … 60 from X(0) = 0", "254.66", f"{short:.4f}"],
        ["Whittle, M = 1, long run", "254.66 (taken for it)", f"{one[0]:.6f}"],
        ["M = 1, sources 1 and 2", "period two", f"period {one[2]}"],
        ["M = 1, sources 3 and 4", "never crawled", f"{one[1][2]:g}, {one[1][3]:g} of steps"],
        ["M = 2, source 1", "always crawled", f"{two[1][0]:.0%} of steps"],
        ["M = 2, sources 2 and 3", "non-trivial period", f"period {two[2]}"],
        ["M = 2, source 4", "a rather long period", f"every {1 / two[1][3]:.0f} steps"],
        ["M = 2, Poisson, source 1", "from time to time", f"{fraction:.2%} of steps"],
    ]
    report.table("The paper's numbers and ours", ["", "printed", "recomputed"], rows)


def rewards(report: Report, records: Records) -> None:
    fleet = Sources.preset("table1")
    greedy = crawl(100, "fixed").reward[-1]
    note(records, "crawling only source 1", greedy, PRINTED["greedy"])
    report.paragraph(
        f"Crawling only source 1 earns u₁ = {greedy:.6f} utility / step "
        f"(paper: {PRINTED['greedy']})."
    )
    rows = []
    for m in (1, 2, 3):
        reward, _, _ = long_run(crawl(2000, budget=m))
        optimum, relaxed = optimal_reward(fleet, m), relaxation(fleet, m)
        rows.append(
            [m, *(f"{x:.6f}" for x in (reward, optimum, relaxed.bound, relaxed.multiplier))]
        )
        note(records, f"whittle, long run, M={m}", reward)
        note(records, f"exact optimum, M={m}", optimum)
        note(records, f"relaxed bound, M={m}", float(relaxed.bound))
    report.table(
        "Long-run reward, utility / step",
        ["M", "Whittle", "exact optimum (joint value iteration)", "relaxed bound", "λ*"],
        rows,
    )


def patterns(report: Report, records: Records) -> None:
    rows = []
    for m in (1, 2, 3):
        run = crawl(2000, budget=m)
        _, frequency, p = long_run(run)
        fractions = [str(Fraction(f).limit_denominator(p)) for f in frequency]
        sets = ["+".join(str(i + 1) for i in np.flatnonzero(row)) for row in run.crawled[-p:]]
        rows.append([m, p, ", ".join(fractions), "  ".join(sets)])
        note(records, f"period, M={m}", p)
        for i, f in enumerate(frequency):
            note(records, f"frequency of source {i + 1}, M={m}", f)
    report.table(
        "The pattern of the Whittle policy",
        ["M", "period", "crawls per step of sources 1–4", "crawled, step by step"],
        rows,
    )
