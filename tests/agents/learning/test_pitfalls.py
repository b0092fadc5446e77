"""Mistakes met in public code, each made here on purpose and seen to fail where ours does not."""

import numpy as np
import pytest
import torch

from agents import index_at_age, whittle_index
from agents.evaluation.rollout import evaluate
from agents.learning import LEARNERS
from agents.learning.neural.deeptop import DeepTOP, DeepTOPSettings
from agents.learning.neural.networks import RewardScale
from agents.learning.tabular.base import Tabular
from agents.learning.tabular.lagrange_q import LagrangeQ
from agents.learning.tabular.whittle_q import WhittleQ, WhittleQSettings
from crawl_env import CrawlVectorEnv, Sources
from tests.agents.learning.chains import (
    CIRCULANT,
    CIRCULANT_INDEX,
    ChainArms,
)
from tests.agents.learning.common import crawl, same

TABLE1 = Sources.preset("table1")
AGES = np.arange(1, 17)
ARGUMENTS = {"budget": 2, "features": ("age", "crawled", "harvest")}


class Gated(WhittleQ):
    """λ moves in every N-th epoch only, N the number of arms."""

    def multiplier_step_size(self, first):
        t = int(self.visits[0].sum())
        return super().multiplier_step_size(first) if t % len(self.sources) == 0 else 0.0


def test_a_charge_that_moves_in_every_nth_epoch_comes_too_late():
    def error(learner):
        settings = WhittleQSettings(max_age=4, epsilon=1)
        agent = learner(ChainArms(*CIRCULANT, n=100, m=20), settings, seed=1).learn(1500)
        return float(np.abs(agent.index - np.array(CIRCULANT_INDEX)).mean())

    ours = error(WhittleQ)
    assert ours < 0.2
    assert error(Gated) > 2 * ours


class Ungated(WhittleQ):
    """λ moves from the first epoch on, whatever has been tried, and wherever to."""

    both_visited = True

    def _widen_range(self, action, reward):
        self.lowest, self.highest = self.lowest - np.inf, self.highest + np.inf


def test_charges_of_ages_hardly_visited_run_away_without_gate_and_limits():
    def furthest(learner):
        agent = learner(crawl(1), seed=1).learn(1500)
        return float(np.abs(agent.index / TABLE1.ceiling[:, None]).max())

    assert furthest(WhittleQ) < 1.0001
    assert furthest(Ungated) > 2


class Flat(LagrangeQ):
    """The charge is paid whatever is done: the action is left out of a·λ."""

    def transition(self, state, action, reward, after):
        waited = (1 - action) * self.arms.cost
        super().transition(state, action, reward - waited * self.multiplier, after)


def test_a_charge_paid_whatever_is_done_runs_to_its_limit():
    ours, flat = (learner(crawl(8, budget=2), seed=1).learn(1500) for learner in (LagrangeQ, Flat))
    assert ours.multiplier[0] == pytest.approx(43.6046, abs=8)
    assert flat.multiplier[0] > 4 * 43.6046


@pytest.mark.parametrize("action", [0, 1])
def test_the_subsidy_of_whittle_q_is_paid_for_waiting_alone(action):
    fleet = Sources([20.0], [1.0], [0.3], cost=[2.0])
    agent = WhittleQ(crawl(1, sources=fleet, budget=2), WhittleQSettings(learning_rate=1.0))
    agent.multiplier[:] = AGES
    state, after = np.array([[2]]), np.array([[0 if action else 3]])
    agent.visits[0, 2, action] = 1
    agent.transition(state, np.array([[action]]), np.array([[7.0 * action]]), after)
    expected = np.full(16, 7.0) if action else 2.0 * AGES
    np.testing.assert_allclose(agent.q[0, 2, action], expected)


def drawn_charges():
    """Return the largest charge that DeepTOP's critic is asked of, in utility, by source."""
    agent, seen = DeepTOP(crawl(8), DeepTOPSettings(epsilon=1.0)).learn(40), []
    agent.critic_loss, inner = lambda b, c: (seen.append(c), inner(b, c))[1], agent.critic_loss
    agent.learn(60)
    return torch.stack(seen).amax((0, 2, 3)).numpy() * agent.reward_scale.scale


def test_deeptops_charges_must_cover_what_an_index_can_be(monkeypatch):
    needed = TABLE1.ceiling * 0.9
    assert np.all(drawn_charges() > needed)
    narrow = property(lambda unit: np.stack((0 * unit.scale, 0 * unit.scale + 0.5)))
    monkeypatch.setattr(RewardScale, "multiplier_range", narrow)
    assert not np.any(drawn_charges() > needed)


def test_equal_scores_still_select_exactly_m():
    for name in (n for n, kind in LEARNERS.items() if issubclass(kind, Tabular)):
        env = CrawlVectorEnv(3, horizon=None, **ARGUMENTS)
        agent = LEARNERS[name](env)
        observation, _ = env.reset(seed=0)
        score = agent.score(observation[..., :1].astype(np.float64))
        mth = np.sort(score, axis=-1)[:, -2, None]
        assert {(score >= mth).sum(), (score > mth).sum()} == {
            12,
            0,
        }  # what thresholds would select
        action, _ = agent.predict(observation)
        assert all(len(set(row)) == 4 for row in action)
        observation, *_ = env.step(action)
        assert observation[..., 1].sum(axis=-1).tolist() == [2, 2, 2]


def test_an_evaluation_leaves_the_agent_as_it_was_and_does_not_explore():
    for name in (n for n, kind in LEARNERS.items() if issubclass(kind, Tabular)):
        agent = LEARNERS[name](crawl(1, budget=2), seed=2).learn(100)
        before, drawn = agent.state_dict(), agent.rng.bit_generator.state
        kept = {key: value.copy() for key, value in before.items()}
        first, second = (evaluate(agent, ARGUMENTS, steps=40, seeds=2).reward for _ in range(2))
        assert same(agent.state_dict(), kept)
        assert agent.rng.bit_generator.state == drawn
        np.testing.assert_array_equal(first, second)
        assert first[0] == first[1]  # nothing is random: neither arrivals nor choices


def test_the_largest_error_of_all_ages_says_nothing():
    """What was hardly visited may be as wrong as can be, though the policy is near the best."""
    agent = WhittleQ(crawl(8, budget=2), seed=1).learn(1500)
    error = np.abs(agent.index - index_at_age(AGES[:, None], TABLE1).T) / TABLE1.ceiling[:, None]
    often = agent.visits.min(axis=-1) >= 300
    assert error.max() > 0.5
    assert often.sum() >= 6
    assert error[often].max() < 0.08


def test_an_average_reward_learner_learns_no_discounted_index():
    fleet = Sources([20.0] * 3, [1.0] * 3, [0.04] * 3)
    agent = WhittleQ(
        crawl(8, sources=fleet), WhittleQSettings(learning_rate_decay_visits=500), seed=1
    ).learn(2500)
    value = fleet.content_at(np.ones(3))
    average, discounted = (whittle_index(value, fleet, discount=d)[0] for d in (1.0, 0.99))
    found = agent.index[:, 0].mean()
    assert discounted > 1.2 * average
    assert abs(found - average) < 0.3 * abs(found - discounted)
