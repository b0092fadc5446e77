"""Agents with discrete actions crawl exactly what their priorities would have crawled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import agents
from crawl_env import CrawlVectorEnv, Sources

EPOCHS, ROWS = 60, 3
SHOWN = ("value", "age", "account", "crawled", "harvest")


def first_difference(name: str, arguments: dict[str, Any], seed: int = 0) -> int | None:
    """Return the epoch in which an agent crawls other sets with subsets than with priorities."""
    envs, players, seen = [], [], []
    states: list[Any] = [None, None]
    for action in ("priority", "subset"):
        env = CrawlVectorEnv(
            ROWS, **{"horizon": None, "features": SHOWN, **arguments}, action=action
        )
        envs.append(env)
        players.append(agents.make(name, env, seed=seed))
        seen.append(env.reset(seed=seed)[0])
    for epoch in range(EPOCHS):
        for i, env in enumerate(envs):
            action, states[i] = players[i].predict(seen[i], states[i])
            seen[i] = env.step(action)[0]
        picked = [np.sort(env.harvest.picked).tolist() for env in envs]
        if picked[0] != picked[1]:
            return epoch
    return None


def fleets(kind: str, seed: int) -> tuple[Sources, float]:
    """Return a fleet with costs of a kind and a budget for some of it."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    cost = {
        "unit": np.ones(n),
        "whole": rng.integers(1, 4, n) * 1.0,
        "tenths": rng.integers(1, 10, n) / 10,
        "any": rng.uniform(0.3, 2, n),
    }[kind]
    fleet = Sources(
        rng.uniform(0.5, 50, n), rng.uniform(0.1, 2, n), rng.uniform(0.03, 1.5, n), cost
    )
    share = rng.uniform(0.3, 1) * cost.sum()
    return fleet, float(round(share, 1) if kind in ("tenths", "whole") else share)


def check(name: str, kind: str, rule: str) -> None:
    differ = []
    for seed in range(12):
        fleet, budget = fleets(kind, seed)
        budget = max(budget, fleet.cost.max() if rule == "epoch" else 0.1)
        start = ("fresh", "empty", "full", "random")[seed % 4]
        arrivals = ("deterministic", "poisson")[seed % 2]
        arguments = {
            "sources": fleet, "budget": budget, "budget_rule": rule, "start": start,
            "arrivals": arrivals,
        }  # fmt: skip
        epoch = first_difference(name, arguments, seed)
        if epoch is not None:
            differ.append((seed, epoch))
    assert not differ, f"other sets in (seed, epoch) {differ}"


@pytest.mark.parametrize("kind", ["unit", "whole", "tenths", "any"])
@pytest.mark.parametrize("name", agents.AGENTS)
def test_epoch(name: str, kind: str) -> None:
    check(name, kind, "epoch")


@pytest.mark.parametrize("name", agents.AGENTS)
def test_average_unit_costs(name: str) -> None:
    check(name, "unit", "average")


@pytest.mark.parametrize("kind", ["whole", "tenths", "any"])
@pytest.mark.parametrize("name", agents.AGENTS)
def test_average_mixed_costs(name: str, kind: str) -> None:
    """A set that priorities crawl must be crawled when named: the environment may not take its
    dear, old member first and leave out the rest."""
    check(name, kind, "average")


@pytest.mark.parametrize("name", agents.AGENTS)
@pytest.mark.parametrize("cost", [0.3, 0.7, 1.1])
def test_average_account_as_seen_in_float32(name: str, cost: float) -> None:
    """0.3 is shown as 0.30000001: money for one source must not look like money for two."""
    fleet = Sources([5.0, 3, 2, 1], 1.0, 0.3, cost)
    for budget in (cost, 2 * cost):
        arguments = {"sources": fleet, "budget": budget, "budget_rule": "average"}
        assert first_difference(name, arguments) is None


@pytest.mark.parametrize("name", agents.AGENTS)
@pytest.mark.parametrize("rule", ["epoch", "average"])
def test_ties_go_to_the_older(name: str, rule: str) -> None:
    alike = Sources([2.0] * 5, 1.0, 0.4)
    for start in ("fresh", "random"):
        arguments = {"sources": alike, "budget": 2, "budget_rule": rule, "start": start}
        assert first_difference(name, arguments) is None


def test_numbers_are_those_of_the_table() -> None:
    fleet = Sources([4.0, 20, 1, 9], [1.0, 0.3, 2, 0.5], [0.2, 0.7, 0.05, 1.2], [1, 2, 0.5, 0.7])
    features = ("age", "crawled", "harvest")
    env = CrawlVectorEnv(40, sources=fleet, budget=2.2, action="subset", features=features)
    for name in agents.AGENTS:
        agent = agents.make(name, env, seed=1)
        observation, _ = env.reset(seed=1)
        used, state = set(), None
        for _ in range(30):
            action, state = agent.predict(observation, state)
            assert action.shape == (40,)
            assert action.dtype.kind == "i"
            observation, *_ = env.step(action)
            for row, number in enumerate(action):
                crawled = tuple(np.flatnonzero(env.world.age[row] == 1).tolist())
                assert crawled == env.subsets[number]
                used.add(int(number))
        if name == "random":
            assert used == set(range(len(env.subsets)))


def test_refusals() -> None:
    hidden = CrawlVectorEnv(
        1,
        action="subset",
        budget=2,
        budget_rule="average",
        features=("age", "crawled", "harvest"),
    )
    for name in agents.AGENTS:
        with pytest.raises(ValueError, match=f"{name}.*account.*Add it to `features`"):
            agents.make(name, hidden)
    ageless = CrawlVectorEnv(1, action="subset", budget=2, features=("value",))
    with pytest.raises(ValueError, match=r"oldest-first.*needs the feature age"):
        agents.make("oldest-first", ageless)
    agents.make("whittle", ageless)
