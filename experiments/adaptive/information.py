"""What a crawler has to be told: how much was new, whether anything was, what it was worth."""

from __future__ import annotations

import numpy as np

from agents import statistics
from agents.statistics import Estimate
from experiments.adaptive.players import FLOOR, REFERENCE, THOMPSON, TUNING, named, player
from experiments.adaptive.runs import Found, unit
from experiments.adaptive.sizes import Size
from experiments.report import Report
from experiments.runner import Unit
from experiments.tables import percent, plain

PART = "information"
TOLD = {
    "items": "number of new items",
    "changed": "whether anything was new",
    "harvest": "utility alone",
}
PLAYERS = [
    player(REFERENCE),
    player(FLOOR),
    *(
        named(f"thompson: {words}", player(THOMPSON, estimator, brought))
        for (brought, words), estimator in zip(
            TOLD.items(), ("gamma-poisson", "changed", "gamma-poisson"), strict=True
        )
    ),
    *(
        named(f"self-tuning: {words}", player(TUNING, brought=brought))
        for brought, words in (
            ("sums", "sums over the items"),
            ("items", "number and utility"),
            ("harvest", TOLD["harvest"]),
        )
    ),
    named(
        "self-tuning: sums over the items, keeps all",
        player(TUNING, "gamma-poisson", "sums"),
    ),
]


def units(size: Size) -> list[Unit]:
    return [
        unit(
            PART,
            f"{regime}, {'seen' if observed else 'not seen'}",
            chosen,
            {"sources": f"drawn-{regime}-100", "budget": 10, "observed": observed},
            size.epochs,
            size.seeds,
            size.seed,
            itemised=True,
        )
        for observed in (False, True)
        for regime in ("dense", "sparse")
        for chosen in PLAYERS
    ]


def share(found: Found, case: str, name: str) -> tuple[Estimate, Estimate]:
    """Return the share of what Whittle collects in the first and the second half.

    As expected where content is not seen, as collected where it is.
    """
    pair = [found[case, player] for player in (name, REFERENCE)]
    expected = not np.isnan(pair[0].expected).any()
    late = [run.second_half(expected) for run in pair]
    whole = [(run.expected if expected else run.reward)[:, -1] for run in pair]
    early = [total - half for total, half in zip(whole, late, strict=True)]
    first, second = (statistics.ratio(*half) for half in (early, late))
    return first, second


def score(found: Found, case: str, name: str) -> Estimate:
    """Return a player's score in the second half: 0 a random choice, 1 Whittle."""
    runs = [found[case, player] for player in (name, FLOOR, REFERENCE)]
    expected = not np.isnan(runs[0].expected).any()
    return statistics.score(*(run.second_half(expected) for run in runs))


def write(report: Report, found: Found) -> None:
    report.heading("What a crawler needs to be told")
    report.paragraph(
        "Random fleets of 100, ten crawls an epoch. Thompson knows what items of each source are "
        "worth and how long they last, and learns how many come: from their number, from whether "
        "a crawl brought any, or from what it brought together. Self-tuning knows none of it. "
        "Where sources publish much, nearly every crawl finds something new, and that tells next "
        "to nothing. Score: 0 is a random choice, 1 whittle. “Seen”: what waits is visible before "
        "crawling, to whittle also."
    )
    for case in found.cases:
        rows = [
            [name, *map(percent, share(found, case, name)), plain(score(found, case, name))]
            for name in found.players(case)
            if name != REFERENCE
        ]
        columns = [
            "player and what it is told",
            "first half, share of whittle",
            "second half",
            "score",
        ]
        report.table(case, columns, rows)
