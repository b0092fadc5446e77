"""What settings are worth: trainings with them, and the scores that their policies reach."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from agents.aggregate import interquartile_mean
from agents.learning import LEARNERS
from crawl_env.errors import unknown
from crawl_env.numerics import FloatArray
from experiments import runner
from experiments.benchmark.learning import plan, tasks
from experiments.benchmark.learning.players import FULL, QUICK, Player
from experiments.benchmark.learning.scores import Levels
from experiments.benchmark.learning.training import code_of, made_by
from experiments.tables import FLOOR, REFERENCE

TASKS = {
    "table1": tasks.TABLE1,
    "deterministic": tasks.DETERMINISTIC,
    "recovering": tasks.RECOVERING,
    "random": tasks.RANDOM,
    "large": tasks.LARGE,
    "mixed": tasks.MIXED,
    "drawn": tasks.DRAWN_ANEW,
}
MEASURED_WITH = 2000  # seed of the arrivals in all measurements
# Nobody looks at the pauses of a training here.
_GLANCE = {"epochs": 1, "warmup": 0, "seeds": 1}

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What trainings with the same settings, on some tasks with some seeds, have come to."""

    scores: Mapping[str, Sequence[float]]  # by task, in the order of the seeds
    seconds: float  # of one core, learning alone
    broken: int  # trainings that broke off; their score counts as 0, that of a random choice
    error: str  # of the first that did
    made: Mapping[str, str]  # when, by which code, on which machine

    @property
    def value(self) -> float:
        """The interquartile mean over all tasks and seeds."""
        return float(interquartile_mean(np.concatenate(self.by_task())))

    def by_task(self) -> list[FloatArray]:
        return [np.array(scores) for scores in self.scores.values()]


def player_of(agent: str, groups: Sequence[str], epochs: int | None) -> Player:
    """Return an agent as it enters the benchmark, with its lessons in these groups of tasks alone.

    Raises:
        ValueError: no such agent, or it has no such lessons.
    """
    players = {player.name: player for player in (*QUICK, *FULL)}
    if agent not in players:
        if agent in LEARNERS:
            raise ValueError(
                f"agent {agent!r} has no lessons yet; give it a Player in "
                "experiments/benchmark/learning/players.py"
            )
        raise unknown("--agent", agent, players)
    player = players[agent]
    wanted = [setting for group in groups for setting in TASKS[group]]
    lessons = tuple(
        replace(lesson, epochs=epochs or lesson.epochs)
        for lesson in player.lessons
        if all(setting in wanted for setting in lesson.practice)
    )
    if not lessons:
        raise ValueError(
            f"agent {agent!r} has no lessons in --tasks {' '.join(groups)}; its lessons are in "
            "experiments/benchmark/learning/players.py"
        )
    return replace(player, lessons=lessons)


def settings_of(player: Player) -> dict[str, Any]:
    """Return all hyper-parameters of a player."""
    return asdict(player.kind.Settings(**player.settings))


def about(player: Player) -> dict[str, str]:
    """Return all that a score depends on besides settings and seeds."""
    lessons = [
        [plan.name_of(setting) for setting in (*lesson.practice, *lesson.exams)]
        for lesson in player.lessons
    ]
    return {
        "agent": player.name,
        "tasks": json.dumps(lessons),
        "epochs": " ".join(str(lesson.epochs) for lesson in player.lessons),
        "rows": " ".join(str(lesson.rows) for lesson in player.lessons),
        "features": " ".join(player.features),
        "defaults": json.dumps(settings_of(player), sort_keys=True),
        "code of the agent": code_of(player.kind),
    }


def examine(
    player: Player, seeds: Sequence[int], kept: Path, jobs: int, engine: str, alone: bool = False
) -> Outcome:
    """Return what the player's trainings with these seeds come to; those in `kept` are not run
    again.

    Raises:
        ValueError: a training broke off, and the settings are `alone` to be judged by.
        SystemExit: stopped by Ctrl-C; what was finished is kept.
    """
    trainings = [
        _hurried(plan.training(player, lesson, seed)) for lesson in player.lessons for seed in seeds
    ]
    exams = {json.dumps(exam, sort_keys=True): exam for unit in trainings for exam in unit["exams"]}
    levels = [plan.baseline(who, exam) for exam in exams.values() for who in (FLOOR, REFERENCE)]
    results = runner.run([*levels, *trainings], _attempt, kept, jobs, engine)
    level = Levels(row for result in results[: len(levels)] for row in result["runs"])
    found = results[len(levels) :]
    errors = [result["error"] for result in found if "error" in result]
    if errors and alone:
        raise ValueError(f"agent {player.name!r} breaks off in training: {errors[0]}")
    scores: dict[str, list[float]] = {}
    for unit, result in zip(trainings, found, strict=True):
        for exam in unit["exams"]:
            scores.setdefault(exam["task"], []).append(_score(level, exam["task"], unit, result))
    rows = [result["runs"][0] for result in found if result["runs"]]
    return Outcome(
        scores=scores,
        seconds=sum(row["cpu_seconds"] for row in rows),
        broken=len(errors),
        error=errors[0] if errors else "",
        made=made_by(),
    )


def _score(level: Levels, task: str, unit: runner.Unit, result: runner.Result) -> float:
    rows = [row for row in result["runs"] if row["task"] == task]
    score = level.score(rows[0]["reward"], rows[0], "full") if rows else 0.0
    return score if np.isfinite(score) else 0.0


def _hurried(unit: runner.Unit) -> runner.Unit:
    """Return a training without pauses, measured on other arrivals than the benchmark's."""
    exams = [
        {**exam, "full": {**exam["full"], "seed": MEASURED_WITH}, "short": _GLANCE}
        for exam in unit["exams"]
    ]
    return {**unit, "exams": exams, "pauses": [unit["epochs"]]}


def _attempt(unit: runner.Unit) -> runner.Result:
    """Run a unit; of a training that breaks off, as where steps are too large, say so."""
    try:
        return plan.work(unit)
    except (ArithmeticError, ValueError, RuntimeError) as error:  # the last is torch's
        if unit["kind"] != "training":
            raise
        return {"runs": [], "curves": [], "error": str(error)}
