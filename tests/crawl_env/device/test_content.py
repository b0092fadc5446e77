"""Random content on tensors has the distribution of random content on arrays.

Every comparison has a fixed seed and a level of 1e-4, so that of a hundred correct versions of
these samplers one would fail here.
"""

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

from crawl_env import Arrivals, Sources
from crawl_env.content.world import World
from crawl_env.device import content
from crawl_env.device.content import Content
from crawl_env.device.world import TorchWorld

LEVEL = 1e-4
DRAWS = 5000
# Dense and sparse, slow and so fast that a step is stationary, one that publishes nothing.
FLEET = Sources([8.0, 0.3, 5.0, 60.0, 0.0], [1.0, 3.0, 0.5, 2.0, 1.0], [0.3, 0.05, 9.0, 40.0, 1.0])


def worlds(arrivals, dtype, count):
    device = torch.device("cpu")
    one = World(FLEET, arrivals, DRAWS, count=count)
    return one, TorchWorld(FLEET, arrivals, DRAWS, count, False, device, dtype)


def start(one, other, age):
    rng, generator = np.random.default_rng(1), torch.Generator().manual_seed(2)
    one.start(np.full(one.shape, age), rng)
    ages = torch.full(other.shape, int(age), dtype=torch.int32)
    other.start(ages, torch.arange(DRAWS), generator)
    return rng, generator


def assert_same_law(one, other):
    for source in range(len(FLEET)):
        mine, its = other.value[:, source].double().numpy(), one.value[:, source]
        assert ks_2samp(mine, its).pvalue > LEVEL, source
        assert abs((mine == 0).mean() - (its == 0).mean()) < 4 * np.sqrt(0.5 / DRAWS), source


@pytest.mark.parametrize(
    ("utility", "count", "dtype"),
    [
        ("exponential", False, torch.float32),
        ("exponential", True, torch.float64),
        ("lognormal", False, torch.float64),
        ("gamma", False, torch.float32),
    ],
    ids=str,
)
def test_content_has_the_law_of_the_world_on_arrays(utility, count, dtype):
    arrivals = Arrivals(utility=utility, sampler="items" if count else "total")
    one, other = worlds(arrivals, dtype, count)
    rng, generator = start(one, other, 3.0)
    assert_same_law(one, other)
    for _ in range(2):
        one.advance(rng)
        other.advance(generator)
    assert_same_law(one, other)
    if count:
        assert other.items is not None
        assert one.items is not None
        mean = (FLEET.arrival_rate * 5.0)[None]
        error = 5 * np.sqrt(np.maximum(mean, 1e-9) / DRAWS)
        assert (np.abs(other.items.double().mean(0).numpy() - mean) <= error).all()


def test_sources_never_crawled_are_stationary():
    one, other = worlds(Arrivals(), torch.float64, False)
    start(one, other, 1e9)
    assert_same_law(one, other)


def test_moments_of_a_step_are_those_of_the_compound_poisson_process():
    """E[U] = u and Var[U] = Λ E[ξ²](1 − α²)/(2μ), within 5 standard errors (1e-6 each)."""
    fleet = Sources([6.0, 0.4], [2.0, 5.0], [0.2, 0.6])
    for utility, square in (("exponential", 2.0), ("constant", 1.0)):
        drawn = torch.zeros(60_000, 2, dtype=torch.float64)
        process = Content(fleet, Arrivals(utility=utility), False, drawn.new_ones(()))
        process.step(drawn, None, torch.Generator().manual_seed(0))
        alpha = np.exp(-fleet.decay_rate)
        mean = fleet.arrival_rate * fleet.mean_utility * (1 - alpha) / fleet.decay_rate
        second = square * fleet.mean_utility**2
        variance = fleet.arrival_rate * second * (1 - alpha**2) / (2 * fleet.decay_rate)
        sample = drawn.numpy()
        assert (np.abs(sample.mean(0) - mean) < 5 * np.sqrt(variance / len(sample))).all()
        spread = ((sample - mean) ** 2).std(0) / np.sqrt(len(sample))
        assert (np.abs(sample.var(0) - variance) < 5 * spread).all()


def test_a_time_divided_into_parts_has_the_same_law(monkeypatch):
    fleet = Sources([4.0], [1.0], [0.5])
    samples = []
    for most in (1e8, 1.0):
        monkeypatch.setattr(content, "_MOST_BATCHES", most)
        drawn = torch.zeros(DRAWS, 1, dtype=torch.float64)
        process = Content(fleet, Arrivals(), False, drawn.new_ones(()))
        assert (process._step._parts > 1) == (most == 1.0)
        process.step(drawn, None, torch.Generator().manual_seed(int(most)))
        samples.append(drawn.numpy().ravel())
    assert ks_2samp(*samples).pvalue > LEVEL


def test_items_drawn_in_several_batches_are_all_there(monkeypatch):
    monkeypatch.setattr(content, "_AT_A_TIME", 1000)
    one, other = worlds(Arrivals(utility="lognormal"), torch.float64, False)
    start(one, other, 1.0)
    assert_same_law(one, other)
