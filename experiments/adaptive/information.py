"""Comparison of observations of a crawl: number of new items, whether there were any, utility."""

from __future__ import annotations

from typing import Any

import numpy as np

from ephemeral_crawl.core.evaluation import plain
from ephemeral_crawl.core.runner import Job
from experiments.adaptive.entrants import (
    FLOOR,
    IN_CONTEXT,
    REFERENCE,
    THOMPSON,
    TUNING,
    entrant,
    named,
)
from experiments.adaptive.runs import (
    COLLECTED,
    EXPECTED,
    RUN,
    job,
    played,
    relative,
    score,
)
from experiments.core.data import Case, Cell, Column, Data, Table

ENTRANTS = [
    entrant(REFERENCE),
    entrant(FLOOR),
    *(
        named(f"thompson: {words}", entrant(THOMPSON, estimator, brought))
        for brought, words, estimator in (
            ("items", "number of new items", "gamma-poisson"),
            ("changed", "whether anything was new", "changed"),
            ("harvest", "utility alone", "gamma-poisson"),
        )
    ),
    *(
        named(f"self-tuning: {words}", entrant(TUNING, estimator, brought))
        for brought, words, estimator in (
            ("sums", "sums over the items", None),
            ("items", "number and utility", None),
            ("harvest", "utility alone", None),
            ("sums", "sums over the items, keeps all", "gamma-poisson"),
        )
    ),
    *(
        named(f"in-context: {words}", entrant(IN_CONTEXT, brought=brought))
        for brought, words in (
            ("sums", "sums over the items"),
            ("items", "number and utility"),
            ("harvest", "utility alone"),
            ("told", "number, told μ and ξ̄"),
        )
    ),
]


def jobs(study: Any) -> list[Job]:
    """Return a job for each kind of fleet and entrant."""
    size = study.size
    return [
        job(
            f"{regime}, {'observed' if observed else 'not observed'}",
            candidate,
            {"sources": f"drawn-{regime}-100", "budget": 10, "observed": observed},
            size.steps,
            size.seeds,
            size.seed,
        )
        for observed in (False, True)
        for regime in ("dense", "sparse")
        for candidate in ENTRANTS
    ]


def _by_case(cell: Any) -> Cell:
    """Return a cell of expected rewards, or of those collected where content is observed."""

    def of_case(data: Data, case: Case) -> Any:
        is_expected = np.isfinite(data.numbers(EXPECTED, **case)).all()
        return cell(column=EXPECTED if is_expected else COLLECTED)(data, case)

    return of_case


def claim(data: Data) -> str:
    """Return what knowing the number of new items is worth."""
    case = data.values("case", **RUN)[0]
    shares = ", ".join(
        f"{100 * _by_case(relative)(data, row).mean:.1f} % from "
        f"{row['entrant'].removeprefix('thompson: ')}"
        for row in data.cases("entrant", **RUN, case=case)
        if row["entrant"].startswith("thompson: ")
    )
    return f"thompson collects {shares} of a crawl ({case}; whittle = 100 %)"


PART = played(
    jobs=jobs,
    heading="Observations of a crawl",
    content=(
        "Random fleets of 100, ten crawls per step. Thompson is given the mean utility and the "
        "decay rate of each source and learns the arrival rates: from the number of new items, "
        "from whether there were any, or from their total utility. Self-tuning is given neither. "
        "Where sources publish much, nearly every crawl finds something new, which is hardly "
        "informative. In-context infers both by a network trained beforehand on simulated worlds. "
        "Score: 0 is random, 1 is whittle. “Observed”: uncollected utility is "
        "observed before crawling, also by whittle.",
        Table(
            "{case}",
            {"entrant": "entrant and observation of a crawl"},
            (
                Column("second half, relative to whittle", _by_case(relative)),
                Column("score", _by_case(score), plain),
            ),
            each=("case",),
            where=RUN,
        ),
    ),
    claim=claim,
)
