"""Regret relative to the Whittle policy with known rates."""

from __future__ import annotations

from collections.abc import Callable
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
from experiments.adaptive.runs import Found, Run, Size, job

PART = "regret"
REGIMES = ("dense", "sparse")
_OCTAVE = 6  # marks, over which the loss per step is drawn
NEAR, ROOT = 0.99, 0.5  # criteria for the fraction and for the exponents
FIRST = 100  # step from which exponents are fitted

_KNOWING, _CHANCE = entrant(REFERENCE), entrant(FLOOR)
_SOLUTIONS = [entrant(agent) for agent in (CERTAINTY, OPTIMISM, THOMPSON, TUNING)]
_SIZES = [
    _KNOWING,
    _CHANCE,
    entrant(THOMPSON),
    named("thompson, fleet prior", entrant(THOMPSON, "fleet-prior")),
]
ENTRANTS = [
    _KNOWING,
    _CHANCE,
    *_SOLUTIONS,
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
    *(
        named(f"thompson, changed: {name}", entrant(THOMPSON, estimator, "changed"))
        for name, estimator in (
            ("bayes", "changed"),
            ("likelihood", "changed-likelihood"),
            ("moments", "changed-moments"),
            *((name, name) for name in ("lln", "sa", "naive")),
        )
    ),
]
SHAPES = ((20, 2), (100, 10), (400, 40), (100, 2), (100, 30))  # N, M
USUAL = (100, 10)


def jobs(size: Size) -> list[Job]:
    shapes = (USUAL,) if size.quick else SHAPES
    return [
        job(
            PART,
            case_of(regime, *shape),
            chosen,
            {"sources": f"drawn-{regime}-{shape[0]}", "budget": shape[1]},
            size.steps,
            size.seeds,
            size.seed,
        )
        for shape in shapes
        for regime in REGIMES
        for chosen in (ENTRANTS if shape == USUAL else _SIZES)
    ]


def case_of(regime: str, n: int, m: int) -> str:
    return f"{regime}, N = {n}, M = {m}"


def lost(found: Found, case: str, name: str, expected: bool = True) -> FloatArray:
    """Return what an entrant lost against Whittle until each mark, (S, K), in steps of Whittle."""
    best, mine = found[case, REFERENCE], found[case, name]
    pair = (best.expected, mine.expected) if expected else (best.reward, mine.reward)
    return np.asarray((pair[0] - pair[1]) / per_step(best)[:, None])


def per_step(best: Run) -> FloatArray:
    """Return what Whittle is expected to collect in a step, (S,)."""
    return np.asarray(best.expected[:, -1] / best.marks[-1])


def growth(found: Found, case: str, name: str, expected: bool = True) -> Estimate:
    """Return the exponent of an entrant's cumulative regret."""
    marks = found[case, REFERENCE].marks
    first = min(FIRST, marks[-1] / 10)
    return exponent(lost(found, case, name, expected), marks, first)


def growth_of_steps(found: Found, case: str, name: str) -> Estimate:
    """Return the exponent of what is lost in each doubling of time."""
    marks = found[case, REFERENCE].marks
    first = min(FIRST, marks[-1] / 10)
    return growing(lost(found, case, name), marks, first, _OCTAVE)


def write(report: Report, found: Found) -> None:
    report.heading("What learning costs")
    report.figure(
        picture(found),
        "What was lost until each step, and per step at it, both axes logarithmic; N = 100, "
        "M = 10. Straight lines are power laws; the dotted one grows as the square root.",
        PART,
    )
    end = int(found[found.cases[0], REFERENCE].marks[-1])
    report.paragraph(
        "Random fleets, a different one in each run; only whittle knows the arrival rates. Lost: "
        "what whittle collected more until the end, in steps of its reward, for the same content. "
        "Exponent: b of the fit t^b to the loss until step t; a loss at the start alone makes it "
        "small. Exponent of doublings: of the loss from t to 2t; below 1, the loss per step tends "
        "to zero; 1 is a constant loss per step. "
        f"Fitted to steps {int(min(FIRST, end / 10))} to {end}. Score: 0 is random, 1 is whittle. "
        "All rewards are expected ones given the ages at crawls, which omits the luck of what was "
        "published; “as collected” includes it. Intervals: 95 %, Student's t "
        "over runs; of exponents, bootstrap over runs."
    )
    for case in found.cases:
        rows = [
            [
                name,
                percent(found.relative(case, name, REFERENCE)),
                plain(found.score(case, name, REFERENCE), 3),
                plain(statistics.mean(lost(found, case, name)[:, -1]), 1),
                plain(growth(found, case, name), 2),
                plain(growth_of_steps(found, case, name), 2),
                plain(growth(found, case, name, expected=False), 2),
            ]
            for name in found.entrants(case)
            if name not in (REFERENCE, FLOOR)
        ]
        columns = [
            "agent",
            "second half, relative to whittle",
            "score",
            "lost, steps",
            "exponent",
        ]
        report.table(case, [*columns, "… of doublings", "exponent, as collected"], rows)
    report.paragraph(verdict(found))


def finding(found: Found) -> str:
    """Return what learning the rates costs, in half a sentence."""
    parts = [
        f"{found.relative(case, THOMPSON, REFERENCE).mean:.2%} ({case})"
        for case in found.cases
        if case in {case_of(regime, *USUAL) for regime in REGIMES}
    ]
    return (
        f"{THOMPSON}, which learns the arrival rates, collects {' and '.join(parts)} of what "
        "whittle collects, which knows them, in the second half of a run"
    )


def verdict(found: Found) -> str:
    """Say who meets, in both regimes, what is asked of one agent with one prior."""
    cases = [case_of(regime, *USUAL) for regime in REGIMES]
    names = [name for name in found.entrants(cases[0]) if name not in (REFERENCE, FLOOR)]
    met: dict[str, Callable[[str, str], bool]] = {
        f"at least {NEAR:.0%} of whittle": lambda c, name: (
            found.relative(c, name, REFERENCE).low >= NEAR
        ),
        f"exponent at most {ROOT:g}": lambda c, name: growth(found, c, name).high <= ROOT,
        f"exponent of doublings at most {ROOT:g}, or none, since nothing more is lost": (
            lambda c, name: not growth_of_steps(found, c, name).high > ROOT
        ),
    }
    said = []
    for words, holds in met.items():
        who = [name for name in names if all(holds(c, name) for c in cases)]
        said.append(f"{words}: {'; '.join(who) or 'nobody'}")
    return (
        f"N = {USUAL[0]}, M = {USUAL[1]}, in both regimes, with the whole of the interval: "
        f"{'. '.join(said)}."
    )


def picture(found: Found) -> Any:
    figure, axes = plots.new(2, 2, width=11, height=3.4, sharex=True)
    for column, regime in enumerate(REGIMES):
        case = case_of(regime, *USUAL)
        marks = found[case, REFERENCE].marks
        drawn = [THOMPSON, OPTIMISM, CERTAINTY, TUNING, "thompson, fleet prior"]
        for i, name in enumerate(drawn):
            total = lost(found, case, name).mean(axis=0)
            ends = marks[::_OCTAVE]
            rate = np.diff(total[::_OCTAVE]) / np.diff(ends)
            middle = np.sqrt(ends[1:] * ends[:-1])
            for axis, x, y in ((axes[0], marks, total), (axes[1], middle, rate)):
                positive = np.where(y > 0, y, np.nan)
                colour = plots.PALETTE[i % len(plots.PALETTE)]
                axis[column].plot(x, positive, color=colour, lw=1.4, label=name)
        root = np.sqrt(marks)
        level = np.nanmax(lost(found, case, THOMPSON).mean(axis=0)) / root[-1]
        axes[0][column].plot(marks, level * root, ":", color=plots.FAINT, lw=1)
        axes[0][column].set_title(case)
        axes[1][column].set_xlabel("step")
        for axis in axes[:, column]:
            axis.set_xscale("log")
            axis.set_yscale("log")
    axes[0][0].set_ylabel("lost, steps of whittle")
    axes[1][0].set_ylabel("lost per step")
    axes[0][0].legend(fontsize=8)
    return figure


def exponent(
    lost: FloatArray, marks: FloatArray, first: float, resamples: int = 2000, seed: int = 0
) -> Estimate:
    """Return b of the fit mean lost ≈ c·t^b to marks t ≥ first, with its 95 % interval.

    Least squares in logarithms, of the mean over runs; the interval is the percentile bootstrap
    over runs. Where nothing was lost until some mark, on average or in more than one of twenty
    resamples, there is no power law, and the exponent is unknown.

    Arguments:
        lost: (S, K), cumulated until each mark; S runs.
        marks: (K,) steps.

    >>> t = np.array([100.0, 200.0, 400.0])
    >>> exponent(np.array([3 * t**0.5, 5 * t**0.5]), t, first=100).mean.round(6)
    np.float64(0.5)
    """
    wanted = marks >= first
    curves, logs = lost[:, wanted], np.log(marks[wanted])
    n = len(curves)
    draws = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), resamples) / n
    mean, drawn = curves.mean(axis=0), draws @ curves
    clear = (drawn > 0).all(axis=1)
    if wanted.sum() < 2 or not (mean > 0).all() or clear.mean() < 0.95:
        return statistics.UNKNOWN
    low, high = np.percentile(_slopes(drawn[clear], logs), [2.5, 97.5])
    return Estimate(_slopes(mean[None], logs)[0], float(low), float(high))


def growing(
    lost: FloatArray, marks: FloatArray, first: float, step: int, resamples: int = 2000
) -> Estimate:
    """Return the exponent of what is lost between marks `step` apart, as `exponent`.

    Where marks are even on a logarithmic scale that grows as t^b if all that is lost does, and
    linearly if as much is lost in every step, whatever was lost at the start.

    >>> t = np.geomspace(1, 1000, 61)
    >>> start_and_constant = np.array([20 + 0.005 * t, 20 + 0.006 * t])
    >>> [round(float(e.mean), 2) for e in (
    ...     exponent(start_and_constant, t, 100), growing(start_and_constant, t, 100, 6))]
    [0.09, 1.0]
    """
    return exponent(lost[:, step:] - lost[:, :-step], marks[:-step], first, resamples)


def _slopes(curves: FloatArray, logs: FloatArray) -> FloatArray:
    """Return the slope of each row's logarithm, (R,)."""
    x = logs - logs.mean()
    return np.asarray(np.log(curves) @ x / (x @ x))
