"""Arguments of the environments: what is made of them, and what is said when they are wrong."""

import re

import gymnasium as gym
import numpy as np
import pytest

import agents
from crawl_env import CrawlEnv, CrawlVectorEnv, Deterministic, Sources, Task
from tests.crawl_env.env_plain import ID, TABLE1

MAKERS = {
    "task": Task,
    "scalar": CrawlEnv,
    "vector": lambda **arguments: CrawlVectorEnv(2, **arguments),
    "gym.make": lambda **arguments: gym.make(ID, **arguments),
    "gym.make_vec": lambda **arguments: gym.make_vec(ID, num_envs=2, **arguments),
}


def costs(*cost):
    return Sources([1.0] * len(cost), 1.0, 1.0, cost)


def test_the_defaults_are_table_1_one_crawl_deterministic():
    env = gym.make(ID)
    task = env.unwrapped.task
    assert task.sources == Sources(**TABLE1)
    assert task.sources.cost.tolist() == [1.0] * 4
    assert task.sources.period == 1.0
    assert (task.budget, task.budget_rule, task.horizon) == (1.0, "step", 500)
    assert isinstance(task.arrivals, Deterministic)
    assert task.observed.tolist() == [True] * 4
    assert task.features == ("value",)
    assert (task.start, task.draw) == ("fresh", None)
    assert env.spec.max_episode_steps == 500
    assert env.action_space == gym.spaces.Box(-1.0, 1.0, (4,), dtype=np.float32)
    assert env.observation_space == gym.spaces.Box(0.0, np.inf, (4, 1), dtype=np.float32)
    assert env.render_mode is None


def test_sources_in_every_form(tmp_path):
    fleet = Sources(**TABLE1)
    path, packed = tmp_path / "fleet.csv", tmp_path / "Fleet.csv.gz"
    fleet.to_csv(path)
    fleet.to_csv(packed)
    for sources in (fleet, "table1", path, str(path), str(packed), lambda rng: fleet):
        task = CrawlEnv(sources=sources).task
        for parameter in (*TABLE1, "cost"):
            assert np.array_equal(getattr(task.sources, parameter), getattr(fleet, parameter))
        assert (task.draw is None) == (not callable(sources))


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        (True, [True] * 4),
        (False, [False] * 4),
        (np.True_, [True] * 4),
        ([True, False, False, True], [True, False, False, True]),
        ((True, False, False, True), [True, False, False, True]),
        (np.array([True, False, False, True]), [True, False, False, True]),
    ],
    ids=str,
)
def test_observed_in_every_form(observed, expected):
    assert CrawlEnv(observed=observed).task.observed.tolist() == expected


@pytest.mark.parametrize("features", ["age", ["age"], ("age",), np.array(["age"])], ids=repr)
def test_features_in_every_form(features):
    env = CrawlEnv(features=features)
    assert list(env.task.features) == ["age"]
    assert env.observation_space.shape == (4, 1)


BAD = {
    # name: arguments, what the message has to say: the argument, the fact and the remedy
    "unknown preset": ({"sources": "tabel1"}, ["tabel1", "did you mean 'table1'", "recovering"]),
    "unknown law": (
        {"arrivals": "poisson-lognromal"},
        ["arrivals", "mean 'poisson-lognormal'"],
    ),
    "arrivals of no kind": ({"arrivals": 3}, ["arrivals", "3", "poisson", "Trace"]),
    "unknown rule": ({"budget_rule": "setp"}, ["budget_rule", "did you mean 'step'"]),
    "unknown start": ({"start": "ful"}, ["start", "did you mean 'full'"]),
    "no budget": ({"budget": 0}, ["budget", "0", "positive"]),
    "NaN budget": ({"budget": np.nan}, ["budget", "nan", "positive and finite"]),
    "budget of words": ({"budget": "two"}, ["budget", "two", "positive"]),
    "budget below every cost": (
        {"sources": costs(2, 3), "budget": 1.5},
        ["budget is 1.5", "costs 2", "Raise the budget", "average"],
    ),
    "budget just below": ({"budget": 1 - 1e-9}, ["budget", "nothing", "Raise"]),
    "observed short": ({"observed": [True, False]}, ["observed", "one bool for each of 4"]),
    "observed a column": ({"observed": [[True]] * 4}, ["observed", "4"]),
    "observed of numbers": ({"observed": [1, 0, 1, 0]}, ["observed", "bool"]),
    "observed a word": ({"observed": "yes"}, ["observed", "True, False"]),
    "no horizon": ({"horizon": 0}, ["horizon is 0", "at least 1"]),
    "half a horizon": ({"horizon": 2.5}, ["horizon is 2.5", "whole number of steps"]),
    "full with items": ({"start": "full", "features": ("items",)}, ["start='full'", "leave out"]),
    "features None": ({"features": None}, ["features"]),
    "sources None": ({"sources": None}, ["sources", "preset", "csv"]),
    "sources a batch": ({"sources": Sources.stack([costs(1, 1)] * 2)}, ["sources", "one fleet"]),
    "sources a batch of columns": (
        {"sources": {"arrival_rate": [[1, 2]], "mean_utility": 1, "decay_rate": 1}},
        ["sources", "one fleet"],
    ),
    "sources drawing nothing": ({"sources": lambda rng: None}, ["sources", "Sources"]),
}


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words[0]) as error:
        CrawlEnv(**arguments)
    for word in words:
        assert re.search(word, str(error.value))


@pytest.mark.parametrize("maker", MAKERS)
def test_an_unknown_argument_is_a_type_error_in_pythons_words_with_a_suggestion(maker):
    """Libraries probe environments with arguments of their own and look for these words."""
    words = r"__init__\(\) got an unexpected keyword argument 'bugdet'.*did you mean 'budget'\?"
    with pytest.raises(TypeError, match=words):
        MAKERS[maker](bugdet=2)
    with pytest.raises(TypeError, match=r"keyword argument 'zzz'.*Known: .*budget_rule"):
        MAKERS[maker](zzz=2)
    with pytest.raises(TypeError, match=r"keyword argument 'period'.*give it to Sources"):
        MAKERS[maker](period=2)
    with pytest.raises(ValueError, match="budget is 0"):
        MAKERS[maker](budget=0)


@pytest.mark.parametrize("maker", MAKERS)
def test_a_budget_for_everything_is_warned_of(maker):
    """The warning reaches whoever makes an environment."""
    for given in ({}, {"budget_rule": "average"}):
        with pytest.warns(UserWarning, match=r"budget is 5.*nothing to decide"):
            MAKERS[maker](budget=5, **given)
        MAKERS[maker](budget=4, **given)  # just enough is no warning


def test_sources_too_dear_are_named():
    fleet = Sources([1.0] * 3, 1.0, 1.0, [1, 3, 9], names=("news", "blog", "wiki"))
    with pytest.warns(UserWarning, match=r"budget is 2;.*never be crawled: 'blog', 'wiki'\. Raise"):
        Task(fleet, 2)
    Task(fleet, 2, budget_rule="average")


def test_many_sources_too_dear_are_cut_short():
    with pytest.warns(UserWarning, match=r"crawled: 1, 2, 3, 4, 5, …\. Raise"):
        CrawlEnv(sources=costs(1, *[9] * 50), budget=2)


@pytest.mark.parametrize(
    ("cost", "budget", "most"),
    [((1, 1, 1), 1.5, "1"), ((2, 4, 6), 7, "6"), ((0.25, 0.5, 0.75), 0.9, "0.75")],
)
def test_a_budget_that_cannot_be_used_up_is_warned_of(cost, budget, most):
    fleet = costs(*cost)
    words = rf"budget is {budget:g}, .* at most {most} .*budget={most}, or budget_rule='average'"
    with pytest.warns(UserWarning, match=words):
        Task(fleet, budget)
    Task(fleet, budget, budget_rule="average")
    Task(fleet, float(most))


def test_budgets_that_can_nearly_be_used_up_are_no_reason_to_warn():
    CrawlEnv(sources=costs(*[1.0] * 3000), budget=2000.5)
    CrawlEnv(sources=Sources([1.0] * 4, 1.0, 1.0, [0.61, 1.13, 1.7, 0.937519]), budget=1.9)
    CrawlEnv(sources=costs(0.1, 0.2, 0.25), budget=0.3)


def test_costs_that_sum_to_the_budget_but_for_rounding_are_no_reason_to_warn():
    CrawlEnv(sources=costs(*[0.1] * 3), budget=0.3)
    CrawlEnv(sources=costs(0.3), budget=0.1 * 3)
    env = CrawlEnv(sources=costs(0.1 * 3), budget=0.3, features=("crawled",))
    env.reset(seed=0)
    assert env.step(np.zeros(1, np.float32))[0] == [[1]]


@pytest.mark.parametrize("mode", ["nope", 3], ids=str)
@pytest.mark.parametrize("maker", ["scalar", "vector"])
def test_an_unknown_render_mode_is_refused(maker, mode):
    with pytest.raises(ValueError, match="render_mode"):
        MAKERS[maker](render_mode=mode)


@pytest.mark.parametrize("utility", [1e40, 1e-45], ids=["infinite", "zero"])
def test_values_that_float32_cannot_show_are_refused(utility):
    with pytest.raises(ValueError, match="another unit of utility"):
        Task(sources=Sources([1.0, 2.0], utility, 0.1))


def test_what_is_printed_of_a_task_and_its_agents():
    task = Task(
        "fleet-f",
        2.5,
        budget_rule="average",
        arrivals="poisson-items",
        observed=[True] * 24 + [False],
        scaled=True,
    )
    text = repr(task)
    assert text.startswith("Task(sources=Sources(25 sources, period=1), budget=2.5, budget_rule='a")
    assert "arrivals=Arrivals(rate=Constant(), utility=Exponential(" in text
    assert text.endswith(", observed='24 of 25', scaled=True)")
    assert repr(agents.Whittle(Task())) == f"Whittle({Task()!r})"
    assert repr(Task(observed=False)).endswith("period=1), budget=1, observed=False)")
