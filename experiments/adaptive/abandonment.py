"""Abandonment: how often good sources are never crawled again, by policy."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.evaluation.statistics import Estimate
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job
from ephemeral_crawl.core.tables import percent
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
from experiments.adaptive.runs import Found, Run, Size, job

PART = "abandonment"
GOOD, FAIR = 2, 5  # rounds in which Whittle crawls such a source at least once; a round crawls N
_FEWEST = 2  # crawls in the last quarter, however short it is
SURE = 0.999  # confidence
_BATCH = 50  # runs of a job

_SPARSE_LOW = (0.5, 100.0)  # .005 a step, as sure as a hundred steps of crawling make


class Case(NamedTuple):
    name: str
    sources: str
    budget: int
    prior: tuple[float, float]
    steps: int  # of a full run

    @property
    def start(self) -> str:
        """Where the fleet is the same in all runs, the ages at which they begin are not."""
        return "random" if self.sources == "table1" else "fresh"


CASES = (
    Case("Table 1, M = 1", "table1", 1, WEAK, 200),
    Case("Table 1, M = 2", "table1", 2, WEAK, 200),
    Case("sparse fleets, weak prior", "drawn-sparse-100", 10, WEAK, 4000),
    Case("sparse fleets, low prior", "drawn-sparse-100", 10, _SPARSE_LOW, 4000),
    Case("dense fleets, weak prior", "drawn-dense-100", 10, WEAK, 2000),
    Case("dense fleets, low prior", "drawn-dense-100", 10, LOW, 2000),
)
RUNS = 25  # times as many as of regret, to tell fractions below 1 % from 1 %


def jobs(size: Size) -> list[Job]:
    runs = 5 * size.seeds if size.quick else RUNS * size.seeds
    return [
        job(
            PART,
            case.name,
            chosen,
            {"sources": case.sources, "budget": case.budget, "start": case.start},
            _steps(case, size),
            min(_BATCH, runs - first),
            size.seed + first,
            marks=_marks(_steps(case, size)),
        )
        for case in CASES
        for chosen in entrants(case.prior)
        for first in range(0, runs, _BATCH)
    ]


def _steps(case: Case, size: Size) -> int:
    """Return how long the runs of a case are: twice those of regret at most."""
    return min(case.steps, 2 * size.steps)


def _marks(steps: int) -> list[int]:
    return sorted({max(1, steps // 2), steps})


def entrants(prior: tuple[float, float]) -> list[dict[str, Any]]:
    """Return Whittle and the adaptive agents with one prior."""
    return [
        entrant(REFERENCE),
        named("certainty", entrant(CERTAINTY, prior=prior)),
        named("optimism .999", entrant(OPTIMISM, prior=prior, confidence=SURE)),
        named("thompson", entrant(THOMPSON, prior=prior)),
        named("certainty, fleet prior", entrant(CERTAINTY, "fleet-prior", prior=prior)),
        named(
            "optimism .999, fleet prior",
            entrant(OPTIMISM, "fleet-prior", prior=prior, confidence=SURE),
        ),
        named("thompson, fleet prior", entrant(THOMPSON, "fleet-prior", prior=prior)),
        named("self-tuning", entrant(TUNING, "forgetting", prior=prior)),
    ]


def crawled_often(reference: Run, budget: float, rounds: float) -> NDArray[np.bool_]:
    """Return the sources that the Whittle policy crawls at least once in so many rounds of N/M
    steps, (S, N), in the last quarter."""
    n = reference.crawls.shape[-1]
    quarter = max(1.0, reference.marks[-1] // 4)
    return np.asarray(reference.crawls >= max(_FEWEST, quarter * budget / n / rounds))


def abandoned(which: NDArray[np.bool_], run: Run) -> NDArray[np.bool_]:
    """Return which of some sources were not crawled in the last quarter, (S, N)."""
    return np.asarray(which & (run.crawls == 0))


def binomial(happened: int, runs: int) -> Estimate:
    """Return a probability with its 95 % Wilson interval.

    >>> binomial(0, 400).high < 0.01
    True
    """
    z = NormalDist().inv_cdf(0.975)
    p, tail = happened / runs, z * z / runs
    middle = (p + tail / 2) / (1 + tail)
    half = z * np.sqrt(p * (1 - p) / runs + tail / (4 * runs)) / (1 + tail)
    low = 0.0 if happened == 0 else middle - half
    high = 1.0 if happened == runs else middle + half
    return Estimate(p, float(low), float(high))


class Abandoned(NamedTuple):
    good: Estimate  # fraction of runs in which some good source is given up
    fair: Estimate  # … some source that is good or fair
    sources: float  # fraction of the good sources that are


def of(found: Found, case: str, name: str) -> Abandoned:
    """Return how often an entrant gives sources up."""
    best, mine, budget = found[case, REFERENCE], found[case, name], found.budget(case)
    good, fair = (crawled_often(best, budget, rounds) for rounds in (GOOD, FAIR))
    lost, also = abandoned(good, mine), abandoned(fair, mine)
    runs, more = (binomial(int(x.any(axis=-1).sum()), len(x)) for x in (lost, also))
    return Abandoned(runs, more, float(lost.sum() / max(1, good.sum())))


def counts(found: Found, case: str, name: str) -> dict[str, NDArray[Any]]:
    """Return the number of good and of fair sources of each run, and of those given up, (S,)."""
    best, mine = found[case, REFERENCE], found[case, name]
    columns = {}
    for label, rounds in (("good", GOOD), ("fair", FAIR)):
        which = crawled_often(best, found.budget(case), rounds)
        columns[label] = which.sum(axis=-1)
        columns[f"{label}_given_up"] = abandoned(which, mine).sum(axis=-1)
    return columns


def write(report: Report, found: Found) -> None:
    report.heading("Good sources given up for ever")
    report.figure(
        picture(found), "Fraction of runs in which a good source is given up, 95 % intervals.", PART
    )
    report.paragraph(
        "A crawler that plans with its estimates can come to underestimate a source, never crawl "
        "it again, and so never correct the estimate. Counted: runs in which some good source is "
        "not crawled once in the last quarter. Good: whittle, which knows the rates, crawls it "
        f"there at least once in {GOOD} rounds (a round is N/M steps); fair: in {FAIR} rounds, "
        "which includes sources that are hardly worth a crawl. The weak prior has a mean of 50 "
        "items per step and is outweighed by one crawl; the means of the low priors are below the "
        "rates of most sources. “Fleet prior”: begins with the same prior and fits it to the whole "
        "fleet. Self-tuning also learns mean utilities. Intervals: 95 %, Wilson."
    )
    for case in found.cases:
        rows = []
        for name in found.entrants(case)[1:]:
            runs, fair, sources = of(found, case, name)
            reward = found.relative(case, name, REFERENCE)
            rows.append([name, percent(runs), f"{sources:.2%}", percent(fair), percent(reward)])
        columns = [
            "agent",
            "runs that give a good one up",
            "good ones given up",
            "runs, fair ones",
        ]
        report.table(
            f"{case}: {len(found[case, REFERENCE].reward)} runs of "
            f"{found[case, REFERENCE].marks[-1]:.0f} steps",
            [*columns, "second half, relative to whittle"],
            rows,
        )
    report.paragraph(verdict(found))


def finding(found: Found) -> str:
    """Return how often planning with the estimates alone gives good sources up, in half a
    sentence."""
    case = max(found.cases, key=lambda case: of(found, case, "certainty").good.mean)
    shares = [f"{name} {of(found, case, name).good.mean:.1%}" for name in ("certainty", "thompson")]
    return f"runs in which a good source is never crawled again ({case}): {', '.join(shares)}"


def verdict(found: Found) -> str:
    """Return sentences on where certainty abandons sources in more than 5 % of the runs, and which
    policies stay below 1 %."""
    said = []
    for case in found.cases:
        failing = of(found, case, "certainty").good
        if failing.low <= 0.05:
            continue
        others = {name: of(found, case, name) for name in found.entrants(case)[2:]}
        below = {
            "good ones": [name for name, lost in others.items() if lost.good.mean < 0.01],
            "good ones, with all of the interval": [
                name for name, lost in others.items() if lost.good.high < 0.01
            ],
            "fair ones": [name for name, lost in others.items() if lost.fair.mean < 0.01],
        }
        who = ". ".join(f"{words}: {'; '.join(x) or 'nobody'}" for words, x in below.items())
        said.append(
            f"{case}: certainty gives good sources up in {failing.mean:.0%} of the runs. Below 1 % "
            f"of them: {who}."
        )
    return " ".join(said) or "Certainty gives nothing up in more than 5 % of the runs."


def picture(found: Found) -> Any:
    cases = found.cases
    figure, axis = plots.new(1, 1, width=11, height=3.6)
    names = found.entrants(cases[0])[1:]
    for i, name in enumerate(names):
        shares = [of(found, case, name).good for case in cases]
        place = np.arange(len(cases)) + (i - len(names) / 2) * 0.1
        middle = np.array([100 * share.mean for share in shares])
        spread = [
            [100 * (s.mean - s.low) for s in shares],
            [100 * (s.high - s.mean) for s in shares],
        ]
        colour = plots.PALETTE[i % len(plots.PALETTE)]
        axis.errorbar(place, middle, yerr=spread, fmt="o", ms=4, color=colour, label=name)
    axis.axhline(1, color=plots.FAINT, lw=0.8, ls=":")
    axis.set_xticks(range(len(cases)), cases, size=8)
    axis.set_ylabel("runs, %")
    axis.legend(fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure
