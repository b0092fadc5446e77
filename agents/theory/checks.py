"""The arm of a source whose crawls cost more if they find something: conditional GET, and looks.

A check after k steps costs c, and a further C' if something was published, which happens with
probability 1 − e^{−ℓk}, ℓ = ΛT, under Poisson arrivals: C_k = c + C'(1 − e^{−ℓk}) on average. A
conditional GET is such a check, with C' = C − c: a source that has nothing new answers "304 Not
Modified". So is a look that is followed by a crawl if it shows something, with C' = C.

A source checked every k steps brings (x_k − λC_k)/k, and checks after k and k + 1 steps are equally
good at the multiplier

    γ(k) = u* A(k; m) / (c + C' A(k; ℓ)),   A(k; m) = 1 − e^{−mk}(1 + k(1 − e^{−m})), m = μT:

the index of Theorem 1 (`agents.theory.closed_form`), and in its denominator Theorem 1 again, of a
source that decays as it publishes. Where little is published, γ first increases with the age, and
then decreases, as the cost grows when the content no longer does. From its largest value on the
index stays there: a source that was to be checked at that age is to be checked at any later one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from agents.theory.closed_form import ClosedForm
from agents.theory.price import least_where
from agents.theory.relaxation import Relaxation
from crawl_env import Sources, Task
from crawl_env.numerics import FloatArray

_SLOWEST = 1e-12  # items / step of a source without arrivals, which earns nothing
_FULL = 45.0  # time constants after which nothing grows any more


class CheckedArm:
    """The arms of a fleet (N,), or of a batch of fleets (B, N), that is not observed.

    Arguments:
        sources: the fleet; failures and capacities are ignored.
        cost: c > 0, budget units, of a check.
        found: C' ≥ 0, budget units, (N,) or (B, N), of what a check finds.

    >>> arm = CheckedArm(Sources(0.1, 1.0, 0.5), 0.1, np.array([0.9]))
    >>> arm.index_at_age(np.array([[1.0], [3.0], [30.0]])).ravel().round(4)
    array([0.2955, 0.5544, 0.5803])
    """

    def __init__(self, sources: Sources, cost: float, found: FloatArray) -> None:
        self.sources, self._cost, self._found = sources, cost, found
        items = np.maximum(sources.arrival_rate * sources.period, _SLOWEST)
        one = np.ones_like(sources.cost)
        self._content = ClosedForm(sources.ceiling, one, sources.decay_per_step)
        self._items = items
        # As a fraction of C', which may be 0.
        self._finds = ClosedForm(one, one, items)

    def index_at_age(self, age: FloatArray) -> FloatArray:
        """Return the Whittle index `age` steps after the source was empty, (..., N), utility per
        budget unit."""
        return self._ratio(np.minimum(age, self._peak))

    def _ratio(self, age: FloatArray) -> FloatArray:
        spent = self._cost + self._found * self._finds.index_at_age(age)
        return self._content.index_at_age(age) / spent

    @cached_property
    def _peak(self) -> FloatArray:
        """The age at which γ is largest, in the shape of the fleet."""
        low, high = np.ones(self._items.shape), self._longest
        while (low < high).any():
            middle = np.floor(0.5 * (low + high))
            rises = self._ratio(middle + 1.0) > self._ratio(middle)
            low, high = np.where(rises, middle + 1.0, low), np.where(rises, high, middle)
        return low

    @cached_property
    def _longest(self) -> FloatArray:
        return np.ceil(_FULL / np.minimum(self.sources.decay_per_step, 1.0)) + 1.0

    def net_reward(self, multiplier: FloatArray) -> FloatArray:
        """Return max_k max(0, (x_k − λC_k)/k), (..., N) utility / step, at λ, (..., 1)."""
        low, high = np.ones(self._items.shape), self._peak
        shape = np.broadcast_shapes(np.shape(multiplier), self._items.shape)
        low, high = np.broadcast_to(low, shape), np.broadcast_to(high, shape)
        while (low < high).any():  # the first age at which the index reaches λ
            middle = np.floor(0.5 * (low + high))
            reached = self._ratio(middle) >= multiplier
            low, high = np.where(reached, low, middle + 1.0), np.where(reached, middle, high)
        spent = self._cost - self._found * np.expm1(-self._items * low)
        net = (self.sources.content_at(low) - multiplier * spent) / low
        return np.maximum(net, 0.0)

    def max_multiplier(self) -> FloatArray:
        """Return a multiplier from which on nothing is checked, (..., 1)."""
        # x_k/C_k ≤ u*(1 − e^{−mk})/(c + C'(1 − e^{−ℓk})), which is less than u*/c.
        return (self.sources.ceiling / self._cost).max(axis=-1, keepdims=True)


def conditional_arm(task: Task, sources: Sources) -> CheckedArm:
    """Return the arms of a task in which crawls that find nothing cost `unchanged_cost`."""
    assert task.unchanged_cost is not None
    return CheckedArm(sources, task.unchanged_cost, sources.cost - task.unchanged_cost)


def look_arm(task: Task, sources: Sources) -> CheckedArm:
    """Return the arms of a task in which a look is followed by a crawl if it shows something."""
    assert task.look_cost is not None
    return CheckedArm(sources, task.look_cost, sources.cost)


def least_priced(
    net_reward: Callable[[FloatArray], FloatArray], high: FloatArray, budget: float
) -> Relaxation:
    """Minimise λM + Σ_i β_i(λ) over λ in [0, high], where β is the net reward of each source, (...,
    N), at λ, (..., 1): the relaxed bound and λ*, floats, or arrays (B,) for a batch."""

    def dual(multiplier: FloatArray) -> FloatArray:
        net: FloatArray = net_reward(multiplier).sum(axis=-1, keepdims=True)
        return multiplier * budget + net

    multiplier = least_where(dual, high)
    bound = dual(multiplier)
    if multiplier.ndim == 1:
        return Relaxation(float(bound[0]), float(multiplier[0]))
    return Relaxation(bound[:, 0], multiplier[:, 0])
