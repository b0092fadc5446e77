"""The algorithms of Stable-Baselines3 and sb3-contrib as learners of this project.

A. Raffin et al.: Stable-Baselines3: reliable reinforcement learning implementations, JMLR 22
(268), 2021. Only their public interface is used.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from sb3_contrib import QRDQN, MaskablePPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.noise import NormalActionNoise
from torch import Tensor, nn

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
from agents.policies.base import ObservationView
from crawl_env import CrawlVectorEnv
from crawl_env.errors import check_choice, check_non_negative, unknown
from crawl_env.numerics import FloatArray, ranks

NETWORKS = ("default", "equivariant", "standardized")
_LEARNT_COEFFICIENT = re.compile(r"auto(_(\d+\.?\d*|\.\d+))?")


@dataclass(frozen=True)
class StableSettings:
    """Hyper-parameters common to all algorithms. The other fields are arguments of SB3 under SB3's
    names; all remaining arguments have SB3's defaults. Numbers of steps are steps of the task, and
    `gamma` is per step of the task, even if such a step consists of several picks.

    Chosen by hand in a few runs on Table 1 (M = 2, deterministic) of 5 to 20 s of one busy core,
    mostly with one seed and the equivariant network: no search.
    """

    # "default": SB3's perceptron with two hidden layers. "equivariant": one network for all
    # sources. "standardized": the same, whose priorities have standard deviation .5 over these.
    network: str = "equivariant"
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
    ent_coef: str | float = 0.003  # or "auto", or "auto_.1", learnt from that initial value

    def __post_init__(self) -> None:
        super().__post_init__()
        learnt = isinstance(self.ent_coef, str) and _LEARNT_COEFFICIENT.fullmatch(self.ent_coef)
        if not learnt:
            check_non_negative("ent_coef", self.ent_coef, 'or "auto", or "auto_.1"')


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


class Algorithm(NamedTuple):
    """An algorithm of Stable-Baselines3, and what this project adds to it."""

    model: Any  # SB3's class
    Settings: type[StableSettings]
    equivariant: type[Any]  # its policy with one network for all sources
    # Maps a model and the columns of the sources, (B, N·D), to the mean priority, logit or Q-value
    # of each source, (B, N), or the priorities of crawls and looks, (B, 2N): of priorities before
    # SB3 clips or squashes them, which would produce ties.
    scores: Callable[[Any, Tensor], Tensor]
    # The network of the scores of an algorithm that picks one source after the other.
    picking: Callable[[Any], nn.Module] | None = None


def _of_actor_critic(model: Any, columns: Tensor) -> Tensor:
    policy = model.policy
    numbers: Tensor = policy.action_net(policy.mlp_extractor.forward_actor(columns))
    return numbers


def _means_of_actor(model: Any, columns: Tensor) -> Tensor:
    mean: Tensor = model.actor.mu(model.actor.latent_pi(columns))
    return mean


def _before_tanh(model: Any, columns: Tensor) -> Tensor:
    *layers, _ = model.actor.mu
    for layer in layers:
        columns = layer(columns)
    return columns


def _q_values(model: Any, columns: Tensor) -> Tensor:
    value: Tensor = model.q_net.q_net(columns)
    return value


def _mean_quantiles(model: Any, columns: Tensor) -> Tensor:
    network = model.quantile_net
    quantiles: Tensor = network.quantile_net(columns)
    return quantiles.view(len(columns), network.n_quantiles, -1).mean(dim=1)


ALGORITHMS: dict[str, Algorithm] = {
    # Schulman et al., arXiv 1707.06347; a Gaussian for each source's priority
    "ppo": Algorithm(PPO, PPOSettings, policies.EquivariantActorCritic, _of_actor_critic),
    # Mnih et al., arXiv 1602.01783; a Gaussian for each source's priority
    "a2c": Algorithm(A2C, A2CSettings, policies.EquivariantActorCritic, _of_actor_critic),
    # Haarnoja et al., arXiv 1812.05905
    "sac": Algorithm(SAC, SACSettings, policies.EquivariantSAC, _means_of_actor),
    # Fujimoto et al., arXiv 1802.09477
    "td3": Algorithm(TD3, TD3Settings, policies.EquivariantTD3, _before_tanh),
    # Mnih et al., Nature 518, 2015
    "dqn": Algorithm(
        DQN, DQNSettings, policies.EquivariantDQN, _q_values, attrgetter("q_net.q_net")
    ),
    # Dabney et al., arXiv 1710.10044
    "qr-dqn": Algorithm(
        QRDQN,
        QRDQNSettings,
        policies.EquivariantQRDQN,
        _mean_quantiles,
        attrgetter("quantile_net.quantile_net"),
    ),
    # Huang and Ontañón, arXiv 2006.14171; masks picked sources
    "maskable-ppo": Algorithm(
        MaskablePPO,
        MaskablePPOSettings,
        policies.EquivariantMaskableActorCritic,
        _of_actor_critic,
        attrgetter("policy.action_net"),
    ),
}

_COUNTERS = ("num_timesteps", "exploration_rate")
_VARIABLES = ("log_ent_coef", "ent_coef_tensor")  # tensors that no state dictionary includes


class StableBaselines(Learner[StableSettings]):
    """An algorithm of Stable-Baselines3 or sb3-contrib as a learner: `StableBaselines.of("ppo")`.

    The actions of PPO, A2C, SAC and TD3 are priorities; DQN, QR-DQN and MaskablePPO pick one source
    after the other. `predict` orders the sources by the means of the priorities, or as these picks.

    Both networks receive the environment's features as dimensionless columns (`Columns`); unless
    these include parameters, the equivariant networks treat sources with equal features equally.
    Rewards are centred and scaled by their running mean (`CenteredReward`). Training uses separate
    environments of the same task, seeded from `seed`; on the CPU it is bitwise reproducible.

    A checkpoint holds all that SB3's public interface gives: parameters, optimizers, replay buffer,
    the numbers of steps, random generators and environments. Learning resumes exactly, but for the
    counters that SB3 keeps to itself: after a resume DQN and QR-DQN count the steps between two
    updates of their target network anew, and TD3 the gradient steps between two of its actor.

    >>> env = CrawlVectorEnv(8, budget=2, features=("age", "decay_rate"))
    >>> agent = StableBaselines.of("ppo")(env).learn(32)
    >>> agent.predict(env.reset(seed=0)[0])[0].shape
    (8, 4)
    """

    Settings: ClassVar[type] = StableSettings
    algorithm: ClassVar[Algorithm]
    sequential: ClassVar[bool] = False
    arms_type: ClassVar[type] = TrainingVecEnv
    size_settings: ClassVar[tuple[str, ...]] = ("hidden",)

    @staticmethod
    @cache
    def of(name: str) -> type[StableBaselines]:
        """Return the learner of an algorithm.

        Raises:
            ValueError: the name is none of `ALGORITHMS`.
        """
        if name not in ALGORITHMS:
            raise unknown("algorithm", name, ALGORITHMS)
        algorithm = ALGORITHMS[name]
        sizes = [*StableBaselines.size_settings]
        sizes += ["n_quantiles"] if hasattr(algorithm.Settings, "n_quantiles") else []
        body = {
            "name": name,
            "algorithm": algorithm,
            "Settings": algorithm.Settings,
            "sequential": algorithm.picking is not None,
            "size_settings": tuple(sizes),
            "__module__": __name__,
            "__doc__": StableBaselines.__doc__,
        }
        return type(f"StableBaselines.of({name!r})", (StableBaselines,), body)

    def __init__(
        self,
        arms: CrawlVectorEnv | Arms,
        settings: StableSettings | None = None,
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

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, or an unpickled learner, learns on as after a resume."""
        with TemporaryDirectory() as folder:
            path = Path(folder, self.name)
            self.save(path)
            saved = path.read_bytes()
        return _copied, (self.name, self.envs.env, self.settings, self.seed, self.device, saved)

    def setup(self) -> None:
        envs: Any = self.arms
        self.envs: TrainingVecEnv = envs
        self._generators = GlobalGenerators()
        with self._generators.active():
            self.model = self.algorithm.model(**self._arguments())
            self.model.set_logger(Logger(folder=None, output_formats=[]))
            envs.venv.restored = envs.venv.reset()  # the model resets them when it starts to learn
        self._columns = envs.columns()
        if hasattr(self.model, "exploration_schedule"):
            self.model.exploration_schedule = self._exploration_rate
        settings: Any = self.settings
        on_policy = hasattr(settings, "n_steps")
        self.steps_per_update = settings.n_steps if on_policy else settings.train_freq

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments of SB3's algorithm: the settings, in its units."""
        envs, settings = self.envs, asdict(self.settings)
        network = settings.pop("network")
        if network == "standardized" and self.sequential:
            raise ValueError(
                f"{self.name} picks sources and has no priorities that could be standardized; give "
                'network="equivariant"'
            )
        if self.seed >= 2**32:
            raise ValueError(
                f"seed is {self.seed}; Stable-Baselines3, in which {self.name} is trained, needs a "
                "seed below 2**32"
            )
        policy = policies.policy_arguments(
            envs.venv, settings.pop("hidden"), standardized=network == "standardized"
        )
        base: Any = self.algorithm.equivariant
        if network == "default":
            policy["net_arch"] = [self.settings.hidden] * 2
            base = "MlpPolicy"
        for name in ("log_std_init", "n_quantiles"):
            if name in settings:
                policy[name] = settings.pop(name)
        if "action_noise_std" in settings:
            mean = np.zeros(envs.venv.action_space.shape or ())
            settings["action_noise"] = NormalActionNoise(
                mean, np.full_like(mean, settings.pop("action_noise_std"))
            )
        settings.pop("exploration_steps", None)  # see `_exploration_rate`
        for name in ("n_steps", "train_freq"):
            if name in settings:
                settings[name] *= envs.picks
        if "n_minibatches" in settings:
            steps = settings["n_steps"] * envs.shape[0]
            settings["batch_size"] = max(2, steps // settings.pop("n_minibatches"))
        for name in ("learning_starts", "target_update_interval"):
            if name in settings:
                settings[name] *= self._steps_of_model
        settings["gamma"] **= 1 / envs.picks
        return {
            "policy": base,
            "env": envs.venv,
            "policy_kwargs": policy,
            "seed": self.seed,
            "device": self.device,
            **settings,
        }

    @property
    def _steps_of_model(self) -> int:
        """The number of SB3's steps, picks in all environments, in a step of each environment."""
        return self.envs.picks * self.envs.shape[0]

    def _exploration_rate(self, _: float) -> float:
        """Return ε, which decreases linearly in the first `exploration_steps`."""
        settings: Any = self.settings
        steps = settings.exploration_steps * self._steps_of_model
        fraction = 1.0 - (1.0 - self.model.num_timesteps / steps)
        low, high = settings.exploration_final_eps, settings.exploration_initial_eps
        return low if fraction > 1.0 else high + fraction * (low - high)

    def update(self) -> dict[str, float]:
        model, venv = self.model, self.envs.venv
        total, steps = venv.total, venv.steps
        with self._generators.active():
            number = self.steps_per_update * self._steps_of_model  # one of SB3's own iterations
            model.learn(number, log_interval=sys.maxsize, reset_num_timesteps=False)
        metrics = {name: float(value) for name, value in model.logger.name_to_value.items()}
        model.logger.name_to_value.clear()
        reward = self.envs.picks * (venv.total - total) / (venv.steps - steps)
        return {"reward per step": reward, **metrics}

    def priority(self, view: ObservationView) -> FloatArray:
        # All features in their order, without a copy of each in float64.
        priority = priorities_of(self.score(view.array)).astype(np.float64)
        task = self.envs.env.task
        shape = (task.n,) if self.sequential else task.action_space.shape
        return priority.reshape(len(priority), *shape)

    def score(self, state: FloatArray) -> FloatArray:
        observation = state.astype(np.float32, copy=False)
        if self.sequential:
            none_picked = np.zeros((*observation.shape[:-1], 1), dtype=np.float32)
            observation = np.concatenate([observation, none_picked], axis=-1)
        if self.model.policy.training:  # setting it walks through all modules, in every step
            self.model.policy.set_training_mode(False)
        with torch.inference_mode():
            columns = self._columns(torch.from_numpy(np.ascontiguousarray(observation)))
            columns = columns.to(self.model.device)
            if self.algorithm.picking is None:
                return self._scores(columns).cpu().numpy().astype(np.float64)
            network = self.algorithm.picking(self.model)
            score: Callable[..., Tensor] = self._scores
            if isinstance(network, policies.SourceScores):
                score = policies.PickedScores(network)
            picked = self._columns.features.index("picked")
            return sequential_scores(score, columns, self.envs.picks, picked)

    def _scores(self, columns: Tensor, picked: Tensor | None = None) -> Tensor:
        """Return the scores of sources, (B, N), or of their crawls and looks, (B, 2N), from their
        columns, (B, N, D)."""
        return self.algorithm.scores(self.model, columns.flatten(1))

    def state_dict(self) -> dict[str, Any]:
        model, venv = self.model, self.envs.venv
        variables = {name: getattr(model, name, None) for name in _VARIABLES}
        return {
            "features": list(self.envs.features),
            "parameters": model.get_parameters(),
            "variables": {n: v.detach() for n, v in variables.items() if isinstance(v, Tensor)},
            "counters": {c: getattr(model, c) for c in _COUNTERS if hasattr(model, c)},
            "reward_sum": [venv.total, venv.steps],
            "generators": self._generators.state,
            "action_sampler": model.action_space.np_random.bit_generator.state,
            "buffer": buffer_state(model.replay_buffer) if self._has_buffer else None,
        }

    @property
    def _has_buffer(self) -> bool:
        return hasattr(self.settings, "buffer_size")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        model, venv = self.model, self.envs.venv
        self._check(state)
        model.set_parameters(tensors(state["parameters"]), device=self.device)
        for name, value in state["variables"].items():
            with torch.no_grad():
                getattr(model, name).copy_(torch.from_numpy(value))
        for name in self.state_dict()["counters"]:
            setattr(model, name, state["counters"][name])
        venv.total, venv.steps = state["reward_sum"]
        self._generators.state = state["generators"]
        model.action_space.np_random.bit_generator.state = state["action_sampler"]
        if self._has_buffer:
            restore_buffer(model.replay_buffer, state["buffer"])
        if venv.restored is not None:
            model.set_env(venv)  # so that it resets them, and starts from what was restored

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
        check_like(state["variables"], own["variables"], "variables")
        for name, number in own["counters"].items():  # files of older versions have more of them
            check_like(state["counters"][name], number, f"counters.{name}")
        check_like(state["reward_sum"], [0.0, 0], "reward_sum")
        check_non_negative("reward_sum", state["reward_sum"][0])
        check_generators(state["generators"], self._generators.state or {})
        check_generator(state["action_sampler"], own["action_sampler"], "action_sampler")
        if self._has_buffer:
            check_buffer(model.replay_buffer, state["buffer"])
        else:
            check_like(state["buffer"], None, "buffer")


def _copied(
    name: str, env: CrawlVectorEnv, settings: StableSettings, seed: int, device: str, saved: bytes
) -> StableBaselines:
    """Return a copy of a learner from its arguments and the file that its `save` writes."""
    agent = StableBaselines.of(name)(env, settings, seed, device)
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(saved)
        return agent.learn(0, checkpoint=path)


def sequential_scores(
    score: Callable[[Tensor, Tensor | None], Tensor],
    columns: Tensor,
    picks: int,
    picked: int = -1,
) -> FloatArray:
    """Return scores (B, N) whose `picks` largest are the sources chosen by sequential picks.

    Arguments:
        score: maps columns (B, N, D), and the sources that were picked last, (B,), to the value of
            picking each source now, (B, N).
        columns: (B, N, D) before the first pick. The column `picked` is overwritten.
        picks: number of picks.
        picked: the column that is 1 for the sources that have been picked, and 0 for the others.

    >>> def score(columns, _):  # the neighbour of the last pick is best, else the last source
    ...     return columns[..., -1].roll(1, -1) + torch.arange(4) / 10
    >>> sequential_scores(score, torch.zeros(1, 4, 1), 2)[0].argsort()[::-1]
    array([3, 0, 2, 1])
    """
    envs = np.arange(len(columns))
    order = np.zeros(columns.shape[:-1])  # the earlier picked, the larger
    best = None
    for rank in range(picks, 0, -1):
        value = score(columns, best).cpu().numpy()
        if np.isnan(value).any():
            return np.asarray(value)  # NaN, which `priorities_of` refuses
        value[order > 0] = -np.inf
        first = value.argmax(axis=-1)
        order[envs, first] = rank
        best = torch.from_numpy(first).to(columns.device)
        columns[envs, best, picked] = 1.0
    return np.where(order > 0, order, -ranks(value))
