"""The arm of a source whose crawls cost more if they find something: conditional GET, and looks.

A check after k steps costs c, and a further C' if something was published, which happens with
probability 1 − e^{−ℓk}, ℓ = ΛT, under Poisson arrivals: C_k = c + C'(1 − e^{−ℓk}) on average. A
conditional GET is such a check, with C' = C − c: a source that has nothing new answers "304 Not
Modified". So is a look that is followed by a crawl if it shows something, with C' = C.

A source checked every k steps brings (x_k − λC_k)/k, and checks after k and k + 1 steps are equally
good at the multiplier

    γ(k) = u* A(k; m) / (c + C' A(k; ℓ)),   A(k; m) = 1 − e^{−mk}(1 + k(1 − e^{−m})), m = μT:

the index of Theorem 1 (`agents.theory.closed_form`), and in its denominator Theorem 1 again, of a
source that decays as it publishes. The index is γ(k) up to the age at which x_k/C_k is
largest, and this maximum from there on: no check pays at a larger multiplier, and at a smaller one
a check that is late is to be made at once. Without C' the maximum is u*/c, at no finite age.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from agents.theory.closed_form import ClosedForm
from agents.theory.price import first_where
from crawl_env import Sources, Task
from crawl_env.numerics import BoolArray, FloatArray
from crawl_env.simulation.selection import affordable

_SLOWEST = 1e-12  # items / step of a source without arrivals, which earns nothing
_FULL = 45.0  # time constants after which nothing grows any more


class CheckedArm:
    """The arms of a fleet (N,), or of a batch of fleets (B, N), that is not observed.

    Arguments:
        sources: the fleet; failures and capacities are ignored.
        cost: c > 0, budget units, of a check.
        surcharge: C' ≥ 0, budget units, (N,) or (B, N), of what a check finds.

    >>> arm = CheckedArm(Sources(0.1, 1.0, 0.5), 0.1, np.array([0.9]))
    >>> arm.index_at_age(np.array([[1.0], [3.0], [30.0]])).ravel().round(4)
    array([0.2863, 0.4804, 0.4804])
    """

    def __init__(self, sources: Sources, cost: float, surcharge: FloatArray) -> None:
        self.sources, self._cost, self._surcharge = sources, cost, surcharge
        items = np.maximum(sources.arrival_rate * sources.period, _SLOWEST)
        one = np.ones_like(sources.cost)
        self._content = ClosedForm(sources.ceiling, one, sources.decay_per_step)
        self._items = items
        # As a fraction of C', which may be 0.
        self._finds = ClosedForm(one, one, items)

    def index_at_age(self, age: FloatArray) -> FloatArray:
        """Return the Whittle index `age` steps after the source was empty, (..., N), utility per
        budget unit."""
        early = np.minimum(age, self._peak)
        charge = self._cost + self._surcharge * self._finds.index_at_age(early)
        return np.where(age < self._peak, self._content.index_at_age(early) / charge, self._most)

    def _mean_cost(self, age: FloatArray) -> FloatArray:
        """Return C_k, budget units, in the shape of `age`."""
        return self._cost - self._surcharge * np.expm1(-self._items * age)

    @cached_property
    def _peak(self) -> FloatArray:
        """The age at which x_k/C_k is largest, in the shape of the fleet."""
        longest = np.ceil(_FULL / np.minimum(self.sources.decay_per_step, 1.0)) + 1.0

        def falls(age: FloatArray) -> BoolArray:
            now, then = (self.sources.content_at(k) / self._mean_cost(k) for k in (age, age + 1.0))
            return then <= now

        return _first_age(falls, longest)

    @cached_property
    def _most(self) -> FloatArray:
        """The largest x_k/C_k, utility / budget unit, in the shape of the fleet."""
        most: FloatArray = self.sources.content_at(self._peak) / self._mean_cost(self._peak)
        return most

    def net_reward(self, multiplier: FloatArray) -> FloatArray:
        """Return max_k max(0, (x_k − λC_k)/k), (..., N) utility / step, at λ, (..., 1)."""
        shape = np.broadcast_shapes(np.shape(multiplier), self._items.shape)
        peak = np.broadcast_to(self._peak, shape)
        age = _first_age(lambda k: self.index_at_age(k) >= multiplier, peak)
        net = (self.sources.content_at(age) - multiplier * self._mean_cost(age)) / age
        return np.maximum(net, 0.0)

    def max_multiplier(self) -> FloatArray:
        """Return a multiplier from which on nothing is checked, (..., 1)."""
        most: FloatArray = self._most.max(axis=-1, keepdims=True)
        return most


def _first_age(holds: Callable[[FloatArray], BoolArray], longest: FloatArray) -> FloatArray:
    """Return the smallest whole age at which a condition holds that is monotone in it, and
    `longest` if there is none."""
    apart = 0.5 / longest.max()  # so that the bounds have at most one whole number between them
    return np.ceil(first_where(lambda x: holds(np.ceil(x)), longest, 0.5, apart)[1])


def conditional_arm(task: Task, sources: Sources) -> CheckedArm:
    """Return the arms of a task in which crawls that find nothing cost `unchanged_cost`."""
    assert task.unchanged_cost is not None
    return CheckedArm(sources, task.unchanged_cost, sources.cost - task.unchanged_cost)


def is_saved(task: Task, sources: Sources) -> BoolArray:
    """Return whether what a crawl that finds nothing saves can be spent, (..., 1): not if the rest
    of the step's budget covers no other crawl, so that it does not matter what a crawl costs."""
    if task.unchanged_cost is None or task.budget_rule == "average":
        return np.array([task.unchanged_cost is not None])
    rest = task.budget - task.unchanged_cost
    return np.asarray(affordable(sources.cost, rest).any(axis=-1, keepdims=True))


def look_arm(task: Task, sources: Sources) -> CheckedArm:
    """Return the arms of a task in which a look is followed by a crawl if it shows something."""
    assert task.look_cost is not None
    return CheckedArm(sources, task.look_cost, sources.cost)
