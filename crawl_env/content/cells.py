"""Parameters of the cells of a world, a cell being one source of one environment.

Time is counted in steps here: ℓ = ΛT items per step, m = μT decay per step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray, IntArray

# Cells advanced at a time. The value, retention and inflow of a block together stay in a core's
# cache, so that large fleets pass through memory once per step.
BLOCK = 2**15


class Published(NamedTuple):
    """n items, in any order."""

    cell: IntArray  # (n,) number of the cell: env·N + source, or the position in a block
    age: FloatArray  # (n,) steps
    utility: FloatArray  # (n,) when published
    number: IntArray  # (n,) number of the item in a log; 0 where there is no log

    def only(self, which: Any) -> Published:
        """Return some of the items, by indices or a mask, in that order."""
        return Published(self.cell[which], self.age[which], self.utility[which], self.number[which])

    @staticmethod
    def concatenate(batches: list[Published]) -> Published:
        """Return the items of all batches, one batch after the other."""
        nowhere = np.empty(0, dtype=np.intp)
        none = Published(nowhere, np.empty(0), np.empty(0), nowhere)
        return Published(*(np.concatenate(column) for column in zip(none, *batches, strict=True)))


@dataclass(frozen=True)
class Cells:
    """Parameters of n cells."""

    items: FloatArray  # (n,) ℓ = ΛT, items / step
    mean_utility: FloatArray  # (n,) ξ̄, utility
    decay: FloatArray  # (n,) m = μT, 1 / step
    period: float = 1.0  # T, time
    capacity: FloatArray | None = None  # (n,) items that a source shows; None: all

    def __getitem__(self, which: Any) -> Cells:
        capacity = None if self.capacity is None else self.capacity[which]
        return Cells(
            self.items[which], self.mean_utility[which], self.decay[which], self.period, capacity
        )

    @staticmethod
    def of(sources: Sources, flat: Callable[[FloatArray], FloatArray]) -> Cells:
        """Return the parameters of the cells that `flat` takes from those of the sources."""
        return Cells(
            items=flat(sources.arrival_rate * sources.period),
            mean_utility=flat(sources.mean_utility),
            decay=flat(sources.decay_per_step),
            period=sources.period,
            capacity=flat(sources.capacity) if sources.is_capped else None,
        )

    @cached_property
    def retention(self) -> FloatArray:
        """α = exp(−m), the fraction of utility that is left after one step, (n,)."""
        return np.exp(-self.decay)

    def mean_content(self, steps: ArrayLike) -> FloatArray:
        """Return the mean utility left of `steps` steps of arrivals, (n,)."""
        return (
            self.items
            * self.mean_utility
            / self.decay
            * -np.expm1(-self.decay * np.asarray(steps, dtype=np.float64))
        )

    def collect(self, items: Published, value: FloatArray, count: FloatArray | None) -> None:
        """Add what is left of items to `value` and their number to `count`, (n,) each."""
        left = items.age * self.decay[items.cell]
        np.negative(left, left)
        np.exp(left, left)
        left *= items.utility
        np.add.at(value, items.cell, left)
        if count is not None:
            np.add.at(count, items.cell, 1.0)


def blocks_of(sources: Sources, num_envs: int) -> Iterator[tuple[slice, Cells]]:
    """Yield the blocks of the B·N cells of a world with their parameters.

    Small fleets are repeated to fill a block, so that many environments advance in one call; equal
    blocks share one `Cells` object.
    """
    n = len(sources)
    shared = sources.arrival_rate.ndim == 1
    repeat = max(1, min(num_envs, BLOCK // n)) if shared else 1
    cells = Cells.of(sources, lambda p: np.tile(p, repeat) if repeat > 1 else p.ravel())
    width = cells.items.size if shared and n <= BLOCK else BLOCK
    line = n if shared and n > BLOCK else num_envs * n
    parts: dict[tuple[int, int], Cells] = {}
    for start in range(0, num_envs * n, line):
        stop = min(start + line, num_envs * n)
        for first in range(start, stop, width):
            size = min(first + width, stop) - first
            offset = first % cells.items.size
            if (offset, size) not in parts:
                parts[offset, size] = cells[offset : offset + size]
            yield slice(first, first + size), parts[offset, size]
