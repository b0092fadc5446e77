"""Proximal policy optimisation of one network for all sources and all fleets.

J. Schulman et al.: Proximal policy optimization algorithms, arXiv 1707.06347. To the score of each
source a Gumbel variable is added, and the largest are crawled. What is judged is each source's own
choice: given what the others drew, source i is crawled where its perturbed score exceeds a
threshold τ, which happens with probability 1 − exp(−exp(s_i − τ)).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agents.learning.fleet.base import (
    BoolArray,
    FleetLearner,
    FleetPolicy,
    Practice,
    follow,
    fresh_share,
    perturbed,
    priority_of,
)
from agents.learning.fleet.networks import Columns, FleetNetwork
from agents.learning.storage import tensors
from crawl_env import Task
from crawl_env.numerics import FloatArray
from crawl_env.simulation.selection import TOLERANCE

_NO_CRAWL = 1e-6  # of cost: below that nothing was crawled by chance


@dataclass(frozen=True)
class EquivariantPPOSettings:
    """One set for all uses, found by hand on Table 1 (M = 2), on 10 and 100 recovering bandits and
    on random fleets of 10 and 40 sources, one or two seeds each.

    `entropy`: without it Table 1 stayed at what myopic earns for more than 640 epochs of 64 rows,
    with it for less than 640. It fades with N, since with .1 at any N random fleets did worse (.80
    to .93 after 1 600 epochs, though under another horizon). `few`: with 0 Table 1 stays at what
    myopic earns. `rate`: with 1e-3 (and `entropy` .01) random fleets are at .73 to .77 after 640
    epochs of 1 280 sources, with 3e-3 at .91 to .93. These take longer than a single fleet: .95 to
    .96 after 1 280 epochs.
    """

    hidden: int = 32  # units of each layer
    window: int = 32  # epochs between improvements
    trace: float = 0.97  # λ of generalised advantage estimation
    rate: float = 3e-3  # of Adam, divided by 1 + improvements/slower
    slower: float = 50.0
    passes: int = 4  # over a window
    batches: int = 4  # a pass
    few: float = 5.0  # up to as many sources a choice is judged by all advantages, see `_worth`
    entropy: float = 0.1  # worth of a choice's entropy where sources are few; divided as the rate
    clip: float = 0.2  # of the probability ratio
    steepest: float = 0.5  # norm of a gradient
    latest: float = 4.0  # the policy played is the mean of those so far, weighted by n^(latest − 1)


class _Window(NamedTuple):
    """What happened in T epochs of B rows of N sources."""

    columns: Tensor  # (T + 1, B, N, D)
    active: Tensor  # (T, B, N) which sources were crawled
    threshold: Tensor  # (T, B, N) what each perturbed score had to exceed, given the others
    brought: Tensor  # (T, B, N, 2) reward and cost, in units of the row's mean per source
    valid: Tensor  # (T, B) 0 where the epoch was a reset


class _Lesson(NamedTuple):
    """A window as S = T·B samples, and what is to be learnt from it."""

    columns: Tensor  # (S, N, D)
    active: Tensor  # (S, N)
    threshold: Tensor  # (S, N)
    before: Tensor  # (S, N) logarithm of each choice's probability when it was made
    worth: Tensor  # (S, N) of each choice
    target: Tensor  # (S, N, 2) what the critic should say
    spread: Tensor  # (2,) variance of that


class EquivariantPPO(FleetLearner):
    """Learns scores from what crawls bring; average reward, so without discount.

    The critic is a network of the same kind: the value of a fleet is a sum over its sources, each
    learnt from what that source brought, and beside it what its crawls cost. Rewards are divided
    by the row's own mean reward, so that fleets of any scale weigh the same. Inputs are the
    features that the environment shows, all of them and nothing else; without parameters among
    them, all sources that look alike are treated alike.

    Arguments:
        arms: one vector environment, or several (of any N and M), each of which is practised in
            turn. `sources` may be drawn anew at each reset.
        settings, seed, device: as of `Learner`.

    Raises:
        ValueError: environments that show different features, or none of whose actions are
            priorities under a budget in every epoch.

    >>> from crawl_env import CrawlVectorEnv
    >>> env = CrawlVectorEnv(8, budget=2, features=("age", "decay_rate"), horizon=None)
    >>> agent = EquivariantPPO(env).learn(32)
    >>> agent.predict(env.reset(seed=0)[0])[0].shape
    (8, 4)
    """

    name = "equivariant-ppo"
    Settings = EquivariantPPOSettings
    settings: EquivariantPPOSettings

    def policy(self, task: Task, rng: np.random.Generator) -> FleetPolicy:
        return ScoredPolicy(self._played, self.features, task, rng, self.device)

    # -- what `Learner` asks for -----------------------------------------------------------------

    def prepare(self) -> None:
        number = Columns.of(self.practices[0].env.task).number
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self._policy = FleetNetwork(number, self.settings.hidden).to(self.device)
            self._critic = FleetNetwork(number, self.settings.hidden, 2).to(self.device)
        self._played = deepcopy(self._policy)
        weights = [*self._policy.parameters(), *self._critic.parameters()]
        self._adam = torch.optim.Adam(weights, lr=self.settings.rate)
        self._improvements = 0

    def improve(self) -> dict[str, float]:
        settings = self.settings
        for group in self._adam.param_groups:
            group["lr"] = settings.rate * self._fading
        windows = [self._collect(practice) for practice in self.practices]
        if self._improvements == 0:
            seen = torch.cat([window.columns.flatten(0, 2) for window in windows])
            for network in (self._policy, self._critic, self._played):
                network.standardise(seen)
        error = self._learn([self._lesson(window) for window in windows])
        self._improvements += 1
        follow(self._played, self._policy, fresh_share(self._improvements, settings.latest))
        earned = float(np.mean([practice.gain.mean() for practice in self.practices]))
        return {"reward per epoch": earned, "value, unexplained share": error}

    def memory(self) -> dict[str, Any]:
        parts = {"policy": self._policy, "critic": self._critic, "played": self._played}
        return {
            **{name: dict(part.state_dict()) for name, part in parts.items()},
            "adam": self._adam.state_dict(),
            "improvements": self._improvements,
        }

    def remember(self, memory: dict[str, Any]) -> None:
        self._policy.load_state_dict(tensors(memory["policy"]))
        self._critic.load_state_dict(tensors(memory["critic"]))
        self._played.load_state_dict(tensors(memory["played"]))
        self._adam.load_state_dict(tensors(memory["adam"]))
        self._improvements = memory["improvements"]

    # -- learning --------------------------------------------------------------------------------

    @torch.no_grad()
    def _collect(self, practice: Practice) -> _Window:
        """Crawl for a window, by chance as the policy has it."""
        columns = Columns.of(practice.env.task, self.features)
        seen, actives, thresholds, rewards, costs, gains, valid = [], [], [], [], [], [], []
        for _ in range(self.settings.window):
            seen.append(columns(self._tensor(practice.observation)))
            costs.append(practice.cost)  # before the step, which may draw another fleet
            score = self._policy(seen[-1]).cpu().numpy()
            drawn = perturbed(score, self.rng)
            active, reward, steps = practice.step(priority_of(drawn))
            actives.append(active)
            thresholds.append(threshold_of(drawn, active, costs[-1]))
            rewards.append(reward)
            gains.append(practice.gain)
            valid.append(steps)
        seen.append(columns(self._tensor(practice.observation)))
        level = _level(np.stack(gains), np.stack(valid)) / score.shape[-1]
        reward = np.stack(rewards) / level[..., None]
        spent = np.stack(actives) * np.stack(costs)
        return _Window(
            torch.stack(seen),
            self._tensor(np.stack(actives)),
            self._tensor(np.stack(thresholds)),
            self._tensor(np.stack((reward, spent), axis=-1).astype(np.float32)),
            self._tensor(np.stack(valid).astype(np.float32)),
        )

    @torch.no_grad()
    def _advantages(self, window: _Window) -> tuple[Tensor, Tensor]:
        """Return every source's advantages in reward and in cost, and what the critic should have
        said, (T, B, N, 2) each.

        A_t = Σ_k λ^k (r_{t+k} − 1 + v_{t+k+1} − v_{t+k}), until the row is reset. What is
        subtracted is the fleet's mean, not the source's own: the values of sources that bring more
        or less than it move apart for ever, by a constant of each source, on which no choice
        depends. Sources' own means were tried instead, and learnt no better (dense fleets of 30).
        """
        value = self._critic(window.columns)
        surprise = window.brought - 1 + value[1:] - value[:-1]
        advantage = torch.empty_like(surprise)
        later = torch.zeros_like(surprise[0])
        for t in range(len(surprise) - 1, -1, -1):
            later = (surprise[t] + self.settings.trace * later) * window.valid[t, :, None, None]
            advantage[t] = later
        return advantage, advantage + value[:-1]

    @torch.no_grad()
    def _worth(self, window: _Window, advantage: Tensor) -> Tensor:
        """Return what each choice was worth, (T, B, N): its advantage, less what its cost would
        have brought elsewhere.

        A crawl takes a place now and leaves its source less in need of one soon, which differs
        between sources: so later costs count too, as an advantage of their own. Their price is what
        a unit brings at the margin, estimated for each row from what chance alone had crawled,
        a − p. No unit brings less than nothing there, nor more than it does on average, which is
        the 1 of these rewards and costs. In small fleets it depends on who is pushed out: there the
        advantages of the others are counted themselves, which is exact, but in large fleets noise.
        """
        p = torch.exp(log_crawled(self._policy(window.columns[:-1]), window.threshold))
        valid = window.valid[..., None]
        chance = (window.active.float() - p) * valid
        bought = (advantage * chance[..., None]).sum((0, 2))  # (B, 2)
        price = (bought[:, 0] / bought[:, 1].clamp_min(_NO_CRAWL)).clamp(0, 1)
        reward, cost = advantage.unbind(-1)
        alone = reward - price[:, None] * cost
        worth = alone + self._small(alone.shape[-1]) * (reward.sum(-1, keepdim=True) - alone)
        return worth / (worth.std() + 1e-8) * valid

    def _small(self, n: int) -> float:
        """Return how far n sources are few: 1, falling as 1/n²."""
        return min(1.0, (self.settings.few / n) ** 2)

    @property
    def _fading(self) -> float:
        return 1 / (1 + self._improvements / self.settings.slower)

    @torch.no_grad()
    def _lesson(self, window: _Window) -> _Lesson:
        """Return what a window teaches, before anything is learnt from it."""
        advantage, target = self._advantages(window)
        worth = self._worth(window, advantage)
        columns, threshold = window.columns[:-1].flatten(0, 1), window.threshold.flatten(0, 1)
        active = window.active.flatten(0, 1)
        before = log_probability(self._policy(columns), active, threshold)
        target = target.flatten(0, 1)
        spread = target.var(dim=(0, 1)) + 1e-8
        return _Lesson(columns, active, threshold, before, worth.flatten(0, 1), target, spread)

    def _learn(self, lessons: list[_Lesson]) -> float:
        """Improve policy and critic; return the critic's unexplained share."""
        settings, lost = self.settings, []
        for _ in range(settings.passes):
            parts = [
                self._tensor(self.rng.permutation(len(lesson.active))).chunk(settings.batches)
                for lesson in lessons
            ]
            for some in zip(*parts, strict=True):
                losses = [
                    self._loss(lesson, which) for lesson, which in zip(lessons, some, strict=True)
                ]
                chosen, error = (torch.stack(part).mean() for part in zip(*losses, strict=True))
                self._adam.zero_grad()
                (chosen + 0.5 * error).backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(self._policy.parameters(), settings.steepest)
                self._adam.step()
                lost.append(float(error.detach()))
        return float(np.mean(lost))

    def _loss(self, lesson: _Lesson, some: Tensor) -> tuple[Tensor, Tensor]:
        """Return the policy's loss and the critic's unexplained share on some epochs."""
        settings = self.settings
        columns, threshold = lesson.columns[some], lesson.threshold[some]
        score = self._policy(columns)
        now = log_probability(score, lesson.active[some], threshold)
        ratio, gain = torch.exp(now - lesson.before[some]), lesson.worth[some]
        limited = ratio.clamp(1 - settings.clip, 1 + settings.clip)
        chosen = -torch.minimum(ratio * gain, limited * gain).mean()
        kept = settings.entropy * self._fading * self._small(score.shape[-1])
        chosen = chosen - kept * entropy(score, threshold).mean()
        error = ((self._critic(columns) - lesson.target[some]) ** 2 / lesson.spread).mean()
        return chosen, error

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device)


class ScoredPolicy(FleetPolicy):
    """A network of scores that plays in one task."""

    def __init__(
        self,
        network: FleetNetwork,
        features: Sequence[str],
        task: Task,
        rng: np.random.Generator,
        device: str = "cpu",
    ) -> None:
        super().__init__(task, rng)
        self._network, self._device = network, device
        self._columns = Columns.of(task, features)

    @torch.no_grad()
    def score(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        columns = self._columns(torch.from_numpy(observation))
        return np.asarray(self._network(columns.to(self._device)).cpu().numpy())


def _level(gain: FloatArray, valid: BoolArray) -> FloatArray:
    """Return what the row's fleet earned per epoch by the end of the window, or, before a reset in
    it, by then; 1 where nothing was earned. gain, valid: (T, B)."""
    level = gain.copy()
    for t in range(len(gain) - 2, -1, -1):
        level[t] = np.where(valid[t + 1], level[t + 1], gain[t])
    return np.where(level > 0, level, 1.0)


_FAR = 1e9  # beyond every score
_FINITE = (-30.0, 10.0)  # where probabilities, and their derivatives, are numbers in float32


def log_crawled(score: Tensor, threshold: Tensor) -> Tensor:
    """Return ln P(s + Gumbel > τ) = ln(1 − exp(−exp(s − τ)))."""
    return torch.log(-torch.expm1(-torch.exp((score - threshold).clamp(*_FINITE))))


def log_probability(score: Tensor, active: Tensor, threshold: Tensor) -> Tensor:
    """Return the logarithm of the probability of each source's own choice, given the others'.

    >>> score, threshold = torch.zeros(2), torch.zeros(2)
    >>> log_probability(score, torch.tensor([True, False]), threshold).exp()  # 1 − 1/e, 1/e
    tensor([0.6321, 0.3679])
    """
    left = -torch.exp((score - threshold).clamp(*_FINITE))
    return torch.where(active, log_crawled(score, threshold), left)


def entropy(score: Tensor, threshold: Tensor) -> Tensor:
    """Return the entropy of each source's own choice, given the others', in nats.

    >>> entropy(torch.log(torch.log(torch.tensor([2.0]))), torch.zeros(1))  # p = 1/2: ln 2
    tensor([0.6931])
    """
    crawled, left = (
        log_probability(score, torch.full_like(score, a, dtype=torch.bool), threshold)
        for a in (True, False)
    )
    return -(torch.exp(crawled) * crawled + torch.exp(left) * left)


def threshold_of(
    drawn: NDArray[np.float32], active: BoolArray, cost: FloatArray
) -> NDArray[np.float32]:
    """Return what each perturbed score, (B, N), had to exceed to be crawled, the others given.

    At equal costs it is the best that was not crawled, or for that and those behind it the last
    that was. Else the others are taken in order as the crawl does, and it is the score of the one
    that leaves too little for this source.

    Arguments:
        drawn: perturbed scores, all of which may be crawled now.
        active: what was crawled.
        cost: of crawls, (B, N), in units of M/N, so that N are spent in an epoch.
    """
    if (cost == cost[:, :1]).all():
        best = np.max(drawn, axis=-1, keepdims=True, where=~active, initial=-_FAR)
        last = np.min(drawn, axis=-1, keepdims=True, where=active, initial=_FAR)
        return np.where(active, best, last).astype(np.float32)
    return _threshold_in_line(drawn, cost)


def _threshold_in_line(drawn: NDArray[np.float32], cost: FloatArray) -> NDArray[np.float32]:
    rows, n = np.arange(len(drawn)), drawn.shape[-1]
    slack = n * TOLERANCE
    left = np.full(drawn.shape, float(n))  # for the others, were each source left out
    threshold = np.where(cost <= left + slack, -_FAR, _FAR).astype(np.float32)
    for which in np.argsort(-drawn, axis=-1).T:
        price = cost[rows, which][:, None]
        spent = np.where(price <= left + slack, price, 0.0)
        spent[rows, which] = 0.0
        enough = left + slack >= cost
        left -= spent
        now_less = enough & (left + slack < cost)
        np.copyto(threshold, drawn[rows, which][:, None], where=now_less)
        if (left + slack < cost.min()).all():
            break
    return threshold
