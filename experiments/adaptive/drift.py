"""Rates that change: how much to forget, and how soon a crawler finds its way again."""

from __future__ import annotations

from typing import Any

import numpy as np

from agents import statistics
from agents.statistics import Estimate
from crawl_env.numerics import FloatArray
from experiments import plots
from experiments.adaptive.players import (
    CLAIRVOYANT,
    FLOOR,
    REFERENCE,
    THOMPSON,
    TUNING,
    named,
    player,
)
from experiments.adaptive.runs import Found, Run, unit
from experiments.adaptive.sizes import Size
from experiments.report import Report
from experiments.runner import Unit
from experiments.tables import percent

PART = "drift"
N, M = 100, 10
KEPT = (1.0, 0.999, 0.99, 0.97, 0.9)  # of what is known, over one epoch
LAWS: dict[str, tuple[str, dict[str, Any]]] = {
    "still": ("poisson", {}),
    "drift .03": ("drift", {"sigma": 0.03, "reversion": 0.01}),
    "drift .1": ("drift", {"sigma": 0.1, "reversion": 0.01}),
    "drift .2": ("drift", {"sigma": 0.2, "reversion": 0.01}),
    "jumps .002": ("jumps", {"rate": 0.002}),
    "jumps .02": ("jumps", {"rate": 0.02}),
}
PLAYERS = [
    player(CLAIRVOYANT),
    player(FLOOR),
    named("whittle, mean rates", player(REFERENCE)),
    *(named(f"thompson, keeps {kept:g}", player(THOMPSON, retention=kept)) for kept in KEPT),
    named("thompson, window 100", player(THOMPSON, "window", length=50.0)),
    named("thompson, cusum", player(THOMPSON, "cusum")),
]
SWITCH = "two regimes in turn"
SWITCHES = 10  # regimes in a run
RATIO = (1.8, 0.2)  # of the mean rate, in one regime and in the other
STEP = N // M  # epochs over which rewards after a switch are summed: a round, as they go round
ENOUGH = 0.95  # of the clairvoyant's reward
_TUNING = [
    named("self-tuning, keeps 1", player(TUNING)),
    named("self-tuning, keeps 0.97", player(TUNING, retention=0.97)),
    named("self-tuning, cusum", player(TUNING, "cusum")),
]


def units(size: Size) -> list[Unit]:
    laws = ("still", "drift .1", "jumps .02") if size.quick else tuple(LAWS)
    drifting = [
        unit(PART, f"{regime}, {law}", chosen, _fleet(regime), size.epochs, size.seeds, size.seed,
             LAWS[law], marks=sorted({size.epochs // 2, size.epochs}))
        for regime in ("dense", "sparse")
        for law in laws
        for chosen in PLAYERS
    ]  # fmt: skip
    epochs = SWITCHES * lasts(size.epochs)
    return drifting + [
        unit(PART, f"{regime}, {SWITCH}", chosen, _fleet(regime), epochs, size.seeds, size.seed,
             switching(epochs), marks=range(STEP, epochs + 1, STEP))
        for regime in ("dense", "sparse")
        for chosen in (*PLAYERS, *_TUNING)
    ]  # fmt: skip


def _fleet(regime: str) -> dict[str, Any]:
    return {"sources": f"drawn-{regime}-{N}", "budget": M}


def lasts(epochs: int) -> int:
    """Return how many epochs a regime lasts, a multiple of `STEP`."""
    return max(2, epochs // SWITCHES // STEP) * STEP


def switching(epochs: int) -> tuple[str, dict[str, Any]]:
    """Return arrivals of which half of the sources publish much in one regime and little in the
    next, the others the other way round."""
    long = epochs // SWITCHES
    late = np.random.default_rng(0).permutation(N) % 2
    cycle = {"day": 2.0 * long, "profile": list(RATIO), "phase": (late * float(long)).tolist()}
    return "cycle", cycle


def after_switch(run: Run) -> FloatArray:
    """Return what was collected in each step after a switch, mean over switches, (S, steps).

    The first regime is left out: nothing is known at its beginning.
    """
    gained = np.diff(run.expected, axis=-1, prepend=0.0)
    steps = gained.shape[-1] // SWITCHES
    return np.asarray(gained.reshape(len(gained), SWITCHES, steps)[:, 1:].mean(axis=1))


def recovery(mine: FloatArray, best: FloatArray) -> FloatArray:
    """Return after how many epochs `ENOUGH` of the best reward is reached for the rest of the
    regime; infinite where it is not.

    Arguments:
        mine, best: (..., steps) rewards after a switch.

    >>> recovery(np.array([50.0, 96.0, 94.0, 97.0]), np.full(4, 100.0))
    array(40.)
    """
    enough = mine >= ENOUGH * best
    lasting = np.flip(np.logical_and.accumulate(np.flip(enough, -1), axis=-1), -1)
    steps = enough.shape[-1]
    first = steps - lasting.sum(axis=-1)
    return np.where(lasting[..., -1], (first + 1.0) * STEP, np.inf)


def recovered(found: Found, case: str, name: str, resamples: int = 1000) -> Estimate:
    """Return the epochs until a player is back, of the mean run, with the interval over runs."""
    mine, best = (after_switch(found[case, player]) for player in (name, CLAIRVOYANT))
    n = len(mine)
    draws = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), resamples) / n
    values = np.sort(recovery(draws @ mine, draws @ best))
    low, high = values[int(0.025 * resamples)], values[int(0.975 * resamples)]
    return Estimate(float(recovery(mine.mean(0), best.mean(0))), float(low), float(high))


def share(found: Found, case: str, name: str) -> Estimate:
    """Return a player's share of the clairvoyant's reward in the second half."""
    mine, best = (found[case, player].second_half() for player in (name, CLAIRVOYANT))
    return statistics.bootstrap(lambda x, y: x.mean(-1) / y.mean(-1), mine, best)


def write(report: Report, found: Found) -> None:
    report.heading("Rates that change")
    report.paragraph(
        f"Random fleets of {N}, {M} crawls an epoch, not seen. “Drift”: the logarithm of every "
        "rate walks by so much an epoch and is drawn back by a hundredth; “jumps”: every source "
        "draws a new rate that often per epoch. “Keeps ρ”: of what is known, each epoch leaves ρ; "
        "“window”: the last 50 to 100 epochs count; “cusum”: starts anew with a source when its "
        "counts contradict what is known. “whittle, mean rates” is told the mean of every source's "
        f"rate and keeps to it. All as shares of {CLAIRVOYANT}, the index with the rates "
        "of the moment, in the second half."
    )
    worst = dict.fromkeys(found.players(found.cases[0])[1:], 1.0)
    for case in [case for case in found.cases if not case.endswith(SWITCH)]:
        shares = {name: share(found, case, name) for name in worst}
        worst = {name: min(worst[name], shares[name].mean) for name in worst}
        rows = [[name, percent(value)] for name, value in shares.items()]
        report.table(case, ["player", "second half, share"], rows)
    order = sorted(worst, key=lambda name: -worst[name])
    rows = [[name, f"{worst[name]:.2%}"] for name in order]
    report.table("The worst of these cases", ["player", "share"], rows)
    told = (REFERENCE, FLOOR)
    learners = {name: value for name, value in worst.items() if not name.startswith(told)}
    report.paragraph(
        f"Without tuning to the case, {max(learners, key=lambda name: learners[name])} loses "
        f"least: at worst {1 - max(learners.values()):.1%}."
    )
    _switches(report, found)


def _switches(report: Report, found: Found) -> None:
    report.heading("How soon after a change of regime")
    cases = [case for case in found.cases if case.endswith(SWITCH)]
    long = int(found[cases[0], CLAIRVOYANT].marks[-1]) // SWITCHES
    report.paragraph(
        f"Every {long} epochs half of the sources go from {RATIO[0]} to {RATIO[1]} of their mean "
        "rate, and the others back, all at once. Counted: epochs until a player collects "
        f"{ENOUGH:.0%} of what {CLAIRVOYANT} collects, and goes on doing so until the next change; "
        f"mean of {SWITCHES - 1} changes. Self-tuning is told nothing of the sources, the others "
        "what items are worth and how long they last."
    )
    for case in cases:
        rows = [
            [name, _epochs(recovered(found, case, name)), percent(share(found, case, name))]
            for name in found.players(case)
            if name != CLAIRVOYANT
        ]
        report.table(case, ["player", "epochs until back", "second half, share"], rows)
    report.figure(
        _picture(found, cases),
        f"Share of what {CLAIRVOYANT} collects, by epochs since the change; mean over changes.",
    )


def _epochs(found: Estimate) -> str:
    if np.isinf(found.mean):
        return "not back"
    high = "–" if np.isinf(found.high) else f"{found.high:.0f}"
    return f"{found.mean:.0f} [{found.low:.0f}, {high}]"


def _picture(found: Found, cases: list[str]) -> Any:
    figure, axes = plots.new(1, len(cases), width=11, height=3.4, sharey=True, squeeze=False)
    for axis, case in zip(axes[0], cases, strict=True):
        best = after_switch(found[case, CLAIRVOYANT]).mean(axis=0)
        time = STEP * np.arange(1, best.size + 1)
        drawn = ("whittle, mean rates", "thompson, keeps 1", "thompson, cusum",
                 "self-tuning, keeps 1", "self-tuning, cusum")  # fmt: skip
        for i, name in enumerate(drawn):
            mine = after_switch(found[case, name]).mean(axis=0)
            axis.plot(time, 100 * mine / best, color=plots.PALETTE[i], lw=1.4, label=name)
        axis.axhline(100 * ENOUGH, color="#444", lw=0.8, ls=":")
        axis.set_title(case)
        axis.set_xlabel("epochs since the change")
    axes[0][0].set_ylabel("share, %")
    axes[0][0].legend(fontsize=8)
    return figure
