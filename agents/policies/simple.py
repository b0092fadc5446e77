"""Simple baselines: a fixed set of sources, oldest first, random."""

from __future__ import annotations

import numpy as np

from agents.policies.base import Agent, Environment, ObservationView, needs_parameters
from agents.theory.index import myopic_index
from crawl_env.numerics import FloatArray, ranks


class Fixed(Agent):
    """Always crawls the same sources, those with the largest inflow per unit of cost."""

    name = "fixed"

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        needs_parameters(self.task, self.name)

    def priority(self, view: ObservationView) -> FloatArray:
        index = myopic_index(view.sources.content_at(1), view.sources)
        order = ranks(index)
        ranked = 1.0 - order / index.shape[-1]  # never negative, so that no source is excluded
        return np.broadcast_to(ranked, (view.batch, self.task.n))


class OldestFirst(Agent):
    """Crawls the sources in turn (round robin), independent of their parameters."""

    name = "oldest-first"

    def priority(self, view: ObservationView) -> FloatArray:
        # Equal priorities: the environment breaks ties by age, then by number.
        return np.zeros((view.batch, self.task.n))


class Random(Agent):
    """Crawls sources drawn uniformly by the agent's own generator (`seed`)."""

    name = "random"

    def priority(self, view: ObservationView) -> FloatArray:
        return self.rng.random((view.batch, self.task.n))
