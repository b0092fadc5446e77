"""The learners' part of the benchmark's report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from experiments.benchmark.learning import figures, leaderboard
from experiments.benchmark.learning.entrants import Entrant
from experiments.benchmark.learning.runs import Records
from experiments.benchmark.learning.scores import Table, table_of
from experiments.benchmark.learning.training import code_of
from experiments.core.report import Report
from experiments.core.results import provenance

_HOW = """
Each run is a training with a seed of its own. At its end, and at up to ten points on the way, the
frozen policy is evaluated in rollouts of its own, on arrivals that are the same for all agents,
without exploration and after a warm-up. Score: 0 is a random policy, 1 the Whittle policy with all
parameters known. IQM: interquartile mean over the runs of all tasks, with 95 % intervals
(stratified bootstrap). An environment step is a step of one environment; it consists of N source
steps, one of each source. (NeurWIN does not crawl: its steps are those of a simulator in which
every source starts in any state and is crawled independently, without a budget.) Agents that share
parameters learn from all N; the others learn about each source from its own crawls alone.
Core-seconds: of learning on one core, without the evaluations. “To .95: steps, s”: source steps
and seconds until the first evaluation from which on the score stayed at or above .95, for half of
the runs; – where fewer did. Index error: Σ|learnt − true|/Σ true over the sources and steps of a
rollout of the frozen policy, for agents that learn Whittle indices. Share of the bound: of the
largest mean reward possible with the same observations; agents that observe ages alone are compared
with the bound for unobserved content, also where the task shows content. A discounted return has no
bound.
""".replace("\n", " ").strip()


def write(report: Report, records: Records, entrants: Sequence[Entrant]) -> Table:
    """Add headings, tables and figures of all learners; return the scores."""
    table = table_of(records)
    report.heading("Learning agents")
    report.paragraph(_HOW)
    report.paragraph(_sees(entrants))
    for group, tasks in leaderboard.groups(table):
        report.heading(f"Learning: {group}")
        report.table(
            "Scores; agents that learnt most tasks first, then the best",
            leaderboard.SCORE_COLUMNS,
            leaderboard.score_rows(table, tasks),
        )
        report.table(
            "What they needed, medians over runs",
            leaderboard.COST_COLUMNS,
            leaderboard.cost_rows(table, tasks),
        )
        report.table(
            "The best learner of each task",
            leaderboard.BEST_COLUMNS,
            leaderboard.best(table, tasks),
        )
        if len(tasks) > 1:
            report.figure(
                figures.profiles(table, tasks),
                f"Performance profile over {group}: the fraction of runs above each score, of the "
                "agents that learnt all tasks. Further right is better.",
            )
            report.figure(
                figures.improvements(table, tasks),
                "Probability that a run of the row's agent scores higher than one of the column's.",
            )
        report.figure(
            figures.curves(table, tasks),
            f"Learning curves on {group}: interquartile mean, and the middle half of the runs.",
        )
    report.heading("Does any agent beat its bound?")
    report.paragraph(_bounds(table))
    report.heading("Which code made these runs")
    report.paragraph(_made_by(records))
    report.paragraph(_outdated(table))
    return table


def source(records: Records) -> str:
    """Return the provenance of the Markdown table in a line."""
    runs = sum(not row.get("protocol") for row in records.runs)
    commits = sorted({row["commit"] for row in records.runs})
    dates = sorted({row["date"] for row in records.runs})
    commands = sorted({row["command"] for row in records.runs})
    return (
        f"{runs:,} results, every one in `runs.csv.gz`; `{'`, `'.join(commands)}`, "
        f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}, commit {', '.join(commits)}."
    )


def _sees(entrants: Sequence[Entrant]) -> str:
    shown: dict[str, list[str]] = {}
    for entrant in entrants:
        shown.setdefault(", ".join(entrant.features), []).append(entrant.name)
    parts = [f"{', '.join(names)}: {features}" for features, names in shown.items()]
    sharing = sorted({entrant.name for entrant in entrants if leaderboard.shares(entrant.name)})
    return (
        f"Features that agents observe. {'; '.join(parts)}. Agents with one set of "
        f"parameters for all sources: {', '.join(sharing) or 'none'}."
    )


def _bounds(table: Table) -> str:
    found = leaderboard.above_bound(table)
    if not found:
        return "None: no agent's mean over its runs exceeds the bound for its observations."
    share, agent, task = found[0]
    return (
        f"The bound holds for what is expected in the long run; measured means may be above it by "
        f"chance, or through content at the start. {len(found)} of the means over runs are, at "
        f"most by {share - 1:.3%} ({agent}, {task})."
    )


def _made_by(records: Records) -> str:
    made = Counter((row["date"], row["commit"], row["machine"]) for row in records.runs)
    parts = [
        f"{n} rows on {date} by {commit} ({where})" for (date, commit, where), n in made.items()
    ]
    today = provenance()["commit"]
    return f"{'; '.join(parts)}. This report is by {today}."


def _outdated(table: Table) -> str:
    kinds = {entrant.name: entrant.kind for entrant in leaderboard.ALL}
    old = {name: runs.total() - runs[code_of(kinds[name])] for name, runs in table.versions.items()}
    parts = [f"{n} of {name}" for name, n in old.items() if n]
    if not parts:
        return "All were made by the learners' present code."
    return f"Made by earlier code of the learner (--redo runs them anew): {', '.join(parts)}."
