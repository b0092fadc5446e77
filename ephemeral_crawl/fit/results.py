"""The results of a fit, from which the report is made."""

from __future__ import annotations

from typing import NamedTuple

from crawl_env import ItemLog
from crawl_env.numerics import FloatArray
from ephemeral_crawl.fit.checks import Check
from ephemeral_crawl.fit.decay import Decay
from ephemeral_crawl.fit.estimate import Estimates


class FitResults(NamedTuple):
    """Estimates and tests of a log."""

    log: ItemLog
    rate: Estimates
    utility: Estimates
    decay: Decay | None
    given_decay: FloatArray  # (N,) used where there are no curves
    checks: dict[str, Check]
