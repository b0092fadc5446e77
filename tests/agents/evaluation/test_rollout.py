"""Evaluations: paired arrivals, measures counted by hand, agents of one's own."""

import gymnasium
import numpy as np
import pytest

import agents
from agents.evaluation.rollout import Rollout, compare, evaluate, try_out, with_features
from agents.learning import WIQL
from crawl_env import CrawlEnv, CrawlVectorEnv, DecayCurves, ItemLog, Sources, Trace
from crawl_env.benchmark import TASKS
from crawl_env.fleet.parameters import PARAMETERS

FIELDS = ("reward", "cost", "never", "delay", "frequency")


class Scripted:
    """Crawls a fixed cycle of sets, and remembers how it was asked."""

    def __init__(self, env, cycle):
        self.env, self.cycle = env, cycle
        self.starts = []
        self.states = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        self.starts.append(episode_start.copy())
        self.states.append(state)
        epoch = 0 if state is None else state
        action = np.full(observation.shape[:2], -1.0, dtype=np.float32)
        action[:, list(self.cycle[epoch % len(self.cycle)])] = 1.0
        return action, epoch + 1


def same(a, b):
    return all(np.array_equal(getattr(a, f), getattr(b, f), equal_nan=True) for f in FIELDS)


# --------------------------------------------------------------------------------------- pairing


@pytest.mark.parametrize(
    ("arrivals", "rule"), [("poisson", "step"), ("poisson-lognormal", "average")]
)
def test_all_agents_meet_the_same_content(arrivals, rule):
    """With money for every source, all collect everything: the same up to the order of adding.
    (Under "average" an observed source that holds next to nothing is not worth its charge.)"""
    arguments = {
        "sources": "fleet-f", "arrivals": arrivals, "budget": 25, "budget_rule": rule,
        "start": "random", "observed": rule == "step",
    }  # fmt: skip
    # Rules that wait until a source is due do not crawl everything under "average".
    names = [n for n in agents.AGENTS if rule == "step" or n not in ("nutch", "miniflux")]
    results = compare(names, arguments, steps=25, warmup=5, seeds=3, seed=4)
    assert list(results) == names
    first = results["whittle"]
    assert first.reward.std() > 0
    for got in results.values():
        np.testing.assert_allclose(got.reward, first.reward, rtol=1e-13)
        assert (got.frequency == 1).all()
        assert (got.cost == 25).all()
        assert (got.never == 0).all()


def test_the_same_seed_gives_the_same_evaluation_of_named_and_made_agents():
    arguments = {"sources": "fleet-f", "arrivals": "poisson", "budget": 5, "observed": False}
    for name in ("whittle", "random", "adaptive-thompson"):
        settings = {"steps": 30, "warmup": 5, "seeds": 4}
        first = evaluate(name, arguments, seed=8, **settings)
        made = evaluate(
            lambda env, name=name: agents.make(name, env, seed=8),
            with_features(name, arguments)[1],
            seed=8,
            **settings,
        )
        assert same(first, made)
        other = evaluate(name, arguments, seed=9, **settings)
        assert not np.array_equal(first.reward, other.reward)
        assert np.unique(first.reward).size == 4
    assert arguments == {
        "sources": "fleet-f", "arrivals": "poisson", "budget": 5, "observed": False,
    }  # fmt: skip


# ---------------------------------------------------------------------------------------- measures


def test_measures_counted_by_hand():
    fleet = Sources([3.0, 8, 5, 2], [1.0, 2, 3, 4], [0.3, 0.2, 0.6, 0.9], [1, 2, 0.5, 4], 0.25)
    cycle = [(0, 2), (1,), (0,), (2, 1), (0, 2)]
    arguments = {"sources": fleet, "budget": 4}
    warmup, epochs = 7, 24

    def play(env):
        # At a budget of 4, sources with priority −1 would be taken too: only so many fit.
        return Scripted(env, cycle)

    # Under "average" a negative priority waits; the balance never empties with so much money.
    got = evaluate(
        play, {**arguments, "budget_rule": "average"}, steps=epochs, warmup=warmup, seeds=2
    )
    last, visited = [-1] * 4, set()  # fresh: crawled one epoch ago
    reward = cost = items = aged = 0.0
    count = np.zeros(4)
    for t in range(warmup + epochs):
        for i in cycle[t % len(cycle)]:
            k = t - last[i]
            last[i] = t
            visited.add(i)
            if t < warmup:
                continue
            rate, utility, decay = (
                float(p[i]) for p in (fleet.arrival_rate, fleet.mean_utility, fleet.decay_rate)
            )
            time = 0.25 * k
            reward += rate * utility / decay * (1 - np.exp(-decay * time))
            cost += fleet.cost[i]
            items += rate * time
            aged += rate * time * time / 2
            count[i] += 1
    np.testing.assert_allclose(got.reward, reward / epochs, rtol=1e-12)
    np.testing.assert_allclose(got.cost, cost / epochs, rtol=1e-12)
    np.testing.assert_allclose(got.delay, aged / items, rtol=1e-12)
    np.testing.assert_allclose(got.frequency, count / epochs, rtol=1e-12)
    assert got.never.tolist() == [4 - len(visited)] * 2


def test_crawls_before_the_measurement_are_not_visits():
    cycle = [(3,), (2,), (0,), (0,), (0,), (0,), (0,), (0,)]
    got = evaluate(lambda env: Scripted(env, cycle), {}, steps=6, warmup=2, seeds=1)
    assert got.never.tolist() == [3]
    np.testing.assert_allclose(got.frequency, [1, 0, 0, 0])


def test_crawls_that_fail_cost_and_are_no_visits():
    fleet = Sources([1.0, 1.0], 1.0, 0.1, failure_rate=[1.0 - 1e-12, 0.0])
    got = evaluate(lambda env: Scripted(env, [(0,)]), {"sources": fleet, "budget": 1}, steps=9)
    assert (got.cost == 1.0).all()
    assert (got.never == 2.0).all()
    assert np.isnan(got.delay).all()


def test_delay_of_a_log_counted_by_hand():
    """Ages in units of time (T = 2) of the very items; the worthless one is not collected."""
    log = ItemLog(
        ["a", "b"],
        source=[0, 0, 1, 0, 1, 0],
        published=[0.5, 1, 3, 5, 6, 7],
        utility=np.ones(6),
        start=0,
        end=8,
        curves=DecayCurves(
            [0, 0, 2, 2, 2, 2, 2], [0, 1], [1, 0]
        ),  # the second is worthless at age 1
    )
    fleet = Sources([9, 9], [9, 9], [0.1, 0.1], names=["a", "b"], period=2)
    arguments = {"sources": fleet, "arrivals": Trace(log, random_start=False), "start": "empty"}

    def play(env):
        return Scripted(env, [(1,), (0,), (1,), (1,), (0,)])

    # At time 0 nothing; at 2 from a: .5; at 4 from b: 3; at 6 nothing; at 8 from a: 5 and 7.
    got = evaluate(play, arguments, steps=5, warmup=0, seeds=2)
    np.testing.assert_allclose(got.delay, (1.5 + 1 + 3 + 1) / 4)
    later = evaluate(play, arguments, steps=2, warmup=3, seeds=1)
    np.testing.assert_allclose(later.delay, (3 + 1) / 2)
    nothing = evaluate(play, arguments, steps=1, warmup=0, seeds=1)
    assert np.isnan(nothing.delay).all()


def test_of_what_was_pushed_out_nothing_is_delayed():
    """A source that shows its last item alone: every one collected is younger than the epoch."""
    fleet = Sources([50.0, 50], [1, 1], [0.01, 0.01], capacity=[1, 1])
    got = evaluate(
        "oldest-first", {"sources": fleet, "arrivals": "poisson-items"}, steps=200, seeds=4
    )
    assert (got.delay < 0.05).all()  # 1/50 on average


def test_discounted_return():
    alpha, ceiling = np.exp(-np.array([0.7, 0.35])), np.array([250 / 0.7, 500.0])
    # Sources 1 and 2 in turn, from age 1: source 1 at age 1 first, then both at age 2.
    cycle = [(0,), (1,)]
    got = evaluate(
        lambda env: Scripted(env, cycle), {}, steps=31, warmup=0, seeds=1, discount=0.9
    ).reward[0]
    x = ceiling * (1 - alpha**2)
    rewards = [ceiling[0] * (1 - alpha[0]), *(x[t % 2] for t in range(1, 31))]
    assert got == pytest.approx(sum(0.9**t * r for t, r in enumerate(rewards)), rel=1e-12)
    # After a warm-up the discount starts anew.
    later = evaluate(
        lambda env: Scripted(env, cycle), {}, steps=31, warmup=4, seeds=1, discount=0.9
    ).reward[0]
    assert later == pytest.approx(sum(0.9**t * x[t % 2] for t in range(31)), rel=1e-12)
    plain = evaluate(lambda env: Scripted(env, cycle), {}, steps=31, warmup=0, seeds=1)
    assert plain.reward[0] == pytest.approx(sum(rewards) / 31, rel=1e-12)


# ------------------------------------------------------------------------------------ agents, calls


def test_agents_of_ones_own():
    players = []

    def factory(env):
        assert isinstance(env, CrawlVectorEnv)
        assert env.num_envs == 3
        players.append(Scripted(env, [(0,), (1,)]))
        return players[-1]

    got = compare({"mine": factory, "also": factory}, {}, steps=20, warmup=10, seeds=3)
    assert set(got) == {"mine", "also"}
    assert len(players) == 2
    np.testing.assert_allclose(got["mine"].reward, 260.389930, atol=6e-7)
    for player in players:
        assert player.states == [None, *range(1, 30)]  # what it returned comes back
        assert player.starts[0].all()
        assert not np.any(player.starts[1:])
        assert all(start.shape == (3,) for start in player.starts)


def test_progress_adds_up():
    steps = []
    evaluate("fixed", {}, steps=30, warmup=12, seeds=2, progress=steps.append)
    assert sum(steps) == 42
    assert min(steps) > 0
    steps.clear()
    compare(["fixed", "random"], {}, steps=5, warmup=1, seeds=1, progress=steps.append)
    assert sum(steps) == 12
    with pytest.raises(ValueError, match="progress is True; give a function"):
        compare(["fixed"], {}, progress=True)


def test_the_crawl_goes_on_beyond_its_horizon():
    short = evaluate("whittle", {"horizon": 5, "budget": 2}, steps=70, warmup=70, seeds=2)
    assert short.reward == pytest.approx([337.774550] * 2, abs=6e-7)


def test_the_clairvoyant_sees_the_content_that_others_meet():
    fleet = Sources.random(8, seed=1, regime="sparse")
    arguments = {"sources": fleet, "arrivals": "poisson", "budget": 2, "features": ("age",)}
    hidden = {**arguments, "observed": False}
    runs = compare(["clairvoyant", "whittle"], hidden, steps=200, warmup=20, seeds=6, seed=3)
    seeing = {**arguments, "observed": True, "features": ("value",)}
    assert same(
        runs["clairvoyant"], evaluate("whittle", seeing, steps=200, warmup=20, seeds=6, seed=3)
    )
    assert (runs["clairvoyant"].reward > 1.05 * runs["whittle"].reward).all()


def test_refuses_as_make_does():
    with pytest.raises(ValueError, match="did you mean 'whittle'"):
        evaluate("whitle", {})
    with pytest.raises(TypeError, match="did you mean 'budget'"):
        evaluate("whittle", {"buget": 2})
    with pytest.raises(ValueError, match="needs one of the features"):
        compare(["fixed", "whittle"], {"features": ("crawled",)}, steps=2, seeds=1)


@pytest.mark.parametrize(
    "given", [agents.Whittle, [agents.Whittle], agents.Whittle(CrawlEnv()), ["random", None]]
)
def test_agents_without_names_need_labels(given):
    with pytest.raises(ValueError, match=r"is not the name of an agent; .* from labels to agents"):
        compare(given, {}, steps=1, seeds=1)


@pytest.mark.parametrize(
    "env", ["table1", "EphemeralCrawl-v0", Sources.preset("table1"), TASKS["Drift100"]]
)
def test_a_fleet_alone_is_no_environment(env):
    with pytest.raises(ValueError, match=r"env is .*; give an environment .* or the arguments"):
        evaluate("whittle", env, steps=1, seeds=1)
    with pytest.raises(ValueError, match=r"is not an .*environment; .* or give a crawl_env.Task"):
        agents.Whittle(env)


def test_a_task_is_given_in_any_form():
    arguments = {
        "sources": "fleet-f",
        "budget": 3,
        "arrivals": "poisson",
        "observed": False,
        "budget_rule": "average",
        "start": "random",
        "features": ("value", "age"),
    }
    env = CrawlEnv(**arguments, horizon=7)
    settings = {"steps": 20, "warmup": 5, "seeds": 2}
    expected = evaluate("adaptive-thompson", arguments, **settings)
    for given in (
        env,
        env.task,
        gymnasium.wrappers.RecordEpisodeStatistics(env),
        CrawlVectorEnv(3, **arguments),
    ):
        assert same(evaluate("adaptive-thompson", given, **settings), expected)
    assert same(compare(["adaptive-thompson"], env, **settings)["adaptive-thompson"], expected)
    drawn = CrawlEnv(sources=lambda rng: Sources.random(5, rng), features=("value", *PARAMETERS))
    assert evaluate("whittle", drawn, **settings).reward.shape == (2,)
    with pytest.raises(ValueError, match="changes observations"):
        evaluate("whittle", gymnasium.wrappers.FlattenObservation(env))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (1.0, "action has shape"),
        (None, "action has shape"),
        ("all", "action has shape"),
        ([[3.0, 2.0, 1.0, 0.0]], ""),
        (ValueError, "it must return the action and the state"),
    ],
)
def test_what_an_agent_returns_is_checked(returned, message):
    class Mine:
        def __init__(self, env, seed=0):
            pass

        def predict(self, observation, state=None, episode_start=None, deterministic=True):
            return np.zeros((1, 4)) if returned is ValueError else (returned, None)

    if message:
        with pytest.raises(ValueError, match=message) as refusal:
            try_out(Mine, {"budget": 2}, "mine")
        assert "states the features" not in str(refusal.value)
    for agent in (Mine, Mine(None)):
        if message:
            with pytest.raises(ValueError, match=message):
                Rollout(agent, {"budget": 2}).step()
        else:
            assert Rollout(agent, {"budget": 2}).step().shape == (1,)


def test_a_learner_that_was_not_trained_is_refused():
    with pytest.raises(ValueError, match=r"has to be trained; .* WIQL\(env\)\.learn"):
        evaluate(WIQL, {"budget": 2, "features": ("age", "crawled", "harvest")})


def test_a_class_that_makes_no_agents_says_so():
    class Seedless:
        def __init__(self, env):
            pass

    with pytest.raises(ValueError, match="class Seedless has no method `predict`"):
        Rollout(Seedless, {"budget": 2})
    Seedless.predict = lambda self, *given, **more: None
    with pytest.raises(ValueError, match=r"argument 'seed'\. An agent is made as Seedless\(env"):
        Rollout(Seedless, {"budget": 2})
