"""What the crawler collects in fourteen days, against rules in use, an oracle and a bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from crawl_env.numerics import FloatArray
from ephemeral_crawl.backtest.rules import RULES as IN_USE
from ephemeral_crawl.core.runner import Job, Result
from experiments.core.data import Across, Case, Cell, Column, Data, Paragraph, Table, mean
from experiments.core.study import Part
from experiments.live.over_http import crawl
from experiments.live.rules import RULES, Oracle, bound, follow
from experiments.live.simulated import simulate
from experiments.live.world import HOUR, World

BUDGETS = (3, 6, 12)  # fetches an hour
SEEDS = 8
CASES = ("own hosts", "shared hosts", "pings")
HTTP, SIMULATED = "Scheduler over HTTP", "Scheduler"


def jobs(
    study: Any,
    seeds: Sequence[int] = range(SEEDS),
    budgets: Sequence[float] = BUDGETS,
    days: float = 14.0,
) -> list[Job]:
    """Return a job for each case, seed, budget and policy, each of which gives a row; the first
    `http_seeds` of the study are crawled over HTTP, too.

    Cases: each feed on a host of its own; half of them on three hosts that accept one fetch an hour
    each; pings of recall .8 and precision .5, to be learnt, with hosts of their own.
    """
    return [
        {
            "columns": {"case": case, "seed": seed, "budget": budget, "policy": policy},
            "days": days,
        }
        for over_http in (False, True)
        for seed in (seeds[: study.http_seeds] if over_http else seeds)
        for case in CASES
        for budget in budgets
        for policy in ((HTTP,) if over_http else _policies(case))
    ]


def _policies(case: str) -> tuple[str, ...]:
    if case == "pings":
        return (SIMULATED, "oracle")
    return (SIMULATED, *RULES, "bound")


def work(job: Job) -> Result:
    """Return the fraction of all worth that a policy collects."""
    case, seed, budget, policy = job["columns"].values()
    shared, pings = case == "shared hosts", case == "pings"
    per_host = HOUR if shared else 0.0
    world = World(seed, days=job["days"], shared_hosts=shared)
    if policy in (HTTP, SIMULATED):
        run = crawl if policy == HTTP else simulate
        run(world, budget, per_host=per_host, pings=pings)
        return {"fraction": world.fraction}
    if policy == "bound":
        return {"fraction": bound(world, budget, per_host)}
    rule = partial(Oracle, pings=True) if pings else RULES[policy]
    return {"fraction": follow(world, budget, rule, per_host)}


# --------------------------------------------------------------------------------------- the report


def ratios(data: Data, case: Case, /, **other: str) -> FloatArray:
    """Return what is collected ÷ what is in another case, for each seed of both."""
    mine, its = (
        {row["seed"]: float(row["fraction"]) for row in data.where(**each_case)}
        for each_case in (case, {**case, **other})
    )
    return np.array([mine[seed] / its[seed] for seed in mine if seed in its])


def over(statistic: Callable[[FloatArray], Any], *policies: str) -> Cell:
    """Return the cell of a statistic of the ratios to a policy: the least of several; "" where none
    was crawled."""

    def cell(data: Data, case: Case) -> float | str:
        samples = [ratios(data, {**case, "policy": SIMULATED}, policy=name) for name in policies]
        return min((float(statistic(x)) for x in samples if x.size), default="")

    return cell


def claim(data: Data) -> str:
    """Return what the scheduler collects of what an oracle does."""
    shares = ", ".join(
        f"{over(np.mean, 'oracle')(data, case):.1%} at {case['budget']}"
        for case in data.cases("budget", case="own hosts")
    )
    return (
        f"In a crawl of sixty feeds, the scheduler collects, of what an oracle does, {shares} "
        "fetches an hour."
    )


def pinged(data: Data) -> str:
    """Say what pings bring."""
    gains = []
    for budget in data.values("budget", case="pings"):
        own, oracle = (
            ratios(data, {"case": "pings", "budget": budget, "policy": name}, case="own hosts")
            for name in (SIMULATED, "oracle")
        )
        gains.append(f"{own.mean() - 1:+.1%} at {budget} (oracle {oracle.mean() - 1:+.1%})")
    return (
        "With pings of recall .8 and precision .5, to be learnt, the scheduler collects more: "
        f"{', '.join(gains)} fetches an hour."
    )


def over_http(data: Data) -> str:
    """Say by how much crawls over HTTP differ from those without."""
    cases = data.cases("case", "budget", policy=HTTP)
    parts = [abs(ratios(data, case, policy=SIMULATED) - 1) for case in cases]
    if not parts:
        return ""
    differences = np.concatenate(parts)
    return (
        f"Of these crawls {differences.size} were also made by the crawler over HTTP, in "
        "accelerated time. What it collects differs from what is stated here by at most "
        f"{differences.max():.1e} of it."
    )


_CASE = {"case": "case", "budget": "fetches / h"}

PART = Part(
    jobs=jobs,
    work=work,
    file="feeds.csv",
    heading="Sixty feeds",
    content=(
        Table(
            "Fraction of all worth collected in fourteen days, means over seeds",
            _CASE,
            (
                Across(
                    "policy",
                    (mean("fraction"),),
                    ".3f",
                    (SIMULATED, *RULES),
                ),
            ),
        ),
        Table(
            "What the scheduler collects ÷ what others do: means over seeds, and the smallest",
            _CASE,
            (
                Column("÷ oracle", over(np.mean, "oracle"), ".1%"),
                Column("smallest", over(np.min, "oracle"), ".1%"),
                Column("÷ bound", over(np.mean, "bound"), ".1%"),
                Column("÷ best rule in use", over(np.mean, *IN_USE), ".2f"),
            ),
        ),
        "The oracle fetches the feed of the highest Whittle index, with true rates and worths at "
        "every moment; in the third case it also knows recall and precision of the pings. The "
        "bound is that of two relaxed constraints, of the budget and of the hosts, on the expected "
        "worth (`experiments.live.rules.bound`); it holds for every crawler that is not told of "
        "pings.",
        Paragraph(pinged),
        Paragraph(over_http),
    ),
    claim=claim,
)
