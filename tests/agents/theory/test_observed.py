"""The arm under observed Poisson arrivals: Theorem 1 in the limit, an independent package, value
iteration and simulation."""

from dataclasses import dataclass

import numpy as np
import pytest

from agents.theory import observed as arms
from agents.theory.index import whittle_index
from agents.theory.observed import ObservedArm, solve_arm
from agents.theory.relaxation import net_reward
from agents.theory.thresholds import thresholds
from crawl_env import Arrivals, Sources, World
from crawl_env.content.utility import EqualUtilities, Exponential, Gamma, Lognormal
from tests.references import gain_between

# A right program fails one simulated comparison in 16,000 (two-sided, 4 standard errors).
Z_LIMIT = 4.0
LAWS = [EqualUtilities(), Exponential(), Lognormal(1.2)]
each_law = pytest.mark.parametrize("law", LAWS, ids=repr)
SEEN = np.array([True])


def net(arm, charges):
    return ((arm.reward - charges[:, None]) / arm.steps).max(axis=1)


# ----------------------------------------------------------------------------- chains in general


def some_chain(n, seed):
    """Return moves (n + 1, n + 1) and values (n + 1,) of a source that decays and receives."""
    rng = np.random.default_rng(seed)
    x, alpha = np.linspace(0.0, 4.0, n + 1), rng.uniform(0.85, 0.95)
    jump = rng.exponential(rng.uniform(0.2, 0.8), 400) * (rng.random(400) < 0.7)
    after = np.minimum(alpha * x[:, None] + jump, x[-1]) / x[1]
    left = np.minimum(after.astype(int), n - 1)
    moves = np.zeros((n + 1, n + 1))
    rows = np.broadcast_to(np.arange(n + 1)[:, None], after.shape)
    np.add.at(moves, (rows, left), (1 - after + left) / 400)
    np.add.at(moves, (rows, left + 1), (after - left) / 400)
    return moves, x


@pytest.mark.parametrize("seed", range(1))
def test_index_of_a_chain_as_in_an_independent_package(bandits, seed):
    n = 30
    moves, x = some_chain(n, seed)
    fresh = moves[0]
    index, reward, epochs = thresholds(moves[:n, :n], x[:n], moves[:n] @ x - x[:n], fresh @ x)
    chain = bandits.restless_bandit_from_P0P1_R0R1(
        moves, np.tile(fresh, (n + 1, 1)), np.zeros(n + 1), x
    )
    np.testing.assert_allclose(index, chain.whittle_indices()[:n], rtol=1e-7, atol=1e-9)
    assert (np.diff(epochs[np.isfinite(epochs)]) > 0).all()
    assert epochs[0] == 1
    assert reward[0] == fresh @ x


@pytest.mark.parametrize("seed", range(1))
def test_reward_and_epochs_of_every_threshold(seed):
    """Against two linear equations for each threshold."""
    n = 20
    moves, x = some_chain(n, seed)
    _, reward, epochs = thresholds(moves[:n, :n], x[:n], moves[:n] @ x - x[:n], moves[0] @ x)
    for b in range(n):
        left = np.eye(b) - moves[:b, :b]
        time = np.linalg.solve(left, np.ones(b))
        content = np.linalg.solve(left, moves[:b, b:] @ x[b:])
        assert epochs[b] == pytest.approx(1 + moves[0, :b] @ time)
        assert reward[b] == pytest.approx(moves[0, b:] @ x[b:] + moves[0, :b] @ content)


def test_an_order_of_states_without_an_optimal_threshold_is_refused():
    n = 12
    moves, x = some_chain(n, 0)
    order = np.r_[0, 5, 2, 3, 4, 1, 6 : n + 1]
    moves, x = moves[np.ix_(order, order)], x[order]
    with pytest.raises(ValueError, match=r"no threshold policy.*Order the states"):
        thresholds(moves[:n, :n], x[:n], moves[:n] @ x - x[:n], moves[0] @ x)


# ----------------------------------------------------------------------------------- the arm itself


@pytest.mark.parametrize(("items", "most"), [(250.0, 0.06), (2500.0, 0.025), (20_000.0, 0.013)])
def test_theorem_1_where_noise_is_small(items, most):
    source = Sources(items, 1.0, 0.2)
    x = np.linspace(0.0, 1.3, 200)[:, None] * source.ceiling
    gap = ObservedArm(source, SEEN, EqualUtilities()).index(x) - whittle_index(x, source)
    assert np.abs(gap).max() < most * source.ceiling[0]


@pytest.mark.parametrize(
    ("items", "low", "high"),
    [(1.0, 0.2, 0.45), (5.0, 0.2, 0.45), (25.0, 0.14, 0.16), (250.0, 0.055, 0.068)],
)
def test_published_distances_from_theorem_1(items, low, high):
    source = Sources(items, 1.0, 0.2)
    x = np.linspace(0.0, 1.5, 300)[:, None] * source.ceiling
    gap = ObservedArm(source, SEEN, Exponential()).index(x) - whittle_index(x, source)
    assert low < np.abs(gap).max() / source.ceiling[0] < high


def value_iteration(items, decay, law, charge):
    """Return numbers between which g lies: an even grid, U by the means of groups of draws."""
    rng, n, step = np.random.default_rng(1), 500_000, 0.02
    size = 4000 if isinstance(law, Lognormal) else 900
    counts = rng.poisson(items, n)
    owner = np.repeat(np.arange(n), counts)
    worth = law.sample(rng, owner.size) * np.exp(-decay * rng.random(owner.size))
    content = np.bincount(owner, worth, n)
    content *= items * -np.expm1(-decay) / decay / content.mean()
    place = np.minimum(content / step, size - 2)
    left = place.astype(int)
    mass = np.bincount(left, 1 - place + left, size) + np.bincount(left + 1, place - left, size)
    mass /= n
    return gain_between(mass, decay, charge, step)


@each_law
@pytest.mark.parametrize(("items", "decay", "charge"), [(0.5, 0.35, 1.37), (0.2, 1.0, 0.5)])
def test_net_reward_as_in_value_iteration(law, items, decay, charge):
    low, high = value_iteration(items, decay, law, charge)
    got = net(solve_arm(items, decay, law), np.array([charge]))[0]
    inflow = items * -np.expm1(-decay) / decay
    assert high - low < 1e-4
    # Draws have an error of their own, some .2 % of E U.
    assert got == pytest.approx(0.5 * (low + high), abs=2.5e-3 * inflow)


@pytest.mark.parametrize(
    ("law", "items", "decay"),
    [(EqualUtilities(), 30.0, 0.7), (Exponential(), 0.1, 0.1), (Lognormal(1.2), 2.0, 0.3)],
    ids=repr,
)
def test_simulated_thresholds_earn_what_is_computed(law, items, decay):
    arm, rows = solve_arm(items, decay, law), 400
    source = Sources(items, 1.0, decay)
    b = int(np.searchsorted(arm.steps, 8.0))  # crawled every eight epochs or so
    # What falls between two states counts to each in part.
    threshold = arm.state[b - 1 : b + 1].mean()
    world, rng = World(source, Arrivals(utility=law), rows), np.random.default_rng(5)
    world.start(np.ones(world.shape), rng)
    reward, crawls = np.zeros(rows), np.zeros(rows)
    for epoch in range(700):
        crawled = np.flatnonzero(world.value >= threshold)
        if epoch >= 200:
            reward[crawled] += world.value[crawled, 0] / 500
            crawls[crawled] += 1 / 500
        world.crawl(crawled)
        world.advance(rng)
    for got, expected in ((crawls, 1 / arm.steps[b]), (reward, arm.reward[b] / arm.steps[b])):
        error = got.std(ddof=1) / np.sqrt(rows)
        assert abs(got.mean() - expected) < Z_LIMIT * error + 2e-3 * expected


@pytest.mark.parametrize(
    ("law", "items", "decay"),
    [
        (EqualUtilities(), 0.01, 0.2), (EqualUtilities(), 5.0, 2.0),
        (EqualUtilities(), 20_000.0, 0.02),
        (Exponential(), 0.3, 0.02), (Exponential(), 250.0, 0.2), (Exponential(), 0.01, 2.0),
        (Lognormal(1.2), 0.3, 0.2), (Lognormal(1.2), 5.0, 0.02), (Lognormal(1.2), 250.0, 2.0),
    ],
    ids=repr,
)  # fmt: skip
def test_stated_error_and_the_bound_from_above(law, items, decay):
    arm, fine = solve_arm(items, decay, law), arms._solve(items, decay, law, states=512)
    reached = fine.steps < 1e5
    state = fine.state[reached & (fine.state <= arm.state[-1])]
    exact = np.interp(state, fine.state, fine.break_even)
    ceiling, inflow = items / decay, items * -np.expm1(-decay) / decay
    limit, net_limit = (0.0112, 7e-4) if decay < 0.2 else (0.003, 5e-4)
    assert np.abs(np.interp(state, arm.state, arm.break_even) - exact).max() < limit * ceiling
    charges = np.linspace(0.0, exact[-1], 40)
    excess = net(arm, charges) - net(fine, charges)
    assert excess.max() < net_limit * inflow
    assert excess.min() > -1e-7 * inflow, "the coarser grid never earns less"


def test_the_index_grows_and_lies_between_zero_and_myopic():
    rng = np.random.default_rng(0)
    for law in (*LAWS, Gamma(0.3)):
        for _ in range(10):
            arm = solve_arm(10 ** rng.uniform(-2, 3), 10 ** rng.uniform(-1.7, 0.7), law)
            assert (np.diff(arm.break_even) > 0).all()
            assert arm.break_even[0] == pytest.approx(0, abs=1e-9)
            assert (arm.break_even <= arm.state * (1 + 1e-6) + 1e-9).all()


# ------------------------------------------------------------------------------ fleets of arms


def fleet():
    return Sources([0.5, 3.0, 0.0, 2.0, 0.5], [1.0, 0.4, 1.0, 0.0, 2.0], 0.3, [1.0, 2.0, 1, 1, 0.5])


def test_units_cost_and_period_scale_as_they_must():
    one, x = Sources(0.5, 1.0, 0.3), np.linspace(0, 9, 50)[:, None]
    index = ObservedArm(one, SEEN, Exponential()).index(x)
    other = Sources(0.25, 7.0, 0.15, cost=3.0, period=2.0)
    got = ObservedArm(other, SEEN, Exponential()).index(7 * x)
    np.testing.assert_allclose(got, index * 7 / 3, rtol=1e-12)
    for price in (0.0, 0.5, 2.0):
        np.testing.assert_allclose(
            ObservedArm(other, SEEN, Exponential()).net_reward(np.array([price * 7 / 3])),
            7 * ObservedArm(one, SEEN, Exponential()).net_reward(np.array([price])),
        )


def test_silent_worthless_and_unseen_sources_have_the_closed_form():
    observed = np.array([True, False, True, True, True])
    table = ObservedArm(fleet(), observed, Exponential())
    x = np.array([[1.0, 1.0, 1.0, 1.0, 1.0], [0.0, 5.0, 0.0, 3.0, 60.0]])
    closed, got = whittle_index(x, fleet()), table.index(x)
    np.testing.assert_array_equal(got[:, 1:4], closed[:, 1:4])
    assert (got[0, [0, 4]] != closed[0, [0, 4]]).all()
    price = np.array([0.3])
    gain = table.net_reward(price)
    blind = net_reward(fleet(), price)
    np.testing.assert_array_equal(gain[1:4], blind[1:4])
    assert (gain[[0, 4]] > blind[[0, 4]]).all()
    assert gain[2] == gain[3] == 0


def test_nothing_seen_solves_nothing():
    table = ObservedArm(fleet(), np.zeros(5, dtype=bool), Exponential())
    np.testing.assert_array_equal(table.index(np.ones(5)), whittle_index(np.ones(5), fleet()))


def test_batches_are_their_rows():
    rows = [fleet(), Sources.random(5, seed=1), Sources.random(5, seed=2, regime="sparse")]
    observed = np.array([True, True, True, False, True])
    batch = ObservedArm(Sources.stack(rows), observed, Exponential())
    x = np.random.default_rng(0).exponential(2.0, (3, 5))
    price = np.array([[0.1], [1.0], [0.4]])
    for b, row in enumerate(rows):
        alone = ObservedArm(row, observed, Exponential())
        np.testing.assert_allclose(batch.index(x)[b], alone.index(x[b]), rtol=1e-12)
        np.testing.assert_allclose(batch.net_reward(price)[b], alone.net_reward(price[b]))


def test_very_many_items_are_calm():
    source = Sources(1e6, 0.001, 0.2)
    table, x = ObservedArm(source, SEEN, Exponential()), np.linspace(0, 6000, 50)[:, None]
    np.testing.assert_array_equal(table.index(x), whittle_index(x, source))
    price = np.array([2000.0])
    blind, seen = net_reward(source, price)[0], table.net_reward(price)[0]
    assert blind * (1 - 1e-9) <= seen < 1.003 * blind


@dataclass  # not frozen: it cannot be hashed
class Own:
    second_moment: float = 2.0

    def sample(self, rng, n):
        return rng.standard_exponential(n)


def test_a_law_of_ones_own():
    own, known = solve_arm(1.0, 0.3, Own()), solve_arm(1.0, 0.3, Exponential())
    x = np.linspace(0, 8, 50)
    index = [np.interp(x, a.state, a.break_even) for a in (own, known)]
    np.testing.assert_allclose(index[0], index[1], atol=0.02)


SIGNALLED = [  # ΛT, μT, recall and precision
    (1e-6, 1e-6, 1e-12, 1.0), (1e-6, 600.0, 0.5, 1e-12), (1e-6, 0.1, 1.0, 0.3),
    (1e-2, 1e-6, 0.5, 1e-12), (1e-2, 600.0, 1.0, 0.3), (2e4, 1e-6, 1.0, 0.3),
    (2e4, 600.0, 1e-12, 1.0), (2e4, 0.1, 0.5, 1e-12), (2e4, 600.0, 1.0, 0.3),
]  # fmt: skip


@pytest.mark.parametrize(
    ("law", "given"),
    [
        (EqualUtilities(), (1e-6, 600.0)), (EqualUtilities(), (1.0, 1e-3)),
        (EqualUtilities(), (2e4, 1e-6)),
        (Exponential(), (1e-6, 1e-6)), (Exponential(), (2e4, 600.0)), (Exponential(), (1e-3, 30.0)),
        (Lognormal(1.2), (1e-3, 1e-6)), (Lognormal(1.2), (1.0, 600.0)),
        (Lognormal(1.2), (2e4, 1e-3)),
        *((EqualUtilities(), given) for given in SIGNALLED),
    ],
    ids=repr,
)  # fmt: skip
def test_extreme_sources_have_an_index(law, given):
    items, decay, *signals = given
    arm = solve_arm(items, decay, law, *signals)
    assert np.isfinite(arm.break_even).all()
    assert (np.diff(arm.break_even) >= -1e-9 * arm.break_even[-1]).all()
    assert (arm.break_even <= arm.state * (1 + 1e-6) + 1e-9).all()
    assert (arm.steps >= 1).all()
    got = net(arm, np.linspace(0.0, 2 * arm.break_even[-1], 50))
    assert (np.diff(np.maximum(got, 0.0)) <= 1e-12 * got[0]).all()


def test_too_many_different_sources_are_refused(monkeypatch):
    monkeypatch.setattr(arms, "_MOST_ARMS", 3)
    with pytest.raises(ValueError, match=r"4 different sources.*use the agent 'whittle'"):
        ObservedArm(Sources.random(4), np.ones(4, dtype=bool), Exponential())
    # Alike ones count once.
    ObservedArm(Sources(np.ones(50), 1.0, 0.1), np.ones(50, dtype=bool), Exponential())


@pytest.mark.parametrize("seen", ["all", "half"])
def test_look_up_and_net_reward_as_in_plain_arithmetic(seen):
    rng, n = np.random.default_rng(2), 60
    items = rng.choice([0.3, 5.0, 900.0, 30_000.0], n)
    decay = rng.choice([2e-8, 0.05, 0.7], n)
    some = Sources(items, 1.0 + rng.random(n), decay, 1.0 + rng.random(n))
    observed = rng.random(n) < (1.0 if seen == "all" else 0.5)
    table = ObservedArm(some, observed, Exponential())
    x = 1.6 * rng.random((2, 40, n)) ** 3 * some.ceiling
    index, charges = table.index(x), 10 ** rng.uniform(-2, 3, (6, 1))
    gains = np.array([table.net_reward(charge) for charge in charges])
    closed = whittle_index(x, some)
    np.testing.assert_array_equal(index[..., ~observed], closed[..., ~observed])
    for i in np.flatnonzero(observed):
        longer = max(1.0, 1e-6 / decay[i])
        arm = solve_arm(min(items[i] * longer, 20_000.0), decay[i] * longer, Exponential())
        unit = some.ceiling[i] / (min(items[i] * longer, 20_000.0) / (decay[i] * longer))
        net_of_arm = unit * net(arm, np.minimum(charges[:, 0] * some.cost[i] / unit, arm[2][-1]))
        if longer > 1.0:
            net_of_arm = np.minimum(net_of_arm / longer * (1 + 1e-6), some.inflow[i])
        np.testing.assert_allclose(gains[:, i], net_of_arm, rtol=1e-12, atol=1e-14 * some.inflow[i])
        if items[i] * longer > 20_000.0:
            np.testing.assert_array_equal(index[..., i], closed[..., i])
            continue
        state = x[..., i] / unit
        # On the grid t, where x = top·t(even + (1 − even)t), the index is linear.
        bent, states = 1.0 - arm.even, arm.state.size
        root = np.sqrt(arm.even**2 + 4.0 * bent * state / arm.top)
        place = states * (root - arm.even) / (2.0 * bent)
        expected = np.interp(place, np.arange(states), arm.break_even)
        expected += np.maximum(state - arm.state[-1], 0.0)
        expected = np.minimum(expected, state) * unit / some.cost[i]
        above = state >= (arm.state[1] if longer > 1.0 else 0.0)
        np.testing.assert_allclose(index[..., i][above], expected[above], rtol=1e-8, atol=1e-14)
        if not above.all():
            first = arm.state[1] * unit
            factor = (
                arm.break_even[1] * unit / some.cost[i] / whittle_index(np.full(n, first), some)[i]
            )
            np.testing.assert_allclose(
                index[..., i][~above], closed[..., i][~above] * factor, rtol=1e-9
            )


@pytest.mark.parametrize(
    ("items", "decay"), [(0.05, 10.0), (1.0, 10.0), (1.0, 40.0), (2e3, 1e3), (1e3, 1e4)]
)
def test_the_fastest_decay(items, decay):
    """Nothing is left of a step's content after the next: at λ it earns E max(X − λ, 0) a step.

    X is drawn 50,000 times; what comes too early to count is not.
    """
    rng, steps = np.random.default_rng(0), 50_000
    window = min(decay, 30.0)  # times the decay rate
    mean = items / decay
    charges = mean * np.array([0.3, 1.0, 3.0])
    for recall, precision, seen in ((0.5, 0.8, False), (1.0, 1.0, False), (1.0, 1.0, True)):
        sources = Sources(items, 1.0, decay, recall=recall, precision=precision)
        arm = ObservedArm(sources, np.array([seen]), Exponential())
        number = rng.poisson(recall / precision * mean * window, steps)
        worth = precision * np.exp(-rng.uniform(0, window, number.sum()))
        worth *= rng.standard_exponential(worth.size) if seen else 1.0
        content = np.bincount(np.repeat(np.arange(steps), number), worth, steps)
        content += (1 - recall) * mean
        control = content - mean  # of mean 0, which makes the estimate more exact
        for charge in charges:
            earned = np.maximum(content - charge, 0.0)
            earned = earned - np.cov(earned, control)[0, 1] / control.var() * control
            error = Z_LIMIT * earned.std() / np.sqrt(steps)
            found = arm.net_reward(np.array([charge]))[0]
            assert abs(found - earned.mean()) < error + 0.002 * mean
        # All that comes is crawled for nothing.
        free = arm.net_reward(np.zeros(1))[0]
        assert free == pytest.approx(sources.inflow[0], rel=1e-9, abs=0.0)
