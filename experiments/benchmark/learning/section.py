"""The section of the report on learning agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ephemeral_crawl.core.report import Report
from experiments.benchmark.learning import figures, leaderboard
from experiments.benchmark.learning.entrants import Entrant
from experiments.benchmark.learning.runs import Records
from experiments.benchmark.learning.scores import FAILED, Table, table_of
from experiments.benchmark.learning.training import code_of

_HOW = (
    "Each run is a training with its own seed. At up to ten intermediate points and at the end, "
    "the frozen policy is evaluated without exploration, after a warm-up, on the same arrivals for "
    "all agents (docs/researchers/learning-agents.md). Score: 0 is the random policy, 1 the "
    "Whittle policy, which knows all parameters. IQM: interquartile mean over the runs of all "
    "tasks, with 95 % intervals (stratified bootstrap); it trims away the worst and the best "
    "quarter of the runs, so that mean, minimum and the share of failed runs (score below 0.8) "
    "stand beside it. An environment step consists of N source steps. (NeurWIN trains in a "
    "simulator of single sources; its steps are those of the simulator.) Core-seconds: learning "
    "time on one core. “Source steps, s to score 0.95”: medians over runs of those until the first "
    "evaluation from which on the score stays there; “–” where fewer than half of the runs reach "
    "it. Index error: Σ|learnt − true|/Σ true over the sources and steps of a rollout, for agents "
    "that learn Whittle indices. Fraction of bound: relative to the upper bound on the mean reward "
    "of every policy with the same observations; none is known for a discounted return."
)


def write(report: Report, records: Records, entrants: Sequence[Entrant]) -> Table:
    """Add headings, tables and figures of all learners; return the scores."""
    table = table_of(records)
    report.heading("Learning agents")
    shared = max(table.tasks, key=lambda task: len(table.among([task])))
    report.figure(
        figures.runs(table, [shared]),
        f"Every run of the {len(table.among([shared]))} agents that learn {shared}. Bar: "
        f"interquartile mean; left of the dashed line ({FAILED:g}) a run has failed.",
    )
    _table(
        report,
        "All agents, each on the tasks on which it was trained; by their number, then by score",
        leaderboard.OVERVIEW,
        leaderboard.lines(table, table.tasks),
    )
    with report.details("How scores, samples and times are measured"):
        report.paragraph(_HOW)
        report.paragraph(_observations(entrants))
    for group, tasks in leaderboard.groups(table):
        _group(report, table, group, tasks)
    report.heading("Agents above their bound")
    report.paragraph(_bounds(table))
    report.heading("Code that made the runs")
    report.paragraph(_code(table))
    return table


def _table(
    report: Report, caption: str, columns: dict[str, Any], lines: Sequence[leaderboard.Line]
) -> None:
    report.table(caption, list(columns), leaderboard.rows(columns, lines))


def _group(report: Report, table: Table, group: str, tasks: list[str]) -> None:
    report.heading(f"Learning: {group}")
    report.figure(
        figures.runs(table, tasks),
        f"Every run on {_count(tasks)} of {group}; not every agent was trained on all. Bar: "
        f"interquartile mean; left of the dashed line ({FAILED:g}) a run has failed.",
    )
    trained = leaderboard.lines(table, tasks)
    _table(
        report,
        "Scores, by number of tasks and then by score",
        leaderboard.SCORES,
        leaderboard.lines(table, tasks, baselines=True),
    )
    for caption, columns, lines in (
        ("Samples and time, medians over runs", leaderboard.COSTS, trained),
        ("Best agent of each task", leaderboard.BEST, leaderboard.best(table, tasks)),
    ):
        with report.details(caption):
            _table(report, caption, columns, lines)
    if curved := figures.evaluated(table, tasks):
        caption = (
            f"Learning curves on {_count(curved)} of {group}: interquartile mean and interquartile "
            "range over runs."
        )
        report.figure(figures.curves(table, curved, figures.STEPS), caption)
        with report.details("Learning curves by time"):
            report.figure(figures.curves(table, curved, figures.SECONDS), caption)
    if compared := figures.compared(table, tasks):
        on = "" if len(tasks) == 1 else f" on {', '.join(map(leaderboard.short_of, compared))}"
        with report.details("Performance profiles, and who is better than whom"):
            report.figure(
                figures.profiles(table, compared),
                f"Performance profiles{on}: fraction of runs above each score, for the agents "
                "trained on all of these. A curve further to the right is better.",
            )
            report.figure(
                figures.improvements(table, compared),
                f"Probability that a run of the row's agent scores higher than one of the "
                f"column's{on}.",
            )


def _count(tasks: Sequence[str]) -> str:
    return f"{len(tasks)} task" + "s" * (len(tasks) != 1)


def source(records: Records) -> str:
    """Return the provenance of the Markdown table in one line."""
    runs = sum(not row.get("protocol") for row in records.runs)
    commits = sorted({row["commit"] for row in records.runs})
    dates = sorted({row["date"] for row in records.runs})
    commands = sorted({row["command"] for row in records.runs})
    return (
        f"{runs:,} results, all in `runs.csv.gz`; `{'`, `'.join(commands)}`, "
        f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}, commit {', '.join(commits)}."
    )


def _observations(entrants: Sequence[Entrant]) -> str:
    shown: dict[str, list[str]] = {}
    for entrant in entrants:
        shown.setdefault(", ".join(entrant.features), []).append(entrant.name)
    parts = [f"{', '.join(names)}: {features}" for features, names in shown.items()]
    sharing = sorted(
        {entrant.name for entrant in entrants if leaderboard.shares_parameters(entrant.name)}
    )
    return (
        f"Observed features. {'; '.join(parts)}. Agents with parameters shared by all sources: "
        f"{', '.join(sharing) or 'none'}."
    )


def _bounds(table: Table) -> str:
    found = leaderboard.above_bound(table)
    if not found:
        return "None: no agent's mean over its runs exceeds the bound for its observations."
    fraction, agent, task = found[0]
    return (
        f"The bound holds for the long-run expected reward; a measured mean may exceed it by "
        f"chance or because of content at the start. {len(found)} means over runs do so, by at "
        f"most {fraction - 1:.3%} ({agent}, {task})."
    )


def _code(table: Table) -> str:
    """Return which runs were made with other code of their learner than that of this page."""
    kinds = {entrant.name: entrant.kind for entrant in leaderboard.ALL}
    old = {name: runs.total() - runs[code_of(kinds[name])] for name, runs in table.versions.items()}
    total = sum(runs.total() for runs in table.versions.values())
    parts = ", ".join(f"{n} of {name}" for name, n in old.items() if n)
    return (
        f"{sum(old.values()):,} of {total:,} runs were made with an earlier version of the modules "
        "of their learner, and the environment may have changed since any of them; the commit of "
        "every row is in the record, and below. --redo repeats runs."
        + (f" Runs of earlier modules: {parts}." if parts else "")
    )
