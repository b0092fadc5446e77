"""Slow and plain references, written from the model's page alone, that the tests compare with.

Nothing here imports the code under test, except to read a fleet's parameters.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

import mpmath
import numpy as np
from hypothesis import settings

# The same examples on every machine, and no files left behind.
plainly = settings(derandomize=True, database=None, max_examples=60)

Z_LIMIT = 4.5  # a right sampler fails one such test in 150,000


# ------------------------------------------------------------------------------- statistics


def z_of_mean(sample: np.ndarray, expected: float) -> float:
    """Return how many standard errors the mean of a sample lies from what is expected."""
    error = sample.std(ddof=1) / math.sqrt(sample.size)
    if error == 0:
        return 0.0 if sample.flat[0] == expected else math.inf
    return float((sample.mean() - expected) / error)


def z_of_variance(sample: np.ndarray, mean: float, variance: float) -> float:
    """Return the same for the mean squared distance from the known mean."""
    return z_of_mean((sample - mean) ** 2, variance)


def z_of_share(sample: np.ndarray, probability: float) -> float:
    """Return the same for a sample of truth values, with the binomial standard error."""
    error = math.sqrt(probability * (1 - probability) / sample.size)
    return float((sample.mean() - probability) / error)


def transform_of_law(law: str, parameter: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return s ↦ E exp(−sξ) for a law of mean one."""
    if law == "constant":
        return lambda s: np.exp(-s)
    if law == "exponential":
        return lambda s: 1 / (1 + s)
    if law == "gamma":
        return lambda s: (1 + s / parameter) ** -parameter
    if law == "lognormal":
        nodes, weights = np.polynomial.hermite_e.hermegauss(60)
        worth = np.exp(parameter * nodes - parameter**2 / 2)
        return lambda s: np.exp(-np.multiply.outer(s, worth)) @ (weights / weights.sum())
    raise AssertionError(law)


@functools.cache
def transform_of_content(
    s: float, items: float, mean_utility: float, decay: float, epochs: float, law: str, p: float
) -> float:
    """Return E exp(−sU) for the content that `epochs` epochs of Poisson arrivals leave.

    log E exp(−sU) = ℓ ∫_0^k (φ(sξ̄e^{−mv}) − 1) dv = (ℓ/m) ∫_{α^k}^1 (φ(sξ̄y) − 1)/y dy.
    """
    phi = transform_of_law(law, p)
    low = math.exp(-decay * epochs)
    nodes, weights = np.polynomial.legendre.leggauss(30)
    # Two pieces in log y: the integrand is smooth in log y and dies out below.
    edges = np.linspace(max(math.log(low) if low else -math.inf, -40.0), 0.0, 9)
    total = 0.0
    for left, right in itertools.pairwise(edges):
        t = 0.5 * (left + right) + 0.5 * (right - left) * nodes
        total += 0.5 * (right - left) * float(weights @ (phi(s * mean_utility * np.exp(t)) - 1))
    return math.exp(items / decay * total)


# ------------------------------------------------------------------------------- selection


def in_line(priority: Sequence[float], crawled_at: Sequence[float]) -> list[int]:
    """Return sources in decreasing priority; ties to the older, then to the lower number."""
    return sorted(range(len(priority)), key=lambda i: (-priority[i], crawled_at[i], i))


def total(amounts: Iterable[float]) -> Fraction:
    """Return an exact sum."""
    return sum(map(Fraction, amounts), Fraction(0))


def affordable_subsets(cost: Sequence[float], budget: float) -> list[tuple[int, ...]]:
    """Return every set of sources that fits the budget."""
    n, limit = len(cost), Fraction(budget) * (1 + Fraction(1, 10**12))
    sets = itertools.chain.from_iterable(itertools.combinations(range(n), k) for k in range(n + 1))
    return [subset for subset in sets if total(cost[i] for i in subset) <= limit]


def maximal(cost: Sequence[float], budget: float) -> list[tuple[int, ...]]:
    """Return the affordable sets that are part of no other, in lexicographic order."""
    fitting = [frozenset(subset) for subset in affordable_subsets(cost, budget)]
    return sorted(tuple(sorted(a)) for a in fitting if not any(a < b for b in fitting))


# ------------------------------------------------------------------------------- signals


def theorem_one(x: np.ndarray, ceiling: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Return the index of Theorem 1 as printed, and x above the ceiling; costs are 1."""
    y = np.minimum(x / ceiling, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        eta = np.ceil(np.log1p(-y) / np.log(alpha))
        below = ceiling * (1 - alpha**eta - eta * (1 - alpha) * (1 - y))
    return np.where(y < 1, below, x)


def share_collected(
    rate: np.ndarray,
    utility: np.ndarray,
    decay: np.ndarray,
    budget: int,
    recall: float,
    precision: float,
    observed: bool,
    runs: int,
    steps: int,
    seed: int,
) -> np.ndarray:
    """Return the share of the utility published that Theorem 1 at the belief collects, (runs,).

    Items are drawn one by one, with exponential utilities; each triggers a ping with probability
    `recall`, and false pings come as often as `precision` takes. Steps last 1.
    """
    rng, alpha, n = np.random.default_rng(seed), np.exp(-decay), rate.size
    ceiling = rate * utility / decay
    content, belief = np.zeros((2, runs, n))
    collected, published = np.zeros((2, runs))
    cells = np.arange(runs * n)
    for _ in range(steps):
        view = content if observed else belief
        score = theorem_one(view, ceiling, alpha)
        crawled = np.argsort(-score, axis=1, kind="stable")[:, :budget]
        collected += np.take_along_axis(content, crawled, 1).sum(axis=1)
        for amount in (content, belief):
            np.put_along_axis(amount, crawled, 0.0, 1)
        at = np.repeat(cells, rng.poisson(rate, (runs, n)).ravel())
        age, worth = rng.random(at.size), rng.exponential(utility[at % n])
        published += np.bincount(at // n, worth, runs)
        true = rng.random(at.size) < recall
        false = np.repeat(
            cells, rng.poisson(recall * rate * (1 / precision - 1), (runs, n)).ravel()
        )
        ping, since = np.append(at[true], false), np.append(age[true], rng.random(false.size))
        worth_left = np.exp(-decay[at % n] * age) * worth
        expected = np.exp(-decay[ping % n] * since) * precision * utility[ping % n]
        content = alpha * content + np.bincount(at, worth_left, runs * n).reshape(runs, n)
        belief = (
            alpha * belief
            + (1 - recall) * ceiling * (1 - alpha)
            + np.bincount(ping, expected, runs * n).reshape(runs, n)
        )
    return collected / published


# ------------------------------------------------------------------------------- bounds


def contents(ceiling: float, decay: float, longest: int) -> np.ndarray:
    """Return x_1 … x_longest."""
    return ceiling * -np.expm1(-decay * np.arange(1.0, longest + 1))


class Dual:
    """λ ↦ λM + Σ_i max_k max(0, (x_ik − λC_i)/k), by trying every k up to 60 time constants."""

    def __init__(
        self, ceiling: Sequence[float], decay: Sequence[float], cost: Sequence[float]
    ) -> None:
        self.cost = list(cost)
        self.content = [
            contents(u, m, math.ceil(60 / m) + 2) for u, m in zip(ceiling, decay, strict=True)
        ]
        self.top = max(u / c for u, c in zip(ceiling, cost, strict=True))

    def __call__(self, price: float, budget: float) -> float:
        worth = price * budget
        for x, cost in zip(self.content, self.cost, strict=True):
            k = np.arange(1.0, x.size + 1)
            worth += max(0.0, float(((x - price * cost) / k).max()))
        return worth

    def minimum(self, budget: float) -> float:
        """Return the least value: the function is convex, so thirds of the interval go."""
        low, high = 0.0, self.top
        for _ in range(120):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            if self(left, budget) <= self(right, budget):
                high = right
            else:
                low = left
        return min(self(0.0, budget), self(0.5 * (low + high), budget))


def exact_dual_minimum(
    ceiling: Sequence[float], decay: Sequence[float], cost: Sequence[float], budget: float, k: int
) -> float:
    """Return the least value of the dual with 60 digits, ages up to k.

    A convex piecewise linear function is least at one of its corners: λ = 0 or a break-even
    charge (x_k − k u α^k)/C of some source.
    """
    with mpmath.workdps(60):
        lines, corners = [], [mpmath.mpf(0)]
        for u, m, c in zip(ceiling, decay, cost, strict=True):
            u, m, c = mpmath.mpf(u), mpmath.mpf(m), mpmath.mpf(c)
            x = [-u * mpmath.expm1(-m * j) for j in range(k + 2)]
            lines.append((x, c))
            corners += [((j + 1) * x[j] - j * x[j + 1]) / c for j in range(1, k + 1)]
        return float(
            min(
                price * mpmath.mpf(budget)
                + sum(
                    max(mpmath.mpf(0), *((x[j] - price * c) / j for j in range(1, k + 1)))
                    for x, c in lines
                )
                for price in corners
            )
        )


def best_cycle(
    ceiling: Sequence[float],
    decay: Sequence[float],
    cost: Sequence[float],
    budget: float,
    cap: int,
) -> float:
    """Return the best average reward of any schedule, by Karp's theorem on the graph of ages.

    Ages stop at `cap`, which must be so old that nothing more comes. Every cycle of the graph
    is a periodic schedule, and the best average of all schedules is that of the best cycle.
    """
    n = len(ceiling)
    shape = (cap,) * n
    ages = np.indices(shape).reshape(n, -1)  # age − 1
    worth = [contents(u, m, cap)[a] for u, m, a in zip(ceiling, decay, ages, strict=True)]
    moves = []
    for subset in affordable_subsets(cost, budget):
        after = [
            np.zeros_like(a) if i in subset else np.minimum(a + 1, cap - 1)
            for i, a in enumerate(ages)
        ]
        reward = sum((worth[i] for i in subset), np.zeros(ages.shape[1]))
        moves.append((np.ravel_multi_index(tuple(after), shape), reward))
    states = ages.shape[1]
    walks = np.full((states + 1, states), -np.inf)
    walks[0, 0] = 0.0
    for k in range(states):
        for after, reward in moves:
            np.maximum.at(walks[k + 1], after, walks[k] + reward)
    reached = np.isfinite(walks[-1])
    with np.errstate(invalid="ignore"):
        means = (walks[-1] - walks[:-1]) / np.arange(states, 0, -1)[:, None]
    means[~np.isfinite(means)] = np.inf
    return float(means.min(axis=0)[reached].max())


def best_of_two(
    ceiling: Sequence[float], decay: Sequence[float], longest: int
) -> tuple[float, tuple[int, int]]:
    """Return the best average of two sources of unit cost at one crawl an epoch, and how.

    A schedule is runs of one source and of the other in turn. What a run earns depends on its
    own length and, for its first crawl, on the length of the run before it, so total reward is a
    sum of functions of single lengths, and always the same two lengths are best.
    """
    first, second = (contents(u, m, longest + 1) for u, m in zip(ceiling, decay, strict=True))
    a, b = np.arange(1, longest + 1)[:, None], np.arange(1, longest + 1)[None]
    reward = first[b] + (a - 1) * first[0] + second[a] + (b - 1) * second[0]
    average = reward / (a + b)
    best = divmod(int(average.argmax()), longest)
    return float(average.max()), (best[0] + 1, best[1] + 1)


def periodic_average(
    ceiling: Sequence[float], decay: Sequence[float], schedule: Sequence[Iterable[int]]
) -> float:
    """Return the long-run reward per epoch of repeating a schedule of crawled sets for ever."""
    period, reward = len(schedule), 0.0
    for i, (u, m) in enumerate(zip(ceiling, decay, strict=True)):
        visits = [t for t, subset in enumerate(schedule) if i in subset]
        for j, t in enumerate(visits):
            gap = (t - visits[j - 1]) % period or period
            reward += u * -math.expm1(-m * gap)
    return reward / period


def gain_between(mass: np.ndarray, decay: float, charge: float, step: float) -> tuple[float, float]:
    """Return two numbers between which the best average reward of one source lies that is crawled
    at a charge: by value iteration on an even grid of contents, to which an epoch adds a number of
    steps of the grid with these probabilities."""
    size = mass.size
    x, value = np.arange(size) * step, np.zeros(size)
    for _ in range(500):
        above = value[-1] + step * np.arange(1, size + 1)  # crawled there: the slope is 1
        mean = np.correlate(np.concatenate([value, above]), mass)[:size]
        best = np.maximum(np.interp(np.exp(-decay) * x, x, mean), x - charge + mean[0])
        change = best - value
        if np.ptp(change[:-1]) < 1e-6:
            break
        value = best - best[0]
    return float(change.min()), float(change.max())
