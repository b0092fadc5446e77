"""The entrants, and what is compared: trainings, budgets, trials of tuning and runs.

Every learner is trained on every task that it can play, for the same numbers of source steps (N for
each step of an environment), with settings that are chosen by the same number of trials. Default
hyper-parameters are in each learner's `Settings`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from agents.adaptive.learner import ThompsonLearner
from agents.learning import LEARNERS, Learner
from crawl_env.fleet.parameters import PARAMETERS
from experiments.benchmark.suite import (
    DRAWN_ANEW,
    LARGE,
    MIXED,
    RANDOM,
    RECOVERING,
    TABLE1,
    TRAINING_FLEETS,
    TUNING,
    Setting,
    Tasks,
)

# `ThompsonLearner` is given the model, and learns the arrival rate of each source.
KINDS: dict[str, type[Learner[Any]]] = {**LEARNERS, ThompsonLearner.name: ThompsonLearner}
AGES = ("age", "crawled", "harvest")
KNOWN = ("value", "age", *PARAMETERS)
MANY = ("value", *PARAMETERS)  # of fleets drawn anew

_NETWORKS = ("default", "equivariant")  # that trials draw; a change would change all records
_LARGEST_FACTOR = 3.0  # by which a trial of tuning multiplies or divides a setting


@dataclass(frozen=True)
class Training:
    """A training on some tasks, and the tasks on which the trained policy is tested."""

    environments: Tasks
    tests: Tasks


@dataclass(frozen=True)
class Entrant:
    """A learner as it enters the benchmark."""

    learner: str  # of `KINDS`
    features: tuple[str, ...] = AGES
    num_envs: int = 8  # at most; halved until at least ten updates fit into a budget
    settings: Mapping[str, Any] = field(default_factory=dict)  # other than the defaults

    @property
    def kind(self) -> type[Learner[Any]]:
        return KINDS[self.learner]

    @property
    def information(self) -> str:
        """What the learner knows and observes besides the harvests of its crawls."""
        if self.kind.prior_knowledge:
            return f"{self.kind.prior_knowledge} is given"
        return "content and parameters" if "value" in self.features else "ages"

    def trial(self, number: int) -> dict[str, Any]:
        """Return all settings of a trial of tuning; trial 0 has those of the entrant.

        In the others every positive real number, and every integer after which a step size decays,
        is multiplied by a factor of its own, log-uniform between 1/3 and 3; of numbers from .8 to
        1, such as discount factors, the distance from 1 is. Numbers below 1 stay below 1. The
        network of Stable-Baselines3's algorithms is drawn, too. The rule is the same for all, so
        that no learner is given a better search than another.

        >>> one = Entrant("wiql").trial(1)
        >>> one == Entrant("wiql").trial(1), 0.85 < one["gamma"] < 1, one["max_age"]
        (True, True, 16)
        """
        settings = asdict(self.kind.Settings(**self.settings))
        if number == 0:
            return settings
        name = f"{self.learner} {number}".encode()
        rng = np.random.default_rng(int.from_bytes(hashlib.sha256(name).digest()[:8]))
        for key, value in settings.items():
            factor = float(_LARGEST_FACTOR ** rng.uniform(-1, 1))
            if key == "network":
                settings[key] = str(rng.choice(_NETWORKS))
            elif isinstance(value, float) and value > 0:
                settings[key] = _multiplied(value, factor)
            elif isinstance(value, int) and "decay" in key:
                settings[key] = max(1, round(value * factor))
        return settings


def _multiplied(value: float, factor: float) -> float:
    if 0.8 <= value <= 1:
        return float(f"{1 - (1 - value) * factor:.4g}")
    most = 0.95 if value < 1 else np.inf
    return float(f"{min(value * factor, most):.4g}")


@dataclass(frozen=True)
class Suite:
    """The entrants, the trainings and the sizes of a comparison."""

    entrants: tuple[Entrant, ...]
    trainings: tuple[Training, ...]
    budgets: tuple[int, ...]  # source steps of a training
    runs: int  # trainings with different seeds
    trials: int  # of tuning, of each learner with each budget; 1 takes the settings of the entrant
    tuning: Tasks = TUNING  # on fleets that occur nowhere else


def each(*tasks: Setting) -> tuple[Training, ...]:
    """Return a separate training for every task."""
    return tuple(Training((task,), (task,)) for task in tasks)


_TABULAR = ("whittle-q", "lagrange-q", "lspe", "wiql")
_PLANNING = ("plug-in", "uc-whittle", "wiql-ucb")
ENTRANTS = (
    *(Entrant(name) for name in (*_TABULAR, *_PLANNING)),
    *(Entrant(name) for name in ("deeptop", "neurwin", "qwinn")),
    Entrant("adaptive-thompson", num_envs=1),
    Entrant("equivariant-ppo", KNOWN, num_envs=64),
    Entrant("equivariant-index", KNOWN, num_envs=32),
    Entrant("ppo", KNOWN, num_envs=64),
    Entrant("a2c", KNOWN, num_envs=32),
    *(Entrant(name, KNOWN, num_envs=16) for name in ("sac", "td3", "dqn", "qr-dqn")),
    Entrant("maskable-ppo", KNOWN, num_envs=16),
)

FULL = Suite(
    ENTRANTS,
    (
        *each(*TABLE1, *RECOVERING, *RANDOM, *MIXED, *LARGE),
        Training(TRAINING_FLEETS, DRAWN_ANEW),
    ),
    budgets=(10_000, 100_000, 1_000_000),
    runs=20,
    trials=6,
)
QUICK = Suite(
    tuple(e for e in ENTRANTS if e.learner in (*_TABULAR, "equivariant-ppo")),
    each(TABLE1[1], TABLE1[7]),
    budgets=(100_000,),
    runs=5,
    trials=1,
)
SUITES = {"quick": QUICK, "full": FULL}
