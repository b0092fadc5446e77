"""Who learns what, and for how long: data only. Hyper-parameters are in each learner's Settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.learning import LEARNERS, Learner
from experiments.benchmark.learning import tasks
from experiments.benchmark.learning.tasks import Settings
from experiments.benchmark.suite import Setting

AGES = ("age", "crawled", "harvest")
KNOWN = ("value", "age", "arrival_rate", "mean_utility", "decay_rate", "cost")


@dataclass(frozen=True)
class Lesson:
    """A training in some tasks, and the tasks in which it is examined."""

    practice: Settings
    exams: Settings
    epochs: int  # of each row


@dataclass(frozen=True)
class Player:
    """A learner as it enters the benchmark."""

    learner: str  # of `agents.learning.LEARNERS`
    lessons: tuple[Lesson, ...]
    rows: int  # environments side by side
    features: tuple[str, ...] = AGES
    settings: Mapping[str, Any] = field(default_factory=dict)  # that differ from its defaults
    seeds: int = 20
    label: str = ""  # added to the learner's name

    @property
    def name(self) -> str:
        return f"{self.learner}, {self.label}" if self.label else self.learner

    @property
    def kind(self) -> type[Learner]:
        return LEARNERS[self.learner]


def each(*settings: Setting, epochs: int) -> Iterator[Lesson]:
    """Give a lesson of its own on every task."""
    for setting in settings:
        yield Lesson((setting,), (setting,), epochs)


def _tabular(name: str, **epochs: int) -> Player:
    lessons = [
        *each(*tasks.TABLE1, epochs=10_000),
        *each(*tasks.RECOVERING, epochs=9_000),
        *each(*tasks.RANDOM, *tasks.MIXED, epochs=10_000),
    ]
    return Player(name, tuple(lessons), rows=1)


FULL: tuple[Player, ...] = (
    _tabular("whittle-q"),
    _tabular("lagrange-q"),
    _tabular("lspe"),
    _tabular("wiql"),
)


def _quickly(name: str, epochs: int, rows: int = 1, features: tuple[str, ...] = AGES) -> Player:
    lessons = tuple(each(*tasks.DETERMINISTIC, epochs=epochs))
    return Player(name, lessons, rows, features, seeds=5)


QUICK: tuple[Player, ...] = (
    *(_quickly(name, 6_000) for name in ("whittle-q", "lagrange-q", "lspe", "wiql")),
    _quickly("equivariant-ppo", 2_000, rows=8, features=KNOWN),
)

SUITES = {"quick": QUICK, "full": FULL}
