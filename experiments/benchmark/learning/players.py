"""Who learns what, and for how long: data only. Hyper-parameters are in each learner's Settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.adaptive.learner import ThompsonLearner
from agents.learning import LEARNERS, Learner
from experiments.benchmark.learning.tasks import (
    DETERMINISTIC,
    DRAWN_ANEW,
    LARGE,
    MEDIUM,
    MIXED,
    PRACTISED,
    RANDOM,
    RECOVERING,
    SEEN,
    UNSEEN,
    Settings,
)
from experiments.benchmark.suite import DRAWN, Setting

# That of the adaptive track is told the model, and learns one number of each source.
KINDS: dict[str, type[Learner]] = {**LEARNERS, ThompsonLearner.name: ThompsonLearner}
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

    learner: str  # of `KINDS`
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
        return KINDS[self.learner]


def each(*settings: Setting, rows: int, epochs: int) -> tuple[Lesson, ...]:
    """Return a lesson of its own on every task."""
    return tuple(Lesson((setting,), (setting,), rows, epochs) for setting in settings)


def blindly(rows: int, epochs: int) -> tuple[Lesson, ...]:
    """Return lessons on Table 1 for agents that look at ages alone: where arrivals are random, what
    they practise is the same whether content is seen or not, so one training is examined in both.
    """
    random = (Lesson((u,), (u, s), rows, epochs) for u, s in zip(UNSEEN, SEEN, strict=True))
    return (*each(*DETERMINISTIC, rows=rows, epochs=epochs), *random)


# Of the recovering bandits at most 900 000 source-epochs: a tenth of what NeurWIN was given.
_FOUR, _TEN, _HUNDRED, _TEN_BY_THREE, _TWENTY, _THIRTY = RECOVERING
_TABULAR = (
    *blindly(rows=8, epochs=2_500),
    *each(_FOUR, _TEN, _TEN_BY_THREE, _TWENTY, _THIRTY, rows=8, epochs=2_500),
    *each(_HUNDRED, rows=8, epochs=1_100),
    *each(*RANDOM, *MIXED, rows=8, epochs=2_500),
)
_SCORES = (
    *each(DETERMINISTIC[1], rows=64, epochs=1_000),
    *each(MIXED[1], rows=32, epochs=1_000),
)
_INDICES = each(*DETERMINISTIC, *UNSEEN, MIXED[1], rows=32, epochs=1_600)
_ADAPTIVE = (*blindly(rows=1, epochs=1_000), *each(*RANDOM[:2], rows=1, epochs=1_000))
# Where the myopic policy is not the best one, with rows and epochs of some five to ten seconds.
_STABLE = {
    "ppo": (64, 1_200),
    "a2c": (32, 2_000),
    "sac": (16, 800),
    "td3": (16, 800),
    "dqn": (16, 800),
    "qr-dqn": (16, 800),
    "maskable-ppo": (16, 800),
}

FULL: tuple[Player, ...] = (
    Player("whittle-q", _TABULAR),
    Player("lagrange-q", (*_TABULAR, *each(*LARGE, rows=2, epochs=2_500))),
    Player("lspe", _TABULAR),
    Player("wiql", each(*DETERMINISTIC, _TEN, rows=8, epochs=2_500)),
    Player("equivariant-ppo", _SCORES, KNOWN),
    Player(
        "equivariant-ppo",
        (Lesson(PRACTISED, DRAWN_ANEW, rows=16, epochs=2_500),),
        DRAWN,
        seeds=5,
        label="one network",
    ),
    Player("equivariant-index", _INDICES, KNOWN),
    Player(
        "equivariant-index",
        (Lesson(MEDIUM, DRAWN_ANEW, rows=8, epochs=7_000),),
        DRAWN,
        seeds=5,
        label="one network",
    ),
    Player("deeptop", (*blindly(rows=8, epochs=1_500), *each(_TEN, rows=8, epochs=2_000))),
    Player("neurwin", each(*DETERMINISTIC, _TEN, rows=64, epochs=4_000)),
    Player("qwinn", each(*DETERMINISTIC, rows=8, epochs=3_000)),
    Player("adaptive-thompson", _ADAPTIVE),
    *(
        Player(
            name,
            each(DETERMINISTIC[1], rows=rows, epochs=epochs),
            KNOWN,
            {"network": network},
            label=f"{network} network",
        )
        for name, (rows, epochs) in _STABLE.items()
        for network in ("equivariant", "default")
    ),
)


QUICK: tuple[Player, ...] = (
    *(
        Player(name, each(*DETERMINISTIC, rows=8, epochs=1_000), seeds=5)
        for name in ("whittle-q", "lagrange-q", "lspe", "wiql")
    ),
    Player("equivariant-ppo", each(DETERMINISTIC[1], rows=64, epochs=960), KNOWN, seeds=5),
)

SUITES = {"quick": QUICK, "full": FULL}
