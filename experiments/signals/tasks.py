"""What all parts share: fleets, budgets and the quality of signals; and what must be true of all:
no policy is above its bound, and worse signals are not worth more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.statistics import Estimate
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job
from experiments.core.data import Case, Cell, Data, change, mean, share
from experiments.core.data import gain as over_case
from experiments.core.study import Size

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
TASK = {"fleet": "fleet", "budget": "M"}  # columns of the record, with their headings
NONE, OBSERVED = "no signals", "observed"
PUBLISHED = "reward", "published"  # the share of what is published: the measure of all parts
BOUND = "reward", "bound"

SHARE = mean(*PUBLISHED)


def gain(level: float = 0.95, **other: Any) -> Cell:
    """Return the cell of the relative gain in reward over another case, on the same arrivals."""
    return over_case(*PUBLISHED, level, **other)


def share_and_gain(collected: Estimate, gain: Estimate) -> str:
    """Return what stands in a cell: the share, and what is gained."""
    return share(collected) + (f" ({change(gain)})" if gain.mean else "")


def tasks(size: Size) -> list[tuple[str, str, int]]:
    """Return name, `sources` and budget of every task."""
    fleets = {"fleet F": FLEETS["fleet F"]} if size.quick else FLEETS
    return [
        (name, sources, budget)
        for name, (sources, budgets) in fleets.items()
        for budget in (budgets[:1] if size.quick else budgets)
    ]


def signals(recall: float, precision: float, delay: float = 0.0) -> dict[str, Any]:
    """Return the environment's argument `signals` as JSON."""
    return {"signals": {"recall": recall, "precision": precision, "delay": delay}}


def label(recall: float, precision: float) -> str:
    """Return the name of a quality.

    >>> label(0.5, 0.8)
    'r = 0.5, p = 0.8'
    """
    return f"r = {recall:g}, p = {precision:g}"


def job(
    size: Size,
    task: tuple[str, str, int],
    agent: str,
    arguments: Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
    **columns: Any,
) -> Job:
    """Return the job of an agent on a task.

    Arguments:
        task: name, `sources` and budget.
        arguments: more of the environment, as JSON.
        options: of the agent.
        columns: more columns of the records.
    """
    fleet, sources, budget = task
    own = {"case": f"{fleet}, M = {budget}", "agent": agent, "budget": budget, "fleet": fleet}
    environment = {
        "arrivals": "poisson-items",  # signals announce single items
        "observed": False,
        "sources": sources,
        "budget": budget,
        **arguments,
    }
    own_job: Job = {
        "columns": {**own, **columns, "seed": size.seed},
        "agent": agent,
        "arguments": environment,
        "runs": size.runs,
    }
    return own_job | ({"options": dict(options)} if options else {})


_ERRORS = 0.05  # probability that any of the comparisons of a table is an error


class Comparison(NamedTuple):
    """Paired differences, none of which should be positive."""

    name: str
    z: float  # mean over standard error
    runs: int


def check(report: Report, parts: Mapping[str, Data]) -> None:
    """Add the checks of the parts that were run to the report."""
    report.heading("What must be true")
    report.paragraph(
        "Clearly: by more than chance explains in the largest of so many comparisons, with "
        f"probability {1 - _ERRORS:.0%} (Bonferroni). The most: the largest of the differences of "
        "rewards, in standard errors, positive where it is what should not be; of the bounds, the "
        "largest fall, or if none falls the smallest rise."
    )
    rows = [row("rewards above the bound of their information set", list(above(parts)))]
    if "quality" in parts:
        data = parts["quality"]
        rows.append(row("rewards that fall with a better recall or precision", list(falls(data))))
        falling = [
            float(data.where(**better)[0]["bound"]) / float(data.where(**worse)[0]["bound"]) - 1
            for worse, better in _pairs(data)
        ]
        clear = sum(fall < -1e-3 for fall in falling)
        least = f"{min(falling):+.2%}" if falling else "n/a"
        name = "bounds that fall with a better recall or precision"
        rows.append([name, f"{len(falling)}", f"{clear}", least])
    report.table("Checks", ["what should not be", "comparisons", "clearly so", "the most"], rows)


def row(name: str, comparisons: list[Comparison]) -> list[str]:
    """Return the row of a check: the number of comparisons, and of those that are clear."""
    if not comparisons:
        return [name, "0", "0", "n/a"]
    level = 1 - _ERRORS / len(comparisons)
    clear = [c for c in comparisons if c.z > statistics.t_quantile(level, c.runs - 1)]
    most = max(comparisons, key=lambda c: c.z)
    return [name, str(len(comparisons)), str(len(clear)), f"{most.z:+.1f} s.e. ({most.name})"]


def above(parts: Mapping[str, Data]) -> Iterator[Comparison]:
    """Yield every agent's reward less the bound."""
    for part, data in parts.items():
        if not data.rows or "bound" not in data.rows[0]:
            continue
        with_bound = Data([row for row in data.rows if row["bound"] not in ("", "nan")])
        runs = ("run", "reward", "seed")
        for case in with_bound.cases(*(name for name in data.rows[0] if name not in runs)):
            ratio = with_bound.numbers(*BOUND, **case)
            share = with_bound.numbers(*PUBLISHED, **case)
            name = f"{part}, {case['case']}, {case['agent']}"
            yield from _compared(name, share * (1 - 1 / ratio))


def falls(data: Data) -> Iterator[Comparison]:
    """Yield the reward under worse signals less that under better ones."""
    for worse, better in _pairs(data):
        name = f"{worse['case']}, {worse['quality']} against {better['quality']}"
        pair = (data.numbers(*PUBLISHED, **case) for case in (worse, better))
        yield from _compared(name, next(pair) - next(pair))


def _pairs(data: Data) -> Iterator[tuple[Case, Case]]:
    """Yield pairs of neighbouring qualities of the same task: the worse, the better."""
    columns = "fleet", "budget", "case", "recall", "precision", "quality"
    signalled = [c for c in data.cases(*columns) if c["quality"] not in (NONE, OBSERVED)]
    for worse in signalled:
        for moves, stays in (("recall", "precision"), ("precision", "recall")):
            better = [
                case
                for case in signalled
                if all(case[name] == worse[name] for name in ("case", stays))
                and float(case[moves]) > float(worse[moves])
            ]
            if better:
                yield worse, min(better, key=lambda case: float(case[moves]))


def _compared(name: str, differences: np.ndarray) -> Iterator[Comparison]:
    error = differences.std(ddof=1) / np.sqrt(differences.size)
    if error > 0:
        yield Comparison(name, float(differences.mean() / error), differences.size)
