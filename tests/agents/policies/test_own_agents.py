"""Mistakes in agents of one's own, and in what they are given, are named."""

from typing import ClassVar

import numpy as np
import pytest

from agents import (
    Agent,
    IndexAgent,
    ObservationView,
    Thompson,
    Whittle,
    compare,
    evaluate,
    whittle_index,
)
from crawl_env import CrawlEnv

TASK = {"budget": 2}


class Own(IndexAgent):
    name = "own"


class Scalar(Own):
    def index(self, value, sources):
        return 1.0


class Forgotten(Agent):
    def priority(self, view):
        view["value"]


class Text(Agent):
    features = "age"


class Uninitialised(Own):
    def __init__(self, env, *, seed=None):
        pass


class NoState(Agent):
    def decide(self, view, state):
        return view["value"] / 1e3


class BeginsWrongly(Agent):
    def begin(self, view):
        return np.zeros((view.batch, 4))


class BeginsWithNumbers(Agent):
    def begin(self, view):
        return (0.0,)


class OneRow(Own):
    def index(self, value, sources):
        return value[0]


@pytest.mark.parametrize(
    ("agent", "error", "message"),
    [
        (Own, NotImplementedError, r"Own must implement index\(value, sources\)"),
        (Scalar, ValueError, r"index of shape \(\); .* one number for each source, \(3, 4\)"),
        (Forgotten, ValueError, r"Forgotten returned None as priorities; .* of shape \(3, 4\)"),
        (Text, ValueError, r"Text has features = 'age', which is text; .* \('age',\)"),
        (OneRow, ValueError, r"index of shape \(4,\); .* \(3, 4\)"),
        (3, ValueError, "agent is 3; give a name, a subclass"),
        (Uninitialised, ValueError, r"Uninitialised without a task; call super\(\).__init__"),
        (Uninitialised(None), ValueError, "Uninitialised without a task"),
        (NoState, ValueError, r"NoState.decide returned (.|\n)*; return the priorities and the "),
        (BeginsWrongly, ValueError, r"BeginsWrongly.begin returned (.|\n)*; return a tuple of "),
        (BeginsWithNumbers, ValueError, r"begin returned \(0.0,\); .* the batch, here of 3"),
    ],
    ids=lambda part: part.__name__ if isinstance(part, type) else None,
)
def test_a_wrong_agent_is_named(agent, error, message):
    with pytest.raises(error, match=message):
        evaluate(agent, TASK, steps=2, warmup=0, seeds=3)


def test_priorities_and_state_may_be_a_list():
    class Listed(Agent):
        def decide(self, view, state):
            return [view["value"] / 1e3, state]

    assert evaluate(Listed, TASK, steps=2, warmup=0, seeds=3).reward.shape == (3,)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_an_observation_that_no_source_can_have_is_named(value):
    observation = np.zeros((4, 1), dtype=np.float32)
    observation[2] = value
    with pytest.raises(ValueError, match=f"the observation has {value} as value of source 2"):
        Whittle(CrawlEnv()).predict(observation)


def test_a_feature_that_is_not_shown_or_unknown_is_named():
    env = CrawlEnv()
    view = ObservationView(env.reset(seed=0)[0], env.task)
    with pytest.raises(ValueError, match="does not show the feature age; it shows value"):
        view["age"]
    with pytest.raises(ValueError, match="unknown feature 'agee'; did you mean 'age'"):
        view["agee"]


def test_what_is_no_state_no_fleet_and_no_list_is_understood_or_named():
    env = CrawlEnv(features=("value", "age", "crawled", "harvest"))
    policy = Thompson(env)
    state = np.zeros(3)
    with pytest.raises(ValueError, match="give the tuple that predict returned"):
        policy.predict(env.reset(seed=0)[0], state)
    fleet = 100.0
    with pytest.raises(ValueError, match=r"sources is 100\.0; give a Sources"):
        whittle_index(1.0, fleet)
    assert list(compare("whittle", TASK, steps=2, warmup=0, seeds=1)) == ["whittle"]


@pytest.mark.parametrize("function", [evaluate, compare])
def test_a_misspelt_keyword_suggests_the_nearest(function):
    message = r"got an unexpected keyword argument 'step'; did you mean 'steps'\?"
    with pytest.raises(TypeError, match=message):
        function("whittle", TASK, step=3)


def test_a_class_of_another_base_observes_the_features_that_it_states():
    class Plain:
        features = ("age", "value")

        def __init__(self, env, *, seed=None):
            assert env.task.features == ("value", "age")  # those of the task come first

        def predict(self, observation, *_, deterministic):
            return np.ones(observation.shape[:-1]), None

    assert evaluate(Plain, TASK, steps=2, warmup=0, seeds=3).reward.min() > 0


def test_the_features_of_an_agent_may_be_a_list():
    class Listed(Agent):
        features: ClassVar = ["age"]

        def priority(self, view):
            return view["age"] / (1 + view["age"])

    assert evaluate(Listed, TASK, steps=2, warmup=0, seeds=3).reward.min() > 0
