"""Agents on fleets with costs, delays, failures, hosts and capacities at once."""

import numpy as np
import pytest

import agents
from agents import relaxation
from agents.evaluation.rollout import compare, evaluate, with_features
from agents.policies.base import ObservationView
from agents.registry import AGENTS
from agents.theory.index import index_at_age, myopic_index, whittle_index
from agents.theory.multiplier import BudgetMultiplier
from agents.theory.task_bound import task_bound
from crawl_env import CrawlVectorEnv, Sources, Task
from crawl_env.fleet.parameters import PARAMETERS

Z_LIMIT = 4.0  # a right program fails one such comparison in 30,000
# Not "average" seen: λ* of this fleet is then simulated, which takes many seconds.
RULES = [("step", True), ("step", False), ("average", False)]
PARAMETERS_SHOWN = ("value", "age", "balance", "available", *PARAMETERS)


def everything(n=8):
    """A fleet with all limits at once."""
    rng = np.random.default_rng(3)
    return Sources(
        rng.uniform(0.2, 4, n),
        rng.uniform(0.5, 2, n),
        rng.uniform(0.05, 1, n),
        rng.choice([0.5, 1.0, 2.0], n),
        crawl_delay=rng.choice([0.0, 0.0, 2.0, 3.5], n),
        capacity=rng.choice([1.0, 3.0, np.inf], n),
        failure_rate=rng.choice([0.0, 0.3, 0.6], n),
        hosts=[["", "a", "b", "a"][i % 4] for i in range(n)],
    )


CASES = {(name, *RULES[i % 3]) for i, name in enumerate(AGENTS)}
CASES |= {(name, *rule) for name in ("whittle", "static", "adaptive-thompson") for rule in RULES}


@pytest.mark.parametrize(("name", "rule", "observed"), sorted(CASES))
def test_every_agent_keeps_the_limits(name, rule, observed):
    fleet, rows, budget = everything(), 2, 2.5
    arguments = {
        "sources": fleet,
        "budget": budget,
        "budget_rule": rule,
        "arrivals": "poisson-items",
        "observed": observed,
        "features": ("value", "age", "balance", "available"),
    }
    _, posed = with_features(name, arguments)
    env = CrawlVectorEnv(rows, **posed, horizon=None)
    agent = agents.make(name, env, seed=0)
    seen, _ = env.reset(seed=0)
    state, last, spent = None, np.full((rows, 8), 0.0), np.zeros(rows)
    tried = np.zeros(rows)
    for epoch in range(1, 21):
        wanted, state = agent.predict(seen, state, np.full(rows, epoch == 1))
        seen, *_ = env.step(wanted)
        picked = np.ravel(env.harvest.picked)
        for cell in picked.tolist():
            row, i = divmod(cell, 8)
            assert epoch - last[row, i] >= fleet.crawl_delay[i]
            last[row, i] = epoch
        mask = np.zeros((rows, 8), dtype=bool)
        mask.reshape(-1)[picked] = True
        for host in ("a", "b"):
            assert mask[:, [h == host for h in fleet.hosts]].sum(axis=1).max() <= 1
        cost = mask @ fleet.cost
        spent, tried = spent + cost, tried + mask.sum(axis=1)
        if rule == "step":
            assert cost.max() <= budget * (1 + 1e-9)
        assert spent.max() <= budget * epoch + fleet.cost.max()
    assert tried.min() >= 10  # it does not stand still


@pytest.mark.parametrize(("rule", "observed"), RULES)
def test_those_who_plan_beat_random_choice(rule, observed):
    """And none exceeds the bound."""
    task = {
        "sources": everything(),
        "budget": 2.0,
        "budget_rule": rule,
        "arrivals": "poisson-items",
        "observed": observed,
    }
    names = ["whittle", *(["whittle-exact"] if observed else []), "lagrangian", "myopic", "random"]
    runs = compare(names, task, steps=60, warmup=20, seeds=6)
    bound = task_bound(Task(**task)).bound
    random = runs.pop("random").reward
    for name, run in runs.items():
        gain = run.reward - random
        assert gain.mean() > Z_LIMIT * gain.std(ddof=1) / np.sqrt(gain.size), name
        error = run.reward.std(ddof=1) / np.sqrt(run.reward.size)
        assert run.reward.mean() < bound + Z_LIMIT * error


def test_myopia_counts_what_succeeds():
    fleet = Sources(1.0, 1.0, [0.1, 0.1], cost=[1, 2], failure_rate=[0.5, 0])
    assert myopic_index([4.0, 4.0], fleet).tolist() == [2.0, 2.0]


def test_the_index_of_a_whole_fleet_is_that_of_its_sources():
    """Sources without limits beside limited ones keep Theorem 1, in any batch shape."""
    fleet = everything()
    value = np.random.default_rng(0).uniform(0, 1.3, (3, 5, 8)) * fleet.ceiling
    found = whittle_index(value, fleet)
    for i in range(8):
        alone = whittle_index(value[..., i : i + 1], fleet.select([i]))[..., 0]
        np.testing.assert_allclose(found[..., i], alone, rtol=1e-12, atol=1e-14)
    batch = Sources.stack([fleet] * 3)
    np.testing.assert_allclose(whittle_index(value[:, 0], batch), found[:, 0], rtol=1e-12)
    with pytest.raises(ValueError, match="known only for the average reward"):
        whittle_index(value, fleet, discount=0.9)
    assert np.all(np.diff(index_at_age(np.arange(1.0, 60)[:, None], fleet), axis=0) >= -1e-12)


def test_epochs_in_which_nothing_is_available():
    """All agents go on, spend nothing and earn nothing there."""
    fleet = Sources([1.0, 2.0, 3.0], 1.0, [0.2, 0.3, 0.4], crawl_delay=5.0)
    for rule in ("step", "average"):
        for name in AGENTS:
            posed = with_features(
                name,
                {
                    "sources": fleet,
                    "budget": 2,
                    "budget_rule": rule,
                    "features": ("age", "balance", "value"),
                },
            )[1]
            env = CrawlVectorEnv(2, **posed)
            agent = agents.make(name, env, seed=0)
            seen, _ = env.reset(seed=0)
            state, idle = None, 0
            for epoch in range(20):
                wanted, state = agent.predict(seen, state, np.full(2, epoch == 0))
                seen, reward, *_ = env.step(wanted)
                if np.size(env.harvest.picked) == 0:
                    assert not reward.any()
                    idle += 1
            assert idle >= 4, name


def test_the_price_knows_the_hosts_of_drawn_fleets():
    """λ* of an environment that draws its fleets is that of the same fleet given once."""
    fleet = Sources([3.0, 3.0, 2.0], 1.0, [0.3, 0.4, 0.2], hosts=["a", "a", ""])
    arguments = {"budget": 1.5, "budget_rule": "average"}
    shown = (*PARAMETERS_SHOWN,)
    drawn = Task(lambda rng: fleet, features=shown, **arguments)
    env = CrawlVectorEnv(1, sources=lambda rng: fleet, features=shown, **arguments)
    seen, _ = env.reset(seed=0)
    sources = ObservationView(seen, drawn).sources
    assert sources.hosts == fleet.hosts
    price = BudgetMultiplier(drawn, whittle_index)(sources)
    # Parameters are seen in float32.
    np.testing.assert_allclose(price.ravel(), relaxation(fleet, 1.5).multiplier, rtol=1e-4)


def test_the_bound_of_seen_capped_fleets_holds():
    """Content that grows freely until its capacity is reached earns more than a smooth curve to the
    same ceiling would: the bound must not take it for that."""
    fleet = Sources(1000.0, 1.0, np.full(6, 0.01), capacity=2000)
    arguments = {"sources": fleet, "budget": 3, "arrivals": "poisson-constant-items"}
    bound = task_bound(Task(**arguments)).bound
    run = evaluate("whittle", arguments, steps=20, warmup=5, seeds=2)
    assert run.reward.mean() > 5000  # 2 epochs' content of 3 sources, nearly
    assert run.reward.mean() <= bound
