"""One network for all fleets, whichever: any number of sources, refusals, exact repetition."""

import numpy as np
import pytest
import torch

from agents.learning.fleet.index import EquivariantIndex, EquivariantIndexSettings
from agents.learning.fleet.ppo import EquivariantPPO, EquivariantPPOSettings
from crawl_env import CrawlEnv, CrawlVectorEnv, Sources
from crawl_env.benchmark import TASKS
from tests.agents.learning.common import same

torch.set_num_threads(1)
FEATURES = ("value", "arrival_rate", "mean_utility", "decay_rate", "cost")
TABLE1 = {"sources": "table1", "budget": 2, "features": FEATURES, "horizon": None}
SMALL = {
    EquivariantPPO: EquivariantPPOSettings(hidden=8, n_steps=6),
    EquivariantIndex: EquivariantIndexSettings(
        hidden=8, n_steps=6, buffer_size=100, batch_size=8, gradient_steps=3
    ),
}

pytestmark = pytest.mark.parametrize("kind", SMALL, ids=lambda kind: kind.name)


def practice(rows=4, **more):
    return CrawlVectorEnv(rows, **{**TABLE1, **more})


def learner(kind, envs=None, seed=0):
    return kind(practice() if envs is None else envs, SMALL[kind], seed)


def fleets(rng):
    return Sources.random(5, rng, ("dense", "sparse")[rng.integers(2)])


def test_a_learnt_policy_acts_in_fleets_of_any_size(kind):
    agent = learner(kind).learn(12)
    for n in (1, 300):
        env = CrawlVectorEnv(
            2, sources=Sources.random(n, 1), budget=1, features=("age", *reversed(FEATURES))
        )
        observation, _ = env.reset(seed=0)
        batch, _ = agent.policy_for(env).predict(observation)
        single, _ = agent.policy_for(env).predict(observation[1])
        np.testing.assert_allclose(batch[1], single, atol=1e-6)
        assert np.isfinite(batch).all()
        env.step(batch)


def test_several_fleets_drawn_anew_are_learnt_together(kind):
    envs = [
        practice(3, sources=fleets, budget=1, horizon=8, arrivals="poisson"),
        practice(2, sources=Sources.random(9), budget=3),
        practice(2, sources=Sources([1, 0, 3], 1, 0.2, cost=[1, 2, 3]), budget=3),
    ]
    agent = learner(kind, envs, seed=1).learn(30)
    played = agent.state_dict()["averaged"]
    assert all(torch.isfinite(weight).all() for weight in played.values())
    assert agent.steps == 30


@pytest.mark.parametrize("name", ["Regimes100", "SignalsUnknown50"])
def test_tasks_that_show_items_topics_and_pings_are_learnt(kind, name):
    env = practice(1, **TASKS[name].arguments_of("train", 0))
    agent = learner(kind, env).learn(12)
    assert np.isfinite(agent.policy_for(env).predict(env.reset(seed=0)[0])[0]).all()


def test_without_parameters_among_the_features_sources_are_known_by_what_they_show(kind):
    features = {"features": ("age", "crawled"), "arrivals": "poisson", "observed": False}
    one, two = (
        practice(3, sources=sources, **features)
        for sources in ("table1", Sources([9.0, 7.0, 5.0, 3.0], 2.0, 0.1))
    )
    agent = learner(kind, one).learn(24)
    observation, _ = one.reset(seed=0)
    priority = agent.policy_for(one).predict(observation)[0]
    np.testing.assert_array_equal(priority, agent.policy_for(two).predict(observation)[0])
    assert (priority == priority[:, :1]).all()  # all are of age 1


def test_what_cannot_be_learnt_in_is_refused(kind):
    for arguments, words in (
        ({"budget_rule": "average"}, "budget_rule='step'"),
        ({"engine": {"rate": 2.0}}, "what is indexed"),
        ({"autoreset_mode": "SameStep"}, "NEXT_STEP"),
        ({"autoreset_mode": "Disabled"}, "NEXT_STEP"),
    ):
        with pytest.raises(ValueError, match=words):
            learner(kind, practice(**arguments))
    assert kind(practice(), device="auto").device in ("cpu", "cuda")
    with pytest.raises(ValueError, match="device is 'gpu0', which torch cannot use here"):
        kind(practice(), device="gpu0")


def test_what_cannot_be_played_is_refused(kind):
    agent = learner(kind)
    with pytest.raises(ValueError, match="the environment lacks decay_rate, cost"):
        agent.policy_for(practice(features=("value", "arrival_rate", "mean_utility")))
    with pytest.raises(ValueError, match="2 sets of features"):
        learner(kind, [practice(), practice(features=("age",))])
    with pytest.raises(ValueError, match="shape"):
        agent.predict(np.zeros((4, 2)))


def test_chance_in_play_is_not_the_same_in_every_epoch(kind):
    env = practice()
    agent, observation = learner(kind, env), env.reset(seed=0)[0]
    one, two = (agent.predict(observation, deterministic=False)[0] for _ in range(2))
    assert not np.array_equal(one, two)


def test_learning_goes_on_from_a_checkpoint_as_if_never_stopped(kind, tmp_path):
    arguments = {"sources": fleets, "horizon": 10, "arrivals": "poisson"}

    def agent(seed=0):
        return learner(kind, [practice(rows, **arguments) for rows in (4, 2)], seed)

    generator = torch.get_rng_state()
    whole, other = agent().learn(24), agent(1).learn(24)
    file = tmp_path / "agent.safetensors"
    agent().learn(12, checkpoint=file)
    part = agent().learn(24, checkpoint=file)
    assert same(part.state_dict(), whole.state_dict())
    assert not same(other.state_dict()["averaged"], whole.state_dict()["averaged"])
    assert torch.equal(torch.get_rng_state(), generator)
    loaded = kind.load(file, practice(7, **arguments))
    assert same(loaded.state_dict()["averaged"], whole.state_dict()["averaged"])
    assert loaded.steps == 24
    loaded.learn(12)


def test_a_saved_agent_reads_features_in_the_order_in_which_it_learnt(kind, tmp_path):
    env, other = practice(), practice(features=tuple(reversed(FEATURES)))
    agent = learner(kind, env).learn(12)
    agent.save(tmp_path / "agent")
    loaded = kind.load(tmp_path / "agent", other)
    assert type(loaded) is kind
    seen, _ = env.reset(seed=0)
    priority = agent.predict(seen)[0]
    assert np.ptp(priority) > 0
    np.testing.assert_allclose(loaded.predict(seen[..., ::-1])[0], priority, rtol=1e-5)
    with pytest.raises(ValueError, match="was trained on the features value, arrival_rate"):
        kind.load(tmp_path / "agent", practice(features=("age", *FEATURES[1:])))


def test_an_environment_of_another_kind_is_named(kind):
    single = CrawlEnv(**TABLE1)
    with pytest.raises(
        ValueError, match=r"is neither a CrawlVectorEnv nor a list .* gym\.make_vec"
    ):
        kind(single)


def test_a_checkpoint_of_another_crawl_is_refused(kind, tmp_path):
    file = tmp_path / "agent"
    learner(kind).learn(12, checkpoint=file)
    learner(kind).learn(24, checkpoint=file)
    for other in ({"budget": 1}, {"arrivals": "poisson"}, {"sources": "recovering-4"}):
        with pytest.raises(ValueError, match="this environment has"):
            learner(kind, practice(**other)).learn(36, checkpoint=file)
    with pytest.raises(ValueError, match="is trained in 2 environments, the saved one in 1"):
        learner(kind, [practice(), practice()]).learn(36, checkpoint=file)
