"""The items that wait at sources which are not observed, by age and by what they are worth.

An item of utility ξ is worth v = ξ R(μa) at age a. Of the items published since the last crawl, `k`
steps ago, those that are worth at least a level ℓ are

    y_k(ℓ) = Λ ∫_0^{kT} P(v ≥ ℓ) da          in number,
    V_k(ℓ) = Λ ∫_0^{kT} E[v; v ≥ ℓ] da       in utility.

If a place in an engine costs κ and an item that is not worth it is refused, the items are worth
x_k(κ) = V_k(κ) − κ y_k(κ) = Λ ∫ E (v − κ)⁺ da, and dx_k/dκ = −y_k(κ). x_k(0) is the mean content.

With c = ℓ/ξ̄ and z = μa, both are integrals over z. They are known in closed form where interest
decays exponentially and utilities are exponential (E₁ is the exponential integral),

    y = (Λ/μ) [E₁(c) − E₁(c e^z)],    x = u* [E₂(c) − e^−z E₂(c e^z)],

and where utilities are constant: all items up to the age at which R falls to c. Otherwise they are
computed by Gauss–Legendre quadrature on panels on which R falls by less than a factor.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy import special

from agents.theory.price import first_where
from agents.theory.shot_noise import Item, one_item
from crawl_env import Sources
from crawl_env.content.utility import (
    EXPONENTIAL,
    Decay,
    Distribution,
    EqualUtilities,
    Exponential,
    ExponentialDecay,
    Gamma,
    Lognormal,
)
from crawl_env.numerics import FloatArray

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_NODES, _WEIGHTS = 0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS  # on [0, 1]
_PANEL = 0.5  # fall of ln R on a panel
_GRADED = 4.0 ** -np.arange(1.0, 25.0)  # of the first panel, where R may have no derivative
_LARGE = 800.0  # e^−t is 0 from here on


class Excess:
    """How much of a unit item lies above a level: P(Z ≥ t) and E[Z; Z ≥ t] of ξ = ξ̄ Z.

    In closed form for the named distributions; else of the values that `one_item` takes for them.
    """

    def __init__(self, utility: Distribution) -> None:
        self._utility = utility

    def probability(self, t: FloatArray) -> FloatArray:
        """Return P(Z ≥ t), the shape of t ≥ 0."""
        match self._utility:
            case EqualUtilities():
                return np.asarray(t <= 1.0, dtype=np.float64)
            case Exponential():
                return np.exp(-t)
            case Gamma(shape):
                return np.asarray(special.gammaincc(shape, shape * t))
            case Lognormal(sigma):
                return np.asarray(special.ndtr(-self._standard(t, sigma) - 0.5 * sigma))
        return self._tail(self._item.weight, t)

    def mean(self, t: FloatArray) -> FloatArray:
        """Return E[Z; Z ≥ t], the shape of t ≥ 0."""
        match self._utility:
            case EqualUtilities():
                return np.asarray(t <= 1.0, dtype=np.float64)
            case Exponential():
                least = np.minimum(t, _LARGE)
                return np.asarray((1.0 + least) * np.exp(-least))
            case Gamma(shape):
                return np.asarray(special.gammaincc(shape + 1.0, shape * t))
            case Lognormal(sigma):
                return np.asarray(special.ndtr(-self._standard(t, sigma) + 0.5 * sigma))
        return self._tail(self._item.weight * self._item.value, t)

    @staticmethod
    def _standard(t: FloatArray, sigma: float) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(t) / sigma)

    @cached_property
    def _item(self) -> Item:
        return one_item(self._utility)

    def _tail(self, mass: FloatArray, t: FloatArray) -> FloatArray:
        """Return the sum of the masses of the values ≥ t."""
        above = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
        return np.asarray(above[np.searchsorted(self._item.value, t)])


class WaitingItems:
    """V_k(ℓ) and y_k(ℓ) of the sources of a fleet (N,) that are not observed.

    Arguments:
        sources: a fleet without capacities; (N,).
        utility: the distribution of ξ/ξ̄.
        decay: R.

    >>> from crawl_env import Sources
    >>> items = WaitingItems(Sources.preset("table1"), Exponential())
    >>> items.number(np.array([1.0]), 0.0), items.number(np.array([1.0]), 0.5).round(1)
    (array([250., 250., 250., 250.]), array([122.5, 106.7,   8.5,   0.3]))
    """

    def __init__(self, sources: Sources, utility: Distribution, decay: Decay = EXPONENTIAL) -> None:
        self.sources, self.decay = sources, decay
        self._excess = Excess(utility)
        self._panel_sums: tuple[FloatArray, FloatArray] | None = None  # c and the whole panels
        both = isinstance(utility, Exponential) and isinstance(decay, ExponentialDecay)
        self._closed = _exponential if both else None
        if isinstance(utility, EqualUtilities):
            self._closed = self._constant

    def number(self, age: FloatArray, level: FloatArray | float) -> FloatArray:
        """Return y_k(ℓ), items, (..., N), at ages (..., N) in steps; ℓ ≥ 0 is utility, (N,)."""
        return self._scale * self._integrals(age, level)[1]

    def utility(self, age: FloatArray, level: FloatArray | float) -> FloatArray:
        """Return V_k(ℓ), utility, (..., N)."""
        return self.sources.ceiling * self._integrals(age, level)[0]

    def worth(
        self, age: FloatArray, price: float, level: FloatArray | float, part: FloatArray | float = 1
    ) -> FloatArray:
        """Return d V_k(ℓ) − κ y_k(ℓ), (..., N): what the items above a level are worth at a price
        κ = `price`, if a fraction d = `part` of their utility is left when they are indexed."""
        value, number = self._integrals(age, level)
        return part * (self.sources.ceiling * value) - price * (self._scale * number)

    def worth_at_once(self, level: FloatArray | float) -> FloatArray:
        """Return the fraction of items that are worth a level when they are published, (N,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._excess.probability(np.nan_to_num(level / self.sources.mean_utility))

    @property
    def _scale(self) -> FloatArray:
        return self.sources.arrival_rate / self.sources.decay_rate

    def _integrals(
        self, age: FloatArray, level: FloatArray | float
    ) -> tuple[FloatArray, FloatArray]:
        z = np.minimum(self.sources.decay_per_step * age, self.decay.end)
        with np.errstate(divide="ignore", invalid="ignore"):
            c = np.asarray(level / self.sources.mean_utility)
        c = np.where(np.isnan(c), 0.0, c)
        z, c = np.broadcast_arrays(z, c)
        if not np.any(c):
            return np.asarray(self.decay.integrated_survival(z)), np.asarray(z)
        return (self._closed or self._quadrature)(z, c)

    def _constant(self, z: FloatArray, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        until = np.minimum(z, self._reaching(c))
        return np.asarray(self.decay.integrated_survival(until)), until

    def _reaching(self, c: FloatArray) -> FloatArray:
        """Return the z up to which R(z) ≥ c."""
        if isinstance(self.decay, ExponentialDecay):
            with np.errstate(divide="ignore"):
                return np.clip(-np.log(c), 0.0, self.decay.end)
        end = np.full(c.shape, float(self.decay.end))
        low, _ = first_where(lambda z: self.decay.survival(z) < c, end)
        return np.where(c <= 1.0, low, 0.0)

    def _quadrature(self, z: FloatArray, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Add the whole panels below each z, which are kept for the last c, to a part of one."""
        ends = self._panels
        c = c.reshape(-1, c.shape[-1])
        if (c != c[0]).any():
            raise ValueError("the level must be the same at all ages of a source")
        if self._panel_sums is None or not np.array_equal(self._panel_sums[0], c[0]):
            whole = self._part(ends[:-1, None], np.diff(ends)[:, None], c[0])
            start = np.zeros((2, 1, z.shape[-1]))
            self._panel_sums = c[0], np.concatenate([start, np.cumsum(whole, axis=1)], axis=1)
        panel = np.clip(np.searchsorted(ends, z, side="right") - 1, 0, ends.size - 2)
        part = self._part(ends[panel], z - ends[panel], c[0])
        value, number = self._panel_sums[1][:, panel, np.arange(z.shape[-1])] + part
        return value, number

    def _part(self, start: FloatArray, width: FloatArray, c: FloatArray) -> FloatArray:
        """Return both integrals from `start` over `width`, (2, ..., N)."""
        survival = self.decay.survival(start[..., None] + width[..., None] * _NODES)
        with np.errstate(divide="ignore"):
            t = c[:, None] / survival
        value, number = (survival * self._excess.mean(t)) @ _WEIGHTS, self._excess.probability(t)
        return width * np.stack(np.broadcast_arrays(value, number @ _WEIGHTS))

    @cached_property
    def _panels(self) -> FloatArray:
        """z at which ln R has fallen by multiples of a panel, the first of which is graded."""
        end = float(self.decay.end)
        least = float(self.decay.survival(np.array([np.nextafter(end, 0.0)]))[0])
        falls = np.arange(_PANEL, -np.log(max(least, 1e-17)), _PANEL)
        z = self._reaching(np.exp(-falls))
        return np.unique(np.concatenate([[0.0], z[0] * _GRADED, z, [end]]))


def _exponential(z: FloatArray, c: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return both integrals for exponential utilities and decay; c = 0 is the limit."""
    with np.errstate(over="ignore"):
        later = c * np.exp(z)
    first, last = np.exp(-c), np.exp(-z - later)
    with np.errstate(invalid="ignore"):
        number = special.exp1(c) - special.exp1(later)
    number = np.where(c > 0, number, z)
    # V = x + c y, x = E₂(c) − e^−z E₂(c e^z), E₂(t) = e^−t − t E₁(t)
    return np.asarray(first - last), np.asarray(number)
