"""Evaluation of agents by rollouts on the same arrivals."""

from __future__ import annotations

import inspect
import os
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

import crawl_env
from agents.evaluation import statistics
from agents.evaluation.models import (
    Function,
    Model,
    check_agent,
    check_has_task,
    form_of,
    makes_agents,
    task_posed,
)
from agents.policies.base import Agent, Environment, NotShown, Policy, Predictor, State
from agents.registry import CLAIRVOYANT, find, make
from crawl_env import NEVER, BenchmarkTask, CrawlVectorEnv, Sources, Task
from crawl_env.benchmark import named
from crawl_env.compiled import compiled
from crawl_env.envs.wrappers import VectorSubsetAction
from crawl_env.errors import check_whole, check_within, shown
from crawl_env.numerics import BoolArray, FloatArray, IntArray
from crawl_env.simulation.observation import check_features
from crawl_env.simulation.task import suggest_arguments

# An agent by name, class or object (such as a trained model of Stable-Baselines3), a function that
# makes one, or a function from an observation to an action.
AgentLike = str | type[Agent] | Predictor | Callable[[Any], Any]
# An environment, wrapped or not, its task, the arguments of an environment, or the id of a task of
# the benchmark.
EnvironmentLike = Environment | Mapping[str, Any] | str


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Measurements of one agent in S parallel runs.

    Attributes:
        reward: utility / step (the discounted return if `discount` is below 1).
        cost: budget units / step.
        never: number of sources that were never crawled successfully.
        delay: time from publication to collection, averaged over the items collected; NaN if there
            are none.
        frequency: crawls / step of each source, averaged over runs.
    """

    reward: FloatArray  # (S,)
    cost: FloatArray  # (S,)
    never: FloatArray  # (S,)
    delay: FloatArray  # (S,)
    frequency: FloatArray  # (N,)

    def __repr__(self) -> str:
        reward, cost = statistics.mean(self.reward), statistics.number(float(self.cost.mean()))
        return f"Evaluation(reward={reward}, cost={cost}, runs={len(self.reward)})"


class _Protocol(NamedTuple):
    """How long an evaluation is."""

    steps: int
    warmup: int
    seeds: int
    discount: float


_PLACES = (  # of code that is not that of an agent of one's own
    *(Path(__file__).parents[1], Path(crawl_env.__file__).parent),
    Path(__file__).parents[2] / "ephemeral_crawl",
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
)

LEARNERS = "agents.learning."  # modules of the learners
_USUAL = _Protocol(steps=2000, warmup=200, seeds=20, discount=1.0)


@suggest_arguments
def evaluate(
    agent: AgentLike,
    env: EnvironmentLike,
    *,
    steps: int | None = None,
    warmup: int | None = None,
    seeds: int | None = None,
    seed: int = 0,
    discount: float | None = None,
    progress: Callable[[int], object] | None = None,
) -> Evaluation:
    """Run an agent in new environments, without training it, and measure its reward.

    Arguments:
        agent: one of these:

            - a name for `agents.make`, or "clairvoyant" (`whittle` with all content observed);
            - a class such as `agents.Whittle`, also with arguments, as in
              `functools.partial(Mine, rate=0.1)`;
            - an object with `predict`: an agent, or a trained model of Stable-Baselines3. It gets
              observations in the form (`flat`, `scaled`) that it was made for or trained on, if
              need be normalised by the `VecNormalize` of its environment; discrete actions are
              those of `SubsetAction`;
            - a function with a parameter called `env` from the vector environment to an agent;
              it is also given the seed if it has a parameter `seed`, as classes are;
            - any other function: it maps the observation of one environment to its action, N
              priorities or the number of a subset, and is called for every run in every step. It
              gets the observations of `env`, without `VecNormalize`.
        env: an environment, wrapped or not, a vector environment, a `Task`, a dictionary of the
            arguments of an environment, or the id of a task of the benchmark (`crawl_env.tasks`);
            `agents.benchmark` scores an agent on such a task. New environments of the same task are
            made; the given one is not stepped. Its `horizon` is ignored: runs are not divided into
            episodes. For agents given by name or class, the features that `Agent.features_in` names
            are added to those of the task, or those that another class states in `features`:
            `adaptive-thompson`, for example, observes the harvest; and if there are signals, the
            pings and the number of items. Actions of `env` may be subsets
            (`EphemeralCrawlDiscrete-v0`); agents give priorities all the same.
        steps: number of steps that are measured, after `warmup` steps that are not; by default
            those of the task if `env` is an id, else 2,000 after 200.
        seeds: S, the number of runs, each with its own arrivals; by default those of the task of an
            id, else 20.
        seed: seed of the arrivals; agents with the same seed and task face the same arrivals.
        discount: if below 1, `reward` is the return Σ δ^t r_t over the measured steps instead; by
            default that of the task of an id, else 1.
        progress: called with the number of steps made since the last call.

    The delay is the mean age of the items when they are collected (time). A crawl k steps after the
    last one collects ΛkT items of mean age kT/2. If items are stored singly (a log, non-exponential
    decay, random arrivals and capacities), the delay is computed from the items themselves, without
    those whose utility has decayed to zero.

    Returns the `Evaluation`, with one reward for each of the S runs.

    Raises:
        ValueError: an argument is invalid, or an agent was made for, or a model trained on, other
            observations or actions.

    >>> evaluate("whittle", {"budget": 2}, steps=28, seeds=1).reward.round(3)
    array([337.775])
    >>> evaluate(lambda observation: observation[:, 0], {"budget": 2}, seeds=1).reward.round(3)
    array([327.447])
    """
    usual: Any = named(env) if isinstance(env, str) and "/" in env else _USUAL
    steps = check_whole("steps", usual.steps if steps is None else steps)
    warmup = check_whole("warmup", usual.warmup if warmup is None else warmup, 0)
    seeds = usual.seeds if seeds is None else seeds
    discount = usual.discount if discount is None else discount
    check_whole("seeds", seeds)
    check_within("discount", discount, 0.0, 1.0, open_low=True)
    check_progress(progress, "the number of steps made")
    rollout = Rollout(agent, env, seeds, seed)
    meter = _Meter(rollout.env)
    for step in range(warmup + steps):
        if step >= warmup:
            meter.prepare()
        reward = rollout.step()
        if step >= warmup:
            meter.count(reward * discount ** (step - warmup))
        if progress is not None:
            progress(1)
    return meter.read(steps, 1 if discount < 1 else steps)


@suggest_arguments
def compare(
    agents: Sequence[str] | Mapping[str, AgentLike],
    env: EnvironmentLike,
    *,
    steps: int | None = None,
    warmup: int | None = None,
    seeds: int | None = None,
    seed: int = 0,
    discount: float | None = None,
    progress: Callable[[int], object] | None = None,
) -> dict[str, Evaluation]:
    """Evaluate several agents on the same arrivals; run s of every agent has the same arrivals.

    Arguments:
        agents: names, or a dictionary from labels to values that `evaluate` accepts as agent.
        env, steps, warmup, seeds, seed, discount, progress: as in `evaluate`, the same for all.

    Returns the `Evaluation` of each agent, by its label, in the order in which they were given.

    Raises:
        ValueError: an agent is neither a name nor labelled, or as in `evaluate`.

    See `agents.evaluation.statistics.difference` and `score` for intervals of comparisons.

    >>> runs = compare(["whittle", "random"], {"budget": 2}, steps=100, seeds=3)
    >>> bool(runs["whittle"].reward.min() > runs["random"].reward.max())
    True
    """
    labelled = _labelled(agents)
    return {
        label: evaluate(
            agent,
            env,
            steps=steps,
            warmup=warmup,
            seeds=seeds,
            seed=seed,
            discount=discount,
            progress=progress,
        )
        for label, agent in labelled.items()
    }


def _labelled(agents: object) -> Mapping[str, AgentLike]:
    """Return the agents by label; names are their own labels."""
    if isinstance(agents, Mapping):
        return agents
    labels = [agents] if isinstance(agents, str) or not isinstance(agents, Iterable) else [*agents]
    names = [name for name in labels if isinstance(name, str)]
    for other in labels:
        if not isinstance(other, str):
            raise ValueError(
                f"{shown(other)} is not the name of an agent; to compare a class, a model or a "
                "function, give a dictionary from labels to agents, such as "
                "{'mine': Mine, 'whittle': 'whittle'}"
            )
    return {name: name for name in names}


class Rollout:
    """An agent in S parallel environments; the arguments are those of `evaluate`.

    Attributes:
        env: the environments.
        predictor: the agent, made for them.
        observation: what they show before the next step.
        state: the agent's recurrent state after the last step; None if it has none.

    >>> rollout = Rollout("whittle", {"sources": "table1", "budget": 2})
    >>> rollout.step().round(3), rollout.env.harvest.picked
    (array([327.447]), array([0, 1]))
    """

    def __init__(
        self, agent: AgentLike, env: EnvironmentLike, seeds: int = 1, seed: int = 0
    ) -> None:
        agent, arguments = with_features(agent, env)
        self.env = CrawlVectorEnv(seeds, **{**arguments, "horizon": None})
        self.predictor = _predictor(agent, self.env, seed)
        self.observation, _ = self.env.reset(seed=seed)
        self.state: State | None = None
        self._start = np.ones(seeds, dtype=bool)

    def step(self) -> FloatArray:
        """Take one step with the agent; return the rewards, (S,).

        Raises:
            ValueError: the agent does not return actions and a state.
        """
        pair: object = self.predictor.predict(
            self.observation, self.state, self._start, deterministic=True
        )
        if not (isinstance(pair, tuple) and len(pair) == 2):
            raise ValueError(
                f"predict of the agent returned {shown(pair)}; it must return the action and the "
                "state, which is None of agents without one: return action, None"
            )
        action, self.state = np.asarray(pair[0]), pair[1]
        if action.ndim == 1 and action.dtype.kind in "iu":
            action = self._subset_action.actions(action)
        self.observation, reward, *_ = self.env.step(action)
        self._start = np.zeros_like(self._start)
        return reward

    def restart(self, state: dict[str, Any]) -> None:
        """Continue from a state of the environment, `env.get_state()`; the agent begins anew."""
        self.observation = self.env.set_state(state)
        self.state, self._start = None, np.ones_like(self._start)

    @cached_property
    def _subset_action(self) -> VectorSubsetAction:
        """The wrapper that maps the numbers of subsets to priorities."""
        wrapper = VectorSubsetAction(self.env)
        wrapper.check_costs()
        return wrapper


def try_out(agent: AgentLike, env: EnvironmentLike, name: str) -> None:
    """Take one step with an agent, so that one which cannot act is refused before any work is done.

    Raises:
        ValueError: the agent cannot be made for the task, or observes a feature that is not shown.
    """
    try:
        Rollout(agent, env).step()
    except NotShown as error:
        raise ValueError(
            f"agent {name!r} cannot act here: {error}. An agent states the features that it "
            'observes in its class, as in features = ("age",), and is then shown them'
        ) from None
    except ValueError as error:
        place = place_of(error)
        raise ValueError(f"agent {name!r} cannot act here: {error}{place}") from None


def place_of(error: Exception) -> str:
    """Return the line of an agent of one's own in which an error arose, in brackets; "" if it arose
    in none, but in this project, the standard library or an installed package."""
    frames = traceback.extract_tb(error.__traceback__)
    others = ("<frozen", *(f"{place}{os.sep}" for place in _PLACES))
    own = [frame for frame in frames if not frame.filename.startswith(others)]
    if not own:
        return ""
    *_, (file, line, function, _) = own
    return f" ({Path(file).name}, line {line}, in {function})"


def with_features(agent: AgentLike, env: EnvironmentLike) -> tuple[AgentLike, dict[str, Any]]:
    """Return the agent that acts, and the arguments of an environment with its features."""
    arguments = _arguments(env)
    more: tuple[str, ...] = ()
    if isinstance(agent, str) and agent == CLAIRVOYANT:
        agent, more = "whittle", ("value",)
        arguments["observed"] = True
    kind: Any = find(agent) if isinstance(agent, str) else made_of(agent)
    own: Any = getattr(kind, "features", ())
    if isinstance(own, str):
        raise ValueError(
            f"{getattr(kind, '__name__', kind)} has features = {own!r}, which is text; "
            f"state a tuple, as in features = ({own!r},)"
        )
    if isinstance(kind, type) and issubclass(kind, Agent):
        more += tuple(kind.features_in(Task(**{**arguments, "features": "value"})))
    elif (isinstance(agent, str) or isinstance(kind, type)) and isinstance(own, tuple | list):
        more += tuple(own)  # of a class of another base, or the function of this name
    arguments |= form_of(agent)
    base = check_features(arguments.get("features", ("value",)))
    arguments["features"] = (*base, *(name for name in more if name not in base))
    return agent, arguments


def _arguments(env: EnvironmentLike) -> dict[str, Any]:
    """Return the arguments that make an environment of the same task."""
    if isinstance(env, Mapping):
        return dict(env)
    if isinstance(env, str) and "/" in env:
        return named(env).environment
    if isinstance(env, str | Path | Sources | BenchmarkTask):
        raise ValueError(
            f"env is {shown(env)}; give an environment made by gym.make, the id of a task of the "
            "benchmark, such as 'EphemeralCrawl/Drift100-v0', or the arguments of an environment, "
            "such as {'sources': 'table1', 'budget': 2}"
        )
    return dict(task_posed(env).arguments)


def _predictor(agent: AgentLike, env: CrawlVectorEnv, seed: int) -> Predictor:
    if isinstance(agent, str):
        return make(agent, env, seed=seed)
    kind = made_of(agent)
    if isinstance(kind, type):
        if not hasattr(kind, "predict"):
            raise ValueError(f"the class {kind.__name__} has no method `predict`")
        if kind.__module__.startswith(LEARNERS):
            raise ValueError(
                f"{kind.__name__} is the class of a learner, which has to be trained; give a "
                f"trained one, such as {kind.__name__}(env).learn(500)"
            )
        agent = new(cast("Callable[..., Predictor]", agent), env, seed)
        return check_has_task(agent) if isinstance(agent, Policy) else agent
    if not (hasattr(agent, "predict") or callable(agent)):
        raise ValueError(
            f"agent is {agent!r}; give a name, a subclass of agents.Agent, an object with "
            "`predict`, or a function"
        )
    if not hasattr(agent, "predict"):
        if not makes_agents(agent):
            return Function(agent, env)
        is_seeded = "seed" in inspect.signature(agent).parameters
        agent = new(agent, env, seed) if is_seeded else agent(env)
        if not hasattr(agent, "predict"):
            raise ValueError(
                f"the function returned {agent!r} for the parameter `env`, the vector environment; "
                "return an object with `predict`, or call the parameter `observation` to return "
                "actions"
            )
    return check_agent(agent, env.task) if isinstance(agent, Policy) else Model(agent, env)


def made_of(agent: Any) -> Any:
    """Return the class or function to which `functools.partial` gives arguments, and any other
    agent as it is."""
    while isinstance(agent, partial):
        agent = agent.func
    return agent


def new(kind: Callable[..., Predictor], env: object, seed: int) -> Predictor:
    """Return a new agent of a class, or of a function that is called like one.

    Raises:
        ValueError: it cannot be called as `kind(env, seed=seed)`.
    """
    try:
        _ = inspect.signature(kind).bind(env, seed=seed)
    except TypeError as error:
        name = getattr(kind, "__name__", kind)
        raise ValueError(
            f"{name} cannot be called: {error}. An agent is made as {name}(env, seed=0); let it "
            "take these two arguments, also if it draws nothing at random"
        ) from None
    return kind(env, seed=seed)


def check_progress(progress: object, arguments: str) -> None:
    """Raise ValueError unless `progress` is None or a function, whose arguments are described."""
    if not (progress is None or callable(progress)):
        raise ValueError(
            f"progress is {shown(progress)}; give a function, which is called with {arguments}, or "
            "None"
        )


class _Meter:
    """Accumulates the measurements of an evaluation step by step."""

    def __init__(self, env: CrawlVectorEnv) -> None:
        self._env = env
        b, n = env.world.shape
        self._reward = np.zeros(b)
        self._totals = np.zeros((3, b))  # cost, items, sum of their ages
        self._visited = np.zeros((b, n), dtype=bool)
        self._crawls = np.zeros(n)
        self._sources: Sources | None = None

    def prepare(self) -> None:
        """Remember what waits at the sources before a step."""
        world = self._env.world
        if world.sources is not self._sources:
            self._sources = world.sources
            columns = self._sources.arrival_rate, self._sources.capacity
            self._columns = np.array([np.broadcast_to(c, world.shape).ravel() for c in columns])
            self._cost = np.broadcast_to(self._sources.cost, world.shape).ravel()
        self._age = world.age
        self._items = world.uncollected_items()

    def count(self, reward: FloatArray) -> None:
        """Add the step since the last call of `prepare`."""
        cells, _, _, failed = self._env.harvest
        period = self._env.world.sources.period
        if self._items is None:
            rate, capacity = self._columns
            items, ages = _waiting(cells, self._age.ravel(), rate, capacity, period)
        else:
            items, ages = (column.reshape(-1)[cells] for column in self._items)
            ages = ages * period
        self._reward += reward
        brings = np.ones(cells.size, dtype=bool) if failed is None else ~failed
        task = self._env.task
        varies = task.look_cost is not None or task.unchanged_cost is not None
        if varies:
            self._totals[0] += self._env.spent
        columns = 0.0 * items if varies else self._cost[cells], items, ages
        _count(cells, brings, *columns, self._totals, self._visited, self._crawls)

    def read(self, steps: int, divisor: int) -> Evaluation:
        cost, items, ages = self._totals
        with np.errstate(invalid="ignore"):
            delay = ages / items  # NaN if nothing was collected
        return Evaluation(
            reward=self._reward / divisor,
            cost=cost / steps,
            never=np.count_nonzero(~self._visited, axis=-1).astype(float),
            delay=delay,
            frequency=self._crawls / steps / len(self._reward),
        )


@compiled
def _waiting(
    cells: IntArray, age: FloatArray, rate: FloatArray, capacity: FloatArray, period: float
) -> FloatArray:
    """Return the mean number of items in some cells, and the sum of their ages (time), (2, K)."""
    out = np.empty((2, cells.size))
    for k in range(cells.size):
        i = cells[k]
        since = age[i] * period if age[i] < NEVER else 0.0
        # A source of finite capacity holds only the items of the time in which its last K arrived.
        since = min(since, capacity[i] / rate[i])
        out[0, k] = rate[i] * since
        out[1, k] = rate[i] * since * since / 2
    return out


@compiled
def _count(
    cells: IntArray,
    brings: BoolArray,
    cost: FloatArray,
    items: FloatArray,
    ages: FloatArray,
    totals: FloatArray,
    visited: BoolArray,
    crawls: FloatArray,
) -> None:
    """Add the crawls of a step, cells in ascending order, (K,), to the totals of each run, (3, B);
    those that failed only cost something."""
    n = crawls.size
    k = 0
    for b in range(totals.shape[1]):
        costs, number, aged = 0.0, 0.0, 0.0
        while k < cells.size and cells[k] < (b + 1) * n:
            source = cells[k] - b * n
            crawls[source] += 1.0
            costs += cost[k]
            if brings[k]:
                visited[b, source] = True
                number += items[k]
                aged += ages[k]
            k += 1
        totals[0, b] += costs
        totals[1, b] += number
        totals[2, b] += aged
