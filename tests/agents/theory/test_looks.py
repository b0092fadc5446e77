"""The bound with looks: its limits, value iteration over drawn content, and coarser grids."""

from functools import cache

import numpy as np
import pytest

from agents.theory import looks
from agents.theory.looks import looks_relaxation
from agents.theory.relaxation import relaxation
from agents.theory.shot_noise import one_item
from agents.theory.task_bound import task_bound
from crawl_env import CrawlVectorEnv, Sources, Task
from crawl_env.content.utility import EqualUtilities, Exponential

ITEM = one_item(Exponential())
FLEETS = {"fleet-f": Sources.preset("fleet-f"), "sparse": Sources.random(8, 1, "sparse")}


@pytest.mark.parametrize("name", FLEETS)
def test_looks_for_nothing_and_looks_that_never_pay(name):
    fleet, budget = FLEETS[name], {"fleet-f": 2.0, "sparse": 0.16}[name]
    bounds = [
        looks_relaxation(fleet, budget, np.full(len(fleet), c), Exponential()).bound
        for c in (0.0, 0.1, 5.0)
    ]
    assert (np.diff(bounds) < 0.0).all()
    seen = task_bound(Task(fleet, budget, arrivals="poisson", budget_rule="average")).bound
    assert seen < bounds[0] < 1.002 * seen
    assert bounds[-1] == pytest.approx(relaxation(fleet, budget).bound, rel=1e-9)


RATE, DECAY, STEPS = 0.3, 0.2, np.arange(1.0, 16.0)
LATTICE = 0.025 * np.arange(1200.0)


@cache
def _transforms():
    """Return the transforms of the distributions of what is left of the items of the last 1, 2, …
    steps, (15, …), on the lattice, from draws scaled to the exact mean."""
    draws, width = 60_000, LATTICE[1]
    source = Sources(RATE, 1.0, DECAY)
    task = {"arrivals": "poisson", "observed": True, "budget_rule": "average"}
    env = CrawlVectorEnv(draws, source, budget=1e-9, start="empty", **task)
    env.reset(seed=3)
    masses = []
    for mean in source.content_at(STEPS[:, None]):
        content = env.step(np.full((draws, 1), -1.0))[0][:, 0, 0].astype(float)
        place = np.minimum(content * mean / content.mean() / width, LATTICE.size - 2.0)
        left, upper = place.astype(int), place % 1.0
        counts = np.bincount(left, 1.0 - upper, LATTICE.size)
        masses.append((counts + np.bincount(left + 1, upper, LATTICE.size)) / draws)
    return np.fft.rfft(masses, 2 * LATTICE.size).conj()


@pytest.mark.filterwarnings("ignore:budget is")
@pytest.mark.parametrize(("crawl", "look"), [(0.5, 0.05), (1.0, 0.02), (2.0, 0.1)])
def test_the_net_reward_is_that_of_value_iteration_over_drawn_content(crawl, look):
    found = looks._solve(looks._arm(RATE, DECAY, ITEM), crawl, look, None)
    assert found.looks > 0.02
    ceiling, waits, n = RATE / DECAY, np.arange(80.0)[:, None], LATTICE.size
    content = ceiling + (LATTICE - ceiling) * np.exp(-DECAY * waits)
    transforms, kept = _transforms(), np.exp(-DECAY * STEPS)

    def excess(gain):
        """Return the value of an empty source, which is 0 if `gain` is the net reward per step."""
        crawled = (content - crawl - gain * waits).max(axis=0)
        value, before = crawled, np.inf
        while abs(value[0] - before) > 1e-5:
            above = value[-1] + LATTICE[1] * np.arange(1.0, n + 1.0)
            both = np.fft.rfft(np.append(value, above))
            mean = np.fft.irfft(both * transforms, 2 * n)[:, :n]
            then = [np.interp(k * LATTICE, LATTICE, one) for k, one in zip(kept, mean, strict=True)]
            before = value[0]
            seen = np.array(then) - gain * STEPS[:, None]
            value = np.maximum(crawled, seen.max(axis=0) - look)
        return float(value[0])

    assert excess(0.98 * found.gain) > 0.0 > excess(1.02 * found.gain)


def test_every_grid_gives_a_bound(monkeypatch):
    fleet, bounds = FLEETS["sparse"], []
    for states, lattice, singly, growth in (
        (96, 1024, 48, 1 / 16),
        (64, 1024, 32, 1 / 8),
        (12, 64, 3, 1.0),
    ):
        for name, value in (
            ("STATES", states),
            ("LATTICE", lattice),
            ("SINGLY", singly),
            ("GROWTH", growth),
        ):
            monkeypatch.setattr(looks, f"_{name}", value)
        bounds.append(looks_relaxation(fleet, 0.27, np.full(8, 0.1), Exponential()).bound)
    assert bounds[0] < bounds[1] < 1.002 * bounds[0]
    assert 1.01 * bounds[0] < bounds[2]


@pytest.mark.filterwarnings("ignore:budget is")
def test_the_bound_of_a_task_with_looks():
    """Of a batch of fleets; where some sources are observed, or too dear; and with something else,
    where it is the bound if all content is observed."""
    fleet = FLEETS["sparse"].replaced(cost=np.r_[np.ones(7), 3.0])
    asked = {"sources": fleet, "budget": 1, "look_cost": 0.1}
    bound, multiplier, name = task_bound(Task(**asked))
    assert name == "looks"
    assert multiplier > 0.0
    both = task_bound(Task(**asked), Sources.stack([fleet, fleet]))
    assert both.bound == pytest.approx([bound, bound], rel=1e-12)
    assert task_bound(Task(**{**asked, "budget_rule": "average"})).bound > bound
    some = task_bound(Task(**asked, observed=[True] * 3 + [False] * 5)).bound
    seen = {"sources": fleet, "budget": 1, "arrivals": "poisson"}
    assert bound < some < task_bound(Task(**seen)).bound
    for more in ({"unchanged_cost": 0.1}, {"payoff": {"name": "deadline", "steps": 4}}):
        assert task_bound(Task(**asked, **more)) == task_bound(Task(**seen))


def test_nothing_more_is_collected_than_is_published():
    slow = Sources([0.07, 200.0], [30.0, 0.02], [3e-6, 0.04])
    bound = looks_relaxation(slow, 1, np.full(2, 0.5), Exponential())
    assert bound.bound == pytest.approx(slow.inflow.sum(), rel=1e-12)


def test_sources_in_which_nothing_pays():
    silent = Sources(np.zeros(2), 1.0, 0.1)
    assert looks_relaxation(silent, 1, np.full(2, 0.1), Exponential()) == (0.0, 0.0)
    # The second one is worth a ten-thousandth of the first.
    pair = Sources(np.full(2, 0.01), np.array([1.0, 1e-4]), 0.1)
    alone = looks_relaxation(pair.select([0]), 0.01, np.array([0.1]), EqualUtilities())
    assert looks_relaxation(pair, 0.01, np.full(2, 0.1), EqualUtilities()).bound == pytest.approx(
        alone.bound, rel=1e-4
    )
    ample = looks_relaxation(pair, 5, np.full(2, 0.1), EqualUtilities())
    assert ample == (pytest.approx(pair.inflow.sum()), 0.0)  # all that is published
    with pytest.raises(ValueError, match="budget"):
        looks_relaxation(pair, 0, np.full(2, 0.1), Exponential())
