"""Random numbers that depend on (seed, source, step) only, and draws of arrival rates with them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from agents.scheduling.age_index import LEAST_RATE, Parameters
from crawl_env.compiled import compiled

_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@compiled
def mixed(key: Any) -> Any:
    """Return the 64 bits of SplitMix64 (Steele, Lea & Flood 2014) for a key of 64 bits."""
    z: Any = np.uint64(key) + np.uint64(_GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_FIRST)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_SECOND)
    result: Any = z ^ (z >> np.uint64(31))
    return result


@compiled
def uniform(key: Any, n: int) -> float:
    """Return the n-th uniform number in (0, 1) of a key."""
    bits = mixed(np.uint64(key) + np.uint64(n) * np.uint64(_GOLDEN))
    return (float(bits >> np.uint64(11)) + 0.5) * 2.0**-53


@compiled
def standard_gamma(shape: float, key: Any) -> float:
    """Return a draw from the Gamma distribution (Marsaglia & Tsang 2000) for a key."""
    d = (shape + 1.0 if shape < 1.0 else shape) - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    n = 1
    while True:
        radius = math.sqrt(-2.0 * math.log(uniform(key, n)))
        x = radius * math.cos(2.0 * math.pi * uniform(key, n + 1))
        u = uniform(key, n + 2)
        n += 3
        v = 1.0 + c * x
        if v <= 0.0:
            continue
        v = v * v * v
        if math.log(u) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
            break
    drawn = d * v
    if shape < 1.0:
        drawn *= uniform(key, 0) ** (1.0 / shape)
    return drawn


@compiled
def draw_rate(parameters: Parameters, i: int, seed: int, step: int) -> None:
    """Draw the arrival rate of source i from its posterior."""
    key = mixed(np.uint64(seed) + mixed(np.uint64(step) + mixed(np.uint64(i))))
    shape = parameters.prior_shape + np.float64(parameters.items[i])
    rate = parameters.prior_rate + np.float64(parameters.exposure[i]) * parameters.period
    drawn = standard_gamma(shape, key) / rate
    parameters.drawn[i] = max(drawn, LEAST_RATE / parameters.period)


@compiled
def draw_range(parameters: Parameters, first: int, last: int, seed: int, step: int) -> None:
    """Draw the arrival rates of sources `first` … `last` − 1."""
    for i in range(first, last):
        draw_rate(parameters, i, seed, step)
