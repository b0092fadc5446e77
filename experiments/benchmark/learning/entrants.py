"""The entrants and their trainings. Default hyper-parameters are in each learner's `Settings`."""

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
    OBSERVED,
    RANDOM,
    RECOVERING,
    TRAINING_FLEETS,
    UNOBSERVED,
    Tasks,
)
from experiments.benchmark.suite import DRAWN, BenchmarkTask

# `ThompsonLearner` is given the model, and learns the arrival rate of each source.
KINDS: dict[str, type[Learner[Any]]] = {**LEARNERS, ThompsonLearner.name: ThompsonLearner}
AGES = ("age", "crawled", "harvest")
KNOWN = ("value", "age", "arrival_rate", "mean_utility", "decay_rate", "cost")


@dataclass(frozen=True)
class Training:
    """A training on some tasks, and the tasks on which the trained policy is tested."""

    environments: Tasks
    tests: Tasks
    num_envs: int  # of each task
    steps: int  # of each environment


@dataclass(frozen=True)
class Entrant:
    """A learner as it enters the benchmark."""

    learner: str  # of `KINDS`
    trainings: tuple[Training, ...]
    features: tuple[str, ...] = AGES
    settings: Mapping[str, Any] = field(default_factory=dict)  # other than the defaults
    seeds: int = 20
    label: str = ""  # added to the learner's name

    @property
    def name(self) -> str:
        return f"{self.learner}, {self.label}" if self.label else self.learner

    @property
    def kind(self) -> type[Learner[Any]]:
        return KINDS[self.learner]


def each(*tasks: BenchmarkTask, num_envs: int, steps: int) -> tuple[Training, ...]:
    """Return a separate training for every task."""
    return tuple(Training((task,), (task,), num_envs, steps) for task in tasks)


def age_only(num_envs: int, steps: int) -> tuple[Training, ...]:
    """Return trainings on Table 1 for agents that observe only ages.

    With random arrivals, their training does not depend on whether content is observed, so that
    one training is tested on both tasks.
    """
    random = (
        Training((u,), (u, o), num_envs, steps) for u, o in zip(UNOBSERVED, OBSERVED, strict=True)
    )
    return (*each(*DETERMINISTIC, num_envs=num_envs, steps=steps), *random)


# Recovering bandits: at most 900,000 source steps, a tenth of the training of NeurWIN.
_FOUR, _TEN, _HUNDRED, _TEN_BY_THREE, _TWENTY, _THIRTY = RECOVERING
_TABULAR = (
    *age_only(num_envs=8, steps=2_500),
    *each(_FOUR, _TEN, _TEN_BY_THREE, _TWENTY, _THIRTY, num_envs=8, steps=2_500),
    *each(_HUNDRED, num_envs=8, steps=1_100),
    *each(*RANDOM, *MIXED, num_envs=8, steps=2_500),
)
_SCORES = (
    *each(DETERMINISTIC[1], num_envs=64, steps=1_000),
    *each(MIXED[1], num_envs=32, steps=1_000),
)
_INDICES = each(*DETERMINISTIC, *UNOBSERVED, MIXED[1], num_envs=32, steps=1_600)
_ADAPTIVE = (*age_only(num_envs=1, steps=1_000), *each(*RANDOM[:2], num_envs=1, steps=1_000))
# Trained on Table 1 with M = 2, where the myopic policy is not optimal: environments and steps, for
# about five to ten seconds.
_STABLE = {
    "ppo": (64, 1_200),
    "a2c": (32, 2_000),
    "sac": (16, 800),
    "td3": (16, 800),
    "dqn": (16, 800),
    "qr-dqn": (16, 800),
    "maskable-ppo": (16, 800),
}

FULL: tuple[Entrant, ...] = (
    Entrant("whittle-q", _TABULAR),
    Entrant("lagrange-q", (*_TABULAR, *each(*LARGE, num_envs=2, steps=2_500))),
    Entrant("lspe", _TABULAR),
    Entrant("wiql", each(*DETERMINISTIC, _TEN, num_envs=8, steps=2_500)),
    Entrant("equivariant-ppo", _SCORES, KNOWN),
    Entrant(
        "equivariant-ppo",
        (Training(TRAINING_FLEETS, DRAWN_ANEW, num_envs=16, steps=2_500),),
        DRAWN,
        seeds=5,
        label="one network",
    ),
    Entrant("equivariant-index", _INDICES, KNOWN),
    Entrant(
        "equivariant-index",
        (Training(MEDIUM, DRAWN_ANEW, num_envs=8, steps=7_000),),
        DRAWN,
        seeds=5,
        label="one network",
    ),
    Entrant("deeptop", (*age_only(num_envs=8, steps=1_500), *each(_TEN, num_envs=8, steps=2_000))),
    Entrant("neurwin", each(*DETERMINISTIC, _TEN, num_envs=64, steps=4_000)),
    Entrant("qwinn", each(*DETERMINISTIC, num_envs=8, steps=3_000)),
    Entrant("adaptive-thompson", _ADAPTIVE),
    *(
        Entrant(
            name,
            each(DETERMINISTIC[1], num_envs=num_envs, steps=steps),
            KNOWN,
            {"network": network},
            label=f"{network} network",
        )
        for name, (num_envs, steps) in _STABLE.items()
        for network in ("equivariant", "default")
    ),
)


QUICK: tuple[Entrant, ...] = (
    *(
        Entrant(name, each(*DETERMINISTIC, num_envs=8, steps=1_000), seeds=5)
        for name in ("whittle-q", "lagrange-q", "lspe", "wiql")
    ),
    Entrant("equivariant-ppo", each(DETERMINISTIC[1], num_envs=64, steps=960), KNOWN, seeds=5),
)

SUITES = {"quick": QUICK, "full": FULL}
