"""The matrix: a row for each recipe, over its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crawl_env import Sources
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from experiments.libraries import discount

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
    "cpu_seconds",
    "result",
)
COLUMNS = ("library", "package", "what was run", "environment", "result", "seconds", "verdict")
WORKS, REACHES, FALLS_SHORT, FAILS = "works", "reaches .99", "falls short of .99", "fails"

Record = Mapping[str, Any]


def write(report: Report, records: Sequence[Record]) -> str:
    """Write the report; return the matrix as a table of Markdown."""
    groups = list(_by_recipe(records).values())
    rows = [row(runs) for runs in groups]
    trained = [runs for runs in groups if _trains(runs)]
    others = [runs for runs in groups if not _trains(runs)]
    reached = [runs for runs in trained if verdict(runs) == REACHES]
    works = [runs for runs in others if verdict(runs) == WORKS]
    report.answer(
        f"{len(reached)} of {len(trained)} recipes that train an agent reach a score of .99 in "
        f"every run, and {len(works)} of {len(others)} others work, all with the environment as it "
        "is: registered ids, and wrappers of Gymnasium and of the libraries."
    )
    if any(_numbers(runs, "score") for runs in trained):
        report.figure(
            _figure(trained), "Score of every run; 1 is the Whittle policy, 0 a random one."
        )
    report.table("Libraries", COLUMNS, rows)
    if trained:
        scores = [_each(runs) for runs in trained]
        report.table("Score of each run", ("recipe", "scores", "ratios"), scores)
        discounts(report, trained)
    with report.details("How this was measured"):
        report.paragraph(
            "Table 1 of the paper, M = 2, deterministic arrivals. The score is (agent − random) / "
            f"(Whittle − random){_same_sources(trained)}; the ratio is agent / Whittle. Rewards "
            "are means of 10 episodes of 500 steps, without exploration. A score may exceed 1 by "
            "some thousandths: the Whittle policy is optimal in the long run, and an episode is "
            "not long. Seconds are processor time of the training, or time by the clock on a busy "
            "machine."
        )
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    return "\n".join(f"| {' | '.join(map(_markdown, line))} |" for line in lines) + "\n"


def discounts(report: Report, trained: Sequence[Sequence[Record]]) -> None:
    """Report what the best policy for each discount factor earns."""
    run = next((run for runs in trained for run in runs if run["score"] != ""), None)
    if run is None:
        return
    random, whittle = float(run["random"]), float(run["whittle"])
    table1 = Sources.preset("table1")
    earned = [discount.reward_per_step(factor, table1, 2) for factor in discount.DISCOUNTS]
    report.table(
        "The best policy for a discount factor γ, by value iteration",
        ("γ", "reward per step", "score"),
        [
            (f"{factor:g}", f"{reward:.2f}", f"{(reward - random) / (whittle - random):.3f}")
            for factor, reward in zip(discount.DISCOUNTS, earned, strict=True)
        ],
    )


def row(runs: Sequence[Record]) -> list[str]:
    """Return the row of one recipe."""
    first = next((run for run in runs if not run["problem"]), runs[0])
    return [
        first["library"],
        f"{first['package']} {first['version']}".strip(),
        first["what"],
        first["id"],
        _result(runs),
        _seconds(runs),
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


def _seconds(runs: Sequence[Record]) -> str:
    """Return the mean time of training: of the processor, or of the clock if only that is known."""
    for name, note in (("cpu_seconds", ""), ("seconds", " by the clock")):
        if seconds := _numbers(runs, name):
            return f"{sum(seconds) / len(seconds):.0f}{note}"
    return ""


def _same_sources(trained: Sequence[Sequence[Record]]) -> str:
    for run in (run for runs in trained for run in runs if run["score"] != ""):
        random, same = float(run["random"]), float(run["same_sources"])
        score = (same - random) / (float(run["whittle"]) - random)
        return f", and that of always crawling the two sources that publish most is {score:.3f}"
    return ""


def _figure(trained: Sequence[Sequence[Record]]) -> Any:
    figure, axis = plots.new(1, 1, width=8, height=0.8 + 0.35 * len(trained))
    for i, runs in enumerate(trained):
        scores = _numbers(runs, "score")
        axis.plot(scores, [i] * len(scores), "o", alpha=0.6, color=plots.PALETTE[0])
    axis.axvline(GOAL, color="0.5", linestyle="--", linewidth=1)
    axis.set_yticks(range(len(trained)), [runs[0]["recipe"] for runs in trained])
    axis.invert_yaxis()
    axis.set_xlabel("score (dashed: .99)")
    return figure


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
