"""Running agents on the same arrivals, and measuring what people ask about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agents.evaluation import statistics
from agents.policies.base import Agent, Environment, Predictor, State
from agents.registry import AGENTS, CLAIRVOYANT, make
from crawl_env import NEVER, CrawlVectorEnv, task_of
from crawl_env.content.world import World
from crawl_env.errors import check_whole, check_within
from crawl_env.numerics import FloatArray
from crawl_env.simulation.observation import check_features
from crawl_env.simulation.task import suggest_arguments

# An agent by name, class or object (a trained model of Stable-Baselines3, say), or what makes one.
AgentLike = str | type[Agent] | Predictor | Callable[[CrawlVectorEnv], Predictor]
# An environment, wrapped or not, its task, or the arguments of an environment.
EnvironmentLike = Environment | Mapping[str, Any]


@dataclass(frozen=True)
class Reference:
    """An upper reference: an agent in an environment that shows it more than the crawler sees."""

    agent: str
    features: tuple[str, ...]  # shown in addition
    arguments: Mapping[str, Any]  # of the environment, in place of the given ones


# Arrivals depend on the seed alone, so each reference meets what the agents meet.
REFERENCES = {CLAIRVOYANT: Reference("whittle", ("value",), {"observed": True})}


@dataclass(frozen=True, repr=False)
class Evaluation:
    """What was measured of one agent, in S runs side by side.

    reward: utility / step (the discounted return where a discount was asked for).
    cost: budget units / step.
    never: number of sources that were never crawled with success.
    delay: time from publication to collection, mean over the items collected; NaN if none.
    frequency: crawls / step of each source, mean over runs.
    """

    reward: FloatArray  # (S,)
    cost: FloatArray  # (S,)
    never: FloatArray  # (S,)
    delay: FloatArray  # (S,)
    frequency: FloatArray  # (N,)

    def __repr__(self) -> str:
        return f"Evaluation(reward {statistics.mean(self.reward)} / step, {len(self.reward)} runs)"


@suggest_arguments
def evaluate(
    agent: AgentLike,
    env: EnvironmentLike,
    *,
    steps: int = 2000,
    warmup: int = 200,
    seeds: int = 20,
    seed: int = 0,
    discount: float = 1.0,
    progress: Callable[[int], object] | None = None,
) -> Evaluation:
    """Run an agent in environments of its own, without training it, and measure its reward.

    Arguments:
        agent: a name for `agents.make` or of `REFERENCES`, a class such as `agents.Whittle`,
            anything with `predict` (an agent, or a trained model of Stable-Baselines3), or a
            function from the vector environment to one of these.
        env: an environment, wrapped or not, a vector environment, a `Task`, or a dictionary of the
            arguments of an environment. New environments of the same task are made; the given one
            is not stepped. Its `horizon` is ignored: the runs are not cut into episodes. Agents
            given by name or class also see the `features` that their class asks for, whether or
            not the environment shows them: `adaptive-thompson`, for example, sees the harvest.
        steps: number of steps that are measured, after `warmup` steps that are not.
        seeds: S, the number of runs, each with arrivals of its own.
        seed: of the arrivals; two agents with the same seed and task meet the same arrivals.
        discount: below 1, `reward` is the return Σ δ^t r_t over the measured steps instead.
        progress: called with the number of steps made since the last call.

    The delay is the mean age of the items when they are collected (time). A crawl k steps after
    the last brings ΛkT items, on average kT/2 old. Where items are followed one by one (a log,
    decay that is not exponential, random arrivals and capacities), it is that of these very items,
    without those whose utility had decayed to zero.

    Raises:
        ValueError: bad arguments, or a model that was trained on other observations.

    >>> evaluate("whittle", {"budget": 2}, steps=28, seeds=1).reward.round(3)
    array([337.775])
    """
    check_whole("steps", steps)
    check_whole("warmup", warmup, 0)
    check_whole("seeds", seeds)
    check_within("discount", discount, 0.0, 1.0, open_low=True)
    rollout = Rollout(agent, env, seeds, seed)
    meter = _Meter(rollout.env)
    for step in range(warmup + steps):
        waiting = _waiting(rollout.env.world)
        reward = rollout.step()
        if step >= warmup:
            meter.count(reward * discount ** (step - warmup), *waiting)
        if progress is not None:
            progress(1)
    return meter.read(steps, 1 if discount < 1 else steps)


@suggest_arguments
def compare(
    agents: Sequence[str] | Mapping[str, AgentLike],
    env: EnvironmentLike,
    *,
    steps: int = 2000,
    warmup: int = 200,
    seeds: int = 20,
    seed: int = 0,
    discount: float = 1.0,
    progress: Callable[[int], object] | None = None,
) -> dict[str, Evaluation]:
    """Evaluate several agents on the same arrivals; run s of each is paired with run s of all.

    Arguments:
        agents: names for `agents.make` or of `REFERENCES`, or a dictionary from labels to what
            `evaluate` takes as agent.
        env, steps, warmup, seeds, seed, discount, progress: as of `evaluate`, the same for all.

    See `agents.evaluation.statistics.difference` and `score` for intervals of what is compared.

    >>> runs = compare(["whittle", "random"], {"budget": 2}, steps=100, seeds=3)
    >>> bool(runs["whittle"].reward.min() > runs["random"].reward.max())
    True
    """
    if isinstance(agents, str):
        agents = [agents]
    labelled = agents if isinstance(agents, Mapping) else {name: name for name in agents}
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


class Rollout:
    """An agent crawling S environments side by side; the arguments are those of `evaluate`.

    >>> rollout = Rollout("whittle", {"sources": "table1", "budget": 2})
    >>> rollout.step().round(3), rollout.env.harvest.picked
    (array([327.447]), array([0, 1]))
    """

    def __init__(
        self, agent: AgentLike, env: EnvironmentLike, seeds: int = 1, seed: int = 0
    ) -> None:
        agent, arguments = with_features(agent, env)
        self.env = CrawlVectorEnv(seeds, **{**arguments, "horizon": None})
        self._predictor = _predictor(agent, self.env, seed)
        self._observation, _ = self.env.reset(seed=seed)
        self._state: State | None = None
        self._start = np.ones(seeds, dtype=bool)

    def step(self) -> FloatArray:
        """Let the agent crawl for one step; return the rewards, (S,)."""
        action, self._state = self._predictor.predict(
            self._observation, self._state, self._start, deterministic=True
        )
        self._observation, reward, *_ = self.env.step(action)
        self._start = np.zeros_like(self._start)
        return reward


def with_features(agent: AgentLike, env: EnvironmentLike) -> tuple[AgentLike, dict[str, Any]]:
    """Return the agent that acts, and the arguments of an environment that shows what it needs."""
    arguments = _arguments(env)
    more: tuple[str, ...] = ()
    if isinstance(agent, str) and agent in REFERENCES:
        reference = REFERENCES[agent]
        agent, more = reference.agent, reference.features
        arguments |= reference.arguments
    kind = AGENTS.get(agent) if isinstance(agent, str) else agent
    if isinstance(kind, type) and issubclass(kind, Agent):
        more += kind.features
    shown = check_features(arguments.get("features", ("value",)))
    arguments["features"] = (*shown, *(name for name in more if name not in shown))
    return agent, arguments


def _arguments(env: EnvironmentLike) -> dict[str, Any]:
    """Return the arguments that make an environment of the same task."""
    if isinstance(env, Mapping):
        return dict(env)
    return dict(task_of(env).arguments)


def _predictor(agent: AgentLike, env: CrawlVectorEnv, seed: int) -> Predictor:
    if isinstance(agent, str):
        return make(agent, env, seed=seed)
    if isinstance(agent, type):
        return agent(env, seed=seed)
    if not (hasattr(agent, "predict") or callable(agent)):
        raise ValueError(
            f"agent is {agent!r}; give a name, a subclass of agents.Agent, an object with "
            "`predict`, or a function from the vector environment to one"
        )
    made: Predictor = agent if hasattr(agent, "predict") else agent(env)
    trained_on = getattr(made, "observation_space", None)
    if trained_on is not None and trained_on.shape != env.single_observation_space.shape:
        raise ValueError(
            f"the model was trained on observations of shape {trained_on.shape}, and this "
            f"environment shows {env.single_observation_space.shape}, the features "
            f"{env.task.features}. Give the environment the features of its training; a model "
            "that needs a wrapper is evaluated in it, with Stable-Baselines3's evaluate_policy"
        )
    features = _features_of_training(made)
    if features is not None and features != env.task.features:
        raise ValueError(
            f"the model was trained on the features {features}, and this environment shows "
            f"{env.task.features}; give the environment the features of the training"
        )
    return made


def _features_of_training(model: Predictor) -> tuple[str, ...] | None:
    """Return the features that a model of Stable-Baselines3 was trained on, where it knows its
    environment and no wrapper changes them."""
    get_env = getattr(model, "get_env", None)
    trained_in = get_env() if callable(get_env) else None
    if trained_in is None:
        return None
    try:
        return task_of(trained_in).features
    except ValueError:  # observations changed by a wrapper: only the shape can be compared
        return None


class _Meter:
    """Adds up, step by step, what an evaluation reports."""

    def __init__(self, env: CrawlVectorEnv) -> None:
        self._env = env
        shape = env.world.shape
        self._reward, self._cost = np.zeros(shape[0]), np.zeros(shape[0])
        self._items, self._item_ages = np.zeros(shape[0]), np.zeros(shape[0])
        self._visited = np.zeros(shape, dtype=bool)
        self._crawls = np.zeros(shape[1])

    def count(self, reward: FloatArray, items: FloatArray, ages: FloatArray) -> None:
        """Add a step; `items` and `ages` are the uncollected ones before it, see `_waiting`."""
        picked, _, _, failed = self._env.harvest
        sources, (b, n) = self._env.world.sources, self._env.world.shape
        cost = np.broadcast_to(sources.cost, (b, n)).reshape(-1)[picked]
        self._reward += reward
        self._cost += np.bincount(picked // n, cost, b)
        self._crawls += np.bincount(picked % n, minlength=n)
        if failed is not None:
            picked = picked[~failed]
        self._visited.reshape(-1)[picked] = True
        self._items += np.bincount(picked // n, items.reshape(-1)[picked], b)
        self._item_ages += np.bincount(picked // n, ages.reshape(-1)[picked], b)

    def read(self, steps: int, divisor: int) -> Evaluation:
        with np.errstate(invalid="ignore"):
            delay = self._item_ages / self._items  # NaN where nothing was collected
        return Evaluation(
            reward=self._reward / divisor,
            cost=self._cost / steps,
            never=np.count_nonzero(~self._visited, axis=-1).astype(float),
            delay=delay,
            frequency=self._crawls / steps / len(self._reward),
        )


def _waiting(world: World) -> tuple[FloatArray, FloatArray]:
    """Return the number of items at each source and the sum of their ages (time), (S, N) each."""
    known, period = world.uncollected_items(), world.sources.period
    if known is not None:
        return known[0], known[1] * period
    rate = world.sources.arrival_rate
    since = np.where(world.age < NEVER, world.age, 0.0) * period
    # Of a source that shows only its last items, those of the time in which they come.
    with np.errstate(divide="ignore"):
        since = np.minimum(since, world.sources.capacity / rate)
    items = rate * since
    return items, items * since / 2
