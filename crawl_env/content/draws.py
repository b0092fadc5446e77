"""Random numbers in compiled functions: uniform, exponential, normal, gamma and Poisson.

A stream is an array of two 64-bit words, a counter and its odd increment: the generator SplitMix of
Steele, Lea & Flood (2014), Fast splittable pseudorandom number generators. Passing a stream to a
compiled function takes no time, and streams of different words are independent, so that blocks of
a large fleet can be drawn in any order, or by several threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from crawl_env.compiled import compiled, inlined
from crawl_env.numerics import FloatArray

Stream = NDArray[np.uint64]  # (2,) counter and increment

_LAYERS = 256
_LAST_LAYER = np.uint64(_LAYERS - 1)
_ONE, _SHIFT = np.uint64(1), np.uint64(11)
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def stream(rng: np.random.Generator) -> Stream:
    """Return a new stream, whose two words are the next ones of a numpy generator."""
    words: Stream = rng.bit_generator.random_raw(2)
    return words


@inlined
def mixed(z: np.uint64) -> np.uint64:
    """Return 64 random bits that belong to a counter."""
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


@inlined
def bits(state: Stream) -> np.uint64:
    """Return the next 64 random bits of a stream."""
    z = state[0] + (state[1] | _ONE)
    state[0] = z
    return mixed(z)


@inlined
def uniform(state: Stream) -> float:
    """Return a uniform number in the open interval (0, 1)."""
    return (np.float64(bits(state) >> _SHIFT) + 0.5) * 2.0**-53


def _layers(
    edge: float, area: float, density: Callable[[float], float], inverse: Callable[[float], float]
) -> tuple[FloatArray, FloatArray]:
    """Return the widths of the layers of a ziggurat, each of the same area, and the density there.

    Marsaglia & Tsang (2000), The ziggurat method for generating random variables. The first layer
    contains the tail beyond `edge`.
    """
    width = np.zeros(_LAYERS + 1)
    width[0], width[1] = area / density(edge), edge
    for i in range(2, _LAYERS):
        width[i] = inverse(density(width[i - 1]) + area / width[i - 1])
    return width, np.array([density(w) for w in width])


_NORMAL_EDGE = 3.6541528853610088
_NORMAL_WIDTH, _NORMAL_DENSITY = _layers(
    _NORMAL_EDGE,
    _NORMAL_EDGE * math.exp(-0.5 * _NORMAL_EDGE**2)
    + math.sqrt(0.5 * math.pi) * math.erfc(_NORMAL_EDGE / math.sqrt(2)),
    lambda x: math.exp(-0.5 * x * x),
    lambda y: math.sqrt(-2.0 * math.log(y)),
)
_EXPONENTIAL_EDGE = 7.69711747013104972
_EXPONENTIAL_WIDTH, _EXPONENTIAL_DENSITY = _layers(
    _EXPONENTIAL_EDGE,
    (_EXPONENTIAL_EDGE + 1.0) * math.exp(-_EXPONENTIAL_EDGE),
    lambda x: math.exp(-x),
    lambda y: -math.log(y),
)


@inlined
def exponential(state: Stream) -> float:
    """Return a positive number with the exponential distribution of mean 1."""
    beyond = 0.0
    while True:
        word = bits(state)
        layer = np.int64(word & _LAST_LAYER)
        x = (np.float64(word >> _SHIFT) + 0.5) * 2.0**-53 * _EXPONENTIAL_WIDTH[layer]
        if x < _EXPONENTIAL_WIDTH[layer + 1]:
            return beyond + x
        if layer == 0:
            beyond += _EXPONENTIAL_EDGE  # the tail is exponential itself
            continue
        low, high = _EXPONENTIAL_DENSITY[layer], _EXPONENTIAL_DENSITY[layer + 1]
        if low + (high - low) * uniform(state) < math.exp(-x):
            return beyond + x


@inlined
def normal(state: Stream) -> float:
    """Return a number with the standard normal distribution."""
    while True:
        word = bits(state)
        layer = np.int64(word & _LAST_LAYER)
        x = (np.float64(np.int64(word) >> 11) + 0.5) * 2.0**-52 * _NORMAL_WIDTH[layer]
        if abs(x) < _NORMAL_WIDTH[layer + 1]:
            return x
        if layer == 0:
            return math.copysign(_normal_tail(state), x)
        low, high = _NORMAL_DENSITY[layer], _NORMAL_DENSITY[layer + 1]
        if low + (high - low) * uniform(state) < math.exp(-0.5 * x * x):
            return x


@compiled
def _normal_tail(state: Stream) -> float:
    """Return a normal number given that it is beyond the edge of the layers (Marsaglia 1964)."""
    while True:
        beyond = exponential(state) / _NORMAL_EDGE
        if 2.0 * exponential(state) > beyond * beyond:
            return _NORMAL_EDGE + beyond


@inlined
def gamma(state: Stream, shape: float) -> float:
    """Return a number with the gamma distribution of any shape ≥ 0 and scale 1.

    Marsaglia & Tsang (2000), A simple method for generating gamma variables.
    """
    if shape >= 1.0:
        return gamma_from_one(state, shape)
    if shape <= 0.0:
        return 0.0
    return gamma_from_one(state, shape + 1.0) * math.exp(-exponential(state) / shape)


@inlined
def gamma_from_one(state: Stream, shape: float) -> float:
    """Return a number with the gamma distribution of a shape ≥ 1 and scale 1."""
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal(state)
        v = 1.0 + c * x
        if v <= 0.0:
            continue
        v = v * v * v
        u = uniform(state)
        if u < 1.0 - 0.0331 * (x * x) * (x * x):
            return d * v
        if math.log(u) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
            return d * v


_FEW = 10.0  # mean from which Poisson numbers are drawn by rejection
_LOG_FACTORIAL = np.array([math.lgamma(k + 1.0) for k in range(20)])


@inlined
def poisson(state: Stream, mean: float) -> float:
    """Return a number with the Poisson distribution of any mean ≥ 0."""
    if mean < _FEW:
        return _few(state, mean)
    # Hörmann (1993), The transformed rejection method for generating Poisson random variables.
    b = 0.931 + 2.53 * math.sqrt(mean)
    a = -0.059 + 0.02483 * b
    while True:
        u = uniform(state) - 0.5
        v = uniform(state)
        edge = 0.5 - abs(u)
        k = np.floor((2.0 * a / edge + b) * u + mean + 0.43)  # math.floor would be an int64
        if edge >= 0.07 and v <= 0.9277 - 3.6224 / (b - 2.0):
            return k
        if k < 0.0 or (edge < 0.013 and v > edge):
            continue
        scaled = v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (edge * edge) + b)
        if math.log(scaled) <= log_poisson(k, mean):
            return k


@inlined
def _few(state: Stream, mean: float) -> float:
    """Return a Poisson number, by inversion of its distribution function."""
    k, u, p = 0.0, uniform(state), math.exp(-mean)
    while u >= p and (p > 1e-20 or k < mean):
        u -= p
        k += 1.0
        p *= mean / k
    return k


@compiled
def log_poisson(k: float, mean: float) -> float:
    """Return the logarithm of the Poisson probability of k, without loss of digits."""
    if k < 20.0:
        return k * math.log(mean) - mean - _LOG_FACTORIAL[int(k)]
    x = (k - mean) / mean
    deviance = mean * ((1.0 + x) * math.log1p(x) - x)
    series = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * k * k)) / (k * k)) / k
    return -deviance - series - 0.5 * math.log(2.0 * math.pi * k)
