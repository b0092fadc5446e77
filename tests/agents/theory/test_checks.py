"""The index of crawls that cost less if they find nothing, and of looks, against optimal stopping;
the policies against the bounds and against each other."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import evaluate, make
from agents.theory.checks import CheckedArm
from agents.theory.index import index_at_age
from agents.theory.task_bound import task_bound
from crawl_env import CrawlVectorEnv, Sources, Task

AGES = np.arange(1.0, 600.0)


@given(
    st.floats(0.02, 3.0),
    st.floats(0.1, 1.0),
    st.floats(0.01, 1.0),
    st.floats(0.0, 3.0),
    st.integers(1, 60),
)
def test_the_index_is_where_a_check_begins_to_be_optimal(rate, decay, cost, found, age):
    source = Sources(rate, 1.0, decay)
    arm = CheckedArm(source, cost, np.array([found]))
    index = float(arm.index_at_age(np.array([float(age)]))[0])
    content = source.content_at(AGES[:, None])[:, 0]
    spent = cost + found * (1.0 - np.exp(-rate * AGES))
    for multiplier, pays in ((0.999 * index, True), (1.001 * index, False)):
        net = content - multiplier * spent  # of a check at each age
        gain = max(0.0, (net / AGES).max())
        assert arm.net_reward(np.array([multiplier]))[0] == pytest.approx(gain, abs=1e-12)
        later = net[age:] - gain * (AGES[age:] - age)
        best_later = later.max() if gain > 0.0 else max(later.max(), 0.0)
        assert (net[age - 1] >= best_later) == pays


def test_a_check_that_costs_the_same_in_any_case_has_the_index_of_theorem_1():
    fleet, ages = Sources.preset("table1"), AGES[:50, None]
    arm = CheckedArm(fleet, 2.0, np.zeros(4))
    assert arm.index_at_age(ages) == pytest.approx(index_at_age(ages, fleet) / 2.0, rel=1e-12)


@pytest.mark.filterwarnings("ignore:budget is")
@pytest.mark.parametrize("age", [1, 4])
def test_a_cycle_of_looks_brings_what_the_arm_says(age):
    """A source looked at every `age` steps, and crawled as soon as something shows."""
    source, runs, cycles = Sources(0.3, 1.0, 0.2), 4000, 5
    features = ("seen", "shown", "age")
    # On average, so that only what has a priority ≥ 0 is done; the budget never binds.
    arguments = {"budget": 5.0, "budget_rule": "average", "look_cost": 0.25}
    env = CrawlVectorEnv(runs, source, start="empty", features=features, **arguments)
    observation, _ = env.reset(seed=1)
    reward, spent, since = np.zeros(runs), np.zeros(runs), np.zeros(runs)
    for t in range(cycles * age + 1):
        shows = observation[:, 0, 1] > 0.0
        looks = np.full(runs, (t + 1) % age == 0) & (t < cycles * age)
        action = np.where(np.stack([shows, looks], axis=1), 1.0, -1.0)
        observation, gained, *_ = env.step(action[..., None])
        reward, spent = reward + gained, spent + env.spent
        since += looks
    assert (since == cycles).all()
    mean_cost = 0.25 + 1.0 - np.exp(-0.3 * age)
    assert spent.mean() / cycles == pytest.approx(mean_cost, rel=0.02)
    content = source.content_at(float(age))[0]
    assert reward.mean() / cycles == pytest.approx(content, rel=0.05)


SPARSE = {"sources": Sources.random(40, seed=0, regime="sparse"), "budget": 2}


def test_the_bound_of_conditional_crawls_is_attained_on_average():
    asked = {
        **SPARSE,
        "budget_rule": "average",
        "unchanged_cost": 0.1,
        "observed": False,
    }
    bound, _, name = task_bound(Task(**asked))
    assert name == "not observed"
    found = evaluate("whittle-conditional", asked, steps=1500, warmup=300, seeds=12)
    spread = found.reward.std(ddof=1) / np.sqrt(12)
    assert 0.96 * bound < found.reward.mean() < bound + 3.0 * spread
    assert found.cost.mean() == pytest.approx(2.0, rel=0.02)
    plain = task_bound(Task(**{**asked, "unchanged_cost": None, "arrivals": "poisson"}))
    assert plain.bound < 0.9 * bound
    same = task_bound(Task(**{**asked, "unchanged_cost": 1.0}))
    assert same.bound == pytest.approx(plain.bound, rel=1e-9)
    seen = task_bound(Task(SPARSE["sources"], 2, arrivals="poisson", budget_rule="average"))
    some = {**asked, "observed": np.arange(40) == 0}
    for more in (some, {**asked, "signals": {"recall": 0.1, "precision": 0.5}}):
        assert task_bound(Task(**more)) == seen
        assert task_bound(Task(**more)).bound > bound


@pytest.mark.filterwarnings("ignore:budget is")
def test_what_is_saved_is_lost_where_no_other_crawl_follows():
    fleet = SPARSE["sources"]
    asked = {"sources": fleet, "budget": 1.09, "unchanged_cost": 0.1, "observed": False}
    plain = {**asked, "unchanged_cost": None, "arrivals": "poisson"}
    one, two = (task_bound(Task(**{**asked, "budget": budget})) for budget in (1.09, 1.1))
    assert one == task_bound(Task(**plain))
    assert two.bound > 1.1 * one.bound
    steps = {"steps": 200, "seeds": 2}
    found = evaluate("whittle-conditional", asked, **steps)
    assert (found.reward == evaluate("whittle", asked, **steps).reward).all()
    # A batch, in one fleet of which the budget covers two crawls.
    task, cheap = Task(**asked), fleet.replaced(cost=0.5)
    both = task_bound(task, Sources.stack([fleet, cheap]))
    assert both.bound[1] == pytest.approx(task_bound(task, cheap).bound)
    assert both.bound[0] >= one.bound


CAP = 20  # steps after which a source finds no more


def optimum(fleet):
    """Return the best reward per step, by value iteration over joint ages, of a budget of a step
    that covers a second crawl only if the first finds nothing."""
    n, ages = len(fleet), np.arange(1.0, CAP + 1)[:, None]
    content, nothing = fleet.content_at(ages), np.exp(-ages * fleet.arrival_rate * fleet.period)
    older = np.minimum(np.arange(1, CAP + 1), CAP - 1)
    value = np.zeros((CAP,) * n)

    def of_source(i, column):
        return column[:, i].reshape([-1 if j == i else 1 for j in range(n)])

    def after(*crawled):
        left = value
        for i in range(n):
            left = left.take([0] * CAP if i in crawled else older, axis=i)
        return left

    while True:
        orders = [
            of_source(i, content)
            + of_source(i, nothing) * (of_source(j, content) + after(i, j))
            + (1.0 - of_source(i, nothing)) * after(i)
            for i, j in itertools.permutations(range(n), 2)
        ]
        best = np.max(orders, axis=0)
        change = best - value
        if np.ptp(change) < 1e-6 * change.max():
            return float(change.min())
        value = 0.5 * (best + value)
        value -= value.flat[0]


@pytest.mark.parametrize("seed", [0, 4])
def test_conditional_crawls_are_near_the_exact_optimum_and_the_bound_above_it(seed):
    rng = np.random.default_rng(seed)
    fleet = Sources(rng.uniform(0.1, 1, 3), rng.lognormal(0, 0.5, 3), rng.uniform(0.3, 0.9, 3))
    asked = {"sources": fleet, "budget": 1.1, "unchanged_cost": 0.1, "observed": False}
    best = optimum(fleet)
    assert best < task_bound(Task(**asked)).bound < 1.25 * best
    found = evaluate("whittle-conditional", asked, steps=1500, warmup=50, seeds=20).reward
    error = found.std(ddof=1) / np.sqrt(20)
    assert 0.96 * best < found.mean() < best + 3.0 * error


POINTS, SPAN, DRAWS = 24, 7, 4000


def knowledge_of(fleet, i, rng):
    """Return the expected content of a source in each state of what is known of it (the content
    seen last, and the steps since), and the transitions of these states if it is left alone,
    crawled, looked at, and crawled and looked at."""
    rate, mean, decay = (x[i] for x in (fleet.arrival_rate, fleet.mean_utility, fleet.decay_rate))
    steps, drawn = np.arange(SPAN + 1.0), np.zeros((SPAN + 1, DRAWS))
    for age in range(SPAN):
        run = np.repeat(np.arange(DRAWS), rng.poisson(rate, DRAWS))
        left = rng.exponential(mean, run.size) * np.exp(-decay * rng.random(run.size))
        drawn[age + 1] = np.exp(-decay) * drawn[age] + np.bincount(run, left, DRAWS)
    exact = -rate * mean / decay * np.expm1(-decay * steps)
    drawn[1:] *= (exact[1:] / drawn[1:].mean(axis=1))[:, None]
    lattice = np.linspace(0.0, np.quantile(drawn[-1], 0.999) ** 0.5, POINTS) ** 2
    content = np.zeros((POINTS, SPAN))
    alone, crawled, looked, both = moves = np.zeros((4, POINTS, SPAN, POINTS, SPAN))

    def shown(content):
        place = np.interp(content, lattice, np.arange(float(POINTS)))
        point = np.minimum(place.astype(int), POINTS - 2)
        upper = np.bincount(point + 1, place - point, POINTS)
        return (np.bincount(point, 1.0 - place + point, POINTS) + upper) / DRAWS

    for point, age in itertools.product(range(POINTS), range(SPAN)):
        content[point, age] = lattice[point] * np.exp(-decay * age) + exact[age]
        alone[point, age, point, min(age + 1, SPAN - 1)] = 1.0
        crawled[point, age, 0, 1] = 1.0
        left = lattice[point] * np.exp(-decay * (age + 1.0))
        looked[point, age, :, 0] = shown(left + drawn[age + 1])
        both[point, age, :, 0] = shown(drawn[1])
    return content.ravel(), moves.reshape(4, content.size, content.size)


def optimum_with_looks(fleet, budget, look_cost):
    """Return the best reward per step of two sources, by value iteration over what is known."""
    rng = np.random.default_rng(0)
    (content, moves), (other, moves_of_other) = (knowledge_of(fleet, i, rng) for i in range(2))
    cost = [0.0, 1.0, look_cost, 1.0 + look_cost]
    ways = [
        (a, b)
        for a, b in itertools.product(range(4), repeat=2)
        if cost[a] + cost[b] <= budget + 1e-9
    ]
    value = np.zeros((content.size, other.size))
    while True:
        best = np.max(
            [
                moves[a] @ value @ moves_of_other[b].T + a % 2 * content[:, None] + b % 2 * other
                for a, b in ways
            ],
            axis=0,
        )
        change = best - value
        if np.ptp(change) < 1e-4 * change.max():
            return float(change.min())
        value = 0.5 * (best + value)
        value -= value[0, 0]


@pytest.mark.parametrize("seed", [0, 2])
def test_looks_are_near_the_exact_optimum_and_the_bound_above_it(seed):
    """The budget covers a crawl and a look, or two looks: greedy selection has .89 and .93."""
    rng = np.random.default_rng(seed)
    fleet = Sources(rng.uniform(0.1, 0.6, 2), rng.lognormal(0, 0.5, 2), rng.uniform(0.2, 0.6, 2))
    asked = {"sources": fleet, "budget": 1.1, "look_cost": 0.1}
    best = optimum_with_looks(fleet, 1.1, 0.1)
    assert 0.99 * best < task_bound(Task(**asked)).bound < 1.1 * best
    found = evaluate("whittle-looks", asked, steps=400, warmup=20, seeds=40).reward
    error = found.std(ddof=1) / np.sqrt(40)
    assert 0.96 * best < found.mean() < 1.01 * best + 3.0 * error


@pytest.mark.parametrize(
    "more",
    [{"hosts": list("aabb")}, {"crawl_delay": [2.0, 0.0, 3.0, 0.0]}],
    ids=["hosts", "delays"],
)
def test_looks_pay_where_crawls_are_limited(more):
    columns = [0.5, 0.4, 0.3, 0.2], [1.0, 2.0, 1.0, 3.0], [0.3, 0.5, 0.2, 0.4]
    asked = {"sources": Sources(*columns, **more), "budget": 2.2, "look_cost": 0.15}
    runs = {"steps": 400, "warmup": 20, "seeds": 6}
    plain, looks = (evaluate(a, asked, **runs).reward for a in ("whittle", "whittle-looks"))
    assert (looks > 1.02 * plain).all()


def test_looks_pay():
    asked = {**SPARSE, "look_cost": 0.1}
    runs = {"steps": 300, "warmup": 80, "seeds": 4}
    bound = task_bound(Task(**asked)).bound
    assert bound < 0.9 * task_bound(Task(**SPARSE, arrivals="poisson", observed=True)).bound
    plain, looks = (evaluate(a, asked, **runs).reward for a in ("whittle", "whittle-looks"))
    assert (looks > 1.1 * plain).all()
    assert 0.94 * bound < looks.mean() < 1.02 * bound
    on_average = evaluate("whittle-looks", {**asked, "budget_rule": "average"}, **runs)
    assert on_average.cost.mean() <= 2.0 + 1e-9
    assert 0.915 * bound < on_average.reward.mean() < 1.02 * bound


@pytest.mark.parametrize(
    "agent", ["whittle-conditional", "whittle-looks", "whittle-deadline", "deadline-assignment"]
)
def test_without_looks_or_a_deadline_they_are_whittle(agent):
    view = np.random.default_rng(0).random((3, 4, 1)).astype(np.float32)
    plain = make("whittle", Task("table1", budget=2)).predict(view)[0]
    assert np.array_equal(make(agent, Task("table1", budget=2)).predict(view)[0], plain)


def test_they_say_what_they_must_observe():
    with pytest.raises(ValueError, match="needs the feature seen"):
        make("whittle-looks", Task(look_cost=0.1))
    delayed = Sources([1.0, 1.0], 1.0, 0.5, crawl_delay=2.0)
    with pytest.raises(ValueError, match="needs the feature available"):
        make("whittle-looks", Task(delayed, 1.2, look_cost=0.1, features=("value", "seen")))
    with pytest.raises(ValueError, match="needs the feature age"):
        make("whittle-conditional", Task(unchanged_cost=0.1, observed=False))
