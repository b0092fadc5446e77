"""What learning costs: regret against the Whittle policy that knows the rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.statistics import Estimate
from crawl_env.numerics import FloatArray
from experiments.adaptive.growth import exponent, growing
from experiments.adaptive.players import (
    CERTAINTY,
    FLOOR,
    LOW,
    OPTIMISM,
    REFERENCE,
    THOMPSON,
    TUNING,
    named,
    player,
)
from experiments.adaptive.runs import Found, Run, unit
from experiments.adaptive.sizes import Size
from experiments.core import plots
from experiments.core.report import Report
from experiments.core.runner import Job
from experiments.core.tables import percent, plain

PART = "regret"
REGIMES = ("dense", "sparse")
_OCTAVE = 6  # marks, over which the loss per epoch is drawn
NEAR, ROOT = 0.99, 0.5  # what is asked of the share, and of the exponents
FIRST = 100  # epoch from which exponents are fitted

_KNOWING, _CHANCE = player(REFERENCE), player(FLOOR)
_SOLUTIONS = [player(agent) for agent in (CERTAINTY, OPTIMISM, THOMPSON, TUNING)]
_SIZES = [
    _KNOWING,
    _CHANCE,
    player(THOMPSON),
    named("thompson, fleet prior", player(THOMPSON, "fleet-prior")),
]
PLAYERS = [
    _KNOWING,
    _CHANCE,
    *_SOLUTIONS,
    named("certainty, fleet prior", player(CERTAINTY, "fleet-prior")),
    named("thompson, learns what to keep", player(THOMPSON, "forgetting")),
    named("self-tuning, keeps all", player(TUNING, "gamma-poisson")),
    named("optimism .99", player(OPTIMISM, confidence=0.99)),
    named("optimism, fleet prior", player(OPTIMISM, "fleet-prior")),
    _SIZES[-1],
    named("certainty, prior of 1 an epoch", player(CERTAINTY, prior=LOW)),
    named("thompson, prior of 1 an epoch", player(THOMPSON, prior=LOW)),
    *(
        named(f"thompson, weak prior of {mean} an epoch", player(THOMPSON, prior=(0.5, 0.5 / mean)))
        for mean in (5, 500)
    ),
    *(
        named(f"thompson, changed: {name}", player(THOMPSON, estimator, "changed"))
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


def units(size: Size) -> list[Job]:
    shapes = (USUAL,) if size.quick else SHAPES
    return [
        unit(
            PART,
            case_of(regime, *shape),
            chosen,
            {"sources": f"drawn-{regime}-{shape[0]}", "budget": shape[1]},
            size.epochs,
            size.seeds,
            size.seed,
        )
        for shape in shapes
        for regime in REGIMES
        for chosen in (PLAYERS if shape == USUAL else _SIZES)
    ]


def case_of(regime: str, n: int, m: int) -> str:
    return f"{regime}, N = {n}, M = {m}"


def lost(found: Found, case: str, name: str, expected: bool = True) -> FloatArray:
    """Return what a player lost against Whittle until each mark, (S, K), in epochs of Whittle."""
    best, mine = found[case, REFERENCE], found[case, name]
    pair = (best.expected, mine.expected) if expected else (best.reward, mine.reward)
    return np.asarray((pair[0] - pair[1]) / per_epoch(best)[:, None])


def per_epoch(best: Run) -> FloatArray:
    """Return what Whittle is expected to collect in an epoch, (S,)."""
    return np.asarray(best.expected[:, -1] / best.marks[-1])


def growth(found: Found, case: str, name: str, expected: bool = True) -> Estimate:
    """Return the exponent of a player's cumulative regret."""
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
    end = int(found[found.cases[0], REFERENCE].marks[-1])
    report.paragraph(
        "Random fleets, another one in each run, not seen before crawling; nobody but whittle is "
        "told how much a source publishes. Lost: what whittle collected more until the end, in "
        "epochs of its reward, for the same content. Exponent: b of the fit t^b to what was lost "
        "until epoch t; a costly start alone makes it small. Exponent of doublings: of what is "
        "lost from t to 2t; below 1, the loss per epoch goes to nothing; 1 is a loss that stays. "
        f"Fitted to epochs {int(min(FIRST, end / 10))} to {end}. Score: 0 is a random choice, 1 "
        "whittle. All are of what the crawls bring on average given "
        "their ages, which leaves out the luck of what was published; “as collected” is with "
        "it. Intervals: 95 %, bootstrap over runs."
    )
    for case in found.cases:
        rows = [
            [
                name,
                percent(found.share(case, name, REFERENCE)),
                plain(found.score(case, name, REFERENCE), 3),
                plain(statistics.mean(lost(found, case, name)[:, -1]), 1),
                plain(growth(found, case, name), 2),
                plain(growth_of_steps(found, case, name), 2),
                plain(growth(found, case, name, expected=False), 2),
            ]
            for name in found.players(case)
            if name not in (REFERENCE, FLOOR)
        ]
        columns = ["player", "second half, share of whittle", "score", "lost, epochs", "exponent"]
        report.table(case, [*columns, "… of doublings", "exponent, as collected"], rows)
    report.paragraph(verdict(found))
    report.figure(
        picture(found),
        "What was lost until each epoch, and per epoch at it, both axes logarithmic; N = 100, "
        "M = 10. Straight lines are power laws; the dotted one grows as the square root.",
        PART,
    )


def verdict(found: Found) -> str:
    """Say who meets, in both regimes, what is asked of one agent with one prior."""
    cases = [case_of(regime, *USUAL) for regime in REGIMES]
    names = [name for name in found.players(cases[0]) if name not in (REFERENCE, FLOOR)]
    met: dict[str, Callable[[str, str], bool]] = {
        f"at least {NEAR:.0%} of whittle": lambda c, name: (
            found.share(c, name, REFERENCE).low >= NEAR
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
        axes[0][column].plot(marks, level * root, ":", color="#444", lw=1)
        axes[0][column].set_title(case)
        axes[1][column].set_xlabel("epoch")
        for axis in axes[:, column]:
            axis.set_xscale("log")
            axis.set_yscale("log")
    axes[0][0].set_ylabel("lost, epochs of whittle")
    axes[1][0].set_ylabel("lost per epoch, share")
    axes[0][0].legend(fontsize=8)
    return figure
