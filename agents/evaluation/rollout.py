"""Running agents on the same arrivals, and measuring what people ask about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from agents.evaluation import statistics
from agents.policies.base import Agent
from agents.registry import AGENTS, CLAIRVOYANT, make
from crawl_env import NEVER, CrawlVectorEnv
from crawl_env.content.world import World
from crawl_env.numerics import FloatArray
from crawl_env.simulation.observation import check_features


class Predicts(Protocol):
    """Anything with Stable-Baselines3's `predict`: its models, and the agents of this project."""

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = ...,
    ) -> tuple[Any, Any]: ...


# Upper references, no peers: an agent, and what it is shown that the crawler is not. Content does
# not depend on what is seen or done, so each meets what the agents meet under the same seed.
REFERENCES: dict[str, tuple[str, dict[str, Any]]] = {
    CLAIRVOYANT: ("whittle", {"observed": True}),
}

Player = str | type[Agent] | Predicts | Callable[[CrawlVectorEnv], Predicts]


@dataclass(frozen=True, repr=False)
class Evaluation:
    """One agent's runs, S seeds side by side, over the measured epochs.

    reward: utility per epoch (the discounted return where one was asked for).
    cost: budget units spent per epoch.
    never: number of sources not once crawled with success.
    delay: time from publication to collection, mean over the items collected; NaN if none.
    frequency: crawls per epoch of each source, mean over seeds.
    """

    reward: FloatArray  # (S,)
    cost: FloatArray  # (S,)
    never: FloatArray  # (S,)
    delay: FloatArray  # (S,)
    frequency: FloatArray  # (N,)

    def __repr__(self) -> str:
        return (
            f"Evaluation(reward {statistics.mean(self.reward)} per epoch, {len(self.reward)} runs)"
        )


def evaluate(
    agent: Player,
    arguments: Mapping[str, Any],
    epochs: int = 2000,
    warmup: int = 200,
    seeds: int = 20,
    seed: int = 0,
    discount: float = 1.0,
    progress: Callable[[int], object] | None = None,
) -> Evaluation:
    """Run a frozen agent in rollouts of its own and measure its average reward.

    Arguments:
        agent: a name for `agents.make` or of `REFERENCES`, a subclass of `agents.Agent`, anything
            with `predict` (a trained model of Stable-Baselines3), or a function from the vector
            env to these.
        arguments: of the environment; `horizon` is ignored: the crawl goes on. Agents of this
            project are also shown the `features` that their class asks for.
        epochs: measured, after `warmup` epochs that are left out.
        seeds: S, environments side by side, each with arrivals of its own.
        discount: below 1, `reward` is the return Σ δ^t r_t over the measured epochs instead.
        seed: of the arrivals; two agents with the same seed and arguments meet the same content.
        progress: called with the number of epochs done since the last call.

    The delay is the mean age of the items when collected, (time): a crawl after k epochs brings
    ΛkT items, on average kT/2 old. Where items are followed one by one (a trace, decay that is
    not exponential, random arrivals and capacities) it is that of the very items, without those
    that were worth nothing any more.

    Raises:
        ValueError: bad arguments, or a model that was trained on other observations.

    >>> evaluate("whittle", {"budget": 2}, epochs=28, seeds=1).reward.round(3)
    array([337.775])
    """
    for name, number, least in (("epochs", epochs, 1), ("warmup", warmup, 0), ("seeds", seeds, 1)):
        if number < least:
            raise ValueError(f"{name} is {number}; it must be at least {least}")
    if not 0 < discount <= 1:
        raise ValueError(f"discount is {discount}; it must be above 0 and at most 1")
    rollout = Rollout(agent, arguments, seeds, seed)
    meter = _Meter(rollout.env)
    for epoch in range(warmup + epochs):
        waiting = _waiting(rollout.env.world)
        reward = rollout.step()
        if epoch >= warmup:
            meter.count(reward * discount ** (epoch - warmup), *waiting)
        if progress is not None:
            progress(1)
    return meter.read(epochs, 1 if discount < 1 else epochs)


class Rollout:
    """An agent crawling S environments side by side; the arguments are those of `evaluate`.

    >>> rollout = Rollout("whittle", {"sources": "table1", "budget": 2})
    >>> rollout.step().round(3), rollout.env.harvest.picked
    (array([327.447]), array([0, 1]))
    """

    def __init__(
        self, agent: Player, arguments: Mapping[str, Any], seeds: int = 1, seed: int = 0
    ) -> None:
        agent, arguments = posed_to(agent, arguments)
        self.env = CrawlVectorEnv(seeds, **{**arguments, "horizon": None})
        self._player = _player(agent, self.env, seed)
        self._observation, _ = self.env.reset(seed=seed)
        self._state, self._start = None, np.ones(seeds, dtype=bool)

    def step(self) -> FloatArray:
        """Let the agent crawl for one epoch; return the rewards, (S,)."""
        action, self._state = self._player.predict(
            self._observation, self._state, self._start, deterministic=True
        )
        self._observation, reward, *_ = self.env.step(action)
        self._start = np.zeros_like(self._start)
        return reward


def compare(
    agents: Sequence[str] | Mapping[str, Player],
    arguments: Mapping[str, Any],
    **settings: Any,
) -> dict[str, Evaluation]:
    """Evaluate several agents on the same arrivals; run s of each is paired with run s of all.

    Arguments:
        agents: names for `agents.make` or of `REFERENCES`, or a dictionary of what `evaluate`
            takes as agent.
        arguments: of the environment, the same for all.
        **settings: of `evaluate`: epochs, warmup, seeds, seed, discount, progress.

    See `agents.evaluation.statistics.difference` and `score` for intervals of what is compared.

    >>> runs = compare(["whittle", "random"], {"budget": 2}, epochs=100, seeds=3)
    >>> bool(runs["whittle"].reward.min() > runs["random"].reward.max())
    True
    """
    named = agents if isinstance(agents, Mapping) else {name: name for name in agents}
    return {name: evaluate(agent, arguments, **settings) for name, agent in named.items()}


def posed_to(agent: Player, arguments: Mapping[str, Any]) -> tuple[Player, dict[str, Any]]:
    """Return the agent that plays, and the arguments with all that it is shown."""
    more: tuple[str, ...] = ()
    posed = dict(arguments)
    if isinstance(agent, str) and agent in REFERENCES:
        agent, sees = REFERENCES[agent]
        posed, more = {**posed, **sees}, ("value",)
    kind = AGENTS.get(agent) if isinstance(agent, str) else agent
    if isinstance(kind, type) and issubclass(kind, Agent):
        more += kind.features
    shown = check_features(posed.get("features", ("value",)))
    return agent, {**posed, "features": (*shown, *(name for name in more if name not in shown))}


def _player(agent: Player, env: CrawlVectorEnv, seed: int) -> Predicts:
    if isinstance(agent, str):
        return make(agent, env, seed=seed)
    if isinstance(agent, type) and issubclass(agent, Agent):
        return agent(env, seed=seed)
    player: Any = agent if hasattr(agent, "predict") else cast(Any, agent)(env)
    trained_on = getattr(player, "observation_space", None)
    if trained_on is not None and trained_on.shape != env.single_observation_space.shape:
        raise ValueError(
            f"the model was trained on observations of shape {trained_on.shape}, and this "
            f"environment shows {env.single_observation_space.shape}, the features "
            f"{env.task.features}. Give `arguments` the features of its training; a model that "
            "needs a wrapper is evaluated in it, with Stable-Baselines3's evaluate_policy"
        )
    return player


class _Meter:
    """Adds up, epoch by epoch, what an evaluation reports."""

    def __init__(self, env: CrawlVectorEnv) -> None:
        self._env = env
        shape = env.world.shape
        self._reward, self._cost = np.zeros(shape[0]), np.zeros(shape[0])
        self._items, self._item_ages = np.zeros(shape[0]), np.zeros(shape[0])
        self._visited = np.zeros(shape, dtype=bool)
        self._crawls = np.zeros(shape[1])

    def count(self, reward: FloatArray, items: FloatArray, ages: FloatArray) -> None:
        """Add an epoch; `items` and `ages` are what waited before it, see `_waiting`."""
        picked, _, _, failed = self._env.harvest
        sources, (rows, n) = self._env.world.sources, self._env.world.shape
        cost = np.broadcast_to(sources.cost, (rows, n)).reshape(-1)[picked]
        self._reward += reward
        self._cost += np.bincount(picked // n, cost, rows)
        self._crawls += np.bincount(picked % n, minlength=n)
        if failed is not None:
            picked = picked[~failed]
        self._visited.reshape(-1)[picked] = True
        self._items += np.bincount(picked // n, items.reshape(-1)[picked], rows)
        self._item_ages += np.bincount(picked // n, ages.reshape(-1)[picked], rows)

    def read(self, epochs: int, divisor: int) -> Evaluation:
        with np.errstate(invalid="ignore"):
            delay = self._item_ages / self._items  # NaN where nothing was collected
        return Evaluation(
            reward=self._reward / divisor,
            cost=self._cost / epochs,
            never=np.count_nonzero(~self._visited, axis=-1).astype(float),
            delay=delay,
            frequency=self._crawls / epochs / len(self._reward),
        )


def _waiting(world: World) -> tuple[FloatArray, FloatArray]:
    """Return the number of items at each source and the sum of their ages (time), (S, N) each."""
    known, period = world.waiting(), world.sources.period
    if known is not None:
        return known[0], known[1] * period
    rate = world.sources.arrival_rate
    since = np.where(world.age < NEVER, world.age, 0.0) * period
    # Of a source that shows only its last items, those of the time in which they come.
    with np.errstate(divide="ignore"):
        since = np.minimum(since, world.sources.capacity / rate)
    items = rate * since
    return items, items * since / 2
