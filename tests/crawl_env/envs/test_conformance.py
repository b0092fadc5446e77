"""What Gymnasium and Stable-Baselines3 ask of an environment, over the grid of arguments."""

import itertools
import os
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils import env_checker
from stable_baselines3.common.env_checker import check_env as check_env_sb3

from crawl_env import CrawlEnv, ItemLog, Sources, Trace
from crawl_env.simulation.observation import SUMMED
from tests.crawl_env.env_plain import (
    CHANNELS,
    HIDDEN,
    ID,
    VARYING,
    unreachable_is_fine,
)

# Remarks that are right and meant; everything else is an error.
ALLOWED = {
    r".*Box observation space maximum value is infinity.*": "utility and age have no upper bound",
    r".*Box observation space minimum value is -infinity.*": "a balance can be overdrawn",
    r".*unconventional shape.*": "(N, F) is the contract; policies flatten it themselves",
    r"budget is .*": "the grid holds budgets that pay for every source",
}

IDS = sorted(name for name in gym.registry if name.startswith("EphemeralCrawl") and "/" not in name)
ARRIVALS = ["deterministic", "poisson-items", "poisson-lognormal-items"]
OBSERVED = {"seen": True, "unseen": False, "mixed": [True, False, True, False]}
FEATURES = {
    "value": ("value",),
    "hidden": HIDDEN,
    "known": ("age", "arrival_rate", "mean_utility", "decay_rate", "cost"),
    "all": tuple(CHANNELS),
}
STARTS = ["fresh", "empty", "full", "random"]
MIXED_COSTS = Sources([3.0, 0.2, 8.0, 0.7], [1, 4, 0.3, 2], [0.3, 0.1, 0.6, 0.2], [1, 2, 1, 1.5])


@pytest.fixture
def strict():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for message in ALLOWED:
            warnings.filterwarnings("ignore", message=message)
        yield


AXES = {
    "id": {name: name for name in IDS},
    "features": FEATURES,
    "arrivals": {name: name for name in ARRIVALS},
    "observed": OBSERVED,
    "budget_rule": {"step": "step", "average": "average"},
    "start": {name: name for name in STARTS},
    "horizon": {"endless": None, "5 epochs": np.int64(5)},
    "budget": {"1": 1, "2.5": 2.5},
    "sources": {"table1": "table1", "mixed costs": "mixed costs", "drawn": "drawn"},
}


def possible(chosen):
    """Return whether the arguments go together."""
    return not (chosen["start"] == "full" and "items" in FEATURES[chosen["features"]])


def covering_array():
    """Return few choices in which any two values that go together meet: each is the best of 200
    at random."""
    rng = np.random.default_rng(0)
    keys = {name: list(values) for name, values in AXES.items()}
    rest = {"features": "value", "start": "fresh"}
    missing = {
        frozenset([(a, i), (b, j)])
        for (a, left), (b, right) in itertools.combinations(keys.items(), 2)
        for i, j in itertools.product(left, right)
        if possible({**rest, a: i, b: j})
    }
    choices = []
    while missing:
        draws = [
            {name: values[rng.integers(len(values))] for name, values in keys.items()}
            for _ in range(200)
        ]
        best = max(filter(possible, draws), key=lambda c: len(missing & pairs_of(c)))
        missing -= pairs_of(best)
        choices.append(best)
    return choices


def pairs_of(choice):
    return {frozenset(pair) for pair in itertools.combinations(choice.items(), 2)}


CHOICES = covering_array()
GRID = [
    pytest.param(
        {name: AXES[name][key] for name, key in choice.items()}, id="-".join(choice.values())
    )
    for choice in CHOICES
]
# What does not go with every other argument.
ITEMS = {
    f"{name}-{see}-items": {
        "arrivals": name,
        "observed": OBSERVED[see],
        "features": ("changed", "items", *SUMMED) if see == "unseen" else ("value", *HIDDEN),
        "start": "random",
        "sources": "mixed costs",
        "budget": 2.5,
    }
    for name in ("poisson-items", *VARYING)
    for see in ("unseen", "mixed")
}
LIMITED = MIXED_COSTS.replaced(
    crawl_delay=[0, 2, 3, 0],
    capacity=[1, 3, np.inf, np.inf],
    failure_rate=[0, 0.3, 0.6, 0],
    hosts=["a", "a", "b", "b"],
)
LOG = ItemLog(
    MIXED_COSTS.names, np.arange(60) % 4, np.linspace(0, 29, 60), np.ones(60), start=0, end=30
)
for name, arrivals in (
    ("deterministic limits", "deterministic"),
    ("limits", "poisson-items"),
    ("a log", Trace(LOG)),
):
    ITEMS[name] = {
        "arrivals": arrivals,
        "features": (*CHANNELS, "available", "failed"),
        "observed": OBSERVED["mixed"],
        "start": "random",
        "sources": LIMITED,
        "budget": 2.5,
    }
GRID += [
    pytest.param({"id": IDS[number % len(IDS)], **arguments}, id=name)
    for number, (name, arguments) in enumerate(ITEMS.items())
]


def drawn(rng):
    fleet = Sources.random(4, rng)
    return Sources(fleet.arrival_rate, fleet.mean_utility, fleet.decay_rate, [1, 1, 2, 1])


def posed(arguments):
    """Return the id of an environment and its arguments."""
    arguments = dict(arguments)
    if isinstance(arguments["sources"], str):
        own = {"mixed costs": MIXED_COSTS, "drawn": drawn}
        arguments["sources"] = own.get(arguments["sources"], "table1")
    return arguments.pop("id"), arguments


def test_something_is_registered():
    assert ID in IDS


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("arguments", GRID)
def test_both_checks_of_environments_find_nothing(arguments):
    name, arguments = posed(arguments)
    with unreachable_is_fine():
        env = gym.make(name, **arguments)
    env_checker.check_env(env.unwrapped, skip_render_check=True)
    check_env_sb3(env)
    assert env.reset(seed=1)[0] in env.observation_space


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("number", range(len(CHANNELS)), ids=CHANNELS)
def test_every_feature_passes_both_checks(number):
    for i, arguments in enumerate(({}, {"arrivals": "poisson-items", "observed": False})):
        name, rule = IDS[(number + i) % len(IDS)], ("step", "average")[i]
        env = gym.make(name, features=CHANNELS[number], budget_rule=rule, **arguments)
        env_checker.check_env(env.unwrapped, skip_render_check=True)
        check_env_sb3(env)


@pytest.mark.usefixtures("strict")
def test_check_env_with_every_render_mode(monkeypatch):
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", os.environ.get("SDL_VIDEODRIVER", "dummy"))
    monkeypatch.setitem(CrawlEnv.metadata, "render_fps", 1000)  # nobody looks
    warnings.filterwarnings("ignore", message="pkg_resources")  # pygame 2.6 imports it
    env_checker.check_env(gym.make(ID).unwrapped)
    for mode in gym.make(ID).metadata["render_modes"]:
        env = gym.make(ID, render_mode=mode)
        check_env_sb3(env, skip_render_check=False)
        env = gym.make(ID, render_mode=mode)
        env.reset(seed=0)
        frame = env.render()
        kinds = {"rgb_array": np.ndarray, "ansi": str, "human": type(None)}
        assert isinstance(frame, kinds[mode])
        env.close()
        env.close()


@pytest.mark.parametrize("name", IDS)
def test_pictures_of_all_steps_are_collected(name):
    pytest.importorskip("pygame")
    env = gym.make(name, render_mode="rgb_array_list")
    env.reset(seed=0)
    env.step(env.action_space.sample())
    assert len(env.render()) == 2


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("name", IDS)
def test_check_env_with_the_wrappers_of_make(name):
    warnings.filterwarnings("ignore", message=r".*is different from the unwrapped version.*")
    env_checker.check_env(gym.make(name, budget=2), skip_render_check=True)


@pytest.mark.parametrize("name", IDS)
def test_the_native_vector_environment_equals_gymnasiums_own(name):
    """Step by step, with the same spaces; deterministic arrivals, since generators differ."""
    arguments = {"budget": 2, "features": ("value", "age", "harvest"), "horizon": 3}
    native = gym.make_vec(name, num_envs=3, **arguments)
    loop = gym.make_vec(name, num_envs=3, vectorization_mode="sync", **arguments)
    assert native.unwrapped.spec.id == loop.unwrapped.spec.id == name
    for space in ("observation_space", "action_space", "single_action_space"):
        assert getattr(native, space) == getattr(loop, space)
    for check in (
        env_checker.check_reset_return_type,
        env_checker.check_reset_seed_determinism,
        env_checker.check_reset_options,
    ):
        check(native)
    seen = [env.reset(seed=1)[0] for env in (native, loop)]
    native.action_space.seed(1)
    for _ in range(9):
        assert seen[0] in native.observation_space
        assert np.array_equal(*seen)
        action = native.action_space.sample()
        one, two = native.step(action), loop.step(action)
        for a, b in zip(one[:4], two[:4], strict=True):
            assert np.array_equal(a, b)
        seen = [one[0], two[0]]
