"""The fleet with which an adaptive agent plans: its index and its belief, from estimates."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from agents.adaptive.estimators.counts import State
from agents.adaptive.estimators.signals import Quality
from agents.theory.closed_form import age_index, decayed, remainder_ratio, theorem_1
from crawl_env.compiled import compiled
from crawl_env.numerics import BoolArray, FloatArray


class UnitArms:
    """Sources of arrival rate 1: the index at rate Λ is Λ times theirs.

    Arguments:
        mean_utility: (N,) or (B, N) utility.
        decay_rate: of the same shape, 1 / time.
        cost: (N,) or (B, N) budget units.
        period: T.
    """

    def __init__(
        self, mean_utility: FloatArray, decay_rate: FloatArray, cost: FloatArray, period: float
    ) -> None:
        self.mean_utility, self.decay_rate = mean_utility, decay_rate
        self._cost, self._period = cost, period

    @cached_property
    def _table(self) -> FloatArray:
        """u* at rate 1, cost, μT, g(μT)/μT, and u*/C, (5, N) or (5, B·N)."""
        decay, ceiling = self.decay_rate * self._period, self.mean_utility / self.decay_rate
        rows = (ceiling, self._cost, decay, remainder_ratio(decay), ceiling / self._cost)
        return np.array([np.broadcast_to(row, decay.shape).reshape(-1) for row in rows])

    def index_at_age(self, rate: FloatArray, age: FloatArray) -> FloatArray:
        """Return the Whittle index at rates, (B, N), and whole ages, (B, N)."""
        out = np.empty(age.shape)
        _index_at_age(rate.reshape(-1), age.reshape(-1), self._table, out.reshape(-1))
        return out

    def index_at_age_once(self, rate: FloatArray, age: FloatArray) -> FloatArray:
        """Return the same of arms, (B, N), whose index is needed only once."""
        out = np.empty(age.shape)
        cost = np.broadcast_to(self._cost, age.shape)
        for row in range(len(out)):
            arms = self.mean_utility[row], self.decay_rate[row], cost[row]
            _index_of_new_arms(rate[row], age[row], *arms, self._period, out[row])
        return out

    def index_at(
        self, rate: FloatArray, age: FloatArray, value: FloatArray, observed: BoolArray
    ) -> FloatArray:
        """Return the Whittle index at rates, (B, N), of the value if a source is `observed`, (N,),
        and otherwise of the mean content at its age; both (B, N)."""
        out, table = np.empty(age.shape), self._table
        seen = np.zeros(table.shape[1])
        seen.reshape(-1, observed.size)[:] = observed
        flat = [array.reshape(-1) for array in (rate, age, value, out)]
        _index_at_content(flat[0], flat[1], flat[2], seen, table, flat[3])
        return out

    @property
    def decay_per_step(self) -> FloatArray:
        """μT, (N,) or (B·N,)."""
        row: FloatArray = self._table[2]
        return row

    def belief(
        self, quality: Quality, age: FloatArray, number: FloatArray, aged: FloatArray
    ) -> FloatArray:
        """Return the expected content, (B, N) utility, given the pings since the last crawl.

        Arguments:
            quality: of the signals, (B, N).
            age: (B, N) steps.
            number: of the pings, (B, N); negative if they are not known.
            aged: their sum discounted by age, (B, N).
        """
        out = np.empty(age.shape)
        arrays = np.array((*quality, age, number, aged)).reshape(6, -1)
        _belief(arrays, self._table, self._period, out.reshape(-1))
        return out


@compiled
def _index_at_age(rate: FloatArray, age: FloatArray, table: FloatArray, out: FloatArray) -> None:
    n = table.shape[1]
    for start in range(0, out.size, n):  # each fleet by a loop over slices, which is vectorised
        here = slice(start, start + n)
        _of_fleet_at_age(rate[here], age[here], table, out[here])


@compiled
def _of_fleet_at_age(rate: FloatArray, age: FloatArray, table: FloatArray, out: FloatArray) -> None:
    for i in range(out.size):
        out[i] = rate[i] * age_index(age[i], table[2, i], table[3, i], table[4, i])


@compiled
def _index_of_new_arms(
    rate: FloatArray,
    age: FloatArray,
    mean_utility: FloatArray,
    decay_rate: FloatArray,
    cost: FloatArray,
    period: float,
    out: FloatArray,
) -> None:
    for i in range(out.size):
        decay = decay_rate[i] * period
        full = mean_utility[i] / (decay_rate[i] * cost[i])
        out[i] = rate[i] * age_index(age[i], decay, decayed(decay)[1], full)


@compiled
def _index_at_content(
    rate: FloatArray,
    age: FloatArray,
    value: FloatArray,
    observed: FloatArray,
    table: FloatArray,
    out: FloatArray,
) -> None:
    n = table.shape[1]
    for start in range(0, out.size, n):
        here = slice(start, start + n)
        _content(age[here], table, out[here])
        _of_fleet_at_content(rate[here], value[here], observed, table, out[here])


@compiled
def _content(age: FloatArray, table: FloatArray, out: FloatArray) -> None:
    for i in range(out.size):
        aged = table[2, i] * age[i]
        out[i] = table[0, i] * min(aged * (1.0 - decayed(aged)[1]), 1.0)


@compiled
def _of_fleet_at_content(
    rate: FloatArray, value: FloatArray, observed: FloatArray, table: FloatArray, out: FloatArray
) -> None:
    for i in range(out.size):
        x = value[i] / rate[i] if observed[i] > 0 else out[i]
        out[i] = rate[i] * theorem_1(x, table[0, i], table[1, i], table[2, i], table[3, i])


@compiled
def count_pings(
    pings: FloatArray,
    decay: FloatArray,
    crawled: BoolArray,
    number: FloatArray,
    aged: FloatArray,
) -> None:
    """Add the pings of one step to those since the last crawl; `decay` is μT, of one fleet or of
    all."""
    for i in range(number.size):
        kept, bend = decayed(decay[i % decay.size])
        before = 0.0 if crawled[i] else number[i]
        number[i] = before + pings[i] if before >= 0.0 else before
        aged[i] = (0.0 if crawled[i] else kept * aged[i]) + pings[i] * (1.0 - bend)


@compiled
def _belief(known: FloatArray, table: FloatArray, period: float, out: FloatArray) -> None:
    rate, silent, precision, age, number, aged = (
        known[0],
        known[1],
        known[2],
        known[3],
        known[4],
        known[5],
    )
    for i in range(out.size):
        j = i % table.shape[1]
        ceiling, decay = table[0, j], table[2, j]
        full = ceiling * (1.0 - decayed(decay * age[i])[0])
        pinged = precision[i] * ceiling * (decay / period) * aged[i]
        out[i] = silent[i] * full + pinged if number[i] >= 0.0 else rate[i] * full


class PlanningModel(NamedTuple):
    """The fleet whose index an agent uses in one step."""

    rate: FloatArray  # (B, N) items / time
    arms: UnitArms
    state: State  # state of the agent for the next step
    quality: Quality | None = None  # of the signals, (B, N), if the agent learns it
