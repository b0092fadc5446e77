"""Whittle's index at arrival rates that change: told by the world, or inferred from the crawls of
all sources of a topic.

The index of a source is proportional to its arrival rate if its content is, too: γ(x) at the rate
fΛ is f γ(x/f) at the rate Λ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.inference.regimes import RegimeBelief, RegimeFilter
from agents.policies.base import Environment, ObservationView, State, graded, needs_all
from agents.policies.index import Whittle
from agents.theory.regimes import regimes_of
from crawl_env import NEVER, Task
from crawl_env.numerics import FloatArray

_LEAST = 1e-12  # factor, so that it can be divided by


class _AtRates(Whittle):
    """Whittle's index at rates that differ from the mean ones."""

    def _priority_at(
        self, view: ObservationView, factor: FloatArray, content: FloatArray
    ) -> NDArray[Any]:
        """Return the priorities of sources whose rates have these factors, and which hold this
        content where it is not observed, (B, N) each."""
        if view.shows("value"):
            content = np.where(self.task.observed, view["value"], content)
        factor, sources = np.maximum(factor, _LEAST), view.sources
        index = factor * self._arms(sources).index(content / factor)
        return graded(index, None if self._multiplier is None else self._multiplier(sources))


class WhittleCurrent(_AtRates):
    """The Whittle index at the current arrival rates, of the mean content given all rates so far.

    It sees the feature `rate`, which no crawler does: a reference for rates that change, such as
    regimes of topics or cycles of unknown phase. Where rates are constant or recorded it is
    `Whittle`. Sources whose value is observed have the index of this value. λ* under
    `budget_rule="average"` is that of the mean rates.

    The recurrent state has the steps since the start, the mean content, and the last factors of the
    rates.

    Raises:
        ValueError: rates change, and `age` or `rate` is not observed; or as for index agents.
    """

    name = "whittle-current"
    features = ("age", "rate")

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        arrivals = self.task.arrivals
        self._changes = arrivals.random and arrivals.stateful
        if self._changes:
            needs_all(self.task, self.name, *self.features)

    def begin(self, view: ObservationView) -> State:
        if not self._changes:
            return ()
        age = view["age"]
        content = view.sources.content_at(np.where(age < NEVER, age, np.inf))
        return np.zeros((view.batch, 1)), content, np.ones_like(age)

    def decide(self, view: ObservationView, state: State) -> tuple[NDArray[Any], State]:
        if not self._changes:
            return self.priority(view), state
        clock, content, factor = state
        sources = view.sources
        rest = np.where(view["age"] == 1, 0.0, content)
        content = np.where(clock > 0, sources.retention * rest + factor * sources.inflow, content)
        rate = np.broadcast_to(sources.arrival_rate, content.shape)
        factor = np.divide(view["rate"], rate, out=np.ones_like(content), where=rate > 0)
        return self._priority_at(view, factor, content), (clock + 1.0, content, factor)


class WhittleRegimes(_AtRates):
    """The Whittle index at the posterior mean of the current rates, where topics are hot or cold.

    The regime of a topic is inferred from the numbers of items that the crawls of all its sources
    found (`agents.inference.regimes.RegimeFilter`), given the mean rates, the topics and the law of
    the regimes. The index is that of the content which is expected given the regimes since the last
    crawl, and .4 of its standard deviations more, since a crawl tells of the whole topic. Where
    there are no regimes it is `Whittle`.

    The recurrent state has the steps since the start and the belief of the filter.

    Arguments:
        env: an environment, a vector environment, or a `Task`.
        seed: unused.

    Raises:
        ValueError: there are regimes, and `age`, `crawled` or `items` is not observed; or as for
            index agents.
    """

    name = "whittle-regimes"
    features = ("age", "crawled", "items")

    @classmethod
    def features_in(cls, task: Task) -> tuple[str, ...]:
        return () if regimes_of(task) is None else cls.features

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        super().__init__(env, seed=seed)
        law, self._filter = regimes_of(self.task), None
        if law is not None:
            needs_all(self.task, self.name, *self.features)
            self._filter = RegimeFilter(self.task.sources.topic_of, (law,))

    def begin(self, view: ObservationView) -> State:
        if self._filter is None:
            return ()
        age = view["age"]
        return np.zeros((view.batch, 1)), age, self._filter.begin(age, view.sources.retention)

    def decide(self, view: ObservationView, state: State) -> tuple[NDArray[Any], State]:
        if self._filter is None:
            return self.priority(view), state
        clock, age, belief = state
        belief, sources = RegimeBelief(*belief), view.sources
        started = clock > 0  # (B, 1)
        if started.any():
            crawled = (view["crawled"] > 0) & started
            env, source = np.nonzero(crawled & (age < NEVER))
            mean = np.broadcast_to(sources.arrival_rate * sources.period, crawled.shape)
            after, _ = self._filter.update(
                belief, crawled, env, source, view["items"][env, source],
                mean[env, source], np.full(env.size, np.inf), sources.retention,
            )  # fmt: skip
            belief = RegimeBelief(
                *(
                    np.where(started.reshape(-1, *(1,) * (x.ndim - 1)), x, y)
                    for x, y in zip(after, belief, strict=True)
                )
            )
        content = self._filter.content(belief) * sources.inflow
        priority = self._priority_at(view, self._filter.factor(belief), content)
        return priority, (clock + 1.0, view["age"], belief)
