"""Learners that see the backlog, and others, on a small fleet whose optimum is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from agents.evaluation import statistics
from agents.theory.engine.optimum import EngineProcess
from agents.theory.engine.relaxation import engine_relaxation
from crawl_env import CrawlVectorEnv, Engine, Sources
from crawl_env.numerics import FloatArray, IntArray
from crawl_env.simulation.observation import scaled
from ephemeral_crawl.core.evaluation import percent
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from experiments.core.data import Data
from experiments.core.study import Part
from experiments.engine.exact import choices, policies

AGENT = "dqn"
SEES, BLIND = ("age", "backlog"), ("age",)
# A perceptron of all that is observed. An equivariant network of these features could not tell the
# sources apart.
SETTINGS: Mapping[str, Any] = {"network": "default", "gamma": 0.95}
FLEET = Sources([2.0, 1.0, 0.5], [1.0, 0.7, 2.0], [0.3, 0.15, 0.2])
ENGINE = Engine(rate=2, capacity=3)
SEEDS, STEPS, ENVS = 4, 2000, 64
EVERY = 500  # steps of training between evaluations
_AGES, _TOLERANCE = 25, 1e-5


def jobs(study: Any) -> list[Job]:
    """Return a job for each training, and one for what is known."""
    seeds, steps = (1, 100) if study.size.quick else (SEEDS, STEPS)
    trained = [
        {"agent": AGENT, "features": list(features), "seed": seed, "steps": steps}
        for features in (SEES, BLIND)
        for seed in range(seeds)
    ]
    return [*trained, {"agent": "", "features": [], "seed": 0, "steps": 0}]


def work(job: Job) -> Result:
    """Return the reward of a learner after every part of its training, or of all that is known."""
    process = _process()
    if not job["agent"]:
        found = policies(FLEET, ENGINE, process.ages)
        return {
            "optimum": process.optimum(_TOLERANCE)[0],
            "bound": engine_relaxation(FLEET, 1, ENGINE.rate).bound,
            **{name: process.reward(choices(process, one)) for name, one in found.items()},
        }
    from agents.learning import LEARNERS  # imports torch

    env = CrawlVectorEnv(
        ENVS,
        sources=FLEET,
        budget=1,
        engine=ENGINE,
        observed=False,
        arrivals="poisson-items",
        features=tuple(job["features"]),
        scaled=True,
    )
    kind = LEARNERS[job["agent"]]
    learner = kind(env, kind.Settings(**SETTINGS), seed=job["seed"])
    rewards = {}
    while learner.steps < job["steps"]:
        learner.learn(min(EVERY, job["steps"] - learner.steps))
        rewards[str(learner.steps)] = process.reward(_chosen(process, learner))
    return {"rewards": rewards}


@cache
def _process() -> EngineProcess:
    return EngineProcess(FLEET, 1, ENGINE, _AGES)


def _chosen(process: EngineProcess, learner: Any) -> IntArray:
    """Return what a learner crawls in every state."""
    _, *ages, backlog = np.indices(process.shape)
    shown = {"age": np.stack([age.ravel() + 1.0 for age in ages], axis=-1)}
    shown["backlog"] = np.repeat(backlog.reshape(-1, 1), len(FLEET), axis=1)
    task = learner.task
    observation = np.stack([shown[name] for name in task.features], axis=-1).astype(np.float32)
    assert task.scales is not None
    priority, _ = learner.predict(scaled(observation, task.scales))
    return np.asarray(np.argmax(priority, axis=-1).reshape(process.shape))


def rows(job: Job, result: Result) -> Iterator[dict[str, Any]]:
    """Yield a row for a learner after each part of its training, or for each of what is known."""
    sees = " ".join(job["features"])
    for steps, reward in result.get("rewards", {}).items():
        columns = {"agent": job["agent"], "sees": sees, "seed": job["seed"], "steps": steps}
        yield {**columns, "reward": repr(reward)}
    for name, reward in result.items():
        if name != "rewards":
            yield {"agent": name, "sees": "", "seed": 0, "steps": 0, "reward": repr(reward)}


def _known(data: Data) -> dict[str, float]:
    """Return the optimum, the bound and the rewards of the policies."""
    return {row["agent"]: float(row["reward"]) for row in data.where(sees="")}


def _trained(data: Data) -> dict[str, FloatArray]:
    """Return the rewards of the seeds at the end of training over the optimum, (S,), by what is
    seen."""
    optimum = _known(data)["optimum"]
    return {
        sees: data.numbers("reward", sees=sees, steps=max(data.values("steps", sees=sees), key=int))
        / optimum
        for sees in data.values("sees")
        if sees
    }


def table(report: Report, data: Data) -> None:
    """Add the rewards at the end of training beside what is known."""
    known = _known(data)
    rows = [
        [name, f"{reward / known['optimum']:.2%}", "", ""]
        for name, reward in known.items()
        if name != "optimum"
    ]
    for sees, ratio in _trained(data).items():
        spread = [f"{x:.2%}" for x in (ratio.min(), ratio.max())]
        rows.append([f"{AGENT} that sees {sees}", percent(statistics.mean(ratio)), *spread])
    report.table("Reward over the optimum", ["", "mean", "least seed", "best seed"], rows)


def claim(data: Data) -> str:
    """Return what the learners reach."""
    known, trained = _known(data), _trained(data)
    learnt = ", ".join(
        f"{percent(statistics.mean(ratio))} if it sees {sees.replace(' ', ' and ')}"
        for sees, ratio in trained.items()
    )
    return (
        f"Of the exact optimum of three sources {AGENT} reaches {learnt} (mean of "
        f"{len(next(iter(trained.values())))} seeds); whittle-engine "
        f"{known['whittle-engine'] / known['optimum']:.1%}, whittle "
        f"{known['whittle'] / known['optimum']:.1%}; the bound is "
        f"{known['bound'] / known['optimum']:.0%}."
    )


PART = Part(
    jobs=jobs,
    work=work,
    rows=rows,
    heading="A learner",
    content=(
        f"Three sources, M = 1, {ENGINE!r}. {AGENT} of Stable-Baselines3, with a perceptron of two "
        f"hidden layers, is trained for {STEPS:,} steps of {ENVS} environments, with and without "
        "the feature `backlog`. Every reward is computed from the stationary law of the policy, "
        "without chance; intervals are over the seeds (Student's t).",
        table,
    ),
    claim=claim,
)
