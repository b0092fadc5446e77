"""Where hyper-parameters are searched: data only, a space for every learner.

A field that is not in its learner's space is not searched, and stays as it is. To search another
one, give it a `Range`, of whole numbers where both ends are, or a `Choice`; defaults have to lie
within.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; in `log`, all orders of magnitude alike."""

    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.low, self.high

    def holds(self, value: Any) -> bool:
        number = isinstance(value, int if self.whole else int | float)
        return number and bool(self.low <= value <= self.high)

    def distribution(self) -> BaseDistribution:
        if self.whole:
            return IntDistribution(int(self.low), int(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def taken(self, proposed: Any) -> Any:
        """Return the value that is tried: of fractions three digits, which is what one would write
        into a file.

        >>> Range(0.01, 1.0).taken(0.123456)
        0.123
        """
        return int(proposed) if self.whole else float(f"{proposed:.3g}")

    def proposed(self, value: Any) -> Any:
        return value

    def __str__(self) -> str:
        return f"{self.low} … {self.high}{', log' * self.log}"


@dataclass(frozen=True)
class Choice:
    """One of some values, in no order. For Optuna, which takes no tuples, they are text."""

    values: tuple[Any, ...]

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.values

    def holds(self, value: Any) -> bool:
        return value in self.values

    def distribution(self) -> BaseDistribution:
        return CategoricalDistribution([str(value) for value in self.values])

    def taken(self, proposed: Any) -> Any:
        return next(value for value in self.values if str(value) == proposed)

    def proposed(self, value: Any) -> Any:
        return str(value)

    def __str__(self) -> str:
        if any(isinstance(value, tuple) for value in self.values):
            return f"{len(self.values)} choices"
        return " or ".join(map(str, self.values))


Space = Mapping[str, Range | Choice]

_DISCOUNT = Range(0.9, 0.999)
_RATE = Range(1e-4, 3e-2, log=True)
_HIDDEN = Choice((16, 32, 48, 64, 128))
_BATCH = Choice((32, 64, 96, 128, 256))
_FOLLOW = Range(5e-4, 0.1, log=True)
_STEP = Range(0.05, 1.0, log=True)
_SLOW = Range(0.01, 1.0, log=True)
_SETTLE = Range(5, 20_000, log=True)

_TABULAR: Space = {
    "states": Range(8, 48, log=True),
    "explore": Range(0.05, 0.9),
    "visits": Range(5, 20_000, log=True),
}
_DEEP: Space = {
    "discount": _DISCOUNT,
    "explore": Range(0.05, 0.9),
    "hidden": _HIDDEN,
    "batch": _BATCH,
    "follow": _FOLLOW,
}
_ON_POLICY: Space = {
    "hidden": _HIDDEN,
    "gamma": Range(0.5, 0.999),
    "n_steps": Range(4, 128, log=True),
    "learning_rate": _RATE,
    "gae_lambda": Range(0.5, 1.0),
    "ent_coef": Range(0.0, 0.02),
    "vf_coef": Range(0.1, 1.0),
    "max_grad_norm": Range(0.1, 5.0, log=True),
}
_CLIPPED: Space = {
    **_ON_POLICY,
    "n_epochs": Range(1, 10),
    "batches": Range(1, 8),
    "clip_range": Range(0.05, 0.4),
}
_OFF_POLICY: Space = {
    "hidden": _HIDDEN,
    "gamma": Range(0.5, 0.999),
    "learning_rate": _RATE,
    "learning_starts": Range(20, 500, log=True),
    "batch_size": _BATCH,
    "train_freq": Range(2, 32, log=True),
    "gradient_steps": Range(2, 32, log=True),
}
_DQN: Space = {
    **_OFF_POLICY,
    "target_update_interval": Range(4, 400, log=True),
    "exploration_final_eps": Range(0.01, 0.5, log=True),
    "exploring": Range(100, 5000, log=True),
}
_GAUSSIAN: Space = {"log_std_init": Range(-3.0, 0.5)}

SPACES: dict[str, Space] = {
    "whittle-q": {**_TABULAR, "settle": _SETTLE, "fast": _STEP, "slow": _SLOW},
    "lagrange-q": {
        **_TABULAR,
        "settle": _SETTLE,
        "fast": _STEP,
        "medium": _STEP,
        "slow": Range(0.01, 5.0, log=True),
    },
    "lspe": {
        # Its steps do not fall, whatever `visits` is; `states` is the last knot.
        "explore": _TABULAR["explore"],
        "knots": Choice(
            (
                (1, 2, 3, 4, 6, 8, 11, 16),
                (1, 2, 4, 8, 16),
                (1, 4, 16),
                (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16),
            )
        ),
        "fast": _STEP,
        "slow": _SLOW,
    },
    "wiql": {**_TABULAR, "fast": _STEP, "discount": Range(0.5, 0.999)},
    "neurwin": {
        "discount": _DISCOUNT,
        "epochs": Range(20, 200, log=True),
        "episodes": Choice((2, 4, 8)),  # rows have to be a multiple
        "sharp": Range(2.0, 50.0, log=True),
        "oldest": Range(8, 100, log=True),
        "hidden": _HIDDEN,
        "rate": Range(1e-3, 0.1, log=True),
    },
    "deeptop": {**_DEEP, "critic_rate": _RATE, "actor_rate": _RATE},
    "qwinn": {
        **_DEEP,
        "states": Range(8, 48, log=True),
        "rate": _RATE,
        "slow": _SLOW,
        "visits": Range(300, 30_000, log=True),
    },
    "equivariant-ppo": {
        "hidden": _HIDDEN,
        "window": Range(8, 128, log=True),
        "trace": Range(0.8, 0.999),
        "rate": _RATE,
        "slower": Range(5.0, 500.0, log=True),
        "passes": Range(1, 10),
        "batches": Range(1, 8),
        "few": Range(1.0, 20.0, log=True),
        "clip": Range(0.05, 0.4),
        "steepest": Range(0.1, 5.0, log=True),
        "entropy": Range(0.001, 1.0, log=True),
        "latest": Range(1.0, 16.0, log=True),
    },
    "equivariant-index": {
        "hidden": _HIDDEN,
        "window": Range(8, 64, log=True),
        "sequences": Range(32, 1024, log=True),
        "batch": _BATCH,
        "updates": Range(1, 48, log=True),
        "trace": Range(0.5, 1.0),
        "rate": Range(2e-4, 2e-2, log=True),
        "slower": Range(5.0, 500.0, log=True),
        "follow": Range(2e-3, 0.2, log=True),
        "noise": Range(0.2, 5.0, log=True),
        "jitter": Range(0.0, 1.0),
        "spread": Range(0.1, 3.0, log=True),
        "latest": Range(1.0, 16.0, log=True),
    },
    "ppo": {**_CLIPPED, **_GAUSSIAN},
    "a2c": {**_ON_POLICY, **_GAUSSIAN},
    "maskable-ppo": _CLIPPED,
    "sac": {
        **_OFF_POLICY,
        "tau": _FOLLOW,
        "ent_coef": Choice(("auto", 0.001, 0.003, 0.01, 0.03, 0.1)),
    },
    "td3": {**_OFF_POLICY, "tau": _FOLLOW, "noise": Range(0.03, 1.0, log=True)},
    "dqn": {**_DQN, "max_grad_norm": Range(0.5, 20.0, log=True)},
    "qr-dqn": {
        **_DQN,
        "max_grad_norm": Range(0.5, 20.0, log=True),
        "n_quantiles": Choice((10, 25, 50)),
    },
}
