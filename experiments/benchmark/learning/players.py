"""Who learns what, and for how long: data only. Hyper-parameters are in each learner's Settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.learning import LEARNERS, Learner
from experiments.benchmark.learning.tasks import (
    DETERMINISTIC,
    DRAWN_ANEW,
    MIXED,
    PRACTISED,
    RANDOM,
    RECOVERING,
    TABLE1,
    Settings,
)
from experiments.benchmark.suite import DRAWN, Setting

AGES = ("age", "crawled", "harvest")
KNOWN = ("value", "age", "arrival_rate", "mean_utility", "decay_rate", "cost")


@dataclass(frozen=True)
class Lesson:
    """A training in some tasks, and the tasks in which it is examined."""

    practice: Settings
    exams: Settings
    rows: int  # environments side by side, of each task
    epochs: int  # of each row


@dataclass(frozen=True)
class Player:
    """A learner as it enters the benchmark."""

    learner: str  # of `agents.learning.LEARNERS`
    lessons: tuple[Lesson, ...]
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


def each(*settings: Setting, rows: int, epochs: int) -> tuple[Lesson, ...]:
    """Return a lesson of its own on every task."""
    return tuple(Lesson((setting,), (setting,), rows, epochs) for setting in settings)


SMALL_RECOVERING, LARGEST_RECOVERING = RECOVERING[:2] + RECOVERING[3:], RECOVERING[2:3]

# Of the recovering bandits at most 900 000 source-epochs: a tenth of what NeurWIN was given.
_TABULAR = (
    *each(*TABLE1, *SMALL_RECOVERING, *RANDOM, *MIXED, rows=8, epochs=2_500),
    *each(*LARGEST_RECOVERING, rows=8, epochs=1_100),
)
_WIQL = (
    *each(*TABLE1, *SMALL_RECOVERING, rows=8, epochs=2_500),
    *each(*LARGEST_RECOVERING, rows=8, epochs=1_100),
)
_EQUIVARIANT = (
    *each(*TABLE1, rows=64, epochs=1_000),
    *each(RECOVERING[0], rows=64, epochs=700),
    *each(RECOVERING[1], rows=64, epochs=1_400),
    *each(RECOVERING[2], rows=8, epochs=1_100),
    *each(RECOVERING[3], rows=32, epochs=2_000),
    *each(RECOVERING[4], rows=24, epochs=1_800),
    *each(RECOVERING[5], rows=16, epochs=1_800),
    *each(*RANDOM[:2], rows=64, epochs=1_000),
    *each(*RANDOM[2:], rows=8, epochs=1_000),
    *each(*MIXED, rows=32, epochs=1_000),
)

FULL: tuple[Player, ...] = (
    Player("whittle-q", _TABULAR),
    Player("lagrange-q", _TABULAR),
    Player("lspe", _TABULAR),
    Player("wiql", _WIQL),
    Player("equivariant-ppo", _EQUIVARIANT, KNOWN),
    Player(
        "equivariant-ppo",
        (Lesson(PRACTISED, DRAWN_ANEW, rows=16, epochs=2_500),),
        DRAWN,
        seeds=5,
        label="one network",
    ),
    Player(
        "deeptop",
        (*each(*TABLE1, rows=8, epochs=1_500), *each(*RECOVERING[1:2], rows=8, epochs=2_000)),
    ),
    Player("neurwin", each(*DETERMINISTIC, *RECOVERING[:2], rows=64, epochs=5_000)),
    Player("qwinn", each(*DETERMINISTIC, rows=8, epochs=4_000)),
)


def _quickly(name: str, rows: int, epochs: int, features: tuple[str, ...] = AGES) -> Player:
    return Player(name, each(*DETERMINISTIC, rows=rows, epochs=epochs), features, seeds=5)


QUICK: tuple[Player, ...] = (
    *(_quickly(name, 8, 1_000) for name in ("whittle-q", "lagrange-q", "lspe", "wiql")),
    _quickly("equivariant-ppo", 64, 960, KNOWN),
)

SUITES = {"quick": QUICK, "full": FULL}
