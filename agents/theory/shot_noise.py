"""The distribution of U, the utility that one step of Poisson arrivals adds, on a lattice.

U is compound Poisson: a Poisson number of items of utility ξ·exp(−m·age), with an age uniform on
the step. In units of the source's mean utility it depends on ℓ = ΛT, m = μT and the
distribution of ξ only.
Nothing is drawn at random here, except from distributions of which only `sample` is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, expm1, log, log2, sqrt
from typing import Any, NamedTuple

import numpy as np

from crawl_env.compiled import compiled
from crawl_env.content.utility import Distribution, EqualUtilities, Exponential, Gamma, Lognormal
from crawl_env.numerics import FloatArray

_ATOMS = 256  # values that approximate the distribution of ξ
_AGES = 32  # ages that approximate the uniform distribution on the step
_DRAWS = 2**18  # from a distribution that can only be sampled
_FINEST, _COARSEST = 1 / 256, 1 / 4  # steps of the lattice, as fractions of the mean utility
_POINTS = 2**14  # of the lattice, where its step lies between the two
_MOST_POINTS = 2**16  # of a lattice refined for fast decay or pings of small precision
_FAST, _FINER = (
    5.0,
    1 / 16,
)  # m above which most items are worth little, and of the finest step then
_MANY = 100.0  # items per step from which the probability of none is negligible
_OFF = 0.1  # error of E ξ² that is too large
_HEAVIEST = 1e3  # E ξ²/ξ̄² that a lattice can hold
_PARTS = 16  # ages per time constant of a span
_GONE = 30.0  # time constants after which nothing is left of an item
_FAR = 1e-7  # fraction of items that may lie beyond the lattice


class Item(NamedTuple):
    """The distribution of ξ/ξ̄ as a few values, with mean 1."""

    value: FloatArray  # (J,) increasing
    weight: FloatArray  # (J,) adding up to 1

    def quantile(self, probability: float) -> float:
        """Return the smallest value that is not exceeded with at least this probability."""
        return float(self.value[np.searchsorted(np.cumsum(self.weight), probability)])


@dataclass(frozen=True, eq=False)
class Content:
    """The distribution of U/ξ̄ on a lattice: P(U/ξ̄ = k·step) = mass[k]."""

    step: float
    mass: FloatArray  # (K,)

    @classmethod
    def of_items(cls, items: float, decay: float, item: Item) -> Content:
        """Return the distribution of what the items of one step add.

        P(U = 0) = e^−ℓ is exact, and so is the mean, except for the part beyond the lattice, which
        is missing from the mass. The variance is right to 3 % up to m = 1, to 10 % at m = 5.

        Arguments:
            items: ℓ > 0, items / step.
            decay: m > 0, 1 / step.
            item: the distribution of ξ/ξ̄, as `one_item` returns it.

        >>> content = Content.of_items(0.5, 0.2, one_item(Exponential()))
        >>> values = np.arange(content.mass.size) * content.step
        >>> mean = 0.5 * (1 - np.exp(-0.2)) / 0.2
        >>> bool(abs(content.mass @ values - mean) < 1e-6)
        True
        """
        utility, probability = _of_one(decay, item)
        step, reach = _lattice(items, decay, utility, probability, item)
        place = utility / step
        if items < _MANY:  # the utility is 0 in a step without items only
            place = np.maximum(place, 1.0)
        size = int(reach / step) + 2
        one = _spread(place, probability, size)
        # Values moved up to the first point are compensated by a slightly smaller step.
        step = float((probability * utility).sum() / (probability * place).sum())
        length = 1 << (2 * size - 1).bit_length()
        # The transform of U is exp(ℓ(φ − 1)), φ that of one item.
        transform = np.exp(items * (np.fft.rfft(one, length) - 1.0))
        mass = np.maximum(np.fft.irfft(transform, length)[:size], 0.0)
        mass[0] = np.exp(-items) if items < _MANY else mass[0]
        return cls(step, mass)

    @classmethod
    def of_pings(
        cls, items: float, decay: float, item: Item, recall: float, precision: float
    ) -> Content:
        """Return the distribution of what the pings of one step announce: each, at rate rℓ/p,
        p times the utility of an item.

        The mean is exact, and on the lattice the distribution still increases in convex order with
        r and with p: the lattice is the same for all r, and that of a smaller p refines that of a
        larger one.
        """
        utility, probability = _of_one(decay, item)
        step = _lattice(items, decay, utility, probability, item)[0]
        largest = item.quantile(1.0 - _FAR)
        second = precision * float(probability @ utility**2)
        most = _reach(items, float(probability @ utility), second, precision * largest)
        halved = max(min(ceil(-log2(precision)), int(log2(_MOST_POINTS * step / most))), 0)
        step = step / 2.0**halved
        pings, place = recall * items / precision, precision * utility / step
        # A ping of less than a step counts as one step at times.
        second = float(probability @ (place * np.maximum(place, 1.0)))
        largest = max(precision * largest / step, 1.0)
        size = int(_reach(pings, float(probability @ place), second, largest)) + 2
        one = _spread(place, probability, size)
        one[0] = -one[1:].sum()  # φ − 1 without its cancellation where a ping says little
        transform = np.exp(pings * np.fft.rfft(one, 1 << (2 * size - 1).bit_length()))
        return cls(step, np.maximum(np.fft.irfft(transform)[:size], 0.0))

    @classmethod
    def within(
        cls,
        items: float,
        decay: float,
        item: Item,
        steps: FloatArray,
        step: float,
        points: int,
    ) -> list[Content]:
        """Return the distributions of what is left of the items published in the last `steps`, (K,)
        increasing, on a lattice of so many points.

        Each is larger in convex order than the exact one, but for the values that stand for the
        distribution of ξ: ages, too, are split between two so that the mean is unchanged. What lies
        beyond the lattice is missing from the mass.
        """
        rate, begin, laws = np.zeros(points), 0.0, []
        for end in np.minimum(steps, _GONE / decay).tolist():
            length = max(end - begin, 0.0)
            retained, weight = _ages(decay, begin, length)
            values = np.outer(item.value, retained).ravel() / step
            rate += _spread(values, items * length * np.outer(item.weight, weight).ravel(), points)
            begin += length
            transform = np.exp(np.fft.rfft(rate, 2 * points) - items * begin)
            mass = np.maximum(np.fft.irfft(transform, 2 * points)[:points], 0.0)
            laws.append(cls(step, mass))
        return laws

    @cached_property
    def _below(self) -> tuple[FloatArray, FloatArray]:
        """P(U/ξ̄ ≤ k·step) and E[U/ξ̄; U/ξ̄ ≤ k·step], each (K,)."""
        values = np.arange(self.mass.size) * self.step
        return np.cumsum(self.mass), np.cumsum(self.mass * values)

    def split(self, start: FloatArray, grid: FloatArray, moves: FloatArray) -> None:
        """Add to `moves`, (S, n), the probabilities of the points of a grid, (n,), at which
        `start` + U is, each outcome being split between the two points next to it; what lies
        beyond the grid is left out."""
        _split(start, grid, *self._below, self.step, moves)


@compiled
def _split(
    start: FloatArray,
    grid: FloatArray,
    probability: FloatArray,
    mean: FloatArray,
    step: float,
    moves: FloatArray,
) -> None:
    """probability, mean: P(U ≤ k·step) and E[U; U ≤ k·step], (K,)."""
    n, last = grid.size, probability.size - 1
    lowest = np.searchsorted(grid, start, side="right") - 1
    for i in range(start.size):
        row, before, mean_before = moves[i], 0.0, 0.0
        for j in range(lowest[i], n - 1):
            place = (grid[j + 1] - start[i]) / step
            k = int(place) if place < last else last
            inside, amount = probability[k] - before, mean[k] - mean_before
            before, mean_before = probability[k], mean[k]
            upper = (amount - (grid[j] - start[i]) * inside) / (grid[j + 1] - grid[j])
            upper = min(max(upper, 0.0), inside)
            row[j] += inside - upper
            row[j + 1] += upper
            if k == last:
                break


def _of_one(decay: float, item: Item) -> tuple[FloatArray, FloatArray]:
    """Return what one item of a step is worth at its end, and with which probability, (K,) each."""
    utility = (item.value[:, None] * _retained(decay)).ravel()
    return utility, np.repeat(item.weight / _AGES, _AGES)


def _lattice(
    items: float, decay: float, utility: FloatArray, probability: FloatArray, item: Item
) -> tuple[float, float]:
    """Return the step of the lattice of U and how far it reaches, utility / ξ̄."""
    mean, second = (probability * utility).sum(), (probability * utility**2).sum()
    reach = float(items * mean + 9.0 * sqrt(items * second)) + item.quantile(1.0 - _FAR)
    points, finest = (_POINTS, 1.0) if decay <= _FAST else (_MOST_POINTS, _FINER)
    return min(max(reach / points, finest * _FINEST), _COARSEST), reach


def _reach(rate: float, mean: float, second: float, largest: float) -> float:
    """Return what a compound Poisson variable does not exceed, but for a probability that rounding
    does not resolve, given the moments of one jump and the largest."""
    # Twelve jumps more, so that a few may come where hardly any do.
    return rate * mean + 9.0 * sqrt(rate * second) + 12.0 * largest


def _spread(place: FloatArray, probability: FloatArray, size: int) -> FloatArray:
    """Return the masses on the lattice 0 … size − 1: each probability is split between
    the two points around its place, so that the mean is unchanged; places beyond are left out."""
    left = place.astype(np.intp)
    inside = left + 1 < size
    upper = (probability * (place - left))[inside]
    left, probability = left[inside], probability[inside]
    masses: Any = np.bincount(left, probability - upper, size)
    masses += np.bincount(left + 1, upper, size)
    return masses


def _retained(decay: float) -> FloatArray:
    """Return the mean of exp(−m·age) over each of equal parts of the step, (_AGES,)."""
    survival = np.exp(-decay * np.linspace(0.0, 1.0, _AGES + 1))
    return (survival[:-1] - survival[1:]) * _AGES / decay


def _ages(decay: float, begin: float, length: float) -> tuple[FloatArray, FloatArray]:
    """Return values of exp(−m·age) and weights adding up to 1 that are larger in convex order than
    that of an age uniform on a span, and have the same mean."""
    parts = min(max(ceil(_PARTS * decay * length), 4), _AGES * 8)
    width = decay * length / parts
    older = 0.5 + width / 12 if width < 1e-4 else 1.0 / -expm1(-width) - 1.0 / width
    weight = np.full(parts + 1, 1.0 / parts)
    weight[0], weight[-1] = (1.0 - older) / parts, older / parts
    return np.exp(-decay * begin - width * np.arange(parts + 1)), weight


def one_item(utility: Distribution) -> Item:
    """Return values and weights that approximate the distribution of ξ/ξ̄.

    The trapezoidal rule in log ξ for distributions whose density is known; else the means of
    equal groups of a large sorted sample, drawn with a fixed seed.

    Raises:
        ValueError: the tail of the distribution is too heavy for a few hundred values.
    """
    if isinstance(utility, EqualUtilities):
        value, weight = np.ones(1), np.ones(1)
    elif isinstance(utility, Lognormal):
        z = np.linspace(-9.0, 9.0 + 2 * utility.sigma, _ATOMS)  # E ξ² depends on values around 2σ
        value, weight = np.exp(utility.sigma * z), np.exp(-z * z / 2)
    elif isinstance(utility, Exponential | Gamma):
        shape = utility.shape if isinstance(utility, Gamma) else 1.0
        top = log((shape + 9 * sqrt(shape) + 40) / shape)
        bottom = -40.0 / shape
        # Very small values contribute by their probability only: fewer points suffice.
        few = _ATOMS // 2 if bottom < -100.0 else 0
        middle = -16.0 if few else bottom
        far = np.linspace(bottom, middle, few, endpoint=False)
        z = np.append(far, np.linspace(middle, top, _ATOMS - few))
        height = shape * (z - np.exp(z))
        value, weight = np.exp(z), np.exp(height - height.max()) * np.gradient(z)
    else:
        draws = np.sort(utility.sample(np.random.default_rng(0), _DRAWS))
        value, weight = draws.reshape(_ATOMS, -1).mean(axis=1), np.ones(_ATOMS)
    weight = weight / weight.sum()
    value = value / (weight @ value)
    second = utility.second_moment
    if second > _HEAVIEST or abs(weight @ value**2 / second - 1.0) > _OFF:
        raise ValueError(
            f"the distribution of utilities {utility!r} is too heavy-tailed for the exact index "
            f"and bound of observed content (E ξ² is {second:.3g} times the mean squared); use "
            "agent 'whittle', or a distribution with a lighter tail"
        )
    return Item(value, weight)
