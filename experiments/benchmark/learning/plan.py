"""What is to be run, as units of work: trainings, the policies they are compared with, bounds.

A unit holds all that its result depends on but the code, and the names of fleets that are drawn or
preset; its key is what records are recognised by.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from experiments.benchmark.learning.players import KINDS, Lesson, Player
from experiments.benchmark.learning.training import code_of, made_by, train
from experiments.benchmark.suite import Setting
from experiments.core import evaluation
from experiments.core.runner import Job, Result

BASELINES = ("whittle", "random", "myopic")
# What no policy can beat that sees as much as the task shows, and that sees no content.
BOUND, BLIND_BOUND = "bound", "bound without seeing"
SEPARATOR = " · "  # of the group and the name of a task

MEASURED_WITH = 1000  # seed of the arrivals in all measurements
_RANDOM_RUNS = 20  # of the random policy, where all others are the same in every run
_HORIZON = 200  # epochs, after which a new fleet is drawn, where they are
_PAUSES = 10
_INDEX_EPOCHS = 300  # in which the index is compared with the true one, after a third of them


def plan(players: Sequence[Player]) -> list[Job]:
    """Return the baselines and bounds, then all trainings: run 0 of every agent, run 1, …"""
    trainings = [
        training(player, lesson, seed)
        for seed in range(max(player.seeds for player in players))
        for player in players
        for lesson in player.lessons
        if seed < player.seeds
    ]
    exams = {json.dumps(exam, sort_keys=True): exam for t in trainings for exam in t["exams"]}
    paused = {t["exams"][0]["task"] for t in trainings}
    baselines = [
        baseline(name, exam, protocol)
        for exam in exams.values()
        for name, protocol in (
            *((name, "full") for name in BASELINES),
            *((name, "short") for name in ("whittle", "random") if exam["task"] in paused),
        )
    ]
    bounds = [bound for exam in exams.values() for bound in _bounds(exam)]
    return [*baselines, *bounds, *trainings]


def version_of(unit: Job) -> str:
    """Return the version of the learner that a unit trains."""
    return code_of(KINDS[unit["learner"]]) if unit["kind"] == "training" else ""


def name_of(setting: Setting) -> str:
    return f"{setting.group}{SEPARATOR}{setting.name}"


def training(player: Player, lesson: Lesson, seed: int) -> Job:
    """Return run `seed` of a lesson as a unit of work."""
    return {
        "kind": "training",
        "player": player.name,
        "learner": player.learner,
        "settings": asdict(player.kind.Settings(**player.settings)),
        "features": list(player.features),
        "rows": lesson.rows,
        "epochs": lesson.epochs,
        "pauses": _pauses(lesson.epochs),
        "seed": seed,
        "practice": [
            {**_arguments(setting, seed), "horizon": _HORIZON if _is_drawn(setting) else None}
            for setting in lesson.practice
        ],
        "exams": [_exam(setting, seed) for setting in lesson.exams],
        "index_epochs": _INDEX_EPOCHS,
    }


def baseline(player: str, exam: dict[str, Any], protocol: str = "full") -> Job:
    """Return an exam of a policy that trainings are compared with, as a unit of work."""
    runs = dict(exam[protocol])
    if player == "random" and exam["arguments"]["arrivals"] == "deterministic":
        runs["seeds"] = _RANDOM_RUNS
    return {"kind": "baseline", **_of(player, exam, protocol), "runs": runs}


def work(unit: Job) -> Result:
    """Run a unit, whatever it is; return its rows: `runs`, and `curves` of a training."""
    if unit["kind"] == "training":
        return train(unit)
    row = {name: unit[name] for name in ("player", "task", "fleet", "protocol")}
    if unit["kind"] == "baseline":
        result = evaluation.work(
            {name: unit[name] for name in ("arguments", "runs")} | {"agent": unit["player"]}
        )
        row["reward"] = float(np.mean(result["reward"]))
    else:
        result = evaluation.bound({name: unit[name] for name in ("arguments", "runs")})
        row |= {"reward": float(np.mean(result["bound"])), "information": result["name"]}
    return {"runs": [{**row, **made_by()}], "curves": []}


def _bounds(exam: dict[str, Any]) -> list[Job]:
    """Return the bounds of a task: none of a discounted return, two where content is seen."""
    if exam["full"]["discount"] < 1:
        return []
    runs = {"seeds": exam["full"]["seeds"], "seed": exam["full"]["seed"]}
    found = [{"kind": "bound", **_of(BOUND, exam, "full"), "runs": runs}]
    arguments = exam["arguments"]
    if arguments["arrivals"] != "deterministic" and arguments.get("observed", True) is not False:
        blind = {**exam, "arguments": {**arguments, "observed": False}}
        found.append({"kind": "bound", **_of(BLIND_BOUND, blind, "full"), "runs": runs})
    return found


def _of(player: str, exam: dict[str, Any], protocol: str) -> dict[str, Any]:
    task = {name: exam[name] for name in ("task", "fleet", "arguments")}
    return {"player": player, "protocol": protocol, **task}


def _exam(setting: Setting, seed: int) -> dict[str, Any]:
    """Return a task as it is posed in run `seed`, and its two protocols: for results, and, where
    this takes long, a shorter one for the pauses of a training."""
    full = {
        "epochs": setting.epochs,
        "warmup": setting.warmup,
        "discount": setting.discount,
        "seeds": 1 if setting.still else setting.seeds,
        "seed": MEASURED_WITH,
    }
    short = {**full, "epochs": 140 if setting.still else 100, "warmup": 60}
    return {
        "task": name_of(setting),
        "arguments": _arguments(setting, seed),
        "fleet": seed if _is_of_run(setting) else 0,
        "full": full,
        "short": full if setting.discount < 1 else short,
    }


def _arguments(setting: Setting, seed: int) -> dict[str, Any]:
    arguments = dict(setting.arguments)
    if _is_of_run(setting):
        arguments["sources"] = f"{arguments['sources']}-{seed}"
    return arguments


def _is_of_run(setting: Setting) -> bool:
    """Whether each run has a fleet of its own."""
    return str(setting.arguments["sources"]).startswith("random-")


def _is_drawn(setting: Setting) -> bool:
    """Whether each episode has a fleet of its own."""
    return str(setting.arguments["sources"]).startswith("drawn-")


def _pauses(epochs: int) -> list[int]:
    """Return after how many epochs the policy is measured: ten times, from 2 % on, evenly in
    their logarithm."""
    last = _PAUSES - 1
    return sorted({round(epochs * 0.02 ** (1 - i / last)) for i in range(_PAUSES)})
