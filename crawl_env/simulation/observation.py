"""The features of an observation: one number per source, with fixed bounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from gymnasium import spaces

from crawl_env.content.world import SUMS
from crawl_env.errors import unknown

FEATURES: dict[str, tuple[float, float]] = {  # bounds that hold for all parameters
    "value": (0.0, np.inf),
    "age": (0.0, np.inf),
    "crawled": (0.0, 1.0),
    "harvest": (0.0, np.inf),
    "items": (0.0, np.inf),
    "arrival_rate": (0.0, np.inf),
    "mean_utility": (0.0, np.inf),
    "decay_rate": (0.0, np.inf),
    "cost": (0.0, np.inf),
    "balance": (-np.inf, np.inf),
    "available": (0.0, 1.0),
    "failed": (0.0, 1.0),
    "changed": (0.0, 1.0),
    "harvest_number": (0.0, np.inf),
    "harvest_age": (0.0, np.inf),
    "harvest_age_squared": (0.0, np.inf),
    "harvest_log": (-np.inf, np.inf),
    "harvest_age_log": (-np.inf, np.inf),
}
COUNTED = ("items", "changed")  # features for which items must be counted
SUMMED = tuple(f"harvest_{name}" for name in SUMS)  # features for which items must be stored
POWERS_OF_TIME = (0, 1, 2, 0, 1)  # power of the unit of time in each feature of SUMMED


def check_features(features: Sequence[str]) -> tuple[str, ...]:
    """Return the features as a tuple; raise ValueError if one is unknown or repeated, or if there
    are none."""
    if not isinstance(features, Iterable):
        raise ValueError(f"features is {features!r}; give a tuple of {', '.join(FEATURES)}")
    chosen = (features,) if isinstance(features, str) else tuple(features)
    for name in chosen:
        if name not in FEATURES:
            raise unknown("feature", name, FEATURES)
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"features is {chosen}; name at least one feature, and each only once")
    return chosen


def observation_space(features: Sequence[str], n: int) -> spaces.Box[np.float32]:
    """Return Box (N, F) float32 with the bounds of each feature."""
    low, high = np.array([FEATURES[name] for name in features], dtype=np.float32).T
    shape = (n, len(features))
    return spaces.Box(
        np.broadcast_to(low, shape).copy(), np.broadcast_to(high, shape).copy(), dtype=np.float32
    )
