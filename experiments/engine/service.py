"""Policies as the service of the engine falls from ample to scarce, with and without refusing."""

from __future__ import annotations

from typing import Any

from agents.theory.engine.relaxation import engine_relaxation
from crawl_env import Task
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.evaluation import arguments_of
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job
from ephemeral_crawl.core.study import Rows
from ephemeral_crawl.core.tables import fraction, percent
from experiments.signals.runs import Results, Size, job, records, work

__all__ = ["PART", "finding", "jobs", "records", "work", "write"]

PART = "service"
# By name: the argument `sources` and the crawls per step.
FLEETS = {"fleet F": ("fleet-f", 5), "sparse": ("random-sparse-50-0", 3)}
SERVICE = (3.0, 1.0, 0.5, 0.2)  # of the items published
AGENTS = ("whittle", "whittle-engine", "myopic", "static", "oldest-first")
DISCIPLINES = ("fifo", "value")
NEVER, STALE = "none", "the price κ*"
_KEY = ("fleet", "discipline", "service", "threshold", "agent")
_BUFFER = 5  # steps of service that can wait


def jobs(size: Size) -> list[Job]:
    found = []
    for fleet, (sources, budget) in list(FLEETS.items())[: 1 if size.quick else None]:
        known = Task(**arguments_of({"arguments": {"sources": sources}})).sources
        flow = float(known.arrival_rate.sum() * known.period)
        for share in SERVICE[2:3] if size.quick else SERVICE:
            rate = share * flow
            price = engine_relaxation(known, budget, rate).price
            for discipline in DISCIPLINES:
                # Items that lose to others of the queue are refused by its order already.
                thresholds = [(NEVER, 0.0), *([(STALE, price)] if discipline == "fifo" else [])]
                for name, threshold in thresholds:
                    engine = {
                        "rate": rate,
                        "capacity": max(1, round(_BUFFER * rate)),
                        "discipline": discipline,
                        "service": "poisson",
                        "threshold": threshold,
                    }
                    found += [
                        job(
                            PART,
                            f"{fleet}, {discipline}, service {share:g}, refused below {name}",
                            agent,
                            {"sources": sources, "budget": budget, "engine": engine},
                            size,
                            fleet=fleet,
                            discipline=discipline,
                            service=share,
                            threshold=name,
                            price=price,
                            bound=agent == AGENTS[0],
                        )
                        for agent in AGENTS
                    ]
    return found


def write(report: Report, rows: Rows) -> None:
    results = Results(rows, *_KEY)
    report.heading("Service from ample to scarce")
    report.paragraph(
        "Fleet F: 25 sources of five kinds, M = 5; sparse: 50 sources of .003 to .3 items per "
        "step, M = 3. Arrivals are Poisson, utilities exponential, nothing is known of content "
        "before a crawl. The engine indexes a Poisson number of items per step, whose mean is the "
        f"given multiple of what is published, and {_BUFFER} steps of its service can wait. "
        "Reward as a fraction of the relaxed bound of two budgets, which holds for every order and "
        "threshold. Refusing: items worth less than κ* of the relaxation when they are collected."
    )
    report.figure(picture(results), "Reward of policies, as a fraction of the bound.", PART)
    for fleet, discipline, threshold in dict.fromkeys((k[0], k[1], k[3]) for k in results):
        table = [
            [f"{float(share):g}", *(_of_bound(results, fleet, discipline, share, threshold, agent)
                                    for agent in AGENTS)]
            for share in results.values(2)
        ]  # fmt: skip
        report.table(
            f"{fleet}, {discipline}, refused: below {threshold}", ["service", *AGENTS], table
        )


def _of_bound(results: Results, *key: str) -> str:
    top = results.bound(*key[:-1], AGENTS[0])
    return percent(fraction(results.share(*key), top))


def _mean(results: Results, *key: str) -> float:
    return float(results.share(*key).mean())


def finding(rows: Rows) -> str:
    results = Results(rows, *_KEY)
    fleet, scarce = results.values(0)[0], results.values(2)[-1]
    lost = {}
    for one in dict.fromkeys(k[0] for k in results):
        plain, ours = (_mean(results, one, "fifo", scarce, NEVER, agent) for agent in AGENTS[:2])
        lost[one] = plain / ours
    refusing = _mean(results, fleet, "fifo", scarce, STALE, AGENTS[1]) / _mean(
        results, fleet, "fifo", scarce, NEVER, AGENTS[1]
    )
    clearly = [
        key
        for key in results
        if key[4] == AGENTS[1] and results.gain(key, (*key[:4], AGENTS[0]), 0.999).high < 0
    ]
    behind = len(clearly)
    compared = sum(key[4] == AGENTS[1] for key in results)
    first = ", ".join(f"{share:.0%} on {one}" for one, share in lost.items())
    return (
        f"Where the engine can index {float(scarce):.0%} of what is published, first in, first "
        f"out, the plain Whittle index earns of what whittle-engine does: {first}. On {fleet} "
        f"refusing items worth less than κ* multiplies the reward of whittle-engine by "
        f"{refusing:.2f}. It is clearly behind the plain index in {behind} of {compared} cases."
    )


def picture(results: Results) -> Any:
    cases = list(dict.fromkeys((key[0], key[1], key[3]) for key in results))
    figure, axes = plots.new(1, len(cases), width=2.7 * len(cases), height=3.2, sharey=True,
                             squeeze=False)  # fmt: skip
    for axis, (fleet, discipline, threshold) in zip(axes[0], cases, strict=True):
        shares = results.values(2)
        for i, agent in enumerate(AGENTS):
            level = [
                _mean(results, fleet, discipline, share, threshold, agent)
                / results.bound(fleet, discipline, share, threshold, AGENTS[0])
                for share in shares
            ]
            axis.plot([float(s) for s in shares], level, label=agent, **plots.style(agent, i))
        axis.set_xscale("log")
        axis.set_title(f"{fleet}, {discipline},\nrefused: {threshold}", fontsize=8)
        axis.set_xlabel("service / items published")
    axes[0][0].set_ylabel("of the bound")
    axes[0][0].legend(fontsize=6)
    return figure
