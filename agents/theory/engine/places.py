"""The bound of places: what the queue of an engine that is first in, first out can sell.

The two prices of `agents.theory.engine.relaxation` let every item be indexed as it comes. Here
each item takes a place p = 1, 2, … in the queue when it is collected, behind the b items that wait,
and keeps the expected fraction D_i(p) of its utility until it is indexed, 0 if it is lost
(`agents.theory.engine.queue`). The crawls of a step find n ~ Poisson(m) items, which take the
places b + 1, …, b + n, and a policy chooses m, through the sources that it crawls, but not n. For
all prices ≥ 0 of

    λ      a unit of the budget,
    π_p    the place p,
    σ_r    being the r-th item of a step,
    η_ib   crawling source i where b items wait,
    ζ_ij   crawling source i where at most j items wait, not having crawled it in the step before,

no policy earns more per step in the long run than λM + G + Σ_i β_i. There β_i is what source i can
earn per step net of the prices of its crawls,

    β_i = max(0, max_{k, b, q ≥ b} r_i(k, b, q)/k),
    r_i(k, b, q) = Σ_j A_kj D_i(q + j) − Σ_j P(N_ik ≥ j) (π_{q+j} + σ_{q+j−b}) − λC_i
                   − η_ib − Σ_j ζ_ij (u_j(b) + 1{k > 1 and b ≤ j}),

at age k and with q items in front of its first one, of which the j-th joins with the utility A_kj
(`agents.theory.engine.joining`), and G is what the queue earns per step if it may choose m ≥ 0
in each of its states,

    Σ_r (π_{b+r} + σ_r) P(n ≥ r) + Σ_i (η_ib + Σ_j ζ_ij u_j(b)),

with u_j(b) = P(b − S ≤ j) for the number S of items that can be indexed in a step.

Proof. What a crawl finds is independent of what is in front of it, and of all that happened before
the last crawl, so that r is what its items earn on average net of the prices. Its age is the time
since the last one, and the net rewards of a source are at most β_i times the sum of the ages.
What the items pay, the queue gets, whatever the order of sources in a step; crawls that fit the
budget pay λM at most. A source is crawled at most once in a step where b wait, as often as the
queue gets η_ib. A crawl at an age above 1 comes after a step in which the source was not crawled;
if b waited then, at most j wait now only if b − S ≤ j, so that it happens at most as often as u_j
says of the steps in which the source was not crawled. The last two prices are therefore never paid
more often than the queue gets them. Crawl delays, limits of hosts and failures only restrict a
policy.

The bound is computed at good prices: those of a linear program, in which m is one of a grid. G is
then bounded for all m: between two numbers at a distance h, an expectation over Poisson(m) is at
most its larger value at them, plus h²/8 times the largest fall of its differences.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse, stats

from agents.theory.engine.joining import joining
from agents.theory.engine.queue import Service, kept_at_place, served, service_of
from agents.theory.price import least_of_sum
from crawl_env import Engine, Sources
from crawl_env.content.utility import Distribution, Exponential
from crawl_env.numerics import BoolArray, FloatArray, IntArray

_MOST_PRICES, _MOST_PLACES = 3_000, 15  # η and ζ; waiting and indexed in a step
_UNLIKELY = 1e-3  # probability that an item behind the places with a price is indexed at once
_FADED, _FEWEST_AGES, _MOST_AGES = 5.0, 20, 400  # time constants; ages of a table
_COARSE, _FINE = 100, 4_000  # numbers of m
_GAP = 1e-3  # of the linear program, as a fraction of the bound


class PlacedCrawls(NamedTuple):
    """What crawls bring: a row for each source and age; the last of a source is for all ages from
    there on."""

    source: IntArray  # (rows,)
    age: FloatArray  # (rows,) k
    worth: FloatArray  # (rows, P + 1) utility that is indexed behind q = 0 … P items
    reached: FloatArray  # (rows, P) probability of at least j = 1 … P items
    first: IntArray  # (N,) the first row of each source
    cost: FloatArray  # (N,)


class Prices(NamedTuple):
    """Prices, all ≥ 0, and two numbers of the queue, or derivatives by these."""

    gain: FloatArray  # (1,) G
    value: FloatArray  # (K,) of a backlog below K relative to one of K
    budget: FloatArray  # (1,) λ
    place: FloatArray  # (P,) π
    batch: FloatArray  # (P,) σ
    total: FloatArray  # (2K + 1,) the sums over the sources of their η and ζ
    own: FloatArray  # (N, 2K + 1) η and ζ


def has_places(sources: Sources, engine: Engine) -> bool:
    """Return whether the bound is known and found in some seconds: of an engine that is first in,
    first out and has no fractions of an item left over, and of few sources and places."""
    if engine.discipline != "fifo" or engine.capacity is None or sources.is_capped:
        return False
    if engine.service == "deterministic" and engine.rate % 1.0:
        return False
    few = len(sources) * (2 * engine.capacity + 1) <= _MOST_PRICES
    return few and engine.capacity + engine.rate <= _MOST_PLACES


def places_bound(
    sources: Sources, budget: float, engine: Engine, utility: Distribution | None = None
) -> float:
    """Return the reward per step that no policy exceeds in front of an engine which is first in,
    first out, if nothing is known of content before a crawl. It takes some seconds for 100 sources.

    Interest decays exponentially, arrivals are Poisson, and `has_places` holds.

    Arguments:
        sources: a fleet, (N,).
        budget: M, budget units / step.
        utility: the distribution of ξ/ξ̄; exponential by default.

    >>> pair = Sources([2.0, 0.5], [1.0, 2.0], [0.3, 0.2])
    >>> round(places_bound(pair, 1, Engine(rate=1, capacity=3, service="poisson")), 2)
    0.84
    """
    program = PlacePrices(sources, budget, engine, utility or Exponential())
    return program.at(program.prices())


class PlacePrices:
    """The search for the prices."""

    def __init__(
        self, sources: Sources, budget: float, engine: Engine, utility: Distribution
    ) -> None:
        assert engine.capacity is not None
        service = service_of(engine)
        self._capacity, self._budget = engine.capacity, budget
        self._longest = engine.capacity + int(service.places.max())
        likely = np.flatnonzero(np.cumsum(service.odds) >= 1.0 - _UNLIKELY)[0]
        self._places = min(engine.capacity + int(service.places[0, likely]) + 1, self._longest)
        self._crawls = _crawls(sources, engine, utility, service, self._longest, self._places)
        self._moves: FloatArray = served(service, self._capacity, self._longest)[0, :, 0]
        # u_j(b), (K + 1, K), and 1{b ≤ j}
        waiting = np.arange(self._capacity + 1)[:, None, None] - service.places[0]
        below = np.arange(self._capacity)[:, None]
        self._falls = (waiting <= below) @ service.odds
        self._few: BoolArray = np.arange(self._capacity + 1)[:, None] <= below.T
        n, kinds = len(sources), 2 * self._capacity + 1
        few, many = (self._capacity,), (self._places,)
        self._shapes = (1,), few, (1,), many, many, (kinds,), (n, kinds)  # of `Prices`
        self._ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])

    def prices(self) -> Prices:
        """Return good prices, which satisfy the linear program."""
        slope = np.zeros(self._ends[-1])
        slope[0], slope[1 + self._capacity] = 1.0, self._budget
        solution, _ = least_of_sum(self._net, slope, np.zeros(slope.size), _GAP, self._rows())
        return self._split(solution)

    def at(self, prices: Prices) -> float:
        """Return the bound at prices ≥ 0; their `gain` and `total` have no effect."""
        net, _ = self._net(np.concatenate([part.ravel() for part in prices]))
        return float(self._budget * prices.budget[0] + self.gain(prices) + net.sum())

    def _split(self, x: FloatArray) -> Prices:
        """Return a vector (D,), or rows (..., D), as prices; these are views."""
        parts = zip(np.split(x, self._ends[:-1], axis=-1), self._shapes, strict=True)
        return Prices(*(part.reshape(*x.shape[:-1], *shape) for part, shape in parts))

    # ---------------------------------------------------------------------------- the sources

    def _net(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return β, (N,), and its subgradients by all prices, (N, D)."""
        prices, crawls = self._split(x), self._crawls
        old = (crawls.age > 1.0).astype(int)
        best = np.full(crawls.age.size, -np.inf)
        backlog, front = np.zeros((2, crawls.age.size), int)
        tolls = np.einsum("obc,ic->iob", self._tolls, prices.own)
        tolls += (prices.budget[0] * crawls.cost)[:, None, None]
        for b in range(self._capacity + 1):
            price = np.zeros((self._places, self._places + 1 - b))
            for q in range(b, self._places):
                few = self._places - q
                price[:few, q - b] = prices.place[q:] + prices.batch[q - b : q - b + few]
            net = crawls.worth[:, b:] - crawls.reached @ price
            q = net.argmax(axis=1)
            value = np.take_along_axis(net, q[:, None], 1)[:, 0] - tolls[crawls.source, old, b]
            better = value > best
            best[better], backlog[better], front[better] = value[better], b, q[better] + b
        rate = best / crawls.age
        out, slopes = np.zeros(crawls.cost.size), np.zeros((crawls.cost.size, x.size))
        by = self._split(slopes)
        for i, row in enumerate(_best_rows(rate, crawls.first)):
            if rate[row] <= 0.0:
                continue
            out[i] = rate[row]
            b, q, part = backlog[row], front[row], 1.0 / crawls.age[row]
            few = self._places - q
            by.budget[i] = -part * crawls.cost[i]
            by.place[i, q:] = by.batch[i, q - b : q - b + few] = -part * crawls.reached[row, :few]
            by.own[i, i] = -part * self._tolls[old[row], b]
        return out, slopes

    @property
    def _tolls(self) -> FloatArray:
        """How often a crawl pays η and ζ, (2, K + 1, 2K + 1): at age 1 and above, by backlog."""
        young = np.concatenate([np.eye(self._capacity + 1), self._falls], axis=1)
        return np.array([young, young + np.pad(self._few, ((0, 0), (self._capacity + 1, 0)))])

    # ------------------------------------------------------------------------------ the queue

    def _rows(self) -> sparse.csr_array:
        """Return the rows A of A x ≤ 0: G and the values of the backlogs satisfy the equation of
        optimality for every m of a grid, and the sums over the sources are those of their own."""
        usual = self._capacity + float(self._longest)
        means = np.linspace(0.0, np.sqrt(usual), _COARSE) ** 2
        rows = []
        for b in range(self._capacity + 1):
            odds = self._odds(means, b)
            block = np.zeros((len(means) + 1, self._ends[-1]))
            part = self._split(block)
            part.gain[:] = -1.0
            part.value[:] = odds @ self._after(b) - np.eye(self._capacity + 1)[b, :-1]
            tail = odds[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]  # P(n ≥ r), r = 1 …
            some = self._places - b
            part.place[:, b:] = part.batch[:, :some] = tail[:, :some]
            part.total[:] = self._tolls[0, b]
            rows.append(sparse.csr_array(block))
        sums = np.zeros((2 * self._capacity + 1, self._ends[-1]))
        part = self._split(sums)
        part.total[:] = -np.eye(len(sums))
        part.own[:] = np.eye(len(sums))[:, None]
        return sparse.vstack([*rows, sparse.csr_array(sums)], format="csr")

    def _odds(self, means: FloatArray, b: int) -> FloatArray:
        """Return the probabilities of 0 … L − b items, the last for all more, at each m and ∞."""
        most = self._longest - b
        odds = stats.poisson.pmf(np.arange(most + 1), means[:, None])
        odds[:, most] = stats.poisson.sf(most - 1, means)
        return np.concatenate([odds, np.eye(1, most + 1, most)])

    def _after(self, b: int) -> FloatArray:
        """Return where the queue goes if b wait and 0 … L − b items join, (L − b + 1, K)."""
        return self._moves[b:, :-1]

    def gain(self, prices: Prices) -> float:
        """Return an upper bound of G for all m ≥ 0, by the values of the backlogs."""
        most = self._longest + 12.0 * np.sqrt(self._longest) + 40.0
        means = np.linspace(0.0, np.sqrt(most), _FINE) ** 2
        gains = []
        for b in range(self._capacity + 1):
            price = np.zeros(self._longest - b)
            some = self._places - b
            price[:some] = prices.place[b:] + prices.batch[:some]
            worth = np.append(0.0, np.cumsum(price)) + self._after(b) @ prices.value
            mean = self._odds(means, b) @ worth
            fall = max(0.0, float(-np.diff(worth, 2).min(initial=0.0)))
            between = np.maximum(mean[:-2], mean[1:-1]) + np.diff(means) ** 2 / 8.0 * fall
            rest = stats.poisson.cdf(self._longest - b, most) * np.ptp(worth)  # of m above
            best = max(float(between.max()), float(mean[-1] + rest))
            gains.append(
                best - np.append(prices.value, 0.0)[b] + self._tolls[0, b] @ prices.own.sum(axis=0)
            )
        return max(gains)


def _crawls(
    sources: Sources,
    engine: Engine,
    utility: Distribution,
    service: Service,
    longest: int,
    places: int,
) -> PlacedCrawls:
    """Tabulate what crawls of each source bring."""
    assert engine.capacity is not None
    survival = kept_at_place(service, engine.capacity, longest, sources.retention)[:, 0]
    at = np.arange(longest)[:, None] + np.arange(places + 1)
    number, source, age, worth = [], [], [], []
    for i in range(len(sources)):
        step = float(sources.decay_per_step[i])
        ages = int(np.clip(np.ceil(_FADED / step), _FEWEST_AGES, _MOST_AGES))
        items = joining(sources, i, ages, longest, engine.threshold, utility)
        behind = np.where(at < longest, survival[i][np.minimum(at, longest - 1)], 0.0)
        reward = items.utility @ behind
        # From there on: as many items as at the last age pay, and all that is older is indexed.
        older = reward[-1] + sources.ceiling[i] * np.exp(-step * ages)
        worth.append(np.concatenate([reward, older[None]]))
        number.append(np.append(items.number, items.number[-1]))
        age.append(np.arange(1.0, ages + 2.0))
        source.append(np.full(ages + 1, i))
    return PlacedCrawls(
        np.concatenate(source),
        np.concatenate(age),
        np.concatenate(worth),
        stats.poisson.sf(np.arange(places), np.concatenate(number)[:, None]),
        np.cumsum([0, *(len(rows) for rows in source[:-1])]),
        np.asarray(sources.cost),
    )


def _best_rows(rate: FloatArray, first: IntArray) -> list[int]:
    """Return the row of the largest rate of each source."""
    ends = np.append(first[1:], rate.size)
    return [int(a + rate[a:z].argmax()) for a, z in zip(first, ends, strict=True)]
