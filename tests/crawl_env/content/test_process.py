"""Blocks cover all cells in order with the right parameters; means without loss of digits."""

import math

import numpy as np
import pytest

from crawl_env import ArrivalProcess, Arrivals, CrawlEnv, Sources
from crawl_env.content import process as module
from crawl_env.content.process import Block, Cells, blocks_of

LAYOUTS = {
    # environments, sources, one fleet each, block, blocks wanted, different ones
    "several environments in a block": (5, 3, False, 7, [6, 6, 3], 2),
    "environments fill blocks exactly": (4, 3, False, 6, [6, 6], 1),
    "an environment is a block": (3, 7, False, 7, [7, 7, 7], 1),
    "larger than a block": (2, 17, False, 7, [6, 6, 5] * 2, 3),
    "blocks exactly": (3, 14, False, 7, [7] * 6, 2),
    "fewer environments than would fit": (2, 3, False, 100, [6], 1),
    "a fleet each, smaller than a block": (2, 3, True, 7, [6], 1),
    "a fleet each, across blocks": (5, 3, True, 7, [5, 5, 5], 3),
    "a fleet each, larger than a block": (2, 17, True, 7, [7, 7, 7, 7, 6], 5),
    "blocks of one cell": (2, 2, False, 1, [1] * 4, 2),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_cover_all_cells_in_order(layout, monkeypatch):
    num_envs, n, own, block, sizes, different = LAYOUTS[layout]
    monkeypatch.setattr(module, "BLOCK", block)
    fleet = Sources.random(n, seed=1, regime="dense")
    if own:
        fleet = Sources.stack([Sources.random(n, seed=b) for b in range(num_envs)])
    blocks = list(blocks_of(fleet, num_envs))
    assert [here.stop - here.start for here, _ in blocks] == sizes
    assert [here.start for here, _ in blocks] == np.cumsum([0, *sizes[:-1]]).tolist()
    assert len({id(cells) for _, cells in blocks}) == different
    for name, parameter in (
        ("items", fleet.arrival_rate * fleet.period),
        ("mean_utility", fleet.mean_utility),
        ("decay", fleet.decay_rate * fleet.period),
    ):
        flat = np.concatenate([getattr(cells, name) for _, cells in blocks])
        assert np.array_equal(flat, np.broadcast_to(parameter, (num_envs, n)).ravel()), name
    assert blocks[0][1].capacity is None


@pytest.mark.parametrize("decay", [1e-300, 1e-17, 1e-9, 0.3, 30.0, 700.0])
def test_mean_content_keeps_its_digits_at_any_decay(decay):
    cells = Cells(np.array([3.0]), np.array([2.0]), np.array([decay]))
    for steps in (0.0, 1.0, 5.0):
        z = decay * steps
        expected = 6.0 * (steps if z < 1e-16 else -math.expm1(-z) / decay)
        assert cells.mean_content(steps) == pytest.approx([expected], rel=1e-14)
    assert cells.mean_content(np.inf) == pytest.approx([6.0 / decay], rel=1e-14)
    assert cells.retention == pytest.approx([math.exp(-decay)], rel=1e-14)


class Own(ArrivalProcess):
    """A process whose blocks add their mean in place, or do not."""

    def __init__(self, block_in_place, past_in_place):
        self._in_place = {"block": block_in_place, "past": past_in_place}

    def block(self, cells, state):
        return OwnContent(cells, 1.0, self._in_place["block"])

    def past(self, cells, steps):
        return OwnContent(cells, steps, self._in_place["past"])


class OwnContent(Block):
    def __init__(self, cells, steps, in_place):
        super().__init__(cells)
        self._mean, self._in_place = cells.mean_content(steps), in_place

    def add(self, value, count, rng):
        if self._in_place:
            value += self._mean
        else:
            value = value + self._mean


@pytest.mark.parametrize("forgets", ["block", "past"])
def test_arrivals_that_are_not_added_in_place_are_warned_of(forgets):
    """Without a warning every reward is 0 (or the first one), and nobody knows why."""
    arrivals = Own(forgets != "block", forgets != "past")
    with pytest.warns(UserWarning, match=rf"Own\.{forgets} .* in place, as value \+= … does"):
        env = CrawlEnv(arrivals=arrivals)
    env.reset(seed=0)
    rewards = [env.step(np.zeros(4, np.float32))[1] for _ in range(6)]
    assert (rewards[0] == 0) == (forgets == "past")
    assert (rewards[-1] == 0) == (forgets == "block")


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("method", ["block", "past"])
def test_impossible_content_is_refused(method, wrong):
    class Faulty(Own):
        pass

    class FaultyContent(Block):
        def add(self, value, count, rng):
            value += wrong

    setattr(Faulty, method, lambda self, cells, _: FaultyContent(cells))
    with pytest.raises(
        ValueError, match=rf"source 0: what Faulty\.{method} returns .* is {wrong:g};"
    ):
        CrawlEnv(arrivals=Faulty(True, True))


class Sparse(Arrivals):
    """Poisson arrivals, of a class of one's own."""


def test_arrivals_that_are_only_sparse_are_not_warned_of():
    CrawlEnv(arrivals=Own(True, True))
    for rate in (1e-4, 0.1, 300.0):
        CrawlEnv(sources=Sources([rate, 0.0], 1.0, 0.5), arrivals=Sparse())
    CrawlEnv(sources=Sources([1.0, 1.0], 0.0, 0.5), arrivals=Sparse())  # nothing to collect
    CrawlEnv(
        sources=Sources([1.0], 1.0, 0.5, capacity=2), arrivals=Sparse(sampler="items"), budget=1
    )


class Bursts(Own):
    def block(self, cells, state):
        return Burst(cells, 1.0, in_place=True)


class Burst(OwnContent):
    def add(self, value, count, rng):
        if rng.random() < 0.1:
            super().add(value, count, rng)


def test_arrivals_in_rare_bursts_are_not_warned_of():
    CrawlEnv(arrivals=Bursts(True, True))
