"""What a fit of a log to the model yields; the report is made from it."""

from __future__ import annotations

from typing import NamedTuple

from crawl_env import ItemLog
from crawl_env.numerics import FloatArray
from experiments.fit.checks import Check
from experiments.fit.decay import Decay
from experiments.fit.estimate import Estimates


class FitResults(NamedTuple):
    """Everything a fit found out about a log."""

    log: ItemLog
    rate: Estimates
    utility: Estimates
    decay: Decay | None
    given_decay: FloatArray  # (N,) used where there are no curves
    checks: dict[str, Check]
