"""The features of an observation: one number per source, with fixed bounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from crawl_env.content.engine import Engine
from crawl_env.content.world import NEVER, SUMS
from crawl_env.errors import check_choice
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray

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
    "pings": (0.0, np.inf),
    "pings_aged": (0.0, np.inf),
    "backlog": (0.0, np.inf),
    "topic": (0.0, np.inf),
    "rate": (0.0, np.inf),
    "steps_left": (0.0, np.inf),
    "seen": (0.0, np.inf),
    "shown": (0.0, np.inf),
    "known": (0.0, np.inf),
    "content": (0.0, np.inf),
}
HEARD = ("pings", "pings_aged")  # features for which pings must be kept
COUNTED = ("items", "changed")  # features for which items must be counted
SUMMED = tuple(f"harvest_{name}" for name in SUMS)  # features for which items must be stored
_LARGEST = 0.998  # scaled; larger ones would not be finite when unscaled
POWERS_OF_TIME = (0, 1, 2, 0, 1)  # power of the unit of time in each feature of SUMMED


def check_features(features: Sequence[str]) -> tuple[str, ...]:
    """Return the features as a tuple; raise ValueError if one is unknown or repeated, or if there
    are none."""
    if not isinstance(features, Iterable):
        raise ValueError(f"features is {features!r}; give a tuple of {', '.join(FEATURES)}")
    names = (features,) if isinstance(features, str) else tuple(features)
    for name in names:
        check_choice("feature", name, FEATURES)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"features is {names}; name at least one feature, and each only once")
    return names


def observation_space(
    features: Sequence[str], n: int, scaled: bool = False
) -> spaces.Box[np.float32]:
    """Return Box (N, F) float32 with the bounds of each feature."""
    low, high = np.array([FEATURES[name] for name in features], dtype=np.float32).T
    if scaled:
        low, high = np.clip(low, -1, 1), np.clip(high, -1, 1)
    shape = (n, len(features))
    return spaces.Box(
        np.broadcast_to(low, shape).copy(), np.broadcast_to(high, shape).copy(), dtype=np.float32
    )


def scales_of(
    features: Sequence[str], sources: Sources, budget: float, engine: Engine | None = None
) -> FloatArray:
    """Return the scale s of each feature for `scaled`, (F,); NaN for those bounded without it.

    Unless the features show the value or a parameter of the content, no scale depends on these
    parameters; `CrawlEnv` lists the scales.
    """
    content = ("value", "rate", *(name for name in PARAMETERS if name != "cost"))
    informed = not set(content).isdisjoint(features)
    utility = _typical(sources.ceiling) if informed else 1.0
    tour = max(float(sources.cost.sum()) / budget, 1.0)  # steps in which all can be crawled once
    scales = {
        "value": utility,
        "harvest": utility,
        "shown": utility,
        "content": utility,
        "age": tour,
        "seen": tour,
        "steps_left": tour,
        "balance": budget,
        "backlog": 1.0 if engine is None or np.isinf(engine.rate) else engine.rate,
        "harvest_age": tour * sources.period,
        "harvest_age_squared": (tour * sources.period) ** 2,
        "harvest_age_log": tour * sources.period,
        **{name: _typical(getattr(sources, name)) for name in PARAMETERS},
        "rate": _typical(sources.arrival_rate),
    }
    bounded = {name for name, bounds in FEATURES.items() if np.isfinite(bounds).all()}
    return np.array([np.nan if name in bounded else scales.get(name, 1.0) for name in features])


def scaled(observation: NDArray[np.float32], scales: FloatArray) -> NDArray[np.float32]:
    """Return sign(x)·z/(1 + z) with z = ln(1 + |x|/s) for each feature, (…, F), that has a scale s.

    >>> scaled(np.array([0, 4, 1e9], dtype=np.float32)[:, None], np.array([4.0])).ravel().round(3)
    array([0.   , 0.409, 0.951], dtype=float32)
    """
    which = np.flatnonzero(~np.isnan(scales))
    x = observation[..., which].astype(np.float64)
    z = np.log1p(np.abs(x) / scales[which])
    observation = observation.copy()
    observation[..., which] = np.copysign(z / (1 + z), x)
    return observation


def unscaled(observation: ArrayLike, scales: FloatArray) -> FloatArray:
    """Return the inverse of `scaled`, in float64.

    float32 rounds x by at most 2⁻²⁴ (|x| + s)(1 + z)²: relative to x by 10⁻⁷ at x = s, 10⁻⁶ at
    100 s and 10⁻⁵ at 10⁷ s. `NEVER`, or else a whole number, within the rounding is taken as the
    one meant, so that ages up to 10⁵ steps are exact, and those of sources never crawled.

    >>> scales = np.array([4.0])
    >>> unscaled(scaled(np.array([[7.0], [1e9]], dtype=np.float32), scales), scales).ravel()
    array([7.e+00, 1.e+09])
    """
    which = np.flatnonzero(~np.isnan(scales))
    array = np.array(observation, dtype=np.float64)
    size = np.minimum(np.abs(array[..., which]), _LARGEST)
    z = size / (1 - size)
    x = scales[which] * np.expm1(z)
    rounding = 0.51 * np.spacing(size.astype(np.float32)) * (x + scales[which]) * (1 + z) ** 2
    whole = np.where(np.abs(x - NEVER) <= rounding, NEVER, np.rint(x))
    x = np.where(np.abs(x - whole) <= rounding, whole, x)
    array[..., which] = np.copysign(x, array[..., which])
    return array


def _typical(parameter: FloatArray) -> float:
    """Return the median of the positive elements; 1 if there are none."""
    positive = parameter[parameter > 0]
    return float(np.median(positive)) if positive.size else 1.0
