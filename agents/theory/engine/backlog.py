"""The index of a source in front of a queue: what a crawl is worth when b items wait.

The price of a place in the queue depends on the backlog: where the engine starves an item costs
nothing, where the buffer is full it costs another item its place, and in between it makes all that
come later wait. Let φ(b) be the value of a backlog relative to others (the solution of Poisson's
equation of the queue under a policy), and φ'(L) its expectation after a step in which L items were
there before service. A crawl of source i at age k, that finds b items, brings

    R_i(k; b) = Σ_j A_kj D_i(b + j) + E φ'(b + n) − φ'(b),    n ~ Poisson(y_k),

where the j-th of its items joins with utility A_kj (`agents.theory.engine.joining`) and keeps the
fraction D_i of it until it is indexed (`agents.theory.engine.queue`). Without an engine R is x_k.
At most times the source is crawled at another backlog: with R̄(k) = Σ_b π(b) R(k; b) and

    β(λ) = max_k (R̄(k) − λ)/k,   H_λ(k) = max(0, max_{j ≥ k} R̄(j) − λ − (j − k + 1) β(λ)),

the value of the arm at age k relative to that just after a crawl, crawling now and later are
equally good at the multiplier that solves λ + H_λ(k + 1) = R(k; b): the index of age k and backlog
b. Where R does not depend on b it is Whittle's. It may be negative, where a crawl does harm.

φ and π depend on the policy, so the index is found by iteration: a policy is simulated, the law of
the items that it delivers at each backlog gives φ, π and the next index. What is best in simulation
is kept, and the index that ignores the engine takes part. This is a heuristic: values are added up
over sources and queue, and nothing is proved about its limit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats

from agents.theory.engine.joining import joining
from agents.theory.engine.queue import forgetful, kept_at_place, served
from agents.theory.engine.tables import IndexTable
from agents.theory.renewal import renewal_arm
from crawl_env import Engine, Sources
from crawl_env.compiled import compiled
from crawl_env.content.draws import Stream, poisson, stream, uniform
from crawl_env.content.utility import Distribution, Exponential
from crawl_env.numerics import FloatArray
from crawl_env.rng import generator

_MOST_CELLS = 4e6  # sources × ages × places of a table
_FADED = 5.0  # time constants after which a source is taken to be as old as it gets
_ROUNDS = 14
_DAMPING = 0.5
_STEPS, _RUNS = 4000, 8  # of a simulation
_WORK = 4e8  # of one, in choices among sources
_GRID = 256  # multipliers at which an arm is solved
_NEGLIGIBLE = 1e-3  # part of the reward that no better policy could win
_UNSEEN = 1e-3  # weight of the average law where a backlog hardly occurs


class Outcome(NamedTuple):
    """What a simulated policy does."""

    reward: FloatArray  # (runs,) utility / step
    backlog: FloatArray  # π, (K + 1,)
    law: FloatArray  # (K + 1, L + 1) of the number of items delivered at each backlog
    worth: float  # utility / item, when delivered
    number: float  # items / step


class QueueIndex:
    """The index of every source by age and backlog, for an engine that is first in, first out.

    Arguments:
        sources: a fleet without failures, crawl delays, capacities.
        budget: M, budget units / step.
        engine: with discipline "fifo" and a finite rate.
        utility: the distribution of ξ/ξ̄.

    Attributes:
        table: the index of every source by age and backlog, 0 … K.
        is_plain: whether it is the index that ignores the engine.
        reward: the reward per step in simulation.
    """

    def __init__(
        self, sources: Sources, budget: float, engine: Engine, utility: Distribution | None = None
    ) -> None:
        self.sources, self._budget, self.engine = sources, budget, engine
        self._service = forgetful(engine)
        self._capacity, self._ages = self._size(engine)
        self._longest = self._capacity + int(self._service.places.max())
        self._fill(utility or Exponential())
        self._search()

    @staticmethod
    def fits(sources: Sources, engine: Engine) -> bool:
        """Return whether the tables of a fleet are small enough."""
        capacity, ages = QueueIndex._limits(sources, engine)
        return len(sources) * ages * (capacity + engine.rate) <= _MOST_CELLS

    @staticmethod
    def _limits(sources: Sources, engine: Engine) -> tuple[int, int]:
        # An unlimited buffer is cut off where waiting items have lost nearly all.
        slowest = float(np.quantile(sources.decay_per_step, 0.1))
        enough = int(np.ceil(min(2.0 * _FADED / slowest, 60.0) * engine.rate)) + 10
        capacity = enough if engine.capacity is None else min(engine.capacity, enough)
        ages = int(np.clip(np.ceil(_FADED / sources.decay_per_step.min()) + 1, 20, 400))
        return capacity, ages

    def _size(self, engine: Engine) -> tuple[int, int]:
        return self._limits(self.sources, engine)

    # -------------------------------------------------------------------------------- tables

    def _fill(self, utility: Distribution) -> None:
        n, ages, longest = len(self.sources), self._ages, self._longest
        self._number = np.empty((n, ages))  # y
        self._brought = np.empty((n, ages))  # Σ_j A
        self._credit = np.empty((n, ages, longest + 1))  # Σ_j A_kj D(q + j), q = 0 … L
        self._odds = np.empty((n, ages, longest + 1))  # of the number of items
        kept = kept_at_place(self._service, self._capacity, longest, self.sources.retention)[:, 0]
        self._kept = kept
        place = np.arange(longest)[:, None] + np.arange(longest + 1)
        within = place < longest
        for i in range(n):
            number, joins = joining(
                self.sources, i, ages, longest, self.engine.threshold, utility
            )
            shifted = np.where(within, kept[i][np.minimum(place, longest - 1)], 0.0)
            self._number[i], self._credit[i] = number, joins @ shifted
            self._brought[i] = joins.sum(axis=1)
            self._odds[i] = stats.poisson.pmf(np.arange(longest + 1), number[:, None])
            self._odds[i, :, -1] += 1.0 - self._odds[i].sum(axis=-1)
        self._moves = served(self._service, self._capacity, longest)[0, :, 0]  # (L + 1, K + 1)

    def _search(self) -> None:
        """Find the best index by iteration."""
        ages = np.arange(1.0, self._ages + 1)[:, None]
        plain = renewal_arm(self.sources).index_at_age(ages * np.ones(len(self.sources)))
        table = np.repeat(plain.T[..., None], self._capacity + 1, axis=-1)
        best = self._simulate(table)
        chosen, self.is_plain = table, True
        if best.reward.mean() > (1.0 - _NEGLIGIBLE) * best.worth * best.number:
            turns = 0  # the engine takes hardly anything from what the crawler brings
        else:
            turns = _ROUNDS
        found, value, law = best, np.zeros(self._capacity + 1), best.backlog
        for turn in range(turns):
            weight = 1.0 if turn == 0 else _DAMPING
            value = value + weight * (self._relative_value(found) - value)
            law = law + weight * (found.backlog - law)
            table = self._index(value, law, found.number)
            found = self._simulate(table)
            if _better(found.reward, best.reward):
                best, chosen, self.is_plain = found, table, False
        self.table = IndexTable(chosen, np.arange(self._capacity + 1.0))
        self.reward = float(best.reward.mean())

    # ----------------------------------------------------------------------------- one round

    def _relative_value(self, found: Outcome) -> FloatArray:
        """Return φ, (K + 1,), of a queue to which items of mean worth come by the law of a policy:
        φ(b) + g = r(b) + E φ(b')."""
        longest, capacity = self._longest, self._capacity
        share = self.sources.arrival_rate * self.sources.mean_utility
        share = share if share.any() else np.ones(len(share))
        kept = np.average(self._kept, axis=0, weights=share)
        earned = found.worth * np.concatenate([[0.0], np.cumsum(kept)])  # by the first L places
        average = found.law.sum(axis=0)
        law = found.law + _UNSEEN * average / max(average.sum(), 1e-300)
        law /= law.sum(axis=1, keepdims=True)
        after = np.minimum(np.arange(capacity + 1)[:, None] + np.arange(longest + 1), longest)
        reward = (law * (earned[after] - earned[: capacity + 1, None])).sum(axis=1)
        chain = np.einsum("bn,bnc->bc", law, self._moves[after])
        system = np.zeros((capacity + 2, capacity + 2))
        system[:-1, :-1] = np.eye(capacity + 1) - chain
        system[:-1, -1] = 1.0  # g
        system[-1, 0] = 1.0  # φ(0) = 0
        return np.asarray(np.linalg.lstsq(system, np.append(reward, 0.0), rcond=None)[0][:-1])

    def _brings(self, value: FloatArray, others: int) -> FloatArray:
        """Return R(k; b), (N, ages, K + 1), where the other crawls of the step bring some items,
        half of them first."""
        after = self._moves @ value  # φ'
        backlog, longest = np.arange(self._capacity + 1), self._longest
        ahead = np.minimum(backlog + others // 2, longest)
        there = np.minimum(backlog + others, longest)
        later = np.minimum(there + np.arange(longest + 1)[:, None], longest)
        return self._credit[..., ahead] + self._odds @ after[later] - after[there]

    def _index(self, value: FloatArray, law: FloatArray, number: float) -> FloatArray:
        """Return the index, (N, ages, K + 1), of φ and π."""
        crawls = max(self._budget / float(self.sources.cost.mean()), 1.0)
        brings = self._brings(value, int(round(number * (1.0 - 1.0 / crawls))))
        mean = brings @ law
        table = np.empty_like(brings)
        for i in range(len(table)):
            _solve(mean[i], brings[i], _multipliers(mean[i], brings[i]), table[i])
        return table / self.sources.cost[:, None, None] if (self.sources.cost != 1).any() else table

    def _simulate(self, table: FloatArray) -> Outcome:
        n = len(self.sources)
        crawls = max(self._budget / float(self.sources.cost.min()), 1.0)
        steps = int(np.clip(_WORK / (_RUNS * n * (crawls + 2.0)), 300, _STEPS))
        longest, capacity = self._longest, self._capacity
        law = np.zeros((capacity + 1, longest + 1))
        reward, sums = np.zeros(_RUNS), np.zeros(2)
        _simulate(
            table,
            self._number,
            self._brought,
            self._credit,
            self.sources.cost,
            self._budget * (1 + 1e-12),
            np.cumsum(self._service.odds),
            self._service.places[0],
            capacity,
            steps,
            stream(generator(0, "multiplier")),
            law,
            reward,
            sums,
        )
        worth, number = sums
        total = law.sum()
        return Outcome(
            reward, law.sum(axis=1) / total, law, worth / max(number, 1e-300), number / total
        )


def _better(one: FloatArray, other: FloatArray) -> bool:
    """Return whether rewards of the same runs are larger beyond chance."""
    gain = one - other
    return bool(gain.mean() > gain.std(ddof=1) / np.sqrt(gain.size))


def _multipliers(mean: FloatArray, brings: FloatArray) -> FloatArray:
    """Return increasing multipliers at which an arm is solved: those where its best age changes,
    and a grid over what it may bring."""
    ages = np.arange(1.0, mean.size)
    kinks = mean[:-1] - ages * np.diff(mean)
    low, high = min(brings.min(), mean.min()), max(brings.max(), mean.max())
    wide = high - low + 1e-9
    grid = np.linspace(low - wide, high + 0.01 * wide, _GRID)
    kinks = kinks[(kinks > grid[0]) & (kinks < grid[-1])][:_GRID]
    return np.unique(np.concatenate([grid, kinks]))


@compiled
def _solve(mean: FloatArray, brings: FloatArray, multipliers: FloatArray, out: FloatArray) -> None:
    """Write the index, (ages, K + 1), of one arm."""
    ages, levels = mean.size, multipliers.size
    reached = np.empty((ages, levels))  # λ + H_λ(k + 1)
    for m in range(levels):
        charge = multipliers[m]
        rate = 0.0
        for k in range(ages):
            rate = max(rate, (mean[k] - charge) / (k + 1))
        best = mean[ages - 1] - charge - rate  # at the last age, which lasts
        for k in range(ages - 1, -1, -1):
            later = best - rate if k < ages - 1 else -np.inf
            best = max(mean[k] - charge - rate, later)
            if rate <= 0.0:
                best = max(best, 0.0)
            reached[k, m] = charge + best
    for k in range(ages):
        row = reached[min(k + 1, ages - 1)]
        for m in range(1, levels):
            row[m] = max(row[m], row[m - 1])
    for k in range(ages):
        row = reached[min(k + 1, ages - 1)]
        for b in range(brings.shape[1]):
            x = brings[k, b]
            if x <= row[0]:
                out[k, b] = multipliers[0] + x - row[0]
            elif x >= row[levels - 1]:
                out[k, b] = multipliers[levels - 1] + x - row[levels - 1]
            else:
                right = np.searchsorted(row, x)
                wide = row[right] - row[right - 1]
                part = (x - row[right - 1]) / wide
                out[k, b] = multipliers[right - 1] + part * (
                    multipliers[right] - multipliers[right - 1]
                )


@compiled
def _simulate(
    table: FloatArray,
    number: FloatArray,
    brought: FloatArray,
    credit: FloatArray,
    cost: FloatArray,
    budget: float,
    odds: FloatArray,
    places: FloatArray,
    capacity: int,
    steps: int,
    state: Stream,
    law: FloatArray,
    reward: FloatArray,
    sums: FloatArray,
) -> None:
    """Simulate sources that are crawled in the order of a table, greedily within the budget."""
    n, ages, longest = number.shape[0], number.shape[1], credit.shape[2] - 1
    age = np.empty(n, np.int64)
    taken = np.empty(n, np.bool_)
    for run in range(reward.size):
        age[:] = 0
        backlog = 0
        total = 0.0
        for step in range(steps + steps // 10):
            warm = step >= steps // 10
            taken[:] = False
            left = budget
            while True:
                best = -1
                for i in range(n):
                    if taken[i] or cost[i] > left:
                        continue
                    if best < 0:
                        best = i
                        continue
                    mine = table[i, min(age[i], ages - 1), backlog]
                    other = table[best, min(age[best], ages - 1), backlog]
                    if mine > other or (mine == other and age[i] > age[best]):
                        best = i
                if best < 0:
                    break
                taken[best] = True
                left -= cost[best]
            queue = backlog
            for i in range(n):
                if not taken[i]:
                    age[i] += 1
                    continue
                k = min(age[i], ages - 1)
                if warm:
                    total += credit[i, k, min(queue, longest)]
                    sums[0] += brought[i, k]
                    sums[1] += number[i, k]
                queue += int(poisson(state, number[i, k]))
                age[i] = 0
            if warm:
                law[backlog, min(queue - backlog, longest)] += 1.0
            draw = uniform(state)
            s = 0
            while s < odds.size - 1 and odds[s] < draw:
                s += 1
            backlog = int(min(max(queue - places[s], 0), capacity))
        reward[run] = total / steps
