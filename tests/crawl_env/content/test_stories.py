"""Stories that several sources report: marginal law, single payment, brute force, and refusals."""

import math

import numpy as np
import pytest

from agents import compare, make, relaxed_bound, task_bound
from agents.policies.stories import unpaid_content
from crawl_env import CrawlEnv, CrawlVectorEnv, Deadline, Engine, Sources, Stories, Task
from crawl_env.content.names import describe_arrivals, make_arrivals
from crawl_env.content.stories import StoryFeed
from crawl_env.content.world import World
from tests.refusals import refused

TWO = Sources([2.0, 1.0, 1.0], [1.0, 2.0, 3.0], [0.1, 0.2, 0.4], topics=["a", "a", ""])
CASES = [Stories(overlap=0.7), Stories(overlap=1.0, lag=2.0, utility="constant")]


@pytest.mark.parametrize(("arrivals", "age"), [(CASES[0], 2.0), (CASES[1], 1e9)])
def test_a_source_alone_is_what_it_is_without_duplicates(arrivals, age):
    """The mean and the variance of the first crawl of each source, which nobody was paid for."""
    n, (rng, envs) = len(TWO), (np.random.default_rng(1), 500)
    for i in range(n):
        world = World(TWO, arrivals, envs, count=True)
        ages = np.full((envs, n), 1e9)
        ages[:, i] = age
        world.start(ages, rng)
        for _ in range(2):
            world.advance(rng)
        value = world.crawl(np.arange(envs) * n + i)
        steps = min(age, 1e8) + 2.0
        mean = TWO.content_at(np.full(n, steps))[i]
        moment = arrivals.utility.second_moment
        m = TWO.decay_per_step[i]
        second = TWO.arrival_rate[i] * TWO.mean_utility[i] ** 2 * moment
        variance = second * -math.expm1(-2 * m * steps) / (2 * m)
        assert abs(value.mean() - mean) < 4.5 * math.sqrt(variance / envs)
        assert value.var() == pytest.approx(variance, rel=0.4)


@pytest.mark.parametrize("lag", [0.0, 1.5])
def test_each_story_pays_once(lag):
    """Items of worth 1 that do not decay: what is paid in all is the number of stories reported."""
    fleet = Sources([1.0, 1.0, 0.5], 1.0, 1e-9, topics=["a"] * 3)
    posed = {
        "arrivals": Stories(overlap=0.8, lag=lag, utility="constant"),
        "features": ("value", "harvest", "items", "known"),
        "start": "empty",
    }
    env = CrawlEnv(fleet, 2, horizon=None, **posed)
    env.reset(seed=3)
    rng, paid = np.random.default_rng(0), 0.0
    for _ in range(300):
        shown, reward, _, _, info = env.step(rng.random(3))
        _, harvest, items, known = shown.T
        assert reward == pytest.approx(harvest.sum(), abs=1e-4)
        assert (harvest <= items - known + 1e-6).all()
        assert np.array_equal(info["known"], known)
        paid += float(reward)
    rate = 1.0 / 0.8 * (1 - 0.2 * 0.2 * 0.6)  # of stories that some source reports
    assert abs(paid - 300 * rate) < 4.5 * math.sqrt(300 * rate)


def test_an_episode_does_not_depend_on_those_before():
    """Rewards differed in the last digits, since ages were rounded on a clock that went on."""
    fleet = Sources([1.0, 1.0, 0.5], 1.0, 0.3, topics=["a"] * 3)
    env = CrawlEnv(fleet, arrivals=Stories(overlap=0.8, lag=1.5), features=("age",), start="full")
    episodes = []
    for _ in range(2):
        env.reset(seed=3)
        episodes.append([env.step(np.roll([1, 0, 0], t))[1] for t in range(30)])
    assert episodes[0] == episodes[1]


@pytest.mark.parametrize("lag", [0.0, 1.5])
def test_a_plain_program_gives_the_same_rewards(lag, monkeypatch):
    """One report after the other, with the time of its appearance, and a set of paid stories."""
    reports = []  # time of appearance, source, initial utility, story

    def noting(feed, *given):
        drawn, stories = draw(feed, *given)
        reports.extend(
            zip(now - drawn.age, drawn.cell, drawn.utility.copy(), drawn.number, strict=True)
        )
        return drawn, stories

    draw, now = StoryFeed.draw, 0.0
    monkeypatch.setattr(StoryFeed, "draw", noting)
    decay = [0.1, 0.3, 0.2, 0.2]
    fleet = Sources([2.0, 1.0, 0.5, 1.0], [1.0, 2.0, 3.0, 1.0], decay, topics=["a", "a", "a", "b"])
    fleet = Sources(**{**fleet.describe(), "failure_rate": [0.0, 0.4, 0.0, 0.2]})
    features = ("value", "crawled", "items", "known")
    env = CrawlEnv(
        fleet, 2, arrivals=Stories(overlap=0.9, lag=lag), features=features, start="empty"
    )
    env.reset(seed=7)
    rng, seen = np.random.default_rng(1), 0
    gone = {k for k, report in enumerate(reports) if report[0] <= 0}  # collected before the start
    paid = {reports[k][3] for k in gone}
    for step in range(60):
        action, now = rng.permutation(4) + 1.0, step + 1.0
        reward, items, known = 0.0, np.zeros(4), np.zeros(4)
        before, uncrawled = len(reports), set(paid)
        shown, found, _, _, info = env.step(action)
        for i in np.flatnonzero(info["crawled"]):
            for k, (time, source, utility, story) in enumerate(reports[:before]):
                if source == i and time <= step and k not in gone:
                    gone.add(k)
                    items[i] += 1
                    known[i] += story in uncrawled
                    reward += (
                        0.0 if story in paid else utility * math.exp(-decay[i] * (step - time))
                    )
                    paid.add(story)
        assert found == pytest.approx(reward, abs=1e-9)
        assert np.array_equal(shown[:, 2:], np.stack([items, known], axis=1))
        value = np.zeros(4)
        for k, (time, source, utility, story) in enumerate(reports):
            if time <= now and k not in gone and story not in paid:
                value[source] += utility * math.exp(-decay[source] * (now - time))
        assert shown[:, 0] == pytest.approx(value, rel=1e-6, abs=1e-9)
        seen += int(known.sum())
    assert seen > 20


def test_full_overlap_without_lag_is_one_source():
    """Of three sources with the same stories it does not matter which is crawled."""
    fleet = Sources([1.0] * 3, 1.0, 0.3, topics=["a"] * 3)
    vec = CrawlVectorEnv(
        2, fleet, budget=1, arrivals=Stories(overlap=1.0), autoreset_mode="Disabled"
    )
    rewards = []
    for policy in (lambda t: [1, 0, 0], lambda t: [t % 3 == i for i in range(3)]):
        vec.reset(seed=5)
        rewards.append([vec.step(np.tile(policy(t), (2, 1)) * 1.0)[1] for t in range(40)])
    assert np.allclose(rewards[0], rewards[1])
    assert np.sum(rewards) > 0


@pytest.mark.parametrize(("n", "lag"), [(2, 0.0), (2, 2.0), (3, 0.0)])
def test_the_unpaid_content_is_the_mean_of_what_crawls_are_paid(n, lag):
    """Every environment crawls by one random schedule; the mean of what is paid is the belief."""
    fleet = Sources([1.0, 0.6, 0.8][:n], [1.0, 2.0, 0.5][:n], [0.2, 0.1, 0.3][:n], topics=["a"] * n)
    arrivals, envs, rng = Stories(overlap=0.9, lag=lag), 600, np.random.default_rng(2)
    pair = np.array([0.9]), np.array([lag])
    vec = CrawlVectorEnv(envs, fleet, budget=1, arrivals=arrivals, features=("value", "age"))
    shown, _ = vec.reset(seed=1)
    for _ in range(12):
        value, age = shown[..., 0], shown[:1, :, 1].astype(float)
        error = value.std(axis=0) / math.sqrt(envs)
        expected = unpaid_content(fleet, *pair, age)[0, 0]
        assert (abs(value.mean(axis=0) - expected) < 5 * error).all()
        action = np.zeros((envs, n))
        action[:, rng.integers(n)] = 1.0
        shown, *_ = vec.step(action)
    some = np.arange(n)[None] == 0
    whole, part = (unpaid_content(fleet, *pair, age, where)[:, 0] for where in (None, some))
    np.testing.assert_array_equal(part, np.where(some, whole, 0.0))


def test_whittle_stories_gains_and_no_policy_exceeds_the_bound():
    fleet = Sources([1.0] * 4 + [0.4] * 4, 1.0, 0.1, topics=["a"] * 4 + [""] * 4)
    task = {"sources": fleet, "budget": 1, "arrivals": CASES[0], "observed": False}
    task["features"] = ("age",)
    runs = compare(["whittle", "whittle-stories"], task, steps=600, warmup=100, seeds=2)
    naive, aware = (runs[name].reward.mean() for name in ("whittle", "whittle-stories"))
    bound = task_bound(Task(**task)).bound
    assert naive * 1.05 < aware < bound < relaxed_bound(fleet, 1)


def test_without_shared_stories_it_is_whittle():
    fleet = Sources([1.0, 0.5, 0.4], 1.0, 0.1)
    task = {"sources": fleet, "budget": 1, "arrivals": CASES[0], "observed": False}
    runs = compare(["whittle", "whittle-stories"], task, steps=50, warmup=0, seeds=2)
    assert np.array_equal(runs["whittle"].reward, runs["whittle-stories"].reward)


@pytest.mark.parametrize("arrivals", CASES)
def test_json_holds_the_arrivals(arrivals):
    assert make_arrivals(describe_arrivals(arrivals)) == arrivals


def test_refusals():
    with refused("overlap is 0", "poisson-items"):
        Stories(overlap=0)
    with refused("lag", "zero or positive"):
        Stories(lag=-1)
    with refused("engine", "stories"):
        Task(TWO, 1, arrivals=Stories(), engine=Engine(1.0))
    with refused("harvest_age", "stories"):
        Task(TWO, 1, arrivals=Stories(), features=("harvest_age",))
    with refused("finite capacity", "leave these out"):
        Task(Sources(1.0, 1.0, [0.5, 0.5], capacity=3), 1, arrivals=Stories())
    with refused("needs the features age"):
        make("whittle-stories", Task(TWO, 1, arrivals=Stories()))
    Task(TWO, 1, arrivals=Stories(), payoff=Deadline(3))
