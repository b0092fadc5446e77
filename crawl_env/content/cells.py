"""The parameters of the world's cells, a cell being one source of one environment.

Times are counted in epochs here: ℓ = ΛT items an epoch, m = μT decay an epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray

# What one epoch adds, in place: value (n,) utility and, unless None, items (n,) counts.
Stream = Callable[[FloatArray, FloatArray | None, np.random.Generator], None]


@dataclass(frozen=True)
class Cells:
    """The parameters of n cells, a cell being one source of one environment."""

    items: FloatArray  # (n,) ℓ = ΛT, items / epoch
    mean_utility: FloatArray  # (n,) ξ̄, utility
    decay: FloatArray  # (n,) m = μT, 1 / epoch
    period: float = 1.0  # T, time

    def __getitem__(self, which: Any) -> Cells:
        return Cells(self.items[which], self.mean_utility[which], self.decay[which], self.period)

    def mean_content(self, epochs: ArrayLike) -> FloatArray:
        """Return the mean utility that `epochs` epochs of arrivals leave, (n,)."""
        return (
            self.items
            * self.mean_utility
            / self.decay
            * -np.expm1(-self.decay * np.asarray(epochs, dtype=np.float64))
        )


def cells_of(sources: Sources, flat: Callable[[FloatArray], FloatArray]) -> Cells:
    """Return the parameters of cells, which `flat` takes from those of the sources."""
    return Cells(
        items=flat(sources.arrival_rate * sources.period),
        mean_utility=flat(sources.mean_utility),
        decay=flat(sources.decay_per_epoch),
        period=sources.period,
    )
