"""Small random fleets, whose optimum is known: policies are evaluated exactly, without chance."""

from __future__ import annotations

from typing import Any

import numpy as np

from agents.theory.engine.backlog import QueueIndex
from agents.theory.engine.optimum import EngineProcess
from agents.theory.engine.relaxation import engine_relaxation
from agents.theory.renewal import renewal_arm
from crawl_env import Engine, Sources
from crawl_env.numerics import FloatArray, IntArray
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from experiments.core.data import Data
from experiments.core.study import Part

CASES = 40
POLICIES = ("whittle-engine", "whittle", "myopic")
_TOLERANCE = 1e-4


def jobs(study: Any) -> list[Job]:
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


def work(job: Job) -> Result:
    """Return the optimum, the bound, and the reward of each policy on one case."""
    fleet, engine, share = posed(job["case"], job["seed"])
    # As old as the policy takes sources to get: one that waits longer would wait for ever.
    ages = np.maximum(np.ceil(5 / fleet.decay_rate) + 1, 20).astype(int)
    process = EngineProcess(fleet, 1, engine, ages)
    optimum, _ = process.optimum(_TOLERANCE)
    found = policies(fleet, engine, ages)
    return {
        "sources": len(fleet),
        "service": share,
        "engine": repr(engine),
        "bound": engine_relaxation(fleet, 1, engine.rate).bound,
        "optimum": optimum,
        **{name: process.reward(choices(process, one)) for name, one in found.items()},
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


def choices(process: EngineProcess, found: QueueIndex | FloatArray) -> IntArray:
    """Return the source of the largest index in every state; M = 1, ties go to the older."""
    phase, *ages, backlog = np.indices(process.shape)
    if isinstance(found, QueueIndex):
        age = np.stack([age.ravel() + 1.0 for age in ages], axis=1)
        here = phase.ravel() % len(found.service.left)
        index = found.priority(age, here, backlog.ravel()).T.reshape(-1, *process.shape)
    else:
        index = np.array([found[i, age] for i, age in enumerate(ages)])
    best = index >= index.max(axis=0)
    oldest = np.where(best, np.array(ages), -1)
    return np.asarray(np.argmax(oldest, axis=0))


def tables(report: Report, data: Data) -> None:
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


def claim(data: Data) -> str:
    """Return what the two indices earn."""
    ours, plain = (data.numbers(name, "optimum") for name in POLICIES[:2])
    return (
        f"Of the exact optimum of {len(data.rows)} small fleets, whittle-engine earns "
        f"{ours.mean():.1%} on average and {ours.min():.1%} at least, at least 98 % in "
        f"{(ours >= 0.98).sum()} of them; the plain index {plain.mean():.1%} and {plain.min():.1%}."
    )


PART = Part(
    jobs=jobs,
    work=work,
    heading="The exact optimum of small fleets",
    content=(
        "Two or three random sources, M = 1, buffers of 0 to 10 items, first in, first out, "
        "deterministic or Poisson service of .15 to 2 times what is published, with and without a "
        "threshold κ*. Optimum by value iteration over ages, backlog and what a deterministic "
        "engine has left over; rewards of the policies from the stationary law of the same chain. "
        "whittle-engine simulates when it is made, so that another seed may find another index. "
        f"Relative errors are about {_TOLERANCE:g}.",
        tables,
    ),
    claim=claim,
)
