"""Fleets drawn at random when an episode begins, by name."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from crawl_env.errors import unknown
from crawl_env.fleet.sources import REGIMES, Sources

DRAWN = "drawn-"


@dataclass(frozen=True)
class DrawnFleet:
    """Draws a fleet of `Sources.random` at each reset, as the argument `sources`.

    Arguments:
        n: number of sources.
        regime: of `Sources.random`.
        number: the seed of the one fleet that is drawn every time, so that its parameters remain
            hidden from agents; None: a new fleet every time.
        topic: number of sources of one topic, neighbours in the fleet; 0: there are no topics.
        grouped: so many items are one item, of so many times the utility.

    >>> draw = DrawnFleet.named("drawn-sparse-10-7")
    >>> draw(np.random.default_rng(0)) == Sources.random(10, 7, "sparse")
    True
    """

    n: int
    regime: str
    number: int | None = None
    topic: int = 0
    grouped: int = 1

    @staticmethod
    def named(name: str) -> DrawnFleet:
        """Return what `drawn-<regime>-<n>`, `drawn-<regime>-<n>-<number>` and
        `drawn-<regime>-<n>-topics-<topic>` name.

        Raises:
            ValueError: the name has another form, or the regime is unknown.
        """
        match = re.fullmatch(DRAWN + r"([a-z]+)-(\d{1,9})(?:-(\d{1,19})|-topics-(\d{1,9}))?", name)
        if match is None:
            raise ValueError(
                f"sources is {name!r}; fleets that are drawn at reset are named "
                "drawn-<regime>-<n>, such as drawn-sparse-100, or drawn-<regime>-<n>-<number> for "
                "one fleet whose parameters remain hidden, or drawn-<regime>-<n>-topics-<k> for "
                "topics of k sources"
            )
        if match[1] not in REGIMES:
            raise unknown("regime", match[1], REGIMES)
        number = int(match[3]) if match[3] else None
        return DrawnFleet(int(match[2]), match[1], number, int(match[4] or 0))

    @property
    def example(self) -> DrawnFleet:
        """The distribution of the example that a `Task` shows, which is never the hidden fleet."""
        return replace(self, number=None)

    def __call__(self, rng: np.random.Generator) -> Sources:
        fleet = Sources.random(self.n, rng if self.number is None else self.number, self.regime)
        if self.topic:
            topics = [f"topic {1 + i // self.topic}" for i in range(self.n)]
            return fleet.replaced(topics=topics)
        if self.grouped == 1:
            return fleet
        rate, utility = fleet.arrival_rate / self.grouped, fleet.mean_utility * self.grouped
        return Sources(rate, utility, fleet.decay_rate)
