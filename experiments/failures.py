"""`python -m experiments failures`: why learners fail, each cause by a paired experiment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np

from agents.evaluation import statistics
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.evaluation import plain
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import ParallelStudy
from experiments.benchmark.entrants import ENTRANTS, Training
from experiments.benchmark.plan import IDLE, baseline, training_job
from experiments.benchmark.scores import numbers
from experiments.benchmark.suite import MIXED, RANDOM, RECOVERING, TABLE1, Setting
from experiments.benchmark.training import train
from experiments.core.data import Column, Data, Table, mean, versus
from experiments.core.study import Part, PartsStudy

DEFAULTS = "nothing"


@dataclass(frozen=True)
class Change:
    """What is changed in an experiment, all else being equal: seeds, fleets and arrivals."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    task: Mapping[str, Any] = field(default_factory=dict)  # arguments of the environment
    budget: float = 1.0  # factor
    policy: str = ""  # evaluated instead of a learner


@dataclass(frozen=True)
class Case:
    """A learner that fails on a task, and the changes that show why."""

    agent: str
    task: Setting
    budget: int  # source steps
    changes: tuple[Change, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)  # with which it fails


_NOISE = Change("arrivals without noise", task={"arrivals": "deterministic"})
_EARLIER = Change("step sizes decay earlier (after 5 visits)", {"learning_rate_decay_visits": 5})
_LONGER = Change("ten times the budget", budget=10)
_BLIND = Change(
    "the Whittle policy that sees ages only", task={"observed": False}, policy="whittle"
)
_M2, _SPARSE = TABLE1[1], RANDOM[1]

CASES = (
    Case(
        "lagrange-q",
        _SPARSE,
        200_000,
        (_NOISE, _EARLIER, Change("ages up to 64", {"max_age": 64}), _LONGER),
    ),
    Case(
        "whittle-q",
        _SPARSE,
        200_000,
        (_NOISE, _EARLIER, Change("ages up to 64", {"max_age": 64}), _LONGER),
    ),
    *(Case(name, RECOVERING[1], 200_000, (_EARLIER,)) for name in ("lagrange-q", "whittle-q")),
    Case("lagrange-q", MIXED[0], 200_000, (_BLIND,)),
    Case(
        "equivariant-index",
        _M2,
        200_000,
        (
            Change("noise redrawn in each step (1 of the lasting)", {"noise_jitter": 1.0}),
            Change("twice the noise", {"exploration_noise": 3.0}),
        ),
        {"noise_jitter": 0.3},
    ),
    Case(
        "qwinn",
        _M2,
        100_000,
        (
            Change("multipliers a third as fast", {"multiplier_learning_rate": 0.03}),
            Change("a third of the learning rate", {"learning_rate": 3e-4}),
        ),
    ),
    Case("wiql", RECOVERING[1], 200_000, (Change("discount factor 0.01", {"gamma": 0.01}),)),
    Case(
        "sac",
        _M2,
        50_000,
        (
            Change("SB3's network", {"network": "default"}),
            Change(
                "SB3's network, a third of the rate", {"network": "default", "learning_rate": 1e-3}
            ),
        ),
    ),
    Case(
        "a2c",
        _M2,
        256_000,
        (
            Change("a third of the learning rate", {"learning_rate": 1e-3}),
            Change("rollouts of 32 steps", {"n_steps": 32}),
        ),
    ),
)


_STANDARD = Change(
    "priorities of standard deviation .5 over the sources", {"network": "standardized"}
)
_TUNED = {
    "epsilon": 0.3132,
    "gamma": 0.9789,
    "learning_rate": 0.0009095,
    "multiplier_decay_steps": 2329,
    "multiplier_learning_rate": 0.03574,
    "tau": 0.01472,
}  # trial 5 of the benchmark with 100,000 source steps

SCALES = (
    Case("a2c", _M2, 256_000, (_STANDARD,)),
    Case("sac", RANDOM[0], 100_000, (_STANDARD,)),
    Case(
        "qwinn",
        _M2,
        100_000,
        (
            Change("all settings of the benchmark's tuning", _TUNED),
            Change(
                "of these, target network and multipliers",
                {name: _TUNED[name] for name in ("tau", "multiplier_learning_rate")},
            ),
        ),
    ),
)

_RANDOM_STEPS = Change("random steps besides the bounds, with probability .3", {"epsilon": 0.3})

EXPLORATION = tuple(
    Case("wiql-ucb", task, 100_000, (_RANDOM_STEPS,)) for task in (_M2, *RECOVERING[3:5])
)

_THREE = Change("three times the budget", budget=3)

SAMPLES = tuple(Case(name, _M2, 100_000, (_THREE,)) for name in ("dqn", "ppo"))


def jobs(study: Failures, cases: Sequence[Case]) -> list[Job]:
    """Return a job for each run of each experiment."""
    todo = []
    for case in cases:
        entrant = next(one for one in ENTRANTS if one.learner == case.agent)
        for change in (Change(DEFAULTS), *case.changes):
            task = replace(case.task, arguments={**case.task.arguments, **change.task})
            settings = {**case.settings, **change.settings}
            for run in range(study.seeds):
                job = training_job(
                    replace(entrant, settings=settings),
                    Training((task,), (task,)),
                    round(case.budget * change.budget),
                    run,
                )
                columns = {
                    "agent": case.agent,
                    "task": case.task.name,
                    "budget": case.budget,
                    "change": change.name,
                    "run": run,
                }
                todo.append({**job, "columns": columns, "policy": change.policy})
    return todo


def measured(job: Job) -> Result:
    """Return the score of one run, and that of the best policy that learns nothing."""
    (test,) = job["tests"]
    reward = (
        _reward(job["policy"], json.dumps(test))
        if job["policy"]
        else float(numbers(train(job)["runs"][0]["rewards"]).mean())
    )
    if job["policy"]:  # its reward counts in the world of the other experiments
        test = {**test, "arguments": {**test["arguments"], "observed": _OBSERVED}}
    random, whittle = (_reward(name, json.dumps(test)) for name in ("random", "whittle"))
    idle = max(_reward(name, json.dumps(test)) for name in IDLE)
    return {
        "score": (reward - random) / (whittle - random),
        "idle": (idle - random) / (whittle - random),
    }


_OBSERVED = MIXED[0].arguments["observed"]


@cache
def _reward(name: str, test: str) -> float:
    result = evaluation.work(
        {
            **{k: v for k, v in baseline(name, json.loads(test)).items() if k != "kind"},
            "agent": name,
        }
    )
    return float(np.mean(result["reward"]))


def claim(data: Data) -> str:
    """Return for which learners a change raises the score, by the paired interval."""
    gains = []
    for case in data.cases("agent", "task", "change"):
        if case["change"] != DEFAULTS:
            same = {"agent": case["agent"], "task": case["task"]}
            pair = (data.numbers("score", **same, change=x) for x in (case["change"], DEFAULTS))
            gap = statistics.difference(*pair)
            if gap.low > 0:
                gains.append(f"{case['agent']}: {case['change']} ({gap.mean:+.2f})")
    return f"Clear causes, by the paired gain in score: {'; '.join(gains) or 'none'}"


_PLAIN = partial(plain, digits=2)


def _part(cases: Sequence[Case], heading: str, file: str) -> Part:
    table = Table(
        "Scores of trainings that differ in one thing; gains are paired by seed",
        {"agent": "agent", "task": "task", "budget": "source steps", "change": "changed"},
        (
            Column("score", mean("score"), _PLAIN),
            Column("worst run", lambda data, case: data.numbers("score", **case).min(), ".2f"),
            Column("gain", versus(statistics.difference, "score", change=DEFAULTS), _PLAIN),
            Column("best without learning", mean("idle"), _PLAIN),
        ),
    )
    return Part(
        partial(jobs, cases=cases),
        (table,),
        claim,
        heading,
        work=measured,
        file=file,
    )


@dataclass(kw_only=True)
class Failures(PartsStudy, ParallelStudy):
    """Repeats trainings that fail with one thing changed, on the same fleets and arrivals.

    Scores are 0 for the random policy and 1 for Whittle in the world in question.
    """

    title: ClassVar[str] = "Why learners fail"
    parts: ClassVar[Mapping[str, Part]] = {
        "index": _part(CASES, "Noise, information, exploration and step sizes", "records.csv"),
        "samples": _part(SAMPLES, "More source steps", "samples.csv"),
        "exploration": _part(EXPLORATION, "Confidence bounds without chance", "exploration.csv"),
        "scales": _part(SCALES, "The scale of priorities and multipliers", "scales.csv"),
    }

    part: tuple[str, ...] = ()
    """Parts to run; the recorded tables of the others are kept. By default all are run."""
    seeds: int = 6
    """Trainings of each experiment."""
