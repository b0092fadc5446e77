"""The algorithms of Stable-Baselines3 and sb3-contrib as learners of this project.

A. Raffin et al.: Stable-Baselines3: reliable reinforcement learning implementations, JMLR 22
(268), 2021. PPO, A2C, SAC and TD3 act by priorities; DQN, QR-DQN and MaskablePPO pick one source
after the other. Whatever they are, what they learn is played as an order of sources.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sb3_contrib import QRDQN, MaskablePPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.noise import NormalActionNoise
from torch import Tensor

from agents.learning.arms import Arms
from agents.learning.base import Learner, ranked
from agents.learning.sb3 import policies
from agents.learning.sb3.environments import Chance, Rows, kept, put_back
from agents.learning.storage import tensors
from crawl_env import CrawlVectorEnv
from crawl_env.errors import unknown
from crawl_env.numerics import FloatArray

NETWORKS = ("default", "equivariant")


@dataclass(frozen=True)
class StableSettings:
    """Of all of them. The other fields are SB3's arguments, under SB3's names; all its others are
    at their defaults. Numbers of steps are epochs, and `gamma` is per epoch, also where an epoch
    is several picks.

    Chosen by hand in a few runs on Table 1 (M = 2, deterministic) of 5 to 20 s of one busy core,
    mostly with one seed and the equivariant network: no search.
    """

    network: str = "equivariant"  # or "default": SB3's perceptron, of two hidden layers
    hidden: int = 32  # units of each hidden layer
    gamma: float = 0.9

    def __post_init__(self) -> None:
        if self.network not in NETWORKS:
            raise unknown("network", self.network, NETWORKS)


@dataclass(frozen=True)
class OnPolicySettings(StableSettings):
    n_steps: int = 32  # epochs of each row between improvements
    learning_rate: float = 3e-3
    gae_lambda: float = 0.95
    ent_coef: float = 0.0
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5


@dataclass(frozen=True)
class PPOSettings(OnPolicySettings):
    """With 64 rows, either network passes the myopic policy's score of .84 after some 500 epochs
    and stays at .997 to 1 from 2 000 on, in two seeds. A wider Gaussian (1) at γ = .95 did as well,
    but wavered more."""

    n_epochs: int = 4  # passes over what was collected
    batches: int = 4  # a pass
    clip_range: float = 0.2
    log_std_init: float = -1.0  # of the priorities' Gaussian


@dataclass(frozen=True)
class MaskablePPOSettings(OnPolicySettings):
    """Those of PPO; with 16 rows, scores of about .98 to 1 from 600 to 1 200 epochs on."""

    n_epochs: int = 4
    batches: int = 4
    clip_range: float = 0.2


@dataclass(frozen=True)
class A2CSettings(OnPolicySettings):
    """One update for each window: in 1 900 epochs of 64 rows, and with three times the learning
    rate and half the window in 1 250 of 32, the equivariant network did not get beyond the myopic
    policy; SB3's own swung between that and .93."""

    n_steps: int = 8
    normalize_advantage: bool = True
    log_std_init: float = -1.0


@dataclass(frozen=True)
class OffPolicySettings(StableSettings):
    learning_rate: float = 1e-3
    buffer_size: int = 50_000  # transitions of all rows
    learning_starts: int = 50  # epochs of each row, all chance
    batch_size: int = 128
    train_freq: int = 8  # epochs of each row between improvements
    gradient_steps: int = 8  # an improvement


@dataclass(frozen=True)
class SACSettings(OffPolicySettings):
    """A fixed, small weight of the entropy: learnt ("auto"), it begins at 1, which rewards scaled
    to 1 do not outweigh, and scores swung between −3 and .84. At .01, with a third of the learning
    rate and half of `tau`, scores stayed at the myopic policy's for 450 epochs of 16 rows; with
    these they were at .99 and .96 after 600 (two seeds)."""

    learning_rate: float = 3e-3
    batch_size: int = 64
    tau: float = 0.02  # share of the way that targets go at each update
    ent_coef: str | float = 0.003


@dataclass(frozen=True)
class TD3Settings(OffPolicySettings):
    """Settles at the myopic policy and stays there for 760 epochs of 16 rows; so it did with noise
    of .5 and SB3's perceptron, and with the rates of `SACSettings`."""

    tau: float = 0.01
    noise: float = 0.3  # standard deviation added to priorities


@dataclass(frozen=True)
class DQNSettings(OffPolicySettings):
    """With 16 rows scores wander between .77 and .99: keep checkpoints, and measure them."""

    target_update_interval: int = 40  # epochs of each row
    exploration_initial_eps: float = 1.0
    exploration_final_eps: float = 0.1
    exploring: int = 500  # epochs of each row, until exploration is at its final share
    max_grad_norm: float = 10.0


@dataclass(frozen=True)
class QRDQNSettings(DQNSettings):
    """SB3's 200 quantiles take an order of magnitude longer for each update."""

    n_quantiles: int = 25


_COUNTERS = ("num_timesteps", "_n_updates", "_n_calls", "_episode_num", "exploration_rate")


class StableBaselines(Learner):
    """Base of the learners below. A subclass has, besides `name` and `Settings`, SB3's `algorithm`,
    its `equivariant` policy, whether it is `sequential`, and `says`.

    Both networks read what the environment shows as columns without units (`Columns`); without
    parameters among the features, the equivariant ones treat sources alike that look alike. Rewards
    are centred and scaled by what was earned so far (`MeanReward`). Learning goes on in rows of its
    own of the environment's task, seeded from `seed`; on the CPU it is bitwise repeatable.

    Priorities are played in the order of the means before SB3 clips or squashes them, which makes
    ties. Picks are played as SB3 would, K largest values one after the other.
    """

    Settings: ClassVar[type] = StableSettings
    algorithm: ClassVar[Any]
    equivariant: ClassVar[Any]
    sequential: ClassVar[bool] = False
    world: ClassVar[type] = Rows
    settings: Any

    def __init__(
        self, arms: CrawlVectorEnv | Arms, settings: Any = None, seed: int = 0, device: str = "cpu"
    ) -> None:
        if not isinstance(arms, CrawlVectorEnv):
            raise ValueError(
                f"{arms!r} is no CrawlVectorEnv; make one with gym.make_vec, "
                'vectorization_mode="vector_entry_point"'
            )
        rows: Any = self.world(arms, self.sequential)
        super().__init__(rows, settings, seed, device)
        self.task = arms.task
        self.state_features = arms.task.features  # type: ignore[misc]

    # -- what a subclass gives -------------------------------------------------------------------

    def says(self, observation: Tensor) -> Tensor:
        """Return a number for each source, (B, N), from observations (B, N, F)."""
        raise NotImplementedError

    # -- what `Learner` asks for -----------------------------------------------------------------

    def prepare(self) -> None:
        rows: Any = self.arms
        self._rows: Rows = rows
        self._chance = Chance()
        with self._chance.lent():
            self._model = self.algorithm(**self._arguments())
            self._model.set_logger(Logger(folder=None, output_formats=[]))
            _, self._callback = self._model._setup_learn(self._fading(), callback=None)
        rows.observation = self._model._last_obs
        self._on_policy = hasattr(self._model, "rollout_buffer")
        at_once = self.settings.n_steps if self._on_policy else self.settings.train_freq
        self.epochs_at_once = at_once  # type: ignore[misc]

    def _arguments(self) -> dict[str, Any]:
        """Return what SB3's algorithm is made with: the settings, in its units."""
        rows, settings = self._rows, asdict(self.settings)
        policy = policies.policy_arguments(rows.venv, settings.pop("hidden"))
        base: Any = self.equivariant
        if settings.pop("network") == "default":
            policy["net_arch"] = [self.settings.hidden] * 2
            base = "MlpPolicy"
        if "log_std_init" in settings:
            policy["log_std_init"] = settings.pop("log_std_init")
        if "n_quantiles" in settings:
            policy["n_quantiles"] = settings.pop("n_quantiles")
        if "noise" in settings:
            n = rows.shape[1]
            settings["action_noise"] = NormalActionNoise(
                np.zeros(n), np.full(n, settings.pop("noise"))
            )
        if settings.pop("exploring", 0):
            settings["exploration_fraction"] = 1.0  # of `_fading` steps
        for name in ("n_steps", "train_freq"):
            if name in settings:
                settings[name] *= rows.picks
        if "batches" in settings:
            steps = settings["n_steps"] * rows.shape[0]
            settings["batch_size"] = max(2, steps // settings.pop("batches"))
        for name in ("learning_starts", "target_update_interval"):
            if name in settings:
                settings[name] *= rows.picks * rows.shape[0]
        settings["gamma"] **= 1 / rows.picks
        return {
            "policy": base,
            "env": rows.venv,
            "policy_kwargs": policy,
            "seed": self.seed,
            "device": self.device,
            **settings,
        }

    def _fading(self) -> int:
        """Return the number of SB3's steps in which exploration fades."""
        return getattr(self.settings, "exploring", 1) * self._rows.picks * self._rows.shape[0]

    def improve(self) -> dict[str, float]:
        model, rows = self._model, self._rows
        total, steps = rows.venv.total, rows.venv.steps
        model._last_obs = model._last_original_obs = rows.observation
        model._last_episode_starts = rows.starts
        with self._chance.lent():
            self._collect_and_train()
        rows.observation, rows.starts = model._last_obs, model._last_episode_starts
        facts = {name: float(value) for name, value in model.logger.name_to_value.items()}
        model.logger.name_to_value.clear()
        earned = rows.picks * (rows.venv.total - total) / (rows.venv.steps - steps)
        return {"reward per epoch": earned, **facts}

    def _collect_and_train(self) -> None:
        """Do what one round of SB3's own loops does."""
        model = self._model
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
        shown = state.astype(np.float32)
        if not self.sequential:
            return self._numbers(shown)
        return in_turn(self._numbers, shown, self._rows.picks)

    def _numbers(self, shown: NDArray[np.float32]) -> FloatArray:
        self._model.policy.set_training_mode(False)
        with torch.no_grad():
            said = self.says(torch.from_numpy(shown).to(self._model.device))
        return said.cpu().numpy().astype(np.float64)

    def memory(self) -> dict[str, Any]:
        model, venv = self._model, self._rows.venv
        _, variables = model._get_torch_save_params()
        return {
            "features": list(self._rows.features),
            "parameters": model.get_parameters(),
            "variables": {name: getattr(model, name).detach() for name in variables},
            "counters": {c: getattr(model, c) for c in _COUNTERS if hasattr(model, c)},
            "earned": [venv.total, venv.steps],
            "chance": self._chance.state,
            "actions": model.action_space.np_random.bit_generator.state,
            "buffer": None if self._on_policy else kept(model.replay_buffer),
        }

    def remember(self, memory: dict[str, Any]) -> None:
        model, venv = self._model, self._rows.venv
        if memory["features"] != list(self._rows.features):
            raise ValueError(
                f"it has learnt from the features {', '.join(memory['features'])}; give an "
                "environment that shows these, in this order"
            )
        try:
            model.set_parameters(tensors(memory["parameters"]), device=self.device)
            for name, value in memory["variables"].items():
                with torch.no_grad():
                    getattr(model, name).copy_(torch.from_numpy(value))
        except RuntimeError as error:  # of torch: other shapes
            raise ValueError(str(error)) from None
        for name, value in memory["counters"].items():
            setattr(model, name, value)
        venv.total, venv.steps = memory["earned"]
        self._chance.state = memory["chance"]
        model.action_space.np_random.bit_generator.state = memory["actions"]
        if not self._on_policy:
            put_back(model.replay_buffer, memory["buffer"])


class StablePPO(StableBaselines):
    """PPO (J. Schulman et al., arXiv 1707.06347) with a Gaussian for each source's priority.

    >>> env = CrawlVectorEnv(8, budget=2, features=("age", "decay_rate"))
    >>> agent = StablePPO(env).learn(32)
    >>> agent.predict(env.reset(seed=0)[0])[0].shape
    (8, 4)
    """

    name = "ppo"
    Settings: ClassVar[type] = PPOSettings
    algorithm: ClassVar[Any] = PPO
    equivariant: ClassVar[Any] = policies.EquivariantActorCritic

    def says(self, observation: Tensor) -> Tensor:
        mean: Tensor = self._model.policy.get_distribution(observation).distribution.mean
        return mean


class StableA2C(StablePPO):
    """A2C (V. Mnih et al., arXiv 1602.01783), likewise."""

    name = "a2c"
    Settings = A2CSettings
    algorithm = A2C


class StableSAC(StableBaselines):
    """SAC (T. Haarnoja et al., arXiv 1812.05905)."""

    name = "sac"
    Settings = SACSettings
    algorithm, equivariant = SAC, policies.EquivariantSAC

    def says(self, observation: Tensor) -> Tensor:
        mean: Tensor = self._model.actor.get_action_dist_params(observation)[0]
        return mean


class StableTD3(StableBaselines):
    """TD3 (S. Fujimoto et al., arXiv 1802.09477)."""

    name = "td3"
    Settings = TD3Settings
    algorithm, equivariant = TD3, policies.EquivariantTD3

    def says(self, observation: Tensor) -> Tensor:
        actor = self._model.actor
        columns = actor.extract_features(observation, actor.features_extractor)
        mean: Tensor = actor.mu[:-1](columns)  # without the tanh
        return mean


class StableDQN(StableBaselines):
    """DQN (V. Mnih et al., Nature 518, 2015) that picks one source after the other."""

    name = "dqn"
    Settings: ClassVar[type] = DQNSettings
    algorithm: ClassVar[Any] = DQN
    equivariant: ClassVar[Any] = policies.EquivariantDQN
    sequential = True

    def says(self, observation: Tensor) -> Tensor:
        value: Tensor = self._model.q_net(observation)
        return value


class StableQRDQN(StableDQN):
    """QR-DQN (W. Dabney et al., arXiv 1710.10044), likewise."""

    name = "qr-dqn"
    Settings = QRDQNSettings
    algorithm, equivariant = QRDQN, policies.EquivariantQRDQN

    def says(self, observation: Tensor) -> Tensor:
        value: Tensor = self._model.quantile_net(observation).mean(dim=1)
        return value


class StableMaskablePPO(StableBaselines):
    """MaskablePPO (S. Huang, S. Ontañón, arXiv 2006.14171): picks what is not picked yet."""

    name = "maskable-ppo"
    Settings = MaskablePPOSettings
    algorithm, equivariant = MaskablePPO, policies.EquivariantMaskableActorCritic
    sequential = True

    def says(self, observation: Tensor) -> Tensor:
        logits: Tensor = self._model.policy.get_distribution(observation).distribution.logits
        return logits


STABLE: tuple[type[Learner], ...] = (
    StablePPO,
    StableA2C,
    StableSAC,
    StableTD3,
    StableDQN,
    StableQRDQN,
    StableMaskablePPO,
)


def in_turn(
    numbers: Callable[[NDArray[np.float32]], FloatArray], shown: NDArray[np.float32], picks: int
) -> FloatArray:
    """Return scores (B, N) whose `picks` largest are those that picks one by one would take.

    Arguments:
        numbers: from observations with the column `picked`, (B, N, F + 1), to the worth of picking
            each source now, (B, N).
        shown: (B, N, F).

    >>> def likes_company(seen):  # the neighbour of what is picked, else the last
    ...     return np.roll(seen[..., -1], 1, axis=-1) + np.arange(4) / 10
    >>> in_turn(likes_company, np.zeros((1, 4, 1), dtype=np.float32), 2)[0].argsort()[::-1]
    array([3, 0, 2, 1])
    """
    picked = np.zeros((*shown.shape[:-1], 1), dtype=np.float32)
    order = np.zeros(shown.shape[:-1])  # the earlier picked, the larger
    for left in range(picks, 0, -1):
        said = np.where(order > 0, -np.inf, numbers(np.concatenate([shown, picked], axis=-1)))
        best = said.argmax(axis=-1)[:, None]
        np.put_along_axis(picked[..., 0], best, 1.0, axis=-1)
        np.put_along_axis(order, best, float(left), axis=-1)
    return np.where(order > 0, 1.0 + order, ranked(said))
