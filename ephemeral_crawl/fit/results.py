"""The results of a fit, from which the report is made."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.inference.shrinkage import Estimates
from crawl_env import ItemLog
from crawl_env.numerics import FloatArray
from ephemeral_crawl.fit.checks import Check
from ephemeral_crawl.fit.decay import Decay
from ephemeral_crawl.fit.lives import Lives
from ephemeral_crawl.fit.signals import SignalFit


class FitResults(NamedTuple):
    """Estimates and tests of a log."""

    log: ItemLog
    lives: Lives  # over which rates, bursts and drift are found
    rate: Estimates
    utility: Estimates
    decay: Decay | None
    given_decay: FloatArray  # (N,) used where there are no curves
    checks: dict[str, Check]
    signals: SignalFit | None = None

    @property
    def items(self) -> NDArray[np.intp]:
        """The number of items of each source, (N,)."""
        return np.bincount(self.log.source, minlength=len(self.log.names))
