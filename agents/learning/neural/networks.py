"""Stacks of small networks, one per arm and trained in parallel, and their replay buffer."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from agents.learning.arms import Step
from agents.learning.storage import check_keys, check_like, plain, restored
from crawl_env.errors import check_whole
from crawl_env.numerics import FloatArray


class NetworkStack(torch.nn.Module):
    """N independent multilayer perceptrons (ReLU) of equal shape, evaluated as one array program.

    Arguments:
        arms: N.
        sizes: inputs, units of each hidden layer, outputs.
        rng: draws the initial weights, uniform within ±1/√inputs of the layer.

    >>> NetworkStack(5, (2, 8, 1), np.random.default_rng(0))(torch.zeros(5, 3, 2)).shape
    torch.Size([5, 3, 1])
    """

    def __init__(self, arms: int, sizes: tuple[int, ...], rng: np.random.Generator) -> None:
        super().__init__()
        self.weights, self.biases = torch.nn.ParameterList(), torch.nn.ParameterList()
        for inputs, outputs in pairwise(sizes):
            bound = inputs**-0.5
            for group, rows in ((self.weights, inputs), (self.biases, 1)):
                values = rng.uniform(-bound, bound, (arms, rows, outputs)).astype(np.float32)
                group.append(torch.nn.Parameter(torch.from_numpy(values)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (N, K, outputs) for K inputs of each arm, (N, K, inputs)."""
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            x = x if layer == last else torch.relu(x)
        return x

    def polyak_update(self, other: NetworkStack, tau: float) -> None:
        """Move every weight by the fraction `tau` towards that of another stack."""
        with torch.no_grad():
            torch._foreach_lerp_(list(self.parameters()), list(other.parameters()), tau)

    @property
    def values(self) -> list[NDArray[np.float32]]:
        """Copies of all weights and biases."""
        return [weight.detach().cpu().numpy().copy() for weight in self.parameters()]

    @values.setter
    def values(self, saved: list[NDArray[np.float32]]) -> None:
        with torch.no_grad():
            for weight, its in zip(self.parameters(), saved, strict=True):
                weight.copy_(torch.from_numpy(its))


class TrainedNetwork:
    """A stack of networks and the Adam optimizer that trains it.

    The loss is a sum over arms, and Adam treats each weight separately: N independent trainings.
    """

    def __init__(self, network: NetworkStack, learning_rate: float, device: str) -> None:
        self.network = network.to(device)
        self._optimizer = torch.optim.Adam(self.network.parameters(), lr=learning_rate, fused=True)

    def optimizer_step(self, loss: torch.Tensor) -> float:
        """Take one step of gradient descent; return the loss before it."""
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return loss.item()

    def state_dict(self) -> dict[str, Any]:
        state = self._optimizer.state
        moments = [
            {name: value.detach().cpu().numpy().copy() for name, value in state[weight].items()}
            for weight in self.network.parameters()
            if weight in state  # none before the first step
        ]
        return {"weights": self.network.values, "moments": moments}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_keys(state, ("weights", "moments"), "network")
        self.network.values = restored(self.network.values, state["weights"], "weights")
        groups, moments = self._optimizer.state_dict()["param_groups"], state["moments"]
        if len(moments) not in (0, len(self.network.values)):
            raise ValueError("moments must be those of no weight, or of all")
        optimizer = {"param_groups": plain(groups), "state": dict(enumerate(moments))}
        restored(self._optimizer, optimizer, "moments")


class Batch(NamedTuple):
    """K transitions of each arm."""

    state: torch.Tensor  # (N, K, D)
    active: torch.Tensor  # (N, K) 0 or 1
    reward: torch.Tensor  # (N, K)
    next_state: torch.Tensor  # (N, K, D)


class ReplayBuffer:
    """The most recent transitions of the arms.

    Arguments:
        capacity: number of transitions stored per arm.
        arms, features: N, D.
    """

    def __init__(self, capacity: int, arms: int, features: int) -> None:
        self._columns = {
            "state": np.zeros((capacity, arms, features), dtype=np.float32),
            "active": np.zeros((capacity, arms), dtype=np.float32),
            "reward": np.zeros((capacity, arms), dtype=np.float32),
            "next_state": np.zeros((capacity, arms, features), dtype=np.float32),
        }
        self._capacity, self._added = capacity, 0

    def __len__(self) -> int:
        return min(self._added, self._capacity)

    def add(self, state: FloatArray, step: Step) -> None:
        """Add a step of B environments that were in `state`, (B, N, D)."""
        place = np.arange(self._added, self._added + len(state)) % self._capacity
        new = state, step.active, step.reward, step.state
        for column, added in zip(self._columns.values(), new, strict=True):
            column[place] = added
        self._added += len(state)

    def sample(self, size: int, rng: np.random.Generator, device: str) -> Batch:
        """Return transitions drawn with replacement, the same steps for all arms."""
        rows = rng.integers(0, len(self), size)
        return Batch(
            *(
                torch.from_numpy(column[rows].swapaxes(0, 1)).to(device)
                for column in self._columns.values()
            )
        )

    def state_dict(self) -> dict[str, Any]:
        columns = {name: column[: len(self)].copy() for name, column in self._columns.items()}
        return {"added": self._added, "columns": columns}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_keys(state, ("added", "columns"), "replay buffer")
        added = check_whole("the number of transitions in the replay buffer", state["added"], 0)
        filled = min(added, self._capacity)
        own = {name: column[:filled] for name, column in self._columns.items()}
        check_like(state["columns"], own, "replay buffer")
        check_like(state["columns"]["active"], own["active"], "replay buffer.active", low=0.0)
        self._added = added
        for name, column in state["columns"].items():
            self._columns[name][:filled] = column


class RewardScale:
    """The running maximum of |r| of each arm, by which rewards and multipliers are normalised.

    With it, sources with large and small rewards are learnt equally well.
    """

    def __init__(self, arms: int) -> None:
        self.largest = np.zeros((2, arms))  # |r| of waiting, of activating

    def update(self, reward: FloatArray, active: NDArray[Any]) -> None:
        """Include rewards, (..., N), given which arms were activated, (..., N)."""
        for row, mask in enumerate((active == 0, active > 0)):
            size = np.where(mask, np.abs(reward), 0.0).reshape(-1, self.largest.shape[1])
            self.largest[row] = np.maximum(self.largest[row], size.max(axis=0))

    @property
    def scale(self) -> FloatArray:
        """(N,) utility; 1 before the first reward."""
        largest = self.largest.max(axis=0)
        return np.where(largest > 0, largest, 1.0)

    @property
    def multiplier_range(self) -> FloatArray:
        """(2, N): the range in which indices are searched, in units of the scale per cost.

        It extends from minus the largest reward of waiting to the largest of activating, plus a
        tenth of the scale: an index reaches u*/C, and networks are inaccurate at the edge of the
        range in which they are trained.
        """
        waiting, activating = self.largest / self.scale
        return np.stack((-waiting - 0.1, activating + 0.1))


def log_scaled(state: torch.Tensor, max_age: float) -> torch.Tensor:
    """Return states, such as ages, as inputs: ln(1 + s)/ln(1 + max_age), at most 1."""
    return torch.log1p(state.clamp(max=max_age)) / math.log1p(max_age)


def tensor(array: NDArray[Any], device: str) -> torch.Tensor:
    """Return a copy of an array as a float32 tensor."""
    return torch.tensor(array, dtype=torch.float32, device=device)


def indices(network: NetworkStack, state: FloatArray, max_age: float, device: str) -> FloatArray:
    """Return the outputs (..., N) of networks with one output for states (..., N, D)."""
    *rows, n, d = state.shape
    inputs = tensor(state.reshape(-1, n, d).swapaxes(0, 1), device)
    with torch.no_grad():
        output = network(log_scaled(inputs, max_age))[..., 0]
    return output.T.cpu().numpy().astype(np.float64).reshape(*rows, n)
