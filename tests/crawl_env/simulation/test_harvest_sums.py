"""What the items of a harvest add up to: sums from which ξ̄ and μ can be estimated."""

import numpy as np
import pytest

from crawl_env import CrawlEnv, CrawlVectorEnv, ItemLog, Sources, Trace
from crawl_env.simulation.observation import SUMMED
from tests.crawl_env.env_plain import random_actions

PERIOD = 0.5
FLEET = Sources([3.0, 0.4, 9.0], [2.0, 5.0, 0.3], [0.3, 0.1, 0.6], period=PERIOD)
ALL = ("crawled", "changed", "harvest", "items", *SUMMED)


def columns(observation):
    return dict(zip(ALL, np.moveaxis(observation.astype(float), -1, 0), strict=True))


def test_the_sums_of_a_recorded_harvest_are_those_of_its_items():
    times, utility = np.array([0.1, 0.4, 0.7, 1.2]), np.array([3.0, 0.5, 0.0, 2.0])
    log = ItemLog(FLEET.names, np.array([0, 0, 0, 1]), times, utility, start=0, end=9)
    env = CrawlEnv(
        sources=FLEET,
        budget=2,
        features=ALL,
        start="empty",
        arrivals=Trace(log, random_start=False),
    )
    env.reset(seed=0)
    for _ in range(2):
        env.step(np.array([-1, 0, 1], np.float32))  # nothing of the first source yet
    seen = columns(env.step(np.array([1, 0, -1], np.float32))[0])
    age = 1.0 - times[:2]
    worth = utility[:2] * np.exp(-0.3 * age)
    assert seen["harvest"][0] == pytest.approx(worth.sum())
    assert seen["items"][0] == 3  # the third is worth nothing and has no logarithm
    expected = [2, age.sum(), (age**2).sum(), np.log(worth).sum(), (age * np.log(worth)).sum()]
    assert [seen[name][0] for name in SUMMED] == pytest.approx(expected, rel=1e-6)
    assert seen["changed"].tolist() == [1, 0, 0]
    assert not any(seen[name][1:].any() for name in SUMMED)


@pytest.mark.parametrize(
    "arrivals", ["poisson-items", "poisson-drift-items", "poisson-lomax-items"]
)
def test_sums_are_of_the_sources_crawled_and_agree_with_counts(arrivals):
    vec = CrawlVectorEnv(5, sources=FLEET, budget=1, features=ALL, arrivals=arrivals, horizon=7)
    vec.reset(seed=1)
    changed = []
    for action in random_actions(vec, 20):
        observation, _, _, over, _ = vec.step(action)
        seen = columns(observation)
        assert np.array_equal(seen["harvest_number"], seen["items"])  # none is that old
        assert np.array_equal(seen["changed"], seen["items"] > 0)
        assert (seen["changed"] <= seen["crawled"]).all()
        assert (seen["harvest_age"] > 0).tolist() == (seen["items"] > 0).tolist()
        for name in SUMMED:
            assert not seen[name][seen["items"] == 0].any()
        changed.append(seen["changed"][seen["crawled"] == 1])
        if over.any():
            assert not np.delete(vec.step(action)[0], [], axis=0).any()  # a reset: nothing yet
    assert 0 < np.concatenate(changed).mean() < 1


def test_a_failed_crawl_brings_no_sums():
    fleet = Sources([20.0, 20.0], 1.0, 0.1, failure_rate=[0.5, 0.5])
    env = CrawlEnv(sources=fleet, budget=1, features=(*ALL, "failed"), arrivals="poisson-items")
    env.reset(seed=0)
    failures = 0
    for action in random_actions(env, 30):
        seen = env.step(action)[0]
        failed = seen[:, -1] == 1
        failures += failed.sum()
        assert not seen[failed, :-1].any()
        assert (seen[seen[:, 0] == 1, ALL.index("harvest_number")] > 0).all()
    assert failures > 5


def test_following_items_does_not_change_who_may_see_what():
    """Sums show nothing of sources that were not crawled, and no bound depends on the fleet."""
    spaces = [
        CrawlEnv(sources=fleet, features=ALL, arrivals="poisson-items").observation_space
        for fleet in (FLEET, Sources([1.0, 1.0, 1.0], 9.0, 1.0))
    ]
    assert spaces[0] == spaces[1]


def test_where_there_are_no_single_items_the_sums_are_refused():
    for arrivals in ("deterministic", "poisson"):
        with pytest.raises(ValueError, match=r"harvest_age: single items.*'poisson-items'"):
            CrawlEnv(features=("age", "harvest_age"), arrivals=arrivals)
    with pytest.raises(ValueError, match="'items' and 'changed'"):
        CrawlEnv(features=("changed",), arrivals="poisson-items", start="full")


def test_means_that_arrive_are_a_change():
    env = CrawlEnv(features=("changed",))
    env.reset(seed=0)
    assert env.step(np.array([1, 0, 0, 0], np.float32))[0].ravel().tolist() == [1, 0, 0, 0]
