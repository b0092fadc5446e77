"""Abandonment: how often good sources are never crawled again, by policy."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.evaluation.statistics import Estimate
from ephemeral_crawl.core.runner import Job, Result
from experiments.adaptive import runs
from experiments.adaptive.entrants import (
    CERTAINTY,
    LOW,
    OPTIMISM,
    REFERENCE,
    THOMPSON,
    TUNING,
    WEAK,
    entrant,
    named,
)
from experiments.adaptive.runs import RUN, Rows, crawls_of, job, played, relative, rows_of
from experiments.core.data import Case, Cell, Column, Data, Table

# Rounds in which Whittle crawls such a source at least once; a round crawls N.
ROUNDS = {"good": 2, "fair": 5}
_FEWEST = 2  # crawls in the last quarter, however short it is
SURE = 0.999  # confidence
_BATCH = 50  # runs of a job
RUNS = 25  # times as many as of regret, to tell fractions below 1 % from 1 %

_SPARSE_LOW = (0.5, 100.0)  # .005 a step, as sure as a hundred steps of crawling make


class Fleet(NamedTuple):
    """A fleet, the prior of the entrants, and the steps of a full run."""

    sources: str
    budget: int
    prior: tuple[float, float]
    steps: int


CASES = {
    "Table 1, M = 1": Fleet("table1", 1, WEAK, 200),
    "Table 1, M = 2": Fleet("table1", 2, WEAK, 200),
    "sparse fleets, weak prior": Fleet("drawn-sparse-100", 10, WEAK, 4000),
    "sparse fleets, low prior": Fleet("drawn-sparse-100", 10, _SPARSE_LOW, 4000),
    "dense fleets, weak prior": Fleet("drawn-dense-100", 10, WEAK, 2000),
    "dense fleets, low prior": Fleet("drawn-dense-100", 10, LOW, 2000),
}


def jobs(study: Any) -> list[Job]:
    """Return the jobs of each case and entrant, for some runs each."""
    size = study.size
    number = 5 * size.seeds if size.quick else RUNS * size.seeds
    return [
        job(
            case,
            candidate,
            {
                "sources": fleet.sources,
                "budget": fleet.budget,
                # Where the fleet is the same in all runs, the ages at which they begin are not.
                "start": "random" if fleet.sources == "table1" else "fresh",
            },
            steps,
            min(_BATCH, number - first),
            size.seed + first,
            marks=sorted({max(1, steps // 2), steps}),
        )
        for case, fleet in CASES.items()
        for steps in [min(fleet.steps, 2 * size.steps)]  # twice those of regret at most
        for candidate in entrants(fleet.prior)
        for first in range(0, number, _BATCH)
    ]


def entrants(prior: tuple[float, float]) -> list[dict[str, Any]]:
    """Return Whittle and the adaptive agents with one prior."""
    agents: tuple[tuple[str, str, dict[str, Any]], ...] = (
("certainty", CERTAINTY, {}), ("optimism .999", OPTIMISM, {"confidence": SURE}),
              ("thompson", THOMPSON, {}))  # fmt: skip
    return [
        entrant(REFERENCE),
        *(
            named(f"{name}{words}", entrant(agent, estimator, prior=prior, **own))
            for words, estimator in (("", None), (", fleet prior", "fleet-prior"))
            for name, agent, own in agents
        ),
        named("self-tuning", entrant(TUNING, "forgetting", prior=prior)),
    ]


def crawled_often(
    crawls: NDArray[Any], steps: int, budget: float, rounds: float
) -> NDArray[np.bool_]:
    """Return the sources that the Whittle policy crawls at least once in so many rounds of N/M
    steps, (S, N), in the last quarter.

    Arguments:
        crawls: its crawls of each source in the last quarter of the steps, (S, N).
    """
    quarter = max(1.0, steps // 4)
    least = max(_FEWEST, quarter * budget / crawls.shape[-1] / rounds)
    return np.asarray(crawls >= least)


def counted(todo: Sequence[Job], results: Sequence[Result]) -> Rows:
    """Return the rows of the runs, with the number of good and of fair sources, and of those of
    them that were not crawled in the last quarter."""
    crawls, of = crawls_of(todo, results), {job["case"]: job for job in todo}
    rows = rows_of(todo, results)
    for row in rows:
        case, run = row["case"], row["run"]
        best, mine = crawls[case, REFERENCE][run], crawls[case, row["entrant"]][run]
        for name, rounds in ROUNDS.items():
            which = crawled_often(best, row["steps"], of[case]["arguments"]["budget"], rounds)
            row[name] = int(which.sum())
            row[f"{name}_given_up"] = int((which & (mine == 0)).sum())
    return rows


def tables(todo: Sequence[Job], results: Sequence[Result]) -> dict[str, Rows]:
    """Return the rows of the runs, with the sources given up, and of the curves."""
    return {**runs.tables(todo, results), runs.RUNS: counted(todo, results)}


def binomial(events: int, runs: int) -> Estimate:
    """Return a probability with its 95 % Wilson interval.

    >>> binomial(0, 400).high < 0.01
    True
    """
    z = NormalDist().inv_cdf(0.975)
    p, tail = events / runs, z * z / runs
    middle = (p + tail / 2) / (1 + tail)
    half = z * np.sqrt(p * (1 - p) / runs + tail / (4 * runs)) / (1 + tail)
    low = 0.0 if events == 0 else middle - half
    high = 1.0 if events == runs else middle + half
    return Estimate(p, float(low), float(high))


def given_up(kind: str) -> Cell:
    """Return the cell of the fraction of runs in which some source of a kind is given up."""

    def cell(data: Data, case: Case) -> Estimate:
        counts = data.numbers(f"{kind}_given_up", **case)
        return binomial(int((counts > 0).sum()), counts.size)

    return cell


def _certainty(data: Data, case: str) -> Estimate:
    estimate: Estimate = given_up("good")(data, {**RUN, "case": case, "entrant": "certainty"})
    return estimate


def claim(data: Data) -> str:
    """Return how often planning with the estimates alone gives good sources up."""
    case = max(data.values("case", **RUN), key=lambda name: _certainty(data, name).mean)
    shares = ", ".join(
        f"{name} {given_up('good')(data, {**RUN, 'case': case, 'entrant': name}).mean:.1%}"
        for name in ("certainty", "thompson")
    )
    return f"runs in which a good source is never crawled again ({case}): {shares}"


PART = played(
    jobs=jobs,
    heading="Good sources given up for ever",
    content=(
        "A crawler that plans with its estimates can come to underestimate a source, never crawl "
        "it again, and so never correct the estimate. Counted: runs in which some good source is "
        "not crawled once in the last quarter. Good: whittle, which knows the rates, crawls it "
        f"there at least once in {ROUNDS['good']} rounds (a round is N/M steps); fair: in "
        f"{ROUNDS['fair']} rounds, which includes sources that are hardly worth a crawl. The weak "
        "prior has a mean of 50 items per step and is outweighed by one crawl; the means of the "
        "low priors are below the rates of most sources. “Fleet prior”: begins with the same prior "
        "and fits it to the whole fleet. Self-tuning also learns mean utilities. Intervals: 95 %, "
        "Wilson.",
        Table(
            "{case}",
            {"entrant": "agent"},
            (
                Column("runs that give a good one up", given_up("good")),
                Column("runs, fair ones", given_up("fair")),
                Column("second half, relative to whittle", relative()),
            ),
            each=("case",),
            where=RUN,
        ),
    ),
    claim=claim,
    tables=tables,
)
