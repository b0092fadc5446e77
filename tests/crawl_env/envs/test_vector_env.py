"""The vector environment is a loop of scalar ones, bit for bit where nothing is random, and resets
itself exactly as Gymnasium's SyncVectorEnv does. See `test_states` for what is random."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from crawl_env import CrawlEnv, CrawlVectorEnv, Sources
from tests.crawl_env.env_plain import (
    CHANNELS,
    HIDDEN,
    ID,
    LIMITED,
    MIXED,
    PARAMETERS,
    random_actions,
    same,
    unreachable_is_fine,
)

MODES = list(AutoresetMode)
BY_VALUE = lambda mode: mode.value  # noqa: E731
COSTLY = MIXED.replaced(cost=[0.1, 0.7, 0.3, 1.1, 0.2])
FLEETS = {
    "unit costs": (MIXED, 2),
    "one crawl": (MIXED, 1),
    "mixed costs": (COSTLY, 1.3),
    "limits": (LIMITED.replaced(capacity=np.inf), 4),
}
FEATURES = {"value": ("value",), "hidden": HIDDEN, "all": tuple(CHANNELS)}


def same_infos(vec, info, loop):
    """Last observations are laid out as by SyncVectorEnv; `harvest` has what was crawled."""
    assert ("final_obs" in info) == ("final_obs" in loop)
    if "final_obs" in info:
        assert info["_final_obs"].dtype == loop["_final_obs"].dtype
        assert np.array_equal(info["_final_obs"], loop["_final_obs"])
        for a, b in zip(info["final_obs"], loop["final_obs"], strict=True):
            assert (a is None) == (b is None)
            assert a is None or (a.dtype == b.dtype and np.array_equal(a, b))
    if "crawled" in loop and vec.autoreset_mode is not AutoresetMode.SAME_STEP:
        crawled, collected = np.zeros(loop["crawled"].shape, bool), np.zeros(loop["crawled"].shape)
        crawled.reshape(-1)[vec.harvest.picked] = True
        collected.reshape(-1)[vec.harvest.picked] = vec.harvest.value
        assert np.array_equal(crawled, loop["crawled"])
        assert np.array_equal(collected, loop["collected"])


def both(rows, mode, **arguments):
    with unreachable_is_fine():
        vec = CrawlVectorEnv(rows, autoreset_mode=mode, **arguments)
        arguments.pop("max_episode_steps", None)
        loop = SyncVectorEnv([lambda: CrawlEnv(**arguments)] * rows, autoreset_mode=mode)
    return vec, loop


def tying(actions, t):
    """Make many priorities of every other row equal, so that ties decide."""
    if actions.dtype.kind == "f":
        actions = actions.copy()
        actions[t % 2 :: 2] = np.round(actions[t % 2 :: 2])
    return actions


def staggered(rows, n):
    age = np.random.default_rng(1).integers(0, 4, n).astype(float)
    return {"age": age, "value": np.arange(1.0, n + 1) / 3}


def compare(vec, loop, steps, stagger=True):
    """Step both with the same actions; under DISABLED, reset what is over, and more, by a mask."""
    rows, n = vec.num_envs, vec.task.n
    a, b = vec.reset(seed=0), loop.reset(seed=0)
    assert np.array_equal(a[0], b[0])
    assert a[1] == {}
    assert not b[1]["crawled"].any()
    rng = np.random.default_rng(3)
    if stagger and rows > 1:  # episodes then end at different times
        for t in range(2):
            action = random_actions(vec, 1, 90 + t)[0]
            vec.step(action)
            loop.step(action)
        mask = np.arange(rows) % 2 == 0
        for options in ({}, staggered(rows, n)):
            given = {"reset_mask": mask.copy(), **options}
            one, _ = vec.reset(options=given)
            assert set(given) == {"reset_mask", *options}  # the caller's dictionary is left alone
            two, _ = loop.reset(options={"reset_mask": mask.copy(), **options})
            assert np.array_equal(one, two)
    over = np.zeros(rows, dtype=bool)
    for t, action in enumerate(random_actions(vec, steps, 4)):
        if vec.autoreset_mode is AutoresetMode.DISABLED and over.any():
            mask = over | (rng.random(rows) < 0.2)
            one, _ = vec.reset(options={"reset_mask": mask.copy()})
            two, _ = loop.reset(options={"reset_mask": mask.copy()})
            assert np.array_equal(one, two)
        action = tying(action, t)
        one, two = vec.step(action), loop.step(action)
        assert same(one[:1], two[:1]), t
        assert same(one[2:4], two[2:4]), t
        assert one[1].dtype == two[1].dtype == np.float64
        assert np.array_equal(one[1], two[1]), (t, one[1] - two[1])
        same_infos(vec, one[4], two[4])
        over = one[3]


# Every pair of mode, rule, fleet and features; starts and observations in turn.
COMBINATIONS = [
    (mode, rule, fleet, features)
    for a, mode in enumerate(MODES)
    for b, fleet in enumerate(FLEETS)
    for features in [list(FEATURES)[(a + b) % 3]]
    for rule in ("step", "average")
]


@pytest.mark.parametrize(("mode", "rule", "fleet", "features"), COMBINATIONS, ids=str)
def test_equals_a_loop_of_scalar_environments(mode, rule, fleet, features):
    sources, budget = FLEETS[fleet]
    number = COMBINATIONS.index((mode, rule, fleet, features))
    start = ("fresh", "empty", "full", "fresh")[number % 4]
    shown = tuple(name for name in FEATURES[features] if start != "full" or name != "items")
    arguments = {
        "sources": sources,
        "budget": budget,
        "budget_rule": rule,
        "features": shown,
        "horizon": 5,
        "start": start,
        "observed": number % 5 > 1,
    }
    compare(*both(4, mode, **arguments), steps=25)
    compare(*both(1, mode, **arguments), steps=12)


@pytest.mark.parametrize("rule", ["step", "average"])
@pytest.mark.filterwarnings("ignore:budget is 30")
def test_rewards_agree_bit_for_bit_however_many_are_crawled(rule):
    """Sums must not depend on how many environments share a step, nor on ties in other ones."""
    unit, rng = Sources.random(20, seed=1), np.random.default_rng(2)
    mixed = Sources(
        unit.arrival_rate, unit.mean_utility, unit.decay_rate, rng.uniform(0.1, 0.5, 20)
    )
    budgets = [(unit, budget) for budget in (1, 2, 3, 4, 7, 8, 12, 19, 30)]
    for fleet, budget in [*budgets, (mixed, 3.3), (mixed, 0.6)]:
        arguments = {"sources": fleet, "budget": budget, "budget_rule": rule}
        vec, loop = both(3, AutoresetMode.NEXT_STEP, **arguments)
        compare(vec, loop, steps=40, stagger=False)


# ------------------------------------------------------------------------- the end of episodes


@pytest.mark.parametrize(
    ("horizon", "limit", "expected", "mode"),
    [
        (5, 3, 3, MODES[0]),
        (3, 5, 3, MODES[1]),
        (None, 4, 4, MODES[2]),
        (1, None, 1, MODES[0]),
    ],
    ids=str,
)
def test_the_smaller_of_horizon_and_time_limit(horizon, limit, expected, mode):
    vec = gym.make_vec(
        ID, num_envs=2, horizon=horizon, max_episode_steps=limit, autoreset_mode=mode
    )
    vec.reset(seed=0)
    ends = [vec.step(np.zeros((2, 4), np.float32))[3].tolist() for _ in range(expected)]
    assert ends == [[False, False]] * (expected - 1) + [[True, True]]
    if mode is AutoresetMode.NEXT_STEP:
        observation, reward, _, truncated, _ = vec.step(np.ones((2, 4), np.float32))
        assert np.array_equal(observation, vec.reset(seed=0)[0])
        assert reward.tolist() == [0.0, 0.0]
        assert truncated.tolist() == [False, False]
    if mode is AutoresetMode.DISABLED:
        with pytest.raises(gym.error.ResetNeeded, match=r"\[0, 1\].*reset_mask"):
            vec.step(np.zeros((2, 4), np.float32))
        vec.reset(options={"reset_mask": np.array([True, False])})
        with pytest.raises(gym.error.ResetNeeded, match=r"\[1\].*reset_mask"):
            vec.step(np.zeros((2, 4), np.float32))


def test_without_any_limit_it_goes_on():
    vec = gym.make_vec(ID, num_envs=2, horizon=None)
    vec.reset(seed=0)
    assert not any(vec.step(np.zeros((2, 4), np.float32))[3].any() for _ in range(700))


def test_bad_numbers_of_steps_and_of_environments_are_refused():
    for limit in (0, -1, 2.5):
        with pytest.raises(ValueError, match="max_episode_steps"):
            CrawlVectorEnv(2, max_episode_steps=limit)
    for number in (0, -1, 1.5, None):
        with pytest.raises(ValueError, match="num_envs"):
            CrawlVectorEnv(number)


def test_modes_by_name():
    for mode in ("NextStep", "SameStep", "Disabled", *MODES):
        vec = CrawlVectorEnv(2, autoreset_mode=mode)
        assert vec.metadata["autoreset_mode"] is AutoresetMode(mode)
    assert CrawlVectorEnv(2).metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


def test_metadata_is_not_shared():
    one = CrawlVectorEnv(2)
    CrawlVectorEnv(2, autoreset_mode="SameStep").metadata["spoilt"] = True
    assert one.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert "spoilt" not in one.metadata


# ------------------------------------------------------------------------- before the reset


@pytest.mark.parametrize(
    ("mode", "horizon"), list(zip(MODES, [None, 9, None], strict=True)), ids=str
)
def test_environments_that_were_never_reset_are_not_stepped(mode, horizon):
    """A first reset of some rows leaves the others without a state: refuse one or the other."""
    vec = CrawlVectorEnv(3, autoreset_mode=mode, horizon=horizon)
    with pytest.raises(gym.error.ResetNeeded, match="reset"):  # noqa: PT012
        vec.reset(seed=0, options={"reset_mask": np.array([True, False, True])})
        vec.step(np.zeros((3, 4), np.float32))


@pytest.mark.parametrize(
    ("mask", "error"),
    [
        pytest.param([True, False], TypeError, id="a list"),
        pytest.param(np.array([1, 0]), TypeError, id="numbers"),
        pytest.param(np.array([True]), ValueError, id="short"),
        pytest.param(np.array([[True, False]]), ValueError, id="two axes"),
        pytest.param(np.array([False, False]), ValueError, id="none"),
    ],
)
def test_bad_reset_masks_are_refused_as_gymnasium_does(mask, error):
    vec, loop = both(2, AutoresetMode.DISABLED)
    vec.reset(seed=0)
    loop.reset(seed=0)
    for env in (vec, loop):
        with pytest.raises(error, match="reset_mask"):
            env.reset(options={"reset_mask": mask})


def test_a_seed_for_each_environment_is_refused():
    with pytest.raises(ValueError, match=r"seed is \[3, 4\]; give one number, since all"):
        CrawlVectorEnv(2).reset(seed=[3, 4])


def test_options_for_all_rows_or_each():
    vec = CrawlVectorEnv(2, features=("value", "age"))
    seen, _ = vec.reset(options={"value": [1, 2, 3, 4]})
    assert seen[..., 0].tolist() == [[1, 2, 3, 4]] * 2
    each = np.arange(8.0).reshape(2, 4)
    seen, _ = vec.reset(options={"value": each, "age": [5, 6, 7, 8]})
    assert np.array_equal(seen[..., 0], each)
    assert seen[..., 1].tolist() == [[5, 6, 7, 8]] * 2
    seen, _ = vec.reset(options={"value": each + 10, "reset_mask": np.array([False, True])})
    assert np.array_equal(seen[..., 0], [each[0], each[1] + 10])
    for wrong in (np.zeros((3, 4)), np.zeros((4, 2)), np.zeros(2)):
        with pytest.raises(ValueError, match="value"):
            vec.reset(options={"value": wrong})
    with pytest.raises(ValueError, match="did you mean 'value'"):
        vec.reset(options={"valeu": each})


@pytest.mark.parametrize("shape", [(4,), (1, 4), (3, 4), (4, 2)], ids=str)
def test_priorities_of_another_number_of_rows_are_refused(shape):
    vec = CrawlVectorEnv(2)
    vec.reset(seed=0)
    with pytest.raises(ValueError, match=r"action has shape .* must have shape \(2, 4\)"):
        vec.step(np.zeros(shape, np.float32))


def fleets(rng):
    return Sources.random(5, rng)


# ------------------------------------------------------------------------- fleets drawn anew


@pytest.mark.parametrize("mode", MODES, ids=BY_VALUE)
def test_every_row_has_a_fleet_of_its_own(mode):
    vec = CrawlVectorEnv(
        3, sources=fleets, features=(*PARAMETERS, "value"), horizon=4, autoreset_mode=mode
    )
    seen, _ = vec.reset(seed=0)
    assert len(np.unique(seen[..., 0])) == 15
    for t in range(1, 4):
        now = vec.step(np.zeros((3, 5), np.float32))[0]
        assert np.array_equal(now[..., :4], seen[..., :4]), t
    mask = np.array([False, True, False])
    other, _ = vec.reset(options={"reset_mask": mask})
    assert np.array_equal(other[[0, 2], :, :4], seen[[0, 2], :, :4])
    assert not np.any(other[1, :, 0] == seen[1, :, 0])
    if mode is AutoresetMode.DISABLED:
        return
    later, _, _, truncated, info = vec.step(np.zeros((3, 5), np.float32))
    assert truncated.tolist() == [True, False, True]
    if mode is AutoresetMode.SAME_STEP:  # the last observation still shows the old fleet
        assert np.array_equal(info["final_obs"][0][:, :4], seen[0, :, :4])
    else:
        assert np.array_equal(later[..., :4], other[..., :4])
        later = vec.step(np.zeros((3, 5), np.float32))[0]
    assert not np.any(later[[0, 2], :, 0] == other[[0, 2], :, 0])
    assert np.array_equal(later[1, :, :4], other[1, :, :4])
    u = later[..., 0] * later[..., 1] / later[..., 2] * -np.expm1(-later[..., 2])
    np.testing.assert_allclose(later[[0, 2], :, 4], u[[0, 2]], rtol=1e-5)


def test_rows_with_costs_of_their_own():
    """Each row selects under its own costs, as scalar environments on these fleets do."""

    def draw(rng):
        fleet = Sources.random(5, rng)
        cost = rng.uniform(0.2, 1.0, 5)
        return Sources(fleet.arrival_rate, fleet.mean_utility, fleet.decay_rate, cost)

    for rule in ("step", "average"):
        arguments = {"budget": 1.3, "budget_rule": rule, "features": CHANNELS}
        vec = CrawlVectorEnv(4, sources=draw, **arguments)
        seen, _ = vec.reset(seed=0)
        scalars = [CrawlEnv(sources=vec.world.sources.fleet(row), **arguments) for row in range(4)]
        for row, env in enumerate(scalars):
            assert np.array_equal(env.reset(seed=0)[0], seen[row])
        for action in random_actions(vec, 25):
            seen, reward, *_ = vec.step(action)
            for row, env in enumerate(scalars):
                one = env.step(action[row])
                assert np.array_equal(one[0], seen[row])
                assert one[1] == pytest.approx(reward[row], rel=1e-13)


def test_a_fleet_of_another_period_is_refused_alike():
    """An epoch has one length in a task."""

    def draw(rng):
        return Sources([1.0, 2.0], 1.0, 1.0, period=float(rng.uniform(0.5, 2)))

    for env in (CrawlEnv(sources=draw), CrawlVectorEnv(1, sources=draw)):
        with pytest.raises(ValueError, match="period"):
            env.reset(seed=1)
    vec = CrawlVectorEnv(2, sources=draw)
    with pytest.raises(ValueError, match="period"):
        vec.reset(seed=1)
