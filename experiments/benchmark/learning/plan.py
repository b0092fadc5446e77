"""What is to be run, as units of work: trainings, the policies they are compared with, bounds.

A unit holds everything that its result depends on, except for the code and the fleets behind names
of presets; its key identifies its rows in the records.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from experiments.benchmark.learning.entrants import KINDS, Entrant, Training
from experiments.benchmark.learning.training import code_of, made_by, train
from experiments.benchmark.suite import BenchmarkTask
from experiments.core import evaluation
from experiments.core.runner import Job, Result

BASELINES = ("whittle", "random", "myopic")
# Upper bounds for policies that observe what the task shows, and that observe no content.
BOUND, BLIND_BOUND = "bound", "bound without seeing"
SEPARATOR = " · "  # of the group and the name of a task

MEASURED_WITH = 1000  # seed of the arrivals in all measurements
_RANDOM_RUNS = 20  # of the random policy, where all others are the same in every run
_HORIZON = 200  # steps, after which a new fleet is drawn, where they are
_EVALUATIONS = 10
_INDEX_STEPS = 300  # in which the index is compared with the true one, after a third of them


def plan(entrants: Sequence[Entrant]) -> list[Job]:
    """Return the baselines and bounds, then all trainings: run 0 of every agent, run 1, …"""
    trainings = [
        training_unit(entrant, training, seed)
        for seed in range(max(entrant.seeds for entrant in entrants))
        for entrant in entrants
        for training in entrant.trainings
        if seed < entrant.seeds
    ]
    tests = {json.dumps(test, sort_keys=True): test for t in trainings for test in t["tests"]}
    with_curves = {t["tests"][0]["task"] for t in trainings}
    baselines = [
        baseline(name, test, protocol)
        for test in tests.values()
        for name, protocol in (
            *((name, "full") for name in BASELINES),
            *((name, "short") for name in ("whittle", "random") if test["task"] in with_curves),
        )
    ]
    bounds = [bound for test in tests.values() for bound in _bounds(test)]
    return [*baselines, *bounds, *trainings]


def version_of(unit: Job) -> str:
    """Return the version of the learner that a unit trains."""
    return code_of(KINDS[unit["learner"]]) if unit["kind"] == "training" else ""


def name_of(task: BenchmarkTask) -> str:
    return f"{task.group}{SEPARATOR}{task.name}"


def training_unit(entrant: Entrant, training: Training, seed: int) -> Job:
    """Return run `seed` of a training as a unit of work."""
    return {
        "kind": "training",
        "entrant": entrant.name,
        "learner": entrant.learner,
        "settings": asdict(entrant.kind.Settings(**entrant.settings)),
        "features": list(entrant.features),
        "num_envs": training.num_envs,
        "steps": training.steps,
        "evaluate_at": _evaluation_steps(training.steps),
        "seed": seed,
        "environments": [
            {**_arguments(task, seed), "horizon": _HORIZON if _is_drawn(task) else None}
            for task in training.environments
        ],
        "tests": [_test(task, seed) for task in training.tests],
        "index_steps": _INDEX_STEPS,
    }


def baseline(name: str, test: dict[str, Any], protocol: str = "full") -> Job:
    """Return a test of a policy that trainings are compared with, as a unit of work."""
    runs = dict(test[protocol])
    if name == "random" and test["arguments"]["arrivals"] == "deterministic":
        runs["seeds"] = _RANDOM_RUNS
    return {"kind": "baseline", **_of(name, test, protocol), "runs": runs}


def work(unit: Job) -> Result:
    """Run a unit, whatever it is; return its rows: `runs`, and `curves` of a training."""
    if unit["kind"] == "training":
        return train(unit)
    row = {name: unit[name] for name in ("entrant", "task", "fleet", "protocol")}
    if unit["kind"] == "baseline":
        result = evaluation.work(
            {
                "arguments": unit["arguments"],
                "runs": unit["runs"],
                "agent": unit["entrant"],
            }
        )
        row["reward"] = float(np.mean(result["reward"]))
    else:
        result = evaluation.bound({name: unit[name] for name in ("arguments", "runs")})
        row |= {"reward": float(np.mean(result["bound"])), "information": result["name"]}
    return {"runs": [{**row, **made_by()}], "curves": []}


def _bounds(test: dict[str, Any]) -> list[Job]:
    """Return the bounds of a task: none of a discounted return, two where content is observed."""
    if test["full"]["discount"] < 1:
        return []
    runs = {"seeds": test["full"]["seeds"], "seed": test["full"]["seed"]}
    found = [{"kind": "bound", **_of(BOUND, test, "full"), "runs": runs}]
    arguments = test["arguments"]
    if arguments["arrivals"] != "deterministic" and arguments.get("observed", True) is not False:
        blind = {**test, "arguments": {**arguments, "observed": False}}
        found.append({"kind": "bound", **_of(BLIND_BOUND, blind, "full"), "runs": runs})
    return found


def _of(name: str, test: dict[str, Any], protocol: str) -> dict[str, Any]:
    task = {key: test[key] for key in ("task", "fleet", "arguments")}
    return {"entrant": name, "protocol": protocol, **task}


def _test(task: BenchmarkTask, seed: int) -> dict[str, Any]:
    """Return a task of run `seed`, and its two protocols: one for results and, where this takes
    long, a shorter one for evaluations during the training."""
    full = {
        "steps": task.epochs,
        "warmup": task.warmup,
        "discount": task.discount,
        "seeds": 1 if task.still else task.seeds,
        "seed": MEASURED_WITH,
    }
    short = {**full, "steps": 140 if task.still else 100, "warmup": 60}
    return {
        "task": name_of(task),
        "arguments": _arguments(task, seed),
        "fleet": seed if _is_of_run(task) else 0,
        "full": full,
        "short": full if task.discount < 1 else short,
    }


def _arguments(task: BenchmarkTask, seed: int) -> dict[str, Any]:
    arguments = dict(task.arguments)
    if _is_of_run(task):
        arguments["sources"] = f"{arguments['sources']}-{seed}"
    return arguments


def _is_of_run(task: BenchmarkTask) -> bool:
    """Whether each run has a fleet of its own."""
    return str(task.arguments["sources"]).startswith("random-")


def _is_drawn(task: BenchmarkTask) -> bool:
    """Whether each episode has a fleet of its own."""
    return str(task.arguments["sources"]).startswith("drawn-")


def _evaluation_steps(steps: int) -> list[int]:
    """Return after how many steps the policy is evaluated: ten times, from 2 % on, evenly in their
    logarithm."""
    last = _EVALUATIONS - 1
    return sorted({round(steps * 0.02 ** (1 - i / last)) for i in range(_EVALUATIONS)})
