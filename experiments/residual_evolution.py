"""`python -m experiments residual-evolution`: what learners gain beyond structured policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import process_time
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.benchmark import play
from agents.evaluation.rollout import AgentLike
from agents.evaluation.statistics import Estimate
from agents.learning import ResidualEvolution
from agents.learning.fleet.residual import ResidualEvolutionSettings
from crawl_env import CrawlVectorEnv
from crawl_env.benchmark import named
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core.evaluation import percent
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import ParallelStudy
from experiments.core.data import Case, Cell, Column, Data, Table, mean
from experiments.core.study import Part, PartsStudy, single

_NOT_USED = ("available", "balance", "failed")  # features that are constant in these tasks


class TrainingOfTask(NamedTuple):
    """How the residual of a task is trained."""

    base: str  # the policy that is improved
    beside: str  # another policy with which it is compared
    environments: int
    steps: int  # of each environment
    arrivals: str = ""  # in training; default: those of the task


# About a minute of one core each.
TRAININGS = {
    "Deadline60": TrainingOfTask(
        "whittle-deadline", "deadline-assignment", 128, 21_600, "deterministic"
    ),
    "Stories20": TrainingOfTask("whittle", "whittle-stories", 192, 19_200),
    "Diminishing40": TrainingOfTask("greedy-topics", "myopic", 256, 9_600),
}


def jobs(study: Any) -> list[Job]:
    """Return a job for each task and seed of the training."""
    return [
        {
            "columns": {"task": task, "base": training.base, "beside": training.beside,
                        "training": seed},
            "steps": study.steps or training.steps,
        }
        for seed in range(study.seeds)
        for task, training in TRAININGS.items()
        if task in (study.tasks or TRAININGS)
    ]  # fmt: skip


def measured(job: Job) -> Result:
    """Train a residual; return what it collects in the test runs of the task, what its base
    collects, and the recorded rewards of another policy there."""
    task, training = named(job["columns"]["task"]), TRAININGS[job["columns"]["task"]]
    features = tuple(name for name in task.features if name not in _NOT_USED)
    arguments = {**task.arguments_of("train", 0), "features": features, "horizon": None}
    if training.arrivals:
        arguments["arrivals"] = training.arrivals
    env = CrawlVectorEnv(training.environments, **arguments)
    began = process_time()
    agent = ResidualEvolution(
        env,
        ResidualEvolutionSettings(base=training.base),
        seed=job["columns"]["training"],
    ).learn(job["steps"])
    seconds = process_time() - began

    def rewards(agent: AgentLike) -> list[float]:
        return [play(agent, task, run, features=features)["reward"] for run in range(task.seeds)]

    recorded = {reference.policy: reference.rewards for reference in task.references.values()}
    return {
        "reward": rewards(agent.policy_for),
        "base_reward": rewards(training.base),
        "beside_reward": list(recorded[training.beside]),
        "source_steps": agent.steps * env.num_envs * env.task.n,
        "seconds": seconds,
    }


def over(column: str, less: float = 0.0) -> Cell:
    """Return the cell of the reward relative to that of another policy, paired by fleet; the mean
    of all trainings, if a case has several.

    Arguments:
        less: what is subtracted: with 1, it is a gain.
    """

    def cell(data: Data, case: Case) -> Estimate:
        number = len(data.values("training", **case))
        mine, its = (_by_fleet(data.numbers(name, **case), number) for name in ("reward", column))
        return Estimate(*(x - less for x in statistics.ratio(mine, its)))

    return cell


def _by_fleet(values: FloatArray, trainings: int) -> FloatArray:
    """Return the means over the trainings of the rewards on each fleet."""
    return np.asarray(values.reshape(trainings, -1).mean(axis=0))


def worst(column: str, less: float = 0.0) -> Cell:
    """Return the cell of the least of the trainings; see `over`."""

    def cell(data: Data, case: Case) -> float:
        seeds = data.values("training", **case)
        return min(over(column, less)(data, {**case, "training": seed}).mean for seed in seeds)

    return cell


def claim(data: Data) -> str:
    """Return the gain over the base of each task."""
    gains = ", ".join(
        f"{percent(over('base_reward', 1.0)(data, case))} ({case['task']})"
        for case in data.cases("task")
    )
    return f"residual-evolution collects more than the policy that it starts from: {gains}"


_TRAINING = {"training": "seed of the training"}
_COMPARED = (
    Column("gain over the base", over("base_reward", 1.0)),
    Column("÷ the policy beside it", over("beside_reward")),
)


@dataclass(kw_only=True)
class ResidualEvolutionStudy(PartsStudy, ParallelStudy):
    """Trains residuals of structured policies, from several seeds, for three tasks of the benchmark
    whose sources are coupled by more than the budget."""

    adds: ClassVar[str] = "task"
    title: ClassVar[str] = "What structured policies leave"
    parts: ClassVar[Mapping[str, Part]] = single(
        Part(
            jobs=jobs,
            work=measured,
            content=(
                "Each training takes about a minute of one core, and draws other fleets than the "
                "20 test runs of the task, on which the policies are compared, with the same "
                "arrivals. The rewards of the others are those that the benchmark records. "
                "Intervals are of 95 %, over fleets, of the means of all trainings.",
                Table(
                    "All trainings",
                    {"task": "task", "base": "base", "beside": "beside it"},
                    (
                        *_COMPARED,
                        Column("least gain of a training", worst("base_reward", 1.0), ".1%"),
                        Column("source steps", mean("source_steps"), ".3g"),
                        Column("CPU seconds", mean("seconds"), ".0f"),
                    ),
                ),
                Table(
                    "{task}",
                    _TRAINING,
                    _COMPARED,
                    each=("task",),
                ),
            ),
            claim=claim,
        )
    )

    tasks: tuple[Literal["Deadline60", "Stories20", "Diminishing40"], ...] = ()
    """Tasks to run; the records of the others are kept. By default all are run."""
    seeds: int = 5
    """Trainings for each task."""
    steps: int | None = None
    """Steps of each environment in a training, instead of those of the task."""
