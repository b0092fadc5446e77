"""What `equivariant-index` is made of: columns of a source, a network on them, a policy by it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agents.learning.fleet_learner import FleetPolicy
from agents.learning.fleet_network import COUNTS, FLAGS, UTILITIES, Standardised
from crawl_env import Task
from crawl_env.numerics import FloatArray

_LEAST = 0.01  # of a utility, in units, that the logarithm still tells from 0
_TINY = 1e-6  # per epoch: a source that publishes nothing


class SourceColumns:
    """Turns observations (B, N, F) into columns of each source, and the units they are in.

    Utilities are relative to the source's unit: its own Λξ̄T where the features show Λ and ξ̄, else
    one for all. Rates are per epoch. Positive numbers enter as logarithms. A cost is no column:
    with the unit it says what is charged.

    Arguments:
        task: whose observations they are.
        features: those that are read.
        unit: utility, for all sources.

    Raises:
        ValueError: the task does not show one of them.
    """

    def __init__(self, task: Task, features: Sequence[str], unit: float) -> None:
        missing = [name for name in features if name not in task.features]
        if missing:
            raise ValueError(
                f"the network reads the features {', '.join(features)}, and the environment does "
                f"not show {', '.join(missing)}; add to `features`"
            )
        self._place = {name: task.features.index(name) for name in features}
        self._names, self._unit = self.read(features), unit
        self._flow = _shows_flow(features)
        self._period = task.sources.period

    @staticmethod
    def read(features: Sequence[str]) -> tuple[str, ...]:
        """Return the features that become columns.

        Raises:
            ValueError: none does.
        """
        left = ("cost", "account", *(("mean_utility",) if _shows_flow(features) else ()))
        names = tuple(name for name in features if name not in left)
        if not names:
            raise ValueError(
                f"features are {', '.join(features)}, which say nothing of a source's state; add "
                "'value' or 'age'"
            )
        return names

    def __call__(self, observation: NDArray[np.float32]) -> tuple[FloatArray, FloatArray]:
        """Return columns (B, N, D), and units (B, N), utility."""
        seen = {n: observation[..., i].astype(np.float64) for n, i in self._place.items()}
        unit = np.full(observation.shape[:-1], self._unit)
        if self._flow:
            flow = seen["arrival_rate"] * seen["mean_utility"] * self._period
            unit = np.maximum(flow, _TINY * self._unit)
        columns = [self._column(name, seen[name], unit) for name in self._names]
        return np.stack(columns, axis=-1), unit

    def cost(self, observation: NDArray[np.float32]) -> FloatArray:
        """Return what crawls cost, (B, N), 1 where it is not shown."""
        if "cost" not in self._place:
            return np.ones(observation.shape[:-1])
        return observation[..., self._place["cost"]].astype(np.float64)

    def _column(self, name: str, x: FloatArray, unit: FloatArray) -> FloatArray:
        if name in (*UTILITIES, "mean_utility"):
            return np.log(x / unit + _LEAST)
        if name in COUNTS:
            return np.log1p(x)
        if name in FLAGS:
            return x
        return np.log(x * self._period + _TINY)  # arrival_rate, decay_rate


def _shows_flow(features: Sequence[str]) -> bool:
    return {"arrival_rate", "mean_utility"} <= set(features)


class IndexNetwork(Standardised):
    """The index of a source and, built on it, what crawling and waiting are worth.

    Arguments:
        names: of the columns, D of them.
        hidden: units of each of two layers.
    """

    def __init__(self, names: Sequence[str], hidden: int) -> None:
        super().__init__(len(names))
        self._utilities = [i for i, name in enumerate(names) if name in UTILITIES]
        d = len(names)
        self._index = _layers(d, hidden, 1)
        self._worth = _layers(d + 2 + len(self._utilities), hidden, 2)

    def index(self, columns: Tensor) -> Tensor:
        """Return f(s), the logarithm of the index in the source's unit: (..., D) to (...)."""
        return self._index(self.standard(columns)).squeeze(-1)

    def forward(self, columns: Tensor, charge: Tensor) -> tuple[Tensor, Tensor]:
        """Return Q(s, ℓ, 0) and Q(s, ℓ, 1), in units of 1 + ℓ: (..., D) and ln ℓ (...) to (...)."""
        own = self.standard(columns)
        unit = self.unit(charge).expand(columns.shape[:-1])
        charge = charge.expand(columns.shape[:-1])
        charged = torch.stack((charge / 2, 2 / unit - 1), dim=-1)
        waits = torch.exp(columns[..., self._utilities]) / unit[..., None]
        crawling, steep = self._worth(torch.cat((own, charged, waits), dim=-1)).unbind(-1)
        gain = torch.exp((steep - 2).clamp(-8, 4)) * (self._index(own).squeeze(-1) - charge)
        return crawling - gain, crawling

    @staticmethod
    def unit(charge: Tensor) -> Tensor:
        """Return 1 + ℓ, from ln ℓ."""
        return 1 + torch.exp(charge)


def _layers(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.SiLU(),
        nn.Linear(hidden, hidden),
        nn.SiLU(),
        nn.Linear(hidden, outputs),
    )


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
