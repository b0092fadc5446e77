"""Looking one step ahead, with a value that is a sum over a few sources.

In front of a queue in state q (its backlog, and what a deterministic engine has left over), sources
of ages a are taken to have the value

    V(a, q) = Σ_i v_i(a_i, q).

A set S of crawls credits their items as they join the queue (`agents.theory.engine.joining`), by
number of their source, adds Poisson(Σ_S y_i) items to it, and makes its sources new. The sources
are chosen one after the other, each by what it adds to E[credit + V(a', q')] of those before it:
the price of a place is the fall of V(·, q') with the backlog, for the ages that the other sources
now have.

v is found by policy iteration. Least squares of temporal differences (Bradtke and Barto 1996;
Lagoudakis and Parr 2003) fit the value of a policy at simulated states, with the law of the next
state known; choices at random and fresh starts show it states that the policy avoids. Of all
policies met, the one that earns most in simulation is kept: these begin at any age, so that a
policy which never returns from some state shows it. Two sources of which one is crawled in every
step are always just crawled or not: there the sum is no restriction, and policy iteration finds the
optimum up to the discount, sampling, and interpolation. For more sources it is a heuristic, and the
sum fits the worse the more of the states that are fitted are met by no good policy. So the oldest
ages, which a policy has to know that leaves a source for good, are begun at in the second half of
the rounds only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from agents.theory.engine.queue import Service
from crawl_env.compiled import compiled, inlined
from crawl_env.content.draws import Stream, poisson, stream, uniform
from crawl_env.numerics import FloatArray, IntArray
from crawl_env.rng import generator

_ROUNDS = 6  # from nothing, then from the best of these
_FIT_STEPS = 16_000  # steps of a fit
_COMPARISON, _RUNS = 1_000, 32  # steps and runs of a comparison
_PARAMETERS, _AGES = 1500, 20  # of the value, and knots of the age among them
_RESTARTS = (0.3, 0.1, 0.03)  # how often a simulation that is fitted begins anew, by round
_RANDOM = (0.2, 0.05)  # how often it chooses at random
_BEYOND = (1.0, 4.0)  # ages at which it does, at most, in units of the oldest, which stands for all
_DISCOUNT = 0.998
_SMOOTH, _SMALL = 1e-8, 1e-9  # weights of differences between knots, and of the value itself
_NEGLIGIBLE = 1e-10  # probability of more items


class Fleet(NamedTuple):
    """What crawls of N sources bring at ages 1 … A, to a queue of F phases and up to L items."""

    number: FloatArray  # (N, A) mean number of items
    credit: FloatArray  # (N, A, F, L + 1) utility that is indexed of a crawl behind 0 … L items
    cost: FloatArray  # (N,)
    oldest: IntArray  # (N,) largest age, counted from 0: older sources are as these
    budget: float


class Lookahead(NamedTuple):
    """The policy of a value: (N, A, F, L + 1), by age and by the queue before service."""

    fleet: Fleet
    value: FloatArray

    def priority(self, age: IntArray, phase: IntArray, backlog: IntArray) -> FloatArray:
        """Return priorities, (B, N): the number of sources at the first choice, one less at the
        second, …, 0 for those not chosen. age: (B, N) steps since a crawl; phase, backlog: (B,)."""
        out = np.zeros(age.shape)
        _prioritise(self.fleet, self.value, age - 1, phase, backlog, out)
        return out


class Knots:
    """Values that are linear between knots: of the age, and of the backlog in each phase.

    Arguments:
        fleet: the fleet.
        service, capacity: of the engine.
        moves: (F, L + 1, Q) from the queue before service to its states, phase by phase.
    """

    def __init__(self, fleet: Fleet, service: Service, capacity: int, moves: FloatArray) -> None:
        n, ages = fleet.number.shape
        phases = len(service.fractions)
        at = _spread(ages, _AGES)
        waiting = _spread(capacity + 1, max(2, _PARAMETERS // (n * phases * at.size)))
        self.age: FloatArray = _linear(ages, at)  # (A, knots)
        self.low = np.clip(np.searchsorted(at, np.arange(ages), side="right") - 1, 0, at.size - 2)
        self.part: FloatArray = self.age[np.arange(ages), self.low + 1]
        # (Q, knots)
        self.state = np.asarray(np.kron(np.eye(phases), _linear(capacity + 1, waiting)), np.float64)
        self.served: FloatArray = moves @ self.state  # (F, L + 1, knots)
        self.shape = n, at.size, self.state.shape[1]
        rough = np.kron(_differences(at.size), np.eye(self.shape[2])) + np.kron(
            np.eye(at.size), np.kron(np.eye(phases), _differences(waiting.size))
        )
        self.penalty = _SMOOTH * np.kron(np.eye(n), rough) + _SMALL * np.eye(len(rough) * n)

    def values(self, coefficients: FloatArray) -> FloatArray:
        """Return v before service, (N, A, F, L + 1)."""
        by_age = np.einsum("ka,naq->nkq", self.age, coefficients.reshape(self.shape))
        return np.ascontiguousarray(np.einsum("nkq,frq->nkfr", by_age, self.served))


class LookaheadSearch:
    """The search for a value: `best` is the best policy."""

    def __init__(self, fleet: Fleet, service: Service, capacity: int, moves: FloatArray) -> None:
        self._fleet, self._service, self._capacity = fleet, service, capacity
        self._knots = Knots(fleet, service, capacity, moves)
        value = np.zeros((*fleet.number.shape, len(service.fractions), fleet.credit.shape[-1]))
        self.best, most = Lookahead(fleet, value), -np.inf
        for beyond in _BEYOND:
            value = self.best.value
            for turn in range(_ROUNDS):
                value = self._fit(value, turn, beyond)
                reward = self._rewards(value, _COMPARISON, _RUNS, 0).mean()
                if reward >= most:
                    self.best, most = Lookahead(fleet, value), reward

    def _fit(self, value: FloatArray, seed: int, beyond: float) -> FloatArray:
        """Return the value of the policy of a value."""
        size, n = int(np.prod(self._knots.shape)), len(self._fleet.cost)
        left, right, credit = np.zeros((size, size)), np.zeros(size), np.zeros(1)
        self._simulate(value, _FIT_STEPS, credit, seed, left, right, beyond)
        left += _FIT_STEPS * self._knots.penalty
        # What is hardly met is taken to be worth what others are.
        right += _FIT_STEPS * _SMALL * credit / (1.0 - _DISCOUNT) / n
        return self._knots.values(np.asarray(np.linalg.solve(left, right), np.float64))

    def simulated(self, steps: int, runs: int, seed: int) -> FloatArray:
        """Return the rewards per step of the best policy, (runs,)."""
        return self._rewards(self.best.value, steps, runs, seed)

    def _rewards(self, value: FloatArray, steps: int, runs: int, seed: int) -> FloatArray:
        reward = np.zeros(runs)
        self._simulate(value, steps, reward, seed, np.zeros((0, 0)), np.zeros(0), max(_BEYOND))
        return reward

    def _simulate(
        self,
        value: FloatArray,
        steps: int,
        reward: FloatArray,
        seed: int,
        left: FloatArray,
        right: FloatArray,
        beyond: float,
    ) -> None:
        service, knots = self._service, self._knots
        _simulate(
            self._fleet,
            value,
            (np.cumsum(service.odds), service.places, service.onward),
            self._capacity,
            steps,
            stream(generator(seed, "multiplier")),
            (_RANDOM[seed % len(_RANDOM)], _RESTARTS[seed % len(_RESTARTS)], beyond),
            (knots.low, knots.part, knots.state, knots.served),
            left,
            right,
            reward,
        )


def _spread(size: int, most: int) -> IntArray:
    """Return at most about `most` of the numbers 0 … size − 1, the first half of them in a row."""
    if size <= most:
        return np.arange(max(size, 2))
    row = np.arange(max(most // 2, 1))
    rest = np.geomspace(row[-1] + 1, size - 1, most - row.size)
    return np.unique(np.concatenate([row, np.round(rest).astype(int)]))


def _linear(size: int, knots: IntArray) -> FloatArray:
    """Return the weights of the knots at 0 … size − 1, (size, knots)."""
    where = np.arange(size)
    return np.stack([np.interp(where, knots, one) for one in np.eye(knots.size)], axis=1)


def _differences(size: int) -> FloatArray:
    """Return the matrix of the sum of squared differences between neighbours."""
    step = np.diff(np.eye(size), axis=0)
    return np.asarray(step.T @ step)


# -------------------------------------------------------------------------------- inner loops


@inlined
def _poisson_odds(mean: float, most: int, odds: FloatArray) -> tuple[int, int]:
    """Write the probabilities of low … high − 1 items, those beyond `most` counted as `most`;
    return low and high."""
    low = 0 if mean < 30.0 else max(0, int(mean - 7.0 * np.sqrt(mean)))
    if low >= most:
        odds[most] = 1.0
        return most, most + 1
    total = 0.0
    p = np.exp(-mean)
    if low > 0:  # by Stirling's series of ln low!
        x = float(low)
        log = x * np.log(x) - x + 0.5 * np.log(2.0 * np.pi * x) + 1.0 / (12.0 * x)
        p = np.exp(x * np.log(mean) - mean - log)
    for n in range(low, most):
        odds[n] = p
        total += p
        p *= mean / (n + 1)
        if n > mean and p < _NEGLIGIBLE:
            return low, n + 1
    odds[most] = max(1.0 - total, 0.0)
    return low, most + 1


@inlined
def _credit(
    fleet: Fleet,
    age: IntArray,
    rank: IntArray,
    another: int,
    phase: int,
    backlog: int,
    odds: FloatArray,
) -> float:
    """Return what the items of the sources chosen, and of another, credit: they join the queue by
    the number of their source."""
    before, total, most = 0.0, 0.0, fleet.credit.shape[3] - 1 - backlog
    for i in range(age.size):
        if rank[i] > 0 or i == another:
            k = min(age[i], fleet.oldest[i])
            low, high = _poisson_odds(before, most, odds)
            for r in range(low, high):
                total += odds[r] * fleet.credit[i, k, phase, backlog + r]
            before += fleet.number[i, k]
    return total


@inlined
def _choose(
    fleet: Fleet,
    value: FloatArray,
    age: IntArray,
    phase: int,
    backlog: int,
    later: FloatArray,
    odds: FloatArray,
    rank: IntArray,
) -> tuple[float, float]:
    """Choose sources one after the other, and write when each is chosen, 1 for the first, or 0;
    return the mean number of items, and what they credit. later, odds: (L + 1,) are overwritten."""
    n, most = age.size, fleet.credit.shape[3] - 1 - backlog
    for r in range(most + 1):
        total = 0.0
        for i in range(n):
            total += value[i, min(age[i] + 1, fleet.oldest[i]), phase, backlog + r]
        later[r] = total
    rank[:] = 0
    rest, number, count = fleet.budget * (1.0 + 1e-9), 0.0, 0
    credit, after = 0.0, later[0]  # of the choice so far, and the expected value after the step
    while True:
        best, best_gain, best_credit, best_after = -1, 0.0, 0.0, 0.0
        for i in range(n):
            if rank[i] > 0 or fleet.cost[i] > rest:
                continue
            k, old = min(age[i], fleet.oldest[i]), min(age[i] + 1, fleet.oldest[i])
            credit_with = _credit(fleet, age, rank, i, phase, backlog, odds)
            value_after = 0.0
            low, high = _poisson_odds(number + fleet.number[i, k], most, odds)
            for r in range(low, high):
                new = value[i, 0, phase, backlog + r] - value[i, old, phase, backlog + r]
                value_after += odds[r] * (later[r] + new)
            gain = (credit_with - credit + value_after - after) / fleet.cost[i]
            if best < 0 or gain > best_gain or (gain == best_gain and age[i] > age[best]):
                best, best_gain, best_credit, best_after = i, gain, credit_with, value_after
        if best < 0:
            return number, credit
        count += 1
        rank[best] = count
        k, old = min(age[best], fleet.oldest[best]), min(age[best] + 1, fleet.oldest[best])
        rest -= fleet.cost[best]
        number += fleet.number[best, k]
        credit, after = best_credit, best_after
        for r in range(most + 1):
            later[r] += value[best, 0, phase, backlog + r] - value[best, old, phase, backlog + r]


@compiled
def _prioritise(
    fleet: Fleet,
    value: FloatArray,
    age: IntArray,
    phase: IntArray,
    backlog: IntArray,
    out: FloatArray,
) -> None:
    """Write the priorities of a batch, (B, N)."""
    n, size = age.shape[1], fleet.credit.shape[3]
    later, odds, rank = np.empty(size), np.empty(size), np.empty(n, np.int64)
    for b in range(age.shape[0]):
        _choose(fleet, value, age[b], phase[b], min(backlog[b], size - 1), later, odds, rank)
        for i in range(n):
            out[b, i] = n + 1 - rank[i] if rank[i] > 0 else 0.0


@inlined
def _begin(
    oldest: IntArray, beyond: float, capacity: int, phases: int, age: IntArray, state: Stream
) -> tuple[int, int]:
    """Draw a state at which to begin: write the ages, one of which is 0; return the backlog and the
    phase."""
    backlog, phase = min(int(uniform(state) * (capacity + 1)), capacity), 0
    if backlog > 0:
        phase = min(int(uniform(state) * phases), phases - 1)
    for i in range(age.size):
        age[i] = min(int((beyond * (oldest[i] + 1.0)) ** uniform(state)) - 1, oldest[i])
    age[min(int(uniform(state) * age.size), age.size - 1)] = 0
    return backlog, phase


@compiled
def _simulate(
    fleet: Fleet,
    value: FloatArray,
    service: tuple[FloatArray, IntArray, IntArray],
    capacity: int,
    steps: int,
    state: Stream,
    strays: tuple[float, float, float],
    knots: tuple[IntArray, FloatArray, FloatArray, FloatArray],
    left: FloatArray,
    right: FloatArray,
    reward: FloatArray,
) -> None:
    """Simulate the policy of a value, and write its reward per step. If `left` is not empty, add
    the equations of its coefficients, left · v = right, and stray from the policy."""
    cumulative, places, onward = service
    random, restart, beyond = strays
    low, part, hats, served = knots
    n, size, knots_of_queue = fleet.number.shape[0], fleet.credit.shape[3], hats.shape[1]
    fits = left.size > 0
    knots_of_age = left.shape[0] // (n * knots_of_queue)
    age, rank = np.empty(n, np.int64), np.empty(n, np.int64)
    later, odds, after = np.empty(size), np.empty(size), np.empty(knots_of_queue)
    place = np.empty(4 * n * knots_of_queue, np.int64)
    weight = np.empty(4 * n * knots_of_queue)
    for run in range(reward.size):
        backlog, phase = _begin(fleet.oldest, beyond, capacity, places.shape[0], age, state)
        total = 0.0
        for step in range(steps + steps // 10):
            number, credit = _choose(fleet, value, age, phase, backlog, later, odds, rank)
            if step >= steps // 10:
                total += credit
            if fits:
                first, last = _poisson_odds(number, size - 1 - backlog, odds)
                after[:] = 0.0
                for r in range(first, last):
                    for q in range(knots_of_queue):
                        after[q] += odds[r] * served[phase, backlog + r, q]
                here = hats[phase * (capacity + 1) + backlog]
                # V(a, q) − discount · E V(a', q') is linear in the coefficients.
                count, now = 0, 0
                for time in range(2):
                    row, sign = (here, 1.0) if time == 0 else (after, -_DISCOUNT)
                    for i in range(n):
                        k = min(age[i] + time, fleet.oldest[i])
                        if time == 1 and rank[i] > 0:
                            k = 0
                        for side in range(2):
                            share = part[k] if side == 1 else 1.0 - part[k]
                            if share == 0.0:
                                continue
                            start = (i * knots_of_age + low[k] + side) * knots_of_queue
                            for q in range(knots_of_queue):
                                if row[q] != 0.0:
                                    place[count] = start + q
                                    weight[count] = sign * share * row[q]
                                    count += 1
                    if time == 0:
                        now = count
                for x in range(now):
                    right[place[x]] += weight[x] * credit
                    for y in range(count):
                        left[place[x], place[y]] += weight[x] * weight[y]
                if uniform(state) < random:
                    rank[:] = 0
                    rest = fleet.budget * (1.0 + 1e-9)
                    for _ in range(4 * n):
                        i = min(int(uniform(state) * n), n - 1)
                        if rank[i] == 0 and fleet.cost[i] <= rest:
                            rank[i] = 1
                            rest -= fleet.cost[i]
            queue = backlog
            for i in range(n):
                if rank[i] > 0:
                    queue += int(poisson(state, fleet.number[i, min(age[i], fleet.oldest[i])]))
                    age[i] = 0
                else:
                    age[i] += 1
            backlog, phase = serve(queue, phase, capacity, cumulative, places, onward, state)
            if fits and uniform(state) < restart:
                backlog, phase = _begin(fleet.oldest, beyond, capacity, places.shape[0], age, state)
        reward[run] = total / steps


@inlined
def serve(
    queue: int,
    phase: int,
    capacity: int,
    cumulative: FloatArray,
    places: IntArray,
    onward: IntArray,
    state: Stream,
) -> tuple[int, int]:
    """Return the backlog and the phase after a queue has been served for one step."""
    draw = uniform(state)
    s = 0
    while s < cumulative.size - 1 and cumulative[s] < draw:
        s += 1
    rest = queue - places[phase, s]
    return min(max(rest, 0), capacity), onward[phase, s] if rest > 0 else 0
