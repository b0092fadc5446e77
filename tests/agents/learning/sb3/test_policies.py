"""Stable-Baselines3's agents with policies that treat all sources alike."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from sb3_contrib import QRDQN, MaskablePPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv

from agents.learning.fleet.networks import FleetNetwork
from agents.learning.sb3 import policies
from crawl_env import Sources
from crawl_env.envs.sb3 import CrawlVecEnv
from crawl_env.envs.wrappers import SequentialSelection

torch.set_num_threads(1)
FEATURES = ("value", "arrival_rate", "mean_utility", "decay_rate")
TABLE1 = {"sources": "table1", "budget": 2, "features": FEATURES}
ON = {"n_steps": 8, "batch_size": 16, "n_epochs": 2}
OFF = {"learning_starts": 8, "batch_size": 8, "buffer_size": 100}
AGENTS = {
    "ppo": (PPO, policies.EquivariantActorCritic, ON),
    "a2c": (A2C, policies.EquivariantActorCritic, {}),
    "sac": (SAC, policies.EquivariantSAC, OFF),
    "td3": (TD3, policies.EquivariantTD3, OFF),
    "dqn": (DQN, policies.EquivariantDQN, OFF),
    "qr-dqn": (QRDQN, policies.EquivariantQRDQN, OFF),
    "maskable-ppo": (MaskablePPO, policies.EquivariantMaskableActorCritic, ON),
}
DISCRETE = ("dqn", "qr-dqn", "maskable-ppo")


def world(name, **more):
    arguments = {**TABLE1, "horizon": 9, **more}
    if name not in DISCRETE:
        return CrawlVecEnv(num_envs=4, **arguments)
    return SequentialSelection(gym.make("EphemeralCrawl-v0", **arguments))


def trained(name, env, steps=64):
    algorithm, policy, settings = AGENTS[name]
    model = algorithm(
        policy, env, seed=0, policy_kwargs=policies.policy_arguments(env, hidden=8), **settings
    )
    return model.learn(steps)


@pytest.mark.parametrize("name", AGENTS)
def test_it_trains_exchanges_actions_with_sources_and_comes_back_from_its_weights(name, tmp_path):
    env = world(name)
    model = trained(name, env)
    weights = model.policy.state_dict()
    assert any(bool((w != 0).any()) for key, w in weights.items() if "out.weight" in key)
    for weight in model.policy.parameters():
        assert torch.isfinite(weight).all()
        with torch.no_grad():  # few steps leave it close to where all scores are equal
            weight += 0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    observation = env.observation_space.sample()[None].repeat(6, axis=0)
    observation[..., : len(FEATURES)] = np.random.default_rng(0).uniform(0.1, 5, (6, 4, 4))
    order = np.array([2, 0, 3, 1])
    action, _ = model.predict(observation, deterministic=True)
    moved, _ = model.predict(observation[:, order], deterministic=True)
    if name in DISCRETE:
        assert len(set(action.tolist())) > 1
        np.testing.assert_array_equal(order[moved], action)
    else:
        assert action.std() > 0
        np.testing.assert_allclose(moved, action[:, order], atol=1e-5)
    torch.save(model.policy.state_dict(), tmp_path / "weights.pt")
    other = trained(name, env, 8)
    other.policy.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    np.testing.assert_array_equal(other.predict(observation, deterministic=True)[0], action)


def test_models_are_saved_and_loaded_as_any_other(tmp_path):
    name = "dqn"
    env = world(name)
    model = trained(name, env)
    model.save(tmp_path / "model.zip")
    again = AGENTS[name][0].load(tmp_path / "model.zip", env=env)
    observation = np.random.default_rng(0).uniform(0.1, 1, env.observation_space.shape)
    one, two = (
        m.predict(observation.astype(np.float32), deterministic=True)[0] for m in (model, again)
    )
    np.testing.assert_array_equal(one, two)


def test_critics_value_exchanged_sources_and_actions_alike():
    model = trained("sac", world("sac"))
    for weight in model.critic.parameters():
        torch.nn.init.normal_(weight)
    rng, order = np.random.default_rng(0), [2, 0, 3, 1]
    shown = torch.tensor(rng.uniform(0.1, 5, (3, 4, 4)), dtype=torch.float32)
    action = torch.tensor(rng.uniform(-1, 1, (3, 4)), dtype=torch.float32)
    one, two = model.critic(shown, action), model.critic(shown[:, order], action[:, order])
    torch.testing.assert_close(one, two)
    assert not torch.allclose(one[0], model.critic(shown, action[:, order])[0])


@pytest.mark.parametrize("name", ["ppo", "sac", "td3"])
def test_looks_have_priorities_of_their_own(name):
    env = world(name, look_cost=0.2)
    model = trained(name, env)
    for weight in model.policy.parameters():
        torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(1))
    rng, order = np.random.default_rng(0), [2, 0, 3, 1]
    shown = rng.uniform(0.1, 5, (3, 4, 4)).astype(np.float32)
    action, _ = model.predict(shown, deterministic=True)
    assert action.shape == (3, 2, 4)
    assert np.abs(action[:, 0] - action[:, 1]).max() > 0.01
    moved, _ = model.predict(shown[:, order], deterministic=True)
    np.testing.assert_allclose(moved, action[..., order], atol=1e-5)
    if name != "ppo":  # of which the critic sees no actions

        def value(seen, action):
            return model.critic(torch.from_numpy(seen), torch.from_numpy(action).flatten(1))[0]

        any_action = rng.uniform(-1, 1, (3, 2, 4)).astype(np.float32)
        own = value(shown, any_action)
        torch.testing.assert_close(value(shown[:, order], any_action[..., order]), own)
        assert not torch.allclose(value(shown, any_action[:, ::-1].copy()), own)


def test_environments_in_a_vecenv_of_sb3_and_average_budgets():
    inner = DummyVecEnv([lambda: gym.make("EphemeralCrawl-v0", **TABLE1)] * 2)
    features = ("value", "balance", "decay_rate")
    average = world("a2c", budget=1.5, budget_rule="average", features=features)
    for model, env in ((trained("ppo", inner), inner), (trained("a2c", average), average)):
        action, _ = model.predict(env.reset())
        assert action.shape == (env.num_envs, 4)
        assert np.isfinite(action).all()


def test_flattened_observations_are_refused():
    env = gym.wrappers.FlattenObservation(gym.make("EphemeralCrawl-v0", **TABLE1))
    with pytest.raises(ValueError, match="remove wrappers that flatten"):
        policies.policy_arguments(env)


def test_a_policy_is_told_nothing_of_the_sources_but_what_is_shown():
    known = policies.policy_arguments(world("ppo", sources=Sources.random(4, 1)))
    same = policies.policy_arguments(world("ppo", sources=Sources.random(4, 2)))
    assert known == same


@pytest.mark.parametrize("name", ["a2c", "sac", "td3"])
def test_standardized_priorities_keep_their_order_and_have_one_spread(name):
    algorithm, policy, settings = AGENTS[name]
    env = world(name)
    options = policies.policy_arguments(env, hidden=8, standardized=True)
    model = algorithm(policy, env, seed=0, policy_kwargs=options, **settings).learn(16)
    actor = model.policy.action_net if name == "a2c" else model.actor.mu
    inner, standardized = (actor if name != "td3" else actor[0])[:2]
    flat = model.policy.extract_features(
        torch.as_tensor(env.reset()), *([] if name == "a2c" else [model.actor.features_extractor])
    )
    free, priorities = inner(flat), standardized(inner(flat))
    assert torch.equal(free.argsort(-1), priorities.argsort(-1))
    torch.testing.assert_close(priorities.mean(-1), torch.zeros(4), atol=1e-5, rtol=0)
    assert bool((priorities.std(-1) < 0.5).all())
    assert bool((priorities.std(-1) > 0.1).all())


def test_what_picks_sources_has_no_priorities_to_standardize():
    from agents.learning import LEARNERS
    from crawl_env import CrawlVectorEnv

    kind = LEARNERS["dqn"]
    with pytest.raises(ValueError, match="has no priorities that could be standardized"):
        kind(CrawlVectorEnv(2, **TABLE1), kind.Settings(network="standardized"))


@pytest.mark.parametrize("numbers", [1, 5])  # 5 for quantiles
def test_scores_between_picks_are_those_of_the_whole_network(numbers):
    torch.manual_seed(0)
    network = FleetNetwork(4, 8, numbers)
    for weights in network.parameters():
        torch.nn.init.normal_(weights)
    whole = policies.SourceScores(20, network)
    columns = torch.randn(3, 20, 4)
    columns[..., -1] = 0.0
    with torch.inference_mode():
        between, last = policies.PickedScores(whole), None
        for _ in range(4):
            wanted = whole(columns.flatten(1)).view(3, numbers, 20).mean(1)
            assert torch.allclose(between(columns, last), wanted, rtol=1e-5, atol=1e-5)
            last = torch.randint(20, (3,))
            columns[torch.arange(3), last, -1] = 1.0
