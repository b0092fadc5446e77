"""Agents by name through every wrapper that leaves observations alone; refusals with a remedy."""

import pickle
import re

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers import vector as vector_wrappers
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecCheckNan,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
)

import agents
from agents.theory.multiplier import BudgetMultiplier
from crawl_env import CrawlVectorEnv, Sources, task_of
from crawl_env.envs.sb3 import CrawlVecEnv
from crawl_env.envs.wrappers import SequentialSelection

BY_VALUE = [name for name, agent in agents.AGENTS.items() if not agent.features]
CHANNELS = ("value", "arrival_rate", "mean_utility", "decay_rate", "cost")
STATE = np.array([[180.0], [130.0], [10.0], [90.0]], dtype=np.float32)


def crawl(**arguments):
    return gym.make("EphemeralCrawl-v0", **arguments)


def cart():
    return gym.make("CartPole-v1")


def native(n=2, **arguments):
    return gym.make_vec(
        "EphemeralCrawl-v0", num_envs=n, vectorization_mode="vector_entry_point", **arguments
    )


def drawn(rng):
    return Sources.random(4, rng)


@pytest.fixture
def closing():
    """Close what runs in other processes, dead or alive, after a test."""
    opened = []

    def keep(env):
        opened.append(env)
        return env

    yield keep
    for env in opened:
        if isinstance(env, AsyncVectorEnv):
            env.close(terminate=True)
            continue
        for remote, process in zip(env.remotes, env.processes, strict=True):
            process.terminate()
            process.join()
            remote.close()
        for remote in env.work_remotes:
            remote.close()


TRANSPARENT = {
    "unwrapped": lambda: crawl().unwrapped,
    "task": lambda: crawl().unwrapped.task,
    "Autoreset": lambda: wrappers.Autoreset(crawl()),
    "many": lambda: wrappers.RecordEpisodeStatistics(
        wrappers.TimeLimit(wrappers.ClipAction(wrappers.NormalizeReward(crawl())), 5)
    ),
    "Monitor": lambda: Monitor(crawl()),
    "native class": lambda: CrawlVectorEnv(3),
    "native clipped": lambda: vector_wrappers.ClipAction(native()),
    "native statistics": lambda: vector_wrappers.RecordEpisodeStatistics(native()),
    "make_vec sync": lambda: gym.make_vec(
        "EphemeralCrawl-v0", num_envs=2, vectorization_mode="sync"
    ),
    "SyncVectorEnv of wrapped": lambda: vector_wrappers.RecordEpisodeStatistics(
        SyncVectorEnv([lambda: wrappers.ClipAction(wrappers.TimeLimit(crawl(), 9))] * 2)
    ),
    "VecMonitor": lambda: VecMonitor(DummyVecEnv([crawl])),
    "CrawlVecEnv wrapped": lambda: VecCheckNan(CrawlVecEnv(2)),
    "VecNormalize of rewards": lambda: VecNormalize(CrawlVecEnv(2), norm_obs=False),
}


def acts(env):
    """Return the first choice of Whittle and myopic in a state in which they differ."""
    return [
        int(np.argmax(agents.make(name, env).predict(STATE)[0])) for name in ("whittle", "myopic")
    ]


@pytest.mark.parametrize("how", TRANSPARENT)
def test_looks_through(how):
    env = TRANSPARENT[how]()
    assert agents.make("random", env, seed=1).task.n == 4
    assert acts(env) == acts(crawl())
    assert task_of(env).sources == Sources.preset("table1")


def test_looks_into_other_processes(closing):
    for env in (
        closing(AsyncVectorEnv([crawl] * 2)),
        closing(SubprocVecEnv([crawl, crawl])),
    ):
        assert acts(env) == acts(crawl())
        wrapped = (
            VecMonitor(env)
            if isinstance(env, SubprocVecEnv)
            else vector_wrappers.RecordEpisodeStatistics(env)
        )
        agent = agents.make("whittle", wrapped)
        start = wrapped.reset()
        seen = start if isinstance(start, np.ndarray) else start[0]
        assert wrapped.step(agent.predict(seen)[0])[0].shape == (2, 4, 1)


# -------------------------------------------------------------------------------------- refusals

REMEDY = "Pass the environment without that wrapper, such as env.unwrapped"
CHANGED = {
    "FlattenObservation": (lambda: wrappers.FlattenObservation(crawl()), "FlattenObservation"),
    "NormalizeObservation": (
        lambda: wrappers.NormalizeObservation(crawl()), "NormalizeObservation",
    ),
    "RescaleAction": (
        lambda: wrappers.RescaleAction(crawl(), np.float32(0), np.float32(1)), "changes actions",
    ),
    "SequentialSelection": (lambda: SequentialSelection(crawl(budget=2)), "observations are"),
    "vector NormalizeObservation": (
        lambda: vector_wrappers.NormalizeObservation(native()), "NormalizeObservation",
    ),
    "vector TransformAction": (
        lambda: vector_wrappers.TransformAction(native(), np.negative), "changes actions",
    ),
    "sync of normalised": (
        lambda: SyncVectorEnv([lambda: wrappers.NormalizeObservation(crawl())] * 2),
        "NormalizeObservation|observations are",
    ),
    "VecNormalize inside": (
        lambda: VecMonitor(VecNormalize(DummyVecEnv([crawl]))), "VecNormalize",
    ),
    "VecFrameStack": (lambda: VecFrameStack(CrawlVecEnv(2), 2), "observations are"),
}  # fmt: skip


@pytest.mark.parametrize("how", CHANGED)
def test_refuses_wrappers_that_change_what_is_seen_or_done(how):
    build, what = CHANGED[how]
    env = build()
    for name in ("whittle", "random"):
        with pytest.raises(ValueError, match=what) as caught:
            agents.make(name, env)
        assert REMEDY in str(caught.value)


def test_refuses_actions_changed_within_their_space():
    """As observations changed within theirs: turned round, the best source would come last."""
    env = wrappers.TransformAction(crawl(), lambda action: -action, None)
    with pytest.raises(ValueError, match=re.escape(REMEDY)):
        agents.make("whittle", env)


FOREIGN = {
    "env": cart,
    "unwrapped": lambda: cart().unwrapped,
    "SyncVectorEnv": lambda: SyncVectorEnv([cart] * 2),
    "native vector": lambda: gym.make_vec("CartPole-v1", 2, "vector_entry_point"),
    "DummyVecEnv": lambda: DummyVecEnv([cart]),
}


@pytest.mark.parametrize("how", FOREIGN)
def test_refuses_foreign_environments(how):
    with pytest.raises(ValueError, match=r"not an EphemeralCrawl environment; make one with gym"):
        agents.make("whittle", FOREIGN[how]())


@pytest.mark.parametrize("kind", [AsyncVectorEnv, SubprocVecEnv])
@pytest.mark.filterwarnings("ignore")
def test_refuses_foreign_environments_in_other_processes(closing, kind):
    env = closing(kind([cart]))
    with pytest.raises(ValueError, match=r"not an EphemeralCrawl environment; make one with gym"):
        agents.make("whittle", env)


@pytest.mark.parametrize("thing", [None, "EphemeralCrawl-v0", 3])
def test_refuses_what_is_no_environment(thing):
    with pytest.raises((ValueError, TypeError), match=r"gym\.make"):
        agents.make("whittle", thing)


def test_the_planner_is_found_by_name_and_not_listed():
    env = crawl(features=("age",))
    assert type(agents.make("planner", env)) is agents.Planner
    assert "planner" not in agents.AGENTS
    with pytest.raises(ValueError, match="name 'planner' is taken"):
        agents.register("planner", agents.Planner)


def test_the_clairvoyant_is_no_agent():
    assert "clairvoyant" not in agents.AGENTS
    with pytest.raises(ValueError, match=r"reference, not an agent.*evaluate\('clairvoyant'"):
        agents.make("clairvoyant", crawl())


def test_unknown_name_lists_what_there_is():
    with pytest.raises(ValueError, match="unknown agent 'zzz'") as caught:
        agents.make("zzz", crawl())
    for name in agents.AGENTS:
        assert name in str(caught.value)


def test_refuses_missing_features_and_channels():
    with pytest.raises(ValueError, match="needs one of the features value, age"):
        agents.make("whittle", crawl(features=("crawled",)))
    for name in ("nutch", "miniflux"):
        with pytest.raises(ValueError, match=f"{name}.*needs the feature crawled"):
            agents.make(name, crawl())
        with pytest.raises(ValueError, match=f"{name}.*needs one of the features items, harvest"):
            agents.make(name, crawl(features=("value", "crawled")))
    for name in ("whittle", "lagrangian", "static", "myopic", "fixed"):
        with pytest.raises(ValueError, match=r"add arrival_rate, .*, cost to `features`"):
            agents.make(name, crawl(sources=drawn))


# ------------------------------------------------------------- fleets drawn anew, known by channels


@pytest.mark.parametrize(
    "build",
    [
        lambda f: crawl(sources=f, features=CHANNELS),
        lambda f: native(sources=f, features=CHANNELS),
        lambda f: SyncVectorEnv([lambda: crawl(sources=f, features=CHANNELS)] * 2),
        lambda f: DummyVecEnv([lambda: crawl(sources=f, features=CHANNELS)] * 2),
        lambda f: CrawlVecEnv(2, sources=f, features=CHANNELS),
    ],
    ids=["env", "native", "sync", "dummy", "sb3"],
)
def test_drawn_fleets(build):
    env = build(lambda rng: Sources.random(4, rng))
    for name in BY_VALUE:
        assert agents.make(name, env).task.draw is not None


@pytest.mark.parametrize("kind", [AsyncVectorEnv, SubprocVecEnv])
@pytest.mark.filterwarnings("ignore")
def test_drawn_fleets_in_other_processes(closing, kind):
    """A function written on the spot cannot be sent between processes; the agent needs none."""
    make = lambda: crawl(sources=lambda rng: Sources.random(4, rng), features=CHANNELS)  # noqa: E731
    env = closing(kind([make]))
    agent = agents.make("whittle", env)
    start = env.reset()
    seen = start if isinstance(start, np.ndarray) else start[0]
    assert agent.predict(seen)[0].shape == (1, 4)


def test_tasks_hold_what_the_environment_was_given():
    for env in (
        crawl(sources="recovering-6", budget=3, features=("age",), observed=False),
        native(sources="recovering-6", budget=3, features=("age",), observed=False),
        CrawlVecEnv(2, sources="recovering-6", budget=3, features=("age",), observed=False),
    ):
        task = task_of(env)
        assert (task.n, task.budget, task.features) == (6, 3.0, ("age",))
        assert task.sources == Sources.preset("recovering-6")
        assert not task.observed.any()


def test_every_agent_is_a_public_class_with_its_name_and_registered_once():
    for name, kind in agents.AGENTS.items():
        assert kind.name == name
        assert getattr(agents, kind.__name__) is kind
        assert kind.__name__ in agents.__all__
        env = crawl(features=("value", "age", "crawled", "harvest"))
        made, own = agents.make(name, env, seed=3), kind(env, seed=3)
        assert type(made) is type(own) is kind
        assert own.task is env.unwrapped.task
        assert kind(own.task).task is own.task


def test_options_are_those_of_the_agent():
    env = crawl(features=("age", "crawled", "harvest", "value"))
    agent = agents.make("adaptive-optimism", env, confidence=0.7, estimator="fleet-prior")
    assert agent.confidence == 0.7
    with pytest.raises(TypeError, match="agent 'whittle' has no option 'estimator'; it takes none"):
        agents.make("whittle", env, estimator="fleet-prior")
    with pytest.raises(
        TypeError,
        match="'adaptive-thompson' has no option 'confidence'; it takes estimator",
    ):
        agents.make("adaptive-thompson", env, confidence=0.7)


def test_the_multiplier_is_found_when_the_agent_is_made(monkeypatch):
    env = crawl(budget=2.5, budget_rule="average", arrivals="poisson", sources="table1")
    players = [agents.make(name, env) for name in ("whittle", "whittle-exact", "lagrangian")]
    observation, _ = env.reset(seed=0)

    def unexpected(*arguments):
        raise AssertionError("λ* is found inside predict")

    monkeypatch.setattr(BudgetMultiplier, "_find", unexpected)
    for player in players:
        action, _ = player.predict(observation)
        assert np.isfinite(action).all()


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("lagrangian", {}),
        ("freshness", {"features": ("age",)}),
        ("whittle-conditional", {"features": ("age",), "observed": False, "unchanged_cost": 0.1}),
        ("whittle-looks", {"features": ("value", "seen"), "look_cost": 0.1}),
    ],
)
def test_an_agent_can_be_sent_to_another_process(name, task):
    env = crawl(**task)
    agent = agents.make(name, env)
    observation, _ = env.reset(seed=0)
    decided = agent.predict(observation)[0]
    sent = pickle.loads(pickle.dumps(agent))
    np.testing.assert_array_equal(sent.predict(observation)[0], decided)
