"""A residual of a structured policy's priorities, learnt by evolution strategies.

T. Salimans et al.: Evolution strategies as a scalable alternative to reinforcement learning, arXiv
1703.03864. Where sources are coupled by more than the budget (a deadline, looks, topics), an index
ignores what couples them, and is still a good start: the index of a base policy is multiplied by
e^r, where r is a small network of what is observed, shared by all sources. It is 0 before training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from agents.learning.arms import check_budget_rule
from agents.learning.fleet.base import FleetLearner, FleetPolicy, averaging_weight
from agents.learning.fleet.networks import ScaledColumns
from agents.policies.base import ObservationView, State
from agents.policies.checks import WhittleConditional
from agents.policies.deadline import WhittleDeadline
from agents.policies.index import IndexAgent, Myopic, Whittle
from agents.policies.knapsack import WhittleKnapsack
from agents.policies.topics import GreedyTopics
from crawl_env import CrawlVectorEnv, Deadline, Task
from crawl_env.envs.torch_env import TorchCrawlVectorEnv
from crawl_env.errors import unknown
from crawl_env.numerics import FloatArray, ranks

_LEAST = 1e-9  # of an index or content, relative to the largest, before the logarithm
_LEAST_SHARE = 1e-3  # of a topic's index or content, before the logarithm
_LEAST_STD = 0.05  # of a column
_FARTHEST = 5.0  # standard deviations, to which columns are clipped
_TINY = 1e-300  # what is divided by, at least
_LARGEST = 20.0  # residual
_MOMENTS = (0.9, 0.99)  # decay of Adam's first and second moments
_NO_COLUMNS = ("topic", "balance", "crawled", "harvest")  # features that the network does not see

# Policies that can be improved, by name: their priorities follow from the present indices alone.
BASES: dict[str, type[IndexAgent]] = {
    policy.name: policy
    for policy in (
        *(Whittle, Myopic, WhittleKnapsack),
        *(WhittleDeadline, WhittleConditional, GreedyTopics),
    )
}

Array = NDArray[np.float32]


@dataclass(frozen=True)
class ResidualEvolutionSettings:
    """Hyper-parameters, found by hand on the task Deadline60 with 64 to 256 environments."""

    base: str = "whittle"  # the policy that is improved, of `BASES`
    hidden: int = 8  # units
    n_steps: int = 96  # per update, half of them with each sign of the perturbations
    updates_per_fleet: int = 8  # after which the environments are reset
    noise_std: float = 0.3  # of the perturbations of the weights; divided by 1 + updates/…
    noise_decay_updates: float = 300.0  # … this
    learning_rate: float = 0.25  # of Adam, divided by 1 + updates/learning_rate_decay_updates
    learning_rate_decay_updates: float = 200.0
    averaging_power: float = 4.0  # p: the policy in use has mean weights, the n-th times n^(p − 1)


def _base_of(settings: ResidualEvolutionSettings) -> type[IndexAgent]:
    if settings.base not in BASES:
        raise unknown("base", settings.base, BASES)
    return BASES[settings.base]


class _Inputs:
    """What the network sees of each source: columns (B, N, D).

    They are those of `ScaledColumns`, and the logarithm of the base's index relative to the least
    that the budget covers. Under a deadline in l steps, μT(l + 1), its logarithm, whether the
    source has been crawled for this deadline, its place by what it will hold then, beside the
    crawls that are left, and its turn among those wanted if the slowest decay comes first. With
    topics, the index beside the sum and the largest of the topic, the content beside the
    topic's, and the age of its last crawl.
    """

    def __init__(self, task: Task, features: Sequence[str]) -> None:
        self._task = task
        self._own = ScaledColumns.of(task, [f for f in features if f not in _NO_COLUMNS])
        self._room = int(np.clip(task.budget / task.sources.cost.mean(), 1, task.n))
        self._topics = "topic" in features
        payoff, shows_deadline = task.payoff, {"age", "steps_left"} <= set(features)
        self._steps = payoff.steps if isinstance(payoff, Deadline) and shows_deadline else 0

    @property
    def number(self) -> int:
        """D."""
        aged = "age" in self._own.features
        return self._own.number + 1 + 5 * (self._steps > 0) + self._topics * (3 + aged)

    def __call__(self, view: ObservationView, index: FloatArray) -> Array:
        index = index / np.maximum(index.max(axis=-1, keepdims=True), _TINY) + _LEAST
        log_index, place = np.log(index), self._task.n - self._room
        last = np.partition(log_index, place, axis=-1)[:, place, None]
        columns = [log_index - last]
        if self._steps:
            columns += self._before_deadline(view)
        if self._topics:
            columns += self._in_topic(view, index)
        own = self._own(torch.from_numpy(view.array)).numpy()
        return np.concatenate([own, *(c[..., None].astype(np.float32) for c in columns)], axis=-1)

    def _before_deadline(self, view: ObservationView) -> list[FloatArray]:
        remaining = view["steps_left"]
        decay = np.broadcast_to(view.sources.decay_per_step, remaining.shape)
        loss = decay * (remaining + 1.0)
        is_crawled = view["age"] < self._steps - remaining
        room = self._room * (remaining + 1.0)  # for crawls until the deadline
        content = np.where(is_crawled, -1.0, view.sources.content_at(view["age"] + remaining))
        place = ranks(content)
        has_room = ~is_crawled & (place < room)
        turn = np.where(has_room, ranks(np.where(has_room, -decay, -np.inf)) / room, 1.5)
        return [
            np.minimum(loss, 6.0),
            np.log(loss + _LEAST),
            is_crawled.astype(np.float64),
            np.log((place + 1.0) / room),
            turn,
        ]

    def _in_topic(self, view: ObservationView, index: FloatArray) -> list[FloatArray]:
        topic = self._task.sources.topic_of
        member = (topic[:, None] == np.arange(topic.max() + 1)).astype(np.float64)  # (N, topics)
        content = view.value
        content = content / np.maximum(content.max(axis=-1, keepdims=True), _TINY) + _LEAST
        largest = np.stack([index[:, of > 0].max(axis=-1) for of in member.T], axis=-1)
        beside = ((index, index @ member), (index, largest), (content, content @ member))
        columns = [np.log(x / whole[:, topic] + _LEAST_SHARE) for x, whole in beside]
        if "age" in self._own.features:
            youngest = [view["age"][:, of > 0].min(axis=-1) for of in member.T]
            columns.append(np.log1p(np.stack(youngest, axis=-1)[:, topic]))
        return columns


class _Network:
    """The residual w·tanh(Ax + Bx̄ + b)/√H + l·x of an action on a source with columns x, whose
    mean over the fleet is x̄.

    Its weights are one vector, so that each environment can have others.
    """

    def __init__(self, columns: int, hidden: int) -> None:
        d, h = columns, hidden
        self._shapes = ((d, h), (d, h), (1, h), (h, 1), (d, 1))  # of A, B, b, w, l
        self._ends = np.cumsum([a * b for a, b in self._shapes])

    def start(self, rng: np.random.Generator) -> FloatArray:
        """Return random weights, (P,), whose residual is 0: w, B and l are."""
        d, h = self._shapes[0]
        weights = np.zeros(self._ends[-1])
        weights[: d * h] = rng.normal(size=d * h) / np.sqrt(d)
        weights[2 * d * h : 2 * d * h + h] = rng.normal(size=h) / 2.0
        return weights

    def __call__(self, weights: FloatArray, x: Array) -> FloatArray:
        """Return residuals (B, N) of columns (B, N, D); weights (P,) or (B, P)."""
        rows = np.atleast_2d(weights).astype(np.float32)
        parts = np.split(rows, self._ends[:-1], axis=1)
        own, fleet, bias, out, linear = (
            part.reshape(-1, *shape) for part, shape in zip(parts, self._shapes, strict=True)
        )
        hidden = np.tanh(x @ own + (x.mean(axis=1, keepdims=True) @ fleet + bias))
        residual = hidden @ out / np.float32(np.sqrt(out.shape[1])) + x @ linear
        return np.asarray(residual[..., 0], dtype=np.float64)


class ResidualPolicy(FleetPolicy):
    """Crawls by the indices of a base policy times e^r, in one task.

    Attributes:
        weights: of the network, (P,), or (B, P) for a batch of B.
        mean, std: (D,) of the columns, by which they are standardised.
    """

    def __init__(self, learner: ResidualEvolution, task: Task, rng: np.random.Generator) -> None:
        super().__init__(task, rng)
        self._base = _base_of(learner.settings)(task)
        self._inputs = _Inputs(task, learner.features)
        self._network = _Network(self._inputs.number, learner.settings.hidden)
        self.weights, self.mean, self.std = learner.averaged, learner.mean, learner.std

    def columns(self, view: ObservationView) -> Array:
        """Return the inputs of the network, (B, N, D)."""
        return self._inputs(view, self._index(view))

    def priority(self, view: ObservationView) -> FloatArray:
        index = self._index(view)
        x = self._inputs(view, index)
        x -= self.mean
        x /= self.std
        np.clip(x, -_FARTHEST, _FARTHEST, out=x)
        residual = self._network(self.weights, x).clip(-_LARGEST, _LARGEST)
        return self._base.ranked(view, index * np.exp(residual)).astype(np.float64)

    def sample(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        return self.decide(view, state)

    def _index(self, view: ObservationView) -> FloatArray:
        return np.asarray(self._base.index_now(view), dtype=np.float64)


class ResidualEvolution(FleetLearner[ResidualEvolutionSettings]):
    """Learns what a structured policy leaves, from the environment's reward alone.

    In an update, every environment plays `n_steps`/2 steps with weights of its own, θ + σε, and
    from the same state, with the same arrivals, as many with θ − σε. The gradient is the mean over
    environments of ε(R⁺ − R⁻)/(R⁺ + R⁻)/σ, and Adam takes a step. Where fleets are drawn at each
    reset, what is learnt serves fleets that it has not met. The first of `updates_per_fleet`
    updates resets the environments and learns nothing.

    Any payoff will do, since what is learnt from is the environment's reward.

    Arguments:
        arms: one vector environment, or several, with at least the features of the base policy.
        settings, seed: as in `Learner`.
        device: not used; it computes with numpy.

    Raises:
        ValueError: the features of the environments differ, or the base is not among `BASES` or
            needs others; actions are not priorities, or the budget rule is "average".

    >>> from crawl_env import Deadline
    >>> features = ("value", "age", "arrival_rate", "mean_utility", "decay_rate", "steps_left")
    >>> env = CrawlVectorEnv(32, budget=1, payoff=Deadline(4), features=features, horizon=None)
    >>> settings = ResidualEvolutionSettings(base="whittle-deadline", n_steps=16)
    >>> agent = ResidualEvolution(env, settings).learn(480)
    >>> agent.predict(env.reset(seed=0)[0])[0].shape
    (32, 4)
    """

    name = "residual-evolution"
    Settings = ResidualEvolutionSettings
    learnt: ClassVar = {
        name: name for name in ("weights", "averaged", "first", "second", "mean", "std", "updates")
    }
    not_negative = ("second", "std")

    def check_task(self, task: Task) -> None:
        check_budget_rule(task)

    def policy(self, task: Task, rng: np.random.Generator) -> ResidualPolicy:
        return ResidualPolicy(self, task, rng)

    def decide(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        policy = self._policies[0]
        policy.weights, policy.mean, policy.std = self.averaged, self.mean, self.std
        return policy.decide(view, state)

    def sample(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        return self.decide(view, state)

    # -- the methods of `Learner` ----------------------------------------------------------------

    def setup(self) -> None:
        self._policies: list[ResidualPolicy] = []
        for one in self.training_envs:
            if isinstance(one.env, TorchCrawlVectorEnv):
                raise ValueError(
                    f"agent {self.name!r} is trained with numpy: give it a CrawlVectorEnv instead "
                    "of a TorchCrawlVectorEnv"
                )
        task = self.training_envs[0].env.task
        number = _Inputs(task, self.features).number
        self.mean = np.zeros(number, dtype=np.float32)
        self.std = np.ones(number, dtype=np.float32)
        self.weights = _Network(number, self.settings.hidden).start(self.rng)
        self.averaged = self.weights.copy()
        self.first, self.second = np.zeros_like(self.weights), np.zeros_like(self.weights)
        self.updates = 0
        self._policies = [self.policy(one.env.task, self.rng) for one in self.training_envs]

    def update(self) -> dict[str, float]:
        if self.updates % self.settings.updates_per_fleet == 0:
            rewards = self._begin()
        else:
            both = [self._compare(i) for i in range(len(self._policies))]
            rewards = [reward for reward, _ in both]
            self._ascend(np.mean([gradient for _, gradient in both], axis=0))
        self.updates += 1
        return {"reward per step": float(np.mean(rewards))}

    # -- training --------------------------------------------------------------------------------

    def _begin(self) -> list[float]:
        """Reset the environments, play with the present weights, and return the mean rewards; the
        first time, see what the columns are like."""
        rewards: list[float] = []
        columns: list[Array] = []
        for one, policy in zip(self.training_envs, self._policies, strict=True):
            one.env.reset()
            policy.weights, policy.mean, policy.std = self.weights, self.mean, self.std
            record = columns if self.updates == 0 else None
            rewards.append(float(_play(one.env, policy, self.settings.n_steps, record).mean()))
        if self.updates == 0:
            rows = np.concatenate(columns).astype(np.float64)
            self.mean = rows.mean(axis=0).astype(np.float32)
            self.std = np.maximum(rows.std(axis=0), _LEAST_STD).astype(np.float32)
        return rewards

    def _compare(self, number: int) -> tuple[float, FloatArray]:
        """Play with perturbations of both signs; return the mean reward and the gradient."""
        env, policy = self.training_envs[number].env, self._policies[number]
        half = max(1, self.settings.n_steps // 2)
        sigma = self.settings.noise_std / (1 + self.updates / self.settings.noise_decay_updates)
        noise = self.rng.standard_normal((env.num_envs, self.weights.size))
        policy.mean, policy.std = self.mean, self.std
        state, rewards = env.get_state(), []
        for sign in (1.0, -1.0):
            policy.weights = self.weights + sign * sigma * noise
            env.set_state(state)
            rewards.append(_play(env, policy, half))
        up, down = rewards
        advantage = (up - down) / np.maximum(up + down, 1e-300)
        return float(np.mean(rewards)), advantage @ noise / (sigma * env.num_envs)

    def _ascend(self, gradient: FloatArray) -> None:
        """Take a step of Adam, and average the weights."""
        settings = self.settings
        steps = self.updates - self.updates // settings.updates_per_fleet
        self.first = _MOMENTS[0] * self.first + (1 - _MOMENTS[0]) * gradient
        self.second = _MOMENTS[1] * self.second + (1 - _MOMENTS[1]) * gradient**2
        mean = self.first / (1 - _MOMENTS[0] ** steps)
        size = np.sqrt(self.second / (1 - _MOMENTS[1] ** steps)) + 1e-12
        rate = settings.learning_rate / (1 + steps / settings.learning_rate_decay_updates)
        self.weights = self.weights + rate * mean / size
        weight = averaging_weight(steps, settings.averaging_power)
        self.averaged = self.averaged + weight * (self.weights - self.averaged)


def _play(
    env: CrawlVectorEnv, policy: ResidualPolicy, steps: int, columns: list[Array] | None = None
) -> FloatArray:
    """Return the mean reward per step of each environment, (B,), from its present state.

    What the network sees in every eighth step is appended to `columns`.
    """
    total = np.zeros(env.num_envs)
    observation = env.set_state(env.get_state())
    for step in range(steps):
        view = ObservationView(observation, env.task, env.world.sources)
        if columns is not None and step % 8 == 0:
            rows = policy.columns(view)
            columns.append(rows.reshape(-1, rows.shape[-1]))
        observation, reward, *_ = env.step(policy.priority(view).astype(np.float32))
        total += reward
    return total / steps
