"""The indices against `agents.theory`, and the ages at which they reach a level."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import index_at_age, myopic_index
from agents.scheduling import FleetScheduler, age_index
from agents.scheduling.age_index import NEVER, parameters_of
from agents.scheduling.scheduler import POLICIES
from agents.theory.frequencies import static_frequencies
from crawl_env import Sources
from crawl_env.fleet.columns import FleetColumns
from tests.references import plainly

DECAYS = [1e-300, 1e-15, 1e-9, 1e-4, 0.05, 0.1, 0.7, 2.0, 9.0, 800.0]


def fleet(failure_rate=0.0):
    """Sources of every decay, of which the last publishes nothing."""
    n = len(DECAYS)
    return Sources(
        np.where(np.arange(n + 1) < n, np.append(DECAYS, 1.0), 0.0),  # ceilings of 1
        1.0,
        np.append(DECAYS, 1.0),
        cost=np.linspace(0.5, 3.0, n + 1),
        crawl_delay=np.arange(n + 1) % 3,
        failure_rate=failure_rate,
    )


def indices(sources, policy, age):
    parameters = parameters_of(sources, POLICIES[policy])
    values = []
    for i in range(len(sources)):
        scale, decay = age_index.scale_of(parameters, i), age_index.decay_of(parameters, i)
        values.append(age_index.index_at(parameters, i, scale, decay, age))
    return np.array(values)


@pytest.mark.parametrize("failure_rate", [0.0, 0.3])
@pytest.mark.parametrize("age", [1, 2, 3, 10, 45, 1000, 10**6, NEVER])
def test_whittle_is_the_index_of_theory(age, failure_rate):
    sources = fleet(failure_rate)
    expected = index_at_age(np.inf if age == NEVER else age, sources)
    np.testing.assert_allclose(indices(sources, "whittle", age), expected, rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("failure_rate", [0.0, 0.3])
@pytest.mark.parametrize("age", [1, 7, 10**6, NEVER])
def test_myopic_is_the_index_of_theory(age, failure_rate):
    sources = fleet(failure_rate)
    content = sources.content_at(np.inf if age == NEVER else age)
    expected = myopic_index(content, sources)
    np.testing.assert_allclose(indices(sources, "myopic", age), expected, rtol=1e-12)


@plainly
@given(
    policy=st.sampled_from(sorted(POLICIES)),
    m=st.floats(-300, 2.5).map(lambda power: 10**power),
    fraction=st.floats(-12, 0.2).map(lambda power: 10**power),
    failure_rate=st.sampled_from([0.0, 0.0, 0.3, 0.95]),
    delay=st.integers(1, 5),
)
def test_an_age_that_reaches_a_level_is_the_first(policy, m, fraction, failure_rate, delay):
    sources = Sources([m], 1.0, [m], 2.0, crawl_delay=delay, failure_rate=failure_rate)
    parameters = parameters_of(sources, POLICIES[policy])
    scale, decay = age_index.scale_of(parameters, 0), age_index.decay_of(parameters, 0)

    def index(age):
        return age_index.index_at(parameters, 0, scale, decay, age)

    level = fraction * (1.0 - failure_rate) * scale
    k = age_index.age_reaching(parameters, 0, scale, decay, level)
    if level > (1.0 - failure_rate) * scale and policy in ("whittle", "myopic"):
        assert k > NEVER
    elif level > 0:
        assert 1 <= k <= NEVER
        assert k == 1 or index(k - 1) < level
        assert k == NEVER or index(k + 1 + k // 10**6) >= level * (1 - 1e-7)


@pytest.mark.parametrize("budget", [20.0, 27.0])
def test_static_has_the_best_constant_frequencies(budget):
    """A budget of 2/3 · 40 crawls binds no more: then all sources are crawled once they may be."""
    columns = FleetColumns(
        np.linspace(0.1, 3.0, 40), 1.0, np.geomspace(1e-3, 2.0, 40), cost=2.0, delay=3
    )
    frequency = static_frequencies(columns.to_sources(), budget)
    parameters = FleetScheduler(columns, budget, "static")._parameters
    scale = [age_index.scale_of(parameters, i) for i in range(len(columns))]
    assert 0.0 < min(scale) <= max(scale) == 1 / 3
    assert (min(scale) == 1 / 3) == (parameters.multiplier == 0.0) == (budget == 27.0)
    np.testing.assert_allclose(scale, frequency, rtol=1e-6)
