"""`Arms`, the interface between learners and environments, and its implementation for crawls.

In each step some of the arms are activated. Learners use no other part of an environment, so that
tests can replace it by finite Markov chains of known indices.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from agents.learning import storage
from crawl_env import CrawlVectorEnv, Task
from crawl_env.numerics import BoolArray, FloatArray
from crawl_env.simulation.simulation import Simulation


class Step(NamedTuple):
    """The outcome of one step in B environments with N arms each."""

    active: BoolArray  # (B, N) whether each arm was activated
    reward: FloatArray  # (B, N)
    state: FloatArray  # (B, N, D) after the step


@runtime_checkable
class Arms(Protocol):
    """B environments with N arms each, some of which are activated in each step."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(B, N, D): numbers of environments, arms and components of a state."""

    @property
    def activation_fraction(self) -> float:
        """M/ΣC: the fraction of the arms, by cost, that a step activates."""

    @property
    def cost(self) -> FloatArray:
        """(N,) cost of activating each arm."""

    def state(self) -> FloatArray:
        """Return the states, (B, N, D); after an episode, the initial ones of the next."""

    def step(self, priority: NDArray[np.float32]) -> Step:
        """Activate the arms of largest priority, (B, N) in [−1, 1], and take a step."""

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the time-dependent state."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state returned by `get_state`, which may come from a file.

        Raises:
            ValueError: it belongs to other arms, or an array has another type, shape or range.
        """


class CrawlArms:
    """The sources of a vector environment as arms; the reward of an arm is its harvest.

    A source is active if a crawl of it was attempted, even if the crawl failed. A source that is
    not available stays passive, whatever its priority.

    Arguments:
        env: the environment; its features must include `crawled`, `harvest`, `failed` if crawls can
            fail, and the features of the state.
        features: the features that form the state.
        seed: seed of the environment.

    Raises:
        ValueError: a feature is missing, the budget rule is "average", there is an engine, or the
            autoreset mode of the environment does not return the last states of an episode.
    """

    def __init__(self, env: CrawlVectorEnv, features: tuple[str, ...], seed: int = 0) -> None:
        task = env.task
        attempted = ("crawled", "failed") if task.sources.fails else ("crawled",)
        for name in (*attempted, "harvest", *features):
            if name not in task.features:
                raise ValueError(
                    f"learning needs the feature {name!r}, and the environment has "
                    f"{', '.join(task.features)}; add it to `features`"
                )
        check_budget_rule(task)
        check_collected(task)
        check_autoreset_mode(env)
        self.env = env
        self._attempted = [task.features.index(name) for name in attempted]
        self._harvest = task.features.index("harvest")
        self._state = [task.features.index(name) for name in features]
        self._observation = task.natural(env.reset(seed=seed)[0])

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.env.num_envs, self.env.task.n, len(self._state)

    @property
    def activation_fraction(self) -> float:
        task = self.env.task
        return min(1.0, task.budget / float(task.sources.cost.sum()))

    @property
    def cost(self) -> FloatArray:
        return self.env.task.sources.cost

    def state(self) -> FloatArray:
        return self._observation[..., self._state].astype(np.float64)

    def step(self, priority: NDArray[np.float32]) -> Step:
        observation, _, _, truncated, _ = self.env.step(priority)
        self._observation = self.env.task.natural(observation)
        active = self._observation[..., self._attempted].max(axis=-1) > 0
        harvest = self._observation[..., self._harvest].astype(np.float64)
        step = Step(active, harvest, self.state())
        if truncated.any():  # then all are, since all episodes started together
            self._observation = self.env.task.natural(self.env.reset()[0])
        return step

    def get_state(self) -> dict[str, Any]:
        return {"task": task_description(self.env), "env": self.env.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        storage.check_keys(state, ("task", "env"), "arms")
        check_same_task(self.env, state["task"])
        check_env_state(state["env"], self.env.get_state())
        self._observation = self.env.task.natural(self.env.set_state(state["env"]))


def check_budget_rule(task: Task) -> None:
    """Raise ValueError unless the budget is per step."""
    if task.budget_rule != "step":
        raise ValueError(
            "learners rank the sources for a budget in every step, which needs "
            f"budget_rule='step'; the environment has {task.budget_rule!r}"
        )


def check_collected(task: Task) -> None:
    """Raise ValueError unless the reward is the utility that crawls collect."""
    if task.look_cost is not None or task.unchanged_cost is not None:
        raise ValueError(
            "this learner learns of sources that are crawled or not, at a constant cost; train a "
            "learner of Stable-Baselines3, or leave out look_cost and unchanged_cost"
        )
    if task.payoff is not None:
        raise ValueError(
            "this learner takes what the crawls of each source collect as its reward, and with a "
            f"payoff, here {task.payoff!r}, the reward is another; train a learner of "
            "Stable-Baselines3, which takes the environment's reward, or leave out the payoff"
        )
    if task.engine is not None:
        raise ValueError(
            "this learner takes what the crawls of each source collect as its reward, and with an "
            "engine the reward is what is indexed; train a learner of Stable-Baselines3, which "
            "takes the environment's reward, or leave out the engine"
        )


def check_autoreset_mode(env: CrawlVectorEnv) -> None:
    """Raise ValueError unless the last states of an episode are returned before the next begins."""
    if env.autoreset_mode is not AutoresetMode.NEXT_STEP:
        raise ValueError(
            f"autoreset_mode is {env.autoreset_mode.value!r}; learning needs the last states of an "
            "episode, and then the next one: make the environment with NEXT_STEP, the default"
        )


def task_description(env: CrawlVectorEnv) -> dict[str, Any]:
    """Return the properties that must be equal for training to be resumed in an environment."""
    task = env.task
    names = ("sources", "budget", "features", "horizon", "start", "per_host")
    same = {name: getattr(task, name) for name in names}
    same["features"], same["observed"] = list(task.features), task.observed.tolist()
    same["arrivals"] = re.sub(r" at 0x\w+", "", repr(task.arrivals))
    return {**same, "num_envs": env.num_envs}


def check_same_task(env: CrawlVectorEnv, saved: dict[str, Any]) -> None:
    """Raise ValueError unless `saved` describes the task of the environment."""
    own = task_description(env)
    storage.check_keys(saved, own, "task")
    for what, mine in own.items():
        if type(saved[what]) is not type(mine) or saved[what] != mine:
            other = "other parameters" if repr(saved[what]) == repr(mine) else str(saved[what])
            raise ValueError(
                f"this environment has {what} {mine}, the saved one {other}; resume in an equal "
                "environment, or load the agent to continue in another one"
            )


def check_env_state(state: Any, own: dict[str, Any], name: str = "env") -> None:
    """Raise ValueError unless a saved state of an environment fits one whose state is `own`: each
    part has the same type and shape, and its numbers are in range."""
    cells = own["world"]["value"].size
    storage.check_keys(state, own, name)
    for key, part in own.items():
        if key == "generator":
            storage.check_generator(state[key], part, f"{name}.{key}")
        else:
            storage.check_like(state[key], part, f"{name}.{key}", low=0.0, cells=cells)


# -- arms without a budget -----------------------------------------------------------------------


class Simulator(Protocol):
    """B environments with N arms each, which are activated independently and without a budget."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(B, N, D): numbers of environments, arms and components of a state."""

    @property
    def cost(self) -> FloatArray:
        """(N,) cost of activating each arm."""

    def draw(self, num_envs: int, rng: np.random.Generator) -> FloatArray:
        """Return random initial states, (num_envs, N, D)."""

    def start(self, state: FloatArray, rng: np.random.Generator) -> None:
        """Set the arms to the states (B, N, D)."""

    def step(self, active: BoolArray, rng: np.random.Generator) -> Step:
        """Activate these arms, (B, N), and take a step."""


class CrawlSimulator:
    """The sources of a task, crawled independently of each other; a state is an age.

    It uses an environment whose token bucket is never empty, so that all sources of priority ≥ 0,
    and no others, are crawled.

    Arguments:
        task: the task with the sources and the arrivals; only harvests are observed.
        num_envs: B.
        max_age: upper limit of the initial ages, which are log-uniform on 1 … max_age.

    >>> simulator = CrawlSimulator(Task(), num_envs=1, max_age=32)
    >>> rng = np.random.default_rng(0)
    >>> simulator.start(np.array([[[1.0], [2.0], [3.0], [40.0]]]), rng)
    >>> step = simulator.step(np.array([[True, False, True, True]]), rng)
    >>> step.reward.round(1), step.state[..., 0]
    (array([[179.8,   0. ,  62.7,  95.2]]), array([[1., 3., 1., 1.]]))
    """

    def __init__(self, task: Task, num_envs: int, max_age: int) -> None:
        unlimited = float(task.sources.cost.sum())
        features = ("age", "crawled", "harvest")
        task = task.replaced(
            budget=unlimited,
            budget_rule="average",
            per_host=task.n,
            features=features,
            flat=False,
            scaled=False,
        )
        self._simulation = Simulation(task, num_envs)
        self._max_age = max_age

    @property
    def shape(self) -> tuple[int, int, int]:
        return *self._simulation.world.shape, 1

    @property
    def cost(self) -> FloatArray:
        return self._simulation.task.sources.cost

    def draw(self, num_envs: int, rng: np.random.Generator) -> FloatArray:
        exponent = rng.uniform(0, np.log(self._max_age + 1), (num_envs, *self.shape[1:]))
        return np.floor(np.exp(exponent))

    def start(self, state: FloatArray, rng: np.random.Generator) -> None:
        self._simulation.reset(rng, options={"age": state[..., 0]})

    def step(self, active: BoolArray, rng: np.random.Generator) -> Step:
        self._simulation.step(np.where(active, 1.0, -1.0), rng)
        observation = self._simulation.observe().astype(np.float64)
        return Step(observation[..., 1] > 0, observation[..., 2], observation[..., :1])
