"""The algorithms of Stable-Baselines3 and sb3-contrib as learners of this project.

A. Raffin et al.: Stable-Baselines3: reliable reinforcement learning implementations, JMLR 22
(268), 2021. The actions of PPO, A2C, SAC and TD3 are priorities; DQN, QR-DQN and MaskablePPO pick
one source after the other. `predict` returns an order of the sources for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sb3_contrib import QRDQN, MaskablePPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.noise import NormalActionNoise
from torch import Tensor

from agents.learning.arms import Arms
from agents.learning.base import Learner, priorities_of
from agents.learning.sb3 import policies
from agents.learning.sb3.environments import (
    GlobalGenerators,
    TrainingVecEnv,
    buffer_state,
    check_buffer,
    check_generators,
    restore_buffer,
)
from agents.learning.storage import (
    check_generator,
    check_keys,
    check_like,
    check_optimizer,
    tensors,
)
from crawl_env import CrawlVectorEnv
from crawl_env.errors import check_choice, check_non_negative
from crawl_env.numerics import FloatArray

NETWORKS = ("default", "equivariant")


@dataclass(frozen=True)
class StableSettings:
    """Hyper-parameters common to all algorithms. The other fields are arguments of SB3 under SB3's
    names; all remaining arguments have SB3's defaults. Numbers of steps are steps of the task, and
    `gamma` is per step of the task, even if such a step consists of several picks.

    Chosen by hand in a few runs on Table 1 (M = 2, deterministic) of 5 to 20 s of one busy core,
    mostly with one seed and the equivariant network: no search.
    """

    network: str = "equivariant"  # or "default": SB3's perceptron with two hidden layers
    hidden: int = 32  # units of each hidden layer
    gamma: float = 0.9

    def __post_init__(self) -> None:
        check_choice("network", self.network, NETWORKS)


@dataclass(frozen=True)
class OnPolicySettings(StableSettings):
    n_steps: int = 32  # steps of each environment between updates
    learning_rate: float = 3e-3
    gae_lambda: float = 0.95
    ent_coef: float = 0.0
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5


@dataclass(frozen=True)
class PPOSettings(OnPolicySettings):
    """With 64 environments, either network exceeds the myopic policy's score of .84 after some 500
    steps and stays at .997 to 1 from 2 000 on, in two seeds. A wider Gaussian (1) at γ = .95 did as
    well, but varied more."""

    n_epochs: int = 4  # passes over the rollout
    n_minibatches: int = 4  # per pass
    clip_range: float = 0.2
    log_std_init: float = -1.0  # of the Gaussian of the priorities


@dataclass(frozen=True)
class MaskablePPOSettings(OnPolicySettings):
    """The same as for PPO; with 16 environments, scores are .98 to 1 after 600 to 1 200 steps."""

    n_epochs: int = 4
    n_minibatches: int = 4
    clip_range: float = 0.2


@dataclass(frozen=True)
class A2CSettings(OnPolicySettings):
    """One update per rollout: in 1 900 steps of 64 environments, and with three times the learning
    rate and half of `n_steps` in 1 250 of 32, the equivariant network did not exceed the myopic
    policy; SB3's own varied between that and .93."""

    n_steps: int = 8
    normalize_advantage: bool = True
    log_std_init: float = -1.0


@dataclass(frozen=True)
class OffPolicySettings(StableSettings):
    learning_rate: float = 1e-3
    buffer_size: int = 50_000  # transitions of all environments
    learning_starts: int = 50  # steps of each environment, with random actions
    batch_size: int = 128
    train_freq: int = 8  # steps of each environment between updates
    gradient_steps: int = 8  # of an update


@dataclass(frozen=True)
class SACSettings(OffPolicySettings):
    """A fixed, small entropy coefficient: learnt ("auto"), it starts at 1, which rewards scaled to
    1 do not outweigh, and scores varied between −3 and .84. At .01, with a third of the learning
    rate and half of `tau`, scores stayed at the myopic policy's for 450 steps of 16 environments;
    with these they were at .99 and .96 after 600 (two seeds)."""

    learning_rate: float = 3e-3
    batch_size: int = 64
    tau: float = 0.02  # Polyak coefficient of the target networks
    ent_coef: str | float = 0.003


@dataclass(frozen=True)
class TD3Settings(OffPolicySettings):
    """Converges to the myopic policy and stays there for 760 steps of 16 environments; so it did
    with noise of .5 and SB3's perceptron, and with the rates of `SACSettings`."""

    tau: float = 0.01
    action_noise_std: float = 0.3  # of the noise added to priorities


@dataclass(frozen=True)
class DQNSettings(OffPolicySettings):
    """With 16 environments scores vary between .77 and .99: save checkpoints, and evaluate them."""

    target_update_interval: int = 40  # steps of each environment
    exploration_initial_eps: float = 1.0
    exploration_final_eps: float = 0.1
    exploration_steps: int = 500  # of each environment, until ε has its final value
    max_grad_norm: float = 10.0


@dataclass(frozen=True)
class QRDQNSettings(DQNSettings):
    """SB3's 200 quantiles take an order of magnitude longer for each update."""

    n_quantiles: int = 25


S = TypeVar("S", bound=StableSettings)

_COUNTERS = ("num_timesteps", "_n_updates", "_n_calls", "_episode_num", "exploration_rate")


class StableBaselines(Learner[S]):
    """Base class of the learners below. A subclass sets `name`, `Settings`, SB3's `algorithm`, its
    `equivariant` policy and whether it is `sequential`, and implements `source_scores`.

    Both networks receive the environment's features as dimensionless columns (`Columns`); unless
    these include parameters, the equivariant networks treat sources with equal features equally.
    Rewards are centred and scaled by their running mean (`CenteredReward`). Training uses separate
    environments of the same task, seeded from `seed`; on the CPU it is bitwise reproducible.

    `predict` orders the sources by the means of the priorities before SB3 clips or squashes them,
    which would produce ties. Sequential picks are those of SB3: K times the largest value.
    """

    Settings: ClassVar[type] = StableSettings
    algorithm: ClassVar[Any]
    equivariant: ClassVar[Any]
    sequential: ClassVar[bool] = False
    arms_type: ClassVar[type] = TrainingVecEnv
    size_settings: ClassVar[tuple[str, ...]] = ("hidden",)

    def __init__(
        self,
        arms: CrawlVectorEnv | Arms,
        settings: S | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        if not isinstance(arms, CrawlVectorEnv):
            raise ValueError(
                f"{arms!r} is not a CrawlVectorEnv; make one with gym.make_vec, "
                'vectorization_mode="vector_entry_point"'
            )
        envs: Any = self.arms_type(arms, self.sequential)
        super().__init__(envs, settings, seed, device)
        self.task = arms.task
        self.state_features = arms.task.features  # type: ignore[misc]

    # -- implemented by subclasses ----------------------------------------------------------------

    def source_scores(self, observation: Tensor) -> Tensor:
        """Return the mean priority, logit or Q-value of each source, (B, N), from observations
        (B, N, F)."""
        raise NotImplementedError

    # -- the methods of `Learner` ----------------------------------------------------------------

    def setup(self) -> None:
        envs: Any = self.arms
        self.envs: TrainingVecEnv = envs
        self._generators = GlobalGenerators()
        with self._generators.active():
            self.model = self.algorithm(**self._arguments())
            self.model.set_logger(Logger(folder=None, output_formats=[]))
            _, self._callback = self.model._setup_learn(self._exploration_steps(), callback=None)
        envs.observation = self.model._last_obs
        self._on_policy = hasattr(self.model, "rollout_buffer")
        settings: Any = self.settings
        self.steps_per_update = settings.n_steps if self._on_policy else settings.train_freq

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments of SB3's algorithm: the settings, in its units."""
        envs, settings = self.envs, asdict(self.settings)
        policy = policies.policy_arguments(envs.venv, settings.pop("hidden"))
        base: Any = self.equivariant
        if settings.pop("network") == "default":
            policy["net_arch"] = [self.settings.hidden] * 2
            base = "MlpPolicy"
        if "log_std_init" in settings:
            policy["log_std_init"] = settings.pop("log_std_init")
        if "n_quantiles" in settings:
            policy["n_quantiles"] = settings.pop("n_quantiles")
        if "action_noise_std" in settings:
            n = envs.shape[1]
            settings["action_noise"] = NormalActionNoise(
                np.zeros(n), np.full(n, settings.pop("action_noise_std"))
            )
        if settings.pop("exploration_steps", 0):
            settings["exploration_fraction"] = 1.0  # fraction of `_exploration_steps`
        for name in ("n_steps", "train_freq"):
            if name in settings:
                settings[name] *= envs.picks
        if "n_minibatches" in settings:
            steps = settings["n_steps"] * envs.shape[0]
            settings["batch_size"] = max(2, steps // settings.pop("n_minibatches"))
        for name in ("learning_starts", "target_update_interval"):
            if name in settings:
                settings[name] *= envs.picks * envs.shape[0]
        settings["gamma"] **= 1 / envs.picks
        return {
            "policy": base,
            "env": envs.venv,
            "policy_kwargs": policy,
            "seed": self.seed,
            "device": self.device,
            **settings,
        }

    def _exploration_steps(self) -> int:
        """Return the number of SB3's steps in which ε decreases."""
        return getattr(self.settings, "exploration_steps", 1) * self.envs.picks * self.envs.shape[0]

    def update(self) -> dict[str, float]:
        model, envs = self.model, self.envs
        total, steps = envs.venv.total, envs.venv.steps
        model._last_obs = model._last_original_obs = envs.observation
        model._last_episode_starts = envs.starts
        with self._generators.active():
            self._collect_and_train()
        envs.observation, envs.starts = model._last_obs, model._last_episode_starts
        metrics = {name: float(value) for name, value in model.logger.name_to_value.items()}
        model.logger.name_to_value.clear()
        reward = envs.picks * (envs.venv.total - total) / (envs.venv.steps - steps)
        return {"reward per step": reward, **metrics}

    def _collect_and_train(self) -> None:
        """Run one iteration of SB3's own training loop."""
        model = self.model
        if self._on_policy:
            model.collect_rollouts(
                model.env, self._callback, model.rollout_buffer, n_rollout_steps=model.n_steps
            )
            model.train()
            return
        model.collect_rollouts(
            model.env,
            train_freq=model.train_freq,
            action_noise=model.action_noise,
            callback=self._callback,
            learning_starts=model.learning_starts,
            replay_buffer=model.replay_buffer,
        )
        if model.num_timesteps > model.learning_starts:
            model.train(batch_size=model.batch_size, gradient_steps=model.gradient_steps)

    def score(self, state: FloatArray) -> FloatArray:
        observation = state.astype(np.float32)
        if not self.sequential:
            return self._scores(observation)
        return sequential_scores(self._scores, observation, self.envs.picks)

    def _scores(self, observation: NDArray[np.float32]) -> FloatArray:
        self.model.policy.set_training_mode(False)
        with torch.no_grad():
            scores = self.source_scores(torch.from_numpy(observation).to(self.model.device))
        return scores.cpu().numpy().astype(np.float64)

    def state_dict(self) -> dict[str, Any]:
        model, venv = self.model, self.envs.venv
        _, variables = model._get_torch_save_params()
        return {
            "features": list(self.envs.features),
            "parameters": model.get_parameters(),
            "variables": {name: getattr(model, name).detach() for name in variables},
            "counters": {c: getattr(model, c) for c in _COUNTERS if hasattr(model, c)},
            "reward_sum": [venv.total, venv.steps],
            "generators": self._generators.state,
            "action_sampler": model.action_space.np_random.bit_generator.state,
            "buffer": None if self._on_policy else buffer_state(model.replay_buffer),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        model, venv = self.model, self.envs.venv
        self._check(state)
        model.set_parameters(tensors(state["parameters"]), device=self.device)
        for name, value in state["variables"].items():
            with torch.no_grad():
                getattr(model, name).copy_(torch.from_numpy(value))
        for name, value in state["counters"].items():
            setattr(model, name, value)
        venv.total, venv.steps = state["reward_sum"]
        self._generators.state = state["generators"]
        model.action_space.np_random.bit_generator.state = state["action_sampler"]
        if not self._on_policy:
            restore_buffer(model.replay_buffer, state["buffer"])

    def _check(self, state: dict[str, Any]) -> None:
        """Raise ValueError unless a loaded state fits the model; SB3 checks little of it."""
        model, own = self.model, self.state_dict()
        features = state["features"]
        if features != list(self.envs.features):
            raise ValueError(
                f"the agent was trained on the features {', '.join(map(str, features))}; give an "
                "environment with these, in this order"
            )
        check_keys(state["parameters"], own["parameters"], "parameters")
        for name, its in own["parameters"].items():
            saved = state["parameters"][name]
            if "param_groups" in its:
                optimizer: Any = attrgetter(name)(model)
                check_optimizer(saved, optimizer, name)
            else:
                check_like(saved, dict(its), name)
        for name in ("variables", "counters"):
            check_like(state[name], own[name], name)
        check_like(state["reward_sum"], [0.0, 0], "reward_sum")
        check_non_negative("reward_sum", state["reward_sum"][0])
        check_generators(state["generators"], self._generators.state or {})
        check_generator(state["action_sampler"], own["action_sampler"], "action_sampler")
        if self._on_policy:
            check_like(state["buffer"], None, "buffer")
        else:
            check_buffer(model.replay_buffer, state["buffer"])


class StablePPO(StableBaselines[PPOSettings]):
    """PPO (Schulman et al., arXiv 1707.06347) with a Gaussian for each source's priority.

    >>> env = CrawlVectorEnv(8, budget=2, features=("age", "decay_rate"))
    >>> agent = StablePPO(env).learn(32)
    >>> agent.predict(env.reset(seed=0)[0])[0].shape
    (8, 4)
    """

    name = "ppo"
    Settings: ClassVar[type] = PPOSettings
    algorithm: ClassVar[Any] = PPO
    equivariant: ClassVar[Any] = policies.EquivariantActorCritic

    def source_scores(self, observation: Tensor) -> Tensor:
        mean: Tensor = self.model.policy.get_distribution(observation).distribution.mean
        return mean


class StableA2C(StablePPO):
    """A2C (Mnih et al., arXiv 1602.01783) with a Gaussian for each source's priority."""

    name = "a2c"
    Settings = A2CSettings
    algorithm = A2C


class StableSAC(StableBaselines[SACSettings]):
    """SAC (Haarnoja et al., arXiv 1812.05905)."""

    name = "sac"
    Settings = SACSettings
    algorithm, equivariant = SAC, policies.EquivariantSAC

    def source_scores(self, observation: Tensor) -> Tensor:
        mean: Tensor = self.model.actor.get_action_dist_params(observation)[0]
        return mean


class StableTD3(StableBaselines[TD3Settings]):
    """TD3 (Fujimoto et al., arXiv 1802.09477)."""

    name = "td3"
    Settings = TD3Settings
    algorithm, equivariant = TD3, policies.EquivariantTD3

    def source_scores(self, observation: Tensor) -> Tensor:
        actor = self.model.actor
        columns = actor.extract_features(observation, actor.features_extractor)
        mean: Tensor = actor.mu[:-1](columns)  # without the tanh
        return mean


class StableDQN(StableBaselines[DQNSettings]):
    """DQN (Mnih et al., Nature 518, 2015) that picks one source after the other."""

    name = "dqn"
    Settings: ClassVar[type] = DQNSettings
    algorithm: ClassVar[Any] = DQN
    equivariant: ClassVar[Any] = policies.EquivariantDQN
    sequential = True

    def source_scores(self, observation: Tensor) -> Tensor:
        value: Tensor = self.model.q_net(observation)
        return value


class StableQRDQN(StableDQN):
    """QR-DQN (Dabney et al., arXiv 1710.10044) that picks one source after the other."""

    name = "qr-dqn"
    size_settings = ("hidden", "n_quantiles")
    Settings = QRDQNSettings
    algorithm, equivariant = QRDQN, policies.EquivariantQRDQN

    def source_scores(self, observation: Tensor) -> Tensor:
        value: Tensor = self.model.quantile_net(observation).mean(dim=1)
        return value


class StableMaskablePPO(StableBaselines[MaskablePPOSettings]):
    """MaskablePPO (Huang and Ontañón, arXiv 2006.14171), which masks picked sources."""

    name = "maskable-ppo"
    Settings = MaskablePPOSettings
    algorithm, equivariant = MaskablePPO, policies.EquivariantMaskableActorCritic
    sequential = True

    def source_scores(self, observation: Tensor) -> Tensor:
        logits: Tensor = self.model.policy.get_distribution(observation).distribution.logits
        return logits


STABLE: tuple[type[StableBaselines[Any]], ...] = (
    StablePPO,
    StableA2C,
    StableSAC,
    StableTD3,
    StableDQN,
    StableQRDQN,
    StableMaskablePPO,
)


def sequential_scores(
    score: Callable[[NDArray[np.float32]], FloatArray],
    observation: NDArray[np.float32],
    picks: int,
) -> FloatArray:
    """Return scores (B, N) whose `picks` largest are the sources chosen by sequential picks.

    Arguments:
        score: maps observations with the column `picked`, (B, N, F + 1), to the value of picking
            each source now, (B, N).
        observation: (B, N, F).

    >>> def score(observation):  # the neighbour of the last pick is best, else the last source
    ...     return np.roll(observation[..., -1], 1, axis=-1) + np.arange(4) / 10
    >>> zeros = np.zeros((1, 4, 1), dtype=np.float32)
    >>> sequential_scores(score, zeros, 2)[0].argsort()[::-1]
    array([3, 0, 2, 1])
    """
    picked = np.zeros((*observation.shape[:-1], 1), dtype=np.float32)
    order = np.zeros(observation.shape[:-1])  # the earlier picked, the larger
    for left in range(picks, 0, -1):
        value = np.where(order > 0, -np.inf, score(np.concatenate([observation, picked], axis=-1)))
        best = value.argmax(axis=-1)[:, None]
        np.put_along_axis(picked[..., 0], best, 1.0, axis=-1)
        np.put_along_axis(order, best, float(left), axis=-1)
    return np.where(order > 0, 1.0 + order, priorities_of(value))
