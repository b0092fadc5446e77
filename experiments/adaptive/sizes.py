"""How long and how often the parts of the experiment are run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    seeds: int
    epochs: int
    quick: bool  # fewer cases
    seed: int = 0


QUICK = Size(seeds=4, epochs=300, quick=True)
FULL = Size(seeds=20, epochs=2000, quick=False)
