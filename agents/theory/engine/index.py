"""The Whittle index of a source whose items pay for a place in an engine."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from agents.theory.engine.content import WaitingItems
from agents.theory.engine.relaxation import PricedArm
from agents.theory.renewal import renewal_arm
from crawl_env import Sources
from crawl_env.content.utility import EXPONENTIAL, Decay, Distribution, Exponential
from crawl_env.errors import check_non_negative
from crawl_env.numerics import FloatArray


def engine_index(
    age: ArrayLike,
    sources: Sources,
    price: float,
    refuse: bool = True,
    waits: float = 0.0,
    utility: Distribution | None = None,
    decay: Decay = EXPONENTIAL,
) -> FloatArray:
    """Return the Whittle index `age` ≥ 1 steps after a crawl, (..., N), where a place costs κ.

    With the right to refuse items it is (x_k − k(x_{k+1} − x_k))/C, with x_k(κ) for the content: x
    is concave in k, so that the index increases with age and the arm is indexable, as without an
    engine. Items that wait w steps to be indexed are worth e^(−μwT) of their utility then.

    Where every item must be indexed the price κΛkT cancels from x_k − k(x_{k+1} − x_k). The index
    γ_k is that without an engine, but no more than λ₀ = max_k (x_k − κΛkT)/C: above λ₀ it is best
    never to crawl again, below it a crawl is due as soon as γ_k reaches λ, so that the price
    decides whether a source is served, not when.

    Arguments:
        age: whole steps, (..., N) or what broadcasts to it.
        price: κ ≥ 0, utility / item.
        refuse: whether items that are not worth their place are refused.
        waits: w, in steps; under another decay than the exponential, that items lose the fraction
            R(μwT) while they wait is an approximation.

    Raises:
        ValueError: price or waiting time is negative.

    >>> from agents import index_at_age
    >>> table1 = Sources.preset("table1")
    >>> np.allclose(engine_index(2, table1, 0.0), index_at_age(2, table1))
    True
    >>> engine_index(2, table1, 0.1).round(2), engine_index(2, table1, 0.1, refuse=False).round(2)
    (array([173.32, 102.19,  21.47,   4.29]), array([180.4 , 105.06,  10.96,   0.  ]))
    """
    check_non_negative("price", price, "utility / item")
    check_non_negative("waits", waits, "steps")
    ages = np.broadcast_to(
        np.asarray(age, dtype=np.float64), np.broadcast_shapes(np.shape(age), sources.cost.shape)
    )
    kept = decay.survival(sources.decay_per_step * waits)
    items = WaitingItems(sources, utility or Exponential(), decay)
    if refuse:
        if price == 0.0 and waits == 0.0:
            return renewal_arm(sources, decay).index_at_age(ages)
        return PricedArm(items, price, kept=kept).index_at_age(ages)
    free = PricedArm(items, 0.0, 0.0, kept)
    return np.minimum(free.index_at_age(ages), _most_served(items, price, kept))


def _most_served(items: WaitingItems, price: float, kept: FloatArray) -> FloatArray:
    """Return λ₀ = max(0, max_k (d x_k − κΛkT)/C), (N,): x is concave, so that the best k is where
    the worth of the items of one more step falls below their price."""
    arm = PricedArm(items, price, 0.0, kept)
    low, high = np.ones(len(items.sources)), arm.longest
    for _ in range(60):
        middle = np.floor(0.5 * (low + high))
        falls = arm.mean_content(middle + 1.0) <= arm.mean_content(middle)
        low, high = np.where(falls, low, middle + 1.0), np.where(falls, middle, high)
        low = np.minimum(low, high)
    return np.maximum(arm.mean_content(low), 0.0) / items.sources.cost
