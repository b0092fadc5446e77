"""Bounds of fleets with shared hosts and other limits against linear programming, joint value
iteration and simulation."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import agents
from agents.theory.optimum import optimal_reward
from agents.theory.relaxation import relaxation, relaxed_bound
from agents.theory.task_bound import task_bound
from crawl_env import CrawlVectorEnv
from crawl_env.fleet.sources import Sources
from tests.crawl_env.env_plain import unreachable_is_fine

# ------------------------------------------------------------------------- the relaxed bound


def by_linear_programming(fleet: Sources, budget: float, per_host: int) -> float:
    """Return the best stationary mix of cycles: f_ik cycles per epoch of source i, first tried at
    age k, that fit into its time, the budget and the hosts' crawls. The dual of the bound."""
    gain, time, spent, tries, owner = [], [], [], [], []
    for i in range(len(fleet)):
        p, d = float(fleet.failure_rate[i]), int(fleet.delay[i])
        for k in range(d, d + math.ceil(40 / fleet.decay_per_step[i]) + 2):
            j = np.arange(200)
            odds = (1 - p) * p**j
            one = fleet.select([i])
            gain.append(odds @ one.content_at((k + j * d)[:, None].astype(float))[:, 0])
            time.append(odds @ (k + j * d))
            spent.append(fleet.cost[i] / (1 - p))
            tries.append(1 / (1 - p))
            owner.append(i)
    of = np.array(owner)
    rows = [np.where(of == i, time, 0.0) for i in range(len(fleet))]
    limits = [1.0] * len(fleet)
    rows.append(np.array(spent))
    limits.append(budget)
    for name in {h for h in fleet.hosts if h}:
        here = np.array([h == name for h in fleet.hosts])
        rows.append(np.where(here[of], tries, 0.0))
        limits.append(per_host)
    return float(-linprog(-np.array(gain), A_ub=np.array(rows), b_ub=limits).fun)


def limited(seed: int) -> tuple[Sources, float, int]:
    """A small fleet with all limits, a budget and `per_host`."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    hosts = rng.choice(["", "a", "a", "b"], n).tolist()
    fleet = Sources(
        rng.choice([0.3, 1.0, 5.0], n),
        rng.choice([0.5, 1.0, 2.2], n),
        rng.choice([0.3, 0.55, 1.3], n),
        rng.choice([0.5, 1.0, 1.0, 1.7], n),
        crawl_delay=rng.choice([0.0, 0.0, 2.0, 4.0], n),
        capacity=rng.choice([np.inf, np.inf, 1.0, 4.0], n),
        failure_rate=rng.choice([0.0, 0.0, 0.2, 0.6], n),
        hosts=hosts,
    )
    return fleet, float(rng.choice([0.4, 1.0, 2.0, 3.1])), int(rng.integers(1, 3))


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_is_the_linear_programmes(seed: int) -> None:
    fleet, budget, per_host = limited(seed)
    found = relaxation(fleet, budget, per_host)
    assert found.bound == pytest.approx(by_linear_programming(fleet, budget, per_host), rel=1e-7)
    without = Sources(**{**fleet.__getstate__(), "hosts": ()})
    assert found.bound <= relaxed_bound(without, budget) * (1 + 1e-10)
    if seed < 2:
        batch = relaxation(Sources.stack([fleet, fleet]), budget, per_host)
        np.testing.assert_allclose(batch.bound, found.bound, rtol=1e-12)


def test_a_budget_that_does_not_bind_is_not_searched_for() -> None:
    """Only the host is short: its charge is found, and λ* is 0."""
    fleet = Sources([3.0, 2.0], 1.0, [0.4, 0.5], hosts=["a", "a"])
    found = relaxation(fleet, 2.0)
    assert found.multiplier == 0
    assert found.bound == pytest.approx(
        relaxed_bound(Sources(**{**fleet.__getstate__(), "hosts": ()}), 1.0)
    )


def test_a_shared_host_sharpens_the_bound() -> None:
    fleet = Sources(250.0, [1.0, 0.7, 0.2, 0.08], [0.7, 0.35, 0.7, 0.21], hosts=["a", "a", "", ""])
    alone = Sources.preset("table1")
    assert relaxed_bound(fleet, 2) < relaxed_bound(alone, 2) - 10
    assert relaxed_bound(fleet, 2, per_host=2) == relaxed_bound(alone, 2)
    assert optimal_reward(fleet, 2) <= relaxed_bound(fleet, 2)
    assert optimal_reward(fleet, 2, per_host=2) == pytest.approx(337.774550, abs=1e-6)


# ------------------------------------------------------------------------- the exact optimum


def by_value_iteration(fleet: Sources, budget: float, per_host: int, cap: int) -> float:
    """Return the best reward per epoch of all policies, idle ones too, over the joint states (age,
    epochs since the last attempt) of all sources; ages stop at `cap`."""
    n = len(fleet)
    delay, p = fleet.delay.astype(int), fleet.failure_rate
    states = [
        [
            (k, w)
            for k in range(1, cap + 1)
            for w in range(1, delay[i] + 1)
            if w == min(k, delay[i]) or (p[i] > 0 and w < k)
        ]
        for i in range(n)
    ]
    number = [{state: j for j, state in enumerate(own)} for own in states]

    def moved(i: int, then: Any) -> np.ndarray:
        return np.array([number[i][min(k + 1, cap), then(w)] for k, w in states[i]])

    wait = [moved(i, lambda w, i=i: min(w + 1, delay[i])) for i in range(n)]
    fail = [moved(i, lambda w: 1) if p[i] > 0 else wait[i] for i in range(n)]

    def along(values: Any, i: int) -> np.ndarray:
        return np.asarray(values).reshape([-1 if j == i else 1 for j in range(n)])

    free = [along([w == delay[i] for _, w in states[i]], i) for i in range(n)]
    brings = []
    for i in range(n):
        content = fleet.content_at(np.array([[k] for k, _ in states[i]], dtype=float))[:, i]
        brings.append(along((1 - p[i]) * content, i))
    allowed = [
        chosen
        for k in range(n + 1)
        for chosen in itertools.combinations(range(n), k)
        if sum(fleet.cost[i] for i in chosen) <= budget * (1 + 1e-12)
        and all(
            [fleet.hosts[j] for j in chosen].count(h) <= per_host for h in set(fleet.hosts) - {""}
        )
    ]
    value = np.zeros([len(own) for own in states])
    for _ in range(20_000):
        best = np.full(value.shape, -np.inf)
        for chosen in allowed:
            after, reward, may = value, np.zeros([1] * n), np.ones([1] * n, dtype=bool)
            for i in range(n):
                if i in chosen:
                    emptied = after.take([number[i][1, 1]], axis=i)
                    after = (1 - p[i]) * emptied + p[i] * after.take(fail[i], axis=i)
                    reward, may = reward + brings[i], may & free[i]
                else:
                    after = after.take(wait[i], axis=i)
            np.maximum(best, np.where(may, reward + after, -np.inf), out=best)
        change = best - value
        if np.ptp(change) <= 1e-7 * change.max():
            return float(change.mean())
        value = value + 0.5 * change - value.flat[0]
    raise AssertionError("value iteration did not settle")


def drawn(seed: int, both: bool) -> tuple[Sources, float, int]:
    """A fleet of two or three sources with all limits, a budget and `per_host`."""
    rng = np.random.default_rng(seed)
    n = 2 if both or seed % 3 else 3
    failing = rng.choice([0.0, 0.3, 0.6], n) * (both or seed % 2)
    delay = rng.choice([0.0, 2.0, 3.0], n) * (both or seed % 2 == 0)
    fleet = Sources(
        rng.uniform(0.5, 5, n),
        1.0,
        rng.uniform(1.7, 3.0, n),
        rng.choice([0.5, 1.0, 1.0, 1.5], n),
        crawl_delay=delay,
        failure_rate=failing,
        capacity=rng.choice([1.0, 3.0, np.inf], n),
        hosts=rng.choice(["", "a", "a"], n).tolist(),
    )
    return fleet, float(rng.choice([1.5, 2.0])), int(rng.integers(1, 3))


@pytest.mark.parametrize("seed", range(4))
def test_the_exact_optimum_is_the_best_of_all_policies(seed: int) -> None:
    fleet, budget, per_host = drawn(seed, both=False)
    best = by_value_iteration(fleet, budget, per_host, cap=11)
    assert optimal_reward(fleet, budget, per_host=per_host) == pytest.approx(best, rel=1e-6)
    assert best <= relaxed_bound(fleet, budget, per_host) * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(9, 11))
def test_policies_optimum_and_bound_are_in_order(seed: int) -> None:
    """With delays and failures at once: Whittle's simulated reward ≤ optimum ≤ relaxed bound; the
    simulation is within 4.5 standard errors."""
    fleet, budget, per_host = drawn(seed, both=True)
    best = by_value_iteration(fleet, budget, per_host, cap=11)
    assert best <= relaxed_bound(fleet, budget, per_host) * (1 + 1e-6)
    rows, epochs = 150, 100
    with unreachable_is_fine():
        env = CrawlVectorEnv(
            rows, sources=fleet, budget=budget, per_host=per_host, horizon=None, features=("age",)
        )
    assert task_bound(env.task).bound == pytest.approx(relaxed_bound(fleet, budget, per_host))
    agent = agents.make("whittle", env)
    seen, _ = env.reset(seed=seed)
    earned = np.zeros(rows)
    for epoch in range(40 + epochs):
        seen, reward, *_ = env.step(agent.predict(seen)[0])
        earned += reward * (epoch >= 40)
    earned /= epochs
    error = earned.std(ddof=1) / np.sqrt(rows)
    assert earned.mean() <= best * (1 + 1e-6) + 4.5 * error
    assert earned.mean() >= 0.85 * best  # a sane policy: measured .93 … 1 on these fleets
    if fleet.fails and fleet.is_delayed:
        with pytest.raises(ValueError, match="crawl delays or failing crawls, not both"):
            optimal_reward(fleet, budget, per_host=per_host)


@pytest.mark.parametrize("budget", [1, 3])
def test_the_papers_example_reaches_its_bound_with_limits_that_do_not_bind(budget: int) -> None:
    fleet = Sources(
        250.0,
        [1.0, 0.7, 0.2, 0.08],
        [0.7, 0.35, 0.7, 0.21],
        crawl_delay=[1.0, 1.0, 0.5, 0.0],
        capacity=[1e6, np.inf, np.inf, 1e7],
        hosts=["a", "b", "", "c"],
    )
    expected = {1: 260.389930, 3: 372.410342}[budget]
    assert optimal_reward(fleet, budget) == pytest.approx(expected, abs=1e-6)
    assert relaxed_bound(fleet, budget) == pytest.approx(expected, abs=1e-6)
