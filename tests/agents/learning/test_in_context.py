"""Training of the in-context agent: it learns, twice the same, and can be continued."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agents.adaptive.in_context import DECAYS, Network
from agents.learning.in_context import (
    Rows,
    Settings,
    Torch,
    basis_of,
    draw_world,
    finetune,
    joined,
    simulate,
    train,
)
from agents.theory.closed_form import age_index, decayed
from crawl_env import ItemLog, Sources

TINY = Settings(worlds=3, rounds=1, epochs=2, hidden=16)


@pytest.fixture(scope="module")
def trained() -> Network:
    return train(TINY, processes=1, show=lambda line: None)[0]


@pytest.fixture(scope="module")
def unseen() -> Rows:
    rngs = [np.random.default_rng((7, k)) for k in range(2)]
    return joined([simulate(draw_world(rng), None, rng) for rng in rngs])


def deviance(network: Network, rows: Rows) -> float:
    """Return the gamma deviance of a network on rows."""
    module = Torch(len(network.bias))
    module.load(network)
    with torch.no_grad():
        log = module(*map(torch.from_numpy, (rows.inputs, rows.context[rows.group], rows.basis)))[0]
    ratio = np.log(rows.label) - log.numpy()
    return float((np.exp(ratio) - ratio - 1).mean())


def test_a_training_of_seconds_beats_the_prior(trained, unseen):
    prior = Torch(4)
    with torch.no_grad():  # of the same mean for all sources
        level = prior(*map(torch.from_numpy, (unseen.inputs, unseen.context[unseen.group],
                                              unseen.basis)))[0].exp().numpy()  # fmt: skip
    prior.out.bias.data += float(np.log((unseen.label / level).mean()))
    assert deviance(trained, unseen) < 0.7 * deviance(prior.network(0.0), unseen)


def test_the_module_and_its_weights_are_the_same_function(trained, unseen):
    shift = trained.shift(unseen.context)[unseen.group]
    weights = trained._replace(optimism=np.zeros(1, np.float32)).weights(unseen.inputs, shift)
    module = Torch(TINY.hidden)
    module.load(trained)
    with torch.no_grad():
        log = module(*map(torch.from_numpy, (unseen.inputs, unseen.context[unseen.group],
                                             unseen.basis)))[0]  # fmt: skip
    np.testing.assert_allclose((weights * unseen.basis).sum(-1), log.exp(), rtol=2e-3)


def test_equal_seeds_make_equal_rows():
    one, other = (
        simulate(draw_world(rng), None, rng) for rng in map(np.random.default_rng, (5, 5))
    )
    for mine, its in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, its)


def test_the_curves_are_those_of_theorem_1():
    basis = basis_of(np.array([3.0]), np.array([0.2], dtype=np.float32))
    m = np.float32(0.2).astype(float) * DECAYS
    expected = [age_index(3.0, x, decayed(x)[1], 1.0) for x in m]
    np.testing.assert_allclose(basis[0], expected, rtol=1e-5)


def test_a_network_can_be_trained_further_on_ones_own_log(trained):
    fleet = Sources.random(6, 0, "sparse")
    times = np.sort(np.random.default_rng(0).uniform(0, 300, 80))
    log = ItemLog(list(fleet.names), np.arange(80) % 6, published=times, utility=np.ones(80),
                  start=0, end=300)  # fmt: skip
    settings = Settings(worlds=4, rounds=1, epochs=1)
    network, about = finetune(fleet, log, start=trained, settings=settings, processes=1,
                              show=lambda line: None)  # fmt: skip
    assert network.first.shape == trained.first.shape
    assert 0 < np.abs(network.first - trained.first).max() < 1
    np.testing.assert_array_equal(network.mean, trained.mean)
    assert about["settings"]["worlds"] == 4
