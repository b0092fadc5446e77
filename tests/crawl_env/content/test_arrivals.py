"""What arrives depends on the arrivals and the seed alone; names and objects of arrivals."""

import numpy as np
import pytest

from crawl_env import (
    ArrivalProcess,
    Arrivals,
    CrawlEnv,
    CrawlVectorEnv,
    DailyCycle,
    Deterministic,
    Drift,
    Hawkes,
    ItemLog,
    Jumps,
    Sources,
    Trace,
    World,
)
from crawl_env.content.arrivals import RATES
from crawl_env.content.names import ARRIVALS, make_arrivals
from crawl_env.content.process import Block, Cells
from crawl_env.content.utility import (
    EqualUtilities,
    Exponential,
    Gamma,
    Lognormal,
    LomaxDecay,
    StretchedDecay,
)
from crawl_env.simulation.observation import SUMMED
from tests.crawl_env.env_plain import random_actions

FLEET = Sources([3.0, 0.4, 9.0, 0.0], [1.0, 2.0, 0.3, 1.0], [0.3, 0.1, 0.6, 0.2], period=0.5)
LIMITED = Sources(
    [3.0, 0.4, 9.0, 0.0], [1.0, 2.0, 0.3, 1.0], [0.3, 0.1, 0.6, 0.2],
    capacity=[2, 5, np.inf, 1], failure_rate=[0.3, 0.0, 0.2, 0.5],
)  # fmt: skip
UNCOUNTED = {"value": ("value",), "harvest": ("age", "crawled", "harvest")}
COUNTED = {"items": ("items", "value")}
SUMS = {"sums": SUMMED, "all": ("value", "items", "changed", *SUMMED)}


def met(arrivals, features, fleet, **more):
    """Return all rewards, values and rates under given actions, and a number drawn at the end."""
    env = CrawlVectorEnv(
        2, sources=fleet, budget=2, arrivals=arrivals, features=features, horizon=5, **more
    )
    env.reset(seed=7)
    seen = [env.world.value.copy()]
    for action in random_actions(env, 8, seed=3):
        reward = env.step(action)[1]
        seen += [reward, env.world.value.copy(), env.world.rate]
    return [*seen, np.array(env.np_random.random())]


def assert_same_for_all(arrivals, fleet):
    """Bit for bit, in every start, observed or not, for all features that can be served."""
    process = make_arrivals(arrivals)
    if fleet.is_capped and process.random and not process.items:
        with pytest.raises(ValueError, match=r"finite capacity: .*'poisson-items'"):
            CrawlEnv(sources=fleet, arrivals=arrivals)
        return
    for start in ("random", "full"):
        chosen = dict(UNCOUNTED)
        if start != "full" and (process.items or not process.random):
            chosen |= COUNTED
        if process.items:
            chosen |= {k: v for k, v in SUMS.items() if start != "full" or k != "all"}
        first = met(arrivals, ("value",), fleet, start=start)
        for name, features in chosen.items():
            hidden = {"observed": [True, False, True, False]} if "value" in features else {}
            again = met(arrivals, features, fleet, start=start, **hidden)
            for one, other in zip(first, again, strict=True):
                assert np.array_equal(one, other), (arrivals, start, name)
    for name in {**COUNTED, **SUMS} if process.random and not process.items else ():
        with pytest.raises(ValueError, match=r"features .* single items.*'poisson-items'"):
            CrawlEnv(arrivals=arrivals, features=(COUNTED | SUMS)[name])


@pytest.mark.parametrize("rate", RATES)
def test_features_do_not_change_what_arrives(rate):
    word = "" if rate == "constant" else f"-{rate}"
    names = [
        name
        for name in ARRIVALS
        if name.startswith(f"poisson{word}")
        and (word or not any(f"-{other}" in name for other in RATES if other != "constant"))
    ]
    assert len(names) >= 15
    # Each law of utility, each of decay and each sampler with a constant rate, some with others.
    for name in names[::4] if rate == "constant" else names[list(RATES).index(rate) % 7 :: 7]:
        assert_same_for_all(name, FLEET)
    for name in names[:: len(names) // 2]:
        assert_same_for_all(name, LIMITED)


@pytest.mark.parametrize("fleet", [FLEET, LIMITED], ids=["unlimited", "limited"])
def test_features_do_not_change_means_and_logs(fleet):
    rng = np.random.default_rng(0)
    log = ItemLog(
        fleet.names, rng.integers(0, 4, 60), np.sort(rng.uniform(0, 20, 60)), rng.random(60),
        start=0, end=20,
    )  # fmt: skip
    for arrivals in ("deterministic", Trace(log), Trace(log, random_start=False, decay="lomax")):
        assert_same_for_all(arrivals, fleet)


def test_a_large_fleet_meets_the_same_items_whatever_is_stored():
    """Several blocks of sources, and several batches of items in a block."""
    fleet = Sources(np.tile([0.0, 3.0, 0.5], 15_000), 1.0, 0.5)
    seen = []
    for how in ({}, {"count": True}, {"count": True, "store_items": True}, {"track_belief": True}):
        world, rng = World(fleet, Arrivals(sampler="items"), 2, **how), np.random.default_rng(1)
        world.start(np.full(world.shape, 2.0), rng)
        world.crawl(np.arange(0, 90_000, 5))
        world.advance(rng)
        world.advance(rng)
        seen.append(world.value)
        if world.items is not None and world.uncollected_items() is not None:
            number, _ = world.uncollected_items() or (None, None)
            assert np.array_equal(number, world.items)
    for other in seen[1:]:
        assert np.array_equal(seen[0], other)


# ------------------------------------------------------------------------- names and objects


def test_names_stand_for_every_combination():
    assert make_arrivals("deterministic") == Deterministic()
    assert make_arrivals("poisson") == Arrivals()
    assert make_arrivals("poisson-items") == Arrivals(sampler="items") != Arrivals()
    assert make_arrivals("poisson-constant") == Arrivals(utility=EqualUtilities())
    assert make_arrivals("poisson-exponential") == Arrivals(utility=Exponential())
    assert make_arrivals("poisson-gamma-stretched") == Arrivals(
        utility=Gamma(2.0), decay=StretchedDecay(0.5)
    )
    full = make_arrivals("poisson-drift-lognormal-lomax")
    assert full == Arrivals(rate=Drift(0.1, 0.01), utility=Lognormal(1.2), decay=LomaxDecay(2.0))
    assert full == make_arrivals("poisson-drift-lognormal-lomax-items")
    assert make_arrivals("poisson-jumps") == Arrivals(rate=Jumps(0.01, Gamma(2.0)))
    assert make_arrivals("poisson-cycle") == Arrivals(rate=DailyCycle(0.5, 24.0, 0.0))
    assert make_arrivals("poisson-hawkes") == Arrivals(rate=Hawkes(0.5, 1.0))
    assert len(set(ARRIVALS)) == len(ARRIVALS) == 1 + 6 * 5 * 3 + 5 * 5
    made = [make_arrivals(name) for name in ARRIVALS]
    assert all(isinstance(one, ArrivalProcess) for one in made)
    # The default distribution can be named, or not.
    assert len({repr(one) for one in made}) == 1 + 6 * 4 * 3 + 5 * 4


def test_items_are_drawn_where_they_must_be():
    for arrivals in (Arrivals(rate="hawkes"), Arrivals(decay="lomax"), Arrivals(sampler="items")):
        assert arrivals.items
        assert arrivals.model(items=True).items
    assert not Arrivals(utility="lognormal", rate="drift").items
    assert Arrivals(sampler="items").model(items=False) == Arrivals()
    assert Arrivals().model(items=True) == Arrivals(sampler="items")
    assert [Arrivals(decay=d).exponential for d in ("exponential", "lomax")] == [True, False]
    assert [r for r in RATES if not Arrivals(rate=r).stateful] == ["constant"]
    assert not Deterministic().random
    assert Deterministic().model(items=False) == Deterministic()


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("poison", "poisson"),
        ("poisson-lognorm", "poisson-lognormal"),
        ("determinstic", "deterministic"),
        ("poisson-", "poisson"),
        ("Poisson", "poisson"),
        ("poisson-lomax-drift", "poisson-lomax"),
    ],
)
def test_unknown_names_suggest_the_nearest(name, near):
    message = rf"unknown arrivals '{name}'; did you mean '{near}.*\[-drift\|-jumps\|-cycle\|-hawkes"
    with pytest.raises(ValueError, match=message):
        make_arrivals(name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_arrivals(None), r"arrivals is None; give a name \(deterministic, poisson"),
        (lambda: make_arrivals(EqualUtilities()), "arrivals is EqualUtilities"),
        (lambda: make_arrivals(Arrivals), "arrivals is <class"),
        (lambda: make_arrivals(np.zeros(2)), "arrivals is array"),
        (lambda: make_arrivals("trace"), "'trace' needs a log to replay"),
        (lambda: Arrivals(rate="drfit"), "unknown rate 'drfit'; did you mean 'drift'"),
        (lambda: Arrivals(rate=3), r"rate is 3; give one of constant, .* such as crawl_env.Drift"),
        (lambda: Arrivals(utility="gama"), "unknown distribution.*'gama'; did you mean 'gamma'"),
        (lambda: Arrivals(decay="lomx"), "unknown decay 'lomx'; did you mean 'lomax'"),
        (lambda: Arrivals(sampler="item"), "unknown sampler 'item'; did you mean 'items'"),
    ],
)
def test_what_is_no_arrivals_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# ------------------------------------------------------------------------- one's own arrivals


class Seven(Deterministic):
    """The mean before an episode; in every step, seven units at every source."""

    def block(self, cells, state):
        return SevenUnits(cells)


class SevenUnits(Block):
    def add(self, value, count, rng):
        value += 7.0


def test_a_subclass_of_deterministic_arrivals_has_content_of_its_own():
    env = CrawlEnv(budget=1, arrivals=Seven())
    before = env.reset(seed=0)[0]
    after = env.step(np.array([1.0, 0.0, 0.0, 0.0]))[0]
    kept = env.world.sources.retention * [0.0, 1.0, 1.0, 1.0]
    np.testing.assert_allclose(after.ravel(), kept * before.ravel() + 7.0, rtol=1e-6)


class Kept(ArrivalProcess):
    """Nothing random, and a state: each step brings one unit more than the last."""

    random = False
    stateful = True

    def block(self, cells, state):
        return Growing(cells, state)

    def past(self, cells, steps):
        return Growing(cells, np.zeros(cells.items.size))

    def start(self, shape, period, rng):
        return np.zeros(shape)


class Growing(Block):
    def __init__(self, cells, state):
        super().__init__(cells)
        self.state = state

    def add(self, value, count, rng):
        value += self.state
        self.state += 1.0


def test_the_state_of_arrivals_of_ones_own_is_kept_by_the_world():
    world, rng = World(Sources([1.0, 1.0], 1.0, 1.0), Kept(), 2), np.random.default_rng(0)
    world.start(np.zeros((2, 2)), rng)
    for step in range(3):
        world.crawl(np.arange(4))
        world.advance(rng)
        assert (world.value == step).all()
    world.start(np.zeros((1, 2)), rng, np.array([True, False]))
    world.crawl(np.arange(4))
    world.advance(rng)
    assert world.value.tolist() == [[0.0, 0.0], [3.0, 3.0]]
    assert (world.rate == 1).all()


def test_what_arrivals_of_ones_own_do_not_implement_is_named():
    cells, rng = Cells(*np.ones((3, 1))), np.random.default_rng(0)
    for call, message in (
        (lambda: ArrivalProcess().block(cells, np.empty(0)), r"must implement block\(cells"),
        (lambda: ArrivalProcess().past(cells, np.ones(1)), r"must implement past\(cells"),
        (lambda: ArrivalProcess().start((1, 1), 1.0, rng), "must implement start"),
        (lambda: Block(cells).add(np.zeros(1), None, rng), "Block draws totals only"),
    ):
        with pytest.raises(NotImplementedError, match=message):
            call()
