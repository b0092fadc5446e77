"""Small fleets, whose optimum is known: policies are evaluated exactly, without chance.

On one of them learners are trained that see the backlog, and others that do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from agents.evaluation import statistics
from agents.theory.engine.backlog import QueueIndex
from agents.theory.engine.optimum import EngineProcess
from agents.theory.engine.relaxation import engine_relaxation
from agents.theory.renewal import renewal_arm
from crawl_env import CrawlVectorEnv, Engine, Sources
from crawl_env.numerics import FloatArray, IntArray
from crawl_env.simulation.observation import scaled
from ephemeral_crawl.core.evaluation import percent
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from experiments.core.data import Data
from experiments.core.study import Part

CASES = 40
POLICIES = ("whittle-engine", "whittle", "myopic")
_TOLERANCE = 1e-4


def exact_jobs(study: Any) -> list[Job]:
    """Return a job for each case."""
    size = study.size
    return [
        {"columns": {"case": case, "seed": size.seed}, "case": case, "seed": size.seed}
        for case in range(4 if size.quick else CASES)
    ]


def posed(case: int, seed: int) -> tuple[Sources, Engine, float]:
    """Return two or three sources, an engine, and what is left after the fastest decay."""
    rng = np.random.default_rng([seed, case])
    n = int(rng.choice([2, 3]))
    fleet = Sources(
        np.exp(rng.uniform(np.log(0.1), np.log(5), n)),
        np.exp(rng.normal(0, 0.8, n)),
        np.exp(rng.uniform(np.log(0.1), np.log(0.7), n)),
    )
    share = float(rng.choice([0.15, 0.3, 0.6, 1.0, 2.0]))
    service: Any = str(rng.choice(["deterministic", "poisson"]))
    rate = share * float(fleet.arrival_rate.sum())
    refuses, capacity = rng.random() < 0.5, int(rng.integers(0, 11))
    if service == "deterministic":  # fractions of an item are part of the state
        rate = max(round(2 * rate) / 2 if rate < 2 else float(round(rate)), 0.5)
        if capacity == 0:  # no backlog tells what is left over
            rate = max(float(round(rate)), 1.0)
    threshold = engine_relaxation(fleet, 1, rate).price if refuses else 0.0
    return fleet, Engine(rate, capacity, "fifo", service, threshold), share


def exact_work(job: Job) -> Result:
    """Return the optimum, the bound, and the reward of each policy on one case."""
    fleet, engine, share = posed(job["case"], job["seed"])
    # As old as the policy takes sources to get: one that waits longer would wait for ever.
    ages = np.maximum(np.ceil(5 / fleet.decay_rate) + 1, 20).astype(int)
    process = EngineProcess(fleet, 1, engine, ages)
    optimum, _ = process.optimum(_TOLERANCE)
    rules = policies(fleet, engine, ages)
    return {
        "sources": len(fleet),
        "service": share,
        "engine": repr(engine),
        "bound": engine_relaxation(fleet, 1, engine.rate).bound,
        "optimum": optimum,
        **{name: process.reward(choices(process, one)) for name, one in rules.items()},
    }


def policies(fleet: Sources, engine: Engine, ages: IntArray) -> dict[str, QueueIndex | FloatArray]:
    """Return the index of whittle-engine, and the tables of those that heed no engine, (N, ages).

    ages: (N,), up to which the tables go.
    """
    grid = np.arange(1.0, ages.max() + 1)[:, None] * np.ones(len(fleet))
    return {
        "whittle-engine": QueueIndex(fleet, 1, engine),
        "whittle": renewal_arm(fleet).index_at_age(grid).T,
        "myopic": fleet.content_at(grid).T,
    }


def choices(process: EngineProcess, rule: QueueIndex | FloatArray) -> IntArray:
    """Return the source of the largest index in every state; M = 1, ties go to the older."""
    phase, *ages, backlog = np.indices(process.shape)
    if isinstance(rule, QueueIndex):
        age = np.stack([age.ravel() + 1.0 for age in ages], axis=1)
        here = phase.ravel() % len(rule.service.fractions)
        index = rule.priority(age, here, backlog.ravel()).T.reshape(-1, *process.shape)
    else:
        index = np.array([rule[i, age] for i, age in enumerate(ages)])
    best = index >= index.max(axis=0)
    oldest = np.where(best, np.array(ages), -1)
    return np.asarray(np.argmax(oldest, axis=0))


def exact_tables(report: Report, data: Data) -> None:
    """Add the distribution of the rewards over the optimum."""
    ratios = {name: data.numbers(name, "optimum") for name in (*POLICIES, "bound")}
    rows = [
        [
            name,
            f"{ratio.mean():.3f}",
            *(f"{np.quantile(ratio, q):.3f}" for q in (0.0, 0.1, 0.5)),
            f"{(ratio >= 0.98).mean():.0%}",
        ]
        for name, ratio in ratios.items()
    ]
    columns = ["policy", "mean", "least", "10th percentile", "median", "at least .98"]
    seeds = ", ".join(data.values("seed"))
    caption = f"Reward over the optimum, {len(data.rows)} cases (seeds {seeds})"
    report.table(caption, columns, rows)


def exact_claim(data: Data) -> str:
    """Return what the two indices earn."""
    ours, plain = (data.numbers(name, "optimum") for name in POLICIES[:2])
    return (
        f"Of the exact optimum of {len(data.rows)} small fleets, whittle-engine earns "
        f"{ours.mean():.1%} on average and {ours.min():.1%} at least, at least 98 % in "
        f"{(ours >= 0.98).sum()} of them; the plain index {plain.mean():.1%} and {plain.min():.1%}."
    )


EXACT = Part(
    jobs=exact_jobs,
    work=exact_work,
    heading="The exact optimum of small fleets",
    content=(
        "Two or three random sources, M = 1, buffers of 0 to 10 items, first in, first out, "
        "deterministic or Poisson service of .15 to 2 times what is published, with and without a "
        "threshold κ*. Optimum by value iteration over ages, backlog and what a deterministic "
        "engine has left over; rewards of the policies from the stationary law of the same chain. "
        "whittle-engine simulates when it is made, so that another seed may find another index. "
        f"Relative errors are about {_TOLERANCE:g}.",
        exact_tables,
    ),
    claim=exact_claim,
)


AGENT = "dqn"
SEES, BLIND = ("age", "backlog"), ("age",)
# A perceptron of all that is observed. An equivariant network of these features could not tell the
# sources apart.
SETTINGS: Mapping[str, Any] = {"network": "default", "gamma": 0.95}
FLEET = Sources([2.0, 1.0, 0.5], [1.0, 0.7, 2.0], [0.3, 0.15, 0.2])
ENGINE = Engine(rate=2, capacity=3)
SEEDS, STEPS, ENVS = 4, 2000, 64
EVERY = 500  # steps of training between evaluations
_AGES, _CLOSER = 25, 1e-5


def learner_jobs(study: Any) -> list[Job]:
    """Return a job for each training, and one for the reference policies."""
    seeds, steps = (1, 100) if study.size.quick else (SEEDS, STEPS)
    trainings = [
        {"agent": AGENT, "features": list(features), "seed": seed, "steps": steps}
        for features in (SEES, BLIND)
        for seed in range(seeds)
    ]
    return [*trainings, {"agent": "", "features": [], "seed": 0, "steps": 0}]


def learner_work(job: Job) -> Result:
    """Return the reward of a learner after each part of its training, or of the references."""
    process = _process()
    if not job["agent"]:
        rules = policies(FLEET, ENGINE, process.ages)
        return {
            "optimum": process.optimum(_CLOSER)[0],
            "bound": engine_relaxation(FLEET, 1, ENGINE.rate).bound,
            **{name: process.reward(choices(process, one)) for name, one in rules.items()},
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
        rewards[str(learner.steps)] = process.reward(_choices_of(process, learner))
    return {"rewards": rewards}


@cache
def _process() -> EngineProcess:
    return EngineProcess(FLEET, 1, ENGINE, _AGES)


def _choices_of(process: EngineProcess, learner: Any) -> IntArray:
    """Return the source that a learner crawls in every state."""
    _, *ages, backlog = np.indices(process.shape)
    features = {"age": np.stack([age.ravel() + 1.0 for age in ages], axis=-1)}
    features["backlog"] = np.repeat(backlog.reshape(-1, 1), len(FLEET), axis=1)
    task = learner.task
    observation = np.stack([features[name] for name in task.features], axis=-1).astype(np.float32)
    assert task.scales is not None
    priority, _ = learner.predict(scaled(observation, task.scales))
    return np.asarray(np.argmax(priority, axis=-1).reshape(process.shape))


def learner_rows(job: Job, result: Result) -> Iterator[dict[str, Any]]:
    """Yield a row for a learner after each part of its training, or for each reference."""
    sees = " ".join(job["features"])
    for steps, reward in result.get("rewards", {}).items():
        columns = {"agent": job["agent"], "sees": sees, "seed": job["seed"], "steps": steps}
        yield {**columns, "reward": repr(reward)}
    for name, reward in result.items():
        if name != "rewards":
            yield {"agent": name, "sees": "", "seed": 0, "steps": 0, "reward": repr(reward)}


def _known_rewards(data: Data) -> dict[str, float]:
    """Return the optimum, the bound and the rewards of the policies."""
    return {row["agent"]: float(row["reward"]) for row in data.where(sees="")}


def _ratios(data: Data) -> dict[str, FloatArray]:
    """Return the rewards of the seeds at the end of training over the optimum, (S,), by what is
    seen."""
    optimum = _known_rewards(data)["optimum"]
    return {
        sees: data.numbers("reward", sees=sees, steps=max(data.values("steps", sees=sees), key=int))
        / optimum
        for sees in data.values("sees")
        if sees
    }


def learner_table(report: Report, data: Data) -> None:
    """Add the rewards at the end of training beside the references."""
    rewards = _known_rewards(data)
    rows = [
        [name, f"{reward / rewards['optimum']:.2%}", "", ""]
        for name, reward in rewards.items()
        if name != "optimum"
    ]
    for sees, ratio in _ratios(data).items():
        spread = [f"{x:.2%}" for x in (ratio.min(), ratio.max())]
        rows.append([f"{AGENT} that sees {sees}", percent(statistics.mean(ratio)), *spread])
    report.table("Reward over the optimum", ["", "mean", "least seed", "best seed"], rows)


def learner_claim(data: Data) -> str:
    """Return what the learners reach."""
    rewards, ratios = _known_rewards(data), _ratios(data)
    learnt = ", ".join(
        f"{percent(statistics.mean(ratio))} if it sees {sees.replace(' ', ' and ')}"
        for sees, ratio in ratios.items()
    )
    return (
        f"Of the exact optimum of three sources {AGENT} reaches {learnt} (mean of "
        f"{len(next(iter(ratios.values())))} seeds); whittle-engine "
        f"{rewards['whittle-engine'] / rewards['optimum']:.1%}, whittle "
        f"{rewards['whittle'] / rewards['optimum']:.1%}; the bound is "
        f"{rewards['bound'] / rewards['optimum']:.0%}."
    )


LEARNER = Part(
    jobs=learner_jobs,
    work=learner_work,
    rows=learner_rows,
    heading="A learner",
    content=(
        f"Three sources, M = 1, {ENGINE!r}. {AGENT} of Stable-Baselines3, with a perceptron of two "
        f"hidden layers, is trained for {STEPS:,} steps of {ENVS} environments, with and without "
        "the feature `backlog`. Every reward is computed from the stationary law of the policy, "
        "without chance; intervals are over the seeds (Student's t).",
        learner_table,
    ),
    claim=learner_claim,
)
