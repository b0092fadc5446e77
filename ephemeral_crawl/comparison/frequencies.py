"""The crawls of every source under every policy, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from crawl_env import Sources
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.numerics import FloatArray


class Measurement(Protocol):
    """What was measured of a policy."""

    @property
    def frequency(self) -> FloatArray:
        """Crawls per step of each source, (N,)."""
        ...


def per_source(
    fleet: Sources, runs: Mapping[float, Mapping[str, Measurement]]
) -> list[dict[str, Any]]:
    """Return the crawls per step of every source under each budget and policy."""
    return [
        {
            "budget": m,
            "source": fleet.name(i),
            **{name: float(getattr(fleet, name)[i]) for name in PARAMETERS},
            **{f"crawls_per_step_{name}": float(run.frequency[i]) for name, run in agents.items()},
        }
        for m, agents in runs.items()
        for i in range(len(fleet))
    ]
