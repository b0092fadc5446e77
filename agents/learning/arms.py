"""The world as learners see it: many arms, each in a state, some of which are activated.

Learners take nothing else from it. Their tests put finite chains with known indices in its place.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from crawl_env import CrawlVectorEnv, Task
from crawl_env.numerics import FloatArray
from crawl_env.simulation.simulation import Simulation

BoolArray = NDArray[np.bool_]


class Step(NamedTuple):
    """What one epoch brought to B rows of N arms."""

    active: BoolArray  # (B, N) which arms were activated, whatever was asked for
    reward: FloatArray  # (B, N)
    state: FloatArray  # (B, N, D) in which this left the arms


@runtime_checkable
class Arms(Protocol):
    """B rows of N arms, of which some are activated in each epoch."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(B, N, D): rows, arms, numbers in a state."""

    @property
    def share(self) -> float:
        """M/N: the share of the arms, by cost, that an epoch activates."""

    @property
    def cost(self) -> FloatArray:
        """(N,) of activating each arm."""

    def state(self) -> FloatArray:
        """Return the states, (B, N, D): after an episode's end those of the next one's start."""

    def step(self, priority: NDArray[np.float32]) -> Step:
        """Activate the arms of largest priority, (B, N) in [−1, 1], and let an epoch pass."""

    def get_state(self) -> dict[str, Any]:
        """Return a copy of all that changes with time."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Return to a state of `get_state`; raise ValueError if it is of other arms."""


class CrawlArms:
    """The sources of a crawl as arms: what a source brought is its reward.

    A source is active where it was tried, also where the crawl failed; one that is not available
    stays passive, however large its priority.

    Arguments:
        env: whose features show `crawled`, `harvest`, `failed` where crawls can fail, and those
            that make up the state.
        features: the columns of the state.
        seed: of the crawl.

    Raises:
        ValueError: a feature that is needed is not shown, actions are no priorities, the budget
            may be saved up, or the environment hides how episodes end.
    """

    def __init__(self, env: CrawlVectorEnv, features: tuple[str, ...], seed: int = 0) -> None:
        task = env.task
        tried = ("crawled", "failed") if task.sources.fails else ("crawled",)
        for name in (*tried, "harvest", *features):
            if name not in task.features:
                raise ValueError(
                    f"learning needs the feature {name!r}, and the environment shows "
                    f"{', '.join(task.features)}; add it to `features`"
                )
        check_order(task)
        check_last_states(env)
        self.env = env
        self._tried = [task.features.index(name) for name in tried]
        self._harvest = task.features.index("harvest")
        self._state = [task.features.index(name) for name in features]
        self._seen, _ = env.reset(seed=seed)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.env.num_envs, self.env.task.n, len(self._state)

    @property
    def share(self) -> float:
        task = self.env.task
        return min(1.0, task.budget / float(task.sources.cost.sum()))

    @property
    def cost(self) -> FloatArray:
        return self.env.task.sources.cost

    def state(self) -> FloatArray:
        return self._seen[..., self._state].astype(np.float64)

    def step(self, priority: NDArray[np.float32]) -> Step:
        self._seen, _, _, over, _ = self.env.step(priority)
        active = self._seen[..., self._tried].max(axis=-1) > 0
        step = Step(active, self._seen[..., self._harvest].astype(np.float64), self.state())
        if over.any():  # of all rows, which began together
            self._seen, _ = self.env.reset()
        return step

    def get_state(self) -> dict[str, Any]:
        return {"task": described(self.env), **self.env.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        check_same(self.env, state["task"])
        self._seen = self.env.set_state(state)


def check_order(task: Task) -> None:
    """Raise ValueError unless actions order the sources, for the budget of every epoch."""
    if task.budget_rule != "step":
        raise ValueError(
            "what is learnt is an order of sources, for the budget of every epoch; that needs "
            f"budget_rule='step', and the environment has {task.budget_rule!r}"
        )


def check_last_states(env: CrawlVectorEnv) -> None:
    """Raise ValueError unless an episode's last states are shown before the next begins."""
    if env.autoreset_mode is not AutoresetMode.NEXT_STEP:
        raise ValueError(
            f"autoreset_mode is {env.autoreset_mode.value!r}; learning needs the last states of an "
            "episode, and then the next one: make the environment with NEXT_STEP, the default"
        )


def described(env: CrawlVectorEnv) -> dict[str, Any]:
    """Return what must be the same for a crawl to go on."""
    task = env.task
    names = ("sources", "budget", "features", "horizon", "start", "per_host")
    same = {name: getattr(task, name) for name in names}
    same["features"], same["observed"] = list(task.features), task.observed.tolist()
    same["arrivals"] = re.sub(r" at 0x\w+", "", repr(task.arrivals))
    return {**same, "num_envs": env.num_envs}


def check_same(env: CrawlVectorEnv, saved: dict[str, Any]) -> None:
    """Raise ValueError unless `saved` describes the crawl of the environment."""
    for what, mine in described(env).items():
        if saved[what] != mine:
            of = "other parameters" if repr(saved[what]) == repr(mine) else str(saved[what])
            raise ValueError(
                f"this crawl has {what} {mine}, the saved one {of}; go on in the same "
                "environment, or load the agent to let it learn in another one"
            )


class Simulator(Protocol):
    """B rows of N arms that know of no budget and of no other arm."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(B, N, D): rows, arms, numbers in a state."""

    @property
    def cost(self) -> FloatArray:
        """(N,) of activating each arm."""

    def draw(self, rows: int, rng: np.random.Generator) -> FloatArray:
        """Return states drawn from all that matter, (rows, N, D)."""

    def start(self, state: FloatArray, rng: np.random.Generator) -> None:
        """Put the arms into states (B, N, D)."""

    def step(self, active: BoolArray, rng: np.random.Generator) -> Step:
        """Activate these arms, (B, N), and let an epoch pass."""


class CrawlSimulator:
    """The sources of a task, each crawled or not as one likes; a state is an age.

    A balance that is never empty lets every source of priority ≥ 0 be crawled, and none else.

    Arguments:
        task: whose sources and arrivals; of these only what crawls bring is seen.
        rows: B.
        oldest: ages are drawn from 1 … oldest, log-uniformly: where the index still changes.

    >>> simulator = CrawlSimulator(Task(), rows=1, oldest=32)
    >>> rng = np.random.default_rng(0)
    >>> simulator.start(np.array([[[1.0], [2.0], [3.0], [40.0]]]), rng)
    >>> step = simulator.step(np.array([[True, False, True, True]]), rng)
    >>> step.reward.round(1), step.state[..., 0]
    (array([[179.8,   0. ,  62.7,  95.2]]), array([[1., 3., 1., 1.]]))
    """

    def __init__(self, task: Task, rows: int, oldest: int) -> None:
        free = float(task.sources.cost.sum())
        features = ("age", "crawled", "harvest")
        self._simulation = Simulation(
            task.replaced(budget=free, budget_rule="average", per_host=task.n, features=features),
            rows,
        )
        self._oldest = oldest

    @property
    def shape(self) -> tuple[int, int, int]:
        return *self._simulation.world.shape, 1

    @property
    def cost(self) -> FloatArray:
        return self._simulation.task.sources.cost

    def draw(self, rows: int, rng: np.random.Generator) -> FloatArray:
        exponent = rng.uniform(0, np.log(self._oldest + 1), (rows, *self.shape[1:]))
        return np.floor(np.exp(exponent))

    def start(self, state: FloatArray, rng: np.random.Generator) -> None:
        self._simulation.reset(rng, options={"age": state[..., 0]})

    def step(self, active: BoolArray, rng: np.random.Generator) -> Step:
        self._simulation.step(np.where(active, 1.0, -1.0), rng)
        seen = self._simulation.observe().astype(np.float64)
        return Step(seen[..., 1] > 0, seen[..., 2], seen[..., :1])
