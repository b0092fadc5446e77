"""`Payoff`: how the utility that crawls collect becomes reward, as an argument of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from crawl_env.content.parts import is_known, make_part
from crawl_env.content.process import ArrivalProcess
from crawl_env.errors import check_array, check_positive, check_whole, shown
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray, IntArray


class Payoff:
    """Base class of payoffs. Without one, the reward of a step is the utility that it collects.

    A subclass is a frozen dataclass whose fields JSON can hold. `PAYOFFS` has those of this package
    by name.

    Attributes:
        name: the short name, the entry "name" of a dictionary that describes the payoff.
        at_most_collected: whether the reward of a step never exceeds the utility that it collects,
            so that bounds on that hold.
    """

    name: ClassVar[str] = "payoff"
    at_most_collected: ClassVar[bool] = False

    def reward(
        self, sources: Sources, picked: IntArray, value: FloatArray, elapsed: FloatArray
    ) -> FloatArray:
        """Return the reward of a step in each of B environments, (B,) utility.

        Arguments:
            sources: the fleet, (N,), or a batch of one for each environment, (B, N).
            picked: (K,) cells that were crawled, environment · N + source, ascending.
            value: (K,) the utility that each crawl collected; 0 where a crawl failed.
            elapsed: (B,) steps since the start of the episode, 0 in the first one.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement reward")

    def steps_left(self, elapsed: FloatArray) -> FloatArray:
        """Return the steps of the present batch after this one, (B,); 0 without batches."""
        return np.zeros_like(elapsed)

    def check(self, sources: Sources, arrivals: ArrivalProcess) -> None:
        """Raise ValueError if the payoff does not fit the fleet or the arrivals."""

    def describe(self) -> dict[str, Any]:
        """Return the name and the arguments as JSON can hold them; `make_payoff` makes an equal
        payoff of them.

        >>> Deadline(steps=24).describe()
        {'name': 'deadline', 'steps': 24}
        """
        if PAYOFFS.get(self.name) is not type(self):
            raise ValueError(
                f"payoff is {self!r}, of the class {type(self).__qualname__}, which is not one of "
                "this package and which JSON cannot hold"
            )
        return {"name": self.name, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True)
class Deadline(Payoff):
    """Items pay only at the end of a batch of D steps, decayed to then, as in a newsletter.

    A crawl l steps before the last step of its batch is worth e^{−μTl} times the utility that it
    collects: what the items will be worth when the batch appears. As that is certain, it is the
    reward of the crawl; the sum over a batch is what the batch is worth when it appears. Batches
    begin with the episode. Content that a batch has left uncollected can be collected for the next.

    An item is worth the same at the end of the batch whenever the batch collects it. So only the
    last crawl of a source in a batch matters: each source should be crawled at most once in a
    batch, and the later, the more items it has; but the last step has room for only M of them.

    Arguments:
        steps: D ≥ 1, steps per batch; 1: items pay at once.

    Raises:
        ValueError: `steps` is not a positive whole number.

    >>> Deadline(24).steps_left(np.array([0.0, 22.0, 23.0, 24.0]))
    array([23.,  1.,  0., 23.])
    """

    steps: int

    name: ClassVar[str] = "deadline"
    at_most_collected: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", check_whole("steps", self.steps, what="steps per batch"))

    def reward(
        self, sources: Sources, picked: IntArray, value: FloatArray, elapsed: FloatArray
    ) -> FloatArray:
        env, source = np.divmod(picked, len(sources))
        decay = sources.decay_per_step
        decay = decay[source] if decay.ndim == 1 else decay[env, source]
        worth = value * np.exp(-decay * self.steps_left(elapsed)[env])
        return np.bincount(env, worth, minlength=elapsed.size).astype(np.float64, copy=False)

    def steps_left(self, elapsed: FloatArray) -> FloatArray:
        steps: FloatArray = self.steps - 1.0 - elapsed % self.steps
        return steps

    def check(self, sources: Sources, arrivals: ArrivalProcess) -> None:
        if not arrivals.exponential:
            raise ValueError(
                f"payoff is {self!r}, and arrivals are {arrivals!r}: what content will be worth at "
                "the deadline is known only if it decays exponentially. Use such arrivals, for "
                "example 'poisson', or leave out the payoff"
            )


@dataclass(frozen=True)
class DiminishingReturns(Payoff):
    """The more of a topic a step collects, the less the rest of it is worth.

    The reward of a step is Σ_g B(1 − e^(−Y_g/B)) over the topics g (`Sources.topics`), where Y_g is
    the utility that the step collects from topic g: nearly Y_g while that is small, and never more
    than B. Crawling two sources of a topic in one step is worth less than crawling them in two.
    What is crawled is collected whole, as always.

    Arguments:
        limit: B > 0, utility / step: the most that a topic is worth in a step.

    Raises:
        ValueError: `limit` is not positive and finite.

    >>> fleet = Sources([1.0, 1.0, 1.0], 1.0, 0.5, topics=["sport", "sport", "news"])
    >>> together, apart = np.array([0, 1]), np.array([1, 2])
    >>> payoff, start = DiminishingReturns(limit=2.0), np.zeros(1)
    >>> [payoff.reward(fleet, two, np.ones(2), start).round(3).item() for two in (together, apart)]
    [1.264, 1.574]
    """

    limit: float

    name: ClassVar[str] = "diminishing"
    at_most_collected: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", check_positive("limit", self.limit, "utility / step"))

    def reward(
        self, sources: Sources, picked: IntArray, value: FloatArray, elapsed: FloatArray
    ) -> FloatArray:
        env, source = np.divmod(picked, len(sources))
        topics = sources.topic_of
        shape = elapsed.size, int(topics.max()) + 1
        cell = env * shape[1] + topics[source]
        collected = np.bincount(cell, value, minlength=shape[0] * shape[1]).astype(np.float64)
        return self.worth(collected.reshape(shape)).sum(axis=1)

    def worth(self, collected: FloatArray) -> FloatArray:
        """Return B(1 − e^(−Y/B)), the reward for the utility collected from each topic, (...)."""
        return np.asarray(-self.limit * np.expm1(-collected / self.limit))


PAYOFFS: dict[str, type[Payoff]] = {kind.name: kind for kind in (Deadline, DiminishingReturns)}


def reward_of(
    payoff: Payoff, sources: Sources, picked: IntArray, value: FloatArray, elapsed: FloatArray
) -> FloatArray:
    """Return what `payoff.reward` returns, checked if its class is one of a user's own.

    Raises:
        ValueError: the reward is not one finite number for each environment.
    """
    reward = payoff.reward(sources, picked, value, elapsed)
    if is_known(payoff):
        return reward
    what = f"the reward that {type(payoff).__name__}.reward returned"
    return check_array(what, reward, elapsed.shape, element="environment")


def make_payoff(payoff: object) -> Payoff | None:
    """Return a payoff by a dictionary of its name and arguments; payoffs and None are returned
    unchanged.

    Raises:
        ValueError: the name or an argument is unknown or out of range, or it is no payoff.

    >>> make_payoff({"name": "deadline", "steps": 24})
    Deadline(steps=24)
    """
    if payoff is None or isinstance(payoff, Payoff):
        return payoff
    if not isinstance(payoff, Mapping):
        raise ValueError(
            f"payoff is {shown(payoff)}; give a payoff, such as crawl_env.Deadline(steps=24), or a "
            'dictionary of its name and arguments, such as {"name": "deadline", "steps": 24}'
        )
    part: Payoff = make_part("payoff", payoff, PAYOFFS)
    return part
