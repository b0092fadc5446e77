"""`env.spec`: true of the environment, and written as JSON without loss."""

import json
import pickle
from collections import UserDict, UserList

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import TimeLimit
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl_env import (
    ArrivalProcess,
    Arrivals,
    Constant,
    CrawlEnv,
    DailyCycle,
    DecayCurves,
    Deterministic,
    DiminishingReturns,
    Drift,
    Hawkes,
    ItemLog,
    Jumps,
    Regimes,
    Sources,
    Trace,
)
from crawl_env.content.names import describe_arrivals, make_arrivals
from crawl_env.content.rates import RateModel
from crawl_env.content.utility import DECAYS, UTILITIES, Gamma, Lognormal, LomaxDecay
from crawl_env.envs.wrappers import SequentialSelection, SubsetAction
from tests.crawl_env.env_plain import ID

N = 3
LOG = ItemLog(
    ["1", "2", "3"],
    [0, 1, 0, 2],
    [0.1, 1 / 3, 2.7, 4.0],
    [1.5, 0.1, 2.0, 1 / 7],
    start=0,
    end=6,
    curves=DecayCurves([0, 2, 2, 2, 4], [0, 1 / 3, 0, 2], [1, 0.3, 1, 0]),
)


def again(env):
    return gym.make(EnvSpec.from_json(strict(env.spec.to_json())))


def strict(text):
    """Return JSON that any reader accepts, not only Python's."""

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    json.loads(text, parse_constant=refuse)
    return text


def history(env, steps=8):
    rng = np.random.default_rng(0)
    found = [env.reset(seed=5)[0].tobytes()]
    for _ in range(steps):
        observation, reward, *_, truncated, _ = env.step(
            rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        )
        ends = np.asarray(truncated)
        found.append(observation.tobytes() + np.float64(reward).tobytes() + ends.tobytes())
        if ends.any():
            break
    return found


def length(env):
    env.reset(seed=0)
    env.action_space.seed(0)
    steps = 1
    while not env.step(env.action_space.sample())[3]:
        steps += 1
    return steps


# --------------------------------------------------------------------------------- time limits


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        ({}, 500),
        ({"horizon": 7}, 7),
        ({"max_episode_steps": 6}, 6),
        ({"horizon": 7, "max_episode_steps": 6}, 6),
        ({"horizon": 7, "max_episode_steps": 8}, 7),
        ({"horizon": None, "max_episode_steps": 6}, 6),
        ({"horizon": 7, "max_episode_steps": -1}, 7),
    ],
)
def test_the_spec_states_when_episodes_end(arguments, steps):
    env = gym.make(ID, **arguments)
    assert env.spec.max_episode_steps == steps
    assert length(env) == steps
    for other in (gym.make(env.spec), again(env), gym.make(pickle.loads(pickle.dumps(env.spec)))):
        assert other.spec.max_episode_steps == steps
    assert length(other) == steps


@pytest.mark.parametrize("name", ["EphemeralCrawlFlat-v0", "EphemeralCrawlDiscrete-v0"])
def test_the_specs_of_the_other_ids(name):
    env = gym.make(name, budget=2, horizon=7, max_episode_steps=6)
    vec = gym.make_vec(name, num_envs=2, budget=2, horizon=7, max_episode_steps=6)
    other = gym.make_vec(EnvSpec.from_json(strict(vec.spec.to_json())))
    for one in (env, gym.make(env.spec), again(env), vec, other):
        assert one.spec.max_episode_steps == 6
    assert length(again(env)) == 6
    assert again(env).observation_space == env.observation_space


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [({}, 500), ({"horizon": 7, "max_episode_steps": 5}, 5), ({"horizon": None}, None)],
)
def test_the_spec_of_a_vector_environment(arguments, steps):
    vec = gym.make_vec(ID, num_envs=2, budget=2, autoreset_mode="SameStep", **arguments)
    other = gym.make_vec(EnvSpec.from_json(strict(vec.spec.to_json())))
    for one in (vec, other):
        assert one.spec.max_episode_steps == steps
        assert one.num_envs == 2
        assert one.metadata["autoreset_mode"].value == "SameStep"
    if steps == 5:
        vec.reset(seed=0)
        ends = [bool(vec.step(vec.action_space.sample())[3].all()) for _ in range(5)]
        assert ends == [False] * 4 + [True]


@pytest.mark.parametrize("limit", [None, 3])
def test_picks_count_as_steps(limit):
    """A step of `SequentialSelection` is a pick: an episode has as many as budget × steps."""
    inner = gym.make(ID, budget=2, horizon=4)
    env = SequentialSelection(inner if limit is None else TimeLimit(inner, limit))
    picks = 2 * (limit or 4)
    assert env.spec.max_episode_steps == picks
    assert length(env) == picks
    for other in (gym.make(env.spec), again(env)):
        assert other.spec.max_episode_steps == picks
        assert length(other) == picks
    assert inner.spec.max_episode_steps == 4


@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_the_kind_of_vector_environment_is_part_of_the_spec(mode):
    vec = gym.make_vec(ID, num_envs=3, vectorization_mode=mode, budget=2, horizon=4)
    other = gym.make_vec(EnvSpec.from_json(strict(vec.spec.to_json())))
    assert type(other.unwrapped) is type(vec.unwrapped)
    assert history(other) == history(vec)


def test_other_mappings_and_sequences_are_written_too():
    """As those of OmegaConf, which Hydra gives."""
    features, arrivals = UserList(["value", "age"]), UserDict(name="poisson", rate="drift")
    env = gym.make(ID, budget=2, features=features, arrivals=arrivals)
    assert history(again(env)) == history(env)


@pytest.mark.parametrize("wrapper", [SubsetAction, SequentialSelection])
def test_wrappers_are_part_of_the_spec(wrapper):
    env = wrapper(gym.make(ID, budget=2, horizon=4, arrivals="poisson-items"))
    for other in (again(env), gym.make(pickle.loads(pickle.dumps(env.spec)))):
        assert isinstance(other, wrapper)
        assert other.spec.to_json() == env.spec.to_json()
        assert runs(other) == runs(env)


def runs(env):
    env.reset(seed=3)
    return [env.step(k % 3)[1] for k in range(8)]


# ----------------------------------------------------------------------------------- arguments

positive = st.floats(1e-3, 1e3)
rates = st.one_of(
    st.sampled_from(["constant", "drift", "jumps", "cycle", "hawkes"]),
    st.just(Constant()),
    st.builds(Drift, st.floats(0, 0.5), st.floats(0, 1)),
    st.builds(Jumps, st.floats(0, 2), st.sampled_from(list(UTILITIES))),
    st.builds(Jumps, st.just(0.5), st.builds(Lognormal, st.floats(0.1, 2))),
    st.builds(
        DailyCycle,
        st.floats(0, 1),
        positive,
        st.lists(st.floats(-30, 30), min_size=N, max_size=N),
        st.none() | st.lists(st.floats(0.1, 5), min_size=1, max_size=24),
    ),
    st.builds(Hawkes, st.floats(0, 0.9), positive),
    st.builds(Regimes, st.floats(1, 50), st.floats(0, 1)),
)
utilities = st.one_of(st.sampled_from(list(UTILITIES)), st.builds(Gamma, st.floats(0.1, 5)))
decays = st.one_of(st.sampled_from(list(DECAYS)), st.builds(LomaxDecay, st.floats(1.2, 5)))
arrivals = st.one_of(
    st.sampled_from(["deterministic", "poisson", "poisson-items"]),
    st.just(Deterministic()),
    st.builds(
        Arrivals,
        rate=rates,
        utility=utilities,
        decay=decays,
        sampler=st.sampled_from(["total", "items"]),
    ),
    st.builds(Trace, st.just(LOG), st.booleans(), decays),
)


@st.composite
def fleets(draw, plain):
    def column(values):
        return draw(st.lists(values, min_size=N, max_size=N))

    limits = {}
    if not plain:
        limits = {
            "capacity": column(st.sampled_from([1.0, 4.0, np.inf])),
            "crawl_delay": column(st.floats(0, 3)),
            "failure_rate": column(st.floats(0, 0.9)),
            "hosts": draw(st.sampled_from([("a", "a", ""), ()])),
        }
    return Sources(
        column(st.just(0.0) | st.floats(0.01, 20)),
        column(positive),
        column(st.floats(0.05, 2)),
        column(st.sampled_from([0.5, 1.0, 1 / 3])),
        period=draw(st.floats(0.1, 3)),
        topics=draw(st.sampled_from([("a", "", "a"), ()])),
        **limits,
    )


@pytest.mark.filterwarnings("ignore:budget is")
@settings(max_examples=40)
@given(st.data())
def test_every_argument_survives_json(data):
    process = data.draw(arrivals)
    plain = not getattr(make_arrivals(process), "items", False)
    arguments = {
        "sources": data.draw(fleets(plain)),
        "budget": data.draw(st.sampled_from([1, np.float64(1.25), np.float32(1.5)])),
        "budget_rule": data.draw(st.sampled_from(["step", "average"])),
        "arrivals": process,
        "observed": data.draw(
            st.one_of(
                st.booleans(),
                st.lists(st.booleans(), min_size=N, max_size=N),
                st.lists(st.booleans(), min_size=N, max_size=N).map(np.array),
            )
        ),
        "features": data.draw(st.sampled_from(["value", ("age", "value"), ["crawled", "cost"]])),
        "horizon": data.draw(st.one_of(st.none(), st.just(np.int64(5)), st.integers(1, 20))),
        "start": data.draw(st.sampled_from(["fresh", "empty", "full", "random"])),
        "per_host": data.draw(st.integers(1, 2)),
        "payoff": data.draw(st.sampled_from([None, DiminishingReturns(2.5)])),
    }
    env = gym.make(ID, **arguments, disable_env_checker=True)
    expected = history(env)
    for other in (again(env), gym.make(pickle.loads(pickle.dumps(env.spec)))):
        for name in ("sources", "budget", "features", "horizon", "payoff"):
            assert getattr(other.unwrapped.task, name) == getattr(env.unwrapped.task, name)
        assert other.observation_space == env.observation_space
        assert other.action_space == env.action_space
        assert history(other) == expected


def test_paths_and_dictionaries(tmp_path):
    LOG.to_csv(tmp_path / "log.csv")
    Sources.random(3).to_csv(tmp_path / "fleet.csv")
    env = gym.make(
        ID,
        sources=tmp_path / "fleet.csv",
        arrivals={"name": "trace", "log": str(tmp_path / "log.csv"), "random_start": False},
    )
    assert history(env) == history(again(env))
    by_path = gym.make(ID, sources=tmp_path / "fleet.csv", arrivals=tmp_path / "log.csv")
    assert history(by_path) == history(again(by_path))
    by_name = CrawlEnv(arrivals={"name": "poisson", "rate": {"name": "drift", "sigma": 0.3}})
    assert by_name.task.arrivals == Arrivals(rate=Drift(0.3))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"arrivals": {"rate": "drift"}}, "needs the entry 'name'"),
        ({"arrivals": {"name": "poison"}}, "did you mean 'poisson'"),
        ({"arrivals": {"name": "poisson", "rtae": "drift"}}, "did you mean 'rate'"),
        ({"arrivals": {"name": "deterministic", "rate": "drift"}}, "unknown parameter"),
        ({"arrivals": {"name": "trace"}}, "give a crawl_env.ItemLog"),
        ({"arrivals": {"name": "poisson", "rate": {"name": "drift", "sgima": 1}}}, "'sigma'"),
        ({"arrivals": {"name": "poisson", "utility": {"name": "constant", "a": 1}}}, "unknown"),
        ({"sources": {"arrival_rate": [1], "mean_utility": [1]}}, "lacks decay_rate"),
        ({"sources": {"arival_rate": [1]}}, "did you mean 'arrival_rate'"),
    ],
)
def test_a_wrong_dictionary_is_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        CrawlEnv(**arguments)


class Own(Deterministic):
    """A process of one's own."""


class OwnRate(Constant):
    """A rate model of one's own."""


class OwnDecay(LomaxDecay):
    """A decay function of one's own."""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sources": lambda rng: Sources.random(3, rng)}, "sources is a callable"),
        ({"arrivals": Own()}, "class Own"),
        ({"arrivals": Arrivals(rate=OwnRate())}, "class OwnRate"),
        ({"arrivals": Arrivals(decay=OwnDecay())}, "class OwnDecay"),
    ],
)
def test_what_json_cannot_hold_is_refused(arguments, words):
    env = gym.make(ID, **arguments)
    with pytest.raises(ValueError, match=words) as refusal:
        env.spec.to_json()
    assert "entry point" in str(refusal.value)
    assert history(env) == history(gym.make(env.spec))  # within one process nothing is lost


def test_the_remedy_works():
    """An id whose entry point makes what JSON cannot hold."""
    gym.register("OwnCrawl-v0", entry_point=f"{__name__}:own_crawl")
    try:
        env = gym.make("OwnCrawl-v0", budget=2)
        assert env.spec.max_episode_steps == 9
        assert history(env) == history(again(env))
    finally:
        del gym.registry["OwnCrawl-v0"]


def own_crawl(**arguments):
    return CrawlEnv(sources=lambda rng: Sources.random(3, rng), horizon=9, **arguments)


def test_every_known_part_is_described():
    """A part that is added to a table of names, but cannot be described, is found here."""
    for rate in ("constant", "drift", "jumps", "cycle", "hawkes"):
        for utility in UTILITIES:
            for decay in DECAYS:
                made = Arrivals(rate=rate, utility=utility, decay=decay)
                assert make_arrivals(json.loads(json.dumps(describe_arrivals(made)))) == made
    assert issubclass(OwnRate, RateModel)
    assert issubclass(Own, ArrivalProcess)
