"""Rates that change with time: their laws, what they publish, their states, what is refused.

Statistical comparisons are with values derived by hand, at 4.5 standard errors and a fixed seed: a
right sampler fails one of them in 150,000.
"""

import numpy as np
import pytest
from scipy import integrate, stats

from crawl_env import (
    Arrivals,
    CrawlEnv,
    CrawlVectorEnv,
    DailyCycle,
    Deterministic,
    Drift,
    Hawkes,
    Jumps,
    Regimes,
    Sources,
    Task,
    World,
)
from crawl_env.content import process
from crawl_env.content.rates import RateModel
from crawl_env.content.utility import Gamma
from tests.crawl_env.env_plain import random_actions, run
from tests.references import Z_LIMIT, z_of_mean, z_of_share, z_of_variance

PERIOD = 0.5
FLEET = Sources([3.0, 0.4, 30.0, 0.0], [1, 2, 0.3, 1], [0.3, 0.1, 0.6, 0.2], period=PERIOD)
KINDS = {
    "drift": Drift(0.3, 0.1),
    "walk": Drift(0.03, 0.0),
    "jumps": Jumps(0.4),
    "cycle": DailyCycle(0.9, day=3, phase=[0, 1, 2, 3]),
    "profile": DailyCycle(day=3.3, profile=[1, 0, 5]),
    "hawkes": Hawkes(0.6, 2.0),
    "regimes": Regimes(4.0, 0.3),
}
EACH = pytest.mark.parametrize("rate", KINDS.values(), ids=KINDS)
SOME = pytest.mark.parametrize("rate", [KINDS[name] for name in ("drift", "profile", "hawkes")])
FACTORS = {name: kind for name, kind in KINDS.items() if name != "hawkes"}
EACH_FACTOR = pytest.mark.parametrize("rate", FACTORS.values(), ids=FACTORS)


def history(arrivals, rows, steps, period=1.0):
    """Return the factors of so many epochs of one source, (steps + 1, rows)."""
    rng = np.random.default_rng(4)
    state = arrivals.start((rows, 1), period, rng)
    factors = [arrivals.factor(state, period)[:, 0].copy()]
    for _ in range(steps):
        arrivals.step(state, period, rng)
        factors.append(arrivals.factor(state, period)[:, 0].copy())
    return np.array(factors)


def started(arrivals, rows, seed=0, fleet=FLEET, **how):
    if isinstance(arrivals, RateModel):
        arrivals = Arrivals(rate=arrivals, sampler="items" if how.get("count") else "total")
    world, rng = World(fleet, arrivals, rows, **how), np.random.default_rng(seed)
    world.start(np.ones(world.shape), rng)
    return world, rng


# ------------------------------------------------------------------------- laws of the rate


def test_drift_with_reversion_is_a_stationary_lognormal_of_mean_one():
    sigma, reversion, lag = 0.3, 0.1, 6
    factors = history(Drift(sigma, reversion), 40_000, 2 * lag)
    variance = sigma**2 / (1 - (1 - reversion) ** 2)
    for now in (factors[0], factors[-1]):
        assert abs(z_of_mean(now, 1.0)) < Z_LIMIT
        log = np.log(now)
        assert abs(z_of_mean(log, -variance / 2)) < Z_LIMIT
        assert abs(z_of_variance(log, -variance / 2, variance)) < Z_LIMIT
    centred = np.log(factors) + variance / 2
    covariance = variance * (1 - reversion) ** lag
    assert abs(z_of_mean(centred[lag] * centred[2 * lag], covariance)) < Z_LIMIT


def test_drift_without_reversion_is_a_walk_that_keeps_its_mean():
    sigma, steps = 0.1, 25
    factors = history(Drift(sigma, 0.0), 40_000, steps)
    assert (factors[0] == 1).all()
    log, variance = np.log(factors[-1]), steps * sigma**2
    assert abs(z_of_mean(factors[-1], 1.0)) < Z_LIMIT
    assert abs(z_of_mean(log, -variance / 2)) < Z_LIMIT
    assert abs(z_of_variance(log, -variance / 2, variance)) < Z_LIMIT
    increments = np.diff(np.log(factors), axis=0) + sigma**2 / 2
    assert abs(z_of_mean(increments[:-1] * increments[1:], 0.0)) < Z_LIMIT


def test_jumps_come_at_their_rate_and_draw_from_their_law():
    rate, shape, steps = 0.4, 3.0, 8
    factors = history(Jumps(rate, Gamma(shape)), 40_000, steps, PERIOD)
    moved = factors[1:] != factors[:-1]
    assert abs(z_of_share(moved, -np.expm1(-rate * PERIOD))) < Z_LIMIT
    for now in (factors[0], factors[-1]):
        assert stats.kstest(now * shape, stats.gamma(shape).cdf).pvalue > 7e-6
    product = (factors[0] - 1) * (factors[-1] - 1)
    assert abs(z_of_mean(product, np.exp(-rate * PERIOD * steps) / shape)) < Z_LIMIT
    # Sources jump each at times of their own.
    together = np.corrcoef(moved[:, 0::2].ravel(), moved[:, 1::2].ravel())[0, 1]
    assert abs(together) * np.sqrt(moved.size / 2) < Z_LIMIT


def test_regimes_are_a_stationary_chain_of_two_rates_with_mean_one():
    ratio, switch, lag = 4.0, 0.3, 3
    factors = history(Regimes(ratio, switch), 40_000, lag)
    assert sorted(set(factors.ravel())) == pytest.approx([0.4, 1.6])
    assert abs(z_of_share(factors[1:] != factors[:-1], switch)) < Z_LIMIT
    for now in (factors[0], factors[-1]):
        assert abs(z_of_share(now > 1, 0.5)) < Z_LIMIT
    covariance = 0.6**2 * (1 - 2 * switch) ** lag
    assert abs(z_of_mean((factors[0] - 1) * (factors[-1] - 1), covariance)) < Z_LIMIT


@pytest.mark.parametrize("sampler", ["total", "items"])
def test_the_sources_of_a_topic_share_their_regimes_and_no_others_do(sampler, monkeypatch):
    monkeypatch.setattr(process, "BLOCK", 600)
    n = 700  # in several blocks
    topics = [f"{i % 2}" for i in range(n - 1)] + [""]
    fleet = Sources(np.full(n, 5.0), 1.0, 0.1, topics=topics)
    arrivals = Arrivals(rate=Regimes(1e9, 0.5), sampler=sampler)  # a cold topic is silent
    world, rng = started(arrivals, 2, fleet=fleet)
    seen = []
    for _ in range(12):
        hot = world.rate > 5
        assert (hot == hot[:, [*np.arange(n - 1) % 2, n - 1]]).all()
        seen.append(hot[:, [0, 1, n - 1]])
        world.crawl(np.arange(2 * n))
        world.advance(rng)
        assert not world.value[~hot].any()
        assert (world.value[hot] > 0).mean() > 0.99
    columns = np.array(seen).reshape(12, -1).T
    assert len(np.unique(columns, axis=0)) == 6, "topics and environments change independently"


@pytest.mark.parametrize("period", [0.1, 7.0, 100.0])
def test_a_cycle_is_the_mean_of_its_cosine_over_each_epoch(period):
    phase, day, amplitude = 5.0, 24.0, 0.7
    factors = history(DailyCycle(amplitude, day, phase), 1, 5, period)[:, 0]
    for epoch, factor in enumerate(factors):
        total, _ = integrate.quad(
            lambda t: 1 + amplitude * np.cos(2 * np.pi * (t - phase) / day),
            epoch * period,
            (epoch + 1) * period,
            limit=200,
        )
        assert factor == pytest.approx(total / period, abs=1e-9)


def test_over_whole_days_a_cycle_averages_one_whatever_the_phase():
    for phase in (0.0, 3.3, -50.0):
        for profile in (None, [1, 0, 0, 7, 2]):
            factors = history(DailyCycle(1.0, 12.0, phase, profile), 1, 23, 0.5)
            assert factors.mean() == pytest.approx(1.0, abs=1e-12)
            assert factors.min() >= 0


def test_the_highest_rate_is_at_the_phase_of_each_source():
    cycle = DailyCycle(0.8, day=8, phase=[0.5, 2.5, 6.5, 7.5])
    state = cycle.start((2, 4), 1.0, np.random.default_rng(0))
    factors = []
    for _ in range(8):
        factors.append(cycle.factor(state, 1.0).copy())
        cycle.step(state, 1.0, np.random.default_rng(0))
    assert np.argmax(factors, axis=0).tolist() == [[0, 2, 6, 7]] * 2


def test_a_profile_begins_at_its_phase_and_its_scale_means_nothing():
    profile = [1.0, 2.0, 3.0, 6.0]
    plain = history(DailyCycle(day=4, profile=profile), 1, 7)[:, 0]
    assert plain == pytest.approx([1 / 3, 2 / 3, 1, 2] * 2)
    assert history(DailyCycle(day=4, profile=[100 * p for p in profile]), 1, 7)[:, 0] == (
        pytest.approx(plain)
    )
    later = history(DailyCycle(day=4, phase=1, profile=profile), 1, 7)[:, 0]
    assert later == pytest.approx(np.roll(plain, 1))
    halved = history(DailyCycle(day=4, profile=profile), 1, 15, 0.5)[:, 0]
    assert halved == pytest.approx(np.repeat(plain, 2))


# ------------------------------------------------------------------------- what is published


@EACH
def test_over_long_runs_a_source_publishes_at_its_arrival_rate(rate):
    """Sums over each row's whole days are independent of other rows'."""
    world, rng = started(rate, 250, count=True)
    world.items[...] = 0
    epochs = 330  # whole days of both cycles
    for _ in range(epochs):
        world.advance(rng)
    for i, mean in enumerate(FLEET.arrival_rate * PERIOD * epochs):
        assert abs(z_of_mean(world.items[:, i], mean)) < Z_LIMIT


@EACH_FACTOR
def test_given_its_rate_a_step_is_poisson(rate):
    world, rng = started(rate, 3000, count=True)
    for _ in range(9):
        mean, before = world.rate * PERIOD, world.items.copy()
        world.advance(rng)
        came = world.items - before
        alive = mean > 0.01
        assert not came[mean < 1e-9].any()
        if not alive.any():
            continue  # the night of a profile
        excess = (came - mean)[alive] / np.sqrt(mean[alive])
        assert abs(z_of_mean(excess, 0.0)) < Z_LIMIT
        assert abs(z_of_mean(excess**2, 1.0)) < Z_LIMIT


@SOME
def test_utility_has_one_law_however_it_is_drawn(rate):
    """As totals and item by item."""
    seen = []
    for seed, how in enumerate(({}, {"count": True})):
        world, rng = started(rate, 4000, seed, **how)
        for _ in range(3):
            world.crawl(np.arange(world.value.size))
            world.advance(rng)
        seen.append(world.value.copy())
    for other in seen[1:]:
        for i in range(3):
            assert stats.ks_2samp(seen[0][:, i], other[:, i], method="asymp").pvalue > 7e-6
        assert not other[:, 3].any()


@SOME
def test_the_mean_of_what_waits_is_the_belief(rate):
    """Averaged over a whole number of days, from which the cycles' phases drop out."""
    world, rng = started(rate, 2500, track_belief=True)
    total = np.zeros(world.shape)
    for _ in range(66):
        world.crawl(np.arange(world.value.size))
        world.advance(rng)
        total += world.value
    assert world.belief == pytest.approx(np.broadcast_to(FLEET.inflow, world.shape))
    for i in range(3):
        assert abs(z_of_mean(total[:, i] / 66, FLEET.inflow[i])) < Z_LIMIT


def test_every_source_of_a_large_fleet_follows_its_own_rate(monkeypatch):
    """Sources stand in several blocks; those whose night it is publish nothing."""
    monkeypatch.setattr(process, "BLOCK", 600)
    n = 700
    night = np.random.default_rng(3).random((n,)) < 0.5
    phase = np.where(night, 1.0, 0.0)
    fleet = Sources(np.full(n, 50.0), 1.0, 0.1)
    world, rng = started(DailyCycle(day=2, phase=phase, profile=[1, 0]), 2, fleet=fleet)
    world.crawl(np.arange(2 * n))
    world.advance(rng)
    assert ((world.value > 0) == ~night).all()
    world.crawl(np.arange(2 * n))
    world.advance(rng)
    assert ((world.value > 0) == night).all()


# ------------------------------------------------------------------------- the world's rate


def test_the_rate_is_the_fleets_where_it_is_constant():
    for arrivals in (Deterministic(), Arrivals()):
        world, rng = started(arrivals, 3)
        world.advance(rng)
        assert (world.rate == FLEET.arrival_rate).all()
        world.rate[...] = 7
        assert (world.rate == FLEET.arrival_rate).all()


def test_another_fleet_publishes_at_its_own_rate_times_the_same_factor():
    world, rng = started(Drift(0.3, 0.1), 5)
    factor = world.rate[:, :3] / FLEET.arrival_rate[:3]
    other = Sources([1.0, 2.0, 3.0, 4.0], 1.0, 0.1, period=PERIOD)
    world.set_sources(other)
    assert world.rate[:, :3] == pytest.approx(factor * other.arrival_rate[:3])
    world.advance(rng)
    assert (world.rate > 0).all()


@EACH
def test_a_reset_of_some_rows_leaves_the_others_their_rates(rate):
    world, rng = started(rate, 4)
    for _ in range(6):
        world.advance(rng)
    before = world.rate
    rows = np.array([True, False, True, False])
    world.start(np.ones((2, 4)), rng, rows)
    assert np.array_equal(world.rate[~rows], before[~rows])
    assert not np.array_equal(world.rate[rows], before[rows])


def test_fleets_drawn_anew_vary_too():
    def draw(rng):
        return Sources.random(4, rng)

    for arrivals in ("poisson-drift", "poisson-jumps", "poisson-cycle", "poisson-regimes"):
        vec = CrawlVectorEnv(3, sources=draw, arrivals=arrivals, budget=2, horizon=3)
        vec.reset(seed=1)
        run(vec, random_actions(vec, 10))
        assert np.isfinite(vec.world.rate).all()
        assert vec.world.rate.shape == (3, 4)


# ------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Drift(-0.1), "sigma is -0.1; it must be zero or positive and finite"),
        (lambda: Drift(float("nan")), "sigma is nan"),
        (lambda: Drift(0.1, 1.5), "reversion is 1.5; it must be between 0 and 1"),
        (lambda: Jumps(-1), "rate is -1"),
        (lambda: Jumps("fast"), "rate is 'fast'"),
        (lambda: Jumps(0.1, "gama"), "unknown distribution of utility 'gama'; did you mean"),
        (lambda: DailyCycle(1.5), "amplitude is 1.5; it must be between 0 and 1"),
        (lambda: DailyCycle(day=0), "day is 0; it must be positive"),
        (lambda: DailyCycle(phase="noon"), "phase must be a number or an array of numbers"),
        (lambda: DailyCycle(phase=[[1.0]]), "phase has shape"),
        (lambda: DailyCycle(profile=[]), "profile has no positive rate"),
        (lambda: DailyCycle(profile=[1, -1]), "part 1: profile is -1"),
        (lambda: DailyCycle(profile=[0, 0]), "profile has no positive rate"),
        (lambda: Regimes(0.5), "ratio is 0.5; it must be finite and at least 1"),
        (lambda: Regimes(9, 2), "switch is 2; it must be between 0 and 1"),
        (lambda: Hawkes(1.0), "branching is 1.0; it must be at least 0 and below 1"),
        (lambda: Hawkes(0.5, 0), "kernel_rate is 0; it must be positive"),
        (
            lambda: Task(arrivals=Arrivals(rate=DailyCycle(phase=[1, 2]))),
            "phase has 2 values for 4 sources",
        ),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_model_implements_all_that_changes():
    model, cells = RateModel(), np.ones((1, 1))
    for call in (
        lambda: model.start((1, 1), 1.0, np.random.default_rng(0)),
        lambda: model.factor(cells, 1.0),
        lambda: model.step(cells, 1.0, np.random.default_rng(0)),
    ):
        with pytest.raises(NotImplementedError, match="RateModel must implement"):
            call()


class Own(RateModel):
    """A rate model of one's own, whose methods return what they are given."""

    def __init__(self, start=np.ones, factor=1.0, step=None):
        self._start, self._factor, self._step = start, factor, step

    def start(self, shape, period, rng):
        return self._start(shape)

    def factor(self, state, period):
        return self._factor * state

    def step(self, state, period, rng):
        state *= 2
        return self._step


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            Own(lambda shape: np.ones(3)),
            r"Own.start returned has shape \(3,\); it must .* \(1, 4\)",
        ),
        (Own(lambda shape: np.ones(shape, dtype=int)), "return an array of floats"),
        (Own(lambda shape: 1.0), "return an array of floats"),
        (Own(lambda shape: np.full(shape, np.nan)), "Own.start returned is nan"),
        (Own(factor=-1.0), "Own.factor returned is -1; it must be zero or positive"),
        (Own(factor=np.nan), "Own.factor returned is nan"),
        (Own(step=1.0), "must change `state` in place"),
    ],
)
def test_a_faulty_model_of_ones_own_is_refused_at_once(model, message):
    with pytest.raises(ValueError, match=message):
        CrawlEnv(FLEET, arrivals=Arrivals(rate=model))


def test_the_check_of_a_model_changes_nothing():
    env = CrawlEnv(FLEET, arrivals=Arrivals(rate=Own()))
    env.reset(seed=0)
    np.testing.assert_array_equal(env.world.rate, [FLEET.arrival_rate])
