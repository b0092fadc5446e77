"""Rates that change: how much to forget, and how soon a crawler finds its way again."""

from __future__ import annotations

from typing import Any

import numpy as np

from agents.evaluation.statistics import Estimate
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job
from ephemeral_crawl.core.tables import percent, plain
from experiments.adaptive.entrants import (
    CLAIRVOYANT,
    FLOOR,
    REFERENCE,
    THOMPSON,
    entrant,
    named,
)
from experiments.adaptive.runs import Found, Size, job

PART = "drift"
N, M = 100, 10
BURSTS = "bursts"  # clusters of items at constant rates, which look like rates that change
OFF = (0.995, 0.95)  # of what is known, not among those that are chosen from
KEPT = (1.0, 0.999, 0.99, 0.97, 0.9)  # of what is known, over one step
LAWS: dict[str, tuple[str, dict[str, Any]]] = {
    "still": ("poisson", {}),
    "drift .03": ("drift", {"sigma": 0.03, "reversion": 0.01}),
    "drift .1": ("drift", {"sigma": 0.1, "reversion": 0.01}),
    "drift .2": ("drift", {"sigma": 0.2, "reversion": 0.01}),
    "jumps .002": ("jumps", {"rate": 0.002}),
    "jumps .02": ("jumps", {"rate": 0.02}),
    BURSTS: ("bursts", {"branching": 0.6}),
}
FROZEN, LEARNS = "whittle, mean rates", "thompson, learns what to keep"
ENTRANTS = [
    entrant(CLAIRVOYANT),
    entrant(FLOOR),
    named(FROZEN, entrant(REFERENCE)),
    *(named(f"thompson, keeps {kept:g}", entrant(THOMPSON, retention=kept)) for kept in KEPT),
    *(named(f"thompson, keeps {kept:g}", entrant(THOMPSON, retention=kept)) for kept in OFF),
    named("thompson, window 100", entrant(THOMPSON, "window", length=50.0)),
    named("thompson, cusum", entrant(THOMPSON, "drifting")),
    named(LEARNS, entrant(THOMPSON, "forgetting")),
]


def jobs(size: Size) -> list[Job]:
    laws = ("still", "drift .1", "jumps .02", BURSTS) if size.quick else tuple(LAWS)
    marks = sorted({size.steps // 2, size.steps})
    return [
        job(PART, f"{regime}, {law}", chosen, {"sources": f"drawn-{regime}-{N}", "budget": M},
             size.steps, size.seeds, size.seed, LAWS[law], marks)
        for regime in ("dense", "sparse")
        for law in laws
        for chosen in ENTRANTS
    ]  # fmt: skip


def share(found: Found, case: str, name: str) -> Estimate:
    """Return the reward of the second half relative to the clairvoyant's."""
    return found.relative(case, name, CLAIRVOYANT, _expected(case))


def _expected(case: str) -> bool:
    """Return whether what crawls bring is measured on average given the rates; of bursts, in which
    crawls depend on what is still to come, it is as collected."""
    return not case.endswith(BURSTS)


def write(report: Report, found: Found) -> None:
    report.heading("Rates that change")
    report.figure(
        picture(found),
        "Second half, relative to the clairvoyant, by the way in which rates change.",
        PART,
    )
    report.paragraph(
        f"Random fleets of {N}, {M} crawls per step, not observed. “Drift”: the logarithm of every "
        "rate follows a mean-reverting walk of so much per step; “jumps”: every source draws a new "
        "rate that often per step; “bursts”: items cause further items, .6 each, at constant "
        "rates. “Keeps ρ”: the fraction of the past that is kept over a step; “window”: only the "
        "last 50 to 100 steps count; “cusum”: restarts a source when its counts contradict the "
        "estimate; “learns what to keep”: uses the ρ whose predictions of the fleet's counts are "
        "most likely. “whittle, mean rates” knows the mean of every source's rate and keeps to it. "
        f"All relative to {CLAIRVOYANT}, the index at the current rates, in the second half. "
        "Score: 0 is random, 1 the clairvoyant."
    )
    for case in found.cases:
        rows = [
            [
                name,
                percent(share(found, case, name)),
                plain(found.score(case, name, CLAIRVOYANT, _expected(case))),
            ]
            for name in found.entrants(case)[1:]
        ]
        report.table(case, ["agent", "second half, relative", "score"], rows)
    behind = most_behind(found)
    rows = [[name, f"{behind[name]:.2%}"] for name in sorted(behind, key=lambda name: behind[name])]
    report.table(
        "Without tuning: by how much each is behind the best of these, in its worst case",
        ["agent", "behind, of the clairvoyant's reward"],
        rows,
    )
    frozen = max(1 - share(found, case, FROZEN).mean for case in found.cases)
    report.paragraph(
        f"Without tuning to the case, {LEARNS} is behind the one that happens to suit a case by "
        f"{behind[LEARNS]:.1%} at most; the best one in that respect is {rows[0][0]}, by "
        f"{min(behind.values()):.1%}. Whittle with mean rates loses up to {frozen:.0%}."
    )


def finding(found: Found) -> str:
    """Return what it costs not to know how rates change, in half a sentence."""
    behind = most_behind(found)
    return (
        f"where rates change, “{LEARNS}” is at most {behind[LEARNS]:.1%} of the clairvoyant's "
        "reward behind whatever suits the case best"
    )


def picture(found: Found) -> Any:
    figure, axes = plots.new(1, 2, width=11, height=3.6, sharey=True)
    drawn = {FROZEN: "s", **{f"thompson, keeps {kept:g}": "o" for kept in KEPT}, LEARNS: "*"}
    for axis, regime in zip(axes, ("dense", "sparse"), strict=True):
        cases = [case for case in found.cases if case.startswith(regime)]
        place = np.arange(len(cases))
        for i, (name, mark) in enumerate(drawn.items()):
            shares = [100 * share(found, case, name).mean for case in cases]
            colour = plots.INK if name == LEARNS else plots.PALETTE[i % len(plots.PALETTE)]
            size = 12 if name == LEARNS else 6
            axis.plot(place, shares, mark, ms=size, color=colour, label=name)
        axis.set_xticks(place, [case.removeprefix(f"{regime}, ") for case in cases], size=8)
        axis.set_title(regime)
    axes[0].set_ylabel(f"relative to {CLAIRVOYANT}, %")
    axes[0].legend(fontsize=8)
    return figure


def most_behind(found: Found) -> dict[str, float]:
    """Return of each that learns by how much it is behind the best of them, in its worst case."""
    learners = [name for name in found.entrants(found.cases[0]) if name.startswith("thompson")]
    behind = dict.fromkeys(learners, 0.0)
    for case in found.cases:
        shares = {name: share(found, case, name).mean for name in learners}
        best = max(shares.values())
        behind = {name: max(behind[name], best - shares[name]) for name in learners}
    return behind
