"""The matrix: a row for each recipe, over its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ephemeral_crawl.core.report import Report

GOAL = 0.99  # of the score, in every run
MEASURED = (
    "package",
    "version",
    "gymnasium",
    "id",
    "steps",
    "reward",
    "whittle",
    "random",
    "same_sources",  # always the sources of which most is published: what is learnt first
    "ratio",
    "score",
    "seconds",
    "result",
)
COLUMNS = ("library", "version", "what was run", "environment", "result", "seconds", "verdict")
WORKS, REACHES, FALLS_SHORT, FAILS = "works", "reaches .99", "falls short of .99", "fails"

Record = Mapping[str, Any]


def write(report: Report, records: Sequence[Record]) -> str:
    """Write the report; return the matrix as a table of Markdown."""
    groups = list(_by_recipe(records).values())
    rows = [row(runs) for runs in groups]
    trained = [runs for runs in groups if _trains(runs)]
    reached = [runs for runs in trained if verdict(runs) == REACHES]
    works = [runs for runs in groups if not _trains(runs) and verdict(runs) == WORKS]
    report.paragraph(
        f"{len(reached)} of {len(trained)} recipes that train an agent reach a score of .99 in "
        f"every run, and {len(works)} of {len(groups) - len(trained)} others work, with the "
        "environment as it is: registered ids, and wrappers of Gymnasium and of the libraries."
    )
    report.paragraph(
        "Table 1 of the paper, M = 2, deterministic arrivals. The score is (agent − random) / "
        f"(Whittle − random){_same_sources(trained)}; the ratio is agent / Whittle. Rewards are "
        "measured in 10 episodes, without exploration, the references on the same arrivals. "
        "Seconds are those of the training, in one thread."
    )
    report.table("Libraries", COLUMNS, rows)
    if trained:
        report.table(
            "Score of each run", ("recipe", "scores", "ratios"), [_each(r) for r in trained]
        )
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    return "\n".join(f"| {' | '.join(map(_markdown, line))} |" for line in lines) + "\n"


def row(runs: Sequence[Record]) -> list[str]:
    """Return the row of one recipe."""
    first = next((run for run in runs if not run["problem"]), runs[0])
    seconds = _numbers(runs, "seconds")
    return [
        first["library"],
        first["version"],
        first["what"],
        first["id"],
        _result(runs),
        f"{sum(seconds) / len(seconds):.0f}" if seconds else "",
        verdict(runs),
    ]


def verdict(runs: Sequence[Record]) -> str:
    """Return what the runs of one recipe show."""
    if any(run["problem"] for run in runs):
        return FAILS
    if not _trains(runs):
        return WORKS
    return REACHES if min(_numbers(runs, "score")) >= GOAL else FALLS_SHORT


def _result(runs: Sequence[Record]) -> str:
    problems = [f"seed {run['seed']}: {run['problem']}" for run in runs if run["problem"]]
    if problems:
        return "; ".join(problems)
    if not _trains(runs):
        return str(runs[0]["result"])
    scores = sorted(_numbers(runs, "score"))
    ratio = min(_numbers(runs, "ratio"))
    steps = int(runs[0]["steps"])
    return (
        f"score {scores[0]:.3f} to {scores[-1]:.3f} in {len(runs)} runs of {steps:,} steps, "
        f"ratio at least {ratio:.4f}"
    )


def _same_sources(trained: Sequence[Sequence[Record]]) -> str:
    for run in (run for runs in trained for run in runs if run["score"] != ""):
        random, same = float(run["random"]), float(run["same_sources"])
        score = (same - random) / (float(run["whittle"]) - random)
        return f", and that of always crawling the two sources that publish most is {score:.3f}"
    return ""


def _each(runs: Sequence[Record]) -> list[str]:
    def shown(name: str, digits: int) -> str:
        return ", ".join(f"{number:.{digits}f}" for number in _numbers(runs, name))

    return [runs[0]["recipe"], shown("score", 3), shown("ratio", 4)]


def _by_recipe(records: Sequence[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record["recipe"], []).append(record)
    return groups


def _trains(runs: Sequence[Record]) -> bool:
    return str(runs[0]["trains"]) == "True"


def _numbers(runs: Sequence[Record], name: str) -> list[float]:
    return [float(run[name]) for run in runs if run[name] not in ("", None)]


def _markdown(cell: str) -> str:
    return str(cell).replace("|", "\\|")
