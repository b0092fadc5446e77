"""How long and how often the parts of the experiment are run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    seeds: int
    epochs: int
    quick: bool  # fewer cases
    sources: int  # N where time is measured
    rounds: int  # how often it is
    seed: int = 0


QUICK = Size(seeds=4, epochs=300, quick=True, sources=10_000, rounds=3)
FULL = Size(seeds=20, epochs=2000, quick=False, sources=100_000, rounds=9)
