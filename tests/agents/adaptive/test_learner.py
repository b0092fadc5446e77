"""Adaptive agents among the learners: what was learnt, frozen; refusals; exact repetition."""

import numpy as np
import pytest

from agents.adaptive.learner import AdaptiveSettings, ThompsonLearner
from agents.learning import storage
from agents.theory.index import index_at_age
from crawl_env import CrawlVectorEnv, Sources
from tests.agents.learning.chains import restart
from tests.agents.learning.common import crawl


def test_it_learns_the_rates_and_plays_the_index_at_them():
    env = crawl(1, budget=2, arrivals="poisson-items", observed=False)
    agent = ThompsonLearner(env).learn(600)
    # Some 300 crawls of a source, which count 250 λ items each.
    np.testing.assert_allclose(agent.rate(), env.task.sources.arrival_rate, rtol=0.02)
    state = np.ones((1, 4, 3))
    state[..., 0] = [1, 2, 3, 40]
    fleet = env.task.sources
    learnt = Sources(agent.rate(), fleet.mean_utility, fleet.decay_rate)
    np.testing.assert_allclose(agent.score(state)[0], index_at_age(state[0, :, 0], learnt))


def test_before_the_first_epoch_it_has_the_prior():
    np.testing.assert_allclose(ThompsonLearner(crawl(1)).rate(), 50.0)


def test_the_estimator_is_a_setting():
    other = ThompsonLearner(crawl(1), AdaptiveSettings(estimator="changed")).learn(40)
    assert not np.allclose(other.rate(), ThompsonLearner(crawl(1)).learn(40).rate())
    with pytest.raises(ValueError, match="estimator"):
        ThompsonLearner(crawl(1), AdaptiveSettings(estimator="oracle"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"features": ("crawled", "age", "harvest")}, "in this order; the environment has"),
        ({"sources": lambda rng: Sources.random(4, rng)}, "of fleets drawn anew"),
        ({"budget_rule": "average"}, "budget_rule='step'"),
    ],
)
def test_other_crawls_are_refused(arguments, words):
    features = ("age", "crawled", "harvest")
    with pytest.raises(ValueError, match=words):
        ThompsonLearner(CrawlVectorEnv(1, **{"features": features, **arguments}))


def test_several_rows_are_refused():
    with pytest.raises(ValueError, match="num_envs=1"):
        ThompsonLearner(crawl(2))


def test_arms_that_are_no_crawl_are_refused():
    arms = restart(1, 4)
    with pytest.raises(ValueError, match="is trained on crawls only"):
        ThompsonLearner(arms)


def test_damaged_states_are_refused(tmp_path):
    file = tmp_path / "agent"
    ThompsonLearner(crawl(1)).learn(20).save(file)
    saved = storage.load(file)
    known = saved["learnt"]["known"]
    wrong = [known[:-1], [], "7"]
    for i, array in enumerate(known):
        if i == 1:  # the multiplier, which is not used
            continue
        bad = [array[..., :-1], array.astype(np.float16), None, np.full_like(array, np.inf)]
        bad += [] if i == 3 else [np.full_like(array, -1e9)]  # draws
        wrong += [[*known[:i], other, *known[i + 1 :]] for other in bad]
    for tree in wrong:
        storage.save(file, {**saved, "learnt": {**saved["learnt"], "known": tree}})
        with pytest.raises(ValueError, match="agent: "):
            ThompsonLearner.load(file, crawl(1))
