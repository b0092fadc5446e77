"""The jobs of the benchmark: trainings, baseline policies and bounds.

A job is JSON and holds everything that its result depends on, except for the code and the fleets
of presets, which it names. The hash of the job is the key of its rows in the records.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from agents.learning.fleet.base import FleetLearner
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.runner import Job, Result
from experiments.benchmark.entrants import KINDS, MANY, Entrant, Suite, Training
from experiments.benchmark.suite import Setting
from experiments.benchmark.training import code_of, listed, made_by, train

# Policies that learn nothing; the best of them is what a learner must exceed, task by task.
IDLE = ("random", "fixed", "oldest-first", "myopic")
BASELINES = ("whittle", *IDLE)
# Upper bounds for policies with the observations of the task, and without observed content.
BOUND, UNOBSERVED_BOUND = "bound", "bound-unobserved"
SEPARATOR = " · "  # between the group and the name of a task

EVALUATION_SEED = 1000  # of the arrivals in all evaluations
TUNING_RUN = 1000  # number of the first run of tuning: its seed, and that of its fleet
_RANDOM_RUNS = 20  # of the random policy on deterministic tasks; other policies need one
_HORIZON = 200  # steps of an episode, where every episode draws a new fleet
_INDEX_STEPS = 300  # of the rollout on which the index error is measured, a third of it warm-up

TrialChoice = Callable[[Entrant, int], int]  # the trial whose settings an entrant has, by budget


def tuning(suite: Suite) -> list[Job]:
    """Return the trials of tuning with their baselines; none if there is one trial only."""
    trials = [
        training_job(entrant, Training((task,), (task,)), budget, TUNING_RUN, trial)
        for budget in suite.budgets
        for trial in range(suite.trials if suite.trials > 1 else 0)
        for entrant in suite.entrants
        for task in suite.tuning
        if plays(entrant, Training((task,), (task,)))
    ]
    return [*_baselines(trials, ("whittle", "random")), *trials]


def plan(suite: Suite, trial_of: TrialChoice = lambda entrant, budget: 0) -> list[Job]:
    """Return the baselines and bounds, then all trainings, first those with the smallest budget:
    run 0 of every agent, run 1, …"""
    trainings = [
        training_job(entrant, training, budget, run, trial_of(entrant, budget))
        for budget in suite.budgets
        for run in range(suite.runs)
        for training in suite.trainings
        for entrant in suite.entrants
        if plays(entrant, training)
    ]
    return [*_baselines(trainings, BASELINES, bounds=True), *trainings]


def plays(entrant: Entrant, training: Training) -> bool:
    """Whether a learner can be trained on the tasks: only networks for many fleets are on several,
    and an algorithm that picks one source after the other needs equal costs."""
    (first, *others), kind = training.environments, entrant.kind
    if others or _is_drawn(first):
        return issubclass(kind, FleetLearner)
    return not (getattr(kind, "sequential", False) and isinstance(first.arguments["sources"], dict))


def key_of(job: Job) -> str:
    """Return the key of a job in the records: a hash of its JSON."""
    return hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()[:12]


def version_of(job: Job) -> str:
    """Return the version of the code of the learner that a job trains."""
    return code_of(KINDS[job["learner"]]) if job["kind"] == "training" else ""


def name_of(task: Setting) -> str:
    return f"{task.group}{SEPARATOR}{task.name}"


def training_job(
    entrant: Entrant, training: Training, budget: int, run: int, trial: int = 0
) -> Job:
    """Return a run of a training as a job; one of tuning if `run` is `TUNING_RUN` or more."""
    is_drawn = _is_drawn(training.environments[0])
    return {
        "kind": "training",
        "protocol": "tuning" if run >= TUNING_RUN else "",
        "entrant": entrant.learner,
        "learner": entrant.learner,
        "information": entrant.information,
        "trial": trial,
        "settings": entrant.trial(trial),
        "features": list(MANY if is_drawn and "value" in entrant.features else entrant.features),
        "num_envs": entrant.num_envs,
        "budget": budget,
        "seed": run,
        "environments": [
            {**_arguments(task, run), "horizon": _HORIZON if _is_drawn(task) else None}
            for task in training.environments
        ],
        "tests": [_test(task, run) for task in training.tests],
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
        row["rewards"] = listed(result["reward"])
    else:
        result = evaluation.bound({name: job[name] for name in ("arguments", "runs")})
        rewards = result["bound"] if isinstance(result["bound"], list) else [result["bound"]]
        row |= {"rewards": listed(rewards), "information": result["name"]}
    return {"runs": [{**row, **made_by()}], "curves": []}


def _baselines(trainings: Sequence[Job], names: Sequence[str], bounds: bool = False) -> list[Job]:
    """Return the evaluations of policies in the tests of some trainings, and perhaps bounds."""
    tests = {json.dumps(test, sort_keys=True): test for t in trainings for test in t["tests"]}
    return [
        *(
            baseline(name, test, protocol)
            for test in tests.values()
            for name in names
            for protocol in ("full", *(("short",) if name in ("whittle", "random") else ()))
        ),
        *(bound for test in tests.values() if bounds for bound in _bounds(test)),
    ]


def _bounds(test: dict[str, Any]) -> list[Job]:
    """Return the jobs of a task's bounds: none for a discounted return, two where random content is
    observed."""
    if test["full"]["discount"] < 1:
        return []
    runs = {"seeds": test["full"]["seeds"], "seed": test["full"]["seed"]}
    jobs = [{"kind": "bound", **_of(BOUND, test, "full"), "runs": runs}]
    arguments = test["arguments"]
    if arguments["arrivals"] != "deterministic" and arguments.get("observed", True) is not False:
        unobserved = {**test, "arguments": {**arguments, "observed": False}}
        jobs.append({"kind": "bound", **_of(UNOBSERVED_BOUND, unobserved, "full"), "runs": runs})
    return jobs


def _of(name: str, test: dict[str, Any], protocol: str) -> dict[str, Any]:
    task = {key: test[key] for key in ("task", "fleet", "arguments")}
    return {"entrant": name, "protocol": protocol, **task}


def _test(task: Setting, seed: int) -> dict[str, Any]:
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


def _arguments(task: Setting, seed: int) -> dict[str, Any]:
    arguments = dict(task.arguments)
    if _is_of_run(task):
        arguments["sources"] = f"{arguments['sources']}-{seed}"
    return arguments


def _is_of_run(task: Setting) -> bool:
    """Whether each run has its own fleet."""
    return str(task.arguments["sources"]).startswith("random-")


def _is_drawn(task: Setting) -> bool:
    """Whether each episode draws a new fleet."""
    return str(task.arguments["sources"]).startswith("drawn-")
