"""The Whittle index of finite chains."""

import numpy as np
import pytest

from agents import index_at_age
from agents.theory.chain import chain_index
from crawl_env import Sources
from tests.agents.learning.chains import (
    CIRCULANT,
    CIRCULANT_INDEX,
    RESTART,
    RESTART_INDEX,
    index_by_bisection,
)


@pytest.mark.parametrize(
    ("chain", "index"), [(CIRCULANT, CIRCULANT_INDEX), (RESTART, RESTART_INDEX)]
)
def test_the_published_indices(chain, index):
    law, reward = np.stack(chain[:2], axis=1)[None], np.asarray(chain[2])[None]
    found = chain_index(law, reward, np.ones(1), discount=1 - 1e-7)
    np.testing.assert_allclose(found[0], index, atol=2e-5)
    np.testing.assert_allclose(chain_index(law, reward, np.full(1, 4.0), 1 - 1e-7), found / 4)
    for discount in (0.5, 0.9):
        by_bisection = index_by_bisection(*chain, discount=discount)
        found = chain_index(law, reward, np.ones(1), discount)
        np.testing.assert_allclose(found[0], by_bisection, atol=1e-5)


def test_the_index_of_sources_by_age_is_theorem_1():
    fleet, s = Sources.preset("table1"), 64
    ages = np.arange(1, s + 1)
    law = np.zeros((len(fleet), s, 2, s))
    law[:, np.arange(s), 0, np.minimum(ages, s - 1)] = law[:, :, 1, 0] = 1.0
    reward = np.zeros((len(fleet), s, 2))
    reward[..., 1] = fleet.content_at(ages[:, None]).T
    found = chain_index(law, reward, fleet.cost, discount=1 - 1e-6)
    exact = index_at_age(ages[:, None], fleet).T
    np.testing.assert_allclose(found[:, :-1], exact[:, :-1], rtol=1e-3)
