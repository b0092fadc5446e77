"""The fleets of the study, and the budgets under which each is crawled."""

from __future__ import annotations

from experiments.parts import Size

# By name: the argument `sources` and the crawls per step.
FLEETS: dict[str, tuple[str, tuple[int, ...]]] = {
    "Hacker News": ("hacker-news", (2, 5, 10, 20)),
    "fleet F": ("fleet-f", (2, 5, 10)),
    "sparse": ("random-sparse-50-0", (1, 3, 10)),
    "dense": ("random-dense-50-0", (2, 5, 10)),
}

DESCRIPTION = (
    "Hacker News: 105 sites, hours, rates fitted to the recorded front page (preset "
    "`hacker-news`). Fleet F: 25 sources of five kinds. Sparse, dense: 50 sources of "
    "`Sources.random`, with .003 to .3 and .5 to 50 items per step and source. Arrivals are "
    "Poisson, utilities exponential, rates and the quality of the signals known."
)


def tasks(size: Size) -> list[tuple[str, str, int]]:
    """Return name, `sources` and budget of every task."""
    fleets = {"fleet F": FLEETS["fleet F"]} if size.quick else FLEETS
    return [
        (name, sources, budget)
        for name, (sources, budgets) in fleets.items()
        for budget in (budgets[:1] if size.quick else budgets)
    ]
