"""What the parts of the in-context agent contribute: networks that are trained without them."""

from __future__ import annotations

from typing import Any

from ephemeral_crawl.core.evaluation import plain
from ephemeral_crawl.core.runner import Job
from experiments.adaptive.entrants import FLOOR, IN_CONTEXT, REFERENCE, entrant, named
from experiments.adaptive.runs import RUN, job, played, relative, score
from experiments.core.data import Column, Data, Table

WORLDS = 100  # in every round of a training; the weights of the package are of 250
VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no context of the fleet": {"without": "context"},
    "no memories that fade": {"without": "memory"},
    "no derived inputs": {"without": "derived"},
    "no second round (DAgger)": {"rounds": 1},
    "the mean alone, no quantile": {"optimism": 0.0},
    "no growth with the age": {"growth": 0.0},
}
OBSERVED = {"harvest": "utility alone", "sums": "sums over the items", "told": "told μ and ξ̄"}


def jobs(study: Any) -> list[Job]:
    """Return a job for each network, kind of fleet and observation of a crawl."""
    size = study.size
    worlds = {"worlds": 2, "epochs": 1} if size.quick else {"worlds": WORLDS}
    fleets = {
        "sparse": ("drawn-sparse-100", ("poisson", {})),
        "sparse, drift": ("drawn-sparse-100", ("drift", {"sigma": 0.1, "reversion": 0.01})),
    }
    return [
        job(
            case,
            candidate,
            {"sources": sources, "budget": 10, "observed": False},
            size.steps,
            size.seeds,
            size.seed,
            arrivals,
        )
        for candidate in (
            entrant(REFERENCE),
            entrant(FLOOR),
            *(
                named(f"{words}: {of}",
                      entrant(IN_CONTEXT, brought=brought, training={**worlds, **settings}))
                for words, settings in VARIANTS.items()
                for brought, of in OBSERVED.items()
            ),
        )
        for case, (sources, arrivals) in fleets.items()
    ]  # fmt: skip


def claim(data: Data) -> str:
    """Return the loss without the part that matters most."""
    case = data.values("case", **RUN)[0]

    def of(words: str) -> float:
        entrants = [f"{words}: {observed}" for observed in OBSERVED.values()]
        estimates = [score()(data, {"case": case, "entrant": name, **RUN}) for name in entrants]
        return sum(estimate.mean for estimate in estimates) / len(estimates)

    whole, *parts = VARIANTS
    worst = min(parts, key=of)
    return (
        f"of the parts of in-context, the network with {worst} loses most: its mean score is "
        f"{of(worst):.3f}, where the whole has {of(whole):.3f} ({case})"
    )


PART = played(
    jobs=jobs,
    heading="Parts of the in-context agent",
    content=(
        "Random sparse fleets of 100, ten crawls per step. Networks of in-context are trained "
        f"without one of its parts each, on {WORLDS} worlds a round (the weights of the package: "
        "250). Score: 0 is random, 1 is whittle with all parameters.",
        Table(
            "{case}",
            {"entrant": "without, and observation of a crawl"},
            (
                Column("relative to whittle", relative()),
                Column("score", score(), plain),
            ),
            each=("case",),
            where=RUN,
        ),
    ),
    claim=claim,
)
