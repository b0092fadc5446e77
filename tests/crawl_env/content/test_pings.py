"""Signals: what pings are drawn, and the belief that they imply."""

import json

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from crawl_env import Arrivals, CrawlEnv, CrawlVectorEnv, ItemLog, PingLog, Signals, Sources, Trace
from crawl_env.content import process
from crawl_env.content.belief import _faded
from crawl_env.content.draws import stream
from crawl_env.content.pings import _UnsortedTimes
from crawl_env.content.signals import make_signals
from crawl_env.fleet.columns import FleetColumns
from crawl_env.simulation.task import Task

FLEET = Sources(
    [2.0, 5.0, 0.3], [1.0, 2.0, 3.0], [0.2, 0.5, 0.05], period=0.5, names=["a", "b", "c"]
)
FEATURES = ("value", "age", "pings", "pings_aged")
CONSTANT = Arrivals(utility="constant", sampler="items")
MIXED = Signals([0.5, 0.8, 0.0], [0.8, 0.2, 1.0])
DELAYED = Signals([0.5, 0.8, 0.3], [0.8, 0.2, 1.0], [2.0, 0.7, 0.0])


def env_of(**arguments):
    return CrawlEnv(
        FLEET, **{"arrivals": "poisson-items", "start": "random", "observed": False, **arguments}
    )


def actions(seed, steps=60):
    return np.random.default_rng(seed).uniform(-1, 1, (steps, 3))


def shown(env, moves, seed=4):
    return np.array([env.reset(seed=seed)[0], *(env.step(move)[0] for move in moves)])


@pytest.mark.parametrize("extra", [(), ("harvest_age",)], ids=["recursion", "items"])
def test_perfect_signals_of_known_marks_are_observation_and_none_are_not(extra):
    features = ("value", *extra)
    for signals, observed in ((Signals(1.0), True), (Signals(0.0), False)):
        plain = env_of(arrivals=CONSTANT, features=features, observed=observed)
        env = env_of(arrivals=CONSTANT, features=features, signals=signals)
        np.testing.assert_array_equal(shown(env, actions(0)), shown(plain, actions(0)))


def test_a_source_without_signals_in_a_fleet_with_them_has_the_old_belief():
    for signals in (MIXED, Signals([0.5, 0.8, 0.0], [0.8, 0.2, 1.0], [1.0, 0.0, 0.0])):
        seen = shown(env_of(signals=signals), actions(1))
        plain = shown(env_of(), actions(1))
        np.testing.assert_array_equal(seen[:, 2], plain[:, 2])
        assert not np.array_equal(seen[:, :2], plain[:, :2])


@pytest.mark.parametrize("signals", [MIXED, DELAYED], ids=["at once", "delayed"])
def test_signals_change_nothing_that_arrives_and_actions_change_no_ping(signals):
    env = env_of(signals=signals, features=FEATURES)
    plain = env_of()
    ours, other = shown(env, actions(2)), shown(env, actions(3))
    np.testing.assert_array_equal(ours[1:, :, 2], other[1:, :, 2])
    for world in (shown(env, actions(2)), shown(plain, actions(2))):
        assert world.shape[0] == 61
    np.testing.assert_array_equal(env.world.value, plain.world.value)
    vector = CrawlVectorEnv(
        1,
        FLEET,
        arrivals="poisson-items",
        start="random",
        observed=False,
        signals=signals,
        features=FEATURES,
    )
    rows = [vector.reset(seed=4)[0][0], *(vector.step(a[None])[0][0] for a in actions(2))]
    np.testing.assert_array_equal(rows, ours)


@pytest.mark.parametrize("signals", [MIXED, DELAYED], ids=["at once", "delayed"])
def test_the_belief_is_the_conditional_mean(signals, monkeypatch):
    """96 z values, of which none is beyond 4.5 with probability .9993."""
    monkeypatch.setattr(process, "BLOCK", 9000)  # three blocks
    rows = 8000
    env = CrawlVectorEnv(
        rows, FLEET, arrivals="poisson-items", start="random", signals=signals, features=FEATURES
    )
    rng = np.random.default_rng(0)
    for steps in (0, 2, 6):
        env.reset(seed=steps)
        for _ in range(steps):
            env.step(rng.uniform(-1, 1, (rows, 3)))
        world = env.world
        error = world.value - world.belief
        for source in range(3):
            for age in range(1, 5):
                here = world.age[:, source] == age
                heard = world.pings_aged[:, source]
                many = heard > (np.median(heard[here]) if here.any() else 0.0)
                for part in (here & many, here & ~many):
                    if part.sum() > 200:
                        z = error[part, source]
                        assert abs(z.mean()) < 4.5 * z.std() / np.sqrt(z.size), (steps, source, age)


@pytest.mark.parametrize("start", ["empty", "full"])
def test_every_start_has_a_finite_belief(start):
    env = env_of(signals=DELAYED, features=FEATURES, start=start)
    first, *_ = seen = shown(env, actions(0))
    assert np.isfinite(seen).all()
    assert first[:, [0, 2, 3]].any() == (start == "full")


def test_pings_come_at_their_rate_from_the_first_step_on(monkeypatch):
    """36 z values, none beyond 4.5 with probability .9998; also those that are on their way when it
    starts."""
    monkeypatch.setattr(process, "BLOCK", 9000)
    rows = 8000
    for signals in (MIXED, DELAYED):
        env = CrawlVectorEnv(
            rows, FLEET, arrivals="poisson-items", signals=signals, features=("pings",)
        )
        expected = signals.of(FLEET).ping_rate * FLEET.period
        seen = [env.reset(seed=1)[0], *(env.step(np.zeros((rows, 3)))[0] for _ in range(5))]
        for pings in seen:
            z = (pings[..., 0].mean(0) - expected) / np.sqrt(np.maximum(expected, 1e-9) / rows)
            assert (np.abs(z) < 4.5).all()


def test_unsorted_times_have_their_rates_and_uniform_ages():
    """40 z values of the numbers and one of the ages, none beyond 4.5 with probability .9997."""
    rng = np.random.default_rng(3)
    rates = np.concatenate([rng.gamma(0.3, 3.0, 30), np.zeros(5), np.full(5, 40.0)])
    times, state, draws = _UnsortedTimes(rates), stream(rng), 400
    batches = [batch for _ in range(draws) for batch in times.drawn(7, state)]
    where, age = (np.concatenate(column) for column in zip(*batches, strict=True))
    number = np.bincount(where - 7, minlength=40)
    assert not number[rates == 0].any()
    z = (number - draws * rates) / np.sqrt(np.maximum(draws * rates, 1e-9))
    assert number.size == 40
    assert (np.abs(z[draws * rates > 20]) < 4.5).all()
    assert abs(age.mean() - 0.5) < 4.5 / np.sqrt(12 * age.size)
    assert 0 <= age.min() < age.max() < 1
    assert not list(_UnsortedTimes(np.zeros(3)).drawn(0, state))


def test_the_fast_exponential_is_exact_to_rounding():
    for x in (0.0, 1e-300, 1e-9, *np.linspace(0.001, 700, 997)):
        assert _faded(x) == pytest.approx(np.exp(-x), rel=5e-16, abs=0)
    assert _faded(1e300) == _faded(np.inf) == 0.0


def recorded(delay):
    rng = np.random.default_rng(7)
    when, heard = rng.uniform(0, 20, 90), rng.uniform(0, 20, 60)
    items = ItemLog(("a", "b", "c"), rng.integers(0, 3, 90), when, np.ones(90), 0, 20)
    pings = PingLog(("b", "a"), rng.integers(0, 2, 60), heard, 0, 20)
    return items, pings, Signals([0.5, 0.8, 0.0], [0.8, 0.2, 1.0], delay, pings)


@pytest.mark.parametrize("delay", [0.0, 1.3])
def test_recorded_pings_are_replayed_and_the_belief_is_its_formula(delay):
    items, pings, signals = recorded(delay)
    env = env_of(
        arrivals=Trace(items, random_start=False), start="empty", signals=signals, features=FEATURES
    )
    fleet = env.sources
    env.reset(seed=0)
    crawled, rng = np.zeros(3), np.random.default_rng(1)
    place = np.array([1, 0])[pings.source]
    for step in range(1, 39):
        action = rng.uniform(-1, 1, 3)
        crawled[action.argmax()] = (step - 1) * 0.5
        seen, *_ = env.step(action)
        now = step * 0.5
        for i in range(3):
            tau, mu, r = now - crawled[i], fleet.decay_rate[i], fleet.recall[i]
            flow = fleet.arrival_rate[i] * fleet.mean_utility[i]
            mine = pings.time[place == i]
            times = mine[(mine >= crawled[i]) & (mine < now)]
            left = np.exp(-mu * (now - times))
            belief = (1 - r) * flow * -np.expm1(-mu * tau) / mu
            if delay:
                k = mu + 1 / delay
                belief += r * flow * -np.expm1(-k * tau) / k
                left *= -np.expm1(-k * (times - crawled[i])) / (1 + mu * delay)
            belief += fleet.precision[i] * fleet.mean_utility[i] * left.sum()
            expected = (belief, tau / 0.5, ((mine >= now - 0.5) & (mine < now)).sum(), left.sum())
            np.testing.assert_allclose(seen[i], expected, rtol=2e-6, atol=1e-6)


def test_features_of_pings_are_zero_without_signals():
    env = env_of(arrivals="deterministic", features=FEATURES)
    assert not shown(env, actions(0))[..., 2:].any()


def test_at_capacities_only_the_part_without_pings_is_limited():
    fleet = Sources(4.0, 1.0, 0.1, capacity=2, recall=[0.5, 0.0], precision=0.8)
    env = CrawlEnv(fleet, features=("value", "age", "pings_aged"), observed=False)
    env.reset(seed=0)
    for _ in range(9):
        seen, *_ = env.step(np.array([-1.0, -1.0]))
    silent = fleet.silent.content_at(seen[:, 1])
    np.testing.assert_allclose(seen[:, 0], silent + 0.8 * seen[:, 2], rtol=1e-6)


@pytest.mark.parametrize("signals", ["websub", {"recall": 0.5, "delay": 2}, recorded(0.5)[2]])
def test_a_specification_in_json_makes_the_same_environment(signals):
    recordings = {"arrivals": Trace(recorded(0)[0])} if isinstance(signals, Signals) else {}
    env = gym.make("EphemeralCrawl-v0", sources=FLEET, signals=signals, **recordings)
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert again.unwrapped.task.signals == make_signals(signals)
    for made in (env, again):
        made.reset(seed=3)
    for action in actions(0, 9).astype(np.float32):
        np.testing.assert_array_equal(env.step(action)[0], again.step(action)[0])
    json.dumps(make_signals(signals).describe())


def test_fleets_drawn_at_reset_get_the_signals():
    def drawn(rng):
        return Sources(rng.uniform(1, 3, 4), 1.0, 0.2)

    env = CrawlVectorEnv(3, drawn, signals=DELAYED_FOUR, features=FEATURES, horizon=4)
    env.reset(seed=0)
    for _ in range(12):
        env.step(np.zeros((3, 4)))
    assert (env.world.sources.recall == 0.5).all()
    assert len(np.unique(env.world.sources.ping_rate)) == 12


DELAYED_FOUR = Signals(0.5, 0.8, 1.0)
BAD = {
    "totals": ({"arrivals": "poisson"}, ["single items", "poisson-items"]),
    "means": ({"arrivals": "deterministic"}, ["single items", "poisson-items"]),
    "recall": ({"signals": {"recall": [0.5, 1.5, 0]}}, ["source 1", "recall is 1.5", "0 and 1"]),
    "precision": ({"signals": {"recall": 1, "precision": 0}}, ["precision is 0", "above 0"]),
    "delay": ({"signals": {"recall": 1, "delay": -1}}, ["delay is -1"]),
    "length": ({"signals": Signals([0.5, 0.5])}, ["2 numbers of recall for 3 sources"]),
    "no recall": ({"signals": Signals(precision=0.5)}, ["recall above 0", "fit"]),
    "name": ({"signals": "sitmap"}, ["did you mean 'sitemap'"]),
    "argument": ({"signals": {"recal": 0.5}}, ["did you mean 'recall'"]),
    "number": ({"signals": 0.5}, ["signals is 0.5", "Signals"]),
    "simulated items": ({"signals": recorded(0)[2]}, ["recorded items", "Trace"]),
    "many": ({"signals": Signals(1, 1e-12)}, ["false pings", "precision"]),
}


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD)
def test_bad_signals_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words[0]) as error:
        CrawlEnv(FLEET, **{"signals": MIXED, **arguments})
    for word in words:
        assert word in str(error.value)


def test_recorded_pings_of_sources_without_signals_are_refused():
    items, pings, _ = recorded(0)
    with pytest.raises(ValueError, match=r"30 pings of 1 sources .*\(b\)"):
        Task(FLEET, arrivals=Trace(items), signals=Signals([0.5, 0.0, 0.0], log=pings))
    strange = PingLog(("a", "x"), [0, 1], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"\(x\)"):
        Task(FLEET, arrivals=Trace(items), signals=Signals(0.5, log=strange))
    late = PingLog(("a",), [0, 0], [1.0, 25.0])
    with pytest.warns(UserWarning, match="outside the time"):
        Task(FLEET, arrivals=Trace(items), signals=Signals(0.5, log=late))


def test_what_cannot_have_signals_refuses_them():
    signalled = MIXED.of(FLEET)
    with pytest.raises(ValueError, match="signals"):
        FleetColumns.of(signalled)
    with pytest.raises(ValueError, match=r"options\['value'\]"):
        env_of(signals=MIXED).reset(options={"value": np.ones(3)})
    torch_env = pytest.importorskip("crawl_env.envs.torch_env")
    with pytest.raises(ValueError, match="signals"):
        torch_env.TorchCrawlVectorEnv(2, signalled, arrivals="poisson-items")


def test_pictures_show_the_pings_of_the_last_step():
    env = env_of(signals=MIXED, features=("pings",), render_mode="ansi")
    env.reset(seed=0)
    heard = env.step(np.zeros(3))[0][:, 0]
    head, titles, *lines = str(env.render()).splitlines()
    assert heard.sum() > 0
    assert f"pings {heard.sum():g}" in head
    place = titles.index("pings")
    assert [float(line[place : place + 5]) for line in lines] == heard.tolist()
    plain = env_of(render_mode="ansi")
    plain.reset(seed=0)
    assert "pings" not in str(plain.render())


def test_columns_of_signals_are_read_and_written(tmp_path):
    path = tmp_path / "fleet.csv"
    fleet = DELAYED.of(FLEET)
    fleet.to_csv(path)
    assert Sources.from_csv(path, period=0.5) == fleet
    assert not Task(path).observed.any()
    FLEET.to_csv(path)
    assert "recall" not in path.read_text(encoding="utf-8")


def test_too_many_pings_on_the_way_are_refused_in_words_of_signals():
    with pytest.raises(ValueError, match="shorter delay"):
        env_of(signals=Signals(0.5, 0.5, 1e12)).reset(seed=0)


def test_signals_that_replace_others_are_heard():
    task = Task(FLEET, arrivals="poisson-items").replaced(signals=MIXED)
    assert task.observed.tolist() == [False, False, True]
    silent = task.replaced(signals=None)
    assert not silent.sources.is_signalled
    assert (silent.observed == task.observed).all()
    again = task.replaced(signals=Signals([0.0, 0.8, 0.0]))
    assert again.observed.tolist() == [True, False, True]
    seen = Task(FLEET, arrivals="poisson-items", observed=False).replaced(signals=MIXED)
    assert not seen.observed.any()


@pytest.mark.parametrize("delay", [5e-324, 1e-300, 1e-3])
def test_shortest_delays(delay):
    fleet = Sources([1.0, 2.0], 1.0, [0.1, 1.0], recall=0.5, precision=0.5, signal_delay=delay)
    env = CrawlEnv(fleet, start="random", observed=False, features=("value", "pings"))
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        env.reset(seed=0)
        assert all(np.isfinite(env.step(np.array([1.0, k % 3]))[0]).all() for k in range(9))
