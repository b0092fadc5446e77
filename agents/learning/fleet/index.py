"""One network that maps every source of every fleet to its Whittle index, learnt with its critic.

The index of a source depends on that source only, so that one function of its columns serves fleets
of any N and M, and each step of each source is a sample for it. As in DeepTOP (K. Nakhleh, I-H.
Hou, NeurIPS 2022), a critic learns the values of crawling and waiting for many Lagrange
multipliers ℓ. Its advantage is

    Q(s, ℓ, 1) − Q(s, ℓ, 0) = exp(σ(s, ℓ)) · [f(s) − ln ℓ],

which is positive below the multiplier exp(f(s)) and negative above it, as for any indexable source.
The index is therefore a part of the critic, and needs no separate actor.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agents.learning.fleet.base import (
    FleetLearner,
    FleetPolicy,
    averaging_weight,
    gumbel_perturbed,
    polyak_update,
    squashed,
    torch_generator,
)
from agents.learning.fleet.networks import IndexNetwork, SourceColumns
from agents.learning.storage import check_like, tensors
from crawl_env import Task
from crawl_env.errors import check_whole

_LOG_MULTIPLIERS = (-7.0, 6.0)  # range of ln ℓ, with ℓ in units of the source
_MAX_GRAD_NORM = 1.0


@dataclass(frozen=True)
class EquivariantIndexSettings:
    """Hyper-parameters, found by hand on random fleets of 40 sources, one seed each.

    `multiplier_std`: .5 and 1 do equally well; with 2, before errors were relative to 1 + |Q|,
    indices of old sources were a third to a half of their true values. `trace_decay`: with 1 it
    takes twice as long until the first indices are useful. `learning_rate`: also found with squared
    errors; absolute ones (Huber's) learn the median of noisy rewards rather than their mean, and
    scores on sparse fleets then fall to .9.

    `noise_jitter`: with .3 a fifth of the runs on Table 1 end far below the myopic policy, since
    the few sources then keep their order for 24 steps, and some ages are hardly visited
    (`experiments/failures.py`); on random fleets 1 does as well.

    Longer runs do not improve the indices: after 20 CPU seconds or 80 the error is still about 30 %
    (root mean square, over ages from 1 to 64 and the decay rates of random fleets): indices are too
    large for young sources whose content decays fast, and too small for old ones.
    """

    hidden: int = 48  # units of each of two hidden layers
    n_steps: int = 24  # steps between updates, and length of a sequence
    max_sequences: int = 256  # sequences stored per environment and update
    buffer_size: int = 20_000  # sequences
    batch_size: int = 96  # sequences per gradient step
    gradient_steps: int = 12  # per update
    trace_decay: float = 0.95  # λ of Watkins's Q(λ)
    learning_rate: float = 2e-3  # of Adam, divided by 1 + updates/learning_rate_decay_updates
    learning_rate_decay_updates: float = 50.0
    tau: float = 0.02  # Polyak coefficient of the target network
    exploration_noise: float = 1.5  # largest standard deviation of the noise added to ln index
    noise_jitter: float = 1.0  # noise redrawn in each step, relative to the noise kept
    multiplier_std: float = 0.7  # standard deviation of ln ℓ around the source's index
    averaging_power: float = 4.0  # p: the index in use is a mean of networks, weights n^(p − 1)


class _Sequences(NamedTuple):
    """K sources over T steps, each in units of its source."""

    columns: Tensor  # (K, T + 1, D)
    active: Tensor  # (K, T) 1 if the source was crawled
    reward: Tensor  # (K, T)
    valid: Tensor  # (K, T) 0 from the first reset on, or if no crawl preceded
    after_crawl: Tensor  # (K, D) columns right after the preceding crawl


class IndexPolicy(FleetPolicy):
    """Crawls the sources with the largest indices, in any task with the features of training."""

    def __init__(
        self,
        network: IndexNetwork,
        features: Sequence[str],
        task: Task,
        unit: float,
        rng: np.random.Generator,
        device: str = "cpu",
    ) -> None:
        super().__init__(task, rng)
        self._network, self._device = network, device
        self._columns = SourceColumns(task, features, unit)

    def columns(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Return columns (B, N, D) and units (B, N) of a batch."""
        columns, unit = self._columns(observation.to(self._device))
        return columns.float(), unit

    @torch.no_grad()
    def log_index(self, observation: Tensor) -> Tensor:
        """Return the logarithms of the indices, utility per budget unit: (B, N, F) to (B, N)."""
        columns, unit = self.columns(observation)
        cost = self._columns.cost(observation.to(self._device))
        return self._network.index(columns).double() + torch.log(unit / cost)

    def score(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        index = self.log_index(torch.from_numpy(observation))
        return np.asarray(index.float().cpu().numpy())


class EquivariantIndex(FleetLearner[EquivariantIndexSettings]):
    """Learns average-reward indices, without discounting, from harvests.

    A multiplier ℓ is drawn for each sequence. The critic's target is that of Watkins's Q(λ): it
    starts from r − ℓa − g + max_b Q′(s′, ℓ, b) and continues along the sequence as long as the
    action taken is greedy. The gain g is max_b Q′(s₀, ℓ, b), where s₀ is the state of the same
    source right after a crawl (relative value iteration). Errors are relative to 1 + |Q|.

    Utilities and multipliers are in units of the source's own Λξ̄T if Λ and ξ̄ are features,
    else in units of the mean harvest in the first update, the same for all sources. Inputs are the
    features of the environment except for cost, which determines the unit of the multiplier.
    Indices are assumed to be positive: rewards must not be negative.

    Arguments:
        arms: one vector environment, or several (of any N and M). `sources` may be drawn at each
            reset; horizons should be long compared with `n_steps`.
        settings, seed, device: as in `Learner`.

    Raises:
        ValueError: the features of the environments differ or are only costs, actions are not
            priorities, or the budget rule is "average".

    >>> from crawl_env import CrawlVectorEnv
    >>> env = CrawlVectorEnv(8, budget=2, features=("age", "decay_rate"), horizon=None)
    >>> agent = EquivariantIndex(env).learn(48)
    >>> agent.predict(env.reset(seed=0)[0])[0].shape
    (8, 4)
    """

    name = "equivariant-index"
    Settings = EquivariantIndexSettings
    learnt: ClassVar = {
        "network": "_network",
        "target": "_target",
        "averaged": "_averaged",
        "adam": "_adam",
        "unit": "_unit",
        "stored": "_stored",
        "updates": "_updates",
    }
    not_negative = ("unit",)

    def policy(self, task: Task, rng: np.random.Generator) -> IndexPolicy:
        return self._policy(self._averaged, task, rng)

    @classmethod
    def load(cls, path: str | PathLike[str], arms: Any, device: str = "cpu") -> Self:
        agent = super().load(path, arms, device)
        agent._reset_last_crawls()
        return agent

    # -- the methods of `Learner` ----------------------------------------------------------------

    def setup(self) -> None:
        settings = self.settings
        names = SourceColumns.read(self.features)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self._network = IndexNetwork(names, settings.hidden).to(self.device)
        self._target, self._averaged = deepcopy(self._network), deepcopy(self._network)
        self._adam = torch.optim.Adam(self._network.parameters(), lr=settings.learning_rate)
        s, t, d = settings.buffer_size, settings.n_steps, len(names)
        shapes = (s, t + 1, d), (s, t), (s, t), (s, t), (s, d)
        # numpy's zeros occupy no memory until they are written to.
        zeros = (torch.from_numpy(np.zeros(shape, np.float32)) for shape in shapes)
        self._buffer = _Sequences(*(part.to(self.device) for part in zeros))
        self._stored = self._updates = 0
        self._unit = 0.0  # utility; 0 before the first update
        self._reset_last_crawls()

    def update(self) -> dict[str, float]:
        settings = self.settings
        if self._unit == 0:
            self._estimate_unit()
        else:
            for which in range(len(self.training_envs)):
                self._store(self._collect(which))
        reward = float(np.mean([float(env.mean_reward.mean()) for env in self.training_envs]))
        if self._stored == 0:
            return {"reward per step": reward}
        if self._updates == 0:
            columns = self._buffer.columns[: self._stored].flatten(0, 1)
            for network in (self._network, self._target, self._averaged):
                network.standardise(columns)
        decay = 1 + self._updates / settings.learning_rate_decay_updates
        for group in self._adam.param_groups:
            group["lr"] = settings.learning_rate / decay
        loss = float(np.mean([self._gradient_step() for _ in range(settings.gradient_steps)]))
        self._updates += 1
        weight = averaging_weight(self._updates, settings.averaging_power)
        polyak_update(self._averaged, self._network, weight)
        return {"reward per step": reward, "critic loss": loss}

    def state_dict(self) -> dict[str, Any]:
        filled = min(self._stored, self.settings.buffer_size)
        return {
            **super().state_dict(),
            "buffer": [part[:filled] for part in self._buffer],
            "after_crawl": self._after_crawl,
            "was_crawled": self._was_crawled,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        filled = min(check_whole("stored", state["stored"], 0), self.settings.buffer_size)
        check_like(state["buffer"], [part[:filled] for part in self._buffer], "buffer")
        self._check_last_crawls(state)
        super().load_state_dict(state)
        for part, saved in zip(self._buffer, tensors(state["buffer"]), strict=True):
            part[: len(saved)] = saved.to(self.device)
        self._after_crawl = [part.to(self.device) for part in tensors(state["after_crawl"])]
        self._was_crawled = [part.to(self.device) for part in tensors(state["was_crawled"])]

    def _check_last_crawls(self, state: dict[str, Any]) -> None:
        """Validate the saved columns after crawls, which may be of another number of sources."""
        after, crawled = state["after_crawl"], state["was_crawled"]
        if not (
            isinstance(after, list) and isinstance(crawled, list) and len(after) == len(crawled)
        ):
            raise ValueError("after_crawl and was_crawled must be lists of equal length")
        for i, (columns, flags) in enumerate(zip(after, crawled, strict=True)):
            shape = flags.shape if isinstance(flags, np.ndarray) else ()
            if len(shape) != 2:
                raise ValueError(f"was_crawled[{i}] has shape {shape}; it must be (B, N)")
            check_like(flags, np.zeros(shape, np.float32), f"was_crawled[{i}]", low=0.0)
            d = self._buffer.after_crawl.shape[-1]
            check_like(columns, np.zeros((*shape, d), np.float32), f"after_crawl[{i}]")

    def _reset_last_crawls(self) -> None:
        """Forget the preceding crawls of all sources."""
        shapes = [env.env.world.shape for env in self.training_envs]
        d = self._buffer.after_crawl.shape[-1]
        self._after_crawl = [torch.zeros(*shape, d, device=self.device) for shape in shapes]
        self._was_crawled = [torch.zeros(shape, device=self.device) for shape in shapes]

    # -- collecting ------------------------------------------------------------------------------

    def _policy(self, network: IndexNetwork, task: Task, rng: np.random.Generator) -> IndexPolicy:
        return IndexPolicy(network, self.features, task, self._unit or 1.0, rng, self.device)

    def _estimate_unit(self) -> None:
        """Crawl at random to estimate the scale of rewards."""
        total = crawls = 0.0
        generator = torch_generator(self.rng, self.device)
        for env in self.training_envs:
            for _ in range(self.settings.n_steps):
                priority = torch.empty(env.env.world.shape, device=self.device)
                active, reward, valid = env.step(priority.uniform_(-1, 1, generator=generator))
                total += float(reward[valid].sum())
                crawls += float(active[valid].sum())
        self._unit = total / crawls if total > 0 else 1.0

    @torch.no_grad()
    def _collect(self, which: int) -> _Sequences:
        """Crawl the sources with the largest noisy indices for `n_steps` steps.

        Most of the noise is kept over these steps, so that different ages are visited.
        """
        settings, env = self.settings, self.training_envs[which]
        policy = self._policy(self._network, env.env.task, self.rng)
        b, n = env.env.world.shape
        generator = torch_generator(self.rng, self.device)
        after_crawl, was_crawled = self._after_crawl[which], self._was_crawled[which]
        noise = torch.empty((b, 1), dtype=torch.float64, device=self.device)
        noise.uniform_(0, settings.exploration_noise, generator=generator)
        lasting = torch.empty((b, n), dtype=torch.float64, device=self.device)
        lasting.normal_(generator=generator)
        zero = torch.zeros_like(lasting)
        inputs, actives, rewards, valid = [], [], [], []
        first, usable = after_crawl.clone(), was_crawled.clone()
        for _ in range(settings.n_steps):
            columns, unit = policy.columns(env.observation)
            perturbation = lasting + settings.noise_jitter * gumbel_perturbed(zero, generator)
            score = policy.log_index(env.observation) + noise * perturbation
            active, reward, stepped = env.step(squashed(score.float()))
            crawled, continues = active.float(), stepped.float()[:, None]
            usable = usable * continues
            inputs.append(columns)
            actives.append(crawled)
            rewards.append((reward / unit).float())
            valid.append(usable)
            columns, _ = policy.columns(env.observation)
            after_crawl = torch.where((crawled * continues)[..., None] > 0, columns, after_crawl)
            was_crawled = torch.maximum(was_crawled, crawled) * continues
        inputs.append(columns)
        self._after_crawl[which], self._was_crawled[which] = after_crawl, was_crawled
        some = torch.randperm(b * n, generator=generator, device=self.device)
        some = some[: settings.max_sequences]
        parts = [torch.stack(part, 2).flatten(0, 1) for part in (inputs, actives, rewards, valid)]
        parts.append(first.flatten(0, 1))
        return _Sequences(*(part[some] for part in parts))

    def _store(self, new: _Sequences) -> None:
        """Store the valid sequences in place of the oldest."""
        useful = new.valid[:, 0] > 0
        number = int(useful.sum())
        place = torch.arange(self._stored, self._stored + number) % self.settings.buffer_size
        for part, added in zip(self._buffer, new, strict=True):
            part[place] = added[useful]
        self._stored += number

    # -- training --------------------------------------------------------------------------------

    def _gradient_step(self) -> float:
        """Take one gradient step on the critic; return its loss."""
        settings, filled = self.settings, min(self._stored, self.settings.buffer_size)
        some = torch.from_numpy(self.rng.integers(0, filled, settings.batch_size))
        batch = _Sequences(*(part[some] for part in self._buffer))
        noise = settings.multiplier_std * self.rng.standard_normal(settings.batch_size)
        log_multiplier, target, best = self._targets(batch, self._tensor(noise))
        waiting, crawling = self._network(batch.columns[:, :-1], log_multiplier)
        predicted = torch.where(batch.active > 0, crawling, waiting)
        weight = batch.valid / (1 + best.square())
        loss = ((predicted - target).square() * weight).sum() / weight.sum()
        self._adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._network.parameters(), _MAX_GRAD_NORM)
        self._adam.step()
        polyak_update(self._target, self._network, settings.tau)
        return float(loss.detach())

    @torch.no_grad()
    def _targets(self, batch: _Sequences, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the multipliers ln ℓ, (K, 1), the critic's targets for the actions taken, and its
        largest Q-values, (K, T) each.

        A multiplier is drawn around the index of the first state, so that it does not depend on
        later ones.
        """
        log_multiplier = self._target.index(batch.columns[:, 0]) + noise
        log_multiplier = log_multiplier.clamp(*_LOG_MULTIPLIERS)[:, None]
        waiting, crawling = self._target(batch.columns, log_multiplier)
        best = torch.maximum(waiting, crawling)
        gain = torch.maximum(*self._target(batch.after_crawl, log_multiplier[:, 0]))[:, None]
        net = batch.reward - batch.active * torch.exp(log_multiplier)
        net = net / self._target.unit(log_multiplier) - gain
        greedy = (batch.active > 0) == (crawling > waiting)[:, :-1]
        trace = self.settings.trace_decay * greedy * batch.valid
        target = torch.empty_like(net)
        later = best[:, -1]
        for t in range(net.shape[1] - 1, -1, -1):
            target[:, t] = net[:, t] + later
            later = torch.lerp(best[:, t], target[:, t], trace[:, t])
        return log_multiplier, target, best[:, :-1]

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array.astype(np.float32)).to(self.device)
