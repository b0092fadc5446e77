"""A learner that sees the backlog, on a small fleet whose optimum is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agents.evaluation import evaluate
from agents.theory.engine.optimum import EngineProcess
from crawl_env import CrawlVectorEnv, Engine, Sources, Task
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import Rows
from experiments.signals.runs import Size

PART = "learner"
AGENT = "dqn"
PEERS = ("whittle", "whittle-engine", "myopic")
SEES, BLIND = ("age", "backlog"), ("age",)
FLEET = Sources([2.0, 1.0, 0.5], [1.0, 0.7, 2.0], [0.3, 0.15, 0.2])
ENGINE = Engine(rate=2, capacity=3)
SEEDS, STEPS, ENVS = 1, 400, 64


def jobs(size: Size) -> list[Job]:
    seeds, steps = (1, 100) if size.quick else (SEEDS, STEPS)
    trained = [
        {"part": PART, "agent": AGENT, "features": list(features), "seed": seed, "steps": steps}
        for features in (SEES, BLIND)
        for seed in range(seeds)
    ]
    named = [
        {"part": PART, "agent": agent, "features": list(SEES), "seed": 0, "steps": 0}
        for agent in PEERS
    ]
    return [*trained, *named]


def work(job: Job) -> Result:
    """Train, if it is a learner, and evaluate; return the reward and the optimum."""
    posed: dict[str, Any] = {
        "sources": FLEET,
        "budget": 1,
        "engine": ENGINE,
        "observed": False,
        "features": tuple(job["features"]),
    }
    agent: Any = job["agent"]
    if job["steps"]:
        from agents.learning import LEARNERS  # imports torch

        posed["scaled"] = True
        env = CrawlVectorEnv(ENVS, **posed)
        agent = LEARNERS[agent](env, seed=job["seed"]).learn(job["steps"])
    run = evaluate(agent, Task(**posed), steps=500, seeds=32, seed=1)
    optimum, _ = EngineProcess(FLEET, 1, ENGINE, 25).optimum(1e-4)
    return {"reward": float(run.reward.mean()), "optimum": optimum}


def records(jobs: Sequence[Job], results: Sequence[Result]) -> Iterator[dict[str, Any]]:
    """Yield one row for each job."""
    for job, result in zip(jobs, results, strict=True):
        yield {
            "agent": job["agent"],
            "sees": " ".join(job["features"]),
            "seed": job["seed"],
            "steps": job["steps"],
            **{name: repr(value) for name, value in result.items()},
        }


def _table(rows: Rows) -> list[list[str]]:
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        key = row["agent"], row["sees"]
        found.setdefault(key, []).append(float(row["reward"]) / float(row["optimum"]))
    return [
        [agent, sees, f"{min(of):.3f}", f"{sum(of) / len(of):.3f}", f"{max(of):.3f}"]
        for (agent, sees), of in found.items()
    ]


def write(report: Report, rows: Rows) -> None:
    report.heading("A learner")
    report.paragraph(
        f"Three sources, M = 1, {ENGINE!r}. {AGENT} of Stable-Baselines3 is trained in {ENVS} "
        "environments, with and without the feature `backlog`; every row has the smallest, the "
        "mean and the largest reward of its seeds as a fraction of the exact optimum (32 runs of "
        "500 steps each)."
    )
    report.table("Reward over the optimum", ["agent", "sees", "least", "mean", "most"],
                 _table(rows))  # fmt: skip


def finding(rows: Rows) -> str:
    parts = [f"{agent} ({sees}) {mean}" for agent, sees, _, mean, _ in _table(rows)]
    return f"On a small fleet, as a fraction of the optimum: {'; '.join(parts)}."
