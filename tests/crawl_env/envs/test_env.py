"""The scalar environment: its step against plain Python, and what must never happen."""

import pickle
import random
import sys

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from crawl_env import CrawlEnv, CrawlVectorEnv, Sources
from crawl_env.envs.wrappers import SequentialSelection
from tests.crawl_env.env_plain import (
    CHANNELS,
    HIDDEN,
    ID,
    MIXED,
    NEVER,
    PARAMETERS,
    TABLE1,
    VARYING,
    PlainCrawl,
    PlainSource,
    arrays_in,
    fleet_of,
    random_actions,
    run,
    unreachable_is_fine,
)
from tests.references import Z_LIMIT, plainly, z_of_share
from tests.trace import Trace

DECIMALS = ["0.1", "0.2", "0.3", "0.5", "0.7", "1", "1.5", "2", "2.1", "3"]
START_AGE = {"fresh": 1.0, "empty": 0.0, "full": NEVER}


@st.composite
def plain_fleets(draw):
    return draw(
        st.lists(
            st.builds(
                PlainSource,
                rate=st.sampled_from([0.0, 0.05, 1.0, 7.5, 250.0]),
                utility=st.sampled_from([0.0, 0.08, 1.0, 3.3]),
                decay=st.sampled_from([1e-4, 0.05, 0.35, 0.7, 4.0]),
                cost=st.sampled_from(DECIMALS),
            ),
            min_size=1,
            max_size=6,
        )
    )


@st.composite
def priorities(draw, n):
    """A few values, so that ties abound, or any."""
    few = st.sampled_from([-1.0, -0.5, -0.0, 0.0, 0.5, 1.0])
    cell = few if draw(st.booleans()) else st.floats(-1, 1, width=32)
    return np.array(draw(st.lists(cell, min_size=n, max_size=n)), dtype=np.float32)


def close(env, observation, plain):
    features = env.task.features
    assert observation.dtype == np.float32
    expected = plain.observation(features)
    np.testing.assert_allclose(observation, expected, rtol=3e-7, atol=1e-7)
    if "crawled" in features:
        column = observation[:, features.index("crawled")]
        assert set(np.flatnonzero(column)) == plain.crawled


# ------------------------------------------------------------------------- the step


@plainly
@given(
    fleet=plain_fleets(),
    budget=st.sampled_from(DECIMALS),
    rule=st.sampled_from(["step", "average"]),
    start=st.sampled_from(["fresh", "empty", "full"]),
    data=st.data(),
)
def test_a_priority_step_is_the_plain_one(fleet, budget, rule, start, data):
    assume(rule == "average" or min(float(s.cost) for s in fleet) <= float(budget))
    features = [name for name in CHANNELS if start != "full" or name != "items"]
    with unreachable_is_fine():
        env = CrawlEnv(
            sources=fleet_of(fleet),
            budget=float(budget),
            budget_rule=rule,
            start=start,
            features=features,
        )
    plain = PlainCrawl(fleet, budget, rule, START_AGE[start])
    close(env, env.reset(seed=0)[0], plain)
    for _ in range(10):
        priority = data.draw(priorities(len(fleet)))
        observation, reward, terminated, truncated, info = env.step(priority)
        expected = plain.step(plain.select(priority.tolist()))
        assert type(reward) is float
        assert reward == pytest.approx(expected, rel=1e-12, abs=1e-300)
        assert (terminated, truncated) == (False, False)
        assert set(np.flatnonzero(info["crawled"])) == plain.crawled
        assert info["collected"] == pytest.approx(plain.harvest, rel=1e-12)
        paid = sum(float(fleet[i].cost) for i in plain.crawled)
        assert info["cost"] == pytest.approx(paid, rel=1e-12)
        if rule == "average":
            assert info["balance"] == pytest.approx(float(plain.balance), abs=1e-9)
        else:
            assert "balance" not in info
        assert "failed" not in info
        close(env, observation, plain)


def crawled(env, action):
    """Return the sources that a step crawls; the environment shows `crawled` first."""
    return set(np.flatnonzero(env.step(np.array(action, dtype=np.float32))[0][:, 0]))


def test_priorities_are_only_an_order():
    """Beyond the box, infinite, and in double precision, they still sort."""
    env = CrawlEnv(budget=2, features=("crawled",))
    for action in ([-np.inf, np.inf, 0.0, -1.0], [-7.0, 7.0, 0.5 + 1e-12, 0.5]):
        env.reset(options={"age": [1, 1, 1, 9]})
        assert np.flatnonzero(env.step(np.array(action))[0]).tolist() == [1, 2]


# ------------------------------------------------------------------------- episodes


def test_step_before_reset_is_refused():
    many = CrawlVectorEnv(2)
    for env in (CrawlEnv(), gym.make(ID), many, SequentialSelection(CrawlEnv(budget=2))):
        action = 0 if isinstance(env, SequentialSelection) else np.zeros(env.action_space.shape)
        with pytest.raises(gym.error.ResetNeeded, match="reset"):
            env.step(action)


# ------------------------------------------------------------------------- no leak

OTHER = Sources([9.0, 0.01, 1.0, 30.0, 2.0], [0.1, 9.0, 2.0, 5.0, 0.0], [2.0, 0.01, 0.3, 1.0, 0.4])


def pair(one=MIXED, two=OTHER, **arguments):
    arguments = {"features": HIDDEN, "budget": 2, **arguments}
    return [CrawlEnv(sources=sources, **arguments) for sources in (one, two)]


def equal_infos(one, two):
    return set(one) == set(two) and all(np.array_equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"budget_rule": "average"},
        {"sources": Sources([1.0, 2.0], [1.0, 4.0], 0.3, failure_rate=0.5)},
        {"look_cost": 0.2},
        {"engine": {"rate": 2}},
        {
            "sources": Sources([1.0, 2.0], [1.0, 4.0], 0.3, topics=[0, 0]),
            "arrivals": {"name": "stories", "overlap": 0.5},
        },
    ],
    ids=str,
)
def test_the_info_of_a_reset_is_that_of_a_step_without_crawls(arguments):
    """Collectors of data, such as Minari's, expect the same keys and shapes of both."""
    env = CrawlEnv(**arguments)
    _, first = env.reset(seed=0)
    env.action_space.seed(0)
    steps = [env.step(env.action_space.sample())[4] for _ in range(5)]
    _, again = env.reset(seed=0)
    forms = [{key: np.shape(x) for key, x in info.items()} for info in (first, again, *steps)]
    assert all(form == forms[0] for form in forms)
    assert str(first) == str(again)
    assert first["cost"] == first["crawled"].sum() == first["collected"].sum() == 0


LAWS = ["deterministic", "poisson-items", "poisson-lognormal-items", *VARYING]
STARTS = ["fresh", "empty", "random", "full"]
LEAKS = [(law, STARTS[k % 4], k % 3 > 0) for k, law in enumerate(LAWS)]


@pytest.mark.parametrize(("arrivals", "start", "observed"), LEAKS, ids=str)
def test_nothing_tells_the_parameters_but_what_crawls_bring(arrivals, start, observed):
    """Sources 1 and 2 are silent, with other hidden parameters in the two worlds; the others, which
    differ in everything, are never crawled. Observation, reward, info and spaces are the same."""
    silent = Sources([0.0, 0.0], [1.0, 4.0], [0.3, 0.1])
    other = Sources([0.0, 0.0], [9.0, 0.2], [0.01, 2.0])
    worlds = [
        Sources(
            *(np.concatenate([getattr(part, p) for part in parts]) for p in TABLE1),
            failure_rate=[0.5, 0, 0.2, 0.2, 0.2] if arrivals == "deterministic" else 0.0,
        )
        for parts in ((silent, MIXED.select([2, 3, 4])), (other, OTHER.select([2, 3, 4])))
    ]
    features = [name for name in HIDDEN if start != "full" or name != "items"]
    for rule in ("step", "average"):
        one, two = pair(
            *worlds,
            features=features,
            start=start,
            arrivals=arrivals,
            observed=observed,
            budget_rule=rule,
            horizon=6,
        )
        assert one.observation_space == two.observation_space
        assert one.action_space == two.action_space
        (a, info_a), (b, info_b) = one.reset(seed=3), two.reset(seed=3)
        assert np.array_equal(a, b)
        assert equal_infos(info_a, info_b)
        for t in range(6):
            wanted = [0.5, t % 3 / 2, -1, -1, -1] if rule == "step" or t % 2 else [-0.5] * 5
            a, b = (env.step(np.array(wanted, np.float32)) for env in (one, two))
            assert np.array_equal(a[0], b[0])
            assert a[1:4] == b[1:4] == (0.0, False, t == 5)
            assert equal_infos(a[4], b[4])
            assert a[4]["crawled"][2:].sum() == 0


# ------------------------------------------------------------------------- arrivals, seeds


@pytest.mark.parametrize(("arrivals", "count"), [(law, k % 2 > 0) for k, law in enumerate(LAWS)])
def test_arrivals_are_the_same_whatever_is_done(arrivals, count):
    """Give back what was crawled, aged: every policy, budget and rule has seen one world."""
    shared = {
        "sources": MIXED,
        "arrivals": arrivals,
        "features": ("crawled", "items") if count else ("crawled", "value"),
        "horizon": 6,
    }
    envs = [
        CrawlEnv(**shared, budget=2),
        CrawlEnv(**shared, budget=3, budget_rule="average"),
        CrawlEnv(**shared, budget=2, observed=False),
        CrawlEnv(**shared, budget=1, budget_rule="average"),
    ]
    choose = [random_actions(env, 20, seed) for seed, env in enumerate(envs[:3])]
    choose.append([np.full(5, -1, np.float32)] * 20)
    histories = []
    for env, actions in zip(envs, choose, strict=True):
        env.reset(seed=11)
        taken, items, history = np.zeros(5), np.zeros(5), [env.world.value[0].copy()]
        for action in actions:
            before = env.world.value[0].copy()
            items_before = env.world.items[0].copy() if count else 0
            seen, _, _, over, _ = env.step(action)
            now = seen[:, 0] == 1
            taken = (taken + np.where(now, before, 0)) * np.exp(-MIXED.decay_rate)
            items = items + np.where(now, items_before, 0)
            history.append(env.world.value[0] + taken)
            if count:
                history.append(env.world.items[0] + items)
            if over:
                env.reset()
                taken, items = np.zeros(5), np.zeros(5)
                history.append(env.world.value[0].copy())
        histories.append(history)
    for history in histories[:-1]:
        for a, b in zip(history, histories[-1], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


RANDOM = {
    "sources": MIXED,
    "arrivals": "poisson-items",
    "observed": [True, False, True, False, False],
    "features": CHANNELS,
    "start": "random",
    "budget": 2,
    "horizon": 6,
}


@pytest.mark.parametrize("rows", [None, 3])
def test_the_generators_of_python_and_numpy_are_left_alone(rows):
    def used():
        return pickle.dumps((random.getstate(), np.random.get_state()))  # noqa: NPY002

    arguments = {**RANDOM, "sources": lambda rng: Sources.random(5, rng)}
    before = used()
    env = CrawlEnv(**arguments) if rows is None else CrawlVectorEnv(rows, **arguments)
    env.reset(seed=5)
    run(env, random_actions(env, 8))
    assert used() == before


@pytest.mark.parametrize("rows", [None, 3])
@pytest.mark.parametrize("features", [("value",), ("value", "crawled")])
def test_what_a_step_returned_stays_and_a_refused_step_changes_nothing(rows, features):
    env = CrawlEnv(budget=2, features=features)
    if rows is not None:
        env = CrawlVectorEnv(rows, budget=2, features=features)
    env.reset(seed=0)
    rng, kept = np.random.default_rng(0), []
    for _ in range(20):
        action = rng.random(env.action_space.shape, dtype=np.float32)
        returned = env.step(action)
        kept += [(array, array.copy()) for array in arrays_in(returned[:4])]
        if rows is None:  # the memory of an earlier info is free again
            crawled, collected = returned[4]["crawled"], returned[4]["collected"]
            assert np.flatnonzero(crawled).tolist() == np.flatnonzero(collected).tolist()
            assert crawled.sum() == 2
        action.flat[-1] = np.nan
        before = env._simulation.harvest
        with pytest.raises(ValueError, match="NaN"):
            env.step(action)
        for one, other in zip(before[:2], env._simulation.harvest[:2], strict=True):
            assert np.array_equal(one, other)
    for earlier, copy_ in kept:
        assert np.array_equal(earlier, copy_)


def test_what_was_given_is_not_kept():
    mask = np.array([True, False, True, False, True])
    value, age = np.arange(1.0, 6.0), np.arange(2.0, 7.0)
    env = CrawlEnv(**{**RANDOM, "observed": mask, "features": ("value", "age")})
    first, _ = env.reset(seed=0, options={"value": value, "age": age})
    state = env.get_state()
    mask[...], value[...], age[...] = True, 0.0, 0.0
    assert env.task.observed.tolist() == [True, False, True, False, True]
    assert np.array_equal(env.set_state(state), first)


# ------------------------------------------------------------------------- reset options


def test_options_set_value_and_age():
    env = CrawlEnv(features=("value", "age"))
    u = env.sources.inflow
    seen, _ = env.reset(options={"value": [1, 2, 3, 4], "age": [5, 6, 7, 8]})
    assert seen.tolist() == [[1, 5], [2, 6], [3, 7], [4, 8]]
    seen, _ = env.reset(options={"value": [1, 2, 3, 4]})
    assert seen.tolist() == [[1, 1], [2, 1], [3, 1], [4, 1]]
    seen, _ = env.reset(options={"age": [0, 1, 2, NEVER]})
    assert seen[:, 1].tolist() == [0, 1, 2, NEVER]
    expected = [0, u[1], u[2] * 1.4965853, 250 * 0.08 / 0.21]
    assert seen[:, 0] == pytest.approx(expected, rel=1e-6)
    seen, _ = env.reset(options={})
    assert np.array_equal(seen, env.reset()[0])
    assert seen[:, 1].tolist() == [1] * 4


@pytest.mark.parametrize("start", ["full", "random"])
def test_options_override_the_start(start):
    env = CrawlEnv(features=("value", "age", "balance"), start=start, budget_rule="average")
    env.reset(seed=0)
    env.step(np.ones(4, np.float32))
    seen, _ = env.reset(options={"value": [1, 2, 3, 4], "age": [5, 6, 7, 8]})
    assert seen.tolist() == [[1, 5, 1], [2, 6, 1], [3, 7, 1], [4, 8, 1]]


BAD_OPTIONS = [
    pytest.param({"value": [1, 2, 3]}, ["value", "shape", r"\(4,\)"], id="short value"),
    pytest.param({"age": [[1], [2], [3], [4]]}, ["age", "shape"], id="a column of ages"),
    pytest.param({"value": 3.0}, ["value", "shape"], id="a number"),
    pytest.param({"value": [1, np.nan, 3, 4]}, ["value", "finite"], id="NaN value"),
    pytest.param({"age": [1, np.nan, 3, 4]}, ["age", "finite"], id="NaN age"),
    pytest.param({"age": [1, np.inf, 3, 4]}, ["age", "finite"], id="infinite age"),
    pytest.param({"value": [1, 1e300, 3, 4]}, ["value", "finite in float32"], id="huge value"),
    pytest.param({"value": [1, -1, 3, 4]}, ["value", "positive"], id="negative value"),
    pytest.param({"age": [1, -1, 3, 4]}, ["age", "positive"], id="negative age"),
    pytest.param({"value": ["a", "b", "c", "d"]}, ["value"], id="words"),
    pytest.param({"vlaue": [1, 2, 3, 4]}, ["vlaue", "did you mean 'value'"], id="misspelt"),
    pytest.param({"ages": [1, 2, 3, 4]}, ["ages", "did you mean 'age'"], id="plural"),
    pytest.param(5, ["options is 5; give a dictionary"], id="no dictionary"),
]


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS)
def test_bad_options_are_refused(options, words):
    env, several = CrawlEnv(), CrawlVectorEnv(num_envs=2)
    env.reset(seed=0)
    for word in words:
        with pytest.raises(ValueError, match=word):
            env.reset(options=options)
        with pytest.raises(ValueError, match=word):
            several.reset(options=options)


def test_refused_options_leave_the_state_alone():
    env = CrawlEnv(features=("value", "age"))
    env.reset(options={"value": [1, 2, 3, 4]})
    state = env.get_state()
    with pytest.raises(ValueError, match="age"):
        env.reset(options={"value": [4, 3, 2, 1], "age": [1, 2, 3, np.nan]})
    after = env.get_state()
    for a, b in zip(arrays_in(state), arrays_in(after), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("arrivals", ["deterministic", "poisson-items"])
def test_an_age_without_a_count_of_items_is_refused_alike(arrivals):
    """start='full' is refused where items are counted; so must be the same state by options."""
    env = CrawlEnv(features=("items",), arrivals=arrivals)
    with pytest.raises(ValueError, match="items"):
        env.reset(seed=0, options={"age": [1, 1, 1, NEVER]})


# ------------------------------------------------------------------------- starts


@pytest.mark.filterwarnings("ignore:budget is .* at most")
@pytest.mark.parametrize(("n", "budget", "longest"), [(4, 1, 4), (3, 3, 1), (7, 2.5, 3)])
def test_random_ages_are_uniform(n, budget, longest):
    fleet = Sources([1.0] * n, 1.0, 0.3)
    vec = CrawlVectorEnv(
        2000, sources=fleet, budget=budget, start="random", features=("value", "age")
    )
    seen, _ = vec.reset(seed=1)
    age = seen[..., 1].astype(float)
    assert set(np.unique(age)) == set(range(1, longest + 1))
    for k in range(1, longest + 1 if longest > 1 else 1):
        assert abs(z_of_share(age.ravel() == k, 1 / longest)) < Z_LIMIT
    np.testing.assert_allclose(seen[..., 0], -np.expm1(-0.3 * age) / 0.3, rtol=1e-6)


# ------------------------------------------------------------------------- fleets drawn anew


def fleets(rng):
    return Sources.random(5, rng)


def parameters_of(sources):
    return np.stack([getattr(sources, p) for p in PARAMETERS], axis=-1).astype(np.float32)


def test_a_fleet_is_drawn_at_each_reset():
    env = gym.make(ID, sources=fleets, features=(*PARAMETERS, "value"), horizon=4)
    drawn = []
    for seed in (0, None, None):
        seen, _ = env.reset(seed=seed)
        sources = env.unwrapped.sources
        assert np.array_equal(seen[:, :4], parameters_of(sources))
        assert seen[:, 4] == pytest.approx(sources.inflow, rel=1e-6)
        drawn.append(sources)
        seen, reward, *_ = env.step(np.array([0, 0, 1, 0, 0], np.float32))
        assert reward == pytest.approx(sources.inflow[2], rel=1e-12)
        assert np.array_equal(seen[:, :4], parameters_of(sources))  # and kept in between
        expected = sources.inflow * (1 + sources.retention * [1, 1, 0, 1, 1])
        assert seen[:, 4] == pytest.approx(expected, rel=1e-6)
    assert drawn[0] != drawn[1] != drawn[2]
    env.reset(seed=0)
    assert env.unwrapped.sources == drawn[0]


class Changing:
    """Draws fleets that are all right until asked for the second time after construction."""

    def __init__(self, later):
        self.later, self.calls = later, 0

    def __call__(self, rng):
        self.calls += 1
        return Sources.random(3, rng) if self.calls <= 2 else self.later


def costs(*cost):
    return Sources([1.0] * len(cost), 1.0, 1.0, cost)


@pytest.mark.parametrize(
    ("later", "arguments", "words"),
    [
        pytest.param(Sources.random(4), {}, ["sources", "fleet of 3"], id="another N"),
        pytest.param("table1", {}, ["sources", "fleet of 3"], id="a name"),
        pytest.param(
            Sources.stack([costs(1, 1, 1)] * 2), {}, ["sources", "fleet of 3"], id="a batch"
        ),
        pytest.param(costs(3, 2, 2), {}, ["budget", "average"], id="nothing affordable"),
    ],
)
def test_a_fleet_that_does_not_fit_is_refused(later, arguments, words):
    for word in words:
        env = CrawlEnv(sources=Changing(later), **arguments)
        env.reset(seed=0)
        with pytest.raises(ValueError, match=word):
            env.reset()


def test_changed_costs_are_respected():
    env = CrawlEnv(sources=Changing(costs(1, 3, 2)), budget=2, features=("crawled", "cost"))
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="budget is 2.*more.*: 1"):
        seen, _ = env.reset()
    assert seen[:, 1].tolist() == [1, 3, 2]
    assert crawled(env, [0, 1, 0.5]) == {2}
    assert crawled(env, [0, 1, -1]) == {0}


@pytest.mark.parametrize(
    ("action", "words"),
    [
        pytest.param(np.zeros(3, np.float32), ["action", r"\(3,\)", r"\(4,\)"], id="short"),
        pytest.param(np.zeros((1, 4), np.float32), ["action", r"\(4,\)"], id="a row"),
        pytest.param(np.float32(0), ["action", r"\(4,\)"], id="a number"),
        pytest.param(np.array(["a"] * 4), ["action", "numbers"], id="words"),
        pytest.param(np.zeros(4, complex), ["action", "numbers"], id="complex"),
        pytest.param(np.array([None] * 4), ["action", "numbers"], id="objects"),
        pytest.param(np.full(4, np.nan), ["action", "NaN", "number"], id="all NaN"),
        pytest.param(np.array([0, np.nan, 1, 1]), ["action", "NaN", "source 1"], id="one NaN"),
    ],
)
def test_bad_priorities_are_refused(action, words):
    for rule, budget in (("step", 1), ("step", 2), ("average", 1)):
        env = CrawlEnv(budget=budget, budget_rule=rule)
        env.reset(seed=0)
        state = env.get_state()
        for word in words:
            with pytest.raises(ValueError, match=word):
                env.step(action)
        for a, b in zip(arrays_in(state), arrays_in(env.get_state()), strict=True):
            assert np.array_equal(a, b)


@pytest.mark.parametrize("kind", ["list", "int", "bool", "float64", "float16"])
def test_any_numbers_will_do_as_priorities(kind):
    env = CrawlEnv(features=("crawled",))
    env.reset(seed=0)
    action = [0, 0, 1, 0] if kind == "list" else np.array([0, 0, 1, 0], dtype=kind)
    assert np.flatnonzero(env.step(action)[0]) == [2]


@pytest.mark.parametrize(
    ("arrivals", "most"), [({}, 5), ({"arrivals": "poisson", "observed": False}, 7)]
)
def test_a_step_is_seen_through_in_few_files(arrivals, most):
    """A random one draws the totals of a stock, with random numbers, which are three files more."""
    env = CrawlEnv("table1", 2, features=("value", "crawled", "harvest"), **arrivals)
    env.reset(seed=0)
    action, trace, before = env.action_space.sample(), Trace(), sys.getprofile()
    env.step(action)  # at first, functions are compiled
    sys.setprofile(trace)
    try:
        env.step(action)
    finally:
        sys.setprofile(before)
    assert len({*trace.files}) <= most, {*trace.files}
    top = trace.files.index("crawl_env/simulation/top.py")
    assert {*trace.files[:top]} <= {"crawl_env/envs/env.py", "crawl_env/simulation/simulation.py"}
