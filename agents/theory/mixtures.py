"""The Whittle index of sources whose content decays at a mixture of rates: Theorem 1 is linear in
the content, so that the index at an age is the sum of those of the parts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agents.theory.closed_form import age_index, decayed
from crawl_env.compiled import compiled
from crawl_env.numerics import FloatArray

_NEWTON = 50  # steps at most


@compiled
def mixture_index(
    age: FloatArray,
    weights: NDArray[np.float32],
    centre: NDArray[np.float32],
    decay: FloatArray,
) -> FloatArray:
    """Return the index at ages in steps, (B, N), of mixtures with weights w_j, (B, N, J), in place
    of u*/C, and decays per step δκ_j, of which δ is `centre`, (B, N), and κ is `decay`, (J,)."""
    out = np.empty(age.shape)
    for b in range(age.shape[0]):
        for i in range(age.shape[1]):
            total = 0.0
            for j in range(decay.size):
                m = centre[b, i] * decay[j]
                total += age_index(age[b, i], m, decayed(m)[1], float(weights[b, i, j]))
            out[b, i] = total
    return out


@compiled
def index_of_content(
    content: FloatArray, weights: NDArray[np.float32], decay: FloatArray
) -> FloatArray:
    """Return the index of known content, (B, K), given the mixture of weights and decays per step,
    (B, K, J): that of the age at which as much is expected, Σ w_j (1 − α_j^k) = x, which Newton's
    method finds from below, and from the ceiling Σ w_j on x itself. It starts from the age at the
    mean decay alone, at which content grows faster (Jensen's inequality)."""
    out = np.empty(content.shape)
    for b in range(content.shape[0]):
        for i in range(content.shape[1]):
            x, w, m = content[b, i], weights[b, i], decay[b, i]
            most, flow = 0.0, 0.0
            for j in range(m.size):
                most, flow = most + w[j], flow + w[j] * m[j]
            if x >= most or flow <= 0.0:
                out[b, i] = x
                continue
            age = -np.log1p(-x / most) * most / flow
            for _ in range(_NEWTON):
                missing, slope = x, 0.0
                for j in range(m.size):
                    kept = np.exp(-m[j] * age)
                    missing -= w[j] * (1.0 - kept)
                    slope += w[j] * m[j] * kept
                if missing <= 1e-9 * x or slope < 1e-12 * x:
                    break
                age += missing / slope
            total = 0.0
            for j in range(m.size):
                total += age_index(age, m[j], decayed(m[j])[1], float(w[j]))
            out[b, i] = min(total, x)
    return out
