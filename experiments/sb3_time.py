"""`python -m experiments sb3-time`: profiles the learners of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import process_time
from typing import Any, ClassVar, NamedTuple

from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from agents.learning import LEARNERS
from agents.learning.sb3.environments import TrainingVecEnv
from crawl_env import CrawlEnv, CrawlVectorEnv, TaskArguments
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import Rows
from experiments.core.clock import Watch
from experiments.core.data import Column, Data, Table, mean
from experiments.core.study import Part, PartsStudy, single

TABLE1: dict[str, Any] = {
    "sources": "table1",
    "budget": 2,
    "features": ("value", "age", "decay_rate"),
    "horizon": None,
}
PARTS = ("environment", "collection", "gradient")
NATIVE, ONE_BY_ONE = "native", "DummyVecEnv"
# What is timed: the algorithms that act by priorities in both environments.
CASES = (
    *((name, env) for name in ("ppo", "a2c", "sac", "td3") for env in (NATIVE, ONE_BY_ONE)),
    ("dqn", ONE_BY_ONE),
    ("maskable-ppo", ONE_BY_ONE),
)


class UpdateTimes(NamedTuple):
    """Minimum time of each part over several updates; microseconds per step of one environment.

    Of the processor's time: in one thread that is the wall time of a machine with nothing else to
    do, and others' load disturbs it less.
    """

    algorithm: str
    env: str
    num_envs: int
    steps: int  # of each environment in an update
    environment: float  # stepping the `VecEnv` itself
    collection: float  # the rest: the policy's forward passes, buffers, infos, reward scale
    gradient: float  # SB3's `train`

    @property
    def total(self) -> float:
        return self.environment + self.collection + self.gradient


def spent(algorithm: str, env: str, num_envs: int, rounds: int) -> UpdateTimes:
    """Time updates of a learner with its default settings and SB3's own perceptron."""
    kind: Any = LEARNERS[algorithm]
    if env == ONE_BY_ONE and not kind.sequential:
        kind = type("OneByOne", (kind,), {"arms_type": _OneByOne})
    learner = kind(CrawlVectorEnv(num_envs, **TABLE1), kind.Settings(network="default"))
    learner.learn(getattr(learner.settings, "learning_starts", 0) + learner.steps_per_update)
    stepping, training = Watch(), Watch()
    inner, model = learner.arms.venv.venv, learner.model
    inner.step_wait = stepping.around(inner.step_wait)
    model.train = training.around(model.train)
    times = []
    for _ in range(rounds):
        stepping.seconds = training.seconds = 0.0
        start = process_time()
        learner.update()
        rest = process_time() - start - stepping.seconds - training.seconds
        times.append((stepping.seconds, rest, training.seconds))
    steps = learner.steps_per_update
    fastest = [min(part) * 1e6 / steps / num_envs for part in zip(*times, strict=True)]
    return UpdateTimes(algorithm, env, num_envs, steps, *fastest)


class _OneByOne(TrainingVecEnv):
    """The same environments, one by one."""

    def vec_env(self, arguments: TaskArguments) -> VecEnv:
        make: Any = lambda: CrawlEnv(**arguments)  # noqa: E731
        return DummyVecEnv([make] * self.shape[0])


CONTENT = (
    Table(
        "Time per step of one environment",
        {"algorithm": "algorithm", "env": "environment"},
        (
            *(
                Column(title, mean(column), ".1f")
                for title, column in (("µs", "total"), *((f"{part}, µs", part) for part in PARTS))
            ),
            *(Column(part, mean(part, "total"), ".0%") for part in PARTS),
        ),
    ),
    "Table 1, M = 2, each learner's default settings with SB3's own perceptron, processor time of "
    "one thread; each part at its fastest of several updates. Native: all environments as one "
    "array program; DummyVecEnv: one after the other, for DQN and MaskablePPO in "
    "SequentialSelection, two picks a step. Gradient: SB3's train. Collection: forward passes of "
    "the policy, buffers, infos, scaling of rewards.",
)


def jobs(study: Any) -> list[Job]:
    """Return a job for each algorithm and kind of environment."""
    length = {"rounds": study.rounds, "num_envs": study.num_envs}
    return [{"algorithm": algorithm, "env": env, **length} for algorithm, env in CASES]


def work(job: Job) -> Result:
    """Return what each part of a step takes, and all."""
    import torch

    torch.set_num_threads(1)
    times = spent(job["algorithm"], job["env"], job["num_envs"], job["rounds"])
    return {**times._asdict(), "total": times.total}


def claim(data: Data) -> str:
    """Return what part of the time the native environment takes."""
    share = data.numbers("environment", "total", env=NATIVE)
    return (
        f"In training with SB3 the native environment takes {share.min():.0%} to "
        f"{share.max():.0%} of the time; the rest is SB3's own, in collecting transitions and "
        "in gradient steps."
    )


@dataclass(kw_only=True)
class SB3Time(PartsStudy):
    """Measures the time per step that algorithms of Stable-Baselines3 spend in the environment, in
    collecting transitions, and in gradient steps: on Table 1, M = 2, in one thread."""

    title: ClassVar[str] = "Time of Stable-Baselines3"
    parts: ClassVar[Mapping[str, Part]] = single(
        Part(
            jobs=jobs,
            work=work,
            alone=True,
            content=CONTENT,
            claim=claim,
        )
    )

    rounds: int = 20
    """Number of timed updates; the minimum of each part is reported."""
    num_envs: int = 16
    """Number of parallel environments."""

    def measure(self) -> dict[str, Rows]:
        for name in ("rounds", "num_envs"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} is {getattr(self, name)}; it must be at least 1")
        return super().measure()
