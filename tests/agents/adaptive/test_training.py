"""Training of the in-context agent: it learns, twice the same, and can be continued."""

import re

import numpy as np
import pytest
import torch

from agents.adaptive import training
from agents.adaptive.network import DECAYS
from agents.adaptive.training import (
    _EXTREME,
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

TINY = Settings(worlds=10, rounds=1, epochs=8, hidden=16)


def short_world(rng, *own):
    world = draw_world(rng, *own)
    return world._replace(steps=min(world.steps, 150))


@pytest.fixture(scope="module")
def trained():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "draw_world", short_world)
        return train(TINY, processes=1, show=lambda line: None)[0]


@pytest.fixture(scope="module")
def worlds():
    return [rows_of(k) for k in range(4)]


@pytest.fixture(scope="module")
def unseen(worlds):
    return joined(worlds)


def rows_of(world):
    rng = np.random.default_rng((7, world))
    return simulate(short_world(rng), None, rng)


def mean_of(network, rows):
    """Return the mean of the index that a network infers from rows, (K,)."""
    module = Torch(len(network.bias))
    module.load(network)
    given = rows.inputs, rows.context[rows.group], rows.basis
    with torch.no_grad():
        return module(*map(torch.from_numpy, given))[0].exp().numpy()


def deviance(inferred, rows):
    """Return the loss that is minimised."""
    error = np.log(rows.label / inferred)
    beyond = np.maximum(error - _EXTREME, 0.0)
    return float((np.exp(np.minimum(error, _EXTREME)) * (1 + beyond) - error - 1).mean())


def test_a_training_of_seconds_beats_the_prior_and_the_plug_in_index(trained, unseen):
    plug_in = mean_of(Torch(4).network(0.0), unseen)  # what a training starts from
    prior = unseen.basis.mean(axis=1)  # the same for all sources of an age
    prior *= (unseen.label / prior).mean()  # the best factor
    learnt = deviance(mean_of(trained, unseen), unseen)
    assert learnt < 0.9 * min(deviance(plug_in, unseen), deviance(prior, unseen))


def test_the_module_and_its_weights_are_the_same_function(trained, unseen):
    shift = trained.shift(unseen.context)[unseen.group]
    weights = trained._replace(optimism=np.zeros(1, np.float32)).weights(unseen.inputs, shift)
    inferred = mean_of(trained, unseen)
    np.testing.assert_allclose((weights * unseen.basis).sum(-1), inferred, rtol=2e-3)


def test_equal_seeds_make_equal_rows(worlds):
    for mine, its in zip(worlds[0], rows_of(0), strict=True):
        np.testing.assert_array_equal(mine, its)


def test_the_curves_are_those_of_theorem_1():
    basis = basis_of(np.array([3.0]), np.array([0.2], dtype=np.float32))
    m = np.float32(0.2).astype(float) * DECAYS
    expected = [age_index(3.0, x, decayed(x)[1], 1.0) for x in m]
    np.testing.assert_allclose(basis[0], expected, rtol=1e-5)


def test_a_network_can_be_trained_further_on_ones_own_log(trained, monkeypatch):
    monkeypatch.setattr(training, "draw_world", short_world)
    fleet = Sources.random(6, 0, "sparse")
    times = np.sort(np.random.default_rng(0).uniform(0, 300, 80))
    log = ItemLog(list(fleet.names), np.arange(80) % 6, published=times, utility=np.ones(80),
                  start=0, end=300)  # fmt: skip
    settings = Settings(worlds=1, rounds=1, epochs=1)
    network, about = finetune(fleet, log, start=trained, settings=settings, processes=1,
                              show=lambda line: None)  # fmt: skip
    assert network.first.shape == trained.first.shape
    assert 0 < np.abs(network.first - trained.first).max() < 1
    np.testing.assert_array_equal(network.mean, trained.mean)
    assert about["settings"]["worlds"] == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--items", "log.csv"], "--items needs --sources"),
        (["--sources", "fleet.csv"], "--sources needs --out"),
        (["--sources", "fleet.csv", "--out", "mine.safetensors"], "No such file.*fleet.csv"),
        (["--out", "nowhere/mine.safetensors"], "there is no folder nowhere"),
        (["--worlds", "0"], "worlds is 0"),
        (["--without", "ages"], "unknown group of inputs 'ages'"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(arguments, says, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["training", *arguments])
    monkeypatch.setattr(training, "train", None)
    with pytest.raises(SystemExit):
        training.main()
    assert re.search(says, " ".join(capsys.readouterr().err.split()))
