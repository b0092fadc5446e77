"""What a search has found: tables, pictures, and whether the defaults should change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents import aggregate
from agents.statistics import Estimate
from experiments.benchmark.learning.leaderboard import short_of
from experiments.benchmark.learning.players import Player
from experiments.report import Report, Row
from experiments.tables import plain
from experiments.tune import figures
from experiments.tune.search import Search, Trial
from experiments.tune.spaces import Space
from experiments.tune.trials import Outcome, settings_of


@dataclass(frozen=True)
class Fresh:
    """Defaults and best proposal on seeds that no trial has used."""

    default: Outcome
    best: Outcome

    @property
    def gain(self) -> Estimate:
        return aggregate.gain(self.best.by_task(), self.default.by_task())


def write(
    report: Report, player: Player, space: Space, search: Search, seeds: str, fresh: Fresh | None
) -> None:
    """Add all tables and pictures; `fresh` is None where no proposal was better."""
    default, best = search.default, search.best
    report.paragraph(_how(player, len(search.trials), seeds))
    report.table(
        "Settings", ["setting", "searched", "defaults", "best"], _settings(space, default, best)
    )
    report.heading("On fresh seeds")
    if fresh is None:
        report.paragraph("No proposal was better than the defaults: there is nothing to compare.")
    else:
        report.paragraph(
            "The best of many trials is partly the luckiest, so its value in the search is too "
            "high. Here it is trained with other seeds, and so are the defaults; the difference is "
            "that of interquartile means, with a 95 % interval (bootstrap, runs of one task and "
            "seed paired)."
        )
        columns = ["", "in the search", "on fresh seeds", "core-seconds of learning", "broke off"]
        report.table("All tasks", columns, _overall(default, best, fresh))
        report.table("By task", ["task", "runs", "defaults", "best", "difference"], _tasks(fresh))
    report.paragraph(advice(player, default, best, fresh))
    report.heading("The trials")
    report.figure(
        figures.history(search.trials, default, best),
        "Values of the trials; the worst are cut off.",
    )
    report.figure(
        figures.slices(search.trials, space, default, best),
        "Values against each setting by itself, all others varying too; the worst are cut off.",
    )


def advice(player: Player, default: Trial, best: Trial, fresh: Fresh | None) -> str:
    """Return what to write where, or that the defaults stay."""
    if fresh is None:
        return "No proposal was better: the defaults stay."
    gain = plain(fresh.gain, 4)
    if fresh.gain.low <= 0:
        return f"The defaults stay: on fresh seeds the best proposal gains {gain}, maybe nothing."
    changed = ", ".join(
        f"{name}={value!r}"
        for name, value in best.settings.items()
        if value != default.settings[name]
    )
    settings = player.kind.Settings
    file = settings.__module__.replace(".", "/") + ".py"
    where = (
        "its Player in experiments/benchmark/learning/players.py" if player.settings else f"{file}"
    )
    return (
        f"Better on fresh seeds by {gain}, on these tasks. New defaults, for {where}: "
        f"{settings.__name__}({changed})"
    )


def trial_rows(player: Player, trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Return a row for every trial, with all settings, those that are not searched too."""
    return [
        {
            "trial": trial.number,
            "value": repr(trial.outcome.value),
            "core_seconds": f"{trial.outcome.seconds:.3f}",
            "broke_off": trial.outcome.broken,
            **settings_of(with_settings(player, trial.settings)),
            **trial.outcome.made,
        }
        for trial in trials
    ]


def fresh_rows(fresh: Fresh, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Return a row for every training on fresh seeds and task."""
    outcomes = {"defaults": fresh.default, "best": fresh.best}
    return [
        {"settings": who, "task": task, "seed": seed, "score": repr(score), **outcome.made}
        for who, outcome in outcomes.items()
        for task, scores in outcome.scores.items()
        for seed, score in zip(seeds, scores, strict=True)
    ]


def with_settings(player: Player, settings: Mapping[str, Any]) -> Player:
    return replace(player, settings={**player.settings, **settings})


def _how(player: Player, trials: int, seeds: str) -> str:
    epochs = sorted({lesson.epochs for lesson in player.lessons})
    side_by_side = sorted({lesson.rows for lesson in player.lessons})
    return (
        f"{trials} trials of settings of {player.name}, the defaults first, the others proposed by "
        "Optuna's tree-structured Parzen estimator. The value of a trial is the interquartile mean "
        f"of the scores of its trainings (0: a random choice, 1: Whittle) on "
        f"{len(player.lessons)} tasks, of {' or '.join(f'{n:,}' for n in epochs)} epochs each "
        f"(rows side by side: {' or '.join(map(str, side_by_side))}). {seeds}"
    )


def _settings(space: Space, default: Trial, best: Trial) -> list[Row]:
    return [
        [name, str(within), str(default.settings[name]), str(best.settings[name])]
        for name, within in space.items()
    ]


def _overall(default: Trial, best: Trial, fresh: Fresh) -> list[Row]:
    rows: list[Row] = []
    for label, trial, outcome in (
        ("defaults", default, fresh.default),
        ("best", best, fresh.best),
    ):
        value = plain(aggregate.iqm(outcome.by_task()), 4)
        searched = f"{trial.outcome.value:.4f}"
        rows.append([label, searched, value, f"{outcome.seconds:.0f}", outcome.broken])
    difference = best.outcome.value - default.outcome.value
    return [*rows, ["difference", f"{difference:.4f}", plain(fresh.gain, 4), "", ""]]


def _tasks(fresh: Fresh) -> list[Row]:
    rows: list[Row] = []
    for task, scores in fresh.default.scores.items():
        mine, its = [fresh.best.scores[task]], [scores]
        gain = plain(aggregate.gain(mine, its), 4)
        iqms = [f"{aggregate.iqm(found).mean:.4f}" for found in (its, mine)]
        rows.append([short_of(task), len(scores), *iqms, gain])
    return rows
