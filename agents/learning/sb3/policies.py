"""Policies of Stable-Baselines3 that are equivariant under permutations of the sources.

Instead of SB3's multilayer perceptrons, whose inputs have separate weights, each policy has one
`FleetNetwork` that outputs the mean priority, the logit or the Q-value of every source.

>>> from stable_baselines3 import PPO
>>> from crawl_env.envs.sb3 import CrawlVecEnv
>>> env = CrawlVecEnv(num_envs=16, sources="table1", budget=2, features=("value", "decay_rate"))
>>> model = PPO(EquivariantActorCritic, env, policy_kwargs=policy_arguments(env), n_steps=8)
>>> model = model.learn(128)
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import torch
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from sb3_contrib.qrdqn.policies import QRDQNPolicy
from stable_baselines3.common.policies import ActorCriticPolicy, ContinuousCritic
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.dqn.policies import DQNPolicy
from stable_baselines3.sac.policies import Actor as SACActor
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import Actor as TD3Actor
from stable_baselines3.td3.policies import TD3Policy
from torch import Tensor, nn

from agents.learning.fleet.networks import FleetNetwork, ScaledColumns


class FleetColumns(BaseFeaturesExtractor):
    """Observations (B, N, F) as flat dimensionless columns, (B, N·D), without parameters."""

    def __init__(
        self,
        observation_space: gym.spaces.Box,
        shown: tuple[str, ...],
        budget: float,
        period: float,
        hidden: int,
        standardized: bool = False,
    ) -> None:
        self.columns = ScaledColumns(shown, budget, period)
        self.hidden, self.standardized = hidden, standardized
        self.sources = observation_space.shape[0]
        super().__init__(observation_space, self.sources * self.columns.number)

    def forward(self, observation: Tensor) -> Tensor:
        return self.columns(observation).flatten(1)

    def scores(self, numbers: int = 1) -> nn.Module:
        """Return a network from flat columns to `numbers` for each source, (B, numbers·N)."""
        return SourceScores(self.sources, FleetNetwork(self.columns.number, self.hidden, numbers))

    def actions(self, space: gym.spaces.Space[Any]) -> int:
        """Return A, the number of priorities or picks of each source: 2 with looks, else 1."""
        return math.prod(space.shape or ()) // self.sources or 1

    def priorities(self, actions: int) -> nn.Module:
        """Return a network from flat columns to the mean priority of each action, (B, A·N); with
        `standardized`, these have mean 0 and standard deviation .5 over all of them."""
        scores = self.scores(actions)
        return nn.Sequential(scores, _Standardization()) if self.standardized else scores

    def value(self, actions: int = 0) -> nn.Module:
        """Return a network from flat columns, followed by an action (B, A·N) if A > 0, to the value
        of the fleet, (B, 1)."""
        network = FleetNetwork(self.columns.number + actions, self.hidden)
        return _Value(self.sources, network, actions)


class SourceScores(nn.Module):
    """A network from flat columns, (B, N·D), to K numbers for each source, (B, K·N)."""

    def __init__(self, sources: int, network: FleetNetwork) -> None:
        super().__init__()
        self._sources, self.network = sources, network

    def forward(self, flat: Tensor) -> Tensor:
        numbers = self.network(flat.reshape(len(flat), self._sources, -1))
        return numbers if numbers.ndim == 2 else numbers.transpose(1, 2).flatten(1)


class PickedScores:
    """Mean scores of the sources while one after the other is picked.

    A pick changes the columns of one source and, through the fleet's means, the scores of all. What
    depends on each of the other sources alone is kept, which saves half of the time where 100 of
    1,000 sources are picked in 4 environments, and two thirds in 16.

    Arguments:
        scores: network of one number or, for quantiles, several for each source.
    """

    def __init__(self, scores: SourceScores) -> None:
        self._network = scores.network

    def __call__(self, columns: Tensor, picked: Tensor | None = None) -> Tensor:
        """Return the scores, (B, N), from columns (B, N, D).

        Arguments:
            picked: the source of each environment whose columns have changed since the last call,
                (B,); None in the first call.
        """
        if picked is None:
            self._envs = torch.arange(len(columns), device=columns.device)
            self._own, self._deep, linear = self._network.alone(columns)
            self._linear = linear.mean(-1, keepdim=True)
            self._sum = self._own.sum(-2, keepdim=True)
        else:
            place = self._envs, picked
            own, deep, linear = self._network.alone(columns[place])
            self._sum += (own - self._own[place])[:, None]
            self._own[place], self._deep[place] = own, deep
            self._linear[place] = linear.mean(-1, keepdim=True)
        mean = self._sum / columns.shape[-2]
        return self._network.together(mean, self._deep, self._linear).mean(-1)


class _Standardization(nn.Module):
    """Priorities in units of their spread over the sources. Their order alone counts, and without
    this nothing keeps them on the scale of the noise with which actions are explored."""

    _SPREAD = 0.5

    def forward(self, priorities: Tensor) -> Tensor:
        centred = priorities - priorities.mean(-1, keepdim=True)
        return self._SPREAD * centred / (centred.std(-1, keepdim=True) + 1e-3)


class _Value(nn.Module):
    """The mean over sources of a network's output; the last columns are the actions, if any."""

    def __init__(self, sources: int, network: FleetNetwork, actions: int) -> None:
        super().__init__()
        self._sources, self._actions, self.network = sources, actions, network

    def forward(self, flat: Tensor) -> Tensor:
        number = flat.shape[-1] - self._actions * self._sources
        columns = flat[:, :number].reshape(len(flat), self._sources, -1)
        if self._actions:
            actions = flat[:, number:].reshape(len(flat), self._actions, self._sources)
            columns = torch.cat([columns, actions.transpose(1, 2)], dim=-1)
        return self.network(columns).mean(-1, keepdim=True)


class _ActorCritic:
    """The common part of SB3's two actor–critic policies."""

    def __init__(
        self: Any, observation_space: Any, action_space: Any, lr_schedule: Any, **options: Any
    ) -> None:
        super().__init__(observation_space, action_space, lr_schedule, **options)  # type: ignore[call-arg]
        fleet = self.features_extractor
        continuous = hasattr(self, "log_std")  # of priorities
        self.action_net = (
            fleet.priorities(fleet.actions(action_space)) if continuous else fleet.scores()
        )
        self.value_net = fleet.value()
        if continuous:  # one for all sources, as equivariance requires
            self.log_std = nn.Parameter(self.log_std[:1].detach().clone())
        self.optimizer = self.optimizer_class(
            self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs
        )


class EquivariantActorCritic(_ActorCritic, ActorCriticPolicy):
    """For PPO, A2C and TRPO, with priorities or `SequentialSelection`."""


class EquivariantMaskableActorCritic(_ActorCritic, MaskableActorCriticPolicy):
    """For MaskablePPO with `SequentialSelection`."""


class EquivariantSAC(SACPolicy):
    """For SAC, with priorities."""

    def make_actor(self, features_extractor: BaseFeaturesExtractor | None = None) -> SACActor:
        actor = super().make_actor(features_extractor)
        fleet = _fleet(actor)
        number = fleet.actions(self.action_space)
        actor.mu, actor.log_std = fleet.priorities(number), fleet.scores(number)  # type: ignore[assignment]
        return actor.to(self.device)

    def make_critic(
        self, features_extractor: BaseFeaturesExtractor | None = None
    ) -> ContinuousCritic:
        return _judging(super().make_critic(features_extractor)).to(self.device)


class EquivariantTD3(TD3Policy):
    """For TD3 and DDPG, with priorities."""

    def make_actor(self, features_extractor: BaseFeaturesExtractor | None = None) -> TD3Actor:
        actor = super().make_actor(features_extractor)
        fleet = _fleet(actor)
        actor.mu = nn.Sequential(fleet.priorities(fleet.actions(self.action_space)), nn.Tanh())
        return actor.to(self.device)

    def make_critic(
        self, features_extractor: BaseFeaturesExtractor | None = None
    ) -> ContinuousCritic:
        return _judging(super().make_critic(features_extractor)).to(self.device)


class EquivariantDQN(DQNPolicy):
    """For DQN with `SequentialSelection`."""

    def make_q_net(self) -> Any:
        network = super().make_q_net()
        network.q_net = _fleet(network).scores()  # type: ignore[assignment]
        return network.to(self.device)


class EquivariantQRDQN(QRDQNPolicy):
    """For QR-DQN with `SequentialSelection`."""

    def make_quantile_net(self) -> Any:
        network = super().make_quantile_net()
        network.quantile_net = _fleet(network).scores(network.n_quantiles)  # type: ignore[assignment]
        return network.to(self.device)


def _fleet(network: Any) -> FleetColumns:
    return network.features_extractor


def _judging(critic: ContinuousCritic) -> ContinuousCritic:
    """Return a critic whose networks evaluate columns and actions source by source."""
    actions = _fleet(critic).actions(critic.action_space)
    for number in range(critic.n_critics):
        critic.q_networks[number] = _fleet(critic).value(actions)
        setattr(critic, f"qf{number}", critic.q_networks[number])
    return critic


def policy_arguments(env: Any, hidden: int = 32, standardized: bool = False) -> dict[str, Any]:
    """Return the `policy_kwargs` of these policies for an environment, as plain names and numbers.

    Arguments:
        env: a `CrawlEnv`, a `SequentialSelection` of one, or a `VecEnv` of either.
        hidden: units of each hidden layer.
        standardized: whether priorities have mean 0 and standard deviation .5 over the sources;
            logits and Q-values are left as they are.

    Raises:
        ValueError: a wrapper changes the features.
    """
    task = env.get_attr("task")[0] if isinstance(env, VecEnv) else env.get_wrapper_attr("task")
    if task.flat or task.scaled:
        raise ValueError(
            "these policies need rows of features in natural units; make the environment without "
            "`flat` and `scaled`"
        )
    shown = (*task.features, "picked")
    columns = env.observation_space.shape[-1]
    if env.observation_space.shape[0] != task.n or not len(task.features) <= columns <= len(shown):
        raise ValueError(
            f"the environment's observations have shape {env.observation_space.shape}, and the "
            f"task has {task.n} sources with {', '.join(task.features)}; remove wrappers that "
            "flatten, stack or change observations"
        )
    arguments = {"shown": shown[:columns], "budget": task.budget, "period": task.sources.period}
    return {
        "features_extractor_class": FleetColumns,
        "features_extractor_kwargs": {**arguments, "hidden": hidden, "standardized": standardized},
        "net_arch": [],
    }
