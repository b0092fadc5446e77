"""The arm of a source, whatever the crawler observes: one protocol and the arm of a task.

An arm is one source crawled at a Lagrange multiplier λ per unit of cost, apart from all others.
Index policies and relaxed bounds need three things of it, which `SingleArm` names. It is realised
by `agents.theory.renewal` (not observed: closed form, failures, capacities, any decay function)
and `agents.theory.observed` (random content that is observed, or announced by signals).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import numpy as np

from agents.theory.observed import ObservedArm
from agents.theory.renewal import renewal_arm
from crawl_env import Arrivals, Sources, Task, Trace
from crawl_env.content.utility import EXPONENTIAL, Distribution, Exponential
from crawl_env.fleet.parameters import FIXED, PARAMETERS
from crawl_env.numerics import FloatArray

T = TypeVar("T")


class SingleArm(Protocol):
    """The arms of a fleet (N,), or of a batch of fleets (B, N)."""

    def index(self, value: FloatArray) -> FloatArray:
        """Return the Whittle index, (..., N) utility / budget unit, of the uncollected utility, or
        of its posterior mean where it is not observed, (..., N)."""

    def net_reward(self, multiplier: FloatArray) -> FloatArray:
        """Return the best average reward less what crawls cost at λ = `multiplier`, (..., 1), per
        unit of cost: (..., N) utility / step, zero where no crawl pays."""

    def max_multiplier(self) -> FloatArray:
        """Return a multiplier from which on nothing is crawled, (..., 1)."""


class Information(StrEnum):
    """The information about the content of a fleet before it is crawled."""

    DETERMINISTIC = "deterministic"
    UNOBSERVED = "not observed"
    SIGNALS = "signals"
    MIXED = "partly observed"
    MIXED_SIGNALS = "partly observed, signals"
    OBSERVED = "observed"
    # Recorded arrivals, varying rates, or content that is observed, sends signals or meets
    # capacities under another decay function than the exponential: no exact arm is known.
    UNKNOWN = "unknown"

    @property
    def is_informed(self) -> bool:
        """Whether random content is observed or announced by signals at some sources."""
        return self in _INFORMED


_INFORMED = (
    Information.SIGNALS,
    Information.MIXED,
    Information.MIXED_SIGNALS,
    Information.OBSERVED,
)


def information(task: Task) -> Information:
    """Return the information that a crawler of the task has about the content before crawling."""
    arrivals, observed = task.arrivals, task.observed
    if not arrivals.random:
        return Information.DETERMINISTIC
    if arrivals.stateful or isinstance(arrivals, Trace):
        return Information.UNKNOWN
    signalled = bool((~observed & (task.sources.recall > 0)).any())
    has_exact_arm = isinstance(arrivals, Arrivals) and not task.sources.is_capped
    if not arrivals.exponential and (observed.any() or signalled or not has_exact_arm):
        return Information.UNKNOWN
    if not observed.any():
        return Information.SIGNALS if signalled else Information.UNOBSERVED
    if signalled:
        return Information.MIXED_SIGNALS
    return Information.OBSERVED if observed.all() else Information.MIXED


def arm_of(task: Task, sources: Sources | None = None) -> SingleArm:
    """Return the arms of a task, for its fleet or for `sources`, (N,) or a batch (B, N).

    Their index is the exact one of each source: Theorem 1 and its like where content is
    deterministic or nothing is known of it before a crawl, and the tabulated one where Poisson
    content is observed or sends signals, with failures and capacities as in `simplified`, and
    delayed signals as in `at_once`. Where no exact index is known, it is that of the fleet not
    observed, under exponential decay and constant rates.

    Raises:
        ValueError: there are too many different sources to tabulate.
    """
    fleet = task.sources if sources is None else sources
    knowledge = information(task)
    if knowledge.is_informed and isinstance(task.arrivals, Arrivals):
        return ObservedArm(at_once(fleet), task.observed, utility_of(task))
    return renewal_arm(
        fleet, EXPONENTIAL if knowledge is Information.UNKNOWN else task.arrivals.decay
    )


def at_once(sources: Sources) -> Sources:
    """Return sources whose signals have no delay and approximate the given ones.

    When its ping comes, an item has lost all but 1/(1 + μd) of its utility on average: so much less
    is announced by a ping, and in all, while pings are as frequent. Recall and precision are
    divided by 1 + μd. The items whose pings are on the way count as silent ones, which is exact but
    for the first steps after a crawl.

    >>> slow = Sources(1.0, 1.0, 0.5, recall=0.6, precision=0.9, signal_delay=1.0)
    >>> at_once(slow).recall.round(3), at_once(slow).precision.round(3)
    (array([0.4]), array([0.6]))
    >>> bool(at_once(slow).ping_rate.round(9) == slow.ping_rate.round(9))
    True
    """
    if not (sources.recall * sources.signal_delay).any():
        return sources
    factor = 1.0 + sources.decay_rate * sources.signal_delay
    return sources.replaced(
        recall=sources.recall / factor, precision=sources.precision / factor, signal_delay=0.0
    )


def utility_of(task: Task) -> Distribution:
    """Return the distribution of ξ of a task with Poisson arrivals; raise ValueError for others."""
    if task.arrivals.stateful or not isinstance(task.arrivals, Arrivals):
        raise ValueError(
            f"arrivals are {task.arrivals!r}: what can be earned by observing random content is "
            "only known for Poisson arrivals; use arrivals='poisson' or observed=False"
        )
    return task.arrivals.utility


def item_utility(task: Task) -> Distribution:
    """Return the distribution of ξ of a task, exponential where it is not known."""
    return task.arrivals.utility if isinstance(task.arrivals, Arrivals) else Exponential()


class PerFleet(Generic[T]):
    """A function of a fleet whose last result is kept while the fleet stays equal; where each of
    several environments has a fleet of its own, the last result of each, by its number.

    >>> length = PerFleet(len)
    >>> length(Sources.preset("table1"))
    4
    """

    def __init__(self, function: Callable[[Sources], T]) -> None:
        self._function = function
        self._last: dict[int, tuple[Sources, T]] = {}

    def __call__(self, sources: Sources, env: int = 0) -> T:
        last = self._last.get(env)
        if last is None or not _same(sources, last[0]):
            last = sources, self._function(sources)
        self._last[env] = sources, last[1]  # this object, which is compared at once
        return last[1]


def _same(one: Sources, other: Sources) -> bool:
    return one is other or (
        one.period == other.period
        and all(np.array_equal(getattr(one, p), getattr(other, p)) for p in (*PARAMETERS, *FIXED))
    )
