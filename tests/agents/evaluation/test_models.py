"""Evaluation of functions, and of trained models with the observations and actions of training."""

from functools import cache

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import agents
from agents import compare, evaluate
from crawl_env import CrawlEnv, CrawlVectorEnv, Task
from crawl_env.envs.sb3 import CrawlVecEnv
from crawl_env.envs.wrappers import SequentialSelection, VectorSubsetAction

FLAT, DISCRETE = "EphemeralCrawlFlat-v0", "EphemeralCrawlDiscrete-v0"
TASK = {"budget": 2, "arrivals": "poisson"}
RUNS = {"steps": 30, "warmup": 3, "seeds": 3, "seed": 4}
SMALL = {"policy_kwargs": {"net_arch": [8]}, "seed": 0, "n_steps": 16}


def trained(env):
    return PPO("MlpPolicy", env, batch_size=16, n_epochs=1, **SMALL).learn(64)


def normalised(env):
    return VecNormalize(env, gamma=0.9)


@cache
def learnt(kind):
    """Return a model that no test may train or change."""
    return trained(MODELS[kind]())


MODELS = {
    "plain": lambda: CrawlVecEnv(2, **TASK),
    "flat": lambda: make_vec_env(FLAT, 2, env_kwargs=TASK),
    "scaled": lambda: CrawlVecEnv(2, **TASK, scaled=True),
    "discrete": lambda: make_vec_env(DISCRETE, 2, env_kwargs=TASK),
    "flattened": lambda: DummyVecEnv([lambda: gym.wrappers.FlattenObservation(CrawlEnv(**TASK))]),
    "normalised": lambda: normalised(CrawlVecEnv(2, **TASK)),
    "normalised twice": lambda: normalised(normalised(CrawlVecEnv(2, **TASK))),
    "normalised rewards": lambda: VecNormalize(CrawlVecEnv(2, **TASK), norm_obs=False),
    "normalised flat": lambda: normalised(make_vec_env(FLAT, 2, env_kwargs=TASK)),
    "normalised discrete": lambda: normalised(make_vec_env(DISCRETE, 2, env_kwargs=TASK)),
}
GIVEN = {
    "arguments": lambda: TASK,
    "plain": lambda: gym.make("EphemeralCrawl-v0", **TASK),
    "flat": lambda: gym.make(FLAT, **TASK),
    "discrete": lambda: gym.make(DISCRETE, **TASK),
    "vectors": lambda: gym.make_vec(DISCRETE, num_envs=2, **TASK),
    "normalised": lambda: normalised(CrawlVecEnv(2, **TASK)),
}


def by_hand(model, **form):
    """Return the mean reward of each of three environments, stepped as a user would."""
    env = CrawlVectorEnv(3, **TASK, **form, horizon=None)
    if isinstance(model.action_space, gym.spaces.Discrete):
        env = VectorSubsetAction(env)
    normaliser = model.get_vec_normalize_env()
    seen, _ = env.reset(seed=4)
    rewards = []
    for _ in range(33):
        shown = seen if normaliser is None else normaliser.normalize_obs(seen)
        seen, reward, *_ = env.step(model.predict(shown, deterministic=True)[0])
        rewards.append(reward)
    return np.mean(rewards[3:], axis=0)


def same(one, two):
    return all(np.array_equal(vars(one)[name], vars(two)[name]) for name in vars(one))


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_is_compared_as_it_is(kind):
    """The others face the same arrivals as without it, whatever its observations and actions."""
    model = learnt(kind)
    runs = compare({"model": model, "whittle": "whittle"}, TASK, **RUNS)
    assert same(runs["whittle"], evaluate("whittle", TASK, **RUNS))
    if kind != "normalised twice":
        flat, scaled = len(model.observation_space.shape) == 1, kind != "flattened"
        scaled &= flat or kind == "scaled"
        expected = by_hand(model, flat=flat, scaled=scaled)
        np.testing.assert_allclose(runs["model"].reward, expected, rtol=1e-12)


@pytest.mark.parametrize("given", GIVEN)
def test_the_environment_is_given_in_any_form(given):
    everyone = {kind: learnt(kind) for kind in ("discrete", "normalised")} | {"whittle": "whittle"}
    runs = compare(everyone, GIVEN[given](), **RUNS)
    expected = compare(everyone, TASK, **RUNS)
    for name in everyone:
        assert np.array_equal(runs[name].reward, expected[name].reward), name


def test_normalisation_matters_and_its_statistics_stay():
    env = MODELS["normalised"]()
    model = trained(env)
    mean, count = env.obs_rms.mean.copy(), env.obs_rms.count
    first = evaluate(model, TASK, **RUNS)
    assert np.array_equal(env.obs_rms.mean, mean)
    assert env.obs_rms.count == count
    env.obs_rms.mean = mean + np.array([[300], [0], [-300], [0]])
    assert not same(first, evaluate(model, TASK, **RUNS))


def test_a_loaded_model_needs_its_environment(tmp_path):
    env = MODELS["normalised"]()
    model = trained(env)
    model.save(tmp_path / "model.zip")
    env.save(str(tmp_path / "statistics.pkl"))
    expected = evaluate(model, TASK, **RUNS)
    with pytest.warns(UserWarning, match=r"no environment.*through VecNormalize"):
        evaluate(PPO.load(tmp_path / "model.zip"), TASK, **RUNS)
    statistics = VecNormalize.load(str(tmp_path / "statistics.pkl"), CrawlVecEnv(2, **TASK))
    again = PPO.load(tmp_path / "model.zip", env=statistics)
    assert same(evaluate(again, TASK, **RUNS), expected)


def test_an_agent_made_for_flat_observations_is_compared_as_it_is():
    agent = agents.Whittle(gym.make(FLAT, **TASK))
    assert same(evaluate(agent, TASK, **RUNS), evaluate("whittle", TASK, **RUNS))


@pytest.mark.parametrize(
    ("made_for", "task", "message"),
    [
        ({"features": ("value", "age")}, {"features": ("age", "value")}, "made for the features"),
        ({"features": ("value", "age")}, {}, "made for the features"),
        (
            {"features": ("age",), "scaled": True, "budget": 1},
            {"features": ("age",), "budget": 2},
            r"scaled by \[4\.\], and those of this environment are scaled by \[2\.\]",
        ),
    ],
    ids=["order", "missing", "scales"],
)
def test_an_agent_made_for_other_observations_is_refused(made_for, task, message):
    with pytest.raises(ValueError, match=message):
        evaluate(agents.Whittle(Task(**made_for)), task, **RUNS)


def test_an_agent_may_be_made_for_another_task_with_the_same_observations():
    agent = agents.Whittle(Task(budget=1, features=("age",)))
    evaluate(agent, {"budget": 2, "features": ("age",)}, **RUNS)


def test_a_dqn_on_subsets():
    model = DQN("MlpPolicy", gym.make(DISCRETE, **TASK), learning_starts=8, seed=0).learn(16)
    runs = compare({"dqn": model, "random": "random"}, gym.make(DISCRETE, **TASK), **RUNS)
    assert runs["dqn"].cost.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("env", "task", "message"),
    [
        (lambda: CrawlVecEnv(2, features=("age",)), {}, "trained on the features"),
        (lambda: CrawlVecEnv(2, sources="fleet-f"), {}, r"trained on observations Box.*\(25, 1\)"),
        (lambda: make_vec_env(DISCRETE, 1), {"budget": 2}, "trained on other subsets"),
        (lambda: make_vec_env(DISCRETE, 1), {"budget": 3}, "trained on other subsets"),  # 4, too
        (
            lambda: DummyVecEnv([lambda: SequentialSelection(CrawlEnv())]),
            {},
            "SequentialSelection.*evaluate_policy",
        ),
        (
            lambda: DummyVecEnv([lambda: gym.wrappers.NormalizeObservation(CrawlEnv())]),
            {},
            "NormalizeObservation, which is not applied here",
        ),
        (
            lambda: DummyVecEnv([lambda: gym.wrappers.RescaleAction(CrawlEnv(), 0, np.float32(2))]),
            {},
            "RescaleAction, which is not applied here",
        ),
    ],
    ids=["features", "sources", "subsets", "as many subsets", "picks", "observations", "actions"],
)
def test_a_model_of_another_task_is_refused(env, task, message):
    model = PPO("MlpPolicy", env(), batch_size=16, **SMALL)
    with pytest.raises(ValueError, match=message):
        evaluate(model, task, **RUNS)


def test_a_model_without_its_environment_is_refused_if_its_subsets_are_more():
    model = PPO("MlpPolicy", make_vec_env(DISCRETE, 1), batch_size=16, **SMALL)
    model.env = None
    with (
        pytest.warns(UserWarning, match="the model has no environment"),
        pytest.raises(ValueError, match=r"4 discrete actions.* 6 subsets"),
    ):
        evaluate(model, {"budget": 2}, **RUNS)


def test_a_function_of_the_observation():
    shapes = set()

    def myopic(observation):
        shapes.add(observation.shape)
        return observation[:, 0]

    task = {**TASK, "features": ("value", "age")}
    runs = compare({"mine": myopic, "myopic": "myopic"}, task, **RUNS)
    assert shapes == {(4, 2)}
    assert same(runs["mine"], runs["myopic"])


def test_a_function_of_flat_observations_that_returns_subsets():
    env = gym.make(DISCRETE, **TASK)
    subsets = env.get_wrapper_attr("subsets")

    def myopic(observation):
        assert observation.shape == (4,)
        assert observation.max() < 1
        return int(np.argmax([observation[list(subset)].sum() for subset in subsets]))

    runs = compare({"mine": myopic, "myopic": "myopic"}, env, **RUNS)
    assert same(runs["mine"], runs["myopic"])


def test_a_function_may_return_a_tensor_that_requires_gradients():
    weight = torch.ones(1, requires_grad=True)
    runs = compare(
        {"mine": lambda observation: weight * torch.as_tensor(observation[:, 0])}, TASK, **RUNS
    )
    assert same(runs["mine"], evaluate("myopic", TASK, **RUNS))


@pytest.mark.parametrize(
    "returned",
    [np.zeros(3), np.zeros((4, 1)), (np.zeros(4), None), 0.5, None, "whittle", 6, -1],
    ids=repr,
)
def test_another_result_of_a_function_is_refused(returned):
    with pytest.raises(ValueError, match=r"(?s)returned .* return 4 priorities|numbered 0"):
        evaluate(lambda observation: returned, TASK, **RUNS)


def test_a_function_returns_either_priorities_or_subsets():
    results = iter([0, np.zeros(4), 0])
    with pytest.raises(ValueError, match="return the same for all"):
        evaluate(lambda observation: next(results), TASK, **RUNS)


def test_functions_that_make_agents():
    def factory(env):
        return agents.Whittle(env)

    def seeded(env, seed=5):
        return agents.Random(env, seed=seed)

    assert same(evaluate(factory, TASK, **RUNS), evaluate("whittle", TASK, **RUNS))
    assert same(evaluate(seeded, TASK, **RUNS), evaluate("random", TASK, **RUNS))
    with pytest.raises(ValueError, match="returned 7 for the parameter `env`"):
        evaluate(lambda env: 7, TASK, **RUNS)
    with pytest.raises(ValueError, match=r"agent is 7; give a name"):
        evaluate(7, TASK, **RUNS)


def test_subsets_of_fleets_with_other_costs_are_refused():
    from crawl_env import Sources

    def draw(rng):
        return Sources([1, 1], [1, 1], [0.5, 0.5], [1, rng.uniform(0.5, 1)])

    with pytest.raises(ValueError, match="changed the costs"):
        evaluate(lambda observation: 0, {"sources": draw, "budget": 1}, **RUNS)
