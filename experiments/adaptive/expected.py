"""What crawls bring on average, given when they are made: without luck in what was published."""

from __future__ import annotations

from typing import Any

import numpy as np

from crawl_env import World
from crawl_env.numerics import FloatArray


class Expected:
    """What waits at each source on average, given the crawls and the rates, (B, N) utility.

    X̄ ← αX̄·[not crawled] + Λ(t)(ξ̄/μ)(1 − α): given the rates, arrivals are Poisson, and the crawls
    depend on nothing that came since.
    """

    def __init__(self, world: World) -> None:
        fleet = world.sources
        self._value = np.broadcast_to(fleet.content_at(world.age), world.shape).copy()
        self._retention = np.broadcast_to(fleet.retention, world.shape)
        self._inflow = fleet.mean_utility / fleet.decay_rate * fleet.loss

    @property
    def value(self) -> FloatArray:
        """(B, N) what waits on average."""
        return self._value

    def crawl(self, picked: Any, rate: FloatArray) -> FloatArray:
        """Return what crawls of these cells bring, (B,); then let an epoch pass at these rates."""
        rows, n = self._value.shape
        flat = self._value.reshape(-1)
        brought = np.bincount(picked // n, flat[picked], rows)
        flat[picked] = 0.0
        self._value *= self._retention
        self._value += rate * self._inflow
        return np.asarray(brought, dtype=np.float64)
