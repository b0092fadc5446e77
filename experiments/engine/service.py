"""Policies as the service of the engine falls from ample to scarce, with and without refusing."""

from __future__ import annotations

from typing import Any

from agents.evaluation.statistics import Estimate
from agents.theory.engine.relaxation import engine_relaxation
from crawl_env import Task
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.evaluation import arguments_of
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job
from ephemeral_crawl.core.study import Rows
from ephemeral_crawl.core.tables import fraction, percent
from experiments.parts import Size
from experiments.signals.runs import Results, job, records, work

__all__ = ["PART", "finding", "jobs", "records", "work", "write"]

PART = "service"
# By name: the argument `sources` and the crawls per step.
FLEETS = {"fleet F": ("fleet-f", 5), "sparse": ("random-sparse-50-0", 3)}
SERVICE = (3.0, 1.0, 0.5, 0.2)  # of the items published
PLAIN, OURS = "whittle", "whittle-engine"
AGENTS = (PLAIN, OURS, "myopic", "static", "fixed", "oldest-first")
DISCIPLINES = ("fifo", "value")
NEVER, STALE = "none", "the price κ*"
_KEY = ("fleet", "discipline", "service", "threshold", "agent")
_BUFFER = 5  # steps of service that can wait
_SURE = 0.999  # level of the intervals that say which policy is clearly behind, of many


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
                            steps=size.steps,
                            bound=agent == AGENTS[0],
                        )
                        for agent in AGENTS
                    ]
    return found


def write(report: Report, rows: Rows) -> None:
    results = Results(rows, *_KEY)
    runs = len(results.rows(*next(iter(results))))
    steps = next(iter(rows)).get("steps", "")
    report.heading("Service from ample to scarce")
    report.paragraph(
        "Fleet F: 25 sources of five kinds, M = 5; sparse: 50 sources of .003 to .3 items per "
        "step, M = 3. Arrivals are Poisson, utilities exponential, nothing is known of content "
        "before a crawl. The engine indexes a Poisson number of items per step, whose mean is the "
        f"given multiple of what is published, and {_BUFFER} steps of its service can wait. "
        f"{runs} runs of {steps} steps, on the same arrivals for all policies; 95 % intervals "
        "(Student's t over the runs). Refused: items worth less than κ* of the relaxation when "
        "they are collected."
    )
    report.figure(
        picture(results),
        "Reward as a fraction of the relaxed bound of two budgets, which holds for every order and "
        "threshold; bars are the 95 % intervals.",
        PART,
    )
    for fleet, discipline, threshold in _cases(results):
        report.table(
            f"Fraction of the bound: {fleet}, {discipline}, refused below {threshold}",
            ["service", *AGENTS],
            [
                [
                    f"{float(share):g}",
                    *(percent(_level(results, fleet, discipline, share, threshold, agent))
                      for agent in AGENTS),
                ]
                for share in results.values(2)
            ],
        )  # fmt: skip
    report.table(
        "Gain of whittle-engine over the others, on the same arrivals",
        ["fleet", "discipline", "refused below", "service", *(a for a in AGENTS if a != OURS)],
        [
            [fleet, discipline, threshold, f"{float(share):g}"]
            + [
                percent(
                    results.gain(
                        (fleet, discipline, share, threshold, OURS),
                        (fleet, discipline, share, threshold, agent),
                    )
                )
                for agent in AGENTS
                if agent != OURS
            ]
            for fleet, discipline, threshold in _cases(results)
            for share in results.values(2)
        ],
    )
    report.table(
        "Gain by refusing items worth less than κ*, first in, first out",
        ["fleet", "service", *AGENTS],
        [
            [fleet, f"{float(share):g}"]
            + [percent(_refusing(results, fleet, share, agent)) for agent in AGENTS]
            for fleet in results.values(0)
            for share in results.values(2)
        ],
    )


def _cases(results: Results) -> list[tuple[str, str, str]]:
    return list(dict.fromkeys((key[0], key[1], key[3]) for key in results))


def _level(results: Results, *key: str) -> Estimate:
    return fraction(results.share(*key), results.bound(*key[:-1], AGENTS[0]))


def _refusing(results: Results, fleet: str, share: str, agent: str) -> Estimate:
    return results.gain((fleet, "fifo", share, STALE, agent), (fleet, "fifo", share, NEVER, agent))


def finding(rows: Rows) -> str:
    results = Results(rows, *_KEY)
    fleet, scarce = results.values(0)[0], results.values(2)[-1]
    gains = {
        one: results.gain((one, "fifo", scarce, NEVER, OURS), (one, "fifo", scarce, NEVER, PLAIN))
        for one in results.values(0)
    }
    ours = [key for key in results if key[4] == OURS]
    behind = {
        agent: sum(results.gain(key, (*key[:4], agent), _SURE).high < 0 for key in ours)
        for agent in AGENTS
        if agent != OURS
    }
    listed = ", ".join(f"{agent} in {n}" for agent, n in behind.items())
    plain, own = (percent(_refusing(results, fleet, scarce, agent)) for agent in (PLAIN, OURS))
    first = ", ".join(f"{percent(gain)} on {one}" for one, gain in gains.items())
    return (
        f"Where the engine can index {float(scarce):.0%} of what is published, first in, first "
        f"out, whittle-engine gains over the plain Whittle index: {first}. On {fleet} refusing "
        f"items worth less than κ* brings whittle {plain} more, and whittle-engine {own}. Of "
        f"{len(ours)} cases whittle-engine is clearly ({_SURE:.1%}) behind {listed}."
    )


def picture(results: Results) -> Any:
    fleets, shares = results.values(0), results.values(2)
    kinds = list(dict.fromkeys(case[1:] for case in _cases(results)))
    figure, axes = plots.new(
        len(fleets), len(kinds), width=4.2 * len(kinds), height=3.4, sharey=True, sharex=True,
        squeeze=False,
    )  # fmt: skip
    for row, fleet in zip(axes, fleets, strict=True):
        for axis, (discipline, threshold) in zip(row, kinds, strict=True):
            for i, agent in enumerate(AGENTS):
                levels = [
                    _level(results, fleet, discipline, share, threshold, agent) for share in shares
                ]
                axis.errorbar(
                    [float(share) for share in shares],
                    [level.mean for level in levels],
                    [[level.mean - level.low for level in levels],
                     [level.high - level.mean for level in levels]],
                    label=agent, ms=5, lw=2.2 if agent == OURS else 1.2, capsize=2,
                    zorder=3 if agent == OURS else 2, **plots.style(agent, i),
                )  # fmt: skip
            refused = "" if threshold == NEVER else ", items below κ* refused"
            axis.set_title(f"{fleet}: {discipline}{refused}", fontsize=10)
            axis.set_xscale("log")
            axis.set_xticks([float(share) for share in shares], [f"{float(s):g}" for s in shares])
            axis.minorticks_off()
            axis.set_ylim(0, None)
        row[0].set_ylabel("fraction of the bound")
    for axis in axes[-1]:
        axis.set_xlabel("service / items published")
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=len(AGENTS)
    )
    return figure
