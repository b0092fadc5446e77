"""Draws of arrival rates from their posteriors, which depend on (seed, source, step) only."""

from __future__ import annotations

import numpy as np

from agents.scheduling.age_index import LEAST_RATE, Parameters
from crawl_env.compiled import compiled
from crawl_env.content.draws import gamma, mixed

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the increment of a stream


@compiled
def draw_rate(parameters: Parameters, i: int, seed: int, step: int) -> None:
    """Draw the arrival rate of source i from its posterior."""
    key = mixed(np.uint64(step) + mixed(np.uint64(i) + _GOLDEN) + _GOLDEN)
    state = np.array([np.uint64(seed) + key, _GOLDEN])
    shape = parameters.prior_shape + np.float64(parameters.items[i])
    rate = parameters.prior_rate + np.float64(parameters.exposure[i]) * parameters.period
    parameters.drawn[i] = max(gamma(state, shape) / rate, LEAST_RATE / parameters.period)


@compiled
def draw_range(parameters: Parameters, first: int, last: int, seed: int, step: int) -> None:
    """Draw the arrival rates of sources `first` … `last` − 1."""
    for i in range(first, last):
        draw_rate(parameters, i, seed, step)
