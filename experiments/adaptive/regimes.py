"""Recovery time after a simultaneous change of the rates of all sources."""

from __future__ import annotations

from typing import Any

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.statistics import Estimate
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job
from ephemeral_crawl.core.tables import percent, plain
from experiments.adaptive.entrants import (
    CLAIRVOYANT,
    FLOOR,
    REFERENCE,
    THOMPSON,
    TUNING,
    entrant,
    named,
)
from experiments.adaptive.runs import Found, Run, Size, job

PART = "regimes"
N, M = 100, 10
SWITCHES = 8  # regimes in a run
RATIO = (1.8, 0.2)  # of the mean rate, in one regime and in the other
ROUND = N // M  # steps over which rewards after a switch are summed: a round, as they go round
ENOUGH = 0.95  # of the clairvoyant's reward
# Of the suite's steps; where sources publish little, it takes longer to learn that they changed.
LENGTHS = {"dense": 0.25, "sparse": 1.0}
_LEARNS = "learns what to keep"
ENTRANTS = [
    entrant(CLAIRVOYANT),
    entrant(FLOOR),
    named("whittle, mean rates", entrant(REFERENCE)),
    *(named(f"thompson, keeps {kept:g}", entrant(THOMPSON, retention=kept))
      for kept in (1.0, 0.99, 0.9)),
    named("thompson, cusum", entrant(THOMPSON, "drifting")),
    named(f"thompson, {_LEARNS}", entrant(THOMPSON, "forgetting")),
    *(named(f"self-tuning, {words}", entrant(TUNING, estimator, "sums", **own))
      for words, estimator, own in (
          ("keeps 1", "gamma-poisson", {}),
          ("keeps 0.99", "gamma-poisson", {"retention": 0.99}),
          ("keeps 0.9", "gamma-poisson", {"retention": 0.9}),
          ("cusum", "drifting", {}),
          (_LEARNS, "forgetting", {}),
      )),
    named(f"self-tuning without sums, {_LEARNS}", entrant(TUNING, "forgetting")),
]  # fmt: skip


def jobs(size: Size) -> list[Job]:
    return [
        job(PART, regime, chosen,
             {"sources": f"drawn-{regime}-{N}", "budget": M}, SWITCHES * long, size.seeds,
             size.seed, switching(long), range(ROUND, SWITCHES * long + 1, ROUND))
        for regime, long in ((regime, lasts(size.steps, regime)) for regime in LENGTHS)
        for chosen in ENTRANTS
    ]  # fmt: skip


def lasts(steps: int, regime: str) -> int:
    """Return how many steps a regime lasts, a multiple of `ROUND`."""
    return max(4, int(LENGTHS[regime] * steps) // ROUND) * ROUND


def switching(long: int) -> tuple[str, dict[str, Any]]:
    """Return arrivals of which half of the sources publish much in one regime and little in the
    next, the others the other way round."""
    late = np.random.default_rng(0).permutation(N) % 2
    cycle = {"day": 2.0 * long, "profile": list(RATIO), "phase": (late * float(long)).tolist()}
    return "cycle", cycle


def after_switch(run: Run) -> FloatArray:
    """Return what was collected in each round after a switch, mean over switches, (S, rounds).

    The first regime is left out: nothing is known at its beginning.
    """
    gained = np.diff(run.expected, axis=-1, prepend=0.0)
    rounds = gained.shape[-1] // SWITCHES
    return np.asarray(gained.reshape(len(gained), SWITCHES, rounds)[:, 1:].mean(axis=1))


def recovery(mine: FloatArray, best: FloatArray) -> FloatArray:
    """Return after how many steps `ENOUGH` of the best reward is reached for the rest of the
    regime; infinite where it is not.

    Arguments:
        mine, best: (..., rounds) rewards after a switch.

    >>> recovery(np.array([50.0, 96.0, 94.0, 97.0]), np.full(4, 100.0))
    array(40.)
    """
    enough = mine >= ENOUGH * best
    lasting = np.flip(np.logical_and.accumulate(np.flip(enough, -1), axis=-1), -1)
    rounds = enough.shape[-1]
    first = rounds - lasting.sum(axis=-1)
    return np.where(lasting[..., -1], (first + 1.0) * ROUND, np.inf)


def recovered(found: Found, case: str, name: str, resamples: int = 1000) -> Estimate:
    """Return the steps until an entrant is back, of the mean run, with the interval over runs."""
    mine, best = (after_switch(found[case, entrant]) for entrant in (name, CLAIRVOYANT))
    n = len(mine)
    draws = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), resamples) / n
    values = np.sort(recovery(draws @ mine, draws @ best))
    low, high = values[int(0.025 * resamples)], values[int(0.975 * resamples)]
    return Estimate(float(recovery(mine.mean(0), best.mean(0))), float(low), float(high))


def lag(found: Found, case: str, name: str) -> Estimate:
    """Return what a change costs an entrant: how much less than the clairvoyant it collects in
    a regime, but the first, in steps of the clairvoyant's reward."""
    mine, best = (after_switch(found[case, entrant]) for entrant in (name, CLAIRVOYANT))
    return statistics.mean((best - mine).sum(-1) / (best.mean(-1) / ROUND))


def write(report: Report, found: Found) -> None:
    report.heading("How soon after a change of regime")
    report.figure(
        picture(found),
        f"Reward relative to {CLAIRVOYANT}, by steps since the change; mean over changes.",
        PART,
    )
    report.paragraph(
        f"Random fleets of {N}, {M} crawls per step, not observed. From one regime to the next, "
        f"half of the sources change from {RATIO[0]} to {RATIO[1]} of their mean rate, and the "
        f"others back, all at once. Counted: steps until {ENOUGH:.0%} of the reward of "
        f"{CLAIRVOYANT}, which knows the current rates, is collected and continues to be until "
        f"the next change; of the mean reward over {SWITCHES - 1} changes and all runs, without "
        "the start. Lost: what is collected less in a regime, in steps of the clairvoyant's "
        "reward. Relative rewards and scores (0 is random, 1 the clairvoyant) are of the second "
        "half. Self-tuning is given no parameters of the sources, the others are given mean "
        "utilities and decay rates; it is shown sums over the items of its crawls, or “without "
        "sums” their number and total utility."
    )
    for case in found.cases:
        rows = [
            [
                name,
                _steps(recovered(found, case, name)),
                plain(lag(found, case, name), 1),
                percent(found.relative(case, name, CLAIRVOYANT)),
                plain(found.score(case, name, CLAIRVOYANT)),
            ]
            for name in found.entrants(case)
            if name != CLAIRVOYANT
        ]
        columns = [
            "agent",
            "steps until recovered",
            "lost in a regime, steps",
            "relative",
            "score",
        ]
        report.table(f"{case}, {_long(found, case)} steps a regime", columns, rows)


def finding(found: Found) -> str:
    """Return how soon a learner is back after a change, in half a sentence."""
    parts = [
        f"{_steps(recovered(found, case, f'thompson, {_LEARNS}'))} steps ({case})"
        for case in found.cases
    ]
    return f"after a change of all rates, “thompson, {_LEARNS}” is back after {', '.join(parts)}"


def _long(found: Found, case: str) -> int:
    return int(found[case, CLAIRVOYANT].marks[-1]) // SWITCHES


def _steps(found: Estimate) -> str:
    if np.isinf(found.low):
        return "not back"
    mean, low, high = ("not" if np.isinf(x) else f"{x:.0f}" for x in found)
    return f"{mean} [{low}, {high}]"


def picture(found: Found) -> Any:
    cases = found.cases
    figure, axes = plots.new(1, len(cases), width=11, height=3.4, sharey=True, squeeze=False)
    for axis, case in zip(axes[0], cases, strict=True):
        best = after_switch(found[case, CLAIRVOYANT]).mean(axis=0)
        time = ROUND * np.arange(1, best.size + 1)
        drawn = ("whittle, mean rates", "thompson, keeps 1", f"thompson, {_LEARNS}",
                 "self-tuning, keeps 1", f"self-tuning, {_LEARNS}")  # fmt: skip
        for i, name in enumerate(drawn):
            mine = after_switch(found[case, name]).mean(axis=0)
            axis.plot(time, 100 * mine / best, color=plots.PALETTE[i], lw=1.4, label=name)
        axis.axhline(100 * ENOUGH, color=plots.FAINT, lw=0.8, ls=":")
        axis.set_title(f"{case}, {_long(found, case)} steps a regime")
        axis.set_xlabel("steps since the change")
    axes[0][0].set_ylabel("relative reward, %")
    axes[0][0].legend(fontsize=8)
    return figure
