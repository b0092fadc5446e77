"""One crawl in lists, loops and exact budgets, written from the model's page alone, and what the
tests of the environments share. Nothing here imports the stations that the environments use."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from crawl_env import Sources

ID = "EphemeralCrawl-v0"
PARAMETERS = ("arrival_rate", "mean_utility", "decay_rate", "cost")
CHANNELS = ["value", "age", "crawled", "harvest", "items", *PARAMETERS, "balance"]
HIDDEN = ("age", "crawled", "harvest", "items", "cost", "balance")  # says nothing of parameters
VARYING = (
    "poisson-drift-items",
    "poisson-jumps-items",
    "poisson-cycle-items",
    "poisson-hawkes-items",
)
NEVER = 1e9
TABLE1 = {  # the paper's example
    "arrival_rate": [250.0] * 4,
    "mean_utility": [1.0, 0.7, 0.2, 0.08],
    "decay_rate": [0.7, 0.35, 0.7, 0.21],
}
MIXED = Sources([3.0, 0.2, 8.0, 0.7, 1.1], [1.0, 4.0, 0.3, 2.0, 1.0], [0.3, 0.1, 0.6, 0.2, 0.05])
COSTLY = MIXED.replaced(cost=[1, 2, 1, 3, 1])
LIMITED = COSTLY.replaced(
    crawl_delay=[0, 2, 4, 3.5, 0],
    capacity=[2, 9, 5, np.inf, 1],
    hosts=["a", "a", "", "b", "b"],
)


@dataclass
class PlainSource:
    """Λ, ξ̄, μ and C with T = 1; the cost is an exact decimal."""

    rate: float
    utility: float
    decay: float
    cost: str = "1"
    delay: int = 1  # epochs from one attempt to the next
    host: str = ""

    def content(self, age: float) -> float:
        ceiling = self.rate * self.utility / self.decay
        return ceiling if age >= NEVER else ceiling * -math.expm1(-self.decay * age)


def fleet_of(plain: Sequence[PlainSource], **limits: Any) -> Sources:
    """Return the same fleet for the code under test."""
    return Sources(
        [s.rate for s in plain],
        [s.utility for s in plain],
        [s.decay for s in plain],
        [float(s.cost) for s in plain],
        crawl_delay=[s.delay if s.delay > 1 else 0.0 for s in plain],
        hosts=[s.host for s in plain],
        **limits,
    )


class PlainCrawl:
    """The deterministic crawl: select, collect, then let content arrive."""

    def __init__(
        self,
        fleet: Sequence[PlainSource],
        budget: str,
        rule: str,
        age: float,
        per_host: int = 1,
    ) -> None:
        self.fleet, self.budget, self.rule = list(fleet), Fraction(budget), rule
        self.per_host, self.waited, self.failed = per_host, [age] * len(fleet), set[int]()
        self.cost = [Fraction(source.cost) for source in fleet]
        self.age = [age] * len(fleet)
        self.value = [source.content(age) for source in fleet]
        self.items = [source.rate * (age if age < NEVER else math.nan) for source in fleet]
        self.balance = self.budget
        self.spent = Fraction(0)
        self.crawled: set[int] = set()
        self.harvest = [0.0] * len(fleet)
        self.brought = [0.0] * len(fleet)

    def line(self, priority: Sequence[float]) -> list[int]:
        """Return sources in decreasing priority; ties to the older, then to the lower number."""
        return sorted(range(len(priority)), key=lambda i: (-priority[i], -self.age[i], i))

    def may(self, i: int, selection: set[int]) -> bool:
        """Return whether the delay has passed, and the host has room beside those chosen."""
        host = self.fleet[i].host
        there = sum(1 for j in selection if host and self.fleet[j].host == host)
        return self.rested(i) and there < self.per_host

    def rested(self, i: int) -> bool:
        """Return whether the delay has passed; without one, a source may always be crawled."""
        return self.fleet[i].delay == 1 or self.waited[i] >= self.fleet[i].delay

    def select(self, priority: Sequence[float]) -> set[int]:
        selection: set[int] = set()
        if self.rule == "step":
            for i in self.line(priority):
                fits = sum((self.cost[j] for j in selection), self.cost[i]) <= self.budget
                if fits and self.may(i, selection):
                    selection.add(i)
            return selection
        balance = self.balance
        for i in self.line(priority):
            if priority[i] >= 0 and balance > 0 and self.may(i, selection):
                selection.add(i)
                balance -= self.cost[i]
        return selection

    def select_subset(self, subset: Iterable[int]) -> set[int]:
        """Under the average rule the cheaper come first, then the older, as the balance covers."""
        if self.rule == "step":
            return {i for i in subset if self.may(i, set())}
        selection: set[int] = set()
        balance = self.balance
        for i in sorted(subset, key=lambda i: (self.cost[i], -self.age[i], i)):
            if balance > 0 and self.may(i, selection):
                selection.add(i)
                balance -= self.cost[i]
        return selection

    def step(self, selection: set[int], failed: Iterable[int] = ()) -> float:
        """Try these sources, of which some fail, let an epoch pass and return the reward."""
        n = range(len(self.fleet))
        self.failed, self.crawled = set(failed), selection - set(failed)
        self.harvest = [self.value[i] if i in self.crawled else 0.0 for i in n]
        self.brought = [self.items[i] if i in self.crawled else 0.0 for i in n]
        cost = sum((self.cost[i] for i in selection), Fraction(0))
        self.spent += cost
        if self.rule == "average":
            self.balance += self.budget - cost
        for i, source in enumerate(self.fleet):
            empty = i in self.crawled
            rest = 0.0 if empty else math.exp(-source.decay) * self.value[i]
            self.value[i] = rest + source.content(1)
            self.items[i] = (0.0 if empty else self.items[i]) + source.rate
            self.age[i] = 1 if empty else self.age[i] + 1
            self.waited[i] = 1 if i in selection else self.waited[i] + 1
        return math.fsum(self.harvest)

    def channel(self, name: str) -> list[float]:
        return {
            "value": self.value,
            "age": self.age,
            "crawled": [float(i in self.crawled) for i in range(len(self.fleet))],
            "harvest": self.harvest,
            "items": self.brought,
            "arrival_rate": [source.rate for source in self.fleet],
            "mean_utility": [source.utility for source in self.fleet],
            "decay_rate": [source.decay for source in self.fleet],
            "cost": [float(source.cost) for source in self.fleet],
            "balance": [float(self.balance)] * len(self.fleet),
            "available": [float(self.rested(i)) for i in range(len(self.fleet))],
            "failed": [float(i in self.failed) for i in range(len(self.fleet))],
        }[name]

    def observation(self, features: Sequence[str]) -> np.ndarray:
        return np.array([self.channel(name) for name in features]).T


@contextlib.contextmanager
def unreachable_is_fine() -> Iterator[None]:
    """Let pass the two remarks on budgets too small for a source or too large to matter."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="budget is", category=UserWarning)
        yield


def random_actions(env: Any, epochs: int, seed: int = 0) -> list[Any]:
    """Return actions from the space of an environment (also a vector environment)."""
    env.action_space.seed(seed)
    return [env.action_space.sample() for _ in range(epochs)]


def run(env: Any, actions: Iterable[Any], reset: bool = True) -> list[np.ndarray]:
    """Step through the actions, resetting scalar environments at the end of episodes; return all
    that was seen as arrays."""
    arrays = []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        arrays += [observation, np.array(reward), np.array(terminated), np.array(truncated)]
        if reset and truncated is True:
            arrays.append(env.reset()[0])
    return arrays


def same(one: Sequence[Any], two: Sequence[Any]) -> bool:
    """Return whether two lists hold equal arrays, bit for bit."""
    return len(one) == len(two) and all(
        a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(one, two, strict=True)
    )


def arrays_in(tree: Any) -> Iterator[np.ndarray]:
    """Yield the writable arrays anywhere in a state or an info."""
    if isinstance(tree, np.ndarray) and tree.flags.writeable:
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from arrays_in(value)
    elif isinstance(tree, (tuple, list)):
        for value in tree:
            yield from arrays_in(value)
