"""One index for all sources: that it is one, what its critic is taught, and that it learns."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.evaluation.rollout import compare
from agents.learning.fleet.index import (
    EquivariantIndex,
    EquivariantIndexSettings,
    IndexNetwork,
    IndexPolicy,
    SourceColumns,
    _Sequences,
)
from crawl_env import CrawlVectorEnv, Sources

torch.set_num_threads(1)
PARAMETERS = ("arrival_rate", "mean_utility", "decay_rate", "cost")
ALL = ("value", "age", "crawled", "harvest", "items", *PARAMETERS, "available", "failed")
KNOWN = ("value", *PARAMETERS)
SMALL = EquivariantIndexSettings(
    hidden=8, n_steps=6, buffer_size=100, batch_size=8, gradient_steps=3
)
TABLE1 = {"sources": "table1", "budget": 1, "features": KNOWN, "horizon": None}


def practice(rows=4, **more):
    return CrawlVectorEnv(rows, **{**TABLE1, **more})


def fleets(rng):
    return Sources.random(20, rng, ("dense", "sparse")[rng.integers(2)])


def many(rng):
    return Sources.random(100, rng, "dense")


def policy(n, seed):
    """One that has learnt nothing, but is not the same everywhere."""
    torch.manual_seed(seed)
    env = practice(sources=Sources.random(n, seed), features=ALL)
    network = IndexNetwork(SourceColumns.read(ALL), 8)
    return IndexPolicy(network, ALL, env.task, 1.0, np.random.default_rng(0))


def scores(agent, arguments, **runs):
    """Return what the agent earns in new runs, where random earns 0 and Whittle 1."""
    all_of = {"whittle": "whittle", "random": "random", "learnt": agent.policy_for}
    reward = {name: run.reward.mean() for name, run in compare(all_of, arguments, **runs).items()}
    return float((reward["learnt"] - reward["random"]) / (reward["whittle"] - reward["random"]))


@given(st.integers(1, 12), st.integers(0, 1000), st.floats(1e-3, 1e4))
@settings(max_examples=30)
def test_an_index_is_of_its_source_alone_and_in_its_units(n, seed, unit):
    rng = np.random.default_rng(seed)
    shown = torch.tensor(np.exp(rng.normal(0, 1, (3, n, len(ALL)))), dtype=torch.float32)
    own = policy(n, seed)
    index = own.log_index(shown)
    order = rng.permutation(n)
    np.testing.assert_allclose(own.log_index(shown[:, order]), index[:, order], atol=1e-4)
    alone = policy(1, seed).log_index(shown[:, :1])
    np.testing.assert_allclose(alone, index[:, :1], atol=1e-4)
    larger, dearer = shown.clone(), shown.clone()
    larger[..., [ALL.index(name) for name in ("value", "harvest", "mean_utility")]] *= unit
    np.testing.assert_allclose(own.log_index(larger), index + np.log(unit), atol=1e-3)
    dearer[..., ALL.index("cost")] *= unit
    np.testing.assert_allclose(own.log_index(dearer), index - np.log(unit), atol=1e-3)


def test_columns_of_a_source_by_hand():
    features = ("decay_rate", "value", "arrival_rate", "mean_utility", "age", "cost")
    env = practice(features=features, sources=Sources([1, 1], 1, 1, period=2.0))
    columns, unit = SourceColumns(env.task, features, 7.0)(
        torch.tensor([[[0.5, 3.0, 1.0, 3.0, 0.0, 2.0], [1.0, 0.0, 2.0, 0.5, 4.0, 9.0]]])
    )
    np.testing.assert_allclose(unit, [[6.0, 2.0]])  # Λξ̄T
    expected = [
        [np.log(1.0), np.log(0.5 + 0.01), np.log(2.0), 0.0],
        [np.log(2.0), np.log(0.01), np.log(4.0), np.log(5.0)],
    ]
    np.testing.assert_allclose(columns[0], expected, atol=2e-6)
    few = SourceColumns(env.task, ("value", "age"), 7.0)
    np.testing.assert_allclose(few(torch.ones(1, 2, 6))[1], 7.0)


def test_indices_are_finite():
    for value in (0.0, 1e-30, 1e30):
        shown = np.full((2, 3, len(ALL)), value, dtype=np.float32)
        shown[..., ALL.index("cost")] = 1.0
        assert np.isfinite(policy(3, 0).predict(shown)[0]).all()


def test_below_the_index_crawling_is_worth_more_and_above_it_waiting():
    torch.manual_seed(0)
    network, columns = IndexNetwork(("value", "age"), 8), torch.randn(50, 2)
    index = network.index(columns)
    for below in (0.5, 0.0, -0.5):
        waiting, crawling = network(columns, index - below)
        assert ((crawling - waiting) * np.sign(below) >= 0).all()
        assert torch.allclose(crawling, waiting) == (below == 0)


class Critic:
    """Says at each state, whose columns are (Q(0), Q(1)), just that; in units of 1 + ℓ."""

    unit = staticmethod(IndexNetwork.unit)

    def index(self, columns):
        return torch.zeros(columns.shape[:-1])

    def __call__(self, columns, charge):
        return columns.unbind(-1)


@pytest.mark.parametrize("trace", [0.0, 0.7, 1.0])
def test_the_critic_is_taught_to_look_ahead_as_far_as_it_agrees(trace):
    agent = EquivariantIndex(
        practice(), EquivariantIndexSettings(trace_decay=trace, buffer_size=10)
    )
    critic = Critic()
    agent._target = critic
    rng = np.random.default_rng(0)
    q, after = rng.normal(size=(30, 7, 2)), rng.normal(size=(30, 2))
    active, valid = rng.random((30, 6)) < 0.3, np.sort(rng.random((30, 6)) < 0.8)[:, ::-1]
    reward, log_charge = active * rng.exponential(size=(30, 6)), rng.normal(size=30)
    parts = [torch.tensor(np.float32(x)) for x in (q, active, reward, valid.copy(), after)]
    charge, target, _ = agent._targets(_Sequences(*parts), torch.tensor(np.float32(log_charge)))
    np.testing.assert_allclose(charge[:, 0], log_charge, rtol=1e-5)

    def taught(k, t):
        paid = reward[k, t] - active[k, t] * np.exp(log_charge[k])
        now = paid / (1 + np.exp(log_charge[k])) - after[k].max()
        later = q[k, t + 1].max()
        if t + 1 < 6 and valid[k, t + 1] and active[k, t + 1] == q[k, t + 1].argmax():
            later += trace * (taught(k, t + 1) - later)
        return float(now + later)

    expected = [[taught(k, t) for t in range(6)] for k in range(30)]
    np.testing.assert_allclose(target, expected, rtol=1e-4, atol=1e-5)


def test_sequences_end_with_the_episode_and_refer_to_the_last_crawl_before():
    agent = EquivariantIndex(practice(3, horizon=10), SMALL)
    first, second = agent._collect(0), agent._collect(0)
    assert not first.valid.any()  # nothing had been crawled before
    # The episode ends with step 10, the fourth of the second window; the next is a reset.
    useful = second.valid[:, 0] > 0
    assert useful.any()
    assert not useful.all()
    assert (second.valid[useful] == torch.tensor([1.0, 1, 1, 1, 0, 0])).all()
    # With deterministic arrivals all of Table 1 stand at u after a crawl.
    inflow = np.sort(-np.expm1(-np.array([0.7, 0.35, 0.21])) / [0.7, 0.35, 0.21])
    found = np.exp(second.after_crawl[useful, 0].numpy()) - 0.01
    assert np.abs(found[:, None] - inflow).min(axis=1).max() < 1e-5


def test_rewards_are_in_units_of_the_source():
    agent = EquivariantIndex(practice(3, start="full"), SMALL)
    window = agent._collect(0)
    # What is crawled first of all was at its ceiling, Λξ̄/μ: 1/μ units of Λξ̄T.
    first = window.active[:, 0] > 0
    decay = torch.exp(window.columns[first, 0, 2])
    torch.testing.assert_close(window.reward[first, 0], 1 / decay, rtol=1e-4, atol=1e-4)
    assert (window.reward[window.active == 0] == 0).all()


def test_only_what_teaches_is_kept_in_place_of_the_oldest():
    agent = EquivariantIndex(practice(), SMALL)
    shapes = (60, 7, 3), (60, 6), (60, 6), (60, 6), (60, 3)
    for number in (1.0, 2.0):
        parts = [torch.full(shape, number) for shape in shapes]
        parts[3][:5] = 0
        agent._store(_Sequences(*parts))
    assert agent._stored == 110
    assert [(agent._buffer.reward[:, 0] == x).sum() for x in (1, 2)] == [45, 55]
    assert (agent._buffer.valid > 0).all()


def test_features_that_say_nothing_of_a_state_are_refused():
    with pytest.raises(ValueError, match="add 'value' or 'age'"):
        EquivariantIndex(practice(features=("cost",)))


def test_what_was_seen_after_the_last_crawl_is_forgotten_in_another_crawl(tmp_path):
    agent = EquivariantIndex(practice(), SMALL).learn(24, checkpoint=tmp_path / "agent")
    assert torch.cat(agent._was_crawled).any()
    loaded = EquivariantIndex.load(tmp_path / "agent", practice(7))
    assert not torch.cat(loaded._was_crawled).any()  # here nothing has been crawled yet


def test_what_it_learns_of_small_fleets_it_knows_of_large_ones_and_of_table_1():
    unseen = {"arrivals": "poisson", "observed": False}
    drawn = {"sources": fleets, "budget": 2, "start": "random", "horizon": 250, **unseen}
    agent = EquivariantIndex(practice(20, **drawn)).learn(480)
    task = {**TABLE1, "sources": many, "budget": 10, **unseen}
    assert 0.85 < scores(agent, task, steps=100, warmup=50, seeds=8) < 1.05
    assert 0.95 < scores(agent, TABLE1, steps=140, warmup=70, seeds=1) < 1.001
