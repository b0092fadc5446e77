"""Cycles of one source with failures, delays and capacities: against sums written out, and against
value iteration of the arm, whose state is the age and the epochs since the last attempt."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.theory.index import index_at_age, whittle_index
from agents.theory.relaxation import net_reward
from agents.theory.renewal import renewal_arm
from crawl_env.fleet.sources import Sources
from tests.references import plainly

few = settings(plainly, max_examples=25)


@st.composite
def arms(draw, fails=0.9):
    """One source, of cost 1 or not."""
    decay = draw(st.floats(0.05, 2))
    return Sources(
        [draw(st.floats(0.2, 20))],
        1.0,
        [decay],
        cost=[draw(st.sampled_from([0.5, 1.0, 3.0]))],
        crawl_delay=[draw(st.sampled_from([0.0, 2.0, 3.0, 5.0]))],
        capacity=[draw(st.sampled_from([1.0, 2.0, 6.0, np.inf]))],
        failure_rate=[draw(st.sampled_from([0.0, 0.1, 0.5, fails]))],
    )


def written_out(arm, age):
    """G, L and attempts of a cycle, by adding up how often a crawl may fail."""
    p, d = float(arm.failure_rate[0]), int(arm.delay[0])
    j = np.arange(2000.0)
    odds = (1 - p) * p**j
    brought = float(odds @ arm.content_at((age + j * d)[:, None])[:, 0])
    return brought, float(odds @ (age + j * d)), float(odds @ (j + 1))


@few
@given(arm=arms(), age=st.integers(1, 40))
def test_cycles_are_what_adding_up_gives(arm, age):
    cycle, k = renewal_arm(arm), np.array([float(age)])
    brought, lasted, tried = written_out(arm, age)
    assert cycle.cycle_reward(k)[0] == pytest.approx(brought, rel=1e-12)
    assert cycle.cycle_length(k)[0] == pytest.approx(lasted, rel=1e-12)
    assert cycle.crawl_rate(k)[0] == pytest.approx(tried / lasted, rel=1e-12)
    # The charge makes trying at k and at k + 1 earn the same per epoch.
    later, longer, _ = written_out(arm, age + 1)
    paid = cycle.index_at_age(k)[0] * arm.cost[0] / (1 - arm.failure_rate[0])
    scale = arm.ceiling[0] * 1e-9
    assert (brought - paid) * longer == pytest.approx((later - paid) * lasted, abs=scale * longer)


@few
@given(arm=arms(), price=st.floats(0.0, 1.0))
def test_the_best_cycle_is_the_best_of_all(arm, price):
    level = price * float(arm.content_at(np.inf)[0] / arm.cost[0])
    q, d = 1 - float(arm.failure_rate[0]), int(arm.delay[0])
    ages = np.arange(d, d + 1200.0)[:, None]
    cycle = renewal_arm(arm)
    rates = (cycle.cycle_reward(ages) - level * arm.cost / q) / cycle.cycle_length(ages)
    best = max(0.0, float(rates.max()))
    assert net_reward(arm, np.array([level]))[0] == pytest.approx(best, rel=1e-9, abs=1e-12)


def arm_values(arm, charge, cap):
    """Return the arm's average reward under a charge for each attempt, and how much better it is to
    try now than to wait, by age; by policy iteration on (age, epochs since the attempt).

    Ages stop at `cap`, where content must be at its ceiling.
    """
    p, d = float(arm.failure_rate[0]), int(arm.delay[0])
    content = arm.content_at(np.arange(cap + 1.0)[:, None])[:, 0]
    states = [(k, w) for k in range(1, cap + 1) for w in range(1, min(k, d) + 1)]
    number = {state: i for i, state in enumerate(states)}
    n = len(states)
    wait, fail = (
        np.array([number[min(k + 1, cap), then(w)] for k, w in states])
        for then in (lambda w: min(w + 1, d), lambda w: 1)
    )
    free = np.array([w == d for _, w in states])
    brings = (1 - p) * content[[k for k, _ in states]] - charge
    fresh = number[1, 1]
    tries = free & (brings > 0)
    rows = np.arange(n)
    for _ in range(100):
        # h + g = r + P h, h(fresh) = 0: the column of h(fresh) holds g.
        matrix = np.eye(n)
        np.add.at(matrix, (rows, np.where(tries, fail, wait)), -np.where(tries, p, 1.0))
        matrix[:, fresh] -= np.where(tries, 1 - p, 0.0)
        matrix[:, fresh] = 1.0
        h = np.linalg.solve(matrix, np.where(tries, brings, 0.0))
        gain, h[fresh] = h[fresh], 0.0
        better = brings + p * h[fail] - h[wait]
        improved = free & (better > 1e-9 * content[-1])
        if np.array_equal(improved, tries):
            break
        tries = improved
    at_rest = {k: better[number[k, d]] for k in range(d, cap // 2)}
    return float(gain), np.array([at_rest.get(k, np.nan) for k in range(cap // 2)])


ARMS = [
    (rate, decay, delay, most, p)
    for rate, decay in ((5.0, 0.7), (0.8, 1.3))
    for delay in (0.0, 3.0)
    for most in (np.inf, 1.0, 4.0)
    for p in (0.0, 0.4)
    if (p > 0 or most < np.inf) and (delay > 0) == (rate > 1)  # half of them
]


@pytest.mark.parametrize(("rate", "decay", "delay", "most", "p"), ARMS)
def test_the_index_is_the_arms(rate, decay, delay, most, p):
    """Under a charge just below the index at age k it is better to try there, just above to wait;
    and the average reward is `net_reward`."""
    arm = Sources([rate], 1.0, [decay], 1.5, 1.0, (), delay, most, p)
    index = index_at_age(np.arange(1.0, 80)[:, None], arm)[:, 0]
    assert np.all(np.diff(index) >= -1e-12 * index[-1])
    for k in {max(int(arm.delay[0]), 1), int(arm.delay[0]) + 7}:
        level = index[k - 1]
        for factor, sign in ((0.999, 1), (1.001, -1)):
            gain, better = arm_values(arm, factor * level * 1.5, 34)
            assert sign * better[k] > 0
            best = net_reward(arm, np.array([factor * level]))[0]
            assert gain == pytest.approx(best, rel=1e-7, abs=1e-9)


@few
@given(arm=arms(), x=st.floats(0, 1.5))
def test_limits_lead_to_theorem_1(arm, x):
    """No failures and room for all: Theorem 1 to rounding, and near to it before; a delay alone
    changes nothing."""
    value = np.array([x * float(arm.ceiling[0])])
    state = arm.__getstate__()
    plain = Sources(**{**state, "crawl_delay": 0.0, "capacity": np.inf, "failure_rate": 0.0})
    theorem = whittle_index(value, plain)
    delayed = Sources(**{**state, "capacity": np.inf, "failure_rate": 0.0})
    assert np.array_equal(whittle_index(value, delayed), theorem)
    near = Sources(**{**state, "capacity": 1e6, "failure_rate": 1e-9})
    # At the ceiling the index rises steeply in x; by age there is no such corner.
    if x < 0.999 or x > 1.001:
        np.testing.assert_allclose(whittle_index(value, near), theorem, rtol=2e-5, atol=1e-7)


@few
@given(arm=arms())
def test_the_index_of_a_value_is_between_those_of_its_ages(arm):
    ages = np.arange(1.0, 25.0)[:, None]
    content = arm.content_at(ages)
    at_ages = renewal_arm(arm).index_at_age(ages)
    np.testing.assert_allclose(whittle_index(content, arm), at_ages, rtol=1e-7, atol=1e-9)
    between = whittle_index(0.5 * (content[1:] + content[:-1]), arm)
    slack = 1e-9 * arm.ceiling / arm.cost
    assert np.all(between >= at_ages[:-1] - slack)
    assert np.all(between <= at_ages[1:] + slack)
    assert whittle_index(np.zeros(1), arm)[0] == 0
    q = 1 - arm.failure_rate[0]
    rich = 2 * arm.ceiling
    np.testing.assert_allclose(whittle_index(rich, arm), q * rich / arm.cost)


def test_the_interval_of_a_silent_source_is_its_delay():
    fleet = Sources([0.0, 1.0, 0.0], 1.0, 0.2, crawl_delay=[3.0, 2.0, 0.0])
    for failure_rate, capacity in ((0.0, np.inf), (0.3, np.inf), (0.3, 5.0)):
        state = {**fleet.__getstate__(), "failure_rate": failure_rate, "capacity": capacity}
        arm = renewal_arm(Sources(**state))
        assert arm.longest[[0, 2]].tolist() == [3.0, 1.0]
        assert arm.interval(np.array([0.1]))[[0, 2]].tolist() == [3.0, 1.0]
