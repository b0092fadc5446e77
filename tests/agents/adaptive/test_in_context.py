"""The in-context agent: free of units and of the order of sources, and as good as was measured."""

import hashlib

import numpy as np
import pytest

import agents
from agents.adaptive.in_context import ContextMemory, InContext
from agents.adaptive.network import WEIGHTS, Network, read_network, shipped
from agents.evaluation import statistics
from agents.inference.history import GAP, F
from agents.inference.history import SUMS as SUMS_KEPT
from crawl_env import CrawlVectorEnv, Deadline, DiminishingReturns, Sources, Task
from crawl_env.benchmark import named
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.simulation.observation import POWERS_OF_TIME, SUMMED

HARVEST = ("age", "crawled", "harvest")
SUMS = (*HARVEST, "items", *SUMMED)
TOLD = (*HARVEST, "items", "mean_utility", "decay_rate")
TOPICS = (*SUMS, "topic")
LOOKS = (*HARVEST, "seen", "shown")
SEEN = pytest.mark.parametrize(
    "features",
    [HARVEST, SUMS, TOLD, TOPICS, LOOKS],
    ids=["harvest", "sums", "told", "topics", "looks"],
)
N = 12


@pytest.fixture
def cycles(monkeypatch):
    """Daily cycles are found where there are items and sums, whatever the evidence."""
    monkeypatch.setattr("agents.inference.cycles._EVIDENCE", -1.0)
    assert InContext(task_of(SUMS)).cyclic


def task_of(features, period=1.0, unit=1.0):
    fleet = Sources.random(N, 3, "sparse")
    scaled = fleet.arrival_rate * 5 / period, fleet.mean_utility * unit, fleet.decay_rate / period
    topics = [str(i % 3) for i in range(N)] if "topic" in features else ()
    sources = Sources(*scaled, period=period, topics=topics)
    look_cost = 0.1 if "seen" in features else None
    return Task(
        sources, 3, arrivals="poisson-items", observed=False, features=features, look_cost=look_cost
    )


def history(features, steps=30):
    """Return observations of two runs under a policy at random, (steps, 2, N, F)."""
    task = task_of(features)
    env = CrawlVectorEnv(2, task.sources, 3, arrivals=task.arrivals, observed=False,
                         features=features, horizon=None, look_cost=task.look_cost)  # fmt: skip
    rng = np.random.default_rng(0)
    seen = [env.reset(seed=0)[0]]
    seen += [env.step(rng.random(env.action_space.shape))[0] for _ in range(steps)]
    return np.array(seen)


def indices(agent, seen):
    """Return the priorities in every step of a given history, (steps, B, N)."""
    state, chosen = None, []
    for observation in seen:
        priority, state = agent.predict(observation, state)
        chosen.append(priority)
    return np.array(chosen)


@SEEN
@pytest.mark.usefixtures("cycles")
@pytest.mark.parametrize(("time", "utility"), [(24.0, 1.0), (0.01, 5e6)])
def test_neither_the_unit_of_time_nor_that_of_utility_matters(features, time, utility):
    seen = history(features)
    other = seen.astype(np.float64)
    for k, name in enumerate(features):
        if name in ("harvest", "mean_utility", "shown"):
            other[..., k] *= utility
        elif name == "decay_rate":
            other[..., k] /= time
        elif name in SUMMED:
            power = POWERS_OF_TIME[SUMMED.index(name)]
            if "log" in name:  # Σ ln w and Σ s ln w
                number, age = (features.index(f"harvest_{x}") for x in ("number", "age"))
                column = age if name == "harvest_age_log" else number
                other[..., k] += np.log(utility) * seen[..., column]
            other[..., k] *= time**power
    mine = indices(InContext(task_of(features)), seen)
    same = indices(
        InContext(task_of(features, time, utility), day=24.0 * time), other.astype(np.float32)
    )
    np.testing.assert_allclose(mine, same, rtol=2e-3)
    assert np.ptp(mine) > 0.1


def test_harvests_whose_squares_vanish_are_ranked():
    seen = history(HARVEST)
    seen[..., HARVEST.index("harvest")] *= 1e-26
    assert np.ptp(indices(InContext(task_of(HARVEST)), seen)) > 0.1


def test_a_harvest_that_is_hardly_a_number_is_none():
    seen = history(HARVEST)
    column, none = HARVEST.index("harvest"), seen.copy()
    seen[..., 0, column] = np.where(seen[..., 0, column] > 0.0, 1e-45, 0.0)
    none[..., 0, column] = 0.0
    mine, other = (indices(InContext(task_of(HARVEST)), each) for each in (seen, none))
    assert np.isfinite(mine).all()
    assert np.array_equal(mine, other)


@SEEN
@pytest.mark.usefixtures("cycles")
def test_permuted_sources_have_permuted_priorities(features):
    seen, order = history(features), np.random.default_rng(1).permutation(N)
    task = task_of(features)
    other = Task(task.sources.select(order), 3, arrivals=task.arrivals, observed=False,
                 features=features, look_cost=task.look_cost)  # fmt: skip
    mine, its = indices(InContext(task), seen), indices(InContext(other), seen[:, :, order])
    np.testing.assert_allclose(its, mine[..., order], rtol=1e-4)


@SEEN
@pytest.mark.usefixtures("cycles")
def test_a_run_does_not_depend_on_the_others_of_its_batch(features):
    seen = history(features)
    together, alone = (indices(InContext(task_of(features)), x) for x in (seen, seen[:, :1]))
    np.testing.assert_allclose(alone, together[:, :1], rtol=1e-4)


def test_the_hidden_parameters_are_not_used():
    seen, task = history(SUMS), task_of(SUMS)
    other = Task(Sources.random(N, 9), 3, arrivals=task.arrivals, observed=False, features=SUMS)
    np.testing.assert_array_equal(indices(InContext(task), seen), indices(InContext(other), seen))


def test_crawls_fade_over_the_memory():
    """The sums of a source are those of the last tours, as many as its memory, and crawls of the
    first of these count e times less than the last."""
    task, tours, find = task_of(HARVEST), 5.0, SUMS_KEPT.index
    agent = InContext(task, memory=tours)
    env = CrawlVectorEnv(1, task.sources, 3, arrivals=task.arrivals, observed=False,
                         features=HARVEST, horizon=None)  # fmt: skip
    seen = env.reset(seed=0)[0]
    state = None
    crawls = np.zeros(N)
    for step in range(400):
        crawled = (np.arange(N) + step) % 4 == 0  # every source once a tour
        seen = env.step(crawled[None].astype(np.float32))[0]
        seen[..., HARVEST.index("harvest")] = 7.0 if step < 380 else 0.0
        _, state = agent.predict(seen, state)
        crawls += crawled
    sums = state[3][0]
    np.testing.assert_allclose(sums[:, find("gap")], tours, rtol=1e-5)
    np.testing.assert_allclose(sums[:, find("crawls")], tours, rtol=0.02)
    kept = (1 + 1 / tours) ** -5  # the last five crawls found nothing
    np.testing.assert_allclose(sums[:, find("harvest")], 7.0 * tours * kept, rtol=0.02)


@SEEN
def test_a_memory_that_is_not_full_changes_nothing(features):
    seen = history(features)
    whole, long, short = (
        indices(InContext(task_of(features), memory=memory), seen) for memory in (np.inf, 30.0, 1.0)
    )
    np.testing.assert_array_equal(long, whole)
    assert not np.allclose(short, whole, rtol=1e-3)


@pytest.mark.parametrize("option", ["memory", "day"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_memory_and_day_must_be_positive(option, value):
    with pytest.raises(ValueError, match=f"{option} is"):
        InContext(task_of(HARVEST), **{option: value})


def test_the_shipped_weights_are_as_good_as_measured():
    def fleet(rng):
        return Sources.random(50, rng, "sparse")

    task = {"sources": fleet, "budget": 5, "arrivals": "poisson-items"}
    task |= {"observed": False, "features": ("age", *PARAMETERS)}
    size = {"steps": 120, "warmup": 150, "seeds": 6}
    best, worst = (agents.evaluate(x, task, **size).reward for x in ("whittle", "random"))
    for features, least in ((HARVEST, 0.75), (SUMS, 0.8), (TOLD, 0.9)):
        mine = agents.evaluate("in-context", {**task, "features": (*features, "cost")}, **size)
        assert statistics.score(mine.reward, worst, best).mean > least


def test_the_shipped_file_is_small_and_names_its_hash():
    network, about = read_network(WEIGHTS)
    content = b"".join(np.ascontiguousarray(x).tobytes() for x in network)
    assert about["sha256"] == hashlib.sha256(content).hexdigest()
    assert WEIGHTS.stat().st_size <= 200_000
    assert about["settings"]["seed"] >= 0
    assert shipped() is shipped()


@pytest.mark.parametrize("damage", ["cut", "shape", "nan", "zero"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    pytest.importorskip("torch")
    from agents.adaptive.training import write

    path, network = tmp_path / "weights.safetensors", shipped()
    if damage == "shape":
        network = network._replace(first=np.zeros((F + 1, 64), np.float32))
    elif damage == "nan":
        network = network._replace(bias=np.full_like(network.bias, np.nan))
    elif damage == "zero":
        network = network._replace(std=np.zeros_like(network.std))
    write(path, network, {})
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="weights"):
        InContext(task_of(HARVEST), weights=path)


def test_weights_are_read_back_as_written(tmp_path):
    pytest.importorskip("torch")
    from agents.adaptive.training import write

    write(tmp_path / "copy", shipped(), {"settings": {"seed": 1}})
    network, about = read_network(tmp_path / "copy")
    assert isinstance(network, Network)
    assert about["settings"] == {"seed": 1}
    for mine, its in zip(network, shipped(), strict=True):
        np.testing.assert_array_equal(mine, its)


def test_the_average_budget_is_kept():
    task = task_of(HARVEST)
    arguments = {"sources": task.sources, "budget": 2.5, "budget_rule": "average"}
    arguments |= {"observed": False, "arrivals": "poisson"}
    run = agents.evaluate("in-context", arguments, steps=150, seeds=1)
    np.testing.assert_allclose(run.cost, 2.5, rtol=0.1)


@pytest.mark.parametrize("features", [("crawled", "harvest"), SUMS, TOLD])
@pytest.mark.parametrize(
    ("fleet", "arguments"),
    [
        ({"arrival_rate": [0.3], "mean_utility": 1.0, "decay_rate": 0.1}, {"budget": 1}),
        ({"arrival_rate": [0.0] * 6}, {}),
        ({"failure_rate": [0.99] * 3 + [0.0] * 3, "crawl_delay": 2.0}, {}),
        ({"topics": list("aabbcc")}, {}),
        ({"hosts": list("aaabbb")}, {"per_host": 1}),
        ({"cost": [0.1, 0.5, 1.0, 1.5, 2.0, 2.0]}, {"horizon": 20}),
        ({"mean_utility": 10.0 ** np.linspace(-12, 12, 6)}, {"scaled": True, "flat": True}),
        ({"cost": 3.0}, {"budget": 0.02, "budget_rule": "average"}),
        ({}, {"look_cost": 0.1, "unchanged_cost": 0.1}),
    ],
    ids=["one", "silent", "dead", "topics", "hosts", "costs", "extreme", "rarely", "looks"],
)
def test_it_plays(features, fleet, arguments):
    usual = {"arrival_rate": 0.3, "mean_utility": 1.0, "decay_rate": np.linspace(0.05, 0.5, 6)}
    sources = Sources(**{**usual, **fleet})
    task = {"budget": 2, "arrivals": "poisson-items", "observed": False, "horizon": None}
    task |= {"sources": sources, "features": features, **arguments}
    run = agents.evaluate("in-context", task, steps=30, warmup=0, seeds=2)
    assert np.isfinite(run.reward).all()
    assert (run.cost <= task["budget"] + 3.0 / 30).all()


@pytest.mark.parametrize("missing", ["crawled", "harvest"])
def test_what_it_cannot_play_without_is_named(missing):
    shown = tuple(name for name in HARVEST if name != missing)
    with pytest.raises(ValueError, match=f"needs the feature {missing}"):
        agents.make("in-context", task_of(shown))


def test_sources_that_were_seen_little_gain_most_with_age():
    network, seen, found = shipped(), np.linspace(1.0, 100.0, N), []  # gaps, tours
    for growth in (0.0, 0.2):
        agent = InContext(
            task_of(HARVEST), weights=network._replace(optimism=np.float32([0.5, growth]))
        )
        memory = ContextMemory(*agent.predict(history(HARVEST, 0)[0])[1])
        memory.sums[..., SUMS_KEPT.index("gap")] = seen
        age = np.full((2, N), 10.0 * agent.tour)
        found.append(agent.index(memory._replace(age=age)))
    np.testing.assert_allclose(found[1] / found[0], [1 + 0.2 * 10 / (seen + 1)] * 2)
    assert network.optimism[1] > 0


def test_content_that_is_observed_is_used():
    fleets = [Sources.random(20, seed, "sparse") for seed in range(2)]
    reward = {}
    for features in (HARVEST, ("content", *HARVEST)):
        found = [
            agents.evaluate(
                "in-context",
                {"sources": fleet, "budget": 2, "arrivals": "poisson", "features": features,
                 "observed": [True, False] * 10},
                steps=300, warmup=100, seeds=1, seed=seed,
            ).reward.mean()
            for seed, fleet in enumerate(fleets)
        ]  # fmt: skip
        reward[features] = np.array(found)
    hidden, seen = reward.values()
    assert (seen > 1.1 * hidden).all()


def test_pings_are_worth_what_they_announce():
    reward = [
        agents.evaluate(
            "in-context",
            {
                "sources": Sources.random(30, 3, "sparse"),
                "budget": 2,
                "arrivals": "poisson-items",
                "observed": False,
                "signals": {"recall": 0.8, "precision": 0.8},
                "features": features,
            },
            steps=150,
            warmup=60,
            seeds=3,
        ).reward.mean()
        for features in (SUMS, (*SUMS, "pings"))
    ]
    assert reward[1] > 1.1 * reward[0]


def test_daily_cycles_are_noticed():
    """Rewards of an agent that knows the day relative to one that looks for another."""
    fleet = Sources.random(30, 3, "sparse")
    phase = np.random.default_rng(1).uniform(0.0, 24.0, 30).tolist()
    task = {
        "sources": Sources(fleet.arrival_rate / 2, fleet.mean_utility, fleet.decay_rate, period=2),
        "budget": 2,
        "arrivals": {
            "name": "poisson",
            "rate": {"name": "cycle", "amplitude": 0.9, "phase": phase},
            "sampler": "items",
        },
        "observed": False,
        "features": SUMS,
    }
    same, other = (
        agents.evaluate(
            lambda env, day=day: InContext(env, day=day), task, steps=300, warmup=150, seeds=4
        ).reward
        for day in (24.0, 17.0)
    )
    assert (same > 1.03 * other).all()


def test_regimes_of_topics_are_noticed_and_their_absence_costs_little():
    """Rewards with the feature `topic` relative to those without, on the same eight fleets."""
    task = named("Regimes100").arguments_of("validation", 0)
    hidden = tuple(name for name in task["features"] if name != "topic")
    gain = []
    for arrivals in (task["arrivals"], "poisson-items"):
        shown, not_shown = (
            agents.evaluate(
                "in-context",
                {**task, "arrivals": arrivals, "features": features},
                steps=150, warmup=100, seeds=8,
            ).reward
            for features in (task["features"], hidden)
        )  # fmt: skip
        gain.append(statistics.ratio(shown, not_shown))
    assert gain[0].low > 1.0
    assert gain[1].mean > 0.98


def test_mean_rates_are_corrected_for_the_regimes_before_the_crawls():
    """They are closer to the true ones than items per step, and `memory` forgets as much of the
    correction as of the steps, whose factors were between .2 and 1.8."""
    fleet, topics = Sources.random(60, 3, "dense").describe(), [str(i % 6) for i in range(60)]
    arrivals = {"name": "poisson", "rate": {"name": "regimes"}, "sampler": "items"}
    env = CrawlVectorEnv(3, Sources(**{**fleet, "topics": topics}), 4, arrivals=arrivals,
                         observed=False, features=(*TOLD, "topic"))  # fmt: skip
    for memory in (np.inf, 0.5):
        agent, state, seen = InContext(env, memory=memory), None, env.reset(seed=5)[0]
        for _ in range(400):
            priority, state = agent.predict(seen, state)
            seen = env.step(priority)[0]
        after = ContextMemory(*state)
        if memory == np.inf:
            plain, truth = after._replace(excess=0.0), env.world.sources.arrival_rate * agent.tour
            wrong, before = (np.abs(np.log(agent._rates(m)[1] / truth)) for m in (after, plain))
            assert wrong.mean() < 0.9 * before.mean()
        gap = after.sums[..., GAP]
        assert (np.abs(after.excess) <= 0.82 * gap).all()


def test_sources_are_assigned_to_the_steps_before_a_deadline():
    """It collects more than an index policy that is told the rates."""
    task = named("Deadline60").arguments_of("validation", 0)
    names = ["in-context", "whittle-deadline"]
    runs = agents.compare(names, task, steps=240, warmup=240, seeds=4)
    mine, told = (run.reward for run in runs.values())
    assert (mine > 1.02 * told).all()


def test_content_counts_for_what_will_be_left_of_it_at_the_deadline_where_costs_differ():
    fleet = Sources.random(N, 3, "sparse").replaced(cost=np.linspace(1.0, 2.0, N))
    features = (*HARVEST, "mean_utility", "decay_rate", "steps_left")
    env = CrawlVectorEnv(2, fleet, 3, observed=False, payoff=Deadline(7), features=features)
    agent, state, seen = InContext(env), None, env.reset(seed=0)[0]
    for _ in range(30):
        priority, state = agent.predict(seen, state)
        left = seen[..., features.index("steps_left")]
        wanted = agent.index(ContextMemory(*state)) / fleet.cost * np.exp(-fleet.decay_rate * left)
        np.testing.assert_array_equal(priority.argsort(axis=-1), wanted.argsort(axis=-1))
        seen = env.step(priority)[0]


@pytest.mark.parametrize("told", [(), ("mean_utility", "decay_rate")])
def test_the_unit_of_utility_does_not_matter(told):
    fleet = Sources.random(40, 0)
    fleet = Sources(**{**fleet.describe(), "topics": [str(i // 8) for i in range(40)]})
    features = (*HARVEST, *told, "topic", "steps_left")
    for limit in (float(fleet.content_at(10).mean()), None):
        rewards = []
        for unit in (1.0, 2.0**-14, 2.0**14):
            payoff = Deadline(6) if limit is None else DiminishingReturns(limit * unit)
            sources = fleet.replaced(mean_utility=fleet.mean_utility * unit)
            task = {"sources": sources, "budget": 4, "arrivals": "poisson", "observed": False}
            asked = {**task, "payoff": payoff, "features": features}
            run = agents.evaluate("in-context", asked, steps=60, warmup=30, seeds=2)
            rewards.append(run.reward.mean() / unit)
        np.testing.assert_allclose(rewards, rewards[0], rtol=0.02)


class Heedless(InContext):
    """Observes neither topics nor what looks show."""

    @classmethod
    def features_in(cls, task):
        return cls.features


@pytest.mark.parametrize("name", ["Diminishing40", "Looks100"])
def test_it_heeds_the_payoff_and_the_actions_of_a_task(name):
    """Rewards relative to those of an agent that does not, in the same four runs."""
    task = {**named(name).arguments_of("validation", 0), "features": HARVEST}
    heeding, heedless = (
        agents.evaluate(agent, task, steps=80, warmup=30, seeds=4).reward
        for agent in ("in-context", Heedless)
    )
    assert statistics.ratio(heeding, heedless).low > 1.1
