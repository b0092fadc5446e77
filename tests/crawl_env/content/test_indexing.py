"""The queue in front of the indexing engine, against a plain simulation of it."""

import math
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl_env import (
    CrawlEnv,
    CrawlVectorEnv,
    DecayCurves,
    Engine,
    ItemLog,
    Sources,
    Trace,
    task_of,
)
from crawl_env.content.indexing import _in_turn
from crawl_env.envs.wrappers import SequentialSelection
from tests.refusals import refused

DECAY = (0.1, 0.7, 0.3)
STEPS = 12
RATES = (0.5, 1.0, 1.25, 2.0, 3.4, math.inf)


@dataclass
class Plain:
    """A queue of (published, utility, source), item by item; times are in steps."""

    rate: float
    capacity: float
    discipline: str
    threshold: float
    remains: Any  # decay · age → fraction of utility left
    queue: list[tuple[float, float, int]] = field(default_factory=list)
    work: float = 0.0  # on the item that is next

    def worth(self, item, now):
        published, utility, source = item
        return utility * float(self.remains(DECAY[source] * (now - published)))

    def step(self, found, now):
        """Return number and utility of what became of the items; `found` in log order."""
        before = list(self.queue)
        found = [item for item in found if self.worth(item, now) > 0]
        found.sort(key=lambda item: (item[2], now - item[0]))
        taken = [item for item in found if self.worth(item, now) >= self.threshold]
        refused = [item for item in found if self.worth(item, now) < self.threshold]
        line = before + taken
        if self.discipline == "value":
            line.sort(key=lambda item: -self.worth(item, now))
        self.work += self.rate
        indexed = []
        while line and self.work > 1 - 1e-6:
            indexed.append(line.pop(0))
            self.work -= 1
        if not line:
            self.work = 0.0
        kept = line if math.isinf(self.capacity) else line[: int(self.capacity)]
        lost = line[len(kept) :]
        self.queue = [item for item in kept if self.worth(item, now + 1) > 0]

        def sums(items, when):
            return [float(len(items)), sum(self.worth(item, when) for item in items)]

        decayed = [a - b for a, b in zip(sums(kept, now), sums(self.queue, now + 1), strict=True)]
        return {
            "collected": sums(found, now),
            "refused": sums(refused, now),
            "indexed": sums(indexed, now),
            "lost": sums(lost, now),
            "decayed": decayed,
            "backlog": sums(self.queue, now + 1),
        }


def lomax(z):
    """Return (1 + z/s)^−2, cut off where 1e-4 is left, with s such that it integrates to 1."""
    end = 10.0**2 - 1.0  # in units of s
    scale = 1.0 / (1.0 - 1.0 / (1.0 + end))
    return (1.0 + z / scale) ** -2.0 if z < end * scale else 0.0


REMAINS = {"exponential": lambda z: math.exp(-z) if z < 37 else 0.0, "lomax": lomax}

items = st.lists(
    st.tuples(
        st.integers(0, 64 * STEPS - 1).map(lambda k: k / 64),  # exact ages
        st.floats(0.1, 10.0),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=60,
    unique_by=lambda item: item[0],
)
engines = st.builds(
    Engine,
    rate=st.sampled_from(RATES),
    capacity=st.sampled_from([None, 0, 1, 2, 5]),
    discipline=st.sampled_from(["fifo", "value"]),
    threshold=st.sampled_from([0.0, 0.5, 2.0]),
)
choices = st.lists(st.integers(0, 3), min_size=STEPS, max_size=STEPS)


def log_of(published):
    time, utility, source = zip(*sorted(published), strict=True)
    return ItemLog(["a", "b", "c"], source, time, utility, start=0.0, end=float(STEPS))


def env_of(published, **arguments):
    """Return an environment that replays items from its first step on, two crawls per step."""
    decay = arguments.pop("decay", "exponential")
    trace = Trace(log_of(published), random_start=False, decay=decay)
    fleet = Sources([1.0] * 3, [1.0] * 3, DECAY, names=["a", "b", "c"])
    return CrawlEnv(fleet, 2, arrivals=trace, start="empty", features=("backlog",), **arguments)


@given(items, engines, choices, st.sampled_from(sorted(REMAINS)))
@settings(max_examples=50, deadline=None)
def test_item_by_item_as_a_plain_simulation(published, engine, left_out, decay):
    env = env_of(published, engine=engine, decay=decay)
    env.reset(seed=0)
    capacity = math.inf if engine.capacity is None else engine.capacity
    plain = Plain(engine.rate, capacity, engine.discipline, engine.threshold, REMAINS[decay])
    waits = sorted(published)
    for now in range(STEPS):
        picked = [i for i in range(3) if i != left_out[now]][:2]
        found = [item for item in waits if item[0] < now and item[2] in picked]
        waits = [item for item in waits if item not in found]
        expected = plain.step(found, now)
        action = np.full(3, -1.0, dtype=np.float32)
        action[picked] = 1.0
        observation, reward, _, _, info = env.step(action)
        for name, numbers in expected.items():
            np.testing.assert_allclose(info["engine"][name], numbers, 1e-9, 1e-9, err_msg=name)
        np.testing.assert_allclose(reward, expected["indexed"][1], 1e-9, 1e-12)
        assert np.all(observation == expected["backlog"][0])


def test_batch_is_a_loop_bit_for_bit():
    rng = np.random.default_rng(5)
    published = [(k / 64, rng.gamma(2.0), int(rng.integers(3))) for k in range(0, 64 * STEPS, 9)]
    engine = Engine(rate=2.3, capacity=4, discipline="value", threshold=0.3)
    actions = rng.uniform(-1, 1, (STEPS, 4, 3)).astype(np.float32)
    one = env_of(published, engine=engine)
    vec = CrawlVectorEnv(4, **one.task.arguments)
    vec.reset(seed=0)
    rows = [env_of(published, engine=engine) for _ in range(4)]
    for row in rows:
        row.reset(seed=0)
    lost = 0.0
    for action in actions:
        observation, reward, *_ = vec.step(action)
        for i, row in enumerate(rows):
            alone, earned, _, _, info = row.step(action[i])
            assert reward[i] == earned
            assert np.array_equal(observation[i], alone)
            for name, entry in vec.ledger._asdict().items():
                assert np.array_equal(entry[i], info["engine"][name]), name
            lost += info["engine"]["lost"][0]
    assert lost > 0


LIMITED = Sources.random(8, seed=3)
LIMITED = Sources(
    **{
        **LIMITED.__getstate__(),
        "capacity": [2, np.inf, 5, 1, 8, np.inf, 3, 4],
        "failure_rate": 0.2,
        "crawl_delay": [0, 2, 1, 0, 3, 0, 0, 1],
        "hosts": ["a", "a", "b", "", "b", "", "", "a"],
    }
)
TASKS = [
    {"sources": "table1", "budget": 2},
    {"sources": Sources.random(8, seed=3), "budget": 2, "arrivals": "poisson-hawkes-lognormal"},
    {"sources": Sources.random(8, seed=3), "budget": 2, "arrivals": "poisson-gamma-lomax"},
    {"sources": LIMITED, "budget": 2.5, "budget_rule": "average", "observed": False},
    {"sources": Sources.random(8, seed=3), "signals": {"recall": 0.5}, "start": "full"},
]


def run(seed, steps, engine, **arguments):
    """Return the observations, the rewards and the numbers of items indexed under priorities that
    `seed` determines."""
    given = {"arrivals": "poisson-items", "features": ("value", "age", "pings"), **arguments}
    vec = CrawlVectorEnv(2, engine=engine, **{"horizon": 15} | given)
    rng, told = np.random.default_rng(seed), ([vec.reset(seed=7)[0]], [], [])
    for _ in range(steps):
        observation, reward, *_ = vec.step(rng.random((2, vec.task.n), dtype=np.float32))
        indexed = None if vec.ledger is None else vec.ledger.indexed[:, 0]
        for column, entry in zip(told, (observation, reward, indexed), strict=True):
            column.append(entry)
    return told


def same(one, other):
    return all(map(np.array_equal, one, other)) and len(one) == len(other)


@pytest.mark.parametrize("task", TASKS)
def test_an_engine_that_is_fast_enough_changes_nothing(task):
    without = run(1, 40, None, **task)
    for engine in (Engine(math.inf, 0), Engine(1e6, 3, "value", "poisson")):
        found = run(1, 40, engine, **task)
        assert same(found[0], without[0])
        assert same(found[1], without[1])


@pytest.mark.parametrize("task", TASKS)
def test_arrivals_and_pings_depend_on_no_engine(task):
    slow = run(1, 30, Engine(0.5, 1, "value", "poisson", 0.1), **task)
    without = run(1, 30, None, **task)
    assert same(slow[0], without[0])
    assert not same(slow[1], without[1])


def test_service_depends_on_the_seed_alone():
    """Both engines are busy in every step: in each, about 500 items are published."""
    engine = Engine(3.0, None, "fifo", "poisson")
    one, other = (run(seed, 30, engine, sources="table1", start="full") for seed in (1, 2))
    assert not same(one[1], other[1])
    assert same(one[2], other[2])
    assert len({*np.ravel(one[2]).tolist()}) > 3


@pytest.mark.parametrize("number", range(len(TASKS)))
def test_nothing_is_lost_without_account(number):
    task, discipline = TASKS[number], ("fifo", "value")[number % 2]
    engine = Engine(2.5, 6, discipline, "poisson", threshold=0.2)
    vec = CrawlVectorEnv(3, engine=engine, **{"arrivals": "poisson-items", **task})
    vec.reset(seed=2)
    rng, before = np.random.default_rng(0), np.zeros((3, 2))
    total = np.zeros((6, 3, 2))
    for _ in range(40):
        reward = vec.step(rng.random((3, vec.task.n), dtype=np.float32))[1]
        ledger = vec.ledger
        gone = ledger.refused + ledger.indexed + ledger.lost + ledger.decayed + ledger.backlog
        balance = ledger.collected + before - gone
        assert np.all(balance[:, 0] == 0)
        np.testing.assert_allclose(balance[:, 1], 0.0, atol=1e-9 * (1 + gone[:, 1].max()))
        assert np.array_equal(ledger.indexed[:, 1], reward)
        assert ledger.backlog[:, 0].max() <= 6
        before = ledger.backlog
        total += ledger
    assert np.all(total.sum(axis=1)[:4, 0] > 0)  # all of it happened


def test_ten_tenths_of_an_item_are_one():
    """Though their sum in floating point is less."""
    env = env_of([(step + 0.5, 1.0, 0) for step in range(11)], engine=Engine(0.1, 2))
    env.reset(seed=0)
    assert sum(env.step(np.ones(3))[4]["engine"]["indexed"][0] for _ in range(11)) == 1


def test_what_is_worth_the_threshold_is_not_refused():
    published = [(0.25, 2.0, 1)]

    def first(**engine):
        env = env_of(published, engine={"rate": 1, **engine})
        env.reset(seed=0)
        env.step(np.ones(3))
        return env.step(np.array([0, 1, 0]))[4]["engine"]

    worth = float(first()["indexed"][1])
    np.testing.assert_allclose(worth, 2 * math.exp(-0.7 * 0.75), rtol=1e-14)
    assert first(threshold=worth)["indexed"].tolist() == [1, worth]
    refused = first(threshold=math.nextafter(worth, 9))
    assert refused["refused"].tolist() == [1, worth]
    assert refused["indexed"].tolist() == [0, 0]


def test_recorded_curves_hold_for_waiting_items():
    curves = DecayCurves([0, 3, 6], [0.0, 1.0, 2.0, 0.0, 1.0, 2.0], [1, 0.5, 0.25, 1, 0.8, 0.0])
    log = ItemLog(["a"], [0, 0], [0.0, 0.5], [4.0, 1.0], 0.0, 4.0, curves=curves)
    fleet = Sources([1.0, 1.0], [1.0] * 2, [1e-9] * 2, names=["a", "b"])
    trace = Trace(log, random_start=False)
    env = CrawlEnv(fleet, 1, arrivals=trace, start="empty", engine=Engine(1))
    env.reset(seed=0)
    found = [env.step(np.array([1, 0]))[1] for _ in range(4)]
    np.testing.assert_allclose(found, [0.0, 0.9, 1.0, 0.0])  # newest first, at ages ½ and 2


@pytest.mark.parametrize("first", ["newest", "oldest", "any"])
def test_items_join_by_source_the_newest_first_and_stably(first):
    for n in (0, 1, 15, 16, 17, 33, 500, 2048):
        rng = np.random.default_rng(n)
        cell, age = rng.integers(0, 3, n), rng.integers(0, 40, n) / 8  # many of an age
        present = np.where(rng.random(n) < 0.1, 0.0, 1.0)
        if first != "any":
            age = np.sort(age) if first == "newest" else np.sort(age)[::-1].copy()
        expected = np.lexsort((age, cell))
        expected = expected[present[expected] > 0]
        np.testing.assert_array_equal(_in_turn(cell, age, present), expected)


# ------------------------------------------------------------------------------ poisson service


def stationary(arrivals, service, places):
    """Return the distribution of the backlog before a step in which Poisson numbers arrive and can
    be indexed, of these means."""
    most = 80
    number = np.arange(most)
    factorial = np.array([math.lgamma(k + 1) for k in number])
    come, done = (np.exp(number * math.log(m) - m - factorial) for m in (arrivals, service))
    move = np.zeros((places + 1, places + 1))
    for n in range(places + 1):
        for a in number:
            for s in number:
                move[n, min(max(n + a - s, 0), places)] += come[a] * done[s]
    values, vectors = np.linalg.eig(move.T)
    law = np.real(vectors[:, np.argmax(np.real(values))])
    return np.asarray(law / law.sum())


def test_poisson_service_has_the_law_of_the_queue():
    """Frequencies of 200 independent runs are within 5 standard errors of the exact ones; the 6
    comparisons together fail for one of 2 · 10⁵ seeds."""
    places, rate, load = 5, 2.0, 1.2
    fleet = Sources([load * rate, 0.0], [1.0] * 2, [0.01] * 2)
    engine = Engine(rate, places, service="poisson")
    vec = CrawlVectorEnv(200, fleet, 1, engine=engine, features=("backlog",), horizon=None)
    vec.reset(seed=1)
    action = np.tile(np.array([1, -1], dtype=np.float32), (200, 1))
    seen = np.zeros((200, places + 1))
    for step in range(200):
        backlog = vec.step(action)[0][:, 0, 0].astype(int)
        if step >= 20:
            seen[np.arange(200), backlog] += 1
    frequency = seen / seen.sum(axis=1, keepdims=True)
    law = stationary(load * rate, rate, places)
    error = frequency.std(axis=0, ddof=1) / math.sqrt(200)
    assert np.all(np.abs(frequency.mean(axis=0) - law) < 5 * error)


# ------------------------------------------------------------- state, forms, and what is refused


def busy(**arguments):
    engine = Engine(20, 300, "value", "poisson")
    return CrawlEnv(engine=engine, features=("age", "backlog"), **arguments)


def test_an_empty_queue_is_restored_from_lists():
    env = busy()
    env.reset(seed=0)
    queue = env.world.queue
    state = queue.get_state()
    rewards = []
    for items in (state["items"], [column.tolist() for column in state["items"]]):
        queue.set_state({**state, "items": items})
        rewards.append(queue.index(*env.world._stock.store.items(np.arange(4)), np.zeros(1)))
    assert rewards[0] == rewards[1] > 0


@pytest.mark.parametrize("rate", [3, 12345678.5, math.inf])
def test_the_text_of_an_engine_is_its_call(rate):
    engine = Engine(rate, 10, "value", "poisson", 0.1)
    assert eval(repr(engine)) == engine


def test_a_reset_empties_the_queues_of_its_environments_alone():
    vec = CrawlVectorEnv(
        3, engine={"rate": 20.3}, features="backlog", autoreset_mode="Disabled", horizon=None
    )
    vec.reset(seed=0)
    seen = vec.step(np.ones((3, 4)))[0][:, 0, 0]
    queue = vec.world.queue
    before = queue.get_state()
    assert min(seen.min(), before["credit"].min(), before["ledger"].any(axis=(0, 2)).min()) > 0
    after = vec.reset(options={"reset_mask": np.array([False, True, False])})[0][:, 0, 0]
    assert after.tolist() == [seen[0], 0, seen[2]]
    before["credit"][1], before["ledger"][:, 1] = 0.0, 0.0
    stay = before["items"].cell // 4 != 1
    before["items"] = [column[stay] for column in before["items"]]
    for name in ("credit", "ledger", "items"):
        np.testing.assert_equal(list(queue.get_state()[name]), list(before[name]))


def test_forms_of_the_environment():
    engine = Engine(rate=3, capacity=10, discipline="value", threshold=0.5)
    env = gym.make("EphemeralCrawl-v0", engine=engine)
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert task_of(again).engine == engine
    assert task_of(gym.make("EphemeralCrawl-v0", engine={"rate": 3})).engine == Engine(rate=3)
    assert "engine=Engine(rate=3, capacity=10" in repr(task_of(env))
    flat = gym.make("EphemeralCrawlDiscrete-v0", engine=engine, features=("age", "backlog"))
    flat.reset(seed=0)
    observation = [flat.step(0)[0] for _ in range(5)][-1]
    assert flat.observation_space.contains(observation)
    assert flat.unwrapped.task.natural(observation)[0, :, 1].tolist() == [10] * 4
    picks = SequentialSelection(gym.make("EphemeralCrawl-v0", budget=2, engine=engine))
    picks.reset(seed=0)
    picks.step(0)
    assert picks.step(1)[4]["engine"]["indexed"][0] == 3
    idle = CrawlEnv(features=("backlog",))  # without an engine nothing waits
    assert not idle.reset(seed=0)[0].any()


@pytest.mark.parametrize(
    ("engine", "parts"),
    [
        ({"rate": 0}, ("rate is 0", "must be positive")),
        ({"rate": math.nan}, ("rate is nan",)),
        ({"rate": "3"}, ("rate is '3'",)),
        ({"rate": True}, ("rate is True",)),
        ({"rate": 3, "capacity": -1}, ("capacity is -1", "whole number of items, at least 0")),
        ({"rate": 3, "capacity": 2.5}, ("capacity is 2.5",)),
        ({"rate": 3, "discipline": "lifo"}, ("unknown discipline 'lifo'", "fifo, value")),
        ({"rate": 3, "service": "possion"}, ("did you mean 'poisson'?",)),
        ({"rate": 3, "threshold": -0.1}, ("threshold is -0.1", "zero or positive")),
        ({"rate": 3, "threshold": math.inf}, ("threshold is inf",)),
        ({"rates": 3}, ("unknown argument of Engine 'rates'", "did you mean 'rate'?")),
        ({"capacity": 3}, ("lacks the rate", '{"rate": 3}')),
        (3, ("engine is 3", "Engine(rate=")),
        ("fifo", ("engine is 'fifo'", "Engine(rate=")),
    ],
)
def test_bad_engines_are_refused(engine, parts):
    with refused(*parts):
        CrawlEnv(engine=engine)


@pytest.mark.parametrize("arrivals", ["deterministic", "poisson"])
def test_engines_need_items(arrivals):
    with refused("engine is Engine(rate=3)", "single items are needed", "poisson-items"):
        CrawlEnv(arrivals=arrivals, engine={"rate": 3})


def test_infinite_capacities_are_none():
    assert Engine(1, math.inf) == Engine(1)
    with refused("options['value'] cannot be set", "engine"):
        CrawlEnv(engine={"rate": 1}).reset(options={"value": np.ones(4)})
