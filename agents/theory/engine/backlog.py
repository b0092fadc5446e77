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

    β(λ) = max(0, max_k (R̄(k) − λ)/k),   H_λ(k) = max_{j ≥ k} R̄(j) − λ − (j − k + 1) β(λ)

(where β is 0, as the source need not be crawled, no less than 0),
the value of the arm at age k relative to that just after a crawl, crawling now and later are
equally good at the multiplier that solves λ + H_λ(k + 1) = R(k; b): the index of age k and backlog
b. Where R does not depend on b it is Whittle's. It may be negative, where a crawl does harm.

φ and π depend on the policy, so the index is found by iteration: a policy is simulated, the law of
the items that it delivers at each backlog gives φ, π and the next index. What is best in simulation
is kept; the index that ignores the engine takes part. This is a heuristic: values are added up over
sources and queue, and nothing is proved about its limit. Where all that is found joins the queue,
the price of a place decides whether a source is served at all (`agents.theory.engine.relaxation`),
so that first some sources may be left out: those whose items are worth least at a multiplier, as
many as is best in simulation. In a small fleet the other sources are no average: the policy of
`agents.theory.engine.lookahead` is used instead, unless the index that ignores the engine earns
more by two standard errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import stats

from agents.theory.engine.joining import joining
from agents.theory.engine.lookahead import Fleet, Lookahead, LookaheadSearch, serve
from agents.theory.engine.queue import Service, forgetful, kept_at_place, served, service_of
from agents.theory.engine.relaxation import engine_relaxation
from agents.theory.engine.tables import BacklogTable
from agents.theory.renewal import renewal_arm
from crawl_env import Engine, Sources
from crawl_env.compiled import compiled
from crawl_env.content.draws import Stream, poisson, stream
from crawl_env.content.utility import Distribution, Exponential
from crawl_env.numerics import BoolArray, FloatArray, IntArray
from crawl_env.rng import generator

_MOST_CELLS = 4e6  # sources × ages × states of the queue × places of a table
_MOST_PHASES = 8
_FADED = 5.0  # time constants after which a source is taken to be as old as it gets
_ROUNDS = 8
_DAMPING = 0.5
_STEPS, _RUNS = 4000, 8  # of a simulation
_COMPARISON, _SURE = 10_000, 2.0  # steps and standard errors of a comparison with looking ahead
_WORK = 4e8  # of one, in choices among sources
_FEW = 6  # sources up to which the policy that looks ahead is sought
_LAST = 1e3  # times the largest index by which sources that are left out are below
_RATIOS = (0.3, 0.45, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.35, 1.7)  # items found / items indexed
_GRID = 256  # multipliers at which an arm is solved
_NEGLIGIBLE = 1e-3  # part of the reward that no better policy could win
_TINY = 1e-300
_RARE = 1e-3  # weight of the average law where a backlog hardly occurs


class Outcome(NamedTuple):
    """What a simulated policy does; the queue has Q states."""

    reward: FloatArray  # (runs,) utility / step
    law: FloatArray  # (Q, L + 1) of the number of items delivered in each state
    worth: float  # utility / item, when delivered
    number: float  # items / step

    @property
    def states(self) -> FloatArray:
        """π, (Q,)."""
        return np.asarray(self.law.sum(axis=1) / self.law.sum())


class QueueIndex:
    """The index of every source by age and state of the queue, for an engine that is first in,
    first out.

    The state of the queue is the backlog 0 … K, and for each fraction of an item that a
    deterministic engine may have left over, one after the other, the same again.

    Arguments:
        sources: a fleet without failures, crawl delays, capacities.
        budget: M, budget units / step.
        engine: with discipline "fifo" and a finite rate.
        utility: the distribution of ξ/ξ̄.

    Attributes:
        table: (F, N, ages, K + 1) utility / budget unit, by the state of `service`.
        service: how the engine takes items.
        is_plain: whether it is the index that ignores the engine.
        ahead: in a small fleet, the policy that looks ahead, unless the index that ignores the
            engine clearly earns more.
        reward: the reward per step in simulation.
    """

    def __init__(
        self, sources: Sources, budget: float, engine: Engine, utility: Distribution | None = None
    ) -> None:
        self.sources, self._budget, self.engine = sources, budget, engine
        self.service = known_service(engine)
        self._capacity, self._ages = _limits(sources, engine)
        self._longest = self._capacity + int(self.service.places.max())
        self._fill(utility or Exponential())
        self._search()

    def priority(self, age: FloatArray, phase: IntArray, backlog: FloatArray) -> FloatArray:
        """Return what the policy prefers, (B, N), as priorities in one and the same state.

        Arguments:
            age: (B, N), steps since a crawl.
            phase: (B,) what the engine has left over, by its number.
            backlog: (B,) items that wait.
        """
        if self.ahead is not None:
            whole = np.maximum(np.rint(age), 1).astype(np.int64)
            return self.ahead.priority(whole, phase, backlog.astype(np.int64))
        levels, index = np.arange(self._capacity + 1.0), np.empty(age.shape)
        for f, table in enumerate(self.table):
            some = phase == f
            index[some] = BacklogTable(table, levels).priority(
                age[some], phase[some], backlog[some]
            )
        return index

    @staticmethod
    def fits(sources: Sources, engine: Engine) -> bool:
        """Return whether the tables of a fleet are small enough."""
        capacity, ages = _limits(sources, engine)
        phases = len(known_service(engine).fractions)
        return len(sources) * ages * phases * (capacity + engine.rate) <= _MOST_CELLS

    # -------------------------------------------------------------------------------- tables

    def _fill(self, utility: Distribution) -> None:
        n, ages, longest = len(self.sources), self._ages, self._longest
        phases, backlogs = len(self.service.fractions), self._capacity + 1
        self._phase, self._backlog = np.divmod(np.arange(phases * backlogs), backlogs)
        self._number = np.empty((n, ages))  # y
        self._utility = np.empty((n, ages))  # Σ_j A
        self._credit = np.empty((n, ages, phases, longest + 1))  # Σ_j A_kj D(p + j), p = 0 … L
        self._odds = np.empty((n, ages, longest + 1))  # of the number of items
        self._survival = kept_at_place(
            self.service, self._capacity, longest, self.sources.retention
        )  # (N, F, L)
        place = np.arange(longest)[:, None] + np.arange(longest + 1)
        within, place = place < longest, np.minimum(place, longest - 1)
        for i in range(n):
            number, joins, total = joining(
                self.sources, i, ages, longest, self.engine.threshold, utility
            )
            self._number[i], self._utility[i] = number, total
            for f in range(phases):
                shifted = np.where(within, self._survival[i, f][place], 0.0)
                self._credit[i, :, f] = joins @ shifted
            self._odds[i] = stats.poisson.pmf(np.arange(longest + 1), number[:, None])
            self._odds[i, :, -1] += 1.0 - self._odds[i].sum(axis=-1)
        moves = served(self.service, self._capacity, longest)  # (F, L + 1, F, K + 1)
        self._moves = moves.reshape(phases, longest + 1, phases * backlogs)

    def _search(self) -> None:
        """Find the best index by iteration."""
        ages, states = np.arange(1.0, self._ages + 1)[:, None], self._phase.size
        plain = renewal_arm(self.sources).index_at_age(ages * np.ones(len(self.sources)))
        table = np.repeat(plain.T[..., None], states, axis=-1)
        best = self._simulate(table)
        best_table, self.is_plain, turns = table, True, _ROUNDS
        if best.reward.mean() > (1.0 - _NEGLIGIBLE) * best.worth * best.number:
            turns = 0  # the engine takes hardly anything from what the crawler brings
        self.ahead: Lookahead | None = None
        if turns and len(table) <= _FEW:
            ahead = LookaheadSearch(self._fleet(), self.service, self._capacity, self._moves)
            # It was the best of many by simulation: the two are compared on new arrivals.
            best = self._simulate(table, _COMPARISON, seed=1)
            reward = ahead.simulated(_COMPARISON, _RUNS, seed=1)
            if not _better(best.reward, reward, _SURE):
                self.ahead, self.is_plain, best = ahead.best, False, best._replace(reward=reward)
        elif turns:
            nobody = np.zeros(len(table), bool)
            starts = [(nobody, best)]
            for some in self._least_worth():
                rest = _without(table, some)
                outcome = self._simulate(rest)
                if _better(outcome.reward, best.reward):
                    best, best_table, self.is_plain = outcome, rest, False
                    starts = [(nobody, starts[0][1]), (some, outcome)]
            for left_out, start in starts:
                for outcome, other in self._iterated(left_out, start, turns):
                    if _better(outcome.reward, best.reward):
                        best, best_table, self.is_plain = outcome, other, False
        shape = *best_table.shape[:2], len(self.service.fractions), self._capacity + 1
        self.table = np.moveaxis(best_table.reshape(shape), 2, 0)
        self.reward = float(best.reward.mean())

    def _iterated(
        self, left_out: BoolArray, outcome: Outcome, turns: int
    ) -> Iterator[tuple[Outcome, FloatArray]]:
        """Yield what policies earn, and their tables, while the index is iterated."""
        value, law = np.zeros(self._phase.size), outcome.states
        for turn in range(turns):
            weight = 1.0 if turn == 0 else _DAMPING
            value = value + weight * (self._relative_value(outcome) - value)
            law = law + weight * (outcome.states - law)
            table = _without(self._index(value, law, outcome), left_out)
            outcome = self._simulate(table)
            yield outcome, table

    def _least_worth(self) -> list[BoolArray]:
        """Return sources that might be left out, (N,), more and more: those whose items are worth
        least for each place that they take, so that the others find some multiple of what is
        indexed."""
        arms, items = renewal_arm(self.sources), self.sources.arrival_rate * self.sources.period
        budget, rate = self._budget, float(self.engine.rate)
        multiplier = engine_relaxation(self.sources, budget, rate, refuse=False).multiplier
        ages = np.arange(1.0, self._ages + 1)[:, None]
        net = arms.mean_content(ages * np.ones(len(items))) - multiplier * self.sources.cost
        worth = np.maximum((net / ages).max(axis=0), 0.0) / np.maximum(items, _TINY)
        order = np.argsort(-worth, kind="stable")
        total = np.cumsum(items[order])
        sizes = {int(np.searchsorted(total, c * rate, side="right")) for c in _RATIOS}
        crawls = int(np.ceil(budget / self.sources.cost.min()))
        masks = []
        for size in sorted(sizes, reverse=True):
            if crawls <= size < len(items):
                mask = np.ones(len(items), bool)
                mask[order[:size]] = False
                masks.append(mask)
        return masks

    def _fleet(self) -> Fleet:
        faded = np.ceil(_FADED / self.sources.decay_per_step).astype(int)
        oldest = np.clip(faded, min(20, self._ages) - 1, self._ages - 1)
        cost = np.asarray(self.sources.cost, dtype=np.float64)
        return Fleet(self._number, self._credit, cost, oldest, float(self._budget))

    # ----------------------------------------------------------------------------- one round

    def _chain(self, law: FloatArray) -> FloatArray:
        """Return the transition matrix of the queue, (Q, Q), under a law of what is delivered."""
        after = np.minimum(self._backlog[:, None] + np.arange(self._longest + 1), self._longest)
        return np.einsum("qn,qnr->qr", law, self._moves[self._phase[:, None], after])

    def _smooth(self, law: FloatArray) -> FloatArray:
        """Return a law of counts, (Q, L + 1), as probabilities: where a state hardly occurs, those
        of all states."""
        average = law.sum(axis=0)
        law = law + _RARE * average / max(average.sum(), _TINY) + _TINY
        return np.asarray(law / law.sum(axis=1, keepdims=True))

    def _relative_value(self, outcome: Outcome) -> FloatArray:
        """Return φ, (Q,), of a queue to which items of mean worth come by the law of a policy:
        φ(q) + g = r(q) + E φ(q')."""
        longest, states = self._longest, self._phase.size
        share = self.sources.arrival_rate * self.sources.mean_utility
        survival = np.average(self._survival, axis=0, weights=share if share.any() else None)
        credit = np.zeros((len(survival), longest + 1))  # by the first L places
        credit[:, 1:] = outcome.worth * np.cumsum(survival, axis=1)
        law = self._smooth(outcome.law)
        after = np.minimum(self._backlog[:, None] + np.arange(longest + 1), longest)
        here = credit[self._phase]
        gain = np.take_along_axis(here, after, 1) - np.take_along_axis(here, after[:, :1], 1)
        system = np.zeros((states + 1, states + 1))
        system[:-1, :-1] = np.eye(states) - self._chain(law)
        system[:-1, -1] = 1.0  # g
        system[-1, 0] = 1.0  # φ = 0 where nothing waits
        right = np.append((law * gain).sum(axis=1), 0.0)
        return np.asarray(np.linalg.lstsq(system, right, rcond=None)[0][:-1])

    def _places(self, others: int) -> tuple[IntArray, IntArray, IntArray]:
        """Return the items in front, those in the queue, and those after 0 … L of one's own have
        joined, (Q,), (Q,), (L + 1, Q), where the other crawls of the step bring some items, half of
        them first."""
        longest = self._longest
        ahead = np.minimum(self._backlog + others // 2, longest)
        there = np.minimum(self._backlog + others, longest)
        return ahead, there, np.minimum(there + np.arange(longest + 1)[:, None], longest)

    def _index(self, value: FloatArray, law: FloatArray, outcome: Outcome) -> FloatArray:
        """Return the index, (N, ages, Q), of φ and π."""
        crawls = max(self._budget / float(self.sources.cost.mean()), 1.0)
        ahead, there, later = self._places(round(outcome.number * (1.0 - 1.0 / crawls)))
        after = self._moves @ value  # φ', (F, L + 1)
        brings = self._credit[:, :, self._phase, ahead] + (
            self._odds @ after[self._phase, later] - after[self._phase, there]
        )
        table = np.empty_like(brings)
        for i in range(len(table)):
            mean = brings[i] @ law
            _solve(mean, brings[i], _multipliers(mean, brings[i], _GRID), table[i])
        return table / self.sources.cost[:, None, None]

    def _simulate(self, table: FloatArray, steps: int = _STEPS, seed: int = 0) -> Outcome:
        n, states, longest = len(self.sources), self._phase.size, self._longest
        crawls = max(self._budget / float(self.sources.cost.min()), 1.0)
        steps = int(np.clip(_WORK / (_RUNS * n * (crawls + 2.0)), 300, steps))
        law = np.zeros((states, longest + 1))
        reward, sums = np.zeros(_RUNS), np.zeros(2)
        _simulate(
            table,
            self._number,
            self._utility,
            self._credit,
            self.sources.cost,
            self._budget * (1 + 1e-12),
            np.cumsum(self.service.odds),
            self.service.places,
            self.service.onward,
            self._capacity,
            steps,
            stream(generator(seed, "multiplier")),
            law,
            reward,
            sums,
        )
        worth, number = sums
        return Outcome(reward, law, worth / max(number, _TINY), number / law.sum())


def known_service(engine: Engine) -> Service:
    """Return the service of an engine; its fractions are forgotten where they are too many, or
    where no backlog tells them."""
    if engine.service == "deterministic" and engine.capacity == 0:
        return forgetful(engine)
    try:
        return service_of(engine, _MOST_PHASES)
    except ValueError:
        return forgetful(engine)


def _limits(sources: Sources, engine: Engine) -> tuple[int, int]:
    """Return the largest backlog and age of the tables."""
    # An unlimited buffer is cut off where waiting items have lost nearly all.
    slowest = float(np.quantile(sources.decay_per_step, 0.1))
    enough = int(np.ceil(min(2.0 * _FADED / slowest, 60.0) * engine.rate)) + 10
    capacity = enough if engine.capacity is None else min(engine.capacity, enough)
    ages = int(np.clip(np.ceil(_FADED / sources.decay_per_step.min()) + 1, 20, 400))
    return capacity, ages


def _without(table: FloatArray, left_out: BoolArray) -> FloatArray:
    """Return a table in which sources are crawled only if there is budget for no other."""
    lowest = -_LAST * float(np.abs(table).max())
    return np.where(left_out[:, None, None], lowest, table) if left_out.any() else table


def _better(one: FloatArray, other: FloatArray, errors: float = 1.0) -> bool:
    """Return whether rewards are larger by more than some standard errors."""
    gain = one - other
    return bool(gain.mean() > errors * gain.std(ddof=1) / np.sqrt(gain.size))


def _multipliers(mean: FloatArray, brings: FloatArray, most: int) -> FloatArray:
    """Return increasing multipliers at which an arm is solved: those where its best age changes,
    and a grid over what it may bring."""
    ages = np.arange(1.0, mean.size)
    kinks = mean[:-1] - ages * np.diff(mean)
    low, high = min(brings.min(), mean.min()), max(brings.max(), mean.max())
    wide = high - low + 1e-9
    grid = np.linspace(low - wide, high + 0.01 * wide, most)
    kinks = kinks[(kinks > grid[0]) & (kinks < grid[-1])][: most // 2]
    return np.unique(np.concatenate([grid, kinks]))


@compiled
def _solve(mean: FloatArray, brings: FloatArray, multipliers: FloatArray, out: FloatArray) -> None:
    """Write the index, (ages, K + 1), of one arm."""
    ages, levels = mean.size, multipliers.size
    worth = np.empty((ages, levels))  # λ + H_λ(k + 1)
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
            worth[k, m] = charge + best
    for k in range(ages):
        row = worth[min(k + 1, ages - 1)]
        for m in range(1, levels):
            row[m] = max(row[m], row[m - 1])
    for k in range(ages):
        row = worth[min(k + 1, ages - 1)]
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
    utility: FloatArray,
    credit: FloatArray,
    cost: FloatArray,
    budget: float,
    odds: FloatArray,
    places: IntArray,
    onward: IntArray,
    capacity: int,
    steps: int,
    state: Stream,
    law: FloatArray,
    reward: FloatArray,
    sums: FloatArray,
) -> None:
    """Simulate sources that are crawled in the order of a table, greedily within the budget."""
    n, ages, longest = number.shape[0], number.shape[1], credit.shape[3] - 1
    age = np.empty(n, np.int64)
    is_taken = np.empty(n, np.bool_)
    for run in range(reward.size):
        age[:] = 0
        backlog, phase = 0, 0
        total = 0.0
        for step in range(steps + steps // 10):
            warm = step >= steps // 10
            is_taken[:] = False
            rest, here = budget, phase * (capacity + 1) + backlog
            while True:
                best = -1
                for i in range(n):
                    if is_taken[i] or cost[i] > rest:
                        continue
                    if best < 0:
                        best = i
                        continue
                    mine = table[i, min(age[i], ages - 1), here]
                    other = table[best, min(age[best], ages - 1), here]
                    if mine > other or (mine == other and age[i] > age[best]):
                        best = i
                if best < 0:
                    break
                is_taken[best] = True
                rest -= cost[best]
            queue = backlog
            for i in range(n):
                if not is_taken[i]:
                    age[i] += 1
                    continue
                k = min(age[i], ages - 1)
                if warm:
                    total += credit[i, k, phase, min(queue, longest)]
                    sums[0] += utility[i, k]
                    sums[1] += number[i, k]
                queue += int(poisson(state, number[i, k]))
                age[i] = 0
            if warm:
                law[here, min(queue - backlog, longest)] += 1.0
            backlog, phase = serve(queue, phase, capacity, odds, places, onward, state)
        reward[run] = total / steps
