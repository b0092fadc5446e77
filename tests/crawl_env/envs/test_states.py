"""States, copies and seeds of every kind of task, alone and in rows: whatever a task has is in its
state, belongs to it alone, and depends on the seed, not on what is crawled elsewhere."""

import copy
import pickle

import joblib
import numpy as np
import pytest

from crawl_env import (
    Arrivals,
    CrawlEnv,
    CrawlVectorEnv,
    DailyCycle,
    Deadline,
    Drift,
    Engine,
    Hawkes,
    ItemLog,
    Jumps,
    Regimes,
    Signals,
    Sources,
    Stories,
    Trace,
)
from crawl_env.content.utility import Gamma
from crawl_env.simulation.observation import SUMMED
from tests.crawl_env.env_plain import CHANNELS, arrays_in, random_actions, run, same

PARAMETERS = {
    "arrival_rate": [3.0, 0.2, 8.0, 0.7, 1.1],
    "mean_utility": [1.0, 4.0, 0.3, 2.0, 1.0],
    "decay_rate": [0.3, 0.1, 0.6, 0.2, 0.05],
}
LIMITS = {
    "cost": [1, 2, 1, 0.5, 1],
    "crawl_delay": [0, 2, 0, 3.5, 0],
    "failure_rate": [0.3, 0, 0, 0.6, 0.2],
    "hosts": ["a", "a", "", "b", "b"],
}
FLEET = Sources(**PARAMETERS, period=0.5)
CAPPED = Sources(**PARAMETERS, capacity=[2, 9, 5, np.inf, 1])
COUNTED = ("value", "items", "changed")


def recorded():
    rng, n = np.random.default_rng(0), 90
    times, worth = rng.uniform(0, 30, n), rng.exponential(size=n)
    return ItemLog(FLEET.names, rng.integers(0, 5, n), times, worth, 0, 30)


def drawn(rng):
    return Sources.random(5, rng)


def varying(rate, fleet=FLEET):
    arrivals = Arrivals(rate=rate, sampler="items")
    return {"sources": fleet, "arrivals": arrivals, "features": COUNTED}


TASKS = {
    "nothing random but failures": {
        "sources": Sources(**PARAMETERS, **LIMITS),
        "arrivals": "deterministic",
        "features": (*CHANNELS, "available", "failed"),
    },
    "items": {"features": CHANNELS},
    "totals": {"arrivals": "poisson", "features": ("value", "age"), "start": "full"},
    "other laws": {"arrivals": Arrivals(utility=Gamma(0.5), decay="lomax")},
    "fleets drawn anew": {"sources": drawn, "features": CHANNELS},
    "costs": {"sources": Sources(**PARAMETERS, cost=[1, 2, 1, 3, 1]), "features": CHANNELS},
    "all limits": {
        "sources": Sources(**PARAMETERS, **LIMITS, capacity=[1, 3, np.inf, 1, np.inf]),
        "arrivals": "poisson-lomax-items",
        "features": (*CHANNELS, "available", "failed"),
    },
    "drift": varying(Drift(0.3, 0.1)),
    "jumps": varying(Jumps(0.4), CAPPED),
    "cycle": varying(DailyCycle(0.9, day=3, phase=[0, 1, 2, 3, 4])),
    "bursts": varying(Hawkes(0.6, 2.0)),
    "bursts at capacities": varying(Hawkes(0.6, 2.0), CAPPED),
    "regimes": varying(Regimes(4.0, 0.3)),
    "a log": {"sources": FLEET, "arrivals": Trace(recorded()), "features": CHANNELS},
    "the last items of a log": {"sources": CAPPED, "arrivals": Trace(recorded())},
    "an engine": {"engine": Engine(3.3, 9), "features": ("age", "backlog")},
    "a random engine": {
        "engine": Engine(3.3, 9, "value", "poisson"),
        "features": ("age", "backlog"),
    },
    "a deadline": {"payoff": Deadline(7), "features": ("value", "steps_left")},
    "stories": {
        "sources": Sources(**PARAMETERS, topics=["a", "a", "", "b", "b"]),
        "arrivals": Stories(overlap=0.7, lag=1.0),
        "features": ("value", "items", "known"),
    },
    "pings on the way": {
        "signals": Signals(0.6, 0.7, [2.0, 0.7, 0.0, 1.0, 3.0]),
        "features": ("value", "age", "pings", "pings_aged"),
        "observed": False,
    },
    "sums of harvests": {"sources": CAPPED, "features": ("crawled", "items", *SUMMED)},
    "looks": {"look_cost": 0.2, "features": ("value", "age", "seen", "shown")},
    "delays without failures": {
        "sources": Sources(**PARAMETERS, crawl_delay=[0, 3, 0, 5, 2]),
        "features": ("value", "available"),
    },
}
each_task = pytest.mark.parametrize("task", TASKS)
# Every third task alone, the others in rows.
FACES = {task: None if number % 3 == 0 else 3 for number, task in enumerate(TASKS)}
each_face = pytest.mark.parametrize(("task", "rows"), FACES.items(), ids=map(str, FACES))


def made(task, rows, **more):
    """Return an environment; tasks follow both rules of budgets and reset rows in both ways."""
    number = list(TASKS).index(task)
    arguments = {
        "sources": Sources(**PARAMETERS),
        "budget": 2,
        "budget_rule": ("step", "average")[number % 2],
        "arrivals": "poisson-items",
        "observed": [True, False, True, False, False],
        "start": "random",
        "horizon": 6,
        **TASKS[task],
        **more,
    }
    if rows is None:
        return CrawlEnv(**arguments)
    mode = ("NextStep", "SameStep")[number // 2 % 2]
    return CrawlVectorEnv(rows, autoreset_mode=mode, **arguments)


@each_task
def test_one_row_is_an_environment_alone(task):
    """Bit for bit, with the same seed."""
    alone, row = made(task, None), made(task, 1)
    assert np.array_equal(alone.reset(seed=5)[0], row.reset(seed=5)[0][0])
    for action in random_actions(alone, 5):
        one, other = alone.step(action), row.step(action[None])
        for mine, theirs in zip(one[:4], other[:4], strict=True):
            assert np.array_equal(mine, theirs[0])


@each_face
def test_states_and_copies_continue_as_if_never_left(task, rows, tmp_path):
    env, other = made(task, rows), made(task, rows)
    env.reset(seed=7)
    actions = random_actions(env, 18)
    before = run(env, actions[:4])[-4]
    if rows:  # whose episodes then end at different times
        after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
        assert np.array_equal(after[[0, 2]], before[[0, 2]])
    now = 5 + list(TASKS).index(task) % 4  # before, at and after the end of the first episode
    run(env, actions[4:now])
    seen = env.step(actions[now])[0]
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    copies += [stored(env, tmp_path, mmap_mode) for mmap_mode in (None, "r")]
    state = env.get_state()
    expected = [*run(env, actions[now + 1 :]), env.reset()[0]]
    for twin in copies:
        assert same([*run(twin, actions[now + 1 :]), twin.reset()[0]], expected)
    for restored in (other, env, env):  # `other` was never reset
        given = copy.deepcopy(state)
        assert np.array_equal(restored.set_state(given), seen)
        spoil(given)
        assert same([*run(restored, actions[now + 1 :]), restored.reset()[0]], expected)


def stored(env, folder, mmap_mode):
    """Return a copy made by joblib, in which no two attributes are the same array, and all arrays
    may be mapped from the file, as `joblib.Parallel` maps large ones."""
    joblib.dump(env, folder / "env.joblib")
    return joblib.load(folder / "env.joblib", mmap_mode)


def spoil(*trees):
    """Change all arrays of numbers that were returned, and those in arrays of objects."""
    for tree in trees:
        for array in arrays_in(tree):
            if array.dtype == object:
                spoil([one for one in array.ravel() if one is not None])
                array[...] = None
            else:
                array[...] = True if array.dtype == bool else 77


@pytest.mark.filterwarnings("ignore:budget is")
@each_face
def test_nothing_given_or_returned_is_a_view_of_the_state(task, rows):
    """Spoil whatever goes into one of two equal environments or comes out of it."""
    budget = (1, 2, 5)[list(TASKS).index(task) % 3]
    clean, spoilt = made(task, rows, budget=budget), made(task, rows, budget=budget)
    clean.reset(seed=1)
    spoil(spoilt.reset(seed=1))
    for step, action in enumerate(random_actions(clean, 13)):
        given = action.copy()
        expected, found = clean.step(action), spoilt.step(given)
        assert all(map(np.array_equal, expected[:4], found[:4]))
        assert set(expected[4]) == set(found[4])
        assert np.array_equal(given, action)
        again = rows is None and expected[3]
        spoil(found, given, spoilt.get_state(), () if rows is None else spoilt.harvest[:2])
        if rows and step == 8:
            masks = [np.array([True, False, False]) for _ in range(2)]
            one, two = (
                env.reset(options={"reset_mask": mask})[0]
                for env, mask in zip((clean, spoilt), masks, strict=True)
            )
            assert np.array_equal(one, two)
            spoil(two, masks[1])
        if again:
            one, two = clean.reset()[0], spoilt.reset()[0]
            assert np.array_equal(one, two)
            spoil(two)


@each_face
def test_the_same_seed_brings_the_same_run(task, rows):
    runs = []
    for seed in (5, 5, 6):
        env = made(task, rows)
        starts = [env.reset(seed=seed)[0], env.reset()[0]]
        runs.append([*starts, *run(env, random_actions(env, 12))])
    assert same(runs[0], runs[1])
    assert not same(runs[0], runs[2])


@each_face
def test_another_seed_of_a_state_has_another_future(task, rows):
    if isinstance(TASKS[task].get("arrivals"), Trace):
        pytest.skip("a log has one future")
    env = made(task, rows, start="fresh")
    env.reset(seed=7)
    actions = random_actions(env, 16)
    run(env, actions[:4])
    state = env.get_state()
    futures = []
    for seed in (None, 1, 1, 2):
        env.set_state(state, seed=seed)
        futures.append(run(env, actions[4:]))
    assert same(futures[1], futures[2])
    for one in (0, 3):
        assert not same(futures[1], futures[one])


@pytest.mark.filterwarnings("ignore:budget is 50")
@pytest.mark.parametrize(
    ("task", "rows"),
    [face for face in FACES.items() if TASKS[face[0]].get("arrivals") != "deterministic"],
)
def test_what_arrives_does_not_depend_on_the_crawls_of_others(task, rows):
    """Source 2 is crawled in every step of both runs and the last two in none, while 0 and 1 are
    crawled as chance wants."""
    runs = []
    for seed in (1, 2):
        env = made(task, rows, budget=50, budget_rule="average", features=("age",), horizon=7)
        env.reset(seed=3)
        rng, met = np.random.default_rng(seed), []
        for _ in range(16):
            action = np.full(env.action_space.shape, -1.0, dtype=np.float32)
            crawls = action if action.shape[-2:-1] != (2,) else action[..., 0, :]
            crawls[..., :2] = rng.choice([-1.0, 1.0], crawls[..., :2].shape)
            crawls[..., 2] = 1.0
            env.step(action)
            met += [env.world.value[:, 2:].copy(), env.world.rate[..., 2:].copy()]
        met.append(np.array(env.np_random.random()))  # nor is a number more drawn
        runs.append(met)
    assert same(*runs)
    assert np.ptp([array.sum() for array in runs[0][:-1:2]]) > 0
