"""The learners' part of the benchmark's report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from experiments.benchmark.learning import figures, leaderboard
from experiments.benchmark.learning.players import Player
from experiments.benchmark.learning.runs import Records
from experiments.benchmark.learning.scores import Table, table_of
from experiments.benchmark.learning.training import code_of
from experiments.core.report import Report
from experiments.core.results import provenance

_HOW = """
Each run is a training with a seed of its own. At its end, and at up to ten pauses on the way, the
frozen policy is measured in rollouts of its own, on arrivals that are the same for all agents;
exploration and start-up are left out. Score: 0 is a random choice, 1 the Whittle policy with all
parameters known. IQM: interquartile mean over the runs of all tasks, with 95 % intervals
(stratified bootstrap). A crawl epoch is a step of one environment; it holds N source-epochs, one of
each source. (NeurWIN does not crawl: its epochs are those of a simulator in which every source
starts in any state and is crawled at will, without a budget.) Agents that share what they learn
learn from all N; the others learn of each source from its own alone. Core-seconds: of learning on
one core, without the measurements. “To .95: epochs, s”: source-epochs
and seconds until the first pause from which on the score stayed at or above .95, for half of the
runs; – where fewer did. Index error: Σ|found − true|/Σ true over the
sources and epochs that the frozen policy passes through, for agents that find Whittle indices.
Share of the bound: of what nobody can average who sees as much before crawling; agents that are
shown ages alone are held against the bound of not seeing, also where the task shows contents. A
discounted return has no bound.
""".replace("\n", " ").strip()


def write(report: Report, records: Records, players: Sequence[Player]) -> Table:
    """Add headings, tables and pictures of all learners; return the scores."""
    table = table_of(records)
    report.heading("Learning agents")
    report.paragraph(_HOW)
    report.paragraph(_sees(players))
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
                f"Performance profile over {group}: the share of runs above each score, of the "
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
    """Return in a line what the Markdown table comes from."""
    runs = sum(not row.get("protocol") for row in records.runs)
    commits = sorted({row["commit"] for row in records.runs})
    dates = sorted({row["date"] for row in records.runs})
    commands = sorted({row["command"] for row in records.runs})
    return (
        f"{runs:,} results, every one in `runs.csv.gz`; `{'`, `'.join(commands)}`, "
        f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}, commit {', '.join(commits)}."
    )


def _sees(players: Sequence[Player]) -> str:
    shown: dict[str, list[str]] = {}
    for player in players:
        shown.setdefault(", ".join(player.features), []).append(player.name)
    parts = [f"{', '.join(names)}: {features}" for features, names in shown.items()]
    sharing = sorted({player.name for player in players if leaderboard.shares(player.name)})
    return (
        f"What agents are shown. {'; '.join(parts)}. What one source teaches is used for all by "
        f"{', '.join(sharing) or 'none'}."
    )


def _bounds(table: Table) -> str:
    found = leaderboard.above_bound(table)
    if not found:
        return (
            "None: no agent's mean over its runs is above the bound of what it sees, on any task."
        )
    share, agent, task = found[0]
    return (
        f"The bound holds for what is expected in the long run; measured means may be above it by "
        f"chance, or through what waited at the start. {len(found)} of the means over runs are, at "
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
    kinds = {player.name: player.kind for player in leaderboard.ALL}
    old = {name: runs.total() - runs[code_of(kinds[name])] for name, runs in table.versions.items()}
    parts = [f"{n} of {name}" for name, n in old.items() if n]
    if not parts:
        return "All were made by the learners' present code."
    return f"Made by earlier code of the learner (--redo runs them anew): {', '.join(parts)}."
