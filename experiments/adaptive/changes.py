"""Rates that change: how much to forget, and how soon a crawler finds its way again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.statistics import Estimate
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core.evaluation import plain
from ephemeral_crawl.core.runner import Job, Result
from experiments.adaptive import runs
from experiments.adaptive.entrants import (
    CLAIRVOYANT,
    FLOOR,
    REFERENCE,
    THOMPSON,
    TUNING,
    entrant,
    name_of,
    named,
)
from experiments.adaptive.runs import (
    COLLECTED,
    EXPECTED,
    RUN,
    Rows,
    curve,
    job,
    played,
    relative,
    score,
)
from experiments.core.data import (
    Case,
    Cell,
    Column,
    Data,
    DerivedParts,
    Lines,
    Listing,
    Table,
)

N, M = 100, 10
FROZEN, LEARNS = "whittle, mean rates", "thompson, learns what to keep"

# ------------------------------------------------------------------------------------------- drift

BURSTS = "bursts"  # clusters of items at constant rates, which look like rates that change
KEPT = (1.0, 0.999, 0.99, 0.97, 0.9)  # of what is known, over one step
OFF = (0.995, 0.95)  # of what is known, not among those that are chosen from
LAWS: dict[str, tuple[str, dict[str, Any]]] = {
    "still": ("poisson", {}),
    "drift .03": ("drift", {"sigma": 0.03, "reversion": 0.01}),
    "drift .1": ("drift", {"sigma": 0.1, "reversion": 0.01}),
    "drift .2": ("drift", {"sigma": 0.2, "reversion": 0.01}),
    "jumps .002": ("jumps", {"rate": 0.002}),
    "jumps .02": ("jumps", {"rate": 0.02}),
    BURSTS: ("bursts", {"branching": 0.6}),
}
DRIFT_ENTRANTS = [
    entrant(CLAIRVOYANT),
    entrant(FLOOR),
    named(FROZEN, entrant(REFERENCE)),
    *(
        named(f"thompson, keeps {share:g}", entrant(THOMPSON, retention=share))
        for share in (*KEPT, *OFF)
    ),
    named("thompson, cusum", entrant(THOMPSON, "drifting")),
    named(LEARNS, entrant(THOMPSON, "forgetting")),
]


def drift_jobs(study: Any) -> list[Job]:
    """Return a job for each kind of fleet, law of the rates and entrant."""
    size = study.size
    laws = ("still", "drift .1", "jumps .02", BURSTS) if size.quick else tuple(LAWS)
    marks = sorted({size.steps // 2, size.steps})
    return [
        job(f"{regime}, {law}", candidate, {"sources": f"drawn-{regime}-{N}", "budget": M},
            size.steps, size.seeds, size.seed, LAWS[law], marks)
        for regime in ("dense", "sparse")
        for law in laws
        for candidate in DRIFT_ENTRANTS
    ]  # fmt: skip


def _to_clairvoyant(cell: Any) -> Cell:
    """Return a cell that compares with the clairvoyant what crawls bring on average given the
    rates; of bursts, in which crawls depend on what is still to come, it is as collected."""

    def chosen(data: Data, case: Case) -> Any:
        column = COLLECTED if case["case"].endswith(BURSTS) else EXPECTED
        return cell(CLAIRVOYANT, column)(data, case)

    return chosen


_SHARE, _SCORE = _to_clairvoyant(relative), _to_clairvoyant(score)


def most_behind(data: Data) -> dict[str, float]:
    """Return of each that learns by how much it is behind the best of them, in its worst case."""
    behind: dict[str, float] = {}
    for case in data.values("case", **RUN):
        shares = {
            row["entrant"]: _SHARE(data, row).mean
            for row in data.cases("entrant", **RUN, case=case)
            if row["entrant"].startswith("thompson")
        }
        best = max(shares.values())
        behind = {name: max(behind.get(name, 0.0), best - x) for name, x in shares.items()}
    return behind


DRIFT = played(
    jobs=drift_jobs,
    heading="Rates that change",
    content=(
        Lines(
            "Second half, relative to the clairvoyant, by the way in which rates change.",
            x="case",
            y=lambda data, case: Estimate(*[_SHARE(data, case).mean] * 3),
            line="entrant",
            only=(FROZEN, *(f"thompson, keeps {share:g}" for share in KEPT), LEARNS),
            where=RUN,
            labels=("", f"relative to {CLAIRVOYANT}, %"),
            style="o",
            scale=100,
            name="drift",
            size=(11.0, 3.6),
        ),
        f"Random fleets of {N}, {M} crawls per step, not observed. “Drift”: the logarithm of every "
        "rate follows a mean-reverting walk of so much per step; “jumps”: every source draws a new "
        "rate that often per step; “bursts”: items cause further items, .6 each, at constant "
        "rates. “Keeps ρ”: the fraction of the past that is kept over a step; “window”: only the "
        "last 50 to 100 steps count; “cusum”: restarts a source when its counts contradict the "
        "estimate; “learns what to keep”: uses the ρ whose predictions of the fleet's counts are "
        "most likely. “whittle, mean rates” knows the mean of every source's rate and keeps to it. "
        f"All relative to {CLAIRVOYANT}, the index at the current rates, in the second half. "
        "Score: 0 is random, 1 the clairvoyant.",
        Table(
            "{case}",
            {"entrant": "agent"},
            (Column("second half, relative", _SHARE), Column("score", _SCORE, plain)),
            each=("case",),
            where=RUN,
        ),
        DerivedParts(
            lambda data: [
                {"agent": name, "behind": f"{behind:.2%}"}
                for name, behind in sorted(most_behind(data).items(), key=lambda pair: pair[1])
            ],
            (
                Listing(
                    "Without tuning: by how much each is behind the best of these, in its worst "
                    "case",
                    {"agent": "agent", "behind": "behind, of the clairvoyant's reward"},
                ),
            ),
        ),
    ),
    claim=lambda data: (
        f"where rates change, “{LEARNS}” is at most {most_behind(data)[LEARNS]:.1%} of the "
        "clairvoyant's reward behind whatever suits the case best"
    ),
)

# ----------------------------------------------------------------------------------------- regimes

SWITCHES = 8  # regimes in a run
RATIO = (1.8, 0.2)  # of the mean rate, in one regime and in the other
ROUND = N // M  # steps over which rewards after a switch are summed: a round, as they go round
ENOUGH = 0.95  # of the clairvoyant's reward
# Of the suite's steps; where sources publish little, it takes longer to learn that they changed.
LENGTHS = {"dense": 0.25, "sparse": 1.0}
_LEARNS = "learns what to keep"
REGIME_ENTRANTS = [
    entrant(CLAIRVOYANT),
    entrant(FLOOR),
    named(FROZEN, entrant(REFERENCE)),
    *(named(f"thompson, keeps {share:g}", entrant(THOMPSON, retention=share))
      for share in (1.0, 0.99, 0.9)),
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


def regime_jobs(study: Any) -> list[Job]:
    """Return a job for each kind of fleet and entrant."""
    size = study.size
    return [
        job(regime, candidate,
            {"sources": f"drawn-{regime}-{N}", "budget": M}, SWITCHES * long, size.seeds,
            size.seed, switching(long), range(ROUND, SWITCHES * long + 1, ROUND))
        for regime, share in LENGTHS.items()
        for long in [max(4, int(share * size.steps) // ROUND) * ROUND]
        for candidate in REGIME_ENTRANTS
    ]  # fmt: skip


def switching(long: int) -> tuple[str, dict[str, Any]]:
    """Return arrivals of which half of the sources publish much in one regime and little in the
    next, the others the other way round."""
    late = np.random.default_rng(0).permutation(N) % 2
    cycle = {"day": 2.0 * long, "profile": list(RATIO), "phase": (late * float(long)).tolist()}
    return "cycle", cycle


def after_switch(expected: FloatArray) -> FloatArray:
    """Return the harvest of each round after a switch, mean over switches, (S, rounds).

    The first regime is left out: nothing is known at its beginning.

    Arguments:
        expected: collected until each round, (S, switches · rounds).
    """
    gains = np.diff(expected, axis=-1, prepend=0.0)
    rounds = gains.shape[-1] // SWITCHES
    return np.asarray(gains.reshape(len(gains), SWITCHES, rounds)[:, 1:].mean(axis=1))


def rounds_of(todo: Sequence[Job], results: Sequence[Result]) -> Rows:
    """Return a row for each run and round after a switch, whose `step` is that since the switch,
    and `expected` what is collected in the round, mean over switches."""
    return [
        {
            "case": job["case"],
            "entrant": name_of(job),
            "run": run,
            "step": ROUND * (k + 1),
            "collected": "",
            "expected": f"{amount:.6g}",
        }
        for job, result in zip(todo, results, strict=True)
        for run, rounds in enumerate(after_switch(np.array(result["expected"])))
        for k, amount in enumerate(rounds)
    ]


def regime_tables(todo: Sequence[Job], results: Sequence[Result]) -> dict[str, Rows]:
    """Return the rows of the runs, and of the rounds after a switch."""
    return {**runs.tables(todo, results), runs.CURVES: rounds_of(todo, results)}


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


def recovered(data: Data, case: Case, resamples: int = 1000) -> Estimate:
    """Return the steps until an entrant is back, of the mean run, with the interval over runs."""
    mine, best = (curve(data, case, who) for who in (case["entrant"], CLAIRVOYANT))
    if not mine.size:
        return statistics.UNKNOWN
    n = len(mine)
    draws = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), resamples) / n
    values = np.sort(recovery(draws @ mine, draws @ best))
    low, high = values[int(0.025 * resamples)], values[int(0.975 * resamples)]
    return Estimate(float(recovery(mine.mean(0), best.mean(0))), float(low), float(high))


def lag(data: Data, case: Case) -> Estimate:
    """Return what a change costs an entrant: how much less than the clairvoyant it collects in
    a regime, but the first, in steps of the clairvoyant's reward."""
    mine, best = (curve(data, case, who) for who in (case["entrant"], CLAIRVOYANT))
    if not mine.size:
        return statistics.UNKNOWN
    return statistics.mean((best - mine).sum(-1) / (best.mean(-1) / ROUND))


def _steps(estimate: Estimate) -> str:
    if np.isnan(estimate.mean):
        return "not recorded"
    if np.isinf(estimate.low):
        return "not back"
    mean, low, high = ("not" if np.isinf(x) else f"{x:.0f}" for x in estimate)
    return f"{mean} [{low}, {high}]"


def _in_round(data: Data, case: Case) -> Estimate:
    """Return the reward of a round after a switch relative to the clairvoyant's."""
    mine, best = (
        data.numbers("expected", **{**case, "entrant": who}).mean()
        for who in (case["entrant"], CLAIRVOYANT)
    )
    return Estimate(*[float(mine / best)] * 3)


def regimes_claim(data: Data) -> str:
    """Return how soon a learner is back after a change."""
    name = f"thompson, {_LEARNS}"
    parts = ", ".join(
        f"{_steps(recovered(data, {'case': case, 'entrant': name}))} ({case})"
        for case in data.values("case", **RUN)
    )
    return f"steps until “{name}” is back after a change of all rates: {parts}"


REGIMES = played(
    jobs=regime_jobs,
    heading="How soon after a change of regime",
    content=(
        DerivedParts(
            lambda data: [row for row in data.rows if row.get("step")],
            (
                Lines(
                    f"Reward relative to {CLAIRVOYANT}, by steps since the change; mean over "
                    "changes.",
                    x="step",
                    y=_in_round,
                    line="entrant",
                    columns="case",
                    only=(
                        FROZEN,
                        *(f"thompson, {words}" for words in ("keeps 1", _LEARNS)),
                        *(f"self-tuning, {words}" for words in ("keeps 1", _LEARNS)),
                    ),
                    labels=("steps since the change", "relative reward, %"),
                    scale=100,
                    level=100 * ENOUGH,
                    name="regimes",
                    size=(5.5, 3.4),
                ),
            ),
        ),
        f"Random fleets of {N}, {M} crawls per step, not observed. From one regime to the next, "
        f"half of the sources change from {RATIO[0]} to {RATIO[1]} of their mean rate, and the "
        f"others back, all at once. Counted: steps until {ENOUGH:.0%} of the reward of "
        f"{CLAIRVOYANT}, which knows the current rates, is collected and continues to be until "
        f"the next change; of the mean reward over {SWITCHES - 1} changes and all runs, without "
        "the start. Lost: what is collected less in a regime, in steps of the clairvoyant's "
        "reward. Relative rewards and scores (0 is random, 1 the clairvoyant) are of the second "
        "half. Self-tuning is given no parameters of the sources, the others are given mean "
        "utilities and decay rates; it is shown sums over the items of its crawls, or “without "
        "sums” their number and total utility.",
        Table(
            "{case}",
            {"entrant": "agent"},
            (
                Column("steps until recovered", recovered, _steps),
                Column("lost in a regime, steps", lag, lambda steps: plain(steps, 1)),
                Column("relative", relative(CLAIRVOYANT)),
                Column("score", score(CLAIRVOYANT), plain),
            ),
            each=("case",),
            where=RUN,
        ),
    ),
    claim=regimes_claim,
    tables=regime_tables,
    files=(runs.RUNS, runs.CURVES),
)
