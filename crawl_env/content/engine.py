"""`Engine`: the indexing engine behind the crawler, as an argument of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import inf, isinf
from numbers import Real
from typing import Any, Literal

from crawl_env.errors import (
    check_choice,
    check_non_negative,
    check_positive,
    check_whole,
    shown,
)

Discipline = Literal["fifo", "value"]
Service = Literal["deterministic", "poisson"]

DISCIPLINES = ("fifo", "value")
SERVICES = ("deterministic", "poisson")


@dataclass(frozen=True, repr=False)
class Engine:
    """An indexing engine of limited speed, in front of which the items of crawls queue.

    The utility of an item counts when the engine indexes it. An item of utility ξ that a crawl
    collects at age a, and that is indexed w steps later, is worth ξR(μ(a + wT)), where R is the
    decay function. `CrawlEnv` describes the order of events within a step.

    Of the items that the crawls of one step collect, those of the source with the lower number
    stand first under "fifo", and of one source the newest. Under "value" items are in order of
    their present utility, whatever their source; equal ones in the order in which they came.

    The exact optimum with an engine (`agents.theory.engine.optimum`), like that without one
    (`agents.optimal_reward`), is the best over all policies that choose in every step one of the
    *maximal* sets of sources: those to which no source can be added within the budget and the
    limits of hosts. The environment crawls such a set, too: it goes on
    while a source fits the rest of the budget.

    Arguments:
        rate: s > 0, items indexed per step, or infinity.
        capacity: K ≥ 0, items that can wait from one step to the next; None: any number. What is
            neither indexed in its step nor finds a place is lost.
        discipline: "fifo" indexes items in the order in which they were collected, and loses the
            last; "value" indexes the most valuable first, and loses the least valuable.
        service: "deterministic" indexes up to s items in every step; the fraction of s that is
            left over counts for the next step if there was more to index, and is lost otherwise.
            "poisson" draws the number of items that can be indexed in a step, of mean s.
        threshold: κ ≥ 0, utility; items worth less when they are collected are refused.

    Raises:
        ValueError: an argument is out of range or unknown.

    >>> Engine(rate=3, capacity=10, discipline="value")
    Engine(rate=3, capacity=10, discipline='value')
    >>> Engine(rate=-1)
    Traceback (most recent call last):
    ...
    ValueError: rate is -1; it must be positive (items / step)
    """

    rate: float
    capacity: int | None = None
    discipline: Discipline = "fifo"
    service: Service = "deterministic"
    threshold: float = 0.0

    def __post_init__(self) -> None:
        capacity = self.capacity
        arguments = {
            "rate": _rate_of(self.rate),
            "capacity": None
            if capacity is None or (isinstance(capacity, float) and capacity == inf)
            else check_whole("capacity", capacity, 0, "items"),
            "discipline": check_choice("discipline", self.discipline, DISCIPLINES),
            "service": check_choice("service", self.service, SERVICES),
            "threshold": check_non_negative("threshold", self.threshold, "utility"),
        }
        for name, value in arguments.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        short = f"{self.rate:g}"
        exact = short if float(short) == self.rate else repr(self.rate)
        rate = "float('inf')" if isinf(self.rate) else exact
        other = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)[1:]
            if getattr(self, field.name) != field.default
        ]
        return f"Engine({', '.join([f'rate={rate}', *other])})"

    def describe(self) -> dict[str, Any]:
        """Return the arguments as JSON can hold them; `make_engine` makes an equal engine of them.

        >>> Engine(rate=3, capacity=10).describe()["capacity"]
        10
        """
        return asdict(self)


def _rate_of(rate: object) -> float:
    """Return a rate, checked; it may be infinite."""
    if isinstance(rate, Real) and rate == inf:
        return inf
    try:
        return check_positive("rate", rate)
    except ValueError:
        raise ValueError(f"rate is {shown(rate)}; it must be positive (items / step)") from None


def make_engine(engine: object) -> Engine | None:
    """Return an engine by a dictionary of its arguments; engines and None are returned unchanged.

    Raises:
        ValueError: an argument is unknown or out of range, or it is no engine.

    >>> make_engine({"rate": 3})
    Engine(rate=3)
    """
    if engine is None or isinstance(engine, Engine):
        return engine
    if not isinstance(engine, Mapping):
        raise ValueError(
            f"engine is {shown(engine)}; give crawl_env.Engine(rate=…, capacity=…), or a "
            "dictionary of its arguments"
        )
    names = [field.name for field in fields(Engine)]
    for name in engine:
        check_choice("argument of Engine", name, names)
    if "rate" not in engine:
        raise ValueError(
            "engine, a dictionary, lacks the rate; give the items indexed per step, as in "
            '{"rate": 3}'
        )
    return Engine(**engine)
