"""The index policies' part of the benchmark: every policy on every reference task."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.evaluation import statistics
from agents.evaluation.rollout import Evaluation
from agents.evaluation.statistics import Estimate
from agents.registry import AGENTS as ALL
from agents.registry import ON_REQUEST
from ephemeral_crawl.core import evaluation, plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.results import provenance, read_csv
from ephemeral_crawl.core.runner import Job, Result, Runner
from ephemeral_crawl.core.study import Rows
from ephemeral_crawl.core.tables import (
    OBSERVES_ALL,
    best_first,
    fraction,
    markdown,
    percent,
    plain,
    recorded_runs,
    records,
    scores,
    without_reference,
)
from experiments.benchmark.suite import SUITE, BenchmarkTask
from experiments.migration import renamed

Runs = dict[str, Evaluation]

# Only one of the policies that estimate arrival rates is included: they are the slowest.
AGENTS = {
    name: kind
    for name, kind in ALL.items()
    if name == "adaptive-thompson" or not name.startswith(("adaptive-", *ON_REQUEST))
}

# The policies whose scores are in the summary; the report has all.
SUMMARISED = ("lagrangian", "static", "adaptive-thompson", "myopic", "oldest-first", "nutch")


class Done(NamedTuple):
    """The results on one task."""

    task: BenchmarkTask
    runs: Runs
    reference: Evaluation | None  # a policy that observes content where the others do not
    score: dict[str, Estimate]
    bound: NDArray[np.float64]  # (), or (S,) for each run's fleet; 0 where there is none
    information: str  # information set for which the bound holds


class Policies(NamedTuple):
    """The records of the index policies, their summary in Markdown, and what they show."""

    records: Rows
    summary: str
    answer: str


def write(report: Report, runner: Runner, seed: int = 0, recorded: Rows | None = None) -> Policies:
    """Run every index policy on every reference task; add tables and figures to a report.

    Arguments:
        recorded: rows of an earlier run, from which the report is written instead.
    """
    runs = _run(runner, seed) if recorded is None else _from_records(recorded)
    report.heading("Index policies")
    with report.details("What the columns mean"):
        report.paragraph(
            "Score: 0 is the random policy, 1 the Whittle index policy. Fraction of bound: "
            "relative to an upper bound on the long-run average reward of every policy with the "
            "given information before a crawl: no content (not observed), all content (observed), "
            "or no random content to observe (deterministic). Brackets: 95 % confidence intervals "
            "(Student's t over runs; all policies meet the same arrivals); a value without an "
            "interval is deterministic. No bound is known for a discounted return (n/a)."
        )
    bounds = _bounds(runner, seed)
    done = [
        Done(task, *without_reference(found), scores(without_reference(found)[0]), *bound)
        for task, found, bound in zip(SUITE, runs, bounds, strict=True)
    ]
    for group, members in groupby(done, key=lambda d: d.task.group):
        _group(report, group, list(members))
    rows = recorded or [
        row for task, found in zip(SUITE, runs, strict=True) for row in _records(task, found, seed)
    ]
    return Policies(rows, _summary(done), _answer(done))


def _answer(done: list[Done]) -> str:
    """Return how close Whittle comes to the bounds, in one sentence."""
    near = {
        d.task.name: mean
        for d in done
        if not np.isnan(mean := fraction(d.runs["whittle"].reward, d.bound).mean)
    }
    least = min(near, key=lambda name: near[name])
    return (
        f"The Whittle index policy collects {np.median(list(near.values())):.2%} of the upper "
        f"bound in the median of {len(near)} tasks, and {near[least]:.2%} at least ({least})."
    )


def _run(runner: Runner, seed: int) -> list[Runs]:
    """Return the runs of all policies, for each task of the suite."""
    todo = [
        _job(task, agent, seed)
        for task in SUITE
        for agent in evaluation.entrants(AGENTS, task.arguments)
    ]
    results = iter(runner.run(todo, evaluation.work))
    return [
        {
            agent: evaluation.as_evaluation(next(results), task.seeds)
            for agent in evaluation.entrants(AGENTS, task.arguments)
        }
        for task in SUITE
    ]


def read(path: Path) -> Rows:
    """Return the records of a file, under the present names of the tasks."""
    return [renamed(row) for row in read_csv(path)]


def _from_records(rows: Rows) -> list[Runs]:
    """Return the runs of a record, which does not have the crawl frequencies of single sources."""
    columns: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        of_task = columns.setdefault((row["group"], row["task"]), {})
        of_task.setdefault(row["agent"], []).append(row)
    lacking = [s.name for s in SUITE if (s.group, s.name) not in columns]
    if lacking:
        raise ValueError(
            f"the records lack the tasks {', '.join(lacking)}; leave out --only-report"
        )
    return [
        {
            agent: recorded_runs(of_agent)
            for agent, of_agent in columns[task.group, task.name].items()
        }
        for task in SUITE
    ]


def _job(task: BenchmarkTask, agent: str, seed: int) -> Job:
    seeds = evaluation.seeds_needed(task.arguments, agent, task.seeds)
    runs = {
        "steps": task.steps,
        "warmup": task.warmup,
        "discount": task.discount,
        "seeds": seeds,
        "seed": seed,
    }
    return {"agent": agent, "arguments": task.arguments, "runs": runs}


def _group(report: Report, group: str, members: list[Done]) -> None:
    report.heading(group)
    rows = []
    for task, runs, reference, score, bound, information in members:
        order = best_first(runs)
        for name in order:
            reward = runs[name].reward
            rows.append(
                [
                    task.name,
                    name,
                    statistics.mean(reward),
                    percent(fraction(reward, bound)),
                    information,
                    plain(score[name]),
                ]
            )
        if reference is not None:
            rows.append([task.name, OBSERVES_ALL, statistics.mean(reference.reward), "", "", ""])
    measured = "discounted return" if members[0].task.discount < 1 else "reward / step"
    columns = ["task", "policy", measured, "fraction of bound", "bound", "score"]
    report.figure(_bars(members), f"Score on: {group}.")
    report.table("All policies, best first", columns, rows)


def _summary(done: list[Done]) -> str:
    """Return a Markdown table of Whittle's rewards and fractions of the bound, and of scores."""
    head = [
        "task",
        "Whittle",
        "fraction of bound",
        "bound",
        *(f"{name}, score" for name in SUMMARISED),
    ]
    lines = [head, ["---", "---:", "---:", "---", *["---:"] * len(SUMMARISED)]]
    for group, members in groupby(done, key=lambda d: d.task.group):
        lines.append([f"**{group}**", *[""] * (len(head) - 1)])
        for task, runs, _, score, bound, information in members:
            reward = runs["whittle"].reward
            of_bound = fraction(reward, bound).mean
            lines.append(
                [
                    task.name,
                    f"{reward.mean():.5g}",
                    "" if np.isnan(of_bound) else f"{of_bound:.2%}",
                    information,
                    *(f"{score[name].mean:.3f}" for name in SUMMARISED),
                ]
            )
    return markdown(lines)


def _bounds(runner: Runner, seed: int) -> list[tuple[NDArray[np.float64], str]]:
    """Return every task's bound and its name; 0 for a discounted return, which has none."""
    bounded = [task for task in SUITE if task.discount == 1]
    todo = [{**_job(task, "whittle", seed), "what": "bound"} for task in bounded]
    found = iter(runner.run(todo, evaluation.bound))
    none: Result = {"bound": 0.0, "name": ""}
    results = [none if task.discount < 1 else next(found) for task in SUITE]
    return [(np.array(result["bound"]), result["name"]) for result in results]


def _records(task: BenchmarkTask, runs: Runs, seed: int) -> list[dict[str, object]]:
    common = {"group": task.group, "task": task.name, **provenance()}
    return [row for name, run in runs.items() for row in records(name, run, seed, **common)]


_CUT = -0.5


def _bars(members: list[Done]) -> object:
    names = [name for name in AGENTS if name != "random"]
    figure, axes = plots.new(width=9, height=0.6 + 0.08 * len(names) * len(members))
    width = 0.8 / len(names)
    for j, name in enumerate(names):
        found = [done.score.get(name, statistics.UNKNOWN) for done in members]
        middle = np.arange(len(members)) + (j - (len(names) - 1) / 2) * width
        shown = np.array([max(s.mean, _CUT) for s in found])
        for place, estimate in zip(middle, found, strict=True):
            if estimate.mean < _CUT:
                axes.text(
                    _CUT + 0.01,
                    place,
                    f"{estimate.mean:.2f}",
                    va="center",
                    size=7,
                    color=plots.ON_DARK,
                )
        spread = np.array([[s.mean - s.low, s.high - s.mean] for s in found]).T
        axes.barh(
            middle,
            shown,
            width,
            xerr=spread,
            color=plots.colour(name),
            label=name,
            error_kw={"lw": 1, "ecolor": plots.INK},
        )
    axes.set_yticks(range(len(members)), [done.task.name for done in members])
    axes.invert_yaxis()
    axes.axvline(0, color=plots.FAINT, lw=1)
    axes.axvline(1, color=plots.FAINT, lw=1, ls="--")
    axes.set(xlabel="score: 0 random, 1 Whittle (bars are clipped at −0.5)", xlim=(_CUT, 1.1))
    axes.legend(ncols=(len(names) + 1) // 2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes.grid(axis="y", visible=False)
    return figure
