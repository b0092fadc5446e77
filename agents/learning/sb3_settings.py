"""Hyper-parameters of the learners by Stable-Baselines3."""

from __future__ import annotations

from dataclasses import dataclass

from crawl_env.errors import unknown

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
