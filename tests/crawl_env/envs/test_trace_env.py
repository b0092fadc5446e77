"""Environments that play back a log: states, seeds, vectors, paths, what is shown and refused."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from crawl_env import CrawlEnv, CrawlVectorEnv, DecayCurves, ItemLog, Sources, Trace
from crawl_env.content.names import make_arrivals
from crawl_env.content.world import World
from tests.crawl_env.env_plain import CHANNELS, random_actions, run, same

N = 4
FLEET = Sources([0.5, 1, 0.2, 2], [1, 0.7, 2, 0.3], [0.35, 0.1, 0.2, 0.05], period=0.5)


def recorded(seed=0, n=90, curves=True):
    """A log of 30 hours, every other item with a curve."""
    rng = np.random.default_rng(seed)
    with_curve = np.arange(n) % 2 * curves
    first = np.concatenate(([0], np.cumsum(3 * with_curve)))
    shapes = DecayCurves(
        first,
        np.tile([0.0, 1.5, 6.0], with_curve.sum()),
        np.tile([1.0, 0.4, 0.0], with_curve.sum()),
    )
    times = rng.uniform(0, 30, n)
    return ItemLog(
        FLEET.names, rng.integers(0, N, n), times, rng.exponential(size=n), 0, 30, shapes
    )


LOG = recorded()
POSED = {
    "sources": FLEET,
    "arrivals": Trace(LOG),
    "budget": 2,
    "features": CHANNELS,
    "observed": [True, False, True, False],
    "start": "random",
    "horizon": 6,
}


def test_every_place_in_the_log_is_equally_likely():
    vec = CrawlVectorEnv(6000, **POSED)
    vec.reset(seed=0)
    place = vec.get_state()["world"]["feed"]
    count = np.bincount(place, minlength=60)
    assert count.size == 60  # 30 hours in epochs of half an hour
    expected = 6000 / 60
    chi_square = ((count - expected) ** 2 / expected).sum()
    assert chi_square < 59 + 4.5 * np.sqrt(2 * 59)


def test_a_reset_of_some_rows_leaves_the_items_of_others_alone():
    posed = {**POSED, "autoreset_mode": "Disabled", "horizon": 50}
    vec, left_alone = (CrawlVectorEnv(3, **posed) for _ in range(2))
    for env in (vec, left_alone):
        env.reset(seed=0)
    actions = random_actions(vec, 40)
    run(vec, actions[:5])
    run(left_alone, actions[:5])
    vec.reset(options={"reset_mask": np.array([False, True, False])})
    for action in actions[5:]:
        one, other = vec.step(action), left_alone.step(action)
        for got, expected in zip(one[:2], other[:2], strict=True):
            assert np.array_equal(got[[0, 2]], expected[[0, 2]])
    assert not np.array_equal(one[0][1], other[0][1])


@pytest.mark.parametrize("start", ["empty", "random"])
def test_nothing_of_the_log_is_seen_before_a_crawl(start):
    features = ("age", "crawled", "harvest", "items", "balance")
    posed = {**POSED, "features": features, "start": start, "budget_rule": "average"}
    wait = np.full(N, -1, dtype=np.float32)
    seen = []
    for log in (LOG, recorded(1, n=500), ItemLog(FLEET.names, [], [], [], 0, 30)):
        env = CrawlEnv(**{**posed, "arrivals": Trace(log)})
        seen.append([env.reset(seed=4)[0], *(env.step(wait)[0] for _ in range(5))])
        assert not env.step(wait)[4]["collected"].any()
    for other in seen[1:]:
        assert np.array_equal(seen[0], other)


@pytest.mark.parametrize(("ending", "kind"), [(".csv", str), (".csv.gz", Path), (".parquet", str)])
def test_the_path_of_a_log_is_a_trace_of_it(tmp_path, ending, kind):
    path = tmp_path / f"log{ending}"
    log = recorded(curves=False)
    if ending == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        names = [log.names[i] for i in log.source]
        columns = {"source": names, "published": log.published, "utility": log.utility}
        parquet.write_table(pyarrow.table(columns), path)
    else:
        log.to_csv(path)
    got = make_arrivals(kind(path))
    assert isinstance(got, Trace)
    assert repr(got).startswith("Trace(90 items of 4 sources")
    assert got.random_start
    assert np.array_equal(got.log.published, log.published)
    assert got.log.start == log.published[0]
    env = CrawlEnv(**{**POSED, "arrivals": kind(path)})
    env.reset(seed=0)
    same_log = CrawlEnv(**{**POSED, "arrivals": Trace(ItemLog.from_csv(path))})
    same_log.reset(seed=0)
    actions = random_actions(env, 5)
    assert same(run(env, actions), run(same_log, actions))


@pytest.mark.parametrize(
    ("posed", "words"),
    [
        ({"arrivals": "trace"}, r"log to replay; give its path"),
        ({"arrivals": "tracee"}, r"arrivals 'tracee'"),
        ({"arrivals": Trace}, r"give a name"),
        ({"arrivals": LOG}, r"Trace\(items\)"),
        ({"sources": FLEET.select([0, 1])}, r"2 sources that the fleet lacks \(3, 4\).*select"),
        ({"sources": lambda rng: FLEET}, r"one fleet of named sources.*give one fleet"),
    ],
    ids=["no log", "misspelt", "class", "items", "missing sources", "drawn"],
)
def test_what_cannot_be_played_is_refused_in_the_user_s_terms(posed, words):
    with pytest.raises(ValueError, match=words):
        CrawlEnv(**{"sources": FLEET, "arrivals": Trace(LOG), **posed})


def test_the_remedy_for_missing_sources_works():
    fleet = FLEET.select([0, 1])
    kept = LOG.select([name for name in LOG.names if name in fleet.names])
    env = CrawlEnv(sources=fleet, arrivals=Trace(kept))
    assert env.reset(seed=0)[0].shape == (2, 1)
    assert env.step([1.0, 0.0])[1] >= 0


def test_a_value_cannot_be_set_and_an_age_can():
    env = CrawlEnv(**{**POSED, "horizon": None})
    with pytest.raises(ValueError, match=r"items are stored singly.*options\['age'\]"):
        env.reset(seed=0, options={"value": np.ones(N)})
    seen = env.reset(seed=0, options={"age": [1, 2, 3, 0]})[0]
    assert seen[:, 1].tolist() == [1, 2, 3, 0]
    assert env.world.value[0, 3] == 0


def test_a_log_without_curves_may_have_a_deadline_and_be_looked_at():
    log = recorded(curves=False)
    posed = {"sources": FLEET, "budget": 2, "observed": False, "horizon": None, "start": "empty"}
    posed |= {"arrivals": Trace(log, random_start=False)}
    names = ("shown", "value")
    env = CrawlEnv(**posed, look_cost=0.2, features=names, payoff={"name": "deadline", "steps": 5})
    env.reset(seed=0)
    look, none = np.full(N, 1.0), np.full(N, -1.0)
    for _ in range(2):
        env.step(np.stack([none, none]))
    seen = env.step(np.stack([none, look]))[0]
    published = log.published < 1.5  # three steps of half an hour
    age = 1.5 - log.published[published]
    left = log.utility[published] * np.exp(-FLEET.decay_rate[log.source[published]] * age)
    held = np.bincount(log.source[published], left, N)
    np.testing.assert_allclose(seen, np.stack([held, held], axis=1), rtol=1e-6)
    priority = np.array([1.0, 0.9, -0.5, -0.5])
    reward = env.step(np.stack([priority, none]))[1]  # one step before the last of the batch
    assert reward == pytest.approx((held * np.exp(-0.5 * FLEET.decay_rate))[:2].sum())


@pytest.mark.parametrize("more", [{"look_cost": 0.2}, {"payoff": {"name": "deadline", "steps": 5}}])
def test_a_log_with_curves_has_no_deadline_and_is_not_looked_at(more):
    with pytest.raises(ValueError, match="decays exponentially"):
        CrawlEnv(sources=FLEET, arrivals=Trace(LOG), observed=False, **more)


def test_a_log_shorter_than_an_epoch_is_doubted():
    """As a log in days is, given for hours."""
    short = ItemLog(FLEET.names, [0, 1], [0.1, 0.2], [1, 1], start=0, end=0.25)
    with pytest.warns(UserWarning, match=r"covers 0\.25 hours, less than one period of 0\.5"):
        CrawlEnv(sources=FLEET, arrivals=Trace(short))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CrawlEnv(sources=FLEET.replaced(period=0.25), arrivals=Trace(short))


def test_a_batch_of_fleets_has_no_log():
    with pytest.raises(ValueError, match="one fleet"):
        World(Sources.stack([FLEET, FLEET]), Trace(LOG), 2)
