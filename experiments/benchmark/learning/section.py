"""The section of the report on learning agents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ephemeral_crawl.core.report import Report
from experiments.benchmark.learning import figures, scoreboard
from experiments.benchmark.learning.entrants import Suite
from experiments.benchmark.learning.scores import Row, ScoreTable

_COLUMNS = 9  # of a heat map
_HOW = (
    "Every learner is trained on every task that it can play, for the same number of source steps "
    "(an environment step consists of N), which it never exceeds: an update that would is not "
    "made. (NeurWIN trains in a simulator of single sources; its steps are those of the "
    "simulator.) Its settings are those of the best of so many trials of tuning on fleets that "
    "occur nowhere else; trial 0 has the defaults, and the rule by which the others differ is the "
    "same for all (`Entrant.trial`). Each run is a training with its own seed. At intermediate "
    "points and at the end, the frozen policy is evaluated without exploration, after a warm-up, "
    "on the same arrivals for all agents. A run fails if it is not clearly above the best policy "
    "that learns nothing: random, fixed, oldest-first or myopic, whichever is best on this task "
    "and fleet; clearly means by the paired 95 % interval over the arrivals of the evaluation. "
    "(myopic knows the parameters, which some of the learners do not.) Nobody is ranked by tasks "
    "on which Whittle itself is not clearly above that policy. Intervals of the IQM: 95 %, "
    "stratified bootstrap, from 5 runs on. Area: mean score while the budget is spent, with equal "
    "weight for equal factors, from 2 % of the budget. Index error: Σ|learnt − true|/Σ true over "
    "the sources and steps of a rollout, for agents that learn Whittle indices."
)


def write(report: Report, tables: dict[int, ScoreTable], suite: Suite) -> None:
    """Add headings, tables and figures of all learners."""
    report.heading("Learning agents")
    with report.details("How learners are trained and compared, and what counts as failed"):
        report.paragraph(_HOW)
    most = max(tables, key=lambda budget: (len(tables[budget].runs), budget))  # of the learners
    for budget, table in sorted(tables.items(), reverse=True):
        _budget(report, table, beside=budget == most)
    report.heading("Agents above their bound")
    report.paragraph(_bounds(tables))
    report.heading("What is left to run")
    report.paragraph(_left(tables, suite))


def _budget(report: Report, table: ScoreTable, beside: bool) -> None:
    report.heading(f"Learning with {table.budget:,} source steps")
    report.paragraph(scoreboard.answer(table))
    grouped = [task for _, tasks in scoreboard.groups(table) for task in tasks]
    for i, some in enumerate(batched(grouped, _COLUMNS)):
        report.figure(
            figures.heat_map(table, some),
            f"{_where(some)}. Scores (IQM over runs). Blue: part of the way from the best policy "
            "that learns nothing (first row) to Whittle; red: below it; no colour: the task leaves "
            "no room. Lines divide what agents know.",
            name=f"scores-{table.budget}-{i + 1}" if beside else None,
        )
    tasks = table.ranked
    report.table(
        f"All agents on the {len(tasks)} tasks that leave room for learning, by what they know",
        scoreboard.AGGREGATES,
        scoreboard.aggregates(table, tasks),
    )
    with report.details("Learning curves"):
        report.figure(
            figures.curves(table, tasks),
            "Score while learning, each agent over the others: IQM and interquartile range over "
            "the runs of all its tasks.",
        )
    with report.details("Performance profiles, and who is better than whom"):
        report.figure(
            figures.profiles(table, tasks),
            "Fraction of the runs above each score, each agent over the others. Further to the "
            "right is better.",
        )
        for known, agents in scoreboard.information_sets(table, tasks):
            if len(agents) > 1 and (same := table.full(agents, tasks)):
                report.figure(
                    figures.improvements(table, agents, same),
                    f"{known}: probability that a run of the row's agent scores higher than one "
                    f"of the column's, mean over {len(same)} tasks.",
                )
    with report.details("Samples, time and settings"):
        report.table(
            "Medians over runs, and the settings",
            scoreboard.COSTS,
            scoreboard.costs(table),
        )


def _where(tasks: Sequence[str]) -> str:
    """Return the groups of some tasks."""
    return "; ".join(dict.fromkeys(scoreboard.group_of(task) for task in tasks))


def source(rows: Sequence[Row]) -> str:
    """Return the provenance of the Markdown table in one line."""
    runs = sum(row["protocol"] == "" for row in rows)
    tuned = sum(row["protocol"] == "tuning" for row in rows)
    dates, machines = (sorted({row[name] for row in rows}) for name in ("date", "machine"))
    return (
        f"{runs:,} results, after {tuned:,} trials of tuning, "
        f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}, {' and '.join(machines)}. All are "
        "in `runs.csv.gz`, with the command and the commit of each."
    )


def batched(tasks: Sequence[str], most: int) -> Iterator[Sequence[str]]:
    """Yield the tasks in parts of at most so many.

    >>> list(batched(["a", "b", "c"], 2))
    [['a', 'b'], ['c']]
    """
    for start in range(0, len(tasks), most):
        yield tasks[start : start + most]


def _left(tables: dict[int, ScoreTable], suite: Suite) -> str:
    tests = sum(len(training.tests) for training in suite.trainings)
    parts = []
    for budget in sorted({*suite.budgets, *tables}):
        runs = tables[budget].runs if budget in tables else {}
        fewest = min((len(some) for tasks in runs.values() for some in tasks.values()), default=0)
        parts.append(
            f"{len(runs)} learners with {budget:,} source steps (at least {fewest} of {suite.runs} "
            "runs of each task)"
        )
    return (
        f"The suite has {tests} tasks. Recorded are {', '.join(parts)}. The same command without "
        "options runs what is missing."
    )


def _bounds(tables: dict[int, ScoreTable]) -> str:
    found = sorted(x for table in tables.values() for x in scoreboard.above_bound(table))[::-1]
    if not found:
        return "None: no agent's mean over its runs exceeds the bound for its observations."
    fraction, agent, task = found[0]
    return (
        f"The bound holds for the long-run expected reward; a measured mean may exceed it by "
        f"chance or because of content at the start. {len(found)} means over runs do so, by at "
        f"most {fraction - 1:.3%} ({agent}, {task})."
    )
