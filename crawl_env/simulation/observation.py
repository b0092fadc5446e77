"""What the crawler sees: channels of the observation, one number per source each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from crawl_env.content.item_store import SUMS
from crawl_env.content.world import IntArray, World
from crawl_env.errors import unknown
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.numerics import FloatArray

FEATURES: dict[str, tuple[float, float]] = {  # bounds that hold whatever the parameters are
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
COUNTED = ("items", "changed")  # channels for which items must be counted
SUMMED = tuple(f"harvest_{name}" for name in SUMS)  # … and followed one by one
_TIMES = (0, 1, 2, 0, 1)  # the power of time in each of the sums


class Harvest(NamedTuple):
    """What one epoch's crawls brought, (K,) each."""

    picked: IntArray  # cells
    value: FloatArray  # utility collected
    items: FloatArray | None  # number of new items, where counted
    failed: NDArray[np.bool_] | None = None  # which crawls failed, where they can


def check_features(features: Sequence[str]) -> tuple[str, ...]:
    """Return the features as a tuple; raise ValueError for an unknown or repeated one, or none."""
    if not isinstance(features, Iterable):
        raise ValueError(f"features is {features!r}; give a tuple of {', '.join(FEATURES)}")
    chosen = (features,) if isinstance(features, str) else tuple(features)
    for name in chosen:
        if name not in FEATURES:
            raise unknown("feature", name, FEATURES)
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"features is {chosen}; name at least one, and each only once")
    return chosen


def observation_space(features: Sequence[str], n: int) -> spaces.Box:
    """Return Box (N, F) float32 with the bounds of each channel."""
    low, high = np.array([FEATURES[name] for name in features], dtype=np.float32).T
    shape = (n, len(features))
    return spaces.Box(
        np.broadcast_to(low, shape).copy(), np.broadcast_to(high, shape).copy(), dtype=np.float32
    )


class Observer:
    """Turns the state of the world into observations (B, N, F) float32, always a new array.

    Arguments:
        world: whose state is seen.
        features: channel names, in order.
        observed: (N,) which sources show their value; the others show the belief.
    """

    def __init__(self, world: World, features: Sequence[str], observed: NDArray[np.bool_]) -> None:
        self._world, self._features, self._observed = world, tuple(features), observed
        self._value_alone = self._features == ("value",) and world.belief is world.value

    def __call__(self, harvest: tuple[Any, ...], balance: FloatArray) -> NDArray[np.float32]:
        """`harvest` holds the fields of a `Harvest`, in whatever shape selections have."""
        if self._value_alone:
            return self._world.value.astype(np.float32)[..., None]
        seen = np.empty((*self._world.shape, len(self._features)), dtype=np.float32)
        for channel, name in enumerate(self._features):
            self._write(name, seen[..., channel], balance, *harvest)
        return seen

    def _write(
        self,
        name: str,
        out: NDArray[np.float32],
        balance: FloatArray,
        picked: IntArray,
        utility: FloatArray,
        items: FloatArray | None,
        failed: NDArray[np.bool_] | None,
    ) -> None:
        world = self._world
        if name == "value":
            out[...] = world.belief
            if world.belief is not world.value:
                np.copyto(out, world.value, where=self._observed, casting="same_kind")
        elif name == "age":
            out[...] = world.age
        elif name == "available":
            out[...] = 1.0 if world.available is None else world.available
        elif name == "balance":
            out[...] = balance[:, None]
        elif name in SUMMED:
            assert world.harvested is not None  # as the features ask for it
            which = SUMMED.index(name)
            out[...] = world.harvested[which] * world.sources.period ** _TIMES[which]
        elif name in PARAMETERS:
            out[...] = getattr(world.sources, name)
        else:
            out[...] = 0.0
            row, source = np.divmod(picked, world.shape[1])
            missed: Any = 0.0 if failed is None else failed.astype(np.float32)
            brought: dict[str, Any] = {
                "crawled": 1.0 - missed,
                "failed": missed,
                "harvest": utility,
                "items": items,
                "changed": None if items is None else items > 0,
            }
            out[row, source] = brought[name]
