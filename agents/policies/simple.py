"""Simple baselines: a fixed set of sources, oldest first, whatever pinged first, random."""

from __future__ import annotations

import numpy as np

from agents.policies.base import (
    Agent,
    Environment,
    ObservationView,
    State,
    needs_all,
    needs_parameters,
)
from agents.theory.arm import PerFleet
from agents.theory.index import myopic_index
from crawl_env import Sources
from crawl_env.numerics import FloatArray, ranks


class Fixed(Agent):
    """Always crawls the same sources, those with the largest inflow per unit of cost."""

    name = "fixed"

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        needs_parameters(self.task, self.name)
        self._priority_of = PerFleet(_priorities)

    def priority(self, view: ObservationView) -> FloatArray:
        return np.broadcast_to(self._priority_of(view.sources), (view.batch, self.task.n))


def _priorities(sources: Sources) -> FloatArray:
    """Return the priorities of `Fixed`: never negative, so that no source is excluded."""
    index = myopic_index(sources.content_at(1), sources)
    return 1.0 - ranks(index) / index.shape[-1]


class OldestFirst(Agent):
    """Crawls the sources in turn (round robin), independent of their parameters."""

    name = "oldest-first"

    def priority(self, view: ObservationView) -> FloatArray:
        # Equal priorities: the environment breaks ties by age, then by number.
        return np.zeros((view.batch, self.task.n))


class PingFirst(Agent):
    """Crawls whatever pinged, the oldest ping first, and the other sources in turn: how crawlers
    use WebSub, sitemaps and webhooks today.

    It is `oldest-first` where there are no signals. The recurrent state has the steps since the
    first ping that no crawl has answered, 0 for none.

    Raises:
        ValueError: there are signals, and `age` or `pings` is not observed.
    """

    name = "ping-first"
    features = ("age", "pings")

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        if self.task.sources.is_signalled:
            needs_all(self.task, self.name, *self.features)

    def begin(self, view: ObservationView) -> State:
        return (np.zeros((view.batch, self.task.n)),)

    def decide(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        (waits,) = state
        if not self.task.sources.is_signalled:
            return waits, state  # equal priorities: the environment breaks ties by age
        waits = np.where(view["age"] == 1, 0.0, waits)
        waits = waits + ((waits > 0) | (view["pings"] > 0))
        return waits / (1.0 + waits), (waits,)


class Random(Agent):
    """Crawls sources drawn uniformly by the agent's own generator (`seed`)."""

    name = "random"

    def priority(self, view: ObservationView) -> FloatArray:
        return self.rng.random((view.batch, self.task.n))
