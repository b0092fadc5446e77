"""A sample of a large fleet with a budget to scale, for a first answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from crawl_env import Sources
from crawl_env.numerics import FloatArray, IntArray
from crawl_env.simulation.selection import whole_budget

MOST = 300  # sources
_UNLIKE = 0.1  # difference of what a sample publishes from what all do, as a fraction


class Sample(NamedTuple):
    """Some of the sources, the budgets scaled to them, and steps that are so many times as long."""

    places: IntArray  # (n,) ascending
    budgets: list[float]
    stretch: int

    def of(self, fleet: Sources) -> Sources:
        """Return the sampled fleet."""
        return fleet.select(self.places).replaced(period=fleet.period * self.stretch)

    def crawls(self, rates: FloatArray) -> FloatArray:
        """Return crawls per step of the sampled sources, (n,), given those of all, (N,)."""
        return np.minimum(rates[self.places] * self.stretch, 1.0)

    def sentence(self, fleet: Sources, budgets: Sequence[float]) -> str:
        """Return a sentence on the sample for the report; "" if it has all sources."""
        if len(self.places) == len(fleet):
            return ""
        pairs = zip(budgets, self.budgets, strict=True)
        text = (
            f"A sample: {len(self.places)} of {len(fleet):,} sources, in even steps of the utility "
            "that they hold per cost, with the budget scaled to it "
            f"({', '.join(f'{a:g} to {b:.4g}' for a, b in pairs)})"
        )
        if self.stretch > 1:
            text += (
                f" and steps {self.stretch} times as long, so that the budget of a step pays for "
                "a crawl"
            )
        text += ". Rewards are those of the sample; the schedule is that of all sources."
        return text + self.unlike(fleet.arrival_rate * fleet.mean_utility)

    def unlike(self, worth: FloatArray) -> str:
        """Return a sentence if the sample does not stand for what all sources publish, (N,)."""
        mean = float(worth.mean())
        part = float(worth[self.places].mean()) / mean if mean > 0.0 else 1.0
        if abs(part - 1.0) < _UNLIKE:
            return ""
        return (
            f" On average those of the sample publish {part:.0%} of what all do, since few have "
            "much of the worth: what is collected of the whole differs, which is measured without "
            "--quick."
        )


def sample(fleet: Sources, budgets: Sequence[float], most: int = MOST) -> Sample:
    """Return a systematic sample of at most `most` sources, in the order of utility per cost.

    The budget keeps its ratio to the number of sources. If it no longer pays for a crawl, steps
    are longer; if all crawls cost the same, the number of sources is chosen so that the smallest
    budget pays for a whole number of them.
    """
    n, least = len(fleet), min(budgets)
    if n <= most:
        return Sample(np.arange(n), list(budgets), 1)
    dearest = float(fleet.cost[fleet.cost <= max(least, float(fleet.cost.min()))].max())
    stretch = max(1, math.ceil(dearest * n / (most * least)))
    crawls = math.floor(most * least * stretch / (n * dearest) + 1e-9)
    size = min(most, round(crawls * dearest * n / (least * stretch)))
    order = np.argsort(-fleet.ceiling / fleet.cost, kind="stable")
    positions = np.floor((np.arange(size) + 0.5) * n / size).astype(np.intp)
    new_budgets = [m * stretch * size / n for m in budgets]
    if whole_budget(fleet.cost, least) is not None:
        unit = float(fleet.cost.flat[0])
        new_budgets = [max(1, round(m / unit)) * unit for m in new_budgets]
    return Sample(np.sort(order[positions]), new_budgets, stretch)
