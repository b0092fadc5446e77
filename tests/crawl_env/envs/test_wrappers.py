"""SequentialSelection: one source at a time earns what choosing all at once earns."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as check_env_sb3

from crawl_env import Sources
from crawl_env.envs.wrappers import SequentialSelection
from tests.crawl_env.env_plain import (
    CHANNELS,
    COSTLY,
    ID,
    LIMITED,
    random_actions,
    unreachable_is_fine,
)
from tests.refusals import refused

torch.set_num_threads(1)


def make(**arguments):
    with unreachable_is_fine():
        return SequentialSelection(gym.make(ID, **arguments))


def masks_by_hand(cost, budget, picked, available=(1,) * 5, hosts=("",) * 5):
    left = round(budget - sum(cost[i] for i in picked), 9)
    busy = [*picked, *(i for i in range(len(cost)) for j in picked if hosts[i] == hosts[j] != "")]
    return [
        bool(available[i]) and i not in busy and round(float(c), 9) <= left
        for i, c in enumerate(cost)
    ]


@pytest.mark.parametrize(
    ("sources", "budget", "arrivals"),
    [
        ("table1", 1, "poisson-items"),
        ("table1", 3, "deterministic"),
        ("table1", 4, "poisson-items"),
        (COSTLY, 4, "deterministic"),
        (COSTLY, 2.5, "poisson-items"),
        (LIMITED.replaced(failure_rate=0.3), 4, "poisson-items"),
        (LIMITED.select([1, 2, 3]), 4, "poisson-items"),
    ],
    ids=["M=1", "M=3", "all", "mixed, M=4", "mixed, M=2.5", "limits", "delays"],
)
def test_an_epoch_of_picks_is_one_step_of_the_environment(sources, budget, arrivals):
    """Also where no source is available: then any pick ends the epoch, and nothing is crawled."""
    features = (*CHANNELS, "available", "failed")
    arguments = {
        "sources": sources,
        "budget": budget,
        "features": features,
        "arrivals": arrivals,
        "horizon": 5,
    }
    one = make(**arguments)
    with unreachable_is_fine():
        all_at_once = gym.make(ID, **arguments)
    rng = np.random.default_rng(0)
    cost, hosts = one.unwrapped.sources.cost, one.unwrapped.sources.hosts or ("",) * 5
    seen, _ = one.reset(seed=3)
    base, _ = all_at_once.reset(seed=3)
    idle = 0
    for _ in range(30):
        picked, available = [], base[:, features.index("available")]
        while True:
            assert seen.dtype == np.float32
            assert np.array_equal(seen[:, :-1], base)  # nothing changes within an epoch
            assert np.flatnonzero(seen[:, -1]).tolist() == sorted(picked)
            mask = one.action_masks()
            assert mask.dtype == bool
            assert mask.tolist() == masks_by_hand(cost, budget, picked, available, hosts)
            pick = int(rng.choice(np.flatnonzero(mask) if mask.any() else cost.size))
            picked += [pick] * int(mask.any())
            seen, reward, terminated, truncated, info = one.step(np.int64(pick))
            if not any(masks_by_hand(cost, budget, picked, available, hosts)):
                break
            assert (reward, terminated, truncated, info) == (0.0, False, False, {})
        idle += not picked
        priority = np.full(cost.size, -1.0, np.float32)
        priority[picked] = 1.0
        base, expected, _, over, _ = all_at_once.step(priority)
        assert type(reward) is float
        assert reward == expected
        assert (terminated, truncated) == (False, over)
        tried = base[:, features.index("crawled")] + base[:, features.index("failed")]
        assert np.flatnonzero(tried).tolist() == sorted(picked)
        if over:
            seen, base = one.reset()[0], all_at_once.reset()[0]
    assert (idle > 0) == (cost.size == 3)


def test_an_impossible_pick_is_replaced_by_the_oldest_possible():
    env = make(budget=2, features=("age", "crawled"))
    env.reset(options={"age": [3, 7, 7, 2]})
    env.step(0)
    seen = env.step(0)[0]  # taken already: 1 and 2 are the oldest, 1 the lower
    assert np.flatnonzero(seen[:, 1]).tolist() == [0, 1]
    seen = env.step(3)[0]
    seen = env.step(3)[0]
    assert np.flatnonzero(seen[:, 1]).tolist() == [2, 3]


def test_an_impossible_pick_never_becomes_one_that_costs_too_much():
    env = make(sources=COSTLY, budget=2, features=("crawled",))
    env.reset(options={"age": [1, 1, 2, 9, 1]})
    assert env.action_masks().tolist() == [True, True, True, False, True]
    env.step(3)  # 3 costs 3, and is the oldest; 2 is the oldest that can be paid
    assert env.action_masks().tolist() == [True, False, False, False, True]
    seen = env.step(1)[0]
    assert np.flatnonzero(seen[:, 0]).tolist() == [0, 2]


def test_rounding_does_not_lose_a_pick():
    fleet = Sources([1.0] * 5, 1.0, 1.0, [0.1] * 5)
    env = make(sources=fleet, budget=0.3)
    env.reset(seed=0)
    assert [env.step(i)[1] > 0 for i in range(3)] == [False, False, True]


def test_fleets_drawn_anew_are_masked_by_their_own_costs():
    def draw(rng):
        fleet = Sources.random(5, rng)
        cost = rng.choice([1.0, 1.5, 2.0], 5)
        return Sources(fleet.arrival_rate, fleet.mean_utility, fleet.decay_rate, cost)

    env = make(sources=draw, budget=3, features=("cost", "crawled"), horizon=3)
    seen, _ = env.reset(seed=0)
    rng, picked = np.random.default_rng(0), []
    for _ in range(40):
        mask = masks_by_hand(seen[:, 0], 3, picked)
        assert env.action_masks().tolist() == mask
        picked.append(int(rng.choice(np.flatnonzero(mask))))
        seen, _, _, over, _ = env.step(picked[-1])
        if not seen[:, -1].any():
            assert np.flatnonzero(seen[:, 1]).tolist() == sorted(picked)
            picked = []
        if over:
            seen, _ = env.reset()


def test_a_reset_in_the_middle_of_an_epoch_forgets_the_picks():
    env = make(budget=3)
    env.reset(seed=0)
    assert env.step(2)[0][:, -1].tolist() == [0, 0, 1, 0]
    seen, info = env.reset(seed=0)
    assert not info["crawled"].any()
    assert not seen[:, -1].any()
    assert env.action_masks().all()


def test_spaces():
    env = make(budget=2, features=("value", "crawled", "balance"))
    assert env.action_space == gym.spaces.Discrete(4)
    box = env.observation_space
    assert (box.shape, box.dtype) == ((4, 4), np.float32)
    assert box.low[0].tolist() == [0, 0, -np.inf, 0]
    assert box.high[0].tolist() == [np.inf, 1, np.inf, 1]
    seen, _ = env.reset(seed=0)
    for action in random_actions(env, 30):
        assert seen in box
        seen, *_ = env.step(action)


def test_flat_observations_have_the_same_rows():
    rows, flat = (make(budget=2, features=("value", "age"), flat=flat) for flat in (False, True))
    assert flat.observation_space.shape == (12,)
    seen = [env.reset(seed=0)[0] for env in (rows, flat)]
    for action in random_actions(rows, 9):
        assert np.array_equal(seen[0].ravel(), seen[1])
        assert seen[1] in flat.observation_space
        seen = [env.step(action)[0] for env in (rows, flat)]


def test_nothing_returned_is_a_view_of_the_state():
    clean, spoilt = (make(budget=2, features=("value", "age")) for _ in range(2))
    clean.reset(seed=0)
    spoilt.reset(seed=0)[0][...] = 77
    for action in random_actions(clean, 12):
        expected, got = clean.step(action), spoilt.step(action)
        assert np.array_equal(expected[0], got[0])
        assert expected[1:4] == got[1:4]
        for array in got[4].values():
            if isinstance(array, np.ndarray):
                array[...] = True
        got[0][...] = 77
        spoilt.action_masks()[...] = False


def test_what_cannot_be_wrapped_is_refused():
    with refused("EphemeralCrawl"):
        SequentialSelection(gym.make("CartPole-v1"))
    with refused("budget_rule='step'", "'average'"):
        SequentialSelection(gym.make(ID, budget_rule="average"))


@pytest.mark.parametrize(
    "wrap",
    [gym.wrappers.FlattenObservation, gym.wrappers.NormalizeObservation],
    ids=["flattened", "normalised"],
)
def test_an_environment_whose_observations_were_changed_is_refused_or_told_of(wrap):
    """Whatever is inside, the observations must lie in the space that the wrapper declares."""
    env = gym.make(ID, features=("crawled",), budget=2)
    try:
        outer = SequentialSelection(wrap(env))
    except ValueError:
        return
    seen, _ = outer.reset(seed=0)
    for action in random_actions(outer, 10):
        assert seen in outer.observation_space
        seen, *_ = outer.step(action)


@pytest.mark.parametrize("action", [-1, 4, 100, 1.5, np.nan, np.zeros(2, int), "1"], ids=str)
def test_what_is_no_number_of_a_source_is_refused(action):
    env = make(budget=2)
    env.reset(seed=0)
    out_of_range = "0 … 3" if isinstance(action, int) else "action"
    with refused("action", out_of_range):
        env.step(action)


@pytest.mark.parametrize("kind", [int, np.int64, np.uint8, np.array], ids=str)
def test_any_whole_number_will_do(kind):
    env = make(budget=1, features=("crawled",))
    env.reset(seed=0)
    assert np.flatnonzero(env.step(kind(2))[0][:, 0]) == [2]


# ------------------------------------------------------------------------- libraries


@pytest.mark.parametrize(
    ("features", "sources", "flat"),
    [
        (("value",), "table1", False),
        (tuple(CHANNELS), COSTLY, False),
        (("value",), COSTLY, True),
        (tuple(CHANNELS), "table1", True),
    ],
    ids=["value", "all features", "flat", "all features, flat"],
)
def test_check_env(features, sources, flat):
    form = {"flat": flat, "scaled": flat}
    env = make(sources=sources, budget=3, features=features, arrivals="poisson-items", **form)
    with warnings.catch_warnings():
        for message in (
            "Box observation space m.*imum value is -?infinity",  # utility has no upper bound
            "unconventional shape",  # (N, F) is the contract
            "different from the unwrapped version",  # a wrapper is what is checked here
            "Not able to test alternative render modes",
        ):
            warnings.filterwarnings("ignore", message=f".*{message}")
        check_env(env, skip_render_check=True, skip_close_check=True)
        check_env_sb3(env)


def test_a_saved_state_goes_on_between_two_picks():
    one = make(budget=3, arrivals="poisson-items", features=CHANNELS)
    one.reset(seed=0)
    for action in (0, 1, 2, 3):  # an epoch, and the first pick of the next
        seen, *_ = one.step(action)
    state = one.get_state()
    after = [one.step(action) for action in (1, 2, 0)]
    other = make(budget=3, arrivals="poisson-items", features=CHANNELS)
    other.reset(seed=1)
    np.testing.assert_array_equal(other.set_state(state), seen)
    assert other.action_masks().tolist() == [True, True, True, False]
    for (mine, reward, *_), action in zip(after, (1, 2, 0), strict=True):
        theirs, same, *_ = other.step(action)
        np.testing.assert_array_equal(theirs, mine)
        assert same == reward
    other.step(0)
    other.set_state(other.unwrapped.get_state())  # in which nothing is picked
    assert other.action_masks().all()
