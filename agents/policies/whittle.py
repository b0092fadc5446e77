"""The Whittle index policy."""

from __future__ import annotations

from agents.policies.base import IndexAgent
from agents.theory.index import whittle_index
from crawl_env import Sources
from crawl_env.numerics import FloatArray


class Whittle(IndexAgent):
    """The Whittle index policy (Avrachenkov & Borkar 2015): the baseline to beat.

    It acts on what waits where this is observed, else on the belief; where only `age` is shown it
    computes the belief from the known parameters. The index is the average-reward one.
    """

    name = "whittle"

    def worth(self, value: FloatArray, sources: Sources) -> FloatArray:
        return whittle_index(value, sources)
