"""Fleets of which only some sources announce changes, or are observed."""

from __future__ import annotations

from typing import Any

import numpy as np

from crawl_env import Task
from ephemeral_crawl.core.evaluation import arguments_of
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job
from ephemeral_crawl.core.study import Rows
from ephemeral_crawl.core.tables import fraction, percent
from experiments.parts import Size
from experiments.signals.fleets import tasks
from experiments.signals.runs import Results, job, records, signals, work

__all__ = ["PART", "finding", "jobs", "records", "work", "write"]

PART = "mixed"
RECALL, PRECISION = 0.5, 0.8
NONE, ALL, MOST, LEAST = "none", "all", "the largest quarter", "the smallest three quarters"
THIRDS = "a third each: not observed, signals, observed"
_KEY = ("fleet", "budget", "signalled")


def jobs(size: Size) -> list[Job]:
    return [
        job(
            PART,
            f"{fleet}, M = {budget}",
            "whittle",
            {"sources": sources, "budget": budget, **arguments},
            size,
            fleet=fleet,
            signalled=name,
        )
        for fleet, sources, budget in tasks(size)
        for name, arguments in _mixtures(sources)
    ]


def _mixtures(sources: str) -> list[tuple[str, dict[str, Any]]]:
    """Return arguments of the environment by name: which sources have signals or are observed."""
    fleet = Task(**arguments_of({"arguments": {"sources": sources}})).sources
    n = len(fleet)
    rank = np.argsort(np.argsort(-fleet.arrival_rate * fleet.mean_utility, kind="stable"))
    largest, third = rank < -(-n // 4), rank % 3

    def where(signalled: np.ndarray) -> dict[str, Any]:
        return {"signals": {**signals(0.0, PRECISION), "recall": (RECALL * signalled).tolist()}}

    return [
        (NONE, {}),
        (LEAST, where(~largest)),
        (MOST, where(largest)),
        (ALL, where(np.ones(n))),
        (THIRDS, {**where(third == 1), "observed": (third == 2).tolist()}),
    ]


def write(report: Report, rows: Rows) -> None:
    results = Results(rows, *_KEY)
    report.heading("Some sources with signals")
    report.paragraph(
        f"Signals of recall {RECALL:g} and precision {PRECISION:g} at the quarter of the sources "
        "that publish the most utility per step, at the others, or at all; and fleets in which "
        "every third source, in the order of that utility, has signals, every third is observed, "
        "and the rest is not observed. Share of all utility; gain over no signals; reward as a "
        "fraction of the bound for policies with the same observations."
    )
    names = results.values(2)
    table = [
        [f"{fleet}, M = {budget}", *(_cell(results, fleet, budget, name) for name in names)]
        for fleet, budget in dict.fromkeys((key[0], key[1]) for key in results)
    ]
    report.table(
        "Share of all utility (gain), by the sources with signals", ["task", *names], table
    )
    table = [
        [
            f"{fleet}, M = {budget}",
            percent(fraction(results.share(*key), results.bound(*key))),
            results.rows(*key)[0]["information"],
        ]
        for fleet, budget in dict.fromkeys((key[0], key[1]) for key in results)
        for key in [(fleet, budget, THIRDS)]
    ]
    report.table(f"Mixed fleets: {THIRDS}", ["task", "of the bound", "information set"], table)


def _cell(results: Results, fleet: str, budget: str, name: str) -> str:
    key = fleet, budget, name
    gain = results.gain(key, (fleet, budget, NONE)).mean
    return f"{results.share(*key).mean():.1%} ({gain:+.1%})"


def finding(rows: Rows) -> str:
    results = Results(rows, *_KEY)
    fleet, budget, _ = next(iter(results))
    none, most, everywhere = (
        results.share(fleet, budget, name).mean() for name in (NONE, MOST, ALL)
    )
    return (
        f"on {fleet} with M = {budget}, signals of recall {RECALL:g} and precision {PRECISION:g} "
        f"at {MOST} of the sources raise the share of all utility collected from {none:.0%} to "
        f"{most:.0%}, and at all of them to {everywhere:.0%}"
    )
