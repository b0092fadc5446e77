"""Regret relative to the Whittle policy with known rates."""

from __future__ import annotations

from typing import Any

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.statistics import Estimate
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.evaluation import plain
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job
from experiments.adaptive.entrants import (
    CERTAINTY,
    FLOOR,
    LOW,
    OPTIMISM,
    REFERENCE,
    THOMPSON,
    TUNING,
    entrant,
    named,
)
from experiments.adaptive.runs import (
    CURVES,
    RUN,
    RUNS,
    curve,
    job,
    marks,
    played,
    relative,
    score,
    with_curves,
)
from experiments.core.data import Case, Column, Data, Table

REGIMES = ("dense", "sparse")
_OCTAVE = 6  # marks, over which the loss per step is drawn
FIRST = 100  # step from which exponents are fitted

_SIZES = [
    entrant(REFERENCE),
    entrant(FLOOR),
    entrant(THOMPSON),
    named("thompson, fleet prior", entrant(THOMPSON, "fleet-prior")),
]
ENTRANTS = [
    *_SIZES[:2],
    *(entrant(agent) for agent in (CERTAINTY, OPTIMISM, THOMPSON, TUNING)),
    named("certainty, fleet prior", entrant(CERTAINTY, "fleet-prior")),
    named("thompson, learns what to keep", entrant(THOMPSON, "forgetting")),
    named("self-tuning, keeps all", entrant(TUNING, "gamma-poisson")),
    named("optimism .99", entrant(OPTIMISM, confidence=0.99)),
    named("optimism, fleet prior", entrant(OPTIMISM, "fleet-prior")),
    _SIZES[-1],
    named("certainty, prior of 1 a step", entrant(CERTAINTY, prior=LOW)),
    named("thompson, prior of 1 a step", entrant(THOMPSON, prior=LOW)),
    *(
        named(f"thompson, weak prior of {mean} a step", entrant(THOMPSON, prior=(0.5, 0.5 / mean)))
        for mean in (5, 500)
    ),
    named("thompson, changed: bayes", entrant(THOMPSON, "changed", "changed")),
]
SHAPES = ((20, 2), (100, 10), (400, 40), (100, 2), (100, 30))  # N, M
USUAL = (100, 10)


def jobs(study: Any) -> list[Job]:
    """Return a job for each fleet and entrant."""
    size = study.size
    return [
        job(
            case_of(regime, *shape),
            candidate,
            {"sources": f"drawn-{regime}-{shape[0]}", "budget": shape[1]},
            size.steps,
            size.seeds,
            size.seed,
        )
        for shape in ((USUAL,) if size.quick else SHAPES)
        for regime in REGIMES
        for candidate in (ENTRANTS if shape == USUAL else _SIZES)
    ]


def case_of(regime: str, n: int, m: int) -> str:
    """Return the name of a case."""
    return f"{regime}, N = {n}, M = {m}"


def lost(data: Data, case: Case) -> FloatArray:
    """Return the loss of an entrant against Whittle until each mark, (S, K), in Whittle's steps."""
    best, mine = (curve(data, case, who) for who in (REFERENCE, case["entrant"]))
    per_step = curve(data, case, REFERENCE)[:, -1] / marks(data, case)[-1]
    return np.asarray((best - mine) / per_step[:, None])


def growth(data: Data, case: Case) -> Estimate:
    """Return the exponent of an entrant's cumulative regret."""
    steps = marks(data, case)
    return exponent(lost(data, case), steps, min(FIRST, steps[-1] / 10))


def growth_of_steps(data: Data, case: Case) -> Estimate:
    """Return the exponent of the loss in each doubling of time."""
    steps = marks(data, case)
    return growing(lost(data, case), steps, min(FIRST, steps[-1] / 10), _OCTAVE)


def claim(data: Data) -> str:
    """Return the cost of learning the rates."""
    parts = [
        f"{relative()(data, {**RUN, 'case': case, 'entrant': THOMPSON}).mean:.2%} ({case})"
        for case in (case_of(regime, *USUAL) for regime in REGIMES)
    ]
    return (
        f"{THOMPSON}, which learns the arrival rates, collects {' and '.join(parts)} of what "
        "whittle collects, which knows them, in the second half of a run"
    )


def figure(report: Report, data: Data) -> None:
    """Add the figure of the loss until each step, and per step."""
    figure, axes = plots.new(2, 2, width=11, height=3.4, sharex=True)
    for column, regime in enumerate(REGIMES):
        case = {"case": case_of(regime, *USUAL)}
        steps = marks(data, case)
        names = [THOMPSON, OPTIMISM, CERTAINTY, TUNING, "thompson, fleet prior"]
        for name, colour in zip(names, plots.PALETTE, strict=False):
            total = lost(data, {**case, "entrant": name}).mean(axis=0)
            ends = steps[::_OCTAVE]
            rate = np.diff(total[::_OCTAVE]) / np.diff(ends)
            middle = np.sqrt(ends[1:] * ends[:-1])
            for axis, x, y in ((axes[0], steps, total), (axes[1], middle, rate)):
                positive = np.where(y > 0, y, np.nan)
                axis[column].plot(x, positive, color=colour, lw=1.4, label=name)
        root = np.sqrt(steps)
        level = np.nanmax(lost(data, {**case, "entrant": THOMPSON}).mean(axis=0)) / root[-1]
        axes[0][column].plot(steps, level * root, ":", color=plots.FAINT, lw=1)
        axes[0][column].set_title(case["case"])
        axes[1][column].set_xlabel("step")
        for axis in axes[:, column]:
            axis.set(xscale="log", yscale="log")
    axes[0][0].set_ylabel("lost, steps of whittle")
    axes[1][0].set_ylabel("lost per step")
    axes[0][0].legend(fontsize=8)
    report.figure(
        figure,
        "What was lost until each step, and per step at it, both axes logarithmic; N = 100, "
        "M = 10. Straight lines are power laws; the dotted one grows as the square root.",
        "regret",
    )


def exponent(
    losses: FloatArray, marks: FloatArray, first: float, resamples: int = 2000, seed: int = 0
) -> Estimate:
    """Return b of the fit mean lost ≈ c·t^b to marks t ≥ first, with its 95 % interval.

    Least squares in logarithms, of the mean over runs; the interval is the percentile bootstrap
    over runs. Where nothing was lost until some mark, on average or in more than one of twenty
    resamples, there is no power law, and the exponent is unknown.

    Arguments:
        losses: (S, K), cumulated until each mark; S runs.
        marks: (K,) steps.

    >>> t = np.array([100.0, 200.0, 400.0])
    >>> exponent(np.array([3 * t**0.5, 5 * t**0.5]), t, first=100).mean.round(6)
    np.float64(0.5)
    """
    late = marks >= first
    curves, logs = losses[:, late], np.log(marks[late])
    n = len(curves)
    draws = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), resamples) / n
    mean, samples = curves.mean(axis=0), draws @ curves
    clear = (samples > 0).all(axis=1)
    if late.sum() < 2 or not (mean > 0).all() or clear.mean() < 0.95:
        return statistics.UNKNOWN
    low, high = np.percentile(_slopes(samples[clear], logs), [2.5, 97.5])
    return Estimate(_slopes(mean[None], logs)[0], float(low), float(high))


def growing(
    losses: FloatArray, marks: FloatArray, first: float, step: int, resamples: int = 2000
) -> Estimate:
    """Return the exponent of the loss between marks `step` apart, as `exponent`.

    Where marks are even on a logarithmic scale that grows as t^b if all that is lost does, and
    linearly if as much is lost in every step, whatever was lost at the start.

    >>> t = np.geomspace(1, 1000, 61)
    >>> start_and_constant = np.array([20 + 0.005 * t, 20 + 0.006 * t])
    >>> [round(float(e.mean), 2) for e in (
    ...     exponent(start_and_constant, t, 100), growing(start_and_constant, t, 100, 6))]
    [0.09, 1.0]
    """
    return exponent(losses[:, step:] - losses[:, :-step], marks[:-step], first, resamples)


def _slopes(curves: FloatArray, logs: FloatArray) -> FloatArray:
    """Return the slope of each row's logarithm, (R,)."""
    x = logs - logs.mean()
    return np.asarray(np.log(curves) @ x / (x @ x))


PART = played(
    jobs=jobs,
    tables=with_curves,
    files=(RUNS, CURVES),
    heading="What learning costs",
    content=(
        figure,
        "Random fleets, a different one in each run; only whittle knows the arrival rates. Lost: "
        "what whittle collected more until the end, in steps of its reward, for the same content. "
        "Exponent: b of the fit t^b to the loss until step t; a loss at the start alone makes it "
        "small. Exponent of doublings: of the loss from t to 2t; below 1, the loss per step tends "
        f"to zero; 1 is a constant loss per step. Fitted from step {FIRST} on. Score: 0 is random, "
        "1 is whittle. All rewards are expected ones given the ages at crawls, which omits the "
        "luck of what was published. Intervals: 95 %, Student's t over runs; of exponents, "
        "bootstrap over runs.",
        Table(
            "{case}",
            {"entrant": "agent"},
            (
                Column("second half, relative to whittle", relative()),
                Column("score", score(), plain),
                Column(
                    "lost, steps",
                    lambda data, case: statistics.mean(lost(data, case)[:, -1]),
                    lambda steps: plain(steps, 1),
                ),
                Column("exponent", growth, lambda number: plain(number, 2)),
                Column("… of doublings", growth_of_steps, lambda number: plain(number, 2)),
            ),
            each=("case",),
            where=RUN,
        ),
    ),
    claim=claim,
)
