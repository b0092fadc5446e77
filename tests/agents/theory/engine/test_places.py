"""The bound of places: against exact optima, and at prices of every kind."""

import numpy as np
import pytest
from scipy import stats

from agents import task_bound
from agents.theory.engine.optimum import EngineProcess
from agents.theory.engine.places import PlacePrices, has_places, places_bound
from agents.theory.engine.relaxation import engine_relaxation
from crawl_env import Engine, Sources, Task
from crawl_env.content.utility import EqualUtilities, Exponential

PAIR = Sources([2.0, 0.5], [1.0, 2.0], [0.3, 0.2])
THREE = Sources([2.0, 1.0, 0.5], [1.0, 0.7, 2.0], [0.3, 0.25, 0.3], [1.0, 2.0, 1.0])
RANDOM = {"service": "poisson"}


@pytest.mark.parametrize(
    ("sources", "budget", "engine", "utility", "fraction"),
    [
        (PAIR, 1, Engine(1.3, 3, **RANDOM), Exponential(), 0.8),
        (PAIR, 1, Engine(0.5, 0, **RANDOM), EqualUtilities(), 0.8),
        (PAIR, 1, Engine(0.4, 6, **RANDOM), Exponential(), 0.5),
        (PAIR, 1, Engine(0.5, 2, threshold=0.4, **RANDOM), Exponential(), 0.9),
        (PAIR, 1, Engine(1, 4), EqualUtilities(), 0.8),
        (THREE, 2, Engine(1.5, 2, **RANDOM), Exponential(), 0.8),
    ],
)
def test_no_policy_exceeds_it(sources, budget, engine, utility, fraction):
    optimum, _ = EngineProcess(sources, budget, engine, 16, utility=utility).optimum(1e-6)
    bound = places_bound(sources, budget, engine, utility)
    assert fraction * bound < optimum < bound * (1 + 1e-5)
    worth = EqualUtilities() if engine.threshold == 0 else utility
    assert bound < 0.96 * engine_relaxation(sources, budget, engine.rate, worth).bound


def test_all_prices_bound_every_policy():
    """Also those that are not the best: of each kind alone, and all of them changed."""
    engine = Engine(0.8, 3, **RANDOM)
    optimum, _ = EngineProcess(PAIR, 1, engine, 20).optimum(1e-6)
    program, rng = PlacePrices(PAIR, 1, engine, Exponential()), np.random.default_rng(0)
    best = program.prices()
    assert optimum < program.at(best) < 1.3 * optimum
    for part in range(1, len(best)):  # the gain follows from the others
        for chosen in (
            best._replace(**{best._fields[part]: np.zeros_like(best[part])}),
            best._replace(
                **{best._fields[part]: best[part] * rng.exponential(1, best[part].shape)}
            ),
            best._replace(**{best._fields[part]: best[part] + 0.1}),
        ):
            assert program.at(chosen) > optimum


def test_no_number_of_items_gains_more_than_the_computed_gain():
    program, rng = (
        PlacePrices(PAIR, 1, Engine(0.8, 3, **RANDOM), Exponential()),
        np.random.default_rng(0),
    )
    prices = program.prices()
    for _ in range(5):
        prices = prices._replace(place=rng.exponential(1, prices.place.shape), own=0 * prices.own)
        gain, value = program.gain(prices), np.append(prices.value, 0.0)
        for b, m in [(b, m) for b in range(4) for m in rng.exponential(3, 40)]:
            n = np.arange(300)
            odds, served = stats.poisson.pmf(n, m), stats.poisson.pmf(n[:40], 0.8)
            after = np.clip(b + n[:, None] - n[:40], 0, 3)
            paid = np.append(np.zeros(1), np.cumsum(prices.place[b:] + prices.batch[: -b or None]))
            earned = odds @ paid[np.minimum(n, paid.size - 1)] + odds @ value[after] @ served
            assert earned - value[b] <= gain + 1e-9


def test_where_it_is_the_bound_of_a_task():
    fleet = Sources.random(10, 1)
    fleet = fleet.replaced(arrival_rate=fleet.arrival_rate / 100)
    posed = {"sources": fleet, "budget": 1, "observed": False}
    engine = Engine(0.2 * float(fleet.arrival_rate.sum()), 6, **RANDOM)
    found = task_bound(Task(**posed, engine=engine))
    assert found.bound == places_bound(fleet, 1, engine)
    two = engine_relaxation(fleet, 1, engine.rate)
    assert found.bound < 0.9 * engine_relaxation(fleet, 1, engine.rate, EqualUtilities()).bound
    assert (found.multiplier, found.price) == (two.multiplier, two.price)
    for other in (
        Engine(1, 6, "value"),
        Engine(1, **RANDOM),
        Engine(1.5, 6),
        Engine(1, 15, **RANDOM),
        Engine(float("inf"), 6, **RANDOM),
    ):
        assert not has_places(fleet, other)
    assert not has_places(fleet.replaced(capacity=3), engine)
    assert not has_places(Sources.random(1000, 1), engine)
