"""Comparison of observations of a crawl: number of new items, whether there were any, utility."""

from __future__ import annotations

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.statistics import Estimate
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job
from ephemeral_crawl.core.tables import percent, plain
from experiments.adaptive.entrants import FLOOR, REFERENCE, THOMPSON, TUNING, entrant, named
from experiments.adaptive.runs import Found, Size, job

PART = "information"
TOLD = {
    "items": "number of new items",
    "changed": "whether anything was new",
    "harvest": "utility alone",
}
ENTRANTS = [
    entrant(REFERENCE),
    entrant(FLOOR),
    *(
        named(f"thompson: {words}", entrant(THOMPSON, estimator, brought))
        for (brought, words), estimator in zip(
            TOLD.items(), ("gamma-poisson", "changed", "gamma-poisson"), strict=True
        )
    ),
    *(
        named(f"self-tuning: {words}", entrant(TUNING, brought=brought))
        for brought, words in (
            ("sums", "sums over the items"),
            ("items", "number and utility"),
            ("harvest", TOLD["harvest"]),
        )
    ),
    named(
        "self-tuning: sums over the items, keeps all",
        entrant(TUNING, "gamma-poisson", "sums"),
    ),
]


def jobs(size: Size) -> list[Job]:
    return [
        job(
            PART,
            f"{regime}, {'observed' if observed else 'not observed'}",
            chosen,
            {"sources": f"drawn-{regime}-100", "budget": 10, "observed": observed},
            size.steps,
            size.seeds,
            size.seed,
        )
        for observed in (False, True)
        for regime in ("dense", "sparse")
        for chosen in ENTRANTS
    ]


def finding(found: Found) -> str:
    """Return what knowing the number of new items is worth, in half a sentence."""
    case = found.cases[0]
    shares = [
        f"{100 * found.relative(case, name, REFERENCE, _expected(found, case)).mean:.1f} % from "
        f"{name.removeprefix('thompson: ')}"
        for name in found.entrants(case)
        if name.startswith("thompson: ")
    ]
    return f"thompson collects {', '.join(shares)} of a crawl ({case}; whittle = 100 %)"


def first_half(found: Found, case: str, name: str) -> Estimate:
    """Return the reward of the first half relative to Whittle's."""
    expected, early = _expected(found, case), []
    for who in (name, REFERENCE):
        run = found[case, who]
        total = run.expected if expected else run.reward
        early.append(total[:, run.until(int(run.marks[-1]) // 2)])
    return statistics.ratio(*early)


def _expected(found: Found, case: str) -> bool:
    """Return whether expected rewards are measured: where content is not observed."""
    return not np.isnan(found[case, REFERENCE].expected).any()


def write(report: Report, found: Found) -> None:
    report.heading("Observations of a crawl")
    report.paragraph(
        "Random fleets of 100, ten crawls per step. Thompson is given the mean utility and the "
        "decay rate of each source and learns the arrival rates: from the number of new items, "
        "from whether there were any, or from their total utility. Self-tuning is given neither. "
        "Where sources publish much, nearly every crawl finds something new, which is hardly "
        "informative. Score: 0 is random, 1 is whittle. “Observed”: uncollected utility is "
        "observed before crawling, also by whittle."
    )
    for case in found.cases:
        rows = [
            [
                name,
                percent(first_half(found, case, name)),
                percent(found.relative(case, name, REFERENCE, _expected(found, case))),
                plain(found.score(case, name, REFERENCE, _expected(found, case))),
            ]
            for name in found.entrants(case)
            if name != REFERENCE
        ]
        columns = [
            "entrant and observation of a crawl",
            "first half, relative to whittle",
            "second half",
            "score",
        ]
        report.table(case, columns, rows)
