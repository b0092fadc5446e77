"""Small networks, one for each arm, trained side by side; and the transitions they learn from."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from agents.learning.arms import Step
from crawl_env.numerics import FloatArray


class Stack(torch.nn.Module):
    """N networks of rectified linear units as one array program; they share nothing.

    Arguments:
        arms: N.
        sizes: inputs, units of each hidden layer, outputs.
        rng: draws the first weights, uniform within ±1/√inputs of the layer.

    >>> Stack(5, (2, 8, 1), np.random.default_rng(0))(torch.zeros(5, 3, 2)).shape
    torch.Size([5, 3, 1])
    """

    def __init__(self, arms: int, sizes: tuple[int, ...], rng: np.random.Generator) -> None:
        super().__init__()
        self.weights, self.offsets = torch.nn.ParameterList(), torch.nn.ParameterList()
        for inputs, outputs in pairwise(sizes):
            most = inputs**-0.5
            for group, rows in ((self.weights, inputs), (self.offsets, 1)):
                drawn = rng.uniform(-most, most, (arms, rows, outputs)).astype(np.float32)
                group.append(torch.nn.Parameter(torch.from_numpy(drawn)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (N, K, outputs) for K inputs of each arm, (N, K, inputs)."""
        last = len(self.weights) - 1
        for layer, (weight, offset) in enumerate(zip(self.weights, self.offsets, strict=True)):
            x = torch.baddbmm(offset, x, weight)
            x = x if layer == last else torch.relu(x)
        return x

    def follow(self, other: Stack, share: float) -> None:
        """Move every weight by a share of the way to another's."""
        with torch.no_grad():
            torch._foreach_lerp_(list(self.parameters()), list(other.parameters()), share)

    def memory(self) -> list[NDArray[np.float32]]:
        return [weight.detach().cpu().numpy().copy() for weight in self.parameters()]

    def remember(self, memory: list[NDArray[np.float32]]) -> None:
        with torch.no_grad():
            for weight, saved in zip(self.parameters(), memory, strict=True):
                weight.copy_(torch.from_numpy(np.asarray(saved)))


class Trained:
    """A stack of networks and the optimiser that trains it, Adam.

    The loss adds up over arms, and Adam looks at each weight alone: N independent trainings.
    """

    def __init__(self, network: Stack, rate: float, device: str) -> None:
        self.network = network.to(device)
        self._optimiser = torch.optim.Adam(self.network.parameters(), lr=rate, fused=True)

    def descend(self, loss: torch.Tensor) -> float:
        """Take one step down the loss; return what it was."""
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        return loss.item()

    def memory(self) -> dict[str, Any]:
        state = self._optimiser.state
        moments = [
            {name: value.detach().cpu().numpy().copy() for name, value in state[weight].items()}
            for weight in self.network.parameters()
            if weight in state  # nothing before the first step
        ]
        return {"weights": self.network.memory(), "moments": moments}

    def remember(self, memory: dict[str, Any]) -> None:
        self.network.remember(memory["weights"])
        saved = self._optimiser.state_dict()
        saved["state"] = {
            number: {name: torch.from_numpy(np.array(value)) for name, value in moments.items()}
            for number, moments in enumerate(memory["moments"])
        }
        self._optimiser.load_state_dict(saved)


class Batch(NamedTuple):
    """K transitions of each arm; what an arm is shown is its own."""

    state: torch.Tensor  # (N, K, D)
    active: torch.Tensor  # (N, K) 0 or 1
    reward: torch.Tensor  # (N, K)
    after: torch.Tensor  # (N, K, D)


class Replay:
    """The last transitions of the arms, as many as fit.

    Arguments:
        capacity: epochs of one row that fit.
        arms, numbers: N, D.
    """

    def __init__(self, capacity: int, arms: int, numbers: int) -> None:
        self._columns = {
            "state": np.zeros((capacity, arms, numbers), dtype=np.float32),
            "active": np.zeros((capacity, arms), dtype=np.float32),
            "reward": np.zeros((capacity, arms), dtype=np.float32),
            "after": np.zeros((capacity, arms, numbers), dtype=np.float32),
        }
        self._capacity, self._seen = capacity, 0

    def __len__(self) -> int:
        return min(self._seen, self._capacity)

    def add(self, state: FloatArray, step: Step) -> None:
        """Keep what an epoch brought to B rows that were in `state`, (B, N, D)."""
        place = np.arange(self._seen, self._seen + len(state)) % self._capacity
        new = {"state": state, "active": step.active, "reward": step.reward, "after": step.state}
        for name, column in self._columns.items():
            column[place] = new[name]
        self._seen += len(state)

    def draw(self, size: int, rng: np.random.Generator, device: str) -> Batch:
        """Return transitions drawn with replacement, the same epochs for all arms."""
        which = rng.integers(0, len(self), size)
        return Batch(
            *(
                torch.from_numpy(column[which].swapaxes(0, 1)).to(device)
                for column in self._columns.values()
            )
        )

    def memory(self) -> dict[str, Any]:
        columns = {name: column[: len(self)].copy() for name, column in self._columns.items()}
        return {"seen": self._seen, "columns": columns}

    def remember(self, memory: dict[str, Any]) -> None:
        self._seen = memory["seen"]
        for name, column in memory["columns"].items():
            self._columns[name][: len(column)] = column


class Unit:
    """What an agent counts an arm's rewards and charges in: the largest reward seen of it, |r|.

    So sources large and small are learnt equally well.
    """

    def __init__(self, arms: int) -> None:
        self.largest = np.zeros((2, arms))  # of waiting, of activating

    def see(self, reward: FloatArray, active: NDArray[Any]) -> None:
        """Take note of rewards and of which arms were activated, (..., N) each."""
        for row, which in enumerate((active == 0, active > 0)):
            seen = np.where(which, np.abs(reward), 0.0).reshape(-1, self.largest.shape[1])
            self.largest[row] = np.maximum(self.largest[row], seen.max(axis=0))

    @property
    def size(self) -> FloatArray:
        """(N,) utility; 1 where nothing has been seen yet."""
        largest = self.largest.max(axis=0)
        return np.where(largest > 0, largest, 1.0)

    @property
    def reach(self) -> FloatArray:
        """(2, N): between which charges, in units per cost, indices are sought.

        From what waiting pays at most, as a subsidy, to what activating brings at most, and a
        tenth of the unit beyond: a source's index reaches u*/C, and at the edge of what a network
        has seen its word is worth little.
        """
        waiting, activating = self.largest / self.size
        return np.stack((-waiting - 0.1, activating + 0.1))


def squeezed(state: torch.Tensor, oldest: float) -> torch.Tensor:
    """Return states, such as ages, as inputs of a network: ln(1 + s)/ln(1 + oldest), at most 1."""
    return torch.log1p(state.clamp(max=oldest)) / math.log1p(oldest)


def tensor(array: NDArray[Any], device: str) -> torch.Tensor:
    """Return a copy of an array as float32, where networks compute."""
    return torch.tensor(array, dtype=torch.float32, device=device)


def indices(network: Stack, state: FloatArray, oldest: float, device: str) -> FloatArray:
    """Return what a network with one output says of states (..., N, D), (..., N)."""
    *rows, n, d = state.shape
    inputs = tensor(state.reshape(-1, n, d).swapaxes(0, 1), device)
    with torch.no_grad():
        found = network(squeezed(inputs, oldest))[..., 0]
    return found.T.cpu().numpy().astype(np.float64).reshape(*rows, n)
