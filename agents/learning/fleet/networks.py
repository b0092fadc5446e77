"""Permutation-equivariant networks: one set of weights for every source of every fleet.

The score of a source depends on its own columns and on their means over the fleet, so that
exchanging two sources exchanges their scores (deep sets; M. Zaheer et al., NeurIPS 2017,
arXiv 1703.06114).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from crawl_env import Task
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.simulation.observation import HEARD, POWERS_OF_TIME, SUMMED

_LEAST = 0.01  # added to a utility, relative to its scale, before the logarithm
_TINY = 1e-6  # added to a rate per step before the logarithm
_FLOOR = 1e-300
_LEAST_STD = 0.2  # lower bound of a column's, which may vary more outside of training

UTILITIES = ("value", "harvest", "shown", "content")
COUNTS = ("age", "items", "steps_left", "seen", "known", "backlog", *HEARD)
FLAGS = ("crawled", "changed", "available", "failed", "picked")
_POWERS = dict(zip(SUMMED, POWERS_OF_TIME, strict=True))  # of the unit of time
_LABELS = ("topic",)  # have no order, so that a network that treats all sources alike omits them


class _Features:
    """The features of an observation that a network uses.

    Raises:
        ValueError: one of them is not observed.
    """

    def __init__(self, shown: Sequence[str], features: Sequence[str], period: float) -> None:
        missing = [name for name in features if name not in shown]
        if missing:
            raise ValueError(
                f"the network uses the features {', '.join(features)}, and the environment lacks "
                f"{', '.join(missing)}; add to `features`"
            )
        self._place = {name: list(shown).index(name) for name in features}
        self._flow = _shows_flow(features)
        self._period = period

    def _column(self, name: str, x: Tensor, scale: Tensor | float) -> Tensor:
        """Return a feature as a dimensionless column, with utilities relative to a scale."""
        if name in UTILITIES:
            return torch.log(x / scale + _LEAST)
        if name in COUNTS:
            return torch.log1p(x)
        if name in FLAGS:
            return x
        if name in SUMMED:  # sums of logarithms have both signs
            sums = x / self._period ** _POWERS[name]
            return sums.sign() * sums.abs().log1p()
        return torch.log(x * self._period + _TINY)  # arrival_rate, rate, decay_rate


class _Parameters(NamedTuple):
    """The columns of a batch that depend on the parameters of its fleets alone."""

    shown: Mapping[str, Tensor]  # the parameters as they were observed, (..., N) each
    columns: Mapping[str, Tensor]  # their columns, (..., N) each
    fraction: Tensor  # the last column, (..., N)
    scale: Tensor | float | None  # of utilities, (..., 1); None if it depends on the state


class ScaledColumns(_Features):
    """Converts observations into dimensionless columns: (..., N, F) to (..., N, D) float32.

    Utilities are relative to the fleet's mean of Λξ̄T if Λ and ξ̄ are among the features, else to the
    mean of the first utility among them. Rates are per step, costs relative to their mean, and the
    balance to the budget. Positive numbers enter as logarithms. The last column is the fraction of
    the fleet that the budget of a step covers, M/ΣC (M/N without costs). Only the observation, M, N
    and T are used.

    The columns of parameters are kept for the next call. If it is given a batch of the same shape
    with the same parameters, as in every step of an environment whose fleet does not change, they
    are not computed again.

    Arguments:
        shown: the features of the observation, in order; `picked` is the last one of
            `SequentialSelection`.
        budget: M. period: T.
        features: the features used, in this order; default all. Topics are left out.

    Raises:
        ValueError: one of them is not observed.

    >>> columns = ScaledColumns(("age", "decay_rate"), budget=1.0, period=1.0)
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
        used = shown if features is None else features
        self.features = tuple(name for name in used if name not in _LABELS)
        super().__init__(shown, self.features, period)
        self._budget = budget
        # Without the arrival rates, mean utilities are relative to a scale that may vary.
        varying = () if self._flow else ("mean_utility",)
        self._fixed = [n for n in self.features if n in PARAMETERS and n not in varying]
        self._last: _Parameters | None = None

    @classmethod
    def of(cls, task: Task, features: Sequence[str] | None = None) -> ScaledColumns:
        """Return the columns for the features of a task."""
        return cls(task.features, task.budget, task.sources.period, features)

    @property
    def number(self) -> int:
        """D."""
        return len(self.features) + 1

    def __call__(self, observation: Tensor) -> Tensor:
        observed = {name: observation[..., place] for name, place in self._place.items()}
        last = self._last
        if last is None or not self._are_current(last, observed, observation[..., 0]):
            last = self._last = self._of_parameters(observed, observation[..., 0])
        scale = self._scale(observed) if last.scale is None else last.scale
        columns = [
            last.columns[name] if name in last.columns else self._relative(name, observed, scale)
            for name in self.features
        ]
        return torch.stack([*columns, last.fraction], dim=-1).float()

    def _are_current(self, last: _Parameters, observed: dict[str, Tensor], like: Tensor) -> bool:
        """Return whether the parameters, the shape and the device are those of the last batch."""
        fraction = last.fraction
        return (
            fraction.shape == like.shape
            and fraction.dtype == like.dtype
            and fraction.device == like.device
            and all(torch.equal(observed[name], its) for name, its in last.shown.items())
        )

    def _of_parameters(self, observed: dict[str, Tensor], like: Tensor) -> _Parameters:
        cost = observed.get("cost", torch.ones_like(like))
        fraction = torch.log(self._budget / cost.sum(-1, keepdim=True)).expand_as(cost)
        scale = self._scale(observed) if self._flow else None
        unit = 1.0 if scale is None else scale
        return _Parameters(
            {name: observed[name].clone() for name in self._fixed},
            {name: self._relative(name, observed, unit) for name in self._fixed},
            fraction,
            scale,
        )

    def _scale(self, observed: dict[str, Tensor]) -> Tensor | float:
        if self._flow:
            utility = observed["arrival_rate"].double() * observed["mean_utility"] * self._period
        else:
            worth = [observed[name] for name in (*UTILITIES, "mean_utility") if name in observed]
            if not worth:
                return 1.0
            utility = worth[0].double()
        return utility.mean(-1, keepdim=True).clamp_min(_FLOOR)

    def _relative(self, name: str, observed: dict[str, Tensor], scale: Tensor | float) -> Tensor:
        x = observed[name]
        if name == "balance":
            return x / self._budget
        if name == "cost":
            return torch.log(x / x.mean(-1, keepdim=True))
        if name == "mean_utility":
            flow = x.double() * observed["arrival_rate"] * self._period if self._flow else x
            return torch.log(flow / scale + _TINY)
        return self._column(name, x, scale)


class StandardisedNetwork(nn.Module):
    """A network whose D input columns are standardised by the data given to `standardise`."""

    mean: Tensor
    std: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(columns))
        self.register_buffer("std", torch.ones(columns))

    def standardise(self, columns: Tensor) -> None:
        """Use the mean and standard deviation of columns, (samples, D), for all later inputs."""
        self.mean.copy_(columns.mean(0))
        self.std.copy_(columns.std(0).clamp_min(_LEAST_STD))

    def load_state_dict(self, state_dict: Any, *options: Any, **named: Any) -> Any:
        """Restore a state; ValueError if a standard deviation is not positive."""
        if not bool((state_dict["std"] >= _TINY).all()):
            raise ValueError(f"std has elements below {_TINY:g}")
        return super().load_state_dict(state_dict, *options, **named)

    def standard(self, columns: Tensor) -> Tensor:
        """Return standardised columns, (..., D)."""
        return (columns - self.mean) / self.std


class FleetNetwork(StandardisedNetwork):
    """Maps columns (..., N, D) to one number per source, (..., N), or several, (..., N, K).

    All outputs are 0 before training. There are two hidden layers of `hidden` units, the second of
    which also receives the fleet's mean of the first, and a linear connection in parallel.
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
        own, deep, linear = self.alone(columns)
        return self.together(own.mean(-2, keepdim=True), deep, linear).squeeze(-1)

    def alone(self, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what depends on each source's own columns alone: the first hidden layer and what
        it adds to the second, (..., N, hidden) each, and the linear connection, (..., N, K)."""
        columns = self.standard(columns)
        own = _tanh(self.own(columns))
        return own, self.deep(own), self.linear(columns)

    def together(self, mean: Tensor, deep: Tensor, linear: Tensor) -> Tensor:
        """Return the outputs, (..., N, K), from the fleet's mean of the first hidden layer,
        (..., 1, hidden), and two results of `alone`."""
        hidden = _tanh(deep + self.fleet(mean))
        output: Tensor = self.out(hidden) + linear
        return output


def _tanh(x: Tensor) -> Tensor:
    """Return tanh(x); x may be overwritten.

    In inference mode on a CPU it is NumPy's, which takes a seventh of the time of PyTorch's (AMD
    EPYC with AVX-512) and differs from it by rounding.
    """
    if torch.is_inference_mode_enabled() and x.device.type == "cpu":
        np.tanh(x.numpy(), out=x.numpy())
        return x
    return torch.tanh(x)


class SourceColumns(_Features):
    """Converts observations (B, N, F) into dimensionless columns of each source, and their units.

    Utilities are relative to the source's unit: its own Λξ̄T if Λ and ξ̄ are among the features, else
    one for all. Rates are per step. Positive numbers enter as logarithms. Costs are not among the
    columns: they determine the unit of the multiplier.

    Arguments:
        task: the task of the observations.
        features: the features used.
        unit: unit of utility for all sources.

    Raises:
        ValueError: one of the features is not observed.
    """

    def __init__(self, task: Task, features: Sequence[str], unit: float) -> None:
        super().__init__(task.features, features, task.sources.period)
        self._names, self._unit = self.read(features), unit

    @staticmethod
    def read(features: Sequence[str]) -> tuple[str, ...]:
        """Return the features that become columns.

        Raises:
            ValueError: there are none.
        """
        others = ("cost", "balance", *_LABELS, *("mean_utility",) * _shows_flow(features))
        names = tuple(name for name in features if name not in others)
        if not names:
            raise ValueError(
                f"features are {', '.join(features)}, none of which describes the state; add "
                "'value' or 'age'"
            )
        return names

    def __call__(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Return columns (B, N, D), and units (B, N), utility; in float64."""
        observed = {n: observation[..., i].double() for n, i in self._place.items()}
        unit = torch.full_like(observation[..., 0], self._unit, dtype=torch.float64)
        if self._flow:
            flow = observed["arrival_rate"] * observed["mean_utility"] * self._period
            unit = flow.clamp_min(_TINY * self._unit)
        columns = [
            torch.log(observed[name] / unit + _LEAST)
            if name == "mean_utility"
            else self._column(name, observed[name], unit)
            for name in self._names
        ]
        return torch.stack(columns, dim=-1), unit

    def cost(self, observation: Tensor) -> Tensor:
        """Return the costs of crawls, (B, N); 1 if they are not observed."""
        if "cost" not in self._place:
            return torch.ones_like(observation[..., 0], dtype=torch.float64)
        return observation[..., self._place["cost"]].double()


def _shows_flow(features: Sequence[str]) -> bool:
    return {"arrival_rate", "mean_utility"} <= set(features)


class IndexNetwork(StandardisedNetwork):
    """The index of a source and, built on it, the Q-values of crawling and waiting.

    Arguments:
        names: names of the D columns.
        hidden: units of each of two hidden layers.
    """

    def __init__(self, names: Sequence[str], hidden: int) -> None:
        super().__init__(len(names))
        self._utilities = [i for i, name in enumerate(names) if name in UTILITIES]
        d = len(names)
        self._index = _layers(d, hidden, 1)
        self._q = _layers(d + 2 + len(self._utilities), hidden, 2)

    def index(self, columns: Tensor) -> Tensor:
        """Return f(s), the logarithm of the index in the source's unit: (..., D) to (...)."""
        return self._index(self.standard(columns)).squeeze(-1)

    def forward(self, columns: Tensor, log_multiplier: Tensor) -> tuple[Tensor, Tensor]:
        """Return Q(s, ℓ, 0) and Q(s, ℓ, 1), in units of 1 + ℓ: (..., D) and ln ℓ (...) to (...)."""
        own = self.standard(columns)
        unit = self.unit(log_multiplier).expand(columns.shape[:-1])
        log_multiplier = log_multiplier.expand(columns.shape[:-1])
        multiplier = torch.stack((log_multiplier / 2, 2 / unit - 1), dim=-1)
        utility = torch.exp(columns[..., self._utilities]) / unit[..., None]
        crawling, slope = self._q(torch.cat((own, multiplier, utility), dim=-1)).unbind(-1)
        excess = self._index(own).squeeze(-1) - log_multiplier
        advantage = torch.exp((slope - 2).clamp(-8, 4)) * excess
        return crawling - advantage, crawling

    @staticmethod
    def unit(log_multiplier: Tensor) -> Tensor:
        """Return 1 + ℓ, from ln ℓ."""
        return 1 + torch.exp(log_multiplier)


def _layers(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.SiLU(),
        nn.Linear(hidden, hidden),
        nn.SiLU(),
        nn.Linear(hidden, outputs),
    )
