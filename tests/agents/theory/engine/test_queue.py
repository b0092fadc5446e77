"""The queue: its stationary law with short steps, and the law of what an item waits."""

import numpy as np
import pytest

from agents.theory.engine.queue import kept_at_place, served, service_of
from crawl_env import Engine


def test_an_engine_with_short_steps_is_that_queue():
    """A page at a time, Poisson service: in steps of length h the error is proportional to h."""
    errors, odds = [], 0.8 ** np.arange(11)
    for h in (0.02, 0.01):
        arrive = np.array([1 - 0.8 * h, 0.8 * h])
        moves = served(service_of(Engine(rate=h, capacity=10, service="poisson")), 10, 11)[0, :, 0]
        chain = np.array([arrive[0] * moves[b] + arrive[1] * moves[b + 1] for b in range(11)])
        law = np.linalg.matrix_power(chain, 2**20)[0]
        errors.append(np.abs(law - odds / odds.sum()).max())
    assert errors[0] < 0.01
    assert errors[1] == pytest.approx(errors[0] / 2, rel=0.05)


@pytest.mark.parametrize("engine", [
    Engine(rate=2, capacity=4),
    Engine(rate=1.5, capacity=3),
    Engine(rate=0.5, capacity=2),
    Engine(rate=1.3, capacity=4, service="poisson"),
])  # fmt: skip
def test_what_is_left_of_an_item_by_its_place(engine):
    """Against simulation; 12 comparisons, each fails by chance once in 10⁴ seeds."""
    service, rng, kept = service_of(engine), np.random.default_rng(0), 0.8
    longest = engine.capacity + int(service.places.max())
    found = kept_at_place(service, engine.capacity, longest, kept)
    draws = 4000
    for p in (1, 2, engine.capacity + 1):
        left, waits, steps = np.zeros(draws), np.ones(draws, dtype=bool), 0
        state, place = np.zeros(draws, dtype=int), np.full(draws, p)
        while waits.any():
            s = rng.choice(len(service.odds), draws, p=service.odds)
            places = service.places[state, s]
            taken = waits & (place <= places)
            left[taken] = kept**steps
            place, state = place - places, service.onward[state, s]
            waits &= ~taken & ((place <= engine.capacity) | (steps > 0))
            steps += 1
        assert abs(left.mean() - found[0, p - 1]) <= 3.9 * left.std() / np.sqrt(draws) + 1e-12
