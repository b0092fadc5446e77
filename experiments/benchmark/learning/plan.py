"""The jobs of the benchmark: trainings, baseline policies and bounds.

A job is JSON and holds everything that its result depends on, except for the code and the fleets
of presets, which it names. The hash of the job is the key of its rows in the records.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.runner import Job, Result
from experiments.benchmark.learning.entrants import KINDS, Entrant, Training
from experiments.benchmark.learning.training import code_of, made_by, train
from experiments.benchmark.suite import BenchmarkTask

BASELINES = ("whittle", "random", "myopic")
# Upper bounds for policies with the observations of the task, and without observed content.
BOUND, UNOBSERVED_BOUND = "bound", "bound-unobserved"
SEPARATOR = " · "  # between the group and the name of a task

EVALUATION_SEED = 1000  # of the arrivals in all evaluations
_RANDOM_RUNS = 20  # of the random policy on deterministic tasks; other policies need one
_HORIZON = 200  # steps of an episode, where every episode draws a new fleet
_EVALUATIONS = 10
_INDEX_STEPS = 300  # of the rollout on which the index error is measured, a third of it warm-up


def plan(entrants: Sequence[Entrant]) -> list[Job]:
    """Return the baselines and bounds, then all trainings: run 0 of every agent, run 1, …"""
    trainings = [
        training_job(entrant, training, seed)
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


def key_of(job: Job) -> str:
    """Return the key of a job in the records: a hash of its JSON."""
    return hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()[:12]


def version_of(job: Job) -> str:
    """Return the version of the code of the learner that a job trains."""
    return code_of(KINDS[job["learner"]]) if job["kind"] == "training" else ""


def name_of(task: BenchmarkTask) -> str:
    return f"{task.group}{SEPARATOR}{task.name}"


def training_job(entrant: Entrant, training: Training, seed: int) -> Job:
    """Return run `seed` of a training as a job."""
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
    """Return the job that evaluates a baseline policy in a test of a training."""
    runs = dict(test[protocol])
    if name == "random" and test["arguments"]["arrivals"] == "deterministic":
        runs["seeds"] = _RANDOM_RUNS
    return {"kind": "baseline", **_of(name, test, protocol), "runs": runs}


def work(job: Job) -> Result:
    """Run a job; return its rows: `runs` and, for a training, `curves`."""
    if job["kind"] == "training":
        return train(job)
    row = {name: job[name] for name in ("entrant", "task", "fleet", "protocol")}
    if job["kind"] == "baseline":
        result = evaluation.work(
            {
                "arguments": job["arguments"],
                "runs": job["runs"],
                "agent": job["entrant"],
            }
        )
        row["reward"] = float(np.mean(result["reward"]))
    else:
        result = evaluation.bound({name: job[name] for name in ("arguments", "runs")})
        row |= {"reward": float(np.mean(result["bound"])), "information": result["name"]}
    return {"runs": [{**row, **made_by()}], "curves": []}


def _bounds(test: dict[str, Any]) -> list[Job]:
    """Return the jobs of a task's bounds: none for a discounted return, two where random content is
    observed."""
    if test["full"]["discount"] < 1:
        return []
    runs = {"seeds": test["full"]["seeds"], "seed": test["full"]["seed"]}
    found = [{"kind": "bound", **_of(BOUND, test, "full"), "runs": runs}]
    arguments = test["arguments"]
    if arguments["arrivals"] != "deterministic" and arguments.get("observed", True) is not False:
        unobserved = {**test, "arguments": {**arguments, "observed": False}}
        found.append({"kind": "bound", **_of(UNOBSERVED_BOUND, unobserved, "full"), "runs": runs})
    return found


def _of(name: str, test: dict[str, Any], protocol: str) -> dict[str, Any]:
    task = {key: test[key] for key in ("task", "fleet", "arguments")}
    return {"entrant": name, "protocol": protocol, **task}


def _test(task: BenchmarkTask, seed: int) -> dict[str, Any]:
    """Return a task of run `seed` with two evaluation protocols: "full" for the results and "short"
    for evaluations during the training."""
    full = {
        "steps": task.steps,
        "warmup": task.warmup,
        "discount": task.discount,
        "seeds": 1 if task.is_deterministic else task.seeds,
        "seed": EVALUATION_SEED,
    }
    short = {**full, "steps": 140 if task.is_deterministic else 100, "warmup": 60}
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
    """Whether each run has its own fleet."""
    return str(task.arguments["sources"]).startswith("random-")


def _is_drawn(task: BenchmarkTask) -> bool:
    """Whether each episode draws a new fleet."""
    return str(task.arguments["sources"]).startswith("drawn-")


def _evaluation_steps(steps: int) -> list[int]:
    """Return the ten steps at which the policy is evaluated, spaced evenly on a logarithmic scale
    from 2 % of the training to its end."""
    last = _EVALUATIONS - 1
    return sorted({round(steps * 0.02 ** (1 - i / last)) for i in range(_EVALUATIONS)})
