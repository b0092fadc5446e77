"""The index of every source of a fleet, as functions of its state.

The baseline of this project is the average-reward Whittle index of a source that is not observed:
Theorem 1 (`agents.theory.closed_form`), and where crawls fail or capacities hold, that of
`agents.theory.renewal`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from agents.theory.arm import PerFleet
from agents.theory.relaxation import refuse_no_fleet
from agents.theory.renewal import ClosedFormArm, RenewalArm, renewal_arm
from crawl_env import Sources
from crawl_env.errors import check_within
from crawl_env.numerics import FloatArray

_ATTRIBUTE = "_renewal_arm"
# Tables are made once, though batches that are read from observations are new at every step.
_last_arm = PerFleet(renewal_arm)


def whittle_index(value: ArrayLike, sources: Sources, discount: float = 1.0) -> FloatArray:
    """Return the Whittle index γ(x) of every source, (..., N), utility / budget unit.

    With y = x/u* and η = ⌈log(1−y)/log α⌉, the steps a source needs from empty to reach x:
    γ(x) = (u*/C)[1 − α^η − η(1−α)(1−y)] for x < u*, and x/C from there on (Theorem 1, extended).
    It is the Lagrange multiplier, per unit of cost, at which crawling now or later are equally
    good. Where crawls fail or capacities hold, it is the index of `agents.theory.renewal` at the
    age at which the mean content is x, interpolated between two ages.

    The first call for a fleet with capacities prepares a table for those of its sources that have
    one: .25 s for 10⁴ of them, 4 s where up to 40 % of crawls fail. It is kept while the fleet
    stays equal. A batch has one table: all of it is made anew when one of its fleets is drawn anew.

    Arguments:
        value: x ≥ 0, (..., N), the uncollected utility, or its posterior mean.
        sources: the fleet, (N,), or a batch that broadcasts against `value`.
        discount: δ in (0, 1]; below 1 the index of the discounted problem. It differs a lot for
            small μT: at age 1 by the factor 1 + (1−δ)α/(1−α).

    Raises:
        ValueError: a value is negative or NaN, the shapes do not match, or δ is out of range, or
            below 1 where crawls fail or capacities hold.

    >>> table1 = Sources.preset("table1")
    >>> whittle_index(table1.inflow, table1).round(3)
    array([90.509, 43.605, 18.102,  3.417])
    """
    discount = check_within("discount", discount, 0.0, 1.0, open_low=True)
    x = checked_value(value, sources)
    arm = _arm_of_fleet(sources)
    if discount == 1:
        return arm.index(x)
    if not isinstance(arm, ClosedFormArm) or sources.fails:
        raise ValueError(
            f"discount is {discount}, and crawls fail or capacities hold: the index is known only "
            "for the average reward there; use discount=1"
        )
    return arm.index(x, discount)


def index_at_age(age: ArrayLike, sources: Sources, discount: float = 1.0) -> FloatArray:
    """Return the Whittle index `age` steps after a crawl, (..., N): γ(x_k), x_k = (1−α^k)u*.

    Raises:
        ValueError: an age is negative or NaN, or as for `whittle_index`.

    >>> index_at_age([[1], [2], [3]], Sources.preset("table1"))[:, 0].round(3)
    array([ 90.509, 180.401, 247.359])
    """
    k = np.asarray(age, dtype=np.float64)
    if not k.min(initial=0.0) >= 0:
        raise ValueError("age has negative or NaN entries; it counts steps since the last crawl")
    if k.ndim and k.shape[-1] not in (1, len(sources)):
        raise ValueError(f"age has shape {k.shape}; the last axis must hold {len(sources)} sources")
    if discount != 1:
        return whittle_index(sources.content_at(k), sources, discount)
    arm = _arm_of_fleet(sources)
    whole = (k >= 1) & (k == np.floor(k)) & (k <= arm.longest) & np.isfinite(k)
    index = arm.index_at_age(np.where(whole, k, 1.0))
    if whole.all():
        return index
    return np.where(whole, index, whittle_index(sources.content_at(k), sources))


def myopic_index(value: ArrayLike, sources: Sources) -> FloatArray:
    """Return qx/C, (..., N), utility / budget unit: the reward of a crawl now per unit of cost.

    q = 1 − `failure_rate` is the probability that a crawl succeeds.

    Raises:
        ValueError: a value is negative or NaN, or the shapes do not match.
    """
    at_once = checked_value(value, sources) / sources.cost
    return at_once * (1.0 - sources.failure_rate) if sources.fails else at_once


def checked_value(value: ArrayLike, sources: Sources) -> FloatArray:
    """Return values as floats; raise ValueError where they are none of this fleet."""
    refuse_no_fleet(sources)
    x = np.asarray(value, dtype=np.float64)
    n = len(sources)
    if x.shape[-1:] != (n,):
        raise ValueError(f"value has shape {x.shape}; the last axis must hold {n} sources")
    if not x.min(initial=0.0) >= 0:
        raise ValueError(
            "value has negative or NaN entries; the uncollected utility of a source is zero or "
            "positive"
        )
    return x


def _arm_of_fleet(sources: Sources) -> RenewalArm:
    """Return the arm of a fleet, which is kept with the fleet."""
    attributes = vars(sources)  # as a cached property of the fleet would be
    if _ATTRIBUTE not in attributes:
        attributes[_ATTRIBUTE] = _last_arm(sources) if sources.is_capped else ClosedFormArm(sources)
    arm: RenewalArm = attributes[_ATTRIBUTE]
    return arm
