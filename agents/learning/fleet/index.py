"""One network that says the Whittle index of every source of every fleet, learnt by its critic.

A source's index depends on nothing but the source, so one function of its own columns serves fleets
of any N and M, and each epoch of each source is a sample for it. As in DeepTOP (K. Nakhleh, I-H.
Hou, NeurIPS 2022) a critic learns under many charges λ what crawling and waiting are worth. What it
says of the gain is

    Q(s, ℓ, 1) − Q(s, ℓ, 0) = exp(σ(s, ℓ)) · [f(s) − ln ℓ],

positive below the charge exp(f(s)) and negative above, which any indexable source's is: so the
index is a part of the critic, and needs no actor of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agents.learning.fleet.base import FleetLearner, FleetPolicy, follow, fresh_share, priority_of
from agents.learning.fleet.networks import IndexNetwork, SourceColumns
from agents.learning.storage import tensors
from crawl_env import Task
from crawl_env.numerics import FloatArray

_CHARGES = (-7.0, 6.0)  # logarithms of the least and the largest, in units
_STEEPEST = 1.0  # norm of a gradient


@dataclass(frozen=True)
class EquivariantIndexSettings:
    """One set for all uses, found by hand on random fleets of 40 sources, one seed each.

    `spread`: .5 and 1 do equally well; with 2, and errors not yet relative to 1 + |Q|, indices of
    old sources came out at a third to a half of what they are. `trace`: with 1 it takes twice as
    long until the first indices are of use. `rate`: also found with squared errors; absolute ones
    (Huber's) learn the median of noisy rewards, not their mean, and sparse fleets then fall to .9.

    Longer runs do not find better indices: after 20 CPU seconds or 80 they are still some 30 % off
    (root mean square, over ages from 1 to 64 and the decay rates of random fleets): too large where
    interest falls fast and the source is young, too small where it is old.
    """

    hidden: int = 48  # units of each of two layers
    window: int = 24  # epochs between improvements, and of a sequence
    sequences: int = 256  # at most, that are kept of a window of each environment
    replay: int = 20_000  # sequences
    batch: int = 96  # sequences in an update
    updates: int = 12  # in an improvement
    trace: float = 0.95  # λ of Watkins's Q(λ)
    rate: float = 2e-3  # of Adam, divided by 1 + improvements/slower
    slower: float = 50.0
    follow: float = 0.02  # share of the way that the target goes to the critic at each update
    noise: float = 1.5  # at most, standard deviation of what is added to ln index in a row
    jitter: float = 0.3  # share of that which is drawn anew in each epoch, beside it
    spread: float = 0.7  # standard deviation of ln λ around an index of the sequence's source
    latest: float = 4.0  # the index played is the mean of those so far, weighted by n^(latest − 1)


class _Sequences(NamedTuple):
    """What happened to K sources in T epochs, in each source's own unit."""

    columns: Tensor  # (K, T + 1, D)
    active: Tensor  # (K, T) 1 where it was crawled
    reward: Tensor  # (K, T)
    valid: Tensor  # (K, T) 0 from the first reset on, or where no crawl went before
    after: Tensor  # (K, D) columns right after the last crawl before


class EquivariantIndex(FleetLearner):
    """Learns indices of the average reward, without discount, from what crawls bring.

    For a charge ℓ drawn anew for each sequence, the critic's target follows Watkins's Q(λ): from
    r − ℓa − g + max_b Q′(s′, ℓ, b) it goes on along the sequence for as long as what was done is
    what the critic would do. The gain g is max_b Q′(s₀, ℓ, b), with s₀ the state in which the same
    source was seen right after a crawl (relative value iteration). Errors are relative to 1 + |Q|.

    Utilities and charges are in units of the source's own Λξ̄T where the features show Λ and ξ̄,
    else in units of what a crawl brought on average in the first window, one unit for all. Inputs
    are the features that the environment shows, but for cost, which with the unit says what is
    charged. Indices are meant to be positive: rewards must not be negative.

    Arguments:
        arms: one vector environment, or several (of any N and M). `sources` may be drawn anew at
            each reset; horizons should be long beside `window`.
        settings, seed, device: as of `Learner`.

    Raises:
        ValueError: environments that show different features, or nothing but costs, or none of
            whose actions are priorities under a budget in every epoch.

    >>> from crawl_env import CrawlVectorEnv
    >>> env = CrawlVectorEnv(8, budget=2, features=("age", "decay_rate"), horizon=None)
    >>> agent = EquivariantIndex(env).learn(48)
    >>> agent.predict(env.reset(seed=0)[0])[0].shape
    (8, 4)
    """

    name = "equivariant-index"
    Settings = EquivariantIndexSettings
    settings: EquivariantIndexSettings

    def policy(self, task: Task, rng: np.random.Generator) -> IndexPolicy:
        return self._policy(self._played, task, rng)

    @classmethod
    def load(cls, path: str | PathLike[str], arms: Any, device: str = "cpu") -> Self:
        agent = super().load(path, arms, device)
        agent._forget()
        return agent

    # -- what `Learner` asks for -----------------------------------------------------------------

    def prepare(self) -> None:
        settings = self.settings
        names = SourceColumns.read(self.features)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self._network = IndexNetwork(names, settings.hidden).to(self.device)
        self._target, self._played = deepcopy(self._network), deepcopy(self._network)
        self._adam = torch.optim.Adam(self._network.parameters(), lr=settings.rate)
        s, t, d = settings.replay, settings.window, len(names)
        shapes = (s, t + 1, d), (s, t), (s, t), (s, t), (s, d)
        self._replay = _Sequences(*(torch.zeros(shape, device=self.device) for shape in shapes))
        self._kept = self._improvements = 0
        self._unit = 0.0  # utility; 0 before the first window
        self._forget()

    def improve(self) -> dict[str, float]:
        settings = self.settings
        if self._unit == 0:
            self._look()
        else:
            for which in range(len(self.practices)):
                self._keep(self._collect(which))
        earned = float(np.mean([practice.gain.mean() for practice in self.practices]))
        if self._kept == 0:
            return {"reward per epoch": earned}
        if self._improvements == 0:
            seen = self._replay.columns[: self._kept].flatten(0, 1)
            for network in (self._network, self._target, self._played):
                network.standardise(seen)
        for group in self._adam.param_groups:
            group["lr"] = settings.rate / (1 + self._improvements / settings.slower)
        error = float(np.mean([self._update() for _ in range(settings.updates)]))
        self._improvements += 1
        follow(self._played, self._network, fresh_share(self._improvements, settings.latest))
        return {"reward per epoch": earned, "critic's squared error": error}

    def memory(self) -> dict[str, Any]:
        parts = {"network": self._network, "target": self._target, "played": self._played}
        filled = min(self._kept, self.settings.replay)
        return {
            **{name: dict(part.state_dict()) for name, part in parts.items()},
            "adam": self._adam.state_dict(),
            "replay": [part[:filled] for part in self._replay],
            "after": self._after,
            "known": self._known,
            "unit": self._unit,
            "kept": self._kept,
            "improvements": self._improvements,
        }

    def remember(self, memory: dict[str, Any]) -> None:
        self._network.load_state_dict(tensors(memory["network"]))
        self._target.load_state_dict(tensors(memory["target"]))
        self._played.load_state_dict(tensors(memory["played"]))
        self._adam.load_state_dict(tensors(memory["adam"]))
        for part, saved in zip(self._replay, tensors(memory["replay"]), strict=True):
            part[: len(saved)] = saved.to(self.device)
        self._after, self._known = tensors(memory["after"]), tensors(memory["known"])
        self._unit, self._kept = memory["unit"], memory["kept"]
        self._improvements = memory["improvements"]

    def _forget(self) -> None:
        """Forget how each source looked right after its last crawl, and whether there was one."""
        worlds = [practice.env.world.shape for practice in self.practices]
        d = self._replay.after.shape[-1]
        self._after = [torch.zeros(*shape, d, device=self.device) for shape in worlds]
        self._known = [torch.zeros(shape, device=self.device) for shape in worlds]

    # -- what happens ----------------------------------------------------------------------------

    def _policy(self, network: IndexNetwork, task: Task, rng: np.random.Generator) -> IndexPolicy:
        return IndexPolicy(network, self.features, task, self._unit or 1.0, rng, self.device)

    def _look(self) -> None:
        """Crawl by chance for a window, to see how large rewards are."""
        brought = crawls = 0.0
        for practice in self.practices:
            for _ in range(self.settings.window):
                chance = self.rng.uniform(-1, 1, practice.env.world.shape)
                active, reward, valid = practice.step(chance.astype(np.float32))
                brought += float(reward[valid].sum())
                crawls += float(active[valid].sum())
        self._unit = brought / crawls if brought > 0 else 1.0

    @torch.no_grad()
    def _collect(self, which: int) -> _Sequences:
        """Crawl for a window what has the largest index, times chance.

        Much of chance stays the same for the window, so that ages differ.
        """
        settings, practice = self.settings, self.practices[which]
        policy = self._policy(self._network, practice.env.task, self.rng)
        shape = practice.env.world.shape
        after, known = self._after[which], self._known[which]
        width = self.rng.uniform(0, settings.noise, (shape[0], 1))
        lasting = self.rng.normal(size=shape)
        seen, actives, rewards, valid = [], [], [], []
        first, same = after.clone(), known.clone()
        for _ in range(settings.window):
            columns, unit = policy.columns(practice.observation)
            chance = lasting + settings.jitter * self.rng.gumbel(size=shape)
            score = policy.log_index(practice.observation) + width * chance
            active, reward, steps = practice.step(priority_of(score.astype(np.float32)))
            crawled, goes_on = self._tensor(active), self._tensor(steps)[:, None]
            same = same * goes_on
            seen.append(columns)
            actives.append(crawled)
            rewards.append(self._tensor(reward / unit))
            valid.append(same)
            columns, _ = policy.columns(practice.observation)
            after = torch.where((crawled * goes_on)[..., None] > 0, columns, after)
            known = torch.maximum(known, crawled) * goes_on
        seen.append(columns)
        self._after[which], self._known[which] = after, known
        some = self.rng.permutation(shape[0] * shape[1])[: settings.sequences]
        parts = [torch.stack(part, 2).flatten(0, 1) for part in (seen, actives, rewards, valid)]
        parts.append(first.flatten(0, 1))
        return _Sequences(*(part[torch.from_numpy(some)] for part in parts))

    def _keep(self, new: _Sequences) -> None:
        """Keep sequences in place of the oldest, but those that teach nothing."""
        useful = new.valid[:, 0] > 0
        number = int(useful.sum())
        place = torch.arange(self._kept, self._kept + number) % self.settings.replay
        for part, added in zip(self._replay, new, strict=True):
            part[place] = added[useful]
        self._kept += number

    # -- what is learnt of it --------------------------------------------------------------------

    def _update(self) -> float:
        """Take one step down the critic's error; return what it was."""
        settings, filled = self.settings, min(self._kept, self.settings.replay)
        some = torch.from_numpy(self.rng.integers(0, filled, settings.batch))
        batch = _Sequences(*(part[some] for part in self._replay))
        chance = settings.spread * self.rng.standard_normal(settings.batch)
        charge, target, best = self._lesson(batch, self._tensor(chance))
        waiting, crawling = self._network(batch.columns[:, :-1], charge)
        said = torch.where(batch.active > 0, crawling, waiting)
        weight = batch.valid / (1 + best.square())
        loss = ((said - target).square() * weight).sum() / weight.sum()
        self._adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._network.parameters(), _STEEPEST)
        self._adam.step()
        follow(self._target, self._network, settings.follow)
        return float(loss.detach())

    @torch.no_grad()
    def _lesson(self, batch: _Sequences, chance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the charges ln ℓ, (K, 1), and, (K, T) each, what the critic should say of what was
        done, and what it says of the best.

        A charge is drawn around the index of the first state, as it must not tell what came later.
        """
        charge = self._target.index(batch.columns[:, 0]) + chance
        charge = charge.clamp(*_CHARGES)[:, None]
        waiting, crawling = self._target(batch.columns, charge)
        best = torch.maximum(waiting, crawling)
        level = torch.maximum(*self._target(batch.after, charge[:, 0]))[:, None]
        paid = batch.reward - batch.active * torch.exp(charge)
        gain = paid / self._target.unit(charge) - level
        agrees = (batch.active > 0) == (crawling > waiting)[:, :-1]
        goes_on = self.settings.trace * agrees * batch.valid
        target = torch.empty_like(gain)
        later = best[:, -1]
        for t in range(gain.shape[1] - 1, -1, -1):
            target[:, t] = gain[:, t] + later
            later = torch.lerp(best[:, t], target[:, t], goes_on[:, t])
        return charge, target, best[:, :-1]

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array.astype(np.float32)).to(self.device)


class IndexPolicy(FleetPolicy):
    """Crawls what has the largest index, in a task that need not be one it has learnt in."""

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

    def columns(self, observation: NDArray[np.float32]) -> tuple[Tensor, FloatArray]:
        """Return columns (B, N, D) and units (B, N) of a batch."""
        columns, unit = self._columns(observation)
        return torch.from_numpy(columns.astype(np.float32)).to(self._device), unit

    @torch.no_grad()
    def log_index(self, observation: NDArray[np.float32]) -> FloatArray:
        """Return the logarithms of the indices, utility per budget unit: (B, N, F) to (B, N)."""
        columns, unit = self.columns(observation)
        own = self._network.index(columns).cpu().numpy().astype(np.float64)
        return own + np.log(unit / self._columns.cost(observation))

    def score(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        return self.log_index(observation).astype(np.float32)
