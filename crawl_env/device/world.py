"""`TorchWorld`: the state of all sources as tensors on a device, and its dynamics."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from crawl_env.content.process import ArrivalProcess
from crawl_env.content.world import NEVER
from crawl_env.device.content import Content
from crawl_env.fleet.sources import Sources


class TorchWorld:
    """State of B independent environments of N sources, as `crawl_env.World` has it.

    Arguments:
        sources: one fleet (N,) shared by all environments, or a batch (B, N) of one fleet each.
        arrivals: deterministic, or Poisson with a constant rate.
        num_envs: B.
        count: whether to count the uncollected items.
        track_belief: whether to update the belief.
        device, dtype: of the value, the belief and the number of items.

    Attributes:
        value: (B, N) uncollected utility.
        items: (B, N) number of items published since the last crawl, or None.
        crawled_at: (B, N) int32, step of the last crawl, on the world's clock.
        belief: (B, N) posterior mean of `value` given the crawls.
    """

    def __init__(
        self,
        sources: Sources,
        arrivals: ArrivalProcess,
        num_envs: int,
        count: bool,
        track_belief: bool,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.arrivals, self.shape = arrivals, (num_envs, len(sources))
        self._clock, self._count = 0, count
        self.value = torch.zeros(self.shape, dtype=dtype, device=device)
        self.items = torch.zeros_like(self.value) if count else None
        self.crawled_at = torch.zeros(self.shape, dtype=torch.int32, device=device)
        has_belief = track_belief and arrivals.random
        self.belief = torch.zeros_like(self.value) if has_belief else self.value
        self.set_sources(sources)

    def set_sources(self, sources: Sources) -> None:
        """Replace the publishing sources from the next step on, by (N,) for all or (B, N)."""
        self.sources = sources
        self._content = Content(sources, self.arrivals, self._count, self.value.new_ones(()))

    def seed_beside(self, rng: np.random.Generator) -> None:
        """Do nothing: there are neither signals nor engines here."""

    @property
    def age(self) -> Tensor:
        """(B, N) int32, steps since the last crawl; ≥ 1e9 if never crawled."""
        return self._clock - self.crawled_at

    def start(
        self, age: Tensor, rows: Tensor, generator: Generator, value: Tensor | None = None
    ) -> None:
        """Begin an episode of the environments `rows` (b,), last crawled `age` (b, N) int32 steps
        ago.

        Content of that age is drawn, and the belief is its mean; if `value` is given, it replaces
        both.
        """
        steps = torch.where(age >= NEVER, torch.inf, age.to(self.value.dtype))
        content = self._content.past(steps, rows, generator)
        self.value[rows] = content.value if value is None else value
        if self.items is not None:
            assert content.items is not None  # they are counted
            self.items[rows] = content.items
        if self.belief is not self.value:
            mean = self._content.mean_past(steps, rows)
            self.belief[rows] = mean if value is None else value
        self.crawled_at[rows] = self._clock - age

    def crawl(self, picked: Tensor) -> Tensor:
        """Empty the sources `picked` (B, k) and return the utility collected, (B, k)."""
        collected = self.value.gather(-1, picked)
        for content in {id(x): x for x in (self.value, self.belief, self.items)}.values():
            if content is not None:
                content.scatter_(-1, picked, 0.0)
        self.crawled_at.scatter_(-1, picked, self._clock)
        return collected

    def advance(self, generator: Generator) -> None:
        """Advance by one step: content decays, then new content arrives."""
        self._clock += 1
        self._content.step(self.value, self.items, generator)
        if self.belief is not self.value:
            torch.addcmul(
                self._content.inflow, self.belief, self._content.retention, out=self.belief
            )

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the time-dependent state in host memory, as arrays."""
        return {
            "value": host(self.value),
            "items": None if self.items is None else host(self.items),
            "age": host(self.age).astype(np.float64),
            "belief": host(self.belief),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state returned by `get_state`, which may be that of another device."""
        self.value.copy_(torch.tensor(state["value"]))
        self.belief.copy_(torch.tensor(state["belief"]))
        if self.items is not None:
            self.items.copy_(torch.tensor(state["items"]))
        age = np.minimum(state["age"], 2 * NEVER).astype(np.int32)
        self.crawled_at.copy_(torch.as_tensor(self._clock - age))


def host(tensor: Tensor) -> NDArray[Any]:
    """Return a copy of a tensor as an array in host memory."""
    return np.array(tensor.detach().cpu().numpy())
