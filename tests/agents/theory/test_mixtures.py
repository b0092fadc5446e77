"""The index of mixtures of decays, against the sum of their parts and against Theorem 1."""

import numpy as np
import pytest

from agents.adaptive.network import DECAYS
from agents.theory.closed_form import age_index, decayed, theorem_1
from agents.theory.mixtures import index_of_content, mixture_content, mixture_index

N, J = 400, 7


def mixtures(spread):
    """Return ages, weights and slowest decays of which some parts are missing."""
    rng = np.random.default_rng(0)
    weights = np.exp(rng.normal(0.0, spread, (1, N, J))).astype(np.float32)
    weights *= rng.random((1, N, J)) < 0.6
    weights[..., 0] += 1e-3
    age = np.where(rng.random((1, N)) < 0.1, np.inf, np.floor(10 ** rng.uniform(0, 5, (1, N))))
    return age, weights, 10 ** rng.uniform(-9, 1, (1, N))


def test_the_decays_of_the_network_are_those_of_a_mixture():
    np.testing.assert_allclose(DECAYS, DECAYS[0] * 3.0 ** np.arange(len(DECAYS)), rtol=1e-14)


def test_a_mixture_is_the_sum_of_its_parts():
    age, weights, slowest = mixtures(2.0)
    decay = slowest[..., None] * 3.0 ** np.arange(J)
    parts = [
        [w * age_index(k, m, decayed(m)[1], 1.0) for w, m in zip(ws, ms, strict=True)]
        for k, ws, ms in zip(age[0], weights[0].astype(float), decay[0], strict=True)
    ]
    index = mixture_index(age, weights, slowest)
    np.testing.assert_allclose(index[0], np.sum(parts, axis=1), rtol=1e-11)
    content = (weights * -np.expm1(-decay * age[..., None])).sum(axis=-1)
    np.testing.assert_allclose(mixture_content(age, weights, slowest), content, rtol=1e-11)


@pytest.mark.parametrize("spread", [0.5, 3.0, 9.0])
def test_content_has_the_index_of_the_age_at_which_as_much_is_expected(spread):
    age, weights, slowest = mixtures(spread)
    content = mixture_content(age, weights, slowest)
    found = index_of_content(content, weights, slowest)
    exact = mixture_index(age, weights, slowest)
    inside = content < 0.99 * weights.sum(axis=-1)
    assert inside.mean() > 0.2
    np.testing.assert_allclose(found[inside], exact[inside], rtol=1e-6)
    assert (found <= content).all()
    assert (found >= 0.0).all()


@pytest.mark.parametrize("decay", [1e-3, 0.13, 2.0])
def test_known_content_has_the_index_of_theorem_1(decay):
    """Where the mixture is one decay, at the contents of whole ages and above the ceiling."""
    ceiling = 2.0
    content = ceiling * -np.expm1(-decay * np.array([0.0, 1, 2, 5, 9, 40, np.inf]))
    content = np.append(content, 3 * ceiling)[None]
    weights = np.full((1, content.size, 1), ceiling, dtype=np.float32)
    found = index_of_content(content, weights, np.full(content.shape, decay))
    g = decayed(decay)[1]
    # From just below: at a whole age itself, rounding decides how many steps it takes.
    exact = [theorem_1(x * (1 - 1e-12), ceiling, 1.0, decay, g) for x in content[0]]
    assert found[0] == pytest.approx(exact, rel=1e-6, abs=1e-9)
