"""One small network that scores every source of every fleet alike.

A source's score depends on its own columns and on their means over the fleet, so that exchanging
two sources exchanges their scores (deep sets; M. Zaheer et al., NeurIPS 2017, arXiv 1703.06114).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from crawl_env import Task

_LEAST = 0.01  # of a utility, relative to the fleet's scale, that the logarithm still tells from 0
_TINY = 1e-6  # per epoch: a source that publishes nothing
_FLOOR = 1e-300
_LEAST_SPREAD = 0.2  # of a column: what hardly varied must not blow up elsewhere

UTILITIES = ("value", "harvest")
COUNTS = ("age", "items")
FLAGS = ("crawled", "available", "failed", "picked")


class Columns:
    """Turns observations into columns free of units: (..., N, F) to (..., N, D) float32.

    Utilities are relative to the mean of Λξ̄T over the fleet where the features show it, else to
    the mean of the first utility that they show; rates are per epoch, costs relative to their mean
    and the account to the budget. Positive numbers enter as logarithms. The last column is the
    share of the fleet that an epoch pays for, M/ΣC (M/N where costs are not shown). Nothing but the
    observation, M, N and T is used.

    Arguments:
        shown: the features of the observation, in order; `picked` is the last of
            `SequentialSelection`.
        budget: M. period: T.
        features: those that are read, in this order; default all.

    Raises:
        ValueError: one of them is not shown.

    >>> columns = Columns(("age", "decay_rate"), budget=1.0, period=1.0)
    >>> columns(torch.tensor([[1.0, 0.7], [2.0, 0.35], [1.0, 0.7], [1.0, 0.21]])).shape
    torch.Size([4, 3])
    """

    def __init__(
        self,
        shown: Sequence[str],
        budget: float,
        period: float,
        features: Sequence[str] | None = None,
    ) -> None:
        self.features = tuple(shown if features is None else features)
        missing = [name for name in self.features if name not in shown]
        if missing:
            raise ValueError(
                f"the network reads the features {', '.join(self.features)}, and the environment "
                f"does not show {', '.join(missing)}; add to `features`"
            )
        self._place = {name: list(shown).index(name) for name in self.features}
        self._flow = {"arrival_rate", "mean_utility"} <= set(self.features)
        self._budget, self._period = budget, period

    @classmethod
    def of(cls, task: Task, features: Sequence[str] | None = None) -> Columns:
        """Return the columns for what a task shows."""
        return cls(task.features, task.budget, task.sources.period, features)

    @property
    def number(self) -> int:
        """D."""
        return len(self.features) + 1

    def __call__(self, observation: Tensor) -> Tensor:
        seen = {name: observation[..., place] for name, place in self._place.items()}
        scale = self._scale(seen)
        columns = [self._column(name, seen, scale) for name in self.features]
        cost = seen.get("cost", torch.ones_like(observation[..., 0]))
        share = torch.log(self._budget / cost.sum(-1, keepdim=True))
        return torch.stack([*columns, share.expand_as(cost)], dim=-1).float()

    def _scale(self, seen: dict[str, Tensor]) -> Tensor | float:
        if self._flow:
            utility = seen["arrival_rate"].double() * seen["mean_utility"] * self._period
        else:
            shown = [seen[name] for name in (*UTILITIES, "mean_utility") if name in seen]
            if not shown:
                return 1.0
            utility = shown[0].double()
        return utility.mean(-1, keepdim=True).clamp_min(_FLOOR)

    def _column(self, name: str, seen: dict[str, Tensor], scale: Tensor | float) -> Tensor:
        x = seen[name]
        if name in UTILITIES:
            return torch.log(x / scale + _LEAST)
        if name in COUNTS:
            return torch.log1p(x)
        if name in FLAGS:
            return x
        if name == "account":
            return x / self._budget
        if name == "cost":
            return torch.log(x / x.mean(-1, keepdim=True))
        if name == "mean_utility":
            flow = x.double() * seen["arrival_rate"] * self._period if self._flow else x
            return torch.log(flow / scale + _TINY)
        return torch.log(x * self._period + _TINY)  # arrival_rate, decay_rate


class Standardised(nn.Module):
    """A network whose columns, D of them, are standardised by what `standardise` was shown."""

    mean: Tensor
    spread: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(columns))
        self.register_buffer("spread", torch.ones(columns))

    def standardise(self, columns: Tensor) -> None:
        """Take mean and standard deviation of columns, (samples, D), for all that is to come."""
        self.mean.copy_(columns.mean(0))
        self.spread.copy_(columns.std(0).clamp_min(_LEAST_SPREAD))

    def standard(self, columns: Tensor) -> Tensor:
        """Return columns, (..., D), as those had mean 0 and standard deviation 1."""
        return (columns - self.mean) / self.spread


class FleetNetwork(Standardised):
    """From columns (..., N, D) to one number for each source, (..., N), or several, (..., N, K).

    All are 0 before learning. Two hidden layers of `hidden` units, whose second also sees the
    fleet's mean of the first, and a linear part beside them.
    """

    def __init__(self, columns: int, hidden: int, numbers: int = 1) -> None:
        super().__init__(columns)
        self.own = nn.Linear(columns, hidden)
        self.deep = nn.Linear(hidden, hidden)
        self.fleet = nn.Linear(hidden, hidden, bias=False)
        self.out = nn.Linear(hidden, numbers)
        self.linear = nn.Linear(columns, numbers, bias=False)
        for weight in (self.out.weight, self.out.bias, self.linear.weight):
            nn.init.zeros_(weight)

    def forward(self, columns: Tensor) -> Tensor:
        columns = self.standard(columns)
        own = torch.tanh(self.own(columns))
        hidden = torch.tanh(self.deep(own) + self.fleet(own.mean(-2, keepdim=True)))
        return (self.out(hidden) + self.linear(columns)).squeeze(-1)
