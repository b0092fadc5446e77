"""One network for all sources: what its name says, exact repetition, and that it learns."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.evaluation import compare
from agents.learning.choice import log_probability, perturbed, priority_of, threshold_of
from agents.learning.equivariant import EquivariantPPO, EquivariantPPOSettings, _level
from agents.learning.fleet_network import Columns, FleetNetwork
from crawl_env import CrawlVectorEnv, Sources
from crawl_env.selection import fill

torch.set_num_threads(1)
PARAMETERS = ("arrival_rate", "mean_utility", "decay_rate", "cost")
ALL = ("value", "age", "crawled", "harvest", "items", *PARAMETERS, "available", "failed")
SMALL = EquivariantPPOSettings(hidden=8, window=6)
TABLE1 = {"sources": "table1", "budget": 2, "features": ("value", *PARAMETERS), "horizon": None}


def practice(rows: int = 4, **more: Any) -> CrawlVectorEnv:
    return CrawlVectorEnv(rows, **{**TABLE1, **more})


def fleets(rng: np.random.Generator) -> Sources:
    return Sources.random(5, rng, "sparse")


def stirred(columns: int, seed: int = 0) -> FleetNetwork:
    """A network that is nowhere zero."""
    torch.manual_seed(seed)
    network = FleetNetwork(columns, 8)
    for weight in network.parameters():
        torch.nn.init.normal_(weight)
    return network


def weights(agent: EquivariantPPO) -> np.ndarray:
    return np.concatenate([p.detach().numpy().ravel() for p in agent._played.parameters()])


# ------------------------------------------------------------------------- the network


@given(st.integers(1, 12), st.integers(0, 1000), st.floats(1e-3, 1e6))
@settings(max_examples=40, deadline=None)
def test_exchanged_sources_exchange_scores_and_units_do_not_matter(
    n: int, seed: int, unit: float
) -> None:
    rng = np.random.default_rng(seed)
    shown = np.exp(rng.normal(0, 2, (3, n, len(ALL)))).astype(np.float32)
    columns, network = Columns(ALL, 2.0, 0.5), stirred(len(ALL) + 1, seed)
    score = network(columns(torch.tensor(shown)))
    order = rng.permutation(n)
    moved = network(columns(torch.tensor(shown[:, order])))
    torch.testing.assert_close(moved, score[:, torch.tensor(order)], rtol=1e-3, atol=1e-3)
    rescaled = shown.copy()
    rescaled[..., [ALL.index(name) for name in ("value", "harvest", "mean_utility")]] *= unit
    same = network(columns(torch.tensor(rescaled)))
    torch.testing.assert_close(same, score, rtol=1e-2, atol=1e-2)


def test_columns_of_a_fleet_by_hand() -> None:
    columns = Columns(("decay_rate", "value", "arrival_rate", "mean_utility", "age"), 1.0, 2.0)
    shown = torch.tensor([[0.5, 3.0, 1.0, 3.0, 0.0], [1.0, 0.0, 2.0, 0.5, 4.0]])
    # Λξ̄T is 6 and 2: the scale is 4.
    expected = [
        [np.log(1.0), np.log(0.75 + 0.01), np.log(2.0), np.log(1.5), 0.0, np.log(0.5)],
        [np.log(2.0), np.log(0.01), np.log(4.0), np.log(0.5), np.log(5.0), np.log(0.5)],
    ]
    np.testing.assert_allclose(columns(shown), expected, atol=2e-6)


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e30])
def test_columns_are_finite(value: float) -> None:
    shown = torch.full((2, 3, len(ALL)), value)
    shown[..., ALL.index("cost")] = 1.0
    assert torch.isfinite(Columns(ALL, 1.0, 1.0)(shown)).all()


def test_thresholds_tell_what_was_crawled() -> None:
    drawn = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    active = np.argsort(np.argsort(-drawn)) < 2
    equal = np.full(drawn.shape, 3.0)
    threshold = threshold_of(drawn, active, equal)
    np.testing.assert_array_equal(drawn > threshold, active)
    for i in range(6):  # without source i, the others' second largest
        others = np.sort(np.delete(drawn, i, axis=1), axis=1)
        np.testing.assert_array_equal(threshold[:, i], others[:, -2])
    assert np.isfinite(threshold_of(drawn, np.ones_like(active), equal)).all()


def test_thresholds_at_unequal_costs_are_where_the_crawl_changes_its_mind() -> None:
    rng, budget = np.random.default_rng(1), 4.0
    drawn = rng.normal(size=(40, 7)).astype(np.float32)
    cost = rng.choice([1.0, 1.5, 2.0, 3.0, 5.0], drawn.shape)

    def crawled(score: np.ndarray) -> np.ndarray:
        taken = np.zeros(drawn.size, dtype=bool)
        taken[fill(score, np.zeros_like(score), cost, budget)] = True
        return taken.reshape(drawn.shape)

    active = crawled(drawn)
    threshold = threshold_of(drawn, active, cost * 7 / budget)
    np.testing.assert_array_equal(drawn > threshold, active)
    for i in range(7):
        for step, expected in ((1e-4, cost[:, i] <= budget), (-1e-4, threshold[:, i] < -1e8)):
            moved = drawn.copy()
            moved[:, i] = np.clip(threshold[:, i], -9, 9) + step
            if step < 0:
                expected = np.where(expected, cost[:, i] <= budget, False)
            np.testing.assert_array_equal(crawled(moved)[:, i], expected)


def test_choices_have_the_probabilities_that_are_said() -> None:
    rng, score = np.random.default_rng(0), np.array([0.5, -1.0, 2.0], dtype=np.float32)
    threshold = np.array([1.0, 0.0, 0.5], dtype=np.float32)
    drawn = perturbed(np.broadcast_to(score, (100_000, 3)).copy(), rng) > threshold
    both = [torch.full((3,), crawled) for crawled in (True, False)]
    p, left = (
        log_probability(torch.tensor(score), a, torch.tensor(threshold)).exp().numpy() for a in both
    )
    np.testing.assert_allclose(p + left, 1, atol=1e-6)
    assert (np.abs(drawn.mean(axis=0) - p) < 5 * np.sqrt(p * left / 100_000)).all()


@pytest.mark.parametrize("far", [-1e9, -50.0, 50.0, 1e9])
def test_extreme_scores_have_finite_probabilities_and_derivatives(far: float) -> None:
    score = torch.tensor([far, far], requires_grad=True)
    log_p = log_probability(score, torch.tensor([True, False]), torch.zeros(2))
    log_p.sum().backward()
    assert torch.isfinite(log_p).all()
    assert torch.isfinite(score.grad).all()


def test_what_is_added_is_finite_and_gumbel() -> None:
    class Zero:
        def standard_exponential(self, shape: Any, dtype: Any) -> np.ndarray:
            return np.zeros(shape, dtype)

    nothing: Any = Zero()
    assert np.isfinite(perturbed(np.zeros(3, np.float32), nothing)).all()
    added = perturbed(np.zeros(100_000, np.float32), np.random.default_rng(0))
    # Mean γ and variance π²/6; five standard errors.
    assert abs(added.mean() - np.euler_gamma) < 5 * np.sqrt(np.pi**2 / 6 / 1e5)
    assert abs(added.var() - np.pi**2 / 6) < 0.05


def test_priorities_keep_the_order_of_scores() -> None:
    score = np.sort(np.random.default_rng(0).normal(0, 10, 1000)).astype(np.float32)
    priority = priority_of(score)
    assert (np.diff(priority) >= 0).all()
    assert np.abs(priority).max() < 1


# ------------------------------------------------------------------------- any fleet


@pytest.mark.parametrize("n", [1, 7, 300])
def test_what_was_learnt_plays_fleets_of_any_size(n: int) -> None:
    agent = EquivariantPPO(practice(), SMALL).learn(6)
    env = CrawlVectorEnv(
        2, sources=Sources.random(n, 1), budget=1, features=("age", *PARAMETERS, "value")
    )
    observation, _ = env.reset(seed=0)
    batch, _ = agent.on(env).predict(observation)
    single, _ = agent.on(env).predict(observation[1])
    np.testing.assert_allclose(batch[1], single, atol=1e-6)
    env.step(batch)


def test_several_fleets_drawn_anew_are_learnt_together() -> None:
    envs = [
        practice(3, sources=fleets, budget=1, horizon=4, arrivals="poisson"),
        practice(2, sources=Sources.random(9), budget=3),
        practice(2, sources=Sources([1, 2, 3], 1, 0.2, cost=[1, 2, 3]), budget=3),
    ]
    agent = EquivariantPPO(envs, SMALL, seed=1).learn(30)
    assert np.isfinite(weights(agent)).all()
    assert agent.epochs == 30


def test_rewards_of_a_reset_are_no_part_of_what_is_learnt() -> None:
    agent = EquivariantPPO(practice(3, horizon=4), SMALL)
    window = agent._collect(agent.practices[0])
    assert window.valid[:, 0].tolist() == [1, 1, 1, 1, 0, 1]
    level = _level(np.arange(12.0).reshape(6, 2), np.array([[1, 1, 1, 1, 0, 1], [1] * 6]).T > 0)
    assert level.T.tolist() == [[6, 6, 6, 6, 10, 10], [11] * 6]
    advantage, _ = agent._advantages(window)
    assert (advantage[4] == 0).all()


def test_the_price_of_a_crawl_is_what_chance_crawls_brought_and_counts_later_costs() -> None:
    agent = EquivariantPPO(practice(3), replace(SMALL, few=0.0))
    window = agent._collect(agent.practices[0])
    p = log_probability(
        torch.zeros(6, 3, 4), torch.ones(6, 3, 4, dtype=torch.bool), window.threshold
    ).exp()
    chance = window.active.float() - p
    torch.manual_seed(0)
    own, noise = torch.randn(2, 6, 3, 4)
    cost = chance + noise - _on(noise, chance)  # a crawl costs 1, and something later
    own = own - _on(own, chance)  # of no price
    price = torch.tensor([0.3, 0.6, 0.9])[:, None]
    worth = agent._worth(window, torch.stack((price * cost + own, cost), dim=-1))
    torch.testing.assert_close(worth, own / own.std(), rtol=1e-3, atol=1e-3)


def _on(x: torch.Tensor, chance: torch.Tensor) -> torch.Tensor:
    """Return the part of each row's x that chance explains."""
    return (x * chance).sum((0, 2), keepdim=True) / (chance**2).sum((0, 2), keepdim=True) * chance


def test_costs_are_in_units_of_what_an_epoch_pays_for_each_source() -> None:
    env = practice(2, sources=Sources([1, 2, 3], 1, 0.2, cost=[1, 2, 3]), budget=3)
    agent = EquivariantPPO(env, SMALL)
    window = agent._collect(agent.practices[0])
    expected = window.active * torch.tensor([1.0, 2.0, 3.0])
    torch.testing.assert_close(window.brought[..., 1], expected)


def test_columns_are_standardised_by_what_was_seen_first() -> None:
    agent = EquivariantPPO(practice(), SMALL).learn(6)
    for network in (agent._policy, agent._critic, agent._played):
        torch.testing.assert_close(network.mean, agent._played.mean)
        assert network.mean.abs().max() > 0.1
        assert network.spread.min() >= np.float32(0.2)
    mean = agent._played.mean.clone()
    agent.learn(12)
    torch.testing.assert_close(agent._played.mean, mean)


def test_without_parameters_among_the_features_sources_are_known_by_what_they_show_alone() -> None:
    features = {"features": ("age", "crawled"), "arrivals": "poisson", "observed": False}
    one, two = (
        practice(3, sources=sources, **features)
        for sources in ("table1", Sources([9.0, 7.0, 5.0, 3.0], 2.0, 0.1))
    )
    agent = EquivariantPPO(one, SMALL).learn(12)
    observation, _ = one.reset(seed=0)
    np.testing.assert_array_equal(
        agent.on(one).predict(observation)[0], agent.on(two).predict(observation)[0]
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"action": "subset"}, "action='priority'"),
        ({"budget_rule": "average"}, "budget_rule='epoch'"),
        ({"autoreset_mode": "SameStep"}, "NEXT_STEP"),
    ],
)
def test_what_cannot_be_learnt_in_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        EquivariantPPO(practice(**arguments))


def test_other_features_are_refused() -> None:
    agent = EquivariantPPO(practice(), SMALL)
    with pytest.raises(ValueError, match="does not show decay_rate, cost"):
        agent.on(practice(features=("value", "arrival_rate", "mean_utility")))
    with pytest.raises(ValueError, match="2 sets of features"):
        EquivariantPPO([practice(), practice(features=("age",))])
    with pytest.raises(ValueError, match="shape"):
        agent.predict(np.zeros((4, 2)))


# ------------------------------------------------------------------------- repetition


def test_the_same_seed_is_the_same_run_and_leaves_torch_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, two, other = (
        weights(EquivariantPPO(practice(arrivals="poisson"), SMALL, seed=s).learn(24))
        for s in (3, 3, 4)
    )
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("sources", ["table1", fleets], ids=["constant", "drawn anew"])
def test_learning_goes_on_from_a_checkpoint_as_if_never_stopped(
    sources: Any, tmp_path: Path
) -> None:
    arguments = {"sources": sources, "horizon": 9, "arrivals": "poisson"}
    whole = EquivariantPPO([practice(**arguments), practice(2, **arguments)], SMALL).learn(36)
    file = tmp_path / "agent.safetensors"
    for until in (18, 36):
        part = EquivariantPPO([practice(**arguments), practice(2, **arguments)], SMALL)
        part.learn(until, checkpoint=file)
    np.testing.assert_array_equal(weights(part), weights(whole))
    loaded = EquivariantPPO.load(file, practice(**arguments))
    np.testing.assert_array_equal(weights(loaded), weights(whole))
    assert loaded.epochs == 36
    loaded.learn(42)


def test_ctrl_c_keeps_what_was_learnt(tmp_path: Path) -> None:
    file = tmp_path / "agent.safetensors"
    agent = EquivariantPPO(practice(), SMALL)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(
            10**9,
            checkpoint=file,
            progress=lambda epochs, _: os.kill(os.getpid(), signal.SIGINT) if epochs > 12 else None,
        )
    np.testing.assert_array_equal(weights(EquivariantPPO.load(file, practice())), weights(agent))


def test_chance_in_play_is_not_the_same_in_every_epoch() -> None:
    env = practice()
    agent, observation = EquivariantPPO(env, SMALL), env.reset(seed=0)[0]
    one, two = (agent.predict(observation, deterministic=False)[0] for _ in range(2))
    assert not np.array_equal(one, two)


# ------------------------------------------------------------------------- learning


def test_it_learns_table_1() -> None:
    agent = EquivariantPPO(practice(64, start="random"), seed=1).learn(1120)
    runs = compare(
        {"whittle": "whittle", "random": "random", "learnt": agent.on},
        TABLE1,
        epochs=280,
        warmup=70,
        seeds=8,
    )
    reward = {name: run.reward.mean() for name, run in runs.items()}
    score = (reward["learnt"] - reward["random"]) / (reward["whittle"] - reward["random"])
    assert 0.9 < score < 1.001


def test_a_checkpoint_of_another_crawl_is_refused(tmp_path: Path) -> None:
    def env(**other: Any) -> CrawlVectorEnv:
        arguments = {"budget": 2, "features": ("age", "decay_rate"), "horizon": None, **other}
        return CrawlVectorEnv(4, **arguments)

    file = tmp_path / "agent"
    EquivariantPPO(env()).learn(32, checkpoint=file)
    EquivariantPPO(env()).learn(64, checkpoint=file)
    for other in ({"budget": 1}, {"arrivals": "poisson"}, {"sources": "recovering-4"}):
        with pytest.raises(ValueError, match="this crawl has"):
            EquivariantPPO(env(**other)).learn(96, checkpoint=file)
    with pytest.raises(ValueError, match="practises in 2 environments, the saved one in 1"):
        EquivariantPPO([env(), env()]).learn(96, checkpoint=file)
