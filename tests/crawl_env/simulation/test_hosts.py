"""Shared hosts: selection under costs, availability and hosts against plain Python, and subsets."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl_env.envs.subsets import maximal_subsets
from crawl_env.fleet.sources import Sources
from crawl_env.simulation.selection import BALANCE_TOLERANCE, Hosts, select, whole_budget
from tests.references import in_line, plainly

VALUES = [-math.inf, -1.0, -0.0, 0.0, 0.5, 1.0, math.inf]
COSTS = [0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.0, 2.0, 3.7, 1e-3, 100.0]
fewer = settings(plainly, max_examples=25)


def taken(priority, crawled_at, cost, budget, balance, allowed, host, per_host):
    """Return what one row crawls, in exact arithmetic: one source of the line after the other."""
    limit = Fraction(budget) * (1 + Fraction(1, 10**12))
    spent, chosen = Fraction(0), set[int]()
    for i in in_line(priority, crawled_at):
        room = sum(host[j] == host[i] for j in chosen) < per_host
        if balance is None:
            pays = spent + Fraction(cost[i]) <= limit
        else:
            pays = priority[i] >= 0 and Fraction(balance) - spent > budget * BALANCE_TOLERANCE
        if allowed[i] and room and pays:
            spent += Fraction(cost[i])
            chosen.add(i)
    return chosen


@st.composite
def selections(draw):
    rows, n = draw(st.integers(1, 4)), draw(st.integers(1, 9))

    def table(cells, dtype=float):
        flat = draw(st.lists(cells, min_size=rows * n, max_size=rows * n))
        return np.array(flat, dtype=dtype).reshape(rows, n)

    pool = st.sampled_from(draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=4)))
    cost = table(st.sampled_from(COSTS))
    if draw(st.booleans()):
        cost[:] = 1.0
    if draw(st.booleans()):
        cost = cost[0]
    cost.flags.writeable = False  # as in a fleet: for numba another type, for which it compiles
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return {
        "priority": table(pool if draw(st.booleans()) else st.floats(-1, 1, width=32), dtype),
        "crawled_at": table(st.integers(-3, 3)),
        "cost": cost,
        "is_whole": draw(st.booleans()),
        "budget": draw(st.sampled_from([0.1, 0.3, 0.6, 1.0, 1.2, 2.5, 3.0, 7.7, 150.0])),
        "balance": draw(
            st.none()
            | st.lists(
                st.sampled_from([-2.0, 0.0, 0.05, 0.45, 1.15, 4.0, 1e3]),
                min_size=rows,
                max_size=rows,
            )
        ),
        "allowed": table(st.sampled_from([True, True, False]), bool),
        "host": np.array(draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))),
        "per_host": draw(st.integers(1, 3)),
        "limits": draw(st.sampled_from(["both", "allowed", "hosts", "neither"])),
    }


@settings(plainly, max_examples=160)
@given(case=selections())
def test_what_is_selected_is_what_going_down_the_line_gives(case):
    priority, crawled_at, cost = case["priority"], case["crawled_at"], case["cost"]
    rows, n = priority.shape
    balance = None if case["balance"] is None else np.array(case["balance"])
    allowed = case["allowed"] if case["limits"] in ("both", "allowed") else None
    hosts = Hosts(case["host"], case["per_host"]) if case["limits"] in ("both", "hosts") else None
    before = [x.copy() for x in (priority, crawled_at, cost)]
    whole = whole_budget(cost, case["budget"]) if case["is_whole"] else None
    picked = np.ravel(
        select(priority, crawled_at, cost, case["budget"], whole, balance, allowed, hosts)
    )
    costs = np.broadcast_to(cost, priority.shape)
    for row in range(rows):
        expected = taken(
            priority[row].tolist(),
            crawled_at[row].tolist(),
            costs[row].tolist(),
            case["budget"],
            None if balance is None else float(balance[row]),
            [True] * n if allowed is None else allowed[row].tolist(),
            list(range(n)) if hosts is None else case["host"].tolist(),
            case["per_host"],
        )
        assert {int(c) % n for c in picked if c // n == row} == expected
    assert np.all(np.diff(picked) > 0)
    for x, y in zip(before, (priority, crawled_at, cost), strict=True):
        assert np.array_equal(x, y)


def test_nan_is_refused_even_where_it_could_not_be_taken():
    priority = np.array([[0.5, 0.1, 0.2], [0.3, np.nan, 0.1]])
    allowed = np.array([[True] * 3, [True, False, True]])
    hosts = Hosts(np.array([0, 0, 1]), 1)
    for balance in (None, np.array([2.0, 2.0])):
        for limits in ((allowed, None), (None, hosts)):
            with pytest.raises(ValueError, match=r"NaN as priority of source 1 \(environment 1\)"):
                select(priority, np.zeros((2, 3)), np.ones(3), 2.0, 2, balance, *limits)


def test_only_hosts_that_can_be_asked_too_often_matter():
    fleet = Sources(1.0, 1.0, np.full(4, 0.1), hosts=["a", "", "a", ""])
    assert Hosts.of(fleet, 2) is None
    assert Hosts.of(Sources(1.0, 1.0, np.full(2, 0.1), hosts=["", ""]), 1) is None
    hosts = Hosts.of(fleet, 1)
    first, second, third, fourth = hosts.host_of.tolist()
    assert first == third
    assert len({first, second, fourth}) == 3  # "" is a host of its own


@fewer
@given(
    cost=st.lists(st.sampled_from(COSTS), min_size=1, max_size=6),
    budget=st.sampled_from([1.0, 2.5, 4.0]),
    per_host=st.integers(1, 2),
    data=st.data(),
)
def test_subsets_are_the_maximal_ones_that_hosts_allow(cost, budget, per_host, data):
    n = len(cost)
    host = data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    fits = [
        set(chosen)
        for k in range(n + 1)
        for chosen in itertools.combinations(range(n), k)
        if sum(map(Fraction, (cost[i] for i in chosen)), Fraction(0))
        <= Fraction(budget) * (1 + Fraction(1, 10**12))
        and all([host[j] for j in chosen].count(h) <= per_host for h in host)
    ]
    expected = sorted(tuple(sorted(a)) for a in fits if not any(a < b for b in fits))
    found = maximal_subsets(np.array(cost), budget, Hosts(np.array(host), per_host))
    assert list(found) == expected
