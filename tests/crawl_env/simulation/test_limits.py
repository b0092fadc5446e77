"""Delays, failures, hosts and capacities as an environment poses them: against plain Python, and
whether any sequence of actions can break them."""

import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl_env import CrawlEnv, CrawlVectorEnv, Sources
from tests.crawl_env.env_plain import (
    CHANNELS,
    PlainCrawl,
    PlainSource,
    fleet_of,
    unreachable_is_fine,
)
from tests.references import Z_LIMIT, plainly, z_of_share

ALL = (*CHANNELS, "available", "failed")
RULES = ("step", "average")
fewer = settings(plainly, max_examples=60)


@st.composite
def tasks(draw, most=6):
    """A small fleet with all limits but capacities, and the other arguments."""
    fleet = [
        PlainSource(
            rate=draw(st.sampled_from([0.5, 3.0])),
            utility=draw(st.sampled_from([0.4, 1.0])),
            decay=draw(st.sampled_from([0.05, 0.7])),
            cost=draw(st.sampled_from(["1", "1", "0.3", "2.5"])),
            delay=draw(st.sampled_from([1, 1, 2, 4])),
            host=draw(st.sampled_from(["", "a", "a", "b"])),
        )
        for _ in range(draw(st.integers(1, most)))
    ]
    return fleet, {
        "budget": draw(st.sampled_from(["1", "2", "2.9", "5"])),
        "budget_rule": draw(st.sampled_from(RULES)),
        "per_host": draw(st.integers(1, 2)),
        "failure_rate": draw(st.sampled_from([0.0, 0.4])),
        "start": draw(st.sampled_from(["fresh", "empty"])),
        "seed": draw(st.integers(0, 99)),
    }


def posed(fleet, given_, **more):
    """The arguments of the environment that go with it."""
    named = {name: given_[name] for name in ("budget_rule", "per_host", "start")}
    sources = fleet_of(fleet, failure_rate=given_["failure_rate"])
    return {"sources": sources, "budget": float(given_["budget"]), **named, **more}


@fewer
@given(case=tasks())
def test_every_channel_follows_plain_python(case):
    """What is tried, what it brings and what is seen; failures are those that the env reports."""
    fleet, arguments = case
    if arguments["budget_rule"] == "step" and all(
        Fraction(s.cost) > Fraction(arguments["budget"]) for s in fleet
    ):
        return  # refused: nothing can be crawled
    with unreachable_is_fine():
        env = CrawlEnv(**posed(fleet, arguments, features=ALL))
    plain = PlainCrawl(
        fleet,
        arguments["budget"],
        arguments["budget_rule"],
        {"fresh": 1, "empty": 0}[arguments["start"]],
        arguments["per_host"],
    )
    seen, _ = env.reset(seed=arguments["seed"])
    np.testing.assert_allclose(seen, plain.observation(ALL), rtol=1e-6, atol=1e-6)
    rng = np.random.default_rng(arguments["seed"])
    for _ in range(12):
        wanted = rng.choice([-0.5, 0.0, 0.25, 1.0], len(fleet)).astype(np.float32)
        chosen = plain.select(wanted.tolist())
        seen, reward, *_ = env.step(wanted)
        failed = set(np.flatnonzero(seen[:, ALL.index("failed")]).tolist())
        assert failed <= chosen
        assert not failed or arguments["failure_rate"]
        assert reward == pytest.approx(plain.step(chosen, failed), rel=1e-12)
        np.testing.assert_allclose(seen, plain.observation(ALL), rtol=1e-6, atol=1e-6)


def test_a_success_in_the_world_counts_as_an_attempt():
    """Also where a planner does not say which crawls failed."""
    world = CrawlEnv(sources=Sources(5.0, 1.0, [0.3, 0.3], crawl_delay=3, failure_rate=0.5)).world
    world.start(np.full((1, 2), 5.0), np.random.default_rng(0))
    world.crawl(np.array([0]))
    world.advance(np.random.default_rng(0))
    assert world.steps_since_attempt.tolist() == [[1.0, 6.0]]
    assert world.available.tolist() == [[False, True]]


# ------------------------------------------------------------------------- limits hold


def everything(n=8, **more):
    """A fleet with all limits at once."""
    rng = np.random.default_rng(3)
    parameters = {
        "cost": rng.choice([0.5, 1.0, 2.0], n),
        "crawl_delay": rng.choice([0.0, 0.0, 2.0, 3.5], n),
        "capacity": rng.choice([1.0, 3.0, np.inf], n),
        "failure_rate": rng.choice([0.0, 0.3, 0.6], n),
        "hosts": [["", "a", "b", "a"][i % 4] for i in range(n)],
    }
    return Sources(
        rng.uniform(0.2, 4, n), rng.uniform(0.5, 2, n), rng.uniform(0.05, 1, n), **parameters | more
    )


def test_delays_are_whole_epochs_rounded_up():
    delays = [0.0, 0.5, 1.0, 1.0000001, 2.5, 0.3 * 3 / 0.9]
    fleet = Sources(1.0, 1.0, np.full(6, 0.1), crawl_delay=delays)
    assert fleet.delay.tolist() == [1, 1, 1, 2, 3, 1]
    assert fleet.replaced(period=0.5).delay.tolist() == [1, 1, 2, 3, 5, 2]
    assert Sources(1.0, 1.0, 0.1, crawl_delay=0.3, period=0.1).delay.tolist() == [3]


def test_failures_have_their_rate_and_cost_their_budget():
    """Binomial counts: a right sampler fails this once in 150,000 times."""
    rate = np.array([0.0, 0.2, 0.7])
    fleet = Sources(3.0, 1.0, np.full(3, 0.2), failure_rate=rate)
    env = CrawlVectorEnv(
        500,
        sources=fleet,
        budget=1.5,
        budget_rule="average",
        features=("crawled", "failed", "harvest", "items", "balance"),
        arrivals="poisson-items",
    )
    env.reset(seed=3)
    tried, failed = np.zeros((500, 3)), np.zeros((500, 3))
    for _ in range(30):
        before = env._simulation.balance.copy()
        seen, reward, *_ = env.step(np.ones((500, 3), dtype=np.float32))
        crawled, missed, harvest, items, balance = np.moveaxis(seen, -1, 0)
        assert not (crawled * missed).any()
        assert not (harvest + items)[missed > 0].any()
        np.testing.assert_allclose(harvest.sum(axis=1), reward, rtol=1e-5, atol=1e-5)
        attempts = (crawled + missed).sum(axis=1)
        np.testing.assert_allclose(balance[:, 0], before + 1.5 - attempts, atol=1e-4)
        tried += crawled + missed
        failed += missed
    assert not failed[:, 0].any()
    for i in (1, 2):
        outcome = np.repeat(
            [1.0, 0.0], [int(failed[:, i].sum()), int((tried - failed)[:, i].sum())]
        )
        assert outcome.size > 5000
        assert abs(z_of_share(outcome, rate[i])) < Z_LIMIT


# ------------------------------------------------------------------------- capacities


@pytest.mark.parametrize(
    ("arrivals", "observed"), [("deterministic", True), ("poisson-items", False)]
)
def test_what_is_believed_is_the_mean_of_the_last_items(arrivals, observed):
    """Deterministic content, and the belief, follow the age exactly, failures or not."""
    fleet = everything()
    env = CrawlEnv(
        sources=fleet, budget=3, arrivals=arrivals, observed=observed, features=("value", "age")
    )
    seen, _ = env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(30):
        expected = fleet.content_at(seen[:, 1].astype(float))
        np.testing.assert_allclose(seen[:, 0], expected, rtol=2e-6)
        seen, *_ = env.step(rng.random(8).astype(np.float32))


# ------------------------------------------------------------------------- fleets and files


def write(path, text):
    path.write_text(text)
    return path


HEAD = "source,arrival_rate,mean_utility,decay_rate"


def test_empty_cells_of_a_csv_mean_the_default(tmp_path):
    path = write(
        tmp_path / "fleet.csv",
        f"{HEAD},cost,crawl_delay,capacity,failure_rate,host\n"
        "a,1,2,3,,,,,\n"
        "b,1,2,3,2,0.5,10,0.25, h \n"
        "c,1,2,3, ,,inf,,h\n",
    )
    fleet = Sources.from_csv(path, period=0.25)
    assert fleet.cost.tolist() == [1, 2, 1]
    assert fleet.crawl_delay.tolist() == [0, 0.5, 0]
    assert fleet.delay.tolist() == [1, 2, 1]
    assert fleet.capacity.tolist() == [np.inf, 10, np.inf]
    assert fleet.failure_rate.tolist() == [0, 0.25, 0]
    assert fleet.hosts == ("", "h", "h")


@pytest.mark.parametrize(
    ("column", "value", "wanted"),
    [
        ("crawl_delay", "-1", "zero or positive"),
        ("crawl_delay", "inf", "zero or positive and finite"),
        ("crawl_delay", "nan", "zero or positive"),
        ("capacity", "0", "a whole number, at least 1, or inf"),
        ("capacity", "2.5", "a whole number, at least 1, or inf"),
        ("capacity", "nan", "a whole number, at least 1, or inf"),
        ("capacity", "many", "not a number"),
        ("failure_rate", "1", "below 1"),
        ("failure_rate", "-0.1", "at least 0"),
        ("failure_rate", "nan", "below 1"),
        ("cost", "0", "positive and finite"),
    ],
)
def test_a_bad_limit_names_file_row_and_source(tmp_path, column, value, wanted):
    path = write(tmp_path / "bad.csv", f"{HEAD},{column}\na,1,2,3,\nb,1,2,3,{value}\n")
    with pytest.raises(ValueError, match=rf"bad\.csv, row 3.*{column}.*{wanted}"):
        Sources.from_csv(path)
    if value != "many":
        with pytest.raises(ValueError, match=f"source 1.*{column} is .*{wanted}"):
            Sources(
                1.0,
                1.0,
                [1.0, 1.0],
                **{column: [1.0 if column != "failure_rate" else 0.0, float(value)]},
            )


def test_limits_survive_files_and_copies(tmp_path):
    fleet = everything()
    named = Sources(**{**fleet.__getstate__(), "names": [f"s{i}" for i in range(8)]})
    named.to_csv(tmp_path / "fleet.csv")
    assert Sources.from_csv(tmp_path / "fleet.csv") == named
    assert pickle.loads(pickle.dumps(named)) == named
    part = named.select([1, 3, 4])
    assert part.hosts == ("a", "a", "")
    assert part.capacity.tolist() == named.capacity[[1, 3, 4]].tolist()
    assert named.select([0, 1]).hosts == ()  # nobody shares
    plain = Sources(1.0, 1.0, [0.5, 0.6])
    plain.to_csv(tmp_path / "plain.csv")
    assert "host" not in (tmp_path / "plain.csv").read_text()
    assert "capacity" not in (tmp_path / "plain.csv").read_text()


@pytest.mark.parametrize(
    "change", [{"crawl_delay": 5.0}, {"capacity": 7}, {"failure_rate": 0.1}, {"hosts": ["x"] * 8}]
)
def test_fleets_drawn_with_other_limits_are_refused(change):
    calls = iter([everything(), everything(), everything(**change)])
    env = CrawlEnv(sources=lambda rng: next(calls), budget=3)
    env.reset(seed=0)
    with pytest.raises(
        ValueError,
        match="changed crawl delays, capacities, failure rates, signals, hosts or topics",
    ):
        env.reset()


def test_drawn_fleets_keep_their_limits():
    def draw(rng):
        return everything().replaced(arrival_rate=rng.uniform(0.5, 3, 8))

    env = CrawlVectorEnv(2, sources=draw, budget=3, arrivals="poisson-items", horizon=9)
    env.reset(seed=0)
    now = env.world.sources
    assert now.hosts == everything().hosts
    for name in ("crawl_delay", "capacity", "failure_rate"):
        assert np.array_equal(getattr(now, name), np.tile(getattr(everything(), name), (2, 1)))


@pytest.mark.parametrize(
    ("per_host", "wrong"), [(0, "0"), (1.5, "1.5"), (True, "True"), ("a", "'a'")]
)
def test_per_host_is_a_positive_whole_number(per_host, wrong):
    with pytest.raises(ValueError, match=f"per_host is {wrong}"):
        CrawlEnv(per_host=per_host)
