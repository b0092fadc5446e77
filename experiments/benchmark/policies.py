"""The index policies' part of the benchmark: every policy on every reference task."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from agents.evaluation import benchmark, statistics
from agents.evaluation.statistics import Estimate
from agents.registry import AGENTS as ALL
from agents.registry import CLAIRVOYANT, ON_REQUEST
from crawl_env import tasks
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core import evaluation, plots
from ephemeral_crawl.core.evaluation import (
    FLOOR,
    OBSERVES_ALL,
    REFERENCE,
    best_first,
    fraction,
    markdown,
    percent,
    plain,
    records,
)
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result, Runner
from ephemeral_crawl.core.study import Rows, attributed
from experiments.benchmark.suite import SUITE, Setting
from experiments.core.data import Data
from experiments.leaderboard import FOLDER, published_results

# Only one of the policies that estimate arrival rates is included: they are the slowest.
AGENTS = {
    name: kind
    for name, kind in ALL.items()
    if name == "adaptive-thompson" or not name.startswith(("adaptive-", *ON_REQUEST))
}

# The policies whose scores are in the summary; the report has all.
SUMMARISED = ("lagrangian", "static", "adaptive-thompson", "myopic", "oldest-first", "nutch")
LEARN = ("in-context", "adaptive-self-tuning")  # shown on the core: they learn in the run


class TaskResults(NamedTuple):
    """The results on one task."""

    task: Setting
    rewards: dict[str, FloatArray]  # of each policy, by run
    reference: FloatArray | None  # of one that observes content where the others do not
    bound: FloatArray  # (), or (S,) for each run's fleet; 0 where there is none
    information: str  # information set for which the bound holds

    def score(self, name: str) -> Estimate:
        """Return (policy − random)/(Whittle − random)."""
        mine, floor, best = (self.rewards[who] for who in (name, FLOOR, REFERENCE))
        return statistics.score(mine, floor, best)

    def of_bound(self, name: str) -> Estimate:
        return fraction(self.rewards[name], self.bound)


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
    rows = measured(runner, seed) if recorded is None else recorded
    core(report, [result for _, result in published_results(FOLDER)])
    task_results = results(rows, _bounds(runner, seed))
    report.heading("Index policies")
    for group, members in groupby(task_results, key=lambda d: d.task.group):
        _group(report, group, list(members))
    report.paragraph(
        "Score: 0 is the random policy, 1 the Whittle index policy. Fraction of bound: relative to "
        "an upper bound on the long-run average reward of every policy with the given information "
        "before a crawl: no content (not observed), all content (observed), or no random content "
        "to observe (deterministic). Brackets: 95 % confidence intervals (Student's t over runs; "
        "all policies meet the same arrivals); a value without an interval is deterministic. No "
        "bound is known for a discounted return (n/a)."
    )
    return Policies(rows, _summary(task_results), _answer(task_results))


def core(report: Report, published: Sequence[dict[str, Any]]) -> None:
    """Add the core tasks with their headroom: recorded references, and agents that learn.

    Arguments:
        published: results of the leaderboard.
    """
    report.heading("The core tasks, and the room in them")
    scores = {
        result["agent"]: benchmark.scores_of(result["runs"])
        for result in published
        if result["agent"] in LEARN and {*tasks("core")} <= {*result["scores"]}
    }
    rows = []
    for task_id, task in tasks("core").items():
        own = {name: np.array(one.rewards) for name, one in task.references.items()}
        low, best = own[FLOOR], own[task.best]
        stronger = task.stronger[0] if task.stronger else ""
        unlearnt, more, bound = (
            plain(statistics.score(own[name], low, best) if name in own else statistics.UNKNOWN)
            for name in ("best without learning", stronger, "bound")
        )
        mine = [plain(scores.get(name, {}).get(task_id, statistics.UNKNOWN)) for name in LEARN]
        more = f"{more} {stronger}" if stronger else "–"
        rows.append([task.name, task.information, unlearnt, *mine, bound, task.best, more])
    names = [
        "task",
        "information",
        "best without learning",
        *LEARN,
        "bound",
        "scores 1",
        "stronger",
    ]
    report.table("Scores on the core tasks: 0 is the random policy", names, rows)
    report.paragraph(f"{' and '.join(LEARN)}: as published on the leaderboard.")


def measured(runner: Runner, seed: int) -> Rows:
    """Return a row for each run of each policy on each task."""
    cases = [(task, name) for task in SUITE for name in evaluation.entrants(AGENTS, task.arguments)]
    outcomes = runner.run([_job(task, name, seed) for task, name in cases], evaluation.work)
    return attributed(
        row
        for (task, name), result in zip(cases, outcomes, strict=True)
        for row in records(
            name,
            evaluation.as_evaluation(result, task.seeds),
            seed,
            group=task.group,
            task=task.name,
        )
    )


def results(rows: Rows, bounds: list[tuple[FloatArray, str]]) -> list[TaskResults]:
    """Return the results on each task of the suite.

    Raises:
        ValueError: the rows lack a task.
    """
    data = Data(rows)
    cases = [{"group": task.group, "task": task.name} for task in SUITE]
    lacking = [case["task"] for case in cases if not data.where(**case)]
    if lacking:
        raise ValueError(
            f"the records lack the tasks {', '.join(lacking)}; leave out --only-report"
        )
    rewards = [
        {name: data.numbers("reward", **case, agent=name) for name in data.values("agent", **case)}
        for case in cases
    ]
    references = [by_policy.pop(CLAIRVOYANT, None) for by_policy in rewards]
    return [
        TaskResults(*parts[:3], *parts[3])
        for parts in zip(SUITE, rewards, references, bounds, strict=True)
    ]


def _job(task: Setting, agent: str, seed: int) -> Job:
    seeds = evaluation.seeds_needed(task.arguments, agent, task.seeds)
    length = {"steps": task.steps, "warmup": task.warmup, "discount": task.discount}
    runs = {**length, "seeds": seeds, "seed": seed}
    return {"agent": agent, "arguments": task.arguments, "runs": runs}


def _bounds(runner: Runner, seed: int) -> list[tuple[FloatArray, str]]:
    """Return every task's bound and its name; 0 for a discounted return, which has none."""
    with_bound = [task for task in SUITE if task.discount == 1]
    todo = [{**_job(task, "whittle", seed), "what": "bound"} for task in with_bound]
    values = iter(runner.run(todo, evaluation.bound))
    none: Result = {"bound": 0.0, "name": ""}
    bounds = [none if task.discount < 1 else next(values) for task in SUITE]
    return [(np.array(bound["bound"]), bound["name"]) for bound in bounds]


def _answer(results: list[TaskResults]) -> str:
    """Return how close Whittle comes to the bounds, in one sentence."""
    near = {d.task.name: d.of_bound("whittle").mean for d in results if d.task.discount == 1}
    least = min(near, key=lambda name: near[name])
    return (
        f"The Whittle index policy collects {np.median(list(near.values())):.2%} of the upper "
        f"bound in the median of {len(near)} tasks, and {near[least]:.2%} at least ({least})."
    )


def _group(report: Report, group: str, members: list[TaskResults]) -> None:
    rows = []
    for member in members:
        for name in best_first(member.rewards):
            mean, score = statistics.mean(member.rewards[name]), plain(member.score(name))
            of_bound = percent(member.of_bound(name))
            rows.append([member.task.name, name, mean, of_bound, member.information, score])
        if member.reference is not None:
            mean = statistics.mean(member.reference)
            rows.append([member.task.name, OBSERVES_ALL, mean, *[""] * 3])
    measure = "discounted return" if members[0].task.discount < 1 else "reward / step"
    columns = ["task", "policy", measure, "fraction of bound", "bound", "score"]
    report.figure(_heat_map(members), f"Scores, 0 random and 1 Whittle: {group}.")
    report.table(f"{group}: all policies, best first", columns, rows)


def _summary(results: list[TaskResults]) -> str:
    """Return a Markdown table for each group of tasks: Whittle's rewards and fractions of the
    bound, and the scores of other policies."""
    head = ["task", "Whittle", "fraction of bound", "bound", *SUMMARISED]
    rule = ["---", "---:", "---:", "---", *["---:"] * len(SUMMARISED)]
    tables = []
    for group, members in groupby(results, key=lambda d: d.task.group):
        rows = []
        for one in members:
            of_bound = one.of_bound("whittle").mean
            cells = (f"{one.score(name).mean:.3f}" for name in SUMMARISED)
            whittle = f"{one.rewards['whittle'].mean():.5g}"
            share = "" if np.isnan(of_bound) else f"{of_bound:.2%}"
            rows.append([one.task.name, whittle, share, one.information, *cells])
        tables.append(f"**{group}**\n\n{markdown([head, rule, *rows])}")
    return "\n".join(tables)


def _heat_map(members: list[TaskResults]) -> Any:
    names = [name for name in AGENTS if name != FLOOR]
    score = np.array(
        [[d.score(name).mean if name in d.rewards else np.nan for d in members] for name in names]
    )
    figure, axes = plots.new(width=4.4, height=1.9 + 0.21 * len(names))
    plots.cells(axes, np.clip(score, -1, 1), score, (-1, 1))
    labels = [textwrap.fill(member.task.name, 24) for member in members]
    axes.set_xticks(range(len(members)), labels, rotation=90, size=7)
    axes.set_yticks(range(len(names)), names, size=8)
    return figure
