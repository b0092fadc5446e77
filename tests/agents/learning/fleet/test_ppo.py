"""One network for all sources: what its name says, exact repetition, and that it learns."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.evaluation.rollout import compare
from agents.learning.fleet.base import gumbel_perturbed
from agents.learning.fleet.networks import FleetNetwork, ScaledColumns
from agents.learning.fleet.ppo import (
    EquivariantPPO,
    EquivariantPPOSettings,
    log_probability,
    reward_scale,
    thresholds_of,
)
from crawl_env import CrawlVectorEnv, Sources
from crawl_env.simulation.observation import FEATURES
from crawl_env.simulation.selection import select

torch.set_num_threads(1)
PARAMETERS = ("arrival_rate", "mean_utility", "decay_rate", "cost")
ALL = ("value", "age", "crawled", "harvest", "items", *PARAMETERS, "available", "failed")
SMALL = EquivariantPPOSettings(hidden=8, n_steps=6)
TABLE1 = {"sources": "table1", "budget": 2, "features": ("value", *PARAMETERS), "horizon": None}


def practice(rows=4, **more):
    return CrawlVectorEnv(rows, **{**TABLE1, **more})


def stirred(columns, seed=0):
    """A network that is nowhere zero."""
    torch.manual_seed(seed)
    network = FleetNetwork(columns, 8)
    for weight in network.parameters():
        torch.nn.init.normal_(weight)
    return network


@given(st.integers(1, 12), st.integers(0, 1000), st.floats(1e-3, 1e6))
@settings(max_examples=40)
def test_exchanged_sources_exchange_scores_and_units_do_not_matter(n, seed, unit):
    rng = np.random.default_rng(seed)
    shown = np.exp(rng.normal(0, 2, (3, n, len(ALL)))).astype(np.float32)
    columns, network = ScaledColumns(ALL, 2.0, 0.5), stirred(len(ALL) + 1, seed)
    score = network(columns(torch.tensor(shown)))
    order = rng.permutation(n)
    moved = network(columns(torch.tensor(shown[:, order])))
    torch.testing.assert_close(moved, score[:, torch.tensor(order)], rtol=1e-3, atol=1e-3)
    rescaled = shown.copy()
    rescaled[..., [ALL.index(name) for name in ("value", "harvest", "mean_utility")]] *= unit
    same = network(columns(torch.tensor(rescaled)))
    torch.testing.assert_close(same, score, rtol=1e-2, atol=1e-2)


def test_columns_of_a_fleet_by_hand():
    columns = ScaledColumns(
        ("decay_rate", "value", "arrival_rate", "mean_utility", "age"), 1.0, 2.0
    )
    shown = torch.tensor([[0.5, 3.0, 1.0, 3.0, 0.0], [1.0, 0.0, 2.0, 0.5, 4.0]])
    # Λξ̄T is 6 and 2: the scale is 4.
    expected = [
        [np.log(1.0), np.log(0.75 + 0.01), np.log(2.0), np.log(1.5), 0.0, np.log(0.5)],
        [np.log(2.0), np.log(0.01), np.log(4.0), np.log(0.5), np.log(5.0), np.log(0.5)],
    ]
    np.testing.assert_allclose(columns(shown), expected, atol=2e-6)


@pytest.mark.parametrize(
    "features", [ALL, ("age",), ("value", "mean_utility", "age"), ("value", "cost")]
)
def test_columns_that_are_kept_are_those_that_would_be_computed(features):
    """A batch after the same fleet, after others, after one of another shape, and changed in place
    by its owner."""
    kept, rng = ScaledColumns(features, 2.0, 0.5), np.random.default_rng(0)
    shown = rng.uniform(0.5, 2.0, (2, 3, len(features))).astype(np.float32)
    for changed in (("age", "value"), ("cost", "mean_utility"), features, ()):
        for rows in (slice(None), slice(1)):
            for name in {*changed} & {*features}:
                column = shown[..., features.index(name)]
                column += rng.uniform(0, 1, column.shape).astype(np.float32)
            batch = torch.from_numpy(shown[rows])
            assert torch.equal(kept(batch), ScaledColumns(features, 2.0, 0.5)(batch))
            assert torch.equal(kept(batch), kept(batch.clone()))


def test_columns_of_every_feature_are_finite():
    names = tuple(FEATURES)
    for value in (0.0, 1e-30, 1e30):
        shown = torch.full((2, 3, len(names)), value)
        shown[..., names.index("cost")] = 1.0
        for log in ("harvest_log", "harvest_age_log"):
            shown[..., names.index(log)] = -value
        assert torch.isfinite(ScaledColumns(names, 1.0, 0.5)(shown)).all()


def test_columns_of_sums_over_items_by_hand():
    names = ("harvest_number", "harvest_age_squared", "harvest_age_log", "topic", "age")
    shown = torch.tensor([[2.0, 8.0, -6.0, 5.0, 1.0]])
    columns = ScaledColumns(names, 1.0, 2.0)
    assert columns.features == (*names[:3], "age")  # topics are labels
    expected = [[np.log(3.0), np.log(3.0), -np.log(4.0), np.log(2.0), 0.0]]
    np.testing.assert_allclose(columns(shown), expected, atol=1e-6)


def test_scores_in_inference_mode_are_those_of_training_but_for_rounding():
    network, columns = stirred(6), torch.randn(3, 50, 6, generator=torch.Generator().manual_seed(0))
    trained = network(columns).detach()
    with torch.inference_mode():
        torch.testing.assert_close(network(columns), trained, rtol=1e-5, atol=1e-5)


def test_thresholds_tell_what_was_crawled():
    drawn = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    active = np.argsort(np.argsort(-drawn)) < 2
    equal = torch.full(drawn.shape, 3.0)
    threshold = thresholds_of(torch.tensor(drawn), torch.tensor(active), equal).numpy()
    np.testing.assert_array_equal(drawn > threshold, active)
    for i in range(6):  # without source i, the others' second largest
        others = np.sort(np.delete(drawn, i, axis=1), axis=1)
        np.testing.assert_array_equal(threshold[:, i], others[:, -2])
    everywhere = torch.ones(drawn.shape, dtype=torch.bool)
    assert torch.isfinite(thresholds_of(torch.tensor(drawn), everywhere, equal)).all()


def test_thresholds_at_unequal_costs_are_where_the_crawl_changes_its_mind():
    rng, budget = np.random.default_rng(1), 4.0
    drawn = rng.normal(size=(40, 7)).astype(np.float32)
    cost = rng.choice([1.0, 1.5, 2.0, 3.0, 5.0], drawn.shape)

    def crawled(score):
        taken = np.zeros(drawn.size, dtype=bool)
        taken[select(score, np.zeros_like(score), cost, budget)] = True
        return taken.reshape(drawn.shape)

    active = crawled(drawn)
    tensors = (torch.tensor(part) for part in (drawn, active, cost * 7 / budget))
    threshold = thresholds_of(*tensors).numpy()
    np.testing.assert_array_equal(drawn > threshold, active)
    for i in range(7):
        for step, expected in ((1e-4, cost[:, i] <= budget), (-1e-4, threshold[:, i] < -1e8)):
            moved = drawn.copy()
            moved[:, i] = np.clip(threshold[:, i], -9, 9) + step
            if step < 0:
                expected = np.where(expected, cost[:, i] <= budget, False)
            np.testing.assert_array_equal(crawled(moved)[:, i], expected)


def test_choices_have_the_probabilities_that_are_said():
    score, threshold = torch.tensor([0.5, -1.0, 2.0]), torch.tensor([1.0, 0.0, 0.5])
    generator = torch.Generator().manual_seed(0)
    drawn = gumbel_perturbed(score.expand(100_000, 3), generator) > threshold
    both = [torch.full((3,), crawled) for crawled in (True, False)]
    p, left = (log_probability(score, a, threshold).exp().numpy() for a in both)
    np.testing.assert_allclose(p + left, 1, atol=1e-6)
    frequency = drawn.double().mean(0).numpy()
    assert (np.abs(frequency - p) < 5 * np.sqrt(p * left / 100_000)).all()


def test_extreme_scores_have_finite_probabilities_and_derivatives():
    for far in (-1e9, -50.0, 50.0, 1e9):
        score = torch.tensor([far, far], requires_grad=True)
        log_p = log_probability(score, torch.tensor([True, False]), torch.zeros(2))
        log_p.sum().backward()
        assert torch.isfinite(log_p).all()
        assert torch.isfinite(score.grad).all()


def test_what_is_added_is_finite_and_gumbel(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    added = gumbel_perturbed(torch.zeros(100_000), generator)
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "exponential_", lambda self, generator: self.zero_())
        assert torch.isfinite(gumbel_perturbed(torch.zeros(3), generator)).all()
    # Mean γ and variance π²/6; five standard errors.
    assert abs(added.mean() - np.euler_gamma) < 5 * np.sqrt(np.pi**2 / 6 / 1e5)
    assert abs(added.var() - np.pi**2 / 6) < 0.05


def test_rewards_of_a_reset_are_no_part_of_what_is_learnt():
    agent = EquivariantPPO(practice(3, horizon=4), SMALL)
    window = agent._collect(agent.training_envs[0])
    assert window.valid[:, 0].tolist() == [1, 1, 1, 1, 0, 1]
    level = reward_scale(
        torch.arange(12.0).reshape(6, 2), torch.tensor([[1, 1, 1, 1, 0, 1], [1] * 6]).T > 0
    )
    assert level.T.tolist() == [[6, 6, 6, 6, 10, 10], [11] * 6]
    advantage, _ = agent._advantages(window)
    assert (advantage[4] == 0).all()


def test_the_price_of_a_crawl_is_what_chance_crawls_brought_and_counts_later_costs():
    agent = EquivariantPPO(practice(3), replace(SMALL, small_fleet=0.0))
    window = agent._collect(agent.training_envs[0])
    p = log_probability(
        torch.zeros(6, 3, 4), torch.ones(6, 3, 4, dtype=torch.bool), window.threshold
    ).exp()
    chance = window.active.float() - p
    torch.manual_seed(0)
    own, noise = torch.randn(2, 6, 3, 4)
    cost = chance + noise - _on(noise, chance)  # a crawl costs 1, and something later
    own = own - _on(own, chance)  # of no price
    price = torch.tensor([0.3, 0.6, 0.9])[:, None]
    worth = agent._choice_advantages(window, torch.stack((price * cost + own, cost), dim=-1))
    torch.testing.assert_close(worth, own / own.std(), rtol=1e-3, atol=1e-3)


def _on(x, chance):
    """Return the part of each row's x that chance explains."""
    return (x * chance).sum((0, 2), keepdim=True) / (chance**2).sum((0, 2), keepdim=True) * chance


def test_costs_are_in_units_of_what_an_epoch_pays_for_each_source():
    env = practice(2, sources=Sources([1, 2, 3], 1, 0.2, cost=[1, 2, 3]), budget=3)
    agent = EquivariantPPO(env, SMALL)
    window = agent._collect(agent.training_envs[0])
    expected = window.active * torch.tensor([1.0, 2.0, 3.0])
    torch.testing.assert_close(window.reward_cost[..., 1], expected)


def test_columns_are_standardised_by_what_was_seen_first():
    agent = EquivariantPPO(practice(), SMALL).learn(6)
    for network in (agent._policy, agent._critic, agent._averaged):
        torch.testing.assert_close(network.mean, agent._averaged.mean)
        assert network.mean.abs().max() > 0.1
        assert network.std.min() >= np.float32(0.2)
    mean = agent._averaged.mean.clone()
    agent.learn(12)
    torch.testing.assert_close(agent._averaged.mean, mean)


def test_it_learns_table_1():
    agent = EquivariantPPO(practice(32, start="random"), seed=1).learn(640)
    runs = compare(
        {"whittle": "whittle", "random": "random", "learnt": agent.policy_for},
        TABLE1,
        steps=280,
        warmup=70,
        seeds=8,
    )
    reward = {name: run.reward.mean() for name, run in runs.items()}
    score = (reward["learnt"] - reward["random"]) / (reward["whittle"] - reward["random"])
    assert 0.9 < score < 1.001
