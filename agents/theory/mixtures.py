"""The Whittle index of sources whose content decays at a mixture of rates: Theorem 1 is linear in
the content, so that the index at an age is the sum of those of the parts.

A mixture has weights w_j in place of u*/C, and decays m_j per step of which each is three times the
one before, m_j = 3^j m_0: its exponentials are cubes of each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agents.theory.closed_form import decayed, decayed_index
from crawl_env.compiled import compiled, inlined
from crawl_env.numerics import FloatArray

_NEWTON = 50  # steps at most


@compiled
def mixture_index(age: FloatArray, weights: NDArray[np.float32], slowest: FloatArray) -> FloatArray:
    """Return the index at ages in steps, (B, N), of mixtures of weights (B, N, J), of which the
    first decay is `slowest`, per step, (B, N)."""
    out = np.empty(age.shape)
    for b in range(age.shape[0]):
        for i in range(age.shape[1]):
            out[b, i] = _index(age[b, i], weights[b, i], slowest[b, i])
    return out


@compiled
def mixture_content(
    age: FloatArray, weights: NDArray[np.float32], slowest: FloatArray
) -> FloatArray:
    """Return the content expected at ages in steps, Σ w_j (1 − α_j^k), (B, N); arguments as those
    of `mixture_index`."""
    out = np.empty(age.shape)
    for b in range(age.shape[0]):
        for i in range(age.shape[1]):
            loss = -np.expm1(-slowest[b, i] * age[b, i])
            total = 0.0
            for w in weights[b, i]:
                total += w * loss
                loss *= 3.0 - loss * (3.0 - loss)  # 1 − (1 − loss)³
            out[b, i] = total
    return out


@compiled
def index_of_content(
    content: FloatArray, weights: NDArray[np.float32], slowest: FloatArray
) -> FloatArray:
    """Return the index of known content, (B, K), of mixtures as for `mixture_index`: that of the
    age at which as much is expected, Σ w_j (1 − α_j^k) = x, which Newton's method finds from below,
    and from the ceiling Σ w_j on x itself. It starts from the age at the mean decay alone, at which
    content grows faster (Jensen's inequality)."""
    out = np.empty(content.shape)
    for b in range(content.shape[0]):
        for i in range(content.shape[1]):
            x, w, m = content[b, i], weights[b, i], slowest[b, i]
            most, flow, decay = 0.0, 0.0, m
            for part in w:
                most += part
                flow += part * decay
                decay *= 3.0
            if x >= most or flow <= 0.0:
                out[b, i] = x
                continue
            age = -np.log1p(-x / most) * most / flow
            for _ in range(_NEWTON):
                missing, slope, decay = x, 0.0, m
                survival = np.exp(-m * age)
                for part in w:
                    missing -= part * (1.0 - survival)
                    slope += part * decay * survival
                    survival, decay = survival * survival * survival, 3.0 * decay
                if missing <= 1e-9 * x or slope <= 0.0:
                    break
                age += missing / slope
            out[b, i] = min(_index(age, w, m), x)
    return out


@inlined
def _index(age: float, weights: NDArray[np.float32], slowest: float) -> float:
    aged, m = age * slowest, slowest
    survival, bend = decayed(aged)
    retention, curvature = decayed(m)
    total = 0.0
    for w in weights:
        total += decayed_index(aged, survival, bend, curvature, w)
        survival, bend = _tripled(aged, survival, bend)
        retention, curvature = _tripled(m, retention, curvature)
        aged, m = 3.0 * aged, 3.0 * m
    return total


@inlined
def _tripled(z: float, survival: float, bend: float) -> tuple[float, float]:
    """Return e^−3z and g(3z)/3z, given e^−z and g(z)/z: g(3z) = 3 g(z) + (1 − e^−z)² (2 + e^−z)."""
    ratio = 1.0 - bend  # (1 − e^−z)/z
    return survival * survival * survival, bend + z * ratio * ratio * (2.0 + survival) / 3.0
