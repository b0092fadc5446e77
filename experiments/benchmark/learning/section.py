"""The section of the report on learning agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.results import provenance
from experiments.benchmark.learning import figures, leaderboard
from experiments.benchmark.learning.entrants import Entrant
from experiments.benchmark.learning.runs import Records
from experiments.benchmark.learning.scores import Table, table_of
from experiments.benchmark.learning.training import code_of

_HOW = """
Each run is a training with its own seed. At up to ten intermediate points and at the end, the
frozen policy is evaluated without exploration, after a warm-up, on the same arrivals for all
agents. Score: 0 is the random policy, 1 the Whittle policy, which knows all parameters. IQM:
interquartile mean over the runs of all tasks, with 95 % intervals (stratified bootstrap). An
environment step is a step of one environment; it consists of N source steps, one for each source.
(NeurWIN trains in a simulator of single sources with random initial states and without a budget;
its steps are those of the simulator.) Agents with shared parameters learn one function for all
sources; the others learn about each source from its own crawls only. Core-seconds: learning time on
one core, without the evaluations. “Source steps, s to score 0.95”: medians over runs of the source
steps and seconds until the first evaluation from which on the score stays at or above 0.95; “–”
where fewer than half of the runs reach it. Index error: Σ|learnt − true|/Σ true over the sources
and steps of a rollout of the frozen policy, for agents that learn Whittle indices. Fraction of
bound: relative to the upper bound on the mean reward of every policy with the same observations;
agents that observe only ages are compared with the bound for unobserved content on all tasks. No
bound is known for a discounted return.
""".replace("\n", " ").strip()


def write(report: Report, records: Records, entrants: Sequence[Entrant]) -> Table:
    """Add headings, tables and figures of all learners; return the scores."""
    table = table_of(records)
    report.heading("Learning agents")
    report.paragraph(_HOW)
    report.paragraph(_observations(entrants))
    for group, tasks in leaderboard.groups(table):
        report.heading(f"Learning: {group}")
        report.table(
            "Scores, by number of tasks and then by score",
            leaderboard.SCORE_COLUMNS,
            leaderboard.score_rows(table, tasks),
        )
        report.table(
            "Samples and time, medians over runs",
            leaderboard.COST_COLUMNS,
            leaderboard.cost_rows(table, tasks),
        )
        report.table(
            "Best agent of each task",
            leaderboard.BEST_COLUMNS,
            leaderboard.best(table, tasks),
        )
        if len(tasks) > 1:
            report.figure(
                figures.profiles(table, tasks),
                f"Performance profiles over {group}: fraction of runs above each score, for the "
                "agents trained on all tasks. A curve further to the right is better.",
            )
            report.figure(
                figures.improvements(table, tasks),
                "Probability that a run of the row's agent scores higher than one of the "
                "column's agent.",
            )
        report.figure(
            figures.curves(table, tasks),
            f"Learning curves on {group}: interquartile mean and interquartile range over runs.",
        )
    report.heading("Agents above their bound")
    report.paragraph(_bounds(table))
    report.heading("Provenance of the runs")
    report.paragraph(_made_by(records))
    report.paragraph(_outdated(table))
    return table


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


def _made_by(records: Records) -> str:
    made = Counter((row["date"], row["commit"], row["machine"]) for row in records.runs)
    parts = [
        f"{n} rows: {date}, commit {commit}, {where}" for (date, commit, where), n in made.items()
    ]
    today = provenance()["commit"]
    return f"{'; '.join(parts)}. Code of this report: {today}."


def _outdated(table: Table) -> str:
    kinds = {entrant.name: entrant.kind for entrant in leaderboard.ALL}
    old = {name: runs.total() - runs[code_of(kinds[name])] for name, runs in table.versions.items()}
    parts = [f"{n} of {name}" for name, n in old.items() if n]
    if not parts:
        return "All runs were made with the present code of the learners."
    return (
        "Runs made with an earlier version of the learner's code (--redo repeats them): "
        f"{', '.join(parts)}."
    )
