"""Times the parts of an update of the learners of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any, NamedTuple

from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from agents.learning import LEARNERS
from agents.learning.sb3.environments import TrainingVecEnv
from crawl_env import CrawlEnv, CrawlVectorEnv, TaskArguments

TABLE1: dict[str, Any] = {
    "sources": "table1",
    "budget": 2,
    "features": ("value", "age", "decay_rate"),
    "horizon": None,
}
NATIVE, ONE_BY_ONE = "native", "DummyVecEnv"
# What is timed: the algorithms that act by priorities in both environments.
CASES = (
    *((name, env) for name in ("ppo", "a2c", "sac", "td3") for env in (NATIVE, ONE_BY_ONE)),
    ("dqn", ONE_BY_ONE),
    ("maskable-ppo", ONE_BY_ONE),
)


class Spent(NamedTuple):
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


def spent(algorithm: str, env: str, num_envs: int, rounds: int) -> Spent:
    """Time updates of a learner with its default settings and SB3's own perceptron."""
    kind: Any = LEARNERS[algorithm]
    if env == ONE_BY_ONE and not kind.sequential:
        kind = type("OneByOne", (kind,), {"arms_type": _OneByOne})
    learner = kind(CrawlVectorEnv(num_envs, **TABLE1), kind.Settings(network="default"))
    learner.learn(getattr(learner.settings, "learning_starts", 0) + learner.steps_per_update)
    stepping, training = _Watch(), _Watch()
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
    return Spent(algorithm, env, num_envs, steps, *fastest)


class _OneByOne(TrainingVecEnv):
    """The same environments, one by one."""

    def vec_env(self, arguments: TaskArguments) -> VecEnv:
        make: Any = lambda: CrawlEnv(**arguments)  # noqa: E731
        return DummyVecEnv([make] * self.shape[0])


class _Watch:
    """Adds up the time spent in a function."""

    seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            start = process_time()
            result = function(*arguments, **named)
            self.seconds += process_time() - start
            return result

        return timed
